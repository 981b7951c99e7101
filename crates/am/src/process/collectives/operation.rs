//! One collective that is under way.

use super::plan::{Step, Take};
use crate::arithmetic::{Number, Reduction};
use crate::error::AmError;
use std::ops::Range;
use std::sync::Arc;

pub(crate) struct Operation {
    /// The members of its team, by rank.
    pub ranks: Arc<[u32]>,
    /// Steps that have not ended, the last one first.
    pub steps: Vec<Step>,
    pub buffer: Vec<u8>,
    /// The range of the buffer that is the result, and by how many bytes it is rotated to the right.
    pub result: Range<usize>,
    pub turned_bytes: usize,
    pub arithmetic: Option<(Number, Reduction)>,
    /// How many bytes of the current step were sent; `None` if all were.
    pub sent: Option<usize>,
    /// The data to send, as they were when the step began, if they may change meanwhile. Otherwise they are in the buffer.
    pub kept: Option<Vec<u8>>,
    /// How many bytes the current step has taken; `None` if all were.
    pub taken: Option<usize>,
    pub has_begun: bool,
    /// Ranks to which a record was sent, and those that were informed that more may follow their first one.
    pub sent_to: Vec<u32>,
    pub opened: Vec<u32>,
    pub cookie: u64,
}

/// Members have data of different lengths.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Differ;

impl Operation {
    /// Begins the next step. Returns false if there is none.
    pub fn begin_step(&mut self) -> bool {
        if self.has_begun {
            return true;
        }
        let Some(step) = self.steps.last() else { return false };
        let data = |range: &Range<usize>| self.buffer.get(range.clone()).unwrap_or_default().to_vec();
        self.kept = step.send.as_ref().filter(|_| step.overlaps()).map(|(_, range)| data(range));
        self.sent = step.send.as_ref().map(|_| 0);
        self.taken = step.take.as_ref().map(|_| 0);
        self.has_begun = true;
        true
    }

    /// Ends the current step, if all of it is done.
    pub fn end_step(&mut self) -> bool {
        let is_over = self.sent.is_none() && self.taken.is_none();
        if is_over {
            self.steps.pop();
            self.has_begun = false;
        }
        is_over
    }

    /// The rank to which the step sends.
    pub fn receiver(&self) -> Option<u32> {
        let (member, _) = self.steps.last()?.send.as_ref()?;
        self.ranks.get(*member).copied()
    }

    /// The rank from which the step takes.
    pub fn sender(&self) -> Option<u32> {
        let (member, ..) = self.steps.last()?.take.as_ref()?;
        self.ranks.get(*member).copied()
    }

    /// The next bytes to send, at most `max`, and whether more to the same rank will follow.
    pub fn next_bytes(&self, max: usize) -> Option<(&[u8], bool)> {
        let sent = self.sent?;
        let (member, range) = self.steps.last()?.send.as_ref()?;
        let data = match &self.kept {
            Some(kept) => kept,
            None => self.buffer.get(range.clone())?,
        };
        let end = data.len().min(sent.saturating_add(max));
        let is_same = |step: &Step| step.send.as_ref().is_some_and(|(other, _)| other == member);
        let follows = end < data.len() || self.steps.iter().rev().skip(1).any(is_same);
        Some((data.get(sent..end)?, follows))
    }

    /// Notes that this many bytes were sent.
    pub fn advance_bytes(&mut self, len: usize) {
        let Some(Step { send: Some((_, range)), .. }) = self.steps.last() else { return };
        self.sent = self.sent.map(|sent| sent + len).filter(|&sent| sent < range.len());
        if self.sent.is_none() {
            self.kept = None;
        }
    }

    /// Takes one record of the rank from which the step takes.
    pub fn take(&mut self, record: &[u8]) -> Result<(), Differ> {
        let (Some(taken), Some(Step { take: Some((_, range, how)), .. })) = (self.taken, self.steps.last())
        else {
            return Err(Differ);
        };
        let (from, to) = (range.start + taken, range.start + taken + record.len());
        if to > range.end || (record.is_empty() && !range.is_empty()) {
            return Err(Differ);
        }
        let place = self.buffer.get_mut(from..to).ok_or(Differ)?;
        match (how, self.arithmetic) {
            (Take::Store, _) => place.copy_from_slice(record),
            (_, None) => return Err(Differ),
            (side, Some((number, reduction))) => {
                if !record.len().is_multiple_of(number.len_bytes()) {
                    return Err(Differ);
                }
                number.combine(reduction, place, record, *side == Take::ReduceLeft);
            }
        }
        self.taken = (to < range.end).then_some(taken + record.len());
        Ok(())
    }

    /// The result of the member.
    pub fn into_result(mut self) -> Vec<u8> {
        self.buffer.truncate(self.result.end);
        self.buffer.drain(..self.result.start);
        if !self.buffer.is_empty() {
            let turn = self.turned_bytes % self.buffer.len();
            self.buffer.rotate_right(turn);
        }
        self.buffer
    }
}

impl From<Differ> for AmError {
    fn from(_: Differ) -> AmError {
        AmError::DIFFER
    }
}
