//! Messengers in the conformance suite: what a language offers of messages of any length and of calls, and both sides of an exchange.

mod driver;
mod rust;
mod side;

pub use driver::{
    CallEnd, Limits, MessengerCounts, MessengerDriver, MessengerEvent, MessengerPort, Parts, Progress,
};
pub use rust::{ReceivedBytes, ReceivedRequest};
pub use side::{MessengerPair, MessengerSide, until};
