//! Collectives that are counted, or may be, in the order in which they were started.

use super::super::links::Links;
use super::collective::{CountedCollective, Taken};
use super::place::{Place, Set, Turn};
use crate::error::{AmError, Result};
use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct Queue {
    all: VecDeque<CountedCollective>,
    turn: Turn,
    /// The buffer for data of others.
    scratch: Vec<u8>,
}

/// The result of a step of the first collective.
pub(crate) enum Step {
    Waits,
    /// The collective continues.
    Taken,
    Ended {
        cookie: u64,
        result: Result<Vec<u8>>,
    },
    /// The collective is not counted after all.
    ByRecords(CountedCollective),
}

impl Queue {
    pub fn push(&mut self, collective: CountedCollective) {
        self.all.push_back(collective);
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn first(&self) -> Option<&CountedCollective> {
        self.all.front()
    }

    pub fn pop(&mut self) -> Option<CountedCollective> {
        self.all.pop_front()
    }

    /// The place of the first one's count, and the value that it waits for, with `size` ranks.
    pub fn waits_for(&self, size: u32) -> Option<(u64, u64)> {
        self.first()?.has_arrived.then(|| (self.turn.at(), self.turn.target(size)))
    }

    /// Continues the first collective by one step, and arrives at the next one, so that this rank waits only for a count. `None`
    /// if the memory is not there, or not now.
    pub fn go_on(&mut self, links: &mut Links, place: &Place, size: u32) -> Option<Step> {
        let Some(first) = self.all.front_mut() else { return Some(Step::Waits) };
        let mut set = Set { links, place, turn: self.turn };
        let target = self.turn.target(size);
        let have_all_come =
            if first.has_arrived { set.is_reached(target)? } else { first.arrive(&mut set, target)? };
        if !have_all_come {
            return Some(Step::Waits);
        }
        let taken = first.take(&mut set, &mut self.scratch)?;
        self.turn.end();
        let ended = if taken == Taken::Step { None } else { self.all.pop_front() };
        if let Some(next) = self.all.front_mut() {
            set.turn = self.turn;
            // If this is not possible now, the next step does it.
            let _ = next.arrive(&mut set, self.turn.target(size));
        }
        let Some(ended) = ended else { return Some(Step::Taken) };
        let cookie = ended.cookie;
        let result = if taken == Taken::Differs { Err(AmError::DIFFER) } else { Ok(ended.into_result()) };
        Some(Step::Ended { cookie, result })
    }
}
