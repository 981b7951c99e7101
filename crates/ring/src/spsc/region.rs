//! The only code that turns positions into addresses of shared memory.
//!
//! Every method takes the position modulo the size of the data, so that no value can lead outside of the region.

use core::mem::offset_of;
use core::ptr::NonNull;

use super::{BadRegion, CONTROL_BYTES, DATA_BYTES_MAX, DATA_BYTES_MIN, LINE_BYTES, RECORD_HEADER_BYTES};
use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// The words in front of the data; see the module documentation for who writes which.
#[repr(C, align(64))]
struct Control {
    head: AtomicU64,
    stall: AtomicU32,
    _apart: [u8; 116],
    attention: AtomicU32,
    _rest: [u8; 124],
}

const _: () = {
    assert!(size_of::<Control>() == CONTROL_BYTES);
    assert!(offset_of!(Control, stall) == 8);
    assert!(offset_of!(Control, attention) == 128);
};

/// Copies of at most this many bytes are done in words here; longer ones by `memcpy`.
const COPY_WORDS_BYTES_MAX: usize = 64;

/// A mapped region and what keeps it mapped.
pub(super) struct Region<M> {
    base: NonNull<u8>,
    data_bytes: usize,
    _owner: M,
}

// SAFETY: the region is reached through atomics and raw copies only, whose exclusion the ring's protocol gives, not
// the thread that they are done from; the owner is `Send` itself.
unsafe impl<M: Send> Send for Region<M> {}

impl<M> Region<M> {
    /// # Safety
    ///
    /// `base..base + len_bytes` is readable and writable, and stays so as long as `owner` lives.
    pub(super) unsafe fn new(
        base: NonNull<u8>,
        len_bytes: usize,
        payload_bytes_max: u32,
        owner: M,
    ) -> Result<Self, BadRegion> {
        let data_bytes = len_bytes.checked_sub(CONTROL_BYTES).ok_or(BadRegion::Size)?;
        if !data_bytes.is_power_of_two() || !(DATA_BYTES_MIN..=DATA_BYTES_MAX).contains(&data_bytes) {
            return Err(BadRegion::Size);
        }
        if !base.addr().get().is_multiple_of(LINE_BYTES) {
            return Err(BadRegion::Alignment);
        }
        if payload_bytes_max as usize > super::payload_bytes_limit(data_bytes) {
            return Err(BadRegion::Payload);
        }
        Ok(Region { base, data_bytes, _owner: owner })
    }

    pub(super) fn data_bytes(&self) -> u64 {
        self.data_bytes as u64
    }

    fn control(&self) -> &Control {
        // SAFETY: `new` checked alignment and size; the memory is mapped as long as `self` lives; all the fields in
        // use are atomics, so that the peer's writes are no violation of the shared reference.
        unsafe { self.base.cast::<Control>().as_ref() }
    }

    pub(super) fn head(&self) -> &AtomicU64 {
        &self.control().head
    }

    pub(super) fn stall(&self) -> &AtomicU32 {
        &self.control().stall
    }

    pub(super) fn attention(&self) -> &AtomicU32 {
        &self.control().attention
    }

    /// The address of the byte `skip` bytes into the line at `position`, in bounds for `len` bytes.
    fn at(&self, position: u64, skip: usize, len: usize) -> NonNull<u8> {
        let offset = (position as usize & (self.data_bytes - 1) & !(LINE_BYTES - 1)) + skip;
        // Our own arithmetic, on numbers that `decode` or `push` have checked; one compare, and no lie gets past it.
        assert!(
            len <= self.data_bytes && offset <= self.data_bytes - len,
            "a record ends before the data does"
        );
        // SAFETY: just checked to lie inside of the region.
        unsafe { self.base.add(CONTROL_BYTES + offset) }
    }

    /// The header word of the record at `position`.
    #[inline]
    pub(super) fn word(&self, position: u64) -> &AtomicU64 {
        // SAFETY: in bounds, aligned to a line, mapped as long as `self` lives, and only ever used as an atomic while
        // it can be a header (payload bytes there are written by the producer when no consumer looks).
        unsafe { self.at(position, 0, LINE_BYTES).cast().as_ref() }
    }

    /// The second word of the header of the record at `position`.
    #[inline]
    pub(super) fn tag(&self, position: u64) -> &AtomicU64 {
        // SAFETY: as for `word`, 8 bytes further.
        unsafe { self.at(position, 8, LINE_BYTES - 8).cast().as_ref() }
    }

    /// Writes the payload of the record at `position`, whose length is `len_bytes`, the sum of the segments'.
    ///
    /// # Safety
    ///
    /// The caller is the producer, and the record at `position` is not published.
    #[inline]
    pub(super) unsafe fn write(&self, position: u64, segments: &[&[u8]], len_bytes: usize) {
        let mut to = self.at(position, RECORD_HEADER_BYTES, len_bytes);
        let mut left = len_bytes;
        for segment in segments {
            assert!(segment.len() <= left, "the segments are as long as was said");
            left -= segment.len();
            // SAFETY: `left` shows that the bytes lie in what `at` checked. An honest consumer does not look at them
            // before the word is published and a segment, being a `&[u8]` of this process, is not in the ring. A
            // dishonest consumer that writes here at the same time spoils bytes that only it reads.
            unsafe {
                to.copy_from_nonoverlapping(NonNull::from(*segment).cast(), segment.len());
                to = to.add(segment.len());
            }
        }
    }

    /// Copies `len` bytes from byte `skip` of the payload of the record at `position` to `to`.
    ///
    /// On the races: an honest producer wrote the bytes before the word that we read by Acquire and leaves them alone
    /// until we publish `head`, so there is none. A dishonest one may write while we copy. That is a process outside
    /// of our abstract machine, and we treat its memory as one that yields arbitrary bytes: short copies and everything
    /// under miri are relaxed atomic loads, which are defined under any race; long ones are one `memcpy` out of a raw
    /// pointer, of whose bytes nothing is assumed and which are not read twice. This is what every shared-memory
    /// transport does; the language has no atomic `memcpy` yet.
    ///
    /// # Safety
    ///
    /// `to` is writable for `len` bytes outside of the region.
    #[inline]
    pub(super) unsafe fn read(&self, position: u64, skip: usize, to: NonNull<u8>, len: usize) {
        let from = self.at(position, RECORD_HEADER_BYTES + skip, len);
        if !cfg!(miri) && (len > COPY_WORDS_BYTES_MAX || !skip.is_multiple_of(8)) {
            // SAFETY: `from` is good for `len` bytes by `at`, `to` by the caller; see above for races.
            unsafe { to.copy_from_nonoverlapping(from, len) };
            return;
        }
        let mut done = 0;
        while done < len {
            let start = (skip + done) % 8;
            let count = (8 - start).min(len - done);
            // SAFETY: `from + done - start` is 8-aligned (lines are, the header is 16 bytes), and the whole word lies
            // in the data, whose size is a multiple of 8.
            let word = unsafe { from.add(done).sub(start).cast::<AtomicU64>().as_ref() };
            let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            if count == 8 {
                // SAFETY: `done + 8 <= len`.
                unsafe { to.add(done).cast::<[u8; 8]>().write_unaligned(bytes) };
            } else {
                // SAFETY: `start + count <= 8` and `done + count <= len`.
                unsafe {
                    to.add(done)
                        .copy_from_nonoverlapping(NonNull::from(&bytes).cast::<u8>().add(start), count);
                }
            }
            done += count;
        }
    }
}
