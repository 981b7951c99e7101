//! Handshakes and associations by index, and what is known of each address.

use super::link::Link;
use super::shaking::Shaking;
use crate::failure::Failure;
use crate::identity::Identity;

/// Bits of an index that name a place; those above count how often it was used.
const PLACE_BITS: u32 = 20;
pub(super) const PLACES_MAX: usize = 1 << PLACE_BITS;

/// A handshake, an association, or both: one that was made by a handshake of which the end may have to be repeated.
pub(super) struct Entry<A> {
    pub address: A,
    /// Of the handshake.
    pub id: u64,
    /// This side began it.
    pub initiator: bool,
    /// What the peer calls it; 0: not known yet.
    pub peer_index: u32,
    pub shaking: Option<Box<Shaking>>,
    pub link: Option<Box<Link>>,
    /// The association counts: this side has asked for it, or something sealed by the peer has come.
    pub counts: bool,
    /// It is in the list of those with something to transmit.
    pub is_ready: bool,
    /// An empty sealed datagram is due.
    pub says_empty: bool,
}

struct Place<A> {
    generation: u32,
    entry: Option<Entry<A>>,
}

/// Entries by index. An index is never 0, and a used one comes again late.
pub(super) struct Table<A> {
    places: Vec<Place<A>>,
    free: Vec<u32>,
}

impl<A> Table<A> {
    pub const fn new() -> Table<A> {
        Table { places: Vec::new(), free: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Bytes of the tables, without what their entries own.
    pub fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place<A>>() + self.free.capacity() * size_of::<u32>()
    }

    fn place(index: u32) -> usize {
        index as usize & (PLACES_MAX - 1)
    }

    /// `None`: there are as many as there can be.
    pub fn insert(&mut self, entry: Entry<A>) -> Option<u32> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.places.len() < PLACES_MAX => {
                self.places.push(Place { generation: 0, entry: None });
                u32::try_from(self.places.len() - 1).ok()?
            }
            None => return None,
        };
        let place = self.places.get_mut(at as usize)?;
        // From 1: no index is 0.
        place.generation = place.generation % (u32::MAX >> PLACE_BITS) + 1;
        place.entry = Some(entry);
        Some(place.generation << PLACE_BITS | at)
    }

    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut Entry<A>> {
        let place = self.places.get_mut(Table::<A>::place(index))?;
        if place.generation != index >> PLACE_BITS { None } else { place.entry.as_mut() }
    }

    pub fn get(&self, index: u32) -> Option<&Entry<A>> {
        let place = self.places.get(Table::<A>::place(index))?;
        if place.generation != index >> PLACE_BITS { None } else { place.entry.as_ref() }
    }

    pub fn remove(&mut self, index: u32) -> Option<Entry<A>> {
        self.get(index)?;
        let entry = self.places.get_mut(Table::<A>::place(index))?.entry.take();
        self.free.push(index & (PLACES_MAX as u32 - 1));
        entry
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut Entry<A>)> {
        self.places.iter_mut().enumerate().filter_map(|(at, place)| {
            let index = place.generation << PLACE_BITS | u32::try_from(at).ok()?;
            Some((index, place.entry.as_mut()?))
        })
    }
}

/// What is known of one address.
#[derive(Default)]
pub(super) struct Neighbour {
    /// What is used for sending.
    pub current: Option<u32>,
    /// What was before: the peer may still use it, until then.
    pub before: Option<(u32, u64)>,
    /// The handshake that this side began.
    pub begun_here: Option<u32>,
    /// The one that the peer began.
    pub begun_there: Option<u32>,
    /// Connections.
    pub users: u32,
    /// Whose the address is while there are connections.
    pub owner: Option<Identity>,
    /// Whom connections with the address expect there: one name for each.
    pub expected: Vec<Box<str>>,
    /// Waits for an association, and since when.
    pub held: Option<Vec<u8>>,
    pub held_ns: u64,
    /// The last handshake's, in words, and when it failed.
    pub failure: Option<(String, u64)>,
}

impl Neighbour {
    pub fn fail(&mut self, failure: &Failure, now_ns: u64) {
        self.failure = Some((failure.to_string(), now_ns));
    }

    /// That entry is no more.
    pub fn forget(&mut self, index: u32) {
        for of in [&mut self.current, &mut self.begun_here, &mut self.begun_there] {
            of.take_if(|of| *of == index);
        }
        self.before.take_if(|(of, _)| *of == index);
    }

    /// There is nothing to be remembered.
    pub fn is_empty(&self) -> bool {
        let entries = [self.current, self.before.map(|(of, _)| of), self.begun_here, self.begun_there];
        entries == [None; 4]
            && self.users == 0
            && self.expected.is_empty()
            && self.held.is_none()
            && self.failure.is_none()
    }
}
