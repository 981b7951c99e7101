//! CCI's turns.

mod asleep;
pub mod connect;
mod dial;
mod locked;
pub mod many;
mod messages;
pub mod rma;
mod streams;

pub use asleep::{OnHandle, Waiting};
pub use locked::Locked;
pub use messages::Messages;
pub use streams::Streams;
