//! The mapped memories and the files of one peer, and how long they are kept.
//!
//! A memory stays mapped for a while after its last region has ended. A program that lends a part of it once often does so again,
//! and each new mapping costs a fault for each page. Nothing of it can be used meanwhile, since only a grant names the live word
//! that allows access.

use crate::engine::charge::{Charge, ChargedBytes};
use cci_memory::bytes::{Backing, Bytes};
use cci_sys::shared_memory::SharedMemory;
use std::fs::File;
use std::sync::Arc;

/// The most memories of one peer that are mapped at a time.
const MAPPINGS_MAX: usize = 64;
/// The most memories of one peer that are kept without a region.
const KEPT_MAX: usize = 16;
/// How long a memory without a region is kept.
const KEPT_NS: u64 = 1_000_000_000;
/// While more than this part of the endpoint's cap is mapped memory of peers, no memory without a region is kept.
const KEPT_SHARE: u64 = 4;

/// What a peer has granted, as this process reaches it.
pub(super) enum PeerMemory {
    Mapped(Arc<SharedMemory>),
    /// A file, and how long the peer says that it is.
    File(File, u64),
}

struct Mapping {
    /// The number that the peer calls it by.
    memory: u64,
    granted: PeerMemory,
    /// Its part of the sum of mapped memory.
    _charge: Charge,
    /// The number of its last use. The uses of all mappings are numbered.
    used: u64,
    /// When its last granted region ended.
    kept_since_ns: Option<u64>,
}

/// What decides how long memory is kept.
#[derive(Copy, Clone, Debug)]
pub(in crate::transport::shm) struct Keep {
    pub now_ns: u64,
    /// The cap of the endpoint's memory.
    pub cap_bytes: u64,
}

/// The memories of one peer that are mapped.
pub(super) struct Mappings {
    slots: Vec<Option<Mapping>>,
    /// The sum of what is mapped of the peer's process, which is a part of that of the endpoint.
    sum: ChargedBytes,
    uses: u64,
    /// When the first memory without a region is unmapped; `u64::MAX` if there is none.
    kept_until_ns: u64,
}

impl Mappings {
    pub fn new(sum: &ChargedBytes) -> Mappings {
        Mappings { slots: Vec::new(), sum: sum.clone(), uses: 0, kept_until_ns: u64::MAX }
    }

    pub fn count(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// How many bytes are mapped.
    pub fn mapped_bytes(&self) -> u64 {
        let mapped = self.slots.iter().flatten().map(|mapping| match &mapping.granted {
            PeerMemory::Mapped(segment) => segment.len() as u64,
            PeerMemory::File(..) => 0,
        });
        mapped.sum()
    }

    /// What the table itself takes, bytes.
    pub fn table_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Option<Mapping>>()
    }

    /// The place of a memory's mapping.
    pub fn of(&self, memory: u64) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(|mapping| mapping.memory == memory))
    }

    pub fn granted(&self, at: usize) -> Option<&PeerMemory> {
        Some(&self.slots.get(at)?.as_ref()?.granted)
    }

    /// The memory there, if it is memory.
    pub fn segment(&self, at: usize) -> Option<&Arc<SharedMemory>> {
        match self.granted(at)? {
            PeerMemory::Mapped(segment) => Some(segment),
            PeerMemory::File(..) => None,
        }
    }

    /// The bytes of a mapping, which counts as used. `None` for a file.
    #[inline]
    pub fn used(&mut self, at: usize) -> Option<Bytes> {
        let mapping = self.slots.get_mut(at)?.as_mut()?;
        let PeerMemory::Mapped(segment) = &mapping.granted else { return None };
        self.uses += 1;
        mapping.used = self.uses;
        Some(segment.bytes())
    }

    /// A file, which counts as used. `None` for memory.
    pub fn used_file(&mut self, at: usize) -> Option<&File> {
        let mapping = self.slots.get_mut(at)?.as_mut()?;
        let PeerMemory::File(file, _) = &mapping.granted else { return None };
        self.uses += 1;
        mapping.used = self.uses;
        Some(file)
    }

    /// A slot for another mapping: a free one, otherwise that of the mapping that was unused longest.
    pub fn slot(&mut self) -> usize {
        if let Some(at) = self.slots.iter().position(Option::is_none) {
            return at;
        }
        if self.slots.len() < MAPPINGS_MAX {
            self.slots.push(None);
            return self.slots.len() - 1;
        }
        let by_use = self.slots.iter().enumerate();
        let oldest = by_use.min_by_key(|(_, slot)| slot.as_ref().map_or(0, |mapping| mapping.used));
        oldest.map_or(0, |(at, _)| at)
    }

    /// Puts what was granted into a slot.
    pub fn put(&mut self, at: usize, memory: u64, granted: PeerMemory, charged_bytes: u64) {
        let charge = self.sum.charge(charged_bytes);
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = Some(Mapping { memory, granted, _charge: charge, used: self.uses, kept_since_ns: None });
        }
    }

    pub fn remove(&mut self, at: usize) {
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = None;
        }
    }

    pub fn clear(&mut self) {
        self.slots.clear();
        self.kept_until_ns = u64::MAX;
    }

    /// Notes that a region of a mapping is granted.
    pub fn is_granted(&mut self, at: usize) {
        if let Some(Some(mapping)) = self.slots.get_mut(at) {
            mapping.kept_since_ns = None;
        }
    }

    /// Decides which mappings without a grant are kept. `named` lists those that have one. Returns whether one was unmapped.
    pub fn keep(&mut self, named: impl Iterator<Item = usize>, keep: Keep) -> bool {
        let mut is_named = [false; MAPPINGS_MAX];
        for at in named {
            if let Some(is_named) = is_named.get_mut(at) {
                *is_named = true;
            }
        }
        for (slot, is_named) in self.slots.iter_mut().zip(is_named) {
            if let Some(mapping) = slot {
                let since_ns = *mapping.kept_since_ns.get_or_insert(keep.now_ns);
                mapping.kept_since_ns = (!is_named).then_some(since_ns);
            }
        }
        let mut has_released = false;
        while self.kept() > KEPT_MAX || self.sum.whole().total() > keep.cap_bytes / KEPT_SHARE {
            let since_ns = |slot: &Option<Mapping>| slot.as_ref().and_then(|mapping| mapping.kept_since_ns);
            let kept =
                self.slots.iter().enumerate().filter_map(|(at, slot)| Some((since_ns(slot)?, at))).min();
            let Some((_, oldest)) = kept else { break };
            self.remove(oldest);
            has_released = true;
        }
        self.release_due(keep.now_ns) || has_released
    }

    /// How many mappings without a region are kept.
    fn kept(&self) -> usize {
        self.slots.iter().flatten().filter(|mapping| mapping.kept_since_ns.is_some()).count()
    }

    /// When the first memory without a region is unmapped; `u64::MAX` if there is none.
    #[inline]
    pub fn kept_until_ns(&self) -> u64 {
        self.kept_until_ns
    }

    /// Unmaps memories without a region that were kept long enough. Returns whether there was one.
    pub fn release_due(&mut self, now_ns: u64) -> bool {
        let mut has_released = false;
        self.kept_until_ns = u64::MAX;
        for slot in &mut self.slots {
            let Some(since_ns) = slot.as_ref().and_then(|mapping| mapping.kept_since_ns) else { continue };
            let until_ns = since_ns.saturating_add(KEPT_NS);
            if until_ns <= now_ns {
                (*slot, has_released) = (None, true);
            } else {
                self.kept_until_ns = self.kept_until_ns.min(until_ns);
            }
        }
        has_released
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci_sys::memory::RmaMemory;

    const PAGE_BYTES: usize = 4096;

    fn put(mappings: &mut Mappings, memory: u64) -> usize {
        let made = RmaMemory::create(PAGE_BYTES).unwrap();
        let fd = made.shared().fd().unwrap().try_clone_to_owned().unwrap();
        let at = mappings.slot();
        let segment = SharedMemory::open_rma(fd, PAGE_BYTES).unwrap();
        mappings.put(at, memory, PeerMemory::Mapped(Arc::new(segment)), PAGE_BYTES as u64);
        at
    }

    fn keep(now_ns: u64) -> Keep {
        Keep { now_ns, cap_bytes: u64::MAX }
    }

    #[test]
    fn what_has_no_region_is_kept_for_its_time_and_no_longer() {
        let mut mappings = Mappings::new(&ChargedBytes::default());
        let (one, other) = (put(&mut mappings, 1), put(&mut mappings, 2));
        assert!(!mappings.keep([one].into_iter(), keep(5)));
        assert_eq!((mappings.count(), mappings.kept_until_ns()), (2, 5 + KEPT_NS));
        // Later notes do not prolong it. A region that is granted in time does.
        assert!(!mappings.keep([one].into_iter(), keep(500)));
        assert_eq!(mappings.kept_until_ns(), 5 + KEPT_NS);
        mappings.is_granted(other);
        assert!(!mappings.release_due(5 + KEPT_NS));
        assert_eq!((mappings.count(), mappings.kept_until_ns()), (2, u64::MAX));
        assert!(!mappings.keep([].into_iter(), keep(600)));
        assert!(!mappings.release_due(599 + KEPT_NS) && mappings.release_due(600 + KEPT_NS));
        assert_eq!((mappings.count(), mappings.kept_until_ns()), (0, u64::MAX));
    }

    #[test]
    fn no_more_are_kept_than_may_be_and_none_where_much_is_mapped() {
        let sum = ChargedBytes::default();
        let mut mappings = Mappings::new(&sum);
        let all: Vec<usize> = (0..30).map(|memory| put(&mut mappings, memory)).collect();
        // Each has lost its region later than those before it. The last ones are kept.
        for ended in 1..=all.len() {
            mappings.keep(all[ended..].iter().copied(), keep(ended as u64));
        }
        assert_eq!(mappings.count(), KEPT_MAX);
        let kept: Vec<u64> = (0..30).filter(|memory| mappings.of(*memory).is_some()).collect();
        assert_eq!(kept, (14..30).collect::<Vec<u64>>());
        // Memory of another peer counts as well.
        let share_bytes = 20 * PAGE_BYTES as u64;
        let of_others = sum.charge(15 * PAGE_BYTES as u64);
        assert!(mappings.keep([].into_iter(), Keep { now_ns: 40, cap_bytes: KEPT_SHARE * share_bytes }));
        assert_eq!((mappings.count(), sum.total()), (5, share_bytes));
        drop(of_others);
        assert!(mappings.keep([].into_iter(), Keep { now_ns: 41, cap_bytes: 0 }));
        assert_eq!((mappings.count(), sum.total()), (0, 0));
    }

    #[test]
    fn the_slot_of_the_mapping_that_was_not_used_for_longest_is_the_next() {
        let mut mappings = Mappings::new(&ChargedBytes::default());
        let all: Vec<usize> = (0..MAPPINGS_MAX as u64).map(|memory| put(&mut mappings, memory)).collect();
        for at in all.iter().rev() {
            assert!(mappings.used(*at).is_some());
        }
        assert_eq!(mappings.slot(), all[MAPPINGS_MAX - 1]);
        mappings.remove(3);
        assert_eq!(mappings.slot(), 3);
        assert_eq!(mappings.mapped_bytes(), (MAPPINGS_MAX - 1) as u64 * PAGE_BYTES as u64);
    }
}
