//! A turn of a flow: it pushes and fetches what there is room for, and takes the records that came.

use super::flow::Flow;
use super::operations::Ops;
use super::step::{Step, Turn};
use super::wire::{self, Head};
use super::{Arrived, Channel, Fault, Taken};
use crate::engine::core::Core;

/// What each round of a turn takes of its budget beside the data it moves.
const STEP_BYTES: u64 = 128;

impl Flow {
    /// Pushes what fits, and fetches, until the budget, in bytes of data, is used up.
    pub fn turn(
        &mut self,
        ops: &mut Ops,
        core: &mut Core,
        channel: &mut impl Channel,
        budget_bytes: &mut u64,
    ) -> Turn {
        let mut turn = Turn::default();
        if !self.push_answers(channel, &mut turn)
            || !self.push_ends(channel, &mut turn)
            || !self.push_again(ops, core, channel, &mut turn)
        {
            return self.ended(turn);
        }
        loop {
            let mut moved = self.fetch(ops, core, channel, budget_bytes);
            for step in [Flow::serve, Flow::push_messages, Flow::cut] {
                match step(self, ops, core, channel, budget_bytes) {
                    Step::Moved => moved = true,
                    Step::Blocked => {}
                    Step::Broken => {
                        turn.broken = true;
                        return self.ended(turn);
                    }
                }
            }
            turn.moved |= moved;
            // What moves no data costs something too.
            *budget_bytes = budget_bytes.saturating_sub(STEP_BYTES);
            if !moved || *budget_bytes == 0 {
                turn.at_once = moved;
                break;
            }
        }
        if !self.push_answers(channel, &mut turn) {
            return self.ended(turn);
        }
        self.ended(turn)
    }

    fn ended(&mut self, mut turn: Turn) -> Turn {
        self.moved |= turn.moved;
        turn.more = self.has_work();
        turn.at_once = turn.more && (turn.at_once || self.has_fetches());
        turn
    }

    /// A record came for this connection. `delivers`: the program still wants messages of it.
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
                self.answered(ops, core, record, &parsed)?;
            }
            Head::Notify => {
                if parsed.rest_bytes > message_bytes_max {
                    return Err(Fault);
                }
                if !self.notified(core, record, &parsed, delivers)? {
                    return Ok(Taken::NoBuffer);
                }
            }
            _ => self.asked(core, record, &parsed)?,
        }
        self.moved = true;
        Ok(Taken::Yes)
    }
}
