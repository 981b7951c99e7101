//! The regions of an endpoint: what is registered, who may do what with it. Every access of a peer's is checked here,
//! against this table and nothing else.

use super::mapped_pairs::MappedPairs;
use crate::connection::Connection;
use crate::rma::{Access, Memory, RegionHandle, atomic_op};
use cci_memory::bytes::{AtomicRefusal, Bytes};
use cci_memory::slab::{Key, Slab};
use cci_proto::{Atomic, RemoteAddress, RmaRefusal};
use cci_sys::{SysError, random};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// One registered region.
pub struct Region {
    /// Exactly the registered bytes. A file has none: only [`Regions::peer_source`] finds those.
    pub bytes: Bytes,
    /// How many bytes are registered.
    pub len_bytes: usize,
    pub key: u64,
    pub access: Access,
    /// The only connection over which peers may access it; None: all.
    pub only: Option<Connection>,
    /// The memory was found to be writable, so that operations of this endpoint may write there.
    pub is_target: bool,
    /// A peer may have mapped it, and may read there for as long as that process lives.
    pub is_mapped: bool,
    /// Where the region begins in `memory`, bytes.
    pub start: usize,
    /// Keeps the memory alive.
    pub memory: Memory,
}

/// The most bytes of a file that are sent at once.
pub const FILE_BYTES_MAX: usize = 64 << 10;

/// Where a peer reads.
pub enum Source<'a> {
    /// From this place on in memory.
    Memory(Bytes, usize),
    /// From this byte on in a file.
    File(&'a File, u64),
}

/// What is left of a request for bytes of a file, of which pieces were read one behind the other.
#[derive(Copy, Clone)]
struct Ahead {
    connection: Connection,
    /// Where the next piece is.
    at: RemoteAddress,
    /// Bytes of the request that are still to be read.
    remaining_bytes: u64,
    /// Where in [`Regions::file_bytes`] the next of them are that were read ahead.
    from: usize,
    end: usize,
}

impl Ahead {
    /// Whether a piece is the next one of the request.
    fn is_next(&self, connection: Connection, at: RemoteAddress, remaining_bytes: u64) -> bool {
        (self.connection, self.at, self.remaining_bytes) == (connection, at, remaining_bytes)
    }
}

/// The table of an endpoint's regions, which every access of a peer's is checked against.
pub struct Regions {
    table: Slab<Region>,
    /// What peers may do over some connections, whatever a region offers: fixed by who they are when the connection is
    /// made. Those that may do everything are not in it.
    limited: HashMap<Connection, Access>,
    /// How many regions are of files.
    files: u32,
    /// Where bytes of a file are while they are sent; empty before the first such region.
    file_bytes: Vec<u8>,
    /// Which of them are of a request that goes on.
    ahead: Option<Ahead>,
    /// Between which operations are plain copies.
    pub pairs: MappedPairs,
    /// Accesses of peers that were refused.
    pub refused: u64,
    /// Of those, the ones that the region allows, but not to that peer.
    pub refused_by_name: u64,
    /// Where the keys of handles come from.
    pub keys: Keys,
}

/// Where the keys of handles come from: nobody may guess them.
pub(crate) enum Keys {
    /// The system's random numbers.
    System,
    /// A simulation's: the next one is drawn from this.
    #[cfg(feature = "simulated")]
    Seed(u64),
}

impl Keys {
    fn draw(&mut self) -> Result<u64, SysError> {
        match self {
            Keys::System => random::u64(),
            #[cfg(feature = "simulated")]
            Keys::Seed(state) => {
                // An odd constant: every state is met once before the first comes again.
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                Ok(state.rotate_left(17) ^ state.wrapping_mul(0xbf58_476d_1ce4_e5b9))
            }
        }
    }
}

/// Regions of one endpoint.
pub(crate) const REGIONS_MAX: u32 = 1 << 20;

impl Regions {
    pub fn new() -> Regions {
        Regions {
            table: Slab::new(REGIONS_MAX),
            limited: HashMap::new(),
            files: 0,
            file_bytes: Vec::new(),
            ahead: None,
            pairs: MappedPairs::new(),
            refused: 0,
            refused_by_name: 0,
            keys: Keys::System,
        }
    }

    /// Enters a region. None: the table is full. The range was checked.
    pub fn insert(
        &mut self,
        memory: &Memory,
        range: Range<usize>,
        access: Access,
        only: Option<Connection>,
    ) -> Result<Option<RegionHandle>, SysError> {
        // What no peer may touch needs no key that nobody guesses.
        let key = if access == Access::LOCAL { 0 } else { self.keys.draw()? };
        let len = range.end.saturating_sub(range.start);
        let bytes = if memory.is_file() { Some(Bytes::EMPTY) } else { memory.bytes().part(range.start, len) };
        let Some(bytes) = bytes else { return Ok(None) };
        let is_target =
            memory.is_library() || access.contains(Access::WRITE) || access.contains(Access::ATOMIC);
        let region = Region {
            bytes,
            len_bytes: len,
            key,
            access,
            only,
            is_target,
            is_mapped: false,
            start: range.start,
            memory: memory.clone(),
        };
        if memory.is_file() && self.file_bytes.is_empty() {
            self.file_bytes.resize(FILE_BYTES_MAX, 0);
        }
        let made = self.table.insert(region).ok();
        self.files += u32::from(made.is_some() && memory.is_file());
        Ok(made.map(|slot| RegionHandle::new(slot.to_bits(), len as u64, key, access)))
    }

    /// Takes a region out; None: the handle names none of ours.
    pub fn remove(&mut self, handle: &RegionHandle) -> Option<Region> {
        self.named(handle.region(), handle.key())?;
        self.pairs.forget_local(handle.region());
        let region = self.table.remove(Key::from_bits(handle.region()))?;
        self.files -= u32::from(region.memory.is_file());
        Some(region)
    }

    /// A region by its number.
    pub fn get(&self, region: u64) -> Option<&Region> {
        self.table.get(Key::from_bits(region))
    }

    fn named(&self, region: u64, key: u64) -> Option<&Region> {
        self.table.get(Key::from_bits(region)).filter(|region| region.key == key)
    }

    /// A peer was granted a region to map.
    pub fn set_mapped(&mut self, region: u64) {
        if let Some(region) = self.table.get_mut(Key::from_bits(region)) {
            region.is_mapped = true;
        }
    }

    /// Whether a peer was granted a region to map.
    pub fn is_mapped(&self, handle: &RegionHandle) -> bool {
        self.named(handle.region(), handle.key()).is_some_and(|region| region.is_mapped)
    }

    /// The region that a place of the owner's own names.
    #[inline]
    pub fn local(&self, at: RemoteAddress, len_bytes: u64) -> Option<(Bytes, usize)> {
        let region = self.named(at.region, at.key)?;
        in_range(region, at.offset, len_bytes)
    }

    /// All bytes of such a region, and whether it is known that they can be written.
    pub fn whole(&self, at: RemoteAddress) -> Option<(Bytes, bool)> {
        self.named(at.region, at.key).map(|region| (region.bytes, region.is_target))
    }

    /// The whole of such a region, if it is not known yet whether it can be written.
    #[inline]
    pub fn unknown_target(&self, at: RemoteAddress) -> Option<Bytes> {
        self.named(at.region, at.key).filter(|region| !region.is_target).map(|region| region.bytes)
    }

    /// Notes that the memory of a region was found to be writable.
    pub fn set_target(&mut self, at: RemoteAddress) {
        if let Some(region) = self.table.get_mut(Key::from_bits(at.region)) {
            region.is_target = true;
        }
    }

    /// Finds memory for a peer, as [`Regions::local`] does for the program: the peer comes over `connection` and needs the
    /// rights `need`.
    #[inline]
    pub fn peer(
        &mut self,
        connection: Connection,
        at: RemoteAddress,
        len_bytes: u64,
        need: Access,
    ) -> Result<(Bytes, usize), RmaRefusal> {
        let found = self.granted(connection, at.region, at.key, need);
        let mut found = found.and_then(|region| in_range(region, at.offset, len_bytes));
        if !self.limited.is_empty() && found.is_some() && !self.may(connection, need) {
            self.refused_by_name += 1;
            found = None;
        }
        if found.is_none() {
            self.refused += 1;
        }
        found.ok_or(RmaRefusal::Handle)
    }

    /// Finds what a peer reads, in memory or in a file.
    #[inline]
    pub fn peer_source(
        &mut self,
        connection: Connection,
        at: RemoteAddress,
        len_bytes: u64,
    ) -> Result<Source<'_>, RmaRefusal> {
        if self.is_file(at) {
            return self.peer_file(connection, at, len_bytes);
        }
        self.peer(connection, at, len_bytes, Access::READ)
            .map(|(bytes, offset)| Source::Memory(bytes, offset))
    }

    /// Copies what a peer reads to `out`. Other places of as many bytes behind that one will probably follow.
    #[inline]
    pub fn peer_read(
        &mut self,
        connection: Connection,
        at: RemoteAddress,
        out: &mut [u8],
    ) -> Result<(), RmaRefusal> {
        let is_read = match self.peer_source(connection, at, out.len() as u64)? {
            Source::Memory(bytes, offset) => bytes.read_piece(offset, out),
            Source::File(file, offset) => file.read_exact_at(out, offset).is_ok(),
        };
        is_read.then_some(()).ok_or(RmaRefusal::Handle)
    }

    /// Copies what a peer reads to `out`. Of its request, `remaining_bytes` are still to be read, these included: of a file, as many are
    /// read at once as fit into 64 KiB, if those before were read just now.
    #[inline]
    pub fn peer_read_ahead(
        &mut self,
        connection: Connection,
        at: RemoteAddress,
        out: &mut [u8],
        remaining_bytes: u64,
    ) -> Result<(), RmaRefusal> {
        if self.is_file(at) {
            return self.peer_file_ahead(connection, at, out, remaining_bytes);
        }
        self.peer_read(connection, at, out)
    }

    #[cold]
    fn peer_file_ahead(
        &mut self,
        connection: Connection,
        at: RemoteAddress,
        out: &mut [u8],
        remaining_bytes: u64,
    ) -> Result<(), RmaRefusal> {
        let len = out.len();
        let before = self.ahead.take().filter(|ahead| ahead.is_next(connection, at, remaining_bytes));
        let (mut from, mut end) = before.map_or((0, 0), |ahead| (ahead.from, ahead.end));
        if before.is_some() && end - from < len {
            // Bytes of this request alone: what its peer has not asked for may change before it does.
            let all = remaining_bytes.min(FILE_BYTES_MAX as u64) as usize;
            (from, end) = (0, self.peer_file_bytes(connection, at, all).map_or(0, <[u8]>::len));
        }
        if end - from < len {
            (from, end) = (0, 0);
            self.peer_read(connection, at, out)?;
        } else {
            // Its rights are looked at for each piece.
            self.peer_source(connection, at, len as u64)?;
            let read = self.file_bytes.get(from..from + len).ok_or(RmaRefusal::Handle)?;
            out.copy_from_slice(read);
            from += len;
        }
        let remaining_bytes = remaining_bytes.saturating_sub(len as u64);
        self.ahead = Some(Ahead { connection, at: at.plus(len as u64), remaining_bytes, from, end });
        Ok(())
    }

    /// Whether a place is in a region of a file.
    #[inline]
    pub fn is_file(&self, at: RemoteAddress) -> bool {
        self.files != 0 && self.named(at.region, at.key).is_some_and(|region| region.memory.is_file())
    }

    /// Reads bytes of a file for a peer, no more than 64 KiB (`FILE_BYTES_MAX`).
    pub fn peer_file_bytes(
        &mut self,
        connection: Connection,
        at: RemoteAddress,
        len_bytes: usize,
    ) -> Result<&[u8], RmaRefusal> {
        self.ahead = None;
        let mut space = std::mem::take(&mut self.file_bytes);
        let is_read =
            space.get_mut(..len_bytes).is_some_and(|out| self.peer_read(connection, at, out).is_ok());
        self.file_bytes = space;
        let read = is_read.then_some(&self.file_bytes).and_then(|bytes| bytes.get(..len_bytes));
        read.ok_or(RmaRefusal::Handle)
    }

    #[cold]
    fn peer_file(
        &mut self,
        connection: Connection,
        at: RemoteAddress,
        len_bytes: u64,
    ) -> Result<Source<'_>, RmaRefusal> {
        let may = self.may(connection, Access::READ);
        let found = self.granted(connection, at.region, at.key, Access::READ);
        let end = at.offset.checked_add(len_bytes);
        let is_covered = found.is_some_and(|region| end.is_some_and(|end| end <= region.len_bytes as u64));
        if !may || !is_covered {
            self.refused += 1;
            self.refused_by_name += u64::from(!may && is_covered);
            return Err(RmaRefusal::Handle);
        }
        let region = self.granted(connection, at.region, at.key, Access::READ).ok_or(RmaRefusal::Handle)?;
        let (file, _) = region.memory.as_file().ok_or(RmaRefusal::Handle)?;
        Ok(Source::File(file, region.start as u64 + at.offset))
    }

    /// From now on peers may do no more than this over `connection`.
    pub fn limit(&mut self, connection: Connection, access: Access) {
        if access != Access::ALL {
            self.limited.insert(connection, access);
        }
    }

    /// The connection is gone.
    #[inline]
    pub fn forget(&mut self, connection: Connection) {
        if !self.limited.is_empty() {
            self.limited.remove(&connection);
        }
    }

    #[cold]
    fn may(&self, connection: Connection, need: Access) -> bool {
        self.limited.get(&connection).is_none_or(|access| access.contains(need))
    }

    /// A region that this peer may use so, as far as the region says.
    pub fn granted(&self, connection: Connection, region: u64, key: u64, need: Access) -> Option<&Region> {
        let region = self.named(region, key)?;
        let scope = region.only.is_none_or(|only| only == connection);
        (scope && region.access.contains(need)).then_some(region)
    }

    /// An atomic operation of a peer's.
    pub fn peer_atomic(
        &mut self,
        connection: Connection,
        at: RemoteAddress,
        atomic: Atomic,
    ) -> Result<u64, RmaRefusal> {
        let (bytes, offset) = self.peer(connection, at, atomic.width.bytes() as u64, Access::ATOMIC)?;
        bytes.atomic(offset, atomic_op(atomic)).map_err(|refusal| match refusal {
            AtomicRefusal::OutOfRange => RmaRefusal::Handle,
            AtomicRefusal::Misaligned => RmaRefusal::Operation,
        })
    }

    pub fn len(&self) -> u32 {
        self.table.len()
    }

    pub fn bytes(&self) -> u64 {
        let limited = self.limited.capacity() * size_of::<(Connection, Access)>() * 8 / 7;
        (self.table.bytes() + limited + self.file_bytes.capacity() + self.pairs.bytes()) as u64
    }
}

#[inline]
fn in_range(region: &Region, offset: u64, len_bytes: u64) -> Option<(Bytes, usize)> {
    let end = offset.checked_add(len_bytes)?;
    (end <= region.bytes.len() as u64).then_some((region.bytes, offset as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci_memory::bytes::Foreign;
    use cci_proto::{AtomicKind, AtomicWidth};

    const OURS: Connection = Connection { index: 3, generation: 1 };
    const OTHER: Connection = Connection { index: 4, generation: 1 };

    fn memory(len: usize) -> Memory {
        Memory::foreign(Foreign::owned(vec![7; len].into_boxed_slice()))
    }

    fn address(handle: &RegionHandle, offset: u64) -> RemoteAddress {
        RemoteAddress { region: handle.region(), key: handle.key(), offset }
    }

    #[test]
    fn a_peer_gets_what_it_was_given_and_no_more() {
        let (mut regions, memory) = (Regions::new(), memory(100));
        let handle = regions.insert(&memory, 10..50, Access::READ, Some(OURS)).unwrap().unwrap();
        let mut may =
            |from, offset, len, need| regions.peer(from, address(&handle, offset), len, need).is_ok();
        assert!(may(OURS, 0, 40, Access::READ) && may(OURS, 39, 1, Access::READ));
        assert!(may(OURS, 40, 0, Access::READ), "nothing at the end is in range");
        for (offset, len) in [(0, 41), (40, 1), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            assert!(!may(OURS, offset, len, Access::READ), "{offset} {len}");
        }
        assert!(!may(OURS, 0, 1, Access::WRITE) && !may(OURS, 0, 1, Access::ATOMIC));
        assert!(!may(OTHER, 0, 1, Access::READ), "registered for another connection");
        assert_eq!(regions.refused, 8);
        assert!(
            regions.local(address(&handle, 39), 1).is_some()
                && regions.local(address(&handle, 39), 2).is_none()
        );
    }

    #[test]
    fn stale_and_forged_handles_name_nothing() {
        let (mut regions, memory) = (Regions::new(), memory(64));
        let old = regions.insert(&memory, 0..64, Access::ALL, None).unwrap().unwrap();
        assert!(regions.remove(&old).is_some() && regions.remove(&old).is_none());
        let new = regions.insert(&memory, 0..64, Access::ALL, None).unwrap().unwrap();
        assert_ne!(old, new);
        assert!(regions.peer(OURS, address(&old, 0), 1, Access::READ).is_err());
        for bit in 0..64 {
            let mut at = address(&new, 0);
            at.key ^= 1 << bit;
            assert!(regions.peer(OURS, at, 1, Access::READ).is_err());
            let mut at = address(&new, 0);
            at.region ^= 1 << bit;
            assert!(regions.peer(OURS, at, 1, Access::READ).is_err());
        }
        assert!(regions.peer(OURS, address(&new, 0), 64, Access::ALL).is_ok());
    }

    #[test]
    fn a_region_gives_no_more_than_its_peer_may_have() {
        let (mut regions, memory) = (Regions::new(), memory(64));
        let handle = regions.insert(&memory, 0..64, Access::ALL, None).unwrap().unwrap();
        regions.limit(OURS, Access::READ);
        regions.limit(OTHER, Access::ALL);
        let mut may = |from, need| regions.peer(from, address(&handle, 0), 8, need).is_ok();
        assert!(may(OURS, Access::READ) && !may(OURS, Access::WRITE) && !may(OURS, Access::ATOMIC));
        assert!(may(OTHER, Access::READ) && may(OTHER, Access::WRITE) && may(OTHER, Access::ATOMIC));
        let later = Connection { generation: OURS.generation + 1, ..OURS };
        assert!(may(later, Access::WRITE), "another connection in the same place");
        assert_eq!((regions.refused, regions.refused_by_name), (2, 2));
        regions.forget(OURS);
        assert!(regions.peer(OURS, address(&handle, 0), 8, Access::WRITE).is_ok());
        assert!(regions.peer(OTHER, address(&handle, 60), 8, Access::READ).is_err());
        assert_eq!((regions.refused, regions.refused_by_name), (3, 2), "that was the range");
    }

    /// A file without a name.
    fn file_of(bytes: &[u8]) -> File {
        let file = rustix::fs::memfd_create("region", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let file = File::from(file);
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn pieces_of_a_file_are_read_ahead_and_no_later_request_gets_what_was_there_before() {
        const LEN: usize = 200_000;
        const PIECE: usize = 1_448;
        let bytes: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
        let file = file_of(&bytes);
        let mut regions = Regions::new();
        let memory = Memory::file(file.try_clone().unwrap()).unwrap();
        let handle = regions.insert(&memory, 0..LEN, Access::READ, None).unwrap().unwrap();
        let piece = |regions: &mut Regions, from, at: usize, end: usize| {
            let mut out = vec![0; PIECE.min(end - at)];
            let remaining = (end - at) as u64;
            let read = regions.peer_read_ahead(from, address(&handle, at as u64), &mut out, remaining);
            read.map(|()| out)
        };
        let request = |regions: &mut Regions, from, start: usize, end: usize, bytes: &[u8]| {
            for at in (start..end).step_by(PIECE) {
                assert_eq!(piece(regions, from, at, end).unwrap(), bytes[at..end.min(at + PIECE)], "{at}");
            }
        };
        request(&mut regions, OURS, 0, LEN, &bytes);
        request(&mut regions, OURS, 7, 100_000, &bytes);
        // What is behind that request was not read ahead.
        file.write_all_at(&[9; LEN], 0).unwrap();
        request(&mut regions, OURS, 100_000, LEN, &[9; LEN]);
        // Two in turn, a piece that is read again, and one that is passed over.
        for at in [0, PIECE, 2 * PIECE, 3 * PIECE] {
            for (from, end) in [(OURS, LEN), (OTHER, LEN), (OURS, LEN / 2)] {
                assert_eq!(piece(&mut regions, from, at, end).unwrap(), [9; PIECE]);
            }
        }
        for at in [0, PIECE, PIECE, 2 * PIECE, 9 * PIECE, 10 * PIECE, 3 * PIECE] {
            assert_eq!(piece(&mut regions, OURS, at, LEN).unwrap(), [9; PIECE]);
        }
        // The file becomes shorter: what is read ahead ends where it does.
        file.set_len(50_000).unwrap();
        request(&mut regions, OURS, 0, 49_232, &[9; LEN]);
        assert!(piece(&mut regions, OURS, 49_232, LEN).is_err(), "not all of it is there");
        // A right that is gone is not read by.
        assert!(piece(&mut regions, OURS, 0, LEN).is_ok() && piece(&mut regions, OURS, PIECE, LEN).is_ok());
        regions.limit(OURS, Access::WRITE);
        assert!(piece(&mut regions, OURS, 2 * PIECE, LEN).is_err());
    }

    #[test]
    fn atomics_say_what_was_wrong() {
        let (mut regions, memory) = (Regions::new(), memory(64));
        let handle = regions.insert(&memory, 0..64, Access::ATOMIC, None).unwrap().unwrap();
        let start = memory.as_ptr() as u64;
        let aligned = start.next_multiple_of(8) - start;
        let add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
        assert_eq!(regions.peer_atomic(OURS, address(&handle, aligned), add), Ok(0x0707_0707_0707_0707));
        let odd = address(&handle, aligned + 1);
        assert_eq!(regions.peer_atomic(OURS, odd, add), Err(RmaRefusal::Operation));
        assert_eq!(regions.peer_atomic(OURS, address(&handle, 60), add), Err(RmaRefusal::Handle));
    }
}
