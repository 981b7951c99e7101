//! What has come on a sealed stream and was not given to anybody. What is done with it is in [`opening`](super::opening).

use super::pool::{Buffer, Pool};
use std::ops::Range;

/// What has come and was not given to anybody.
pub(super) struct Input {
    /// Whole and partial records; of the first one, what is left of its content.
    pub input: Option<Buffer>,
    pub content: Range<usize>,
    /// Of the first record in the kernel so much was given already.
    pub skip_bytes: usize,
    /// The kernel tells of the stream once it has so many bytes; what it has now is not enough.
    pub wakeup_bytes: usize,
    /// The kernel has room for what follows a part that stays there.
    pub has_space: bool,
    /// A copy of what the kernel has, opened, until it is said how much of it is taken.
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

/// A copy of what the kernel has, of which some records are opened.
pub(super) struct Copy {
    pub buffer: Buffer,
    pub records: u64,
    /// Bytes of these.
    pub opened_bytes: usize,
    /// What is behind them can be opened once they are taken.
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
