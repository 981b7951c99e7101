//! Acceptances from elsewhere than they were asked for: a server's program may accept by another of its endpoints, but no
//! server may choose where its client sends.

use super::Endpoint;
use super::replies::Reply;
use crate::conn::{Conn, Unproved};
use crate::limits::{DIAL_RETRY_NS_MAX, DIAL_RETRY_NS_MIN};
use crate::wire::{Accept, Head, Kind, PathBody, timestamp, timestamp_ns_between};
use crate::{Address, ConnKey, ConnState, PeerFault, Sink, Time};

/// Whether this is a question that is answered at once, and changes nothing: from a client that wants to know whether we are
/// where our acceptance came from, or to a connection that has one way only.
#[inline]
pub(super) fn is_plain_question(conn: &Conn, head: &Head, from: Address) -> bool {
    let is_bonded = || conn.active.as_deref().is_some_and(|active| active.bond.is_some());
    head.kind == Kind::Path
        && conn.base.peer == from
        && (conn.base.state == ConnState::Accepting || !is_bonded())
}

impl Endpoint {
    /// An acceptance has come from where nothing was asked: whoever is there must show that it has our question. There is no
    /// timer for it: the server repeats its acceptance. One question in a while goes out, however many come.
    //= wire.md R-HS-6
    pub(super) fn prove_source(&mut self, now: Time, from: Address, accept: &Accept) {
        let key = ConnKey { index: accept.index, generation: accept.generation };
        let fresh = self.secret.draw() | 1;
        let window_kib = self.shared.window_kib();
        let Some(active) = self.table.get_mut(key).and_then(|conn| conn.active.as_deref_mut()) else {
            return;
        };
        let seq = active.tx.next;
        let Some(dial) = active.dial.as_deref_mut() else { return };
        let before = dial.unproved.filter(|before| before.from == from);
        let ask_ns = match dial.unproved {
            Some(unproved) if unproved.ask_due > now => return,
            Some(unproved) => (2 * unproved.ask_ns).min(DIAL_RETRY_NS_MAX),
            // A little less than it takes the server to repeat itself.
            None => DIAL_RETRY_NS_MIN / 2,
        };
        let challenge = before.map_or(fresh, |before| before.challenge);
        dial.unproved =
            Some(Unproved { from, accept: *accept, challenge, ask_due: now.plus(ask_ns), ask_ns });
        let head = Head {
            kind: Kind::Path,
            flags: 0,
            index: accept.source_index,
            generation: accept.source_generation,
            source_index: key.index,
            nonce: accept.source_nonce,
            seq,
            ack: accept.first_seq,
            timestamp: timestamp(now),
            echo: accept.timestamp,
            window_kib,
            epoch: 0,
            epoch_ack: 0,
        };
        let body = PathBody { challenge, answer: 0 };
        self.replies.push(from, Reply::Path(head, body), &mut self.shared.counters);
    }

    /// A datagram for a connection that is still being asked for: the answer to our question, or sent too soon.
    pub(super) fn on_unproved(
        &mut self,
        now: Time,
        from: Address,
        head: &Head,
        body: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let key = ConnKey { index: head.index, generation: head.generation };
        let conn = self.table.get_mut(key).ok_or(PeerFault::Unknown)?;
        if conn.base.nonce != head.nonce {
            return Err(PeerFault::Nonce);
        }
        let dial = conn.active.as_deref().and_then(|active| active.dial.as_deref());
        let unproved = dial.and_then(|dial| dial.unproved).filter(|unproved| unproved.from == from);
        let unproved = unproved.filter(|_| head.kind == Kind::Path).ok_or(PeerFault::Unexpected)?;
        let body = PathBody::parse(body)?;
        if body.answer != unproved.challenge || unproved.accept.source_index != head.source_index {
            return Err(PeerFault::Nonce);
        }
        let rtt_ns = timestamp_ns_between(head.echo, timestamp(now));
        self.accepted(now, from, &unproved.accept, rtt_ns, sink);
        self.confirm(now, key, head.timestamp);
        Ok(())
    }

    /// Answers a plain question.
    //= wire.md R-PATH-2
    pub(super) fn answer_plainly(
        &mut self,
        now: Time,
        from: Address,
        head: &Head,
        body: &[u8],
    ) -> Result<(), PeerFault> {
        let body = PathBody::parse(body)?;
        let Some(conn) = self.table.at_mut(head.index).filter(|_| body.challenge != 0) else { return Ok(()) };
        let answer = Head {
            kind: Kind::Path,
            flags: 0,
            index: conn.base.peer_index,
            generation: conn.base.peer_generation,
            source_index: head.index,
            nonce: conn.base.peer_nonce,
            seq: head.ack,
            ack: head.seq,
            timestamp: timestamp(now),
            echo: head.timestamp,
            window_kib: self.shared.window_kib(),
            epoch: conn.base.tx_epoch,
            epoch_ack: conn.base.rx_epoch,
        };
        let body = PathBody { challenge: 0, answer: body.challenge };
        self.replies.push(from, Reply::Path(answer, body), &mut self.shared.counters);
        Ok(())
    }
}
