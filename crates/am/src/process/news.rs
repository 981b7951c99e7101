//! What the links tell the process.

use crate::wire::{Collected, CountedWord, LargeOutcome, Range, Region, Update};
use cci::Status;

/// What the links have to tell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    Gone {
        rank: u32,
        why: String,
    },
    /// A rank that leaves has lost this one, and will be in no barrier any more.
    LostElsewhere {
        rank: u32,
    },
    /// A rank leaves after so many barriers, in the last of which all were idle or not.
    Leaving {
        rank: u32,
        passed: u16,
        was_idle: bool,
    },
    /// A rank says something of barriers that are counted in memory.
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
    /// It wants to know which region a range of this process's addresses is in.
    Asked {
        rank: u32,
        range: Range,
    },
    Answered {
        rank: u32,
        range: Range,
        region: Option<Region>,
    },
    /// A member of a team says something of a collective.
    Collected {
        rank: u32,
        collected: Collected,
    },
    /// A rank wants memory of this process to be changed.
    Asks {
        rank: u32,
        update: Update,
    },
    /// A rank has made such a change, or has refused it since this address is not registered.
    Updated {
        rank: u32,
        id: u64,
        refused: Option<u64>,
    },
    /// What has become of a large message of this process's.
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
