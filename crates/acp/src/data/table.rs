//! A hash table over the memory of several ranks, on which maps and sets are built.
//!
//! A directory has the address of each rank's buckets. A bucket is four words: its lock, how often it has changed, its first
//! element, and its number of elements. An element has the address of the next one, the lengths of its key and value, and the key
//! and the value, each from a multiple of 8 bytes on.
//!
//! A rank changes a bucket under its lock. A rank that only reads takes no lock: it reads the bucket before and after, and
//! repeats everything if the bucket has changed. What it reads meanwhile may have any content, since elements that were removed
//! are freed. So addresses and lengths are checked, and elements are counted.

use crate::address::GlobalAddress;
use crate::data::cursor::{Cursor, Place};
use crate::data::heap;
use crate::data::lock::{self, Before};
use crate::error::{AcpError, Result};
use crate::space::{Aligned, Space, WORD_BYTES, address_in, behind};
use std::borrow::Cow;
use std::collections::VecDeque;

/// The hash of a key. It is the same on every rank, and as in the published library.
const HASH: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_XZ);
/// The lower bits of the hash are not used.
const HASH_SHIFT: u32 = 16;

/// A directory: its kind, how many ranks have buckets, how many buckets each of them has, and where these begin.
const KIND: u64 = u64::from_le_bytes(*b"acptable");
const DIRECTORY_WORDS: u64 = 3;
const BUCKET_WORDS: usize = 4;
const BUCKET_BYTES: u64 = BUCKET_WORDS as u64 * WORD_BYTES;
const CHANGES_AT: u64 = WORD_BYTES;
const HEAD_BYTES: u64 = 2 * WORD_BYTES;
/// Bytes of an element that are read at once. Most elements are not longer.
const ELEMENT_READ_BYTES: u64 = 128;
/// Bytes of an element, with what the heap has before it, that is put together without the allocator. Most elements are not longer.
const ELEMENT_HERE_BYTES: usize = 192;
/// Buckets that are read at once.
const BUCKETS_READ: u64 = 64;
/// The limit of ranks and of buckets. A table of these numbers is far longer than any heap.
const COUNT_MAX: u64 = 1 << 32;

/// The common part of maps and sets: elements in the buckets of several ranks. It finds, counts and visits elements.
/// [`Map`](crate::Map), [`Set`](crate::Set) and [`MultiSet`](crate::MultiSet) give them a meaning.
#[derive(Clone, Debug)]
pub struct Table {
    directory: GlobalAddress,
    /// The address of the buckets of each part.
    parts: Vec<GlobalAddress>,
    slots: u64,
}

/// What happens to the value of a key.
pub(crate) enum Change<'a> {
    Keep,
    Put(Cow<'a, [u8]>),
    Remove,
}

/// A bucket as it was read.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Bucket {
    lock: u64,
    changes: u64,
    first: u64,
    count: u64,
}

/// An element as it was read.
struct Element {
    at: GlobalAddress,
    next: u64,
    /// The whole element, from its first word to the end of its value.
    bytes: Vec<u8>,
    key_len: usize,
}

impl Element {
    /// Makes a buffer into which elements are read.
    fn at(at: GlobalAddress) -> Element {
        Element { at, next: 0, bytes: Vec::new(), key_len: 0 }
    }

    /// Takes the element out. Another one may be read in its place.
    fn take(&mut self) -> Element {
        Element { bytes: std::mem::take(&mut self.bytes), ..*self }
    }

    fn key(&self) -> &[u8] {
        self.bytes.get(HEAD_BYTES as usize..HEAD_BYTES as usize + self.key_len).unwrap_or_default()
    }

    fn value_at(&self) -> usize {
        (HEAD_BYTES + padded(self.key_len)) as usize
    }

    fn value(&self) -> &[u8] {
        self.bytes.get(self.value_at()..).unwrap_or_default()
    }

    fn into_value(mut self) -> Vec<u8> {
        let end = self.value_at().min(self.bytes.len());
        self.bytes.drain(..end);
        self.bytes
    }
}

/// A key and its value.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

impl Table {
    /// Makes a table: its directory on `rank`, and `slots` buckets on each of `ranks`.
    pub(crate) fn create(space: &mut impl Space, ranks: &[u32], slots: u64, rank: u32) -> Result<Table> {
        if ranks.is_empty() || slots == 0 || slots > COUNT_MAX {
            return Err(AcpError::Argument("a table has one rank and one slot at least, and 2^32 at most"));
        }
        let mut parts = Vec::new();
        let made = Table::create_parts(space, ranks, slots, rank, &mut parts);
        match made {
            Ok(directory) => Ok(Table { directory, parts, slots }),
            Err(error) => {
                parts.into_iter().try_for_each(|part| heap::free(space, part))?;
                Err(error)
            }
        }
    }

    fn create_parts(
        space: &mut impl Space,
        ranks: &[u32],
        slots: u64,
        rank: u32,
        parts: &mut Vec<GlobalAddress>,
    ) -> Result<GlobalAddress> {
        for &rank in ranks {
            let part = heap::allocate(space, rank, slots * BUCKET_BYTES)?;
            parts.push(part);
            let zeros = [0; (BUCKETS_READ * BUCKET_BYTES) as usize];
            for (from, count) in runs(slots) {
                let zeros = zeros.get(..(count * BUCKET_BYTES) as usize).unwrap_or_default();
                space.write(behind(part, from * BUCKET_BYTES)?, zeros)?;
            }
        }
        let words = DIRECTORY_WORDS + parts.len() as u64;
        let directory = heap::allocate(space, rank, words * WORD_BYTES)?;
        let table = Table { directory, parts: parts.clone(), slots };
        if let Err(error) = table.write_directory(space, &table) {
            heap::free(space, directory)?;
            return Err(error);
        }
        Ok(directory)
    }

    /// The table whose [directory](Table::directory) is there: that of a container, whose handle has the same address.
    ///
    /// # Errors
    /// There is no container. The rank is gone.
    pub fn open(space: &mut impl Space, directory: GlobalAddress) -> Result<Table> {
        const WRONG: AcpError =
            AcpError::Corrupt("there is no map and no set at this address, or not any more");
        let [kind, count, slots] = space.read_words(directory)?;
        let end = space.heap_bytes() / WORD_BYTES;
        if kind != KIND || count == 0 || count > end || slots == 0 || slots > COUNT_MAX {
            return Err(WRONG);
        }
        let mut starts = vec![0; (count * WORD_BYTES) as usize];
        space.read(behind(directory, DIRECTORY_WORDS * WORD_BYTES)?, &mut starts)?;
        let words =
            starts.as_chunks::<{ WORD_BYTES as usize }>().0.iter().map(|word| u64::from_ne_bytes(*word));
        let parts = words.map(|word| address_in(word)?.ok_or(WRONG)).collect::<Result<Vec<_>>>()?;
        Ok(Table { directory, parts, slots })
    }

    /// The address of its directory, by which other ranks open it.
    pub fn directory(&self) -> GlobalAddress {
        self.directory
    }

    /// Frees everything that the table has. No rank may use it afterwards.
    ///
    /// # Errors
    /// A rank is gone.
    pub fn destroy(self, space: &mut impl Space) -> Result<()> {
        self.clear(space, None)?;
        space.write_words(self.directory, [0])?;
        self.parts.iter().try_for_each(|&part| heap::free(space, part))?;
        heap::free(space, self.directory)
    }

    /// The bucket of a key: its part, and its number there.
    fn place_of(&self, key: &[u8]) -> (u32, u64) {
        let hash = HASH.checksum(key) >> HASH_SHIFT;
        ((hash / self.slots % self.parts.len() as u64) as u32, hash % self.slots)
    }

    fn bucket_of(&self, key: &[u8]) -> Result<GlobalAddress> {
        let (part, slot) = self.place_of(key);
        let start = self.parts.get(part as usize);
        let start = start.ok_or_else(|| AcpError::Argument("there is no such part"))?;
        behind(*start, slot * BUCKET_BYTES)
    }

    /// The value under a key.
    pub(crate) fn get(&self, space: &mut impl Space, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let (part, slot) = self.place_of(key);
        Ok(self.search(space, part, slot, |element, _| element.key() == key)?.map(Element::into_value))
    }

    /// Changes the value of a key by a function, while no other rank changes it. Returns the previous value.
    pub(crate) fn change<'a>(
        &self,
        space: &mut impl Space,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> Change<'a>,
    ) -> Result<Option<Vec<u8>>> {
        let at = self.bucket_of(key)?;
        let (was, garbage) = lock::with(space, at, |space, before| {
            let bucket = locked_bucket(space, at, before)?;
            let (mut found, mut link) = (None, behind(at, CHANGES_AT + WORD_BYTES)?);
            walk(space, at, bucket, |element| {
                let is_it = element.key() == key;
                if is_it {
                    found = Some(element.take());
                } else {
                    link = element.at;
                }
                !is_it
            })?;
            let change = decide(found.as_ref().map(|element| element.value()));
            let garbage = apply(space, at, bucket, (link, found.as_ref()), key, change)?;
            Ok((found.map(Element::into_value), garbage))
        })?;
        // The element is freed after the lock is released. Otherwise a rank that dies could leave an element that is free and
        // still in its bucket.
        if let Some(garbage) = garbage {
            heap::free(space, garbage)?;
        }
        Ok(was)
    }

    /// How many elements there are, in all or in the memory of one rank. Buckets are counted one after another.
    ///
    /// # Errors
    /// The container was destroyed, or a rank is gone.
    pub fn len(&self, space: &mut impl Space, rank: Option<u32>) -> Result<u64> {
        let mut sum = 0_u64;
        for &part in self.parts.iter().filter(|part| rank.is_none_or(|rank| part.rank() == rank)) {
            each_bucket(space, part, self.slots, |_, _, bucket| {
                sum = sum.saturating_add(bucket.count);
                Ok(())
            })?;
        }
        Ok(sum)
    }

    /// Removes all elements, or those in the memory of one rank.
    ///
    /// # Errors
    /// The container was destroyed, or a rank is gone.
    pub fn clear(&self, space: &mut impl Space, rank: Option<u32>) -> Result<()> {
        for &part in self.parts.iter().filter(|part| rank.is_none_or(|rank| part.rank() == rank)) {
            each_bucket(space, part, self.slots, |space, at, bucket| {
                if bucket.first == 0 && bucket.lock == lock::FREE {
                    return Ok(());
                }
                let removed = lock::with(space, at, |space, before| {
                    let bucket = locked_bucket(space, at, before)?;
                    let mut removed = Vec::new();
                    walk(space, at, bucket, |element| {
                        removed.push(element.at);
                        true
                    })?;
                    space.write_words(behind(at, CHANGES_AT)?, [bucket.changes.wrapping_add(1), 0, 0])?;
                    Ok(removed)
                })?;
                removed.into_iter().try_for_each(|element| heap::free(space, element))
            })?;
        }
        Ok(())
    }

    /// Goes through all elements, or those in the memory of one rank.
    pub fn entries(&self, rank: Option<u32>) -> Entries {
        let parts = self.parts.iter().copied().filter(|part| rank.is_none_or(|rank| part.rank() == rank));
        Entries { parts: parts.collect(), slots: self.slots, slot: 0, pending: VecDeque::new() }
    }

    /// How many parts there are: one for each of the ranks that the container was made with.
    pub fn parts(&self) -> u32 {
        self.parts.len() as u32
    }

    /// How many buckets each part has.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// The element with this key.
    ///
    /// # Errors
    /// The container was destroyed, or the rank is gone.
    pub fn find(&self, space: &mut impl Space, key: &[u8]) -> Result<Option<Cursor>> {
        let (part, slot) = self.place_of(key);
        let found = self.search(space, part, slot, |element, _| element.key() == key)?;
        Ok(found.map(|element| Cursor { part, slot, element: element.at }))
    }

    /// The first element, of all or of those in the memory of one rank.
    ///
    /// # Errors
    /// The container was destroyed, or a rank is gone.
    pub fn first(&self, space: &mut impl Space, rank: Option<u32>) -> Result<Option<Cursor>> {
        self.first_from(space, (0, 0), rank)
    }

    /// The element after another one, among all or among those in the memory of one rank. If the other one was removed meanwhile,
    /// the next bucket follows.
    ///
    /// # Errors
    /// The container has no such bucket or was destroyed, or a rank is gone.
    pub fn next(&self, space: &mut impl Space, at: Cursor, rank: Option<u32>) -> Result<Option<Cursor>> {
        let Cursor { part, slot, element } = at;
        let found = self.search(space, part, slot, |_, before| before == Some(element))?;
        match found {
            Some(element) => Ok(Some(Cursor { part, slot, element: element.at })),
            None => self.first_from(space, (part, slot + 1), rank),
        }
    }

    /// Swaps the elements of two containers (`acp_swap_map`), by exchanging their buckets. Handles of either that were opened
    /// before must be opened again. A rank that dies meanwhile may leave some elements in both containers.
    ///
    /// # Errors
    /// They have different numbers of parts: nothing has changed. A rank is gone.
    pub fn swap(&self, space: &mut impl Space, other: &Table) -> Result<()> {
        if self.parts.len() != other.parts.len() {
            return Err(AcpError::Argument("only containers over as many ranks can be swapped"));
        }
        self.write_directory(space, other)?;
        other.write_directory(space, self)
    }

    /// Writes the directory of another table in place of this one's.
    fn write_directory(&self, space: &mut impl Space, table: &Table) -> Result<()> {
        let starts: Vec<u8> = table.parts.iter().flat_map(|part| part.to_bits().to_ne_bytes()).collect();
        space.write(behind(self.directory, DIRECTORY_WORDS * WORD_BYTES)?, &starts)?;
        space.write_words(self.directory, [KIND, table.parts.len() as u64, table.slots])
    }

    /// The addresses of the key and the value of an element.
    ///
    /// # Errors
    /// The element does not exist, or no longer exists. The container was destroyed, or the rank is gone.
    pub fn locate(&self, space: &mut impl Space, at: Cursor) -> Result<Place> {
        let found = self.search(space, at.part, at.slot, |element, _| element.at == at.element)?;
        let element = found.ok_or(AcpError::Argument("this element was removed, or never was there"))?;
        let value_at = behind(element.at, element.value_at() as u64)?;
        Ok(Place {
            key: (behind(element.at, HEAD_BYTES)?, element.key_len as u64),
            value: (value_at, element.value().len() as u64),
        })
    }

    /// The first element, from a bucket on.
    fn first_from(
        &self,
        space: &mut impl Space,
        (part, slot): (u32, u64),
        rank: Option<u32>,
    ) -> Result<Option<Cursor>> {
        let mut slot = slot;
        for (part, &start) in (part..).zip(self.parts.iter().skip(part as usize)) {
            let mut bytes = Aligned([0; (BUCKETS_READ * BUCKET_BYTES) as usize]);
            while slot < self.slots && rank.is_none_or(|rank| start.rank() == rank) {
                let count = BUCKETS_READ.min(self.slots - slot);
                let bytes = bytes.0.get_mut(..(count * BUCKET_BYTES) as usize).unwrap_or_default();
                space.read(behind(start, slot * BUCKET_BYTES)?, bytes)?;
                let words = bytes.as_chunks::<{ WORD_BYTES as usize }>().0;
                let is_used = |[_, _, first, _]: &[[u8; 8]; BUCKET_WORDS]| *first != [0; 8];
                let Some(used) = words.as_chunks().0.iter().position(is_used) else {
                    slot += count;
                    continue;
                };
                slot += used as u64;
                if let Some(element) = self.search(space, part, slot, |_, _| true)? {
                    return Ok(Some(Cursor { part, slot, element: element.at }));
                }
                slot += 1;
            }
            slot = 0;
        }
        Ok(None)
    }

    /// The first element of a bucket for which a function returns true. The function gets the element, and the address of the
    /// link to it.
    fn search(
        &self,
        space: &mut impl Space,
        part: u32,
        slot: u64,
        is_right: impl Fn(&Element, Option<GlobalAddress>) -> bool,
    ) -> Result<Option<Element>> {
        const WRONG: AcpError = AcpError::Argument("this container has no such bucket");
        let Some(start) = self.parts.get(part as usize).filter(|_| slot < self.slots) else {
            return Err(WRONG);
        };
        let bucket = behind(*start, slot * BUCKET_BYTES)?;
        look(space, bucket, |space, seen| {
            let (mut found, mut before) = (None, None);
            walk(space, bucket, seen, |element| {
                let is_it = is_right(element, before);
                before = Some(element.at);
                if is_it {
                    found = Some(element.take());
                }
                !is_it
            })?;
            Ok(found)
        })
    }
}

/// Visits the elements of a map or a set, bucket by bucket. Each bucket is read as it is at one instant. Changes in other buckets
/// meanwhile may be seen or not.
#[derive(Debug)]
pub struct Entries {
    parts: VecDeque<GlobalAddress>,
    slots: u64,
    slot: u64,
    pending: VecDeque<Pair>,
}

impl Entries {
    /// The next key and its value; `None` if there are no more. Elements of a set have no value. Those of a multiset have their
    /// count, in 8 bytes.
    ///
    /// # Errors
    /// The container was destroyed, or a rank is gone.
    pub fn next(&mut self, space: &mut impl Space) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        loop {
            if let Some(pair) = self.pending.pop_front() {
                return Ok(Some(pair));
            }
            let Some(&part) = self.parts.front() else { return Ok(None) };
            if self.slot == self.slots {
                self.parts.pop_front();
                self.slot = 0;
                continue;
            }
            let at = behind(part, self.slot * BUCKET_BYTES)?;
            self.slot += 1;
            self.pending = look(space, at, |space, seen| {
                let mut pairs = VecDeque::new();
                walk(space, at, seen, |element| {
                    pairs.push_back((element.key().to_vec(), element.take().into_value()));
                    true
                })?;
                Ok(pairs)
            })?;
        }
    }
}

/// Links, replaces or removes an element. One word makes the change take effect, the others count. Returns what must be freed.
fn apply(
    space: &mut impl Space,
    at: GlobalAddress,
    bucket: Bucket,
    (link, found): (GlobalAddress, Option<&Element>),
    key: &[u8],
    change: Change<'_>,
) -> Result<Option<GlobalAddress>> {
    let changes = bucket.changes.wrapping_add(1);
    let first_at = behind(at, CHANGES_AT + WORD_BYTES)?;
    let (new_link, count, garbage) = match (change, found) {
        (Change::Keep, _) | (Change::Remove, None) => return Ok(None),
        (Change::Put(value), Some(old))
            if value.len() == old.value().len() && value.len() as u64 == WORD_BYTES =>
        {
            // A word is written whole.
            space.write(behind(old.at, old.value_at() as u64)?, &value)?;
            space.write_words(behind(at, CHANGES_AT)?, [changes])?;
            return Ok(None);
        }
        (Change::Put(value), old) => {
            let next = old.map_or(bucket.first, |old| old.next);
            let element = write_element(space, at.rank(), next, key, &value)?;
            let count = bucket.count + u64::from(old.is_none());
            (element.to_bits(), count, old.map(|old| old.at))
        }
        (Change::Remove, Some(old)) => (old.next, bucket.count.saturating_sub(1), Some(old.at)),
    };
    // A new element becomes the first one. An old one is replaced by the new one or by the next one.
    if found.is_none() || link == first_at {
        space.write_words(behind(at, CHANGES_AT)?, [changes, new_link, count])?;
    } else {
        space.write_words(link, [new_link])?;
        space.write_words(behind(at, CHANGES_AT)?, [changes, bucket.first, count])?;
    }
    Ok(garbage)
}

fn write_element(
    space: &mut impl Space,
    rank: u32,
    next: u64,
    key: &[u8],
    value: &[u8],
) -> Result<GlobalAddress> {
    const LONG: AcpError = AcpError::Argument("keys and values have less than 4 GiB");
    let lens = [key.len(), value.len()].map(|len| u32::try_from(len).ok());
    let [Some(key_len), Some(value_len)] = lens else { return Err(LONG) };
    let value_at = heap::ROOM_BYTES + (HEAD_BYTES + padded(key.len())) as usize;
    let len_bytes = value_at + value.len();
    let mut short = Aligned([0; ELEMENT_HERE_BYTES]);
    let mut long = Vec::new();
    let bytes = match short.0.get_mut(..len_bytes) {
        Some(bytes) => bytes,
        None => {
            long.resize(len_bytes, 0);
            &mut long[..]
        }
    };
    let lens = u64::from(key_len) << 32 | u64::from(value_len);
    let parts: [(usize, &[u8]); 4] = [
        (heap::ROOM_BYTES, &next.to_ne_bytes()),
        (heap::ROOM_BYTES + WORD_BYTES as usize, &lens.to_ne_bytes()),
        (heap::ROOM_BYTES + HEAD_BYTES as usize, key),
        (value_at, value),
    ];
    for (at, part) in parts {
        if let Some(to) = bytes.get_mut(at..at + part.len()) {
            to.copy_from_slice(part);
        }
    }
    heap::allocate_with(space, rank, bytes)
}

/// Reads a bucket while no rank changes it, as often as necessary.
fn look<S: Space, T>(
    space: &mut S,
    at: GlobalAddress,
    mut see: impl FnMut(&mut S, Bucket) -> Result<T>,
) -> Result<T> {
    let mut tries = 0_u32;
    loop {
        let bucket = read_bucket(space, at)?;
        if bucket.lock == lock::FREE {
            let seen = see(space, bucket);
            // If the bucket has changed, what was read is discarded, including a failure.
            if read_bucket(space, at)? == bucket {
                return seen;
            }
        } else if tries >= LOOKS_PATIENT {
            // The holder of the lock may be gone. Waiting for the lock finds that out, and corrects the bucket.
            lock::with(space, at, |space, before| locked_bucket(space, at, before))?;
        }
        tries = tries.wrapping_add(1);
        space.pause(tries)?;
    }
}

/// After the bucket was found locked this often, the reader waits for the lock.
const LOOKS_PATIENT: u32 = 32;

fn read_bucket(space: &mut impl Space, at: GlobalAddress) -> Result<Bucket> {
    let [lock, changes, first, count] = space.read_words::<BUCKET_WORDS>(at)?;
    Ok(Bucket { lock, changes, first, count })
}

/// The bucket, of which this rank has the lock. If its holder has died, its elements are counted anew.
fn locked_bucket(space: &mut impl Space, at: GlobalAddress, before: Before) -> Result<Bucket> {
    let mut bucket = read_bucket(space, at)?;
    if before == Before::Died {
        let (mut count, mut next, mut element) = (0, bucket.first, Element::at(at));
        while let Some(there) = address_in(next)? {
            count += 1;
            read_element(space, there, at, &mut element)?;
            next = element.next;
            if count > space.heap_bytes() / HEAD_BYTES {
                return Err(AcpError::Corrupt("the elements of a bucket have no end"));
            }
        }
        (bucket.count, bucket.changes) = (count, bucket.changes.wrapping_add(1));
        space.write_words(behind(at, CHANGES_AT)?, [bucket.changes, bucket.first, bucket.count])?;
    }
    Ok(bucket)
}

/// Passes all elements of a bucket to `see`, until it returns that it wants no more.
fn walk(
    space: &mut impl Space,
    at: GlobalAddress,
    bucket: Bucket,
    mut see: impl FnMut(&mut Element) -> bool,
) -> Result<()> {
    let (mut next, mut element) = (bucket.first, Element::at(at));
    for _ in 0..bucket.count {
        let there = address_in(next)?
            .ok_or_else(|| AcpError::Corrupt("a bucket has fewer elements than it counts"))?;
        read_element(space, there, at, &mut element)?;
        next = element.next;
        if !see(&mut element) {
            return Ok(());
        }
    }
    if next == 0 { Ok(()) } else { Err(AcpError::Corrupt("a bucket has more elements than it counts")) }
}

/// Reads an element, which must be in the heap of its bucket's rank, in place of another one.
fn read_element(
    space: &mut impl Space,
    at: GlobalAddress,
    bucket: GlobalAddress,
    element: &mut Element,
) -> Result<()> {
    const WRONG: AcpError = AcpError::Corrupt("something that is no element is in a bucket");
    let heap = space.heap(bucket.rank())?;
    let Some(offset) = at.to_bits().checked_sub(heap.to_bits()) else { return Err(WRONG) };
    let Some(there) = space.heap_bytes().checked_sub(offset).filter(|&there| there >= HEAD_BYTES) else {
        return Err(WRONG);
    };
    let bytes = &mut element.bytes;
    bytes.resize(ELEMENT_READ_BYTES.min(there) as usize, 0);
    space.read(at, bytes)?;
    let ([next, lens, ..], _) = bytes.as_chunks::<{ WORD_BYTES as usize }>() else { return Err(WRONG) };
    let (next, lens) = (u64::from_ne_bytes(*next), u64::from_ne_bytes(*lens));
    let (key_len, value_len) = ((lens >> 32) as usize, (lens & u64::from(u32::MAX)) as usize);
    let value_at = HEAD_BYTES + padded(key_len);
    let end = value_at + value_len as u64;
    if end > there {
        return Err(WRONG);
    }
    let read = bytes.len();
    bytes.resize(end as usize, 0);
    if let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        space.read(behind(at, read as u64)?, rest)?;
    }
    (element.at, element.next, element.key_len) = (at, next, key_len);
    Ok(())
}

/// Passes all buckets of a part to `see`, as they are.
fn each_bucket<S: Space>(
    space: &mut S,
    part: GlobalAddress,
    slots: u64,
    mut see: impl FnMut(&mut S, GlobalAddress, Bucket) -> Result<()>,
) -> Result<()> {
    let mut bytes = Aligned([0; (BUCKETS_READ * BUCKET_BYTES) as usize]);
    for (from, count) in runs(slots) {
        let bytes = bytes.0.get_mut(..(count * BUCKET_BYTES) as usize).unwrap_or_default();
        space.read(behind(part, from * BUCKET_BYTES)?, bytes)?;
        let words = bytes.as_chunks::<{ WORD_BYTES as usize }>().0;
        for (number, words) in (from..).zip(words.as_chunks::<BUCKET_WORDS>().0) {
            let [lock, changes, first, count] = words.map(u64::from_ne_bytes);
            see(space, behind(part, number * BUCKET_BYTES)?, Bucket { lock, changes, first, count })?;
        }
    }
    Ok(())
}

/// The buckets of a part, in pieces.
fn runs(slots: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..slots.div_ceil(BUCKETS_READ)).map(move |run| {
        let from = run * BUCKETS_READ;
        (from, BUCKETS_READ.min(slots - from))
    })
}

/// The length of a key, rounded up to whole words.
fn padded(key_len: usize) -> u64 {
    (key_len as u64).next_multiple_of(WORD_BYTES)
}
