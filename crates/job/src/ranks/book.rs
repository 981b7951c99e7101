//! Where the ranks are.

use super::hello::Ticket;
use crate::error::{JobError, Result};
use crate::limits::{OWN_BOOK_BYTES_MAX, TICKET_BYTES};
use crate::published;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Bytes of a place in the book.
const END_BYTES: usize = size_of::<u32>();
/// Nobody can change memory that has these, not even who has made it.
const FOR_EVER: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// The URI of every rank's endpoint: where each ends in the text, then the text.
pub struct Book {
    bytes: Bytes,
    size: u32,
}

enum Bytes {
    /// This process has them for itself.
    Own(Vec<u8>),
    /// One rank of this host has them for all.
    Shared(File),
}

/// What a rank gives to the exchange: a ticket, of which that of rank 0 counts, and its URI.
pub fn entry(ticket: &Ticket, uri: &str) -> Vec<u8> {
    [ticket.bytes(), uri.as_bytes()].concat()
}

impl Book {
    /// From everybody's [`entry`], by rank.
    pub fn new(entries: &[Vec<u8>]) -> Result<(Book, Ticket)> {
        let (mut text, mut ends, mut first) = (String::new(), Vec::new(), None);
        for (rank, entry) in entries.iter().enumerate() {
            let parse = || {
                let (ticket, uri) = entry.split_at_checked(TICKET_BYTES)?;
                Some((Ticket::from_bytes(ticket)?, std::str::from_utf8(uri).ok()?))
            };
            let (ticket, uri) = parse().filter(|(_, uri)| !uri.is_empty()).ok_or_else(|| {
                JobError::Launcher(format!("rank {rank} does not say where it is: all ranks open an endpoint of the job in the same order"))
            })?;
            first.get_or_insert(ticket);
            text.push_str(uri);
            let end = u32::try_from(text.len())
                .map_err(|_| JobError::Launcher("the URIs of the ranks have more than 4 GiB".into()))?;
            ends.extend(end.to_le_bytes());
        }
        let ticket = first.ok_or_else(|| JobError::Launcher("a job without ranks".into()))?;
        ends.extend(text.into_bytes());
        ends.shrink_to_fit();
        Ok((Book { bytes: Bytes::Own(ends), size: entries.len() as u32 }, ticket))
    }

    /// Whether it pays to have it once a host. All ranks of a job say the same.
    pub fn is_large(&self) -> bool {
        matches!(&self.bytes, Bytes::Own(bytes) if bytes.len() > OWN_BOOK_BYTES_MAX)
    }

    /// Puts it where others of this host can read it, for as long as this one lives. Returns what [`Book::adopt`] needs.
    pub fn publish(&mut self) -> io::Result<Vec<u8>> {
        let Bytes::Own(bytes) = &self.bytes else { return Ok(Vec::new()) };
        let mut file =
            File::from(memfd_create("cci-job-book", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.write_all(bytes)?;
        fcntl_add_seals(&file, FOR_EVER)?;
        let place = published::place(&file);
        self.bytes = Bytes::Shared(file);
        Ok(place)
    }

    /// Reads from now on what another rank of this host has published, if that is the same book. Else this process keeps its own.
    pub fn adopt(&mut self, place: &[u8]) {
        let Bytes::Own(own) = &self.bytes else { return };
        if let Some(file) = published::find(place, FOR_EVER).filter(|file| holds(file, own).unwrap_or(false))
        {
            self.bytes = Bytes::Shared(file);
        }
    }

    pub fn uri(&self, rank: u32) -> Result<String> {
        if rank >= self.size {
            return Err(JobError::Argument(format!("there is no rank {rank} in a job of {}", self.size)));
        }
        self.read(rank).map_err(JobError::system("reading where a rank is"))
    }

    fn read(&self, rank: u32) -> io::Result<String> {
        let start = rank.checked_sub(1).map_or(Ok(0), |before| self.end(before))?;
        let len = self.end(rank)?.checked_sub(start).ok_or(io::ErrorKind::InvalidData)?;
        let mut uri = vec![0; len as usize];
        self.read_at(self.size as usize * END_BYTES + start as usize, &mut uri)?;
        String::from_utf8(uri).map_err(io::Error::other)
    }

    fn end(&self, rank: u32) -> io::Result<u32> {
        let mut end = [0; END_BYTES];
        self.read_at(rank as usize * END_BYTES, &mut end)?;
        Ok(u32::from_le_bytes(end))
    }

    fn read_at(&self, offset: usize, out: &mut [u8]) -> io::Result<()> {
        match &self.bytes {
            Bytes::Own(bytes) => {
                let part = bytes.get(offset..).and_then(|rest| rest.get(..out.len()));
                out.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            Bytes::Shared(file) => file.read_exact_at(out, offset as u64),
        }
    }

    pub fn size(&self) -> u32 {
        self.size
    }

    /// Bytes that this process alone holds for it.
    pub fn memory_bytes(&self) -> usize {
        match &self.bytes {
            Bytes::Own(bytes) => bytes.capacity(),
            Bytes::Shared(_) => 0,
        }
    }
}

fn holds(file: &File, bytes: &[u8]) -> io::Result<bool> {
    if file.metadata()?.len() != bytes.len() as u64 {
        return Ok(false);
    }
    let mut piece = [0; 4096];
    for (number, expected) in bytes.chunks(piece.len()).enumerate() {
        let Some(piece) = piece.get_mut(..expected.len()) else { return Ok(false) };
        file.read_exact_at(piece, (number * 4096) as u64)?;
        if piece != expected {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn every_rank_is_found() {
        let ticket = Ticket::random().unwrap();
        let uris = ["shm://a", "udp://1.2.3.4:5", "x"];
        let mut entries = uris.map(|uri| entry(&ticket, uri)).to_vec();
        entries[2] = entry(&Ticket::random().unwrap(), "x");
        let (book, agreed) = Book::new(&entries).unwrap();
        assert!(agreed == ticket, "that of rank 0");
        assert_eq!([0, 1, 2].map(|rank| book.uri(rank).unwrap()), uris);
        assert!(matches!(book.uri(3), Err(JobError::Argument(_))));
    }

    #[test]
    fn entries_that_no_rank_makes_are_refused_by_rank() {
        let good = entry(&Ticket::random().unwrap(), "shm://a");
        let wrong: [&[u8]; 4] = [b"", &good[..TICKET_BYTES - 1], &good[..TICKET_BYTES], &[0xff; 40]];
        for wrong in wrong {
            let refused = Book::new(&[good.clone(), wrong.to_vec()]).err().unwrap().to_string();
            assert!(refused.contains("rank 1"), "{refused}");
        }
        assert!(Book::new(&[]).is_err());
    }

    /// As long as those of `any` with three devices.
    fn long_uri(rank: u32) -> String {
        format!(
            "any://id={rank:032x},shm=u1000-{rank:016x},udp=192.168.100.{0}:44992,tcp=192.168.100.{0}:40425",
            rank % 256
        )
    }

    #[test]
    fn one_rank_of_a_host_keeps_it_for_all() {
        let ticket = Ticket::random().unwrap();
        for size in [64, 1_000, 100_000] {
            let entries: Vec<_> = (0..size).map(|rank| entry(&ticket, &long_uri(rank))).collect();
            let book = || Book::new(&entries).unwrap().0;
            let (mut first, mut other) = (book(), book());
            assert!(first.is_large());
            let own_bytes = first.memory_bytes();
            other.adopt(&first.publish().unwrap());
            assert_eq!((first.memory_bytes(), other.memory_bytes()), (0, 0));
            assert!(own_bytes <= 128 * size as usize, "{size} ranks: {own_bytes} bytes a host");
            drop(first);
            for rank in (0..size).step_by(37).chain([size - 1]) {
                assert_eq!(other.uri(rank).unwrap(), long_uri(rank));
            }
            assert!(matches!(other.uri(size), Err(JobError::Argument(_))));
        }
    }

    #[test]
    fn what_is_not_the_same_for_ever_is_not_adopted() {
        let ticket = Ticket::random().unwrap();
        let book = |size: u32| {
            let entries: Vec<_> = (0..size).map(|rank| entry(&ticket, &long_uri(rank))).collect();
            Book::new(&entries).unwrap().0
        };
        let at = |descriptor: i32| [std::process::id().to_le_bytes(), descriptor.to_le_bytes()].concat();
        let (mut shorter, mut changed, mut gone) = (book(99), book(100), book(100));
        if let Bytes::Own(bytes) = &mut changed.bytes {
            *bytes.last_mut().unwrap() ^= 1;
        }
        let Bytes::Own(bytes) = book(100).bytes else { panic!("a book is its own at first") };
        let mut unsealed = File::from(memfd_create("cci-test", MemfdFlags::CLOEXEC).unwrap());
        unsealed.write_all(&bytes).unwrap();
        let (pipe, _other_end) = io::pipe().unwrap();
        let gone_at = gone.publish().unwrap();
        drop(gone);
        let places = [
            shorter.publish().unwrap(),
            changed.publish().unwrap(),
            at(unsealed.as_raw_fd()),
            at(pipe.as_raw_fd()),
            at(-1),
            gone_at,
            Vec::new(),
            vec![1; 7],
        ];
        for place in places {
            let mut mine = book(100);
            mine.adopt(&place);
            assert_eq!(mine.memory_bytes(), bytes.len(), "{place:?}");
            assert_eq!(mine.uri(99).unwrap(), long_uri(99));
        }
    }
}
