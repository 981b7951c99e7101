//! Input of a sealed stream that was not passed on yet. [`opening`](super::opening) has what is done with it.

use super::pool::{Buffer, Pool};
use std::ops::Range;

/// Input that was not passed on yet.
pub(super) struct Input {
    /// Whole and partial records. The first may be opened, and passed on in part: `content` is what remains of it.
    pub input: Option<Buffer>,
    pub content: Range<usize>,
    /// Bytes of the kernel's first record that were passed on already.
    pub skip_bytes: usize,
    /// The kernel reports the stream once it has so many bytes; fewer are of no use.
    pub wakeup_bytes: usize,
    /// Whether the kernel has space for what follows a part of a record that stays there.
    pub has_space: bool,
    /// A copy of the kernel's input, opened, until it is known how much of it is taken.
    pub looked_at: Option<Copy>,
}

impl Default for Input {
    fn default() -> Input {
        Input {
            input: None,
            content: 0..0,
            skip_bytes: 0,
            wakeup_bytes: 1,
            has_space: false,
            looked_at: None,
        }
    }
}

/// A copy of the kernel's input, some of whose records are opened.
pub(super) struct Copy {
    pub buffer: Buffer,
    pub records: u64,
    /// Bytes of the opened records.
    pub opened_bytes: usize,
    /// Whether further records can be opened once these are taken.
    pub is_cut: bool,
}

impl Input {
    pub fn drop_buffers(&mut self, pool: &Pool) {
        let copy = self.looked_at.take().map(|copy| copy.buffer);
        for buffer in [self.input.take(), copy].into_iter().flatten() {
            pool.give_back(buffer);
        }
    }
}
