//! A bundle has come: deliver it, keep it, or refuse it.

use super::Endpoint;
use super::shared::Shared;
use crate::conn::{Active, ActiveConn, want};
use crate::limits::{
    ACK_BUNDLES, ACK_DELAY_NS_MAX, ACK_DELAY_NS_MIN, READY_PER_RETURN_MAX, SACK_BITS, WAITING_PER_RETURN_MAX,
    WINDOW_BUNDLES_MAX,
};
use crate::pool::Buf;
use crate::reliable::rx::Bits;
use crate::wire::{Head, Holds, Messages, check, flags};
use crate::{ConnKey, ConnState, Event, PeerFault, Sink, Time};

/// How far the program took a bundle.
enum Taken {
    All,
    /// Up to this byte of the body; 0: nothing.
    UpTo(usize),
}

/// Gives the records from byte `at` on to the program: how far it took them, how many messages, of how many bytes.
#[inline]
fn hand_over(key: ConnKey, token: u64, body: &[u8], at: usize, sink: &mut impl Sink) -> (Taken, u64, u64) {
    let (mut messages, mut bytes, mut done) = (0, 0, at);
    for (message, end) in Messages::from(body, at) {
        if let Some(payload) = message {
            if !sink.message(key, token, payload) {
                return (Taken::UpTo(done), messages, bytes);
            }
            messages += 1;
            bytes += payload.len() as u64;
        }
        done = end;
    }
    (Taken::All, messages, bytes)
}

impl Shared {
    pub(super) fn on_data(
        &mut self,
        conn: &mut ActiveConn<'_>,
        head: &Head,
        by: u8,
        (holds, body): (Holds, &[u8]),
        now: Time,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        if body.len() > usize::from(self.config.datagram_bytes_max) {
            return Err(PeerFault::Length);
        }
        let active = &mut *conn.active;
        active.path_mut(by).came(head.timestamp, now);
        if !conn.base.attribute.is_reliable() {
            if holds == Holds::Part {
                return self.on_part(conn, head, by, body, now, sink);
            }
            if holds != Holds::Messages {
                return Err(PeerFault::Unexpected);
            }
            self.on_unreliable(conn, head, body, sink);
            return Ok(());
        }
        //= wire.md R-CLOSE-2
        // A closing side takes no more; its flag in the answer says so.
        if conn.takes_no_more() {
            let active = &mut *conn.active;
            active.ack_by(by, head);
            self.ack_now(active);
            return Ok(());
        }
        let active = &mut *conn.active;
        //= wire.md R-ORD-3
        let offset = head.seq.since(active.rx.next);
        // What is held for the program narrows our window, but not the sender's: its bundle is in order, and late is
        // our program.
        let behind = (active.rx.window()..WINDOW_BUNDLES_MAX).contains(&offset);
        if !behind && (offset >= WINDOW_BUNDLES_MAX || active.rx.has(head.seq)) {
            active.ack_by(by, head);
            return self.on_odd_bundle(active, offset);
        }
        //= wire.md R-RNR-2
        if head.epoch != conn.base.rx_epoch || active.refusing {
            self.ack_now(active);
            return if head.epoch.wrapping_sub(conn.base.rx_epoch) > u16::MAX / 2
                || head.epoch == conn.base.rx_epoch
            {
                Ok(())
            } else {
                Err(PeerFault::Field)
            };
        }
        if behind {
            self.counters.no_buffer_drops += 1;
            // Not while there is a gap: see `take_in`.
            if !active.has_gap(conn.base.is_ordered()) {
                self.refuse(conn);
            }
            return Ok(());
        }
        // Nothing is kept of a bundle that would not be taken if it were whole.
        if holds == Holds::Part {
            return self.on_part(conn, head, by, body, now, sink);
        }
        let expected = active.is_expected(by, head.seq, offset);
        if offset != 0 && !expected {
            self.counters.reordered_received += 1;
        }
        let taken = if holds == Holds::Messages {
            // A program that has disconnected takes no messages; its operations still go on.
            conn.base.state == ConnState::Lingering || self.take_in(conn, head, body, offset, sink)
        } else {
            self.take_in_rma(conn, head, holds, body, offset, now, sink)
        };
        if !taken {
            return Ok(());
        }
        let active = &mut *conn.active;
        active.rx.arrived(head.seq);
        active.counters.bundles_received += 1;
        self.counters.bundles_received += 1;
        self.counters.count_useful();
        if expected && head.flags & flags::PROBE == 0 {
            self.ack_soon(active, by, now);
        } else {
            active.ack_by(by, head);
            self.ack_now(active);
        }
        // On unordered connections only what has just been passed can be delivered: all else was, when it came.
        let mut passed = conn.base.is_ordered();
        if active.rx.unpassed != 0 && offset == 0 {
            passed |= self.pass_stored(conn, head.seq.next(), now, sink);
        }
        let active = &mut *conn.active;
        if active.rx.held != 0 && !active.holding && passed {
            self.deliver_held(conn, sink);
        } else if active.rx.held == 0 || !active.holding {
            active.rx.deliver = active.rx.next;
        }
        if conn.active.owes() {
            self.watch(conn, now);
        }
        Ok(())
    }

    /// A part of a bundle; what is whole by it is dealt with as if it had come so.
    #[cold]
    fn on_part(
        &mut self,
        conn: &mut ActiveConn<'_>,
        head: &Head,
        by: u8,
        body: &[u8],
        now: Time,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let Some((at, bytes)) = self.parts.add(head, body)? else { return Ok(()) };
        let whole = self.parts.take(at);
        let body = whole.get(..bytes).unwrap_or_default();
        let outcome = check(body).and_then(|holds| self.on_data(conn, head, by, (holds, body), now, sink));
        self.parts.give_back(at, whole);
        outcome
    }

    /// A bundle outside the window, or one that has come before.
    fn on_odd_bundle(&mut self, active: &mut Active, offset: u32) -> Result<(), PeerFault> {
        self.ack_now(active);
        if offset < active.rx.window() || offset > u32::MAX / 2 {
            //= wire.md R-ACK-3
            // A repeat is acknowledged too: the peer repeats because our acknowledgement was lost.
            self.counters.duplicates_received += 1;
            return Ok(());
        }
        Err(PeerFault::OutsideWindow)
    }

    //= wire.md R-ACK-7
    /// Delivers or stores a new bundle; false: neither, it has not come as far as the sender is concerned.
    fn take_in(
        &mut self,
        conn: &mut ActiveConn<'_>,
        head: &Head,
        body: &[u8],
        offset: u32,
        sink: &mut impl Sink,
    ) -> bool {
        let (key, token, ordered) = (conn.key(), conn.base.token, conn.base.is_ordered());
        let active = &mut *conn.active;
        let deliverable = if ordered { offset == 0 && active.rx.deliver == active.rx.next } else { true };
        let held_back = active.holding;
        let mut at = 0;
        if deliverable && !held_back {
            // Once the program has taken a part, the rest must be kept. A bundle of several records for which there
            // would be no buffer then is not begun; of one record there is no rest.
            let single = Messages::from(body, 0).nth(1).is_none();
            if single || (self.pool.any() && self.has_rx_ring(active)) {
                match self.deliver(active, key, token, body, 0, sink) {
                    Taken::All => return true,
                    Taken::UpTo(part) => at = part,
                }
            }
        }
        // What is sent does not count: a connection that sends in bulk must still take in what comes out of order.
        let fair = self.pool.fair(active.rx.held);
        //= wire.md R-RNR-7
        // What is stored behind a gap has been acknowledged for good. So the gap must not be refused: its sends could end
        // as not ready, and what is behind it would never be delivered.
        let gap = active.has_gap(ordered);
        if (at != 0 || fair || (gap && offset == 0))
            && self.has_rx_ring(active)
            && let Some(buf) = self.pool.take_reserved()
        {
            self.pool.store(buf, body, at);
            if let Some(ring) = active.rx_ring.as_mut() {
                *ring.at(head.seq) = buf;
            }
            active.rx.held += 1;
            if deliverable {
                self.hold(active);
            }
            return true;
        }
        self.counters.no_buffer_drops += 1;
        // Behind a gap there is no harm in a drop: the sender repeats it anyhow. Only a program that does not take
        // what could be delivered makes a receiver not ready.
        if (deliverable || held_back) && !gap {
            self.refuse(conn);
        }
        false
    }

    pub(super) fn has_rx_ring(&mut self, active: &mut Active) -> bool {
        if active.rx_ring.is_none() {
            active.rx_ring = self.rx_ring();
        }
        active.rx_ring.is_some()
    }

    pub(super) fn hold(&mut self, active: &mut Active) {
        if !active.holding {
            active.holding = true;
            self.holding.push_back(active.index);
        }
    }

    /// Gives the records from byte `at` on to the program, as far as it takes them.
    #[inline]
    fn deliver(
        &mut self,
        active: &mut Active,
        key: ConnKey,
        token: u64,
        body: &[u8],
        at: usize,
        sink: &mut impl Sink,
    ) -> Taken {
        let (taken, messages, bytes) = hand_over(key, token, body, at, sink);
        self.count_messages(active, messages, bytes);
        taken
    }

    pub(super) fn count_messages(&mut self, active: &mut Active, messages: u64, bytes: u64) {
        active.counters.messages_received += messages;
        active.counters.message_bytes_received += bytes;
        self.counters.messages_received += messages;
        self.counters.message_bytes_received += bytes;
    }

    /// Says receiver-not-ready to this sender.
    //= wire.md R-RNR-1
    pub(super) fn refuse(&mut self, conn: &mut ActiveConn<'_>) {
        let active = &mut *conn.active;
        active.refusing = true;
        conn.base.rx_epoch = conn.base.rx_epoch.wrapping_add(1);
        if !active.listed {
            active.listed = true;
            self.refused.push_back(active.index);
        }
        active.counters.rnr_sent += 1;
        self.counters.rnr_sent += 1;
        self.ack_now(active);
    }

    //= wire.md R-ORD-1
    /// Delivers what is held, as far as order and the program allow; true if the program took all it was offered.
    pub(super) fn deliver_held(&mut self, conn: &mut ActiveConn<'_>, sink: &mut impl Sink) -> bool {
        let (key, token, ordered) = (conn.key(), conn.base.token, conn.base.is_ordered());
        let active = &mut *conn.active;
        let Some(mut ring) = active.rx_ring.take() else { return true };
        let mut took_all = true;
        let mut seq = active.rx.deliver;
        let stop = if ordered { active.rx.next } else { active.rx.end };
        while seq != stop && active.rx.held != 0 {
            let buf = *ring.at(seq);
            // On unordered connections one may still wait for those before it.
            if buf.is_some() && (ordered || active.rx.unpassed == 0 || !self.is_unpassed(buf)) {
                let (body, at) = self.pool.stored(buf);
                let (taken, messages, bytes) = hand_over(key, token, body, at, sink);
                self.count_messages(active, messages, bytes);
                if let Taken::UpTo(at) = taken {
                    self.pool.delivered_to(buf, at);
                    took_all = false;
                    break;
                }
                *ring.at(seq) = Buf::NONE;
                self.pool.give_back(buf);
                active.rx.held -= 1;
            }
            seq = seq.next();
        }
        active.rx.settle(&ring);
        if active.rx.held == 0 {
            self.spare_rx_ring(Some(ring));
        } else {
            active.rx_ring = Some(ring);
        }
        if !took_all {
            self.hold(active);
        } else if let Some(reason) = active.untold.take() {
            sink.event(Event::Disconnected { conn: key, token, reason });
        }
        took_all
    }

    /// Each message at most once, and only if its number is not too old to tell.
    //= wire.md R-UU-1
    fn on_unreliable(&mut self, conn: &mut ActiveConn<'_>, head: &Head, body: &[u8], sink: &mut impl Sink) {
        let (key, token) = (conn.key(), conn.base.token);
        let active = &mut *conn.active;
        let rx = &mut active.rx;
        if head.seq.precedes(rx.end) {
            if head.seq.precedes(rx.deliver) || rx.has(head.seq) {
                self.counters.duplicates_received += 1;
                return;
            }
            self.counters.reordered_received += 1;
        } else {
            let skipped = head.seq.since(rx.end);
            if skipped >= SACK_BITS {
                rx.bits = Bits::default();
            } else {
                (0..skipped).for_each(|step| rx.bits.clear(rx.end.plus(step)));
            }
            rx.end = head.seq.next();
            rx.next = rx.end;
            if rx.end.since(rx.deliver) > SACK_BITS {
                rx.deliver = rx.end.plus(SACK_BITS.wrapping_neg());
            }
        }
        rx.bits.set(head.seq);
        active.counters.bundles_received += 1;
        self.counters.bundles_received += 1;
        let (mut messages, mut bytes) = (0, 0);
        for (message, _) in Messages::from(body, 0) {
            let Some(payload) = message else { continue };
            if sink.message(key, token, payload) {
                messages += 1;
                bytes += payload.len() as u64;
            } else {
                self.counters.unreliable_drops += 1;
            }
        }
        if messages != 0 {
            self.counters.count_useful();
        }
        self.count_messages(active, messages, bytes);
    }

    #[inline]
    pub(super) fn ack_now(&mut self, active: &mut Active) {
        active.wants |= want::ACK;
        if active.bond.is_none() {
            active.ack_due = Time::FAR;
        }
        self.enqueue(active);
    }

    /// In order: every second bundle, or when the delay is over.
    //= wire.md R-ACK-5
    #[inline]
    fn ack_soon(&mut self, active: &mut Active, by: u8, now: Time) {
        let waited = active.ack_pending != 0;
        active.ack_pending += 1;
        let pending = match active.bond.as_deref_mut() {
            None => active.ack_pending,
            Some(bond) => bond.one_pending(by),
        };
        if pending >= ACK_BUNDLES {
            self.ack_now(active);
        } else {
            let delay_ns = (active.path(by).rtt.smoothed_ns() / 4).clamp(ACK_DELAY_NS_MIN, ACK_DELAY_NS_MAX);
            let due = now.plus(delay_ns);
            // One that waits to be acknowledged by the other way must not wait longer for this one.
            active.ack_due = if waited { active.ack_due.min(due) } else { due };
        }
    }

    /// The peer asks for an answer.
    pub(super) fn on_probe(
        &mut self,
        conn: &mut ActiveConn<'_>,
        head: &Head,
        by: u8,
        now: Time,
        sink: &mut impl Sink,
    ) {
        let active = &mut *conn.active;
        active.path_mut(by).came(head.timestamp, now);
        active.ack_by(by, head);
        if active.refusing {
            self.deliver_held(conn, sink);
        }
        let (key, token) = (conn.key(), conn.base.token);
        let active = &mut *conn.active;
        let ready = active.refusing && active.rx.deliver == active.rx.next;
        if ready && sink.has_buffer_for(key, token) {
            active.refusing = false;
        }
        self.ack_now(active);
    }
}

impl Endpoint {
    /// Whether somebody waits for receive buffers.
    pub fn waits_for_buffers(&self) -> bool {
        !self.shared.holding.is_empty() || !self.shared.refused.is_empty()
    }

    /// Whether the last [`Endpoint::buffers_returned`] left some out, with whom the next one goes on.
    pub fn waits_for_a_turn(&self) -> bool {
        self.shared.is_feeding
    }

    /// Receive buffers came back: held messages are delivered, and senders that were told receiver-not-ready may go on, as
    /// far as there are buffers for them.
    pub fn buffers_returned(&mut self, now: Time, sink: &mut impl Sink) {
        self.shared.is_feeding = !self.feed(now, sink);
    }

    /// True if all who wait were looked at.
    fn feed(&mut self, now: Time, sink: &mut impl Sink) -> bool {
        let (holding, refused) = (self.shared.holding.len(), self.shared.refused.len());
        for _ in 0..holding.min(WAITING_PER_RETURN_MAX) {
            let Some(index) = self.shared.holding.pop_front() else { break };
            let Some(conn) = self.table.at_mut(index) else { continue };
            let Some(mut conn) = conn.awake().filter(|conn| conn.active.holding) else { continue };
            let (key, token) = (conn.key(), conn.base.token);
            if !sink.has_buffer_for(key, token) {
                // None is left that is its share; others may have theirs.
                self.shared.holding.push_back(index);
                continue;
            }
            conn.active.holding = false;
            conn.active.used_at = now;
            let took_all = self.shared.deliver_held(&mut conn, sink);
            self.shared.arm(conn.active);
            if !took_all && sink.has_buffer_for(key, token) {
                return false; // no more buffers, and nobody knows whose; the one that waits goes to the end of the queue
            }
        }
        //= wire.md R-RNR-4
        let mut told = 0;
        for _ in 0..refused.min(WAITING_PER_RETURN_MAX) {
            if told == READY_PER_RETURN_MAX {
                return false;
            }
            let Some(index) = self.shared.refused.pop_front() else { break };
            let Some(conn) = self.table.at_mut(index) else { continue };
            let Some(conn) = conn.awake().filter(|conn| conn.active.listed) else { continue };
            let (key, token) = (conn.key(), conn.base.token);
            let active = conn.active;
            if active.refusing && !sink.has_buffer_for(key, token) {
                self.shared.refused.push_back(index);
                continue;
            }
            active.listed = false;
            if active.refusing {
                active.refusing = false;
                active.used_at = now;
                self.shared.ack_now(active);
                told += 1;
            }
        }
        holding.max(refused) <= WAITING_PER_RETURN_MAX
    }
}
