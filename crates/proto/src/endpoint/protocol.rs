//! What needs more than one part of the protocol at a time: an active connection's turn to send, what is due, and how it
//! ends.

use super::control::{send_acks, send_wanted};
use super::receiving::{Receiving, deliver_held, drop_held, forget_gaps};
use super::sending::{Remaining, Sending};
use super::shared::Shared;
use super::transfers::Transfers;
use super::transmitter::{Transmitter, Turn};
use crate::conn::active::Write;
use crate::conn::state::Input;
use crate::conn::unended::Unended;
use crate::conn::{ActiveConn, Conn, want};
use crate::limits::{
    IDLE_ASK_NS_MAX, IDLE_ASK_NS_MIN, IDLE_ASKS_MIN, IDLE_NS, RNR_PROBE_NS_MAX, RNR_PROBE_NS_MIN,
};
use crate::operations::deadline::Deadline;
use crate::reliable::sends::Sends;
use crate::{Blocked, Config, ConfigError, ConnState, DisconnectReason, Event, Sink, Status, Time, Transmit};

/// All parts of the protocol that work on active connections.
pub(crate) struct Protocol {
    pub shared: Shared,
    pub sending: Sending,
    pub transmitter: Transmitter,
    pub receiving: Receiving,
    pub transfers: Transfers,
}

impl Protocol {
    pub fn new(config: Config) -> Result<Protocol, ConfigError> {
        let no_memory = ConfigError::OutOfMemory { bytes: u64::from(config.datagram_bytes_max) };
        let sends_bytes = u64::from(config.sends_max) * Sends::COST_BYTES;
        let sends_max = config.sends_max;
        let transfers = Transfers::new(config.operations_max);
        let transmitter = Transmitter::new(config.datagram_bytes_max.into()).ok_or(no_memory)?;
        let (shared, parts) = Shared::new(config)?;
        let sends = Sends::new(sends_max).ok_or(ConfigError::OutOfMemory { bytes: sends_bytes })?;
        let (sending, receiving) = (Sending { sends }, Receiving::new(parts));
        Ok(Protocol { shared, sending, transmitter, receiving, transfers })
    }

    /// Takes the active state back, leaving what an idle connection remembers.
    fn sleep(&mut self, conn: &mut Conn) {
        if let Some(active) = conn.active.as_deref_mut() {
            self.transfers.give_back(active.rma.take());
        }
        self.shared.sleep(conn);
    }

    #[inline]
    pub fn take_turn(
        &mut self,
        conn: &mut ActiveConn<'_>,
        now: Time,
        out: &mut impl Transmit,
        sink: &mut impl Sink,
    ) -> Turn {
        let wants = conn.active.wants;
        if wants & !want::ACK != 0 && !send_wanted(&mut self.shared, conn, wants, now, out) {
            return Turn::Full;
        }
        let turn = if conn.base.state == ConnState::Up || conn.base.state == ConnState::Lingering {
            self.transmitter.send_data(
                &mut self.shared,
                &mut self.sending,
                &mut self.transfers,
                conn,
                now,
                out,
                sink,
            )
        } else {
            Turn::Done
        };
        self.settle_operations(conn);
        let wants_ack = conn.active.wants & want::ACK != 0;
        let due = turn == Turn::Done && wants_ack && conn.base.is_established();
        if due && !send_acks(&mut self.shared, conn, now, out) {
            return Turn::Full;
        }
        turn
    }

    /// Operations may be over now. If the program has disconnected, the peer is notified when all are.
    //= wire.md R-RMA-10
    #[inline]
    pub fn settle_operations(&mut self, conn: &mut ActiveConn<'_>) {
        let active = &mut *conn.active;
        let Some(rma) = active.rma.as_deref_mut().filter(|rma| rma.ops == 0) else { return };
        if active.tx.is_empty() {
            active.send_due = Time::FAR;
        }
        if conn.base.state != ConnState::Lingering {
            return;
        }
        rma.drop_answers();
        drop_held(&mut self.shared, active);
        if active.tx.is_empty() {
            conn.base.enter(Input::Delivered);
            self.shared.start_closing(conn);
        }
    }

    /// Takes everything back that the connection borrowed.
    pub fn free(&mut self, conn: &mut Conn) {
        if let Some(active) = conn.active.as_deref_mut() {
            assert!(active.tx.is_empty(), "every send has completed");
            drop_held(&mut self.shared, active);
            (active.holding, active.queued, active.listed) = (false, false, false);
            self.sleep(conn);
        }
    }

    /// The peer is dead, or silent for too long: every send ends with this status, and the program gets an event with the reason.
    pub fn lose(
        &mut self,
        conn: &mut ActiveConn<'_>,
        (status, reason): (Status, DisconnectReason),
        now: Time,
        sink: &mut impl Sink,
    ) {
        let was_up = conn.base.state == ConnState::Up;
        let unreported = was_up || conn.base.state == ConnState::PeerClosed;
        let ordered = conn.base.is_ordered();
        self.fail_sends(conn, status, sink);
        conn.base.enter(Input::Lost);
        let active = &mut *conn.active;
        active.wants = 0;
        active.refusing = false;
        self.shared.unbond(active);
        (active.ack_pending, active.keepalive_ns) = (0, 0);
        (active.keepalive_due, active.step_due, active.asks) = (Time::FAR, Time::FAR, 0);
        forget_gaps(active, &mut self.shared, ordered);
        active.used_at = now;
        self.shared.arm(active);
        // Messages that are held were acknowledged: they come first, then the event.
        if unreported && conn.active.rx.held != 0 {
            conn.active.unreported = Some(reason);
            if !conn.active.holding {
                deliver_held(&mut self.shared, conn, sink); // nothing else would come to do it
            }
        } else if unreported {
            sink.event(Event::Disconnected { conn: conn.key(), token: conn.base.token, reason });
        }
    }

    /// The peer is closing: it still sends what it has, and takes no more.
    //= wire.md R-CLOSE-2
    pub fn on_peer_closing(&mut self, conn: &mut ActiveConn<'_>, sink: &mut impl Sink) {
        match conn.base.state {
            ConnState::Up => {
                self.fail_sends(conn, Status::Disconnected, sink);
                // The program hears of it when the last message has come: it may answer by disconnecting, which would
                // stop what is still under way.
                conn.base.enter(Input::PeerCloses);
                let timeout_ns = self.shared.send_timeout_ns(conn.active.send_timeout_ms);
                let active = &mut *conn.active;
                let heard_at = active.heard_at;
                active.step_due = heard_at.plus(timeout_ns);
                active.closing_progress = (active.rx.end, heard_at);
                self.shared.watch(conn, heard_at);
            }
            ConnState::Lingering => {
                self.fail_sends(conn, Status::Disconnected, sink);
                conn.base.enter(Input::PeerCloses);
                self.shared.start_closing(conn);
            }
            _ => {}
        }
    }

    /// Ends all sends and operations of a connection with `status`; nothing of them is sent any more.
    pub fn fail_sends(&mut self, conn: &mut ActiveConn<'_>, status: Status, sink: &mut impl Sink) {
        self.sending.empty_window(&mut self.shared, &mut self.transfers, conn, status, sink);
        self.transfers.fail_operations(&mut self.shared, conn, status, sink);
        let state = conn.base.state;
        let active = &mut *conn.active;
        active.stop_probing();
        active.send_due = Time::FAR;
        active.rnr = false;
        if matches!(state, ConnState::Up | ConnState::Lingering) {
            active.step_due = Time::FAR;
        }
    }

    /// Asks a peer of which nothing was heard since the last look. Where something is under way, its own time says when the peer is
    /// given up; where the program has keepalive on, the peer is asked anyway.
    pub fn look_at_idle(&mut self, conn: &mut Conn, index: u32, now: Time) {
        let asks = conn.active.as_deref().is_some_and(|active| active.asks != 0);
        if conn.base.state != ConnState::Up || asks || conn.base.idle_window.take_heard() {
            return;
        }
        // Operations that wait for an answer end one by one, and the connection does not end with them: their peer is asked.
        let is_busy =
            conn.active.as_deref().is_some_and(|active| active.keepalive_ns != 0 || !active.tx.is_empty());
        // Without memory to ask with, its turn comes again.
        if !is_busy && let Some(mut conn) = self.shared.wake(conn, index, now) {
            self.ask_idle(&mut conn, now);
        }
    }

    fn ask_idle(&mut self, conn: &mut ActiveConn<'_>, now: Time) {
        let active = &mut *conn.active;
        let wait_ns =
            IDLE_ASK_NS_MIN.checked_shl(active.asks.into()).unwrap_or(u64::MAX).min(IDLE_ASK_NS_MAX);
        active.asks = active.asks.saturating_add(1).min(IDLE_ASKS_MIN);
        active.wants |= want::PING;
        active.keepalive_due = now.plus(wait_ns);
        self.shared.counters.idle_asks += 1;
        self.shared.enqueue(active);
        self.shared.arm(active);
    }

    /// A question has waited for its answer. Only those that were asked count, so that nobody is given up because this side's
    /// program was away.
    //= wire.md R-IDLE-2
    pub fn on_ask_due(&mut self, conn: &mut ActiveConn<'_>, now: Time, sink: &mut impl Sink) {
        let timeout_ns = self.shared.send_timeout_ns(conn.active.send_timeout_ms);
        let (lives, is_up) = (conn.base.idle_window.is_heard(), conn.base.state == ConnState::Up);
        let active = &mut *conn.active;
        active.keepalive_due = Time::FAR;
        if lives || !is_up {
            active.asks = 0;
        } else if active.asks >= IDLE_ASKS_MIN && now.since(active.heard_at) >= timeout_ns {
            active.asks = 0;
            self.shared.counters.connections_broken += 1;
            self.lose(conn, (Status::TimedOut, DisconnectReason::TimedOut), now, sink);
        } else {
            self.ask_idle(conn, now);
        }
    }

    /// Breaks the connection if something is still as it was at the last look. So whatever a peer must end has the longer of
    /// the send timeout and 30 s, and twice that at most.
    //= wire.md R-DUE-4
    pub fn on_unended_due(&mut self, conn: &mut ActiveConn<'_>, now: Time, sink: &mut impl Sink) {
        let look_ns = self.shared.unended_ns(conn.active);
        let (state, rx_epoch) = (conn.base.state, conn.base.rx_epoch);
        let active = &mut *conn.active;
        let before = std::mem::replace(&mut active.unended, Unended::NONE);
        if !matches!(state, ConnState::Up | ConnState::PeerClosed) {
            return; // ends by itself
        }
        // While we refuse what is missing, it can't come.
        let missing = active.rx.end != active.rx.next && !active.refusing;
        let missing = missing.then_some((active.rx.next, rx_epoch));
        // While our program takes nothing, the peer can't go on either.
        let closing = state == ConnState::PeerClosed;
        let closes = closing && !active.refusing && !active.holding;
        let dead = active.rnr && now.since(active.heard_at) >= look_ns;
        let write = active.unended_write(look_ns);
        let late = (missing.is_some() && missing == before.missing) || (closes && before.closing);
        if late || dead || write == Write::Late {
            self.shared.counters.connections_broken += 1;
            let status = if closing { Status::Disconnected } else { Status::TimedOut };
            let reason = if dead { DisconnectReason::TimedOut } else { DisconnectReason::Refused };
            return self.lose(conn, (status, reason), now, sink);
        }
        let due = if closing || active.rnr || active.owes() { now.plus(look_ns) } else { Time::FAR };
        active.unended = Unended { due, missing, closing: closes };
    }

    pub fn on_due(&mut self, conn: &mut Conn, now: Time, sink: &mut impl Sink) {
        let Some(mut awake) = conn.awake() else { return };
        if self.on_active_due(&mut awake, now, sink) {
            self.sleep(conn);
        }
    }

    /// Does what is due. True if nothing more is going on: the connection may go to sleep.
    fn on_active_due(&mut self, conn: &mut ActiveConn<'_>, now: Time, sink: &mut impl Sink) -> bool {
        let (key, token) = (conn.key(), conn.base.token);
        let active = &mut *conn.active;
        self.shared.ack_if_due(active, now);
        if active.rack_due <= now {
            active.find_losses(now);
            for which in active.paths.all() {
                active.paths.get_mut(which).set_probe(now);
            }
            self.shared.enqueue(active);
        }
        for which in active.paths.all() {
            if active.paths.get(which).probe_due <= now {
                active.probe(which, now, &mut self.shared.counters);
                self.shared.enqueue(active);
            }
        }
        if active.paths.bond.is_some() {
            self.shared.ask_due(active, now);
        }
        if active.blocked == Some(Blocked::Pacing) && active.paths.pace_due() <= now {
            active.blocked = None;
            self.shared.enqueue(active);
        }
        if let Some(rma) = active.rma.as_deref_mut().filter(|rma| rma.retry_due <= now) {
            rma.retry_due = Time::FAR;
            self.shared.enqueue(active);
        }
        if active.rnr && active.step_due <= now {
            //= wire.md R-RNR-5
            // Several answers must fit into the send timeout, or a receiver that is not ready would be taken for dead.
            let probe_ns_max = (self.shared.send_timeout_ns(active.send_timeout_ms) / 8)
                .clamp(RNR_PROBE_NS_MIN, RNR_PROBE_NS_MAX);
            active.next_step(now, want::PING, probe_ns_max);
            self.shared.enqueue(active);
        }
        if active.keepalive_due <= now && active.asks != 0 {
            self.on_ask_due(conn, now, sink);
        } else if active.keepalive_due <= now {
            if active.keepalive(now) {
                sink.event(Event::KeepaliveTimedOut { conn: key, token });
            } else if active.wants & want::PING != 0 {
                self.shared.enqueue(active);
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
            self.shared.arm_after(active, now.plus(1_000));
        }
        is_idle
    }

    /// A peer that has begun to close may have died before it was done, or have nothing more to send.
    //= wire.md R-CLOSE-6
    fn on_last_words_due(&mut self, conn: &mut ActiveConn<'_>, now: Time, sink: &mut impl Sink) {
        let timeout_ns = self.shared.send_timeout_ns(conn.active.send_timeout_ms);
        let active = &mut *conn.active;
        if active.step_due > now {
            return;
        }
        // While this side's program takes nothing, the peer can't go on.
        if active.rx.end != active.closing_progress.0 || active.holding || active.refusing {
            active.closing_progress = (active.rx.end, now);
        }
        let patience = active.closing_progress.1.plus(timeout_ns.saturating_mul(2));
        active.step_due = active.heard_at.plus(timeout_ns).min(patience);
        if active.step_due <= now {
            self.shared.counters.connections_broken += 1;
            self.lose(conn, (Status::Disconnected, DisconnectReason::TimedOut), now, sink);
        }
    }

    /// A send or an operation may have taken too long.
    fn on_send_due(&mut self, conn: &mut ActiveConn<'_>, now: Time, sink: &mut impl Sink) {
        let timeout_ns = self.shared.send_timeout_ns(conn.active.send_timeout_ms);
        let active = &mut *conn.active;
        let deadline = Deadline::new(timeout_ns, (!active.rnr).then_some(active.rnr_end), now);
        if active.tx.is_empty() {
            active.send_due = Time::FAR;
        } else {
            self.on_bundles_due(conn, deadline, now, sink);
        }
        let due = self.transfers.end_late(&mut self.shared, conn, deadline, now, sink);
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
        let waited_ns = match active.oldest_ns(&self.sending.sends, now) {
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
            let remaining = self.sending.give_up_refused(
                &mut self.shared,
                &mut self.transfers,
                conn,
                deadline,
                now,
                sink,
            );
            match remaining {
                Remaining::Some => {}
                Remaining::None if conn.base.state == ConnState::Lingering => {
                    self.fail_sends(conn, Status::ReceiverNotReady, sink);
                    conn.base.enter(Input::Delivered);
                    self.shared.start_closing(conn);
                }
                Remaining::None => {}
                // A receiver that takes nothing raises its epoch (R-RNR-1), and one that does not takes what was sent in it.
                Remaining::FarPast => self.give_up(conn, now, sink),
            }
        } else {
            self.give_up(conn, now, sink);
        }
    }

    /// The peer has not acknowledged in time what it must: all is over that it was to take.
    fn give_up(&mut self, conn: &mut ActiveConn<'_>, now: Time, sink: &mut impl Sink) {
        if conn.base.state == ConnState::Lingering {
            self.fail_sends(conn, Status::TimedOut, sink);
            conn.base.enter(Input::Delivered);
            self.shared.start_closing(conn);
        } else {
            //= wire.md R-LOSS-5
            self.shared.counters.connections_broken += 1;
            self.lose(conn, (Status::TimedOut, DisconnectReason::TimedOut), now, sink);
        }
    }
}
