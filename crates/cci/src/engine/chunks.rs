//! Bytes that leave in the order in which they came, in chunks borrowed from a pool of the endpoint's.

use cci_memory::fallible;
use std::collections::VecDeque;
use std::io::IoSlice;

/// How long a chunk is: two of the longest messages fit.
pub(crate) const CHUNK_BYTES: usize = 16 << 10;
/// Slots kept for the parts of one write.
pub(crate) const PARTS_MAX: usize = 16;

/// The chunks of an endpoint: made when they are needed, up to a number, and kept.
pub(crate) struct Chunks {
    spare: Vec<Box<[u8]>>,
    made: u32,
    max: u32,
}

impl Chunks {
    pub fn new(bytes_max: u64) -> Chunks {
        let max = u32::try_from(bytes_max / CHUNK_BYTES as u64).unwrap_or(u32::MAX).max(4);
        Chunks { spare: Vec::new(), made: 0, max }
    }

    /// A pool that may have no chunks yet.
    pub fn none() -> Chunks {
        Chunks { spare: Vec::new(), made: 0, max: 0 }
    }

    /// Raises the number of chunks that may be made.
    pub fn allow(&mut self, more: u32) {
        self.max = self.max.saturating_add(more);
    }

    /// Lowers the number of chunks that may be made, by those at most that nobody has taken.
    pub fn forbid(&mut self, fewer: u32) {
        self.max -= fewer.min(self.unused());
        self.shrink_to(self.max);
    }

    /// How many there may be.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Lets go of chunks that nobody holds, down to `keep`, and of the right to make as many. True: there were some.
    pub fn shrink(&mut self, keep: u32) -> bool {
        let max = self.max;
        self.max = keep.max(self.made - self.spare.len() as u32).min(max);
        self.shrink_to(self.max);
        self.max < max
    }

    fn shrink_to(&mut self, max: u32) {
        while self.made > max && self.spare.pop().is_some() {
            self.made -= 1;
        }
    }

    fn take(&mut self) -> Option<Box<[u8]>> {
        if let Some(chunk) = self.spare.pop() {
            return Some(chunk);
        }
        if self.made >= self.max {
            return None;
        }
        // Reserved now, so that giving the chunk back never allocates.
        let missing = (self.made as usize + 1).saturating_sub(self.spare.len());
        self.spare.try_reserve(missing).ok()?;
        let chunk = fallible::zeroed(CHUNK_BYTES)?;
        self.made += 1;
        Some(chunk)
    }

    #[inline]
    fn give_back(&mut self, chunk: Box<[u8]>) {
        self.spare.push(chunk);
    }

    /// Chunks that can be taken.
    pub fn unused(&self) -> u32 {
        self.max - self.made + self.spare.len() as u32
    }

    pub fn bytes(&self) -> u64 {
        u64::from(self.made) * CHUNK_BYTES as u64 + (self.spare.capacity() * size_of::<Box<[u8]>>()) as u64
    }
}

/// A run of bytes, counted from the beginning of the connection.
pub(crate) struct Queue {
    chunks: VecDeque<Box<[u8]>>,
    /// Position of the first byte of the first chunk.
    base: u64,
    /// Position of the first byte that is kept.
    head: u64,
    /// Position behind the last byte.
    tail: u64,
}

impl Queue {
    pub const fn new() -> Queue {
        Queue { chunks: VecDeque::new(), base: 0, head: 0, tail: 0 }
    }

    #[inline]
    pub fn head(&self) -> u64 {
        self.head
    }

    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Makes space for `bytes` more, with no more than `chunks_max` chunks in all.
    #[inline]
    pub fn reserve(&mut self, pool: &mut Chunks, bytes: usize, chunks_max: u32) -> bool {
        let mut space = self.chunks.len() * CHUNK_BYTES - self.offset(self.tail);
        while space < bytes {
            if self.chunks.len() >= chunks_max as usize {
                return false;
            }
            if self.chunks.try_reserve(1).is_err() {
                return false;
            }
            let Some(chunk) = pool.take() else { return false };
            self.chunks.push_back(chunk);
            space += CHUNK_BYTES;
        }
        true
    }

    /// Appends bytes, for which there is space.
    #[inline]
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let offset = self.offset(self.tail);
            let space = self
                .chunks
                .get_mut(offset / CHUNK_BYTES)
                .and_then(|chunk| chunk.get_mut(offset % CHUNK_BYTES..))
                .unwrap_or_default();
            debug_assert!(!space.is_empty(), "reserved before");
            let len = space.len().min(bytes.len());
            let (Some(space), Some((now, later))) = (space.get_mut(..len), bytes.split_at_checked(len))
            else {
                return;
            };
            space.copy_from_slice(now);
            self.tail += len as u64;
            bytes = later;
            if len == 0 {
                return;
            }
        }
    }

    /// Appends records, each `header` and one of `messages`, from the first on, as far as these have the length of the first and the
    /// chunk that is being filled has space. Returns how many these were.
    #[inline]
    pub fn push_alike(&mut self, header: [u8; 8], messages: &[&[u8]]) -> u32 {
        let Some(len) = messages.first().map(|first| first.len()) else { return 0 };
        let offset = self.offset(self.tail);
        let Some(space) =
            self.chunks.get_mut(offset / CHUNK_BYTES).and_then(|chunk| chunk.get_mut(offset % CHUNK_BYTES..))
        else {
            return 0;
        };
        let mut count = 0;
        for (record, message) in space.chunks_exact_mut(header.len() + len).zip(messages) {
            let Some((head, payload)) = record.split_first_chunk_mut::<8>() else { break };
            if message.len() != len {
                break;
            }
            *head = header;
            // What is shortest is copied without a call and without a loop.
            match (<&mut [u8; 8]>::try_from(&mut *payload), <&[u8; 8]>::try_from(*message)) {
                (Ok(word), Ok(bytes)) => *word = *bytes,
                _ => payload.copy_from_slice(message),
            }
            count += 1;
        }
        self.tail += u64::from(count) * (header.len() + len) as u64;
        count
    }

    /// The bytes from `from` up to `to` that lie together: all of them, unless they cross a chunk.
    #[inline]
    pub fn run(&self, from: u64, to: u64) -> &[u8] {
        let offset = self.offset(from);
        let len = (to - from) as usize;
        let at = offset % CHUNK_BYTES;
        let chunk = self.chunks.get(offset / CHUNK_BYTES).and_then(|chunk| chunk.get(at..));
        chunk.map_or(&[][..], |chunk| chunk.get(..len).unwrap_or(chunk))
    }

    /// The parts of the bytes from `from` up to `to`, as far as there is space for them; answers how many were put.
    pub fn parts<'a>(&'a self, mut from: u64, to: u64, into: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for part in into {
            let run = self.run(from, to);
            if run.is_empty() {
                break;
            }
            *part = IoSlice::new(run);
            from += run.len() as u64;
            count += 1;
        }
        count
    }

    /// Forgets the bytes before `head`.
    #[inline(always)]
    pub fn release(&mut self, pool: &mut Chunks, head: u64) {
        self.head = head;
        while head - self.base >= CHUNK_BYTES as u64 {
            let Some(chunk) = self.chunks.pop_front() else { break };
            pool.give_back(chunk);
            self.base += CHUNK_BYTES as u64;
        }
        if head == self.tail {
            // Nothing is kept: the next one begins a chunk again.
            while let Some(chunk) = self.chunks.pop_front() {
                pool.give_back(chunk);
            }
            self.base = head;
        }
    }

    /// Copies the bytes from `at` on, as many as fit. False: there are not so many.
    pub fn copy_out(&self, mut at: u64, mut out: &mut [u8]) -> bool {
        while !out.is_empty() {
            let run = self.run(at, self.tail.min(at + out.len() as u64));
            let Some((now, later)) = out.split_at_mut_checked(run.len()).filter(|_| !run.is_empty()) else {
                return false;
            };
            now.copy_from_slice(run);
            at += run.len() as u64;
            out = later;
        }
        true
    }

    /// Overwrites bytes that are kept, from `at` on.
    pub fn copy_in(&mut self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let offset = self.offset(at);
            let chunk = self.chunks.get_mut(offset / CHUNK_BYTES);
            let Some(space) = chunk.and_then(|chunk| chunk.get_mut(offset % CHUNK_BYTES..)) else { return };
            let len = space.len().min(bytes.len());
            let (Some(space), Some((now, later))) = (space.get_mut(..len), bytes.split_at_checked(len))
            else {
                return;
            };
            space.copy_from_slice(now);
            at += len as u64;
            bytes = later;
        }
    }

    /// Chunks held.
    pub fn chunk_count(&self) -> u32 {
        self.chunks.len() as u32
    }

    #[inline]
    fn offset(&self, position: u64) -> usize {
        (position - self.base) as usize
    }

    /// Bytes held beside the chunks.
    pub fn bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Box<[u8]>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_pool_is_bounded_and_gets_everything_back() {
        let mut pool = Chunks::new(4 * CHUNK_BYTES as u64);
        let mut queue = Queue::new();
        assert!(queue.reserve(&mut pool, 3 * CHUNK_BYTES, 8));
        assert!(!queue.reserve(&mut pool, 5 * CHUNK_BYTES, 8));
        assert_eq!(pool.unused(), 0);
        queue.push(&[1; 3 * CHUNK_BYTES]);
        queue.release(&mut pool, 3 * CHUNK_BYTES as u64);
        assert_eq!(pool.unused(), 4);
        assert!(!queue.reserve(&mut pool, 2 * CHUNK_BYTES, 1), "one's own bound");
    }

    #[test]
    fn a_pool_grows_and_shrinks_by_what_nobody_holds() {
        let mut pool = Chunks::none();
        let mut queue = Queue::new();
        assert!(!queue.reserve(&mut pool, 1, 8));
        pool.allow(4);
        assert!(queue.reserve(&mut pool, 3 * CHUNK_BYTES, 8));
        pool.forbid(4);
        assert_eq!((pool.max(), pool.unused()), (3, 0), "what is held stays");
        assert!(!pool.shrink(1));
        queue.push(&[1; 3 * CHUNK_BYTES]);
        queue.copy_in(CHUNK_BYTES as u64 - 2, &[2; 4]);
        let mut bytes = [0; 6];
        assert!(queue.copy_out(CHUNK_BYTES as u64 - 3, &mut bytes) && bytes == [1, 2, 2, 2, 2, 1]);
        assert!(!queue.copy_out(queue.tail() - 5, &mut bytes), "there are no more");
        queue.release(&mut pool, 3 * CHUNK_BYTES as u64);
        assert!(pool.shrink(1));
        assert_eq!((pool.max(), pool.unused(), pool.made), (1, 1, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn bytes_come_out_as_they_went_in(steps in proptest::collection::vec((0usize..20_000, 0usize..20_000), 1..30)) {
            let mut pool = Chunks::new(1 << 20);
            let mut queue = Queue::new();
            let byte = |position: u64| (position * 7 + position / 251) as u8;
            let (mut read, mut released) = (0u64, 0u64);
            for (push, take) in steps {
                if queue.reserve(&mut pool, push, 64) {
                    let bytes: Vec<u8> = (queue.tail()..queue.tail() + push as u64).map(byte).collect();
                    queue.push(&bytes);
                }
                let to = (read + take as u64).min(queue.tail());
                let mut parts = [IoSlice::new(&[]); PARTS_MAX];
                let count = queue.parts(read, to, &mut parts);
                let got: Vec<u8> = parts[..count].iter().flat_map(|part| part.iter().copied()).collect();
                prop_assert!(got.len() as u64 == to - read || count == PARTS_MAX);
                prop_assert!((read..).zip(&got).all(|(position, got)| byte(position) == *got));
                read += got.len() as u64;
                released += (read - released) / 2;
                queue.release(&mut pool, released);
            }
            queue.release(&mut pool, queue.tail());
            prop_assert_eq!(pool.unused(), 64);
        }
    }
}
