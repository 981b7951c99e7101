//! Connections end.

use super::Endpoint;
use super::replies::Reply;
use super::shared::Shared;
use crate::conn::state::Input;
use crate::conn::{Active, Conn, want};
use crate::limits::CLOSE_RETRY_NS_MIN;
use crate::pool::Buf;
use crate::reliable::rx::Bits;
use crate::wire::{Head, Kind, timestamp};
use crate::{
    AcceptFailure, Address, Attribute, ConnKey, ConnState, ConnectFailure, DisconnectReason, Event, Sink,
    Status, Time, Unknown,
};

impl Endpoint {
    /// Closes a connection in an orderly way: what was sent before is still delivered or times out, then the
    /// peer is told. The key is dead to `send` at once; `Event::Closed` when all is over. A connection that is
    /// not there yet ends in `ConnectFailed` or `AcceptFailed`, for the reason `Cancelled`.
    pub fn disconnect(&mut self, now: Time, key: ConnKey) -> Result<(), Unknown> {
        let conn = self.table.get_mut(key).ok_or(Unknown)?;
        let shared = &mut self.shared;
        let state = conn.state;
        match state {
            ConnState::Dialing | ConnState::Accepting => {
                conn.enter(Input::Failed);
            }
            ConnState::Broken => conn.enter(Input::Over),
            ConnState::Up | ConnState::PeerClosed if !shared.wake(conn, key.index, now) => {
                // No memory to part in good order: the peer learns it by a reset, when it sends next.
                conn.enter(Input::Delivered);
                conn.enter(Input::Over);
            }
            ConnState::Up | ConnState::PeerClosed => {
                let busy = conn
                    .active
                    .as_deref()
                    .is_some_and(|active| !active.tx.is_empty() || active.operations() != 0);
                conn.enter(if busy { Input::Disconnect } else { Input::Delivered });
                if let Some(active) = conn.active.as_deref_mut() {
                    shared.stop_receiving(active, now);
                }
                if !busy {
                    shared.start_closing(conn, key.index);
                }
            }
            _ => return Err(Unknown),
        }
        if conn.state == ConnState::Done {
            shared.ready.push_back(key.index); // the event is raised where there is a sink
        } else if let Some(active) = conn.active.as_deref_mut() {
            shared.enqueue(active, key.index);
            shared.arm(active);
        }
        Ok(())
    }

    /// The peer says that all is over.
    pub(super) fn on_close(&mut self, now: Time, from: Address, head: &Head, sink: &mut impl Sink) {
        let Some(conn) = self.table.at_mut(head.index) else { return };
        //= wire.md R-CLOSE-3
        let answer = Head {
            kind: Kind::CloseAck,
            flags: 0,
            index: conn.peer_index,
            generation: conn.peer_generation,
            source_index: head.index,
            nonce: conn.peer_nonce,
            seq: head.ack,
            ack: head.seq,
            timestamp: timestamp(now),
            echo: head.timestamp,
            window_kib: 0,
            epoch: conn.tx_epoch,
            epoch_ack: conn.rx_epoch,
        };
        self.replies.push(from, Reply::CloseAck(answer), &mut self.shared.counters);
        self.peer_is_gone(now, head.index, DisconnectReason::Closed, sink);
    }

    /// Nothing more will come from the peer: it has closed, or was reset.
    pub(super) fn peer_is_gone(
        &mut self,
        now: Time,
        index: u32,
        reason: DisconnectReason,
        sink: &mut impl Sink,
    ) {
        let Some(conn) = self.table.at_mut(index) else { return };
        let state = conn.state;
        match state {
            ConnState::Up | ConnState::PeerClosed => {
                self.shared.lose(conn, index, (Status::Disconnected, reason), now, sink);
            }
            ConnState::Accepting => {
                conn.enter(Input::Failed);
                self.finish_with(index, Some(AcceptFailure::Gone), sink);
            }
            ConnState::Lingering => {
                self.shared.fail_sends(conn, index, Status::Disconnected, sink);
                conn.enter(Input::Lost);
                self.finish(index, sink);
            }
            ConnState::Closing => {
                conn.enter(Input::Over);
                self.finish(index, sink);
            }
            _ => {}
        }
    }

    /// Raises the last event of a connection that is done, and frees its place.
    pub(super) fn finish(&mut self, index: u32, sink: &mut impl Sink) {
        self.finish_with(index, None, sink);
    }

    /// The same, with the reason if it never came up.
    pub(super) fn finish_with(&mut self, index: u32, failure: Option<AcceptFailure>, sink: &mut impl Sink) {
        let Some(conn) = self.table.at_mut(index).filter(|conn| conn.state == ConnState::Done) else {
            return;
        };
        let (key, token) = (conn.key(index), conn.token);
        let dialed = conn.active.as_deref_mut().and_then(|active| active.dial.take());
        let unconfirmed = conn.active.as_deref().is_some_and(|active| active.unconfirmed);
        let event = if let Some(dial) = &dialed {
            self.shared.handshakes_bytes -= dial.request.len() as u64;
            Event::ConnectFailed { conn: key, token, why: ConnectFailure::Cancelled }
        } else if unconfirmed {
            Event::AcceptFailed { conn: key, token, why: failure.unwrap_or(AcceptFailure::Cancelled) }
        } else {
            Event::Closed { conn: key, token }
        };
        self.shared.free(conn);
        self.table.remove(index);
        self.stop_walking_if_alone();
        sink.event(event);
    }

    /// A dial came to nothing.
    pub(super) fn dial_failed(&mut self, index: u32, why: ConnectFailure, sink: &mut impl Sink) {
        let Some(conn) = self.table.at_mut(index).filter(|conn| conn.state == ConnState::Dialing) else {
            return;
        };
        let (key, token) = (conn.key(index), conn.token);
        conn.enter(Input::Failed);
        if let Some(dial) = conn.active.as_deref_mut().and_then(|active| active.dial.take()) {
            self.shared.handshakes_bytes -= dial.request.len() as u64;
        }
        self.shared.free(conn);
        self.table.remove(index);
        self.stop_walking_if_alone();
        sink.event(Event::ConnectFailed { conn: key, token, why });
    }
}

impl Shared {
    /// Takes everything back that the connection borrowed.
    fn free(&mut self, conn: &mut Conn) {
        if let Some(mut active) = conn.active.take() {
            assert!(active.tx.is_empty(), "every send has completed");
            self.drop_held(&mut active);
            (active.holding, active.queued, active.listed) = (false, false, false);
            conn.active = Some(active);
            self.sleep(conn);
        }
    }

    /// The peer is dead, or silent for too long: every send ends with this status, and the program is told the reason.
    pub(super) fn lose(
        &mut self,
        conn: &mut Conn,
        index: u32,
        (status, reason): (Status, DisconnectReason),
        now: Time,
        sink: &mut impl Sink,
    ) {
        let was_up = conn.state == ConnState::Up;
        let untold = was_up || conn.state == ConnState::PeerClosed;
        let ordered = conn.attribute == Attribute::ReliableOrdered;
        self.fail_sends(conn, index, status, sink);
        conn.enter(Input::Lost);
        if let Some(active) = conn.active.as_deref_mut() {
            active.wants = 0;
            active.refusing = false;
            self.unbond(active);
            (active.ack_pending, active.keepalive_ns) = (0, 0);
            (active.keepalive_due, active.step_due, active.asks) = (Time::FAR, Time::FAR, 0);
            active.forget_gaps(self, ordered);
            active.used_at = now;
            self.arm(active);
        }
        // Messages that are held were acknowledged: they come first, then the news.
        let held = conn.active.as_deref().is_some_and(|active| active.rx.held != 0);
        match conn.active.as_deref_mut().filter(|_| untold && held) {
            Some(active) => {
                active.untold = Some(reason);
                if !active.holding {
                    self.deliver_held(conn, index, sink); // nothing else would come to do it
                }
            }
            None if untold => {
                sink.event(Event::Disconnected { conn: conn.key(index), token: conn.token, reason });
            }
            None => {}
        }
    }

    /// The peer delivers what it has and takes no more.
    //= wire.md R-CLOSE-2
    pub(super) fn on_peer_closing(&mut self, conn: &mut Conn, index: u32, sink: &mut impl Sink) {
        match conn.state {
            ConnState::Up => {
                self.fail_sends(conn, index, Status::Disconnected, sink);
                // The program hears of it when the last message has come: it may answer by hanging up, which would
                // cut off what is still under way.
                conn.enter(Input::PeerCloses);
                let timeout_ns = self.send_timeout_ns(conn.send_timeout_ms);
                let Some(active) = conn.active.as_deref_mut() else { return };
                let heard_at = active.heard_at;
                active.step_due = heard_at.plus(timeout_ns);
                active.last_words = (active.rx.end, heard_at);
                self.watch(conn, heard_at);
            }
            ConnState::Lingering => {
                self.fail_sends(conn, index, Status::Disconnected, sink);
                conn.enter(Input::PeerCloses);
                self.start_closing(conn, index);
            }
            _ => {}
        }
    }

    //= wire.md R-CLOSE-1
    /// Everything is delivered or given up: tell the peer until it answers.
    pub(super) fn start_closing(&mut self, conn: &mut Conn, index: u32) {
        let Some(active) = conn.active.as_deref_mut() else { return };
        active.wants |= want::CLOSE;
        active.steps = 0;
        active.step_ns = active.path.rtt.probe_ns(0).max(CLOSE_RETRY_NS_MIN);
        active.step_due = active.used_at.plus(active.step_ns);
        (active.keepalive_ns, active.asks) = (0, 0);
        active.keepalive_due = Time::FAR;
        self.enqueue(active, index);
    }

    /// The program wants nothing more from this connection.
    fn stop_receiving(&mut self, active: &mut Active, now: Time) {
        self.drop_held(active);
        active.holding = false;
        active.refusing = false;
        (active.keepalive_ns, active.asks) = (0, 0);
        active.keepalive_due = Time::FAR;
        active.used_at = now;
    }
}

impl Active {
    /// No bundle will fill the gaps any more: what order keeps behind them can never be delivered.
    //= wire.md R-CLOSE-5
    fn forget_gaps(&mut self, shared: &mut Shared, ordered: bool) {
        if !ordered && self.rx.unpassed != 0 {
            // Messages were acknowledged one by one; what is around them will never be complete.
            let mut seq = self.rx.next;
            while seq != self.rx.end {
                let buf = self.rx_ring.as_ref().map_or(Buf::NONE, |ring| ring.get(seq));
                if buf.is_some() {
                    shared.strip(buf);
                }
                seq = seq.next();
            }
        }
        self.rx.unpassed = 0;
        if let Some(ring) = self.rx_ring.as_mut().filter(|_| ordered) {
            let mut seq = self.rx.next;
            while seq != self.rx.end {
                let buf = std::mem::replace(ring.at(seq), Buf::NONE);
                if buf.is_some() {
                    shared.pool.give_back(buf);
                    self.rx.held -= 1;
                }
                seq = seq.next();
            }
        } else {
            self.rx.next = self.rx.end;
        }
        self.rx.end = self.rx.next;
        self.rx.bits = Bits::default();
        if self.rx.held == 0 {
            self.rx.deliver = self.rx.next;
            shared.spare_rx_ring(self.rx_ring.take());
        }
    }
}
