//! Copies between blocks of any length anywhere and bytes in a row.

use super::strided::move_blocks;
use super::{Bytes, copy, one_by_one};
use core::ops::Range;

/// Elements of no more blocks are copied by one loop for each block, where there are so many elements.
const COLUMNS_MAX: usize = 16;
const COLUMN_ELEMENTS_MIN: usize = 4;
/// Loops over blocks of the same elements follow each other while about so many bytes of the row are in the processor's first cache.
const COLUMNS_BYTES: usize = 8 << 10;

/// Elements of the same blocks at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elements {
    /// From the beginning of the memory to the origin of the first one, in bytes.
    pub at: isize,
    /// From each origin to the next one, in bytes.
    pub stride: isize,
    /// How many there are.
    pub count: usize,
}

impl Elements {
    /// The origin of one of them.
    #[inline]
    fn origin(&self, index: usize) -> isize {
        self.at.wrapping_add(self.stride.wrapping_mul(index.cast_signed()))
    }
}

/// Blocks of any length anywhere, none of them empty, in the order of the row.
#[derive(Debug)]
pub struct Pieces {
    /// One for each block, and the end of the row.
    places: Box<[Place]>,
    /// No byte lies before this one.
    lower: isize,
    /// All bytes lie before this one.
    upper: isize,
}

/// Where a block begins. It ends where the next one begins in the row: two words for each are fewer than three to be read.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// In bytes, in the row.
    start: usize,
    /// In bytes from the origin of all.
    at: isize,
}

impl Pieces {
    /// Blocks by their places and lengths in bytes; empty ones are left out. `None`: they reach beyond `isize`, or are more bytes than that.
    pub fn new(blocks: impl IntoIterator<Item = (isize, usize)>) -> Option<Pieces> {
        let (mut places, mut start) = (Vec::new(), 0_usize);
        let (mut lower, mut upper) = (isize::MAX, isize::MIN);
        for (at, len) in blocks.into_iter().filter(|(_, len)| *len > 0) {
            places.push(Place { start, at });
            start = start.checked_add(len).filter(|end| isize::try_from(*end).is_ok())?;
            (lower, upper) = (lower.min(at), upper.max(at.checked_add_unsigned(len)?));
        }
        if places.is_empty() {
            (lower, upper) = (0, 0);
        }
        places.push(Place { start, at: 0 });
        Some(Pieces { places: places.into_boxed_slice(), lower, upper })
    }

    /// How many blocks there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.places.len() - 1
    }

    /// Place and length in bytes of a block.
    #[inline]
    pub fn block(&self, index: usize) -> Option<(isize, usize)> {
        let [place, next, ..] = self.places.get(index..)? else { return None };
        Some((place.at, next.start - place.start))
    }

    /// How many bytes all blocks have.
    #[inline]
    pub fn size(&self) -> usize {
        self.places.last().map_or(0, |place| place.start)
    }

    /// How many bytes these blocks have. 0: they are not all there.
    #[inline]
    pub fn bytes(&self, which: Range<usize>) -> usize {
        match (self.places.get(which.start), self.places.get(which.end)) {
            (Some(first), Some(end)) => end.start.saturating_sub(first.start),
            _ => 0,
        }
    }

    /// The block in which a byte of the row lies, and the byte's number there. Behind the last byte: the number of blocks, and 0.
    pub fn find(&self, byte: usize) -> (usize, usize) {
        let behind = self.places.partition_point(|place| place.start <= byte);
        let index = behind.saturating_sub(1);
        (index, self.places.get(index).map_or(0, |place| byte - place.start))
    }

    /// The blocks from `first` on that have so many bytes together or less.
    #[inline]
    pub fn whole(&self, first: usize, len: usize) -> Range<usize> {
        let last = self.count();
        if self.bytes(first..last) <= len {
            return first..last.max(first);
        }
        let start = self.places.get(first).map_or(0, |place| place.start);
        first..self.find(start.saturating_add(len)).0
    }

    /// Whether all blocks lie in memory that begins `at` bytes before the origin.
    #[inline]
    fn fit(&self, memory_len: usize, at: isize) -> bool {
        let (first, end) = (at.checked_add(self.lower), at.checked_add(self.upper));
        first.is_some_and(|first| first >= 0)
            && end.is_some_and(|end| usize::try_from(end).is_ok_and(|end| end <= memory_len))
    }

    /// Whether all blocks of these elements lie in memory, and have so many bytes.
    fn all_fit(&self, memory_len: usize, elements: Elements, len: usize) -> bool {
        if self.size().checked_mul(elements.count) != Some(len) {
            return false;
        }
        let Some(steps) = elements.count.checked_sub(1) else { return true };
        let span = isize::try_from(steps).ok().and_then(|steps| steps.checked_mul(elements.stride));
        let last = span.and_then(|span| elements.at.checked_add(span));
        self.fit(memory_len, elements.at) && last.is_some_and(|last| self.fit(memory_len, last))
    }

    /// Whether elements are copied by a loop for each block.
    fn by_columns(&self, elements: Elements) -> bool {
        !one_by_one() && elements.count >= COLUMN_ELEMENTS_MIN && self.count() <= COLUMNS_MAX
    }

    /// Calls `each` for every block of some elements at a time, with the block's first place in the memory, that in the row, its length, and how many
    /// elements these are.
    #[inline]
    fn columns(&self, elements: Elements, mut each: impl FnMut(usize, usize, usize, usize)) {
        let size = self.size();
        let most = (COLUMNS_BYTES / size.max(1)).max(COLUMN_ELEMENTS_MIN);
        let mut done = 0;
        while done < elements.count {
            let count = most.min(elements.count - done);
            let origin = elements.origin(done);
            for pair in self.places.windows(2) {
                let [place, next] = pair else { continue };
                let at = origin.wrapping_add(place.at).cast_unsigned();
                each(at, done * size + place.start, next.start - place.start, count);
            }
            done += count;
        }
    }

    /// The addresses by which these blocks are copied, if all blocks lie in memory that begins `at` bytes before the origin, and these ones have
    /// `len` bytes: the offset of each in memory and in the row, and its length.
    #[inline]
    fn checked(
        &self,
        memory_len: usize,
        at: isize,
        which: Range<usize>,
        len: usize,
    ) -> Option<impl Iterator<Item = (usize, usize, usize)>> {
        if !self.fit(memory_len, at) {
            return None;
        }
        let of = self.places.get(which.start..which.end.checked_add(1)?)?;
        let start = of.first()?.start;
        (of.last()?.start - start == len).then(|| {
            of.windows(2).map(move |pair| {
                let [place, next] = pair else { return (0, 0, 0) };
                // Both lie between the bounds, which were just checked.
                (at.wrapping_add(place.at).cast_unsigned(), place.start - start, next.start - place.start)
            })
        })
    }
}

impl Bytes {
    /// Copies blocks to `out`, one behind the other. Their origin is `at` bytes from the beginning of the memory. `false`: some of all blocks, not only of
    /// these, are not in range, or `out` has another length than these have together, and nothing was done.
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn gather_pieces(&self, at: isize, pieces: &Pieces, which: Range<usize>, out: &mut [u8]) -> bool {
        let Some(mut blocks) = pieces.checked(self.len, at, which, out.len()) else { return false };
        if one_by_one() {
            return blocks.all(|(at, start, len)| {
                out.get_mut(start..start + len).is_some_and(|block| self.read(at, block))
            });
        }
        let (base, out) = (self.base.as_ptr().cast_const(), out.as_mut_ptr());
        // SAFETY: `checked` has seen that all blocks are in range, and that those of the row lie in `out`.
        unsafe {
            copy::many(blocks.map(|(at, start, len)| (base.wrapping_add(at), out.wrapping_add(start), len)));
        }
        true
    }

    /// Copies `data`, in which blocks stand one behind the other, to where they belong, the first one first. The origin of the blocks is `at` bytes from the
    /// beginning of the memory. `false`: some of all blocks, not only of these, are not in range, or `data` has another length than these have
    /// together, and nothing was done.
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn scatter_pieces(&self, at: isize, pieces: &Pieces, which: Range<usize>, data: &[u8]) -> bool {
        let Some(mut blocks) = pieces.checked(self.len, at, which, data.len()) else { return false };
        if one_by_one() {
            return blocks.all(|(at, start, len)| {
                data.get(start..start + len).is_some_and(|block| self.write(at, block))
            });
        }
        let (base, data) = (self.base.as_ptr(), data.as_ptr());
        // SAFETY: `checked` has seen that all blocks are in range, and that those of the row lie in `data`.
        unsafe {
            copy::many(blocks.map(|(at, start, len)| (data.wrapping_add(start), base.wrapping_add(at), len)));
        }
        true
    }

    /// Copies all blocks of elements to `out`, one behind the other. `false`: they are not all in range, or `out` has another length, and nothing was done.
    #[must_use = "`false` means that nothing was copied"]
    pub fn gather_elements(&self, elements: Elements, pieces: &Pieces, out: &mut [u8]) -> bool {
        if !pieces.all_fit(self.len, elements, out.len()) {
            return false;
        }
        let all = 0..pieces.count();
        if !pieces.by_columns(elements) {
            let mut rows = out.chunks_exact_mut(pieces.size().max(1)).enumerate();
            return rows
                .all(|(index, row)| self.gather_pieces(elements.origin(index), pieces, all.clone(), row));
        }
        let (base, out) = (self.base.as_ptr().cast_const(), out.as_mut_ptr());
        let packed = pieces.size().cast_signed();
        pieces.columns(elements, |at, start, len, count| {
            // SAFETY: `all_fit` has seen that the blocks of the first and the last element are in range, so are those between them, and that `out` has
            // room for all.
            unsafe {
                move_blocks(
                    base.wrapping_add(at),
                    elements.stride,
                    out.wrapping_add(start),
                    packed,
                    len,
                    count,
                );
            }
        });
        true
    }

    /// Copies `data`, in which all blocks of elements stand one behind the other, to where they belong. Where blocks overlap, the last one is what is there
    /// then. `false`: they are not all in range, or `data` has another length, and nothing was done.
    #[must_use = "`false` means that nothing was copied"]
    pub fn scatter_elements(&self, elements: Elements, pieces: &Pieces, data: &[u8]) -> bool {
        if !pieces.all_fit(self.len, elements, data.len()) {
            return false;
        }
        let all = 0..pieces.count();
        // Where elements overlap, each has to be there before the next one.
        let are_apart = elements.stride.unsigned_abs() >= pieces.upper.abs_diff(pieces.lower);
        if !are_apart || !pieces.by_columns(elements) {
            let mut rows = data.chunks_exact(pieces.size().max(1)).enumerate();
            return rows
                .all(|(index, row)| self.scatter_pieces(elements.origin(index), pieces, all.clone(), row));
        }
        let (base, data) = (self.base.as_ptr(), data.as_ptr());
        let packed = pieces.size().cast_signed();
        pieces.columns(elements, |at, start, len, count| {
            // SAFETY: `all_fit` has seen that the blocks of the first and the last element are in range, so are those between them, and that `data` has
            // all bytes.
            unsafe {
                move_blocks(
                    data.wrapping_add(start),
                    packed,
                    base.wrapping_add(at),
                    elements.stride,
                    len,
                    count,
                );
            }
        });
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::ptr::NonNull;

    const ORIGIN: isize = 40;
    const BLOCKS: &[(isize, usize)] = &[
        (5, 1),
        (-40, 3),
        (10, 0),
        (60, 7),
        (70, 8),
        (70, 13),
        (90, 16),
        (120, 17),
        (150, 32),
        (200, 33),
        (0, 50),
        (300, 64),
        (400, 65),
        (500, 128),
        (640, 129),
    ];
    const MEMORY_LEN: usize = 40 + 640 + 129;

    fn pieces() -> Pieces {
        Pieces::new(BLOCKS.iter().copied()).expect("they fit")
    }

    /// Calls `check` with the memory as anybody's, and returns what is in it then.
    fn shared(mut memory: Vec<u8>, check: impl FnOnce(Bytes)) -> Vec<u8> {
        let bytes = NonNull::from(memory.as_mut_slice()).cast();
        // SAFETY: nobody else uses the memory before `check` returns.
        check(unsafe { Bytes::new(bytes, memory.len()) });
        memory
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 251 + 1) as u8).collect()
    }

    fn ranges() -> impl Iterator<Item = Range<usize>> {
        let count = BLOCKS.len() - 1;
        // The interpreter takes its time.
        let step = if cfg!(miri) { 6 } else { 1 };
        (0..=count).step_by(step).flat_map(move |end| (0..=end).step_by(step).map(move |first| first..end))
    }

    #[test]
    fn pieces_are_found_by_the_bytes_of_the_row() {
        let pieces = pieces();
        assert_eq!(pieces.count(), BLOCKS.len() - 1);
        let all: Vec<_> = (0..pieces.count()).filter_map(|index| pieces.block(index)).collect();
        assert_eq!(all, BLOCKS.iter().copied().filter(|(_, len)| *len > 0).collect::<Vec<_>>());
        assert_eq!(pieces.block(pieces.count()), None);
        let mut byte = 0;
        for (index, (_, len)) in all.iter().enumerate() {
            for inside in 0..*len {
                assert_eq!(pieces.find(byte), (index, inside));
                byte += 1;
            }
        }
        assert_eq!(pieces.find(byte), (pieces.count(), 0));
        for which in ranges() {
            let bytes = pieces.bytes(which.clone());
            assert_eq!(pieces.whole(which.start, bytes), which);
            if which.end < pieces.count() {
                assert_eq!(pieces.whole(which.start, bytes + all[which.end].1 - 1), which);
            }
        }
    }

    #[test]
    fn pieces_are_gathered_and_scattered() {
        let pieces = pieces();
        for which in ranges() {
            let of: Vec<_> = which.clone().filter_map(|index| pieces.block(index)).collect();
            let mut out = vec![0; pieces.bytes(which.clone())];
            let memory = shared(pattern(MEMORY_LEN), |bytes| {
                assert!(bytes.gather_pieces(ORIGIN, &pieces, which.clone(), &mut out));
            });
            let place = |at: isize, len: usize| {
                let first = (ORIGIN + at) as usize;
                first..first + len
            };
            let expected: Vec<u8> =
                of.iter().flat_map(|(at, len)| &memory[place(*at, *len)]).copied().collect();
            assert_eq!(out, expected, "{which:?}");
            let data = pattern(out.len());
            let memory = shared(vec![0xEE; MEMORY_LEN], |bytes| {
                assert!(bytes.scatter_pieces(ORIGIN, &pieces, which.clone(), &data));
            });
            let (mut expected, mut start) = (vec![0xEE; MEMORY_LEN], 0);
            for (at, len) in of {
                expected[place(at, len)].copy_from_slice(&data[start..start + len]);
                start += len;
            }
            assert_eq!(memory, expected, "{which:?}");
        }
    }

    #[test]
    fn elements_are_gathered_and_scattered_in_order_or_nothing_is() {
        let lists: [&[(isize, usize)]; 4] =
            [&[(0, 4), (8, 8)], &[(-3, 7)], &[(0, 40), (20, 33), (90, 2)], &[(2, 1); 20]];
        let len = if cfg!(miri) { 300 } else { 3_000 };
        for blocks in lists {
            let pieces = Pieces::new(blocks.iter().copied()).unwrap();
            // The interpreter takes its time.
            let every = if cfg!(miri) { 3 } else { 1 };
            for stride in [-95, -16, -1, 0, 3, 16, 92, 100].into_iter().step_by(every) {
                for count in [0, 1, 3, 4, 9, 30].into_iter().step_by(every) {
                    for at in [0, 3, 40, 2_900].into_iter().step_by(every) {
                        let elements = Elements { at, stride, count };
                        let places: Vec<(isize, usize)> = (0..count as isize)
                            .flat_map(|i| {
                                blocks.iter().map(move |(place, len)| (at + i * stride + place, *len))
                            })
                            .collect();
                        let fit = places.iter().all(|(at, size)| *at >= 0 && *at as usize + size <= len);
                        let mut out = vec![0xEE; pieces.size() * count];
                        let memory = shared(pattern(len), |bytes| {
                            assert_eq!(
                                bytes.gather_elements(elements, &pieces, &mut out),
                                fit,
                                "{elements:?}"
                            );
                        });
                        let data = pattern(out.len());
                        let scattered = shared(vec![0xEE; len], |bytes| {
                            assert_eq!(bytes.scatter_elements(elements, &pieces, &data), fit, "{elements:?}");
                            assert!(!bytes.scatter_elements(elements, &pieces, &[&data[..], &[1]].concat()));
                        });
                        let (mut row, mut expected, mut start) = (Vec::new(), vec![0xEE; len], 0);
                        for (at, size) in places.into_iter().filter(|_| fit) {
                            let at = at as usize..at as usize + size;
                            row.extend_from_slice(&memory[at.clone()]);
                            expected[at].copy_from_slice(&data[start..start + size]);
                            start += size;
                        }
                        assert!(!fit || out == row, "{blocks:?}, {elements:?}");
                        assert_eq!(scattered, expected, "{blocks:?}, {elements:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn pieces_beyond_the_memory_or_of_another_length_are_refused() {
        let pieces = pieces();
        let all = 0..pieces.count();
        let row = vec![1; pieces.bytes(all.clone())];
        let unchanged = shared(pattern(MEMORY_LEN), |bytes| {
            for at in [ORIGIN - 1, ORIGIN + 1, isize::MIN, isize::MAX] {
                assert!(!bytes.scatter_pieces(at, &pieces, all.clone(), &row));
                assert!(!bytes.gather_pieces(at, &pieces, all.clone(), &mut row.clone()));
                assert!(!bytes.scatter_pieces(at, &pieces, 0..1, &[1]), "all of them count");
            }
            assert!(!bytes.scatter_pieces(ORIGIN, &pieces, all.clone(), &row[1..]));
            assert!(!bytes.scatter_pieces(ORIGIN, &pieces, 0..pieces.count() + 1, &row));
            assert!(!bytes.scatter_pieces(ORIGIN, &pieces, 0..usize::MAX, &row));
            assert!(bytes.scatter_pieces(ORIGIN, &pieces, 3..3, &[]));
        });
        assert_eq!(unchanged, pattern(MEMORY_LEN));
        assert!(Pieces::new([(isize::MAX, 1)]).is_none());
        assert!(Pieces::new([(0, isize::MAX as usize), (0, 1)]).is_none());
        let none = Pieces::new([(9, 0)]).unwrap();
        assert_eq!((none.count(), none.bytes(0..0), none.find(0)), (0, 0, (0, 0)));
    }
}
