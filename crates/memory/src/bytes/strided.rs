//! Copies between blocks that lie at equal distances and bytes in a row.

use super::{Bytes, copy, one_by_one};

/// Blocks of one length at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Where the first one begins.
    pub first: usize,
    /// From the beginning of a block to that of the next one, in bytes. It may be 0, negative, or less than a block.
    pub stride: isize,
    /// The length of each in bytes.
    pub len: usize,
    /// How many there are.
    pub count: usize,
}

impl Blocks {
    /// Whether all of them lie in memory of `memory_len` bytes, and make `data_len` bytes together.
    #[inline]
    fn fit(&self, memory_len: usize, data_len: usize) -> bool {
        if self.len.checked_mul(self.count) != Some(data_len) {
            return false;
        }
        let Some(room) = memory_len.checked_sub(self.len) else { return data_len == 0 };
        let last = isize::try_from(self.count.saturating_sub(1))
            .ok()
            .and_then(|steps| steps.checked_mul(self.stride))
            .and_then(|span| self.first.checked_add_signed(span));
        data_len == 0 || (self.first <= room && last.is_some_and(|last| last <= room))
    }
}

impl Bytes {
    /// Copies the blocks to `out`, one behind the other. `false`: they are not all in range, or `out` has another
    /// length than they have together, and nothing was done.
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn gather(&self, blocks: Blocks, out: &mut [u8]) -> bool {
        if !blocks.fit(self.len, out.len()) {
            return false;
        }
        if out.is_empty() {
            return true;
        }
        if one_by_one() {
            let mut at = blocks.first;
            return out.chunks_exact_mut(blocks.len).all(|block| {
                let read = self.read(at, block);
                at = at.wrapping_add_signed(blocks.stride);
                read
            });
        }
        // SAFETY: the first and the last block are in range by `fit`, so are all between them; `out` has room for all.
        unsafe {
            let from = self.base.as_ptr().add(blocks.first);
            let packed = isize::try_from(blocks.len).unwrap_or(isize::MAX);
            move_blocks(from, blocks.stride, out.as_mut_ptr(), packed, blocks.len, blocks.count);
        }
        true
    }

    /// Copies `data`, in which the blocks stand one behind the other, to where they belong, the first one first.
    /// `false`: they are not all in range, or `data` has another length than they have together, and nothing was done.
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn scatter(&self, blocks: Blocks, data: &[u8]) -> bool {
        if !blocks.fit(self.len, data.len()) {
            return false;
        }
        if data.is_empty() {
            return true;
        }
        if one_by_one() {
            let mut at = blocks.first;
            return data.chunks_exact(blocks.len).all(|block| {
                let written = self.write(at, block);
                at = at.wrapping_add_signed(blocks.stride);
                written
            });
        }
        // SAFETY: the first and the last block are in range by `fit`, so are all between them; `data` has all bytes.
        unsafe {
            let to = self.base.as_ptr().add(blocks.first);
            let packed = isize::try_from(blocks.len).unwrap_or(isize::MAX);
            move_blocks(data.as_ptr(), packed, to, blocks.stride, blocks.len, blocks.count);
        }
        true
    }
}

impl Bytes {
    /// Copies blocks of another memory to as many blocks of this one, which have the same length, the first one first. `false`: they are
    /// not all in range, or differ, and nothing was done.
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn copy_blocks_from(&self, to: Blocks, source: &Bytes, from: Blocks) -> bool {
        let Some(len) = to.len.checked_mul(to.count) else { return false };
        if to.len != from.len || !to.fit(self.len, len) || !from.fit(source.len, len) {
            return false;
        }
        if len == 0 {
            return true;
        }
        if one_by_one() {
            let (mut to_at, mut from_at) = (to.first, from.first);
            return (0..to.count).all(|_| {
                let copied = self.copy_from(to_at, source, from_at, to.len);
                to_at = to_at.wrapping_add_signed(to.stride);
                from_at = from_at.wrapping_add_signed(from.stride);
                copied
            });
        }
        // SAFETY: on both sides the first and the last block are in range by `fit`, so are all between them.
        unsafe {
            let from_base = source.base.as_ptr().add(from.first);
            let to_base = self.base.as_ptr().add(to.first);
            move_blocks(from_base, from.stride, to_base, to.stride, to.len, to.count);
        }
        true
    }
}

/// Copies `count` blocks of `len` bytes. The lengths that numbers have are compiled apart.
///
/// # Safety
///
/// For each `i` below `count`, [`copy::copy`] may copy `len` bytes from `from + i * from_stride` to
/// `to + i * to_stride`. `count` is not 0.
#[inline]
pub(super) unsafe fn move_blocks(
    from: *const u8,
    from_stride: isize,
    to: *mut u8,
    to_stride: isize,
    len: usize,
    count: usize,
) {
    // SAFETY: the caller's promise is the same.
    unsafe {
        match len {
            1 => move_each(from, from_stride, to, to_stride, count, |from, to| copy::whole::<1>(from, to)),
            2 => move_each(from, from_stride, to, to_stride, count, |from, to| copy::whole::<2>(from, to)),
            4 => move_fours::<4>(from, from_stride, to, to_stride, count),
            8 => move_fours::<8>(from, from_stride, to, to_stride, count),
            16 => move_fours::<16>(from, from_stride, to, to_stride, count),
            32 => move_each(from, from_stride, to, to_stride, count, |from, to| copy::copy(from, to, 32)),
            // In these it pays to ask for the processor's longer registers, once for all blocks.
            64 => copy::many(each(from, from_stride, to, to_stride, 64, count)),
            33..=128 => copy::many(each(from, from_stride, to, to_stride, len, count)),
            _ => move_each(from, from_stride, to, to_stride, count, |from, to| copy::copy(from, to, len)),
        }
    }
}

/// Copies `count` blocks of `N` bytes, four of them in each turn of the loop.
///
/// # Safety
///
/// See [`move_blocks`].
#[inline(always)]
unsafe fn move_fours<const N: usize>(
    mut from: *const u8,
    from_stride: isize,
    mut to: *mut u8,
    to_stride: isize,
    count: usize,
) {
    for _ in 0..count / 4 {
        // SAFETY: the caller's promise for these four blocks.
        unsafe { copy::four::<N>(from, from_stride, to, to_stride) };
        // Behind the last block these may point anywhere, and are not used any more.
        from = from.wrapping_offset(from_stride.wrapping_mul(4));
        to = to.wrapping_offset(to_stride.wrapping_mul(4));
    }
    // SAFETY: the caller's promise for the blocks that are left.
    unsafe {
        move_each(from, from_stride, to, to_stride, count % 4, |from, to| copy::whole::<N>(from, to));
    }
}

/// Calls `block` for each of `count` pairs of addresses.
///
/// # Safety
///
/// `from + i * from_stride` and `to + i * to_stride` lie in memory that may be used, for each `i` below `count`.
#[inline(always)]
unsafe fn move_each(
    mut from: *const u8,
    from_stride: isize,
    mut to: *mut u8,
    to_stride: isize,
    count: usize,
    block: impl Fn(*const u8, *mut u8),
) {
    for _ in 0..count {
        block(from, to);
        // Behind the last block these may point anywhere, and are not used any more.
        from = from.wrapping_offset(from_stride);
        to = to.wrapping_offset(to_stride);
    }
}

/// The addresses of blocks, and their length.
#[inline(always)]
fn each(
    from: *const u8,
    from_stride: isize,
    to: *mut u8,
    to_stride: isize,
    len: usize,
    count: usize,
) -> impl Iterator<Item = (*const u8, *mut u8, usize)> {
    (0..count.cast_signed()).map(move |turn| {
        let (from_at, to_at) = (from_stride.wrapping_mul(turn), to_stride.wrapping_mul(turn));
        (from.wrapping_offset(from_at), to.wrapping_offset(to_at), len)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::ptr::NonNull;

    const MEMORY_LEN: usize = if cfg!(miri) { 60 } else { 700 };
    const LENS: &[usize] =
        if cfg!(miri) { &[1, 8, 11] } else { &[1, 2, 3, 4, 5, 8, 12, 16, 17, 24, 40, 64, 100, 150] };
    const STRIDES: &[isize] =
        if cfg!(miri) { &[-9, 0, 16] } else { &[-130, -9, -1, 0, 1, 5, 8, 16, 17, 40, 150] };

    /// Calls `check` with the memory as anybody's, and returns what is in it then.
    fn shared(mut memory: Vec<u8>, check: impl FnOnce(Bytes)) -> Vec<u8> {
        let bytes = NonNull::from(memory.as_mut_slice()).cast();
        // SAFETY: nobody else uses the memory before `check` returns.
        check(unsafe { Bytes::new(bytes, memory.len()) });
        memory
    }

    fn pattern() -> Vec<u8> {
        (0..MEMORY_LEN).map(|at| (at * 7 + at / 251 + 1) as u8).collect()
    }

    /// Where the blocks begin, if all of them are in range.
    fn places(blocks: Blocks) -> Option<Vec<usize>> {
        let places = (0..blocks.count as isize).map(|i| blocks.first as isize + i * blocks.stride);
        let inside = |at: isize| (0..=MEMORY_LEN as isize - blocks.len as isize).contains(&at);
        places.map(|at| inside(at).then_some(at as usize)).collect()
    }

    fn for_all(mut check: impl FnMut(Blocks, Option<Vec<usize>>)) {
        for &len in LENS {
            for &stride in STRIDES {
                for count in [1, 2, 5, 11] {
                    for first in [0, 1, 33, MEMORY_LEN - len, MEMORY_LEN + 1 - len] {
                        let blocks = Blocks { first, stride, len, count };
                        check(blocks, places(blocks));
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_are_gathered_or_nothing_is() {
        for_all(|blocks, places| {
            let mut out = vec![0xEE; blocks.len * blocks.count];
            let memory = shared(pattern(), |bytes| {
                assert_eq!(bytes.gather(blocks, &mut out), places.is_some(), "{blocks:?}");
            });
            let expected: Vec<u8> = match places {
                Some(places) => {
                    places.iter().flat_map(|at| &memory[*at..*at + blocks.len]).copied().collect()
                }
                None => vec![0xEE; out.len()],
            };
            assert_eq!(out, expected, "{blocks:?}");
        });
    }

    #[test]
    fn blocks_are_scattered_in_order_or_nothing_is() {
        for_all(|blocks, places| {
            let data: Vec<u8> = (0..blocks.len * blocks.count).map(|at| (at * 13 + 5) as u8).collect();
            let memory = shared(vec![0xEE; MEMORY_LEN], |bytes| {
                assert_eq!(bytes.scatter(blocks, &data), places.is_some(), "{blocks:?}");
            });
            let mut expected = vec![0xEE; MEMORY_LEN];
            for (at, block) in places.into_iter().flatten().zip(data.chunks(blocks.len)) {
                expected[at..at + blocks.len].copy_from_slice(block);
            }
            assert_eq!(memory, expected, "{blocks:?}");
        });
    }

    #[test]
    fn blocks_are_copied_between_memories_or_nothing_is() {
        for_all(|to, places| {
            let from = Blocks { first: 3, stride: to.len as isize + 2, ..to };
            let source = pattern();
            let froms = self::places(from);
            let may = places.is_some() && froms.is_some();
            let memory = shared(vec![0xEE; MEMORY_LEN], |bytes| {
                let from_memory = shared(source.clone(), |source| {
                    assert_eq!(bytes.copy_blocks_from(to, &source, from), may, "{to:?}");
                });
                assert_eq!(from_memory, source);
            });
            let mut expected = vec![0xEE; MEMORY_LEN];
            let pairs = places.into_iter().flatten().zip(froms.into_iter().flatten());
            for (at, from_at) in pairs.filter(|_| may) {
                expected[at..at + to.len].copy_from_slice(&source[from_at..from_at + to.len]);
            }
            assert_eq!(memory, expected, "{to:?}");
        });
    }

    #[test]
    fn lengths_that_differ_and_numbers_that_overflow_are_refused() {
        shared(pattern(), |memory| {
            let blocks = Blocks { first: 0, stride: 8, len: 4, count: 3 };
            assert!(!memory.gather(blocks, &mut [0; 11]));
            assert!(!memory.gather(blocks, &mut [0; 13]));
            assert!(!memory.gather(Blocks { count: usize::MAX, ..blocks }, &mut [0; 12]));
            assert!(!memory.gather(Blocks { stride: isize::MAX, ..blocks }, &mut [0; 12]));
            assert!(!memory.gather(Blocks { stride: isize::MIN, ..blocks }, &mut [0; 12]));
            assert!(!memory.gather(Blocks { first: usize::MAX, ..blocks }, &mut [0; 12]));
            assert!(memory.gather(Blocks { count: 0, ..blocks }, &mut []));
            assert!(memory.gather(Blocks { len: 0, ..blocks }, &mut []));
            assert!(!memory.copy_blocks_from(blocks, &memory, Blocks { count: 2, ..blocks }));
            assert!(!memory.copy_blocks_from(blocks, &memory, Blocks { len: 3, ..blocks }));
            let beyond = Blocks { len: MEMORY_LEN + 1, count: 1, ..blocks };
            assert!(!memory.gather(beyond, &mut vec![0; MEMORY_LEN + 1]));
        });
    }
}
