//! Symmetric memory (CCS section 3.6), which all ranks allocate together, at one address.
//!
//! Each rank tries to map the memory at the next address. One collective, a minimum, finds out whether all could. If not, they
//! try the next address. Since all ranks allocate and free the same, they usually agree at once.

use crate::error::{AmError, Result};
use crate::limits::{SYMMETRIC_ADDRESSES, SYMMETRIC_ATTEMPTS_MAX};
use cci::{Endpoint, Memory, RegisterError};
use std::num::NonZeroUsize;

/// Memory begins at multiples of this, which suits large pages.
const ALIGN_BYTES: u64 = 2 << 20;

/// The result of an attempt on one rank. The smallest one of all ranks counts.
const REFUSED: u64 = 0;
const TAKEN: u64 = 1;
const MADE: u64 = 2;

pub(crate) struct Symmetric {
    /// The memory that all ranks have allocated.
    all: Vec<Memory>,
    /// The address of the next attempt.
    next: u64,
    attempts: u32,
    attempt: Option<Memory>,
}

impl Default for Symmetric {
    fn default() -> Symmetric {
        Symmetric { all: Vec::new(), next: SYMMETRIC_ADDRESSES.start, attempts: 0, attempt: None }
    }
}

/// The report of a rank about an attempt.
struct Card {
    outcome: u64,
    address: u64,
    len_bytes: u64,
}

impl Card {
    /// The complements make the minimum of all reports show the largest values.
    fn encode(&self) -> Vec<u8> {
        let Card { outcome, address, len_bytes } = *self;
        [outcome, address, !address, len_bytes, !len_bytes].into_iter().flat_map(u64::to_ne_bytes).collect()
    }
}

/// The report of a rank whose attempt has failed later.
pub(crate) fn refusal(card: &[u8]) -> Vec<u8> {
    [&REFUSED.to_ne_bytes(), card.get(8..).unwrap_or_default()].concat()
}

impl Symmetric {
    /// Tries to map memory where all ranks should have it. Returns the memory, and this rank's report.
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

    /// Takes back an attempt that has failed.
    pub fn take_back(&mut self) -> Option<Memory> {
        self.attempt.take()
    }

    /// Handles the minimum of all reports. `None` if they must try again.
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
            // A rank is ahead, by an attempt that has failed.
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

    /// Removes memory that all ranks free.
    pub fn free(&mut self, address: u64) {
        self.all.retain(|memory| memory.as_ptr().addr() as u64 != address);
    }

    /// Moves on to addresses without symmetric memory, and from the last address to the first.
    fn skip_own(&mut self, len_bytes: u64) {
        if self.next.saturating_add(len_bytes) > SYMMETRIC_ADDRESSES.end {
            self.next = SYMMETRIC_ADDRESSES.start;
        }
        while let Some(end) = self.overlapped(len_bytes) {
            self.next = end.next_multiple_of(ALIGN_BYTES) + ALIGN_BYTES;
        }
    }

    /// The end of memory that overlaps the next place.
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
