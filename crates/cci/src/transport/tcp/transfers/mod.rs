//! Remote memory over TCP: a second stream beside the connection's, made when it is first needed, carries the records of
//! [`ordered_rma`](crate::transport::ordered_rma). So no message stands behind a long transfer.
//!
//! What moves data on a connection takes [memory](quota), which all connections share. A connection that finds none waits in
//! a queue, and its stream is not read meanwhile. Those that have theirs give way after a few turns while others wait: nothing
//! more is read of them, what they asked for is served, and then what the peer relies on is kept in a few bytes
//! ([`Suspended`](crate::transport::ordered_rma::Suspended)).
//!
//! `docs/adr/0008-tcp.md` has the reasons.

mod clock;
mod counts;
mod quota;
#[cfg(test)]
mod tests;
mod wire;

use self::clock::Clock;
use self::counts::Counts;
use self::quota::TransferQuota;
use self::wire::Wire;
use super::conn::Conn;
use super::conns::Conns;
use super::counts::Fault;
use super::established::{Established, Stage, record_ns_max};
use super::pipe::Pipe;
use super::second_stream::{Account, SecondStream, Standing};
use super::shared::Shared;
use super::watched::Watched;
use crate::connection::{DisconnectReason, Status};
use crate::engine::core::Core;
use crate::engine::regions::Region;
use crate::error::SendError;
use crate::explain::{Explanation, PathOption};
use crate::limits;
use crate::transport::ordered_rma::stream::{Came, Intake, Over, StreamChannel, scratch_bytes};
use crate::transport::ordered_rma::{FLOW_BYTES, Flow, Flows, Start, Turn, allowance_ns};
use crate::transport::quota::Host;
use crate::transport::{Armed, token};
use cci_memory::fallible;
use cci_memory::slab::Key;
use cci_sys::event::Interest;
use std::collections::VecDeque;

/// What may wait in the kernel without having been sent: as much as one record, so that a short one behind it waits for little.
const UNSENT_BYTES_MAX: u32 = 256 << 10;
/// A second stream that has ended may be the first sign that the peer's program disconnects: so long its CLOSE, and what it
/// sent before, are waited for.
const GRACE_NS: u64 = 200_000_000;
/// A connection on which nothing moves for so long gives back what it borrowed, and is polled no more.
const IDLE_NS: u64 = 1_000_000;
/// Bytes read, and bytes written, for one connection in one poll, before messages and the program have their turn.
const TURN_BYTES: u64 = 256 << 10;
/// Bytes of a turn while messages come and go: this is what they wait behind.
const SHORT_TURN_BYTES: u64 = 32 << 10;
/// How long the last message counts.
const MESSAGES_NS: u64 = 1_000_000;
/// Connections that have their turn in one poll.
const TURNS_MAX: usize = 8;
/// Turns after which a connection gives way to those that wait.
const TURNS_BEFORE_YIELD: u32 = 4;
/// Those that wait and are looked at in one poll: the first ones' hosts may have their share.
const LOOKS_MAX: usize = 64;
/// A connection whose peer has neither taken anything nor ended a record for so long makes room for those that wait, if its
/// host holds the most.
const STANDSTILL_NS: u64 = 1_000_000_000;

/// What a turn of a connection is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Everything,
    /// Nothing is read: the connection gives way to others.
    Serve,
    /// What has not left is written, and nothing else: there is no memory for more.
    Flush,
}

/// Why a turn was the last one of a second stream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum WorkError {
    /// The stream has ended by itself.
    Ended,
    Fault(Fault),
}

/// What came of looking after a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    /// It is not active any more.
    Idle,
    Over(DisconnectReason),
    Fault(Fault),
}

/// Operations and second streams of all connections.
pub(super) struct Transfers {
    flows: Flows,
    /// What is read goes through here, unless it goes straight into its region.
    scratch: Vec<u8>,
    message_bytes_max: usize,
    /// Connections with something under way, or of late.
    active: Vec<Key>,
    /// Connections for which there was no memory, in order.
    waiting: VecDeque<Key>,
    quota: TransferQuota,
    /// One of the active ones had too little to go on; for so many turns others give way to it.
    short_turns: usize,
    /// Where the last of them is.
    short_host: Option<Host>,
    clock: Clock,
    /// Something is to be done that waits for nobody.
    at_once: bool,
    /// Turns in a row in which nothing moved.
    still_turns: usize,
    /// Messages of the endpoint so far, and when there last was one.
    messages: u64,
    messages_ns: u64,
    counts: Counts,
}

impl Transfers {
    pub fn new(operations_max: u32, message_bytes_max: u32, memory_bytes_max: u64) -> Transfers {
        Transfers {
            flows: Flows::new(operations_max),
            scratch: Vec::new(),
            message_bytes_max: message_bytes_max as usize,
            active: Vec::new(),
            waiting: VecDeque::new(),
            quota: TransferQuota::new(memory_bytes_max),
            short_turns: 0,
            short_host: None,
            clock: Clock::new(),
            at_once: false,
            still_turns: 0,
            messages: 0,
            messages_ns: 0,
            counts: Counts::default(),
        }
    }

    /// Enters an operation on an open connection; `start` has no position and no time yet. Answers whether the second stream
    /// is there.
    #[inline]
    pub fn start(
        &mut self,
        shared: &Shared,
        core: &Core,
        conn: &mut Established,
        start: &mut Start<'_>,
    ) -> Result<bool, SendError> {
        let (host, connection) = (conn.base.host(), conn.base.connection);
        // What a fence waits for: all sends before it have ended.
        start.position = conn.base.messages_sent;
        if conn.second.get_or_insert_with(SecondStream::new).ended_until_ns.is_some() {
            return Err(SendError::Disconnected);
        }
        if !self.admit(shared, conn, Account::Own) {
            return Err(SendError::WouldBlock);
        }
        let Some(second) = conn.second.as_mut() else { return Err(SendError::Disconnected) };
        let now_ns = self.clock.at_ns(shared.now_ns);
        let Transfers { flows, quota, counts, .. } = self;
        if second.is_trimmed && !quota.fill(host, second) || !second.lend(flows, connection, now_ns) {
            return Err(SendError::WouldBlock);
        }
        let Some((flow, ops)) = flows.get_mut(second.flow) else { return Err(SendError::WouldBlock) };
        (start.now_ns, start.is_alone) = (now_ns, core.counters.connections_open < 2);
        if !flow.start(ops, start) {
            return Err(SendError::WouldBlock);
        }
        counts.operations += 1;
        // Looked after from now on.
        self.clock.look_soon();
        Ok(second.stream.is_some())
    }

    /// The second stream of a connection is there. Answers whether something waits for it; `None`: there is no memory.
    pub fn attach(&mut self, core: &Core, conn: &mut Established, mut stream: Pipe) -> Option<bool> {
        // Without it a short record may have to wait for longer; that is all.
        let _ = stream.set_unsent_bytes_max(UNSENT_BYTES_MAX);
        if self.scratch.is_empty() {
            self.scratch = fallible::filled(scratch_bytes(self.message_bytes_max), 0).ok()?.into_vec();
        }
        stream.want();
        let token = token::make(token::SECOND_STREAM, conn.base.listed.key);
        let second = conn.second.get_or_insert_with(SecondStream::new);
        second.stream = Some(Watched::new(stream, token));
        second.watch(core, Some(Interest::Read));
        self.counts.streams += 1;
        Some(second.standing == Standing::Active)
    }

    /// The kernel has something to say of a second stream. Answers whether it is one that polls did not look at.
    pub fn ready(&mut self, shared: &Shared, core: &Core, conn: &mut Established, hung_up: bool) -> bool {
        let Some(second) = conn.second.as_mut() else { return false };
        let Some(stream) = second.stream.as_ref() else { return false };
        if stream.interest().is_some_and(|interest| interest != Interest::Read) {
            second.watch(core, Some(Interest::Read));
            second.writer.space_came();
        }
        if hung_up {
            // What is left to be read is not much, and its end behind it.
            (second.turns, second.yields_ns) = (0, None);
        }
        if second.standing == Standing::Active {
            // Its turn comes in this poll.
            return false;
        }
        let is_admitted = self.admit(shared, conn, Account::Peer);
        if !is_admitted {
            self.queue(shared, core, conn);
        }
        is_admitted
    }

    /// Gives a connection what it takes to move data. False: there is no room.
    #[inline]
    fn admit(&mut self, shared: &Shared, conn: &mut Established, account: Account) -> bool {
        let now_ns = shared.now_ns;
        let (host, key) = (conn.base.host(), conn.base.listed.key);
        let Some(second) = conn.second.as_mut() else { return false };
        if second.standing == Standing::Active {
            return true;
        }
        if self.active.try_reserve(1).is_err() || !self.quota.admit(host, second, account) {
            return false;
        }
        if let Standing::Waiting { since_ns } = second.standing {
            // This side has not read meanwhile: that is not the peer's fault.
            second.record_ns = second.record_ns.map(|record_ns| record_ns + now_ns.saturating_sub(since_ns));
        }
        (second.standing, second.is_trimmed) = (Standing::Active, false);
        (second.turns, second.yields_ns, second.moved_ns) = (0, None, now_ns);
        if self.active.is_empty() {
            self.clock.wind(now_ns);
        }
        self.active.push(key);
        self.clock.look_soon();
        true
    }

    /// There is no room for what has come on a second stream: it is not read until its turn comes.
    fn queue(&mut self, shared: &Shared, core: &Core, conn: &mut Established) {
        let key = conn.base.listed.key;
        let Some(second) = conn.second.as_mut() else { return };
        if matches!(second.standing, Standing::Waiting { .. }) || self.waiting.try_reserve(1).is_err() {
            // Without memory for that, the kernel tells again.
            return;
        }
        second.watch(core, None);
        second.standing = Standing::Waiting { since_ns: shared.now_ns };
        self.waiting.push_back(key);
        self.counts.waited += 1;
    }

    /// Gives those that wait what they wait for, as far as it is there.
    #[inline]
    pub fn admit_waiting(&mut self, shared: &Shared, core: &Core, conns: &mut Conns) {
        for _ in 0..self.waiting.len().min(LOOKS_MAX) {
            let Some(key) = self.waiting.pop_front() else { return };
            let Some(conn) = conns.established_mut(key) else { continue };
            let waits = |second: &SecondStream| matches!(second.standing, Standing::Waiting { .. });
            if !conn.second.as_deref().is_some_and(waits) {
                continue;
            }
            if self.admit(shared, conn, Account::Peer) {
                if let Some(second) = conn.second.as_mut() {
                    second.watch(core, Some(Interest::Read));
                }
                self.at_once = true;
            } else {
                self.waiting.push_back(key);
            }
        }
    }

    /// Somebody has not what it takes to go on.
    #[inline]
    pub fn others_wait(&self) -> bool {
        !self.waiting.is_empty() || self.short_turns > 0
    }

    /// Something is under way, or waits.
    #[inline]
    pub fn are_any(&self) -> bool {
        !self.active.is_empty() || !self.waiting.is_empty()
    }

    /// The turns of a poll begin: how many there are.
    #[inline]
    pub fn begin_turns(&mut self, shared: &Shared, core: &Core) -> usize {
        self.at_once = false;
        let messages = core.counters.messages_received.wrapping_add(core.counters.messages_sent);
        if messages != self.messages {
            (self.messages, self.messages_ns) = (messages, shared.now_ns);
        }
        self.active.len().min(TURNS_MAX)
    }

    /// Whose turn it is next.
    #[inline]
    pub fn next(&mut self) -> Option<Key> {
        let key = self.active.first().copied()?;
        self.active.rotate_left(1);
        self.still_turns = self.still_turns.saturating_add(1);
        Some(key)
    }

    /// The turns of a poll have ended.
    #[inline]
    pub fn end_turns(&mut self) {
        // Some have had no turn since something last moved.
        let active = self.active.len();
        self.at_once |= active > TURNS_MAX && self.still_turns < active;
    }

    /// What the next turn of a connection is for.
    #[inline]
    pub fn next_work(&mut self, shared: &Shared, conn: &mut Established) -> Work {
        let others_wait = self.others_wait();
        self.short_turns = self.short_turns.saturating_sub(1);
        let host = conn.base.host();
        let Some(second) = conn.second.as_mut() else { return Work::Everything };
        let Transfers { quota, flows, short_turns, short_host, active, .. } = self;
        if others_wait && !second.has_own(flows) {
            second.turns = second.turns.saturating_add(1);
            if second.turns > TURNS_BEFORE_YIELD {
                second.yields_ns.get_or_insert(shared.now_ns);
            }
        } else {
            (second.turns, second.yields_ns) = (0, None);
        }
        if second.writer.is_empty() && !quota.fill(host, second) {
            // It waits as those in the queue do, until all have had their turn.
            *short_turns = active.len() + 1;
            *short_host = Some(host);
        }
        match (second.is_trimmed, second.yields_ns) {
            (true, _) => Work::Flush,
            (false, Some(_)) => Work::Serve,
            (false, None) => Work::Everything,
        }
    }

    /// Reads what came on a connection's second stream, and writes what there is room for.
    #[inline]
    pub fn work(
        &mut self,
        shared: &mut Shared,
        core: &mut Core,
        conn: &mut Established,
        work: Work,
    ) -> Result<(), WorkError> {
        let now_ns = shared.now_ns;
        let delivers = conn.takes_messages();
        let taken = conn.base.messages_sent.saturating_sub(u64::from(conn.out.sends()));
        let connection = conn.base.connection;
        if matches!(conn.stage, Stage::Lingering { .. }) {
            return Ok(());
        }
        let Some(second) = conn.second.as_mut() else { return Ok(()) };
        let clock_ns = self.clock.at_ns(now_ns);
        if second.stream.is_none() || !second.lend(&mut self.flows, connection, clock_ns) {
            // Where there is no room for a flow, what came waits in the kernel.
            return Ok(());
        }
        let SecondStream { stream: Some(stream), flow, writer, reader, record_ns, .. } = &mut **second else {
            return Ok(());
        };
        let Transfers {
            flows, scratch, message_bytes_max, counts, at_once, messages_ns, still_turns, ..
        } = self;
        let is_short = now_ns < messages_ns.saturating_add(MESSAGES_NS);
        let turn_bytes = if is_short { SHORT_TURN_BYTES } else { TURN_BYTES };
        let Some((flow, ops)) = flows.get_mut(*flow) else { return Ok(()) };
        // What was sealed waits for room, and all that is behind it.
        let has_space = stream.flush().map_err(|_| WorkError::Ended)?;
        let mut wire = Wire { stream, forged: false };
        let (mut came, mut moved) = (Came::default(), false);
        if work == Work::Everything {
            let message_bytes_max = *message_bytes_max;
            let mut intake = Intake { flow, ops, core, message_bytes_max, delivers };
            let read = reader.poll(&mut wire, scratch, &mut intake, &mut { turn_bytes });
            //= wire.md R-SEC-14
            came = read.map_err(|over| match over {
                Over::Ended if wire.forged => WorkError::Fault(Fault::Forged),
                Over::Ended => WorkError::Ended,
                Over::Fault => WorkError::Fault(Fault::Record),
            })?;
            counts.reads += std::mem::take(&mut reader.reads);
            counts.bytes_read += std::mem::take(&mut reader.bytes);
            counts.bytes_placed += std::mem::take(&mut reader.placed_bytes);
            *at_once |= came.more;
            let has_ended = reader.take_ended();
            if reader.is_between_records() && !wire.stream.has_part() {
                *record_ns = None;
            } else if has_ended || record_ns.is_none() {
                *record_ns = Some(now_ns);
            }
        }
        if came.bytes > 0 {
            conn.heard_ns = now_ns;
        }
        if has_space && writer.may_try(turn_bytes as usize) && (flow.wants_turn() || !writer.is_empty()) {
            let mut done = Turn::default();
            if work != Work::Flush {
                let mut channel = StreamChannel { stream: &mut wire, writer, taken };
                done = flow.turn(ops, core, &mut channel, &mut { turn_bytes });
            }
            if done.broken {
                return Err(WorkError::Ended);
            }
            let all = writer.flush(&mut wire).map_err(|_| WorkError::Ended)?;
            *at_once |= if all { done.at_once } else { !writer.is_full() };
            counts.writes += std::mem::take(&mut writer.writes);
            let written = std::mem::take(&mut writer.bytes);
            counts.bytes_written += written;
            counts.bytes_copied += std::mem::take(&mut writer.copied_bytes);
            moved = done.moved || written > 0;
        }
        let has_part = record_ns.is_some();
        second.has_moved = came.bytes > 0 || moved;
        if second.has_moved {
            flow.moved = true;
            second.moved_ns = now_ns;
            *still_turns = 0;
        }
        if has_part {
            conn.await_remainder(shared);
        }
        Ok(())
    }

    /// Behind a turn, while [others wait](Transfers::others_wait): a connection that gives way, or on which nothing has moved, keeps no more than it must.
    #[inline]
    pub fn retire_for_space(&mut self, core: &mut Core, conn: &mut Established) -> Result<(), Fault> {
        let key = conn.base.listed.key;
        let Some(second) = conn.second.as_deref() else { return Ok(()) };
        let goes_on = second.has_moved && second.yields_ns.is_none() || second.has_own(&self.flows);
        if goes_on || second.stream.is_none() {
            return Ok(());
        }
        if self.suspend(core, conn)? {
            self.retire(key);
        } else {
            self.trim(conn);
        }
        // Whoever waits for that has its turn in the next poll.
        self.at_once |= self.short_turns > 0;
        Ok(())
    }

    /// Takes a connection out of the list; it was the last to have its turn, as a rule.
    fn retire(&mut self, key: Key) {
        if self.active.last() == Some(&key) {
            self.active.pop();
        } else {
            self.active.retain(|active| *active != key);
        }
    }

    /// Takes a connection's memory back, if nothing is under way on it that needs any. Who calls takes it out of the list.
    fn suspend(&mut self, core: &mut Core, conn: &mut Established) -> Result<bool, Fault> {
        let (host, delivers) = (conn.base.host(), conn.takes_messages());
        let Some(second) = conn.second.as_mut() else { return Ok(false) };
        let Transfers { flows, quota, message_bytes_max, .. } = self;
        // What the kernel does not know of it does not tell of.
        let is_still =
            second.stream.as_ref().is_some_and(|stream| !stream.has_unsent() && !stream.has_content());
        if !is_still || !second.writer.is_empty() {
            return Ok(false);
        }
        if let Some((flow, ops)) = flows.get_mut(second.flow) {
            let Some(suspended) = flow.suspended() else { return Ok(false) };
            let message_bytes_max = *message_bytes_max;
            let mut intake = Intake { flow, ops, core, message_bytes_max, delivers };
            second.reader.trim(&mut intake).map_err(|_| Fault::Record)?;
            second.suspended = suspended;
            flows.give_back(second.flow);
        }
        second.writer.release();
        let held_bytes = second.reader.held_bytes();
        quota.charge(host, second, held_bytes);
        (second.flow, second.standing, second.yields_ns) = (token::NOWHERE, Standing::Idle, None);
        second.watch(core, Some(Interest::Read));
        Ok(true)
    }

    /// Has a connection that waits for its peer hold no more than what is on its way.
    fn trim(&mut self, conn: &mut Established) {
        let host = conn.base.host();
        let Some(second) = conn.second.as_mut() else { return };
        second.writer.trim();
        let held_bytes = FLOW_BYTES as u64 + second.writer.held_bytes() + second.reader.held_bytes();
        if held_bytes < second.charged_bytes {
            self.quota.charge(host, second, held_bytes);
            second.is_trimmed = true;
        }
    }

    /// Whether it is time to look after the active connections.
    #[inline]
    pub fn is_time_to_look(&mut self, now_ns: u64) -> bool {
        self.clock.looks(now_ns)
    }

    /// One of the active connections.
    #[inline]
    pub fn active(&self, at: usize) -> Option<Key> {
        self.active.get(at).copied()
    }

    /// Takes one out of the active connections; another one may be there then.
    pub fn take_active(&mut self, at: usize) {
        self.active.swap_remove(at);
    }

    /// Looks after a connection: what is due, and whether it has become idle.
    pub fn look_at(&mut self, shared: &Shared, core: &mut Core, conn: &mut Established) -> Verdict {
        let (now_ns, timeout_ns) = (shared.now_ns, conn.base.send_timeout_ns);
        let Some(second) = conn.second.as_mut() else { return Verdict::Idle };
        if let Some(until_ns) = second.ended_until_ns {
            return self.look_at_ended(shared, conn, until_ns);
        }
        let clock_ns = self.clock.at_ns(now_ns);
        let Transfers { flows, clock, counts, .. } = self;
        let Some((flow, ops)) = flows.get_mut(second.flow) else {
            // Its turn comes, and its time.
            let is_idle = now_ns >= second.moved_ns.saturating_add(IDLE_NS);
            let is_suspended = is_idle && self.suspend(core, conn).is_ok_and(|is_suspended| is_suspended);
            return if is_suspended { Verdict::Idle } else { Verdict::Keep };
        };
        let operations = flow.operations();
        let held_due_ns = flow.end_held(ops, core, clock_ns, timeout_ns);
        if flow.operations() < operations {
            counts.held += u64::from(operations - flow.operations());
            conn.base.not_ready += u64::from(operations - flow.operations());
        }
        if std::mem::take(&mut flow.moved) {
            flow.moved_ns = clock_ns;
        }
        if let Some(mut overdue_ns) = flow.deadline_ns(ops, clock_ns, timeout_ns) {
            // While the peer has no buffers, nothing needs to move.
            overdue_ns =
                overdue_ns.min(held_due_ns.unwrap_or_else(|| flow.moved_ns.saturating_add(timeout_ns)));
            if clock_ns >= overdue_ns {
                return Verdict::Over(DisconnectReason::TimedOut);
            }
            clock.look_by(clock.when_ns(overdue_ns));
            return Verdict::Keep;
        }
        if let Some(since_ns) = second.yields_ns.filter(|_| !flow.waits_for_buffers()) {
            // Others wait for what it has, and it waits for its peer.
            let limit_ns = record_ns_max(timeout_ns).saturating_add(allowance_ns(flow.unsent_bytes()));
            let until_ns = since_ns.saturating_add(limit_ns);
            if now_ns >= until_ns {
                return Verdict::Over(DisconnectReason::TimedOut);
            }
            clock.look_by(until_ns);
        }
        if flow.is_owed_a_message(clock_ns, record_ns_max(timeout_ns)) {
            return Verdict::Fault(Fault::Unfinished);
        }
        if now_ns < second.moved_ns.saturating_add(IDLE_NS) {
            return Verdict::Keep;
        }
        match self.suspend(core, conn) {
            Ok(true) => Verdict::Idle,
            Ok(false) => Verdict::Keep,
            Err(fault) => Verdict::Fault(fault),
        }
    }

    /// The second stream of a connection has ended: either the peer's program has disconnected, and the connection ends in an
    /// orderly way, or it ends now.
    fn look_at_ended(&mut self, shared: &Shared, conn: &mut Established, until_ns: u64) -> Verdict {
        let Some(second) = conn.second.as_mut() else { return Verdict::Idle };
        if conn.stage != Stage::Open {
            second.standing = Standing::Idle;
            return Verdict::Idle;
        }
        if shared.now_ns >= until_ns {
            return Verdict::Over(DisconnectReason::Died);
        }
        self.clock.look_by(until_ns);
        Verdict::Keep
    }

    /// While somebody can't have its turn for want of room, a connection makes room that stands still: of the host that holds
    /// the most, the one that has done so for the longest time. It is to be ended.
    pub fn next_to_retire(&mut self, shared: &Shared, conns: &Conns) -> Option<Key> {
        let first = self.waiting.iter().find_map(|key| conns.established(*key)).map(|conn| conn.base.host());
        let short = self.short_host.filter(|_| self.short_turns > 0);
        let many = first.or(short).and_then(|host| self.quota.many(host))?;
        let stands_since_ns = |key: &Key| {
            let conn = conns.established(*key).filter(|conn| conn.base.host() == many)?;
            conn.second.as_ref()?.stands_since_ns(&self.flows)
        };
        let all = self.active.iter().chain(shared.streams.unfinished());
        let standing = all.filter_map(|key| Some((stands_since_ns(key)?, *key)));
        let (since_ns, key) = standing.min_by_key(|(since_ns, _)| *since_ns)?;
        let until_ns = since_ns.saturating_add(STANDSTILL_NS);
        if shared.now_ns < until_ns {
            self.clock.look_by(until_ns);
            return None;
        }
        //= wire.md R-TCP-26
        self.counts.retired_for_space += 1;
        self.retire(key);
        Some(key)
    }

    /// Prepares for sleep.
    pub fn arm(&mut self, shared: &Shared, core: &mut Core, conns: &mut Conns) -> Armed {
        self.admit_waiting(shared, core, conns);
        if self.at_once || !self.arm_streams(core, conns) {
            return Armed::Pending;
        }
        self.clock.sleep();
        let mut deadline_ns = self.clock.due_ns();
        let waits_for_buffers = |key: &Key| {
            let Some(second) = conns.established(*key).and_then(|conn| conn.second.as_ref()) else {
                return false;
            };
            self.flows.get(second.flow).is_some_and(Flow::waits_for_buffers)
                || second.stream.as_ref().is_some_and(|stream| stream.lacks_buffer())
        };
        if self.active.iter().any(waits_for_buffers) {
            // A buffer that another thread gives back wakes nobody.
            deadline_ns = deadline_ns.min(shared.now_ns + limits::SPACE_POLL_NS);
        }
        Armed::Sleep { deadline_ns: (deadline_ns != u64::MAX).then_some(deadline_ns) }
    }

    /// Has the kernel tell of what is waited for. False: something is to be done at once.
    fn arm_streams(&mut self, core: &mut Core, conns: &mut Conns) -> bool {
        for key in &self.active {
            let Some(conn) = conns.established_mut(*key) else { continue };
            let taken = conn.base.messages_sent.saturating_sub(u64::from(conn.out.sends()));
            let host = conn.base.host();
            let Some(second) = conn.second.as_mut() else { continue };
            if let Some(flow) = self.flows.get(second.flow)
                && (flow.waits_for_buffers() && core.has_buffer_for(conn.base.connection)
                    || flow.is_let_through(&self.flows.ops, taken))
                && second.writer.is_empty()
            {
                return false;
            }
            if second.is_trimmed && second.writer.is_empty() && self.quota.fill(host, second) {
                return false;
            }
            let Some(stream) = &second.stream else { continue };
            let wants_space = (!second.writer.is_empty() || stream.has_unsent()) && !stream.lacks_buffer();
            // What is not read now would end each sleep at once.
            let reads = second.yields_ns.is_none() && !second.is_trimmed;
            let interest = match (reads, wants_space) {
                (true, true) => Interest::Both,
                (true, false) => Interest::Read,
                (false, true) => Interest::Write,
                (false, false) => Interest::HangUp,
            };
            second.watch(core, Some(interest));
        }
        true
    }

    #[inline]
    fn flow(&self, conn: &Established) -> Option<&Flow> {
        self.flows.get(conn.second.as_ref()?.flow)
    }

    /// No operation of this side's is under way on a connection.
    #[inline]
    pub fn are_over(&self, conn: &Established) -> bool {
        self.flow(conn).is_none_or(|flow| flow.operations() == 0)
    }

    /// Operations of this side's are under way, whose answers may still come.
    #[inline]
    pub fn await_answers(&self, conn: &Established) -> bool {
        conn.second.as_ref().is_some_and(|second| second.stream.is_some()) && !self.are_over(conn)
    }

    /// The answers to the peer's operations are still to be sent.
    pub fn owe_answers(&self, conn: &Established) -> bool {
        let Some(second) = &conn.second else { return false };
        let Some(stream) = &second.stream else { return false };
        self.flow(conn).is_some_and(Flow::has_answers) || !second.writer.is_empty() || stream.has_unsent()
    }

    /// How long what this side has under way on a connection may take at the least rate.
    pub fn allowance_ns(&self, conn: &Established) -> u64 {
        self.flow(conn).map_or(0, Flow::allowance_ns)
    }

    /// A send timeout has changed: operations are looked at anew.
    pub fn timeout_changed(&mut self) {
        self.clock.look_soon();
    }

    /// Operations of this side that have not ended, on all connections.
    pub fn operations(&self) -> u32 {
        self.flows.ops.len()
    }

    /// Ends all operations of a connection that is over, and its second stream.
    pub fn end(&mut self, core: &mut Core, conn: &mut Established, status: Status) {
        let host = conn.base.host();
        let Some(mut second) = conn.second.take() else { return };
        second.watch(core, None);
        self.quota.charge(host, &mut second, 0);
        if let Some((flow, ops)) = self.flows.get_mut(second.flow) {
            flow.end(ops, core, status);
            self.flows.give_back(second.flow);
        }
    }

    /// The second stream of a connection has ended by itself.
    pub fn stream_ended(&mut self, shared: &Shared, core: &mut Core, conn: &mut Established) {
        //= wire.md R-TCP-24
        let until_ns = shared.now_ns.saturating_add(GRACE_NS);
        let Some(second) = &conn.second else { return };
        if second.standing != Standing::Active {
            self.active.push(conn.base.listed.key);
        }
        self.clock.look_by(until_ns);
        self.end(core, conn, Status::Disconnected);
        let mut ended = SecondStream::new();
        (ended.ended_until_ns, ended.standing) = (Some(until_ns), Standing::Active);
        conn.second = Some(ended);
    }

    /// A region is taken out of the table: nothing is read from it any more when this returns.
    pub fn region_removed(&self, conns: &mut Conns, region: &Region) {
        for key in &self.active {
            if let Some(second) = conns.established_mut(*key).and_then(|conn| conn.second.as_mut()) {
                second.writer.memory_goes(&region.bytes);
            }
        }
    }

    /// Adds the device counters of remote memory.
    pub fn count(&self, into: &mut Vec<(&'static str, u64)>) {
        let counts = &self.counts;
        into.extend([
            ("rma_streams", counts.streams),
            ("rma_streams_waited", counts.waited),
            ("rma_streams_made_room", counts.retired_for_space),
            ("rma_stream", counts.operations),
            ("rma_stream_reads", counts.reads),
            ("rma_stream_writes", counts.writes),
            ("rma_stream_bytes_read", counts.bytes_read),
            ("rma_stream_bytes_written", counts.bytes_written),
            ("rma_stream_bytes_placed", counts.bytes_placed),
            ("rma_stream_bytes_copied", counts.bytes_copied),
            ("rma_messages_not_ready", counts.held),
        ]);
    }

    /// Bytes held, those of connections included.
    pub fn bytes(&self, conns: &Conns) -> u64 {
        let of_conns = conns
            .iter()
            .filter_map(|(_, conn)| conn.established()?.second.as_ref())
            .map(|second| second.bytes());
        self.flows.bytes()
            + self.scratch.capacity() as u64
            + ((self.active.capacity() + self.waiting.capacity()) * size_of::<Key>()) as u64
            + self.quota.bytes()
            + of_conns.sum::<u64>()
    }

    /// Adds the path of a connection's remote memory.
    pub fn explain(conn: &Conn, into: &mut Explanation) {
        let second = conn.established().and_then(|conn| conn.second.as_ref());
        let reason = match second {
            _ if !conn.base().is_reliable => "an unreliable connection has none",
            None => "made when the first operation needs it",
            Some(second) if second.ended_until_ns.is_some() => "it has ended, and the connection with it",
            Some(second) if second.stream.is_none() => "being made",
            Some(second) if matches!(second.standing, Standing::Waiting { .. }) => {
                "waits for its turn: more connections move data than there is memory for"
            }
            Some(second) if !second.writer.is_empty() => {
                "straight from memory and into place; the peer or the network is slow to take what waits"
            }
            Some(_) => "straight from memory and into place, past the messages",
        };
        let chosen = second.is_some_and(|second| second.stream.is_some());
        into.paths.push(PathOption {
            path: "remote memory: second stream".to_owned(),
            chosen,
            reason: reason.to_owned(),
        });
    }
}
