//! Runs the loops of a layout over any part of its packed row.

use super::layout::{LEVELS_MAX, Layout, Part, Shape};
use cci_memory::bytes::{Elements, Pieces};
use std::ops::{ControlFlow, Range};

/// The actions on the blocks of a layout, in the order of the packed row.
///
/// `Break` ends the walk.
pub(super) trait Visitor {
    /// `len` bytes at a place.
    fn block(&mut self, at: isize, len: usize) -> ControlFlow<()>;

    /// `count` blocks of `len` bytes, at distances of `stride` bytes.
    fn blocks(&mut self, at: isize, stride: isize, len: usize, count: usize) -> ControlFlow<()>;

    /// Some of the blocks of these pieces, whose origin is at a place.
    fn pieces(&mut self, at: isize, of: &Pieces, mut which: Range<usize>) -> ControlFlow<()> {
        which.try_for_each(|index| match of.block(index) {
            Some((place, len)) => self.block(at.wrapping_add(place), len),
            None => ControlFlow::Break(()),
        })
    }

    /// All blocks of elements of such pieces.
    fn elements(&mut self, elements: Elements, of: &Pieces) -> ControlFlow<()> {
        let Elements { at, stride, count } = elements;
        (0..count.cast_signed())
            .try_for_each(|turn| self.pieces(at.wrapping_add(stride.wrapping_mul(turn)), of, 0..of.count()))
    }
}

/// The bytes of the packed row that are still to be visited.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// How many bytes are left out first.
    skip: usize,
    /// How many bytes follow these.
    len: usize,
}

/// A loop or row that is being walked.
#[derive(Clone, Copy)]
struct Frame<'a> {
    layout: &'a Layout,
    at: isize,
    /// The next iteration or part.
    next: usize,
}

/// Visits `len` bytes of the packed row of `count` layouts at distances of `stride` bytes, from byte `first` on. All of
/// these bytes must exist: `first + len` is at most `count` times the layout's size.
pub(super) fn walk(
    layout: &Layout,
    at: isize,
    (count, stride): (usize, isize),
    first: usize,
    len: usize,
    visitor: &mut impl Visitor,
) -> ControlFlow<()> {
    let mut rest = Rest { skip: first, len };
    if let Shape::Block = layout.shape {
        if stride.cast_unsigned() == layout.size && len > 0 {
            // Blocks without gaps form one block.
            return visitor.block(at.wrapping_add(first.cast_signed()), len);
        }
        return loop_of_blocks(at, stride, layout.size, count, &mut rest, visitor);
    }
    if let Shape::Pieces(of) = &layout.shape {
        return loop_of_pieces(of, Elements { at, stride, count }, &mut rest, visitor);
    }
    let turn = rest.skip / layout.size;
    rest.skip %= layout.size;
    let mut at = at.wrapping_add(stride.wrapping_mul(turn.cast_signed()));
    while rest.len > 0 {
        one(layout, at, &mut rest, visitor)?;
        at = at.wrapping_add(stride);
    }
    ControlFlow::Continue(())
}

/// Visits one layout, from `rest.skip` on, which is less than its size.
fn one(layout: &Layout, at: isize, rest: &mut Rest, visitor: &mut impl Visitor) -> ControlFlow<()> {
    if innermost(layout, at, rest, visitor)? {
        return ControlFlow::Continue(());
    }
    let mut frames = [Frame { layout, at, next: first_turn(layout, rest) }; LEVELS_MAX];
    let mut depth = 1;
    while depth > 0 && rest.len > 0 {
        let frame = &mut frames[depth - 1];
        let Some((inner, at)) = frame.advance() else {
            depth -= 1;
            continue;
        };
        if !innermost(inner, at, rest, visitor)? {
            // A layout has at most `LEVELS_MAX` levels, and its innermost ones need no frame.
            frames[depth] = Frame { layout: inner, at, next: first_turn(inner, rest) };
            depth += 1;
        }
    }
    ControlFlow::Continue(())
}

impl<'a> Frame<'a> {
    /// The layout of the next iteration, and its place.
    fn advance(&mut self) -> Option<(&'a Layout, isize)> {
        let turn = self.next;
        self.next += 1;
        match &self.layout.shape {
            Shape::Strided { count, stride, of } => (turn < *count)
                .then(|| (&**of, self.at.wrapping_add(stride.wrapping_mul(turn.cast_signed())))),
            Shape::Row(parts) => {
                let placed = &parts.get(turn)?.placed;
                Some((&placed.layout, self.at.wrapping_add(placed.at)))
            }
            Shape::Block | Shape::Pieces(_) => None,
        }
    }
}

/// The iteration that contains the first byte to be visited. The bytes of those before it are subtracted from what is left out.
fn first_turn(layout: &Layout, rest: &mut Rest) -> usize {
    match &layout.shape {
        Shape::Strided { of, .. } => {
            let turn = rest.skip / of.size;
            rest.skip %= of.size;
            turn
        }
        Shape::Row(parts) => find(parts, |part: &Part| part.start, rest),
        Shape::Block | Shape::Pieces(_) => 0,
    }
}

/// The part that contains byte `rest.skip`, which becomes relative to the part.
fn find<T>(parts: &[T], start: impl Fn(&T) -> usize, rest: &mut Rest) -> usize {
    if rest.skip == 0 {
        return 0;
    }
    let behind = parts.partition_point(|part| start(part) <= rest.skip);
    let index = behind.saturating_sub(1);
    rest.skip -= parts.get(index).map_or(0, start);
    index
}

/// Visits layouts that have blocks only, in one loop or two. Returns `false` if the layout is of another kind.
fn innermost(
    layout: &Layout,
    at: isize,
    rest: &mut Rest,
    visitor: &mut impl Visitor,
) -> ControlFlow<(), bool> {
    match &layout.shape {
        Shape::Block => loop_of_blocks(at, 0, layout.size, 1, rest, visitor)?,
        Shape::Pieces(of) => pieces(of, at, rest, visitor)?,
        Shape::Strided { count, stride, of } => match &of.shape {
            Shape::Block => loop_of_blocks(at, *stride, of.size, *count, rest, visitor)?,
            Shape::Pieces(inner) => {
                loop_of_pieces(inner, Elements { at, stride: *stride, count: *count }, rest, visitor)?;
            }
            Shape::Strided { .. } | Shape::Row(_) => return ControlFlow::Continue(false),
        },
        Shape::Row(_) => return ControlFlow::Continue(false),
    }
    ControlFlow::Continue(true)
}

/// Visits blocks of one length: a part of the first one, whole ones, and a part of the last one.
fn loop_of_blocks(
    at: isize,
    stride: isize,
    len: usize,
    count: usize,
    rest: &mut Rest,
    visitor: &mut impl Visitor,
) -> ControlFlow<()> {
    if rest.skip == 0 && len.checked_mul(count).is_some_and(|all| all <= rest.len) {
        // The usual case needs no division, which takes as long as several short blocks.
        rest.len -= len * count;
        return visitor.blocks(at, stride, len, count);
    }
    let (mut turn, skip) = (rest.skip / len, rest.skip % len);
    rest.skip = 0;
    let place = |turn: usize| at.wrapping_add(stride.wrapping_mul(turn.cast_signed()));
    if skip > 0 {
        let part = rest.len.min(len - skip);
        visitor.block(place(turn).wrapping_add(skip.cast_signed()), part)?;
        rest.len -= part;
        turn += 1;
    }
    let whole = (rest.len / len).min(count.saturating_sub(turn));
    if whole > 0 {
        visitor.blocks(place(turn), stride, len, whole)?;
        rest.len -= whole * len;
        turn += whole;
    }
    if turn < count && rest.len > 0 {
        visitor.block(place(turn), rest.len)?;
        rest.len = 0;
    }
    ControlFlow::Continue(())
}

/// Visits elements of the same blocks: a part of the first one, whole ones, and a part of the last one.
fn loop_of_pieces(
    of: &Pieces,
    elements: Elements,
    rest: &mut Rest,
    visitor: &mut impl Visitor,
) -> ControlFlow<()> {
    let Elements { at, stride, count } = elements;
    let size = of.size();
    if rest.skip == 0 && size.checked_mul(count).is_some_and(|all| all <= rest.len) {
        // The usual case needs no division.
        rest.len -= size * count;
        return visitor.elements(elements, of);
    }
    let mut turn = rest.skip / size;
    rest.skip %= size;
    let place = |turn: usize| at.wrapping_add(stride.wrapping_mul(turn.cast_signed()));
    if rest.skip > 0 {
        pieces(of, place(turn), rest, visitor)?;
        turn += 1;
    }
    let whole = (rest.len / size).min(count.saturating_sub(turn));
    if whole > 0 {
        visitor.elements(Elements { at: place(turn), stride, count: whole }, of)?;
        rest.len -= whole * size;
        turn += whole;
    }
    if turn < count && rest.len > 0 {
        pieces(of, place(turn), rest, visitor)?;
    }
    ControlFlow::Continue(())
}

/// Visits a part of the first block, whole ones, and a part of the last one.
fn pieces(of: &Pieces, at: isize, rest: &mut Rest, visitor: &mut impl Visitor) -> ControlFlow<()> {
    let mut first = 0;
    if rest.skip > 0 {
        (first, rest.skip) = of.find(rest.skip);
    }
    if rest.skip > 0 {
        let Some((place, len)) = of.block(first) else { return ControlFlow::Break(()) };
        let part = rest.len.min(len - rest.skip);
        visitor.block(at.wrapping_add(place).wrapping_add(rest.skip.cast_signed()), part)?;
        rest.skip = 0;
        rest.len -= part;
        first += 1;
    }
    let whole = of.whole(first, rest.len);
    let behind = whole.end;
    if !whole.is_empty() {
        rest.len -= of.bytes(whole.clone());
        visitor.pieces(at, of, whole)?;
    }
    if rest.len > 0
        && let Some((place, _)) = of.block(behind)
    {
        visitor.block(at.wrapping_add(place), rest.len)?;
        rest.len = 0;
    }
    ControlFlow::Continue(())
}
