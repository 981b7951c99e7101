//! Operations on memory that the endpoint has mapped: they have ended when they are started, and nothing is kept of them.

use super::links::Links;
use super::operation::copy_at_once;
use super::part::{Part, Transfer};
use super::registered::{Registered, address, find};
use super::results::Results;
use crate::limits::STAGED_BYTES;
use crate::wire::{Range, Region};
use cci::{Access, Atomic, Connection, Foreign, Memory, RegionAddress, RegionHandle, RmaFlags, Status};

/// Regions that are remembered: one for ranks with the same low bits.
const REGIONS: usize = 16;

/// The shortest puts are copied by a buffer of this length, bytes.
const WORD_BYTES: usize = 16;

/// Copies up to `BYTES` to the beginning of `to`.
#[inline]
fn copy<const BYTES: usize>((from, offset, len): (&Memory, usize, usize), to: &Memory) -> bool {
    let mut bytes = [0; BYTES];
    bytes.get_mut(..len).is_some_and(|bytes| from.read(offset, bytes) && to.write(0, bytes))
}

/// A region that the last operation on it found mapped.
#[derive(Copy, Clone)]
struct Mapped {
    rank: u32,
    connection: Connection,
    region: Region,
}

#[derive(Default)]
pub(crate) struct Direct {
    regions: [Option<Mapped>; REGIONS],
    /// What short puts from memory that is not registered are copied to first.
    staging: Option<(Memory, RegionHandle)>,
}

/// What has become of an operation.
pub(crate) enum Attempt {
    /// It has ended well, with this value.
    Ended(u64),
    /// Nothing was done.
    NotTried,
    /// It was started, and the endpoint tells of its end: from this memory, which was registered for it.
    Started(Option<(Memory, RegionHandle)>),
}

impl Direct {
    /// An operation on a region has ended when it was started.
    pub fn learn(&mut self, rank: u32, connection: Connection, region: Region) {
        if let Some(slot) = self.regions.get_mut(rank as usize % REGIONS) {
            *slot = Some(Mapped { rank, connection, region });
        }
    }

    /// Forgets what lies at this rank, or begins at this address.
    pub fn forget(&mut self, rank: Option<u32>, start: Option<u64>) {
        let is = |one: &mut Mapped| Some(one.rank) == rank || Some(one.region.start) == start;
        for slot in &mut self.regions {
            slot.take_if(is);
        }
    }

    #[inline]
    fn find(&self, rank: u32, remote: Range) -> Option<(Connection, RegionAddress)> {
        let mapped = self.regions.get(rank as usize % REGIONS)?.as_ref().filter(|one| one.rank == rank)?;
        let offset = mapped.region.offset(remote)?;
        Some((mapped.connection, RegionAddress::new(mapped.region.handle, offset)))
    }

    /// Tries a copy, which the endpoint would know by `id`.
    #[inline]
    pub fn copy(
        &mut self,
        links: &mut Links,
        registered: &[Registered],
        transfer: Transfer,
        (rank, remote): (u32, Range),
        local: &Part,
        id: u64,
    ) -> Attempt {
        let Some((connection, target)) = self.find(rank, remote) else { return Attempt::NotTried };
        let Some((at, is_staged)) = self.local(links, registered, transfer, local) else {
            return Attempt::NotTried;
        };
        match copy_at_once(links, connection, transfer, (at, target), local.len_bytes, id) {
            Ok(Some(Status::Success)) => Attempt::Ended(0),
            Ok(None) => {
                self.forget(Some(rank), None);
                Attempt::Started(if is_staged { self.staging.take() } else { None })
            }
            // It was refused at once, or can't be now: what follows will find out why.
            Ok(Some(_)) | Err(_) => {
                self.forget(Some(rank), None);
                Attempt::NotTried
            }
        }
    }

    /// Where the data are, or are put, for the endpoint, and whether these are copies.
    #[inline]
    fn local(
        &mut self,
        links: &mut Links,
        registered: &[Registered],
        transfer: Transfer,
        local: &Part,
    ) -> Option<(RegionAddress, bool)> {
        let Part { memory, offset, len_bytes } = local;
        let range = Range { start: address(memory) + *offset as u64, len_bytes: *len_bytes as u64 };
        if let Some(region) = find(registered, range) {
            return Some((RegionAddress::new(region.handle, region.offset(range)?), false));
        }
        if transfer == Transfer::Get || *len_bytes > STAGED_BYTES {
            return None;
        }
        if self.staging.is_none() {
            let staging = Memory::foreign(Foreign::owned(vec![0; STAGED_BYTES].into_boxed_slice()));
            let handle = links.endpoint().register(&staging, Access::LOCAL).ok()?;
            self.staging = Some((staging, handle));
        }
        let (staging, handle) = self.staging.as_ref()?;
        let part = (memory, *offset, *len_bytes);
        let is_there = if *len_bytes <= WORD_BYTES {
            copy::<WORD_BYTES>(part, staging)
        } else {
            copy::<STAGED_BYTES>(part, staging)
        };
        is_there.then(|| (RegionAddress::new(*handle, 0), true))
    }

    /// Tries an atomic operation, which the endpoint would know by `id`, and whose value goes to this place.
    #[inline]
    pub fn atomic(
        &mut self,
        links: &mut Links,
        results: &Results,
        (rank, remote): (u32, Range),
        (atomic, slot): (Atomic, super::results::Slot),
        id: u64,
    ) -> Attempt {
        let Some((connection, target)) = self.find(rank, remote) else { return Attempt::NotTried };
        let (endpoint, result) = (links.endpoint(), results.address(slot));
        match endpoint.atomic_at_once(connection, atomic, target, result, id, RmaFlags::NONE) {
            Ok(Some(Status::Success)) => Attempt::Ended(results.value(slot)),
            Ok(None) => {
                self.forget(Some(rank), None);
                Attempt::Started(None)
            }
            Ok(Some(_)) | Err(_) => {
                self.forget(Some(rank), None);
                Attempt::NotTried
            }
        }
    }
}
