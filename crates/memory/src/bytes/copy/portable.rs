//! Copies by relaxed atomics: whole words where both sides lie alike in them, bytes elsewhere.

use crate::raw_atomic::Ordering::Relaxed;
use crate::raw_atomic::{AtomicU8, AtomicU64};

/// # Safety
///
/// See [`super::copy`].
pub(in super::super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // An atomic is made of a pointer that may be written to; it is only loaded from.
    let from = from.cast_mut();
    // SAFETY: `units` gives offsets below `len`, of words only where both sides are aligned; the sides race with
    // atomics only.
    unsafe {
        units(from, to, len, |unit| match unit {
            Unit::Byte(at) => {
                AtomicU8::from_ptr(to.add(at)).store(AtomicU8::from_ptr(from.add(at)).load(Relaxed), Relaxed);
            }
            Unit::Word(at) => {
                let word = AtomicU64::from_ptr(from.add(at).cast()).load(Relaxed);
                AtomicU64::from_ptr(to.add(at).cast()).store(word, Relaxed);
            }
        });
    }
}

/// # Safety
///
/// See [`super::many`].
#[cfg_attr(
    all(test, target_arch = "x86_64", not(miri), not(loom)),
    expect(dead_code, reason = "the assembly is used")
)]
pub(in super::super) unsafe fn many(blocks: impl Iterator<Item = (*const u8, *mut u8, usize)>) {
    for (from, to, len) in blocks {
        // SAFETY: the caller's promise is the same.
        unsafe { copy(from, to, len) }
    }
}

/// # Safety
///
/// See [`super::whole`].
#[cfg_attr(
    all(test, target_arch = "x86_64", not(miri), not(loom)),
    expect(dead_code, reason = "the assembly is used")
)]
pub(in super::super) unsafe fn whole<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise is the same.
    unsafe { copy(from, to, N) }
}

/// # Safety
///
/// See [`super::four`].
#[cfg_attr(
    all(test, target_arch = "x86_64", not(miri), not(loom)),
    expect(dead_code, reason = "the assembly is used")
)]
pub(in super::super) unsafe fn four<const N: usize>(
    from: *const u8,
    from_stride: isize,
    to: *mut u8,
    to_stride: isize,
) {
    for at in 0..4_isize {
        let (from_at, to_at) = (from_stride.wrapping_mul(at), to_stride.wrapping_mul(at));
        // SAFETY: the caller's promise for this block.
        unsafe { copy(from.wrapping_offset(from_at), to.wrapping_offset(to_at), N) }
    }
}

/// # Safety
///
/// See [`super::copy_slice`].
pub(in super::super) unsafe fn copy_slice(from: &[u8], to: *mut u8) {
    let (from, len) = (from.as_ptr(), from.len());
    // SAFETY: as above; the source, lent for reading, races with nothing.
    unsafe {
        units(from, to, len, |unit| match unit {
            Unit::Byte(at) => AtomicU8::from_ptr(to.add(at)).store(*from.add(at), Relaxed),
            Unit::Word(at) => {
                AtomicU64::from_ptr(to.add(at).cast()).store(from.add(at).cast::<u64>().read(), Relaxed);
            }
        });
    }
}

/// What moves in one access, by its offset.
enum Unit {
    Byte(usize),
    /// 8 bytes, aligned on both sides.
    Word(usize),
}

/// All units of a copy, in the order that overlap asks for.
fn units(from: *const u8, to: *const u8, len: usize, mut copy: impl FnMut(Unit)) {
    // miri's model of weak memory breaks down where atomics of one size follow those of another.
    let alike = (from.addr() ^ to.addr()).is_multiple_of(8) && !cfg!(miri);
    let words_from = (from.addr().wrapping_neg() % 8).min(len);
    let words_to = if alike { len - (len - words_from) % 8 } else { words_from };
    if to.addr().wrapping_sub(from.addr()) < len {
        (words_to..len).rev().for_each(|at| copy(Unit::Byte(at)));
        (words_from..words_to).step_by(8).rev().for_each(|at| copy(Unit::Word(at)));
        (0..words_from).rev().for_each(|at| copy(Unit::Byte(at)));
    } else {
        (0..words_from).for_each(|at| copy(Unit::Byte(at)));
        (words_from..words_to).step_by(8).for_each(|at| copy(Unit::Word(at)));
        (words_to..len).for_each(|at| copy(Unit::Byte(at)));
    }
}

/// # Safety
///
/// See [`super::fill`].
pub(in super::super) unsafe fn fill(to: *mut u8, byte: u8, len: usize) {
    for at in 0..len {
        // SAFETY: `at` is below `len`; a byte is aligned; it races with atomics only.
        unsafe { AtomicU8::from_ptr(to.add(at)) }.store(byte, Relaxed);
    }
}

/// See [`super::fetch_to_read`]: there is no instruction for it.
#[cfg_attr(
    all(target_arch = "x86_64", not(miri), not(loom)),
    expect(dead_code, reason = "tests compare copies only")
)]
#[inline(always)]
pub(super) fn fetch_to_read(_: *const u8, _: usize) {}

/// See [`super::fetch_to_write`]: there is no instruction for it.
#[cfg_attr(
    all(target_arch = "x86_64", not(miri), not(loom)),
    expect(dead_code, reason = "tests compare copies only")
)]
#[inline(always)]
pub(super) fn fetch_to_write(_: *mut u8, _: usize) {}
