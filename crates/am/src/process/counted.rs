//! Barriers of ranks that are all on one host: counted in memory of rank 0's, which the others map ([ADR 53](../../../../docs/adr/0053-barriers-of-one-host-are-counted.md)).
//!
//! After a few barriers by records, rank 0 offers such memory. The others map it and answer; if all can, barriers are counted from the one
//! on that the offer names. A rank arrives by adding 1 to a count; all have arrived when that is a multiple of their number. Two counts take turns,
//! so that one stays as it is until all have seen it.

use super::link::Reach;
use super::links::Links;
use crate::limits::{
    COUNTED_AFTER, COUNTED_AHEAD, COUNTED_LOOKS_PER_PROGRESS, COUNTED_OFFERS_MAX, COUNTED_RANKS_MAX,
    COUNTED_TRIES_MAX,
};
use crate::wire::{CountedWord, Word};
use cci::{Access, Atomic, AtomicKind, AtomicWidth, Memory, RegionAddress, RegionHandle, RmaFlags};

/// The context of the operations by which memory is mapped. No operation of a program's has it.
pub(crate) const MAPPING: u64 = u64::MAX;
/// Who counts.
const OWNER: u32 = 0;

/// The two counts, bytes from the beginning, and behind each one how many ranks were not idle.
const COUNTS: [u64; 2] = [0, 128];
const BUSY: u64 = 8;
/// A bit for each rank that sleeps.
const SLEEPERS: u64 = 256;
const MEMORY_BYTES: usize = 4096;

/// Where the counts are.
#[derive(Clone)]
enum Place {
    Here(Memory),
    At(RegionHandle),
}

impl Place {
    /// Changes a word, and returns the one from before. None: that is not possible, or not now.
    fn change(&self, links: &mut Links, kind: AtomicKind, operand: u64, at: u64) -> Option<u64> {
        let atomic = Atomic { kind, width: AtomicWidth::Eight, operand, compare: 0 };
        match self {
            Place::Here(memory) => memory.atomic(at as usize, atomic).ok(),
            Place::At(handle) => {
                let Reach::Open(connection) = links.link(OWNER).reach else { return None };
                links.endpoint().fetch_at_once(connection, atomic, RegionAddress::new(*handle, at))?.ok()
            }
        }
    }

    /// Reads a word as of any time; what comes with it may not be there yet.
    fn peek(&self, links: &mut Links, at: u64) -> Option<u64> {
        match self {
            Place::Here(memory) => memory.load(at as usize, AtomicWidth::Eight).ok(),
            Place::At(handle) => {
                let Reach::Open(connection) = links.link(OWNER).reach else { return None };
                let mut bytes = [0; 8];
                let source = RegionAddress::new(*handle, at);
                links
                    .endpoint()
                    .read_at_once(connection, source, &mut bytes)
                    .then(|| u64::from_ne_bytes(bytes))
            }
        }
    }
}

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

/// How far this rank is in a barrier.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// It is not decided yet whether it is counted.
    Undecided,
    /// It has to be told that this rank is not idle, and then that it has arrived.
    IsBusy,
    Arrives,
    /// All have arrived when the count is that.
    Waits {
        target: u64,
    },
}

struct Inside {
    number: u32,
    is_busy: bool,
    stage: Stage,
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
            let _ = go_on(links, place, &mut inside, self.size);
        }
        self.inside = Some(inside);
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
        match go_on(links, place, inside, self.size) {
            Some(false) => return Check::Waits,
            Some(true) => {}
            None => return self.check_left(),
        }
        let turn = inside.number as usize % 2;
        let Some(busy) = place.peek(links, COUNTS[turn] + BUSY) else { return self.check_left() };
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

    /// Rank 0 wakes those who sleep; another rank wakes rank 0 for that.
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
        if let (Agreement::Counts(place), Some(inside)) = (&self.agreement, &self.inside)
            && let Stage::Waits { target } = inside.stage
            && let Some(count) = place.peek(links, COUNTS[inside.number as usize % 2])
        {
            if count >= target {
                return true;
            }
            if !self.is_progress_due() {
                return false;
            }
        }
        links.progress()
    }

    /// Whether it is time to make progress for others.
    pub fn is_progress_due(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        !matches!(self.agreement, Agreement::Counts(_))
            || self.looks.is_multiple_of(COUNTED_LOOKS_PER_PROGRESS)
    }

    /// This rank is about to sleep.
    pub fn before_sleep(&mut self, links: &mut Links) -> Sleep {
        let (Agreement::Counts(place), Some(inside)) = (&self.agreement, &self.inside) else {
            return Sleep::Long;
        };
        let Stage::Waits { target } = inside.stage else { return Sleep::Short };
        let at = COUNTS[inside.number as usize % 2];
        // Whoever arrives last adds to the count and then looks for sleepers. So one of the two sees the other.
        let is_marked = place.change(links, AtomicKind::Or, 1 << self.rank, SLEEPERS).is_some();
        match place.change(links, AtomicKind::FetchAdd, 0, at) {
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
            CountedWord::Wake => self.wake(links),
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
    pub fn advance(&mut self, links: &mut Links) {
        let Agreement::Mapping { handle, is_asked: false, tries } = self.agreement else { return };
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

/// Goes on with a barrier. Returns whether all have arrived. None: the memory is not there.
fn go_on(links: &mut Links, place: &Place, inside: &mut Inside, size: u32) -> Option<bool> {
    let at = COUNTS[inside.number as usize % 2];
    if inside.stage == Stage::Undecided {
        inside.stage = if inside.is_busy { Stage::IsBusy } else { Stage::Arrives };
    }
    if inside.stage == Stage::IsBusy {
        place.change(links, AtomicKind::FetchAdd, 1, at + BUSY)?;
        inside.stage = Stage::Arrives;
    }
    if inside.stage == Stage::Arrives {
        let before = place.change(links, AtomicKind::FetchAdd, 1, at)?;
        let size = u64::from(size);
        let target = (before / size).wrapping_add(1).wrapping_mul(size);
        inside.stage = Stage::Waits { target };
        return Some(before.wrapping_add(1) == target);
    }
    let Stage::Waits { target } = inside.stage else { return Some(false) };
    // The second one comes after all that others had done when they arrived.
    Some(place.peek(links, at)? >= target && place.change(links, AtomicKind::FetchAdd, 0, at)? >= target)
}
