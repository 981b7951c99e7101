//! One-sided memory (CCS section 3.1): the memory that this process has registered, the known regions of other ranks, and
//! operations on these.
//!
//! Remote addresses are those of the target. This process asks once which region has an address, and remembers it. If the region
//! was deregistered since, the target refuses the operation, and this process asks once more.

use super::direct::{Attempt, Direct};
use super::links::Links;
use super::operation::{self, Action, Answered, Described, Operation, Progress, Purpose, Started};
use super::packed::Descriptions;
use super::part::{Elements, Part, Transfer};
use super::registered::{Registered, address, find};
use super::results::Results;
use super::served::{self, Next, Served};
use crate::arithmetic::{Accumulation, Change, Number};
use crate::description::PackError;
use crate::error::{AmError, Result};
use crate::limits::OPERATIONS_MAX;
use crate::wire::{LargeOutcome, Range, Region, Update, Updating, Word};
use cci::{Access, Memory, RegionHandle, Status};
use cci_job::numbered::Numbered;
use std::collections::{HashSet, VecDeque};

const POINTER_BYTES: u64 = 8;

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
    /// Operations that were not started, since their region was asked for, or there is no space.
    waiting: VecDeque<u64>,
    started: u64,
    /// Operations under way, by rank.
    under_way: Numbered<u32, u64>,
    ended: VecDeque<Ended>,
    results: Results,
    direct: Direct,
    /// Changes that this process makes for others.
    served: Served,
    descriptions: Descriptions,
}

impl OneSided {
    /// Lets all ranks of the job access this memory. It may be registered several times.
    pub fn register(&mut self, links: &mut Links, memory: &Memory) -> Result<()> {
        let start = address(memory);
        let same = |one: &&mut Registered| {
            one.region.start == start && one.region.handle.len_bytes() == memory.len() as u64
        };
        if let Some(known) = self.registered.iter_mut().find(same) {
            known.uses = known.uses.checked_add(1).ok_or(AmError::Full(
                "this memory is registered too many times: deregister it once for each registration",
            ))?;
            return Ok(());
        }
        let handle = links.endpoint().register(memory, Access::ALL)?;
        let region = Region { start, handle };
        self.registered.push(Registered { memory: memory.clone(), region, uses: 1, is_symmetric: false });
        Ok(())
    }

    /// Registers memory that all ranks have at one address.
    pub fn register_symmetric(&mut self, links: &mut Links, memory: &Memory) -> Result<()> {
        self.register(links, memory)?;
        let start = address(memory);
        let is = |one: &&mut Registered| one.region.start == start;
        self.registered.iter_mut().filter(is).for_each(|one| one.is_symmetric = true);
        Ok(())
    }

    /// Ends all registrations of symmetric memory, and forgets the regions of other ranks.
    pub fn free_symmetric(&mut self, links: &mut Links, memory: &Memory) {
        let start = address(memory);
        for one in self.registered.extract_if(.., |one| one.is_symmetric && one.region.start == start) {
            let done = links.endpoint().deregister(&one.region.handle);
            debug_assert!(done.is_ok());
        }
        for regions in self.known.values_mut() {
            regions.retain(|region| region.start != start);
        }
        self.direct.forget(None, Some(start));
    }

    /// Ends one registration. With the last one, the rights of other ranks end.
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
        if known.is_symmetric {
            return Err(AmError::State("symmetric memory is registered until all ranks free it"));
        }
        links.endpoint().deregister(&known.region.handle)?;
        self.registered.swap_remove(at);
        Ok(())
    }

    /// Copies if that can be done now, by a plain copy. Returns false if nothing was done; [`OneSided::transfer`] finds out why.
    #[inline(always)]
    pub fn transfer_at_once(
        &self,
        links: &mut Links,
        transfer: Transfer,
        (rank, remote): (u32, u64),
        local: &Part,
    ) -> bool {
        self.waiting.is_empty()
            && local.len_bytes > 0
            && self.direct.copy_mapped(links.endpoint(), transfer, (rank, remote), local)
    }

    /// Changes a word if that can be done now, and returns the previous value. `None` if nothing was done; [`OneSided::atomic`]
    /// finds out why. After an error it is not known whether the change was made.
    #[inline]
    pub fn fetch_at_once(
        &mut self,
        links: &mut Links,
        (rank, remote): (u32, u64),
        change: Change,
    ) -> Option<Result<u64, Status>> {
        let Change::Core(atomic) = change else { return None };
        if !self.waiting.is_empty() {
            return None;
        }
        self.direct.fetch(links.endpoint(), (rank, remote), atomic)
    }

    /// Starts a copy that [`OneSided::transfer_at_once`] has not done. [`OneSided::next_ended`] reports its end once, unless it
    /// has ended well already: then this returns the value.
    pub fn transfer(
        &mut self,
        links: &mut Links,
        transfer: Transfer,
        rank: u32,
        remote: u64,
        local: &Part,
        cookie: u64,
    ) -> Result<Option<u64>> {
        if local.offset.checked_add(local.len_bytes).is_none_or(|end| end > local.memory.len()) {
            return Err(AmError::Range("the local part ends behind its memory"));
        }
        let remote = Range { start: remote, len_bytes: local.len_bytes as u64 };
        self.check(remote)?;
        if self.waiting.is_empty() && local.len_bytes > 0 {
            let id = self.started + 1;
            match self.direct.copy(links, &self.registered, transfer, (rank, remote), local, id) {
                Attempt::Ended(value) => return Ok(Some(value)),
                Attempt::NotTried => {}
                Attempt::Started(staged) => {
                    let (part, made) = match staged {
                        Some((memory, handle)) => {
                            (Part { memory, offset: 0, len_bytes: local.len_bytes }, Some(handle))
                        }
                        None => (local.clone(), None),
                    };
                    let purpose = Purpose::Program(cookie);
                    self.enter(rank, (remote, None), Action::Transfer(transfer, part), made, purpose);
                    return Ok(None);
                }
            }
        }
        self.start(links, rank, remote, cookie, |_, _| Ok(Action::Transfer(transfer, local.clone())))?;
        Ok(None)
    }

    /// Asks a rank to write a part of local memory to the place to which one of its pointers points. [`OneSided::next_ended`]
    /// reports the end once.
    pub fn indexed_put(
        &mut self,
        links: &mut Links,
        rank: u32,
        pointer: u64,
        local: Part,
        cookie: u64,
    ) -> Result<()> {
        if local.offset.checked_add(local.len_bytes).is_none_or(|end| end > local.memory.len()) {
            return Err(AmError::Range("the local part ends behind its memory"));
        }
        if !pointer.is_multiple_of(POINTER_BYTES) {
            return Err(AmError::Argument("the address of the pointer of an indexed put is a multiple of 8"));
        }
        let remote = Range { start: pointer, len_bytes: POINTER_BYTES };
        self.start(links, rank, remote, cookie, |_, _| Ok(Action::IndexedPut(local)))
    }

    /// Asks a rank to change elements of its memory by described data. [`OneSided::next_ended`] reports the end once.
    pub fn accumulate(
        &mut self,
        links: &mut Links,
        (how, number): (Accumulation, Number),
        rank: u32,
        there: (u64, Elements),
        here: (&Memory, isize, Elements),
        cookie: u64,
    ) -> Result<()> {
        if !how.fits(number) {
            return Err(AmError::NO_BITS);
        }
        let (described, remote) = describe(Transfer::Put, there, here)?;
        if !described.has_whole(number) {
            return Err(AmError::Argument(
                "what is accumulated are whole elements, at multiples of their length",
            ));
        }
        let action = Action::Accumulate(Box::new(described), number, how);
        self.start(links, rank, remote, cookie, |_, _| Ok(action))
    }

    /// Starts a copy between described data. [`OneSided::next_ended`] reports its end once, unless it has ended well already:
    /// then this returns 0.
    pub fn transfer_described(
        &mut self,
        links: &mut Links,
        transfer: Transfer,
        rank: u32,
        there: (u64, Elements),
        here: (&Memory, isize, Elements),
        cookie: u64,
    ) -> Result<Option<u64>> {
        let (described, remote) = describe(transfer, there, here)?;
        self.check(remote)?;
        if self.waiting.is_empty() && rank != links.rank() && remote.len_bytes > 0 {
            let known = self.known.get(&rank).map(Vec::as_slice).unwrap_or_default();
            if self.direct.copy_described(links, known, (rank, remote), &described) {
                return Ok(Some(0));
            }
        }
        self.start(links, rank, remote, cookie, |_, _| Ok(Action::Described(Box::new(described))))?;
        Ok(None)
    }

    /// Starts an atomic operation that [`OneSided::fetch_at_once`] has not done. [`OneSided::next_ended`] reports its end once.
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
            return Err(AmError::NO_BITS);
        }
        if !remote.is_multiple_of(len_bytes) {
            return Err(AmError::Argument("the address of an atomic operation is a multiple of its width"));
        }
        let remote = Range { start: remote, len_bytes };
        self.check(remote)?;
        let action = |results: &mut Results, links: &mut Links| {
            results.take(links.endpoint()).map(|slot| Action::Atomic(change, change.attempt(0), slot))
        };
        self.start(links, rank, remote, cookie, action)
    }

    fn check(&self, remote: Range) -> Result<()> {
        if remote.end().is_none() {
            return Err(AmError::Argument("there are no such remote addresses"));
        }
        if self.operations.len() + self.ended.len() >= OPERATIONS_MAX {
            return Err(AmError::WouldBlock);
        }
        Ok(())
    }

    fn start(
        &mut self,
        links: &mut Links,
        rank: u32,
        remote: Range,
        cookie: u64,
        action: impl FnOnce(&mut Results, &mut Links) -> Result<Action>,
    ) -> Result<()> {
        self.check(remote)?;
        if remote.len_bytes == 0 {
            self.ended.push_back(Ended { cookie, result: Ok(0) });
            return Ok(());
        }
        let action = action(&mut self.results, links)?;
        self.insert(links, rank, (remote, None), action, Purpose::Program(cookie));
        Ok(())
    }

    /// Fetches the data of a large message. [`OneSided::next_ended`] reports the end once.
    pub fn fetch(
        &mut self,
        links: &mut Links,
        rank: u32,
        (source, region): (Range, Region),
        into: Described,
        (number, cookie): (u64, u64),
    ) {
        let action = Action::Described(Box::new(into));
        self.insert(links, rank, (source, Some(region)), action, Purpose::Large { number, cookie });
    }

    /// Notes that something has ended that is reported as operations are.
    pub fn report_ended(&mut self, cookie: u64, result: Result<u64>) {
        self.ended.push_back(Ended { cookie, result });
    }

    /// Keeps an operation, and starts it as soon as possible.
    fn insert(
        &mut self,
        links: &mut Links,
        rank: u32,
        (remote, region): (Range, Option<Region>),
        action: Action,
        purpose: Purpose,
    ) {
        let id = self.enter(rank, (remote, region), action, None, purpose);
        if !self.waiting.is_empty() || !self.try_start(links, id) {
            self.waiting.push_back(id);
        }
    }

    /// Keeps an operation, by its number.
    fn enter(
        &mut self,
        rank: u32,
        (remote, region): (Range, Option<Region>),
        action: Action,
        made: Option<RegionHandle>,
        purpose: Purpose,
    ) -> u64 {
        let operation = Operation {
            rank,
            action,
            remote,
            wanted: remote,
            is_by_piece: false,
            region,
            made,
            has_asked_again: false,
            purpose,
        };
        self.started += 1;
        *self.under_way.entry(rank).or_default() += 1;
        self.operations.insert(self.started, operation);
        self.started
    }

    /// Starts waiting operations, as far as possible.
    #[inline]
    pub fn advance(&mut self, links: &mut Links) {
        if self.served.is_busy() {
            self.serve_more(links);
        }
        if !self.waiting.is_empty() {
            self.start_waiting(links);
        }
    }

    /// Whether [`OneSided::advance`] has nothing to do.
    #[inline(always)]
    pub fn is_at_rest(&self) -> bool {
        !self.served.is_busy() && self.waiting.is_empty()
    }

    fn start_waiting(&mut self, links: &mut Links) {
        for _ in 0..self.waiting.len() {
            let Some(id) = self.waiting.pop_front() else { return };
            if !self.try_start(links, id) {
                self.waiting.push_back(id);
            }
        }
    }

    /// Whether operations wait for space, which no event may report.
    pub fn is_waiting(&self) -> bool {
        self.waiting.len() > self.asked.len() || self.served.is_stalled()
    }

    /// Tries to start an operation. Returns false if it must wait.
    fn try_start(&mut self, links: &mut Links, id: u64) -> bool {
        let Some(operation) = self.operations.get_mut(&id) else { return true };
        let rank = operation.rank;
        if rank == links.rank() {
            if matches!(operation.action, Action::IndexedPut(_)) && self.served.is_busy() {
                return false;
            }
            let Some(result) = operation.run_here(&self.registered) else { return false };
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
        let given = operation.region;
        if let (Action::Described(described), None) = (&mut operation.action, given) {
            let packs = &mut self.descriptions;
            let is_packed = described.is_packed.unwrap_or_else(|| {
                described.is_in_short_pieces() && packs.may_pack(links, rank, &described.there.description)
            });
            described.is_packed = Some(is_packed);
            if is_packed {
                return packs.ask(links, rank, described, id);
            }
        }
        let known = match &given {
            Some(region) => std::slice::from_ref(region),
            None => self.known.get(&rank).map(Vec::as_slice).unwrap_or_default(),
        };
        match operation::start(links, &self.registered, &self.results, connection, operation, known, id) {
            Ok(Started::Yes) => true,
            Ok(Started::Ended(status)) => {
                let remote = operation.remote;
                let region = known.iter().find(|region| region.offset(remote).is_some());
                if let (Status::Success, None, Some(region)) = (status, given, region) {
                    self.direct.learn(links.endpoint(), rank, connection, *region);
                }
                self.complete(links, id, status);
                true
            }
            Ok(Started::NotYet) => false,
            Ok(Started::Unknown(range)) => {
                operation.wanted = range;
                if self.asked.insert((rank, range)) {
                    links.say(rank, &Word::Ask(range));
                }
                false
            }
            Err(error) => {
                self.end(links, id, Err(error));
                true
            }
        }
    }

    /// Handles a rank's record about memory of this process or of its own. Returns false if the rank breaks the protocol.
    pub fn hear(&mut self, links: &mut Links, rank: u32, word: Word) -> bool {
        match word {
            Word::Ask(range) => links.say(rank, &Word::Answer(range, find(&self.registered, range))),
            Word::Answer(range, region) => self.learn(links, rank, range, region),
            Word::Update(update) => return self.serve(links, rank, update),
            Word::Updated(id, refused) => {
                return self.updated(links, rank, id, refused.map_or(Ok(None), Err));
            }
            Word::Description(slot, description) => self.descriptions.learn(rank, slot, description),
            Word::Gathered(id, data) => return self.updated(links, rank, id, Ok(Some(&data))),
            _ => return false,
        }
        true
    }

    /// Handles a rank's request to read or change memory of this process. Returns false if the rank may not ask for that.
    fn serve(&mut self, links: &mut Links, rank: u32, update: Update) -> bool {
        match &update.what {
            Updating::Accumulate { number, how, pieces, data } => {
                let made = served::accumulate(&self.registered, *number, *how, pieces, data);
                links.say(rank, &Word::Updated(update.id, made.err()));
                true
            }
            Updating::Scatter { .. } | Updating::Gather { .. } => {
                self.descriptions.serve(links, &self.registered, rank, &update)
            }
            Updating::Indexed { .. } | Updating::IndexedFar { .. } => {
                let is_kept = self.served.keep(rank, update);
                if is_kept {
                    self.serve_more(links);
                }
                is_kept
            }
        }
    }

    /// Makes indexed puts of other ranks, as far as possible.
    fn serve_more(&mut self, links: &mut Links) {
        while let Some(next) = self.served.next(&self.registered) {
            match next {
                Next::Ended(rank, id, made) => links.say(rank, &Word::Updated(id, made.err())),
                Next::Fetch { .. } if self.operations.len() >= OPERATIONS_MAX => {
                    return self.served.not_begun();
                }
                Next::Fetch { rank, source, region, to } => {
                    let action = Action::Transfer(Transfer::Get, to);
                    self.insert(links, rank, (source, Some(region)), action, Purpose::IndexedPut);
                }
            }
        }
    }

    /// Handles a rank's answer to what this process has asked for: data, if it asked for some, or the address that was refused. Returns
    /// false if the rank was not asked for it.
    fn updated(&mut self, links: &mut Links, rank: u32, id: u64, answer: Result<Option<&[u8]>, u64>) -> bool {
        let is = |operation: &&mut Operation| operation.rank == rank && operation.is_update();
        let Some(operation) = self.operations.get_mut(&id).filter(is) else { return false };
        let is_packed = matches!(operation.action, Action::Described(_));
        let answered = match (&mut operation.action, answer) {
            (Action::Described(described), _) => described.answered(answer),
            (_, Ok(Some(_))) => Answered::Nonsense,
            _ if self.waiting.contains(&id) => Answered::Nonsense,
            _ => Answered::Ended(answer.map(|_| ())),
        };
        if answered == Answered::Nonsense {
            return false;
        }
        links.return_update(rank);
        match answered {
            Answered::Ended(Ok(())) if is_packed => self.end(links, id, Ok(0)),
            Answered::Ended(Ok(())) => self.complete(links, id, Status::Success),
            Answered::Ended(Err(address)) => {
                // It may have been going to ask for more.
                self.waiting.retain(|&waiting| waiting != id);
                self.end(links, id, Err(AmError::NotRegistered { rank, address }));
            }
            Answered::InProgress | Answered::Nonsense => {}
        }
        true
    }

    #[cfg(test)]
    pub fn descriptions(&self) -> &Descriptions {
        &self.descriptions
    }

    /// Handles a rank's answer which region has a range.
    fn learn(&mut self, links: &mut Links, rank: u32, range: Range, region: Option<Region>) {
        self.asked.remove(&(rank, range));
        if let Some(region) = region.filter(|region| region.offset(range).is_some()) {
            let known = self.known.entry(rank).or_default();
            known.retain(|old| {
                old.start != region.start || old.handle.len_bytes() != region.handle.len_bytes()
            });
            known.push(region);
            return;
        }
        let mut is_missed = |id: &u64| {
            self.operations.get_mut(id).is_some_and(|operation| {
                let is = operation.rank == rank && operation.wanted == range;
                // Its pieces may be in several regions.
                let has_pieces = is && !operation.is_by_piece && operation.has_pieces();
                operation.is_by_piece |= has_pieces;
                is && !has_pieces
            })
        };
        let missed: Vec<u64> = self.waiting.iter().copied().filter(|id| is_missed(id)).collect();
        self.waiting.retain(|id| !missed.contains(id));
        for id in missed {
            self.end(links, id, Err(AmError::NotRegistered { rank, address: range.start }));
        }
    }

    /// Handles the endpoint's report of the end of an operation.
    pub fn complete(&mut self, links: &mut Links, id: u64, status: Status) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        let (rank, remote, is_by_piece) = (operation.rank, operation.remote, operation.is_by_piece);
        if status == Status::Success && operation.goes_on(&self.results) {
            self.waiting.push_back(id);
            return;
        }
        let result = match status {
            Status::Success => Ok(operation.found(&self.results)),
            Status::RmaHandle if !operation.has_asked_again && operation.region.is_none() => {
                // The region was deregistered, and perhaps registered again.
                operation.has_asked_again = true;
                if let Some(known) = self.known.get_mut(&rank) {
                    known.retain(|region| !is_by_piece && region.offset(remote).is_none());
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

    /// Handles the loss of a rank: what waits for it ends. The endpoint ends what was started.
    pub fn lose(&mut self, links: &mut Links, rank: u32, why: &str) {
        self.known.remove(&rank);
        self.direct.forget(Some(rank), None);
        self.asked.retain(|(asked, _)| *asked != rank);
        self.served.lose(rank);
        self.descriptions.lose(rank);
        let waiting: HashSet<u64> = self.waiting.iter().copied().collect();
        let is = |(&id, operation): (&u64, &Operation)| {
            (operation.rank == rank && (operation.is_update() || waiting.contains(&id))).then_some(id)
        };
        let mut lost: Vec<u64> = self.operations.iter().filter_map(is).collect();
        lost.sort_unstable();
        self.waiting.retain(|id| lost.binary_search(id).is_err());
        for id in lost {
            self.end(links, id, Err(AmError::Gone { rank, why: why.to_owned() }));
        }
    }

    fn end(&mut self, links: &mut Links, id: u64, result: Result<u64>) {
        let Some(operation) = self.operations.remove(&id) else { return };
        if let Some(made) = operation.made {
            // This operation has registered it, and nobody else knows it.
            let done = links.endpoint().deregister(&made);
            debug_assert!(done.is_ok());
        }
        if let Action::Atomic(.., slot) = operation.action {
            self.results.give_back(slot);
        }
        if let Some(count) = self.under_way.get_mut(&operation.rank) {
            *count -= 1;
        }
        match operation.purpose {
            Purpose::Program(cookie) => self.ended.push_back(Ended { cookie, result }),
            Purpose::Large { number, cookie } => {
                let is_there = result.is_ok();
                let outcome = if is_there { LargeOutcome::Fetched } else { LargeOutcome::Unreadable };
                links.say(operation.rank, &Word::LargeEnded(number, outcome));
                self.ended.push_back(Ended { cookie, result });
            }
            Purpose::IndexedPut => {
                let next = self.served.fetched(&self.registered, result.is_ok());
                if let Some(Next::Ended(rank, id, made)) = next {
                    links.say(rank, &Word::Updated(id, made.err()));
                }
            }
        }
    }

    pub fn next_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// How many operations on a rank's memory have not ended; without a rank, on that of all ranks.
    pub fn under_way(&self, rank: Option<u32>) -> u64 {
        match rank {
            _ if self.operations.is_empty() => 0,
            Some(rank) => self.under_way.get(&rank).copied().unwrap_or_default(),
            None => self.operations.len() as u64,
        }
    }
}

/// Makes a transfer between described data on both sides, and the range of all its remote bytes, including those between them.
pub(crate) fn describe(
    transfer: Transfer,
    (remote_origin, there): (u64, Elements),
    (local, origin, here): (&Memory, isize, Elements),
) -> Result<(Described, Range)> {
    const TOO_LARGE: AmError = AmError::Argument("the described data exceed the address space");
    let packed_bytes = here.description.packed_bytes(here.count).ok_or(TOO_LARGE)?;
    if there.description.packed_bytes(there.count) != Some(packed_bytes) {
        return Err(AmError::Argument("both sides of a transfer have the same number of bytes"));
    }
    let span = here.description.span(here.count).ok_or(TOO_LARGE)?;
    let inside = |at: isize| usize::try_from(origin.checked_add(at)?).ok().filter(|&at| at <= local.len());
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
        is_packed: None,
        packed: Progress::default(),
    };
    Ok((described, remote))
}
