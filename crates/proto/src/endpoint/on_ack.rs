//! An acknowledgement has come: what it completes, what it shows to be lost.

use super::shared::Shared;
use crate::conn::path::{FIRST, Path, SECOND};
use crate::conn::state::Input;
use crate::conn::{Active, ActiveConn};
use crate::limits::{RNR_PROBE_NS_MIN, SACK_BITS};
use crate::reliable::sends::SendId;
use crate::reliable::tx::{TxSlot, mark, weight};
use crate::wire::{Head, Sack, flags, timestamp, timestamp_ns_between};
use crate::{Attribute, Blocked, ConnState, PeerFault, Seq, Sink, Status, Time};

impl Shared {
    pub(super) fn on_ack(
        &mut self,
        conn: &mut ActiveConn<'_>,
        head: &Head,
        sack: &Sack,
        by: u8,
        now: Time,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let active = &mut *conn.active;
        let mut rtt_ns = timestamp_ns_between(head.echo, timestamp(now));
        if active.bond.is_some() && active.sample_way(by, head, rtt_ns, now) {
            rtt_ns = 0; // counted
        }
        //= wire.md R-ACK-4
        // By distance from the oldest, not by which precedes which: half the number space away is both or neither.
        let acked = head.ack.since(active.tx.unacked);
        if acked > active.tx.unsent.since(active.tx.unacked) {
            let overtaken = acked > u32::MAX / 2;
            return if overtaken { Ok(()) } else { Err(PeerFault::BadAck) };
        }
        let limited = [active.is_limited(FIRST), active.is_limited(SECOND)];
        let acked_bytes = self.take_acks(conn, head, sack, by, now, sink);
        let active = &mut *conn.active;
        if let Some(good) = active.size.take_good() {
            conn.base.datagram_bytes = conn.base.datagram_bytes.max(good.min(conn.base.bundle_bytes));
        }
        if acked_bytes != [0, 0] {
            self.counters.count_useful();
            for (which, (acked_bytes, limited)) in (FIRST..).zip(acked_bytes.into_iter().zip(limited)) {
                if acked_bytes != 0 {
                    let rtt_ns = if which == by { rtt_ns } else { 0 };
                    active.path_acked(which, now, acked_bytes, limited, rtt_ns);
                }
            }
            if active.tx.irregular {
                active.find_losses(now);
            }
            for which in active.ways() {
                if acked_bytes[usize::from(which)] != 0 {
                    active.path_mut(which).set_probe(now);
                }
            }
        }
        let outcome = self.on_epoch(conn, head, now);
        self.after_ack(conn);
        outcome
    }

    /// Takes in both acknowledgements, which came `by` this way; returns what the bundles that are new in them weigh, by
    /// the way they went.
    fn take_acks(
        &mut self,
        conn: &mut ActiveConn<'_>,
        head: &Head,
        sack: &Sack,
        by: u8,
        now: Time,
        sink: &mut impl Sink,
    ) -> [u32; 2] {
        let (key, token, attribute) = (conn.key(), conn.base.token, conn.base.attribute);
        let mut acked_bytes = [0; 2];
        let active = &mut *conn.active;
        let Some(mut ring) = active.tx_ring.take() else { return acked_bytes };
        while active.tx.unacked != head.ack {
            let seq = active.tx.unacked;
            let slot = ring.at(seq);
            if !slot.has(mark::ACKED) {
                acked_bytes[usize::from(slot.path & 1)] += active.acked(self, seq, slot, by, now);
            }
            let first = std::mem::replace(&mut slot.first, SendId::NONE);
            active.tx.sends -= self.complete(first, Status::Success, key, token, sink);
            active.tx.unacked = active.tx.unacked.next();
        }
        let bits = u32::from(sack.len) * 64;
        for bit in 1..bits.min(SACK_BITS) {
            let word = sack.words.get((bit / 64) as usize).copied().unwrap_or(0);
            let seq = head.ack.plus(bit);
            if !seq.precedes(active.tx.unsent) {
                break;
            }
            if word >> (bit % 64) & 1 == 0 || ring.get(seq).has(mark::ACKED) {
                continue;
            }
            let slot = ring.at(seq);
            acked_bytes[usize::from(slot.path & 1)] += active.acked(self, seq, slot, by, now);
            active.tx.irregular = true;
            //= wire.md R-ORD-2
            if attribute == Attribute::ReliableUnordered {
                let first = std::mem::replace(&mut slot.first, SendId::NONE);
                active.tx.sends -= self.complete(first, Status::Success, key, token, sink);
            }
        }
        active.tx_ring = Some(ring);
        acked_bytes
    }

    /// The peer's receiver-not-ready state.
    fn on_epoch(&mut self, conn: &mut ActiveConn<'_>, head: &Head, now: Time) -> Result<(), PeerFault> {
        let active = &mut *conn.active;
        let ahead = head.epoch_ack.wrapping_sub(conn.base.tx_epoch);
        if ahead > u16::MAX / 2 {
            return Ok(()); // said before what we know already
        }
        //= wire.md R-RNR-8
        let is_fault = ahead > 1 || (ahead == 1 && !active.may_be_refused(now));
        if ahead == 1 && !is_fault {
            //= wire.md R-RNR-3
            // Whatever was sent in an older epoch and is not acknowledged was refused, or will be when it arrives.
            conn.base.tx_epoch = head.epoch_ack;
            active.epoch_sent_at = Time::FAR;
            active.resend_all();
            for which in active.ways() {
                active.path_mut(which).window.on_receiver_not_ready(now);
            }
        }
        if !matches!(conn.base.state, ConnState::Up | ConnState::Lingering) {
            // Nothing is sent that could be refused.
            return if is_fault { Err(PeerFault::Unexpected) } else { Ok(()) };
        }
        if head.flags & flags::RNR != 0 {
            if !active.rnr {
                active.rnr = true;
                // What has waited too long, and had more time only because the receiver was ready again, ends now.
                if active.send_due != Time::FAR {
                    active.send_due = active.send_due.min(now);
                }
                active.blocked = Some(Blocked::ReceiverNotReady);
                active.step_ns = active.path.rtt.smoothed_ns().max(RNR_PROBE_NS_MIN);
                active.step_due = now.plus(active.step_ns);
                active.counters.rnr_received += 1;
                self.counters.rnr_received += 1;
                self.watch(conn, now);
            }
        } else if active.rnr {
            active.rnr = false;
            active.blocked = None;
            active.rnr_end = now;
            active.step_due = Time::FAR;
        }
        if is_fault { Err(PeerFault::Unexpected) } else { Ok(()) }
    }

    fn after_ack(&mut self, conn: &mut ActiveConn<'_>) {
        let active = &mut *conn.active;
        if active.tx.is_empty() {
            self.spare_tx_ring(active.tx_ring.take());
            active.stop_probing();
            if active.operations() == 0 {
                active.send_due = Time::FAR;
                if conn.base.state == ConnState::Lingering {
                    conn.base.enter(Input::Delivered);
                    return self.start_closing(conn);
                }
            }
            if active.has_rma_work() {
                self.enqueue(active);
            }
        } else if (active.tx.has_work() || active.has_rma_work()) && !active.rnr {
            self.enqueue(active);
        }
    }
}

impl Active {
    /// Whether the window of this way is what holds sending back.
    #[inline]
    fn is_limited(&self, which: u8) -> bool {
        let path = self.path(which);
        path.in_flight_bytes * 2 >= path.window.bytes()
    }

    /// Whether the peer can have refused something in the current epoch: a bundle has left in it, and had the time to get there
    /// and its refusal to come back. The least round trip is what the peer's echoes say, so half of it is taken.
    fn may_be_refused(&self, now: Time) -> bool {
        let trips_ns = self.ways().map(|which| self.path(which).rtt.min_ns());
        self.epoch_sent_at <= now && now.since(self.epoch_sent_at) >= trips_ns.min().unwrap_or(0) / 2
    }

    /// Nothing is under way that an acknowledgement could be asked for.
    pub(super) fn stop_probing(&mut self) {
        self.rack_due = Time::FAR;
        self.path.probe_due = Time::FAR;
        if let Some(bond) = self.bond.as_deref_mut() {
            bond.second.probe_due = Time::FAR;
        }
    }

    /// Bundles that went this way, and weigh so much, have been acknowledged. `rtt_ns` 0: by another way.
    fn path_acked(&mut self, which: u8, now: Time, acked_bytes: u32, limited: bool, rtt_ns: u64) {
        let limited = limited || self.blocked == Some(Blocked::Congestion);
        let alive = match self.bond.as_deref_mut() {
            Some(bond) => bond.way(which).note_delivered(),
            None => true,
        };
        let path = self.path_mut(which);
        if rtt_ns != 0 {
            path.rtt.sample(now, rtt_ns);
        }
        if alive {
            path.probes = 0;
        }
        path.window.on_ack(now, acked_bytes, limited, &path.rtt);
    }

    /// One bundle is acknowledged for the first time; returns what it weighs.
    fn acked(&mut self, shared: &mut Shared, seq: Seq, slot: &mut TxSlot, by: u8, now: Time) -> u32 {
        let bytes = weight(slot.body_bytes);
        let light_ns = self.light_ns(slot.path, by);
        let path = self.path_mut(slot.path);
        if slot.has(mark::IN_FLIGHT) {
            path.in_flight_bytes -= bytes;
        }
        //= wire.md R-LOSS-2
        // Sooner than light: the acknowledgement is for the first copy, and sending the second was needless.
        let needless = slot.has(mark::RESENT) && now.since(slot.sent_at) < light_ns;
        if needless {
            path.reorder_steps = (path.reorder_steps + 1).min(16);
        } else if slot.sent_at >= path.rack_at {
            path.rack_at = slot.sent_at;
            path.rack_rtt_ns = now.since(slot.sent_at);
        }
        if needless {
            self.counters.retransmissions_spurious += 1;
            shared.counters.retransmissions_spurious += 1;
        }
        if slot.has(mark::RESEND) {
            self.tx.resend -= 1;
        }
        if slot.has(mark::SIZE) {
            self.size.succeeded();
        } else if !needless && (slot.is_large() || slot.has(mark::PARTS) && slot.resends == 0) {
            self.size.large_arrived(slot.sent_at);
        }
        slot.marks = mark::ACKED;
        if slot.buf.is_some() {
            shared.pool.give_back(slot.buf);
            slot.buf = crate::pool::Buf::NONE;
            self.tx.bufs -= 1;
        } else if let Some(rma) = self.rma.as_deref_mut() {
            rma.release(&mut shared.ops, seq);
        }
        bytes
    }

    /// The least time in which what goes out by one way can be acknowledged by another.
    #[inline]
    fn light_ns(&self, out: u8, back: u8) -> u64 {
        let out_ns = self.path(out).rtt.min_ns();
        if out == back { out_ns } else { out_ns / 2 + self.path(back).rtt.min_ns() / 2 }
    }

    /// RACK (RFC 8985): a bundle is lost if one sent later, the same way, is acknowledged and a reordering window has
    /// passed.
    //= wire.md R-LOSS-1
    pub(super) fn find_losses(&mut self, now: Time) {
        let Some(mut ring) = self.tx_ring.take() else { return };
        let patience = |path: &Path| (path.rack_at, path.rack_rtt_ns + path.reorder_ns());
        let patience = [patience(self.path(FIRST)), patience(self.path(SECOND))];
        self.rack_due = Time::FAR;
        self.tx.irregular = false;
        let mut seq = self.tx.unacked;
        let mut lost: [(Option<Time>, u32); 2] = [(None, 0); 2];
        while seq != self.tx.unsent {
            let slot = ring.at(seq);
            seq = seq.next();
            self.tx.irregular |= slot.has(mark::ACKED | mark::RESENT | mark::RESEND);
            let which = usize::from(slot.path & 1);
            let (rack_at, patience_ns) = patience[which];
            if !slot.has(mark::IN_FLIGHT) || slot.sent_at > rack_at {
                continue;
            }
            let due = slot.sent_at.plus(patience_ns);
            if due <= now {
                self.take_back(slot);
                let (sent_at, bytes) = &mut lost[which];
                *bytes += weight(slot.body_bytes);
                *sent_at = (*sent_at).max(Some(slot.sent_at));
            } else {
                self.rack_due = self.rack_due.min(due);
            }
        }
        self.tx_ring = Some(ring);
        for (which, (sent_at, bytes)) in (FIRST..).zip(lost) {
            if let Some(sent_at) = sent_at {
                let path = self.path_mut(which);
                path.window.on_loss(now, sent_at, bytes, &path.rtt);
            }
        }
    }

    /// This bundle is not under way any more, and must be sent again.
    pub(super) fn take_back(&mut self, slot: &mut TxSlot) {
        if slot.has(mark::SIZE) {
            self.size.failed(slot.sent_at);
        } else if slot.is_large() || slot.has(mark::PARTS) {
            self.size.large_lost(slot.sent_at);
        }
        slot.marks = slot.marks & !(mark::IN_FLIGHT | mark::SIZE) | mark::RESEND;
        self.path_mut(slot.path).in_flight_bytes -= weight(slot.body_bytes);
        self.tx.resend += 1;
    }

    /// Everything sent and not acknowledged must be sent again, through no fault of the network's.
    pub(super) fn resend_all(&mut self) {
        let Some(mut ring) = self.tx_ring.take() else { return };
        let mut seq: Seq = self.tx.unacked;
        while seq != self.tx.unsent {
            let slot = ring.at(seq);
            seq = seq.next();
            if slot.has(mark::IN_FLIGHT) {
                self.take_back(slot);
                slot.resends = 0;
            }
        }
        self.size.none_lost();
        self.tx_ring = Some(ring);
        self.tx.irregular = true;
        self.stop_probing();
    }
}
