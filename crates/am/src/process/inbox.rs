//! Messages that have come and were not handled yet.

use crate::limits::RECORD_BYTES_MAX;
use crate::wire::WholeHead;

/// Records of several messages lie in one of these.
const CHUNK_BYTES: usize = 8 * RECORD_BYTES_MAX;
const _: () = assert!(CHUNK_BYTES < u32::MAX as usize, "an entry has 32 bits for a place");
/// Data begins at multiples of so many bytes.
const ALIGN_BYTES: usize = 16;
/// Chunks that are kept for later when they are empty.
const CHUNKS_KEPT: usize = 8;

/// Records in the order in which they came, copied to where their data is aligned.
#[derive(Default)]
pub(crate) struct Inbox {
    chunks: Vec<Chunk>,
    /// The chunk that is being filled.
    filling: usize,
    entries: Vec<Entry>,
    /// So many of these were taken out.
    taken: usize,
    /// One that lies elsewhere: it has waited, or came in parts.
    pub alone: Option<Aligned>,
}

struct Chunk {
    bytes: Box<[u8]>,
    /// The first byte that is aligned.
    start: usize,
    /// The first byte that is free and aligned. It may be behind the end.
    end: usize,
}

/// Where a record is, and whose it is.
#[derive(Copy, Clone)]
pub(crate) struct Entry {
    pub rank: u32,
    chunk: u32,
    at: u32,
    len: u32,
    /// What a whole message begins with.
    pub whole: Option<WholeHead>,
}

/// One record by itself, its data aligned as in an inbox.
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

    /// Makes space for a record of so many bytes. None: there is none.
    #[inline(always)]
    fn reserve(&mut self, len: usize) -> Option<(usize, &mut [u8])> {
        let at = self.end;
        let space = self.bytes.get_mut(at..)?.get_mut(..len)?;
        self.end = at + len.next_multiple_of(ALIGN_BYTES);
        Some((at, space))
    }
}

impl Inbox {
    pub fn is_empty(&self) -> bool {
        self.taken == self.entries.len()
    }

    /// Adds a record of up to [`RECORD_BYTES_MAX`], whose bytes `fill` writes.
    #[inline(always)]
    pub fn push(&mut self, rank: u32, whole: Option<WholeHead>, len: usize, fill: impl FnOnce(&mut [u8])) {
        loop {
            let chunk = self.filling;
            if let Some((at, space)) = self.chunks.get_mut(chunk).and_then(|chunk| chunk.reserve(len)) {
                fill(space);
                let (chunk, at, len) = (chunk as u32, at as u32, len as u32);
                return self.entries.push(Entry { rank, chunk, at, len, whole });
            }
            self.fill_next();
        }
    }

    /// The chunk that is being filled has no space, or there is none yet.
    #[cold]
    fn fill_next(&mut self) {
        if self.filling < self.chunks.len() {
            self.filling += 1;
        }
        if self.filling == self.chunks.len() {
            self.chunks.push(Chunk::new(CHUNK_BYTES));
        }
    }

    /// Takes the first record out of the row. Its bytes stay until [`Inbox::clear`].
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Entry> {
        let entry = *self.entries.get(self.taken)?;
        self.taken += 1;
        Some(entry)
    }

    #[inline(always)]
    pub fn bytes(&self, entry: Entry) -> &[u8] {
        let chunk = self.chunks.get(entry.chunk as usize).map_or(&[][..], |chunk| &chunk.bytes);
        chunk.get(entry.at as usize..).and_then(|rest| rest.get(..entry.len as usize)).unwrap_or_default()
    }

    /// Forgets all, and keeps some memory for what comes.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.entries.clear();
        self.taken = 0;
        if let Some(first) = self.chunks.first_mut() {
            first.end = first.start;
        }
        if self.filling > 0 || self.alone.is_some() {
            self.clear_more();
        }
    }

    #[cold]
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

    #[test]
    fn records_come_as_they_went_and_aligned() {
        let mut inbox = Inbox::default();
        for round in 0..3 {
            for number in 0..200_usize {
                let record = [vec![number as u8; number * 30], vec![7; number * 10]].concat();
                inbox.push(number as u32, None, record.len(), |space| space.copy_from_slice(&record));
            }
            for number in 0..200_usize {
                let entry = inbox.pop().unwrap();
                let whole = [vec![number as u8; number * 30], vec![7; number * 10]].concat();
                let got = inbox.bytes(entry);
                assert_eq!((entry.rank, got), (number as u32, &whole[..]), "{round}");
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
