//! Remote memory over TCP. The records of [`ordered_rma`](crate::transport::ordered_rma) use a second stream of the connection,
//! which is made when it is first needed. So no message waits behind a long transfer.
//!
//! A connection that moves data takes [memory](quota), of which all connections share a certain amount. A connection that finds
//! none waits in a queue, and its stream is not read meanwhile. While others wait, a connection with memory gives it up after a
//! few turns: it is not read any more, what its peer has asked for is served, and then it keeps only the few bytes that the peer
//! relies on ([`Suspended`]).
//!
//! `docs/adr/0008-tcp.md` has the reasons.

mod clock;
mod counts;
mod quota;
mod schedule;
#[cfg(test)]
mod tests;
mod wire;

use self::clock::Clock;
use self::counts::Counts;
use self::quota::TransferQuota;
use self::schedule::Schedule;
use self::wire::Wire;
use super::base::Base;
use super::conns::Conns;
use super::counts::Fault;
use super::established::{Established, Stage, record_ns_max};
use super::pipe::Pipe;
use super::second_stream::{Account, Second, SecondStream, Share, Standing, Work};
use super::shared::Shared;
use super::watched::Watched;
use crate::connection::{DisconnectReason, Status};
use crate::engine::core::Core;
use crate::engine::regions::Region;
use crate::error::SendError;
use crate::limits;
use crate::transport::ordered_rma::stream::{Came, Intake, Over, StreamChannel, scratch_bytes};
use crate::transport::ordered_rma::{FLOW_BYTES, Flow, Flows, Start, Suspended, Turn, allowance_ns};
use crate::transport::quota::Host;
use crate::transport::{Armed, token};
use cci_memory::fallible;
use cci_memory::slab::Key;
use cci_sys::event::Interest;

/// The most unsent bytes in the kernel: as many as one record has, so that a short record behind it does not wait long.
const UNSENT_BYTES_MAX: u32 = 256 << 10;
/// How long this side waits for CLOSE, and for what was sent before it, after the second stream has ended. That end may be the
/// first sign that the peer's program has disconnected.
const GRACE_NS: u64 = 200_000_000;
/// A connection on which nothing has moved for this time gives back what it has borrowed, and is not polled any more.
const IDLE_NS: u64 = 1_000_000;
/// How many turns a connection has before it gives way to those that wait.
const TURNS_BEFORE_YIELD: u32 = 4;
/// How many waiting connections one poll looks at. It looks at several because the hosts of the first ones may have all that they
/// are entitled to.
const LOOKS_MAX: usize = 64;
/// The longest time in which a peer may neither take anything nor complete a record while others wait for memory. Then its
/// connection ends, if its host holds the most memory.
const STANDSTILL_NS: u64 = 1_000_000_000;

/// Why a second stream can't be used any more.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum WorkError {
    /// The stream has ended by itself.
    Ended,
    Fault(Fault),
}

/// What the caller must do with a connection that was checked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Keep,
    /// Nothing is under way, so the connection is no longer active.
    Idle,
    Over(DisconnectReason),
    Fault(Fault),
}

/// Operations and second streams of all connections.
pub(super) struct Transfers {
    flows: Flows,
    /// The read buffer for input that is not read directly into its region.
    scratch: Vec<u8>,
    message_bytes_max: usize,
    pub schedule: Schedule,
    quota: TransferQuota,
    clock: Clock,
    counts: Counts,
}

impl Transfers {
    pub fn new(operations_max: u32, message_bytes_max: u32, memory_bytes_max: u64) -> Transfers {
        Transfers {
            flows: Flows::new(operations_max),
            scratch: Vec::new(),
            message_bytes_max: message_bytes_max as usize,
            schedule: Schedule::new(),
            quota: TransferQuota::new(memory_bytes_max),
            clock: Clock::new(),
            counts: Counts::default(),
        }
    }

    /// Enters an operation on an open connection, and fills in the position and the time of `start`. Returns whether the second
    /// stream is there.
    #[inline]
    pub fn start(
        &mut self,
        shared: &Shared,
        core: &Core,
        conn: &mut Established,
        start: &mut Start<'_>,
    ) -> Result<bool, SendError> {
        let Established { base, second, .. } = conn;
        // A fence waits until this many messages have been taken.
        start.position = base.messages_sent;
        let Some(second) = second.get_or_make() else { return Err(SendError::Disconnected) };
        if !self.admit(shared, base, second, Account::Own) {
            return Err(SendError::WouldBlock);
        }
        let now_ns = self.clock.at_ns(shared.now_ns);
        let Transfers { flows, quota, counts, .. } = self;
        if !quota.fill(base.host(), second) || !second.lend(flows, base.connection, now_ns) {
            return Err(SendError::WouldBlock);
        }
        let Some((flow, ops)) = second.flow_mut(flows) else { return Err(SendError::WouldBlock) };
        (start.now_ns, start.is_alone) = (now_ns, core.counters.connections_open < 2);
        if !flow.start(ops, start) {
            return Err(SendError::WouldBlock);
        }
        counts.operations += 1;
        // The next check finds out when the operation is due.
        self.clock.look_soon();
        Ok(second.stream.is_some())
    }

    /// Gives a connection its second stream. Returns whether an operation has waited for it, or `None` if there is no memory.
    pub fn attach(&mut self, core: &Core, conn: &mut Established, mut stream: Pipe) -> Option<bool> {
        // If the system refuses, a short record may have to wait longer; nothing else changes.
        let _ = stream.set_unsent_bytes_max(UNSENT_BYTES_MAX);
        if self.scratch.is_empty() {
            self.scratch = fallible::filled(scratch_bytes(self.message_bytes_max), 0).ok()?.into_vec();
        }
        stream.want();
        let token = token::make(token::SECOND_STREAM, conn.base.listed.key);
        let second = conn.second.get_or_make()?;
        second.stream = Some(Watched::new(stream, token));
        second.watch(core, Some(Interest::Read));
        self.counts.streams += 1;
        Some(second.is_active())
    }

    /// Handles the kernel's report of a second stream. Returns whether it is one that polls did not look at.
    pub fn ready(&mut self, shared: &Shared, core: &Core, conn: &mut Established, hung_up: bool) -> bool {
        let Established { base, second, .. } = conn;
        let Some(second) = second.get_mut() else { return false };
        let Some(stream) = second.stream.as_ref() else { return false };
        if stream.interest().is_some_and(|interest| interest != Interest::Read) {
            second.watch(core, Some(Interest::Read));
            second.writer.space_came();
        }
        if let Some(share) = second.share_mut() {
            if hung_up {
                // Little is left to be read before the end of the stream.
                (share.turns, share.yields_ns) = (0, None);
            }
            // Its turn comes in this poll.
            return false;
        }
        let is_admitted = self.admit(shared, base, second, Account::Peer);
        if !is_admitted {
            self.queue(shared, core, base.listed.key, second);
        }
        is_admitted
    }

    /// Gives a connection the memory that it needs to move data. Returns false if there is none.
    #[inline]
    fn admit(&mut self, shared: &Shared, base: &Base, second: &mut SecondStream, account: Account) -> bool {
        if second.is_active() {
            return true;
        }
        if !self.schedule.has_space() || !self.quota.admit(base.host(), second, account) {
            return false;
        }
        if !self.schedule.has_active() {
            self.clock.wind(shared.now_ns);
        }
        // This side has not read while the connection waited. The peer is not to blame for that time.
        second.record_ns = second.part_since_ns(shared.now_ns);
        (second.standing, second.moved_ns) = (Standing::Active(Share::default()), shared.now_ns);
        self.schedule.activate(base.listed.key);
        self.clock.look_soon();
        true
    }

    /// Has a second stream wait, unread, until there is memory for what has come on it.
    fn queue(&mut self, shared: &Shared, core: &Core, key: Key, second: &mut SecondStream) {
        // If there is no memory to note the connection, the kernel reports the stream again.
        if !second.is_waiting() && self.schedule.wait(key) {
            second.watch(core, None);
            second.standing = Standing::Waiting { since_ns: shared.now_ns };
            self.counts.waited += 1;
        }
    }

    /// Gives memory to connections that wait, as far as there is some.
    #[inline]
    pub fn admit_waiting(&mut self, shared: &Shared, core: &Core, conns: &mut Conns) {
        for _ in 0..self.schedule.waiting().len().min(LOOKS_MAX) {
            let Some(key) = self.schedule.next_waiting() else { return };
            let Some(Established { base, second, .. }) = conns.established_mut(key) else { continue };
            let Some(second) = second.get_mut().filter(|second| second.is_waiting()) else { continue };
            if self.admit(shared, base, second, Account::Peer) {
                second.watch(core, Some(Interest::Read));
                self.schedule.at_once = true;
            } else {
                // This can't fail: a connection was just taken out of the queue.
                let _ = self.schedule.wait(key);
            }
        }
    }

    /// What the next turn of a connection does.
    #[inline]
    pub fn next_work(&mut self, shared: &Shared, conn: &mut Established) -> Work {
        let others_wait = self.schedule.others_wait();
        self.schedule.count_short_turn();
        let host = conn.base.host();
        let Some(second) = conn.second.get_mut() else { return Work::Everything };
        let has_own = others_wait && second.has_own(&self.flows);
        let Some(share) = second.share_mut() else { return Work::Everything };
        if others_wait && !has_own {
            share.turns = share.turns.saturating_add(1);
            if share.turns > TURNS_BEFORE_YIELD {
                share.yields_ns.get_or_insert(shared.now_ns);
            }
        } else {
            (share.turns, share.yields_ns) = (0, None);
        }
        if second.writer.is_empty() && !self.quota.fill(host, second) {
            self.schedule.fall_short(host);
        }
        second.share().map_or(Work::Everything, Share::work)
    }

    /// Has a connection's turn: reads what has come on its second stream, and writes as much as there is space for.
    #[inline]
    pub fn work(
        &mut self,
        shared: &mut Shared,
        core: &mut Core,
        conn: &mut Established,
        work: Work,
    ) -> Result<(), WorkError> {
        let now_ns = shared.now_ns;
        if matches!(conn.stage, Stage::Lingering { .. }) {
            return Ok(());
        }
        let (delivers, taken) = (conn.takes_messages(), conn.messages_taken());
        let Some(second) = conn.second.get_mut() else { return Ok(()) };
        let clock_ns = self.clock.at_ns(now_ns);
        if second.stream.is_none() || !second.lend(&mut self.flows, conn.base.connection, clock_ns) {
            // If there is no memory for a flow, what came waits in the kernel.
            return Ok(());
        }
        let turn_bytes = self.schedule.turn_bytes(now_ns);
        let Transfers { flows, scratch, message_bytes_max, counts, schedule, .. } = self;
        let Some((flow, ops)) = second.flow_mut(flows) else { return Ok(()) };
        let SecondStream { stream: Some(stream), writer, reader, record_ns, .. } = second else {
            return Ok(());
        };
        // Sealed bytes wait for space, and so does everything behind them.
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
            counts.take_reads(reader);
            schedule.at_once |= came.more;
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
            schedule.at_once |= if all { done.at_once } else { !writer.is_full() };
            moved = counts.take_writes(writer) > 0 || done.moved;
        }
        let has_moved = came.bytes > 0 || moved;
        if has_moved {
            flow.moved = true;
            second.moved_ns = now_ns;
            schedule.moved();
        }
        if let Some(share) = second.share_mut() {
            share.has_moved = has_moved;
        }
        if second.record_ns.is_some() {
            conn.await_remainder(shared);
        }
        Ok(())
    }

    /// Takes as much memory as it can from a connection that gives way, or on which nothing has moved. Called after a turn while
    /// others wait.
    #[inline]
    pub fn retire_for_space(&mut self, core: &mut Core, conn: &mut Established) -> Result<(), Fault> {
        let delivers = conn.takes_messages();
        let Established { base, second, .. } = conn;
        let Some(second) = second.get_mut() else { return Ok(()) };
        let goes_on = second.share().is_some_and(|share| share.has_moved && share.yields_ns.is_none());
        if goes_on || second.has_own(&self.flows) || second.stream.is_none() {
            return Ok(());
        }
        if self.suspend(core, base, second, delivers)? {
            self.schedule.retire(base.listed.key);
        } else {
            self.trim(base.host(), second);
        }
        // A connection that lacks memory has its turn in the next poll.
        self.schedule.at_once |= self.schedule.short_host().is_some();
        Ok(())
    }

    /// Takes a connection's memory back. Returns false if something under way needs it. Otherwise the caller removes the
    /// connection from the active ones.
    fn suspend(
        &mut self,
        core: &mut Core,
        base: &Base,
        second: &mut SecondStream,
        delivers: bool,
    ) -> Result<bool, Fault> {
        // The kernel does not report bytes that have left it, or have not reached it.
        let is_still =
            second.stream.as_ref().is_some_and(|stream| !stream.has_unsent() && !stream.has_content());
        if !is_still || !second.writer.is_empty() {
            return Ok(false);
        }
        if let Some((flow, ops)) = second.flow_mut(&mut self.flows) {
            let Some(suspended) = flow.suspended() else { return Ok(false) };
            let message_bytes_max = self.message_bytes_max;
            let mut intake = Intake { flow, ops, core, message_bytes_max, delivers };
            second.reader.trim(&mut intake).map_err(|_| Fault::Record)?;
            second.suspend(&mut self.flows, suspended);
        }
        second.writer.release();
        let held_bytes = second.reader.held_bytes();
        self.quota.charge(base.host(), second, held_bytes);
        second.standing = Standing::Idle;
        second.watch(core, Some(Interest::Read));
        Ok(true)
    }

    /// Takes the memory of a connection that waits for its peer, except what is on its way.
    fn trim(&mut self, host: Host, second: &mut SecondStream) {
        second.writer.trim();
        let held_bytes = FLOW_BYTES as u64 + second.writer.held_bytes() + second.reader.held_bytes();
        if held_bytes < second.charged_bytes {
            self.quota.charge(host, second, held_bytes);
            if let Some(share) = second.share_mut() {
                share.is_trimmed = true;
            }
        }
    }

    /// Whether it is time to check the active connections.
    #[inline]
    pub fn is_time_to_look(&mut self, now_ns: u64) -> bool {
        self.clock.looks(now_ns)
    }

    /// Checks what is due on a connection, and whether it has become idle.
    pub fn look_at(&mut self, shared: &Shared, core: &mut Core, conn: &mut Established) -> Verdict {
        let delivers = conn.takes_messages();
        let Established { base, second, stage, .. } = conn;
        let (now_ns, timeout_ns) = (shared.now_ns, base.send_timeout_ns);
        let second = match second {
            Second::None => return Verdict::Idle,
            Second::Open(second) => &mut **second,
            // Either the peer's program has disconnected, and the connection ends in an orderly way, or it ends now.
            Second::Ended { .. } if *stage != Stage::Open => return Verdict::Idle,
            Second::Ended { until_ns } if now_ns >= *until_ns => {
                return Verdict::Over(DisconnectReason::Died);
            }
            Second::Ended { until_ns } => {
                self.clock.look_by(*until_ns);
                return Verdict::Keep;
            }
        };
        let clock_ns = self.clock.at_ns(now_ns);
        let is_idle = now_ns >= second.moved_ns.saturating_add(IDLE_NS);
        let Transfers { flows, clock, counts, .. } = self;
        let Some((flow, ops)) = second.flow_mut(flows) else {
            // The connection has had no turn yet, or no memory for a flow.
            let is_suspended = is_idle && self.suspend(core, base, second, delivers).is_ok_and(|done| done);
            return if is_suspended { Verdict::Idle } else { Verdict::Keep };
        };
        let operations = flow.operations();
        let held_due_ns = flow.end_held(ops, core, clock_ns, timeout_ns);
        let held = u64::from(operations.saturating_sub(flow.operations()));
        counts.held += held;
        base.not_ready += held;
        if std::mem::take(&mut flow.moved) {
            flow.moved_ns = clock_ns;
        }
        if let Some(mut overdue_ns) = flow.deadline_ns(ops, clock_ns, timeout_ns) {
            // While the peer has no receive buffers, nothing needs to move.
            overdue_ns =
                overdue_ns.min(held_due_ns.unwrap_or_else(|| flow.moved_ns.saturating_add(timeout_ns)));
            if clock_ns >= overdue_ns {
                return Verdict::Over(DisconnectReason::TimedOut);
            }
            clock.look_by(clock.when_ns(overdue_ns));
            return Verdict::Keep;
        }
        let yields_ns = second.share().and_then(|share| share.yields_ns);
        if let Some(since_ns) = yields_ns.filter(|_| !flow.waits_for_buffers()) {
            // Others wait for its memory, and it waits for its peer.
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
        if !is_idle {
            return Verdict::Keep;
        }
        match self.suspend(core, base, second, delivers) {
            Ok(true) => Verdict::Idle,
            Ok(false) => Verdict::Keep,
            Err(fault) => Verdict::Fault(fault),
        }
    }

    /// The connection that must end so that others get memory: of the host that holds the most, the one that has stood still
    /// longest. `None` if no connection lacks memory, or none has stood still long enough.
    pub fn next_to_retire(&mut self, shared: &Shared, conns: &Conns) -> Option<Key> {
        let first = self.schedule.waiting().iter().find_map(|key| conns.established(*key));
        let host = first.map(|conn| conn.base.host()).or(self.schedule.short_host())?;
        let many = self.quota.many(host)?;
        let stands_since_ns = |key: &Key| {
            let conn = conns.established(*key).filter(|conn| conn.base.host() == many)?;
            conn.second.get()?.stands_since_ns(&self.flows)
        };
        let all = self.schedule.active().iter().chain(shared.streams.unfinished());
        let standing = all.filter_map(|key| Some((stands_since_ns(key)?, *key)));
        let (since_ns, key) = standing.min_by_key(|(since_ns, _)| *since_ns)?;
        let until_ns = since_ns.saturating_add(STANDSTILL_NS);
        if shared.now_ns < until_ns {
            self.clock.look_by(until_ns);
            return None;
        }
        //= wire.md R-TCP-26
        self.counts.retired_for_space += 1;
        self.schedule.retire(key);
        Some(key)
    }

    /// Prepares for sleep; see [`Transport::arm`](crate::transport::Transport::arm).
    pub fn arm(&mut self, shared: &Shared, core: &mut Core, conns: &mut Conns) -> Armed {
        self.admit_waiting(shared, core, conns);
        if self.schedule.at_once || !self.arm_streams(core, conns) {
            return Armed::Pending;
        }
        self.clock.sleep();
        // Without active connections there is no check, whatever was due on those that are gone.
        let mut deadline_ns = if self.schedule.has_any() { self.clock.due_ns() } else { u64::MAX };
        let waits_for_buffers = |key: &Key| {
            let Some(second) = conns.established(*key).and_then(|conn| conn.second.get()) else {
                return false;
            };
            second.flow(&self.flows).is_some_and(Flow::waits_for_buffers)
                || second.stream.as_ref().is_some_and(|stream| stream.lacks_buffer())
        };
        if self.schedule.active().iter().any(waits_for_buffers) {
            // No report wakes the endpoint when another thread gives a buffer back.
            deadline_ns = deadline_ns.min(shared.now_ns + limits::SPACE_POLL_NS);
        }
        Armed::Sleep { deadline_ns: (deadline_ns != u64::MAX).then_some(deadline_ns) }
    }

    /// Has the kernel report what the active connections wait for. Returns false if something must be done at once.
    fn arm_streams(&mut self, core: &mut Core, conns: &mut Conns) -> bool {
        for key in self.schedule.active() {
            let Some(conn) = conns.established_mut(*key) else { continue };
            let taken = conn.messages_taken();
            let Established { base, second, .. } = conn;
            let Some(second) = second.get_mut() else { continue };
            if second.writer.is_empty() {
                let has_work = |flow: &Flow| {
                    flow.waits_for_buffers() && core.has_buffer_for(base.connection)
                        || flow.is_let_through(&self.flows.ops, taken)
                };
                let is_trimmed = second.share().is_some_and(|share| share.is_trimmed);
                if second.flow(&self.flows).is_some_and(has_work)
                    || is_trimmed && self.quota.fill(base.host(), second)
                {
                    return false;
                }
            }
            let Some(stream) = &second.stream else { continue };
            let wants_space = (!second.writer.is_empty() || stream.has_unsent()) && !stream.lacks_buffer();
            // Input that is not to be read now would end each sleep at once.
            let reads = second.share().is_none_or(|share| share.work() == Work::Everything);
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
        conn.second.get()?.flow(&self.flows)
    }

    /// Whether no operation of this side is under way on a connection.
    #[inline]
    pub fn are_over(&self, conn: &Established) -> bool {
        self.flow(conn).is_none_or(|flow| flow.operations() == 0)
    }

    /// Whether answers to operations of this side may still come.
    #[inline]
    pub fn await_answers(&self, conn: &Established) -> bool {
        conn.second.get().is_some_and(|second| second.stream.is_some()) && !self.are_over(conn)
    }

    /// Whether answers to the peer's operations are still to be sent.
    pub fn owe_answers(&self, conn: &Established) -> bool {
        let Some(second) = conn.second.get() else { return false };
        let Some(stream) = &second.stream else { return false };
        self.flow(conn).is_some_and(Flow::has_answers) || !second.writer.is_empty() || stream.has_unsent()
    }

    /// How long the operations of this side on a connection may take at the least rate of progress.
    pub fn allowance_ns(&self, conn: &Established) -> u64 {
        self.flow(conn).map_or(0, Flow::allowance_ns)
    }

    /// Makes the next poll check all operations, since a send timeout has changed.
    pub fn timeout_changed(&mut self) {
        self.clock.look_soon();
    }

    /// Operations of this side that have not ended, on all connections.
    pub fn operations(&self) -> u32 {
        self.flows.ops.len()
    }

    /// Ends all operations and the second stream of a connection that has ended.
    pub fn end(&mut self, core: &mut Core, conn: &mut Established, status: Status) {
        let Second::Open(mut second) = std::mem::replace(&mut conn.second, Second::None) else { return };
        second.watch(core, None);
        self.quota.charge(conn.base.host(), &mut second, 0);
        if let Some((flow, ops)) = second.flow_mut(&mut self.flows) {
            flow.end(ops, core, status);
            second.suspend(&mut self.flows, Suspended::default());
        }
    }

    /// Notes that the second stream of a connection has ended by itself.
    pub fn stream_ended(&mut self, shared: &Shared, core: &mut Core, conn: &mut Established) {
        //= wire.md R-TCP-24
        let until_ns = shared.now_ns.saturating_add(GRACE_NS);
        let Some(second) = conn.second.get() else { return };
        if !second.is_active() {
            self.schedule.activate(conn.base.listed.key);
        }
        self.clock.look_by(until_ns);
        self.end(core, conn, Status::Disconnected);
        conn.second = Second::Ended { until_ns };
    }

    /// Stops reads from a region that is being deregistered.
    pub fn region_removed(&self, conns: &mut Conns, region: &Region) {
        for key in self.schedule.active() {
            if let Some(second) = conns.established_mut(*key).and_then(|conn| conn.second.get_mut()) {
                second.writer.memory_goes(&region.bytes);
            }
        }
    }

    /// Adds the device counters of remote memory.
    pub fn count(&self, into: &mut Vec<(&'static str, u64)>) {
        self.counts.add_to(into);
    }

    /// Bytes held, including those of connections.
    pub fn bytes(&self, conns: &Conns) -> u64 {
        let of_conns = conns
            .iter()
            .filter_map(|(_, conn)| conn.established()?.second.get())
            .map(|second| second.bytes());
        self.flows.bytes()
            + self.scratch.capacity() as u64
            + self.schedule.bytes()
            + self.quota.bytes()
            + of_conns.sum::<u64>()
    }
}
