//! The asking side: operations leave the line as records, and end with their answers.

use super::flow::{Flow, Trial};
use super::operations::{NIL, Op, Ops, Stage, What};
use super::responder::FETCH_BYTES_MAX;
use super::slots::Slot;
use super::step::{Step, Turn};
use super::wire::{Head, Parsed};
use super::{Arrived, Channel, Fault, Pulled, Pushed};
use crate::engine::core::Core;
use crate::event::Status;
use cci_memory::bytes::Bytes;
use cci_proto::{RemoteAddress, RmaKind, RmaRefusal, RmaSegment};

/// Operations that take turns on the way to the peer.
const SHARERS_MAX: u32 = 16;

impl Flow {
    fn take_slot(&mut self) -> Option<u16> {
        let slot = self.free.trailing_zeros();
        (slot < u128::BITS).then_some(slot as u16)
    }

    pub(super) fn set_slot(&mut self, at: u16, slot: Slot) {
        let bit = 1_u128 << at;
        self.free = if matches!(slot, Slot::Free) { self.free | bit } else { self.free & !bit };
        if let Some(place) = self.slots.get_mut(usize::from(at)) {
            *place = slot;
        }
    }

    pub(super) fn slot(&self, at: u16) -> Slot {
        self.slots.get(usize::from(at)).copied().unwrap_or(Slot::Free)
    }

    /// Cuts the next record from the operation at the head of the line.
    pub(super) fn cut(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        channel: &mut impl Channel,
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
            op.stage = Stage::Cutting;
            self.begun += 1;
            self.cutting += 1;
            self.fences -= u32::from(op.fence);
            if let Some(status) = direct(op, self.connection, core, channel) {
                op.status = status;
                self.leave_line(ops, core, at);
                *budget_bytes = budget_bytes.saturating_sub(1);
                return Step::Moved;
            }
        }
        match op.what {
            What::Atomic { atomic, target, result } => {
                let Some(slot) = self.take_slot() else { return Step::Blocked };
                let head = Head::Atomic { at: target, atomic, wants_value: result.is_some() };
                let pushed = channel.push(head.bytes(slot).as_slice(), &[]);
                if pushed == Pushed::Yes {
                    op.unanswered += 1;
                    self.set_slot(slot, Slot::Atomic { op: at });
                    self.leave_line(ops, core, at);
                }
                pushed.into()
            }
            What::Move(kind) => match op.piece().filter(|_| op.status == Status::Success) {
                None => self.finish(ops, core, channel, at),
                Some(piece)
                    if self.begun == 1
                        && self.trial.is_none()
                        && op.is_alone()
                        && channel.try_channel(kind, piece.len_bytes) =>
                {
                    op.is_trial = true;
                    let len_bytes = piece.len_bytes;
                    self.trial = Some(Trial { kind, len_bytes, began_ns: 0, has_ended: false });
                    Step::Moved
                }
                Some(piece)
                    if !op.is_trial && op.offset == 0 && piece.len_bytes >= channel.pull_from_bytes(kind) =>
                {
                    self.ask_pull(ops, core, channel, at, kind, piece)
                }
                Some(piece) => match kind {
                    RmaKind::Read => self.ask_read(ops, core, channel, at, piece),
                    RmaKind::Write => self.write(ops, core, channel, at, piece, budget_bytes),
                },
            },
        }
    }

    fn write<C: Channel>(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        channel: &mut C,
        at: u32,
        piece: RmaSegment,
        budget_bytes: &mut u64,
    ) -> Step {
        let Some(op) = ops.get_mut(at) else { return Step::Blocked };
        let Some(slot) = op.write_slot.or_else(|| self.take_slot()) else { return Step::Blocked };
        if !channel.has_room_for_bulk() {
            return Step::Blocked;
        }
        let now = (piece.len_bytes - op.offset).min(channel.data_bytes_max() as u64);
        let found = core.regions.local(piece.local.plus(op.offset), now);
        let Some(data) = found.and_then(|(bytes, offset)| bytes.part(offset, now as usize)) else {
            op.status = Status::RmaHandle;
            return Step::Moved;
        };
        let ends_piece = op.offset + now == piece.len_bytes;
        let last = ends_piece && op.is_last_piece() && op.message.is_none();
        let (at_peer, rest_bytes) = (piece.remote.plus(op.offset), piece.len_bytes - op.offset);
        let head = Head::Write { at: at_peer, rest_bytes, last };
        let pushed = channel.push_memory(head.bytes(slot).as_slice(), &data);
        if pushed == Pushed::Yes {
            *budget_bytes = budget_bytes.saturating_sub(now);
            if op.write_slot.is_none() {
                op.write_slot = Some(slot);
                op.unanswered += 1;
            }
            op.offset += now;
            if ends_piece {
                op.next_piece();
            }
            self.set_slot(slot, Slot::Write { op: at, last });
            if last {
                self.leave_line(ops, core, at);
            } else if C::TAKES_TURNS {
                self.give_way(ops, at);
            }
        }
        pushed.into()
    }

    /// The operation at the head of the line, which has begun, goes behind the others; but none overtakes a fenced one,
    /// and only a few share the way, as each has a slot.
    fn give_way(&mut self, ops: &mut Ops, at: u32) {
        if self.fences > 0 || self.cutting > SHARERS_MAX || self.last == at {
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
        piece: RmaSegment,
    ) -> Step {
        let (Some(op), Some(slot)) = (ops.get_mut(at), self.take_slot()) else { return Step::Blocked };
        let head = Head::Read { at: piece.remote, len_bytes: piece.len_bytes };
        let pushed = channel.push(head.bytes(slot).as_slice(), &[]);
        if pushed == Pushed::Yes {
            op.unanswered += 1;
            op.next_piece();
            let (local, len_bytes) = (piece.local, piece.len_bytes);
            self.set_slot(slot, Slot::Read { op: at, local, len_bytes, got_bytes: 0 });
            if op.piece().is_none() {
                self.leave_line(ops, core, at);
            }
        }
        pushed.into()
    }

    /// A long piece: one of the two sides fetches it.
    fn ask_pull(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        channel: &mut impl Channel,
        at: u32,
        kind: RmaKind,
        piece: RmaSegment,
    ) -> Step {
        let (Some(op), Some(slot)) = (ops.get_mut(at), self.take_slot()) else { return Step::Blocked };
        let RmaSegment { local, remote, len_bytes } = piece;
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
            op.next_piece();
            self.set_slot(slot, waits);
            if op.piece().is_none() && op.write_slot.is_none() {
                self.leave_line(ops, core, at);
            }
        }
        pushed.into()
    }

    /// Everything is cut, or the operation has failed here; the peer may still have to be told that no more comes.
    fn finish<C: Channel>(&mut self, ops: &mut Ops, core: &mut Core, channel: &mut C, at: u32) -> Step {
        let Some(op) = ops.get_mut(at) else { return Step::Blocked };
        let Some(slot) = op.write_slot else {
            self.leave_line(ops, core, at);
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
            self.set_slot(slot, waits);
            self.leave_line(ops, core, at);
        }
        pushed.into()
    }

    /// The operation at the head of the line is cut.
    fn leave_line(&mut self, ops: &mut Ops, core: &mut Core, at: u32) {
        let Some(op) = ops.get_mut(at) else { return };
        op.stage = Stage::Cut;
        self.cutting -= 1;
        self.first = op.next;
        op.next = NIL;
        if self.first == NIL {
            self.last = NIL;
        }
        self.proceed(ops, core, at);
    }

    /// An operation that is cut and has no answers to wait for ends, or has its message pushed.
    fn proceed(&mut self, ops: &mut Ops, core: &mut Core, at: u32) {
        let Some(op) = ops.get_mut(at) else { return };
        if op.stage != Stage::Cut || op.unanswered > 0 {
            return;
        }
        if op.message.is_some() && op.status == Status::Success {
            op.stage = Stage::Message;
            self.messages.push_back(at);
            return;
        }
        self.ops -= 1;
        self.pending_bytes = self.pending_bytes.saturating_sub(op.cost_bytes);
        self.begun -= 1;
        if op.is_trial {
            self.trial = self.trial.filter(|_| op.status == Status::Success);
            self.trial.iter_mut().for_each(|trial| trial.has_ended = true);
        }
        if let Some((name, status)) = ops.remove(at, &mut self.usage) {
            core.complete_operation(name, status);
        }
    }

    /// Pushes the messages of operations whose data is there.
    pub(super) fn push_messages<C: Channel>(
        &mut self,
        ops: &mut Ops,
        _: &mut Core,
        channel: &mut C,
        _: &mut u64,
    ) -> Step {
        let Some(&at) = self.messages.front() else { return Step::Blocked };
        let Some(slot) = self.take_slot() else { return Step::Blocked };
        let Some(op) = ops.get_mut(at) else {
            self.messages.pop_front();
            return Step::Moved;
        };
        let message = op.message.as_deref().unwrap_or_default();
        let pushed = channel.push_notify(Head::Notify.bytes(slot).as_slice(), message, slot);
        if pushed == Pushed::Yes {
            (op.stage, op.unanswered) = (Stage::Cut, 1);
            if !C::ASKS_AGAIN {
                ops.drop_message(at, &mut self.usage);
            }
            self.messages.pop_front();
            self.set_slot(slot, Slot::Notify { op: at });
        }
        pushed.into()
    }

    /// Tells the peer that nothing more comes in slots whose operation has ended here.
    pub(super) fn push_ends(&mut self, channel: &mut impl Channel, turn: &mut Turn) -> bool {
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
        let Slot::Notify { op } = self.slot(slot) else { return };
        self.notify_over(ops, core, slot, op);
    }

    /// A request of `at` is answered.
    pub(super) fn answered_one(&mut self, ops: &mut Ops, core: &mut Core, at: u32, status: Status) {
        let Some(op) = ops.get_mut(at) else { return };
        op.unanswered = op.unanswered.saturating_sub(1);
        if op.status == Status::Success {
            op.status = status;
        }
        self.proceed(ops, core, at);
    }

    /// An answer came.
    pub(super) fn answered(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        record: &impl Arrived,
        parsed: &Parsed,
    ) -> Result<(), Fault> {
        let (at, slot) = (parsed.slot, self.slot(parsed.slot));
        match (parsed.head, slot) {
            (Head::Data { offset }, Slot::Read { op, local, len_bytes, got_bytes }) => {
                let now = parsed.rest_bytes as u64;
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
                    self.set_slot(at, Slot::Read { op, local, len_bytes, got_bytes });
                } else {
                    self.set_slot(at, Slot::Free);
                    self.answered_one(ops, core, op, Status::Success);
                }
            }
            (Head::Gone, Slot::Read { op, .. }) => {
                self.set_slot(at, Slot::Free);
                self.answered_one(ops, core, op, Status::RmaHandle);
            }
            (Head::Here { address }, Slot::Where { op, local, len_bytes }) => {
                self.set_slot(at, Slot::Fetch { op, local, len_bytes, done_bytes: 0, address });
                self.fetching.push_back(at);
            }
            (Head::Done { result }, _) => self.done(ops, core, at, slot, result)?,
            (Head::Hold, Slot::Notify { op }) => {
                self.set_slot(at, Slot::Held { op });
                self.held |= 1 << at;
            }
            (Head::Again, Slot::Held { .. }) if !self.again.contains(&at) => self.again.push_back(at),
            // It crossed with our word that nothing more comes.
            (Head::Again, Slot::Abandoned) => {}
            _ => return Err(Fault),
        }
        Ok(())
    }

    /// As [`Flow::place`](super::flow::Flow), of what a read of ours asked for.
    pub(super) fn place_read(
        &self,
        core: &Core,
        parsed: &Parsed,
        offset: u64,
        skip_bytes: usize,
        len_bytes: usize,
    ) -> Result<Option<Bytes>, Fault> {
        let Slot::Read { local, len_bytes: all_bytes, got_bytes, .. } = self.slot(parsed.slot) else {
            return Err(Fault);
        };
        if offset != got_bytes || parsed.rest_bytes as u64 > all_bytes - got_bytes {
            return Err(Fault);
        }
        let found = core.regions.local(local.plus(got_bytes + skip_bytes as u64), len_bytes as u64);
        Ok(found.and_then(|(bytes, offset)| bytes.part(offset, len_bytes)))
    }

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
                if let Some(What::Atomic { result: Some(place), .. }) = ops.get(op).map(|op| op.what)
                    && let Ok(value) = result
                    && !put_result(core, place, value.ok_or(Fault)?)
                {
                    status = Status::RmaHandle;
                }
                op
            }
            Slot::Abandoned if self.to_end & 1 << at == 0 => {
                self.set_slot(at, Slot::Free);
                return Ok(());
            }
            _ => return Err(Fault),
        };
        self.set_slot(at, Slot::Free);
        self.answered_one(ops, core, op, status);
        Ok(())
    }

    /// Fetches the next part of what peers told us the address of.
    pub(super) fn fetch(
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
        let Slot::Fetch { op, local, len_bytes, done_bytes, address } = self.slot(at) else {
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
            self.set_slot(at, Slot::Fetch { op, local, len_bytes, done_bytes, address });
        } else {
            self.fetching.pop_front();
            self.set_slot(at, Slot::Free);
            self.answered_one(ops, core, op, status);
        }
        true
    }
}

/// Does an operation at once where that can be.
fn direct(
    op: &Op,
    connection: crate::event::Connection,
    core: &mut Core,
    channel: &mut impl Channel,
) -> Option<Status> {
    match op.what {
        What::Move(kind) => {
            let (first, more) = op.pieces();
            channel.direct(core, connection, kind, first, more)
        }
        What::Atomic { atomic, target, result } => {
            channel.direct_atomic(core, connection, atomic, target, result)
        }
    }
}

/// Puts an atomic's value from before where the program wants it. False: its memory went away.
pub(crate) fn put_result(core: &Core, place: RemoteAddress, value: u64) -> bool {
    let found = core.regions.local(place, 8);
    found.is_some_and(|(bytes, offset)| bytes.write(offset, &value.to_ne_bytes()))
}

fn push_end(channel: &mut impl Channel, slot: u16) -> Pushed {
    let head = Head::Write { at: RemoteAddress::default(), rest_bytes: 0, last: true };
    channel.push(head.bytes(slot).as_slice(), &[])
}

fn status_of(result: Result<Option<u64>, RmaRefusal>) -> Status {
    match result {
        Ok(_) => Status::Success,
        Err(RmaRefusal::Handle) => Status::RmaHandle,
        Err(RmaRefusal::Operation) => Status::RmaOperation,
    }
}
