//! Remote memory access between processes of one host.
//!
//! Everything can go through the ring, as records of [`ordered_rma`](crate::transport::ordered_rma): this file and
//! [`ring`]. `docs/adr/0006-rma-over-shared-memory.md` has the reasons.

pub(super) mod asker;
pub(super) mod grant;
mod granted;
pub(super) mod mapped;
mod owner;
mod patience;
pub(super) mod pull;
pub(super) mod report;
mod ring;
pub(super) mod state;

use self::asker::Asker;
use self::grant::{Grant, NotMapped};
use self::mapped::Held;
use self::pull::Pull;
use self::ring::queue;
use super::Shm;
use super::link::{Life, Link};
use super::out::{Control, Out};
use super::say::say_close;
use super::table::{State, Table};
use super::wire::{PeerConn, kind};
use crate::DisconnectReason;
use crate::connection::Status;
use crate::device::Cma;
use crate::engine::core::Core;
use crate::error::SendError;
use crate::rma::Access;
use crate::transport::ordered_rma::{Flow, Ops, Start, What};
use crate::transport::token;
use crate::transport::{AtomicRequest, RmaRequest};
use cci_memory::ring::Corrupt;
use cci_memory::slab::Key;
use cci_proto::{RemoteAddress, RmaKind, RmaSegment};
use cci_sys::unix::ReceivedFds;

pub(super) use self::grant::GRANT_BYTES;
pub(super) use self::ring::{RECORD_BYTES_MAX, TakenRma, take};

/// Bytes moved for a link in one poll, before others and the program have their turn.
const TURN_BYTES: u64 = 512 << 10;
/// Regions asked for because of one operation.
const ASKS_PER_OPERATION_MAX: usize = 8;
/// Words about mappings that wait for room in the ring.
const CONTROL_MAX: usize = 64;
/// Words of all kinds that wait for room in the ring of one peer. Of each region that it was granted the end is said, once; an
/// honest peer that reads nothing asks for no more.
pub(super) const CONTROL_LEN_MAX: usize = 2 * granted::REGIONS_MAX;
/// How often flows are looked after.
const LOOK_NS: u64 = 1_000_000;
/// A peer that goes on taking records, but has not answered yet, gets at least so much more time.
const GRACE_NS: u64 = 10_000_000;

impl Shm {
    /// Does an operation by plain copies, if everything of it is mapped.
    #[inline]
    pub(super) fn copy_at_once(
        &mut self,
        core: &mut Core,
        key: Key,
        request: &RmaRequest<'_>,
    ) -> Option<Status> {
        // The message needs the ring.
        let (first, more) = request.pieces.split_first().filter(|_| request.message.is_none())?;
        let (asker, out) = self.asker_at_once(core, key, request.fence)?;
        asker.copy(core, out, key, request.kind, first, more)
    }

    /// The same for an atomic operation.
    #[inline]
    pub(super) fn change_at_once(
        &mut self,
        core: &mut Core,
        key: Key,
        request: &AtomicRequest,
    ) -> Option<Status> {
        let AtomicRequest { atomic, target, result, fence } = *request;
        let (asker, out) = self.asker_at_once(core, key, fence)?;
        asker.atomic(core, out, key, atomic, target, result)
    }

    /// What is mapped of a connection's peer; None: nothing, or a fence has to wait first.
    #[inline]
    fn asker_at_once(&mut self, core: &mut Core, key: Key, fence: bool) -> Option<(&mut Asker, &mut Out)> {
        if !self.is_ours() {
            return None;
        }
        let conn = self.table.conns.get(key).filter(|conn| conn.state == State::Open)?;
        let (at, flow_key, in_progress) = (conn.at, conn.rma, conn.in_progress);
        // What is there of a peer that is gone is nobody's memory.
        let link = self.links.get_mut(at).filter(|link| link.life == Life::Up)?;
        link.asker.as_ref()?;
        if fence {
            if self.table.rma.flows.get(flow_key).is_some_and(|flow| flow.operations() > 0) {
                return None;
            }
            if in_progress > 0 {
                // What is wrong with the peer's word, the next poll finds.
                link.complete_taken(&mut self.table, core).ok()?;
                if self.table.conns.get(key).is_none_or(|conn| conn.in_progress > 0) {
                    return None;
                }
            }
        }
        let Link { asker, out, .. } = &mut **link;
        Some((asker.as_mut()?, out))
    }

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
        pieces: &[RmaSegment],
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
        link.rma.begins(self.table.now_ns);
        let Some(flow_key) = flow_of(link, &mut self.table, key) else { return Err(SendError::WouldBlock) };
        // Asked now, it may be there for the next one.
        match what {
            What::Move(kind) => {
                for piece in pieces.iter().take(ASKS_PER_OPERATION_MAX) {
                    want(link, &mut self.table, key, piece.remote, piece.len_bytes, Some(kind));
                }
            }
            What::Atomic { target, .. } => want(link, &mut self.table, key, target, 8, None),
        }
        let position = link.out.producer.tail();
        let (now_ns, is_alone) = (link.rma.clock_ns(self.table.now_ns), core.counters.connections_open < 2);
        let start = Start { name, what, pieces, message, fence, position, now_ns, is_alone };
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
        link.rma.looks(now_ns);
        link.rma.slept = now;
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
    let (Some(conn), Some((flow, ops))) = (conn, table.rma.flows.get_mut(flow_key)) else {
        return Ok(Looked::Idle);
    };
    if flow.is_idle() && !flow.queued && !flow.closing {
        conn.rma = token::NOWHERE;
        table.rma.give_back(link.peer.process(), flow_key);
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
    // Whatever the peer says or reads meanwhile, an operation ends.
    let clock_ns = link.rma.clock_ns(now_ns);
    let overdue_ns = flow.deadline_ns(ops, clock_ns, conn.send_timeout_ns()).unwrap_or(u64::MAX);
    if clock_ns >= overdue_ns {
        break_connection(link, table, core, conn_key);
        return Ok(Looked::Keep);
    }
    link.rma.deadline_ns = link.rma.deadline_ns.min(link.rma.real_ns(overdue_ns));
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
        core.ended(conn.connection, DisconnectReason::TimedOut);
    }
}

/// Sees to it that a place of the peer's can be reached in a better way than through the ring, from some time on.
fn want(
    link: &mut Link,
    table: &mut Table,
    key: Key,
    at: RemoteAddress,
    len_bytes: u64,
    kind: Option<RmaKind>,
) {
    if link.life != Life::Up || link.out.control.len() >= CONTROL_MAX {
        return;
    }
    let Some(conn) = table.conns.get(key) else { return };
    let to = PeerConn { index: conn.peer_index, generation: u32::from(conn.peer_generation) };
    if table.rma.direct {
        let asker = link.asker.get_or_insert_with(|| Box::new(Asker::new(&table.rma.mapped)));
        if asker.should_ask(at.region, at.key, key) {
            let words = [at.region, at.key, u64::from(!asker.has_control())];
            // What it finds wrong with the ring, the next push finds too.
            let _ = link.say(Control::words(kind::MAP, to, words));
        }
    }
    if table.rma.cma != Cma::Off && kind.is_some() && len_bytes >= pull::TRY_BYTES {
        let pull = link.pull.get_or_insert_with(|| Box::new(Pull::new()));
        if !std::mem::replace(&mut pull.asked, true)
            && let Some(word) = table.rma.word()
        {
            let words = [0, word.address(), word.value];
            let _ = link.say(Control::words(kind::TRY, to, words));
        }
    }
}

/// Something came about mappings and pulls.
pub(super) fn said(
    link: &mut Link,
    table: &mut Table,
    core: &mut Core,
    kind: u8,
    conn: u32,
    generation: u8,
    words: [u64; 3],
) {
    let [first, second, third] = words;
    match kind {
        kind::MAP => map_wanted(link, table, core, conn, generation, words),
        kind::NO_MAP => {
            if let (Some(asker), Some(why)) = (&mut link.asker, NotMapped::from_code(second)) {
                asker.refused(first, why);
            }
        }
        kind::UNMAP => {
            if let Some(asker) = &mut link.asker {
                asker.unmapped(first, second, third != 0);
            }
        }
        kind::TRY => {
            let pull = link.pull.get_or_insert_with(|| Box::new(Pull::new()));
            pull.try_it(table.rma.cma, &link.peer, second, third);
            let cost = pull.to_word();
            let (address, value) = table.rma.word().map_or((0, 0), |word| (word.address(), word.value));
            if link.out.control.len() < CONTROL_MAX {
                let to = PeerConn { index: 0, generation: 0 };
                let _ = link.say(Control::words(kind::TRIED, to, [cost, address, value]));
            }
        }
        kind::TRIED => {
            if let Some(pull) = link.pull.as_mut().filter(|pull| pull.asked) {
                pull.peer_says(first);
                pull.try_it(table.rma.cma, &link.peer, second, third);
            }
        }
        _ => table.counts.bad_record += 1,
    }
}

/// A peer wants to map a region of ours.
fn map_wanted(
    link: &mut Link,
    table: &mut Table,
    core: &mut Core,
    conn: u32,
    generation: u8,
    [region_id, region_key, wants_control]: [u64; 3],
) {
    let here = link.key;
    let Some((_, conn)) = table.named(conn, generation).filter(|(_, conn)| conn.at == here) else {
        table.counts.unknown_connection += 1;
        return;
    };
    let (connection, index, generation) = (conn.connection, conn.peer_index, conn.peer_generation);
    let is_up = conn.state == State::Open && link.life == Life::Up;
    let rma = &mut table.rma;
    let result = match core.regions.granted(connection, region_id, region_key, Access::LOCAL) {
        _ if !rma.direct => Err(NotMapped::OwnerOff),
        _ if rma.owner.is_barred(&link.peer) => Err(NotMapped::Barred),
        // To be answered all the same: other connections of the link wait for it.
        _ if !is_up => Err(NotMapped::Handle),
        Some(region) if region.access != Access::LOCAL => {
            let only = region.only.is_some().then_some((index, u32::from(generation)));
            rma.owner.grant(link, region_id, region, only, wants_control != 0)
        }
        _ => Err(NotMapped::Handle),
    };
    if let Err(why) = result
        && link.out.control.len() < CONTROL_MAX
    {
        let to = PeerConn { index, generation: u32::from(generation) };
        let _ = link.say(Control::words(kind::NO_MAP, to, [region_id, why.code(), 0]));
    }
}

impl Shm {
    /// A grant came over a link's socket. False: no honest peer sends this.
    pub(super) fn grant_came(&mut self, core: &Core, key: Key, bytes: &[u8], fds: ReceivedFds) -> bool {
        let Some(grant) = Grant::parse(bytes) else { return false };
        let Some(asker) = self.links.get(key).and_then(|link| link.asker.as_ref()) else { return false };
        if !asker.awaits(&grant) {
            // It was forgotten, or asked for twice.
            return true;
        }
        let held = Held {
            cap_bytes: core.options.memory_bytes_max,
            total_bytes: self.held_bytes(core),
            mapped_bytes: self.table.rma.mapped.total(),
            is_alone: self.links.len() == 1,
        };
        let room_bytes = held.room_bytes(asker.mapped_bytes());
        let Some(link) = self.links.get_mut(key) else { return false };
        let uid = link.peer.uid;
        link.asker.as_mut().is_some_and(|asker| asker.granted(grant, fds, uid, room_bytes))
    }
}

/// The flow of a connection; gives it one if it has none.
fn flow_of(link: &mut Link, table: &mut Table, key: Key) -> Option<Key> {
    let (connection, flow_key) = table.conns.get(key).map(|conn| (conn.connection, conn.rma))?;
    if table.rma.flows.get(flow_key).is_some() {
        return Some(flow_key);
    }
    let process = link.peer.process();
    let mut lent = table.rma.lend(process, connection, table.now_ns);
    if lent.is_none() && take_back_idle(link, table) {
        lent = table.rma.lend(process, connection, table.now_ns);
    }
    let flow_key = lent?;
    table.conns.get_mut(key)?.rma = flow_key;
    link.rma.flows.push((flow_key, key));
    Some(flow_key)
}

/// Takes back flows of a link's connections that have nothing under way. True: there were some.
#[cold]
pub(super) fn take_back_idle(link: &mut Link, table: &mut Table) -> bool {
    let (process, before) = (link.peer.process(), link.rma.flows.len());
    link.rma.flows.retain(|&(flow_key, conn_key)| {
        let idle = |(flow, _): (&mut Flow, &mut Ops)| flow.is_idle() && !flow.queued && !flow.closing;
        if !table.rma.flows.get_mut(flow_key).is_some_and(idle) {
            return true;
        }
        if let Some(conn) = table.conns.get_mut(conn_key).filter(|conn| conn.rma == flow_key) {
            conn.rma = token::NOWHERE;
        }
        table.rma.give_back(process, flow_key);
        false
    });
    link.rma.flows.len() < before
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
    say_close(link, conn)
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
    let flow_key = std::mem::replace(&mut conn.rma, token::NOWHERE);
    let Some((flow, ops)) = table.rma.flows.get_mut(flow_key) else { return false };
    let was_closing = flow.closing;
    flow.end(ops, core, status);
    table.rma.give_back(link.peer.process(), flow_key);
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
            table.rma.give_back(link.peer.process(), flow_key);
        }
        link.rma.flows.retain(|(flow, _)| *flow != flow_key);
    }
}
