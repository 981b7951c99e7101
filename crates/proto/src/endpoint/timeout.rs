//! Time has passed.

use super::Endpoint;
use super::shared::Shared;
use crate::conn::state::Input;
use crate::conn::{Active, ActiveConn, Conn, want};
use crate::limits::{
    CLOSE_TRIES_MAX, DIAL_RETRY_NS_MAX, IDLE_NS, RNR_PROBE_NS_MAX, RNR_PROBE_NS_MIN, SIZE_SUSPECT_COPIES,
};
use crate::reliable::rtt::PROBE_NS_MAX;
use crate::reliable::sends::SendId;
use crate::reliable::tx::{TxRing, mark};
use crate::time::ns_since;
use crate::transfers::deadline::Deadline;
use crate::wire::set_void;
use crate::{
    AcceptFailure, Blocked, ConnState, ConnectFailure, DisconnectReason, Event, Seq, Sink, Status, Time,
};

/// Probe time-outs in vain before the congestion window is made smaller.
const PROBES_BEFORE_SHRINKING: u32 = 3;

impl Endpoint {
    /// Does what is due by `now`. Call it when `next_deadline` has passed; calling it earlier does no harm.
    pub fn handle_timeout(&mut self, now: Time, sink: &mut impl Sink) {
        if self.walk.due <= now {
            self.walk_on(now);
        }
        while let Some(index) = self.shared.timers.pop_due(now) {
            let Some(conn) = self.table.at_mut(index) else { continue };
            match conn.base.state {
                ConnState::Dialing => self.on_dial_due(now, index, sink),
                ConnState::Accepting => self.on_accept_due(now, index, sink),
                ConnState::Closing => self.on_close_due(now, index, sink),
                ConnState::Free | ConnState::Done => {}
                ConnState::Up | ConnState::PeerClosed | ConnState::Lingering | ConnState::Broken => {
                    self.shared.on_due(conn, now, sink);
                }
            }
        }
    }

    fn on_dial_due(&mut self, now: Time, index: u32, sink: &mut impl Sink) {
        let Some(conn) = self.table.at_mut(index) else { return };
        let Some(active) = conn.active.as_deref_mut() else { return };
        let give_up_at = active.dial.as_deref().map_or(Time::FAR, |dial| dial.give_up_at);
        if give_up_at <= now {
            return self.dial_failed(index, ConnectFailure::TimedOut, sink);
        }
        //= wire.md R-HS-9
        // Nobody there has answered yet: the other address is asked next.
        if let Some(dial) = active.dial.as_deref_mut().filter(|dial| dial.cookie.is_none())
            && let Some(other) = dial.other.as_mut()
        {
            std::mem::swap(other, &mut conn.base.peer);
        }
        active.next_step(now, want::DIAL, DIAL_RETRY_NS_MAX);
        active.step_due = active.step_due.min(give_up_at);
        self.shared.enqueue(active);
        self.shared.arm(active);
    }

    fn on_accept_due(&mut self, now: Time, index: u32, sink: &mut impl Sink) {
        let Some(conn) = self.table.at_mut(index) else { return };
        let Some(active) = conn.active.as_deref_mut() else { return };
        if active.send_due <= now {
            conn.base.enter(Input::Failed);
            return self.finish_with(index, Some(AcceptFailure::TimedOut), sink);
        }
        active.next_step(now, want::ACCEPT, DIAL_RETRY_NS_MAX);
        self.shared.enqueue(active);
        self.shared.arm(active);
    }

    fn on_close_due(&mut self, now: Time, index: u32, sink: &mut impl Sink) {
        let Some(conn) = self.table.at_mut(index) else { return };
        let Some(active) = conn.active.as_deref_mut() else { return };
        active.next_step(now, want::CLOSE, PROBE_NS_MAX);
        //= wire.md R-CLOSE-4
        if active.steps > CLOSE_TRIES_MAX {
            conn.base.enter(Input::Over);
            return self.finish(index, sink);
        }
        self.shared.enqueue(active);
        self.shared.arm(active);
    }
}

impl Shared {
    fn on_due(&mut self, conn: &mut Conn, now: Time, sink: &mut impl Sink) {
        let Some(mut awake) = conn.awake() else { return };
        if self.on_active_due(&mut awake, now, sink) {
            self.sleep(conn);
        }
    }

    /// Does what is due. True if nothing more is going on: the connection may go to sleep.
    fn on_active_due(&mut self, conn: &mut ActiveConn<'_>, now: Time, sink: &mut impl Sink) -> bool {
        let (key, token) = (conn.key(), conn.base.token);
        let active = &mut *conn.active;
        if active.ack_pending != 0 && active.ack_due <= now {
            if let Some(bond) = active.bond.as_deref_mut() {
                bond.ack_all_pending();
            }
            self.ack_now(active);
        }
        if active.rack_due <= now {
            active.find_losses(now);
            for which in active.ways() {
                active.path_mut(which).set_probe(now);
            }
            self.enqueue(active);
        }
        for which in active.ways() {
            if active.path(which).probe_due <= now {
                active.probe(which, now, self);
                self.enqueue(active);
            }
        }
        if active.bond.is_some() {
            self.ask_due(active, now);
        }
        if active.blocked == Some(Blocked::Pacing) && active.pace_due() <= now {
            active.blocked = None;
            self.enqueue(active);
        }
        if let Some(rma) = active.rma.as_deref_mut().filter(|rma| rma.retry_due <= now) {
            rma.retry_due = Time::FAR;
            self.enqueue(active);
        }
        if active.rnr && active.step_due <= now {
            //= wire.md R-RNR-5
            // Several answers must fit into the send timeout, or a receiver that is not ready would be taken for dead.
            let probe_ns_max = (self.send_timeout_ns(conn.base.send_timeout_ms) / 8)
                .clamp(RNR_PROBE_NS_MIN, RNR_PROBE_NS_MAX);
            active.next_step(now, want::PING, probe_ns_max);
            self.enqueue(active);
        }
        if active.keepalive_due <= now && active.asks != 0 {
            self.on_ask_due(conn, now, sink);
        } else if active.keepalive_due <= now {
            if active.keepalive(now) {
                sink.event(Event::KeepaliveTimedOut { conn: key, token });
            } else if active.wants & want::PING != 0 {
                self.enqueue(active);
            }
        }
        let active = &mut *conn.active;
        if active.send_due <= now {
            self.on_send_due(conn, now, sink);
        }
        if conn.base.state == ConnState::PeerClosed {
            self.on_last_words_due(conn, now, sink);
        }
        if conn.active.unended.due <= now {
            self.on_unended_due(conn, now, sink);
        }
        let active = &mut *conn.active;
        let is_idle = active.is_quiet() && now.since(active.used_at) >= IDLE_NS;
        if !is_idle {
            self.arm_after(active, now.plus(1_000));
        }
        is_idle
    }

    /// A peer that has begun to close may have died before it was done, or have nothing more to say.
    //= wire.md R-CLOSE-6
    fn on_last_words_due(&mut self, conn: &mut ActiveConn<'_>, now: Time, sink: &mut impl Sink) {
        let timeout_ns = self.send_timeout_ns(conn.base.send_timeout_ms);
        let active = &mut *conn.active;
        if active.step_due > now {
            return;
        }
        // While this side's program takes nothing, the peer can't go on.
        if active.rx.end != active.last_words.0 || active.holding || active.refusing {
            active.last_words = (active.rx.end, now);
        }
        let patience = active.last_words.1.plus(timeout_ns.saturating_mul(2));
        active.step_due = active.heard_at.plus(timeout_ns).min(patience);
        if active.step_due <= now {
            self.counters.connections_broken += 1;
            self.lose(conn, (Status::Disconnected, DisconnectReason::TimedOut), now, sink);
        }
    }

    /// A send or an operation may have taken too long.
    fn on_send_due(&mut self, conn: &mut ActiveConn<'_>, now: Time, sink: &mut impl Sink) {
        let timeout_ns = self.send_timeout_ns(conn.base.send_timeout_ms);
        let active = &mut *conn.active;
        let deadline = Deadline::new(timeout_ns, (!active.rnr).then_some(active.rnr_end), now);
        if active.tx.is_empty() {
            active.send_due = Time::FAR;
        } else {
            self.on_bundles_due(conn, deadline, now, sink);
        }
        let due = self.end_late(conn, deadline, now, sink);
        let active = &mut *conn.active;
        active.send_due = active.send_due.min(due);
        self.settle_operations(conn);
    }

    fn on_bundles_due(
        &mut self,
        conn: &mut ActiveConn<'_>,
        deadline: Deadline,
        now: Time,
        sink: &mut impl Sink,
    ) {
        let active = &mut *conn.active;
        let (timeout_ns, silent_ns) = (deadline.timeout_ns, now.since(active.heard_at));
        let lingers = conn.base.state == ConnState::Lingering;
        // Records have no time of their own: an operation that takes too long ends, and they stay. Those that are refused
        // only show whether the peer lives.
        let waited_ns = match active.oldest_ns(self, now) {
            (Some(send_ns), record_ns) => deadline.counted_ns(send_ns).max(deadline.refused_ns(record_ns)),
            (None, Some(record_ns)) if lingers => deadline.counted_ns(record_ns),
            (None, Some(record_ns)) => deadline.refused_ns(Some(record_ns)),
            // Only what was given up is left: a disconnect does not wait for that.
            (None, None) if lingers && active.operations() == 0 => timeout_ns,
            (None, None) if lingers => 0,
            (None, None) => silent_ns,
        };
        if waited_ns < timeout_ns {
            active.send_due = now.plus(timeout_ns - waited_ns);
        } else if active.rnr && silent_ns < timeout_ns {
            //= wire.md R-RNR-6
            self.give_up_refused(conn, deadline, now, sink);
        } else {
            self.give_up(conn, now, sink);
        }
    }

    /// The peer has not acknowledged in time what it must: all is over that it was to take.
    fn give_up(&mut self, conn: &mut ActiveConn<'_>, now: Time, sink: &mut impl Sink) {
        if conn.base.state == ConnState::Lingering {
            self.fail_sends(conn, Status::TimedOut, sink);
            conn.base.enter(Input::Delivered);
            self.start_closing(conn);
        } else {
            //= wire.md R-LOSS-5
            self.counters.connections_broken += 1;
            self.lose(conn, (Status::TimedOut, DisconnectReason::TimedOut), now, sink);
        }
    }

    /// The receiver refused for too long: sends that are old enough end, and are taken out of their bundles, so
    /// that they can never be delivered after their sender was told that they were not.
    fn give_up_refused(
        &mut self,
        conn: &mut ActiveConn<'_>,
        deadline: Deadline,
        now: Time,
        sink: &mut impl Sink,
    ) {
        let (key, token, epoch) = (conn.key(), conn.base.token, conn.base.tx_epoch);
        let timeout_ns = deadline.timeout_ns;
        let active = &mut *conn.active;
        let Some(mut ring) = active.tx_ring.take() else { return };
        let mut seq = active.tx.unacked;
        let (mut left, mut far_past) = (false, false);
        while seq != active.tx.next {
            let was_sent = seq.precedes(active.tx.unsent);
            let slot = ring.at(seq);
            seq = seq.next();
            if slot.has(mark::ACKED) && !left {
                // Stored behind a gap that is being given up: it will be delivered, and nothing before it is open.
                let first = std::mem::replace(&mut slot.first, SendId::NONE);
                active.tx.sends -= self.complete(first, Status::Success, key, token, sink);
                continue;
            }
            // What was sent in the epoch in which the receiver takes data may have been taken.
            if slot.has(mark::ACKED) || (was_sent && slot.epoch == epoch) {
                if let Some(queued) = self.sends.queued_ticks(slot.first) {
                    left = true;
                    far_past |= deadline.is_far_past(ns_since(queued, now.0));
                }
                continue;
            }
            while let Some(queued) = self.sends.queued_ticks(slot.first)
                && ns_since(queued, now.0) >= timeout_ns
            {
                let Some(done) = self.sends.take(slot.first) else { break };
                active.tx.sends -= 1;
                slot.first = done.next;
                self.report(done.context, done.silent, Status::ReceiverNotReady, key, token, sink);
            }
            if slot.first == SendId::NONE {
                slot.last = SendId::NONE;
            }
            left |= slot.first != SendId::NONE;
            if !slot.buf.is_some() {
                continue;
            }
            let still = self.sends.count(slot.first);
            set_void(&mut self.pool.get_mut(slot.buf)[..usize::from(slot.body_bytes)], still);
            let slot = *slot;
            self.give_up_notifications(active, (key, token), &slot, timeout_ns, now, sink);
        }
        active.tx_ring = Some(ring);
        if far_past {
            // A receiver that takes nothing raises its epoch (R-RNR-1), and one that does not takes what was sent in it.
            return self.give_up(conn, now, sink);
        }
        left |= active.operations() != 0;
        let (send_ns, record_ns) = active.oldest_ns(self, now);
        let oldest_ns = send_ns.max(record_ns).unwrap_or(0);
        active.send_due =
            Time(now.0.saturating_sub(oldest_ns)).plus(timeout_ns).max(now.plus(RNR_PROBE_NS_MAX));
        if !left && conn.base.state == ConnState::Lingering {
            self.fail_sends(conn, Status::ReceiverNotReady, sink);
            conn.base.enter(Input::Delivered);
            self.start_closing(conn);
        }
    }
}

impl Active {
    /// The next try of whatever the state calls for; each waits twice as long as the last.
    fn next_step(&mut self, now: Time, want: u8, ns_max: u64) {
        self.steps = self.steps.saturating_add(1);
        self.wants |= want;
        self.step_ns = (self.step_ns * 2).min(ns_max);
        self.step_due = now.plus(self.step_ns);
    }

    /// How long ago the oldest send that has not completed was queued, and the oldest record of remote memory access before
    /// it was made that is not acknowledged.
    fn oldest_ns(&self, shared: &Shared, now: Time) -> (Option<u64>, Option<u64>) {
        let Some(ring) = self.tx_ring.as_ref() else { return (None, None) };
        let mut record_ns = None;
        let mut seq = self.tx.unacked;
        while seq != self.tx.next {
            let slot = ring.get(seq);
            if let Some(queued) = shared.sends.queued_ticks(slot.first) {
                return (Some(ns_since(queued, now.0)), record_ns);
            }
            if record_ns.is_none() && !slot.has(mark::ACKED) {
                record_ns = self.rma_age_ns(seq, slot, now);
            }
            seq = seq.next();
        }
        (None, record_ns)
    }

    /// Nothing that went this way was acknowledged for longer than it should take: send the oldest and the newest of it
    /// again. What else is lost will show when they are acknowledged.
    //= wire.md R-LOSS-3
    fn probe(&mut self, which: u8, now: Time, shared: &mut Shared) {
        shared.counters.probe_timeouts += 1;
        let path = self.path_mut(which);
        path.probes = path.probes.saturating_add(1);
        if path.probes == PROBES_BEFORE_SHRINKING {
            path.window.on_silence(now);
        }
        if path.probes + 1 >= u32::from(SIZE_SUSPECT_COPIES) && self.size.is_doubtful() {
            // Something small: if that is answered and what is sent beside it is not, its size may be to blame.
            self.wants |= want::PING;
        }
        self.doubt(which, now);
        let Some(mut ring) = self.tx_ring.take() else {
            self.path_mut(which).probe_due = Time::FAR;
            return;
        };
        let newest = self.newest_on(which, &ring);
        let mut oldest = self.tx.unacked;
        while oldest != newest && !ring.get(oldest).is_under_way(which) {
            oldest = oldest.next();
        }
        self.resend_one(which, &mut ring, oldest);
        self.resend_one(which, &mut ring, newest);
        self.tx_ring = Some(ring);
        let path = self.path_mut(which);
        path.probe_credit = 2;
        path.pace_due = path.pace_due.min(now);
        path.probe_due = now.plus(path.rtt.probe_ns(path.probes));
    }

    fn resend_one(&mut self, which: u8, ring: &mut TxRing, seq: Seq) {
        let slot = ring.at(seq);
        if seq.precedes(self.tx.unsent) && slot.is_under_way(which) {
            self.take_back(slot);
        }
    }

    /// Asks a silent peer whether it lives. True: it has been silent for too long; keepalive is then off.
    //= wire.md R-KEEP-1
    fn keepalive(&mut self, now: Time) -> bool {
        let silent_ns = now.since(self.heard_at);
        if silent_ns >= self.keepalive_ns && now.since(self.keepalive_due) >= self.keepalive_ns / 8 {
            // We come late, so the peer was not asked in time: it is asked now, and has time to answer.
            self.wants |= want::PING;
            self.keepalive_due = now.plus((self.keepalive_ns / 2).max(1));
            return false;
        }
        if silent_ns >= self.keepalive_ns {
            (self.keepalive_ns, self.keepalive_due) = (0, Time::FAR);
            return true;
        }
        let half_ns = self.keepalive_ns / 2;
        if silent_ns >= half_ns {
            self.wants |= want::PING;
            let again = now.plus((self.keepalive_ns / 8).max(1));
            self.keepalive_due = again.min(self.heard_at.plus(self.keepalive_ns));
        } else {
            self.keepalive_due = self.heard_at.plus(half_ns);
        }
        false
    }
}
