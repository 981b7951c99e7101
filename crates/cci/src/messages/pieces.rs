//! A long message is fetched in pieces, several of which are under way at once: which piece comes next, and how many bytes are there.

use crate::limits::{LONG_PIECE_BYTES, LONG_PIECES_MAX};

/// The pieces of one message.
#[derive(Debug)]
pub struct Pieces {
    len_bytes: u64,
    started_bytes: u64,
    under_way: u32,
    ended: u64,
}

impl Pieces {
    pub fn new(len_bytes: u64) -> Pieces {
        Pieces { len_bytes, started_bytes: 0, under_way: 0, ended: 0 }
    }

    /// Where the next piece begins and how long it is. `None` if all have been started, or as many are under way as may be.
    pub fn next(&self) -> Option<(u64, u64)> {
        let left_bytes = self.len_bytes - self.started_bytes;
        let may_start = left_bytes > 0 && self.under_way < LONG_PIECES_MAX;
        may_start.then_some((self.started_bytes, left_bytes.min(LONG_PIECE_BYTES)))
    }

    /// The next piece was started.
    pub fn started(&mut self) {
        if let Some((_, len_bytes)) = self.next() {
            self.started_bytes += len_bytes;
            self.under_way += 1;
        }
    }

    /// A piece is there. They may end in any order. Returns whether all of them are there.
    pub fn ended(&mut self) -> bool {
        self.under_way = self.under_way.saturating_sub(1);
        self.ended += 1;
        self.moved_bytes() == self.len_bytes
    }

    /// Whether the end of a piece will give the occasion to start the next one.
    pub fn has_any_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// How many bytes are there. Only the last piece may be shorter than the others; until it is there, it counts as a whole one.
    pub fn moved_bytes(&self) -> u64 {
        (self.ended * LONG_PIECE_BYTES).min(self.len_bytes)
    }
}
