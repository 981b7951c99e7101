//! Handshakes and associations by index, and what is known of each address.

use super::in_progress::InProgress;
use super::link::Link;
use crate::failure::Failure;
use crate::identity::Identity;
use cci_memory::slab::{Key, Slab};

/// How many of an index's bits name the slot.
const SLOT_BITS: u32 = 20;
/// How many entries a table can have.
pub(super) const SLOTS_MAX: u32 = (1 << SLOT_BITS) - 1;

/// A handshake, an association, or both: an association while the end of its handshake may have to be repeated.
pub(super) struct Entry<A> {
    pub address: A,
    /// The handshake's identifier, which both sides know.
    pub id: u64,
    /// Whether this side began the handshake.
    pub initiator: bool,
    /// The index that the peer has given this entry; 0 while it is not known.
    pub peer_index: u32,
    pub in_progress: Option<Box<InProgress>>,
    pub link: Option<Box<Link>>,
    /// Whether the association counts against the limits: this side has asked for it, or has received something that the
    /// peer sealed by it.
    pub counts: bool,
    /// Whether it is in the list of entries with something to transmit.
    pub is_ready: bool,
    /// Whether an empty sealed datagram has to be sent.
    pub empty_is_due: bool,
}

/// Entries by index. A [`Slab`]'s key becomes an index of 32 bits: below, the slot counted from 1, so that no index is 0;
/// above, the generation's lowest bits, so that an index comes again only when its slot was used 4096 times.
pub(super) struct Table<A>(Slab<Entry<A>>);

impl<A> Table<A> {
    pub const fn new() -> Table<A> {
        Table(Slab::new(SLOTS_MAX))
    }

    pub fn len(&self) -> usize {
        self.0.len() as usize
    }

    /// Bytes of the table, without what its entries own.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    const fn index(key: Key) -> u32 {
        key.generation << SLOT_BITS | (key.index + 1)
    }

    /// The slot that an index names. Index 0 names one that no table has.
    const fn slot(index: u32) -> u32 {
        (index & SLOTS_MAX).wrapping_sub(1)
    }

    /// The new entry's index. `None`: there are as many as there can be, or there is no memory.
    pub fn insert(&mut self, entry: Entry<A>) -> Option<u32> {
        self.0.insert(entry).ok().map(Self::index)
    }

    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut Entry<A>> {
        self.0.at_mut(Self::slot(index)).filter(|(key, _)| Self::index(*key) == index).map(|(_, entry)| entry)
    }

    pub fn get(&self, index: u32) -> Option<&Entry<A>> {
        self.0.at(Self::slot(index)).filter(|(key, _)| Self::index(*key) == index).map(|(_, entry)| entry)
    }

    pub fn remove(&mut self, index: u32) -> Option<Entry<A>> {
        let key = self.0.key_at(Self::slot(index)).filter(|key| Self::index(*key) == index)?;
        self.0.remove(key)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Entry<A>)> {
        self.0.iter_mut().map(|(key, entry)| (Self::index(key), entry))
    }
}

/// What is known of one address.
#[derive(Default)]
pub(super) struct AddressState {
    /// The association that seals what is sent.
    pub current: Option<u32>,
    /// The association that was current before, and until when (in nanoseconds) the peer may still use it.
    pub before: Option<(u32, u64)>,
    /// The handshake that this side began.
    pub as_initiator: Option<u32>,
    /// The handshake that the peer began.
    pub as_responder: Option<u32>,
    /// How many connections and requests use the address.
    pub users: u32,
    /// Whom the address belongs to while it has users.
    pub identity: Option<Identity>,
    /// The names that connections expect at the address, one for each connection that expects one.
    pub expected: Vec<Box<str>>,
    /// A datagram that waits for an association.
    pub held: Option<Vec<u8>>,
    /// Since when it waits.
    pub held_ns: u64,
    /// Why the last handshake failed, for people to read, and when.
    pub failure: Option<(String, u64)>,
}

impl AddressState {
    pub fn fail(&mut self, failure: &Failure, now_ns: u64) {
        self.failure = Some((failure.to_string(), now_ns));
    }

    /// Removes all mention of an entry that is gone.
    pub fn forget(&mut self, index: u32) {
        for of in [&mut self.current, &mut self.as_initiator, &mut self.as_responder] {
            of.take_if(|of| *of == index);
        }
        self.before.take_if(|(of, _)| *of == index);
    }

    /// Whether nothing needs to be remembered.
    pub fn is_empty(&self) -> bool {
        let entries = [self.current, self.before.map(|(of, _)| of), self.as_initiator, self.as_responder];
        entries == [None; 4]
            && self.users == 0
            && self.expected.is_empty()
            && self.held.is_none()
            && self.failure.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_never_0_and_comes_again_late() {
        let entry = |id| Entry {
            address: (),
            id,
            initiator: true,
            peer_index: 0,
            in_progress: None,
            link: None,
            counts: false,
            is_ready: false,
            empty_is_due: false,
        };
        let mut table = Table::new();
        assert!(table.get(0).is_none());
        let first = table.insert(entry(0)).unwrap();
        let mut last = first;
        for id in 1..1 << (u32::BITS - SLOT_BITS) {
            assert!(table.remove(last).is_some() && table.remove(last).is_none());
            last = table.insert(entry(id)).unwrap();
            assert!(last != 0 && last != first && table.get(first).is_none() && table.get(0).is_none());
            assert_eq!(table.get_mut(last).map(|entry| entry.id), Some(id));
        }
        assert_eq!(table.iter_mut().map(|(index, _)| index).collect::<Vec<_>>(), [last]);
        table.remove(last);
        assert_eq!(table.len(), 0);
        assert_eq!(table.insert(entry(0)), Some(first));
    }
}
