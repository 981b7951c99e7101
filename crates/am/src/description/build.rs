//! Constructors of descriptions from others: MPI's, and those for the data of other libraries.

use super::layout::{Placed, RowBuilder};
use super::{Bounds, Description, DescriptionError};
use DescriptionError::Overflow;

impl Description {
    /// A description without bytes.
    pub const fn null() -> Description {
        Description { layout: None, bounds: None }
    }

    /// `len` consecutive bytes.
    pub fn bytes(len: usize) -> Result<Description, DescriptionError> {
        let Some(layout) = Placed::block(0, len)? else { return Ok(Self::null()) };
        let bounds = Bounds::of_bytes(layout.true_bounds());
        Ok(Description { layout: Some(layout), bounds: Some(bounds) })
    }

    /// `count` consecutive elements.
    pub fn contiguous(count: usize, base: &Description) -> Result<Description, DescriptionError> {
        base.repeated(count, base.extent())
    }

    /// `count` blocks of `block_len` elements; each block begins `stride` elements after the beginning of the one
    /// before.
    pub fn vector(
        count: usize,
        block_len: usize,
        stride: isize,
        base: &Description,
    ) -> Result<Description, DescriptionError> {
        let stride_bytes = stride.checked_mul(base.extent()).ok_or(Overflow)?;
        Self::hvector(count, block_len, stride_bytes, base)
    }

    /// [`vector`](Self::vector) with a stride in bytes.
    pub fn hvector(
        count: usize,
        block_len: usize,
        stride_bytes: isize,
        base: &Description,
    ) -> Result<Description, DescriptionError> {
        Self::contiguous(block_len, base)?.repeated(count, stride_bytes)
    }

    /// Blocks of elements: their lengths and displacements, both counted in elements.
    pub fn indexed(
        block_lens: &[usize],
        displacements: &[isize],
        base: &Description,
    ) -> Result<Description, DescriptionError> {
        same_length(block_lens, displacements)?;
        let blocks = block_lens.iter().copied().zip(displacements.iter().copied());
        Self::of_blocks(blocks.map(|(len, at)| (len, at.checked_mul(base.extent()))), base)
    }

    /// [`indexed`](Self::indexed) with displacements in bytes.
    pub fn hindexed(
        block_lens: &[usize],
        displacements_bytes: &[isize],
        base: &Description,
    ) -> Result<Description, DescriptionError> {
        same_length(block_lens, displacements_bytes)?;
        let blocks = block_lens.iter().copied().zip(displacements_bytes.iter().copied());
        Self::of_blocks(blocks.map(|(len, at)| (len, Some(at))), base)
    }

    /// Blocks of `block_len` elements each, at displacements counted in elements.
    pub fn block_indexed(
        block_len: usize,
        displacements: &[isize],
        base: &Description,
    ) -> Result<Description, DescriptionError> {
        Self::of_blocks(displacements.iter().map(|at| (block_len, at.checked_mul(base.extent()))), base)
    }

    /// [`block_indexed`](Self::block_indexed) with displacements in bytes.
    pub fn hblock_indexed(
        block_len: usize,
        displacements_bytes: &[isize],
        base: &Description,
    ) -> Result<Description, DescriptionError> {
        Self::of_blocks(displacements_bytes.iter().map(|at| (block_len, Some(*at))), base)
    }

    /// Blocks of different elements: how many, where (in bytes), and of which kind.
    pub fn structure(
        block_lens: &[usize],
        displacements_bytes: &[isize],
        bases: &[&Description],
    ) -> Result<Description, DescriptionError> {
        same_length(block_lens, displacements_bytes)?;
        same_length(block_lens, bases)?;
        let mut row = Row::default();
        for ((len, at), base) in block_lens.iter().zip(displacements_bytes).zip(bases) {
            row.push(&Self::contiguous(*len, base)?, *at)?;
        }
        row.finish()
    }

    /// The same bytes with other bounds: an element begins `lower_bound` bytes from its origin, and the next one
    /// `extent` bytes later.
    pub fn resized(
        base: &Description,
        lower_bound: isize,
        extent: usize,
    ) -> Result<Description, DescriptionError> {
        let upper = lower_bound.checked_add_unsigned(extent).ok_or(Overflow)?;
        upper.checked_sub(lower_bound).ok_or(Overflow)?;
        let bounds = Bounds { lower: lower_bound, upper, explicit: true };
        Ok(Description { layout: base.layout.clone(), bounds: Some(bounds) })
    }

    /// ARMCI's strided data: `counts[0]` bytes, these `counts[1]` times at distances of `strides_bytes[0]`, and so on.
    /// There is one count more than there are strides.
    pub fn strided(counts: &[usize], strides_bytes: &[isize]) -> Result<Description, DescriptionError> {
        let [len, counts @ ..] = counts else { return Err(DescriptionError::ListsDiffer) };
        same_length(counts, strides_bytes)?;
        let block = Self::bytes(*len)?;
        counts.iter().zip(strides_bytes).try_fold(block, |of, (count, stride)| of.repeated(*count, *stride))
    }

    /// Pieces of memory by their addresses and lengths, as in an I/O vector. The origin is address 0.
    pub fn from_addresses(
        pieces: impl IntoIterator<Item = (usize, usize)>,
    ) -> Result<Description, DescriptionError> {
        let byte = Self::bytes(1)?;
        let pieces = pieces.into_iter();
        Self::of_blocks(pieces.map(|(address, len)| (len, isize::try_from(address).ok())), &byte)
    }

    /// Repeats the element `count` times, at distances of `stride` bytes.
    fn repeated(&self, count: usize, stride: isize) -> Result<Description, DescriptionError> {
        let (Some(steps), Some(bounds)) = (count.checked_sub(1), self.bounds) else {
            return Ok(Self::null());
        };
        let last = isize::try_from(steps).ok().and_then(|steps| steps.checked_mul(stride)).ok_or(Overflow)?;
        let layout = match self.layout.clone() {
            Some(placed) => placed.repeated(count, stride)?,
            None => None,
        };
        Ok(Description { layout, bounds: Some(bounds.spread(0, last).ok_or(Overflow)?) })
    }

    /// Blocks of elements: the number of elements, and the displacement in bytes, `None` if it exceeds `isize`.
    fn of_blocks(
        blocks: impl Iterator<Item = (usize, Option<isize>)>,
        base: &Description,
    ) -> Result<Description, DescriptionError> {
        let mut row = Row::default();
        for (len, at) in blocks {
            let at = at.ok_or(Overflow)?;
            if base.is_contiguous(len) && base.bounds.is_some_and(|bounds| !bounds.explicit) {
                row.push_block(base, len, at)?;
            } else {
                row.push(&Self::contiguous(len, base)?, at)?;
            }
        }
        row.finish()
    }
}

fn same_length<A, B>(one: &[A], other: &[B]) -> Result<(), DescriptionError> {
    if one.len() == other.len() { Ok(()) } else { Err(DescriptionError::ListsDiffer) }
}

/// Elements side by side, with their common bounds.
#[derive(Default)]
struct Row {
    layouts: RowBuilder,
    bounds: Option<Bounds>,
}

impl Row {
    fn push(&mut self, description: &Description, at: isize) -> Result<(), DescriptionError> {
        let Some(bounds) = description.bounds else { return Ok(()) };
        self.join(bounds.spread(at, at).ok_or(Overflow)?);
        match &description.layout {
            Some(layout) => self.layouts.push(layout.clone().moved(at)?),
            None => Ok(()),
        }
    }

    /// Adds `len` elements of a base whose bytes are consecutive, without making a description of them first.
    fn push_block(&mut self, base: &Description, len: usize, at: isize) -> Result<(), DescriptionError> {
        let size = base.size().checked_mul(len).ok_or(Overflow)?;
        if size == 0 {
            return Ok(());
        }
        let first = at.checked_add(base.true_bounds().start).ok_or(Overflow)?;
        let end = first.checked_add_unsigned(size).ok_or(Overflow)?;
        self.join(Bounds::of_bytes(first..end));
        self.layouts.push_block(first, size)
    }

    fn join(&mut self, bounds: Bounds) {
        self.bounds = Some(self.bounds.map_or(bounds, |joined| joined.join(bounds)));
    }

    fn finish(self) -> Result<Description, DescriptionError> {
        if let Some(bounds) = self.bounds {
            bounds.upper.checked_sub(bounds.lower).ok_or(Overflow)?;
        }
        Ok(Description { layout: self.layouts.finish()?, bounds: self.bounds })
    }
}
