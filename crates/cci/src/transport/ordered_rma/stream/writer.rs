//! The way out.

use super::{BATCH_BYTES, ByteStream, COPY_BYTES_MAX, DATA_BYTES_MAX, Ended, LENGTH_BYTES};
use crate::transport::ordered_rma::{Channel, Pushed};
use cci_memory::bytes::Bytes;
use cci_memory::fallible;

/// Writes that take less than this are put off for a few polls.
const WRITE_BYTES_MIN: usize = 32 << 10;
const WAIT_POLLS_MAX: u32 = 32;

/// What has not left yet: a batch of short records and heads, and behind it the rest of one record's data, where it lies.
#[derive(Default)]
pub(crate) struct Writer {
    batch: Vec<u8>,
    /// Up to here the batch has been sent.
    sent_bytes: usize,
    tail: Option<Bytes>,
    /// The rest of a record is gone: there was no memory to copy it to. The stream is of no use any more.
    broken: bool,
    /// The last write took less than was asked, so little that the next one is not tried for so many polls.
    wait_polls: u32,
    next_wait_polls: u32,
    /// What may be written in this poll yet.
    quota_bytes: usize,
    /// Writes, and bytes that they took; of these, copied first.
    pub writes: u64,
    pub bytes: u64,
    pub copied_bytes: u64,
}

impl Writer {
    /// Everything has left.
    pub fn is_empty(&self) -> bool {
        self.tail.is_none() && self.sent_bytes == self.batch.len()
    }

    /// Bytes held.
    pub fn held_bytes(&self) -> u64 {
        self.batch.capacity() as u64
    }

    /// Writes what has not left. True: now all has.
    pub fn flush(&mut self, stream: &mut impl ByteStream) -> Result<bool, Ended> {
        if self.broken {
            return Err(Ended);
        }
        while !self.is_empty() {
            if self.quota_bytes == 0 {
                return Ok(false);
            }
            let batch = self.batch.get(self.sent_bytes..).unwrap_or_default();
            let batch = batch.get(..self.quota_bytes).unwrap_or(batch);
            let batch_bytes = batch.len();
            let tail_bytes = self.tail.map_or(0, |tail| tail.len()).min(self.quota_bytes - batch_bytes);
            let part = self.tail.and_then(|tail| tail.part(0, tail_bytes)).filter(|part| !part.is_empty());
            let taken = stream.write(batch, part.as_ref())?;
            self.quota_bytes = self.quota_bytes.saturating_sub(taken);
            self.writes += 1;
            self.bytes += taken as u64;
            self.sent_bytes += taken.min(batch_bytes);
            let of_tail = taken.saturating_sub(batch_bytes);
            if let Some(tail) = self.tail {
                let remainder = tail.len().saturating_sub(of_tail);
                self.tail = tail.part(of_tail, remainder).filter(|remainder| !remainder.is_empty());
            }
            if taken < batch_bytes + tail_bytes {
                self.wait(taken);
                return Ok(false);
            }
            (self.wait_polls, self.next_wait_polls) = (0, 1);
        }
        self.batch.clear();
        self.sent_bytes = 0;
        Ok(true)
    }

    /// A program that polls would otherwise write each few bytes for which there is room.
    fn wait(&mut self, taken: usize) {
        self.next_wait_polls =
            if taken < WRITE_BYTES_MIN { (self.next_wait_polls * 2).clamp(1, WAIT_POLLS_MAX) } else { 1 };
        self.wait_polls = self.next_wait_polls;
    }

    /// Called once in every poll: whether a write is worth trying, of no more than so many bytes.
    pub fn may_try(&mut self, quota_bytes: usize) -> bool {
        self.quota_bytes = quota_bytes;
        self.wait_polls = self.wait_polls.saturating_sub(1);
        self.wait_polls == 0
    }

    /// The stream has no space.
    pub fn is_full(&self) -> bool {
        self.wait_polls > 0
    }

    /// There is space again.
    pub fn space_came(&mut self) {
        self.wait_polls = 0;
    }

    /// Lets go of the buffer while there is nothing to be written.
    pub fn release(&mut self) {
        if self.is_empty() {
            (self.batch, self.sent_bytes) = (Vec::new(), 0);
        }
    }

    /// Holds no more than what has not left.
    pub fn trim(&mut self) {
        let remaining = self.batch.get(self.sent_bytes..).unwrap_or_default();
        // Without memory for a shorter one, the long one stays.
        if let Ok(mut short) = fallible::vec(remaining.len()) {
            short.extend_from_slice(remaining);
            (self.batch, self.sent_bytes) = (short, 0);
        }
    }

    /// This memory goes: what is to be written of it is copied. No more than one record.
    pub fn memory_goes(&mut self, memory: &Bytes) {
        let Some(tail) = self.tail else { return };
        let range = |bytes: &Bytes| {
            let start = bytes.as_ptr().addr().get();
            start..start + bytes.len()
        };
        let (goes, needed) = (range(memory), range(&tail));
        if goes.start < needed.end && needed.start < goes.end {
            self.tail = None;
            self.broken = self.batch.try_reserve(tail.len()).is_err();
            if !self.broken {
                self.append_memory(&tail);
            }
        }
    }

    fn append_memory(&mut self, data: &Bytes) {
        let at = self.batch.len();
        self.batch.resize(at + data.len(), 0);
        self.copied_bytes += data.len() as u64;
        if let Some(space) = self.batch.get_mut(at..) {
            let all = data.read(0, space);
            debug_assert!(all, "it is as long as that");
        }
    }

    /// Makes space for so many bytes behind what is there; not for more than a batch, but always for one record.
    fn make_space(&mut self, stream: &mut impl ByteStream, len_bytes: usize) -> Result<bool, Ended> {
        if self.tail.is_some() && !self.flush(stream)? {
            return Ok(false);
        }
        if self.batch.len() + len_bytes <= BATCH_BYTES {
            // Without memory for it, it is as if the stream had no room.
            let missing = BATCH_BYTES - self.batch.len();
            return Ok(self.batch.capacity() >= BATCH_BYTES || self.batch.try_reserve_exact(missing).is_ok());
        }
        self.flush(stream)
    }

    fn append(&mut self, head: &[u8], remainder: &[u8], data_bytes: usize) {
        let len_bytes = (head.len() + remainder.len() + data_bytes) as u32;
        self.batch.extend_from_slice(&len_bytes.to_le_bytes());
        self.batch.extend_from_slice(head);
        self.batch.extend_from_slice(remainder);
        self.copied_bytes += remainder.len() as u64;
    }

    fn push(&mut self, stream: &mut impl ByteStream, head: &[u8], remainder: &[u8]) -> Result<bool, Ended> {
        let space = self.make_space(stream, LENGTH_BYTES + head.len() + remainder.len())?;
        if space {
            self.append(head, remainder, 0);
        }
        Ok(space)
    }

    fn push_memory(
        &mut self,
        stream: &mut impl ByteStream,
        head: &[u8],
        data: &Bytes,
    ) -> Result<bool, Ended> {
        let copied = if data.len() <= COPY_BYTES_MAX { data.len() } else { 0 };
        if !self.make_space(stream, LENGTH_BYTES + head.len() + copied)? {
            return Ok(false);
        }
        self.append(head, &[], data.len());
        if copied > 0 {
            self.append_memory(data);
            return Ok(true);
        }
        self.tail = Some(*data);
        self.flush(stream)?;
        Ok(true)
    }
}

/// The path to the peer of one connection, as long as a call lasts.
pub(crate) struct StreamChannel<'a, S> {
    pub stream: &'a mut S,
    pub writer: &'a mut Writer,
    /// Messages that the peer has taken, by the transport's count: what fences wait for beside the answers.
    pub taken: u64,
}

fn pushed(result: Result<bool, Ended>) -> Pushed {
    match result {
        Ok(true) => Pushed::Yes,
        Ok(false) => Pushed::Full,
        Err(Ended) => Pushed::Broken,
    }
}

impl<S: ByteStream> Channel for StreamChannel<'_, S> {
    const ASKS_AGAIN: bool = true;
    const TAKES_TURNS: bool = true;

    fn push(&mut self, head: &[u8], remainder: &[u8]) -> Pushed {
        pushed(self.writer.push(self.stream, head, remainder))
    }

    fn push_memory(&mut self, head: &[u8], data: &Bytes) -> Pushed {
        pushed(self.writer.push_memory(self.stream, head, data))
    }

    fn data_bytes_max(&self) -> usize {
        DATA_BYTES_MAX
    }

    fn has_space_for_bulk(&mut self) -> bool {
        // While a record's data is on its way, all others wait behind it.
        self.writer.tail.is_none() || self.writer.flush(self.stream) == Ok(true)
    }

    fn is_taken(&mut self, position: u64) -> bool {
        self.taken >= position
    }
}
