//! Programs that read: how many receive buffers a node has and when it gives them back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::rng::Rng;

/// How a node's program treats received messages.
#[derive(Clone, Debug)]
pub enum Reading {
    /// Every message is looked at and its buffer given back at once.
    Instant,
    /// `buffers` of them; each is given back in order, `hold_ns` after the one before it.
    Slow {
        /// Messages that can be held at a time.
        buffers: usize,
        /// Time spent on each.
        hold_ns: u64,
    },
    /// Keeps every buffer, gives all back at the end of each period.
    Hoard {
        /// Messages that can be held at a time.
        buffers: usize,
        /// Time from one giving-back to the next.
        period_ns: u64,
    },
    /// Each is held for a random time, so that they come back in random order.
    Shuffled {
        /// Messages that can be held at a time.
        buffers: usize,
        /// Longest hold.
        hold_ns_max: u64,
    },
    /// Takes nothing before this time, then is [`Reading::Instant`].
    Deaf {
        /// End of the deafness.
        until_ns: u64,
    },
}

/// The receive buffers of one node.
#[derive(Debug)]
pub struct Reader {
    reading: Reading,
    rng: Rng,
    held: BinaryHeap<Reverse<u64>>,
    last_ns: u64,
    refused: bool,
}

impl Reader {
    /// All buffers free.
    pub fn new(reading: Reading, rng: Rng) -> Reader {
        Reader { reading, rng, held: BinaryHeap::new(), last_ns: 0, refused: false }
    }

    /// Takes a buffer for one message; false when there is none.
    pub fn take(&mut self, now_ns: u64) -> bool {
        let (buffers, back_ns) = match self.reading {
            Reading::Instant => return true,
            Reading::Deaf { until_ns } => {
                if now_ns < until_ns && !self.refused {
                    self.refused = true;
                    self.held.push(Reverse(until_ns));
                }
                return now_ns >= until_ns;
            }
            Reading::Slow { buffers, hold_ns } => (buffers, self.last_ns.max(now_ns) + hold_ns),
            Reading::Hoard { buffers, period_ns } => (buffers, (now_ns / period_ns + 1) * period_ns),
            Reading::Shuffled { buffers, hold_ns_max } => (buffers, now_ns + 1 + self.rng.below(hold_ns_max)),
        };
        if self.held.len() >= buffers {
            self.refused = true;
            return false;
        }
        self.last_ns = back_ns;
        self.held.push(Reverse(back_ns));
        true
    }

    /// Gives back what is due. True when a message was refused before, so that the protocol must be told.
    pub fn give_back(&mut self, now_ns: u64) -> bool {
        let mut some = false;
        while self.held.peek().is_some_and(|Reverse(at)| *at <= now_ns) {
            self.held.pop();
            some = true;
        }
        some && std::mem::take(&mut self.refused)
    }

    /// When the next buffer comes back.
    pub fn next_ns(&self) -> Option<u64> {
        self.held.peek().map(|Reverse(at)| *at)
    }
}
