//! Buffers that sealed streams borrow while something is in them.
//!
//! The peer decides whether a stream keeps a buffer from one call to the next: it has sent a part of a record, or it reads
//! nothing, so that the kernel takes no more records. Therefore no host may keep more buffers than are left for all others, and
//! two buffers are never kept. With these two, every stream makes progress, even one that may keep nothing.

use super::super::wire;
use crate::transport::quota::{Host, Quota};
use cci_memory::fallible;
use cci_secure::limits::{RECORD_BODY_BYTES_MAX, RECORD_OVERHEAD_BYTES};
use std::sync::{Arc, Mutex, PoisonError};

/// Length of a large buffer: four of the longest records.
pub(super) const BUFFER_BYTES: usize = 4 * (RECORD_BODY_BYTES_MAX + RECORD_OVERHEAD_BYTES);
/// Length of a small buffer. A stream seals a short record into it if it gets no large one.
const SMALL_BYTES: usize = 1 << 10;
/// Buffers that are never kept: one for this endpoint, and one for another endpoint that has accepted a stream of this one.
const BRIEF_BUFFERS: u64 = 2;
/// The part of all bytes for small buffers.
const SMALL_SHARE: u64 = 8;
/// The most that a stream may keep at once: a part of a sealed record, and a part of a message.
const KEPT_BYTES: u64 = (BUFFER_BYTES + wire::RECORD_BYTES_MAX) as u64;

const _: () = assert!(SMALL_BYTES > RECORD_OVERHEAD_BYTES && SMALL_BYTES < BUFFER_BYTES);

/// All buffers of an endpoint. The lock is needed because another endpoint may accept a request, and with it a stream and the
/// buffers that it has borrowed. Usually nobody waits for the lock.
pub(super) struct Pool(Mutex<Shelves>);

struct Shelves {
    large: Shelf,
    small: Shelf,
}

/// Buffers of one length.
struct Shelf {
    buffer_bytes: usize,
    free: Vec<Box<[u8]>>,
    made: u64,
    made_max: u64,
    /// The buffers that streams keep from one call to the next.
    kept: Quota,
}

/// A buffer. Its content is `at..end`.
pub(super) struct Buffer {
    pub bytes: Box<[u8]>,
    pub at: usize,
    pub end: usize,
    /// The host in whose quota it counts, if it is kept.
    keeper: Option<Host>,
}

impl Buffer {
    pub fn filled(&self) -> &[u8] {
        self.bytes.get(self.at..self.end).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.at == self.end
    }
}

impl Shelf {
    fn new(buffer_bytes: usize, made_max: u64, kept_max: u64) -> Shelf {
        Shelf { buffer_bytes, free: Vec::new(), made: 0, made_max, kept: Quota::new(kept_max) }
    }

    /// Lends a buffer that was given back, or a new one. `None` if there are as many as there may be, or no memory.
    fn lend(&mut self) -> Option<Buffer> {
        let bytes = match self.free.pop() {
            Some(bytes) => bytes,
            None if self.made < self.made_max => {
                // The space is reserved now, so that giving back never allocates.
                let made = usize::try_from(self.made + 1).unwrap_or(usize::MAX);
                let missing = made.saturating_sub(self.free.len());
                self.free.try_reserve(missing).ok()?;
                let bytes = fallible::zeroed(self.buffer_bytes)?;
                self.made += 1;
                bytes
            }
            None => return None,
        };
        Some(Buffer { bytes, at: 0, end: 0, keeper: None })
    }

    fn bytes(&self) -> u64 {
        self.made * self.buffer_bytes as u64 + self.kept.bytes()
    }
}

impl Shelves {
    fn of(&mut self, buffer: &Buffer) -> &mut Shelf {
        if buffer.bytes.len() == self.small.buffer_bytes { &mut self.small } else { &mut self.large }
    }
}

impl Pool {
    /// The least memory of a pool: the buffers that are never kept.
    pub const BYTES_MIN: u64 = BRIEF_BUFFERS * BUFFER_BYTES as u64;

    /// Makes a pool of which streams may keep this many bytes.
    pub fn new(bytes_max: u64) -> Pool {
        let kept_max = (bytes_max - bytes_max / SMALL_SHARE) / KEPT_BYTES;
        let small_max = bytes_max / SMALL_SHARE / SMALL_BYTES as u64;
        Pool(Mutex::new(Shelves {
            large: Shelf::new(BUFFER_BYTES, kept_max + BRIEF_BUFFERS, kept_max),
            small: Shelf::new(SMALL_BYTES, small_max, small_max),
        }))
    }

    fn shelves(&self) -> std::sync::MutexGuard<'_, Shelves> {
        // Nothing that is done under the lock can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends a large buffer that may be kept from one call to the next, unless this host keeps too many.
    pub fn lend(&self, host: Host) -> Option<Buffer> {
        let shelf = &mut self.shelves().large;
        if shelf.kept.has_space_for(host, 1) { shelf.lend() } else { None }
    }

    /// Lends a small buffer that may be kept, unless this host keeps too many.
    pub fn lend_small(&self, host: Host) -> Option<Buffer> {
        let shelf = &mut self.shelves().small;
        if shelf.kept.has_space_for(host, 1) { shelf.lend() } else { None }
    }

    /// Lends a large buffer that is given back before anything else is done.
    pub fn lend_briefly(&self) -> Option<Buffer> {
        self.shelves().large.lend()
    }

    /// Counts a buffer as kept, in the quota of this host, which [`Pool::lend`] has checked.
    pub fn keep(&self, buffer: &mut Buffer, host: Host) {
        if buffer.keeper.is_none() {
            buffer.keeper = Some(host);
            self.shelves().of(buffer).kept.take(host, 1);
        }
    }

    pub fn give_back(&self, buffer: Buffer) {
        let mut shelves = self.shelves();
        let shelf = shelves.of(&buffer);
        if let Some(host) = buffer.keeper {
            shelf.kept.give_back(host, 1);
        }
        shelf.free.push(buffer.bytes);
    }

    /// Bytes of all buffers that were allocated.
    pub fn bytes(&self) -> u64 {
        let shelves = self.shelves();
        shelves.large.bytes() + shelves.small.bytes()
    }
}

/// Lends the buffers of a pool to one stream, on its host's account.
pub(super) struct Lender {
    pool: Arc<Pool>,
    host: Host,
    /// Whether this side wants the connection, so that the stream may keep large buffers.
    pub is_wanted: bool,
}

impl Lender {
    pub fn new(pool: &Arc<Pool>, host: Host, is_wanted: bool) -> Lender {
        Lender { pool: Arc::clone(pool), host, is_wanted }
    }

    /// A buffer that may be kept from one call to the next.
    pub fn lend(&self) -> Option<Buffer> {
        if self.is_wanted { self.pool.lend(self.host) } else { None }
    }

    /// A large or small buffer that may be kept.
    pub fn lend_any(&self) -> Option<Buffer> {
        self.lend().or_else(|| self.pool.lend_small(self.host))
    }

    /// A buffer that is given back before anything else is done.
    pub fn lend_briefly(&self) -> Option<Buffer> {
        self.pool.lend_briefly()
    }

    /// Notes that the stream keeps this buffer.
    pub fn keep(&self, buffer: &mut Buffer) {
        self.pool.keep(buffer, self.host);
    }

    pub fn give_back(&self, buffer: Buffer) {
        self.pool.give_back(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn host(last: u8) -> Host {
        Host::V4(Ipv4Addr::new(10, 0, 0, last))
    }

    /// Takes as many as a host may keep.
    fn keep_all(pool: &Pool, host: Host) -> Vec<Buffer> {
        let lend = || {
            let mut buffer = pool.lend(host)?;
            pool.keep(&mut buffer, host);
            Some(buffer)
        };
        std::iter::from_fn(lend).take(1_000).collect()
    }

    #[test]
    fn one_host_leaves_half_and_a_buffer_to_work_in_there_always_is() {
        let bytes_max = 20 * KEPT_BYTES * SMALL_SHARE / (SMALL_SHARE - 1);
        let pool = Pool::new(bytes_max);
        let (first, second) = (keep_all(&pool, host(1)), keep_all(&pool, host(2)));
        assert_eq!((first.len(), second.len()), (10, 5));
        let many: Vec<_> = (3..200).map(|last| keep_all(&pool, host(last))).collect();
        let brief = [pool.lend_briefly().unwrap(), pool.lend_briefly().unwrap()];
        assert!(pool.bytes() <= bytes_max + Pool::BYTES_MIN);
        let all = [first, second, brief.into()].into_iter().chain(many).flatten();
        all.for_each(|buffer| pool.give_back(buffer));
        assert_eq!(keep_all(&pool, host(200)).len(), 10, "half again");
    }

    #[test]
    fn a_pool_of_nothing_keeps_nothing() {
        let pool = Pool::new(0);
        assert!(pool.lend(host(1)).is_none() && pool.lend_small(host(1)).is_none());
        assert!(pool.lend_briefly().is_some());
    }
}
