//! All connections of an endpoint: what comes for one, its turn to send, its time, its end.

use super::handshakes::{Handshakes, is_plain_question};
use super::paths::{learn_path, path_from};
use super::protocol::Protocol;
use super::receiving::on_probe;
use super::replies::Reply;
use super::transmitter::Turn;
use super::walk::Walk;
use crate::conn::path::FIRST;
use crate::conn::state::Input;
use crate::conn::table::Table;
use crate::conn::{ActiveConn, want};
use crate::limits::{CLOSE_TRIES_MAX, DIAL_RETRY_NS_MAX};
use crate::reliable::rtt::PROBE_NS_MAX;
use crate::wire::{Head, Holds, Kind, Reset, Sack, flags, timestamp, timestamp_ns_between};
use crate::{
    AcceptFailure, Address, ConnState, ConnectFailure, DisconnectReason, Event, PeerFault, Sink, Status,
    Time, Transmit,
};

/// The connections, and everything that works on them.
pub(crate) struct Connections {
    pub table: Table,
    pub protocol: Protocol,
    pub walk: Walk,
}

impl Connections {
    /// Each connection that has something to send has its turn, while the carrier takes more.
    #[inline]
    pub fn transmit(&mut self, now: Time, out: &mut impl Transmit, sink: &mut impl Sink) {
        while let Some(&index) = self.protocol.shared.ready.front() {
            let Some(conn) = self.table.at_mut(index) else {
                self.protocol.shared.ready.pop_front();
                continue;
            };
            if conn.base.state == ConnState::Done {
                self.protocol.shared.ready.pop_front();
                self.finish(index, sink);
                continue;
            }
            let Some(mut conn) = conn.awake().filter(|conn| conn.active.queued) else {
                self.protocol.shared.ready.pop_front(); // gone meanwhile, or asleep
                continue;
            };
            let turn = self.protocol.take_turn(&mut conn, now, out, sink);
            if turn == Turn::Full {
                return; // stays at the head of the queue
            }
            self.protocol.shared.ready.pop_front();
            conn.active.queued = false;
            if turn == Turn::More {
                self.protocol.shared.enqueue(conn.active);
            }
            self.protocol.shared.arm(conn.active);
        }
    }

    /// Does what is due by `now`.
    pub fn on_time(&mut self, handshakes: &mut Handshakes, now: Time, sink: &mut impl Sink) {
        if self.walk.due <= now {
            self.walk.go_on(&mut self.table, &mut self.protocol, &mut handshakes.secret, now);
            handshakes.forget_requests(&self.table, &mut self.protocol.shared, now);
        }
        while let Some(index) = self.protocol.shared.timers.pop_due(now) {
            let Some(conn) = self.table.at_mut(index) else { continue };
            match conn.base.state {
                ConnState::Dialing => self.on_dial_due(now, index, sink),
                ConnState::Accepting => self.on_accept_due(now, index, sink),
                ConnState::Closing => self.on_close_due(now, index, sink),
                ConnState::Free | ConnState::Done => {}
                ConnState::Up | ConnState::PeerClosed | ConnState::Lingering | ConnState::Broken => {
                    self.protocol.on_due(conn, now, sink);
                }
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one call or datagram, and what it touches")]
    pub fn on_established(
        &mut self,
        handshakes: &mut Handshakes,
        now: Time,
        from: Address,
        head: &Head,
        sack: &Sack,
        (holds, body): (Holds, &[u8]),
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let Some(conn) = self
            .table
            .at_mut(head.index)
            .filter(|conn| conn.base.generation == head.generation && conn.base.is_established())
        else {
            return handshakes.on_unestablished(
                &mut self.table,
                &mut self.protocol.shared,
                now,
                from,
                head,
                body,
                sink,
            );
        };
        //= wire.md R-CONN-1
        if conn.base.nonce != head.nonce || conn.base.peer_index != head.source_index {
            return Err(PeerFault::Nonce);
        }
        if is_plain_question(conn, head, from) {
            return handshakes.answer_plainly(
                &mut self.table,
                &mut self.protocol.shared,
                now,
                from,
                head,
                body,
            );
        }
        if head.kind == Kind::Path && conn.base.state == ConnState::Accepting {
            return Ok(()); // no path is learnt before the client has shown that it is where we answer it
        }
        //= wire.md R-CONN-2
        let by = match path_from(conn, from) {
            Some(by) => by,
            None if head.kind == Kind::Path => {
                learn_path(conn, from, body, now, || handshakes.secret.draw())?
            }
            None => return Err(PeerFault::Source),
        };
        let protocol = &mut self.protocol;
        let Some(mut conn) = protocol.shared.wake(conn, head.index, now) else {
            protocol.shared.counters.no_buffer_drops += 1;
            return Ok(());
        };
        let conn = &mut conn;
        conn.base.peer_window_kib = head.window_kib;
        conn.base.idle_window.note_heard();
        (conn.active.heard_at, conn.active.used_at) = (now, now);
        conn.active.paths.heard_by(by);
        if conn.base.state == ConnState::Accepting {
            confirmed(conn, head, by, now);
            protocol.shared.counters.connections_opened += 1;
            sink.event(Event::Accepted { conn: conn.key(), token: conn.base.token });
            let keepalive_ns = conn.active.keepalive_or(protocol.shared.config.keepalive_ns);
            conn.active.start_keepalive(now, keepalive_ns, ConnState::Up);
        }
        //= wire.md R-ACK-1
        let outcome = if conn.base.attribute.is_reliable() {
            let Protocol { shared, sending, transfers, .. } = &mut *protocol;
            sending.on_ack(shared, transfers, conn, head, sack, by, now, sink)
        } else {
            Ok(())
        };
        let peer_closes = head.flags & flags::CLOSING != 0;
        let may_bring_answers =
            peer_closes && conn.base.state == ConnState::Up && conn.active.operations() > 0;
        if peer_closes && !may_bring_answers {
            protocol.on_peer_closing(conn, sink);
        }
        match head.kind {
            Kind::Data => {
                let Protocol { shared, receiving, transfers, .. } = &mut *protocol;
                receiving.on_data(shared, transfers, conn, head, by, (holds, body), now, sink)
            }
            Kind::Path => protocol.shared.on_path(conn, head, by, body, now),
            Kind::Ack | Kind::Ping => {
                if head.flags & flags::PROBE != 0 {
                    on_probe(&mut protocol.shared, conn, head, by, now, sink);
                }
                Ok(())
            }
            Kind::Close => {
                self.on_close(handshakes, now, from, head, sink);
                return outcome;
            }
            Kind::CloseAck => {
                if conn.base.state == ConnState::Closing {
                    conn.base.enter(Input::Over);
                    self.finish(head.index, sink);
                    return outcome;
                }
                Ok(())
            }
        }?;
        //= wire.md R-CLOSE-2
        // Answers that the peer has sent before come first, whatever order they come in.
        if may_bring_answers && conn.base.state == ConnState::Up && has_all_before(conn, head) {
            protocol.on_peer_closing(conn, sink);
        }
        protocol.settle_operations(conn);
        protocol.shared.arm(conn.active);
        outcome
    }

    /// Our peer's host says that the connection is not there.
    pub fn on_reset(
        &mut self,
        now: Time,
        from: Address,
        reset: &Reset,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let conn = self
            .table
            .at_mut(reset.index)
            .filter(|conn| conn.base.is_established())
            .ok_or(PeerFault::Unknown)?;
        //= wire.md R-RST-2
        if conn.base.peer_nonce != reset.nonce
            || conn.base.peer_index != reset.dead_index
            || conn.base.peer_generation != reset.dead_generation
        {
            return Err(PeerFault::Nonce);
        }
        if path_from(conn, from).is_none() {
            return Err(PeerFault::Source);
        }
        self.protocol.shared.counters.connections_broken += u64::from(conn.base.state == ConnState::Up);
        self.peer_is_gone(now, reset.index, DisconnectReason::Died, sink);
        Ok(())
    }

    fn on_dial_due(&mut self, now: Time, index: u32, sink: &mut impl Sink) {
        let Some(conn) = self.table.at_mut(index) else { return };
        let Some(active) = conn.active.as_deref_mut() else { return };
        let give_up_at = active.dial.as_deref().map_or(Time::FAR, |dial| dial.give_up_at);
        if give_up_at <= now {
            return self.dial_failed(index, ConnectFailure::TimedOut, sink);
        }
        //= wire.md R-HS-9
        // Nobody at this address has answered yet: the other one is asked next.
        if let Some(dial) = active.dial.as_deref_mut().filter(|dial| dial.cookie.is_none())
            && let Some(other) = dial.other.as_mut()
        {
            std::mem::swap(other, &mut conn.base.peer);
        }
        active.next_step(now, want::DIAL, DIAL_RETRY_NS_MAX);
        active.step_due = active.step_due.min(give_up_at);
        self.protocol.shared.enqueue(active);
        self.protocol.shared.arm(active);
    }

    fn on_accept_due(&mut self, now: Time, index: u32, sink: &mut impl Sink) {
        let Some(conn) = self.table.at_mut(index) else { return };
        let Some(active) = conn.active.as_deref_mut() else { return };
        if active.send_due <= now {
            conn.base.enter(Input::Failed);
            return self.finish_with(index, Some(AcceptFailure::TimedOut), sink);
        }
        active.next_step(now, want::ACCEPT, DIAL_RETRY_NS_MAX);
        self.protocol.shared.enqueue(active);
        self.protocol.shared.arm(active);
    }

    fn on_close_due(&mut self, now: Time, index: u32, sink: &mut impl Sink) {
        let Some(conn) = self.table.at_mut(index) else { return };
        let Some(active) = conn.active.as_deref_mut() else { return };
        self.protocol.shared.ack_if_due(active, now);
        // What else falls due, such as that acknowledgement, is no try to close.
        if active.step_due > now {
            return self.protocol.shared.arm_after(active, active.step_due);
        }
        active.next_step(now, want::CLOSE, PROBE_NS_MAX);
        //= wire.md R-CLOSE-4
        if active.steps > CLOSE_TRIES_MAX {
            conn.base.enter(Input::Over);
            return self.finish(index, sink);
        }
        self.protocol.shared.enqueue(active);
        self.protocol.shared.arm_after(active, active.step_due);
    }

    /// The peer says that all is over.
    pub fn on_close(
        &mut self,
        handshakes: &mut Handshakes,
        now: Time,
        from: Address,
        head: &Head,
        sink: &mut impl Sink,
    ) {
        let Some(conn) = self.table.at_mut(head.index) else { return };
        //= wire.md R-CLOSE-3
        let answer = Head {
            kind: Kind::CloseAck,
            flags: 0,
            index: conn.base.peer_index,
            generation: conn.base.peer_generation,
            source_index: head.index,
            nonce: conn.base.peer_nonce,
            seq: head.ack,
            ack: head.seq,
            timestamp: timestamp(now),
            echo: head.timestamp,
            window_kib: 0,
            epoch: conn.base.tx_epoch,
            epoch_ack: conn.base.rx_epoch,
        };
        handshakes.replies.push(from, Reply::CloseAck(answer), &mut self.protocol.shared.counters);
        self.peer_is_gone(now, head.index, DisconnectReason::Closed, sink);
    }

    /// Nothing more will come from the peer: it has closed, or was reset.
    pub fn peer_is_gone(&mut self, now: Time, index: u32, reason: DisconnectReason, sink: &mut impl Sink) {
        let Some(conn) = self.table.at_mut(index) else { return };
        match conn.base.state {
            ConnState::Up | ConnState::PeerClosed => match conn.awake() {
                Some(mut conn) => self.protocol.lose(&mut conn, (Status::Disconnected, reason), now, sink),
                None => {
                    conn.base.enter(Input::Lost);
                    sink.event(Event::Disconnected { conn: conn.key(index), token: conn.base.token, reason });
                }
            },
            ConnState::Accepting => {
                conn.base.enter(Input::Failed);
                self.finish_with(index, Some(AcceptFailure::Gone), sink);
            }
            ConnState::Lingering => {
                if let Some(mut conn) = conn.awake() {
                    self.protocol.fail_sends(&mut conn, Status::Disconnected, sink);
                }
                conn.base.enter(Input::Lost);
                self.finish(index, sink);
            }
            ConnState::Closing => {
                conn.base.enter(Input::Over);
                self.finish(index, sink);
            }
            _ => {}
        }
    }

    /// Raises the last event of a connection that is done, and frees its entry.
    pub fn finish(&mut self, index: u32, sink: &mut impl Sink) {
        self.finish_with(index, None, sink);
    }

    /// Raises the last event of a connection that is done, and frees its entry. `failure`: why it never came up, if it did not.
    pub fn finish_with(&mut self, index: u32, failure: Option<AcceptFailure>, sink: &mut impl Sink) {
        let Some(conn) = self.table.at_mut(index).filter(|conn| conn.base.state == ConnState::Done) else {
            return;
        };
        let (key, token) = (conn.key(index), conn.base.token);
        let dialed = conn.active.as_deref_mut().and_then(|active| active.dial.take());
        let unconfirmed = conn.active.as_deref().is_some_and(|active| active.unconfirmed);
        let event = if let Some(dial) = &dialed {
            self.protocol.shared.handshakes_bytes -= dial.request.len() as u64;
            Event::ConnectFailed { conn: key, token, why: ConnectFailure::Cancelled }
        } else if unconfirmed {
            Event::AcceptFailed { conn: key, token, why: failure.unwrap_or(AcceptFailure::Cancelled) }
        } else {
            Event::Closed { conn: key, token }
        };
        self.protocol.free(conn);
        self.table.remove(index);
        self.walk.stop_if_alone(&self.table);
        sink.event(event);
    }

    /// A connection that was asked for does not come about.
    pub fn dial_failed(&mut self, index: u32, why: ConnectFailure, sink: &mut impl Sink) {
        let Some(conn) = self.table.at_mut(index).filter(|conn| conn.base.state == ConnState::Dialing) else {
            return;
        };
        let (key, token) = (conn.key(index), conn.base.token);
        conn.base.enter(Input::Failed);
        if let Some(dial) = conn.active.as_deref_mut().and_then(|active| active.dial.take()) {
            self.protocol.shared.handshakes_bytes -= dial.request.len() as u64;
        }
        self.protocol.free(conn);
        self.table.remove(index);
        self.walk.stop_if_alone(&self.table);
        sink.event(Event::ConnectFailed { conn: key, token, why });
    }
}

/// Whether every bundle has come that the peer had sent when it sent this.
fn has_all_before(conn: &ActiveConn<'_>, head: &Head) -> bool {
    let end = if head.kind == Kind::Data { head.seq.next() } else { head.seq };
    end.since(conn.active.rx.next).cast_signed() <= 0
}

/// The first datagram with our nonce: the client has our acceptance.
fn confirmed(conn: &mut ActiveConn<'_>, head: &Head, by: u8, now: Time) {
    conn.base.enter(Input::Confirmed);
    let active = &mut *conn.active;
    active.wants &= !want::ACCEPT;
    active.unconfirmed = false;
    (active.step_due, active.send_due) = (Time::FAR, Time::FAR);
    let rtt_ns = timestamp_ns_between(head.echo, timestamp(now));
    if rtt_ns != 0 && by == FIRST {
        active.paths.first.rtt.sample(now, rtt_ns);
    }
}
