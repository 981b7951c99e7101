//! Handshakes and associations by index, and what is known of each address.

use super::in_progress::InProgress;
use super::link::Link;
use crate::failure::Failure;
use crate::identity::Identity;

/// Bits of an index that name a slot; those above count how often the slot was used.
const SLOT_BITS: u32 = 20;
pub(super) const SLOTS_MAX: usize = 1 << SLOT_BITS;

/// A handshake, an association, or both: one that was made by a handshake of which the end may have to be repeated.
pub(super) struct Entry<A> {
    pub address: A,
    /// Of the handshake.
    pub id: u64,
    /// This side began it.
    pub initiator: bool,
    /// What the peer calls it; 0: not known yet.
    pub peer_index: u32,
    pub in_progress: Option<Box<InProgress>>,
    pub link: Option<Box<Link>>,
    /// The association counts: this side has asked for it, or something sealed by the peer has come.
    pub counts: bool,
    /// It is in the list of those with something to transmit.
    pub is_ready: bool,
    /// An empty sealed datagram is due.
    pub empty_is_due: bool,
}

struct Slot<A> {
    generation: u32,
    entry: Option<Entry<A>>,
}

/// Entries by index. An index is never 0, and a used one comes again late.
pub(super) struct Table<A> {
    slots: Vec<Slot<A>>,
    free: Vec<u32>,
}

impl<A> Table<A> {
    pub const fn new() -> Table<A> {
        Table { slots: Vec::new(), free: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes of the tables, without what their entries own.
    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<A>>() + self.free.capacity() * size_of::<u32>()
    }

    fn slot(index: u32) -> usize {
        index as usize & (SLOTS_MAX - 1)
    }

    /// The new entry's index. `None`: there are as many as there can be.
    pub fn insert(&mut self, entry: Entry<A>) -> Option<u32> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.slots.len() < SLOTS_MAX => {
                self.slots.push(Slot { generation: 0, entry: None });
                u32::try_from(self.slots.len() - 1).ok()?
            }
            None => return None,
        };
        let slot = self.slots.get_mut(at as usize)?;
        // From 1: no index is 0.
        slot.generation = slot.generation % (u32::MAX >> SLOT_BITS) + 1;
        slot.entry = Some(entry);
        Some(slot.generation << SLOT_BITS | at)
    }

    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut Entry<A>> {
        let slot = self.slots.get_mut(Table::<A>::slot(index))?;
        if slot.generation != index >> SLOT_BITS { None } else { slot.entry.as_mut() }
    }

    pub fn get(&self, index: u32) -> Option<&Entry<A>> {
        let slot = self.slots.get(Table::<A>::slot(index))?;
        if slot.generation != index >> SLOT_BITS { None } else { slot.entry.as_ref() }
    }

    pub fn remove(&mut self, index: u32) -> Option<Entry<A>> {
        self.get(index)?;
        let entry = self.slots.get_mut(Table::<A>::slot(index))?.entry.take();
        self.free.push(index & (SLOTS_MAX as u32 - 1));
        entry
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Entry<A>)> {
        self.slots.iter_mut().enumerate().filter_map(|(at, slot)| {
            let index = slot.generation << SLOT_BITS | u32::try_from(at).ok()?;
            Some((index, slot.entry.as_mut()?))
        })
    }
}

/// What is known of one address.
#[derive(Default)]
pub(super) struct AddressState {
    /// What is used for sending.
    pub current: Option<u32>,
    /// What was before: the peer may still use it, until then.
    pub before: Option<(u32, u64)>,
    /// The handshake that this side began.
    pub as_initiator: Option<u32>,
    /// The one that the peer began.
    pub as_responder: Option<u32>,
    /// Connections.
    pub users: u32,
    /// Whose the address is while there are connections.
    pub identity: Option<Identity>,
    /// Whom connections with the address expect there: one name for each.
    pub expected: Vec<Box<str>>,
    /// Waits for an association, and since when.
    pub held: Option<Vec<u8>>,
    pub held_ns: u64,
    /// The last handshake's, in words, and when it failed.
    pub failure: Option<(String, u64)>,
}

impl AddressState {
    pub fn fail(&mut self, failure: &Failure, now_ns: u64) {
        self.failure = Some((failure.to_string(), now_ns));
    }

    /// That entry is no more.
    pub fn forget(&mut self, index: u32) {
        for of in [&mut self.current, &mut self.as_initiator, &mut self.as_responder] {
            of.take_if(|of| *of == index);
        }
        self.before.take_if(|(of, _)| *of == index);
    }

    /// There is nothing to be remembered.
    pub fn is_empty(&self) -> bool {
        let entries = [self.current, self.before.map(|(of, _)| of), self.as_initiator, self.as_responder];
        entries == [None; 4]
            && self.users == 0
            && self.expected.is_empty()
            && self.held.is_none()
            && self.failure.is_none()
    }
}
