//! All ends of segmented buffers of a process.
//!
//! A source and a destination have memory of the same number of segments, of the same length. A segment that the source publishes
//! is written to the same place at the destination, by one operation that also brings the notification. The n-th buffer that a
//! rank makes with another one as its destination belongs to the n-th that the other one makes with it as its source.

mod ends;
mod table;
mod wire;

pub(crate) use table::Buffers;
pub(crate) use wire::is_record;

use crate::error::{AcpError, Result};

/// The number and length of the segments of a segmented buffer. The two ends must agree.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Number of segments, from 1.
    pub count: u64,
    /// Bytes of each segment, from 1.
    pub bytes: u64,
}

/// The indices of an end of a segmented buffer. All three only increase: segment `n` is in place `n` modulo the number of
/// segments.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Indices {
    /// Segments that the destination has released, as far as this end knows.
    pub head: u64,
    /// Segments that the source has published, as far as this end knows.
    pub tail: u64,
    /// Segments that are at the destination, as far as this end knows.
    pub sent: u64,
}

impl Segments {
    /// Bytes of all segments.
    ///
    /// # Errors
    /// There are none, or they have no bytes, or there are more than possible.
    pub fn len_bytes(self) -> Result<usize> {
        let bytes = self.count.checked_mul(self.bytes).and_then(|bytes| usize::try_from(bytes).ok());
        bytes
            .filter(|&bytes| bytes > 0)
            .ok_or(AcpError::Argument("a segmented buffer has segments, of one byte at least"))
    }
}
