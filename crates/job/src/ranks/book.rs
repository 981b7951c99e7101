//! Where the ranks are.

use super::hello::Ticket;
use crate::error::{JobError, Result};
use crate::limits::TICKET_BYTES;

/// The URI of every rank's endpoint, one after the other in one piece of memory.
pub struct Book {
    text: Box<str>,
    /// Where the URI of each rank ends.
    ends: Box<[u32]>,
}

/// What a rank gives to the exchange: a ticket, of which that of rank 0 counts, and its URI.
pub fn entry(ticket: &Ticket, uri: &str) -> Vec<u8> {
    [ticket.bytes(), uri.as_bytes()].concat()
}

impl Book {
    /// From everybody's [`entry`], by rank.
    pub fn new(entries: &[Vec<u8>]) -> Result<(Book, Ticket)> {
        let (mut text, mut ends, mut first) = (String::new(), Vec::with_capacity(entries.len()), None);
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
            ends.push(
                u32::try_from(text.len())
                    .map_err(|_| JobError::Launcher("the URIs of the ranks have more than 4 GiB".into()))?,
            );
        }
        let ticket = first.ok_or_else(|| JobError::Launcher("a job without ranks".into()))?;
        Ok((Book { text: text.into(), ends: ends.into() }, ticket))
    }

    /// None where there is no such rank.
    pub fn uri(&self, rank: u32) -> Option<&str> {
        let rank = rank as usize;
        let end = *self.ends.get(rank)? as usize;
        let start = rank.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.text.get(start..end)
    }

    pub fn size(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Bytes that this process holds for it.
    pub fn memory_bytes(&self) -> usize {
        self.text.len() + size_of_val(&*self.ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_found() {
        let ticket = Ticket::random().unwrap();
        let uris = ["shm://a", "udp://1.2.3.4:5", "x"];
        let mut entries = uris.map(|uri| entry(&ticket, uri)).to_vec();
        entries[2] = entry(&Ticket::random().unwrap(), "x");
        let (book, agreed) = Book::new(&entries).unwrap();
        assert!(agreed == ticket, "that of rank 0");
        assert_eq!([0, 1, 2].map(|rank| book.uri(rank).unwrap()), uris);
        assert_eq!((book.uri(3), book.size()), (None, 3));
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
}
