//! Symmetric memory (CCS section 3.6): allocated by all ranks together, at one address.
//!
//! Each rank tries to have the memory at the address that is next, and one collective says whether all could: the smallest of what they say
//! of it. If not, they try the next address. As all ranks allocate and free the same, they mostly agree at once.

use crate::error::{AmError, Result};
use crate::limits::{SYMMETRIC_ADDRESSES, SYMMETRIC_ATTEMPTS_MAX};
use cci::{Endpoint, Memory, RegisterError};
use std::num::NonZeroUsize;

/// Memory begins at multiples of so many bytes, which suits large pages.
const ALIGN_BYTES: u64 = 2 << 20;

/// How an attempt has ended here; the smallest one of all ranks counts.
const REFUSED: u64 = 0;
const TAKEN: u64 = 1;
const MADE: u64 = 2;

pub(crate) struct Symmetric {
    /// What was allocated, by all ranks alike.
    all: Vec<Memory>,
    /// Where the next attempt is made.
    next: u64,
    attempts: u32,
    attempt: Option<Memory>,
}

impl Default for Symmetric {
    fn default() -> Symmetric {
        Symmetric { all: Vec::new(), next: SYMMETRIC_ADDRESSES.start, attempts: 0, attempt: None }
    }
}

/// What all ranks say of an attempt.
struct Card {
    outcome: u64,
    address: u64,
    len_bytes: u64,
}

impl Card {
    /// The complements show the largest where the smallest of all are taken.
    fn encode(&self) -> Vec<u8> {
        let Card { outcome, address, len_bytes } = *self;
        [outcome, address, !address, len_bytes, !len_bytes].into_iter().flat_map(u64::to_ne_bytes).collect()
    }
}

/// What a rank says whose attempt has failed after all.
pub(crate) fn refusal(card: &[u8]) -> Vec<u8> {
    [&REFUSED.to_ne_bytes(), card.get(8..).unwrap_or_default()].concat()
}

impl Symmetric {
    /// Tries to have memory where all ranks should have it. Returns it, and what this rank says of that.
    pub fn attempt(&mut self, endpoint: &mut Endpoint, len_bytes: usize) -> (Option<Memory>, Vec<u8>) {
        let len = len_bytes as u64;
        self.skip_own(len);
        let address = self.next;
        let made = NonZeroUsize::new(address as usize)
            .filter(|_| address.saturating_add(len) <= SYMMETRIC_ADDRESSES.end)
            .map(|address| endpoint.allocate_at(len_bytes, address));
        let outcome = match made {
            Some(Ok(memory)) => {
                self.attempt = Some(memory);
                MADE
            }
            Some(Err(RegisterError::System(error))) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                TAKEN
            }
            _ => REFUSED,
        };
        (self.attempt.clone(), Card { outcome, address, len_bytes: len }.encode())
    }

    /// Takes back an attempt that was not to be.
    pub fn take_back(&mut self) -> Option<Memory> {
        self.attempt.take()
    }

    /// What all ranks have said. None: they have to try again.
    pub fn agree(&mut self, agreed: &[u8]) -> Result<Option<Memory>> {
        let mut words = agreed.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
        let mut word = || words.next().unwrap_or_default();
        let (outcome, least, most) = (word(), word(), !word());
        let (shortest, longest) = (word(), !word());
        self.attempts += 1;
        let step = longest.saturating_add(ALIGN_BYTES).next_multiple_of(ALIGN_BYTES);
        if shortest != longest {
            self.attempts = 0;
            return Err(AmError::Argument("all ranks allocate as many bytes of symmetric memory"));
        }
        if least != most {
            // Some rank is ahead, by an attempt that has failed.
            self.next = most;
        } else if outcome == MADE {
            self.attempts = 0;
            self.next = least.saturating_add(step);
            let memory = self.attempt.take();
            self.all.extend(memory.clone());
            return Ok(memory);
        } else {
            self.next = least.saturating_add(step);
        }
        if outcome == REFUSED || self.attempts >= SYMMETRIC_ATTEMPTS_MAX {
            self.attempts = 0;
            return Err(AmError::Full("some rank has no such memory, or no address for it that all have"));
        }
        Ok(None)
    }

    /// The memory that begins at this address.
    pub fn find(&self, address: u64) -> Option<&Memory> {
        self.all.iter().find(|memory| memory.as_ptr().addr() as u64 == address)
    }

    /// Forgets memory that all ranks free.
    pub fn free(&mut self, address: u64) {
        self.all.retain(|memory| memory.as_ptr().addr() as u64 != address);
    }

    /// Moves on to where nothing symmetric lies, and to the first address from the last one.
    fn skip_own(&mut self, len_bytes: u64) {
        if self.next.saturating_add(len_bytes) > SYMMETRIC_ADDRESSES.end {
            self.next = SYMMETRIC_ADDRESSES.start;
        }
        while let Some(end) = self.overlapped(len_bytes) {
            self.next = end.next_multiple_of(ALIGN_BYTES) + ALIGN_BYTES;
        }
    }

    /// Where memory ends that lies where the next is to be.
    fn overlapped(&self, len_bytes: u64) -> Option<u64> {
        let bounds = |memory: &Memory| {
            let start = memory.as_ptr().addr() as u64;
            (start, start + memory.len() as u64)
        };
        self.all.iter().map(bounds).find_map(|(start, end)| {
            (start < self.next.saturating_add(len_bytes) && self.next < end).then_some(end)
        })
    }
}
