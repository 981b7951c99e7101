//! Looking after connections with remote operations: time-outs, those that have become idle, and sleep.

use super::super::Tcp;
use super::super::conn::State;
use super::super::conn::record_ns_max;
use super::super::counts::Fault;
use super::Bulks;
use crate::connection::DisconnectReason;
use crate::engine::core::Core;
use crate::limits;
use crate::transport::Armed;
use crate::transport::ordered_rma::allowance_ns;
use cci_memory::slab::Key;
use cci_sys::event::Interest;

/// How often each is looked after.
const LOOK_NS: u64 = 1_000_000;
/// One on which nothing moves for so long gives back what it borrowed, and is polled no more.
const IDLE_NS: u64 = 1_000_000;
/// A program that has not polled for so long was busy with something else.
const ABSENCE_NS: u64 = 100_000_000;

enum Looked {
    Keep,
    Idle,
    Over(DisconnectReason),
    Fault(Fault),
}

impl Tcp {
    /// Time-outs, and connections that have become idle.
    pub(super) fn care_for_bulk(&mut self, core: &mut Core) {
        let now_ns = self.shared.now_ns;
        if now_ns < self.bulks.due_ns && now_ns < self.bulks.looked_ns.saturating_add(LOOK_NS) {
            return;
        }
        let since_ns = now_ns.saturating_sub(self.bulks.looked_ns);
        if since_ns > ABSENCE_NS && !self.bulks.slept {
            // What the peers did meanwhile was not looked at, and is not judged. The clock goes on a little all the same: a program that
            // polls seldom must not stop it for ever.
            self.bulks.absent_ns += since_ns - ABSENCE_NS;
        }
        (self.bulks.looked_ns, self.bulks.due_ns, self.bulks.slept) = (now_ns, u64::MAX, false);
        let mut at = 0;
        while let Some(&key) = self.bulks.active.get(at) {
            match self.look_at_bulk(core, key) {
                Looked::Keep => at += 1,
                Looked::Idle => {
                    self.bulks.active.swap_remove(at);
                }
                Looked::Over(reason) => {
                    self.bulks.active.swap_remove(at);
                    self.end(core, key, reason);
                }
                Looked::Fault(fault) => {
                    self.bulks.active.swap_remove(at);
                    self.fault(core, key, fault);
                }
            }
        }
        self.make_room_in_line(core);
    }

    fn look_at_bulk(&mut self, core: &mut Core, key: Key) -> Looked {
        let now_ns = self.shared.now_ns;
        let Some(conn) = self.conns.get_mut(key) else { return Looked::Idle };
        let Some(bulk) = conn.bulk.as_mut() else { return Looked::Idle };
        if bulk.ended_until_ns > 0 {
            return self.look_at_ended(key);
        }
        let (clock_ns, timeout_ns) = (self.bulks.clock_ns(now_ns), conn.send_timeout_ns);
        let Bulks { flows, due_ns, counts, absent_ns, .. } = &mut self.bulks;
        if flows.get(bulk.flow).is_none() {
            // Its turn comes, and its time.
            let is_idle = now_ns >= bulk.moved_ns.saturating_add(IDLE_NS);
            let is_parked = is_idle && self.park(core, key).is_ok_and(|is_parked| is_parked);
            return if is_parked { Looked::Idle } else { Looked::Keep };
        }
        let Some((flow, ops)) = flows.get_mut(bulk.flow) else { return Looked::Keep };
        let operations = flow.operations();
        let held_due_ns = flow.end_held(ops, core, clock_ns, timeout_ns);
        if flow.operations() < operations {
            counts.held += u64::from(operations - flow.operations());
            conn.not_ready += u64::from(operations - flow.operations());
        }
        if std::mem::take(&mut flow.moved) {
            flow.moved_ns = clock_ns;
        }
        if let Some(mut overdue_ns) = flow.deadline_ns(ops, clock_ns, timeout_ns) {
            // While the peer has no buffers, nothing needs to move.
            overdue_ns =
                overdue_ns.min(held_due_ns.unwrap_or_else(|| flow.moved_ns.saturating_add(timeout_ns)));
            if clock_ns >= overdue_ns {
                return Looked::Over(DisconnectReason::TimedOut);
            }
            *due_ns = overdue_ns.saturating_add(*absent_ns).min(*due_ns);
            return Looked::Keep;
        }
        if let Some(since_ns) = bulk.yields_ns.filter(|_| !flow.waits_for_buffers()) {
            // Others wait for what it has, and it waits for its peer.
            let limit_ns = record_ns_max(timeout_ns).saturating_add(allowance_ns(flow.unsent_bytes()));
            let until_ns = since_ns.saturating_add(limit_ns);
            if now_ns >= until_ns {
                return Looked::Over(DisconnectReason::TimedOut);
            }
            *due_ns = until_ns.min(*due_ns);
        }
        if flow.is_owed_a_message(clock_ns, record_ns_max(timeout_ns)) {
            return Looked::Fault(Fault::Unfinished);
        }
        if now_ns < bulk.moved_ns.saturating_add(IDLE_NS) {
            return Looked::Keep;
        }
        match self.park(core, key) {
            Ok(true) => Looked::Idle,
            Ok(false) => Looked::Keep,
            Err(fault) => Looked::Fault(fault),
        }
    }

    /// The second stream of this one has ended: either the peer's program has disconnected, and the connection ends in an
    /// orderly way, or it ends now.
    fn look_at_ended(&mut self, key: Key) -> Looked {
        let Some(conn) = self.conns.get_mut(key) else { return Looked::Idle };
        let Some(bulk) = conn.bulk.as_mut() else { return Looked::Idle };
        if conn.state != State::Open {
            bulk.is_active = false;
            return Looked::Idle;
        }
        if self.shared.now_ns >= bulk.ended_until_ns {
            return Looked::Over(DisconnectReason::Died);
        }
        self.bulks.due_ns = self.bulks.due_ns.min(bulk.ended_until_ns);
        Looked::Keep
    }

    /// Prepares for sleep.
    pub(in crate::transport::tcp) fn bulk_arm(&mut self, core: &mut Core) -> Armed {
        self.admit_waiting(core);
        if self.bulks.at_once || !self.arm_streams(core) {
            return Armed::Pending;
        }
        self.bulks.slept = true;
        let mut deadline_ns = self.bulks.due_ns;
        let holds = |key: &Key| {
            let bulk = self.conns.get(*key).and_then(|conn| conn.bulk.as_ref());
            bulk.and_then(|bulk| self.bulks.flows.get(bulk.flow)).is_some_and(|flow| flow.waits_for_buffers())
        };
        let lacks = |key: &Key| {
            let bulk = self.conns.get(*key).and_then(|conn| conn.bulk.as_ref());
            bulk.and_then(|bulk| bulk.stream.as_ref()).is_some_and(|stream| stream.lacks_buffer())
        };
        if self.bulks.active.iter().any(|key| holds(key) || lacks(key)) {
            // A buffer that another thread gives back wakes nobody.
            deadline_ns = deadline_ns.min(self.shared.now_ns + limits::ROOM_POLL_NS);
        }
        Armed::Sleep { deadline_ns: (deadline_ns != u64::MAX).then_some(deadline_ns) }
    }

    /// Has the kernel tell of what is waited for. False: something is to be done at once.
    fn arm_streams(&mut self, core: &mut Core) -> bool {
        for key in &self.bulks.active {
            let Some(conn) = self.conns.get_mut(*key) else { continue };
            let taken = conn.messages_sent.saturating_sub(u64::from(conn.out.sends()));
            let host = conn.host();
            let Some(bulk) = conn.bulk.as_mut() else { continue };
            if let Some(flow) = self.bulks.flows.get(bulk.flow)
                && (flow.waits_for_buffers() && core.has_buffer_for(conn.connection)
                    || flow.is_let_through(&self.bulks.flows.ops, taken))
                && bulk.writer.is_empty()
            {
                return false;
            }
            if bulk.is_slim && bulk.writer.is_empty() && self.bulks.places.fill(host, bulk) {
                return false;
            }
            let Some(stream) = &bulk.stream else { continue };
            let wants_room = (!bulk.writer.is_empty() || stream.has_unsent()) && !stream.lacks_buffer();
            // What is not read now would end each sleep at once.
            let reads = bulk.yields_ns.is_none() && !bulk.is_slim;
            bulk.watch(
                core,
                Some(match (reads, wants_room) {
                    (true, true) => Interest::Both,
                    (true, false) => Interest::Read,
                    (false, true) => Interest::Write,
                    (false, false) => Interest::HangUp,
                }),
            );
        }
        true
    }
}
