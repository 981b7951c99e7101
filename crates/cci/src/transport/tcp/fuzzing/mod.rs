//! See [`crate::fuzzing`].
#![allow(clippy::unwrap_used, reason = "only tests and fuzzing have it")]

mod peer;

pub use peer::tcp_peer;

use super::preamble::{PREAMBLE_BYTES_MAX, Preamble};
use super::wire::{HEADER_BYTES, Header};
use crate::limits::MESSAGE_BYTES_MAX;

/// Parses parts of handshakes and headers of records. What was understood must be written back unchanged.
pub fn tcp_preamble(data: &[u8]) {
    match Preamble::parse(data) {
        Err(Some(needed)) => assert!(needed > data.len() && needed <= PREAMBLE_BYTES_MAX),
        Err(None) | Ok(Preamble::Version { .. } | Preamble::OtherHello) => {}
        Ok(record) => {
            let bytes = record.bytes();
            assert!(bytes.len() <= data.len());
            assert_eq!(Preamble::parse(&bytes), Ok(record));
        }
    }
    for bytes in data.chunks_exact(HEADER_BYTES).filter_map(|bytes| bytes.first_chunk()) {
        for mss in [1, 8192, MESSAGE_BYTES_MAX] {
            if let Ok(header) = Header::parse(*bytes, mss) {
                assert_eq!(header.bytes(), *bytes);
                assert!(u32::from(header.len) <= mss.max(4));
            }
        }
    }
}
