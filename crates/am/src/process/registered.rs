//! Memory of this process that other ranks may access.

use crate::wire::{Range, Region};
use cci::Memory;

pub(crate) struct Registered {
    pub memory: Memory,
    pub region: Region,
    /// How often it was registered.
    pub uses: u32,
    /// Whether one of these registrations belongs to the library, so that no program ends it.
    pub is_symmetric: bool,
}

/// The address of its first byte.
pub(crate) fn address(memory: &Memory) -> u64 {
    memory.as_ptr().addr() as u64
}

/// The region that has all of a range.
pub(crate) fn find(registered: &[Registered], range: Range) -> Option<Region> {
    registered.iter().find_map(|one| one.region.offset(range).map(|_| one.region))
}

/// The memory that has all of a range, and the offset of the range in it.
pub(crate) fn inside(registered: &[Registered], range: Range) -> Option<(Memory, usize)> {
    registered.iter().find_map(|one| Some((one.memory.clone(), one.region.offset(range)? as usize)))
}
