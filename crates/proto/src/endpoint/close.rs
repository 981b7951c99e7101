//! Connections end.

use super::Endpoint;
use super::replies::Reply;
use super::shared::Shared;
use crate::conn::state::Input;
use crate::conn::{Active, ActiveConn, Conn, want};
use crate::limits::CLOSE_RETRY_NS_MIN;
use crate::pool::Buf;
use crate::reliable::rx::Bits;
use crate::wire::{Head, Kind, timestamp};
use crate::{
    AcceptFailure, Address, ConnKey, ConnState, ConnectFailure, DisconnectReason, Event, Sink, Status, Time,
    Unknown,
};

impl Endpoint {
    /// Closes a connection in an orderly way: what was sent before is still delivered or times out, then the
    /// peer is told. The key is dead to `send` at once; `Event::Closed` when all is over. A connection that is
    /// not there yet ends in `ConnectFailed` or `AcceptFailed`, for the reason `Cancelled`.
    pub fn disconnect(&mut self, now: Time, key: ConnKey) -> Result<(), Unknown> {
        let conn = self.table.get_mut(key).ok_or(Unknown)?;
        let shared = &mut self.shared;
        let state = conn.base.state;
        match state {
            ConnState::Dialing | ConnState::Accepting => {
                conn.base.enter(Input::Failed);
            }
            ConnState::Broken => conn.base.enter(Input::Over),
            ConnState::Up | ConnState::PeerClosed => match shared.wake(conn, key.index, now) {
                Some(mut conn) => {
                    let busy = !conn.active.tx.is_empty() || conn.active.operations() != 0;
                    conn.base.enter(if busy { Input::Disconnect } else { Input::Delivered });
                    shared.stop_receiving(conn.active, now);
                    if !busy {
                        shared.start_closing(&mut conn);
                    }
                }
                None => {
                    // No memory to part in good order: the peer learns it by a reset, when it sends next.
                    conn.base.enter(Input::Delivered);
                    conn.base.enter(Input::Over);
                }
            },
            _ => return Err(Unknown),
        }
        if conn.base.state == ConnState::Done {
            shared.ready.push_back(key.index); // the event is raised where there is a sink
        } else if let Some(active) = conn.active.as_deref_mut() {
            shared.enqueue(active);
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
        match conn.base.state {
            ConnState::Up | ConnState::PeerClosed => match conn.awake() {
                Some(mut conn) => self.shared.lose(&mut conn, (Status::Disconnected, reason), now, sink),
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
                    self.shared.fail_sends(&mut conn, Status::Disconnected, sink);
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

    /// Raises the last event of a connection that is done, and frees its place.
    pub(super) fn finish(&mut self, index: u32, sink: &mut impl Sink) {
        self.finish_with(index, None, sink);
    }

    /// The same, with the reason if it never came up.
    pub(super) fn finish_with(&mut self, index: u32, failure: Option<AcceptFailure>, sink: &mut impl Sink) {
        let Some(conn) = self.table.at_mut(index).filter(|conn| conn.base.state == ConnState::Done) else {
            return;
        };
        let (key, token) = (conn.key(index), conn.base.token);
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
        let Some(conn) = self.table.at_mut(index).filter(|conn| conn.base.state == ConnState::Dialing) else {
            return;
        };
        let (key, token) = (conn.key(index), conn.base.token);
        conn.base.enter(Input::Failed);
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
        if let Some(active) = conn.active.as_deref_mut() {
            assert!(active.tx.is_empty(), "every send has completed");
            self.drop_held(active);
            (active.holding, active.queued, active.listed) = (false, false, false);
            self.sleep(conn);
        }
    }

    /// The peer is dead, or silent for too long: every send ends with this status, and the program is told the reason.
    pub(super) fn lose(
        &mut self,
        conn: &mut ActiveConn<'_>,
        (status, reason): (Status, DisconnectReason),
        now: Time,
        sink: &mut impl Sink,
    ) {
        let was_up = conn.base.state == ConnState::Up;
        let untold = was_up || conn.base.state == ConnState::PeerClosed;
        let ordered = conn.base.is_ordered();
        self.fail_sends(conn, status, sink);
        conn.base.enter(Input::Lost);
        let active = &mut *conn.active;
        active.wants = 0;
        active.refusing = false;
        self.unbond(active);
        (active.ack_pending, active.keepalive_ns) = (0, 0);
        (active.keepalive_due, active.step_due, active.asks) = (Time::FAR, Time::FAR, 0);
        active.forget_gaps(self, ordered);
        active.used_at = now;
        self.arm(active);
        // Messages that are held were acknowledged: they come first, then the news.
        if untold && conn.active.rx.held != 0 {
            conn.active.untold = Some(reason);
            if !conn.active.holding {
                self.deliver_held(conn, sink); // nothing else would come to do it
            }
        } else if untold {
            sink.event(Event::Disconnected { conn: conn.key(), token: conn.base.token, reason });
        }
    }

    /// The peer delivers what it has and takes no more.
    //= wire.md R-CLOSE-2
    pub(super) fn on_peer_closing(&mut self, conn: &mut ActiveConn<'_>, sink: &mut impl Sink) {
        match conn.base.state {
            ConnState::Up => {
                self.fail_sends(conn, Status::Disconnected, sink);
                // The program hears of it when the last message has come: it may answer by hanging up, which would
                // cut off what is still under way.
                conn.base.enter(Input::PeerCloses);
                let timeout_ns = self.send_timeout_ns(conn.base.send_timeout_ms);
                let active = &mut *conn.active;
                let heard_at = active.heard_at;
                active.step_due = heard_at.plus(timeout_ns);
                active.last_words = (active.rx.end, heard_at);
                self.watch(conn, heard_at);
            }
            ConnState::Lingering => {
                self.fail_sends(conn, Status::Disconnected, sink);
                conn.base.enter(Input::PeerCloses);
                self.start_closing(conn);
            }
            _ => {}
        }
    }

    //= wire.md R-CLOSE-1
    /// Everything is delivered or given up: tell the peer until it answers.
    pub(super) fn start_closing(&mut self, conn: &mut ActiveConn<'_>) {
        let active = &mut *conn.active;
        active.wants |= want::CLOSE;
        active.steps = 0;
        active.step_ns = active.path.rtt.probe_ns(0).max(CLOSE_RETRY_NS_MIN);
        active.step_due = active.used_at.plus(active.step_ns);
        (active.keepalive_ns, active.asks) = (0, 0);
        active.keepalive_due = Time::FAR;
        self.enqueue(active);
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
