//! Records come in: this side does what the peer asks for, as the target, and takes its answers, as the initiator.

use super::deadline::Deadline;
use super::state::{Job, Rma, Slot, Use};
use super::table::{OpId, Ops, Stage};
use crate::limits::{PROGRESS_ANSWER_BYTES, RMA_READ_BYTES_MAX, RMA_SLOTS, progress_ns};
use crate::rma::{BulkRecord, Record, RmaRefusal};
use crate::time::ns_between;
use crate::{ConnKey, Counters, Event, PeerFault, RemoteAddress, Sink, Status};

/// What it takes to handle the records of one connection in both roles, as the initiator and as the target of operations.
pub(crate) struct Exchange<'a> {
    pub ops: &'a mut Ops,
    pub counters: &'a mut Counters,
    pub rma: &'a mut Rma,
    pub key: ConnKey,
    pub token: u64,
    pub now_ticks: u32,
    /// The peer is still there to be answered. If not, nothing that it asked for is done.
    pub serve: bool,
}

/// The status with which an operation ends that was refused for this reason.
pub(crate) fn status_of(refusal: RmaRefusal) -> Status {
    match refusal {
        RmaRefusal::Handle => Status::RmaHandle,
        RmaRefusal::Operation => Status::RmaOperation,
    }
}

/// The slot as an index, and its bit.
fn slot_and_bit(slot: u16) -> Option<(u8, u128)> {
    (usize::from(slot) < RMA_SLOTS).then(|| (slot as u8, 1 << slot))
}

impl Exchange<'_> {
    //= wire.md R-RMA-2
    /// The peer does what it must not. When one side has ended everything, the other cannot know yet.
    fn fault(&mut self) {
        if self.serve {
            self.counters.count_fault(PeerFault::Unexpected);
        }
    }

    //= wire.md R-RMA-3
    /// Handles a record, of any kind but NOTIFY.
    pub fn take(&mut self, record: &Record<'_>, sink: &mut impl Sink) {
        match *record {
            Record::Write { .. } | Record::Read { .. } | Record::Atomic { .. } if !self.serve => {}
            Record::Write { slot, at, last, data } => self.on_write(slot, at, last, data, sink),
            Record::Read { slot, at, len_bytes } => self.on_read(slot, at, len_bytes, sink),
            Record::Atomic { slot, at, atomic, wants_value } => {
                let Some((index, bit)) = slot_and_bit(slot).filter(|(_, bit)| self.rma.busy & bit == 0)
                else {
                    return self.fault();
                };
                debug_assert!(self.rma.busy & bit == 0);
                let outcome = sink.peer_atomic(self.key, self.token, at, atomic);
                self.counters.rma_refused += u64::from(outcome.is_err());
                self.answer(index, outcome.map(|value| wants_value.then_some(value)));
            }
            Record::Data { slot, offset, data } => self.on_part(slot, offset, Ok(data), sink),
            Record::Gone { slot, offset, len_bytes } => self.on_part(slot, offset, Err(len_bytes), sink),
            Record::Done { slot, result } => self.on_done(slot, result, sink),
            Record::Notify { .. } => debug_assert!(false, "whoever walks the records sees to it"),
        }
    }

    /// Handles data that fills a datagram, as [`Exchange::take`] does.
    #[inline(always)]
    pub fn take_bulk(&mut self, record: BulkRecord<'_>, sink: &mut impl Sink) {
        match record {
            BulkRecord::Write { slot, at, data } if self.serve => self.on_write(slot, at, false, data, sink),
            BulkRecord::Write { .. } => {}
            BulkRecord::Data { slot, offset, data } => self.on_part(slot, offset, Ok(data), sink),
        }
    }

    /// As the target: writes what the peer wants written, and answers at the operation's end.
    #[inline]
    fn on_write(&mut self, slot: u16, at: RemoteAddress, last: bool, data: &[u8], sink: &mut impl Sink) {
        let Some((index, bit)) = slot_and_bit(slot) else { return self.fault() };
        // The end of an operation need not carry anything. Elsewhere nothing means that the data went away at
        // its sender's.
        let outcome = if data.is_empty() {
            self.rma.failed |= if last { 0 } else { bit };
            Ok(())
        } else {
            sink.peer_write(self.key, self.token, at, data)
        };
        match outcome {
            Ok(()) => self.counters.rma_bytes_received += data.len() as u64,
            Err(_) => {
                self.counters.rma_refused += 1;
                self.rma.failed |= bit;
            }
        }
        if self.rma.failed & bit != 0 {
            self.rma.failed_bytes += data.len() as u64;
        }
        if last {
            let first = if self.rma.failed & bit != 0 { Err(RmaRefusal::Handle) } else { Ok(()) };
            self.rma.forget_failed(bit);
            self.answer(index, outcome.and(first).map(|()| None));
        }
    }

    //= wire.md R-RMA-8
    /// The end of an operation that may carry a message: true if that is to be delivered. To be followed by
    /// [`Exchange::notified`] once it is clear where the message goes. Not when the peer has closed: then it has given the
    /// operation up, and what was noted of it is forgotten.
    pub fn may_notify(&self, slot: u16) -> bool {
        slot_and_bit(slot).is_some_and(|(_, bit)| self.serve && (self.rma.failed | self.rma.busy) & bit == 0)
    }

    /// As the target: answers a notification whose message is delivered or stored, or was not to be delivered.
    pub fn notified(&mut self, slot: u16) {
        if !self.serve {
            return;
        }
        let Some((index, bit)) = slot_and_bit(slot) else { return self.fault() };
        let result = if self.rma.failed & bit != 0 { Err(RmaRefusal::Handle) } else { Ok(None) };
        self.rma.forget_failed(bit);
        self.answer(index, result);
    }

    /// As the target: remembers an answer until it can be sent.
    fn answer(&mut self, index: u8, result: Result<Option<u64>, RmaRefusal>) {
        let bit = 1 << index;
        if self.rma.busy & bit != 0 {
            return self.fault(); // another request in the same slot is not answered yet
        }
        self.rma.busy |= bit;
        if let Some(job) = self.rma.jobs.get_mut(usize::from(index)) {
            job.answer = result;
        }
        self.rma.dones.push(index);
    }

    fn on_read(&mut self, slot: u16, at: RemoteAddress, len_bytes: u64, sink: &mut impl Sink) {
        let Some((index, bit)) = slot_and_bit(slot).filter(|(_, bit)| self.rma.busy & bit == 0) else {
            return self.fault();
        };
        if len_bytes == 0 || len_bytes > u64::from(RMA_READ_BYTES_MAX) {
            self.fault();
            return self.answer(index, Err(RmaRefusal::Operation));
        }
        match sink.peer_may_read(self.key, self.token, at, len_bytes) {
            Ok(()) => {
                self.rma.busy |= bit;
                if let Some(job) = self.rma.jobs.get_mut(usize::from(index)) {
                    *job = Job { at, len: len_bytes as u32, sent: 0, answer: Ok(None) };
                }
                self.rma.reads.push(index);
            }
            Err(refusal) => {
                self.counters.rma_refused += 1;
                self.answer(index, Err(refusal));
            }
        }
    }

    /// As the initiator: a part of what was read has come, or the news that it is no more.
    fn on_part(&mut self, slot: u16, offset: u64, part: Result<&[u8], u64>, sink: &mut impl Sink) {
        let len_bytes = part.map_or_else(|len_bytes| len_bytes, |data| data.len() as u64);
        let Some((index, _)) = slot_and_bit(slot) else { return self.fault() };
        let Some(slot) = self.rma.slots.get_mut(usize::from(index)) else { return };
        let end = offset.checked_add(len_bytes);
        if slot.waits != Use::Read
            || len_bytes == 0
            || len_bytes > u64::from(slot.missing)
            || end.is_none_or(|end| end > u64::from(slot.len))
        {
            return self.fault();
        }
        slot.missing -= len_bytes as u32;
        let Slot { op, missing, to, .. } = *slot;
        self.rma.reading_bytes -= len_bytes as u32;
        let answered = if missing == 0 { PROGRESS_ANSWER_BYTES } else { 0 };
        self.rma.progress.note(len_bytes + answered, self.now_ticks);
        if op != OpId::NONE {
            let placed = part.is_ok_and(|data| sink.local_write(to.plus(offset), data));
            if placed {
                self.counters.rma_bytes_received += len_bytes;
            } else {
                self.end(op, Status::RmaHandle, sink);
            }
        }
        if missing == 0 {
            let op = self.rma.slots.get(usize::from(index)).map_or(OpId::NONE, |slot| slot.op);
            self.rma.free_slot(index);
            self.request_over(op, sink);
        }
    }

    /// As the initiator: one request of a read has all its data.
    fn request_over(&mut self, id: OpId, sink: &mut impl Sink) {
        let Some(op) = self.ops.get_mut(id).filter(|op| !op.over) else { return };
        op.requests = op.requests.saturating_sub(1);
        if op.requests != 0 || op.stage == Stage::Queued {
            return;
        }
        if op.has_message {
            op.stage = Stage::Notifying;
            self.rma.notify.push(self.ops, id);
        } else {
            self.report(id, Status::Success, sink);
        }
    }

    /// As the initiator: the answer to a request has come.
    fn on_done(&mut self, slot: u16, result: Result<Option<u64>, RmaRefusal>, sink: &mut impl Sink) {
        let Some((index, _)) = slot_and_bit(slot) else { return self.fault() };
        let Some(&Slot { waits, op, to, .. }) = self.rma.slots.get(usize::from(index)) else {
            return;
        };
        let status = match (waits, result) {
            (Use::Ended, Ok(None)) | (Use::Atomic { wants_value: false }, Ok(None)) => Status::Success,
            (Use::Atomic { wants_value: true }, Ok(Some(value))) => {
                let is_valid = op == OpId::NONE || sink.local_write(to, &value.to_ne_bytes());
                if is_valid { Status::Success } else { Status::RmaHandle }
            }
            (Use::Ended | Use::Atomic { .. }, Err(refusal)) => status_of(refusal),
            // Data that was sent before the refusal has all come before it.
            (Use::Read, Err(refusal)) => status_of(refusal),
            _ => return self.fault(),
        };
        self.rma.free_slot(index);
        self.rma.progress.note(PROGRESS_ANSWER_BYTES, self.now_ticks);
        match status {
            Status::Success => self.report(op, status, sink),
            status if op != OpId::NONE => self.end(op, status, sink),
            _ => {}
        }
    }

    /// Ends an operation before its time: what is under way of it no longer concerns our program.
    pub fn end(&mut self, id: OpId, status: Status, sink: &mut impl Sink) {
        let Some(op) = self.ops.get(id).filter(|op| !op.over).copied() else { return };
        match op.stage {
            Stage::Queued => {
                // What waits behind a fence waits for what is before it, whatever becomes of the fenced one.
                //= wire.md R-RMA-7
                if op.fence {
                    match self.ops.get_mut(op.next) {
                        Some(next) => next.fence = true,
                        None => self.rma.fence_owed = true,
                    }
                }
                self.rma.queue.remove(self.ops, id);
                self.rma.fence = None;
            }
            Stage::Notifying => self.rma.notify.remove(self.ops, id),
            Stage::Issued => {}
        }
        for (index, slot) in self.rma.slots.iter_mut().enumerate() {
            if slot.op == id {
                slot.op = OpId::NONE;
                if slot.waits == Use::Write {
                    slot.waits = Use::Ended;
                    self.rma.owed |= 1 << index;
                }
            }
        }
        self.report(id, status, sink);
    }

    /// Raises the event of an operation that is in no list and no slot any more.
    fn report(&mut self, id: OpId, status: Status, sink: &mut impl Sink) {
        let Some(op) = self.ops.get_mut(id).filter(|op| !op.over) else { return };
        op.over = true;
        let operation = op.operation;
        self.rma.forget_if_done(self.ops, id);
        self.rma.ops = self.rma.ops.saturating_sub(1);
        if status != Status::Success {
            self.counters.rma_failed += 1;
        }
        sink.event(Event::Rma { conn: self.key, token: self.token, operation, status });
    }

    /// Ends everything of the connection; the window holds nothing of it any more.
    pub fn end_all(&mut self, status: Status, sink: &mut impl Sink) {
        for index in 0..RMA_SLOTS {
            let op = self.rma.slots.get(index).map_or(OpId::NONE, |slot| slot.op);
            if op != OpId::NONE {
                self.end(op, status, sink);
            }
        }
        while self.rma.notify.head != OpId::NONE {
            self.end(self.rma.notify.head, status, sink);
        }
        while self.rma.queue.head != OpId::NONE {
            self.end(self.rma.queue.head, status, sink);
        }
        debug_assert_eq!(self.rma.ops, 0, "each operation is in a slot or a list");
    }

    /// The status with which a late operation ends: one whose message was never delivered ends as not ready.
    fn late_status(&self, id: OpId) -> Status {
        match self.ops.get(id) {
            Some(op) if op.has_message => Status::ReceiverNotReady,
            _ => Status::TimedOut,
        }
    }

    /// Ends the operations whose time is over. Returns what counts of the time that the one has waited whose turn comes
    /// next; `None` if there is none.
    pub fn end_late(&mut self, deadline: Deadline, sink: &mut impl Sink) -> Option<u64> {
        let (now_ticks, timeout_ns) = (self.now_ticks, deadline.timeout_ns);
        let mut longest_ns: Option<u64> = None;
        for index in 0..RMA_SLOTS {
            let Some(&Slot { op, waits, issued_ticks, ahead_bytes, .. }) = self.rma.slots.get(index) else {
                break;
            };
            // A write that has not been sent whole is still in the queue.
            if op == OpId::NONE || waits == Use::Write {
                continue;
            }
            let age_ns = ns_between(issued_ticks, now_ticks);
            // What the peer does for requests that were made later is no progress with this one.
            let waited_ns = age_ns
                .min(self.rma.progress.behind_ns(now_ticks))
                .max(age_ns.saturating_sub(progress_ns(ahead_bytes.into())));
            let waited_ns = if waits == Use::Read { waited_ns } else { age_ns };
            let counted_ns = deadline.counted_ns(waited_ns);
            if counted_ns >= timeout_ns {
                self.end(op, self.late_status(op), sink);
            } else {
                longest_ns = longest_ns.max(Some(counted_ns));
            }
        }
        for head in [|rma: &Rma| rma.notify.head, |rma: &Rma| rma.queue.head] {
            while let Some(op) = self.ops.get(head(self.rma)) {
                let age_ns = ns_between(op.queued_ticks, now_ticks);
                let counted_ns = deadline.counted_ns(age_ns.min(self.rma.progress.behind_ns(now_ticks)));
                if counted_ns < timeout_ns {
                    longest_ns = longest_ns.max(Some(counted_ns));
                    break;
                }
                let id = head(self.rma);
                self.end(id, self.late_status(id), sink);
            }
        }
        self.rma.progress.forget_before(timeout_ns.saturating_mul(2), now_ticks);
        longest_ns
    }
}
