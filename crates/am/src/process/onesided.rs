//! One-sided memory (CCS section 3.1): what this process has registered, what it knows of other ranks' regions, and operations on those.
//!
//! Remote addresses are the target's own. Which region holds one is asked once and remembered; what was deregistered since is found out
//! by the target's refusal, after which it is asked once more.

use super::links::Links;
use super::operation::{self, Action, Described, Elements, Operation, Part, Transfer};
use super::registered::{Registered, address, find};
use super::results::Results;
use crate::arithmetic::Change;
use crate::description::PackError;
use crate::error::{AmError, Result};
use crate::limits::OPERATIONS_MAX;
use crate::numbered::Numbered;
use crate::wire::{Range, Region, Word};
use cci::{Access, Memory, RegionAddress, Status};
use std::collections::{HashSet, VecDeque};

/// An operation that has ended, with the value that an atomic one found.
pub(crate) struct Ended {
    pub cookie: u64,
    pub result: Result<u64>,
}

#[derive(Default)]
pub(crate) struct OneSided {
    registered: Vec<Registered>,
    /// Regions of other ranks.
    known: Numbered<u32, Vec<Region>>,
    /// Questions that have no answer yet.
    asked: HashSet<(u32, Range)>,
    operations: Numbered<u64, Operation>,
    /// Those that were not started: their region is asked for, or there is no space.
    waiting: VecDeque<u64>,
    started: u64,
    /// How many are under way, by rank.
    under_way: Numbered<u32, u64>,
    ended: VecDeque<Ended>,
    results: Results,
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

    /// Starts to copy, which ends once, by [`OneSided::next_ended`].
    pub fn transfer(
        &mut self,
        links: &mut Links,
        transfer: Transfer,
        rank: u32,
        remote: u64,
        local: Part,
        cookie: u64,
    ) -> Result<()> {
        if local.offset.checked_add(local.len_bytes).is_none_or(|end| end > local.memory.len()) {
            return Err(AmError::Range("the local part ends behind its memory"));
        }
        let remote = Range { start: remote, len_bytes: local.len_bytes as u64 };
        self.start(links, rank, remote, cookie, |_, _| Ok(Action::Transfer(transfer, local)))
    }

    /// Starts to copy between described data, which ends once, by [`OneSided::next_ended`].
    pub fn transfer_described(
        &mut self,
        links: &mut Links,
        transfer: Transfer,
        rank: u32,
        (remote_origin, there): (u64, Elements),
        (local, origin, here): (&Memory, isize, Elements),
        cookie: u64,
    ) -> Result<()> {
        const TOO_LARGE: AmError = AmError::Argument("the described data exceed the address space");
        let packed_bytes = here.description.packed_bytes(here.count).ok_or(TOO_LARGE)?;
        if there.description.packed_bytes(there.count) != Some(packed_bytes) {
            return Err(AmError::Argument("both sides of a transfer have the same number of bytes"));
        }
        let span = here.description.span(here.count).ok_or(TOO_LARGE)?;
        let inside =
            |at: isize| usize::try_from(origin.checked_add(at)?).ok().filter(|&at| at <= local.len());
        if packed_bytes > 0 && (inside(span.start).is_none() || inside(span.end).is_none()) {
            return Err(PackError::OutOfRange.into());
        }
        let span = there.description.span(there.count).ok_or(TOO_LARGE)?;
        let remote = Range {
            start: remote_origin.checked_add_signed(span.start as i64).ok_or(TOO_LARGE)?,
            len_bytes: span.len() as u64,
        };
        let described = Described {
            transfer,
            local: local.clone(),
            origin,
            here,
            remote_origin,
            there,
            packed_bytes,
            done_bytes: 0,
            started_bytes: 0,
        };
        self.start(links, rank, remote, cookie, |_, _| Ok(Action::Described(Box::new(described))))
    }

    /// Starts an atomic operation, which ends once, by [`OneSided::next_ended`].
    pub fn atomic(
        &mut self,
        links: &mut Links,
        rank: u32,
        remote: u64,
        change: Change,
        cookie: u64,
    ) -> Result<()> {
        let len_bytes = change.len_bytes();
        if let Change::Reduce(number, reduction, _) = change
            && !number.can(reduction)
        {
            return Err(AmError::Argument("floats have no bits to be combined"));
        }
        if !remote.is_multiple_of(len_bytes) {
            return Err(AmError::Argument("the address of an atomic operation is a multiple of its width"));
        }
        let action = |results: &mut Results, links: &mut Links| {
            results.take(links.endpoint()).map(|slot| Action::Atomic(change, change.attempt(0), slot))
        };
        self.start(links, rank, Range { start: remote, len_bytes }, cookie, action)
    }

    fn start(
        &mut self,
        links: &mut Links,
        rank: u32,
        remote: Range,
        cookie: u64,
        action: impl FnOnce(&mut Results, &mut Links) -> Result<Action>,
    ) -> Result<()> {
        if remote.end().is_none() {
            return Err(AmError::Argument("there are no such remote addresses"));
        }
        if self.operations.len() + self.ended.len() >= OPERATIONS_MAX {
            return Err(AmError::Again);
        }
        if remote.len_bytes == 0 {
            self.ended.push_back(Ended { cookie, result: Ok(0) });
            return Ok(());
        }
        let action = action(&mut self.results, links)?;
        let operation = Operation { rank, action, remote, made: None, has_asked_again: false, cookie };
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
            let result = operation.run_here(&self.registered);
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
        match operation::start(links, &self.registered, &self.results, connection, operation, target, id) {
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
        if status == Status::Success && operation.goes_on(&self.results) {
            self.waiting.push_back(id);
            return;
        }
        let result = match status {
            Status::Success => Ok(operation.found(&self.results)),
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

    fn end(&mut self, links: &mut Links, id: u64, result: Result<u64>) {
        let Some(operation) = self.operations.remove(&id) else { return };
        if let Some(made) = operation.made {
            // It was registered by this, and nobody else knows it.
            let done = links.endpoint().deregister(&made);
            debug_assert!(done.is_ok());
        }
        if let Action::Atomic(.., slot) = operation.action {
            self.results.give_back(slot);
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
