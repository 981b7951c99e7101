//! Barriers and collectives of ranks that are all on one host. They are counted in memory of rank 0, which the others map ([ADR
//! 53](../../../../docs/adr/0053-barriers-of-one-host-are-counted.md)).
//!
//! After a few barriers and collectives by records, rank 0 offers such memory. The others map it and answer. If all can map it,
//! barriers are counted from the one on that the offer names, and so are collectives ([`collective`]). A rank arrives by adding 1
//! to a count. All have arrived when the count is a multiple of their number. Two counts take turns, so that one does not change
//! until all have seen it.

pub(crate) mod collective;
mod place;
mod queue;

pub(crate) use queue::Step;

use super::link::Reach;
use super::links::Links;
use crate::error::AmError;
use crate::limits::{
    COUNTED_AFTER, COUNTED_AHEAD, COUNTED_LOOKS_PER_PROGRESS, COUNTED_OFFERS_MAX, COUNTED_RANKS_MAX,
    COUNTED_TRIES_MAX,
};
use crate::wire::{CountedWord, Word};
use cci::{Access, Atomic, AtomicKind, AtomicWidth, Memory, RegionAddress, RegionHandle, RmaFlags};
use collective::{CountedCollective, Kind};
#[cfg(test)]
pub(crate) use place::MEMORY_BYTES;
use place::{BUSY, Inside, OWNER, Place, SLEEPERS, Stage};
use queue::Queue;

/// The context of the operations by which memory is mapped. No operation of a program has it.
pub(crate) const MAPPING: u64 = u64::MAX;

enum Agreement {
    /// Barriers use records.
    None,
    /// This is rank 0, which waits for the answers of ranks whose bit in `answered` is not set.
    Offered { memory: Memory, handle: RegionHandle, answered: u64, can: bool },
    /// The memory was offered, and must be mapped.
    Mapping { handle: RegionHandle, is_asked: bool, tries: u32 },
    /// This rank has answered.
    Answered(RegionHandle),
    /// Barriers and collectives are counted.
    Counts(Place),
}

/// The next barrier and the next collective of all ranks, by their numbers.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub barrier: u32,
    pub collective: u32,
}

impl Position {
    fn ahead(self, by: u32) -> Position {
        Position { barrier: self.barrier.wrapping_add(by), collective: self.collective.wrapping_add(by) }
    }

    /// The number of barriers and collectives before.
    fn count(self) -> u32 {
        self.barrier.wrapping_add(self.collective)
    }
}

/// Whether one number comes before another. Numbers wrap.
fn is_before(number: u32, other: u32) -> bool {
    number.wrapping_sub(other) > u32::MAX / 2
}

pub(crate) struct Counted {
    rank: u32,
    size: u32,
    /// The number of barriers and collectives after which rank 0 offers its memory; `None` if it does not.
    offers_at: Option<u32>,
    offers: u32,
    agreement: Agreement,
    /// The first barrier and collective that are counted, if all agree.
    first: Position,
    inside: Option<Inside>,
    collectives: Queue,
    /// The value behind each count when the last barrier there ended.
    busy_before: [u64; 2],
    /// How many barriers rank 0 had passed when it left, and whether all were idle at the last one.
    left: Option<(u16, bool)>,
    looks: u32,
    /// Whether this process has postponed progress, or has found that there is some to make. It makes progress before it sleeps.
    is_progress_owed: bool,
}

/// The state of a barrier.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Waits,
    /// All have arrived. The value says whether all were idle.
    Passed(bool),
    /// The barrier is not counted after all.
    ByRecords {
        is_busy: bool,
    },
}

/// How long a rank may sleep.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// Not at all, since there is something to do.
    No,
    /// Only a short time, since nobody wakes it.
    Short,
    /// Until it is woken.
    Long,
}

impl Counted {
    pub fn new(rank: u32, hosts: &[u32]) -> Counted {
        let are_here = hosts.iter().all(|host| Some(host) == hosts.first());
        let can = are_here && (2..=COUNTED_RANKS_MAX).contains(&hosts.len());
        Counted {
            rank,
            size: hosts.len() as u32,
            offers_at: (can && rank == OWNER).then_some(COUNTED_AFTER),
            offers: 0,
            agreement: Agreement::None,
            first: Position::default(),
            inside: None,
            collectives: Queue::default(),
            busy_before: [0; 2],
            left: None,
            looks: 0,
            is_progress_owed: false,
        }
    }

    /// Offers memory to all others, if this is rank 0 and it is time for that.
    pub fn offer(&mut self, links: &mut Links, at: Position) {
        if self.offers_at.is_none_or(|first| is_before(at.count(), first)) {
            return;
        }
        let ahead = COUNTED_AHEAD << (2 * self.offers);
        self.offers += 1;
        self.offers_at = None;
        let Ok(memory) = links.endpoint().allocate(place::MEMORY_BYTES) else { return };
        let Ok(handle) = links.endpoint().register(&memory, Access::ALL) else { return };
        self.first = at.ahead(ahead);
        self.agreement = Agreement::Offered { memory, handle, answered: 1 << OWNER, can: true };
        let Position { barrier, collective } = self.first;
        self.send_to_all(links, CountedWord::Offer { barrier, collective, handle });
    }

    fn send_to_all(&self, links: &mut Links, word: CountedWord) {
        for rank in 1..self.size {
            links.say(rank, &Word::Counted(word));
        }
    }

    /// Arrives at a barrier. Returns false if it is not counted.
    pub fn arrive(&mut self, links: &mut Links, number: u32, is_busy: bool) -> bool {
        if is_before(number, self.first.barrier) || matches!(self.agreement, Agreement::None) {
            return false;
        }
        let mut inside = Inside { number, is_busy, stage: Stage::Undecided };
        if let Agreement::Counts(place) = &self.agreement {
            // If it is not possible now, [`Counted::check`] does it later.
            let _ = inside.go_on(links, place, self.size);
        }
        self.inside = Some(inside);
        self.is_progress_owed = false;
        true
    }

    /// Whether a collective of this number is counted, or may be.
    pub fn takes(&self, number: u32) -> bool {
        !is_before(number, self.first.collective) && !matches!(self.agreement, Agreement::None)
    }

    /// Starts such a collective. [`Counted::step`] continues and ends it.
    pub fn collect(&mut self, number: u32, kind: Kind, data: Vec<u8>, cookie: u64) {
        let me = (self.rank, self.size);
        self.collectives.push(CountedCollective::new(number, kind, data, cookie, me));
    }

    /// How many of these have not ended.
    pub fn collecting(&self) -> usize {
        self.collectives.len()
    }

    /// Takes a collective back that can't end, since a rank is gone.
    pub fn take_back(&mut self) -> Option<CountedCollective> {
        self.collectives.pop()
    }

    /// Continues the first collective.
    pub fn step(&mut self, links: &mut Links) -> Step {
        let Some(number) = self.collectives.first().map(|first| first.number) else { return Step::Waits };
        if !self.takes(number) {
            return self.collectives.pop().map_or(Step::Waits, Step::ByRecords);
        }
        let Agreement::Counts(place) = &self.agreement else { return Step::Waits };
        match self.collectives.go_on(links, place, self.size) {
            Some(Step::Waits) => Step::Waits,
            Some(step) => {
                self.wake(links);
                step
            }
            None if self.left.is_some() => match self.collectives.pop() {
                Some(CountedCollective { cookie, .. }) => {
                    let why = "it has left before all had ended this collective".to_owned();
                    Step::Ended { cookie, result: Err(AmError::Gone { rank: OWNER, why }) }
                }
                None => Step::Waits,
            },
            None => Step::Waits,
        }
    }

    /// Whether this rank is in a barrier that is counted, or may be.
    pub fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    /// Whether barriers are counted from now on.
    #[cfg(test)]
    pub fn counts(&self) -> bool {
        matches!(self.agreement, Agreement::Counts(_))
    }

    /// Whether the barrier and the collective at this position will be counted.
    #[cfg(test)]
    pub fn counts_from(&self, at: Position) -> bool {
        let is_there = !is_before(at.barrier, self.first.barrier);
        self.counts() && is_there && !is_before(at.collective, self.first.collective)
    }

    /// Continues the barrier that this rank is in.
    pub fn check(&mut self, links: &mut Links) -> Check {
        let Some(inside) = &mut self.inside else { return Check::Waits };
        let place = match &self.agreement {
            _ if is_before(inside.number, self.first.barrier) => return self.check_by_records(),
            Agreement::None => return self.check_by_records(),
            Agreement::Counts(place) => place,
            _ => return Check::Waits,
        };
        match inside.go_on(links, place, self.size) {
            Some(false) => return Check::Waits,
            Some(true) => {}
            None => return self.check_left(),
        }
        let turn = inside.turn();
        let Some(busy) = place.peek(links, inside.at() + BUSY) else { return self.check_left() };
        let is_idle = std::mem::replace(&mut self.busy_before[turn], busy) == busy;
        self.inside = None;
        self.wake(links);
        Check::Passed(is_idle)
    }

    fn check_by_records(&mut self) -> Check {
        let is_busy = self.inside.take().is_some_and(|inside| inside.is_busy);
        Check::ByRecords { is_busy }
    }

    /// Checks a barrier whose memory is not there, perhaps because rank 0 has passed and left.
    fn check_left(&mut self) -> Check {
        let passed = self.inside.as_ref().map(|inside| inside.number.wrapping_add(1) as u16);
        match self.left {
            Some((number, was_idle)) if Some(number) == passed => {
                self.inside = None;
                Check::Passed(was_idle)
            }
            _ => Check::Waits,
        }
    }

    /// Wakes sleeping ranks, after this rank has passed. Rank 0 wakes all that sleep; another rank wakes rank 0, which passes
    /// then. A bit that was set for an earlier barrier wakes a rank that has nothing to do yet. That rank sets its bit again
    /// before it sleeps on.
    fn wake(&self, links: &mut Links) {
        let Agreement::Counts(place) = &self.agreement else { return };
        let sleepers = place.peek(links, SLEEPERS).unwrap_or_default();
        if self.rank != OWNER {
            if sleepers & 1 << OWNER != 0 {
                links.say(OWNER, &Word::Counted(CountedWord::Wake));
            }
        } else if sleepers != 0 {
            let sleepers = place.change(links, AtomicKind::Swap, 0, SLEEPERS).unwrap_or_default();
            for rank in (1..self.size).filter(|rank| sleepers >> rank & 1 != 0) {
                links.say(rank, &Word::Counted(CountedWord::Wake));
            }
        }
    }

    /// Checks whether there is anything to do. Each fourth check makes progress for others.
    pub fn look(&mut self, links: &mut Links) -> bool {
        if let (Agreement::Counts(place), Some(inside)) = (&self.agreement, &mut self.inside)
            && !matches!(inside.stage, Stage::Waits { .. })
            && inside.go_on(links, place, self.size).is_some()
        {
            // It was not possible before.
            return true;
        }
        match self.is_reached(links) {
            Some(true) => return true,
            Some(false) if !self.is_progress_due() => return false,
            _ => {}
        }
        let is_found = links.progress();
        self.is_progress_owed |= is_found;
        is_found
    }

    /// Whether a count has the value that this rank waits for. `None` if it waits for none, or the memory is not there.
    fn is_reached(&self, links: &mut Links) -> Option<bool> {
        let Agreement::Counts(place) = &self.agreement else { return None };
        let mut is_reached = None;
        for (at, target) in self.waits_for().into_iter().flatten() {
            is_reached = Some(is_reached == Some(true) || place.peek(links, at)? >= target);
        }
        is_reached
    }

    /// The places of the counts of a barrier and a collective, and the values that this rank waits for.
    fn waits_for(&self) -> [Option<(u64, u64)>; 2] {
        let barrier = self.inside.as_ref().and_then(|inside| match inside.stage {
            Stage::Waits { target } => Some((inside.at(), target)),
            _ => None,
        });
        [barrier, self.collectives.waits_for(self.size)]
    }

    /// Whether this process may postpone progress before it waits. If so, it must make progress later.
    pub fn puts_progress_off(&mut self) -> bool {
        !std::mem::replace(&mut self.is_progress_owed, true)
    }

    /// Notes that this process makes progress now.
    pub fn makes_progress(&mut self) {
        self.is_progress_owed = false;
    }

    /// Notes that the sleep of this process has ended.
    pub fn has_slept(&mut self) {
        self.is_progress_owed = true;
    }

    /// Whether it is time to make progress for others.
    pub fn is_progress_due(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        !matches!(self.agreement, Agreement::Counts(_))
            || self.looks.is_multiple_of(COUNTED_LOOKS_PER_PROGRESS)
    }

    /// Prepares for sleep.
    ///
    /// The caller has made all postponed progress. Only progress sends what handlers have left, such as credits that go back to
    /// their owner, and the rank that waits for these may be the one for which all others wait here.
    pub fn before_sleep(&mut self, links: &mut Links) -> Sleep {
        let place = match &self.agreement {
            Agreement::Counts(place) => place,
            Agreement::Mapping { is_asked: false, .. } => return Sleep::Short,
            _ => return Sleep::Long,
        };
        if self.inside.is_none() && self.collecting() == 0 {
            return Sleep::Long;
        }
        if self.is_progress_owed {
            return Sleep::No;
        }
        let [barrier, collective] = self.waits_for();
        let is_stuck =
            (self.inside.is_some() && barrier.is_none()) || (self.collecting() > 0 && collective.is_none());
        // A rank that passes has seen the addition of the last one, and reads the bits of sleepers after that. Either it sees
        // this rank's bit, or this rank sees the addition.
        let is_marked = place.change(links, AtomicKind::Or, 1 << self.rank, SLEEPERS).is_some();
        let mut sleep = if is_marked && !is_stuck { Sleep::Long } else { Sleep::Short };
        for (at, target) in [barrier, collective].into_iter().flatten() {
            match place.change(links, AtomicKind::FetchAdd, 0, at) {
                Some(count) if count >= target => return Sleep::No,
                Some(_) => {}
                None => sleep = Sleep::Short,
            }
        }
        sleep
    }

    /// Handles a record of a rank, while this rank is at this position, and in that barrier by records or not in it yet. Returns
    /// false if the rank can't send it.
    pub fn hear(
        &mut self,
        links: &mut Links,
        rank: u32,
        word: CountedWord,
        (at, is_inside): (Position, bool),
    ) -> bool {
        match word {
            CountedWord::Offer { barrier, collective, handle } => {
                if rank != OWNER
                    || !matches!(self.agreement, Agreement::None)
                    || handle.len_bytes() != place::MEMORY_BYTES as u64
                {
                    return false;
                }
                self.first = Position { barrier, collective };
                let is_late = is_before(barrier, at.barrier) || is_before(collective, at.collective);
                if is_late || barrier == at.barrier && is_inside {
                    self.answer(links, handle, false);
                } else {
                    self.agreement = Agreement::Mapping { handle, is_asked: false, tries: 0 };
                }
            }
            CountedWord::Answer { can } => {
                let Agreement::Offered { answered, can: all_can, .. } = &mut self.agreement else {
                    // The owner has lost a rank meanwhile.
                    return self.rank == OWNER;
                };
                let bit = 1_u64.checked_shl(rank).unwrap_or_default();
                if *answered & bit != 0 {
                    return false;
                }
                *answered |= bit;
                *all_can &= can;
                self.decide(links);
            }
            CountedWord::Decision { is_agreed } => {
                self.agreement = match self.agreement {
                    Agreement::Answered(handle) if rank == OWNER && is_agreed => {
                        Agreement::Counts(Place::At(handle))
                    }
                    // If rank 0 has lost a rank, it does not wait for all answers.
                    Agreement::Answered(_) | Agreement::Mapping { .. } if rank == OWNER && !is_agreed => {
                        Agreement::None
                    }
                    _ => return false,
                };
            }
            // This rank is awake now and checks the count. Rank 0 wakes others when it passes.
            CountedWord::Wake => {}
            CountedWord::Lost { .. } => return rank == OWNER,
        }
        true
    }

    /// If all have answered, informs them whether barriers are counted.
    fn decide(&mut self, links: &mut Links) {
        let Agreement::Offered { memory, handle, answered, can } = &self.agreement else { return };
        if answered.count_ones() < self.size {
            return;
        }
        let (is_agreed, memory, handle) = (*can, memory.clone(), *handle);
        self.send_to_all(links, CountedWord::Decision { is_agreed });
        if is_agreed {
            self.agreement = Agreement::Counts(Place::Here(memory));
        } else {
            self.withdraw(links, &handle);
        }
    }

    /// Withdraws an offer that failed. The next one may come in time.
    fn withdraw(&mut self, links: &mut Links, handle: &RegionHandle) {
        let done = links.endpoint().deregister(handle);
        debug_assert!(done.is_ok());
        self.agreement = Agreement::None;
        let is_last = self.offers >= COUNTED_OFFERS_MAX;
        self.offers_at = (!is_last).then(|| self.first.ahead(COUNTED_AHEAD).count());
    }

    fn answer(&mut self, links: &mut Links, handle: RegionHandle, can: bool) {
        self.agreement = Agreement::Answered(handle);
        links.say(OWNER, &Word::Counted(CountedWord::Answer { can }));
    }

    /// Tries to map the memory that was offered.
    #[inline]
    pub fn advance(&mut self, links: &mut Links) {
        if let Agreement::Mapping { handle, is_asked: false, tries } = self.agreement {
            self.map(links, handle, tries);
        }
    }

    /// Whether progress has nothing to do here.
    #[inline(always)]
    pub fn is_at_rest(&self) -> bool {
        self.collecting() == 0 && !matches!(self.agreement, Agreement::Mapping { is_asked: false, .. })
    }

    fn map(&mut self, links: &mut Links, handle: RegionHandle, tries: u32) {
        let Reach::Open(connection) = links.link(OWNER).reach else { return };
        if Place::At(handle).change(links, AtomicKind::FetchAdd, 0, SLEEPERS).is_some() {
            return self.answer(links, handle, true);
        }
        if tries >= COUNTED_TRIES_MAX {
            return self.answer(links, handle, false);
        }
        // An operation on the memory makes the endpoint map it, if that is possible.
        let atomic = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 0, compare: 0 };
        let target = RegionAddress::new(handle, SLEEPERS);
        let started = links.endpoint().atomic(connection, atomic, target, None, MAPPING, RmaFlags::NONE);
        self.agreement = Agreement::Mapping { handle, is_asked: started.is_ok(), tries: tries + 1 };
    }

    /// Handles the end of such an operation.
    pub fn mapped(&mut self) {
        if let Agreement::Mapping { is_asked, .. } = &mut self.agreement {
            *is_asked = false;
        }
    }

    /// Handles the loss of a rank. Rank 0 informs all others, which may not know it.
    pub fn lose(&mut self, links: &mut Links, lost: u32) {
        match self.agreement {
            Agreement::Offered { handle, .. } => {
                self.offers = COUNTED_OFFERS_MAX;
                self.send_to_all(links, CountedWord::Decision { is_agreed: false });
                self.withdraw(links, &handle);
            }
            Agreement::Counts(Place::Here(_)) => self.send_to_all(links, CountedWord::Lost { rank: lost }),
            _ => {}
        }
    }

    /// Notes how many barriers rank 0 had passed when it left. A rank that waits in the last one of them has passed it.
    pub fn owner_left(&mut self, passed: u16, was_idle: bool) {
        self.left = Some((passed, was_idle));
    }
}
