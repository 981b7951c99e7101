//! Remote memory access between processes of one host.
//!
//! Everything can go through the ring, as records of [`ordered_rma`](crate::transport::ordered_rma): this file and
//! [`ring`]. `docs/adr/0006-rma-over-shared-memory.md` has the reasons.

mod ring;

use self::ring::Notify;
use super::Shm;
use super::link::{Life, Link};
use super::table::{State, Table};
use crate::engine::core::Core;
use crate::error::SendError;
use crate::event::Status;
use crate::transport::ordered_rma::{Flows, Start, What};
use crate::transport::{AtomicRequest, RmaRequest};
use cci_proto::RmaPiece;
use cci_ring::slab::Key;
use cci_ring::spsc::Corrupt;
use std::collections::VecDeque;

pub(super) use self::ring::{RECORD_BYTES_MAX, take};

/// Bytes moved for a link in one poll, before others and the program have their turn.
const TURN_BYTES: u64 = 512 << 10;
/// How often flows are looked after.
const LOOK_NS: u64 = 1_000_000;
/// A peer that goes on taking records, but has not answered yet, gets at least so much more time.
const GRACE_NS: u64 = 10_000_000;

/// What a link needs for remote memory access.
pub(super) struct LinkRma {
    /// Flows of connections on this link, and their connections.
    flows: Vec<(Key, Key)>,
    /// Those with something to push or fetch, and their connections.
    queue: VecDeque<(Key, Key)>,
    /// Something is to be done that waits for nobody.
    pub at_once: bool,
    /// Messages behind data that the peer has not taken, oldest first.
    notifies: VecDeque<Notify>,
    looked_ns: u64,
    /// When the first operation is overdue, as of the last look.
    pub deadline_ns: u64,
}

impl LinkRma {
    pub fn new() -> LinkRma {
        LinkRma {
            flows: Vec::new(),
            queue: VecDeque::new(),
            at_once: false,
            notifies: VecDeque::new(),
            looked_ns: 0,
            deadline_ns: u64::MAX,
        }
    }

    /// Some connection has something under way, or had until lately.
    pub fn is_in_use(&self) -> bool {
        !self.flows.is_empty()
    }

    /// Something is to be pushed or fetched.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Bytes held beside the flows.
    pub fn bytes(&self) -> u64 {
        let keys = self.flows.capacity() + self.queue.capacity();
        (keys * size_of::<(Key, Key)>() + self.notifies.capacity() * size_of::<Notify>()) as u64
    }
}

/// The state of the endpoint.
pub(super) struct Rma {
    pub flows: Flows,
    pub counts: Counts,
}

/// Counted since the endpoint was opened.
#[derive(Default)]
pub(super) struct Counts {
    /// Operations that did not end at once.
    pub ring: u64,
}

impl Rma {
    pub fn new(operations_max: u32) -> Rma {
        Rma { flows: Flows::new(operations_max), counts: Counts::default() }
    }

    pub fn bytes(&self) -> u64 {
        self.flows.bytes()
    }
}

impl Shm {
    /// Enters an operation, and does of it what can be done now.
    pub(super) fn start_rma(
        &mut self,
        core: &mut Core,
        key: Key,
        request: &RmaRequest<'_>,
        name: u64,
    ) -> Result<(), SendError> {
        let (pieces, message, fence) = (request.pieces, request.message, request.fence);
        self.start_operation(core, key, What::Move(request.kind), pieces, message, fence, name)
    }

    /// The same for an atomic operation.
    pub(super) fn start_atomic(
        &mut self,
        core: &mut Core,
        key: Key,
        request: &AtomicRequest,
        name: u64,
    ) -> Result<(), SendError> {
        let AtomicRequest { atomic, target, result, fence } = *request;
        let what = What::Atomic { atomic, target, result };
        self.start_operation(core, key, what, &[], None, fence, name)
    }

    #[allow(clippy::too_many_arguments, reason = "the two above in one")]
    fn start_operation(
        &mut self,
        core: &mut Core,
        key: Key,
        what: What,
        pieces: &[RmaPiece],
        message: Option<&[u8]>,
        fence: bool,
        name: u64,
    ) -> Result<(), SendError> {
        if !self.is_ours() {
            return Err(SendError::Disconnected);
        }
        let Some(conn) = self.table.conns.get(key) else { return Err(SendError::UnknownConnection) };
        if conn.state != State::Open {
            return Err(SendError::Disconnected);
        }
        let at = conn.at;
        let Some(link) = self.links.get_mut(at) else { return Err(SendError::Disconnected) };
        let Some(flow_key) = flow_of(link, &mut self.table, key) else { return Err(SendError::WouldBlock) };
        let position = link.out.producer.tail();
        let start = Start { name, what, pieces, message, fence, position };
        let lent = self.table.rma.flows.get_mut(flow_key);
        if !lent.is_some_and(|(flow, ops)| flow.start(ops, &start)) {
            return Err(SendError::WouldBlock);
        }
        self.table.rma.counts.ring += 1;
        queue(link, &mut self.table, flow_key, key);
        let was_flushed = link.out.flushed == link.out.producer.tail();
        let broken = turn(link, &mut self.table, core).is_err();
        if link.out.flush_after_send(was_flushed) {
            link.tell_due = false;
        }
        if broken {
            self.kill(core, at);
            return Ok(());
        }
        self.care_for(at);
        self.make_hot(at);
        Ok(())
    }

    /// Pushes and fetches what a link has to. Called in every poll while it has.
    pub(super) fn turn_rma(&mut self, core: &mut Core, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        let turned = turn(link, &mut self.table, core);
        link.out.flush();
        if turned.is_err() {
            return self.kill(core, key);
        }
        self.care_for(key);
    }

    /// Looks after the flows of a link: time-outs, and flows that are idle.
    pub(super) fn care_for_rma(&mut self, core: &mut Core, key: Key, now: bool) {
        let now_ns = self.table.now_ns;
        let Some(link) = self.links.get_mut(key) else { return };
        if !link.rma.is_in_use() || (!now && now_ns < link.rma.looked_ns + LOOK_NS) {
            return;
        }
        link.rma.looked_ns = now_ns;
        link.rma.deadline_ns = u64::MAX;
        let mut at = 0;
        while let Some(&(flow_key, conn_key)) = link.rma.flows.get(at) {
            match look(link, &mut self.table, core, flow_key, conn_key) {
                Ok(Looked::Keep) => at += 1,
                Ok(Looked::Idle) => {
                    link.rma.flows.swap_remove(at);
                }
                Err(_) => return self.kill(core, key),
            }
        }
    }
}

enum Looked {
    Keep,
    /// It was given back.
    Idle,
}

/// Looks after one flow.
fn look(
    link: &mut Link,
    table: &mut Table,
    core: &mut Core,
    flow_key: Key,
    conn_key: Key,
) -> Result<Looked, Corrupt> {
    let now_ns = table.now_ns;
    let conn = table.conns.get_mut(conn_key).filter(|conn| conn.rma == flow_key);
    let (Some(conn), Some((flow, _))) = (conn, table.rma.flows.get_mut(flow_key)) else {
        return Ok(Looked::Idle);
    };
    if flow.is_idle() && !flow.queued && !flow.closing {
        conn.rma = super::hand::NOWHERE;
        table.rma.flows.give_back(flow_key);
        return Ok(Looked::Idle);
    }
    if flow.moved {
        flow.moved = false;
        flow.moved_ns = now_ns;
    }
    if flow.operations() == 0 || conn.state == State::Closing {
        // One that closes has its own time limit.
        return Ok(Looked::Keep);
    }
    let due_ns = flow.moved_ns.saturating_add(conn.send_timeout_ns());
    if now_ns < due_ns {
        link.rma.deadline_ns = link.rma.deadline_ns.min(due_ns);
        return Ok(Looked::Keep);
    }
    let advanced = link.complete_taken(table, core)?;
    if advanced || ring::take_back_notifies(link, table, core, flow_key)? || waits_behind_messages(link) {
        // The peer goes on, slowly, or its program has no buffer for a message, which ends by itself.
        if let Some((flow, _)) = table.rma.flows.get_mut(flow_key) {
            let timeout_ns = due_ns.saturating_sub(flow.moved_ns);
            flow.moved_ns = (now_ns + GRACE_NS).saturating_sub(timeout_ns).max(flow.moved_ns);
        }
        link.rma.deadline_ns = link.rma.deadline_ns.min(now_ns + GRACE_NS);
        return Ok(Looked::Keep);
    }
    break_connection(link, table, core, conn_key);
    Ok(Looked::Keep)
}

/// The peer can't go on before a message of ours, which times out by itself.
fn waits_behind_messages(link: &Link) -> bool {
    link.out.producer.is_stalled() && (!link.out.fifo.is_empty() || !link.rma.notifies.is_empty())
}

/// The peer does not answer: as where a send times out.
fn break_connection(link: &mut Link, table: &mut Table, core: &mut Core, key: Key) {
    link.end_sends(table, core, key.index, Status::TimedOut);
    end_flow(link, table, core, key, Status::TimedOut);
    if let Some(conn) = table.conns.get_mut(key)
        && conn.state == State::Open
    {
        conn.state = State::Broken;
        core.peer_gone(conn.connection);
    }
}

/// The flow of a connection; gives it one if it has none.
fn flow_of(link: &mut Link, table: &mut Table, key: Key) -> Option<Key> {
    let conn = table.conns.get_mut(key)?;
    if table.rma.flows.get(conn.rma).is_none() {
        conn.rma = table.rma.flows.lend(conn.connection, table.now_ns)?;
        link.rma.flows.push((conn.rma, key));
    }
    Some(conn.rma)
}

/// Puts a flow into the queue of those with something to do, if it has.
fn queue(link: &mut Link, table: &mut Table, flow_key: Key, conn_key: Key) {
    if let Some((flow, _)) = table.rma.flows.get_mut(flow_key)
        && flow.has_work()
        && !flow.queued
    {
        flow.queued = true;
        link.rma.queue.push_back((flow_key, conn_key));
    }
}

/// Gives every flow with something to do its turn, within the link's budget.
///
/// # Errors
/// The ring is of no use any more.
pub(super) fn turn(link: &mut Link, table: &mut Table, core: &mut Core) -> Result<bool, Corrupt> {
    let (mut budget_bytes, mut moved) = (TURN_BYTES, false);
    link.rma.at_once = false;
    for _ in 0..link.rma.queue.len() {
        if budget_bytes == 0 {
            link.rma.at_once = true;
            break;
        }
        let Some((flow_key, conn_key)) = link.rma.queue.pop_front() else { break };
        let turn = ring::turn_flow(link, table, core, flow_key, conn_key, &mut budget_bytes);
        moved |= turn.moved;
        if turn.broken {
            return Err(Corrupt::Head);
        }
        link.rma.at_once |= turn.at_once;
        if turn.more {
            link.rma.queue.push_back((flow_key, conn_key));
        } else if let Some((flow, _)) = table.rma.flows.get_mut(flow_key) {
            flow.queued = false;
        }
        close_if_due(link, table, flow_key, conn_key)?;
    }
    if moved {
        link.worked_ns = table.now_ns;
    }
    Ok(moved)
}

/// A connection that was disconnected while it had operations is closed once it has none.
fn close_if_due(link: &mut Link, table: &mut Table, flow_key: Key, conn_key: Key) -> Result<(), Corrupt> {
    let Some((flow, _)) = table.rma.flows.get_mut(flow_key) else { return Ok(()) };
    if !flow.closing || flow.operations() > 0 {
        return Ok(());
    }
    flow.closing = false;
    let Some(conn) = table.conns.get(conn_key) else { return Ok(()) };
    super::close::say_close(link, conn)
}

/// True, and noted, if a connection that is being disconnected must wait for its operations first.
pub(super) fn delays_close(table: &mut Table, key: Key) -> bool {
    let Some(conn) = table.conns.get(key) else { return false };
    match table.rma.flows.get_mut(conn.rma) {
        Some((flow, _)) if flow.operations() > 0 => {
            flow.closing = true;
            true
        }
        _ => false,
    }
}

/// Ends all operations of a connection that is over. Answers whether it was waiting for them to be closed.
pub(super) fn end_flow(
    link: &mut Link,
    table: &mut Table,
    core: &mut Core,
    key: Key,
    status: Status,
) -> bool {
    let Some(conn) = table.conns.get_mut(key) else { return false };
    let flow_key = std::mem::replace(&mut conn.rma, super::hand::NOWHERE);
    let Some((flow, ops)) = table.rma.flows.get_mut(flow_key) else { return false };
    let was_closing = flow.closing;
    flow.end(ops, core, status);
    table.rma.flows.give_back(flow_key);
    link.rma.flows.retain(|(flow, _)| *flow != flow_key);
    link.rma.queue.retain(|(flow, _)| *flow != flow_key);
    link.rma.notifies.retain(|notify| notify.flow != flow_key);
    was_closing
}

/// Ends all operations of a link that is over.
pub(super) fn end_flows(link: &mut Link, table: &mut Table, core: &mut Core) {
    while let Some(&(flow_key, conn_key)) = link.rma.flows.last() {
        end_flow(link, table, core, conn_key, Status::Disconnected);
        if let Some((flow, ops)) = table.rma.flows.get_mut(flow_key) {
            debug_assert!(false, "a connection ends its flow before it leaves the table");
            flow.end(ops, core, Status::Disconnected);
            table.rma.flows.give_back(flow_key);
        }
        link.rma.flows.retain(|(flow, _)| *flow != flow_key);
    }
}

/// True if something is under way or wanted that needs the peer to take records.
pub(super) fn waits_for_progress(link: &Link) -> bool {
    link.rma.has_work() && link.life == Life::Up
}
