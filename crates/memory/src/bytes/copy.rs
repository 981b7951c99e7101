//! Copies of bytes that others may write to, or read, at the same time.
//!
//! A plain load that races with a store is undefined behaviour in Rust's model, whatever is done with what it reads, and
//! an atomic `memcpy` does not exist yet. So the bytes move in assembly, of which the compiler knows only that it reads and
//! writes memory; a race then yields arbitrary bytes and nothing worse. Aligned words of up to 8 bytes move whole, as
//! the processor's loads and stores of 16 bytes do not cut them, whenever both addresses agree modulo their size.
//!
//! Where there is no such assembly, and under miri and loom, the bytes move as relaxed atomics. That is slower, and right.

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
use x86_64 as with;

#[cfg(any(not(target_arch = "x86_64"), miri, loom, test))]
pub(super) mod portable;
#[cfg(any(not(target_arch = "x86_64"), miri, loom))]
use portable as with;

/// Copies `len` bytes as `memmove` does: the ranges may overlap.
///
/// # Safety
///
/// `from` is readable and `to` writable for `len` bytes. Others may write to both at the same time if they are other
/// processes, or threads that do it by this module or by atomics; `&mut` references to them, of others, exclude that.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { with::copy(from, to, len) }
}

/// Copies `N` bytes, 1, 2, 4, 8 or 16, by one load and one store where the processor has them.
///
/// # Safety
///
/// As for [`copy`], of `N` bytes.
#[inline(always)]
pub(crate) unsafe fn whole<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise is the same.
    unsafe { with::whole::<N>(from, to) }
}

/// Copies four blocks of `N` bytes, 4, 8 or 16, at these distances, one after the other.
///
/// # Safety
///
/// As for [`whole`], of each block.
#[inline(always)]
pub(crate) unsafe fn four<const N: usize>(
    from: *const u8,
    from_stride: isize,
    to: *mut u8,
    to_stride: isize,
) {
    // SAFETY: the caller's promise is the same.
    unsafe { with::four::<N>(from, from_stride, to, to_stride) }
}

/// Copies blocks of any lengths, one after the other, with registers that are too long to ask for them at each block.
///
/// # Safety
///
/// As for [`copy`], of the length of each block.
#[inline(always)]
pub(crate) unsafe fn many(blocks: impl Iterator<Item = (*const u8, *mut u8, usize)>) {
    // SAFETY: the caller's promise is the same.
    unsafe { with::many(blocks) }
}

/// Copies bytes that nobody changes meanwhile to memory that others may write to.
///
/// # Safety
///
/// `to` is writable for as many bytes. Others may write to them at the same time if they are other
/// processes, or threads that do it by this module or by atomics; `&mut` references of others exclude that.
#[inline(always)]
pub(crate) unsafe fn copy_slice(from: &[u8], to: *mut u8) {
    // SAFETY: the caller's promise is the same.
    unsafe { with::copy_slice(from, to) }
}

/// Asks the processor to fetch `len` bytes, which will be read soon. Whatever they are, nothing else happens.
#[inline(always)]
pub(crate) fn fetch_to_read(from: *const u8, len: usize) {
    with::fetch_to_read(from, len);
}

/// Asks the processor to fetch `len` bytes, which will be written to soon. Whatever they are, nothing else happens.
#[inline(always)]
pub(crate) fn fetch_to_write(to: *mut u8, len: usize) {
    with::fetch_to_write(to, len);
}

/// Sets `len` bytes to `byte`.
///
/// # Safety
///
/// `to` is writable for `len` bytes. Others may write to them at the same time if they are other
/// processes, or threads that do it by this module or by atomics; `&mut` references of others exclude that.
pub(crate) unsafe fn fill(to: *mut u8, byte: u8, len: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { with::fill(to, byte, len) }
}
