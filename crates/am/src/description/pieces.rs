//! The pieces of memory of described data, for operations that take lists of pieces.

use super::Description;
use super::walk::{self, Visitor};
use std::ops::{ControlFlow, Range};

/// A piece of memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Bytes from the origin of the first element to the piece's first byte.
    pub at: isize,
    pub len_bytes: usize,
}

impl Description {
    /// The number of packed bytes of `count` elements; `None` if it exceeds the address space.
    pub(crate) fn packed_bytes(&self, count: usize) -> Option<usize> {
        self.size().checked_mul(count)
    }

    /// From the first byte of `count` elements to behind the last one, relative to the origin of the first element; none if that
    /// exceeds the address space. Empty if there are no bytes.
    pub fn span(&self, count: usize) -> Option<Range<isize>> {
        if self.packed_bytes(count)? == 0 {
            return Some(0..0);
        }
        let bounds = self.true_bounds();
        let last = self.extent().checked_mul(isize::try_from(count - 1).ok()?)?;
        Some(bounds.start.checked_add(last.min(0))?..bounds.end.checked_add(last.max(0))?)
    }

    /// Adds the next pieces of `count` elements to a list, from byte `first_byte` of the packed row on: up to `max` pieces, and
    /// `len_bytes` in total. Pieces that touch are joined. Returns how many bytes these are.
    pub(crate) fn pieces(
        &self,
        count: usize,
        first_byte: usize,
        len_bytes: usize,
        max: usize,
        pieces: &mut Vec<Piece>,
    ) -> usize {
        let Some(layout) = &self.layout else { return 0 };
        let left = self.packed_bytes(count).unwrap_or_default().saturating_sub(first_byte);
        let mut collect = Collect { pieces, max, bytes: 0 };
        let elements = (count, self.extent());
        // The walk breaks when the list is full.
        let _ =
            walk::walk(&layout.layout, layout.at, elements, first_byte, len_bytes.min(left), &mut collect);
        collect.bytes
    }
}

struct Collect<'a> {
    pieces: &'a mut Vec<Piece>,
    max: usize,
    bytes: usize,
}

impl Visitor for Collect<'_> {
    fn block(&mut self, at: isize, len: usize) -> ControlFlow<()> {
        let is_full = self.pieces.len() >= self.max;
        match self.pieces.last_mut() {
            Some(last) if last.at.checked_add_unsigned(last.len_bytes) == Some(at) => last.len_bytes += len,
            _ if is_full => return ControlFlow::Break(()),
            _ => self.pieces.push(Piece { at, len_bytes: len }),
        }
        self.bytes += len;
        ControlFlow::Continue(())
    }

    fn blocks(&mut self, at: isize, stride: isize, len: usize, count: usize) -> ControlFlow<()> {
        (0..count)
            .try_for_each(|turn| self.block(at.wrapping_add(stride.wrapping_mul(turn.cast_signed())), len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All pieces, taken `max` at a time.
    fn all(description: &Description, count: usize, max: usize) -> Vec<Piece> {
        let (mut all, mut done) = (Vec::new(), 0);
        let size = description.packed_bytes(count).unwrap();
        while done < size {
            let mut some = Vec::new();
            let bytes = description.pieces(count, done, size, max, &mut some);
            assert!(bytes > 0 && some.len() <= max);
            assert_eq!(some.iter().map(|piece| piece.len_bytes).sum::<usize>(), bytes);
            all.extend(some);
            done += bytes;
        }
        all
    }

    #[test]
    fn pieces_are_those_that_packing_copies() {
        let byte = Description::bytes(1).unwrap();
        let column = Description::strided(&[3, 10], &[8]).unwrap();
        let backwards = Description::strided(&[2, 4], &[-6]).unwrap();
        let nested = Description::hvector(3, 2, 200, &column).unwrap();
        let indexed = Description::hindexed(&[1, 0, 5, 2], &[9, 1, 20, 40], &byte).unwrap();
        for description in [byte, column, backwards, nested, indexed] {
            for count in 0..4 {
                let span = description.span(count).unwrap();
                let memory: Vec<u8> = (0..span.len()).map(|byte| byte as u8).collect();
                let mut packed = vec![0; description.packed_bytes(count).unwrap()];
                let origin = -span.start;
                description.pack((&memory[..]).into(), origin, count, 0, &mut packed).unwrap();
                for max in [1, 2, 7, 1_000] {
                    let bytes = all(&description, count, max).into_iter().flat_map(|piece| {
                        let first = (piece.at + origin) as usize;
                        memory[first..first + piece.len_bytes].to_vec()
                    });
                    assert_eq!(bytes.collect::<Vec<_>>(), packed, "{description:?}, {count}, {max}");
                }
            }
        }
    }

    #[test]
    fn what_touches_is_one_piece() {
        let four = Description::bytes(4).unwrap();
        assert_eq!(all(&four, 100, 1), [Piece { at: 0, len_bytes: 400 }]);
    }
}
