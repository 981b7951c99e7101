//! CCI's turns.

mod dial;
mod locked;
mod messages;

pub use locked::Locked;
pub use messages::Messages;
