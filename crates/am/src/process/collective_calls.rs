//! Barriers and collectives of all ranks, as programs call them: by records ([`Barrier`](super::barrier::Barrier)), or counted in
//! memory.

use super::Process;
use super::collectives::{Collective, Team};
use super::counted::{Check, Position, Step};
use crate::error::{AmError, Result};
use crate::limits::COUNTED_STEPS_PER_TURN;
use crate::wire::CountedWord;

impl Process {
    /// Arrives at a barrier. [`Process::has_passed`] returns whether all others have. A handler may run meanwhile, on another thread: this
    /// process is not idle then.
    ///
    /// # Errors
    /// A rank is gone, so that it will never come. This process is in a barrier.
    pub fn arrive(&mut self) -> Result<()> {
        self.check_all()?;
        if self.barrier.is_inside() {
            return Err(AmError::State("no barrier is possible in another barrier"));
        }
        let started = self.links.started();
        let is_busy = std::mem::replace(&mut self.started, started) != started || !self.is_idle();
        self.offer_to_count();
        let number = self.barrier.begin();
        if !self.counted.arrive(&mut self.links, number, is_busy) {
            self.arrive_by_records(is_busy);
        }
        Ok(())
    }

    fn arrive_by_records(&mut self, is_busy: bool) {
        let (rank, size) = (self.rank(), self.size());
        if let Some(arrival) = self.barrier.enter(is_busy, rank, size) {
            self.links.report_arrival(arrival);
        }
    }

    /// Whether all ranks have arrived at the barrier that this one has arrived at last.
    ///
    /// # Errors
    /// A rank is gone before it arrived.
    pub fn has_passed(&mut self) -> Result<bool> {
        if !self.barrier.is_inside() {
            return Ok(true);
        }
        let passed = if self.counted.is_inside() {
            self.has_passed_counted()
        } else {
            self.progress();
            self.barrier.leave(self.size())
        };
        match passed {
            Some(is_idle) => {
                self.was_idle = is_idle;
                Ok(true)
            }
            None => self.check_all().map(|()| false),
        }
    }

    /// If all have arrived, returns whether all were idle. From time to time this makes progress for others first, and always if
    /// progress was postponed. So a caller that repeats this until all have arrived makes progress before it sleeps.
    fn has_passed_counted(&mut self) -> Option<bool> {
        if !self.links.has_news() && !self.counted.is_progress_due() {
            let passed = self.check_counted();
            if passed.is_some() || self.counted.puts_progress_off() {
                return passed;
            }
        }
        self.progress();
        self.check_counted()
    }

    fn check_counted(&mut self) -> Option<bool> {
        match self.counted.check(&mut self.links) {
            Check::Waits => None,
            Check::Passed(is_idle) => {
                self.barrier.pass();
                Some(is_idle)
            }
            Check::ByRecords { is_busy } => {
                self.arrive_by_records(is_busy);
                None
            }
        }
    }

    /// The position of this process among the barriers and collectives of all ranks.
    pub(super) fn position(&self) -> Position {
        Position { barrier: self.barrier.number(), collective: self.collectives.next_of_world() }
    }

    fn offer_to_count(&mut self) {
        let at = self.position();
        self.counted.offer(&mut self.links, at);
    }

    /// Starts a collective. All members of the team start it, and those of a team in the same order. [`Due::Collected`](super::Due::Collected) has what this member gets.
    ///
    /// # Errors
    /// [`AmError::WouldBlock`]: 256 are under way. Else there is no such team or root, a member is gone, or the data are not as they have to be.
    pub fn collect(&mut self, team: Team, collective: Collective, cookie: u64) -> Result<()> {
        if team == Team::WORLD {
            self.offer_to_count();
        }
        self.collectives.start(&mut self.links, &mut self.counted, team, collective, cookie)?;
        self.advance_counted();
        Ok(())
    }

    /// Makes progress for a caller that waits for a collective. If the collective is counted, progress for others is made only
    /// from time to time.
    pub fn progress_collective(&mut self) {
        if self.counted.collecting() > 0 && !self.links.has_news() && !self.counted.is_progress_due() {
            self.advance_counted();
            if self.collectives.has_ended() {
                // The next wait begins with progress, or postpones it again.
                self.counted.makes_progress();
                return;
            }
            if self.counted.puts_progress_off() {
                return;
            }
        }
        self.progress();
    }

    /// Continues collectives that are counted, or may be.
    #[inline(always)]
    pub(super) fn advance_counted(&mut self) {
        if self.counted.collecting() > 0 {
            self.step_counted();
        }
    }

    #[inline(never)]
    fn step_counted(&mut self) {
        if self.collectives.has_lost() {
            while let Some(collective) = self.counted.take_back() {
                self.collectives.lose_counted(&mut self.links, &collective);
            }
        }
        for _ in 0..COUNTED_STEPS_PER_TURN {
            match self.counted.step(&mut self.links) {
                Step::Waits => return,
                Step::Taken => {}
                Step::Ended { cookie, result } => self.collectives.end_counted(cookie, result),
                Step::ByRecords(collective) => self.collectives.begin_by_records(&mut self.links, collective),
            }
        }
    }

    /// Handles a record of a rank about barriers and collectives that are counted.
    pub(super) fn hear_counted(&mut self, rank: u32, word: CountedWord) {
        let is_inside = self.barrier.is_inside() && !self.counted.is_inside();
        let at = self.position();
        if !self.counted.hear(&mut self.links, rank, word, (at, is_inside)) {
            return self.links.refuse_rank(rank);
        }
        if let CountedWord::Lost { rank: lost } = word {
            self.lose_elsewhere(lost, "rank 0 has lost it");
        }
    }

    /// Notes that another rank has lost one, with which no barrier is possible any more.
    pub(super) fn lose_elsewhere(&mut self, lost: u32, why: &str) {
        if lost != self.rank() && lost < self.size() {
            self.missing.get_or_insert_with(|| (lost, why.into()));
            self.collectives.lose_elsewhere(&mut self.links, lost, why);
        }
    }
}
