//! The lists of connections that the next polls handle.

use cci_memory::slab::Key;
use std::collections::VecDeque;

/// Connections read in every poll.
const ACTIVE_MAX: usize = 2;

/// Lists of connections. A list may still have the key of a connection that is gone; it is no longer valid then.
pub(super) struct Streams {
    /// Connections that are read in every poll, the one that was active last first.
    active: Vec<Key>,
    /// Connections that have something to write.
    unwritten: Vec<Key>,
    /// Connections that have something to acknowledge.
    unacknowledged: Vec<Key>,
    /// Connections with a message that waits for a receive buffer.
    starved: VecDeque<Key>,
    /// Connections with an incomplete record, on either stream.
    unfinished: Vec<Key>,
    /// No incomplete record is due earlier.
    pub unfinished_due_ns: u64,
    /// Connections that let answers pile up. The next poll ends them.
    doomed: Vec<Key>,
}

/// A connection's key, and the lists that have it.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub key: Key,
    is_unwritten: bool,
    is_unacknowledged: bool,
    is_starved: bool,
    is_unfinished: bool,
}

impl Listed {
    pub const fn nowhere(key: Key) -> Listed {
        Listed { key, is_unwritten: false, is_unacknowledged: false, is_starved: false, is_unfinished: false }
    }

    /// Whether an incomplete record is known to have come.
    #[inline]
    pub fn is_unfinished(&self) -> bool {
        self.is_unfinished
    }

    /// Notes that the connection was taken out of the list of those with something to be written.
    pub fn abandoned_unwritten(&mut self) {
        self.is_unwritten = false;
    }

    /// Notes that the connection was taken out of the list of those with something to be acknowledged.
    pub fn abandoned_unacknowledged(&mut self) {
        self.is_unacknowledged = false;
    }

    /// Notes that the connection was taken out of the list of those with a message that waits.
    pub fn abandoned_starved(&mut self) {
        self.is_starved = false;
    }

    /// Notes that the connection was taken out of the list of those with an incomplete record.
    pub fn abandoned_unfinished(&mut self) {
        self.is_unfinished = false;
    }
}

impl Streams {
    pub fn new() -> Streams {
        Streams {
            active: Vec::with_capacity(ACTIVE_MAX + 2),
            unwritten: Vec::new(),
            unacknowledged: Vec::new(),
            starved: VecDeque::new(),
            unfinished: Vec::new(),
            unfinished_due_ns: u64::MAX,
            doomed: Vec::new(),
        }
    }

    /// Notes that a connection has something to write.
    #[inline]
    pub fn write_later(&mut self, listed: &mut Listed) {
        if !std::mem::replace(&mut listed.is_unwritten, true) {
            self.unwritten.push(listed.key);
        }
    }

    /// Notes that a connection has something to acknowledge.
    #[inline]
    pub fn acknowledge_later(&mut self, listed: &mut Listed) {
        if !std::mem::replace(&mut listed.is_unacknowledged, true) {
            self.unacknowledged.push(listed.key);
        }
    }

    /// Notes that a message of a connection waits for a receive buffer.
    pub fn starve(&mut self, listed: &mut Listed) {
        if !std::mem::replace(&mut listed.is_starved, true) {
            self.starved.push_back(listed.key);
        }
    }

    /// Notes that an incomplete record has come, and when its rest is due.
    pub fn await_remainder(&mut self, listed: &mut Listed, due_ns: u64) {
        if !std::mem::replace(&mut listed.is_unfinished, true) {
            self.unfinished_due_ns = self.unfinished_due_ns.min(due_ns);
            self.unfinished.push(listed.key);
        }
    }

    /// Has a connection ended in the next poll.
    pub fn doom(&mut self, key: Key) {
        self.doomed.push(key);
    }

    /// Whether a connection has something to write, or is to be ended.
    #[inline]
    pub fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty() || !self.doomed.is_empty()
    }

    /// The connections with something to be written.
    #[inline]
    pub fn unwritten(&self) -> &[Key] {
        &self.unwritten
    }

    /// Takes out the list of connections with something to be written; [`Streams::put_back`] follows.
    pub fn take_unwritten(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.unwritten)
    }

    /// Puts the empty list back. What was queued meanwhile stays in it.
    pub fn put_back(&mut self, mut list: Vec<Key>) {
        list.append(&mut self.unwritten);
        self.unwritten = list;
    }

    /// Takes out a connection that is to be ended.
    pub fn next_doomed(&mut self) -> Option<Key> {
        self.doomed.pop()
    }

    #[inline]
    pub fn has_unacknowledged(&self) -> bool {
        !self.unacknowledged.is_empty()
    }

    pub fn unacknowledged(&self, at: usize) -> Option<Key> {
        self.unacknowledged.get(at).copied()
    }

    /// Removes the connection at this place. Another one may take its place.
    pub fn take_unacknowledged(&mut self, at: usize) {
        self.unacknowledged.swap_remove(at);
    }

    #[inline]
    pub fn starved(&self) -> usize {
        self.starved.len()
    }

    #[inline]
    pub fn next_starved(&mut self) -> Option<Key> {
        self.starved.pop_front()
    }

    /// The connections with an incomplete record.
    pub fn unfinished(&self) -> &[Key] {
        &self.unfinished
    }

    /// Removes the connection at this place. Another one may take its place.
    pub fn take_unfinished(&mut self, at: usize) {
        self.unfinished.swap_remove(at);
    }

    /// The connections that are read in every poll.
    #[inline]
    pub fn active(&self) -> &[Key] {
        &self.active
    }

    /// Has a connection read in every poll from now on. Returns the one that is no longer read: the one that was idle longest.
    pub fn activate(&mut self, key: Key, lives: impl Fn(Key) -> bool) -> Option<Key> {
        self.active.retain(|active| *active != key && lives(*active));
        self.active.insert(0, key);
        if self.active.len() > ACTIVE_MAX { self.active.pop() } else { None }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let entries = self.unwritten.capacity()
            + self.unacknowledged.capacity()
            + self.starved.capacity()
            + self.unfinished.capacity();
        entries * size_of::<Key>()
    }
}
