//! The end that writes records.

use core::ptr::NonNull;

use super::consumer::{ATTENTION_NONE, ATTENTION_PROGRESS, STALL_CANCELLING, STALL_ON};
use super::region::{Lines, Region};
use super::span::Span;
use super::word::{self, Corrupt, RecordHeader, Words};
use super::{BadRegion, LINE_BYTES, LINE_PAYLOAD_BYTES};
use crate::atomic::{Ordering, compiler_fence, fence};

const LINE: u64 = LINE_BYTES as u64;
/// How far beyond the tail words are zeroed once a record is out: the word of the next record and, if that is one line
/// long, the one behind it, so that publishing it has nothing to wait for.
const ZERO_AHEAD_BYTES: u64 = 2 * LINE;
/// How far ahead of a record of one line a line is fetched for writing, of those that the consumer has taken: in a stream, where stores
/// wait for lines that the consumer had, as many are on their way at once.
const FETCH_AHEAD_BYTES: u64 = 8 * LINE;
/// The longest record that [`Producer::hasten`] makes faster. For longer ones it gains nothing.
const HASTENED_BYTES_MAX: u64 = 4 << 10;
/// The longest record for whose successor [`Producer::hasten`] makes lines ready. Fetching more of them takes longer than an answer.
const READY_BYTES_MAX: u64 = 9 * LINE;
/// The most records that become visible together.
const RECORDS_PER_RUN_MAX: usize = 32;
/// How many bytes of records of several lines become visible together at most: enough that the consumer's polls seldom disturb the
/// writes, and not so many that the first record waits long for the last.
const RUN_BYTES_MAX: u64 = 8 << 10;

/// Why a record was not pushed. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushError {
    /// There is no space until the consumer has consumed more.
    Full,
    /// The payload is longer than the ring's maximum: the caller's fault.
    TooLong,
    /// The peer wrote nonsense where its read position should be.
    Corrupt(Corrupt),
}

impl core::fmt::Display for PushError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            PushError::Full => f.write_str("the ring is full"),
            PushError::TooLong => f.write_str("the payload is longer than the ring's maximum"),
            PushError::Corrupt(corrupt) => corrupt.fmt(f),
        }
    }
}

impl core::error::Error for PushError {}

impl From<Corrupt> for PushError {
    fn from(corrupt: Corrupt) -> Self {
        PushError::Corrupt(corrupt)
    }
}

/// What says in a ring's memory which of the peer's memory this side accesses directly. `M` keeps the ring mapped.
pub struct Direct<M> {
    region: Region<M>,
}

impl<M> Direct<M> {
    /// As [`Producer::begin_direct`].
    #[inline]
    pub fn begin(&self, name: u64) {
        begin_direct(&self.region, name);
    }

    /// As [`Producer::end_direct`].
    #[inline]
    pub fn end(&self) {
        end_direct(&self.region);
    }
}

#[inline]
fn begin_direct<M>(region: &Region<M>, name: u64) {
    region.direct().store(name, Ordering::Relaxed);
    // Pairs with the fence of who takes the permission back: either we see that it is gone, or the owner sees us.
    fence(Ordering::SeqCst);
}

#[inline]
fn end_direct<M>(region: &Region<M>) {
    // Pairs with the Acquire in `Consumer::direct_now`: all that we wrote is there.
    region.direct().store(0, Ordering::Release);
}

/// The end of a ring that writes records. `M` keeps the memory mapped.
pub struct Producer<M> {
    region: Region<M>,
    payload_bytes_max: u32,
    /// The longest payload of a record of one line.
    short_bytes_max: u32,
    tail: u64,
    /// The first word of each line in `tail..zeroed` is zero; always beyond `tail`.
    zeroed: u64,
    /// Up to where we may write: the last read position seen plus the size of the data.
    limit: u64,
    /// This side does not fence before it looks whether the consumer sleeps.
    has_light_fences: bool,
}

impl<M> Producer<M> {
    /// Takes the producing end of the ring in `base..base + len_bytes`, whose payloads are at most
    /// `payload_bytes_max` bytes long; `owner` keeps it mapped.
    ///
    /// # Safety
    ///
    /// - The memory is readable and writable, and stays so as long as `owner` lives, wherever `owner` is moved to.
    /// - It was zero when the ring was made and nothing of this process writes to it but this producer and at most
    ///   one [`Consumer`](super::Consumer); no `&[u8]` or `&mut [u8]` to it exists in this process.
    /// - This is the only producer that is ever made for it.
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
        Ok(Producer::in_region(region, payload_bytes_max))
    }

    pub(super) fn in_region(region: Region<M>, payload_bytes_max: u32) -> Self {
        // The memory is zero, hence so is the word at position 0.
        let limit = region.data_bytes();
        let short_bytes_max = payload_bytes_max.min(LINE_PAYLOAD_BYTES as u32);
        Producer {
            region,
            payload_bytes_max,
            short_bytes_max,
            tail: 0,
            zeroed: LINE,
            limit,
            has_light_fences: false,
        }
    }

    /// Writes a record whose payload is the segments, one after the other, and makes it visible.
    ///
    /// A consumer that sleeps is not woken: see [`needs_wake`](Self::needs_wake), once after a batch.
    ///
    /// # Errors
    ///
    /// [`PushError`] says why; nothing was written.
    #[inline(always)]
    pub fn push(&mut self, header: RecordHeader, segments: &[&[u8]]) -> Result<Span, PushError> {
        if let [message] = segments
            && message.len() <= self.short_bytes_max as usize
            && self.tail + 2 * LINE <= self.limit
        {
            return Ok(self.push_line(header, message));
        }
        self.push_any(header.words(), segments)
    }

    /// Writes a record of one line, for which there is space, with the line behind it: a line never lies across the end.
    #[inline(always)]
    fn push_line(&mut self, header: RecordHeader, message: &[u8]) -> Span {
        let (start, end) = (self.tail, self.tail + LINE);
        self.zero_behind(end);
        // SAFETY: the space between the tail and the limit is ours, and unpublished.
        unsafe { self.region.lines().write_line(start, message) };
        self.publish_at(header, start, message.len());
        self.tail = end;
        // One line is enough here: each record takes one.
        if self.zeroed < self.tail + ZERO_AHEAD_BYTES && self.zeroed + LINE <= self.limit {
            self.zero_line();
        }
        if self.tail + FETCH_AHEAD_BYTES < self.limit {
            self.region.prefetch_for_write(self.tail + FETCH_AHEAD_BYTES);
        }
        Span::of_alike(end, 1, LINE)
    }

    /// Writes records of one line each, which all carry `header`, and makes them visible together: as many of `messages` from the first
    /// on as fit such a record, have no more than `len_max` bytes, and find space, up to `records_max` and a few dozen. Answers where
    /// they lie, and the bytes of the messages. None: not even the first.
    ///
    /// # Errors
    ///
    /// [`Corrupt::Head`] as from [`consumed`](Self::consumed).
    #[inline(always)]
    pub fn push_lines(
        &mut self,
        header: RecordHeader,
        messages: &[&[u8]],
        len_max: u32,
        records_max: u32,
    ) -> Result<Option<(Span, u64)>, Corrupt> {
        self.push_lines_of(header.words(), messages, len_max, records_max)
    }

    // Never inlined: what is around it would take the registers that its loop needs.
    #[inline(never)]
    fn push_lines_of(
        &mut self,
        header: Words,
        messages: &[&[u8]],
        len_max: u32,
        records_max: u32,
    ) -> Result<Option<(Span, u64)>, Corrupt> {
        let header = RecordHeader::from_words(header);
        let wanted = messages.len().min(records_max as usize).min(RECORDS_PER_RUN_MAX) as u64;
        // One line more than the records: the word behind them is ours to zero.
        let mut lines = (self.limit - self.tail) / LINE;
        if lines <= wanted {
            self.consumed()?;
            lines = (self.limit - self.tail) / LINE;
        }
        let len_max = (self.short_bytes_max.min(len_max) as usize).min(LINE_PAYLOAD_BYTES);
        let count = wanted.min(lines.saturating_sub(1)) as usize;
        let Some((first, rest)) = messages.get(..count).and_then(<[_]>::split_first) else { return Ok(None) };
        if first.len() > len_max {
            return Ok(None);
        }
        let start = self.tail;
        let ring = self.region.lines();
        // SAFETY: the space between the tail and the limit is ours, and unpublished.
        let (more, more_bytes) = unsafe {
            ring.write_line(start, first);
            write_lines(ring, header, start + LINE, rest, len_max)
        };
        let (end, bytes) = (start + LINE + more, first.len() as u64 + more_bytes);
        self.zero_behind(end);
        // All records and the zero behind them are visible with the first.
        self.publish_at(header, start, first.len());
        self.tail = end;
        self.zero_ahead();
        Ok(Some((Span::of_alike(end, ((end - start) / LINE) as u32, LINE), bytes)))
    }

    /// Writes records that take as many lines each as the first, and lie one right behind the other, and makes them visible together: as
    /// many of `messages` from the first on as are of that size, have no more than `len_max` bytes, and find space, up to `records_max`
    /// and a few KiB. A consumer that polls for the first would otherwise take the line of each from this side while it is written.
    /// Answers where they lie, and the bytes of the messages. None: not even the first.
    ///
    /// # Errors
    ///
    /// [`Corrupt::Head`] as from [`consumed`](Self::consumed).
    #[inline(always)]
    pub fn push_alike(
        &mut self,
        header: RecordHeader,
        messages: &[&[u8]],
        len_max: u32,
        records_max: u32,
    ) -> Result<Option<(Span, u64)>, Corrupt> {
        self.push_alike_of(header.words(), messages, len_max, records_max)
    }

    #[inline(never)]
    fn push_alike_of(
        &mut self,
        header: Words,
        messages: &[&[u8]],
        len_max: u32,
        records_max: u32,
    ) -> Result<Option<(Span, u64)>, Corrupt> {
        let header = RecordHeader::from_words(header);
        let count = messages.len().min(records_max as usize);
        let Some((first, rest)) = messages.get(..count).and_then(<[_]>::split_first) else { return Ok(None) };
        let len_max = self.payload_bytes_max.min(len_max) as usize;
        if first.len() > len_max {
            return Ok(None);
        }
        let (start, first_end) = match self.begin(first.len()) {
            Ok(place) => place,
            Err(PushError::Full | PushError::TooLong) => return Ok(None),
            Err(PushError::Corrupt(corrupt)) => return Err(corrupt),
        };
        let each = first_end - start;
        // The others end before the data does, and leave the line behind them free, as the first one does.
        let wrap = (start & !(self.region.data_bytes() - 1)) + self.region.data_bytes();
        let end_max = wrap.min(self.limit - LINE).min(start + RUN_BYTES_MAX);
        let (mut end, mut bytes) = (first_end, first.len() as u64);
        for message in rest {
            if super::record_bytes(message.len()) as u64 != each
                || message.len() > len_max
                || end + each > end_max
            {
                break;
            }
            // SAFETY: the space between the tail and the limit is ours, and unpublished.
            unsafe { self.region.write(end, &[message], message.len()) };
            // Relaxed: the consumer looks at what is behind the first record only after it has seen that.
            self.region.tag(end).store(header.tag(), Ordering::Relaxed);
            let word = word::encode(end, message.len() as u32, header);
            self.region.word(end).store(word, Ordering::Relaxed);
            end += each;
            bytes += message.len() as u64;
        }
        // SAFETY: the space between the tail and the limit is ours, and unpublished.
        unsafe { self.region.write(start, &[first], first.len()) };
        self.zero_behind(end);
        self.publish(header, (start, end), first.len());
        Ok(Some((Span::of_alike(end, ((end - start) / each) as u32, each), bytes)))
    }

    #[inline(never)]
    fn push_any(&mut self, header: Words, segments: &[&[u8]]) -> Result<Span, PushError> {
        let header = RecordHeader::from_words(header);
        let len_bytes = super::payload_bytes(segments);
        let (start, end) = self.begin(len_bytes)?;
        // SAFETY: the space between the tail and the limit is ours, and unpublished.
        unsafe { self.region.write(start, segments, len_bytes) };
        self.publish(header, (start, end), len_bytes);
        Ok(Span::of_alike(end, 1, end - start))
    }

    /// Writes a record like [`push`](Self::push), whose payload is `head`, and behind it all of `data`, which others may be
    /// changing.
    ///
    /// # Errors
    ///
    /// [`PushError`] says why; nothing was written.
    #[cfg(not(loom))]
    pub fn push_memory(
        &mut self,
        header: RecordHeader,
        head: &[u8],
        data: &crate::bytes::Bytes,
    ) -> Result<Span, PushError> {
        let len_bytes = head.len().saturating_add(data.len());
        let (start, end) = self.begin(len_bytes)?;
        let to = self.region.payload(start, 0, len_bytes);
        let written = to.write(0, head) && to.copy_from(head.len(), data, 0, data.len());
        debug_assert!(written, "the payload has that length");
        self.publish(header, (start, end), len_bytes);
        Ok(Span::of_alike(end, 1, end - start))
    }

    /// Finds space for a record, and zeroes the word behind it. Answers where it starts and ends.
    #[inline(always)]
    fn begin(&mut self, len_bytes: usize) -> Result<(u64, u64), PushError> {
        if len_bytes > self.payload_bytes_max as usize {
            return Err(PushError::TooLong);
        }
        let record_bytes = super::record_bytes(len_bytes) as u64;
        let to_end = self.region.data_bytes() - (self.tail & (self.region.data_bytes() - 1));
        let (mut start, mut end) = (self.tail, self.tail + record_bytes);
        // One line more than the record: the word behind it is ours to zero.
        if record_bytes > to_end || end + LINE > self.limit {
            start = if record_bytes <= to_end { self.tail } else { self.tail + to_end };
            end = start + record_bytes;
            self.look_for_space(end)?;
        }
        self.zero_behind(end);
        Ok((start, end))
    }

    /// Zeroes the word behind a record that ends at `end`, if that was not done before.
    #[inline(always)]
    fn zero_behind(&mut self, end: u64) {
        if self.zeroed <= end {
            // Relaxed: the Release in `publish_at` is what shows it to the consumer.
            self.region.word(end).store(0, Ordering::Relaxed);
            self.zeroed = end + LINE;
        }
    }

    /// Looks whether there is space up to `end` and the line behind it, if need be by how far the consumer has come by now.
    #[cold]
    fn look_for_space(&mut self, end: u64) -> Result<(), PushError> {
        if end + LINE > self.limit {
            self.consumed()?;
        }
        if end + LINE > self.limit { Err(PushError::Full) } else { Ok(()) }
    }

    /// Makes a record visible whose payload is written.
    #[inline(always)]
    fn publish(&mut self, header: RecordHeader, (start, end): (u64, u64), len_bytes: usize) {
        self.publish_at(header, start, len_bytes);
        if start != self.tail {
            // The record becomes visible with the PAD that leads to it.
            self.region.word(self.tail).store(word::encode_pad(self.tail), Ordering::Release);
        }
        self.tail = end;
        self.zero_ahead();
    }

    #[inline(always)]
    fn publish_at(&self, header: RecordHeader, start: u64, len_bytes: usize) {
        self.region.tag(start).store(header.tag(), Ordering::Relaxed);
        // Pairs with the Acquire in `Consumer::peek`: payload, tag and the zero behind the record are visible with it.
        self.region.word(start).store(word::encode(start, len_bytes as u32, header), Ordering::Release);
    }

    /// Bytes that are free for records, by the consumer's last known position, which is read anew when they are fewer than
    /// `enough_bytes`. A record takes whole lines, and perhaps a PAD in front of it.
    ///
    /// # Errors
    ///
    /// [`Corrupt::Head`] as from [`consumed`](Self::consumed).
    pub fn free_bytes(&mut self, enough_bytes: u64) -> Result<u64, Corrupt> {
        if self.limit - self.tail < enough_bytes {
            self.consumed()?;
        }
        Ok(self.limit - self.tail)
    }

    /// Says that this side is about to write directly to memory of the peer's that the two know by `name` (not 0). It
    /// then looks, once more, whether it still may; see "Direct access" in the module documentation.
    #[inline]
    pub fn begin_direct(&self, name: u64) {
        begin_direct(&self.region, name);
    }

    /// Ends what [`begin_direct`](Self::begin_direct) began.
    #[inline]
    pub fn end_direct(&self) {
        end_direct(&self.region);
    }

    /// What begins and ends direct access without the producer: for use between its calls, by the same thread.
    pub fn direct(&self) -> Direct<M>
    where
        M: Clone,
    {
        Direct { region: self.region.share() }
    }

    /// Fetches the line that the next record will need; a hint, worth its while when a message has just come in that is
    /// likely to be answered. (The peer polls that line, which takes it away from us: fetching it back is a third of
    /// the time of a short message, and this does it while the message is handled.)
    #[inline]
    pub fn prefetch(&self) {
        self.region.prefetch_for_write(self.tail);
    }

    /// Makes a record of several lines, which was written alone, reach a consumer sooner that may wait for it: moves it to a cache that
    /// both sides share, and makes the lines of a next one of its size ready. In a stream this would cost several times what it saves.
    #[inline]
    pub fn hasten(&mut self, record: Span) {
        let record_bytes = record.end() - record.start();
        if (LINE + 1..=HASTENED_BYTES_MAX).contains(&record_bytes) {
            self.region.demote(record.start(), record.end());
            if record_bytes <= READY_BYTES_MAX {
                self.zero_up_to(self.tail + record_bytes + LINE);
            }
        }
    }

    /// Zeroes the words that the next record will need, as far as known to be consumed.
    #[inline(always)]
    fn zero_ahead(&mut self) {
        self.zero_up_to(self.tail + ZERO_AHEAD_BYTES);
    }

    #[inline(always)]
    fn zero_up_to(&mut self, end: u64) {
        while self.zeroed < end && self.zeroed + LINE <= self.limit {
            self.zero_line();
        }
    }

    #[inline(always)]
    fn zero_line(&mut self) {
        self.region.word(self.zeroed).store(0, Ordering::Relaxed);
        self.zeroed += LINE;
    }

    /// The position up to which the consumer says it has consumed, in bytes.
    ///
    /// # Errors
    ///
    /// [`Corrupt::Head`] if that can't be.
    #[inline]
    pub fn consumed(&mut self) -> Result<u64, Corrupt> {
        // Pairs with the Release in `Consumer::publish_head`: what lies before it has been read.
        let head = self.region.head().load(Ordering::Acquire);
        let seen = self.limit - self.region.data_bytes();
        if head < seen || head > self.tail || !head.is_multiple_of(LINE) {
            return Err(Corrupt::Head);
        }
        self.limit = head + self.region.data_bytes();
        Ok(head)
    }

    /// The position behind the last record pushed, in bytes.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// The longest payload, in bytes.
    pub fn payload_bytes_max(&self) -> u32 {
        self.payload_bytes_max
    }

    /// Has light fences in [`needs_wake`](Self::needs_wake) and [`needs_progress_wake`](Self::needs_progress_wake) from now on, if the consumer
    /// can make heavy ones. It makes one whenever it goes to sleep, so this is for streams. The caller's process is registered for heavy
    /// fences; see "Sleeping" in the module documentation.
    #[cold]
    pub fn begin_light_fences(&mut self) {
        if self.region.heavy().load(Ordering::Relaxed) == 0 {
            return;
        }
        self.region.light().store(1, Ordering::Relaxed);
        // Pairs with the fence in `Consumer::arm`: if the consumer does not see the word, we see that it sleeps.
        fence(Ordering::SeqCst);
        self.has_light_fences = true;
    }

    /// Ends what [`begin_light_fences`](Self::begin_light_fences) began.
    #[cold]
    pub fn end_light_fences(&mut self) {
        self.has_light_fences = false;
        // Pairs with the Acquire in `Consumer::arm`, which then sees all that we have pushed and published.
        self.region.light().store(0, Ordering::Release);
    }

    /// Whether this side looks without fences.
    #[inline(always)]
    pub fn has_light_fences(&self) -> bool {
        self.has_light_fences
    }

    /// Orders our stores before a look at whether the consumer sleeps.
    #[inline(always)]
    fn before_look(&self) {
        if self.has_light_fences {
            // The processor's fence is the consumer's to have.
            compiler_fence(Ordering::SeqCst);
        } else {
            // Pairs with the fence in `Consumer::arm`: one of us sees the other's store.
            fence(Ordering::SeqCst);
        }
    }

    /// Whether the consumer sleeps and must be woken for the records pushed; call it once after each batch.
    ///
    /// `true` is given once for each time that the consumer armed: whoever gets it must do the waking.
    #[must_use = "nobody else will wake the consumer"]
    #[inline]
    pub fn needs_wake(&self) -> bool {
        self.before_look();
        let attention = self.region.attention();
        attention.load(Ordering::Relaxed) != ATTENTION_NONE
            && attention.swap(ATTENTION_NONE, Ordering::Relaxed) != ATTENTION_NONE
    }

    /// A hint, without a fence, that the peer may be asleep: cheap enough for after every push. `false` proves
    /// nothing but [without fences](Self::has_light_fences); [`needs_wake`](Self::needs_wake) is still due once after the batch.
    #[inline]
    pub fn peer_may_sleep(&self) -> bool {
        compiler_fence(Ordering::SeqCst);
        self.region.attention().load(Ordering::Relaxed) != ATTENTION_NONE
    }

    /// Whether the peer sleeps until records that *it* pushed on the opposite ring are consumed; call it once after
    /// [`Consumer::publish_head`](super::Consumer::publish_head) of that ring. `true` as in
    /// [`needs_wake`](Self::needs_wake).
    #[must_use = "nobody else will wake the peer"]
    pub fn needs_progress_wake(&self) -> bool {
        self.before_look();
        let attention = self.region.attention();
        attention.load(Ordering::Relaxed) == ATTENTION_PROGRESS
            && attention.swap(ATTENTION_NONE, Ordering::Relaxed) != ATTENTION_NONE
    }

    /// Whether the consumer says that it can't take the record at its read position (receiver not ready).
    pub fn is_stalled(&self) -> bool {
        // Any other word is no excuse: only this one can be answered by taking records back.
        self.region.stall().load(Ordering::Relaxed) == STALL_ON
    }

    /// Stops a consumer that is stalled from going on, so that records can be taken back; `None` if it is not stalled.
    ///
    /// # Errors
    ///
    /// [`Corrupt::Head`] as from [`consumed`](Self::consumed).
    pub fn try_cancel(&mut self) -> Result<Option<CancelGuard<'_, M>>, Corrupt> {
        // Acquire pairs with the Release in `Consumer::stall`: the head we read next is where it stands.
        let stall = self.region.stall();
        if stall.compare_exchange(STALL_ON, STALL_CANCELLING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Ok(None);
        }
        let mut guard = CancelGuard { producer: self, head: 0 };
        guard.head = guard.producer.consumed()?;
        Ok(Some(guard))
    }
}

/// Writes records of one line each from `start` on, words and all, up to the first message that is longer than `len_max` bytes. Answers
/// the bytes of the records and of the messages.
///
/// # Safety
///
/// The caller is the producer. It has space for as many records, and none of them is visible.
// Never inlined: what is around it would take the registers that the loop needs.
#[inline(never)]
unsafe fn write_lines(
    ring: Lines<'_>,
    header: RecordHeader,
    start: u64,
    messages: &[&[u8]],
    len_max: usize,
) -> (u64, u64) {
    let len_max = len_max.min(LINE_PAYLOAD_BYTES);
    let (expected, tag) = (word::kind_and_flags(header) | word::Checks::CONSTANT, header.tag());
    let mut checks = word::Checks::from(start);
    let (mut end, mut bytes) = (start, 0);
    for message in messages {
        if message.len() > len_max {
            break;
        }
        // SAFETY: the caller's promise.
        unsafe { ring.write_line(end, message) };
        // Relaxed: the consumer looks at what is behind the first record only after it has seen that.
        ring.tag(end).store(tag, Ordering::Relaxed);
        ring.word(end).store(checks.next() | expected | message.len() as u64, Ordering::Relaxed);
        end += LINE;
        bytes += message.len() as u64;
    }
    (end - start, bytes)
}

/// While it lives the consumer takes nothing.
pub struct CancelGuard<'a, M> {
    producer: &'a mut Producer<M>,
    head: u64,
}

impl<M> CancelGuard<'_, M> {
    /// Where the consumer stands: it has taken what is before, and will not move while this value lives.
    pub fn consumed(&self) -> u64 {
        self.head
    }

    /// Takes back the records of a run that the consumer has not taken, and takes them out of it. Answers how many.
    pub fn void_run(&mut self, run: &mut Span) -> u32 {
        let mut voided = 0;
        let mut left = *run;
        while left.pop().is_some_and(|record| self.void(record)) {
            *run = left;
            voided += 1;
        }
        voided
    }

    /// Takes back a record that this producer pushed. `true`: it was not delivered and never will be. `false`: the
    /// consumer has already taken it.
    pub fn void(&mut self, record: Span) -> bool {
        let start = record.start();
        if start < self.head || record.end() > self.producer.tail {
            return false;
        }
        // Relaxed: the Release in `drop` shows it to the consumer, which reads the word again when it goes on.
        self.producer.region.word(start).fetch_or(word::VOID, Ordering::Relaxed);
        true
    }
}

impl<M> Drop for CancelGuard<'_, M> {
    fn drop(&mut self) {
        // Pairs with the Acquire in `Consumer::resume`.
        self.producer.region.stall().store(STALL_ON, Ordering::Release);
    }
}
