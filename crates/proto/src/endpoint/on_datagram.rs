//! A datagram has come in: what it is, and whose.

use super::Endpoint;
use super::elsewhere::is_plain_question;
use super::paths::{learn_way, way_from};
use crate::conn::path::FIRST;
use crate::conn::state::Input;
use crate::conn::{ActiveConn, want};
use crate::wire::{Head, Holds, Kind, Packet, Reset, Sack, flags, timestamp, timestamp_ns_between};
use crate::{Address, ConnKey, ConnState, DisconnectReason, Event, PeerFault, Sink, Time};

impl Endpoint {
    /// Takes one datagram from the network. Never panics; a bad one is a counter and nothing else.
    pub fn handle_datagram(&mut self, now: Time, from: Address, datagram: &[u8], sink: &mut impl Sink) {
        self.seen = now;
        self.shared.counters.datagrams_received += 1;
        self.shared.counters.datagram_bytes_received += datagram.len() as u64;
        let dropped = self.shared.counters.replies_dropped;
        let outcome = match Packet::parse(datagram) {
            Ok(Packet::Established(head, sack, holds, body)) => {
                let outcome = self.on_established(now, from, &head, &sack, (holds, body), sink);
                return self.count_outcome(outcome);
            }
            Ok(Packet::Hello(hello)) => self.on_hello(now, from, &hello),
            Ok(Packet::Retry(retry)) => self.on_retry(now, from, &retry),
            Ok(Packet::Connect(connect)) => self.on_connect(now, from, &connect, sink),
            Ok(Packet::Accept(accept)) => self.on_accept(now, from, &accept, sink),
            Ok(Packet::Reject(reject)) => self.on_reject(now, from, &reject, sink),
            Ok(Packet::Version(notice)) => self.on_version(now, from, &notice, sink),
            Ok(Packet::Reset(reset)) => self.on_reset(now, from, &reset, sink),
            Err(fault) => Err(fault),
        };
        if outcome.is_ok() && self.shared.counters.replies_dropped == dropped {
            self.shared.counters.count_useful();
        }
        self.count_outcome(outcome);
    }

    #[inline]
    fn count_outcome(&mut self, outcome: Result<(), PeerFault>) {
        if let Err(fault) = outcome {
            self.shared.counters.count_fault(fault);
        }
    }

    fn on_established(
        &mut self,
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
            return self.on_unestablished(now, from, head, body, sink);
        };
        //= wire.md R-CONN-1
        if conn.base.nonce != head.nonce || conn.base.peer_index != head.source_index {
            return Err(PeerFault::Nonce);
        }
        if is_plain_question(conn, head, from) {
            return self.answer_plainly(now, from, head, body);
        }
        if head.kind == Kind::Path && conn.base.state == ConnState::Accepting {
            return Ok(()); // no way is learnt before the client has shown that it is where we answer it
        }
        //= wire.md R-CONN-2
        let by = match way_from(conn, from) {
            Some(by) => by,
            None if head.kind == Kind::Path => learn_way(conn, from, body, now, || self.secret.draw())?,
            None => return Err(PeerFault::Source),
        };
        let shared = &mut self.shared;
        let Some(mut conn) = shared.wake(conn, head.index, now) else {
            shared.counters.no_buffer_drops += 1;
            return Ok(());
        };
        let conn = &mut conn;
        conn.base.peer_window_kib = head.window_kib;
        conn.base.idle_window.note_heard();
        (conn.active.heard_at, conn.active.used_at) = (now, now);
        conn.active.heard_by(by);
        if conn.base.state == ConnState::Accepting {
            confirmed(conn, head, by, now);
            shared.counters.connections_opened += 1;
            sink.event(Event::Accepted { conn: conn.key(), token: conn.base.token });
            let keepalive_ns = conn.active.keepalive_or(shared.config.keepalive_ns);
            conn.active.start_keepalive(now, keepalive_ns, ConnState::Up);
        }
        //= wire.md R-ACK-1
        let outcome = if conn.base.attribute.is_reliable() {
            shared.on_ack(conn, head, sack, by, now, sink)
        } else {
            Ok(())
        };
        if head.flags & flags::CLOSING != 0 {
            shared.on_peer_closing(conn, sink);
        }
        match head.kind {
            Kind::Data => shared.on_data(conn, head, by, (holds, body), now, sink),
            Kind::Path => shared.on_path(conn, head, by, body, now),
            Kind::Ack | Kind::Ping => {
                if head.flags & flags::PROBE != 0 {
                    shared.on_probe(conn, head, by, now, sink);
                }
                Ok(())
            }
            Kind::Close => {
                self.on_close(now, from, head, sink);
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
        shared.settle_operations(conn);
        shared.arm(conn.active);
        outcome
    }

    /// A datagram for a connection that is not there, or not yet.
    fn on_unestablished(
        &mut self,
        now: Time,
        from: Address,
        head: &Head,
        body: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let key = ConnKey { index: head.index, generation: head.generation };
        if self.table.get(key).is_some_and(|conn| conn.base.state == ConnState::Dialing) {
            return self.on_unproved(now, from, head, body, sink);
        }
        self.on_unknown(now, from, head)
    }

    /// A datagram for a connection that is not there: tell its sender, unless that could start a quarrel.
    //= wire.md R-RST-1
    fn on_unknown(&mut self, now: Time, from: Address, head: &Head) -> Result<(), PeerFault> {
        let answer = match head.kind {
            Kind::Data | Kind::Ping | Kind::Close => true,
            Kind::Ack => head.flags & flags::PROBE != 0,
            //= wire.md R-PATH-8
            Kind::Path => false,
            Kind::CloseAck => false,
        };
        if answer {
            let reset = Reset {
                index: head.source_index,
                dead_index: head.index,
                dead_generation: head.generation,
                nonce: head.nonce,
                seq: head.seq,
            };
            self.replies.push_reset(now, from, reset, &mut self.shared.counters);
        }
        Err(PeerFault::Unknown)
    }

    /// Our peer's host says that the connection is not there.
    pub(super) fn on_reset(
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
        if way_from(conn, from).is_none() {
            return Err(PeerFault::Source);
        }
        self.shared.counters.connections_broken += u64::from(conn.base.state == ConnState::Up);
        self.peer_is_gone(now, reset.index, DisconnectReason::Died, sink);
        Ok(())
    }
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
        active.path.rtt.sample(now, rtt_ns);
    }
}
