//! One-sided memory (CCS section 3.1): what this process has registered, what it knows of other ranks' regions, and operations on those.
//!
//! Remote addresses are the target's own. Which region holds one is asked once and remembered; what was deregistered since is found out
//! by the target's refusal, after which it is asked once more.

use super::links::Links;
use crate::error::{AmError, Result};
use crate::limits::OPERATIONS_MAX;
use crate::wire::{Range, Region, Word};
use cci::{Access, Connection, Memory, RegionAddress, RegionHandle, RmaError, RmaFlags, Status};
use std::collections::{HashMap, HashSet, VecDeque};

/// Bytes that are copied at once within a process.
const COPY_BYTES: usize = 64 << 10;

#[derive(Default)]
pub(crate) struct OneSided {
    registered: Vec<Registered>,
    /// Regions of other ranks.
    known: HashMap<u32, Vec<Region>>,
    /// Questions that have no answer yet.
    asked: HashSet<(u32, Range)>,
    operations: HashMap<u64, Operation>,
    /// Those that were not started: their region is asked for, or there is no space.
    waiting: VecDeque<u64>,
    started: u64,
    /// How many are under way, by rank.
    under_way: HashMap<u32, u64>,
    ended: VecDeque<Ended>,
}

struct Registered {
    memory: Memory,
    region: Region,
    uses: u32,
}

/// What an operation does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Writes to the remote memory.
    Put,
    /// Reads from it.
    Get,
}

/// A part of memory of this process.
#[derive(Clone, Debug)]
pub struct Part {
    /// The memory, which stays as long as the operation goes on.
    pub memory: Memory,
    /// Bytes from its beginning.
    pub offset: usize,
    /// How many bytes.
    pub len_bytes: usize,
}

struct Operation {
    rank: u32,
    transfer: Transfer,
    remote: Range,
    local: Part,
    /// The region that was made of the local memory for this operation.
    made: Option<RegionHandle>,
    has_asked_again: bool,
    cookie: u64,
}

/// An operation that has ended.
pub(crate) struct Ended {
    pub cookie: u64,
    pub result: Result<()>,
}

impl OneSided {
    /// Lets all ranks of the job access this memory, once more.
    pub fn register(&mut self, links: &mut Links, memory: &Memory) -> Result<()> {
        let start = address(memory);
        let same = |one: &&mut Registered| {
            one.region.start == start && one.region.handle.len_bytes() == memory.len() as u64
        };
        if let Some(known) = self.registered.iter_mut().find(same) {
            known.uses = known.uses.checked_add(1).ok_or(AmError::Full("registered too often"))?;
            return Ok(());
        }
        let handle = links.endpoint().register(memory, Access::ALL)?;
        let region = Region { start, handle };
        self.registered.push(Registered { memory: memory.clone(), region, uses: 1 });
        Ok(())
    }

    /// Takes back one registration. With the last one, the rights of other ranks end.
    pub fn deregister(&mut self, links: &mut Links, address: u64, len_bytes: usize) -> Result<()> {
        let is = |one: &Registered| {
            one.region.start == address && one.region.handle.len_bytes() == len_bytes as u64
        };
        let at = self.registered.iter().position(is);
        let at = at.ok_or(AmError::State("this memory is not registered, or not any more"))?;
        let Some(known) = self.registered.get_mut(at) else { return Ok(()) };
        if known.uses > 1 {
            known.uses -= 1;
            return Ok(());
        }
        links.endpoint().deregister(&known.region.handle)?;
        self.registered.swap_remove(at);
        Ok(())
    }

    /// Starts an operation, which ends once, by [`OneSided::next_ended`].
    pub fn start(
        &mut self,
        links: &mut Links,
        transfer: Transfer,
        rank: u32,
        remote: u64,
        local: Part,
        cookie: u64,
    ) -> Result<()> {
        let remote = Range { start: remote, len_bytes: local.len_bytes as u64 };
        if local.offset.checked_add(local.len_bytes).is_none_or(|end| end > local.memory.len()) {
            return Err(AmError::Range("the local part ends behind its memory"));
        }
        if remote.end().is_none() {
            return Err(AmError::Argument("there are no such remote addresses"));
        }
        if self.operations.len() + self.ended.len() >= OPERATIONS_MAX {
            return Err(AmError::Again);
        }
        if local.len_bytes == 0 {
            self.ended.push_back(Ended { cookie, result: Ok(()) });
            return Ok(());
        }
        let operation =
            Operation { rank, transfer, remote, local, made: None, has_asked_again: false, cookie };
        self.started += 1;
        let id = self.started;
        *self.under_way.entry(rank).or_default() += 1;
        self.operations.insert(id, operation);
        if !self.waiting.is_empty() || !self.try_start(links, id) {
            self.waiting.push_back(id);
        }
        Ok(())
    }

    /// Starts what waits, as far as it can be.
    pub fn advance(&mut self, links: &mut Links) {
        for _ in 0..self.waiting.len() {
            let Some(id) = self.waiting.pop_front() else { return };
            if !self.try_start(links, id) {
                self.waiting.push_back(id);
            }
        }
    }

    /// Whether operations wait for space, which nothing may tell of.
    pub fn is_waiting(&self) -> bool {
        self.waiting.len() > self.asked.len()
    }

    /// False: it has to wait.
    fn try_start(&mut self, links: &mut Links, id: u64) -> bool {
        let Some(operation) = self.operations.get_mut(&id) else { return true };
        let (rank, remote) = (operation.rank, operation.remote);
        if rank == links.rank() {
            let result = copy_here(&self.registered, operation);
            self.end(links, id, result);
            return true;
        }
        let connection = match links.connection(rank) {
            Ok(Some(connection)) => connection,
            Ok(None) => return false,
            Err(error) => {
                self.end(links, id, Err(error));
                return true;
            }
        };
        let regions = self.known.get(&rank).map(Vec::as_slice).unwrap_or_default();
        let found = regions.iter().find_map(|region| Some((region.handle, region.offset(remote)?)));
        let Some((handle, offset)) = found else {
            if self.asked.insert((rank, remote)) {
                links.say(rank, &Word::Ask(remote));
            }
            return false;
        };
        let target = RegionAddress::new(handle, offset);
        match start(links, &self.registered, connection, operation, target, id) {
            Ok(()) => true,
            Err(AmError::Again) => false,
            Err(error) => {
                self.end(links, id, Err(error));
                true
            }
        }
    }

    /// What is registered here of what a rank asks for.
    pub fn answer(&self, links: &mut Links, rank: u32, range: Range) {
        links.say(rank, &Word::Answer(range, find(&self.registered, range)));
    }

    /// A rank has said which region holds a range.
    pub fn learn(&mut self, links: &mut Links, rank: u32, range: Range, region: Option<Region>) {
        self.asked.remove(&(rank, range));
        if let Some(region) = region.filter(|region| region.offset(range).is_some()) {
            let known = self.known.entry(rank).or_default();
            known.retain(|old| {
                old.start != region.start || old.handle.len_bytes() != region.handle.len_bytes()
            });
            known.push(region);
            return;
        }
        let is = |operation: &Operation| operation.rank == rank && operation.remote == range;
        let missed: Vec<u64> =
            self.waiting.iter().copied().filter(|id| self.operations.get(id).is_some_and(is)).collect();
        self.waiting.retain(|id| !missed.contains(id));
        for id in missed {
            self.end(links, id, Err(AmError::NotRegistered { rank, address: range.start }));
        }
    }

    /// The endpoint says how an operation has ended.
    pub fn complete(&mut self, links: &mut Links, id: u64, status: Status) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        let (rank, remote) = (operation.rank, operation.remote);
        let result = match status {
            Status::Success => Ok(()),
            Status::RmaHandle if !operation.has_asked_again => {
                // It was deregistered, and perhaps registered again.
                operation.has_asked_again = true;
                if let Some(known) = self.known.get_mut(&rank) {
                    known.retain(|region| region.offset(remote).is_none());
                }
                self.waiting.push_back(id);
                return;
            }
            Status::RmaHandle | Status::RmaOperation => {
                Err(AmError::NotRegistered { rank, address: remote.start })
            }
            status => Err(AmError::Gone { rank, why: status.to_string() }),
        };
        self.end(links, id, result);
    }

    /// A rank is gone: what waits for it ends. The endpoint ends what was started.
    pub fn lose(&mut self, links: &mut Links, rank: u32, why: &str) {
        self.known.remove(&rank);
        self.asked.retain(|(asked, _)| *asked != rank);
        let is = |id: &u64| self.operations.get(id).is_some_and(|operation| operation.rank == rank);
        let lost: Vec<u64> = self.waiting.iter().copied().filter(is).collect();
        self.waiting.retain(|id| !lost.contains(id));
        for id in lost {
            self.end(links, id, Err(AmError::Gone { rank, why: why.to_owned() }));
        }
    }

    fn end(&mut self, links: &mut Links, id: u64, result: Result<()>) {
        let Some(operation) = self.operations.remove(&id) else { return };
        if let Some(made) = operation.made {
            // It was registered by this, and nobody else knows it.
            let done = links.endpoint().deregister(&made);
            debug_assert!(done.is_ok());
        }
        if let Some(count) = self.under_way.get_mut(&operation.rank) {
            *count -= 1;
        }
        self.ended.push_back(Ended { cookie: operation.cookie, result });
    }

    pub fn next_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// How many operations on a rank's memory have not ended; of all ranks, without a rank.
    pub fn under_way(&self, rank: Option<u32>) -> u64 {
        match rank {
            Some(rank) => self.under_way.get(&rank).copied().unwrap_or_default(),
            None => self.operations.len() as u64,
        }
    }
}

/// The address of its first byte.
pub(crate) fn address(memory: &Memory) -> u64 {
    memory.as_ptr().addr() as u64
}

fn find(registered: &[Registered], range: Range) -> Option<Region> {
    registered.iter().find_map(|one| one.region.offset(range).map(|_| one.region))
}

/// Hands an operation to the endpoint. The local memory is registered for it, unless it is already.
fn start(
    links: &mut Links,
    registered: &[Registered],
    connection: Connection,
    operation: &mut Operation,
    target: RegionAddress,
    id: u64,
) -> Result<()> {
    let Part { memory, offset, len_bytes } = &operation.local;
    let range = Range { start: address(memory) + *offset as u64, len_bytes: *len_bytes as u64 };
    let local = match (find(registered, range), operation.made) {
        (Some(region), _) => RegionAddress::new(region.handle, region.offset(range).unwrap_or_default()),
        (None, Some(made)) => RegionAddress::new(made, *offset as u64),
        (None, None) => {
            let made = links.endpoint().register(memory, Access::LOCAL)?;
            operation.made = Some(made);
            RegionAddress::new(made, *offset as u64)
        }
    };
    let (len, endpoint) = (range.len_bytes, links.endpoint());
    let started = match operation.transfer {
        Transfer::Put => endpoint.rma_write(connection, local, target, len, id, RmaFlags::NONE),
        Transfer::Get => endpoint.rma_read(connection, local, target, len, id, RmaFlags::NONE),
    };
    match started {
        Ok(()) => Ok(()),
        // The end of a connection is told by an event, after which the operation ends.
        Err(RmaError::WouldBlock | RmaError::Disconnected) => Err(AmError::Again),
        Err(RmaError::LocalHandle) => Err(AmError::Argument("the local memory is not writable")),
        Err(error) => Err(AmError::Job(cci_job::JobError::Endpoint {
            what: "a remote operation".into(),
            error: Box::new(error),
        })),
    }
}

/// An operation on memory of this process itself.
fn copy_here(registered: &[Registered], operation: &Operation) -> Result<()> {
    let Operation { rank, transfer, remote, local, .. } = operation;
    let inside = |one: &Registered| Some((one.memory.clone(), one.region.offset(*remote)? as usize));
    let found = registered.iter().find_map(inside);
    let (there, at) = found.ok_or(AmError::NotRegistered { rank: *rank, address: remote.start })?;
    let mut buffer = vec![0; local.len_bytes.min(COPY_BYTES)];
    for done in (0..local.len_bytes).step_by(COPY_BYTES) {
        let some = buffer.len().min(local.len_bytes - done);
        let bytes = buffer.get_mut(..some).unwrap_or_default();
        let (from, from_at, to, to_at) = match transfer {
            Transfer::Put => (&local.memory, local.offset, &there, at),
            Transfer::Get => (&there, at, &local.memory, local.offset),
        };
        if !from.read(from_at + done, bytes) || !to.write(to_at + done, bytes) {
            return Err(AmError::Range("the local part ends behind its memory"));
        }
    }
    Ok(())
}
