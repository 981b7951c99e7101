//! CCI's datagram protocol: what to send and when, with no socket, clock or randomness in it.
//!
//! An [`Endpoint`] holds any number of connections. It is driven: datagrams and the time go in
//! ([`Endpoint::handle_datagram`], [`Endpoint::handle_timeout`]), datagrams come out
//! ([`Endpoint::poll_transmit`] into a [`Transmit`]), messages and [`Event`]s go to a [`Sink`]. It never
//! waits, never calls the system and never reads a clock, so a simulator can run whole networks of it by seed.
//!
//! The datagrams are described clause by clause in `docs/wire.md`; comments beginning with `//=` name the
//! clause that the code below them carries out.
// What programs link: it never prints, and nothing received reaches a panic. Tests and examples may do both.
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod address;
mod config;
mod congestion;
mod conn;
mod counters;
mod endpoint;
mod event;
mod group;
mod info;
pub mod limits;
mod operations;
mod pool;
mod reliable;
pub mod rma;
mod seam;
mod secret;
mod seq;
mod time;
mod timers;

mod wire;

pub use address::Address;
pub use config::{Config, ConfigError};
pub use counters::{ConnectionCounters, Counters, PeerFault};
pub use endpoint::Endpoint;
pub use event::{
    AcceptError, AcceptFailure, Attribute, ConnKey, ConnectError, ConnectFailure, DisconnectReason, Event,
    Request, RequestTicket, SendError, Status, Taken, Unknown,
};
pub use group::{Arrival, GroupBundle, GroupDatagram, GroupName, Senders};
pub use info::{Blocked, ConnState, ConnectionInfo, MemoryUse, PathInfo, PathState};
pub use rma::{Atomic, AtomicKind, AtomicWidth, RemoteAddress, RmaError, RmaKind, RmaRefusal, RmaSegment};
pub use seam::{BundleSummary, Memory, Sink, Transmit};
pub use seq::Seq;
pub use time::Time;
pub use wire::{BundleMessages, first_datagram_bytes};
