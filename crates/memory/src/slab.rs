//! A table whose keys know when what they named is gone. Safe code.

use core::marker::PhantomData;

/// Names an entry of a [`Slab`]: the index of its slot, and which of the entries that the slot has had it is. A key is never
/// given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The index of the slot; less than the slab's maximum.
    pub index: u32,
    /// Which of the entries that the slot has had; never 0.
    pub generation: u32,
}

impl Key {
    /// The key as one number, never 0: for C, or for the data of an epoll event.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key that [`to_bits`](Self::to_bits) made. Any number is some key; one that was never given names nothing.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Key { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

const NIL: u32 = u32::MAX;

/// One place of a [`Slab`], for an entry or in the list of free ones.
pub trait Slot<T> {
    /// A free slot whose next entry will have this generation, and the index of the next free one.
    fn new(generation: u32, next_free: u32) -> Self;

    /// Of the entry, or of the next one that the slot will have.
    fn generation(&self) -> u32;

    /// The next entry will have another generation.
    fn set_generation(&mut self, generation: u32);

    /// The index of the next free slot, if this one is free.
    fn next_free(&self) -> u32;

    /// The entry.
    fn value(&self) -> Option<&T>;

    /// The entry.
    fn value_mut(&mut self) -> Option<&mut T>;

    /// A free slot gets an entry.
    fn fill(&mut self, value: T);

    /// Takes the entry out, if there is one; the slot is free then.
    fn clear(&mut self, next_free: u32) -> Option<T>;
}

/// A slot of `T` and 8 bytes more, provided that `T` has a niche (a reference, a box, a `bool`, an enum, a `NonZero` anywhere in it):
/// `Option<T>` is then as large as `T`. Looking an entry up takes the fewest instructions.
pub struct Apart<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

impl<T> Slot<T> for Apart<T> {
    fn new(generation: u32, next_free: u32) -> Self {
        Apart { generation, next_free, value: None }
    }

    #[inline]
    fn generation(&self) -> u32 {
        self.generation
    }

    fn set_generation(&mut self, generation: u32) {
        self.generation = generation;
    }

    fn next_free(&self) -> u32 {
        self.next_free
    }

    #[inline]
    fn value(&self) -> Option<&T> {
        self.value.as_ref()
    }

    #[inline]
    fn value_mut(&mut self) -> Option<&mut T> {
        self.value.as_mut()
    }

    fn fill(&mut self, value: T) {
        self.value = Some(value);
    }

    fn clear(&mut self, next_free: u32) -> Option<T> {
        self.next_free = next_free;
        self.value.take()
    }
}

/// A slot of `T` and 4 bytes more, provided that `T` has 4 bytes beside a niche: the list of free slots is where entries are not.
pub struct Within<T> {
    generation: u32,
    state: State<T>,
}

enum State<T> {
    /// The index of the next free slot.
    Free(u32),
    Used(T),
}

impl<T> Slot<T> for Within<T> {
    fn new(generation: u32, next_free: u32) -> Self {
        Within { generation, state: State::Free(next_free) }
    }

    #[inline]
    fn generation(&self) -> u32 {
        self.generation
    }

    fn set_generation(&mut self, generation: u32) {
        self.generation = generation;
    }

    fn next_free(&self) -> u32 {
        match self.state {
            State::Free(next_free) => next_free,
            State::Used(_) => NIL,
        }
    }

    #[inline]
    fn value(&self) -> Option<&T> {
        match &self.state {
            State::Used(value) => Some(value),
            State::Free(_) => None,
        }
    }

    #[inline]
    fn value_mut(&mut self) -> Option<&mut T> {
        match &mut self.state {
            State::Used(value) => Some(value),
            State::Free(_) => None,
        }
    }

    fn fill(&mut self, value: T) {
        self.state = State::Used(value);
    }

    fn clear(&mut self, next_free: u32) -> Option<T> {
        if let State::Free(_) = self.state {
            return None;
        }
        match core::mem::replace(&mut self.state, State::Free(next_free)) {
            State::Used(value) => Some(value),
            State::Free(_) => None,
        }
    }
}

/// A table of at most a fixed number of entries, which grows by doubling up to it and never shrinks.
///
/// Insertion, removal and look-up take constant time (but for the doubling).
pub struct Slab<T, S = Apart<T>> {
    slots: Vec<S>,
    free_top: u32,
    len: u32,
    max: u32,
    of: PhantomData<T>,
}

impl<T> Slab<T> {
    /// An empty table for at most `max` entries; takes no memory yet.
    pub const fn new(max: u32) -> Self {
        Slab::of_slots(max)
    }
}

impl<T, S: Slot<T>> Slab<T, S> {
    /// An empty table for at most `max` entries in slots of the kind wanted; takes no memory yet.
    pub const fn of_slots(max: u32) -> Self {
        Slab { slots: Vec::new(), free_top: NIL, len: 0, max, of: PhantomData }
    }

    /// Allocates space for `entries` entries (at most the maximum), so that inserting them allocates nothing. `false`: the
    /// system has not the memory.
    #[must_use]
    pub fn reserve(&mut self, entries: u32) -> bool {
        let wanted = entries.min(self.max) as usize;
        self.slots.try_reserve_exact(wanted.saturating_sub(self.slots.len())).is_ok()
    }

    /// Adds an entry.
    ///
    /// # Errors
    ///
    /// Gives the value back if the table is full or the system has no memory for more.
    pub fn insert(&mut self, value: T) -> Result<Key, T> {
        self.insert_with(value, |value, _| value)
    }

    /// Adds an entry that knows its key: `make` gets `seed` and the key.
    ///
    /// # Errors
    ///
    /// Gives `seed` back if the table is full or the system has no memory for more.
    pub fn insert_with<D>(&mut self, seed: D, make: impl FnOnce(D, Key) -> T) -> Result<Key, D> {
        if self.free_top == NIL && !self.grow() {
            return Err(seed);
        }
        let index = self.free_top;
        let Some(slot) = self.slots.get_mut(index as usize) else { return Err(seed) };
        let key = Key { index, generation: slot.generation() };
        self.free_top = slot.next_free();
        slot.fill(make(seed, key));
        self.len += 1;
        Ok(key)
    }

    /// Adds one free slot; the memory behind it doubles when it is used up.
    fn grow(&mut self) -> bool {
        let used = self.slots.len();
        if used >= self.max as usize {
            return false;
        }
        if used == self.slots.capacity() {
            let more = used.max(4).min(self.max as usize - used);
            if self.slots.try_reserve_exact(more).is_err() {
                return false;
            }
        }
        self.slots.push(S::new(1, NIL));
        self.free_top = used as u32;
        true
    }

    /// Takes an entry out; `None` if the key is stale.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation() != key.generation {
            return None;
        }
        let value = slot.clear(self.free_top)?;
        self.len -= 1;
        // A slot whose generations are used up is not used again: a key is never given twice.
        if let Some(generation) = key.generation.checked_add(1) {
            slot.set_generation(generation);
            self.free_top = key.index;
        }
        Some(value)
    }

    /// The entry; `None` if the key is stale.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation() == key.generation { slot.value() } else { None }
    }

    /// The entry; `None` if the key is stale.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation() == key.generation { slot.value_mut() } else { None }
    }

    /// The key of the entry that the slot at `index` has now; `None`: it is free.
    #[inline]
    pub fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        slot.value().map(|_| Key { index, generation: slot.generation() })
    }

    /// The entry that the slot at `index` has now, with its key; `None`: it is free.
    #[inline]
    pub fn at(&self, index: u32) -> Option<(Key, &T)> {
        let slot = self.slots.get(index as usize)?;
        let key = Key { index, generation: slot.generation() };
        slot.value().map(|value| (key, value))
    }

    /// The entry that the slot at `index` has now, with its key; `None`: it is free.
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<(Key, &mut T)> {
        let slot = self.slots.get_mut(index as usize)?;
        let key = Key { index, generation: slot.generation() };
        slot.value_mut().map(|value| (key, value))
    }

    /// All entries, with their keys, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let key = Key { index: index as u32, generation: slot.generation() };
            slot.value().map(|value| (key, value))
        })
    }

    /// All entries, with their keys, in the order of their slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let key = Key { index: index as u32, generation: slot.generation() };
            slot.value_mut().map(|value| (key, value))
        })
    }

    /// How many entries there are.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many entries there can be.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Bytes of memory that the table takes on the heap.
    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<S>()
    }
}

impl<T: core::fmt::Debug, S: Slot<T>> core::fmt::Debug for Slab<T, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_costs_eight_bytes_or_four() {
        struct Entry {
            _state: core::num::NonZeroU32,
            _tail: [u32; 3],
        }
        assert_eq!(size_of::<Apart<Entry>>(), size_of::<Entry>() + 8);
        assert_eq!(size_of::<Within<Entry>>(), size_of::<Entry>() + 4);
        assert_eq!(size_of::<Apart<Box<u8>>>(), 16);
    }

    #[test]
    fn stale_keys_name_nothing() {
        stale_keys_name_nothing_in(Slab::new(2));
        stale_keys_name_nothing_in(Slab::<_, Within<_>>::of_slots(2));
    }

    fn stale_keys_name_nothing_in<S: Slot<&'static str>>(mut slab: Slab<&'static str, S>) {
        let one = slab.insert("one").unwrap();
        let two = slab.insert("two").unwrap();
        assert_eq!(slab.insert("three"), Err("three"));
        assert_eq!(slab.remove(one), Some("one"));
        assert_eq!(slab.remove(one), None);
        let three = slab.insert("three").unwrap();
        assert_eq!(three.index, one.index);
        assert_eq!((slab.get(one), slab.get(two), slab.get(three)), (None, Some(&"two"), Some(&"three")));
        assert_eq!(slab.key_at(one.index), Some(three));
        assert_eq!(slab.get(Key { index: 77, generation: 1 }), None);
        assert_eq!(slab.get(Key::from_bits(0)), None);
        assert_eq!(Key::from_bits(three.to_bits()), three);
        assert_eq!(slab.iter().map(|(_, value)| *value).collect::<Vec<_>>(), ["three", "two"]);
    }

    #[test]
    fn grows_by_doubling_up_to_its_maximum() {
        let mut slab = Slab::new(100);
        assert_eq!(slab.bytes(), 0);
        let mut sizes = Vec::new();
        for number in 0..100u64 {
            slab.insert_with(number, |number, key| (number, key)).unwrap();
            sizes.push(slab.bytes() / size_of::<Apart<(u64, Key)>>());
        }
        sizes.dedup();
        assert_eq!(sizes, [4, 8, 16, 32, 64, 100]);
        assert!(slab.insert_with(0, |number, key| (number, key)).is_err());
        assert!(slab.iter().all(|(key, (number, known))| key == *known && u64::from(key.index) == *number));
        for (_, (number, _)) in slab.iter_mut() {
            *number += 1;
        }
        assert_eq!(slab.iter().map(|(_, (number, _))| number).sum::<u64>(), 5050);
    }

    #[test]
    fn a_worn_place_is_retired() {
        a_worn_place_is_retired_in(Slab::new(1));
        a_worn_place_is_retired_in(Slab::<_, Within<_>>::of_slots(1));
    }

    fn a_worn_place_is_retired_in<S: Slot<()>>(mut slab: Slab<(), S>) {
        let key = slab.insert(()).unwrap();
        slab.slots[0].set_generation(u32::MAX);
        assert!(slab.remove(Key { generation: u32::MAX, ..key }).is_some());
        assert!(slab.insert(()).is_err());
        assert_eq!(slab.get(Key { generation: u32::MAX, ..key }), None);
    }

    #[test]
    fn reserved_room_is_there() {
        let mut slab = Slab::new(10);
        assert!(slab.reserve(20));
        let bytes = slab.bytes();
        for number in 0..10 {
            slab.insert(number).unwrap();
        }
        assert_eq!((slab.bytes(), slab.len(), slab.max()), (bytes, 10, 10));
    }
}
