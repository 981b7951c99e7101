//! The channel over a byte stream. Data leaves straight from memory, and goes straight into place where it comes: only heads
//! and short records pass through a buffer, several at a time.
//!
//! On the stream a record is its length, 4 bytes little-endian, and the record behind it.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use reader::{Came, Intake, Reader, scratch_bytes};
pub(crate) use writer::{StreamChannel, Writer};

use super::Fault;
use super::wire::HEAD_BYTES_MAX;
use cci_memory::bytes::Bytes;

/// The stream is at its end, or broken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended;

/// Why nothing more is to be read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Ended,
    /// The peer sent what no honest peer sends.
    Fault,
}

impl From<Ended> for Over {
    fn from(_: Ended) -> Over {
        Over::Ended
    }
}

impl From<Fault> for Over {
    fn from(_: Fault) -> Over {
        Over::Fault
    }
}

/// Moves bytes in order; never waits.
pub(crate) trait ByteStream {
    /// Takes bytes of `head`, then of `data`; answers how many of both. 0: there is no space now.
    fn write(&mut self, head: &[u8], data: Option<&Bytes>) -> Result<usize, Ended>;

    /// Puts bytes into `to`, then into `tail`; answers how many in all. 0: nothing is there now.
    fn read(&mut self, to: Option<&Bytes>, tail: &mut [u8]) -> Result<usize, Ended>;
}

/// The most data in a record. Others wait while one is written; and what is left of one is copied if its region goes.
pub(crate) const DATA_BYTES_MAX: usize = 256 << 10;

/// Of the length in front of each record.
const LENGTH_BYTES: usize = 4;
/// Data up to this length is copied on its way out, together with other short records.
const COPY_BYTES_MAX: usize = 4 << 10;
/// Of short records that leave together.
const BATCH_BYTES: usize = 64 << 10;
/// What of a record's data has not come yet goes straight into place if it is more than this.
const DIRECT_BYTES_MIN: usize = 4 << 10;

const _: () = assert!(BATCH_BYTES >= LENGTH_BYTES + HEAD_BYTES_MAX + COPY_BYTES_MAX);
