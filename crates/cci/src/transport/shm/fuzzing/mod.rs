//! Targets of [`crate::fuzzing`] that need the inside of shared memory.
#![allow(clippy::unwrap_used, reason = "only tests and fuzzing have it")]

mod hello;
mod menu;
mod peer;

pub use hello::shm_handshake;
pub use peer::shm_peer;

use super::name;
use super::rma::grant::Grant;
use super::wire::{BYTES_MAX, Message, parse};
use crate::ConnectFailure;

/// `shm://` URIs. What was parsed and written again must be parsed to the same.
pub fn shm_uri(text: &str) {
    let Ok(address) = name::parse_uri(text) else { return };
    let again = name::parse_uri(&address.uri).expect("it was one");
    assert_eq!((again.name, again.uri), (address.name, address.uri), "{text:?}");
}

/// Messages of the handshake. What was understood must be written back unchanged.
pub fn shm_handshake_message(data: &[u8]) {
    let Ok(message) = parse(data) else { return };
    let bytes = message.bytes();
    assert!(bytes.as_slice().len() <= BYTES_MAX);
    // This message does not contain the version of the other side.
    if !matches!(message, Message::Refuse(ConnectFailure::Version { .. })) {
        assert_eq!(parse(bytes.as_slice()), Ok(message));
    }
}

/// Grants, which come over the socket of a link.
pub fn shm_grant(data: &[u8]) {
    let Some(grant) = Grant::parse(data) else { return };
    assert!(grant.start + grant.len_bytes <= grant.memory_bytes && grant.word * 8 < grant.control_bytes);
    assert_eq!(grant.to_bytes(), data);
}
