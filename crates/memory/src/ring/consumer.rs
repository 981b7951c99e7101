//! The end that reads records.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::region::Region;
use super::word::{self, Corrupt, RecordHeader, Word};
use super::{BadRegion, LINE_BYTES, LINE_PAYLOAD_BYTES};
use crate::atomic::{Ordering, fence};

pub(super) const STALL_RUNNING: u64 = 0;
pub(super) const STALL_ON: u64 = 1;
pub(super) const STALL_CANCELLING: u64 = 2;

pub(super) const ATTENTION_NONE: u64 = 0;
pub(super) const ATTENTION_RECORDS: u64 = 1;
pub(super) const ATTENTION_PROGRESS: u64 = 2;

/// PAD and VOID records skipped in one call at most, so that no peer can keep us in it.
const SKIPS_PER_PEEK_MAX: u32 = 256;

/// Whether a consumer that has asked to be woken may sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "sleeping may be for ever, unless this says that it is safe"]
pub enum Armed {
    /// Nothing is there, and the producer will wake this side for what comes.
    MaySleep,
    /// A record is there already.
    HasRecord,
    /// The producer has light fences. Make a heavy one, then ask [`has_record`](Consumer::has_record).
    NeedsHeavyFence,
}

/// The end of a ring that reads records. `M` keeps the memory mapped.
pub struct Consumer<M> {
    region: Region<M>,
    payload_bytes_max: u32,
    head: u64,
    /// Behind the record that `peek` found; `head` when it found none.
    next: u64,
    published: u64,
    stalled: bool,
}

impl<M> Consumer<M> {
    /// Takes the consuming end of the ring in `base..base + len_bytes`, whose payloads are at most
    /// `payload_bytes_max` bytes long; `owner` keeps it mapped.
    ///
    /// # Safety
    ///
    /// - The memory is readable and writable, and stays so as long as `owner` lives, wherever `owner` is moved to.
    /// - It was zero when the ring was made and nothing of this process writes to it but this consumer and at most
    ///   one [`Producer`](super::Producer); no `&[u8]` or `&mut [u8]` to it exists in this process.
    /// - This is the only consumer that is ever made for it.
    ///
    /// Nothing is asked of the peer: it may write whatever it likes.
    ///
    /// # Errors
    ///
    /// [`BadRegion`] if size, alignment or the maximum can't be those of a ring.
    pub unsafe fn new(
        base: NonNull<u8>,
        len_bytes: usize,
        payload_bytes_max: u32,
        owner: M,
    ) -> Result<Self, BadRegion> {
        // SAFETY: the caller's promise.
        let region = unsafe { Region::new(base, len_bytes, payload_bytes_max, owner)? };
        Ok(Consumer::in_region(region, payload_bytes_max))
    }

    pub(super) fn in_region(region: Region<M>, payload_bytes_max: u32) -> Self {
        Consumer { region, payload_bytes_max, head: 0, next: 0, published: 0, stalled: false }
    }

    /// Whether [`peek`](Self::peek) may find something: the cheapest look there is, for polling. It believes nothing.
    #[inline]
    pub fn may_have_more(&self) -> bool {
        self.region.word(self.head).load(Ordering::Relaxed) != 0
    }

    /// Whether there may be a record behind the next one, if that has one line: as cheap as [`may_have_more`](Self::may_have_more).
    #[inline]
    pub fn may_have_two(&self) -> bool {
        self.region.word(self.head + LINE_BYTES as u64).load(Ordering::Relaxed) != 0
    }

    /// The next record, which stays the next one until [`consume`](Self::consume); `None` when there is none, or while
    /// [stalled](Self::stall).
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if the peer wrote what can't be a record. The ring is of no use then; drop it.
    #[inline(always)]
    pub fn peek(&mut self) -> Result<Option<Record<'_, M>>, Corrupt> {
        if self.stalled {
            return Ok(None);
        }
        for _ in 0..SKIPS_PER_PEEK_MAX {
            // Read once. Pairs with the Release in `Producer::push`.
            let word = self.region.word(self.head).load(Ordering::Acquire);
            match word::decode(word, self.head, self.region.data_bytes(), self.payload_bytes_max)? {
                Word::Empty => return Ok(None),
                Word::Skip { record_bytes } => {
                    self.head += record_bytes;
                    self.next = self.head;
                }
                Word::Record { len_bytes, kind, flags, record_bytes } => {
                    self.next = self.head + record_bytes;
                    let tag = self.region.tag(self.head).load(Ordering::Relaxed);
                    let header = RecordHeader { kind, flags, conn: tag as u32, ack: (tag >> 32) as u32 };
                    return Ok(Some(Record { region: &self.region, position: self.head, header, len_bytes }));
                }
            }
        }
        Ok(None)
    }

    /// The next record, if it has one line and is of this kind, and the length of its payload: the cheapest look at one that comes
    /// alone. `None`: there is none, or it is anything else, which [`peek`](Self::peek) distinguishes.
    #[inline(always)]
    pub fn peek_line(&self, kind: u8) -> Option<(RecordHeader, u32)> {
        if self.stalled {
            return None;
        }
        let lines = self.region.lines();
        // Read once. Pairs with the Release in `Producer::push`.
        let word = lines.word(self.head).load(Ordering::Acquire);
        let (flags, len_bytes) = word::of_one_line(word, self.head, kind)?;
        if len_bytes > self.payload_bytes_max {
            return None;
        }
        let tag = lines.tag(self.head).load(Ordering::Relaxed);
        Some((RecordHeader { kind, flags, conn: tag as u32, ack: (tag >> 32) as u32 }, len_bytes))
    }

    /// Copies what the record of one line that [`peek_line`](Self::peek_line) has found may hold, of which `len_bytes` count, and steps
    /// over it.
    #[inline(always)]
    pub fn take_line(&mut self, len_bytes: u32, to: &mut [u8; LINE_PAYLOAD_BYTES]) {
        self.region.lines().read_line(self.head, to, len_bytes as usize);
        self.head += LINE_BYTES as u64;
        self.next = self.head;
    }

    /// Copies the record of one line that [`peek_line`](Self::peek_line) has found to `to`, with its length, and steps over it.
    #[inline(always)]
    pub fn take_to_line(&mut self, len_bytes: u32, to: &mut Line) {
        self.take_line(len_bytes, &mut to.bytes);
        to.len_bytes = len_bytes;
    }

    /// Copies the payloads of the next records to `to` and steps over the records, as far as each has one line and carries the same as
    /// the record that `like` was made of. Answers how many these were, and the bytes of the payloads. What comes then is for [`peek`](Self::peek).
    #[inline(never)]
    pub fn take_lines(&mut self, like: Like, to: &mut [Line]) -> (usize, u64) {
        if self.stalled {
            return (0, 0);
        }
        let lines = self.region.lines();
        let (mut head, mut checks) = (self.head, word::Checks::from(self.head));
        let expected = like.word | word::Checks::CONSTANT;
        let mut bytes = 0;
        for line in to {
            // Read once. Pairs with the Release in `Producer::push`.
            let word = lines.word(head).load(Ordering::Acquire);
            // What is left when all else is as expected is the length: no other bit of the word may be set or missing.
            let len_bytes = word ^ checks.next() ^ expected;
            if len_bytes > u64::from(like.len_max) || lines.tag(head).load(Ordering::Relaxed) != like.tag {
                break;
            }
            lines.read_line(head, &mut line.bytes, len_bytes as usize);
            line.len_bytes = len_bytes as u32;
            bytes += len_bytes;
            head += LINE_BYTES as u64;
        }
        let taken = (head - self.head) as usize / LINE_BYTES;
        (self.head, self.next) = (head, head);
        (taken, bytes)
    }

    /// Steps over the record that [`peek`](Self::peek) gave; without one, does nothing. The producer learns of it from
    /// [`publish_head`](Self::publish_head).
    #[inline]
    pub fn consume(&mut self) {
        if !self.stalled {
            self.head = self.next;
        }
    }

    /// Publishes how far we have read, which gives the producer the space and completes its records. Once after each batch;
    /// cheap when nothing was consumed. Answers whether there was news.
    #[inline]
    pub fn publish_head(&mut self) -> bool {
        if self.published == self.head {
            return false;
        }
        self.published = self.head;
        // Pairs with the Acquire in `Producer::consumed`: our reads come before its next writes.
        self.region.head().store(self.head, Ordering::Release);
        true
    }

    /// The name of the memory of ours that the peer writes directly just now, by its own word; 0: none. Ask behind a
    /// SeqCst fence, after the permission was taken back; see "Direct access" in the module documentation.
    pub fn direct_now(&self) -> u64 {
        // Pairs with the Release in `Producer::end_direct`.
        self.region.direct().load(Ordering::Acquire)
    }

    /// The position of the next record, in bytes.
    #[inline]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Says that this side can make heavy fences, so that those of the producer may be light; see "Sleeping" in the module
    /// documentation.
    pub fn offer_heavy_fences(&self) {
        self.region.heavy().store(1, Ordering::Relaxed);
    }

    /// Asks to be woken for the next record, and looks whether there is one. While stalled there is none, as nothing can be taken.
    ///
    /// After waking, and also if there is a record: [`disarm`](Self::disarm).
    pub fn arm(&mut self) -> Armed {
        self.arm_for(ATTENTION_RECORDS)
    }

    /// Asks to be woken for the next record, like [`arm`](Self::arm), and also when the peer has consumed records of the opposite ring: look at
    /// its [`consumed`](super::Producer::consumed) once more before sleeping.
    pub fn arm_for_progress(&mut self) -> Armed {
        self.arm_for(ATTENTION_PROGRESS)
    }

    fn arm_for(&mut self, attention: u64) -> Armed {
        self.region.attention().store(attention, Ordering::Relaxed);
        // Pairs with the fence in `Producer::needs_wake`: one of us sees the other's store.
        fence(Ordering::SeqCst);
        // Before the look at the ring. Acquire pairs with the Release in `Producer::end_light_fences`: that look sees all that was
        // pushed without a fence.
        let is_fenced = self.region.light().load(Ordering::Acquire) == 0;
        match self.has_record() {
            true => Armed::HasRecord,
            false if is_fenced => Armed::MaySleep,
            false => Armed::NeedsHeavyFence,
        }
    }

    /// Whether there is something to be taken.
    pub fn has_record(&self) -> bool {
        !self.stalled && self.may_have_more()
    }

    /// Ends what [`arm`](Self::arm) began: records are polled for again.
    pub fn disarm(&mut self) {
        self.region.attention().store(ATTENTION_NONE, Ordering::Relaxed);
    }

    /// Tells the producer that the record at our position can't be taken now (no receive buffer). Until
    /// [`resume`](Self::resume), [`peek`](Self::peek) answers `None`.
    pub fn stall(&mut self) {
        if self.stalled {
            return;
        }
        self.stalled = true;
        self.next = self.head;
        self.publish_head();
        // Pairs with the Acquire in `Producer::try_cancel`: it sees the head just published.
        self.region.stall().store(STALL_ON, Ordering::Release);
    }

    /// Whether [`stall`](Self::stall) is in force.
    #[inline]
    pub fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Goes on after [`stall`](Self::stall). `false`: the producer is just taking records back; try again at the next
    /// poll. After `true`, [`peek`](Self::peek) anew: the record may have been taken back.
    pub fn resume(&mut self) -> bool {
        if self.stalled {
            // Acquire pairs with the Release in `CancelGuard::drop`: we see what was made void.
            let stall = self.region.stall();
            self.stalled = stall
                .compare_exchange(STALL_ON, STALL_RUNNING, Ordering::Acquire, Ordering::Relaxed)
                .is_err();
        }
        !self.stalled
    }

    /// Goes on after [`stall`](Self::stall) although the producer may have died while it took records back. Only for
    /// when the kernel has reported that it is dead; what it wrote before can then be drained.
    pub fn resume_orphaned(&mut self) {
        self.stalled = false;
        self.region.stall().store(STALL_RUNNING, Ordering::Relaxed);
        // A dead producer's stores are all done; this keeps our reads behind the knowledge of its death.
        fence(Ordering::Acquire);
    }
}

/// What a record carries beside its payload, for a comparison with others.
#[derive(Debug, Clone, Copy)]
pub struct Like {
    word: u64,
    tag: u64,
    len_max: u32,
}

/// The bytes of a short message, copied out of the ring: the payload of a record of one line, so 48 bytes at most.
#[derive(Clone)]
#[repr(C, align(64))]
pub struct Line {
    bytes: [u8; LINE_PAYLOAD_BYTES],
    len_bytes: u32,
}

impl Line {
    /// A line without a byte.
    pub const EMPTY: Line = Line { bytes: [0; LINE_PAYLOAD_BYTES], len_bytes: 0 };

    /// Copies the first `len` bytes of `from` into the line. Returns false if there are not so many, or more than 48: then the line may
    /// have changed.
    #[inline(always)]
    pub fn fill(&mut self, from: &[u8], len: usize) -> bool {
        // To copy all that a line has space for costs less than a look at the length.
        match from.first_chunk() {
            Some(all) if len <= LINE_PAYLOAD_BYTES => self.bytes = *all,
            _ => match (self.bytes.get_mut(..len), from.get(..len)) {
                (Some(to), Some(from)) => to.copy_from_slice(from),
                _ => return false,
            },
        }
        self.len_bytes = len as u32;
        true
    }

    /// The payload.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len_bytes as usize).unwrap_or(&self.bytes)
    }
}

/// A record in the ring. Its payload is not lent, as the peer may change it at any time; it is copied out.
pub struct Record<'a, M> {
    region: &'a Region<M>,
    position: u64,
    header: RecordHeader,
    len_bytes: u32,
}

impl<M> Record<'_, M> {
    /// What the record carries beside its payload, as the peer wrote it.
    pub fn header(&self) -> RecordHeader {
        self.header
    }

    /// What records of one line have to be like to carry the same header, with payloads of up to `len_max` bytes.
    #[inline]
    pub fn like(&self, len_max: u32) -> Like {
        let header = self.header;
        let len_max = len_max.min(LINE_PAYLOAD_BYTES as u32);
        Like { word: word::kind_and_flags(header), tag: header.tag(), len_max }
    }

    /// The length of the payload in bytes; at most the ring's maximum.
    pub fn len_bytes(&self) -> u32 {
        self.len_bytes
    }

    /// The position of the record.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Copies the payload to `to`, as much as there is and fits; answers how many bytes.
    #[inline]
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        self.copy_from(0, to)
    }

    /// Copies the payload from byte `skip_bytes` on to `to`, as much as there is and fits; answers how many bytes.
    #[inline]
    pub fn copy_from(&self, skip_bytes: usize, to: &mut [u8]) -> usize {
        let count = to.len().min((self.len_bytes as usize).saturating_sub(skip_bytes));
        self.copy(skip_bytes, NonNull::from(to).cast(), count)
    }

    /// Copies `len_bytes` of the payload, from byte `skip_bytes` on, to `offset` of memory that others may be changing.
    /// `false`: they are not all in range, on either side, and nothing was done.
    #[cfg(not(loom))]
    #[must_use = "`false` means that nothing was copied"]
    pub fn copy_to_memory(
        &self,
        skip_bytes: usize,
        to: &crate::bytes::Bytes,
        offset: usize,
        len_bytes: usize,
    ) -> bool {
        if skip_bytes.checked_add(len_bytes).is_none_or(|end| end > self.len_bytes as usize) {
            return false;
        }
        to.copy_from(offset, &self.region.payload(self.position, skip_bytes, len_bytes), 0, len_bytes)
    }

    /// Copies the payload into memory that need not be initialised, as much as there is and fits; answers how many bytes, which
    /// are initialised then.
    #[inline]
    pub fn copy_to_uninit(&self, to: &mut [MaybeUninit<u8>]) -> usize {
        let count = to.len().min(self.len_bytes as usize);
        self.copy(0, NonNull::from(to).cast(), count)
    }

    #[inline]
    fn copy(&self, skip_bytes: usize, to: NonNull<u8>, count: usize) -> usize {
        if count > 0 {
            // SAFETY: `to` comes from a unique reference to `count` bytes or more, which can't lie in the region, as
            // no reference to that exists. `skip_bytes + count` is at most the checked length.
            unsafe { self.region.read(self.position, skip_bytes, to, count) };
        }
        count
    }
}
