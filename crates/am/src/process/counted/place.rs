//! The memory in which barriers and collectives are counted, and the stages of a rank's barrier there, from its arrival until it
//! has passed.

use super::super::link::Reach;
use super::super::links::Links;
use crate::limits::{COUNTED_COPY_BYTES_MAX, COUNTED_SEGMENT_BYTES_MAX, COUNTED_SLOTS_BYTES};
use cci::{Atomic, AtomicKind, AtomicWidth, Memory, RegionAddress, RegionHandle};
use std::sync::atomic::{Ordering, fence};

/// The rank that has the memory.
pub(super) const OWNER: u32 = 0;

/// The places of the two counts. Behind each is the number of ranks that were not idle.
pub(super) const COUNTS: [u64; 2] = [0, 128];
pub(super) const BUSY: u64 = 8;
/// The place of a word with a bit for each rank that sleeps.
pub(super) const SLEEPERS: u64 = 256;
/// The places of the counts of collectives, which take turns for each step.
const COLLECTIVE_COUNTS: [u64; 2] = [384, 512];
/// The place of what belongs to these: slots, and then the results of an earlier step.
const SETS: u64 = 4096;
const SET_BYTES: usize = COUNTED_SLOTS_BYTES + COUNTED_SEGMENT_BYTES_MAX;
pub(crate) const MEMORY_BYTES: usize = SETS as usize + 2 * SET_BYTES;

/// The memory of the counts.
#[derive(Clone)]
pub(super) enum Place {
    Here(Memory),
    At(RegionHandle),
}

impl Place {
    /// Changes a word, and returns its previous value. `None` if that is not possible, or not now.
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

    /// Writes bytes. `None` if that is not possible, or not now.
    fn write(&self, links: &mut Links, at: u64, bytes: &[u8]) -> Option<()> {
        let is_written = match self {
            Place::Here(memory) => memory.write(at as usize, bytes),
            Place::At(handle) => {
                let Reach::Open(connection) = links.link(OWNER).reach else { return None };
                links.endpoint().write_at_once(connection, bytes, RegionAddress::new(*handle, at))
            }
        };
        is_written.then_some(())
    }

    /// Reads bytes. `None` if that is not possible, or not now.
    fn read(&self, links: &mut Links, at: u64, bytes: &mut [u8]) -> Option<()> {
        let is_read = match self {
            Place::Here(memory) => memory.read(at as usize, bytes),
            Place::At(handle) => {
                let Reach::Open(connection) = links.link(OWNER).reach else { return None };
                links.endpoint().read_at_once(connection, RegionAddress::new(*handle, at), bytes)
            }
        };
        is_read.then_some(())
    }

    /// Whether a count has this value. If so, everything that others did before they arrived is visible.
    fn is_reached(&self, links: &mut Links, at: u64, target: u64) -> Option<bool> {
        let is_reached = self.peek(links, at)? >= target;
        // Each rank that arrived has released its work by its addition.
        fence(Ordering::Acquire);
        Some(is_reached)
    }

    /// Reads a word without ordering. What was written with it may not be visible before a fence.
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

/// The memory of one step of a collective. Calls return `None` if that is not possible, or not now.
pub(super) struct Set<'a> {
    pub links: &'a mut Links,
    pub place: &'a Place,
    pub turn: Turn,
}

/// The step among those of all collectives. The two sets take turns.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    before: u64,
}

impl Turn {
    /// Ends the step.
    pub fn end(&mut self) {
        self.before += 1;
    }

    fn is_second(self) -> bool {
        self.before % 2 == 1
    }

    /// The place of the count.
    pub fn at(self) -> u64 {
        COLLECTIVE_COUNTS[usize::from(self.is_second())]
    }

    /// The value of the count when all of `size` ranks have arrived.
    pub fn target(self, size: u32) -> u64 {
        (self.before / 2 + 1).wrapping_mul(size.into())
    }

    fn set(self) -> u64 {
        SETS + if self.is_second() { SET_BYTES as u64 } else { 0 }
    }
}

impl Set<'_> {
    /// Writes to slots, in pieces. Longer copies may bypass the caches, from which others read.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Option<()> {
        let mut at = self.turn.set() + at;
        for chunk in bytes.chunks(COUNTED_COPY_BYTES_MAX) {
            self.place.write(self.links, at, chunk)?;
            at += chunk.len() as u64;
        }
        Some(())
    }

    /// Reads from slots.
    pub fn read(&mut self, at: u64, bytes: &mut [u8]) -> Option<()> {
        let mut at = self.turn.set() + at;
        for chunk in bytes.chunks_mut(COUNTED_COPY_BYTES_MAX) {
            self.place.read(self.links, at, chunk)?;
            at += chunk.len() as u64;
        }
        Some(())
    }

    /// Writes a part of the results.
    pub fn write_results(&mut self, at: usize, bytes: &[u8]) -> Option<()> {
        self.write((COUNTED_SLOTS_BYTES + at) as u64, bytes)
    }

    /// Reads a part of the results.
    pub fn read_results(&mut self, at: usize, bytes: &mut [u8]) -> Option<()> {
        self.read((COUNTED_SLOTS_BYTES + at) as u64, bytes)
    }

    /// Adds this rank to the count, and returns how many had arrived.
    pub fn arrive(&mut self) -> Option<u64> {
        self.place.change(self.links, AtomicKind::FetchAdd, 1, self.turn.at())
    }

    /// Whether the count has this value. If so, everything that was done before is visible.
    pub fn is_reached(&mut self, target: u64) -> Option<bool> {
        self.place.is_reached(self.links, self.turn.at(), target)
    }
}

/// The stage of this rank in a barrier.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is not decided yet whether the barrier is counted.
    Undecided,
    /// The memory does not show yet that this rank is not idle, nor that it has arrived.
    IsBusy,
    Arrives,
    /// All have arrived when the count has this value.
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
    /// The place of the count of this barrier.
    pub fn at(&self) -> u64 {
        COUNTS[self.turn()]
    }

    /// Which of the two counts it is.
    pub fn turn(&self) -> usize {
        self.number as usize % 2
    }

    /// Continues the barrier. Returns whether all have arrived. `None` if the memory is not there, or not now.
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
        place.is_reached(links, at, target)
    }
}
