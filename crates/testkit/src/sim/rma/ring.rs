//! Room in a region, given out in turn and reused when the operations that used it are over.

use std::collections::VecDeque;

struct Block {
    start: u64,
    holders: Vec<u32>,
}

/// Room in one region.
pub(in crate::sim) struct Ring {
    size_bytes: u64,
    head: u64,
    blocks: VecDeque<Block>,
}

impl Ring {
    pub fn new(size_bytes: u64) -> Ring {
        Ring { size_bytes, head: 0, blocks: VecDeque::new() }
    }

    /// Takes `len_bytes` for operation `holder`; `over` says which operations have ended. `None`: no room until more have.
    pub fn take(&mut self, len_bytes: u64, holder: u32, over: impl Fn(u32) -> bool) -> Option<u64> {
        while self.blocks.front().is_some_and(|block| block.holders.iter().all(|holder| over(*holder))) {
            self.blocks.pop_front();
        }
        let tail = self.blocks.front().map(|block| block.start);
        let start = match tail {
            _ if len_bytes == 0 || len_bytes > self.size_bytes => return None,
            None if self.head + len_bytes <= self.size_bytes => self.head,
            None => 0,
            Some(tail) if self.head > tail && self.head + len_bytes <= self.size_bytes => self.head,
            Some(tail) if self.head > tail && len_bytes <= tail => 0,
            Some(tail) if self.head < tail && self.head + len_bytes <= tail => self.head,
            Some(_) => return None,
        };
        self.head = start + len_bytes;
        self.blocks.push_back(Block { start, holders: vec![holder] });
        Some(start)
    }

    /// Takes nothing after all: the last [`Ring::take`] is undone.
    pub fn undo(&mut self) {
        if let Some(block) = self.blocks.pop_back() {
            self.head = block.start;
        }
    }

    /// Whether the room taken at `start` has not been given back.
    pub fn holds(&self, start: u64) -> bool {
        self.blocks.iter().any(|block| block.start == start)
    }

    /// One more operation uses the room taken at `start`.
    pub fn share(&mut self, start: u64, holder: u32) {
        if let Some(block) = self.blocks.iter_mut().rev().find(|block| block.start == start) {
            block.holders.push(holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_once_until_it_is_free() {
        let mut ring = Ring::new(100);
        let taken: Vec<_> = (0..4).map(|holder| ring.take(30, holder, |_| false)).collect();
        assert_eq!(taken, [Some(0), Some(30), Some(60), None]);
        ring.share(0, 9);
        assert!(ring.holds(0) && !ring.holds(1));
        assert_eq!(ring.take(30, 4, |holder| holder == 0), None, "shared");
        assert_eq!(ring.take(30, 4, |holder| holder == 0 || holder == 9), Some(0));
        assert_eq!(ring.take(1, 5, |holder| holder == 0 || holder == 9), None);
        assert_eq!(ring.take(100, 6, |_| true), Some(0));
    }
}
