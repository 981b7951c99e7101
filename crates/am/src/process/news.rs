//! The news of the links for the process.

use crate::wire::{Collected, CountedWord, LargeOutcome, Range, Region, Update};
use cci::Status;

/// News of the links.
#[derive(Debug, PartialEq, Eq)]
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
    /// A rank asks which region has a range of this process's addresses.
    Asked {
        rank: u32,
        range: Range,
    },
    Answered {
        rank: u32,
        range: Range,
        region: Option<Region>,
    },
    /// A record of a member of a team about a collective.
    Collected {
        rank: u32,
        collected: Collected,
    },
    /// A rank asks this process to change its memory.
    Asks {
        rank: u32,
        update: Update,
    },
    /// A rank has made such a change, or has refused it, since this address is not registered.
    Updated {
        rank: u32,
        id: u64,
        refused: Option<u64>,
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
