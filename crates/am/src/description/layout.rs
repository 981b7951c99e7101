//! The form of a description after it is made: blocks, loops over them, and rows of those.
//!
//! Everything that is built here has its simplest form: no loop runs once, contiguous bytes are one block, and loops that can be
//! one are one.

use super::error::DescriptionError;
use cci_memory::bytes::Pieces;
use std::ops::Range;
use std::sync::Arc;

/// How deep loops and rows may be nested. Each loop runs at least twice, so data that have more levels of loops have
/// more than 2^32 blocks.
pub(super) const LEVELS_MAX: usize = 32;
/// A row of at most this many parts becomes part of the row around it.
const INLINED_PARTS_MAX: usize = 16;

/// A layout at a place.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    /// Bytes from the origin.
    pub(super) at: isize,
    pub(super) layout: Arc<Layout>,
}

/// Bytes in the order in which they are packed.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) shape: Shape,
    /// The number of bytes; never 0.
    pub(super) size: usize,
    /// The range of the used bytes, relative to the layout's own origin.
    true_lower: isize,
    true_upper: isize,
    /// The depth of nested loops and rows, including this one; 0 for a block.
    levels: usize,
}

#[derive(Debug)]
pub(super) enum Shape {
    /// `size` bytes from the origin on.
    Block,
    /// The layout `count` times, at distances of `stride` bytes.
    Strided { count: usize, stride: isize, of: Arc<Layout> },
    /// Blocks of any length anywhere.
    Pieces(Pieces),
    /// Layouts of any kind anywhere.
    Row(Box<[Part]>),
}

/// A member of [`Shape::Row`].
#[derive(Debug)]
pub(super) struct Part {
    /// The number of its first byte in the packed row.
    pub(super) start: usize,
    pub(super) placed: Placed,
}

impl Placed {
    /// Makes a block of `len` bytes at a place. `None` if there are no bytes.
    pub(super) fn block(at: isize, len: usize) -> Result<Option<Placed>, DescriptionError> {
        if len == 0 {
            return Ok(None);
        }
        let end = isize::try_from(len).map_err(|_| DescriptionError::Overflow)?;
        at.checked_add(end).ok_or(DescriptionError::Overflow)?;
        let layout = Layout { shape: Shape::Block, size: len, true_lower: 0, true_upper: end, levels: 0 };
        Ok(Some(Placed { at, layout: Arc::new(layout) }))
    }

    /// Repeats the layout `count` times, at distances of `stride` bytes.
    pub(super) fn repeated(self, count: usize, stride: isize) -> Result<Option<Placed>, DescriptionError> {
        let Placed { at, layout } = self;
        if count == 0 {
            return Ok(None);
        }
        if count == 1 {
            return Ok(Some(Placed { at, layout }));
        }
        let size = layout.size.checked_mul(count).ok_or(DescriptionError::Overflow)?;
        if layout.is_block() && usize::try_from(stride).is_ok_and(|stride| stride == layout.size) {
            return Placed::block(at, size);
        }
        let repeated = match &layout.shape {
            // The outer loop continues where the inner one has ended.
            Shape::Strided { count: inner, stride: step, of } if product(*inner, *step) == Some(stride) => {
                let count = count.checked_mul(*inner).ok_or(DescriptionError::Overflow)?;
                Layout::strided(count, *step, Arc::clone(of), size)?
            }
            _ => Layout::strided(count, stride, layout, size)?,
        };
        repeated.check_at(at)?;
        Ok(Some(Placed { at, layout: Arc::new(repeated) }))
    }

    /// Whether the two are one layout at one place, as clones are.
    pub(super) fn is_clone_of(&self, other: &Placed) -> bool {
        self.at == other.at && Arc::ptr_eq(&self.layout, &other.layout)
    }

    /// Moves the layout by `by` bytes.
    pub(super) fn moved(mut self, by: isize) -> Result<Placed, DescriptionError> {
        self.at = self.at.checked_add(by).ok_or(DescriptionError::Overflow)?;
        self.layout.check_at(self.at)?;
        Ok(self)
    }

    pub(super) fn size(&self) -> usize {
        self.layout.size
    }

    pub(super) fn is_block(&self) -> bool {
        self.layout.is_block()
    }

    /// The range from the first used byte to the end of the last one.
    pub(super) fn true_bounds(&self) -> Range<isize> {
        self.at.saturating_add(self.layout.true_lower)..self.at.saturating_add(self.layout.true_upper)
    }
}

/// The product of `count` and `stride`.
fn product(count: usize, stride: isize) -> Option<isize> {
    isize::try_from(count).ok()?.checked_mul(stride)
}

impl Layout {
    fn strided(
        count: usize,
        stride: isize,
        of: Arc<Layout>,
        size: usize,
    ) -> Result<Layout, DescriptionError> {
        let span = product(count - 1, stride).ok_or(DescriptionError::Overflow)?;
        let bound = |of: isize, by: isize| of.checked_add(by).ok_or(DescriptionError::Overflow);
        let layout = Layout {
            size,
            true_lower: bound(of.true_lower, span.min(0))?,
            true_upper: bound(of.true_upper, span.max(0))?,
            levels: of.levels + 1,
            shape: Shape::Strided { count, stride, of },
        };
        layout.check_levels()
    }

    fn is_block(&self) -> bool {
        matches!(self.shape, Shape::Block)
    }

    /// Refuses a place from which bytes would exceed `isize`.
    fn check_at(&self, at: isize) -> Result<(), DescriptionError> {
        let fits = at.checked_add(self.true_lower).is_some() && at.checked_add(self.true_upper).is_some();
        if fits { Ok(()) } else { Err(DescriptionError::Overflow) }
    }

    fn check_levels(self) -> Result<Layout, DescriptionError> {
        if self.levels > LEVELS_MAX { Err(DescriptionError::TooDeep) } else { Ok(self) }
    }
}

/// Collects layouts, one behind the other in the packed row, and merges contiguous ones.
#[derive(Debug, Default)]
pub(super) struct RowBuilder {
    members: Vec<Member>,
    size: usize,
}

#[derive(Debug)]
enum Member {
    Block { at: isize, len: usize },
    Other(Placed),
}

impl RowBuilder {
    /// Adds a layout behind the others.
    pub(super) fn push(&mut self, placed: Placed) -> Result<(), DescriptionError> {
        match &placed.layout.shape {
            Shape::Block => self.push_block(placed.at, placed.size()),
            Shape::Pieces(pieces) if pieces.count() <= INLINED_PARTS_MAX => {
                for (at, len) in (0..pieces.count()).filter_map(|index| pieces.block(index)) {
                    let at = placed.at.checked_add(at).ok_or(DescriptionError::Overflow)?;
                    self.push_block(at, len)?;
                }
                Ok(())
            }
            Shape::Row(parts) if parts.len() <= INLINED_PARTS_MAX => {
                for part in parts {
                    let moved = part.placed.clone().moved(placed.at)?;
                    if moved.is_block() {
                        self.push_block(moved.at, moved.size())?;
                    } else {
                        self.append(Member::Other(moved))?;
                    }
                }
                Ok(())
            }
            _ => self.append(Member::Other(placed)),
        }
    }

    /// Adds `len` bytes at a place.
    pub(super) fn push_block(&mut self, at: isize, len: usize) -> Result<(), DescriptionError> {
        if len == 0 {
            return Ok(());
        }
        if let Some(Member::Block { at: last_at, len: last_len }) = self.members.last_mut()
            && last_at.checked_add_unsigned(*last_len) == Some(at)
        {
            *last_len = last_len.checked_add(len).ok_or(DescriptionError::Overflow)?;
            self.size = self.size.checked_add(len).ok_or(DescriptionError::Overflow)?;
            return Ok(());
        }
        self.append(Member::Block { at, len })
    }

    fn append(&mut self, member: Member) -> Result<(), DescriptionError> {
        self.size = self.size.checked_add(member.size()).ok_or(DescriptionError::Overflow)?;
        self.members.push(member);
        Ok(())
    }

    /// Joins all of them into one layout. `None` if there are no bytes.
    pub(super) fn finish(mut self) -> Result<Option<Placed>, DescriptionError> {
        if isize::try_from(self.size).is_err() {
            return Err(DescriptionError::Overflow);
        }
        if self.members.len() <= 1 {
            return self.members.pop().map_or(Ok(None), Member::into_placed);
        }
        if let Some((at, len, stride)) = self.one_loop() {
            let count = self.members.len();
            return Placed::block(at, len)?.map_or(Ok(None), |block| block.repeated(count, stride));
        }
        let (mut true_lower, mut true_upper) = (isize::MAX, isize::MIN);
        for member in &self.members {
            let bounds = member.true_bounds()?;
            true_lower = true_lower.min(bounds.start);
            true_upper = true_upper.max(bounds.end);
        }
        let levels = 1 + self.members.iter().map(Member::levels).max().unwrap_or(0);
        let size = self.size;
        let shape = if levels == 1 { self.into_pieces()? } else { self.into_row()? };
        let layout = Layout { shape, size, true_lower, true_upper, levels }.check_levels()?;
        Ok(Some(Placed { at: 0, layout: Arc::new(layout) }))
    }

    /// The place, length and distance, if there are only blocks of one length at equal distances.
    fn one_loop(&self) -> Option<(isize, usize, isize)> {
        let [Member::Block { at: first, len }, Member::Block { at: second, .. }, ..] = self.members[..]
        else {
            return None;
        };
        let stride = second.checked_sub(first)?;
        let follow = |pair: &[Member]| match *pair {
            [Member::Block { at: one, .. }, Member::Block { at: next, len: next_len }] => {
                next_len == len && next.checked_sub(one) == Some(stride)
            }
            _ => false,
        };
        self.members.windows(2).all(follow).then_some((first, len, stride))
    }

    fn into_pieces(self) -> Result<Shape, DescriptionError> {
        let blocks = self.members.into_iter().filter_map(|member| match member {
            Member::Block { at, len } => Some((at, len)),
            Member::Other(_) => None,
        });
        Ok(Shape::Pieces(Pieces::new(blocks).ok_or(DescriptionError::Overflow)?))
    }

    fn into_row(self) -> Result<Shape, DescriptionError> {
        let mut start = 0;
        let mut parts = Vec::with_capacity(self.members.len());
        for member in self.members {
            if let Some(placed) = member.into_placed()? {
                let size = placed.size();
                parts.push(Part { start, placed });
                start += size;
            }
        }
        Ok(Shape::Row(parts.into_boxed_slice()))
    }
}

impl Member {
    fn size(&self) -> usize {
        match self {
            Member::Block { len, .. } => *len,
            Member::Other(placed) => placed.size(),
        }
    }

    fn levels(&self) -> usize {
        match self {
            Member::Block { .. } => 0,
            Member::Other(placed) => placed.layout.levels,
        }
    }

    fn true_bounds(&self) -> Result<Range<isize>, DescriptionError> {
        match self {
            Member::Block { at, len } => {
                Ok(*at..at.checked_add_unsigned(*len).ok_or(DescriptionError::Overflow)?)
            }
            Member::Other(placed) => Ok(placed.true_bounds()),
        }
    }

    fn into_placed(self) -> Result<Option<Placed>, DescriptionError> {
        match self {
            Member::Block { at, len } => Placed::block(at, len),
            Member::Other(placed) => Ok(Some(placed)),
        }
    }
}
