//! Messages that follow operations which have ended (`CCS_put_am`), until there is space for them.

use super::operations::Following;
use std::collections::{BTreeMap, VecDeque};

/// Messages for each rank, in the order in which their operations have ended.
#[derive(Default)]
pub(super) struct Followers {
    by_rank: BTreeMap<u32, VecDeque<Following>>,
    count: usize,
}

impl Followers {
    pub fn push(&mut self, message: Following) {
        self.by_rank.entry(message.rank).or_default().push_back(message);
        self.count += 1;
    }

    /// How many messages wait.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many messages wait for a rank.
    pub fn count_for(&self, rank: u32) -> usize {
        self.by_rank.get(&rank).map_or(0, VecDeque::len)
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Passes messages to `send` until it returns false, which means that there is no space for more to that rank. Ranks do not wait for
    /// each other.
    pub fn send(&mut self, mut send: impl FnMut(&Following) -> bool) {
        for messages in self.by_rank.values_mut() {
            while messages.front().is_some_and(&mut send) {
                messages.pop_front();
                self.count -= 1;
            }
        }
        self.by_rank.retain(|_, messages| !messages.is_empty());
    }
}
