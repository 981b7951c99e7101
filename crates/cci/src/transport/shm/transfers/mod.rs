//! Remote memory access between processes of one host: what all links share for it.
//!
//! Everything can go through the ring, as records of [`ordered_rma`](crate::transport::ordered_rma). Memory that the library has
//! allocated is mapped instead, if the target grants that, and long transfers are fetched by the side that receives ([`paths`]).
//! [`target`] is the side that grants. `docs/adr/0006-rma-over-shared-memory.md` has the reasons.

mod lent;
pub(super) mod paths;
mod patience;
pub(super) mod report;
mod target;

pub(super) use self::target::GRANTED_MAX;

use self::paths::{About, Paths};
use self::target::Target;
use super::connections::{Connections, EstablishedConn, Phase};
use super::link::{Life, Link};
use super::quota;
use super::rma::channel::RingChannel;
use super::rma::grant::Grant;
use super::rma::state::LinkTransfers;
use super::wire::{PeerConn, kind};
use crate::DisconnectReason;
use crate::connection::{Connection, Status};
use crate::device::Cma;
use crate::engine::core::Core;
use crate::error::SendError;
use crate::transport::ordered_rma::{FLOW_BYTES, Fault, Flow, Flows, Ops, Start, Taken, Turn, What};
use crate::transport::{Action, AtomicRequest, RmaRequest};
use cci_memory::ring::{Corrupt, Record, RecordHeader};
use cci_memory::slab::Key;
use cci_proto::RmaSegment;
use cci_sys::clock;
use cci_sys::shared_memory::SharedMemory;

/// The part of the endpoint's memory cap that flows may take: about 17 KiB for each connection with something under way.
const FLOWS_SHARE: u64 = 4;
/// The most bytes that are moved for a link in one poll, before others and the program have their turn.
const TURN_BYTES: u64 = 512 << 10;
/// The most records of all kinds that may wait for space in the ring of one peer. The end of each region that it was granted is
/// announced once, and an honest peer that reads nothing asks for nothing more.
pub(super) const CONTROL_LEN_MAX: usize = 2 * GRANTED_MAX;
/// How often the flows of a link are maintained.
const MAINTENANCE_NS: u64 = 1_000_000;
/// A peer that goes on taking records, but has not answered yet, gets at least this much more time.
const GRACE_NS: u64 = 10_000_000;

/// Remote operations of all connections, and what they need.
pub(super) struct Transfers {
    pub flows: Flows,
    quota: quota::Flows,
    pub target: Target,
    pub paths: Paths,
    pub counts: Counts,
}

/// Counts of links that have ended, and of operations on all links.
#[derive(Default)]
pub(super) struct Counts {
    /// Operations, on any link, that did not end at once.
    pub ring: u64,
    pub direct: u64,
    pub pulled: u64,
    pub grants_refused: u64,
}

/// An operation as it comes from the program.
pub(super) struct NewOperation<'a> {
    pub name: u64,
    pub what: What,
    pub segments: &'a [RmaSegment],
    pub message: Option<&'a [u8]>,
    pub fence: bool,
}

impl<'a> NewOperation<'a> {
    /// `name` is the operation's number in the engine's tables.
    pub fn new(name: u64, action: &Action<'a>) -> NewOperation<'a> {
        match *action {
            Action::Transfer(RmaRequest { kind, segments, message, fence }) => {
                NewOperation { name, what: What::Move(kind), segments, message, fence }
            }
            Action::Atomic(AtomicRequest { atomic, target, result, fence }) => {
                let what = What::Atomic { atomic, target, result };
                NewOperation { name, what, segments: &[], message: None, fence }
            }
        }
    }
}

/// What happened to a record that came.
pub(super) enum TakenRma {
    Yes,
    /// The record has a message, and there is no receive buffer for it.
    NoBuffer,
    /// The record's connection has no flow and can't get one: its process has used up its quota, or there is no memory.
    NoFlow(Key),
}

/// What maintenance found about a flow.
enum Found {
    InUse,
    /// The flow was idle, and was given back.
    Idle,
}

impl Transfers {
    /// Flows may take a part of `bytes_max`.
    pub fn new(operations_max: u32, bytes_max: u64, direct: bool, cma: Cma) -> Transfers {
        Transfers {
            flows: Flows::new(operations_max),
            quota: quota::Flows::new(bytes_max / FLOWS_SHARE, FLOW_BYTES as u64),
            target: Target::new(),
            paths: Paths::new(direct, cma),
            counts: Counts::default(),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.flows.bytes() + self.target.bytes()
    }

    /// How many more bytes flows may take.
    pub fn unused_bytes(&self) -> u64 {
        u64::from(self.quota.max().saturating_sub(self.flows.made())) * FLOW_BYTES as u64
    }

    /// Lends a flow to a connection with a process. Returns `None` if the process has used up its quota, or there is no memory.
    fn lend(&mut self, process: u64, connection: Connection, now_ns: u64) -> Option<Key> {
        if !self.quota.enter(process) {
            return None;
        }
        let lent = self.flows.lend(connection, now_ns);
        if lent.is_none() {
            self.quota.leave(process);
        }
        lent
    }

    /// Takes back a flow that is idle or has ended.
    fn give_back(&mut self, process: u64, key: Key) {
        if self.flows.get(key).is_some() {
            self.quota.leave(process);
        }
        self.flows.give_back(key);
    }

    /// Operations of a flow that have not ended.
    pub fn operations(&self, flow_key: Key) -> u32 {
        self.flows.get(flow_key).map_or(0, Flow::operations)
    }

    /// Starts an operation on an open connection, and does as much of it as can be done now. The inner result says whether the
    /// link can still be used.
    pub fn start(
        &mut self,
        link: &mut Link,
        connections: &mut Connections,
        core: &mut Core,
        key: Key,
        operation: &NewOperation<'_>,
    ) -> Result<Result<(), Corrupt>, SendError> {
        link.transfers.begins(connections.now_ns);
        let Some(flow_key) = self.flow_of(link, connections, key) else { return Err(SendError::WouldBlock) };
        let Some(conn) = connections.conns.established(key) else { return Err(SendError::Disconnected) };
        let (peer, pairs) = (conn.on.peer(), &mut core.regions.pairs);
        self.paths.prepare(pairs, link, key, peer, &operation.what, operation.segments);
        let start = Start {
            name: operation.name,
            what: operation.what,
            segments: operation.segments,
            message: operation.message,
            fence: operation.fence,
            position: link.out.producer.tail(),
            now_ns: link.transfers.clock_ns(connections.now_ns),
            is_alone: core.counters.connections_open < 2,
        };
        let lent = self.flows.get_mut(flow_key);
        if !lent.is_some_and(|(flow, ops)| flow.start(ops, &start)) {
            return Err(SendError::WouldBlock);
        }
        self.counts.ring += 1;
        self.queue(&mut link.transfers, flow_key, key);
        let was_flushed = link.out.flushed == link.out.producer.tail();
        let turned = self.turn(link, connections, core).map(drop);
        if link.out.flush_after_send(was_flushed) {
            link.publish_due = false;
        }
        Ok(turned)
    }

    /// The flow of a connection, which gets one if it has none.
    fn flow_of(&mut self, link: &mut Link, connections: &mut Connections, key: Key) -> Option<Key> {
        let EstablishedConn { base, on } = connections.conns.established(key)?;
        if let Some(flow_key) = on.flow() {
            return Some(flow_key);
        }
        let connection = base.connection;
        let process = link.peer.process();
        let mut lent = self.lend(process, connection, connections.now_ns);
        if lent.is_none() && self.take_back_idle(link, connections) {
            lent = self.lend(process, connection, connections.now_ns);
        }
        let flow_key = lent?;
        connections.conns.established(key)?.on.set_flow(lent);
        link.transfers.flows.push((flow_key, key));
        Some(flow_key)
    }

    /// Takes flows back from connections of a link that have nothing under way. Returns whether there were any.
    #[cold]
    pub fn take_back_idle(&mut self, link: &mut Link, connections: &mut Connections) -> bool {
        let (process, before) = (link.peer.process(), link.transfers.flows.len());
        link.transfers.flows.retain(|&(flow_key, conn_key)| {
            let idle = |(flow, _): (&mut Flow, &mut Ops)| flow.is_idle() && !flow.queued && !flow.closing;
            if !self.flows.get_mut(flow_key).is_some_and(idle) {
                return true;
            }
            if let Some(conn) = connections.conns.with_flow(conn_key, flow_key) {
                conn.on.set_flow(None);
            }
            self.give_back(process, flow_key);
            false
        });
        link.transfers.flows.len() < before
    }

    /// Queues a flow, if it has something to push or fetch.
    fn queue(&mut self, on: &mut LinkTransfers, flow_key: Key, conn_key: Key) {
        if let Some((flow, _)) = self.flows.get_mut(flow_key)
            && flow.has_work()
            && !flow.queued
        {
            flow.queued = true;
            on.queue.push_back((flow_key, conn_key));
        }
    }

    /// Gives every queued flow its turn, within the link's budget of bytes. Returns whether anything moved.
    ///
    /// # Errors
    /// The ring can't be used any more.
    pub fn turn(
        &mut self,
        link: &mut Link,
        connections: &mut Connections,
        core: &mut Core,
    ) -> Result<bool, Corrupt> {
        let (mut budget_bytes, mut moved) = (TURN_BYTES, false);
        link.transfers.at_once = false;
        for _ in 0..link.transfers.queue.len() {
            if budget_bytes == 0 {
                link.transfers.at_once = true;
                break;
            }
            let Some((flow_key, conn_key)) = link.transfers.queue.pop_front() else { break };
            let turn = self.turn_flow(link, connections, core, (flow_key, conn_key), &mut budget_bytes);
            moved |= turn.moved;
            if turn.broken {
                return Err(Corrupt::Head);
            }
            link.transfers.at_once |= turn.at_once;
            if turn.more {
                link.transfers.queue.push_back((flow_key, conn_key));
            } else if let Some((flow, _)) = self.flows.get_mut(flow_key) {
                flow.queued = false;
            }
            self.close_if_due(link, connections, flow_key, conn_key)?;
        }
        if moved {
            link.worked_ns = connections.now_ns;
        }
        Ok(moved)
    }

    /// Pushes and fetches for one flow.
    fn turn_flow(
        &mut self,
        link: &mut Link,
        connections: &mut Connections,
        core: &mut Core,
        (flow_key, conn_key): (Key, Key),
        budget_bytes: &mut u64,
    ) -> Turn {
        let ack = link.ack();
        let Some(EstablishedConn { on, .. }) = connections.conns.with_flow(conn_key, flow_key) else {
            return Turn::default();
        };
        let header = RecordHeader { kind: kind::RMA, flags: on.peer_generation, conn: on.peer_index, ack };
        let Some((flow, ops)) = self.flows.get_mut(flow_key) else { return Turn::default() };
        let LinkTransfers { notifies, initiator, pull, .. } = &mut link.transfers;
        let initiator = initiator.as_deref_mut().filter(|_| link.life == Life::Up);
        let pull = pull.as_deref_mut();
        let (out, conn) = (&mut link.out, conn_key);
        let mut channel = RingChannel { out, notifies, flow: flow_key, conn, header, initiator, pull };
        flow.turn(ops, core, &mut channel, budget_bytes)
    }

    /// Takes a record of remote memory access that came from a process on the link `link`.
    ///
    /// # Errors
    /// No honest peer sends such a record.
    pub fn take(
        &mut self,
        record: &Record<'_, SharedMemory>,
        (link, process): (Key, u64),
        on: &mut LinkTransfers,
        connections: &mut Connections,
        core: &mut Core,
    ) -> Result<TakenRma, Corrupt> {
        let header = record.header();
        let mss = connections.mss as usize;
        let now_ns = connections.now_ns;
        let Some((key, conn)) = connections.conns.named_on(link, header.conn, header.flags) else {
            connections.counts.unknown_connection += 1;
            return Ok(TakenRma::Yes);
        };
        if !conn.on.is_reliable {
            return Err(Corrupt::Check);
        }
        // While the connection closes, our operations may still be answered. Messages are no longer wanted.
        let delivers = conn.on.phase == Phase::Open;
        let flow_key = match (conn.on.phase, conn.on.flow()) {
            (Phase::Open | Phase::Closing, Some(flow_key)) => flow_key,
            (Phase::Open, None) => {
                let Some(lent) = self.lend(process, conn.base.connection, now_ns) else {
                    return Ok(TakenRma::NoFlow(key));
                };
                conn.on.set_flow(Some(lent));
                on.flows.push((lent, key));
                lent
            }
            // This side has nothing under way that the record could answer.
            (Phase::Closing, None) | (Phase::Broken, _) => {
                connections.counts.after_close += 1;
                return Ok(TakenRma::Yes);
            }
        };
        let Some((flow, ops)) = self.flows.get_mut(flow_key) else { return Ok(TakenRma::Yes) };
        let taken = flow.take(ops, core, record, mss, delivers).map_err(|Fault| Corrupt::Check)?;
        if let Some(trial) = flow.trial().take()
            && let Some(pull) = &mut on.pull
        {
            pull.tried(&trial, clock::now_ns());
        }
        // A flow without operations that is to be closed is queued as well, since its turn closes it.
        if (flow.has_work() || flow.closing) && !flow.queued {
            flow.queued = true;
            on.queue.push_back((flow_key, key));
        }
        Ok(match taken {
            Taken::Yes => TakenRma::Yes,
            Taken::NoBuffer => TakenRma::NoBuffer,
        })
    }

    /// Takes a record about mappings or reads.
    pub fn take_about(
        &mut self,
        link: &mut Link,
        connections: &mut Connections,
        core: &mut Core,
        about: About,
    ) {
        self.paths.take(link, &mut self.target, connections, core, about);
    }

    /// Grants the peer of a link a region that is only for one of its connections, if it maps the memory already. Returns whether
    /// it did.
    ///
    /// # Errors
    /// The ring can't be used any more.
    pub fn announce(
        &mut self,
        link: &mut Link,
        to: PeerConn,
        core: &Core,
        region_id: u64,
    ) -> Result<bool, Corrupt> {
        match core.regions.get(region_id) {
            Some(region) if self.paths.direct && link.life == Life::Up => {
                self.target.announce(link, region_id, region, to)
            }
            _ => Ok(false),
        }
    }

    /// Takes a grant that the peer of a link has announced to a connection.
    pub fn take_announced(
        &mut self,
        link: &mut Link,
        connections: &mut Connections,
        core: &mut Core,
        (conn, generation): (u32, u8),
        grant: Option<Grant>,
    ) {
        let Some((key, _)) = connections.conns.named_on(link.key, conn, generation) else {
            connections.counts.unknown_connection += 1;
            return;
        };
        let Some(initiator) = link.transfers.initiator.as_mut().filter(|_| self.paths.direct) else { return };
        let is_honest = grant.is_some_and(|grant| initiator.announced(&mut core.regions.pairs, key, grant));
        connections.counts.bad_record += u64::from(!is_honest);
    }

    /// Maintains the flows of a link, if that is due or is wanted `now`, because the endpoint is about to sleep: ends overdue
    /// operations, and takes idle flows back.
    pub fn maintain(
        &mut self,
        link: &mut Link,
        connections: &mut Connections,
        core: &mut Core,
        now: bool,
    ) -> Result<(), Corrupt> {
        let now_ns = connections.now_ns;
        if !link.transfers.is_in_use() || (!now && now_ns < link.transfers.looked_ns + MAINTENANCE_NS) {
            return Ok(());
        }
        link.transfers.looks(now_ns);
        link.transfers.slept = now;
        let mut at = 0;
        while let Some(&(flow_key, conn_key)) = link.transfers.flows.get(at) {
            match self.maintain_flow(link, connections, core, flow_key, conn_key)? {
                Found::InUse => at += 1,
                Found::Idle => {
                    link.transfers.flows.swap_remove(at);
                }
            }
        }
        Ok(())
    }

    fn maintain_flow(
        &mut self,
        link: &mut Link,
        connections: &mut Connections,
        core: &mut Core,
        flow_key: Key,
        conn_key: Key,
    ) -> Result<Found, Corrupt> {
        let now_ns = connections.now_ns;
        let conn = connections.conns.with_flow(conn_key, flow_key);
        let (Some(EstablishedConn { base, on: conn }), Some((flow, ops))) =
            (conn, self.flows.get_mut(flow_key))
        else {
            return Ok(Found::Idle);
        };
        if flow.is_idle() && !flow.queued && !flow.closing {
            conn.set_flow(None);
            self.give_back(link.peer.process(), flow_key);
            return Ok(Found::Idle);
        }
        if flow.moved {
            flow.moved = false;
            flow.moved_ns = now_ns;
        }
        if flow.operations() == 0 || conn.phase == Phase::Closing {
            // A connection that closes has its own time limit.
            return Ok(Found::InUse);
        }
        // An operation ends in time whatever the peer sends or reads meanwhile.
        let on = &mut link.transfers;
        let clock_ns = on.clock_ns(now_ns);
        let overdue_ns = flow.deadline_ns(ops, clock_ns, base.send_timeout_ns()).unwrap_or(u64::MAX);
        if clock_ns >= overdue_ns {
            self.break_connection(link, connections, core, conn_key);
            return Ok(Found::InUse);
        }
        on.deadline_ns = on.deadline_ns.min(on.real_ns(overdue_ns));
        let due_ns = flow.moved_ns.saturating_add(base.send_timeout_ns());
        if now_ns < due_ns {
            on.deadline_ns = on.deadline_ns.min(due_ns);
            return Ok(Found::InUse);
        }
        let advanced = link.complete_taken(connections, core)?;
        if advanced || self.take_back_notifies(link, core, flow_key)? || waits_behind_messages(link) {
            // The peer continues slowly, or waits for a receive buffer, which has its own time limit.
            if let Some((flow, _)) = self.flows.get_mut(flow_key) {
                let timeout_ns = due_ns.saturating_sub(flow.moved_ns);
                flow.moved_ns = (now_ns + GRACE_NS).saturating_sub(timeout_ns).max(flow.moved_ns);
            }
            link.transfers.deadline_ns = link.transfers.deadline_ns.min(now_ns + GRACE_NS);
            return Ok(Found::InUse);
        }
        self.break_connection(link, connections, core, conn_key);
        Ok(Found::InUse)
    }

    /// Breaks a connection whose peer does not answer, as if a send had timed out.
    fn break_connection(
        &mut self,
        link: &mut Link,
        connections: &mut Connections,
        core: &mut Core,
        key: Key,
    ) {
        link.end_sends(connections, core, key.index, Status::TimedOut);
        self.end_flow(link, connections, core, key, Status::TimedOut);
        if let Some(conn) = connections.conns.open(key) {
            conn.on.phase = Phase::Broken;
            core.ended(conn.base.connection, DisconnectReason::TimedOut);
        }
    }

    /// Takes back notifications of a flow for which the peer has no receive buffer. Returns whether there were any.
    fn take_back_notifies(
        &mut self,
        link: &mut Link,
        core: &mut Core,
        flow_key: Key,
    ) -> Result<bool, Corrupt> {
        let mut taken_back = Vec::new();
        {
            let Some(mut guard) = link.out.producer.try_cancel()? else { return Ok(false) };
            link.transfers.notifies.retain(|notify| {
                let mine = notify.flow == flow_key && guard.void(notify.span);
                if mine {
                    taken_back.push(notify.slot);
                }
                !mine
            });
        }
        let Some((flow, ops)) = self.flows.get_mut(flow_key) else { return Ok(false) };
        link.rnr += taken_back.len() as u64;
        for slot in &taken_back {
            flow.notify_taken_back(ops, core, *slot);
        }
        let on = &mut link.transfers;
        if !taken_back.is_empty()
            && let Some((_, conn_key)) = on.flows.iter().find(|(flow, _)| *flow == flow_key).copied()
        {
            self.queue(on, flow_key, conn_key);
        }
        Ok(!taken_back.is_empty())
    }

    /// Sends the CLOSE of a connection that was disconnected while it had operations, when it has none left.
    fn close_if_due(
        &mut self,
        link: &mut Link,
        connections: &mut Connections,
        flow_key: Key,
        conn_key: Key,
    ) -> Result<(), Corrupt> {
        let Some((flow, _)) = self.flows.get_mut(flow_key) else { return Ok(()) };
        if !flow.closing || flow.operations() > 0 {
            return Ok(());
        }
        flow.closing = false;
        let Some(conn) = connections.conns.established(conn_key) else { return Ok(()) };
        link.send_close(conn.on)
    }

    /// Whether a connection that is being disconnected must wait for the operations of its flow. If so, the flow is marked to be
    /// closed when they have ended.
    pub fn delays_close(&mut self, flow_key: Key) -> bool {
        match self.flows.get_mut(flow_key) {
            Some((flow, _)) if flow.operations() > 0 => {
                flow.closing = true;
                true
            }
            _ => false,
        }
    }

    /// Ends all operations of a connection that has ended. Returns whether its CLOSE was waiting for them.
    pub fn end_flow(
        &mut self,
        link: &mut Link,
        connections: &mut Connections,
        core: &mut Core,
        key: Key,
        status: Status,
    ) -> bool {
        let Some(EstablishedConn { on: conn, .. }) = connections.conns.established(key) else { return false };
        let Some(flow_key) = conn.flow() else { return false };
        conn.set_flow(None);
        let Some((flow, ops)) = self.flows.get_mut(flow_key) else { return false };
        let was_closing = flow.closing;
        flow.end(ops, core, status);
        self.give_back(link.peer.process(), flow_key);
        let on = &mut link.transfers;
        on.flows.retain(|(flow, _)| *flow != flow_key);
        on.queue.retain(|(flow, _)| *flow != flow_key);
        on.notifies.retain(|notify| notify.flow != flow_key);
        was_closing
    }

    /// Ends all operations of a link that has ended.
    pub fn end_flows(&mut self, link: &mut Link, connections: &mut Connections, core: &mut Core) {
        while let Some(&(flow_key, conn_key)) = link.transfers.flows.last() {
            self.end_flow(link, connections, core, conn_key, Status::Disconnected);
            if let Some((flow, ops)) = self.flows.get_mut(flow_key) {
                debug_assert!(false, "a connection ends its flow before it leaves the table");
                flow.end(ops, core, Status::Disconnected);
                self.give_back(link.peer.process(), flow_key);
            }
            link.transfers.flows.retain(|(flow, _)| *flow != flow_key);
        }
    }
}

/// Whether the peer has no receive buffer for one of our messages. That message has its own time limit.
fn waits_behind_messages(link: &Link) -> bool {
    link.out.producer.is_stalled() && (!link.out.fifo.is_empty() || !link.transfers.notifies.is_empty())
}
