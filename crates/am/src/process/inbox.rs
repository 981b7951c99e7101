//! Messages that have come and were not handled yet.

use crate::limits::RECORD_BYTES_MAX;
use crate::wire::WholeHead;

/// Size of a chunk, which holds records of several messages.
const CHUNK_BYTES: usize = 8 * RECORD_BYTES_MAX;
const _: () = assert!(CHUNK_BYTES < u32::MAX as usize, "an entry has 32 bits for a place");
/// Data begin at multiples of this.
const ALIGN_BYTES: usize = 16;
/// The longest record that is stored in its entry.
const SHORT_BYTES: usize = 64;
/// Empty chunks that are kept for later.
const CHUNKS_KEPT: usize = 8;

/// Records in the order in which they came, copied to places where their data are aligned.
#[derive(Default)]
pub(crate) struct Inbox {
    /// The first entries hold records. Those behind have held some, and are filled again.
    entries: Vec<Entry>,
    /// How many entries hold records.
    filled: usize,
    /// How many of these were taken out.
    taken: usize,
    /// Longer records.
    chunks: Vec<Chunk>,
    /// The chunk that is being filled.
    filling: usize,
    /// A record that is stored elsewhere: it has waited, or came in parts.
    pub alone: Option<Aligned>,
}

struct Chunk {
    bytes: Box<[u8]>,
    /// The first aligned byte.
    start: usize,
    /// The first byte that is free and aligned. It may be beyond the end.
    end: usize,
}

/// A record, or its place, and its rank.
#[repr(C, align(16))]
struct Entry {
    short: [u8; SHORT_BYTES],
    rank: u32,
    len: u32,
    /// The place of a longer record.
    chunk: u32,
    at: u32,
    is_whole: bool,
}

/// A record that was taken out of the queue.
#[derive(Copy, Clone)]
pub(crate) struct Taken(usize);

/// The first record of the queue.
pub(crate) struct First<'a> {
    entry: &'a Entry,
    chunks: &'a [Chunk],
    taken: &'a mut usize,
}

/// A single record, with its data aligned as in an inbox.
pub(crate) struct Aligned {
    chunk: Chunk,
    at: usize,
    len: usize,
}

impl Aligned {
    pub fn new(record: &[u8]) -> Aligned {
        let (mut chunk, len) = (Chunk::new(record.len()), record.len());
        let at = match chunk.reserve(len) {
            Some((at, space)) => {
                space.copy_from_slice(record);
                at
            }
            None => 0,
        };
        Aligned { chunk, at, len }
    }

    pub fn bytes(&self) -> &[u8] {
        self.chunk.bytes.get(self.at..self.at + self.len).unwrap_or_default()
    }
}

impl Chunk {
    fn new(len: usize) -> Chunk {
        let bytes = vec![0; len + ALIGN_BYTES].into_boxed_slice();
        let start = bytes.as_ptr().align_offset(ALIGN_BYTES).min(ALIGN_BYTES);
        Chunk { bytes, start, end: start }
    }

    /// Reserves space for a record of this length. `None` if there is none.
    fn reserve(&mut self, len: usize) -> Option<(usize, &mut [u8])> {
        let at = self.end;
        let space = self.bytes.get_mut(at..)?.get_mut(..len)?;
        self.end = at + len.next_multiple_of(ALIGN_BYTES);
        Some((at, space))
    }
}

impl Entry {
    #[inline(always)]
    fn bytes<'a>(&'a self, chunks: &'a [Chunk]) -> &'a [u8] {
        match self.short.get(..self.len as usize) {
            Some(short) => short,
            None => self.long(chunks),
        }
    }

    #[inline(never)]
    fn long<'a>(&self, chunks: &'a [Chunk]) -> &'a [u8] {
        let chunk = chunks.get(self.chunk as usize).map_or(&[][..], |chunk| &chunk.bytes);
        chunk.get(self.at as usize..).and_then(|rest| rest.get(..self.len as usize)).unwrap_or_default()
    }
}

impl<'a> First<'a> {
    /// The rank that has sent it.
    #[inline(always)]
    pub fn rank(&self) -> u32 {
        self.entry.rank
    }

    /// The header of a whole message.
    #[inline(always)]
    pub fn whole(&self) -> Option<WholeHead> {
        self.entry.is_whole.then(|| WholeHead::of_checked(&self.entry.short))
    }

    /// Takes it out of the queue. Its bytes stay until [`Inbox::clear`].
    #[inline(always)]
    pub fn take(self) -> &'a [u8] {
        *self.taken += 1;
        self.entry.bytes(self.chunks)
    }
}

impl Inbox {
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.taken == self.filled
    }

    /// Adds a record of up to [`RECORD_BYTES_MAX`], which may be a whole message.
    #[inline(always)]
    pub fn push(&mut self, rank: u32, record: &[u8], is_whole: bool) {
        if self.filled == self.entries.len() {
            self.add_entry();
        }
        let Some(entry) = self.entries.get_mut(self.filled) else { return };
        self.filled += 1;
        (entry.rank, entry.len, entry.is_whole) = (rank, record.len() as u32, is_whole);
        match entry.short.get_mut(..record.len()) {
            Some(space) => space.copy_from_slice(record),
            None => self.push_long(record),
        }
    }

    #[cold]
    fn add_entry(&mut self) {
        let short = [0; SHORT_BYTES];
        self.entries.push(Entry { short, rank: 0, len: 0, chunk: 0, at: 0, is_whole: false });
    }

    /// Writes a longer record to a chunk, and its beginning and its place to the last entry.
    #[inline(never)]
    fn push_long(&mut self, record: &[u8]) {
        let (chunk, at) = self.push_to_chunk(record);
        if let Some(entry) = self.entries.get_mut(self.filled - 1) {
            (entry.chunk, entry.at) = (chunk, at);
            entry.short = *record.first_chunk().unwrap_or(&entry.short);
        }
    }

    /// Writes a record to a chunk. Returns its place.
    fn push_to_chunk(&mut self, record: &[u8]) -> (u32, u32) {
        loop {
            if let Some(chunk) = self.chunks.get_mut(self.filling)
                && let Some((at, space)) = chunk.reserve(record.len())
            {
                space.copy_from_slice(record);
                return (self.filling as u32, at as u32);
            }
            if self.filling < self.chunks.len() {
                self.filling += 1;
            }
            if self.filling == self.chunks.len() {
                self.chunks.push(Chunk::new(CHUNK_BYTES));
            }
        }
    }

    /// Takes the first record out of the queue. Its bytes stay until [`Inbox::clear`].
    pub fn pop(&mut self) -> Option<Taken> {
        let taken = self.taken;
        (taken < self.filled).then(|| {
            self.taken += 1;
            Taken(taken)
        })
    }

    /// The first record of the queue, which stays there.
    #[inline(always)]
    pub fn first(&mut self) -> Option<First<'_>> {
        let Inbox { entries, filled, taken, chunks, .. } = self;
        let entry = if *taken < *filled { entries.get(*taken)? } else { return None };
        Some(First { entry, chunks, taken })
    }

    /// The rank that has sent a record.
    pub fn rank(&self, taken: Taken) -> u32 {
        self.entries.get(taken.0).map_or(0, |entry| entry.rank)
    }

    pub fn bytes(&self, taken: Taken) -> &[u8] {
        self.entries.get(taken.0).map_or(&[], |entry| entry.bytes(&self.chunks))
    }

    /// Removes all records, and keeps some memory for new ones.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.filled = 0;
        self.taken = 0;
        if !self.chunks.is_empty() || self.alone.is_some() {
            self.clear_more();
        }
    }

    #[inline(never)]
    fn clear_more(&mut self) {
        self.alone = None;
        self.chunks.truncate(CHUNKS_KEPT);
        for chunk in &mut self.chunks {
            chunk.end = chunk.start;
        }
        self.filling = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Header, Kind};

    #[test]
    fn whole_messages_keep_their_headers_at_any_length() {
        let mut inbox = Inbox::default();
        // Records after the first six are written to the places of earlier ones.
        for (number, len) in [0, 1, 47, 48, 49, 3_000, 3_001, 0, 64, 2, 50, 48].into_iter().enumerate() {
            if number % 6 == 0 {
                inbox.clear();
            }
            let header = Header { handler: len as u16, value: len, ..Header::new(Kind::Message) };
            let record = [&header.encode()[..], &vec![3; len as usize]].concat();
            inbox.push(1, &record, true);
            let first = inbox.first().unwrap();
            let head = first.whole();
            assert_eq!((first.rank(), head), (1, WholeHead::of(&record)));
            assert_eq!(head.unwrap().content(first.take()).1, vec![3; len as usize]);
        }
        assert!(inbox.first().is_none());
        inbox.push(1, &Header::new(Kind::Part).encode(), false);
        assert_eq!(inbox.first().unwrap().whole(), None);
        assert!(inbox.pop().is_some() && inbox.pop().is_none());
    }

    #[test]
    fn records_come_as_they_went_and_aligned() {
        let mut inbox = Inbox::default();
        for round in 0..3 {
            for number in 0..200_usize {
                let record = [vec![number as u8; number * 30], vec![7; number * 10]].concat();
                inbox.push(number as u32, &record, false);
            }
            for number in 0..200_usize {
                let entry = inbox.pop().unwrap();
                let whole = [vec![number as u8; number * 30], vec![7; number * 10]].concat();
                let got = inbox.bytes(entry);
                assert_eq!((inbox.rank(entry), got), (number as u32, &whole[..]), "{round}");
                assert_eq!(got.as_ptr().align_offset(ALIGN_BYTES), 0);
                let alone = Aligned::new(&whole);
                assert_eq!(
                    (alone.bytes(), alone.bytes().as_ptr().align_offset(ALIGN_BYTES)),
                    (&whole[..], 0)
                );
            }
            assert!(inbox.pop().is_none() && inbox.is_empty());
            inbox.clear();
            assert!(inbox.chunks.len() <= CHUNKS_KEPT);
        }
    }
}
