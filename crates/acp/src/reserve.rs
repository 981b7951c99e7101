//! Memory of heaps that this rank has reserved for its next short blocks.
//!
//! Ranks that allocate from one heap change the same word for each block, and their blocks share cache lines. A rank that
//! reserves memory for many blocks at a time avoids both.

/// Bytes that are reserved at a time.
const RESERVE_BYTES: u64 = 4096;
/// All ranks together reserve at most this part of the memory that was never used.
const SHARE: u64 = 32;
/// The most heaps of which this rank has a reserve at the same time.
const RESERVES: usize = 16;
const UNIT_BYTES: u64 = 16;

/// The longest block that is cut from a reserve, units.
pub(crate) const SHORT_UNITS_MAX: u64 = 256 / UNIT_BYTES;

/// A piece of a heap: its first unit, and its length in units of 16 bytes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Block {
    pub unit: u64,
    pub units: u64,
}

impl Block {
    /// Divides the block into its first `units` units and the rest. A rest that is too short for a block stays with the first
    /// part. `None` if it has fewer units.
    pub fn cut(self, units: u64, least: u64) -> Option<(Block, Block)> {
        let rest = self.units.checked_sub(units)?;
        let units = if rest < least { self.units } else { units };
        let rest = Block { unit: self.unit + units, units: self.units - units };
        Some((Block { unit: self.unit, units }, rest))
    }
}

/// The reserves of a rank: 4 KiB of each heap, of 16 heaps at most. They belong to a [space](crate::Space), which keeps them for
/// [`allocate`](crate::allocate).
#[derive(Debug, Default)]
pub struct Reserves {
    of: [(u32, Block); RESERVES],
}

impl Reserves {
    /// The place of a heap's reserve. It may hold another heap's.
    #[inline]
    pub(crate) fn of(&mut self, rank: u32) -> &mut (u32, Block) {
        // The remainder is below the length.
        &mut self.of[rank as usize % RESERVES]
    }

    /// Takes the rest of a reserve: of one heap, or of any.
    pub(crate) fn take(&mut self, rank: Option<u32>) -> Option<(u32, Block)> {
        let mut of = self.of.iter_mut();
        let left = of.find(|(owner, block)| block.units > 0 && rank.is_none_or(|rank| rank == *owner))?;
        Some(std::mem::take(left))
    }
}

/// How many units to reserve if `unused_units` were never used and each of `ranks` may take some.
pub(crate) fn ahead(unused_units: u64, ranks: u32) -> u64 {
    (unused_units / SHARE / u64::from(ranks.max(1))).min(RESERVE_BYTES / UNIT_BYTES)
}
