//! The only code that turns positions into addresses of shared memory.
//!
//! Every method takes the position modulo the size of the data, so that no value can lead outside of the region.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::{
    BadRegion, CONTROL_BYTES, DATA_BYTES_MAX, DATA_BYTES_MIN, LINE_BYTES, LINE_PAYLOAD_BYTES,
    RECORD_HEADER_BYTES,
};
use crate::atomic::SharedWord;
use crate::bytes::Bytes;

/// Where the words in front of the data are, in bytes; see the module documentation for who writes which.
const HEAD_AT: usize = 0;
const STALL_AT: usize = 8;
const ATTENTION_AT: usize = 128;
const HEAVY_AT: usize = 136;
const DIRECT_AT: usize = 192;
const LIGHT_AT: usize = 200;

const _: () = assert!(LIGHT_AT + size_of::<SharedWord>() <= CONTROL_BYTES);

/// A mapped region and what keeps it mapped.
pub(super) struct Region<M> {
    base: NonNull<u8>,
    data_bytes: usize,
    /// What makes the offset of a line of any position.
    line_mask: usize,
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
        let line_mask = (data_bytes - 1) & !(LINE_BYTES - 1);
        Ok(Region { base, data_bytes, line_mask, _owner: owner })
    }

    /// The same region once more, for what uses only words of it that no other handle uses.
    pub(super) fn share(&self) -> Self
    where
        M: Clone,
    {
        let Region { base, data_bytes, line_mask, .. } = *self;
        Region { base, data_bytes, line_mask, _owner: self._owner.clone() }
    }

    #[inline]
    pub(super) fn data_bytes(&self) -> u64 {
        self.data_bytes as u64
    }

    /// One of the words above. Word by word, as a reference to them all would cover the bytes between them, which
    /// are no atomics, and which a peer may write to.
    #[inline]
    fn control<const AT: usize>(&self) -> &SharedWord {
        const { assert!(AT < CONTROL_BYTES && AT.is_multiple_of(8)) };
        // SAFETY: in bounds and aligned, as just checked and as `new` checked; mapped as long as `self` lives; only
        // ever used as an atomic.
        unsafe { self.base.add(AT).cast().as_ref() }
    }

    #[inline]
    pub(super) fn head(&self) -> &SharedWord {
        self.control::<HEAD_AT>()
    }

    #[inline]
    pub(super) fn stall(&self) -> &SharedWord {
        self.control::<STALL_AT>()
    }

    #[inline]
    pub(super) fn attention(&self) -> &SharedWord {
        self.control::<ATTENTION_AT>()
    }

    #[inline]
    pub(super) fn heavy(&self) -> &SharedWord {
        self.control::<HEAVY_AT>()
    }

    #[inline]
    pub(super) fn direct(&self) -> &SharedWord {
        self.control::<DIRECT_AT>()
    }

    #[inline]
    pub(super) fn light(&self) -> &SharedWord {
        self.control::<LIGHT_AT>()
    }

    /// `len` bytes from byte `skip` of the payload of the record at `position` on, as memory that anybody may change.
    /// For use before `self` is touched again.
    #[inline]
    pub(super) fn payload(&self, position: u64, skip: usize, len: usize) -> Bytes {
        let from = self.at(position, RECORD_HEADER_BYTES + skip, len);
        // SAFETY: in bounds by `at`, mapped as long as `self` lives; no reference to it exists.
        unsafe { Bytes::new(from, len) }
    }

    /// The lines of the data.
    #[inline(always)]
    pub(super) fn lines(&self) -> Lines<'_> {
        Lines { base: self.base, mask: self.line_mask, _region: PhantomData }
    }

    /// The header word of the record at `position`.
    #[inline]
    pub(super) fn word(&self, position: u64) -> &SharedWord {
        self.lines().word(position)
    }

    /// The second word of the header of the record at `position`.
    #[inline]
    pub(super) fn tag(&self, position: u64) -> &SharedWord {
        self.lines().tag(position)
    }

    /// The address of the byte `skip` bytes into the line at `position`, in bounds for `len` bytes.
    #[inline(always)]
    fn at(&self, position: u64, skip: usize, len: usize) -> NonNull<u8> {
        let line = position as usize & self.line_mask;
        let (offset, remaining) = (line + skip, self.data_bytes - line);
        // Our own arithmetic, on numbers that `decode` or `push` have checked; no lie gets past it. At least a line remains, so
        // that this is one comparison where `skip` is a constant.
        assert!(
            (skip <= LINE_BYTES || skip <= remaining) && len <= remaining.wrapping_sub(skip),
            "a record ends before the data does"
        );
        // SAFETY: just checked to lie inside of the region.
        unsafe { self.base.add(CONTROL_BYTES + offset) }
    }

    /// Asks the processor to fetch the line at `position` for writing, if it has an instruction for that.
    #[inline]
    pub(super) fn prefetch_for_write(&self, position: u64) {
        let line = self.lines().line(position);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: changes no memory, register or flag; faults on no address; on processors without it, it does nothing.
        // (`_mm_prefetch` fetches for reading only, unless the target is known to have this one.)
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags, readonly));
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = line;
    }

    /// Asks the processor to move the lines from `start` to `end` out of its own cache into one that all processors share, if it has an
    /// instruction for that (`cldemote`, which others take for one that does nothing). The other side gets them from there sooner.
    #[inline]
    pub(super) fn demote(&self, start: u64, end: u64) {
        for position in (start..end).step_by(LINE_BYTES) {
            let line = self.lines().line(position);
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            // SAFETY: changes no memory, register or flag; faults on no address.
            unsafe {
                core::arch::asm!("cldemote [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags, readonly));
            }
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            let _ = line;
        }
    }

    /// Writes the payload of the record at `position`, whose length is `len_bytes`, the sum of the segments'.
    ///
    /// # Safety
    ///
    /// The caller is the producer, and the record at `position` is not published.
    #[inline(always)]
    pub(super) unsafe fn write(&self, position: u64, segments: &[&[u8]], len_bytes: usize) {
        let mut to = self.at(position, RECORD_HEADER_BYTES, len_bytes);
        if cfg!(miri) {
            // miri breaks down on words that were header, then part payload, then header; it gets whole ones.
            // SAFETY: records are whole lines, so the last word of the payload is all ours.
            unsafe { to.write_bytes(0, len_bytes.next_multiple_of(8)) };
        }
        let mut remaining = len_bytes;
        for segment in segments {
            assert!(segment.len() <= remaining, "the segments are as long as `len_bytes` says");
            remaining -= segment.len();
            // SAFETY: `remaining` shows that the bytes lie in what `at` checked.
            unsafe {
                put(segment, to);
                to = to.add(segment.len());
            }
        }
    }

    /// Copies `len` bytes from byte `skip` of the payload of the record at `position` to `to`.
    ///
    /// On the races: an honest producer wrote the bytes before the word that we read by Acquire, and leaves them alone
    /// until we publish `head`; there is none. A dishonest one may write while we copy. It is a process outside of our
    /// abstract machine, and no thread of ours; we treat its memory as one that yields arbitrary bytes. They are copied
    /// out of a raw pointer, nothing is assumed of them, no decision here depends on them and no reference to them is
    /// ever made. Strictly, the language promises nothing about such a read; every transport over shared memory does
    /// it, as an atomic `memcpy` does not exist yet.
    ///
    /// # Safety
    ///
    /// `to` is writable for `len` bytes outside of the region.
    #[inline(always)]
    pub(super) unsafe fn read(&self, position: u64, skip: usize, to: NonNull<u8>, len: usize) {
        let from = self.at(position, RECORD_HEADER_BYTES + skip, len);
        #[cfg(feature = "simulated")]
        if crate::simulated::is_entered() {
            // SAFETY: as below.
            return unsafe { crate::simulated::load(from.as_ptr(), to.as_ptr(), len) };
        }
        // SAFETY: `from` is good for `len` bytes by `at`, `to` by the caller.
        unsafe { copy(from, to, len) };
    }
}

/// The lines of the data, whose address and size the compiler knows to stay the same between one access and the next.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    base: NonNull<u8>,
    /// What makes the offset of a line of any position.
    mask: usize,
    _region: PhantomData<&'a ()>,
}

impl<'a> Lines<'a> {
    /// The address of the line at `position`: whatever that is, all [`LINE_BYTES`] of it lie in the data.
    #[inline(always)]
    fn line(self, position: u64) -> NonNull<u8> {
        // SAFETY: the mask leaves a multiple of the line's size that is less than the data's, and these are whole lines.
        unsafe { self.base.add(CONTROL_BYTES + (position as usize & self.mask)) }
    }

    /// The header word of the record at `position`.
    #[inline(always)]
    pub(super) fn word(self, position: u64) -> &'a SharedWord {
        // SAFETY: in bounds, aligned to a line, mapped as long as the region lives, and only ever used as an atomic while
        // it can be a header (payload bytes there are written by the producer when no consumer looks).
        unsafe { self.line(position).cast().as_ref() }
    }

    /// The second word of the header of the record at `position`.
    #[inline(always)]
    pub(super) fn tag(self, position: u64) -> &'a SharedWord {
        // SAFETY: as for `word`, 8 bytes further.
        unsafe { self.line(position).add(8).cast().as_ref() }
    }

    /// Writes the payload of a record of one line at `position`, as much of `message` as that has space for.
    ///
    /// # Safety
    ///
    /// The caller is the producer, and the record at `position` is not published.
    #[inline(always)]
    pub(super) unsafe fn write_line(self, position: u64, message: &[u8]) {
        assert!(message.len() <= LINE_PAYLOAD_BYTES, "the record has one line");
        // SAFETY: the line is in the region, and this is in the line.
        let to = unsafe { self.line(position).add(RECORD_HEADER_BYTES) };
        if cfg!(miri) {
            // miri breaks down on words that were header, then part payload, then header; it gets whole ones.
            // SAFETY: as above.
            unsafe { to.write_bytes(0, LINE_PAYLOAD_BYTES) };
        }
        // SAFETY: as above.
        unsafe { put(message, to) };
    }

    /// Copies all that the payload of a record of one line at `position` may be, of which `len` bytes count. [`Region::read`] says
    /// more of the races.
    #[inline(always)]
    pub(super) fn read_line(self, position: u64, to: &mut [u8; LINE_PAYLOAD_BYTES], len: usize) {
        // SAFETY: the line is in the region, and this is in the line.
        let from = unsafe { self.line(position).add(RECORD_HEADER_BYTES) };
        #[cfg(feature = "simulated")]
        if crate::simulated::is_entered() {
            let len = len.min(to.len());
            // SAFETY: `from` is good for a line, and `to` for as much as is copied.
            return unsafe { crate::simulated::load(from.as_ptr(), to.as_mut_ptr(), len) };
        }
        let _ = len;
        // SAFETY: all of it is within the line; an array of bytes needs no alignment.
        *to = unsafe { from.cast::<[u8; LINE_PAYLOAD_BYTES]>().read() };
    }
}

/// Copies a segment of a message into the ring.
///
/// # Safety
///
/// The bytes at `to` lie in the payload of a record that is not published. (An honest consumer does not look at them before it
/// is, and a `&[u8]` of this process is not in the ring. A dishonest consumer that writes here at the same time spoils bytes
/// that only it reads.)
#[inline(always)]
unsafe fn put(segment: &[u8], to: NonNull<u8>) {
    #[cfg(feature = "simulated")]
    if crate::simulated::is_entered() {
        // SAFETY: the caller's promise.
        return unsafe { crate::simulated::store(to.as_ptr(), segment) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy(NonNull::from(segment).cast(), to, segment.len()) };
}

/// `memcpy`, without the call for the sizes that hurry: two parts that may overlap, or byte by byte below 4 bytes.
///
/// # Safety
///
/// `from` is readable and `to` writable for `len` bytes, and the two ranges are disjoint.
#[inline(always)]
unsafe fn copy(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
    /// # Safety
    ///
    /// As for `copy`, and `len` is between `N` and twice that.
    #[inline(always)]
    unsafe fn ends<const N: usize>(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
        // SAFETY: both parts, at the start and at the end, lie within `len` bytes; `[u8; N]` needs no alignment.
        unsafe {
            let first = from.cast::<[u8; N]>().read();
            let last = from.add(len - N).cast::<[u8; N]>().read();
            to.cast::<[u8; N]>().write(first);
            to.add(len - N).cast::<[u8; N]>().write(last);
        }
    }
    /// Apart, so that the sizes that come most often are copied in line.
    ///
    /// # Safety
    ///
    /// As for `copy`.
    #[inline(never)]
    unsafe fn any(from: NonNull<u8>, to: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise, and the range of each arm.
        unsafe {
            match len {
                17..=32 => ends::<16>(from, to, len),
                4..=7 => ends::<4>(from, to, len),
                1..=3 => (0..len).for_each(|at| to.add(at).write(from.add(at).read())),
                33..=64 => ends::<32>(from, to, len),
                _ => to.copy_from_nonoverlapping(from, len),
            }
        }
    }
    // SAFETY: the caller's promise, and the range.
    unsafe {
        match len {
            8..=16 => ends::<8>(from, to, len),
            _ => any(from, to, len),
        }
    }
}
