//! The memory in which barriers are counted, and what a rank does there from its arrival until it has passed.

use super::super::link::Reach;
use super::super::links::Links;
use cci::{Atomic, AtomicKind, AtomicWidth, Memory, RegionAddress, RegionHandle};

/// Who counts.
pub(super) const OWNER: u32 = 0;

/// The two counts, bytes from the beginning, and behind each one how many ranks were not idle.
pub(super) const COUNTS: [u64; 2] = [0, 128];
pub(super) const BUSY: u64 = 8;
/// A bit for each rank that sleeps.
pub(super) const SLEEPERS: u64 = 256;
pub(super) const MEMORY_BYTES: usize = 4096;

/// Where the counts are.
#[derive(Clone)]
pub(super) enum Place {
    Here(Memory),
    At(RegionHandle),
}

impl Place {
    /// Changes a word, and returns the one from before. None: that is not possible, or not now.
    #[inline(never)]
    pub fn change(&self, links: &mut Links, kind: AtomicKind, operand: u64, at: u64) -> Option<u64> {
        let atomic = Atomic { kind, width: AtomicWidth::Eight, operand, compare: 0 };
        match self {
            Place::Here(memory) => memory.atomic(at as usize, atomic).ok(),
            Place::At(handle) => {
                let Reach::Open(connection) = links.link(OWNER).reach else { return None };
                links.endpoint().fetch_at_once(connection, atomic, RegionAddress::new(*handle, at))?.ok()
            }
        }
    }

    /// Reads a word as of any time; what comes with it may not be there yet.
    pub fn peek(&self, links: &mut Links, at: u64) -> Option<u64> {
        match self {
            Place::Here(memory) => memory.load(at as usize, AtomicWidth::Eight).ok(),
            Place::At(handle) => {
                let Reach::Open(connection) = links.link(OWNER).reach else { return None };
                let mut bytes = [0; 8];
                let source = RegionAddress::new(*handle, at);
                links
                    .endpoint()
                    .read_at_once(connection, source, &mut bytes)
                    .then(|| u64::from_ne_bytes(bytes))
            }
        }
    }
}

/// How far this rank is in a barrier.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is not decided yet whether it is counted.
    Undecided,
    /// The memory does not say yet that this rank is not idle, nor that it has arrived.
    IsBusy,
    Arrives,
    /// All have arrived when the count is that.
    Waits {
        target: u64,
    },
}

pub(super) struct Inside {
    pub number: u32,
    pub is_busy: bool,
    pub stage: Stage,
}

impl Inside {
    /// Where the count of this barrier is.
    pub fn at(&self) -> u64 {
        COUNTS[self.turn()]
    }

    /// Which of the two counts that is.
    pub fn turn(&self) -> usize {
        self.number as usize % 2
    }

    /// Goes on with the barrier. Returns whether all have arrived. None: the memory is not there, or not now.
    pub fn go_on(&mut self, links: &mut Links, place: &Place, size: u32) -> Option<bool> {
        let at = self.at();
        if self.stage == Stage::Undecided {
            self.stage = if self.is_busy { Stage::IsBusy } else { Stage::Arrives };
        }
        if self.stage == Stage::IsBusy {
            place.change(links, AtomicKind::FetchAdd, 1, at + BUSY)?;
            self.stage = Stage::Arrives;
        }
        if self.stage == Stage::Arrives {
            let before = place.change(links, AtomicKind::FetchAdd, 1, at)?;
            let size = u64::from(size);
            let target = (before / size).wrapping_add(1).wrapping_mul(size);
            self.stage = Stage::Waits { target };
            return Some(before.wrapping_add(1) == target);
        }
        let Stage::Waits { target } = self.stage else { return Some(false) };
        // The second one comes after all that others had done when they arrived.
        Some(place.peek(links, at)? >= target && place.change(links, AtomicKind::FetchAdd, 0, at)? >= target)
    }
}
