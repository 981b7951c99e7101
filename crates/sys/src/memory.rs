//! Memory for remote access.

use crate::error::Result;
use crate::segment::Segment;
use cci_ring::memory::{Backing, Bytes};

/// Zeroed memory of whole pages that peers on the same host can map.
#[derive(Debug)]
pub struct RmaSegment(Segment);

impl RmaSegment {
    /// At least `len_bytes`, above 0.
    pub fn create(len_bytes: usize) -> Result<RmaSegment> {
        Segment::create("cci-rma", len_bytes.next_multiple_of(4096)).map(RmaSegment)
    }

    /// All of it, in bytes: whole pages.
    pub fn len_bytes(&self) -> usize {
        self.0.len()
    }
}

impl Backing for RmaSegment {
    fn bytes(&self) -> Bytes {
        // SAFETY: the mapping is that long, lives as long as this value, and no reference to it is handed out.
        unsafe { Bytes::new(self.0.as_ptr(), self.0.len()) }
    }
}
