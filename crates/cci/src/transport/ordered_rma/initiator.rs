//! The initiator's side of a flow: operations leave the queue as records, and end with their answers.

use super::operations::{NIL, Op, Ops, Route, Stage, Trial, Usage, What};
use super::slots::{Slot, Slots, bits};
use super::step::{Step, Turn};
use super::target::FETCH_BYTES_MAX;
use super::wire::{Head, Parsed};
use super::{Arrived, Channel, Fault, Pulled, Pushed, SLOTS, Start};
use crate::connection::{Connection, Status};
use crate::engine::core::Core;
use crate::limits::{RMA_OPERATION_BYTES, progress_ns as allowance_ns};
use cci_memory::bytes::Bytes;
use cci_proto::{RemoteAddress, RmaKind, RmaRefusal, RmaSegment};
use std::collections::VecDeque;

/// Operations that take turns on the path to the peer.
const SHARERS_MAX: u32 = 16;

/// What this side has asked for on one connection.
pub(super) struct Initiator {
    first: u32,
    last: u32,
    /// Operations that have not ended.
    operations: u32,
    /// What they move, and [`RMA_OPERATION_BYTES`] for each.
    pending_bytes: u64,
    /// None of them has a send timeout that begins earlier.
    from_ns: u64,
    /// What they hold of what all connections share.
    usage: Usage,
    /// Operations that have left the queue or are being split.
    begun: u32,
    slots: Slots,
    /// Nothing more comes in these slots, and the peer does not know yet: abandoned ones, and those to be checked.
    to_end: u128,
    /// Slots for which this side fetches data.
    fetching: VecDeque<u16>,
    /// Fenced operations in the queue that have not begun.
    fences: u32,
    /// Operations in the queue that have begun.
    sending: u32,
    /// Messages that the peer has no buffer for, one bit for each slot.
    held: u128,
    /// Of these, those that it wants again, in the order that it named them.
    again: VecDeque<u16>,
    /// Operations whose message is to be pushed.
    messages: VecDeque<u32>,
    /// The last operation of a comparison of routes that has ended, until the transport takes it.
    pub trial: Option<Trial>,
}

impl Initiator {
    pub fn new() -> Initiator {
        Initiator {
            first: NIL,
            last: NIL,
            operations: 0,
            pending_bytes: 0,
            from_ns: u64::MAX,
            usage: Usage::default(),
            begun: 0,
            slots: Slots::new(),
            to_end: 0,
            fetching: VecDeque::with_capacity(SLOTS),
            fences: 0,
            sending: 0,
            held: 0,
            again: VecDeque::with_capacity(SLOTS),
            messages: VecDeque::with_capacity(SLOTS),
            trial: None,
        }
    }

    /// Forgets everything. Operations have ended before.
    pub fn reset(&mut self) {
        debug_assert_eq!(self.usage, Usage::default(), "given back with each operation");
        self.slots.reset();
        (self.first, self.last, self.operations, self.begun) = (NIL, NIL, 0, 0);
        (self.to_end, self.held, self.fences, self.sending) = (0, 0, 0, 0);
        (self.pending_bytes, self.from_ns, self.trial) = (0, u64::MAX, None);
        self.fetching.clear();
        self.messages.clear();
        self.again.clear();
    }

    /// Operations that have not ended.
    #[inline]
    pub fn operations(&self) -> u32 {
        self.operations
    }

    /// Nothing is under way, and no answer is awaited.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.operations == 0 && self.slots.are_all_free()
    }

    /// Something is to be pushed or fetched.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.to_end != 0
            || self.first != NIL
            || self.has_fetches()
            || !self.messages.is_empty()
            || !self.again.is_empty()
    }

    /// Something is to be fetched, which waits for nobody.
    #[inline]
    pub fn has_fetches(&self) -> bool {
        !self.fetching.is_empty()
    }

    /// The slots of operations that have ended without an answer, if nothing else is under way.
    pub fn abandoned(&self) -> Option<u128> {
        if self.operations > 0 || self.has_work() || self.held != 0 {
            return None;
        }
        self.slots.abandoned()
    }

    #[cfg(test)]
    pub fn occupy(&mut self, slot: u16) {
        self.slots.set(slot, Slot::Atomic { op: 0 });
    }

    /// Goes on awaiting answers in slots that were [abandoned](Initiator::abandoned) before.
    pub fn await_answers(&mut self, abandoned: u128) {
        for slot in bits(abandoned) {
            self.slots.set(slot, Slot::Abandoned);
        }
    }

    /// Enters an operation. Returns false if there is no space, or none within this connection's quota.
    #[inline]
    pub fn start(&mut self, ops: &mut Ops, start: &Start<'_>) -> bool {
        let Some(at) = ops.insert(start, &mut self.usage) else { return false };
        self.give_time(ops, at);
        match ops.get_mut(self.last) {
            Some(last) if self.last != NIL => last.next = at,
            _ => self.first = at,
        }
        self.last = at;
        self.operations += 1;
        self.fences += u32::from(start.fence);
        true
    }

    /// An operation is to end when its send timeout is over, counted from when it and all before it have been moved at the
    /// least rate. Nothing that the peer says changes that.
    #[inline]
    fn give_time(&mut self, ops: &mut Ops, at: u32) {
        let Some(op) = ops.get_mut(at) else { return };
        op.cost_bytes = op.len_bytes().saturating_add(RMA_OPERATION_BYTES);
        self.pending_bytes = self.pending_bytes.saturating_add(op.cost_bytes);
        op.from_ns = op.from_ns.saturating_add(allowance_ns(self.pending_bytes));
        self.from_ns = self.from_ns.min(op.from_ns);
    }

    /// How long what is under way may take at the least rate.
    #[inline]
    pub fn allowance_ns(&self) -> u64 {
        allowance_ns(self.pending_bytes)
    }

    /// By when the first operation has to have ended, whatever the peer says: one that is on its way when its send timeout
    /// is over gets that once more. None: there are none.
    //= wire.md R-TCP-25
    #[inline]
    pub fn deadline_ns(&mut self, ops: &Ops, now_ns: u64, timeout_ns: u64) -> Option<u64> {
        if self.operations == 0 {
            return None;
        }
        let deadline_ns = |from_ns: u64| from_ns.saturating_add(timeout_ns.saturating_mul(2));
        if now_ns >= deadline_ns(self.from_ns) {
            // That one may have ended meanwhile.
            let slots = self.slots.iter().filter_map(Slot::op);
            let mut first_ns = u64::MAX;
            for at in slots.chain(self.messages.iter().copied()) {
                first_ns = ops.get(at).map_or(first_ns, |op| first_ns.min(op.from_ns));
            }
            let mut at = self.first;
            while let Some(op) = ops.get(at) {
                first_ns = first_ns.min(op.from_ns);
                at = op.next;
            }
            self.from_ns = first_ns;
        }
        Some(deadline_ns(self.from_ns))
    }

    /// The connection is over: what is under way ends so.
    pub fn end(&mut self, ops: &mut Ops, core: &mut Core, status: Status) {
        // Those in the queue come behind those that have begun; completions in order of issue look after themselves.
        let mut over: [u32; SLOTS] = [NIL; SLOTS];
        let mut count = 0;
        for slot in self.slots.iter() {
            if let Some(op) = slot.op()
                && !over.contains(&op)
                && let Some(space) = over.get_mut(count)
            {
                *space = op;
                count += 1;
            }
        }
        for at in over.iter().copied().take(count).chain(std::mem::take(&mut self.messages)) {
            // Others stand in the queue still.
            if ops.get(at).is_some_and(|op| matches!(op.stage, Stage::Sent | Stage::Message)) {
                end_op(ops, &mut self.usage, core, at, status);
            }
        }
        while let Some(op) = ops.get(self.first) {
            let next = op.next;
            end_op(ops, &mut self.usage, core, self.first, status);
            self.first = next;
        }
    }

    /// Pushes the next record of the operation at the head of the queue.
    #[inline]
    pub fn send_next(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        channel: &mut impl Channel,
        connection: Connection,
        budget_bytes: &mut u64,
    ) -> Step {
        let at = self.first;
        if *budget_bytes == 0 || self.to_end != 0 {
            return Step::Blocked;
        }
        let Some(op) = ops.get_mut(at) else { return Step::Blocked };
        if op.stage == Stage::Waiting {
            if op.fence && (self.begun > 0 || !channel.is_taken(op.position)) {
                return Step::Blocked;
            }
            op.stage = Stage::Sending;
            self.begun += 1;
            self.sending += 1;
            self.fences -= u32::from(op.fence);
            if let Some(status) = direct(op, connection, core, channel) {
                op.status = status;
                self.leave_queue(ops, core, at);
                *budget_bytes = budget_bytes.saturating_sub(1);
                return Step::Moved;
            }
        }
        match op.what {
            What::Atomic { atomic, target, result } => {
                let Some(slot) = self.slots.free() else { return Step::Blocked };
                let head = Head::Atomic { at: target, atomic, wants_value: result.is_some() };
                let pushed = channel.push(head.bytes(slot).as_slice(), &[]);
                if pushed == Pushed::Yes {
                    op.unanswered += 1;
                    self.slots.set(slot, Slot::Atomic { op: at });
                    self.leave_queue(ops, core, at);
                }
                pushed.into()
            }
            What::Move(kind) => match op.segment().filter(|_| op.status == Status::Success) {
                None => self.finish(ops, core, channel, at),
                Some(segment) => match (route(op, channel, kind, segment.len_bytes), kind) {
                    (Route::Fetch, _) => self.ask_pull(ops, core, channel, at, kind, segment),
                    (Route::Push, RmaKind::Read) => self.ask_read(ops, core, channel, at, segment),
                    (Route::Push, RmaKind::Write) => {
                        self.write(ops, core, channel, at, segment, budget_bytes)
                    }
                },
            },
        }
    }

    #[inline]
    fn write<C: Channel>(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        channel: &mut C,
        at: u32,
        segment: RmaSegment,
        budget_bytes: &mut u64,
    ) -> Step {
        let Some(op) = ops.get_mut(at) else { return Step::Blocked };
        let Some(slot) = op.write_slot.or_else(|| self.slots.free()) else { return Step::Blocked };
        if !channel.has_space_for_bulk() {
            return Step::Blocked;
        }
        let now = (segment.len_bytes - op.offset).min(channel.data_bytes_max() as u64);
        let found = core.regions.local(segment.local.plus(op.offset), now);
        let Some(data) = found.and_then(|(bytes, offset)| bytes.part(offset, now as usize)) else {
            op.status = Status::RmaHandle;
            return Step::Moved;
        };
        let ends_segment = op.offset + now == segment.len_bytes;
        let last = ends_segment && op.is_last_segment() && op.message.is_none();
        let (at_peer, remaining_bytes) = (segment.remote.plus(op.offset), segment.len_bytes - op.offset);
        let head = Head::Write { at: at_peer, remaining_bytes, last };
        let pushed = channel.push_memory(head.bytes(slot).as_slice(), &data);
        if pushed == Pushed::Yes {
            *budget_bytes = budget_bytes.saturating_sub(now);
            if op.write_slot.is_none() {
                op.write_slot = Some(slot);
                op.unanswered += 1;
            }
            op.offset += now;
            if ends_segment {
                op.next_segment();
            }
            self.slots.set(slot, Slot::Write { op: at, last });
            if last {
                self.leave_queue(ops, core, at);
            } else if C::TAKES_TURNS {
                self.yield_turn(ops, at);
            }
        }
        pushed.into()
    }

    /// The operation at the head of the queue, which has begun, goes behind the others; but none overtakes a fenced one,
    /// and only a few share the way, as each has a slot.
    fn yield_turn(&mut self, ops: &mut Ops, at: u32) {
        if self.fences > 0 || self.sending > SHARERS_MAX || self.last == at {
            return;
        }
        let Some(op) = ops.get_mut(at) else { return };
        self.first = std::mem::replace(&mut op.next, NIL);
        if let Some(last) = ops.get_mut(self.last) {
            last.next = at;
        }
        self.last = at;
    }

    fn ask_read(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        channel: &mut impl Channel,
        at: u32,
        segment: RmaSegment,
    ) -> Step {
        let (Some(op), Some(slot)) = (ops.get_mut(at), self.slots.free()) else { return Step::Blocked };
        let head = Head::Read { at: segment.remote, len_bytes: segment.len_bytes };
        let pushed = channel.push(head.bytes(slot).as_slice(), &[]);
        if pushed == Pushed::Yes {
            op.unanswered += 1;
            op.next_segment();
            let (local, len_bytes) = (segment.local, segment.len_bytes);
            self.slots.set(slot, Slot::Read { op: at, local, len_bytes, got_bytes: 0 });
            if op.segment().is_none() {
                self.leave_queue(ops, core, at);
            }
        }
        pushed.into()
    }

    /// A long segment: one of the two sides fetches it.
    fn ask_pull(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        channel: &mut impl Channel,
        at: u32,
        kind: RmaKind,
        segment: RmaSegment,
    ) -> Step {
        let (Some(op), Some(slot)) = (ops.get_mut(at), self.slots.free()) else { return Step::Blocked };
        let RmaSegment { local, remote, len_bytes } = segment;
        let (head, waits) = match kind {
            RmaKind::Read => {
                (Head::Where { at: remote, len_bytes }, Slot::Where { op: at, local, len_bytes })
            }
            RmaKind::Write => {
                let Some((bytes, offset)) = core.regions.local(local, len_bytes) else {
                    op.status = Status::RmaHandle;
                    return Step::Moved;
                };
                let address = bytes.as_ptr().addr().get() as u64 + offset as u64;
                (Head::Pull { at: remote, len_bytes, address }, Slot::Pull { op: at, local, len_bytes })
            }
        };
        let pushed = channel.push(head.bytes(slot).as_slice(), &[]);
        if pushed == Pushed::Yes {
            op.unanswered += 1;
            op.next_segment();
            self.slots.set(slot, waits);
            if op.segment().is_none() && op.write_slot.is_none() {
                self.leave_queue(ops, core, at);
            }
        }
        pushed.into()
    }

    /// All records are pushed, or the operation has failed here; the peer may still have to learn that no more comes.
    #[inline]
    fn finish<C: Channel>(&mut self, ops: &mut Ops, core: &mut Core, channel: &mut C, at: u32) -> Step {
        let Some(op) = ops.get_mut(at) else { return Step::Blocked };
        let Some(slot) = op.write_slot else {
            self.leave_queue(ops, core, at);
            return Step::Moved;
        };
        // The message can go at once if what is before it in the channel is all there is.
        let message = op.message.as_ref().filter(|_| op.unanswered == 1 && op.status == Status::Success);
        let (pushed, waits) = match message {
            Some(message) => {
                let head = Head::Notify.bytes(slot);
                (channel.push_notify(head.as_slice(), message, slot), Slot::Notify { op: at })
            }
            None => (push_end(channel, slot), Slot::Write { op: at, last: true }),
        };
        if pushed == Pushed::Yes {
            if matches!(waits, Slot::Notify { .. }) && !C::ASKS_AGAIN {
                ops.drop_message(at, &mut self.usage);
            }
            self.slots.set(slot, waits);
            self.leave_queue(ops, core, at);
        }
        pushed.into()
    }

    /// All records of the operation at the head of the queue are pushed.
    #[inline]
    fn leave_queue(&mut self, ops: &mut Ops, core: &mut Core, at: u32) {
        let Some(op) = ops.get_mut(at) else { return };
        op.stage = Stage::Sent;
        self.sending -= 1;
        self.first = op.next;
        op.next = NIL;
        if self.first == NIL {
            self.last = NIL;
        }
        self.proceed(ops, core, at);
    }

    /// An operation whose records are pushed and that has no answers to wait for ends, or has its message pushed.
    #[inline]
    fn proceed(&mut self, ops: &mut Ops, core: &mut Core, at: u32) {
        let Some(op) = ops.get_mut(at) else { return };
        if op.stage != Stage::Sent || op.unanswered > 0 {
            return;
        }
        if op.message.is_some() && op.status == Status::Success {
            op.stage = Stage::Message;
            self.messages.push_back(at);
            return;
        }
        self.operations -= 1;
        self.pending_bytes = self.pending_bytes.saturating_sub(op.cost_bytes);
        self.begun -= 1;
        if let Some(trial) = op.trial.filter(|_| op.status == Status::Success) {
            self.trial = Some(trial);
        }
        if let Some((name, status)) = ops.remove(at, &mut self.usage) {
            core.complete_operation(name, status);
        }
    }

    /// Pushes the messages of operations whose data is there.
    #[inline]
    pub fn push_messages<C: Channel>(&mut self, ops: &mut Ops, channel: &mut C) -> Step {
        let Some(&at) = self.messages.front() else { return Step::Blocked };
        let Some(slot) = self.slots.free() else { return Step::Blocked };
        let Some(op) = ops.get_mut(at) else {
            self.messages.pop_front();
            return Step::Moved;
        };
        let message = op.message.as_deref().unwrap_or_default();
        let pushed = channel.push_notify(Head::Notify.bytes(slot).as_slice(), message, slot);
        if pushed == Pushed::Yes {
            (op.stage, op.unanswered) = (Stage::Sent, 1);
            if !C::ASKS_AGAIN {
                ops.drop_message(at, &mut self.usage);
            }
            self.messages.pop_front();
            self.slots.set(slot, Slot::Notify { op: at });
        }
        pushed.into()
    }

    /// Informs the peer that nothing more comes in slots whose operation has ended here, or whose data is fetched.
    #[inline]
    pub fn push_ends(&mut self, channel: &mut impl Channel, turn: &mut Turn) -> bool {
        while self.to_end != 0 {
            let slot = self.to_end.trailing_zeros() as u16;
            match push_end(channel, slot) {
                Pushed::Yes => {}
                Pushed::Full => return false,
                Pushed::Broken => {
                    turn.broken = true;
                    return false;
                }
            }
            turn.moved = true;
            self.to_end &= self.to_end - 1;
        }
        true
    }

    /// The transport took a message back: the peer's program had no buffer for it. Its operation ends so.
    pub fn notify_taken_back(&mut self, ops: &mut Ops, core: &mut Core, slot: u16) {
        let Slot::Notify { op } = self.slots.get(slot) else { return };
        self.notify_over(ops, core, slot, op);
    }

    /// A request of `at` is answered.
    #[inline]
    pub fn answered_one(&mut self, ops: &mut Ops, core: &mut Core, at: u32, status: Status) {
        let Some(op) = ops.get_mut(at) else { return };
        op.unanswered = op.unanswered.saturating_sub(1);
        if op.status == Status::Success {
            op.status = status;
        }
        self.proceed(ops, core, at);
    }

    /// An answer came.
    #[inline]
    pub fn answered(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        record: &impl Arrived,
        parsed: &Parsed,
    ) -> Result<(), Fault> {
        let (at, mut slot) = (parsed.slot, self.slots.get(parsed.slot));
        if let (Head::Data { .. } | Head::Gone, Slot::Where { op, local, len_bytes }) = (parsed.head, slot) {
            // The peer's bytes are a file's, which have no address: they are sent.
            slot = Slot::Read { op, local, len_bytes, got_bytes: 0 };
        }
        match (parsed.head, slot) {
            (Head::Data { offset }, Slot::Read { op, local, len_bytes, got_bytes }) => {
                let now = parsed.remaining_bytes as u64;
                if offset != got_bytes || now == 0 || now > len_bytes - got_bytes {
                    return Err(Fault);
                }
                let found = core.regions.local(local.plus(got_bytes), now);
                let placed = record.placed().unwrap_or_else(|| {
                    let to = found.and_then(|(bytes, offset)| bytes.part(offset, now as usize));
                    to.is_some_and(|to| record.read_to(parsed.head_bytes, &to))
                });
                if !placed && let Some(op) = ops.get_mut(op) {
                    // Ours went away; the rest comes all the same.
                    op.status = Status::RmaHandle;
                }
                let got_bytes = got_bytes + now;
                if got_bytes < len_bytes {
                    self.slots.set(at, Slot::Read { op, local, len_bytes, got_bytes });
                } else {
                    self.slots.set(at, Slot::Free);
                    self.answered_one(ops, core, op, Status::Success);
                }
            }
            (Head::Gone, Slot::Read { op, .. }) => {
                self.slots.set(at, Slot::Free);
                self.answered_one(ops, core, op, Status::RmaHandle);
            }
            (Head::Here { address }, Slot::Where { op, local, len_bytes }) => {
                self.slots.set(at, Slot::Fetch { op, local, len_bytes, done_bytes: 0, address });
                self.fetching.push_back(at);
            }
            (Head::Done { result }, _) => self.done(ops, core, at, slot, result)?,
            (Head::Hold, Slot::Notify { op }) => {
                self.slots.set(at, Slot::Held { op });
                self.held |= 1 << at;
            }
            (Head::Again, Slot::Held { .. }) if !self.again.contains(&at) => self.again.push_back(at),
            // It crossed with our word that nothing more comes.
            (Head::Again, Slot::Abandoned) => {}
            _ => return Err(Fault),
        }
        Ok(())
    }

    /// Where data goes that a read of this side asked for. `None`: nowhere, its region is gone.
    pub fn read_target(
        &self,
        core: &Core,
        parsed: &Parsed,
        offset: u64,
        skip_bytes: usize,
        len_bytes: usize,
    ) -> Result<Option<Bytes>, Fault> {
        let Slot::Read { local, len_bytes: all_bytes, got_bytes, .. } = self.slots.get(parsed.slot) else {
            return Err(Fault);
        };
        if offset != got_bytes || parsed.remaining_bytes as u64 > all_bytes - got_bytes {
            return Err(Fault);
        }
        let found = core.regions.local(local.plus(got_bytes + skip_bytes as u64), len_bytes as u64);
        Ok(found.and_then(|(bytes, offset)| bytes.part(offset, len_bytes)))
    }

    #[inline]
    fn done(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        at: u16,
        slot: Slot,
        result: Result<Option<u64>, RmaRefusal>,
    ) -> Result<(), Fault> {
        let mut status = status_of(result);
        let op = match slot {
            Slot::Write { op, last: true } => op,
            Slot::Notify { op } => {
                ops.drop_message(op, &mut self.usage);
                op
            }
            Slot::Read { op, got_bytes: 0, .. } | Slot::Where { op, .. } if result.is_err() => op,
            Slot::Pull { op, local, len_bytes } => {
                // If it was deregistered meanwhile, nobody knows what the peer has fetched.
                if core.regions.local(local, len_bytes).is_none() {
                    status = Status::RmaHandle;
                }
                op
            }
            Slot::Atomic { op } => {
                if let Some(What::Atomic { result: Some(result_address), .. }) = ops.get(op).map(|op| op.what)
                    && let Ok(value) = result
                    && !put_result(core, result_address, value.ok_or(Fault)?)
                {
                    status = Status::RmaHandle;
                }
                op
            }
            Slot::Check { op } if self.to_end & 1 << at == 0 => op,
            Slot::Abandoned if self.to_end & 1 << at == 0 => {
                self.slots.set(at, Slot::Free);
                return Ok(());
            }
            _ => return Err(Fault),
        };
        self.slots.set(at, Slot::Free);
        self.answered_one(ops, core, op, status);
        Ok(())
    }

    /// Fetches the next part of memory whose address peers have sent.
    #[inline]
    pub fn fetch(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        channel: &mut impl Channel,
        budget_bytes: &mut u64,
    ) -> bool {
        let Some(&at) = self.fetching.front() else { return false };
        if *budget_bytes == 0 {
            return false;
        }
        let Slot::Fetch { op, local, len_bytes, done_bytes, address } = self.slots.get(at) else {
            self.fetching.pop_front();
            return true;
        };
        let now = (len_bytes - done_bytes).min(FETCH_BYTES_MAX);
        let found = core.regions.local(local.plus(done_bytes), now);
        let to = found.and_then(|(bytes, offset)| bytes.part(offset, now as usize));
        let status = match to.map(|to| channel.pull(address.wrapping_add(done_bytes), &to)) {
            Some(Pulled::All) => Status::Success,
            // What was there may be gone: the peer could have deregistered and freed it.
            Some(Pulled::Unreadable) | None => Status::RmaHandle,
            // The end of the channel ends the operation too, and says why.
            Some(Pulled::PeerGone) => return false,
        };
        *budget_bytes = budget_bytes.saturating_sub(now);
        let done_bytes = done_bytes + now;
        if status == Status::Success && done_bytes < len_bytes {
            self.slots.set(at, Slot::Fetch { op, local, len_bytes, done_bytes, address });
        } else {
            self.fetching.pop_front();
            self.slots.set(at, Slot::Check { op });
            self.to_end |= 1 << at;
            if let Some(op) = ops.get_mut(op).filter(|op| op.status == Status::Success) {
                op.status = status;
            }
        }
        true
    }

    /// Ends operations whose message was held for so long, and says when the next will have been. None: there is none.
    #[inline]
    pub fn end_held(&mut self, ops: &mut Ops, core: &mut Core, now_ns: u64, timeout_ns: u64) -> Option<u64> {
        let (mut remaining, mut next_ns) = (self.held, None);
        while remaining != 0 {
            let slot = remaining.trailing_zeros() as u16;
            remaining &= remaining - 1;
            let Slot::Held { op: at } = self.slots.get(slot) else { continue };
            let Some(op) = ops.get_mut(at) else { continue };
            if op.held_ns == 0 {
                op.held_ns = now_ns;
            }
            // A peer that asks for a message again and again, and refuses it, does not keep its operation.
            let due_ns = op.held_ns.min(op.from_ns).saturating_add(timeout_ns);
            if now_ns >= due_ns {
                self.held &= !(1 << slot);
                self.again.retain(|again| *again != slot);
                ops.drop_message(at, &mut self.usage);
                self.notify_over(ops, core, slot, at);
            } else {
                next_ns = Some(next_ns.map_or(due_ns, |next_ns: u64| next_ns.min(due_ns)));
            }
        }
        next_ns
    }

    pub fn notify_over(&mut self, ops: &mut Ops, core: &mut Core, slot: u16, op: u32) {
        self.slots.set(slot, Slot::Abandoned);
        self.to_end |= 1 << slot;
        self.answered_one(ops, core, op, Status::ReceiverNotReady);
    }

    /// Pushes messages again for which the peer has buffers now.
    #[inline]
    pub fn push_again(&mut self, ops: &Ops, channel: &mut impl Channel, turn: &mut Turn) -> bool {
        while let Some(&slot) = self.again.front() {
            if let Slot::Held { op: at } = self.slots.get(slot)
                && let Some(op) = ops.get(at)
            {
                let message = op.message.as_deref().unwrap_or_default();
                let pushed = channel.push_notify(Head::Notify.bytes(slot).as_slice(), message, slot);
                if pushed != Pushed::Yes {
                    turn.broken |= pushed == Pushed::Broken;
                    return false;
                }
                turn.moved = true;
                self.slots.set(slot, Slot::Notify { op: at });
                self.held &= !(1 << slot);
            }
            self.again.pop_front();
        }
        true
    }

    /// A fenced operation at the head of the queue waits for nothing any more, all up to `taken` being taken.
    #[inline]
    pub fn is_let_through(&self, ops: &Ops, taken: u64) -> bool {
        let first = ops.get(self.first).filter(|op| op.stage == Stage::Waiting && op.fence);
        first.is_some_and(|op| self.begun == 0 && taken >= op.position)
    }
}

/// Ends an operation with a status of its connection's.
fn end_op(ops: &mut Ops, usage: &mut Usage, core: &mut Core, at: u32, status: Status) {
    if let Some((name, _)) = ops.remove(at, usage) {
        core.complete_operation(name, status);
    }
}

/// Does an operation at once where that can be.
fn direct(op: &Op, connection: Connection, core: &mut Core, channel: &mut impl Channel) -> Option<Status> {
    match op.what {
        What::Move(kind) => {
            let (first, more) = op.segments();
            channel.direct(core, connection, kind, first, more)
        }
        What::Atomic { atomic, target, result } => {
            channel.direct_atomic(core, connection, atomic, target, result)
        }
    }
}

/// Puts an atomic's value from before where the program wants it. False: its memory went away.
pub(crate) fn put_result(core: &Core, result_address: RemoteAddress, value: u64) -> bool {
    let found = core.regions.local(result_address, 8);
    found.is_some_and(|(bytes, offset)| bytes.write(offset, &value.to_ne_bytes()))
}

/// How the segment that is next goes. What has begun goes on as it began.
#[inline]
fn route(op: &mut Op, channel: &mut impl Channel, kind: RmaKind, len_bytes: u64) -> Route {
    if let Some(route) = op.route {
        return route;
    }
    if op.is_alone() {
        let (route, trial) = channel.route(kind, len_bytes);
        (op.route, op.trial) = (Some(route), trial);
        return route;
    }
    if op.offset == 0 && len_bytes >= channel.pull_from_bytes(kind) { Route::Fetch } else { Route::Push }
}

fn push_end(channel: &mut impl Channel, slot: u16) -> Pushed {
    let head = Head::Write { at: RemoteAddress::default(), remaining_bytes: 0, last: true };
    channel.push(head.bytes(slot).as_slice(), &[])
}

fn status_of(result: Result<Option<u64>, RmaRefusal>) -> Status {
    match result {
        Ok(_) => Status::Success,
        Err(RmaRefusal::Handle) => Status::RmaHandle,
        Err(RmaRefusal::Operation) => Status::RmaOperation,
    }
}
