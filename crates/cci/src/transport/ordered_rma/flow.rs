//! What a connection needs while it has remote memory operations under way, in either direction.

use super::initiator::Initiator;
use super::operations::{Ops, Trial};
use super::step::{Step, Turn};
use super::target::Target;
use super::wire::{self, Head, Parsed};
use super::{Arrived, Channel, Fault, Start, Taken};
use crate::connection::{Connection, Status};
use crate::engine::core::Core;
use cci_memory::bytes::Bytes;

/// What each round of a turn takes of its budget beside the data it moves.
const STEP_BYTES: u64 = 128;

/// What is left of a flow while another connection has its memory. A flow on which nothing moves gives that to others, and
/// leaves behind what the peer still relies on, a few bits for each slot: so a peer that has begun something, and goes on
/// with it later or never, costs no more than one that is idle.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suspended {
    /// Slots of this side whose operations have ended, and whose answers are still to come.
    abandoned: u128,
    /// Slots of the peer's in which writes have come, and more will; and of these, those that were refused.
    writes: u128,
    refused: u128,
}

/// Both sides of a connection's operations: what this side has asked for, and what the peer has.
pub(crate) struct Flow {
    pub connection: Connection,
    initiator: Initiator,
    target: Target,
    /// Something moved since it was last asked.
    pub moved: bool,
    /// When something last moved, by the transport's clock.
    pub moved_ns: u64,
    /// Is in the transport's list of those with something to push.
    pub queued: bool,
    /// The connection is to be closed once there are no operations left.
    pub closing: bool,
}

impl Flow {
    pub fn new() -> Flow {
        Flow {
            connection: Connection { index: u32::MAX, generation: 0 },
            initiator: Initiator::new(),
            target: Target::new(),
            moved: false,
            moved_ns: 0,
            queued: false,
            closing: false,
        }
    }

    /// Forgets what was under way, for the next connection. Operations have ended before.
    pub(super) fn reset(&mut self) {
        self.initiator.reset();
        self.target.reset();
        (self.moved, self.closing) = (false, false);
    }

    /// Nothing is under way, in neither direction.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.initiator.is_idle() && self.target.is_idle()
    }

    /// Operations of this side that have not ended.
    #[inline]
    pub fn operations(&self) -> u32 {
        self.initiator.operations()
    }

    /// Enters an operation. Returns false if there is no space, or none within this connection's quota.
    #[inline]
    pub fn start(&mut self, ops: &mut Ops, start: &Start<'_>) -> bool {
        let started = self.initiator.start(ops, start);
        if started && self.initiator.operations() == 1 {
            // Its time begins now, not when the last one moved.
            self.moved = true;
        }
        started
    }

    /// How long what is under way may take at the least rate.
    #[inline]
    pub fn allowance_ns(&self) -> u64 {
        self.initiator.allowance_ns()
    }

    /// By when the first operation has to have ended, whatever the peer says; `None`: there are none.
    #[inline]
    pub fn deadline_ns(&mut self, ops: &Ops, now_ns: u64, timeout_ns: u64) -> Option<u64> {
        self.initiator.deadline_ns(ops, now_ns, timeout_ns)
    }

    /// Ends operations whose message the peer has had no buffer for since their send timeout began, and says when the next
    /// of them ends. `None`: there is none.
    #[inline]
    pub fn end_held(&mut self, ops: &mut Ops, core: &mut Core, now_ns: u64, timeout_ns: u64) -> Option<u64> {
        self.initiator.end_held(ops, core, now_ns, timeout_ns)
    }

    /// Whether the fenced operation at the head of the queue waits for nothing any more, all up to `taken` being taken.
    #[inline]
    pub fn is_let_through(&self, ops: &Ops, taken: u64) -> bool {
        self.initiator.is_let_through(ops, taken)
    }

    /// The transport took the message in `slot` back: the peer's program had no buffer for it. Its operation ends so.
    pub fn notify_taken_back(&mut self, ops: &mut Ops, core: &mut Core, slot: u16) {
        self.initiator.notify_taken_back(ops, core, slot);
    }

    /// The operation that goes through the channel to see how long that takes.
    pub fn trial(&mut self) -> &mut Option<Trial> {
        &mut self.initiator.trial
    }

    /// Whether the peer has been asked for a message that it holds, and has not sent it for so long.
    #[inline]
    pub fn is_owed_a_message(&mut self, now_ns: u64, limit_ns: u64) -> bool {
        self.target.is_owed_a_message(now_ns, limit_ns)
    }

    /// The peer holds messages until there are buffers here.
    #[inline]
    pub fn waits_for_buffers(&self) -> bool {
        self.target.waits_for_buffers()
    }

    /// What reads of the peer's are still to be sent, bytes.
    pub fn unsent_bytes(&self) -> u64 {
        self.target.unsent_bytes()
    }

    /// The connection is over: what is under way ends with this status.
    pub fn end(&mut self, ops: &mut Ops, core: &mut Core, status: Status) {
        self.initiator.end(ops, core, status);
        self.reset();
    }

    /// Where data of a record goes that has not come whole: `len_bytes`, from byte `skip_bytes` of the data on. `None`:
    /// nowhere, it is refused. To be asked for each part anew: a region may go while a record comes.
    #[inline]
    pub(super) fn address(
        &self,
        core: &mut Core,
        parsed: &Parsed,
        skip_bytes: usize,
        len_bytes: usize,
    ) -> Result<Option<Bytes>, Fault> {
        match parsed.head {
            Head::Write { .. } => {
                self.target.write_target(core, self.connection, parsed, skip_bytes, len_bytes)
            }
            Head::Data { offset } => self.initiator.read_target(core, parsed, offset, skip_bytes, len_bytes),
            _ => Err(Fault),
        }
    }

    /// What the peer's operations came to is to be pushed.
    #[inline]
    pub fn has_answers(&self) -> bool {
        self.target.has_answers()
    }

    /// Something is to be pushed or fetched.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.target.has_work() || self.initiator.has_work()
    }

    /// A turn may bring something, or has to look whether it does.
    #[inline]
    pub fn wants_turn(&self) -> bool {
        self.has_work() || self.target.is_holding()
    }

    /// Pushes what fits, and fetches, until the budget, in bytes of data, is used up.
    #[inline]
    pub fn turn(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        channel: &mut impl Channel,
        budget_bytes: &mut u64,
    ) -> Turn {
        let mut turn = Turn::default();
        let Flow { connection, initiator, target, .. } = self;
        if !target.push_answers(channel, &mut turn)
            || !initiator.push_ends(channel, &mut turn)
            || !initiator.push_again(ops, channel, &mut turn)
            || !target.ask_again(core, *connection, channel, &mut turn)
        {
            return self.ended(turn);
        }
        loop {
            let moved = match self.step(ops, core, channel, budget_bytes) {
                Step::Broken => {
                    turn.broken = true;
                    return self.ended(turn);
                }
                step => step == Step::Moved,
            };
            turn.moved |= moved;
            // What moves no data costs something too.
            *budget_bytes = budget_bytes.saturating_sub(STEP_BYTES);
            if !moved || *budget_bytes == 0 {
                turn.at_once = moved;
                break;
            }
        }
        self.target.push_answers(channel, &mut turn);
        self.ended(turn)
    }

    /// One round of a turn: each kind of work gets a step.
    #[inline]
    fn step(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        channel: &mut impl Channel,
        budget_bytes: &mut u64,
    ) -> Step {
        let Flow { connection, initiator, target, .. } = self;
        let fetched = initiator.fetch(ops, core, channel, budget_bytes);
        let served = target.serve(core, *connection, channel, budget_bytes);
        if served == Step::Broken {
            return Step::Broken;
        }
        let pushed = initiator.push_messages(ops, channel);
        if pushed == Step::Broken {
            return Step::Broken;
        }
        match initiator.send_next(ops, core, channel, *connection, budget_bytes) {
            Step::Blocked if fetched || served == Step::Moved || pushed == Step::Moved => Step::Moved,
            step => step,
        }
    }

    #[inline]
    fn ended(&mut self, mut turn: Turn) -> Turn {
        self.moved |= turn.moved;
        turn.more = self.has_work();
        turn.at_once =
            turn.more && (turn.at_once || self.initiator.has_fetches() || self.target.has_fetches());
        turn
    }

    /// A record came for this connection. `delivers`: the program still wants messages of it.
    #[inline]
    pub fn take<R: Arrived>(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        record: &R,
        message_bytes_max: usize,
        delivers: bool,
    ) -> Result<Taken, Fault> {
        let parsed = wire::parse(record)?;
        match parsed.head {
            //= wire.md R-TCP-23
            Head::Pull { .. } | Head::Where { .. } | Head::Here { .. } if !R::OF_THIS_HOST => {
                return Err(Fault);
            }
            Head::Hold | Head::Again if !R::ASKS_AGAIN => return Err(Fault),
            Head::Data { .. }
            | Head::Gone
            | Head::Done { .. }
            | Head::Here { .. }
            | Head::Hold
            | Head::Again => {
                self.initiator.answered(ops, core, record, &parsed)?;
            }
            Head::Notify => {
                if parsed.remaining_bytes > message_bytes_max {
                    return Err(Fault);
                }
                if !self.target.notified(core, self.connection, record, &parsed, delivers)? {
                    return Ok(Taken::NoBuffer);
                }
            }
            _ => self.target.asked(core, self.connection, record, &parsed)?,
        }
        self.moved = true;
        Ok(Taken::Yes)
    }

    /// What has to be kept of it, if that is so little. None: something is to be done, or is awaited, that needs more.
    pub fn suspended(&self) -> Option<Suspended> {
        let abandoned = self.initiator.abandoned()?;
        let (writes, refused) = self.target.writes()?;
        Some(Suspended { abandoned, writes, refused })
    }

    /// Goes on where another flow was suspended; this one is new.
    pub fn resume(&mut self, suspended: Suspended) {
        self.initiator.await_answers(suspended.abandoned);
        self.target.await_writes(suspended.writes, suspended.refused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::ordered_rma::Flows;
    use crate::transport::ordered_rma::slots::Job;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_suspended_goes_on(abandoned: u128, writes: u128, refused: u128) {
            let mut flows = Flows::new(1);
            let key = flows.lend(Connection { index: 0, generation: 0 }, 0).unwrap();
            let (flow, _) = flows.get_mut(key).unwrap();
            prop_assert_eq!(flow.suspended(), Some(Suspended::default()));
            let suspended = Suspended { abandoned, writes, refused: refused & writes };
            flow.resume(suspended);
            prop_assert_eq!(flow.suspended(), Some(suspended));
            prop_assert_eq!(flow.is_idle(), abandoned | writes == 0);
        }
    }

    #[test]
    fn what_is_under_way_is_not_suspended() {
        let mut flows = Flows::new(1);
        let key = flows.lend(Connection { index: 0, generation: 0 }, 0).unwrap();
        let (flow, _) = flows.get_mut(key).unwrap();
        for job in [Job::Hold, Job::Held, Job::Again, Job::Done(Ok(None))] {
            flow.target.set_job(3, job);
            assert_eq!(flow.suspended(), None, "{job:?}");
            flow.target.set_job(3, Job::Free);
            flow.target.reset();
        }
        flow.initiator.occupy(5);
        assert_eq!(flow.suspended(), None);
    }
}
