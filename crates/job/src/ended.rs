//! Which ranks have ended: memory that the rank server of a host writes, and that ranks there read. So nobody has to ask, and a launcher
//! that is stopped holds nobody up.
//!
//! A count of the ranks that have ended comes first, so that most looks read nothing else. Then a random number says which table this is, and
//! then each rank has a byte, which is 1 once it has ended with exit code 0, and 2 once it has died.

use crate::published::{find, place};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

const COUNT_BYTES: usize = size_of::<u64>();
const NONCE_BYTES: usize = size_of::<u64>();
const RANKS_AT: u64 = (COUNT_BYTES + NONCE_BYTES) as u64;
/// What the byte of a rank is.
const EXITED: u8 = 1;
const DIED: u8 = 2;
/// Nobody can change the length of memory that has these.
const LENGTH_FOR_EVER: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Where a table is, and which one it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedPlace {
    /// Of [`place`].
    pub place: Vec<u8>,
    /// The random number of the table.
    pub nonce: u64,
}

/// The table of a rank server.
pub struct EndedTable {
    file: File,
    nonce: u64,
    /// By rank.
    ended: Mutex<Vec<bool>>,
}

impl EndedTable {
    /// Of a job of `size`, where nobody has ended.
    ///
    /// # Errors
    /// The system has no memory, no descriptor or no random numbers.
    pub fn create(size: u32) -> io::Result<EndedTable> {
        let nonce = cci_sys::random::u64().map_err(io::Error::other)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("cci-job-ended", flags)?);
        let mut table = vec![0; RANKS_AT as usize + size as usize];
        if let Some(bytes) = table.get_mut(COUNT_BYTES..RANKS_AT as usize) {
            bytes.copy_from_slice(&nonce.to_le_bytes());
        }
        file.write_all_at(&table, 0)?;
        fcntl_add_seals(&file, LENGTH_FOR_EVER)?;
        Ok(EndedTable { file, nonce, ended: Mutex::new(vec![false; size as usize]) })
    }

    /// For [`Ended::open`].
    pub fn place(&self) -> EndedPlace {
        EndedPlace { place: place(&self.file), nonce: self.nonce }
    }

    /// A rank has ended, and has died unless its exit code was 0. Ranks that do not exist are ignored.
    pub fn enter(&self, rank: u32, has_died: bool) {
        // No code that holds it panics.
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry @ false) = ended.get_mut(rank as usize) else { return };
        *entry = true;
        let count = ended.iter().filter(|ended| **ended).count() as u64;
        // The pages are there since the table was made, so that writing them does not fail. The count comes last: whoever sees it looks.
        let byte = if has_died { DIED } else { EXITED };
        let _ = self.file.write_all_at(&[byte], RANKS_AT + u64::from(rank));
        let _ = self.file.write_all_at(&count.to_le_bytes(), 0);
    }
}

/// A rank's view of the table of its host.
pub struct Ended {
    file: File,
    size: usize,
    /// This rank goes on when others end, and wants to know.
    is_wanted: AtomicBool,
}

impl Ended {
    /// None where the table is not there or can't be opened: then only connections say that a rank has ended.
    pub fn open(place: &EndedPlace, size: u32) -> Option<Ended> {
        let file = find(&place.place, LENGTH_FOR_EVER)?;
        let size = size as usize;
        let is_as_long = file.metadata().ok()?.len() == RANKS_AT + size as u64;
        let mut nonce = [0; NONCE_BYTES];
        file.read_exact_at(&mut nonce, COUNT_BYTES as u64).ok()?;
        let is_it = is_as_long && u64::from_le_bytes(nonce) == place.nonce;
        is_it.then_some(Ended { file, size, is_wanted: AtomicBool::new(false) })
    }

    /// This rank survives the end of others.
    pub fn want(&self) {
        // Relaxed: nothing else is handed over by it.
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether [`Ended::want`] was called.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Calls `on_ended` for each rank that has ended and is not in `known`, with whether it has died, and enters it there.
    pub fn look(&self, known: &mut Known, mut on_ended: impl FnMut(u32, bool)) {
        let mut count = [0; COUNT_BYTES];
        if self.file.read_exact_at(&mut count, 0).is_err() || u64::from_le_bytes(count) == known.count {
            return;
        }
        let mut table = vec![0; self.size];
        if self.file.read_exact_at(&mut table, RANKS_AT).is_err() {
            return;
        }
        known.ranks.resize(self.size, false);
        for ((rank, is_known), &byte) in (0..).zip(&mut known.ranks).zip(&table) {
            if byte != 0 && !*is_known {
                *is_known = true;
                // What was found, and not what the count says: so a rank whose byte is not seen yet is looked for again.
                known.count += 1;
                on_ended(rank, byte == DIED);
            }
        }
    }
}

/// Which ranks have ended as far as one reader knows.
#[derive(Default)]
pub struct Known {
    count: u64,
    /// By rank; empty before the first one has ended.
    ranks: Vec<bool>,
}

impl Known {
    /// How many ranks have ended.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether the rank has ended.
    pub fn has(&self, rank: u32) -> bool {
        self.ranks.get(rank as usize).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn look(ended: &Ended, known: &mut Known) -> Vec<(u32, bool)> {
        let mut found = Vec::new();
        ended.look(known, |rank, has_died| found.push((rank, has_died)));
        found
    }

    #[test]
    fn each_end_is_seen_once_by_every_reader() {
        let table = EndedTable::create(5).unwrap();
        let [first, second] = [(), ()].map(|()| Ended::open(&table.place(), 5).unwrap());
        let (mut by_first, mut by_second) = (Known::default(), Known::default());
        assert_eq!(look(&first, &mut by_first), []);
        table.enter(3, true);
        table.enter(3, false);
        table.enter(5, true);
        assert_eq!(look(&first, &mut by_first), [(3, true)]);
        assert_eq!(look(&first, &mut by_first), []);
        table.enter(0, false);
        table.enter(4, true);
        assert_eq!(look(&first, &mut by_first), [(0, false), (4, true)]);
        assert_eq!(look(&second, &mut by_second), [(0, false), (3, true), (4, true)]);
        assert_eq!(by_second.count(), 3);
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|rank| by_second.has(rank)),
            [true, false, false, true, true, false]
        );
        // Memory stays when who has published it is gone.
        drop(table);
        assert_eq!(look(&second, &mut by_second), []);
    }

    #[test]
    fn another_table_is_not_taken_for_the_own() {
        let table = EndedTable::create(5).unwrap();
        let place = table.place();
        assert!(Ended::open(&place, 5).is_some());
        assert!(Ended::open(&place, 4).is_none() && Ended::open(&place, 6).is_none());
        assert!(Ended::open(&EndedPlace { nonce: place.nonce ^ 1, ..place.clone() }, 5).is_none());
        for wrong in [vec![], vec![1; 7], [&place.place[..4], &(-1_i32).to_le_bytes()].concat()] {
            assert!(Ended::open(&EndedPlace { place: wrong, nonce: place.nonce }, 5).is_none());
        }
        let mut unsealed = File::from(memfd_create("cci-test", MemfdFlags::CLOEXEC).unwrap());
        unsealed.write_all(&[0; 8]).unwrap();
        unsealed.write_all(&place.nonce.to_le_bytes()).unwrap();
        unsealed.write_all(&[0; 5]).unwrap();
        let unsealed_place = EndedPlace { place: super::place(&unsealed), nonce: place.nonce };
        assert!(Ended::open(&unsealed_place, 5).is_none(), "its length may change");
    }
}
