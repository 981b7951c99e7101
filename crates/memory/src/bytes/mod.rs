//! Memory that anybody may change at any time: what remote memory access reads and writes.
//!
//! [`Bytes`] is an address and a length; its operations are safe, bounds-checked, and make no reference to the memory,
//! so that the program, or another process, may do with it at the same time what it likes. [`Backing`] is what keeps
//! such memory mapped; [`Foreign`] is the program's own.
//!
//! # What a race yields
//!
//! Any mixture of old and new bytes, in any order, as with any remote memory access; but 4 or 8 bytes that are aligned,
//! on both sides, and copied by themselves move whole (on x86-64; elsewhere, those of 8). A copy is no
//! synchronisation: who wants to see bytes after a flag orders the two itself ([`Bytes::atomic`] is sequentially
//! consistent, so are the events of an endpoint).

mod atomics;
mod copy;
mod lent;
mod pieces;
mod strided;
#[cfg(test)]
mod tests;
mod trust;

use core::ptr::NonNull;
use std::sync::Arc;

pub use atomics::{AtomicKind, AtomicOp, AtomicRefusal, AtomicWidth, Word};
pub use lent::{Readable, Writable};
pub use pieces::{Elements, Pieces};
pub use strided::Blocks;
pub use trust::Trust;

/// `len` bytes at an address, which others may read and write at any time.
///
/// A `Bytes` does not keep its memory mapped: who made it promised that it outlives every copy of it; see [`Backing`].
#[derive(Debug, Clone, Copy)]
pub struct Bytes {
    base: NonNull<u8>,
    len: usize,
}

/// The lengths of pieces of which those that follow are fetched ahead. The processor sees by itself where longer ones lead, and of
/// shorter ones few follow each other.
const PIECE_BYTES: core::ops::Range<usize> = 1024..4097;
/// How many pieces ahead: the next one would come too soon.
const PIECES_AHEAD: usize = 2;

// SAFETY: an address; the memory is reached by assembly or atomics only, from any thread, by the promise of `new`.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// No bytes, nowhere.
    pub const EMPTY: Bytes = Bytes { base: NonNull::dangling(), len: 0 };

    /// The `len` bytes from `base` on.
    ///
    /// # Safety
    ///
    /// As long as this value, or a copy or [`part`](Self::part) of it, is used:
    /// - the memory is mapped, readable (for [`read`](Self::read), [`AtomicKind::Load`] and as a source) and writable (for everything
    ///   else);
    /// - code of this process reads and writes it only by atomics, by raw copies in assembly or system calls, or by this
    ///   type, unless it has seen to it that no operation of this type goes on; no `&` or `&mut` reference to plain
    ///   bytes of it is used across one.
    ///
    /// Nothing is asked of other processes.
    pub const unsafe fn new(base: NonNull<u8>, len: usize) -> Bytes {
        Bytes { base, len }
    }

    /// The length in bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte.
    #[inline]
    pub const fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// The `len` bytes from `offset` on; `None` if they are not all in range.
    #[inline]
    pub fn part(&self, offset: usize, len: usize) -> Option<Bytes> {
        Some(Bytes { base: self.at(offset, len)?, len })
    }

    /// Copies `out.len()` bytes from `offset` on to `out`. `false`: they are not all in range, and nothing was done.
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, out.len()) else { return false };
        #[cfg(all(feature = "simulated", not(loom)))]
        if crate::simulated::is_entered() {
            // SAFETY: as below.
            unsafe { crate::simulated::load(from.as_ptr(), out.as_mut_ptr(), out.len()) };
            return true;
        }
        // SAFETY: `from` is good for that many bytes by `at`; `out` is ours alone.
        unsafe { copy::copy(from.as_ptr(), out.as_mut_ptr(), out.len()) };
        true
    }

    /// Copies `data` to `offset`. `false`: it does not fit there, and nothing was done.
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn write(&self, offset: usize, data: &[u8]) -> bool {
        let Some(to) = self.at(offset, data.len()) else { return false };
        #[cfg(all(feature = "simulated", not(loom)))]
        if crate::simulated::is_entered() {
            // SAFETY: as below.
            unsafe { crate::simulated::store(to.as_ptr(), data) };
            return true;
        }
        // SAFETY: `to` is good for that many bytes by `at`.
        unsafe { copy::copy_slice(data, to.as_ptr()) };
        true
    }

    /// Copies as [`read`](Self::read) does. Others of the same length that lie behind will probably follow, as the data of datagrams
    /// do: those are fetched into the processor's cache meanwhile.
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn read_piece(&self, offset: usize, out: &mut [u8]) -> bool {
        let is_done = self.read(offset, out);
        if let Some(next) = self.ahead(offset, out.len()) {
            copy::fetch_to_read(next.as_ptr(), out.len());
        }
        is_done
    }

    /// Copies as [`write`](Self::write) does. Others of the same length that go behind will probably follow, as the data of datagrams
    /// do: where they go is fetched into the processor's cache meanwhile.
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn write_piece(&self, offset: usize, data: &[u8]) -> bool {
        let is_done = self.write(offset, data);
        if let Some(next) = self.ahead(offset, data.len()) {
            copy::fetch_to_write(next.as_ptr(), data.len());
        }
        is_done
    }

    /// The piece of `len` bytes that is fetched while the one at `offset` is copied, if that pays.
    #[inline]
    fn ahead(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        if PIECE_BYTES.contains(&len) { self.at(offset.checked_add(PIECES_AHEAD * len)?, len) } else { None }
    }

    /// Copies `len` bytes from `from_offset` of `from` to `offset` of this memory; the two may overlap, as in `memmove`
    /// (where one memory is mapped at two addresses, only bytes at the same addresses count as overlap).
    /// `false`: out of range on either side, and nothing was done.
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn copy_from(&self, offset: usize, from: &Bytes, from_offset: usize, len: usize) -> bool {
        self.copy_inlined_from(offset, from, from_offset, len)
    }

    /// Copies as [`copy_from`](Self::copy_from) does, and is compiled into its caller, for where a call would take as long as the copy.
    #[inline(always)]
    #[must_use = "`false` means that nothing was copied"]
    pub fn copy_inlined_from(&self, offset: usize, from: &Bytes, from_offset: usize, len: usize) -> bool {
        let (Some(to), Some(from)) = (self.at(offset, len), from.at(from_offset, len)) else { return false };
        #[cfg(all(feature = "simulated", not(loom)))]
        if crate::simulated::is_entered() {
            let mut bytes = vec![0; len];
            // SAFETY: as below.
            unsafe {
                crate::simulated::load(from.as_ptr(), bytes.as_mut_ptr(), len);
                crate::simulated::store(to.as_ptr(), &bytes);
            }
            return true;
        }
        // SAFETY: both are good for that many bytes by `at`.
        unsafe { copy::copy(from.as_ptr(), to.as_ptr(), len) };
        true
    }

    /// Sets `len` bytes from `offset` on to `byte`. `false`: out of range, and nothing was done.
    #[must_use = "`false` means that nothing was written"]
    pub fn fill(&self, offset: usize, len: usize, byte: u8) -> bool {
        let Some(to) = self.at(offset, len) else { return false };
        #[cfg(all(feature = "simulated", not(loom)))]
        if crate::simulated::is_entered() {
            // SAFETY: as below.
            unsafe { crate::simulated::store(to.as_ptr(), &vec![byte; len]) };
            return true;
        }
        // SAFETY: `to` is good for that many bytes by `at`.
        unsafe { copy::fill(to.as_ptr(), byte, len) };
        true
    }

    /// The address of byte `offset`, if `len` bytes from there on are in range.
    #[inline(always)]
    fn at(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        if len > self.len || offset > self.len - len {
            return None;
        }
        // SAFETY: at most one past the end of the range that `new` was promised.
        Some(unsafe { self.base.add(offset) })
    }
}

/// What keeps memory mapped: as long as the value lives, all of [`bytes`](Self::bytes) may be used as
/// [`Bytes::new`] says.
///
/// Implementing it is safe, as a `Bytes` can only be had from somebody who made that promise. Who calls
/// [`bytes`](Self::bytes) takes the promise over: it uses no copy of them after the value is gone. The compiler
/// does not check that, so nobody outside of these crates is given a `Bytes`, and whoever stores one stores what keeps
/// it mapped beside it.
pub trait Backing: Send + Sync {
    /// The memory; the same at every call.
    fn bytes(&self) -> Bytes;
}

impl<T: Backing + ?Sized> Backing for Arc<T> {
    fn bytes(&self) -> Bytes {
        (**self).bytes()
    }
}

/// Memory of the program's own, lent for remote access.
#[derive(Debug)]
pub struct Foreign {
    bytes: Bytes,
    /// What [`Foreign::owned`] was given; only freed, never looked at.
    owned: Option<NonNull<[u8]>>,
}

// SAFETY: an address, and ownership of what lies there, which may be freed on any thread.
unsafe impl Send for Foreign {}
// SAFETY: a shared reference gives a `Bytes` and nothing else.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Lends the `len` bytes from `base` on.
    ///
    /// # Safety
    ///
    /// From now until this value is dropped (for a registered region: until it was deregistered, or the
    /// endpoint was closed):
    /// - the memory stays allocated and mapped, readable, and, if registered with the right to be written or for
    ///   atomics, writable;
    /// - the program reads and writes it, while peers may, only by atomics or raw copies whose result it takes for
    ///   arbitrary bytes (`ptr::read_volatile`, assembly, another [`Bytes`]), or after an event has told it that
    ///   the peer is done. In particular it holds no `&[u8]` or `&mut [u8]` to it across a call into the library
    ///   that may move bytes, as with any memory registered for remote access.
    pub const unsafe fn new(base: NonNull<u8>, len: usize) -> Foreign {
        // SAFETY: the caller's promise, for as long as the value lives.
        Foreign { bytes: unsafe { Bytes::new(base, len) }, owned: None }
    }

    /// Takes memory of the heap, for good: nobody has a reference to it any more, so that nothing need be promised. It is
    /// freed with this value.
    pub fn owned(memory: Box<[u8]>) -> Foreign {
        let len = memory.len();
        let owned = NonNull::from(Box::leak(memory));
        // SAFETY: allocated until `drop`, and reached by nobody but by way of this value.
        let bytes = unsafe { Bytes::new(owned.cast(), len) };
        Foreign { bytes, owned: Some(owned) }
    }

    /// Gives back what [`Foreign::owned`] took. `None` for memory that was lent.
    pub fn into_owned(mut self) -> Option<Box<[u8]>> {
        let owned = self.owned.take()?;
        #[cfg(all(feature = "simulated", not(loom)))]
        crate::simulated::unmap(self.bytes.as_ptr().as_ptr(), self.bytes.len());
        // SAFETY: from `Box::leak`, and given back once. Who still has a `Bytes` of it broke the promise of those.
        Some(unsafe { Box::from_raw(owned.as_ptr()) })
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(owned) = self.owned.take() {
            #[cfg(all(feature = "simulated", not(loom)))]
            crate::simulated::unmap(self.bytes.as_ptr().as_ptr(), self.bytes.len());
            // SAFETY: from `Box::leak`, and given back once. Who still has a `Bytes` of it broke the promise of those.
            drop(unsafe { Box::from_raw(owned.as_ptr()) });
        }
    }
}

impl Backing for Foreign {
    fn bytes(&self) -> Bytes {
        self.bytes
    }
}

/// Whether each block goes through [`Bytes::read`] or [`Bytes::write`]: in a simulation, which has to see it, and under
/// miri, where only these know which side may be changed by others.
#[inline(always)]
fn one_by_one() -> bool {
    #[cfg(all(feature = "simulated", not(loom)))]
    if crate::simulated::is_entered() {
        return true;
    }
    cfg!(miri)
}
