//! Regions of other ranks that the endpoint has mapped. An operation on such a region has ended when the call that starts it
//! returns.
//!
//! A few regions are remembered: those of the last operations that have ended well. An attempt shows whether a region is mapped.

use crate::address::GlobalAddress;
use crate::limits::COLORS;
use crate::links::Lane;
use crate::wire::Remote;
use cci::{Atomic, Connection, Endpoint, MappedTarget, Memory, RegionAddress, RegionHandle, RmaKind, Status};

/// Groups of regions. Lanes with the same low bits share a group.
const GROUPS: usize = 16;
/// Regions in a group.
const GROUP_REGIONS: usize = 4;
/// A region that was found unmapped this many times is tried only from time to time.
const REFUSALS_MAX: u32 = 16;
const TRY_AGAIN: u32 = 256;

#[derive(Copy, Clone)]
struct Region {
    lane: Lane,
    connection: Connection,
    start: u64,
    handle: RegionHandle,
    /// The endpoint's mapping of the region. It may have to be looked up again.
    target: Option<MappedTarget>,
    /// How often the region was found unmapped since it was last mapped.
    refusals: u32,
}

#[derive(Copy, Clone, Default)]
struct Group {
    regions: [Option<Region>; GROUP_REGIONS],
    /// The region that the next one replaces.
    oldest: usize,
}

#[derive(Default)]
pub(crate) struct Mapped {
    groups: [Group; GROUPS],
    /// Operations that were done since the last turn.
    pub done: u32,
}

impl Region {
    /// Whether to try the region now. Counts an attempt as failed until [`Region::served`] is called.
    #[inline]
    fn is_worth_it(&mut self) -> bool {
        let refusals = self.refusals;
        self.refusals = refusals.saturating_add(1);
        refusals < REFUSALS_MAX || refusals.is_multiple_of(TRY_AGAIN)
    }

    /// Notes that an operation was done, so that the next one needs no search.
    fn served(&mut self, endpoint: &mut Endpoint) {
        self.refusals = 0;
        self.target = endpoint.mapped_target(self.connection, self.handle);
    }
}

impl Mapped {
    #[inline]
    fn group(&mut self, lane: Lane) -> &mut Group {
        let index = (lane.rank.wrapping_mul(COLORS).wrapping_add(lane.color)) as usize % GROUPS;
        // The remainder is below the length.
        &mut self.groups[index]
    }

    /// The region that contains all of these bytes.
    #[inline]
    fn find(&mut self, address: GlobalAddress, len_bytes: u64) -> Option<(&mut Region, u64)> {
        let lane = Lane { rank: address.rank(), color: address.color() };
        self.group(lane).regions.iter_mut().flatten().find_map(|region| {
            let offset = address.place().wrapping_sub(region.start);
            let room = region.handle.len_bytes().checked_sub(len_bytes)?;
            (region.lane == lane && offset <= room).then_some((region, offset))
        })
    }

    /// Remembers a region on which an operation has ended well.
    pub fn learn(&mut self, lane: Lane, connection: Connection, remote: &Remote) {
        let &Remote { start, handle } = remote;
        let group = self.group(lane);
        let is_known = |known: &Region| {
            (known.lane, known.start, known.handle, known.connection) == (lane, start, handle, connection)
        };
        if group.regions.iter().flatten().any(is_known) {
            return;
        }
        group.regions[group.oldest] =
            Some(Region { lane, connection, start, handle, target: None, refusals: 0 });
        group.oldest = (group.oldest + 1) % GROUP_REGIONS;
    }

    /// Forgets the regions of a lane, or all.
    pub fn forget(&mut self, lane: Option<Lane>) {
        for region in self.groups.iter_mut().flat_map(|group| &mut group.regions) {
            region.take_if(|region| lane.is_none_or(|lane| region.lane == lane));
        }
    }

    /// Tries an operation on another rank's memory where the endpoint has found it before.
    #[inline(always)]
    fn attempt<T>(
        &mut self,
        (address, len_bytes): (GlobalAddress, u64),
        operation: impl FnOnce((&MappedTarget, u64)) -> Option<T>,
    ) -> Option<T> {
        let (region, offset) = self.find(address, len_bytes)?;
        let done = operation((region.target.as_ref()?, offset))?;
        self.done += 1;
        Some(done)
    }

    /// Tries an operation on another rank's memory, which the endpoint looks up. `None` if it was not done.
    #[cold]
    #[inline(never)]
    fn look_for<T>(
        &mut self,
        endpoint: &mut Endpoint,
        (address, len_bytes): (GlobalAddress, u64),
        operation: impl FnOnce(&mut Endpoint, Connection, RegionAddress) -> Option<T>,
    ) -> Option<T> {
        let (region, offset) = self.find(address, len_bytes)?;
        if !region.is_worth_it() {
            return None;
        }
        let done = operation(endpoint, region.connection, RegionAddress::new(region.handle, offset))?;
        region.served(endpoint);
        self.done += 1;
        Some(done)
    }

    /// Copies between memory of this process and another rank's. Returns false if nothing was copied completely.
    #[inline]
    pub fn copy(
        &mut self,
        endpoint: &mut Endpoint,
        kind: RmaKind,
        (address, len_bytes): (GlobalAddress, u64),
        (memory, offset): (&Memory, u64),
    ) -> bool {
        let (what, len) = ((address, len_bytes), len_bytes as usize);
        let local = (memory, offset as usize);
        let is_done = |target: (&MappedTarget, u64)| {
            endpoint.copy_mapped_at_once(kind, local, target, len).then_some(())
        };
        self.attempt(what, is_done).is_some()
            || self
                .look_for(endpoint, what, |endpoint, on, target| {
                    endpoint.copy_at_once(kind, on, local, target, len).then_some(())
                })
                .is_some()
    }

    /// Reads bytes of another rank's memory. Returns false if it failed; some bytes may have been read.
    #[inline]
    pub fn read(&mut self, endpoint: &mut Endpoint, address: GlobalAddress, bytes: &mut [u8]) -> bool {
        let what = (address, bytes.len() as u64);
        self.attempt(what, |source| endpoint.read_mapped_at_once(source, bytes).then_some(())).is_some()
            || self
                .look_for(endpoint, what, |endpoint, on, source| {
                    endpoint.read_at_once(on, source, bytes).then_some(())
                })
                .is_some()
    }

    /// Writes bytes to another rank's memory. Returns false if it failed; some bytes may have been written.
    #[inline]
    pub fn write(&mut self, endpoint: &mut Endpoint, address: GlobalAddress, bytes: &[u8]) -> bool {
        let what = (address, bytes.len() as u64);
        self.attempt(what, |target| endpoint.write_mapped_at_once(bytes, target).then_some(())).is_some()
            || self
                .look_for(endpoint, what, |endpoint, on, target| {
                    endpoint.write_at_once(on, bytes, target).then_some(())
                })
                .is_some()
    }

    /// Changes an aligned value of another rank, and returns the previous value. `None` if nothing was done. After an error it is
    /// not known whether the value was changed.
    #[inline]
    pub fn fetch(
        &mut self,
        endpoint: &mut Endpoint,
        address: GlobalAddress,
        atomic: Atomic,
    ) -> Option<Result<u64, Status>> {
        let what = (address, atomic.width.bytes() as u64);
        self.attempt(what, |target| endpoint.fetch_mapped_at_once(atomic, target)).or_else(|| {
            self.look_for(endpoint, what, |endpoint, on, target| endpoint.fetch_at_once(on, atomic, target))
        })
    }
}
