//! Barriers of ranks that are all on one host: counted in memory of rank 0's, which the others map ([ADR 53](../../../../docs/adr/0053-barriers-of-one-host-are-counted.md)).
//!
//! After a few barriers by records, rank 0 offers such memory. The others map it and answer; if all can, barriers are counted from the one
//! on that the offer names. A rank arrives by adding 1 to a count; all have arrived when that is a multiple of their number. Two counts take turns,
//! so that one stays as it is until all have seen it.

mod place;

use super::link::Reach;
use super::links::Links;
use crate::limits::{
    COUNTED_AFTER, COUNTED_AHEAD, COUNTED_LOOKS_PER_PROGRESS, COUNTED_OFFERS_MAX, COUNTED_RANKS_MAX,
    COUNTED_TRIES_MAX,
};
use crate::wire::{CountedWord, Word};
use cci::{Access, Atomic, AtomicKind, AtomicWidth, Memory, RegionAddress, RegionHandle, RmaFlags};
use place::{BUSY, Inside, MEMORY_BYTES, OWNER, Place, SLEEPERS, Stage};

/// The context of the operations by which memory is mapped. No operation of a program's has it.
pub(crate) const MAPPING: u64 = u64::MAX;

enum Agreement {
    /// Barriers are by records.
    None,
    /// This is rank 0, which waits for the answers of ranks that have no bit here.
    Offered { memory: Memory, handle: RegionHandle, answered: u64, can: bool },
    /// The memory was offered, and is to be mapped.
    Mapping { handle: RegionHandle, is_asked: bool, tries: u32 },
    /// This rank has answered.
    Answered(RegionHandle),
    /// Barriers are counted.
    Counts(Place),
}

pub(crate) struct Counted {
    rank: u32,
    size: u32,
    /// The barrier before which rank 0 offers its memory. None: it does not.
    offers_at: Option<u32>,
    offers: u32,
    agreement: Agreement,
    /// The first barrier that is counted, if all agree.
    first: u32,
    inside: Option<Inside>,
    /// What was found behind each count when a barrier ended there last.
    busy_before: [u64; 2],
    /// Rank 0 has left after so many barriers, and whether all were idle at the last one.
    left: Option<(u16, bool)>,
    looks: u32,
    /// This process has put progress off, or has found that there is some to make. It makes it before it sleeps.
    is_progress_owed: bool,
}

/// How things are with a barrier.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Waits,
    /// All have arrived, and were idle or not.
    Passed(bool),
    /// It is not counted after all.
    ByRecords {
        is_busy: bool,
    },
}

/// Whether a rank may sleep.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// There is something now.
    No,
    /// Nobody wakes it.
    Short,
    /// It will be woken.
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
            first: 0,
            inside: None,
            busy_before: [0; 2],
            left: None,
            looks: 0,
            is_progress_owed: false,
        }
    }

    /// Offers memory to all others, if this is rank 0 and it is time for that.
    pub fn offer(&mut self, links: &mut Links, number: u32) {
        if self.offers_at != Some(number) {
            return;
        }
        self.offers += 1;
        self.offers_at = None;
        let Ok(memory) = links.endpoint().allocate(MEMORY_BYTES) else { return };
        let Ok(handle) = links.endpoint().register(&memory, Access::ALL) else { return };
        self.first = number.wrapping_add(COUNTED_AHEAD);
        self.agreement = Agreement::Offered { memory, handle, answered: 1 << OWNER, can: true };
        self.tell_all(links, CountedWord::Offer { first: self.first, handle });
    }

    fn tell_all(&self, links: &mut Links, word: CountedWord) {
        for rank in 1..self.size {
            links.say(rank, &Word::Counted(word));
        }
    }

    /// This rank arrives at a barrier. False: it is not counted.
    pub fn arrive(&mut self, links: &mut Links, number: u32, is_busy: bool) -> bool {
        let is_before = number.wrapping_sub(self.first) > u32::MAX / 2;
        if is_before || matches!(self.agreement, Agreement::None) {
            return false;
        }
        let mut inside = Inside { number, is_busy, stage: Stage::Undecided };
        if let Agreement::Counts(place) = &self.agreement {
            // What was not possible now is done where it is checked whether all have arrived.
            let _ = inside.go_on(links, place, self.size);
        }
        self.inside = Some(inside);
        self.is_progress_owed = false;
        true
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

    /// Goes on with the barrier that this rank is in.
    pub fn check(&mut self, links: &mut Links) -> Check {
        let Some(inside) = &mut self.inside else { return Check::Waits };
        let place = match &self.agreement {
            Agreement::Counts(place) => place,
            Agreement::None => {
                let is_busy = inside.is_busy;
                self.inside = None;
                return Check::ByRecords { is_busy };
            }
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

    /// The memory is not there, perhaps since rank 0 has passed and left.
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

    /// This rank has passed. Rank 0 wakes those who sleep; another rank wakes rank 0, which passes then. A bit that was set for an earlier barrier
    /// wakes a rank that has nothing to do yet: it sets its bit again before it sleeps on.
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

    /// Looks whether there is anything to do, and makes progress for others with each fourth look.
    pub fn look(&mut self, links: &mut Links) -> bool {
        if let (Agreement::Counts(place), Some(inside)) = (&self.agreement, &mut self.inside) {
            if let Stage::Waits { target } = inside.stage {
                if let Some(count) = place.peek(links, inside.at()) {
                    if count >= target {
                        return true;
                    }
                    if !self.is_progress_due() {
                        return false;
                    }
                }
            } else if inside.go_on(links, place, self.size).is_some() {
                // It was not possible before.
                return true;
            }
        }
        let is_found = links.progress();
        self.is_progress_owed |= is_found;
        is_found
    }

    /// Whether this process may go without progress before it waits. If so, it owes that from now on.
    pub fn puts_progress_off(&mut self) -> bool {
        !std::mem::replace(&mut self.is_progress_owed, true)
    }

    /// This process makes progress now.
    pub fn makes_progress(&mut self) {
        self.is_progress_owed = false;
    }

    /// Something has ended the sleep of this process.
    pub fn has_slept(&mut self) {
        self.is_progress_owed = true;
    }

    /// Whether it is time to make progress for others.
    pub fn is_progress_due(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        !matches!(self.agreement, Agreement::Counts(_))
            || self.looks.is_multiple_of(COUNTED_LOOKS_PER_PROGRESS)
    }

    /// This rank is about to sleep.
    ///
    /// Whoever sleeps owes no progress. What handlers have left to be sent, as credits that go back to their owner, is sent by it alone, and
    /// the rank that waits for it may be the one that all others wait for here.
    pub fn before_sleep(&mut self, links: &mut Links) -> Sleep {
        let place = match &self.agreement {
            Agreement::Counts(place) => place,
            Agreement::Mapping { is_asked: false, .. } => return Sleep::Short,
            _ => return Sleep::Long,
        };
        let Some(inside) = &self.inside else { return Sleep::Long };
        if self.is_progress_owed {
            return Sleep::No;
        }
        let Stage::Waits { target } = inside.stage else { return Sleep::Short };
        // Whoever passes has seen the last one's addition to the count, and looks for sleepers after that. Either it sees the bit, or this rank
        // sees the addition.
        let is_marked = place.change(links, AtomicKind::Or, 1 << self.rank, SLEEPERS).is_some();
        match place.change(links, AtomicKind::FetchAdd, 0, inside.at()) {
            Some(count) if count >= target => Sleep::No,
            Some(_) if is_marked => Sleep::Long,
            _ => Sleep::Short,
        }
    }

    /// A rank has said something, while this one is in a barrier of this number, or will be next. False: it can't say that.
    pub fn hear(
        &mut self,
        links: &mut Links,
        rank: u32,
        word: CountedWord,
        (number, is_inside): (u32, bool),
    ) -> bool {
        match word {
            CountedWord::Offer { first, handle } => {
                if rank != OWNER
                    || !matches!(self.agreement, Agreement::None)
                    || handle.len_bytes() != MEMORY_BYTES as u64
                {
                    return false;
                }
                self.first = first;
                let until = first.wrapping_sub(number);
                if until > u32::MAX / 2 || until == 0 && is_inside {
                    self.answer(links, handle, false);
                } else {
                    self.agreement = Agreement::Mapping { handle, is_asked: false, tries: 0 };
                }
            }
            CountedWord::Answer { can } => {
                let Agreement::Offered { answered, can: all_can, .. } = &mut self.agreement else {
                    // It has lost a rank meanwhile.
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
                    // Rank 0 does not wait for all answers where it has lost a rank.
                    Agreement::Answered(_) | Agreement::Mapping { .. } if rank == OWNER && !is_agreed => {
                        Agreement::None
                    }
                    _ => return false,
                };
            }
            // It has woken this rank, which looks at the count now. Rank 0 wakes others when it passes.
            CountedWord::Wake => {}
            CountedWord::Lost { .. } => return rank == OWNER,
        }
        true
    }

    /// If all have answered: says whether barriers are counted.
    fn decide(&mut self, links: &mut Links) {
        let Agreement::Offered { memory, handle, answered, can } = &self.agreement else { return };
        if answered.count_ones() < self.size {
            return;
        }
        let (is_agreed, memory, handle) = (*can, memory.clone(), *handle);
        self.tell_all(links, CountedWord::Decision { is_agreed });
        if is_agreed {
            self.agreement = Agreement::Counts(Place::Here(memory));
        } else {
            self.withdraw(links, &handle);
        }
    }

    /// Nothing becomes of an offer. Perhaps the next one comes in time.
    fn withdraw(&mut self, links: &mut Links, handle: &RegionHandle) {
        let done = links.endpoint().deregister(handle);
        debug_assert!(done.is_ok());
        self.agreement = Agreement::None;
        let is_last = self.offers >= COUNTED_OFFERS_MAX;
        self.offers_at = (!is_last).then(|| self.first.wrapping_add(COUNTED_AHEAD));
    }

    fn answer(&mut self, links: &mut Links, handle: RegionHandle, can: bool) {
        self.agreement = Agreement::Answered(handle);
        links.say(OWNER, &Word::Counted(CountedWord::Answer { can }));
    }

    /// Tries to map what was offered.
    #[inline]
    pub fn advance(&mut self, links: &mut Links) {
        if let Agreement::Mapping { handle, is_asked: false, tries } = self.agreement {
            self.map(links, handle, tries);
        }
    }

    fn map(&mut self, links: &mut Links, handle: RegionHandle, tries: u32) {
        let Reach::Open(connection) = links.link(OWNER).reach else { return };
        if Place::At(handle).change(links, AtomicKind::FetchAdd, 0, SLEEPERS).is_some() {
            return self.answer(links, handle, true);
        }
        if tries >= COUNTED_TRIES_MAX {
            return self.answer(links, handle, false);
        }
        // An operation on the memory has the endpoint map it, where that is possible.
        let atomic = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 0, compare: 0 };
        let target = RegionAddress::new(handle, SLEEPERS);
        let started = links.endpoint().atomic(connection, atomic, target, None, MAPPING, RmaFlags::NONE);
        self.agreement = Agreement::Mapping { handle, is_asked: started.is_ok(), tries: tries + 1 };
    }

    /// Such an operation has ended.
    pub fn mapped(&mut self) {
        if let Agreement::Mapping { is_asked, .. } = &mut self.agreement {
            *is_asked = false;
        }
    }

    /// A rank is gone. Rank 0 tells all others, which may not know it.
    pub fn lose(&mut self, links: &mut Links, lost: u32) {
        match self.agreement {
            Agreement::Offered { handle, .. } => {
                self.offers = COUNTED_OFFERS_MAX;
                self.tell_all(links, CountedWord::Decision { is_agreed: false });
                self.withdraw(links, &handle);
            }
            Agreement::Counts(Place::Here(_)) => self.tell_all(links, CountedWord::Lost { rank: lost }),
            _ => {}
        }
    }

    /// Rank 0 leaves after so many barriers. Whoever waits in the last one of them has passed it.
    pub fn owner_left(&mut self, passed: u16, was_idle: bool) {
        self.left = Some((passed, was_idle));
    }
}
