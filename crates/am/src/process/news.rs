//! The news of the links for the process.

use crate::wire::{Collected, CountedWord, LargeOutcome, Word};
use cci::Status;

/// News of the links.
#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(crate) enum News {
    Gone {
        rank: u32,
        why: String,
    },
    /// A rank that leaves has lost this one, which will be in no barrier any more.
    LostElsewhere {
        rank: u32,
    },
    /// A rank leaves after this many barriers. It reports whether all were idle in the last one.
    Leaving {
        rank: u32,
        passed: u16,
        was_idle: bool,
    },
    /// A record about barriers that are counted in memory.
    Counted {
        rank: u32,
        word: CountedWord,
    },
    Arrived {
        rank: u32,
        number: u32,
        round: u8,
        is_busy: bool,
    },
    /// A record about memory of this process or of the rank.
    Memory {
        rank: u32,
        word: Word,
    },
    /// A record of a member of a team about a collective.
    Collected {
        rank: u32,
        collected: Collected,
    },
    /// The result of a large message of this process.
    LargeEnded {
        rank: u32,
        number: u64,
        outcome: LargeOutcome,
    },
    /// A remote operation has ended.
    Ended {
        operation: u64,
        status: Status,
    },
}
