//! Records are made of what waits, as space in bundles comes: answers first, then data and our own operations in turn.

use super::shared::Shared;
use crate::conn::Active;
use crate::limits::{
    MESSAGE_BUNDLES_RESERVED, RECORD_BYTES, RECORDS_MAX, RMA_BUNDLES_RESERVED, RMA_READ_BYTES_MAX,
    WINDOW_BUNDLES_MAX, record_bytes,
};
use crate::operations::exchange::Exchange;
use crate::operations::state::{Bulk, Rma, Slot, Use};
use crate::operations::table::{Op, OpId, OpKind, Ops, Stage};
use crate::reliable::tx::{TxSlot, holds};
use crate::rma::{DATA_HEAD_BYTES, Record, WRITE_HEAD_BYTES, emit_data_head, emit_write_head};
use crate::time::ticks;
use crate::{Blocked, ConnKey, Sink, Status, Time};

/// What is bigger than this, or than half a datagram, has a datagram of its own, which spares a copy.
const SMALL_BYTES_MAX: usize = 4096;

/// The first and the longest wait before a packet buffer is looked for again.
const RETRY_NS_MIN: u64 = 200_000;
const RETRY_NS_MAX: u64 = 10_000_000;

/// What came of an attempt to make a record.
enum Step {
    /// A record is made; more may fit.
    Made,
    /// There is nothing of this sort to make, or it must wait for an answer.
    Nothing,
    /// A record with a bundle of its own is made: it leaves before anything else is made.
    Full,
    /// No more now: what has been made must leave first, or something is lacking.
    Stop(Option<Blocked>),
}

/// What makes records of one connection, in its turn to send.
pub(super) struct Pump<'a> {
    pub shared: &'a mut Shared,
    pub ops: &'a mut Ops,
    pub active: &'a mut Active,
    pub rma: &'a mut Rma,
    pub key: ConnKey,
    pub token: u64,
    pub now: Time,
    pub body_bytes_max: usize,
    /// A bundle has been begun in this turn.
    pub begun: bool,
}

impl Pump<'_> {
    pub fn fill(&mut self, sink: &mut impl Sink) -> Option<Blocked> {
        loop {
            let mut step = self.put_answers();
            if let Step::Nothing = step {
                step = self.put_notification();
            }
            // Answers to the peer's reads and our own operations take turns.
            for _ in 0..2 {
                if let Step::Nothing = step {
                    step = if self.rma.data_turn { self.put_data(sink) } else { self.put_operation(sink) };
                    if !matches!(step, Step::Stop(_)) {
                        self.rma.data_turn = !self.rma.data_turn;
                    }
                }
            }
            match step {
                Step::Made => {}
                Step::Nothing | Step::Full => return None,
                Step::Stop(blocked) => return blocked,
            }
        }
    }

    /// Makes sure that a bundle takes `bytes` more: `None` if so.
    fn lacks(&mut self, bytes: usize) -> Option<Step> {
        if self.active.tx.open
            && let Some(ring) = self.active.tx_ring.as_ref()
        {
            let slot = ring.get(self.active.tx.next.plus(u32::MAX));
            let filled = usize::from(slot.body_bytes);
            if slot.records < RECORDS_MAX && (filled == 0 || filled + bytes <= self.body_bytes_max) {
                return None;
            }
        }
        if let Some(step) = self.lacks_slot() {
            return Some(step);
        }
        // What is held for the program does not count: a program that takes no messages must not keep the peer from
        // learning what has been done.
        let Some(buf) = self.shared.pool.take(self.active.tx.bufs) else { return Some(self.retry()) };
        self.active.tx.bufs += 1;
        self.begin(TxSlot { buf, holds: holds::PUMPED, ..TxSlot::EMPTY });
        self.active.tx.open = true;
        None
    }

    /// Makes sure that the window takes one more bundle: `None` if so.
    fn lacks_slot(&mut self) -> Option<Step> {
        let behind = self.active.tx.unsent != self.active.tx.next;
        if self.begun || (behind && self.rma.unsent >= RMA_BUNDLES_RESERVED) {
            return Some(Step::Stop(None));
        }
        if self.active.tx.len() == WINDOW_BUNDLES_MAX {
            return Some(Step::Stop(Some(Blocked::Window)));
        }
        if self.active.tx_ring.is_none() {
            self.active.tx_ring = self.shared.tx_ring();
        }
        if self.active.tx_ring.is_none() { Some(self.retry()) } else { None }
    }

    /// There is no packet buffer now, and no event when there is one again: a timer looks.
    fn retry(&mut self) -> Step {
        // Only other connections can have it, and they may keep it for long.
        self.rma.retry_ns = (self.rma.retry_ns * 2).clamp(RETRY_NS_MIN, RETRY_NS_MAX);
        self.rma.retry_due = self.now.plus(self.rma.retry_ns);
        Step::Stop(Some(Blocked::Pool))
    }

    fn begin(&mut self, slot: TxSlot) {
        let seq = self.active.tx.next;
        let Some(ring) = self.active.tx_ring.as_mut() else { return };
        *ring.at(seq) = slot;
        self.rma.set_bulk(seq, Bulk::None);
        self.rma.retry_ns = 0;
        self.active.tx.next = seq.next();
        self.active.tx.open = false;
        self.rma.unsent += 1;
        self.begun = true;
    }

    /// Adds one record to the open bundle, for which [`Pump::lacks`] has found space. `write` returns its length.
    fn append(&mut self, write: impl FnOnce(&Ops, &mut [u8]) -> Option<usize>) -> bool {
        let seq = self.active.tx.next.plus(u32::MAX);
        let Some(slot) = self.active.tx_ring.as_mut().map(|ring| ring.at(seq)) else { return false };
        let (pool, ops) = (&mut self.shared.pool, &mut *self.ops);
        let out = pool.get_mut(slot.buf).get_mut(usize::from(slot.body_bytes)..).unwrap_or_default();
        let Some(written) = write(ops, out) else { return false };
        slot.body_bytes += written as u16;
        slot.records += 1;
        if slot.holds & holds::RMA == 0 {
            slot.holds |= holds::RMA;
            self.rma.set_since(seq, ticks(self.now.0));
        }
        true
    }

    /// Adds one record, of which everything is known.
    fn put(&mut self, record: &Record<'_>, bytes: usize) -> Step {
        if let Some(step) = self.lacks(bytes) {
            return step;
        }
        if self.append(|_, out| record.emit(out)) { Step::Made } else { Step::Stop(None) }
    }

    /// Makes a bundle with one record, whose bytes are read from memory each time it is sent.
    fn put_bulk(&mut self, bulk: Bulk, head_bytes: usize, data_bytes: usize) -> Step {
        // Where the window is what holds bulk back, messages find places in it all the same: the last are theirs, but for
        // the few that are bulk's while messages take all the others.
        let set = WINDOW_BUNDLES_MAX - self.active.tx.len();
        if set <= MESSAGE_BUNDLES_RESERVED && self.rma.bulks() >= RMA_BUNDLES_RESERVED {
            return Step::Stop(Some(Blocked::Window));
        }
        if let Some(step) = self.lacks_slot() {
            return step;
        }
        let seq = self.active.tx.next;
        let body_bytes = (head_bytes + data_bytes.next_multiple_of(8)) as u16;
        let holds = holds::PUMPED | holds::RMA | holds::BULK;
        self.begin(TxSlot { body_bytes, records: 1, holds, ..TxSlot::EMPTY });
        self.rma.set_bulk(seq, bulk);
        self.rma.set_since(seq, ticks(self.now.0));
        self.shared.counters.rma_bytes_sent += data_bytes as u64;
        Step::Full
    }

    fn small_bytes_max(&self) -> usize {
        SMALL_BYTES_MAX.min(self.body_bytes_max / 2)
    }

    /// Makes answers that are ready, and ends of operations that were given up.
    fn put_answers(&mut self) -> Step {
        if let Some(index) = self.rma.dones.first() {
            let Some(job) = self.rma.jobs.get(usize::from(index)).copied() else { return Step::Nothing };
            let step = self.put(&Record::Done { slot: index.into(), result: job.answer }, RECORD_BYTES + 8);
            if let Step::Made = step {
                self.rma.dones.pop();
                self.rma.busy &= !(1 << index);
            }
            return step;
        }
        let index = self.rma.owed.trailing_zeros();
        if index >= u128::BITS {
            return Step::Nothing;
        }
        let step = self.put(&Record::Notify { slot: index as u16, message: None }, RECORD_BYTES);
        if let Step::Made = step {
            self.rma.owed &= !(1 << index);
        }
        step
    }

    /// Makes notifications for reads that have all their data.
    fn put_notification(&mut self) -> Step {
        let id = self.rma.notify.head;
        let Some(op) = self.ops.get(id).copied() else { return Step::Nothing };
        if self.rma.free == 0 {
            return Step::Nothing;
        }
        if let Some(step) = self.lacks(record_bytes(op.message_bytes.into())) {
            return step;
        }
        let Some(index) = self.rma.take_slot(self.slot(Use::Ended, id)) else { return Step::Nothing };
        self.rma.notify.remove(self.ops, id);
        self.notify(id, &op, index)
    }

    fn slot(&self, waits: Use, op: OpId) -> Slot {
        let issued_ticks = ticks(self.now.0);
        Slot { waits, op, to: Default::default(), len: 0, missing: 0, issued_ticks, ahead_bytes: 0 }
    }

    /// Makes the notification of an operation, which ends it as far as we are concerned. The bundle has space for it.
    fn notify(&mut self, id: OpId, op: &Op, index: u8) -> Step {
        let made = self.append(|ops, out| {
            let len = usize::from(op.message_bytes);
            let total = Record::Notify { slot: index.into(), message: Some(&[]) }.emit(out)?;
            let [l0, l1] = op.message_bytes.to_le_bytes();
            out.get_mut(..2)?.copy_from_slice(&[l0, l1]);
            let payload = out.get_mut(total..record_bytes(len))?;
            ops.copy_message(op, payload);
            payload.get_mut(len..)?.fill(0);
            Some(record_bytes(len))
        });
        if let Some(op) = self.ops.get_mut(id) {
            op.has_message = false;
            op.stage = Stage::Issued;
        }
        self.touch(index);
        if made { Step::Made } else { Step::Stop(None) }
    }

    /// A record of this request has just been made.
    fn touch(&mut self, index: u8) {
        if let Some(slot) = self.rma.slots.get_mut(usize::from(index)) {
            slot.issued_ticks = ticks(self.now.0);
        }
    }

    /// Makes a part of what the peer reads.
    fn put_data(&mut self, sink: &mut impl Sink) -> Step {
        let Some(index) = self.rma.reads.first() else { return Step::Nothing };
        let Some(job) = self.rma.jobs.get(usize::from(index)).copied() else { return Step::Nothing };
        let remaining = (job.len - job.sent) as usize;
        let at = job.at.plus(u64::from(job.sent));
        let mut bytes = remaining;
        let step = if DATA_HEAD_BYTES + remaining <= self.small_bytes_max() {
            if let Some(step) = self.lacks(DATA_HEAD_BYTES + remaining.next_multiple_of(8)) {
                return step;
            }
            let (key, token) = (self.key, self.token);
            let read = self.append(|_, out| {
                let total = emit_data_head(index.into(), job.sent.into(), remaining, out)?;
                let data = out.get_mut(DATA_HEAD_BYTES..DATA_HEAD_BYTES + remaining)?;
                sink.peer_read(key, token, at, data).ok().map(|()| total)
            });
            if !read {
                // Gone since it was asked for: that ends the request.
                self.shared.counters.rma_refused += 1;
                if let Some(job) = self.rma.jobs.get_mut(usize::from(index)) {
                    job.answer = Err(crate::RmaRefusal::Handle);
                }
                self.rma.reads.pop();
                self.rma.dones.push(index);
                return Step::Made;
            }
            self.shared.counters.rma_bytes_sent += remaining as u64;
            Step::Made
        } else {
            bytes = remaining.min(self.body_bytes_max - DATA_HEAD_BYTES);
            let bulk = Bulk::Data { slot: index, bytes: bytes as u16, offset: job.sent, at };
            match self.put_bulk(bulk, DATA_HEAD_BYTES, bytes) {
                Step::Full => Step::Full,
                step => return step,
            }
        };
        if let Some(job) = self.rma.jobs.get_mut(usize::from(index)) {
            job.sent += bytes as u32;
        }
        if bytes == remaining {
            self.rma.reads.pop();
            self.rma.busy &= !(1 << index);
        }
        step
    }

    /// Makes records of the operation at the head of the queue.
    fn put_operation(&mut self, sink: &mut impl Sink) -> Step {
        let id = self.rma.queue.head;
        let Some(op) = self.ops.get(id).copied() else { return Step::Nothing };
        if op.fence && !self.passed_fence(id) {
            return Step::Nothing;
        }
        match op.kind {
            OpKind::Write => self.put_write(id, &op, sink),
            OpKind::Read => self.put_read(id, &op),
            OpKind::Atomic => self.put_atomic(id, &op),
        }
    }

    /// True if everything that was begun before the operation at the head of the queue is complete at the peer.
    //= wire.md R-RMA-7
    fn passed_fence(&mut self, id: OpId) -> bool {
        if self.rma.free != u128::MAX || self.rma.notify.head != OpId::NONE {
            return false;
        }
        let behind = *self.rma.fence.get_or_insert(self.active.tx.next);
        if self.active.tx.unacked.precedes(behind) {
            return false;
        }
        self.rma.fence = None;
        if let Some(op) = self.ops.get_mut(id) {
            op.fence = false;
        }
        true
    }

    /// All records of the operation are made.
    fn issued(&mut self, id: OpId) {
        self.rma.queue.remove(self.ops, id);
        if let Some(op) = self.ops.get_mut(id) {
            op.stage = Stage::Issued;
        }
    }

    fn put_write(&mut self, id: OpId, op: &Op, sink: &mut impl Sink) -> Step {
        let index = match op.slot {
            Some(index) => index,
            None => {
                let Some(index) = self.rma.take_slot(self.slot(Use::Write, id)) else { return Step::Nothing };
                if let Some(op) = self.ops.get_mut(id) {
                    op.slot = Some(index);
                }
                index
            }
        };
        let Some(segment) = self.ops.segment(op.segment).filter(|_| op.segments_remaining != 0) else {
            if let Some(step) = self.lacks(record_bytes(op.message_bytes.into())) {
                return step;
            }
            self.ended(index);
            self.issued(id);
            return self.notify(id, op, index);
        };
        let remaining = segment.len_bytes - op.offset;
        let ends = op.segments_remaining == 1 && !op.has_message;
        let small = remaining <= (self.small_bytes_max() - WRITE_HEAD_BYTES) as u64;
        if small && let Some(step) = self.put_small_write(id, op, index, ends, sink) {
            return step;
        }
        let bytes = remaining.min((self.body_bytes_max - WRITE_HEAD_BYTES) as u64);
        let last = ends && bytes == remaining;
        let (node, offset) = (op.segment, op.offset);
        let bulk = Bulk::Write { slot: index, last, bytes: bytes as u16, op: id, node, offset };
        let step = self.put_bulk(bulk, WRITE_HEAD_BYTES, bytes as usize);
        if let Step::Full = step {
            if let Some(op) = self.ops.get_mut(id) {
                op.bundles += 1;
            }
            self.written(id, index, bytes, last);
        }
        step
    }

    /// What remains of a segment, in the open bundle; `None`: there is no packet buffer, but it can do without.
    fn put_small_write(
        &mut self,
        id: OpId,
        op: &Op,
        index: u8,
        last: bool,
        sink: &mut impl Sink,
    ) -> Option<Step> {
        let segment = self.ops.segment(op.segment)?;
        let len = (segment.len_bytes - op.offset) as usize;
        match self.lacks(WRITE_HEAD_BYTES + len.next_multiple_of(8)) {
            Some(Step::Stop(Some(Blocked::Pool))) => return None,
            Some(step) => return Some(step),
            None => {}
        }
        let read = self.append(|_, out| {
            let total = emit_write_head(index.into(), segment.remote.plus(op.offset), last, len, out)?;
            let data = out.get_mut(WRITE_HEAD_BYTES..WRITE_HEAD_BYTES + len)?;
            sink.local_read(segment.local.plus(op.offset), data).then_some(total)
        });
        if !read {
            let now_ticks = ticks(self.now.0);
            let (ops, counters) = (&mut *self.ops, &mut self.shared.counters);
            let (key, token) = (self.key, self.token);
            Exchange { ops, counters, rma: self.rma, key, token, now_ticks, serve: true }.end(
                id,
                Status::RmaHandle,
                sink,
            );
            return Some(Step::Made);
        }
        self.shared.counters.rma_bytes_sent += len as u64;
        self.written(id, index, len as u64, last);
        Some(Step::Made)
    }

    /// A record of a write has been made.
    fn written(&mut self, id: OpId, index: u8, bytes: u64, last: bool) {
        self.ops.advance(id, bytes);
        // No record is made that can't leave: the peer has taken what was made before.
        self.rma.progress.note(bytes, ticks(self.now.0));
        self.touch(index);
        if last {
            self.ended(index);
            self.issued(id);
        }
    }

    fn ended(&mut self, index: u8) {
        if let Some(slot) = self.rma.slots.get_mut(usize::from(index)) {
            slot.waits = Use::Ended;
        }
    }

    //= wire.md R-RMA-4
    fn put_read(&mut self, id: OpId, op: &Op) -> Step {
        let Some(segment) = self.ops.segment(op.segment) else { return Step::Nothing };
        let len = (segment.len_bytes - op.offset).min(u64::from(RMA_READ_BYTES_MAX)) as u32;
        if self.rma.free == 0 {
            return Step::Nothing;
        }
        if let Some(step) = self.lacks(RECORD_BYTES + 32) {
            return step;
        }
        let to = segment.local.plus(op.offset);
        let slot = Slot { to, len, missing: len, ..self.slot(Use::Read, id) };
        let Some(index) = self.rma.take_slot(slot) else { return Step::Nothing };
        let at = segment.remote.plus(op.offset);
        let step =
            self.put(&Record::Read { slot: index.into(), at, len_bytes: len.into() }, RECORD_BYTES + 32);
        self.ops.advance(id, len.into());
        let Some(op) = self.ops.get_mut(id) else { return step };
        op.requests += 1;
        if op.segments_remaining == 0 {
            self.issued(id);
        }
        step
    }

    fn put_atomic(&mut self, id: OpId, op: &Op) -> Step {
        let Some((atomic, wants_value)) = self.ops.atomic(op) else { return Step::Nothing };
        let Some(segment) = self.ops.segment(op.segment) else { return Step::Nothing };
        if self.rma.free == 0 {
            return Step::Nothing;
        }
        if let Some(step) = self.lacks(RECORD_BYTES + 48) {
            return step;
        }
        let slot = Slot { to: segment.local, ..self.slot(Use::Atomic { wants_value }, id) };
        let Some(index) = self.rma.take_slot(slot) else { return Step::Nothing };
        let record = Record::Atomic { slot: index.into(), at: segment.remote, atomic, wants_value };
        let step = self.put(&record, RECORD_BYTES + 48);
        self.issued(id);
        step
    }
}
