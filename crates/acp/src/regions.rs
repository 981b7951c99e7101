//! Memory of this process that all ranks may access, and its places.
//!
//! **Invariant:** regions do not share places, and there is a gap between any two, so that arithmetic beyond the end of one does
//! not reach the next. Places of a region that has ended are reused only after all others.

use crate::error::{AcpError, Result};
use crate::limits::{ALIGN_BYTES, COLORS, PLACES};
use cci::{Access, Endpoint, Memory, RegionHandle};

/// Identifies a registration of this process (`acp_atkey_t`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionKey {
    place: u64,
}

/// A registration.
pub(crate) struct Region {
    pub memory: Memory,
    pub handle: RegionHandle,
    pub color: u32,
}

/// A registration of memory that peers on this host map.
struct Mappable {
    address: usize,
    len_bytes: usize,
    handle: RegionHandle,
}

/// The registrations of this process, by first places. The list is sorted, since every operation looks for a region.
pub(crate) struct Regions {
    regions: Vec<(u64, Region)>,
    /// The registrations of memory that peers on this host map, sorted by their addresses here.
    mappable: Vec<Mappable>,
    /// Where the search for free places begins.
    next: u64,
}

impl RegionKey {
    /// The key as a number that is not 0.
    pub fn to_bits(self) -> u64 {
        self.place
    }

    /// The key of a number from [`RegionKey::to_bits`]; `None` for 0.
    pub fn from_bits(bits: u64) -> Option<RegionKey> {
        (bits != 0).then_some(RegionKey { place: bits })
    }

    /// The first place of the region.
    pub(crate) fn place(self) -> u64 {
        self.place
    }
}

impl Regions {
    /// Makes an empty list. The first region will begin at this place, which is a multiple of a page.
    pub fn beginning_at(place: u64) -> Regions {
        Regions { regions: Vec::new(), mappable: Vec::new(), next: place }
    }

    /// Lets all ranks of the job access this memory.
    pub fn register(&mut self, endpoint: &mut Endpoint, memory: &Memory, color: u32) -> Result<RegionKey> {
        if color >= COLORS {
            return Err(AcpError::Argument("there is no such colour"));
        }
        let place = self.find_free(memory.as_ptr().addr() as u64 % ALIGN_BYTES, memory.len() as u64)?;
        let handle = endpoint.register(memory, Access::ALL)?;
        let at = self.regions.partition_point(|&(start, _)| start < place);
        self.regions.insert(at, (place, Region { memory: memory.clone(), handle, color }));
        if memory.is_library() {
            let (address, len_bytes) = (memory.as_ptr().addr(), memory.len());
            let at = self.mappable.partition_point(|region| region.address < address);
            self.mappable.insert(at, Mappable { address, len_bytes, handle });
        }
        self.next = round_up(place + memory.len() as u64) + ALIGN_BYTES;
        Ok(RegionKey { place })
    }

    /// Ends a registration: no rank reads or changes the memory any more when this returns.
    pub fn unregister(&mut self, endpoint: &mut Endpoint, key: RegionKey) -> Result<()> {
        let at = self.index(key)?;
        let handle = self.get(key)?.handle;
        endpoint.deregister(&handle)?;
        self.regions.remove(at);
        self.mappable.retain(|region| region.handle != handle);
        Ok(())
    }

    /// Ends all registrations behind a place.
    pub fn unregister_behind(&mut self, endpoint: &mut Endpoint, place: u64) -> Result<()> {
        let keys: Vec<u64> =
            self.regions.iter().map(|&(start, _)| start).filter(|&start| start > place).collect();
        keys.into_iter().rev().try_for_each(|place| self.unregister(endpoint, RegionKey { place }))
    }

    fn index(&self, key: RegionKey) -> Result<usize> {
        let found = self.regions.binary_search_by_key(&key.place, |&(start, _)| start);
        found.map_err(|_| AcpError::Argument("this memory is not registered, or not any more"))
    }

    /// The region of a key.
    pub fn get(&self, key: RegionKey) -> Result<&Region> {
        let found = self.regions.get(self.index(key)?);
        found.map(|(_, region)| region).ok_or(AcpError::Argument("this memory is not registered"))
    }

    /// The last region that begins at a place or before.
    #[inline]
    fn before(&self, place: u64) -> Option<&(u64, Region)> {
        let behind = self.regions.partition_point(|&(start, _)| start <= place);
        self.regions.get(behind.checked_sub(1)?)
    }

    /// The region with this colour that has all of `len_bytes` from a place on, and the offset of the place in it.
    pub fn find(&self, color: u32, place: u64, len_bytes: u64) -> Option<(RegionKey, &Region, u64)> {
        let &(start, ref region) = self.before(place)?;
        let offset = place - start;
        let is_inside = offset.checked_add(len_bytes)? <= region.memory.len() as u64;
        (region.color == color && is_inside).then_some((RegionKey { place: start }, region, offset))
    }

    /// The region that peers on this host map and that has all bytes of this memory, and the offset of the memory in it.
    pub fn find_mappable(&self, memory: &Memory) -> Option<(RegionHandle, u64)> {
        let address = memory.as_ptr().addr();
        let behind = self.mappable.partition_point(|region| region.address <= address);
        let region = self.mappable.get(behind.checked_sub(1)?)?;
        let offset = address - region.address;
        let is_inside = offset.checked_add(memory.len())? <= region.len_bytes;
        is_inside.then_some((region.handle, offset as u64))
    }

    /// Finds free places for a region. The first is at the same offset in its page as the region's memory. The gap has at least a
    /// page.
    fn find_free(&self, in_page: u64, len_bytes: u64) -> Result<u64> {
        const NONE: AcpError = AcpError::Full(
            "the global addresses of this rank have no gap for a region of this length: deregister memory, or register less at a time",
        );
        let fits = |from: u64, to: u64| from.checked_add(in_page + len_bytes).is_some_and(|end| end <= to);
        let gap_after =
            |start: &u64, region: &Region| round_up(start + region.memory.len() as u64) + ALIGN_BYTES;
        let end_before = |from: u64| {
            let at = self.regions.partition_point(|&(start, _)| start < from);
            self.regions.get(at).map_or(PLACES, |&(start, _)| start) - ALIGN_BYTES
        };
        // The search begins behind the last registration, then takes any gap.
        let gaps = self.regions.iter().map(|(start, region)| gap_after(start, region));
        for from in [self.next, ALIGN_BYTES].into_iter().chain(gaps) {
            let is_free = self.find_at(from).is_none();
            if from < PLACES && is_free && fits(from, end_before(from)) {
                return Ok(from + in_page);
            }
        }
        Err(NONE)
    }

    /// The region that has a place, in its bytes or in the gap behind them.
    fn find_at(&self, place: u64) -> Option<&Region> {
        let &(start, ref region) = self.before(place)?;
        (place < round_up(start + region.memory.len() as u64) + ALIGN_BYTES).then_some(region)
    }
}

fn round_up(place: u64) -> u64 {
    place.next_multiple_of(ALIGN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci::{Context, Foreign, Options};

    fn endpoint() -> Endpoint {
        Endpoint::create(Context::new().unwrap().device("shm").unwrap(), Options::default()).unwrap()
    }

    fn heap(len: usize) -> Memory {
        Memory::foreign(Foreign::owned(vec![0; len].into_boxed_slice()))
    }

    #[test]
    fn every_byte_of_a_region_is_found_and_none_beside_it() {
        let mut endpoint = endpoint();
        let mut regions = Regions::beginning_at(ALIGN_BYTES);
        for (len, color) in [(1, 0), (4_096, 1), (10_000, 0), (24, 1)] {
            let memory = heap(len);
            let key = regions.register(&mut endpoint, &memory, color).unwrap();
            let place = key.place();
            assert_eq!(place % ALIGN_BYTES, memory.as_ptr().addr() as u64 % ALIGN_BYTES);
            let find = |place, len| regions.find(color, place, len).map(|(found, _, offset)| (found, offset));
            assert_eq!(find(place, len as u64), Some((key, 0)));
            assert_eq!(find(place + len as u64 - 1, 1), Some((key, len as u64 - 1)));
            assert_eq!(find(place + len as u64, 0), Some((key, len as u64)), "no bytes at its end");
            assert_eq!(find(place, len as u64 + 1), None);
            assert_eq!(find(place + len as u64, 1), None);
            assert_eq!(find(place - 1, 1), None);
            assert_eq!(find(place, u64::MAX), None);
            assert!(regions.find(1 - color, place, 1).is_none(), "the other colour");
        }
    }

    #[test]
    fn memory_that_peers_map_is_found_by_its_address() {
        let mut endpoint = endpoint();
        let mut regions = Regions::beginning_at(ALIGN_BYTES);
        let memory = endpoint.allocate(10_000).unwrap();
        let (private, other) = (heap(10_000), endpoint.allocate(4_096).unwrap());
        regions.register(&mut endpoint, &private, 0).unwrap();
        assert!(regions.find_mappable(&memory).is_none(), "it is not registered");
        let keys = [0, 1].map(|color| regions.register(&mut endpoint, &memory, color).unwrap());
        let found = regions.find_mappable(&memory);
        assert!(keys.iter().any(|&key| found == Some((regions.get(key).unwrap().handle, 0))));
        assert!(regions.find_mappable(&private).is_none() && regions.find_mappable(&other).is_none());
        regions.unregister(&mut endpoint, keys[0]).unwrap();
        assert_eq!(regions.find_mappable(&memory), Some((regions.get(keys[1]).unwrap().handle, 0)));
        regions.unregister(&mut endpoint, keys[1]).unwrap();
        assert!(regions.find_mappable(&memory).is_none(), "no registration is left");
    }

    #[test]
    fn places_come_again_late_and_never_twice_at_once() {
        let mut endpoint = endpoint();
        // Three regions reach to the end of all places.
        let mut regions = Regions::beginning_at(PLACES - 10 * ALIGN_BYTES);
        let memory = heap(8_192);
        let mut keys = vec![];
        for _ in 0..100 {
            keys.push(regions.register(&mut endpoint, &memory, 0).unwrap());
        }
        let mut places: Vec<u64> = keys.iter().map(|key| key.place()).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|two| two[1] >= two[0] + 8_192 + ALIGN_BYTES), "{places:?}");
        assert!(places.iter().all(|&place| place >= ALIGN_BYTES && place + 8_192 < PLACES));
        let freed = keys.remove(50);
        regions.unregister(&mut endpoint, freed).unwrap();
        assert!(regions.unregister(&mut endpoint, freed).is_err(), "twice");
        let next = regions.register(&mut endpoint, &memory, 1).unwrap();
        assert_ne!(next, freed, "not at once");
        assert!(regions.get(freed).is_err() && regions.get(next).is_ok());
    }

    #[test]
    fn a_full_rank_says_so_and_uses_the_gaps_that_are_left() {
        let mut endpoint = endpoint();
        let mut regions = Regions::beginning_at(ALIGN_BYTES);
        let page = endpoint.allocate(4_096).unwrap();
        let first = regions.register(&mut endpoint, &page, 0).unwrap();
        let second = regions.register(&mut endpoint, &page, 0).unwrap();
        let third = regions.register(&mut endpoint, &page, 0).unwrap();
        regions.next = PLACES;
        assert_eq!(first.place(), ALIGN_BYTES);
        regions.unregister(&mut endpoint, second).unwrap();
        let again = regions.register(&mut endpoint, &page, 0).unwrap();
        assert_eq!(again, second, "the one gap before the third");
        assert!(third > again);
        assert!(matches!(regions.find_free(0, PLACES), Err(AcpError::Full(_))));
        assert!(matches!(regions.register(&mut endpoint, &page, COLORS), Err(AcpError::Argument(_))));
    }
}
