//! Messages behind data for which the peer has no receive buffer, over a channel that can't keep them: their sender holds
//! them, and says them again when it is asked to, or ends their operations when their time is up.

use super::flow::Flow;
use super::operations::{Ops, Stage};
use super::slots::{Job, Slot};
use super::step::Turn;
use super::wire::Head;
use super::{Channel, Pushed};
use crate::engine::core::Core;
use crate::event::Status;

impl Flow {
    /// Ends operations whose message was held for so long, and says when the next will have been. None: there is none.
    pub fn end_held(&mut self, ops: &mut Ops, core: &mut Core, now_ns: u64, timeout_ns: u64) -> Option<u64> {
        let (mut left, mut next_ns) = (self.held, None);
        while left != 0 {
            let slot = left.trailing_zeros() as u16;
            left &= left - 1;
            let Slot::Held { op: at } = self.slot(slot) else { continue };
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

    pub(super) fn notify_over(&mut self, ops: &mut Ops, core: &mut Core, slot: u16, op: u32) {
        self.set_slot(slot, Slot::Abandoned);
        self.to_end |= 1 << slot;
        self.answered_one(ops, core, op, Status::ReceiverNotReady);
    }

    /// Says messages again for which the peer has buffers now; and tells it of ours.
    pub(super) fn push_again(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        channel: &mut impl Channel,
        turn: &mut Turn,
    ) -> bool {
        while let Some(&slot) = self.again.front() {
            if let Slot::Held { op: at } = self.slot(slot)
                && let Some(op) = ops.get(at)
            {
                let message = op.message.as_deref().unwrap_or_default();
                let pushed = channel.push_notify(Head::Notify.bytes(slot).as_slice(), message, slot);
                if pushed != Pushed::Yes {
                    turn.broken |= pushed == Pushed::Broken;
                    return false;
                }
                turn.moved = true;
                self.set_slot(slot, Slot::Notify { op: at });
                self.held &= !(1 << slot);
            }
            self.again.pop_front();
        }
        self.ask_again(core, channel, turn)
    }

    /// Asks for the messages again for which there are buffers now.
    fn ask_again(&mut self, core: &mut Core, channel: &mut impl Channel, turn: &mut Turn) -> bool {
        if self.holding.is_empty() {
            return true;
        }
        // A message that would only come back for want of a buffer is not asked for.
        if !core.has_buffer_for(self.connection) {
            return true;
        }
        for at in 0..self.holding.len().min(core.receive.free_count() as usize) {
            let Some(&slot) = self.holding.get(at) else { break };
            if !matches!(self.job(slot), Job::Held) {
                continue;
            }
            let pushed = channel.push(Head::Again.bytes(slot).as_slice(), &[]);
            if pushed != Pushed::Yes {
                turn.broken |= pushed == Pushed::Broken;
                return false;
            }
            turn.moved = true;
            self.set_job(slot, Job::Again);
        }
        true
    }

    /// A turn may bring something, or has to look whether it does.
    pub fn wants_turn(&self) -> bool {
        self.has_work() || !self.holding.is_empty()
    }

    /// A fenced operation at the head of the line waits for nothing any more, all up to `taken` being taken.
    pub fn is_let_through(&self, ops: &Ops, taken: u64) -> bool {
        let first = ops.get(self.first).filter(|op| op.stage == Stage::Waiting && op.fence);
        first.is_some_and(|op| self.begun == 0 && taken >= op.position)
    }

    /// The peer holds messages until there are buffers here.
    pub fn waits_for_buffers(&self) -> bool {
        self.holding.front().is_some_and(|slot| matches!(self.job(*slot), Job::Held))
    }

    /// There is none for this one, or others are before it.
    pub(super) fn hold(&mut self, slot: u16) {
        //= wire.md R-TCP-22
        if !self.holding.contains(&slot) {
            self.holding.push_back(slot);
        }
        self.set_job(slot, Job::Hold);
    }
}
