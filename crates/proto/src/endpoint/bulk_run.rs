//! Runs of bulk bundles: data of one operation that leave one behind the other in a loop, where nothing else of the connection is to be sent and
//! nothing was lost.
//!
//! Where a long operation is under way, nearly all bundles are of this kind. What is done here leaves the same state as
//! [`Pump`](super::pump::Pump) and [`Transmitter`](super::transmitter::Transmitter) do, and the same bytes: `tests/ordinary.rs` compares. They make and send the
//! first bundle of an operation and its last, and all that there is trouble with.

use super::control::{acked_now, head};
use super::shared::Shared;
use super::transfers::Transfers;
use crate::conn::path::FIRST;
use crate::conn::{Active, ActiveConn};
use crate::limits::{HEADER_BYTES, MESSAGE_BUNDLES_RESERVED, WINDOW_BUNDLES_MAX};
use crate::operations::state::{Bulk, Rma};
use crate::operations::table::{NodeId, OpId, OpKind, Ops};
use crate::reliable::tx::{TxSlot, holds, mark, weight};
use crate::rma::{DATA_HEAD_BYTES, WRITE_HEAD_BYTES, emit_data_head, emit_write_head};
use crate::time::ticks;
use crate::wire::{Kind, Sack, flags};
use crate::{ConnKey, ConnState, RemoteAddress, RmaSegment, Sink, Time, Transmit};

/// Where the data of a run come from.
enum Source {
    /// A write of ours, of which more than one bundle is left.
    Write { slot: u8, op: OpId, node: NodeId, segment: RmaSegment, offset: u64 },
    /// A read of the peer's, to which more than one bundle is still to be sent.
    Data { slot: u8, at: RemoteAddress, offset: u32, end: u32 },
}

impl Source {
    /// What nothing else comes before, if it fills a bundle with a body of `body_bytes_max`, and more.
    fn of(rma: &Rma, ops: &Ops, body_bytes_max: usize) -> Option<Source> {
        if rma.dones.first().is_some() || rma.owed != 0 || rma.notify.head != OpId::NONE {
            return None;
        }
        let source = match rma.reads.first() {
            None => {
                let id = rma.queue.head;
                let op = ops.get(id).filter(|op| op.kind == OpKind::Write && !op.fence && !op.over)?;
                if op.segments_remaining == 0 {
                    return None;
                }
                let (slot, segment) = (op.slot?, ops.segment(op.segment)?);
                Source::Write { slot, op: id, node: op.segment, segment, offset: op.offset }
            }
            Some(slot) if rma.queue.head == OpId::NONE => {
                let job = rma.jobs.get(usize::from(slot))?;
                Source::Data { slot, at: job.at, offset: job.sent, end: job.len }
            }
            // They take turns.
            Some(_) => return None,
        };
        (source.remaining() > source.data_bytes(body_bytes_max) as u64).then_some(source)
    }

    fn head_bytes(&self) -> usize {
        match self {
            Source::Write { .. } => WRITE_HEAD_BYTES,
            Source::Data { .. } => DATA_HEAD_BYTES,
        }
    }

    /// Bytes of data in a full bundle.
    fn data_bytes(&self, body_bytes_max: usize) -> usize {
        body_bytes_max - self.head_bytes()
    }

    /// Bytes that no bundle was made of.
    fn remaining(&self) -> u64 {
        match self {
            Source::Write { segment, offset, .. } => segment.len_bytes - offset,
            Source::Data { offset, end, .. } => u64::from(end - offset),
        }
    }

    /// What the bundle with the next `bytes` bytes is made of.
    fn bulk(&self, bytes: u16) -> Bulk {
        match *self {
            Source::Write { slot, op, node, offset, .. } => {
                Bulk::Write { slot, last: false, bytes, op, node, offset }
            }
            Source::Data { slot, at, offset, .. } => {
                Bulk::Data { slot, bytes, offset, at: at.plus(offset.into()) }
            }
        }
    }

    /// Writes the body with the next `len` bytes; `None`: the memory is gone.
    fn write(
        &self,
        len: usize,
        (key, token): (ConnKey, u64),
        body: &mut [u8],
        sink: &mut impl Sink,
    ) -> Option<()> {
        match *self {
            Source::Write { slot, segment, offset, .. } => {
                emit_write_head(slot.into(), segment.remote.plus(offset), false, len, body)?;
                let data = body.get_mut(WRITE_HEAD_BYTES..WRITE_HEAD_BYTES + len)?;
                sink.local_read(segment.local.plus(offset), data).then_some(())
            }
            Source::Data { slot, at, offset, .. } => {
                emit_data_head(slot.into(), offset.into(), len, body)?;
                let data = body.get_mut(DATA_HEAD_BYTES..DATA_HEAD_BYTES + len)?;
                sink.peer_read_ahead(key, token, at.plus(offset.into()), data, self.remaining()).ok()
            }
        }
    }

    /// The next `bytes` bytes have left.
    fn advance(&mut self, bytes: u16) {
        match self {
            Source::Write { offset, .. } => *offset += u64::from(bytes),
            Source::Data { offset, .. } => *offset += u32::from(bytes),
        }
    }

    /// Bundles with `bundles` times `bytes` bytes have left: the operation goes on behind them.
    fn settle(&self, rma: &mut Rma, ops: &mut Ops, bundles: u32, bytes: u16, now: Time) {
        let now_ticks = ticks(now.0);
        let total_bytes = u64::from(bundles) * u64::from(bytes);
        match *self {
            Source::Write { slot, op, .. } => {
                ops.advance(op, total_bytes);
                if let Some(op) = ops.get_mut(op) {
                    op.bundles += bundles as u16;
                }
                for _ in 0..bundles {
                    rma.progress.note(bytes.into(), now_ticks);
                }
                if let Some(slot) = rma.slots.get_mut(usize::from(slot)) {
                    slot.issued_ticks = now_ticks;
                }
                rma.data_turn = true;
            }
            Source::Data { slot, .. } => {
                if let Some(job) = rma.jobs.get_mut(usize::from(slot)) {
                    job.sent += total_bytes as u32;
                }
                rma.data_turn = false;
            }
        }
        rma.retry_ns = 0;
    }
}

/// Whether all that was made has left, as it was, and nothing but data is to be sent.
fn is_plain(conn: &ActiveConn<'_>) -> bool {
    let ActiveConn { base, active } = conn;
    base.state == ConnState::Up
        && base.attribute.is_reliable()
        && base.datagram_bytes == base.bundle_bytes
        && active.tx.resend == 0
        && active.tx.unsent == active.tx.next
        && active.rx.end == active.rx.next
        && active.paths.bond.is_none()
        && active.paths.first.probe_credit == 0
}

/// Whether the windows and the pace take one more bundle now.
fn has_space(active: &Active, rma: &Rma, bytes: u32, peer_window_kib: u16, now: Time) -> bool {
    let set = WINDOW_BUNDLES_MAX - active.tx.len();
    set > MESSAGE_BUNDLES_RESERVED
        && rma.unsent == 0
        && active.held_back(FIRST, bytes, peer_window_kib, now).is_none()
}

impl Transfers {
    /// Sends up to `max` bundles of bulk data, if nothing else is to be sent, and returns how many.
    #[inline(never)]
    pub fn send_run(
        &mut self,
        shared: &mut Shared,
        conn: &mut ActiveConn<'_>,
        max: u32,
        now: Time,
        out: &mut impl Transmit,
        sink: &mut impl Sink,
    ) -> u32 {
        #[cfg(test)]
        if self.only_long {
            return 0;
        }
        let body_bytes_max = usize::from(conn.base.datagram_bytes) - HEADER_BYTES;
        if !is_plain(conn) || conn.active.tx_ring.is_none() {
            return 0;
        }
        let Some(mut rma) = conn.active.rma.take() else { return 0 };
        let sent = match Source::of(&rma, &self.operations, body_bytes_max) {
            Some(mut source) => {
                let data_bytes = source.data_bytes(body_bytes_max) as u16;
                let sent = send_all(&mut source, data_bytes, max, shared, conn, &mut rma, now, out, sink);
                if sent != 0 {
                    source.settle(&mut rma, &mut self.operations, sent, data_bytes, now);
                }
                sent
            }
            None => 0,
        };
        conn.active.rma = Some(rma);
        sent
    }
}

/// Sends up to `max` bundles with `data_bytes` bytes of data each, and returns how many.
#[expect(clippy::too_many_arguments, reason = "a run of datagrams, and the parts of the protocol it touches")]
fn send_all(
    source: &mut Source,
    data_bytes: u16,
    max: u32,
    shared: &mut Shared,
    conn: &mut ActiveConn<'_>,
    rma: &mut Rma,
    now: Time,
    out: &mut impl Transmit,
    sink: &mut impl Sink,
) -> u32 {
    let (key, token, to) = (conn.key(), conn.base.token, conn.base.peer);
    let (epoch, peer_window_kib) = (conn.base.tx_epoch, conn.base.peer_window_kib);
    let data_len = usize::from(data_bytes);
    let body_bytes = source.head_bytes() + data_len.next_multiple_of(8);
    let (len, bytes) = (HEADER_BYTES + body_bytes, weight(body_bytes as u16));
    let mut head = head(conn, Kind::Data, conn.active.tx.next, shared.window_kib(), FIRST, now);
    let head_flags = head.flags;
    let timeout_ns = shared.send_timeout_ns(conn.active.send_timeout_ms);
    let mut sent = 0;
    // The last bundle is not a full one.
    while sent < max
        && source.remaining() > u64::from(data_bytes)
        && has_space(conn.active, rma, bytes, peer_window_kib, now)
        && out.has_space()
    {
        let Some(buffer) = out.begin(to, len, false) else { break };
        // What was begun and is not committed is forgotten.
        if source.write(data_len, (key, token), &mut buffer[HEADER_BYTES..len], sink).is_none() {
            break;
        }
        let active = &mut *conn.active;
        let seq = active.tx.next;
        let asks = active.waits_after(FIRST, body_bytes as u16, peer_window_kib);
        (head.seq, head.flags) = (seq, head_flags | if asks { flags::PROBE } else { 0 });
        head.emit(&Sack::default(), body_bytes, buffer);
        shared.committed(len, out);
        let Some(ring) = active.tx_ring.as_mut() else { break };
        *ring.at(seq) = TxSlot {
            sent_at: now,
            body_bytes: body_bytes as u16,
            records: 1,
            epoch,
            marks: mark::IN_FLIGHT,
            holds: holds::PUMPED | holds::RMA | holds::BULK,
            path: FIRST,
            ..TxSlot::EMPTY
        };
        rma.set_bulk(seq, source.bulk(data_bytes));
        rma.set_since(seq, ticks(now.0));
        (active.tx.next, active.tx.unsent) = (seq.next(), seq.next());
        let path = &mut active.paths.first;
        path.in_flight_bytes += bytes;
        if path.probe_due == Time::FAR {
            path.set_probe(now);
        }
        path.pace(bytes, now);
        source.advance(data_bytes);
        sent += 1;
    }
    if sent != 0 {
        acked_now(conn, FIRST);
        let active = &mut *conn.active;
        active.tx.open = false;
        (active.epoch_sent_at, active.used_at) = (active.epoch_sent_at.min(now), now);
        active.blocked = None;
        if active.send_due == Time::FAR {
            active.send_due = now.plus(timeout_ns);
        }
        active.counters.bundles_sent += u64::from(sent);
        shared.counters.bundles_sent += u64::from(sent);
        shared.counters.rma_bytes_sent += u64::from(sent) * u64::from(data_bytes);
    }
    sent
}
