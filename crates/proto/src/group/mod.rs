//! Multicast groups: datagrams that one sends and many get, without connection, acknowledgement or repeat (CCI-031).
//!
//! A [`GroupBundle`] packs messages, [`GroupDatagram::parse`] reads what came, and [`Senders`] tells new datagrams from repeats
//! and counts those that are missing. All that a receiver keeps is bounded, whoever sends.

mod bundle;
mod datagram;
mod senders;
#[cfg(test)]
mod tests;

pub use bundle::GroupBundle;
pub use datagram::{GroupDatagram, GroupName};
pub use senders::{Arrival, Senders};
