//! Copies between described data and the packed row.

use super::walk::{self, Visitor};
use super::{Description, PackError};
use cci_memory::bytes::{Blocks, Elements, Pieces, Readable, Writable};
use std::ops::{ControlFlow, Range};

impl Description {
    /// Copies bytes of `count` elements to `out`, from byte `first_byte` of the packed row on, until either ends. Returns
    /// how many were copied.
    ///
    /// The first element's origin is `origin` bytes from the beginning of the memory. It need not be inside, since lower
    /// bounds may be negative or positive; all bytes that are described must be. Elements follow each other at distances
    /// of [`extent`](Self::extent).
    ///
    /// # Errors
    ///
    /// Nothing was copied: [`BehindEnd`](PackError::BehindEnd) if the packed row has no byte `first_byte` and does not
    /// end there either, [`OutOfRange`](PackError::OutOfRange) if any of the elements' bytes lies outside of the memory.
    pub fn pack(
        &self,
        memory: Readable<'_>,
        origin: isize,
        count: usize,
        first_byte: usize,
        out: &mut [u8],
    ) -> Result<usize, PackError> {
        let len = self.part(memory.len(), origin, count, first_byte)?.min(out.len());
        self.walk(origin, count, first_byte, len, &mut Pack { memory, out })
    }

    /// Copies a part of the packed row, which begins there with byte `first_byte`, to where its bytes belong in `count`
    /// elements, until either ends. Returns how many bytes were copied.
    ///
    /// # Errors
    ///
    /// Those of [`pack`](Self::pack).
    pub fn unpack(
        &self,
        memory: Writable<'_>,
        origin: isize,
        count: usize,
        first_byte: usize,
        packed: &[u8],
    ) -> Result<usize, PackError> {
        let len = self.part(memory.len(), origin, count, first_byte)?.min(packed.len());
        self.walk(origin, count, first_byte, len, &mut Unpack { memory, packed })
    }

    /// The number of bytes from `first_byte` on, if all elements are inside `memory_len` bytes.
    fn part(
        &self,
        memory_len: usize,
        origin: isize,
        count: usize,
        first_byte: usize,
    ) -> Result<usize, PackError> {
        let size = self.size().checked_mul(count).ok_or(PackError::Overflow)?;
        let rest = size.checked_sub(first_byte).ok_or(PackError::BehindEnd)?;
        if size > 0 && !self.fits(memory_len, origin, count) {
            return Err(PackError::OutOfRange);
        }
        Ok(rest)
    }

    /// Whether all bytes of `count` elements, which is not 0, are inside `memory_len` bytes.
    fn fits(&self, memory_len: usize, origin: isize, count: usize) -> bool {
        let bounds = self.true_bounds();
        // These are numbers of 64 bits, their products and a few sums, so nothing overflows.
        let span = self.extent() as i128 * (count as i128 - 1);
        let low = origin as i128 + span.min(0) + bounds.start as i128;
        let high = origin as i128 + span.max(0) + bounds.end as i128;
        low >= 0 && high <= memory_len as i128
    }

    fn walk(
        &self,
        origin: isize,
        count: usize,
        first_byte: usize,
        len: usize,
        visitor: &mut impl Visitor,
    ) -> Result<usize, PackError> {
        let Some(layout) = &self.layout else { return Ok(0) };
        let at = origin.wrapping_add(layout.at);
        match walk::walk(&layout.layout, at, (count, self.extent()), first_byte, len, visitor) {
            ControlFlow::Continue(()) => Ok(len),
            // `fits` has checked that all bytes are there.
            ControlFlow::Break(()) => Err(PackError::OutOfRange),
        }
    }
}

struct Pack<'a> {
    memory: Readable<'a>,
    out: &'a mut [u8],
}

impl Visitor for Pack<'_> {
    #[inline]
    fn block(&mut self, at: isize, len: usize) -> ControlFlow<()> {
        let (Ok(at), Some(out)) = (usize::try_from(at), self.out.split_off_mut(..len)) else {
            return ControlFlow::Break(());
        };
        done(self.memory.read(at, out))
    }

    #[inline]
    fn blocks(&mut self, at: isize, stride: isize, len: usize, count: usize) -> ControlFlow<()> {
        let (Ok(first), Some(out)) = (usize::try_from(at), self.out.split_off_mut(..len * count)) else {
            return ControlFlow::Break(());
        };
        done(self.memory.gather(Blocks { first, stride, len, count }, out))
    }

    #[inline]
    fn pieces(&mut self, at: isize, of: &Pieces, which: Range<usize>) -> ControlFlow<()> {
        let Some(out) = self.out.split_off_mut(..of.bytes(which.clone())) else {
            return ControlFlow::Break(());
        };
        done(self.memory.gather_pieces(at, of, which, out))
    }

    #[inline]
    fn elements(&mut self, elements: Elements, of: &Pieces) -> ControlFlow<()> {
        let Some(out) = self.out.split_off_mut(..of.size() * elements.count) else {
            return ControlFlow::Break(());
        };
        done(self.memory.gather_elements(elements, of, out))
    }
}

struct Unpack<'a> {
    memory: Writable<'a>,
    packed: &'a [u8],
}

impl Visitor for Unpack<'_> {
    #[inline]
    fn block(&mut self, at: isize, len: usize) -> ControlFlow<()> {
        let (Ok(at), Some(packed)) = (usize::try_from(at), self.packed.split_off(..len)) else {
            return ControlFlow::Break(());
        };
        done(self.memory.write(at, packed))
    }

    #[inline]
    fn blocks(&mut self, at: isize, stride: isize, len: usize, count: usize) -> ControlFlow<()> {
        let (Ok(first), Some(packed)) = (usize::try_from(at), self.packed.split_off(..len * count)) else {
            return ControlFlow::Break(());
        };
        done(self.memory.scatter(Blocks { first, stride, len, count }, packed))
    }

    #[inline]
    fn pieces(&mut self, at: isize, of: &Pieces, which: Range<usize>) -> ControlFlow<()> {
        let Some(packed) = self.packed.split_off(..of.bytes(which.clone())) else {
            return ControlFlow::Break(());
        };
        done(self.memory.scatter_pieces(at, of, which, packed))
    }

    #[inline]
    fn elements(&mut self, elements: Elements, of: &Pieces) -> ControlFlow<()> {
        let Some(packed) = self.packed.split_off(..of.size() * elements.count) else {
            return ControlFlow::Break(());
        };
        done(self.memory.scatter_elements(elements, of, packed))
    }
}

fn done(copied: bool) -> ControlFlow<()> {
    if copied { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}
