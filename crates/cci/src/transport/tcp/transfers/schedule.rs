//! Which connection moves data next, and how much.

use crate::engine::core::Core;
use crate::transport::quota::Host;
use cci_memory::slab::Key;
use std::collections::VecDeque;

/// How many bytes one connection may read, and write, in one poll, before messages and the program have their turn.
const TURN_BYTES: u64 = 256 << 10;
/// How many bytes one connection may read, and write, in one poll while messages come and go, since these wait until it is done.
const SHORT_TURN_BYTES: u64 = 32 << 10;
/// How long after the last message [`SHORT_TURN_BYTES`] is the limit.
const MESSAGES_NS: u64 = 1_000_000;
/// How many connections have their turn in one poll.
const TURNS_MAX: usize = 8;

/// The connections that move data in turns, and those that wait for memory.
pub(in crate::transport::tcp) struct Schedule {
    /// Connections with an operation under way, or with a recent one.
    active: Vec<Key>,
    /// Connections that wait for memory, in order.
    waiting: VecDeque<Key>,
    /// The host of an active connection that had too little memory to go on, and for how many turns others give way to it.
    short: Option<(Host, usize)>,
    /// Whether something must be done that waits for nothing else.
    pub at_once: bool,
    /// How many turns in a row moved nothing.
    still_turns: usize,
    /// The endpoint's number of messages, and when it last changed.
    messages: u64,
    messages_ns: u64,
}

impl Schedule {
    pub const fn new() -> Schedule {
        Schedule {
            active: Vec::new(),
            waiting: VecDeque::new(),
            short: None,
            at_once: false,
            still_turns: 0,
            messages: 0,
            messages_ns: 0,
        }
    }

    /// Whether something is under way or waits.
    #[inline]
    pub fn has_any(&self) -> bool {
        !self.active.is_empty() || !self.waiting.is_empty()
    }

    /// Begins the turns of a poll, and returns how many there are.
    #[inline]
    pub fn begin(&mut self, core: &Core, now_ns: u64) -> usize {
        self.at_once = false;
        let messages = core.prompt_messages();
        if messages != self.messages {
            (self.messages, self.messages_ns) = (messages, now_ns);
        }
        self.active.len().min(TURNS_MAX)
    }

    /// The connection whose turn is next.
    #[inline]
    pub fn next(&mut self) -> Option<Key> {
        let key = self.active.first().copied()?;
        self.active.rotate_left(1);
        self.still_turns = self.still_turns.saturating_add(1);
        Some(key)
    }

    /// How many bytes a turn may read, and how many it may write.
    #[inline]
    pub fn turn_bytes(&self, now_ns: u64) -> u64 {
        let is_short = now_ns < self.messages_ns.saturating_add(MESSAGES_NS);
        if is_short { SHORT_TURN_BYTES } else { TURN_BYTES }
    }

    /// Notes that something has moved in this turn.
    #[inline]
    pub fn moved(&mut self) {
        self.still_turns = 0;
    }

    /// Ends the turns of a poll.
    #[inline]
    pub fn end(&mut self) {
        // Some connections have had no turn since something last moved.
        let active = self.active.len();
        self.at_once |= active > TURNS_MAX && self.still_turns < active;
    }

    /// Whether a connection lacks memory to go on.
    #[inline]
    pub fn others_wait(&self) -> bool {
        !self.waiting.is_empty() || self.short.is_some()
    }

    /// Notes that an active connection of this host lacks memory. It waits as those in the queue do, until all have had their
    /// turn.
    pub fn fall_short(&mut self, host: Host) {
        self.short = Some((host, self.active.len() + 1));
    }

    /// Counts a turn that begins while an active connection lacks memory.
    #[inline]
    pub fn count_short_turn(&mut self) {
        self.short = self.short.filter(|(_, turns)| *turns > 1).map(|(host, turns)| (host, turns - 1));
    }

    /// The host of an active connection that lacks memory.
    #[inline]
    pub fn short_host(&self) -> Option<Host> {
        self.short.map(|(host, _)| host)
    }

    /// The active connections.
    #[inline]
    pub fn active(&self) -> &[Key] {
        &self.active
    }

    #[inline]
    pub fn has_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Whether there is memory to note one more active connection.
    pub fn has_space(&mut self) -> bool {
        self.active.try_reserve(1).is_ok()
    }

    /// Makes a connection active. The caller has checked [`Schedule::has_space`].
    pub fn activate(&mut self, key: Key) {
        self.active.push(key);
    }

    /// Removes the active connection at this place. Another one may take its place.
    pub fn take_active(&mut self, at: usize) {
        self.active.swap_remove(at);
    }

    /// Removes a connection from the active ones. Usually it was the last to have its turn.
    pub fn retire(&mut self, key: Key) {
        if self.active.last() == Some(&key) {
            self.active.pop();
        } else {
            self.active.retain(|active| *active != key);
        }
    }

    /// The connections that wait for memory, the first one first.
    pub fn waiting(&self) -> &VecDeque<Key> {
        &self.waiting
    }

    /// Takes the first of those that wait.
    pub fn next_waiting(&mut self) -> Option<Key> {
        self.waiting.pop_front()
    }

    /// Lets a connection wait behind all others. Returns false if there is no memory to note it.
    pub fn wait(&mut self, key: Key) -> bool {
        let has_space = self.waiting.try_reserve(1).is_ok();
        if has_space {
            self.waiting.push_back(key);
        }
        has_space
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        ((self.active.capacity() + self.waiting.capacity()) * size_of::<Key>()) as u64
    }
}
