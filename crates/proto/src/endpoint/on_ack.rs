//! An acknowledgement has come: what it completes, what it shows to be lost.

use super::sends::SendId;
use super::shared::Shared;
use crate::conn::state::Input;
use crate::conn::{Active, Conn};
use crate::limits::{RNR_PROBE_NS_MIN, SACK_BITS};
use crate::reliable::tx::{TxSlot, mark, weight};
use crate::wire::{Head, Sack, flags, timestamp, timestamp_ns_between};
use crate::{Attribute, Blocked, ConnState, PeerFault, Seq, Sink, Status, Time};

impl Shared {
    pub(super) fn on_ack(
        &mut self,
        conn: &mut Conn,
        head: &Head,
        sack: &Sack,
        now: Time,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let Some(active) = conn.active.as_deref() else { return Ok(()) };
        //= wire.md R-ACK-4
        // By distance from the oldest, not by which precedes which: half the number space away is both or neither.
        let acked = head.ack.since(active.tx.unacked);
        if acked > active.tx.unsent.since(active.tx.unacked) {
            let overtaken = acked > u32::MAX / 2;
            return if overtaken { Ok(()) } else { Err(PeerFault::BadAck) };
        }
        let limited = active.tx.in_flight_bytes * 2 >= active.window.bytes();
        let acked_bytes = self.take_acks(conn, head, sack, now, sink);
        let Some(active) = conn.active.as_deref_mut() else { return Ok(()) };
        if acked_bytes != 0 {
            let rtt_ns = timestamp_ns_between(head.echo, timestamp(now));
            if rtt_ns != 0 {
                active.rtt.sample(now, rtt_ns);
            }
            active.probes = 0;
            active.window.on_ack(
                now,
                acked_bytes,
                limited || active.blocked == Some(Blocked::Congestion),
                &active.rtt,
            );
            if active.tx.irregular {
                active.find_losses(now);
            }
            active.set_probe(now);
        }
        self.on_epoch(conn, head, now);
        self.after_ack(conn, head.index);
        Ok(())
    }

    /// Takes in both acknowledgements; returns what the bundles that are new in them weigh.
    fn take_acks(
        &mut self,
        conn: &mut Conn,
        head: &Head,
        sack: &Sack,
        now: Time,
        sink: &mut impl Sink,
    ) -> u32 {
        let (key, token, attribute) = (conn.key(head.index), conn.token, conn.attribute);
        let Some(active) = conn.active.as_deref_mut() else { return 0 };
        let Some(mut ring) = active.tx_ring.take() else { return 0 };
        let mut acked_bytes = 0;
        while active.tx.unacked != head.ack {
            let seq = active.tx.unacked;
            let slot = ring.at(seq);
            if !slot.has(mark::ACKED) {
                acked_bytes += active.acked(self, seq, slot, now);
            }
            let first = std::mem::replace(&mut slot.first, SendId::NONE);
            self.complete(first, Status::Success, key, token, sink);
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
            acked_bytes += active.acked(self, seq, slot, now);
            active.tx.irregular = true;
            //= wire.md R-ORD-2
            if attribute == Attribute::ReliableUnordered {
                let first = std::mem::replace(&mut slot.first, SendId::NONE);
                self.complete(first, Status::Success, key, token, sink);
            }
        }
        active.tx_ring = Some(ring);
        acked_bytes
    }

    /// The peer's receiver-not-ready state.
    fn on_epoch(&mut self, conn: &mut Conn, head: &Head, now: Time) {
        let Some(active) = conn.active.as_deref_mut() else { return };
        let ahead = head.epoch_ack.wrapping_sub(conn.tx_epoch);
        if ahead > u16::MAX / 2 {
            return; // said before what we know already
        }
        if ahead != 0 {
            //= wire.md R-RNR-3
            // Whatever was sent in an older epoch and is not acknowledged was refused, or will be when it arrives.
            conn.tx_epoch = head.epoch_ack;
            active.resend_all();
        }
        if head.flags & flags::RNR != 0 {
            if !active.rnr {
                active.rnr = true;
                active.blocked = Some(Blocked::ReceiverNotReady);
                active.step_ns = active.rtt.smoothed_ns().max(RNR_PROBE_NS_MIN);
                active.step_due = now.plus(active.step_ns);
                active.counters.rnr_received += 1;
                self.counters.rnr_received += 1;
                active.window.on_receiver_not_ready(now);
            }
        } else if active.rnr {
            active.rnr = false;
            active.blocked = None;
            active.rnr_end = now;
            active.step_due = Time::FAR;
        }
    }

    fn after_ack(&mut self, conn: &mut Conn, index: u32) {
        let Some(active) = conn.active.as_deref_mut() else { return };
        if active.tx.is_empty() {
            self.spare_tx_ring(active.tx_ring.take());
            (active.probe_due, active.rack_due) = (Time::FAR, Time::FAR);
            if active.operations() == 0 {
                active.send_due = Time::FAR;
                if conn.state == ConnState::Lingering {
                    conn.enter(Input::Delivered);
                    return self.start_closing(conn, index);
                }
            }
            if active.has_rma_work() {
                self.enqueue(active, index);
            }
        } else if (active.tx.has_work() || active.has_rma_work()) && !active.rnr {
            self.enqueue(active, index);
        }
    }
}

impl Active {
    /// One bundle is acknowledged for the first time; returns what it weighs.
    fn acked(&mut self, shared: &mut Shared, seq: Seq, slot: &mut TxSlot, now: Time) -> u32 {
        let bytes = weight(slot.body_bytes);
        if slot.has(mark::IN_FLIGHT) {
            self.tx.in_flight_bytes -= bytes;
        }
        if slot.has(mark::RESEND) {
            self.tx.resend -= 1;
        }
        //= wire.md R-LOSS-2
        // Sooner than light: the acknowledgement is for the first copy, and sending the second was needless.
        if slot.has(mark::RESENT) && now.since(slot.sent_at) < self.rtt.min_ns() {
            self.counters.retransmissions_spurious += 1;
            shared.counters.retransmissions_spurious += 1;
            self.reorder_steps = (self.reorder_steps + 1).min(16);
        } else if slot.sent_at >= self.rack_at {
            self.rack_at = slot.sent_at;
            self.rack_rtt_ns = now.since(slot.sent_at);
        }
        slot.marks = mark::ACKED;
        if slot.buf.is_some() {
            shared.pool.give_back(slot.buf);
            slot.buf = super::pool::Buf::NONE;
            self.tx.bufs -= 1;
        } else if let Some(rma) = self.rma.as_deref_mut() {
            rma.release(&mut shared.ops, seq);
        }
        bytes
    }

    /// How much later than a bundle sent after it a bundle may be acknowledged without being taken for lost.
    fn reorder_ns(&self) -> u64 {
        let steps = u64::from(self.reorder_steps);
        (self.rtt.min_ns() / 4 + steps * self.rtt.variation_ns())
            .min(self.rtt.smoothed_ns() + 4 * self.rtt.variation_ns())
    }

    /// RACK (RFC 8985): a bundle is lost if one sent later is acknowledged and a reordering window has passed.
    //= wire.md R-LOSS-1
    pub(super) fn find_losses(&mut self, now: Time) {
        let reorder_ns = self.reorder_ns();
        let Some(ring) = self.tx_ring.as_mut() else { return };
        let patience_ns = self.rack_rtt_ns + reorder_ns;
        self.rack_due = Time::FAR;
        self.tx.irregular = false;
        let mut seq = self.tx.unacked;
        let (mut lost_sent_at, mut lost_bytes) = (None, 0);
        while seq != self.tx.unsent {
            let slot = ring.at(seq);
            seq = seq.next();
            self.tx.irregular |= slot.has(mark::ACKED | mark::RESENT | mark::RESEND);
            if !slot.has(mark::IN_FLIGHT) || slot.sent_at > self.rack_at {
                continue;
            }
            let due = slot.sent_at.plus(patience_ns);
            if due <= now {
                slot.marks = slot.marks & !mark::IN_FLIGHT | mark::RESEND;
                self.tx.in_flight_bytes -= weight(slot.body_bytes);
                self.tx.resend += 1;
                lost_bytes += weight(slot.body_bytes);
                lost_sent_at = lost_sent_at.max(Some(slot.sent_at));
            } else {
                self.rack_due = self.rack_due.min(due);
            }
        }
        if let Some(sent_at) = lost_sent_at {
            self.window.on_loss(now, sent_at, lost_bytes, &self.rtt);
        }
    }

    /// Everything sent and not acknowledged must be sent again, through no fault of the network's.
    pub(super) fn resend_all(&mut self) {
        let Some(ring) = self.tx_ring.as_mut() else { return };
        let mut seq: Seq = self.tx.unacked;
        while seq != self.tx.unsent {
            let slot = ring.at(seq);
            seq = seq.next();
            if slot.has(mark::IN_FLIGHT) {
                slot.marks = slot.marks & !mark::IN_FLIGHT | mark::RESEND;
                self.tx.in_flight_bytes -= weight(slot.body_bytes);
                self.tx.resend += 1;
            }
        }
        self.tx.irregular = true;
        (self.probe_due, self.rack_due) = (Time::FAR, Time::FAR);
    }

    /// When to ask for an acknowledgement that does not come.
    pub(super) fn set_probe(&mut self, now: Time) {
        self.probe_due =
            if self.tx.in_flight_bytes == 0 { Time::FAR } else { now.plus(self.rtt.probe_ns(self.probes)) };
    }
}
