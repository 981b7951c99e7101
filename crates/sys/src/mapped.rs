//! Memory that the kernel and we write in turns: rings of sockets, and frames.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use rustix::io::Result;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::process::fork;

/// Of the processor's cache.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE_BYTES: usize = 64;
const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A mapping, ended when dropped. A fork child does not have it.
#[derive(Debug)]
pub(crate) struct Mapped {
    base: NonNull<u8>,
    len_bytes: usize,
    made_by: fork::Token,
}

// SAFETY: the value owns a mapping that is valid on every thread; what is reached through `&Mapped` is atomic, or under
// the contract of `bytes`.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `len_bytes` of what `fd` shows from `offset`.
    pub fn of(fd: impl AsFd, len_bytes: usize, offset: u64) -> Result<Mapped> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address the kernel picks touches no memory that exists.
        let base = unsafe { mmap(std::ptr::null_mut(), len_bytes, READ_WRITE, flags, fd, offset) }?;
        Mapped::own(base.cast(), len_bytes)
    }

    /// Maps fresh memory, zeroed and present.
    pub fn anonymous(len_bytes: usize) -> Result<Mapped> {
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: as in `of`.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len_bytes, READ_WRITE, flags) }?;
        Mapped::own(base.cast(), len_bytes)
    }

    fn own(base: *mut u8, len_bytes: usize) -> Result<Mapped> {
        let base = NonNull::new(base).ok_or(rustix::io::Errno::NOMEM)?;
        let mapped = Mapped { base, len_bytes, made_by: fork::token() };
        // SAFETY: concerns the mapping just made only.
        unsafe { madvise(base.as_ptr().cast(), len_bytes, Advice::LinuxDontFork) }?;
        Ok(mapped)
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// First byte, page-aligned.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// The word at `offset`, which the kernel reads and writes atomically too. Panics outside the mapping or unaligned:
    /// offsets come from us or from the kernel at set-up, never from a peer.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < self.len_bytes.saturating_sub(3), "a word of the ring");
        // SAFETY: inside the mapping and aligned, as just asserted; reached as an atomic only.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Reads a value at `offset`, of any alignment. `None`: outside.
    ///
    /// # Safety
    /// Any bytes are a `T`, and nobody writes there meanwhile.
    #[inline]
    pub unsafe fn read<T: Copy>(&self, offset: usize) -> Option<T> {
        self.within(offset, size_of::<T>())?;
        // SAFETY: inside the mapping; the caller answers for the rest.
        Some(unsafe { self.base.as_ptr().add(offset).cast::<T>().read_unaligned() })
    }

    /// Writes a value at `offset`, of any alignment. False: outside.
    ///
    /// # Safety
    /// Nobody reads or writes there meanwhile.
    #[inline]
    pub unsafe fn write<T: Copy>(&self, offset: usize, value: T) -> bool {
        if self.within(offset, size_of::<T>()).is_none() {
            return false;
        }
        // SAFETY: inside the mapping; the caller answers for the rest.
        unsafe { self.base.as_ptr().add(offset).cast::<T>().write_unaligned(value) };
        true
    }

    /// `len_bytes` bytes at `offset`. `None`: outside.
    ///
    /// # Safety
    /// Nobody, the kernel included, writes there while the slice is in use.
    #[inline]
    pub unsafe fn bytes(&self, offset: usize, len_bytes: usize) -> Option<&[u8]> {
        self.within(offset, len_bytes)?;
        // SAFETY: inside the mapping; the caller answers for the rest.
        Some(unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len_bytes) })
    }

    /// A part of the mapping, to be read and written; `None`: it is not all inside.
    ///
    /// # Safety
    /// Nobody, the kernel included, reads or writes there while the slice is in use.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "who may write where is the contract, as for a raw pointer")]
    pub unsafe fn bytes_mut(&self, offset: usize, len_bytes: usize) -> Option<&mut [u8]> {
        self.within(offset, len_bytes)?;
        // SAFETY: inside the mapping; the caller answers for the rest.
        Some(unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(offset), len_bytes) })
    }

    /// Asks the processor for the lines of `len_bytes` bytes at `offset`, where they are inside. A hint.
    #[inline]
    pub fn prefetch(&self, offset: usize, len_bytes: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.within(offset, len_bytes).is_some() {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            for line in (0..len_bytes).step_by(LINE_BYTES) {
                // SAFETY: inside the mapping, as just asked; reads and writes nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(self.base.as_ptr().add(offset + line).cast()) };
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = (offset, len_bytes);
    }

    #[inline]
    fn within(&self, offset: usize, len_bytes: usize) -> Option<()> {
        (offset <= self.len_bytes && len_bytes <= self.len_bytes - offset).then_some(())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // A fork child has no such mapping; something else may lie at that address by now.
        if !fork::same_process(self.made_by) {
            return;
        }
        // SAFETY: mapped by `of` or `anonymous`, and nothing borrowed from `self` is left. A failure leaves memory mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn nothing_is_reached_outside() {
        let mapped = Mapped::anonymous(4_096).unwrap();
        mapped.word(4_092).store(0x0403_0201, Ordering::Relaxed);
        // SAFETY: nobody else knows this memory.
        unsafe {
            assert_eq!(mapped.bytes(4_092, 4), Some(&[1, 2, 3, 4][..]));
            assert_eq!(mapped.bytes(4_093, 4), None);
            assert_eq!(mapped.bytes(usize::MAX, 2), None);
            assert_eq!(mapped.read::<u64>(4_089), None);
            assert!(mapped.write(8, 7u64) && !mapped.write(4_090, 7u64));
            assert_eq!(mapped.read::<u64>(8), Some(7));
        }
    }
}
