//! Operations on memory that the endpoint has mapped. They have ended when the call that starts them returns, and no state of
//! them is kept.

use super::links::Links;
use super::operation::{Described, copy_at_once};
use super::part::{Part, Transfer};
use super::registered::{Registered, address, find};
use crate::description::{Run, pair_runs};
use crate::limits::STAGED_BYTES;
use crate::wire::{Range, Region};
use cci::{
    Access, Atomic, BlockRun, Connection, Endpoint, Foreign, MappedTarget, Memory, RegionAddress,
    RegionHandle, RmaKind, Status,
};
use std::ops::ControlFlow;

/// Number of regions that are remembered. Ranks with the same low bits share a place.
const REGIONS: usize = 16;

/// Puts of up to this length are copied through a buffer, bytes.
const WORD_BYTES: usize = 16;

/// Described data are copied in parts of up to this many bytes, and this many runs of blocks on each side.
const PART_BYTES: usize = 256 << 10;
const PART_RUNS: usize = 256;

/// Copies up to `BYTES` to the beginning of `to`.
#[inline]
fn copy<const BYTES: usize>((from, offset, len): (&Memory, usize, usize), to: &Memory) -> bool {
    let mut bytes = [0; BYTES];
    bytes.get_mut(..len).is_some_and(|bytes| from.read(offset, bytes) && to.write(0, bytes))
}

/// A region that was mapped at the last operation on it.
#[derive(Copy, Clone)]
struct Mapped {
    rank: u32,
    connection: Connection,
    region: Region,
    /// The endpoint's mapping; `None` if it is not mapped.
    target: Option<MappedTarget>,
}

#[derive(Default)]
pub(crate) struct Direct {
    regions: [Option<Mapped>; REGIONS],
    /// A buffer for short puts from memory that is not registered.
    staging: Option<(Memory, RegionHandle)>,
    /// The runs of the part of described data that is being copied: local, remote, and of both together. The lists keep their
    /// space.
    runs: (Vec<Run>, Vec<Run>, Vec<BlockRun>),
}

/// The result of an attempt.
pub(crate) enum Attempt {
    /// It has ended well, with this value.
    Ended(u64),
    /// Nothing was done.
    NotTried,
    /// It was started, and the endpoint will report its end. This is the memory that was registered for it.
    Started(Option<(Memory, RegionHandle)>),
}

fn rma_kind(transfer: Transfer) -> RmaKind {
    match transfer {
        Transfer::Put => RmaKind::Write,
        Transfer::Get => RmaKind::Read,
    }
}

impl Described {
    /// Finds the runs of the next part on both sides, and those of both together, with their places in the local memory and in a
    /// region that begins at this address. Returns how many bytes these are; 0 if some are outside.
    fn next_runs(
        &self,
        region: u64,
        done: usize,
        (here, there): (&mut Vec<Run>, &mut Vec<Run>),
        both: &mut Vec<BlockRun>,
    ) -> usize {
        here.clear();
        there.clear();
        both.clear();
        let bytes = self.here.description.runs(self.here.count, done, PART_BYTES, PART_RUNS, here);
        let bytes = self.there.description.runs(self.there.count, done, bytes, PART_RUNS, there);
        let from_region = self.remote_origin.wrapping_sub(region);
        let paired = pair_runs(here, there, |here, there| {
            let local = usize::try_from(self.origin.wrapping_add(here.at));
            let remote = usize::try_from(from_region.wrapping_add_signed(there.at as i64));
            let (Ok(local), Ok(remote)) = (local, remote) else { return ControlFlow::Break(()) };
            both.push(BlockRun {
                local,
                local_stride: here.stride,
                remote,
                remote_stride: there.stride,
                len_bytes: here.len_bytes,
                count: here.count,
            });
            ControlFlow::Continue(())
        });
        if paired.is_continue() { bytes } else { 0 }
    }
}

impl Direct {
    /// Remembers a region on which an operation has ended when it was started.
    pub fn learn(&mut self, endpoint: &mut Endpoint, rank: u32, connection: Connection, region: Region) {
        let target = endpoint.mapped_target(connection, region.handle);
        if let Some(slot) = self.regions.get_mut(rank as usize % REGIONS) {
            *slot = Some(Mapped { rank, connection, region, target });
        }
    }

    /// The endpoint's mapping of the region of the last operation on a rank, and the offset of the address in it, if it is in the
    /// region.
    #[inline(always)]
    fn target(&self, rank: u32, remote: u64) -> Option<(&MappedTarget, u64)> {
        let mapped = self.regions.get(rank as usize % REGIONS)?.as_ref().filter(|one| one.rank == rank)?;
        Some((mapped.target.as_ref()?, remote.wrapping_sub(mapped.region.start)))
    }

    /// Looks up the endpoint's mapping of a region again.
    fn find_again(&mut self, endpoint: &mut Endpoint, rank: u32) {
        if let Some(Some(mapped)) = self.regions.get_mut(rank as usize % REGIONS)
            && mapped.rank == rank
        {
            mapped.target = endpoint.mapped_target(mapped.connection, mapped.region.handle);
        }
    }

    /// Forgets regions of this rank, or that begin at this address.
    pub fn forget(&mut self, rank: Option<u32>, start: Option<u64>) {
        let is = |one: &mut Mapped| Some(one.rank) == rank || Some(one.region.start) == start;
        for slot in &mut self.regions {
            slot.take_if(is);
        }
    }

    fn find(&self, rank: u32, remote: Range) -> Option<(Connection, RegionAddress)> {
        let mapped = self.regions.get(rank as usize % REGIONS)?.as_ref().filter(|one| one.rank == rank)?;
        let offset = mapped.region.offset(remote)?;
        Some((mapped.connection, RegionAddress::new(mapped.region.handle, offset)))
    }

    /// Copies between local memory, registered or not, and a region that was found mapped. Returns false if nothing was copied
    /// completely.
    #[inline(always)]
    pub fn copy_mapped(
        &self,
        endpoint: &mut Endpoint,
        transfer: Transfer,
        (rank, remote): (u32, u64),
        local: &Part,
    ) -> bool {
        let Part { memory, offset, len_bytes } = local;
        let Some(target) = self.target(rank, remote) else { return false };
        endpoint.copy_mapped_at_once(rma_kind(transfer), (memory, *offset), target, *len_bytes)
    }

    /// Tries a copy that [`Direct::copy_mapped`] has not done. The endpoint would identify it by `id`.
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
        self.find_again(links.endpoint(), rank);
        if self.copy_mapped(links.endpoint(), transfer, (rank, remote.start), local) {
            return Attempt::Ended(0);
        }
        let Some((at, is_staged)) = self.local(links, registered, transfer, local) else {
            return Attempt::NotTried;
        };
        match copy_at_once(links, connection, transfer, (at, target), local.len_bytes, id) {
            Ok(Some(Status::Success)) => Attempt::Ended(0),
            Ok(None) => {
                self.forget(Some(rank), None);
                Attempt::Started(if is_staged { self.staging.take() } else { None })
            }
            // It was refused at once, or is not possible now. The ordinary path will find out why.
            Ok(Some(_)) | Err(_) => {
                self.forget(Some(rank), None);
                Attempt::NotTried
            }
        }
    }

    /// Tries a copy between described data, whose remote bytes are all in this range. `known` has regions of the rank. Returns
    /// false if it was not done, or only in part.
    pub fn copy_described(
        &mut self,
        links: &mut Links,
        known: &[Region],
        (rank, remote): (u32, Range),
        described: &Described,
    ) -> bool {
        let holds = |region: &&Region| region.offset(remote).is_some();
        let Some(region) = known.iter().find(holds) else { return false };
        let Ok(Some(connection)) = links.connection(rank) else { return false };
        let (mut here, mut there, mut both) = std::mem::take(&mut self.runs);
        let (kind, mut done) = (rma_kind(described.transfer), 0);
        while done < described.packed_bytes {
            let bytes = described.next_runs(region.start, done, (&mut here, &mut there), &mut both);
            let endpoint = links.endpoint();
            if bytes == 0
                || !both.chunks(PART_RUNS).all(|runs| {
                    endpoint.copy_blocks_at_once(kind, connection, &described.local, region.handle, runs)
                })
            {
                break;
            }
            done += bytes;
        }
        self.runs = (here, there, both);
        done == described.packed_bytes
    }

    /// The region of the local data for the endpoint, and whether it is a copy.
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

    /// Tries an atomic operation. `None` if it was not done. After an error it is not known whether it was done.
    #[inline]
    pub fn fetch(
        &mut self,
        endpoint: &mut Endpoint,
        (rank, remote): (u32, u64),
        atomic: Atomic,
    ) -> Option<Result<u64, Status>> {
        let fetched = endpoint.fetch_mapped_at_once(atomic, self.target(rank, remote)?);
        if let Some(Err(_)) = fetched {
            self.forget(Some(rank), None);
        }
        fetched
    }
}
