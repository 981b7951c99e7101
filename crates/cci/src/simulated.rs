//! Endpoints on a network and a clock given from outside: whole ones, as programs have them, without a system below. For the test kit, behind a
//! feature that nothing else turns on.
//!
//! A program over such an endpoint calls what never waits: not `wait`, and nothing with `blocking` in its name, which go by
//! the system's clock. Instead of sleeping it asks [`sleep`] how long it may. It drops an endpoint once [`is_drained`], or
//! [`abandon`]s it.

pub use crate::endpoint::simulated::{
    Sleep, abandon, close_begins, is_drained, is_woken, open, open_shared_memory, open_streams, sleep,
};
pub use crate::transport::datagram::{Network, SimulatedNode, TooLong};
pub use cci_sys::simulated::{
    Memory, clear_fault, is_dead, leave, now_ns, set_clock, set_fault, set_seed, settle, streams,
};

use crate::messages::Messenger;

/// Drops a messenger as if its process had been killed.
pub fn abandon_messenger(messenger: Messenger) {
    abandon(messenger.into_endpoint());
}
