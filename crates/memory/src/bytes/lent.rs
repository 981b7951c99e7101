//! Memory that may be read, or written, for as long as it is lent: slices, and [`Bytes`].

use super::{Blocks, Bytes, Elements, Pieces};
use core::marker::PhantomData;
use core::ops::Range;
use core::ptr::NonNull;

/// Memory that may be read.
#[derive(Debug, Clone, Copy)]
pub struct Readable<'a> {
    bytes: Bytes,
    lent: PhantomData<&'a [u8]>,
}

/// Memory that may be written.
#[derive(Debug)]
pub struct Writable<'a> {
    bytes: Bytes,
    lent: PhantomData<&'a mut [u8]>,
}

impl Readable<'_> {
    /// The length in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// See [`Bytes::read`].
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        self.bytes.read(offset, out)
    }

    /// See [`Bytes::gather`].
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn gather(&self, blocks: Blocks, out: &mut [u8]) -> bool {
        self.bytes.gather(blocks, out)
    }

    /// See [`Bytes::gather_pieces`].
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn gather_pieces(&self, at: isize, pieces: &Pieces, which: Range<usize>, out: &mut [u8]) -> bool {
        self.bytes.gather_pieces(at, pieces, which, out)
    }

    /// See [`Bytes::gather_elements`].
    #[must_use = "`false` means that nothing was copied"]
    pub fn gather_elements(&self, elements: Elements, pieces: &Pieces, out: &mut [u8]) -> bool {
        self.bytes.gather_elements(elements, pieces, out)
    }
}

impl Writable<'_> {
    /// The length in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// See [`Bytes::write`].
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn write(&mut self, offset: usize, data: &[u8]) -> bool {
        self.bytes.write(offset, data)
    }

    /// See [`Bytes::scatter`].
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn scatter(&mut self, blocks: Blocks, data: &[u8]) -> bool {
        self.bytes.scatter(blocks, data)
    }

    /// See [`Bytes::scatter_pieces`].
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn scatter_pieces(&mut self, at: isize, pieces: &Pieces, which: Range<usize>, data: &[u8]) -> bool {
        self.bytes.scatter_pieces(at, pieces, which, data)
    }

    /// See [`Bytes::scatter_elements`].
    #[must_use = "`false` means that nothing was copied"]
    pub fn scatter_elements(&mut self, elements: Elements, pieces: &Pieces, data: &[u8]) -> bool {
        self.bytes.scatter_elements(elements, pieces, data)
    }
}

impl<'a> From<&'a [u8]> for Readable<'a> {
    fn from(slice: &'a [u8]) -> Readable<'a> {
        // SAFETY: the slice is lent for reading as long as this value lives, which does nothing else with the bytes and
        // gives them to nobody.
        let bytes = unsafe { Bytes::new(NonNull::from(slice).cast(), slice.len()) };
        Readable { bytes, lent: PhantomData }
    }
}

impl<'a> From<&'a mut [u8]> for Writable<'a> {
    fn from(slice: &'a mut [u8]) -> Writable<'a> {
        let len = slice.len();
        // SAFETY: the slice is lent as long as this value lives, and to nobody else meanwhile.
        let bytes = unsafe { Bytes::new(NonNull::from(slice).cast(), len) };
        Writable { bytes, lent: PhantomData }
    }
}

impl From<Bytes> for Readable<'_> {
    /// The promise of [`Bytes::new`] holds for the new value, too.
    fn from(bytes: Bytes) -> Self {
        Readable { bytes, lent: PhantomData }
    }
}

impl From<Bytes> for Writable<'_> {
    /// The promise of [`Bytes::new`] holds for the new value, too.
    fn from(bytes: Bytes) -> Self {
        Writable { bytes, lent: PhantomData }
    }
}
