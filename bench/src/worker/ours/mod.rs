//! CCI's turns.

pub mod acp;
mod any_length;
mod asleep;
pub mod calls;
pub mod connect;
mod dial;
mod handled;
pub mod job;
mod loans;
mod locked;
pub mod many;
mod messages;
pub mod pack;
pub mod ranks;
pub mod rma;
pub mod services;
mod streams;

pub use any_length::AnyLength;
pub use asleep::{OnHandle, Waiting};
pub use handled::Handled;
pub use loans::Lent;
pub use locked::Locked;
pub use messages::Messages;
pub use streams::Streams;
