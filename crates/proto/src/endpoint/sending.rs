//! Messages are queued, and complete: when they are acknowledged, have left, or are given up.

use super::shared::Shared;
use super::transfers::Transfers;
use crate::conn::path::{FIRST, SECOND};
use crate::conn::state::Input;
use crate::conn::{Active, ActiveConn};
use crate::limits::{
    RECORDS_MAX, RMA_BUNDLES_RESERVED, RNR_PROBE_NS_MAX, RNR_PROBE_NS_MIN, SACK_BITS, WINDOW_BUNDLES_MAX,
    record_bytes,
};
use crate::operations::deadline::Deadline;
use crate::reliable::sends::{Run, SendId, Sends, report};
use crate::reliable::tx::{TxSlot, holds, mark};
use crate::time::{ns_since, ticks};
use crate::wire::{
    Head, Kind, Sack, flags, set_void, timestamp, timestamp_ns_between, write_record, write_records,
};
use crate::{Attribute, Blocked, ConnState, PeerFault, SendError, Seq, Sink, Status, Taken, Time};

/// What remains of a connection's sends after those that were refused for too long have ended.
pub(crate) enum Remaining {
    /// Some sends or operations still wait.
    Some,
    /// No sends wait, and no operations are under way.
    None,
    /// One has waited for so long, although the receiver says that it takes data, that the peer is taken for dead.
    FarPast,
}

/// Messages that are sent together.
pub(crate) struct Burst<'a> {
    pub messages: &'a [&'a [u8]],
    /// The longest that the connection takes.
    pub message_bytes_max: usize,
    pub context: u64,
    pub silent: bool,
}

/// What was sent and has not completed.
pub(crate) struct Sending {
    pub sends: Sends,
}

impl Sending {
    /// Writes the message into the open bundle, in which [`open_bundle`] has made sure of space.
    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "one datagram or message, and the parts of the protocol it touches"
    )]
    pub fn append(
        &mut self,
        active: &mut Active,
        shared: &mut Shared,
        now: Time,
        segments: &[&[u8]],
        len: usize,
        context: u64,
        silent: bool,
    ) -> Result<(), SendError> {
        let slot = self.enter(active, Run { context, silent, count: 1 }, now).ok_or(SendError::WouldBlock)?;
        let body = shared.pool.get_mut(slot.buf);
        let written = write_record(&mut body[usize::from(slot.body_bytes)..], segments, len);
        slot.body_bytes += written as u16;
        Ok(())
    }

    /// Remembers sends whose messages the open bundle gets.
    #[inline]
    fn enter<'a>(&mut self, active: &'a mut Active, run: Run, now: Time) -> Option<&'a mut TxSlot> {
        let slot = active.tx_ring.as_mut()?.at(active.tx.next.plus(u32::MAX));
        let id = self.sends.add(slot.last, run, ticks(now.0))?;
        if slot.first == SendId::NONE {
            slot.first = id;
        }
        slot.last = id;
        slot.records += run.count as u16;
        active.tx.sends += run.count;
        Some(slot)
    }

    /// Appends messages of a burst, from the first on, to the open bundle and to those that it begins, as far as there is space and none is
    /// longer than `message_bytes_max`. Those of one bundle are one run of sends.
    pub fn append_burst(
        &mut self,
        active: &mut Active,
        shared: &mut Shared,
        now: Time,
        burst: &Burst<'_>,
        body_bytes_max: usize,
    ) -> Taken {
        let mut taken = Taken::default();
        while let Some(rest @ [first, ..]) = burst.messages.get(taken.messages as usize..)
            && first.len() <= burst.message_bytes_max
            && open_bundle(active, shared, record_bytes(first.len()), body_bytes_max).is_ok()
        {
            let Some(slot) = active.tx_ring.as_ref().map(|ring| ring.get(active.tx.next.plus(u32::MAX)))
            else {
                break;
            };
            let rest = rest.get(..usize::from(RECORDS_MAX - slot.records)).unwrap_or(rest);
            let begin = usize::from(slot.body_bytes);
            // A message that the path no longer takes in one datagram has a bundle of its own, which leaves in parts.
            let end = body_bytes_max.max(begin + record_bytes(first.len()));
            let body = shared.pool.get_mut(slot.buf).get_mut(begin..end);
            let written = write_records(body.unwrap_or_default(), rest, burst.message_bytes_max);
            let run = Run { context: burst.context, silent: burst.silent, count: written.messages };
            // There is an entry, as no more messages are given than there may be sends.
            let Some(slot) = self.enter(active, run, now) else { break };
            slot.body_bytes += written.body_bytes as u16;
            taken.messages += written.messages;
            taken.bytes += written.payload_bytes as u64;
        }
        taken
    }

    /// How many more sends a connection may begin. Who holds more than is left for all others waits for its own (ADR 19): a receiver that
    /// takes nothing keeps nobody else from theirs. Without any it always may.
    #[inline]
    pub fn space_for(&self, active: &Active, is_alone: bool) -> u32 {
        let available = self.sends.available();
        if is_alone { available } else { available.saturating_sub(active.tx.sends).div_ceil(2) }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one datagram or message, and the parts of the protocol it touches"
    )]
    pub fn on_ack(
        &mut self,
        shared: &mut Shared,
        transfers: &mut Transfers,
        conn: &mut ActiveConn<'_>,
        head: &Head,
        sack: &Sack,
        by: u8,
        now: Time,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let active = &mut *conn.active;
        let echo_ns = timestamp_ns_between(head.echo, timestamp(now));
        let mut rtt_ns = echo_ns;
        if active.paths.bond.is_some() && active.paths.sample_path(by, head, rtt_ns, now) {
            rtt_ns = 0; // counted
        }
        //= wire.md R-ACK-4
        // By distance from the oldest, not by which precedes which: half the number space away is both or neither.
        let acked = head.ack.since(active.tx.unacked);
        if acked > active.tx.unsent.since(active.tx.unacked) {
            let overtaken = acked > u32::MAX / 2;
            return if overtaken { Ok(()) } else { Err(PeerFault::BadAck) };
        }
        let limited = [active.paths.is_limited(FIRST), active.paths.is_limited(SECOND)];
        let acked_bytes = self.take_acks(shared, transfers, conn, head, sack, by, now, sink);
        let active = &mut *conn.active;
        if let Some(good) = active.size.take_good() {
            conn.base.datagram_bytes = conn.base.datagram_bytes.max(good.min(conn.base.bundle_bytes));
        }
        if acked_bytes != [0, 0] {
            shared.counters.count_useful();
            for (which, (acked_bytes, limited)) in (FIRST..).zip(acked_bytes.into_iter().zip(limited)) {
                if acked_bytes != 0 {
                    let rtt_ns = if which == by { rtt_ns } else { 0 };
                    active.path_acked(which, now, acked_bytes, limited, rtt_ns);
                }
            }
            if active.tx.irregular {
                active.find_losses(now);
            }
            for which in active.paths.all() {
                if acked_bytes[usize::from(which)] != 0 {
                    active.paths.get_mut(which).set_probe(now);
                }
            }
        } else if head.kind == Kind::Ack && active.paths.get_mut(by).take_answer(echo_ns, now) {
            active.find_losses(now);
            active.paths.get_mut(by).set_probe(now);
        }
        let outcome = on_epoch(shared, conn, head, now);
        after_ack(shared, conn);
        outcome
    }

    /// Takes in both acknowledgements, which came `by` this path; returns what the bundles that are new in them weigh, by
    /// the path that they went by.
    #[expect(
        clippy::too_many_arguments,
        reason = "one datagram or message, and the parts of the protocol it touches"
    )]
    fn take_acks(
        &mut self,
        shared: &mut Shared,
        transfers: &mut Transfers,
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
                acked_bytes[usize::from(slot.path & 1)] += active.acked(
                    (&mut shared.counters, &mut shared.pool, &mut transfers.operations),
                    seq,
                    slot,
                    by,
                    now,
                );
            }
            let first = std::mem::replace(&mut slot.first, SendId::NONE);
            active.tx.sends -=
                self.sends.complete(&mut shared.counters, first, Status::Success, key, token, sink);
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
            acked_bytes[usize::from(slot.path & 1)] += active.acked(
                (&mut shared.counters, &mut shared.pool, &mut transfers.operations),
                seq,
                slot,
                by,
                now,
            );
            active.tx.irregular = true;
            //= wire.md R-ORD-2
            if attribute == Attribute::ReliableUnordered {
                let first = std::mem::replace(&mut slot.first, SendId::NONE);
                active.tx.sends -=
                    self.sends.complete(&mut shared.counters, first, Status::Success, key, token, sink);
            }
        }
        active.tx_ring = Some(ring);
        acked_bytes
    }

    /// An unreliable bundle has left: its sends complete, as more was not promised.
    //= wire.md R-UU-2
    pub fn complete_unreliable(
        &mut self,
        shared: &mut Shared,
        conn: &mut ActiveConn<'_>,
        seq: Seq,
        sink: &mut impl Sink,
    ) {
        let (key, token) = (conn.key(), conn.base.token);
        let active = &mut *conn.active;
        let Some(ring) = active.tx_ring.as_mut() else { return };
        let slot = std::mem::replace(ring.at(seq), TxSlot::EMPTY);
        shared.pool.give_back(slot.buf);
        active.tx.bufs -= 1;
        active.paths.first.in_flight_bytes = 0;
        active.tx.unacked = seq.next();
        active.paths.first.probe_due = Time::FAR;
        active.tx.sends -=
            self.sends.complete(&mut shared.counters, slot.first, Status::Success, key, token, sink);
        if active.tx.is_empty() {
            shared.spare_tx_ring(active.tx_ring.take());
            active.send_due = Time::FAR;
            if conn.base.state == ConnState::Lingering {
                conn.base.enter(crate::conn::state::Input::Delivered);
                shared.start_closing(conn);
            }
        }
    }

    pub fn empty_window(
        &mut self,
        shared: &mut Shared,
        transfers: &mut Transfers,
        conn: &mut ActiveConn<'_>,
        status: Status,
        sink: &mut impl Sink,
    ) {
        let (key, token) = (conn.key(), conn.base.token);
        let active = &mut *conn.active;
        let Some(mut ring) = active.tx_ring.take() else { return };
        while active.tx.unacked != active.tx.next {
            let seq = active.tx.unacked;
            let slot = std::mem::replace(ring.at(seq), TxSlot::EMPTY);
            if slot.buf.is_some() {
                shared.pool.give_back(slot.buf);
            }
            if slot.holds & holds::BULK != 0
                && let Some(rma) = active.rma.as_deref_mut()
            {
                rma.release(&mut transfers.operations, seq);
            }
            self.sends.complete(&mut shared.counters, slot.first, status, key, token, sink);
            active.tx.unacked = seq.next();
        }
        active.tx = crate::reliable::tx::Tx::new(active.tx.next);
        for which in active.paths.all() {
            active.paths.get_mut(which).in_flight_bytes = 0;
        }
        shared.spare_tx_ring(Some(ring));
    }

    /// The receiver refused for too long: sends that are old enough end, and are taken out of their bundles, so
    /// that they can never be delivered after their sender got an event that they were not.
    pub fn give_up_refused(
        &mut self,
        shared: &mut Shared,
        transfers: &mut Transfers,
        conn: &mut ActiveConn<'_>,
        deadline: Deadline,
        now: Time,
        sink: &mut impl Sink,
    ) -> Remaining {
        let (key, token, epoch) = (conn.key(), conn.base.token, conn.base.tx_epoch);
        let timeout_ns = deadline.timeout_ns;
        let active = &mut *conn.active;
        let Some(mut ring) = active.tx_ring.take() else { return Remaining::Some };
        let mut seq = active.tx.unacked;
        let (mut remaining, mut far_past) = (false, false);
        while seq != active.tx.next {
            let was_sent = seq.precedes(active.tx.unsent);
            let slot = ring.at(seq);
            seq = seq.next();
            if slot.has(mark::ACKED) && !remaining {
                // Stored behind a gap that is being given up: it will be delivered, and nothing before it is open.
                let first = std::mem::replace(&mut slot.first, SendId::NONE);
                active.tx.sends -=
                    self.sends.complete(&mut shared.counters, first, Status::Success, key, token, sink);
                continue;
            }
            // What was sent in the epoch in which the receiver takes data may have been taken.
            if slot.has(mark::ACKED) || (was_sent && slot.epoch == epoch) {
                if let Some(queued) = self.sends.queued_ticks(slot.first) {
                    remaining = true;
                    far_past |= deadline.is_far_past(ns_since(queued, now.0));
                }
                continue;
            }
            while let Some(queued) = self.sends.queued_ticks(slot.first)
                && ns_since(queued, now.0) >= timeout_ns
            {
                let Some((run, next)) = self.sends.take(slot.first) else { break };
                active.tx.sends -= run.count;
                slot.first = next;
                report(&mut shared.counters, run, Status::ReceiverNotReady, key, token, sink);
            }
            if slot.first == SendId::NONE {
                slot.last = SendId::NONE;
            }
            remaining |= slot.first != SendId::NONE;
            if !slot.buf.is_some() {
                continue;
            }
            let still = self.sends.count(slot.first);
            set_void(&mut shared.pool.get_mut(slot.buf)[..usize::from(slot.body_bytes)], still);
            let slot = *slot;
            transfers.give_up_notifications(shared, active, (key, token), &slot, timeout_ns, now, sink);
        }
        active.tx_ring = Some(ring);
        if far_past {
            return Remaining::FarPast;
        }
        remaining |= active.operations() != 0;
        let (send_ns, record_ns) = active.oldest_ns(&self.sends, now);
        let oldest_ns = send_ns.max(record_ns).unwrap_or(0);
        active.send_due =
            Time(now.0.saturating_sub(oldest_ns)).plus(timeout_ns).max(now.plus(RNR_PROBE_NS_MAX));
        if remaining { Remaining::Some } else { Remaining::None }
    }
}

/// Makes sure the open bundle takes a record of `record_bytes`.
#[inline]
pub(super) fn open_bundle(
    active: &mut Active,
    shared: &mut Shared,
    record_bytes: usize,
    body_bytes_max: usize,
) -> Result<(), SendError> {
    if active.tx_ring.is_none() {
        active.tx_ring = shared.tx_ring();
    }
    let Some(ring) = active.tx_ring.as_ref() else { return Err(SendError::WouldBlock) };
    if active.tx.open {
        let slot = ring.get(active.tx.next.plus(u32::MAX));
        if usize::from(slot.body_bytes) + record_bytes <= body_bytes_max && slot.records < RECORDS_MAX {
            return Ok(());
        }
    }
    // A flood of messages leaves some of the window to remote memory access.
    let slots = WINDOW_BUNDLES_MAX - active.tx.len();
    if slots == 0 || (slots <= RMA_BUNDLES_RESERVED && active.has_rma_work()) {
        active.blocked.get_or_insert(Blocked::Window);
        return Err(SendError::WouldBlock);
    }
    // What is held for reception does not count: if it did, a gap that a dead peer never fills would keep us from sending
    // the message by which we miss the peer.
    let Some(buf) = shared.pool.take(active.tx.bufs) else {
        active.blocked.get_or_insert(Blocked::Pool);
        return Err(SendError::WouldBlock);
    };
    active.tx.bufs += 1;
    let Some(ring) = active.tx_ring.as_mut() else { return Err(SendError::WouldBlock) };
    *ring.at(active.tx.next) = TxSlot { buf, ..TxSlot::EMPTY };
    active.tx.next = active.tx.next.next();
    active.tx.open = true;
    Ok(())
}

/// Takes in the peer's receiver-not-ready state from a header.
fn on_epoch(shared: &mut Shared, conn: &mut ActiveConn<'_>, head: &Head, now: Time) -> Result<(), PeerFault> {
    let active = &mut *conn.active;
    let ahead = head.epoch_ack.wrapping_sub(conn.base.tx_epoch);
    if ahead > u16::MAX / 2 {
        return Ok(()); // older than what we know already
    }
    //= wire.md R-RNR-8
    let is_fault = ahead > 1 || (ahead == 1 && !active.may_be_refused(now));
    if ahead == 1 && !is_fault {
        //= wire.md R-RNR-3
        // Whatever was sent in an older epoch and is not acknowledged was refused, or will be when it arrives.
        conn.base.tx_epoch = head.epoch_ack;
        active.epoch_sent_at = Time::FAR;
        active.resend_all();
        for which in active.paths.all() {
            active.paths.get_mut(which).window.on_receiver_not_ready(now);
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
            active.step_ns = active.paths.first.rtt.smoothed_ns().max(RNR_PROBE_NS_MIN);
            active.step_due = now.plus(active.step_ns);
            active.counters.rnr_received += 1;
            shared.counters.rnr_received += 1;
            shared.watch(conn, now);
        }
    } else if active.rnr {
        active.rnr = false;
        active.blocked = None;
        active.rnr_end = now;
        active.step_due = Time::FAR;
    }
    if is_fault { Err(PeerFault::Unexpected) } else { Ok(()) }
}

/// An acknowledgement has been taken in: what it frees is given back, and more may be sent.
pub(super) fn after_ack(shared: &mut Shared, conn: &mut ActiveConn<'_>) {
    let active = &mut *conn.active;
    if active.tx.is_empty() {
        shared.spare_tx_ring(active.tx_ring.take());
        active.stop_probing();
        if active.operations() == 0 {
            active.send_due = Time::FAR;
            if conn.base.state == ConnState::Lingering {
                conn.base.enter(Input::Delivered);
                return shared.start_closing(conn);
            }
        }
        if active.has_rma_work() {
            shared.enqueue(active);
        }
    } else if (active.tx.has_work() || active.has_rma_work()) && !active.rnr {
        shared.enqueue(active);
    }
}
