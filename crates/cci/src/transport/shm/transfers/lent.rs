//! The memories that peers are known to map. A peer may unmap one at any time. A new region of such a memory is granted by a
//! record alone, and peers are informed when the memory has ended.

use crate::rma::{Grantable, Memory};
use cci_memory::slab::Key;
use std::sync::Weak;

/// The most memories that are known to be mapped. Regions of other memories must be asked for.
const LENT_MAX: usize = 1024;
/// How often it is checked whether one of them has ended.
const LOOK_NS: u64 = 1_000_000;

struct LentMemory {
    /// The memory's number. It changes when the memory gets new pages.
    id: u64,
    memory: Weak<Grantable>,
    links: Vec<Key>,
}

/// The memories that peers map.
#[derive(Default)]
pub(super) struct Lent {
    all: Vec<LentMemory>,
    looked_ns: u64,
}

impl Lent {
    /// Notes that the peer of a link was sent the descriptor of a memory.
    pub fn add(&mut self, id: u64, memory: &Memory, link: Key) {
        if let Some(known) = self.all.iter_mut().find(|known| known.id == id) {
            if !known.links.contains(&link) {
                known.links.push(link);
            }
            return;
        }
        let Some(memory) = memory.downgrade() else { return };
        if self.all.len() >= LENT_MAX {
            self.all.remove(0);
        }
        self.all.push(LentMemory { id, memory, links: vec![link] });
    }

    /// Whether the peer of a link was sent the descriptor of a memory.
    pub fn has(&self, id: u64, link: Key) -> bool {
        self.all.iter().any(|known| known.id == id && known.links.contains(&link))
    }

    /// Forgets a link.
    pub fn link_ended(&mut self, link: Key) {
        self.all.retain_mut(|known| {
            known.links.retain(|key| *key != link);
            !known.links.is_empty()
        });
    }

    /// Whether it is time to check which memories have ended.
    #[inline]
    pub fn is_look_due(&self, now_ns: u64) -> bool {
        !self.all.is_empty() && now_ns.saturating_sub(self.looked_ns) >= LOOK_NS
    }

    /// Removes the memories that have ended, or have other pages now. Returns their numbers, and the links of the peers that map
    /// them.
    pub fn take_ended(&mut self, now_ns: u64) -> Vec<(u64, Vec<Key>)> {
        self.looked_ns = now_ns;
        let mut ended = Vec::new();
        self.all.retain_mut(|known| {
            let is_there = known.memory.upgrade().is_some_and(|memory| memory.id() == known.id);
            if !is_there {
                ended.push((known.id, std::mem::take(&mut known.links)));
            }
            is_there
        });
        ended
    }

    pub fn bytes(&self) -> usize {
        let links: usize = self.all.iter().map(|known| known.links.capacity() * size_of::<Key>()).sum();
        self.all.capacity() * size_of::<LentMemory>() + links
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci_sys::memory::RmaMemory;
    use std::sync::Arc;

    fn memory() -> (Memory, u64) {
        let memory = Memory::library(RmaMemory::create(4096).unwrap(), Arc::default(), 4096);
        let id = memory.grantable().unwrap().id();
        (memory, id)
    }

    #[test]
    fn a_memory_is_known_until_it_is_freed_or_has_other_pages() {
        let (one, other) = (Key { index: 1, generation: 1 }, Key { index: 2, generation: 1 });
        let mut lent = Lent::default();
        let ((freed, freed_id), (kept, kept_id)) = (memory(), memory());
        lent.add(freed_id, &freed, one);
        lent.add(freed_id, &freed, other);
        lent.add(kept_id, &kept, one);
        assert!(lent.has(freed_id, other) && !lent.has(kept_id, other));
        assert!(lent.is_look_due(LOOK_NS) && lent.take_ended(LOOK_NS).is_empty());
        assert!(!lent.is_look_due(2 * LOOK_NS - 1));
        drop(freed);
        assert_eq!(lent.take_ended(0), [(freed_id, vec![one, other])]);
        assert!(lent.take_ended(0).is_empty(), "it is reported once");
        kept.grantable().unwrap().detach().unwrap();
        assert_eq!(lent.take_ended(0), [(kept_id, vec![one])]);
        assert!(!lent.is_look_due(u64::MAX));
    }

    #[test]
    fn what_is_known_is_bounded_and_ends_with_the_link() {
        let key = |index| Key { index, generation: 1 };
        let (memory, id) = memory();
        let mut lent = Lent::default();
        for number in 0..3 * LENT_MAX as u64 {
            lent.add(id + number, &memory, key(number as u32 % 2));
        }
        assert_eq!(lent.all.len(), LENT_MAX);
        lent.link_ended(key(0));
        assert_eq!(lent.all.len(), LENT_MAX / 2);
        lent.link_ended(key(1));
        assert!(lent.all.is_empty());
    }
}
