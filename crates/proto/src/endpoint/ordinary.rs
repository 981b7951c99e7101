//! The ordinary datagram: the next bundle of a reliable and ordered connection, with one message, where nothing is lost, refused or held, no
//! operation is under way, and there is one path.
//!
//! Where messages go there and back one by one, every datagram is of this kind. A few comparisons show that, before anything is
//! changed, whether one is; every other one goes through the modules that can deal with anything. What is done here leaves the same state
//! as they do, and the same bytes: `tests/ordinary.rs` compares.

use super::Endpoint;
use super::connections::Connections;
use super::control::head;
use super::protocol::Protocol;
use super::receiving::{came, keep};
use super::shared::Shared;
use super::transfers::Transfers;
use crate::conn::path::FIRST;
use crate::conn::{Active, ActiveConn, want};
use crate::limits::{HEADER_BYTES, record_bytes};
use crate::reliable::sends::{Run, SendId, report};
use crate::reliable::tx::{TxSlot, mark, weight};
use crate::time::ticks;
use crate::wire::{
    BundleMessages, Head, Kind, Sack, flags, timestamp, timestamp_ns_between, write_only_record,
};
use crate::{Attribute, Blocked, BundleSummary, ConnKey, ConnState, Seq, Sink, Status, Time, Transmit};

/// Whether nothing is going on but messages by one path.
#[inline(always)]
fn is_plain(active: &Active) -> bool {
    !active.rnr && !active.refusing && active.rma.is_none() && active.paths.bond.is_none()
}

/// Whether bundle `seq` is the next one, and would be delivered at once.
#[inline(always)]
fn is_next(active: &Active, seq: Seq) -> bool {
    let rx = &active.rx;
    rx.next == seq && rx.end == seq && rx.deliver == seq && rx.held == 0 && !active.holding
}

/// Whether an acknowledgement up to `ack` is for nothing, or for the oldest bundle alone, which was sent once, as one datagram that every path
/// takes.
#[inline(always)]
fn is_plain_ack(active: &mut Active, ack: Seq) -> bool {
    let unacked = active.tx.unacked;
    if ack == unacked {
        return true;
    }
    let was_sent = ack == unacked.next() && unacked != active.tx.unsent && !active.tx.irregular;
    let Some(ring) = active.tx_ring.as_ref().filter(|_| was_sent) else { return false };
    let slot = ring.get(unacked);
    slot.marks == mark::IN_FLIGHT && slot.buf.is_some() && !slot.is_large()
}

impl Connections {
    /// Takes a datagram if it is an ordinary one; `None`: it is not, and nothing has been done. Otherwise as [`Endpoint::handle_datagram`].
    #[inline(always)]
    pub fn on_ordinary<'a>(
        &mut self,
        now: Time,
        from: crate::Address,
        datagram: &'a [u8],
        sink: &mut impl Sink,
    ) -> Option<BundleMessages<'a>> {
        let (head, body, payload) = Head::parse_ordinary(datagram)?;
        let Protocol { shared, sending, transfers, .. } = &mut self.protocol;
        let conn = self.table.at_mut(head.index)?;
        let base = &mut conn.base;
        //= wire.md R-CONN-1
        //= wire.md R-CONN-2
        let is_expected = base.generation == head.generation
            && base.nonce == head.nonce
            && base.peer_index == head.source_index
            && base.state == ConnState::Up
            && base.attribute == Attribute::ReliableOrdered
            && (base.rx_epoch, base.tx_epoch) == (head.epoch, head.epoch_ack)
            && base.peer == from
            && datagram.len() <= usize::from(shared.config.datagram_bytes_max);
        let active = conn.active.as_deref_mut().filter(|_| is_expected)?;
        if !is_plain(active) || !is_next(active, head.seq) || !is_plain_ack(active, head.ack) {
            return None;
        }
        base.peer_window_kib = head.window_kib;
        base.idle_window.note_heard();
        (active.heard_at, active.used_at) = (now, now);
        active.paths.first.came(head.timestamp, now);
        let (key, token) = (base.key(head.index), base.token);
        if head.ack != active.tx.unacked {
            let sent = acked(active, shared, &head, now);
            // Nearly always one run: a message, or a burst.
            if let Some((run, next)) = sending.sends.take(sent) {
                active.tx.sends -= run.count;
                report(&mut shared.counters, run, Status::Success, key, token, sink);
                if next != SendId::NONE {
                    active.tx.sends -=
                        sending.sends.complete(&mut shared.counters, next, Status::Success, key, token, sink);
                }
            }
        }
        if active.tx.is_empty() {
            if active.tx_ring.is_some() {
                shared.spare_tx_ring(active.tx_ring.take());
            }
            active.stop_probing();
            active.send_due = Time::FAR;
        } else if active.tx.has_work() {
            shared.enqueue(active);
        }
        let len = payload.len() as u32;
        let is_lent =
            sink.takes_bundle(key, token, BundleSummary { messages: 1, bytes: len, len_bound: len });
        if !is_lent && !sink.message(key, token, payload) {
            let mut conn = ActiveConn { base, active };
            on_untaken(shared, transfers, &mut conn, &head, body, now, sink);
            return Some(BundleMessages::default());
        }
        shared.count_messages(active, 1, len.into());
        let rx = &mut active.rx;
        rx.next = head.seq.next();
        (rx.end, rx.deliver) = (rx.next, rx.next);
        active.counters.bundles_received += 1;
        shared.counters.bundles_received += 1;
        shared.counters.count_useful();
        shared.ack_soon(active, FIRST, now);
        if active.tx.is_empty() {
            // Nothing else is due sooner than before.
            shared.timers.at_most(active.timer, active.ack_due);
        } else {
            shared.arm(active);
        }
        Some(BundleMessages::of(if is_lent { body } else { &[] }))
    }
}

/// The oldest bundle has been acknowledged for the first time; returns its sends.
#[inline(always)]
fn acked(active: &mut Active, shared: &mut Shared, head: &Head, now: Time) -> SendId {
    let Some(ring) = active.tx_ring.as_mut() else { return SendId::NONE };
    let slot = ring.at(active.tx.unacked);
    let path = &mut active.paths.first;
    let bytes = weight(slot.body_bytes);
    let is_limited =
        path.in_flight_bytes * 2 >= path.window.bytes() || active.blocked == Some(Blocked::Congestion);
    path.in_flight_bytes -= bytes;
    if slot.sent_at >= path.rack_at {
        (path.rack_at, path.rack_rtt_ns) = (slot.sent_at, now.since(slot.sent_at));
    }
    shared.pool.give_back(slot.buf);
    let first = slot.first;
    *slot = TxSlot { marks: mark::ACKED, buf: crate::pool::Buf::NONE, first: SendId::NONE, ..*slot };
    active.tx.bufs -= 1;
    active.tx.unacked = head.ack;
    let rtt_ns = timestamp_ns_between(head.echo, timestamp(now));
    if rtt_ns != 0 {
        path.rtt.sample(now, rtt_ns);
    }
    path.probes = 0;
    path.window.on_ack(now, bytes, is_limited, &path.rtt);
    path.set_probe(now);
    shared.counters.count_useful();
    first
}

/// The next bundle has come, and the program has no buffer for its message.
#[cold]
fn on_untaken(
    shared: &mut Shared,
    transfers: &mut Transfers,
    conn: &mut ActiveConn<'_>,
    head: &Head,
    body: &[u8],
    now: Time,
    sink: &mut impl Sink,
) {
    if keep(shared, conn, head.seq, (body, 0), (0, true)) {
        came(shared, transfers, conn, head, FIRST, (0, true), now, sink);
    }
    shared.arm(conn.active);
}

impl Endpoint {
    /// Writes a message to `out`, in a datagram of its own, if that is an ordinary one and nothing else of this endpoint waits to leave. False: it is not, and nothing has been
    /// done; [`Endpoint::send`] takes it. It is for messages on quiet connections ([`Endpoint::is_quiet`]), and spares
    /// [`Endpoint::poll_transmit`].
    #[inline]
    pub fn send_at_once(
        &mut self,
        now: Time,
        key: ConnKey,
        payload: &[u8],
        (context, silent): (u64, bool),
        out: &mut impl Transmit,
    ) -> bool {
        if self.wants_transmit() {
            return false;
        }
        let Connections { table, protocol, .. } = &mut self.connections;
        let Some(conn) = table.get_mut(key) else { return false };
        let base = &mut conn.base;
        let Some(active) = conn.active.as_deref_mut() else { return false };
        let body_bytes = record_bytes(payload.len());
        let len = HEADER_BYTES + body_bytes;
        let is_ordinary = base.state == ConnState::Up
            && base.attribute.is_reliable()
            && base.datagram_bytes == base.bundle_bytes
            && len <= usize::from(base.datagram_bytes)
            && is_plain(active)
            && active.tx.is_empty()
            && active.rx.end == active.rx.next
            && active.wants & !want::ACK == 0
            && active.paths.first.pace_due <= now
            && out.has_space();
        let Protocol { shared, sending, .. } = protocol;
        if !is_ordinary || sending.sends.is_full() {
            return false;
        }
        let Some(buffer) = out.begin(base.peer, len, false) else { return false };
        // What was begun and is not committed is forgotten.
        let Some(mut ring) = active.tx_ring.take().or_else(|| shared.tx_ring()) else { return false };
        let Some(buf) = shared.pool.take(0) else {
            active.tx_ring = Some(ring);
            return false;
        };
        let run = Run { context, silent, count: 1 };
        // There is an entry, as there may be more sends.
        let first = sending.sends.add(SendId::NONE, run, ticks(now.0)).unwrap_or(SendId::NONE);
        let seq = active.tx.next;
        *ring.at(seq) = TxSlot {
            sent_at: now,
            buf,
            first,
            last: first,
            body_bytes: body_bytes as u16,
            records: 1,
            epoch: base.tx_epoch,
            marks: mark::IN_FLIGHT,
            path: FIRST,
            ..TxSlot::EMPTY
        };
        active.tx_ring = Some(ring);
        active.tx.next = seq.next();
        active.tx.bufs += 1;
        active.tx.sends += 1;
        let window_kib = shared.window_kib();
        let (head_out, body_out) = buffer.split_at_mut(HEADER_BYTES);
        write_only_record(body_out, payload);
        shared.pool.get_mut(buf)[..body_bytes].copy_from_slice(body_out);
        let conn = ActiveConn { base, active };
        let mut head = head(&conn, Kind::Data, seq, window_kib, FIRST, now);
        let ActiveConn { base, active } = conn;
        if active.waits_after(FIRST, body_bytes as u16, base.peer_window_kib) {
            head.flags |= flags::PROBE;
        }
        head.emit(&Sack::default(), body_bytes, head_out);
        shared.committed(len, out);
        active.tx.unsent = active.tx.next;
        active.counters.bundles_sent += 1;
        shared.counters.bundles_sent += 1;
        (active.epoch_sent_at, active.used_at) = (active.epoch_sent_at.min(now), now);
        let path = &mut active.paths.first;
        let weight = weight(body_bytes as u16);
        path.in_flight_bytes += weight;
        path.probe_credit = path.probe_credit.saturating_sub(1);
        path.set_probe(now);
        path.pace(weight, now);
        active.blocked = None;
        active.ack_pending = 0;
        active.wants &= !want::ACK;
        active.send_due = now.plus(shared.send_timeout_ns(active.send_timeout_ms));
        let bytes = payload.len() as u64;
        active.counters.messages_sent += 1;
        active.counters.message_bytes_sent += bytes;
        shared.counters.messages_sent += 1;
        shared.counters.message_bytes_sent += bytes;
        // Nothing else is due sooner than before.
        shared.timers.at_most(active.timer, active.send_due.min(active.paths.first.probe_due));
        true
    }
}
