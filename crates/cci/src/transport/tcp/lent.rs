//! The part of TCP's memory cap that it lends to sends that wait for space ([`crate::engine::waiting`]): first memory that is set
//! aside for them, then chunks that no connection holds.

use crate::engine::chunks::{CHUNK_BYTES, Chunks};
use crate::limits::KEPT_SHARE;

/// The part of the memory cap that is lent to waiting sends.
pub(super) struct Lent {
    /// Bytes that were set aside when the endpoint was opened.
    own_bytes: u64,
    lent_bytes: u64,
    /// Chunks that are lent. They may not be allocated meanwhile.
    chunks: u32,
}

impl Lent {
    pub const fn new(own_bytes: u64) -> Lent {
        Lent { own_bytes, lent_bytes: 0, chunks: 0 }
    }

    /// How many more bytes may be lent.
    pub fn spare_bytes(&self, chunks: &Chunks) -> u64 {
        let kept = (chunks.max() + self.chunks) / KEPT_SHARE as u32 + 1;
        let spare = u64::from(chunks.unused().saturating_sub(kept)) * CHUNK_BYTES as u64;
        // Chunks are lent whole.
        let own_bytes = self.own_bytes + u64::from(self.chunks) * CHUNK_BYTES as u64;
        own_bytes.saturating_sub(self.lent_bytes) + spare
    }

    /// Lends this many bytes in all, instead of those that were lent before.
    pub fn lend(&mut self, chunks: &mut Chunks, bytes: u64) {
        self.lent_bytes = bytes;
        let wanted = bytes.saturating_sub(self.own_bytes).div_ceil(CHUNK_BYTES as u64);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        if wanted < self.chunks {
            chunks.allow(self.chunks - wanted);
        } else {
            chunks.forbid(wanted - self.chunks);
        }
        self.chunks = wanted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_comes_back() {
        let mut chunks = Chunks::new(64 * CHUNK_BYTES as u64);
        let own_bytes = 10 * CHUNK_BYTES as u64;
        let mut lent = Lent::new(own_bytes);
        let spare_bytes = lent.spare_bytes(&chunks);
        assert_eq!(spare_bytes, (10 + 64 - 9) * CHUNK_BYTES as u64, "some chunks are kept");
        lent.lend(&mut chunks, own_bytes);
        assert_eq!(chunks.unused(), 64);
        lent.lend(&mut chunks, spare_bytes);
        assert_eq!((chunks.unused(), lent.spare_bytes(&chunks)), (9, 0));
        lent.lend(&mut chunks, 0);
        assert_eq!((chunks.unused(), lent.spare_bytes(&chunks)), (64, spare_bytes));
    }
}
