//! Operations on global memory, from their order to the endpoint.
//!
//! An operation whose turn it is enters the queue of the rank and colour that it needs. There it waits for the connection, for
//! the rank's region, and for space. **Invariant:** operations that wait for one rank or condition delay no operation of another;
//! each operation ends once.

use crate::address::GlobalAddress;
use crate::error::{AcpError, Result};
use crate::limits::{ASKED_COPIES_MAX, AT_ONCE_BYTES_MAX, AT_ONCE_TURN, COLORS, COPY_BYTES, PLACES};
use crate::links::{Lane, Links, News};
use crate::mapped::Mapped;
use crate::orders::{Orders, Turn};
use crate::regions::Regions;
use crate::results::{Results, Slot};
use crate::wire::{Record, Remote};
use cci::{Atomic, AtomicWidth, Memory, RegionAddress, RmaError, RmaFlags, RmaKind, Status};
use cci_job::JobError;
use cci_job::numbered::Numbered;
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Identifies an operation of this process (`acp_handle_t`). Later operations have greater handles.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(u64);

impl Handle {
    /// The handle's number, from 1.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// When an operation may start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// At once (`ACP_HANDLE_NULL`).
    Now,
    /// After this operation and all before it have ended.
    After(Handle),
    /// After all that were issued before have ended (`ACP_HANDLE_ALL`).
    All,
    /// With the ranks and colours of the operation before: when that one may start, and without overtaking it, so that a flag may
    /// follow its data. Otherwise like [`Order::All`] (`ACP_HANDLE_CONT`).
    Continue,
}

/// A copy, or an atomic change at the source that writes the previous value to the destination.
#[derive(Copy, Clone)]
struct Operation {
    dst: GlobalAddress,
    src: GlobalAddress,
    len_bytes: u64,
    /// The change; `None` for a copy.
    atomic: Option<Atomic>,
}

/// The operation of a call that returns when the operation has ended.
#[derive(Copy, Clone)]
pub(crate) enum Direct {
    /// Copies this many bytes.
    Copy(u64),
    /// Changes a word.
    Atomic(Atomic),
}

/// The origin of an operation.
#[derive(Copy, Clone)]
enum Origin {
    /// This process, with the number of the handle.
    Own(u64),
    /// This process, in a call that returns when the operation has ended. No order applies to it, and the call returns its
    /// failure.
    Direct,
    /// A rank that has asked for it, with that rank's number of it.
    Asked(Lane, u64),
}

/// An operation that may start or has started.
#[derive(Copy, Clone)]
struct Work {
    origin: Origin,
    operation: Operation,
    /// Whether it must not overtake operations that started before.
    is_fenced: bool,
    /// Where an atomic operation on 4 bytes writes the previous value.
    slot: Option<Slot>,
}

/// The result of an attempt to start.
enum Started {
    /// It is under way.
    UnderWay,
    Ended(Result<()>),
    /// It must wait: for space, or for an event.
    NotYet {
        for_space: bool,
    },
}

#[derive(Default)]
pub(crate) struct Engine {
    orders: Orders<(Operation, bool)>,
    /// The last operation that was issued, and the operation that it had to wait for.
    last: Option<(Operation, u64)>,
    queues: Numbered<Lane, VecDeque<Work>>,
    /// Operations that have started and not ended, by the context of their events.
    under_way: Numbered<u64, Work>,
    started: u64,
    /// Known regions of other ranks, by their first places.
    known: Numbered<Lane, BTreeMap<u64, Remote>>,
    asked: HashSet<(Lane, u64)>,
    /// Copies that others do for this rank, and copies that this rank does for others.
    asked_copies: Numbered<Lane, u32>,
    copies_for: Numbered<Lane, u32>,
    results: Results,
    pub mapped: Mapped,
    /// The result of the operation of a call.
    direct: Option<Result<()>>,
    /// Whether an operation was not started because space was lacking.
    pub waits_for_space: bool,
}

impl Engine {
    /// Whether the operation of a call has ended.
    pub fn has_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Issues a copy.
    pub fn copy(
        &mut self,
        links: &mut Links,
        regions: &Regions,
        (dst, src, len_bytes): (GlobalAddress, GlobalAddress, u64),
        order: Order,
    ) -> Result<Handle> {
        let operation = Operation { dst, src, len_bytes, atomic: None };
        if let Some(handle) = self.issue_at_once(links, regions, &operation, order) {
            return Ok(handle);
        }
        let operation = Operation::copy(links, regions, (dst, src, len_bytes))?;
        Ok(self.issue(links, regions, operation, order))
    }

    /// Issues an atomic operation.
    pub fn atomic(
        &mut self,
        links: &mut Links,
        regions: &Regions,
        (dst, src, atomic): (GlobalAddress, GlobalAddress, Atomic),
        order: Order,
    ) -> Result<Handle> {
        let operation = Operation { dst, src, len_bytes: width_bytes(atomic), atomic: Some(atomic) };
        if let Some(handle) = self.issue_at_once(links, regions, &operation, order) {
            return Ok(handle);
        }
        let operation = Operation::atomic(links, regions, (dst, src, atomic))?;
        Ok(self.issue(links, regions, operation, order))
    }

    /// Issues an operation that may start now and is done at once, since it is between memory of this process and a mapped
    /// region. `None` if that is not possible; then nothing was issued.
    #[inline]
    fn issue_at_once(
        &mut self,
        links: &mut Links,
        regions: &Regions,
        operation: &Operation,
        order: Order,
    ) -> Option<Handle> {
        let after = match order {
            Order::Now => 0,
            Order::After(handle) => handle.0,
            Order::All | Order::Continue => self.orders.last(),
        };
        if !self.orders.is_free(after) {
            return None;
        }
        let done = self.do_at_once(links, regions, operation)?;
        self.last = Some((*operation, after));
        let number = match done {
            Ok(()) => self.orders.issue_ended(),
            Err(error) => {
                let number = self.orders.issue_started();
                self.orders.end(number, Err(error.to_string()));
                number
            }
        };
        Some(Handle(number))
    }

    /// Does an operation between memory of this process and a mapped region. `None` if nothing was done.
    #[inline]
    fn do_at_once(
        &mut self,
        links: &mut Links,
        regions: &Regions,
        operation: &Operation,
    ) -> Option<Result<()>> {
        let &Operation { dst, src, len_bytes, atomic } = operation;
        let rank = links.rank();
        let is_write = src.rank() == rank;
        let (own, other, kind) =
            if is_write { (src, dst, RmaKind::Write) } else { (dst, src, RmaKind::Read) };
        if own.rank() != rank || len_bytes > AT_ONCE_BYTES_MAX {
            return None;
        }
        let (_, region, offset) = regions.find(own.color(), own.place(), len_bytes)?;
        match atomic {
            None => {
                let own = (&region.memory, offset);
                self.mapped.copy(links.endpoint(), kind, (other, len_bytes), own).then_some(Ok(()))
            }
            Some(_) if is_write || !are_aligned([dst, src], len_bytes) => None,
            Some(atomic) => self.mapped.fetch(links.endpoint(), src, atomic).map(|found| {
                let found = found.map_err(|_| AcpError::NotRegistered(src))?.to_ne_bytes();
                // The low bytes have the value of 4 bytes.
                let bytes = if cfg!(target_endian = "little") {
                    &found[..len_bytes as usize]
                } else {
                    &found[8 - len_bytes as usize..]
                };
                let is_inside = region.memory.write(offset as usize, bytes);
                if is_inside { Ok(()) } else { Err(AcpError::NotRegistered(dst)) }
            }),
        }
    }

    /// Whether so many operations were done at once that others may have waited for a turn.
    #[inline]
    pub fn wants_turn(&self) -> bool {
        self.mapped.done >= AT_ONCE_TURN
    }

    /// Starts the operation of a call that returns when the operation has ended: [`Engine::take_direct`] returns its result.
    /// There is one at a time.
    pub fn start_direct(
        &mut self,
        links: &mut Links,
        regions: &Regions,
        (dst, src): (GlobalAddress, GlobalAddress),
        what: Direct,
    ) -> Result<()> {
        let (len_bytes, atomic) = match what {
            Direct::Copy(len_bytes) => (len_bytes, None),
            Direct::Atomic(atomic) => (width_bytes(atomic), Some(atomic)),
        };
        // An operation that is wrong is not done at once.
        self.direct = self.do_at_once(links, regions, &Operation { dst, src, len_bytes, atomic });
        if self.direct.is_some() {
            return Ok(());
        }
        let operation = match what {
            Direct::Copy(len_bytes) => Operation::copy(links, regions, (dst, src, len_bytes))?,
            Direct::Atomic(atomic) => Operation::atomic(links, regions, (dst, src, atomic))?,
        };
        self.admit(links, regions, Work { origin: Origin::Direct, operation, is_fenced: false, slot: None });
        self.advance(links, regions);
        Ok(())
    }

    /// The result of the operation of a call, if it has ended.
    pub fn take_direct(&mut self) -> Option<Result<()>> {
        self.direct.take()
    }

    fn issue(&mut self, links: &mut Links, regions: &Regions, operation: Operation, order: Order) -> Handle {
        let rank = links.rank();
        let all = self.orders.last();
        let (after, is_fenced) = match (order, self.last) {
            (Order::Now, _) => (0, false),
            (Order::After(handle), _) => (handle.0, false),
            (Order::Continue, Some((last, after))) if operation.continues(&last, rank) => (after, true),
            (Order::All | Order::Continue, _) => (all, false),
        };
        self.last = Some((operation, after));
        let number = self.orders.issue(after, (operation, is_fenced));
        self.advance(links, regions);
        Handle(number)
    }

    /// Forgets what ranks have registered, and their numbers. Nothing may be under way on any rank.
    pub fn forget(&mut self) {
        self.known.clear();
        self.mapped.forget(None);
        self.asked.clear();
        self.asked_copies.clear();
        self.copies_for.clear();
        self.last = None;
    }

    /// Whether this operation and all before it have ended.
    pub fn has_ended(&self, handle: Handle) -> bool {
        self.orders.ended() >= handle.0
    }

    /// The operation of this number, if it was issued.
    pub fn handle(&self, number: u64) -> Option<Handle> {
        (1..=self.orders.last()).contains(&number).then_some(Handle(number))
    }

    /// The operation that was issued last.
    pub fn last(&self) -> Handle {
        Handle(self.orders.last())
    }

    /// The first failure up to an operation.
    pub fn failure(&self, handle: Handle) -> Result<()> {
        match self.orders.failure(handle.0) {
            Some((operation, why)) => Err(AcpError::Failed { operation, why: why.to_owned() }),
            None => Ok(()),
        }
    }

    /// Takes the failure, when nothing is under way.
    pub fn take_failure(&mut self) -> Option<AcpError> {
        let (operation, why) = self.orders.take_failure()?;
        Some(AcpError::Failed { operation, why })
    }

    /// Begins a turn, in which waiting operations are started.
    #[inline]
    pub fn begin_turn(&mut self) {
        self.waits_for_space = false;
        self.mapped.done = 0;
    }

    /// Whether nothing waits to be started.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.orders.is_idle() & self.queues.is_empty()
    }

    /// Starts what can be started.
    pub fn advance(&mut self, links: &mut Links, regions: &Regions) {
        self.begin_turn();
        while self.enqueue(links, regions) | self.start_queued(links, regions) {}
    }

    /// Moves operations whose turn it is to their queues. Returns whether any has ended.
    fn enqueue(&mut self, links: &mut Links, regions: &Regions) -> bool {
        let mut some_ended = false;
        while let Some(turn) = self.orders.next() {
            let (number, operation, is_fenced) = match turn {
                Turn::Start(number, (operation, is_fenced)) => (number, operation, is_fenced),
                Turn::Fail(number) => {
                    self.orders.end(number, Err("an operation that it waited for has failed".into()));
                    continue;
                }
            };
            some_ended |= self.admit(
                links,
                regions,
                Work { origin: Origin::Own(number), operation, is_fenced, slot: None },
            );
        }
        some_ended
    }

    /// Ends a copy within this process, or queues an operation. Returns whether it has ended.
    fn admit(&mut self, links: &mut Links, regions: &Regions, work: Work) -> bool {
        let Operation { dst, src, len_bytes, .. } = work.operation;
        let rank = links.rank();
        let lane = work.operation.lane(rank);
        match lane {
            _ if len_bytes == 0 => self.end(links, work.origin, Ok(())),
            None => {
                let done = match work.operation.atomic {
                    Some(atomic) => change_here(regions, dst, src, atomic),
                    None => copy_here(regions, dst, src, len_bytes),
                };
                self.end(links, work.origin, done);
            }
            Some(lane) => {
                self.queues.entry(lane).or_default().push_back(work);
                return false;
            }
        }
        true
    }

    /// Starts the first operations of all queues. Returns whether any has ended.
    fn start_queued(&mut self, links: &mut Links, regions: &Regions) -> bool {
        if self.queues.is_empty() {
            return false;
        }
        let mut some_ended = false;
        let mut queues = std::mem::take(&mut self.queues);
        queues.retain(|&lane, queue| {
            while let Some(&work) = queue.front() {
                match self.start(links, regions, lane, work) {
                    Started::UnderWay => {}
                    Started::Ended(result) => {
                        self.end(links, work.origin, result);
                        some_ended = true;
                    }
                    Started::NotYet { for_space } => {
                        self.waits_for_space |= for_space;
                        break;
                    }
                }
                queue.pop_front();
            }
            !queue.is_empty()
        });
        self.queues = queues;
        some_ended
    }

    fn start(&mut self, links: &mut Links, regions: &Regions, lane: Lane, mut work: Work) -> Started {
        const LATER: Started = Started::NotYet { for_space: false };
        let connection = match links.connection(lane) {
            Ok(Some(connection)) => connection,
            Ok(None) => return LATER,
            Err(error) => return Started::Ended(Err(error)),
        };
        let Operation { dst, src, len_bytes, .. } = work.operation;
        let rank = links.rank();
        let number = self.started + 1;
        if dst.rank() != rank && src.rank() != rank {
            let count = self.asked_copies.entry(lane).or_default();
            if *count >= ASKED_COPIES_MAX {
                return LATER;
            }
            *count += 1;
            links.say(lane, &Record::Copy { number, dst, src, len_bytes });
        } else {
            let is_write = src.rank() == rank;
            let (own, other) = if is_write { (src, dst) } else { (dst, src) };
            let Some((_, region, offset)) = regions.find(own.color(), own.place(), len_bytes) else {
                return Started::Ended(Err(AcpError::NotRegistered(own)));
            };
            let local = RegionAddress::new(region.handle, offset);
            let Some(target) = self.find(lane, other, len_bytes) else {
                return self.ask(links, lane, other, len_bytes);
            };
            let flags = if work.is_fenced { RmaFlags::FENCE } else { RmaFlags::NONE };
            let endpoint = links.endpoint();
            let done = match work.operation.atomic {
                Some(atomic) => {
                    let mut result = local;
                    if atomic.width == AtomicWidth::Four {
                        match self.results.take(endpoint) {
                            Ok(Some((slot, address))) => (work.slot, result) = (Some(slot), address),
                            Ok(None) => return LATER,
                            Err(error) => return Started::Ended(Err(error)),
                        }
                    }
                    endpoint.atomic(connection, atomic, target, Some(result), number, flags)
                }
                None if is_write => endpoint.rma_write(connection, local, target, len_bytes, number, flags),
                None => endpoint.rma_read(connection, local, target, len_bytes, number, flags),
            };
            if done.is_err()
                && let Some(slot) = work.slot
            {
                self.results.give_back(slot);
            }
            match done {
                Ok(()) => {}
                Err(RmaError::WouldBlock) => return Started::NotYet { for_space: true },
                // An event will report the end of the connection.
                Err(RmaError::Disconnected | RmaError::UnknownConnection) => return LATER,
                Err(error) => {
                    let error =
                        JobError::Endpoint { what: "a remote operation".into(), error: Box::new(error) };
                    return Started::Ended(Err(error.into()));
                }
            }
        }
        self.started = number;
        self.under_way.insert(number, work);
        Started::UnderWay
    }

    /// The place of another rank's bytes, if its region is known.
    fn find(&self, lane: Lane, address: GlobalAddress, len_bytes: u64) -> Option<RegionAddress> {
        let (_, remote) = self.known.get(&lane)?.range(..=address.place()).next_back()?;
        let offset = address.place() - remote.start;
        let is_inside = offset.checked_add(len_bytes)? <= remote.handle.len_bytes();
        is_inside.then_some(RegionAddress::new(remote.handle, offset))
    }

    /// Asks a rank for the region of a place. A region that is known but too short can't be replaced by another.
    fn ask(&mut self, links: &mut Links, lane: Lane, address: GlobalAddress, len_bytes: u64) -> Started {
        if len_bytes > 1 && self.find(lane, address, 1).is_some() {
            return Started::Ended(Err(AcpError::NotRegistered(address)));
        }
        if self.asked.insert((lane, address.place())) {
            links.say(lane, &Record::Ask { place: address.place() });
        }
        Started::NotYet { for_space: false }
    }

    /// Ends an operation, and informs its origin.
    fn end(&mut self, links: &mut Links, origin: Origin, result: Result<()>) {
        match origin {
            Origin::Own(number) => self.orders.end(number, result.map_err(|error| error.to_string())),
            Origin::Direct => self.direct = Some(result),
            Origin::Asked(lane, number) => {
                if let Some(count) = self.copies_for.get_mut(&lane) {
                    *count -= 1;
                }
                links.say(lane, &Record::Copied { number, is_well: result.is_ok() });
            }
        }
    }

    /// Handles an event of the links.
    pub fn on(&mut self, links: &mut Links, regions: &Regions, news: News) {
        match news {
            News::Said(lane, record) => self.on_record(links, regions, lane, record),
            News::Ended { context, status } => self.on_ended(links, regions, context, status),
            News::Gone(lane) => self.lose(links, lane),
            News::Barrier(_) | News::OfChannels(..) => {}
        }
    }

    fn on_record(&mut self, links: &mut Links, regions: &Regions, lane: Lane, record: Record) {
        match record {
            //= wire.md R-ACP-2
            Record::Ask { place } => {
                let found = regions.find(lane.color, place, 1);
                let region =
                    found.map(|(key, region, _)| Remote { start: key.place(), handle: region.handle });
                links.say(lane, &Record::Answer { place, region });
            }
            Record::Answer { place, region } => {
                if !self.asked.remove(&(lane, place)) {
                    links.faults += 1;
                    return;
                }
                let holds = |region: &Remote| {
                    region.start <= place && place - region.start < region.handle.len_bytes()
                };
                match region.filter(holds) {
                    Some(region) => drop(self.known.entry(lane).or_default().insert(region.start, region)),
                    None => self.refuse_first(links, lane),
                }
            }
            Record::Copy { number, dst, src, len_bytes } => {
                let rank = links.rank();
                let is_right = src.rank() == rank
                    && src.color() == lane.color
                    && check(dst, len_bytes, links.ranks.size()).is_ok();
                //= wire.md R-ACP-3
                let count = self.copies_for.entry(lane).or_default();
                *count += 1;
                let origin = Origin::Asked(lane, number);
                if *count > ASKED_COPIES_MAX || !is_right {
                    links.faults += 1;
                    self.end(links, origin, Err(AcpError::Argument("no rank asks for that")));
                    return;
                }
                self.admit(
                    links,
                    regions,
                    Work {
                        origin,
                        operation: Operation { dst, src, len_bytes, atomic: None },
                        is_fenced: false,
                        slot: None,
                    },
                );
            }
            Record::Copied { number, is_well } => {
                let is_asked = |work: &Work| {
                    let rank = links.rank();
                    work.operation.src.rank() != rank
                        && work.operation.dst.rank() != rank
                        && work.operation.lane(rank) == Some(lane)
                };
                let Some(work) = self.under_way.get(&number).copied().filter(is_asked) else {
                    links.faults += 1;
                    return;
                };
                self.under_way.remove(&number);
                if let Some(count) = self.asked_copies.get_mut(&lane) {
                    *count -= 1;
                }
                let refused = || AcpError::NotRegistered(work.operation.src);
                self.end(links, work.origin, is_well.then_some(()).ok_or_else(refused));
            }
        }
    }

    /// Fails the first operation of a rank's queue, since the rank has no region there.
    fn refuse_first(&mut self, links: &mut Links, lane: Lane) {
        let rank = links.rank();
        if let Some(work) = self.queues.get_mut(&lane).and_then(VecDeque::pop_front) {
            let address =
                if work.operation.src.rank() == rank { work.operation.dst } else { work.operation.src };
            self.end(links, work.origin, Err(AcpError::NotRegistered(address)));
        }
    }

    fn on_ended(&mut self, links: &mut Links, regions: &Regions, context: u64, status: Status) {
        let Some(work) = self.under_way.remove(&context) else { return };
        let rank = links.rank();
        let other = if work.operation.src.rank() == rank { work.operation.dst } else { work.operation.src };
        let found = work.slot.map(|slot| self.results.give_back(slot));
        if let (Status::Success, Some(lane)) = (status, work.operation.lane(rank)) {
            self.learn(links, lane, other);
        }
        let result = match (status, work.operation.lane(rank)) {
            (Status::Success, _) if found.is_some() => {
                put_here(regions, work.operation.dst, found.unwrap_or_default())
            }
            (Status::Success, _) => Ok(()),
            (Status::RmaHandle | Status::RmaOperation, Some(lane)) => {
                // The region has ended. Its places may belong to another region later.
                self.mapped.forget(Some(lane));
                if let Some(known) = self.known.get_mut(&lane) {
                    known.retain(|&start, region| {
                        other
                            .place()
                            .checked_sub(start)
                            .is_none_or(|offset| offset >= region.handle.len_bytes())
                    });
                }
                Err(AcpError::NotRegistered(other))
            }
            (status, _) => Err(AcpError::Gone { rank: other.rank(), why: status.to_string() }),
        };
        self.end(links, work.origin, result);
    }

    /// Remembers the region of an operation that has ended well. The next operation on it may be done at once.
    fn learn(&mut self, links: &mut Links, lane: Lane, other: GlobalAddress) {
        let known = self.known.get(&lane).and_then(|known| known.range(..=other.place()).next_back());
        if let (Some((_, region)), Ok(Some(connection))) = (known, links.connection(lane)) {
            self.mapped.learn(lane, connection, region);
        }
    }

    /// Handles the loss of a rank: what was asked of it ends. What waits in its queue ends in its turn, and the endpoint ends
    /// what was started.
    fn lose(&mut self, links: &mut Links, lane: Lane) {
        self.known.remove(&lane);
        self.mapped.forget(Some(lane));
        self.asked.retain(|(asked, _)| *asked != lane);
        self.asked_copies.remove(&lane);
        let rank = links.rank();
        let is_lost = |work: &Work| {
            work.operation.src.rank() != rank
                && work.operation.dst.rank() != rank
                && work.operation.lane(rank) == Some(lane)
        };
        let mut lost: Vec<u64> =
            self.under_way.iter().filter(|(_, work)| is_lost(work)).map(|(&number, _)| number).collect();
        lost.sort_unstable();
        for number in lost {
            let Some(work) = self.under_way.remove(&number) else { continue };
            let gone = AcpError::Gone { rank: lane.rank, why: "it was to copy".into() };
            self.end(links, work.origin, Err(gone));
        }
    }
}

impl Operation {
    /// Makes a copy, if this process's own part of it is registered.
    fn copy(
        links: &Links,
        regions: &Regions,
        (dst, src, len_bytes): (GlobalAddress, GlobalAddress, u64),
    ) -> Result<Operation> {
        let rank = links.rank();
        for address in [dst, src] {
            check(address, len_bytes, links.ranks.size())?;
            if address.rank() == rank && regions.find(address.color(), address.place(), len_bytes).is_none() {
                return Err(AcpError::NotRegistered(address));
            }
        }
        Ok(Operation { dst, src, len_bytes, atomic: None })
    }

    /// Makes an atomic operation, if both addresses are valid for it.
    fn atomic(
        links: &Links,
        regions: &Regions,
        (dst, src, atomic): (GlobalAddress, GlobalAddress, Atomic),
    ) -> Result<Operation> {
        let len_bytes = width_bytes(atomic);
        if dst.rank() != links.rank() {
            return Err(AcpError::Argument(
                "the value that an atomic operation finds goes to memory of its own rank",
            ));
        }
        let copy = Operation::copy(links, regions, (dst, src, len_bytes))?;
        if !are_aligned([dst, src], len_bytes) {
            return Err(AcpError::Argument("addresses of an atomic operation are multiples of its width"));
        }
        Ok(Operation { atomic: Some(atomic), ..copy })
    }

    /// The queue in which the operation waits; `None` if it is within this process.
    fn lane(&self, rank: u32) -> Option<Lane> {
        let lane = |address: GlobalAddress| Some(Lane { rank: address.rank(), color: address.color() });
        match (self.src.rank() == rank, self.dst.rank() == rank) {
            (true, true) => None,
            (true, false) => lane(self.dst),
            // The rank that has the source does a copy between two other ranks.
            (false, _) => lane(self.src),
        }
    }

    /// Whether the operation may start as soon as the one before, behind it on one connection.
    fn continues(&self, last: &Operation, rank: u32) -> bool {
        let pair = |one: &Operation| [one.src, one.dst].map(|address| (address.rank(), address.color()));
        pair(self) == pair(last) && (self.src.rank() == rank || self.dst.rank() == rank)
    }
}

/// Checks that these can be bytes of some region.
fn check(address: GlobalAddress, len_bytes: u64, size: u32) -> Result<()> {
    if address.rank() >= size {
        return Err(AcpError::Rank { rank: address.rank(), size });
    }
    if address.color() >= COLORS {
        return Err(AcpError::Argument("there is no such colour"));
    }
    let is_inside = address.place().checked_add(len_bytes).is_some_and(|end| end <= PLACES);
    is_inside.then_some(()).ok_or(AcpError::NotRegistered(address))
}

/// Whether values of this length, which is a power of two, are aligned at all these addresses.
fn are_aligned(addresses: [GlobalAddress; 2], len_bytes: u64) -> bool {
    addresses.iter().all(|address| address.place() & (len_bytes - 1) == 0)
}

fn width_bytes(atomic: Atomic) -> u64 {
    atomic.width.bytes() as u64
}

/// Changes memory of this process, atomically with respect to others.
fn change_here(regions: &Regions, dst: GlobalAddress, src: GlobalAddress, atomic: Atomic) -> Result<()> {
    let found = regions.find(src.color(), src.place(), width_bytes(atomic));
    let (_, region, offset) = found.ok_or(AcpError::NotRegistered(src))?;
    // This comes before the change, which must not happen if its previous value can't be written.
    regions.find(dst.color(), dst.place(), width_bytes(atomic)).ok_or(AcpError::NotRegistered(dst))?;
    let refused = |_| AcpError::NotRegistered(src);
    let found = region.memory.atomic(offset as usize, atomic).map_err(refused)?;
    match atomic.width {
        AtomicWidth::Four => put_here(regions, dst, found as u32),
        _ => put_bytes_here(regions, dst, &found.to_ne_bytes()),
    }
}

fn put_here(regions: &Regions, dst: GlobalAddress, value: u32) -> Result<()> {
    put_bytes_here(regions, dst, &value.to_ne_bytes())
}

fn put_bytes_here(regions: &Regions, dst: GlobalAddress, bytes: &[u8]) -> Result<()> {
    let found = regions.find(dst.color(), dst.place(), bytes.len() as u64);
    let done = found.is_some_and(|(_, region, offset)| region.memory.write(offset as usize, bytes));
    done.then_some(()).ok_or(AcpError::NotRegistered(dst))
}

/// Copies within this process, also if both sides overlap.
fn copy_here(regions: &Regions, dst: GlobalAddress, src: GlobalAddress, len_bytes: u64) -> Result<()> {
    let find = |address: GlobalAddress| {
        let found = regions.find(address.color(), address.place(), len_bytes);
        let (_, region, offset) = found.ok_or(AcpError::NotRegistered(address))?;
        Ok::<(&Memory, usize), AcpError>((&region.memory, offset as usize))
    };
    let ((to, to_at), (from, from_at)) = (find(dst)?, find(src)?);
    let len = len_bytes as usize;
    let mut buffer = vec![0; len.min(COPY_BYTES)];
    let starts = |number: usize| number * COPY_BYTES;
    let parts = len.div_ceil(COPY_BYTES);
    // Towards higher addresses the last part comes first, so that nothing is read after it was overwritten.
    let is_upward = to.as_ptr().addr() + to_at > from.as_ptr().addr() + from_at;
    for part in 0..parts {
        let done = starts(if is_upward { parts - 1 - part } else { part });
        let bytes = buffer.get_mut(..COPY_BYTES.min(len - done)).unwrap_or_default();
        if !from.read(from_at + done, bytes) || !to.write(to_at + done, bytes) {
            return Err(AcpError::NotRegistered(dst));
        }
    }
    Ok(())
}
