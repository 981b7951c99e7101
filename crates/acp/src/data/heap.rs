//! The heap of a rank: memory that any rank allocates and frees there (`acp_malloc`, `acp_free`), by copies and atomics alone.
//!
//! Free blocks are in lists by their size. Each list is a stack whose top is one word, so taking or returning a block is one
//! compare-and-swap. Nobody waits for another rank, and a rank that dies loses only the block that it was taking or returning.
//! Behind the last block is memory that was never used, of which a rank [reserves](crate::reserve) some for short blocks. If
//! neither the lists nor the unused memory are enough, one rank at a time takes all free blocks, joins those that are beside each
//! other, and returns them.
//!
//! Layout, in words: where the unused bytes begin; the rank that joins blocks; the tops of the lists. A block begins with its
//! size and state, and the next one of its list.

use crate::address::GlobalAddress;
use crate::data::lock;
use crate::error::{AcpError, Result};
use crate::reserve::{self, Block, SHORT_UNITS_MAX};
use crate::space::{Aligned, Space, WORD_BYTES, behind};

/// Blocks, and the addresses of allocated memory, are multiples of this.
const UNIT_BYTES: u64 = 16;
/// The head of a block, units.
const HEAD_UNITS: u64 = 1;
const BLOCK_UNITS_MIN: u64 = 2;
/// There are four lists for each doubling of the size, up to 2^36 units (1 TiB).
const STEPS_BITS: u32 = 2;
const UNITS_BITS: u32 = 36;
const LISTS: u64 = ((UNITS_BITS + 1 - STEPS_BITS) << STEPS_BITS) as u64 + 1;
/// The most bytes of a heap.
pub(crate) const HEAP_BYTES_MAX: u64 = UNIT_BYTES << UNITS_BITS;

const UNUSED_AT: u64 = 0;
const JOINER_AT: u64 = WORD_BYTES;
const TOPS_AT: u64 = 2 * WORD_BYTES;
/// Words that are read at once from the beginning: these include the lists of blocks of up to 208 bytes.
const ENDS_WORDS: usize = 16;
const FIRST_UNIT: u64 = (TOPS_AT + LISTS * WORD_BYTES).div_ceil(UNIT_BYTES);

/// The top of a list has the block's first unit, and a number that each change increases, so that a top that comes back is not
/// mistaken for the old one.
const TOP_UNIT_BITS: u32 = 40;
const TOP_UNIT: u64 = (1 << TOP_UNIT_BITS) - 1;

/// States of blocks, in the upper half of their first words.
const USED: u64 = 0xa11c_0000_0000_0000;
const FREE: u64 = 0xf7ee_0000_0000_0000;
const STATE: u64 = 0xffff_0000_0000_0000;

const _: () = assert!(UNITS_BITS < TOP_UNIT_BITS && 1 << TOP_UNIT_BITS <= !STATE);

/// The first bytes of a new heap, before any rank uses it. The unused bytes begin behind them.
pub(crate) fn prepare(heap_bytes: u64) -> Vec<u8> {
    let mut head = vec![0; head_bytes().min(heap_bytes) as usize];
    if let Some(unused) = head.get_mut(..WORD_BYTES as usize) {
        unused.copy_from_slice(&FIRST_UNIT.to_ne_bytes());
    }
    head
}

/// Bytes before the first block.
fn head_bytes() -> u64 {
    FIRST_UNIT * UNIT_BYTES
}

/// Allocates memory on a rank (`acp_malloc`): `len_bytes`, or somewhat more, at a multiple of 16. Its content is arbitrary. Nothing of that rank's program takes part.
///
/// # Errors
/// [`AcpError::Full`]: the heap of that rank has no such memory. There is no such rank, or it is gone.
pub fn allocate(space: &mut impl Space, rank: u32, len_bytes: u64) -> Result<GlobalAddress> {
    let heap = Heap::of(space, rank)?;
    let block = heap.take(space, len_bytes)?;
    space.write_words(heap.at(block.unit)?, [USED | block.units])?;
    heap.at(block.unit + HEAD_UNITS)
}

/// The space that the buffer of [`allocate_with`] must have before the content.
pub(crate) const ROOM_BYTES: usize = (HEAD_UNITS * UNIT_BYTES) as usize;

/// Allocates memory as [`allocate`] does, and writes its content, in one step. The content begins behind [`ROOM_BYTES`] bytes,
/// which belong to the heap.
pub(crate) fn allocate_with(space: &mut impl Space, rank: u32, bytes: &mut [u8]) -> Result<GlobalAddress> {
    let heap = Heap::of(space, rank)?;
    let block = heap.take(space, bytes.len().saturating_sub(ROOM_BYTES) as u64)?;
    if let Some(head) = bytes.first_chunk_mut() {
        *head = (USED | block.units).to_ne_bytes();
    }
    match space.write(heap.at(block.unit)?, bytes) {
        Ok(()) => heap.at(block.unit + HEAD_UNITS),
        Err(error) => {
            heap.push(space, block)?;
            Err(error)
        }
    }
}

/// Frees memory that [`allocate`] has returned, on any rank (`acp_free`).
///
/// # Errors
/// It was freed before, or was never allocated: nothing has changed. Its rank is gone.
pub fn free(space: &mut impl Space, address: GlobalAddress) -> Result<()> {
    const WRONG: AcpError =
        AcpError::Argument("only memory that was allocated, and not freed since, can be freed");
    let heap = Heap::of(space, address.rank())?;
    let offset = address.to_bits().checked_sub(heap.start.to_bits()).filter(|&offset| offset < heap.bytes);
    let offset = offset.filter(|offset| offset.is_multiple_of(UNIT_BYTES)).ok_or(WRONG)?;
    let unit =
        (offset / UNIT_BYTES).checked_sub(HEAD_UNITS).filter(|&unit| unit >= FIRST_UNIT).ok_or(WRONG)?;
    let head = space.read_word(heap.at(unit)?)?;
    let block = heap.block(unit, head, USED).ok_or(WRONG)?;
    if space.compare_swap(heap.at(unit)?, head, FREE | block.units)? != head {
        return Err(WRONG);
    }
    heap.push(space, block)
}

/// Returns what this rank has reserved, of one heap or of all.
pub(super) fn return_reserves(space: &mut impl Space, rank: Option<u32>) -> Result<()> {
    while let Some((rank, block)) = space.reserves().take(rank) {
        Heap::of(space, rank)?.push(space, block)?;
    }
    Ok(())
}

/// The heap of one rank.
struct Heap {
    rank: u32,
    start: GlobalAddress,
    bytes: u64,
}

impl Heap {
    fn of(space: &impl Space, rank: u32) -> Result<Heap> {
        Ok(Heap { rank, start: space.heap(rank)?, bytes: space.heap_bytes() })
    }

    fn at(&self, unit: u64) -> Result<GlobalAddress> {
        behind(self.start, unit * UNIT_BYTES)
    }

    fn top(&self, list: u64) -> Result<GlobalAddress> {
        behind(self.start, TOPS_AT + list * WORD_BYTES)
    }

    /// The block of a head, if the head has this state and the block is inside the heap.
    fn block(&self, unit: u64, head: u64, state: u64) -> Option<Block> {
        let units = head & !STATE;
        let end = unit.checked_add(units)?;
        let is_right = head & STATE == state && units >= BLOCK_UNITS_MIN && end <= self.bytes / UNIT_BYTES;
        (is_right && unit >= FIRST_UNIT).then_some(Block { unit, units })
    }

    /// Takes a block for this many bytes and its head. The caller writes the head.
    fn take(&self, space: &mut impl Space, len_bytes: u64) -> Result<Block> {
        const FULL: AcpError = AcpError::Full("the heap of that rank has not so much memory left");
        let units = len_bytes.div_ceil(UNIT_BYTES) + HEAD_UNITS;
        if units > self.bytes / UNIT_BYTES {
            return Err(FULL);
        }
        let units = units.max(BLOCK_UNITS_MIN);
        let list = list_above(units);
        if let Some(block) = self.cut_reserve(space, list_units(list)) {
            return Ok(block);
        }
        let (unused, top) = self.read_ends(space, list)?;
        if let Some(block) = self.pop(space, list, top)? {
            return Ok(block);
        }
        self.fill_reserve(space, list_units(list), unused)?;
        if let Some(block) = self.cut_reserve(space, list_units(list)) {
            return Ok(block);
        }
        if let Some(block) = self.take_unused(space, list_units(list), unused)? {
            return Ok(block);
        }
        return_reserves(space, Some(self.rank))?;
        self.take_longer(space, units)?.ok_or(FULL)
    }

    /// Cuts a short block off this rank's reserve.
    #[inline]
    fn cut_reserve(&self, space: &mut impl Space, units: u64) -> Option<Block> {
        let (rank, left) = space.reserves().of(self.rank);
        let is_there = *rank == self.rank && units <= SHORT_UNITS_MAX;
        let (block, rest) = left.cut(units, BLOCK_UNITS_MIN).filter(|_| is_there)?;
        *left = rest;
        Some(block)
    }

    /// Reserves memory for several short blocks, if plenty was never used and the place has no other heap's reserve. The rest of
    /// an earlier reserve is returned.
    fn fill_reserve(&self, space: &mut impl Space, units: u64, unused: u64) -> Result<()> {
        let left = (self.bytes / UNIT_BYTES).saturating_sub(unused);
        let ahead = reserve::ahead(left, space.size());
        let (rank, before) = *space.reserves().of(self.rank);
        let is_others = rank != self.rank && before.units > 0;
        if units > SHORT_UNITS_MAX || ahead < 2 * units || is_others {
            return Ok(());
        }
        let Some(taken) = self.take_unused(space, ahead, unused)? else { return Ok(()) };
        *space.reserves().of(self.rank) = (self.rank, taken);
        if before.units > 0 { self.push(space, before) } else { Ok(()) }
    }

    /// Where the unused bytes begin, and the top of a list. For lists of short blocks, one read gives both.
    fn read_ends(&self, space: &mut impl Space, list: u64) -> Result<(u64, u64)> {
        let mut words = Aligned([[0; WORD_BYTES as usize]; ENDS_WORDS]);
        let top = (TOPS_AT / WORD_BYTES + list) as usize;
        let Some(read) = words.0.get_mut(..=top) else {
            return Ok((space.read_word(behind(self.start, UNUSED_AT)?)?, space.read_word(self.top(list)?)?));
        };
        space.read(behind(self.start, UNUSED_AT)?, read.as_flattened_mut())?;
        let word = |at: usize| u64::from_ne_bytes(words.0.get(at).copied().unwrap_or_default());
        Ok((word((UNUSED_AT / WORD_BYTES) as usize), word(top)))
    }

    /// Takes the first block of a list, whose top was last read as `top`.
    fn pop(&self, space: &mut impl Space, list: u64, top: u64) -> Result<Option<Block>> {
        let (at, mut top) = (self.top(list)?, top);
        for tries in 0.. {
            let unit = top & TOP_UNIT;
            if unit == 0 {
                return Ok(None);
            }
            let [head, next] = space.read_words(self.at(unit)?)?;
            // Another rank may take the block meanwhile, so `next` may be any content. A changed top shows that.
            let was = space.compare_swap(at, top, moved(top, next & TOP_UNIT))?;
            if was == top {
                let broken = AcpError::Corrupt("something that is no free block is in the heap's list");
                return self.block(unit, head, FREE).map(Some).ok_or(broken);
            }
            top = was;
            space.pause(tries)?;
        }
        Ok(None)
    }

    /// Puts a block of this rank into its list.
    fn push(&self, space: &mut impl Space, block: Block) -> Result<()> {
        let at = self.top(list_below(block.units))?;
        let mut top = space.read_word(at)?;
        for tries in 0.. {
            space.write_words(self.at(block.unit)?, [FREE | block.units, top & TOP_UNIT])?;
            let was = space.compare_swap(at, top, moved(top, block.unit))?;
            if was == top {
                break;
            }
            top = was;
            space.pause(tries)?;
        }
        Ok(())
    }

    /// Takes a block of unused memory, which was last read to begin at `unused`.
    fn take_unused(&self, space: &mut impl Space, units: u64, unused: u64) -> Result<Option<Block>> {
        let (at, mut unused) = (behind(self.start, UNUSED_AT)?, unused);
        for tries in 0.. {
            let end = unused.checked_add(units).filter(|&end| end <= self.bytes / UNIT_BYTES);
            let Some(end) = end else { return Ok(None) };
            let was = space.compare_swap(at, unused, end)?;
            if was == unused {
                return Ok(Some(Block { unit: unused, units }));
            }
            unused = was;
            space.pause(tries)?;
        }
        Ok(None)
    }

    /// Takes a part of a longer block, or of several that are joined for that.
    fn take_longer(&self, space: &mut impl Space, units: u64) -> Result<Option<Block>> {
        if let Some(block) = self.pop_longer(space, units)? {
            return self.split(space, block, units).map(Some);
        }
        lock::with(space, behind(self.start, JOINER_AT)?, |space, _| {
            // Another rank may have joined blocks meanwhile.
            if let Some(block) = self.pop_longer(space, units)? {
                return self.split(space, block, units).map(Some);
            }
            let mut found: Option<Block> = None;
            for block in self.joined(space)? {
                match found {
                    None if block.units >= units => found = Some(block),
                    _ => self.push(space, block)?,
                }
            }
            if found.is_none() {
                // The last block may have been joined with unused memory.
                let unused = space.read_word(behind(self.start, UNUSED_AT)?)?;
                found = self.take_unused(space, units, unused)?;
            }
            found.map(|block| self.split(space, block, units)).transpose()
        })
    }

    /// Takes a block of at least this length from any list that has only such blocks.
    fn pop_longer(&self, space: &mut impl Space, units: u64) -> Result<Option<Block>> {
        let mut tops = vec![0; (LISTS * WORD_BYTES) as usize];
        space.read(self.top(0)?, &mut tops)?;
        let tops = tops.as_chunks::<{ WORD_BYTES as usize }>().0;
        for (list, top) in (0..).zip(tops).skip(list_above(units) as usize) {
            if let Some(block) = self.pop(space, list, u64::from_ne_bytes(*top))? {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Returns the part of a block that is not needed.
    fn split(&self, space: &mut impl Space, block: Block, units: u64) -> Result<Block> {
        let (block, rest) = block.cut(units, BLOCK_UNITS_MIN).unwrap_or((block, Block::default()));
        if rest.units > 0 {
            self.push(space, rest)?;
        }
        Ok(block)
    }

    /// Takes all free blocks, and joins those beside each other. If the last one is beside the unused memory, it is joined with
    /// that.
    fn joined(&self, space: &mut impl Space) -> Result<Vec<Block>> {
        let mut blocks = Vec::new();
        for list in 0..LISTS {
            let at = self.top(list)?;
            let mut top = space.read_word(at)?;
            while top & TOP_UNIT != 0 {
                let was = space.compare_swap(at, top, moved(top, 0))?;
                if was == top {
                    break;
                }
                top = was;
            }
            let mut unit = top & TOP_UNIT;
            // A list can't have more blocks than the heap, whatever is written there.
            for _ in 0..self.bytes / UNIT_BYTES {
                if unit == 0 {
                    break;
                }
                let [head, next] = space.read_words(self.at(unit)?)?;
                let broken = AcpError::Corrupt("something that is no free block is in the heap's list");
                blocks.push(self.block(unit, head, FREE).ok_or(broken)?);
                unit = next & TOP_UNIT;
            }
        }
        blocks.sort_unstable();
        let mut joined: Vec<Block> = Vec::new();
        for block in blocks {
            match joined.last_mut() {
                Some(last) if last.unit + last.units == block.unit => last.units += block.units,
                _ => joined.push(block),
            }
        }
        if let Some(last) = joined.last() {
            let end = last.unit + last.units;
            if space.compare_swap(behind(self.start, UNUSED_AT)?, end, last.unit)? == end {
                joined.pop();
            }
        }
        Ok(joined)
    }
}

/// The top of a list after a change.
fn moved(top: u64, unit: u64) -> u64 {
    (top & !TOP_UNIT).wrapping_add(1 << TOP_UNIT_BITS) | unit
}

/// The list of blocks of this length or a little more.
fn list_below(units: u64) -> u64 {
    if units >> STEPS_BITS == 0 {
        return units;
    }
    let shift = units.ilog2() - STEPS_BITS;
    (u64::from(shift) << STEPS_BITS) + (units >> shift)
}

/// The first list whose blocks all have at least this length.
fn list_above(units: u64) -> u64 {
    let below = list_below(units);
    if list_units(below) == units { below } else { below + 1 }
}

/// The least length of the blocks of a list, units.
fn list_units(list: u64) -> u64 {
    let steps = 1 << STEPS_BITS;
    if list < 2 * steps {
        return list;
    }
    (steps + list % steps) << (list / steps - 1)
}
