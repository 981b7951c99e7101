//! Messages that have come and were not handled yet.

use crate::limits::RECORD_BYTES_MAX;
use crate::wire::Header;
use std::collections::VecDeque;

/// Records of several messages lie in one of these.
const CHUNK_BYTES: usize = 8 * RECORD_BYTES_MAX;
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
    entries: VecDeque<Entry>,
}

struct Chunk {
    bytes: Box<[u8]>,
    /// The first byte that is aligned.
    start: usize,
    /// The first byte that is free.
    end: usize,
}

/// Where a record is, and whose it is.
#[derive(Copy, Clone)]
pub(crate) struct Entry {
    pub rank: u32,
    /// What the record begins with.
    pub header: Header,
    chunk: usize,
    at: usize,
    len: usize,
}

/// One record by itself, its data aligned as in an inbox.
pub(crate) struct Aligned {
    chunk: Chunk,
    at: usize,
}

impl Aligned {
    pub fn new(record: &[u8]) -> Aligned {
        let mut chunk = Chunk::new(record.len());
        let at = match chunk.reserve(record.len()) {
            Some((at, space)) => {
                space.copy_from_slice(record);
                at
            }
            None => 0,
        };
        Aligned { chunk, at }
    }

    pub fn bytes(&self) -> &[u8] {
        self.chunk.bytes.get(self.at..self.chunk.end).unwrap_or_default()
    }
}

impl Chunk {
    fn new(len: usize) -> Chunk {
        let bytes = vec![0; len + ALIGN_BYTES].into_boxed_slice();
        let start = bytes.as_ptr().align_offset(ALIGN_BYTES).min(ALIGN_BYTES);
        Chunk { bytes, start, end: start }
    }

    /// Makes space for a record of so many bytes. None: there is none.
    #[inline]
    fn reserve(&mut self, len: usize) -> Option<(usize, &mut [u8])> {
        let at = self.start + (self.end - self.start).next_multiple_of(ALIGN_BYTES);
        let space = self.bytes.get_mut(at..at + len)?;
        self.end = at + len;
        Some((at, space))
    }
}

impl Inbox {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a record of up to [`RECORD_BYTES_MAX`], whose bytes `fill` writes.
    #[inline]
    pub fn push(&mut self, rank: u32, header: Header, len: usize, fill: impl FnOnce(&mut [u8])) {
        loop {
            let chunk = self.filling;
            match self.chunks.get_mut(chunk).map(|chunk| chunk.reserve(len)) {
                Some(Some((at, space))) => {
                    fill(space);
                    return self.entries.push_back(Entry { rank, header, chunk, at, len });
                }
                Some(None) => self.filling += 1,
                None => self.chunks.push(Chunk::new(CHUNK_BYTES)),
            }
        }
    }

    /// Takes the first record out of the row. Its bytes stay until [`Inbox::clear`].
    #[inline]
    pub fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }

    #[inline]
    pub fn bytes(&self, entry: Entry) -> &[u8] {
        let chunk = self.chunks.get(entry.chunk).map_or(&[][..], |chunk| &chunk.bytes);
        chunk.get(entry.at..entry.at + entry.len).unwrap_or_default()
    }

    /// Forgets all, and keeps some memory for what comes.
    #[inline]
    pub fn clear(&mut self) {
        self.entries.clear();
        for chunk in self.chunks.iter_mut().take(self.filling + 1) {
            chunk.end = chunk.start;
        }
        if self.filling >= CHUNKS_KEPT {
            self.chunks.truncate(CHUNKS_KEPT);
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
                let header = Header::new(crate::wire::Kind::Part);
                let record = [vec![number as u8; number * 30], vec![7; number * 10]].concat();
                inbox.push(number as u32, header, record.len(), |space| space.copy_from_slice(&record));
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
