//! Whose turn it is to move data, and for how long.

use crate::engine::core::Core;
use crate::transport::quota::Host;
use cci_memory::slab::Key;
use std::collections::VecDeque;

/// Bytes read, and bytes written, for one connection in one poll, before messages and the program have their turn.
const TURN_BYTES: u64 = 256 << 10;
/// Bytes of a turn while messages come and go: this is what they wait behind.
const SHORT_TURN_BYTES: u64 = 32 << 10;
/// How long the last message counts.
const MESSAGES_NS: u64 = 1_000_000;
/// Connections that have their turn in one poll.
const TURNS_MAX: usize = 8;

/// The connections that move data, which take turns, and those that wait for memory.
pub(in crate::transport::tcp) struct Schedule {
    /// Connections with something under way, or of late.
    active: Vec<Key>,
    /// Connections for which there was no memory, in order.
    waiting: VecDeque<Key>,
    /// The host of an active connection that had too little memory to go on, and for how many turns others give way to it.
    short: Option<(Host, usize)>,
    /// Something is to be done that waits for nobody.
    pub at_once: bool,
    /// Turns in a row in which nothing moved.
    still_turns: usize,
    /// Messages of the endpoint so far, and when there last was one.
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

    /// Something is under way, or waits.
    #[inline]
    pub fn has_any(&self) -> bool {
        !self.active.is_empty() || !self.waiting.is_empty()
    }

    /// The turns of a poll begin: how many there are.
    #[inline]
    pub fn begin(&mut self, core: &Core, now_ns: u64) -> usize {
        self.at_once = false;
        let messages = core.prompt_messages();
        if messages != self.messages {
            (self.messages, self.messages_ns) = (messages, now_ns);
        }
        self.active.len().min(TURNS_MAX)
    }

    /// Whose turn it is next.
    #[inline]
    pub fn next(&mut self) -> Option<Key> {
        let key = self.active.first().copied()?;
        self.active.rotate_left(1);
        self.still_turns = self.still_turns.saturating_add(1);
        Some(key)
    }

    /// Bytes that a turn may read, and write.
    #[inline]
    pub fn turn_bytes(&self, now_ns: u64) -> u64 {
        let is_short = now_ns < self.messages_ns.saturating_add(MESSAGES_NS);
        if is_short { SHORT_TURN_BYTES } else { TURN_BYTES }
    }

    /// Something has moved in this turn.
    #[inline]
    pub fn moved(&mut self) {
        self.still_turns = 0;
    }

    /// The turns of a poll have ended.
    #[inline]
    pub fn end(&mut self) {
        // Some have had no turn since something last moved.
        let active = self.active.len();
        self.at_once |= active > TURNS_MAX && self.still_turns < active;
    }

    /// Somebody lacks memory to go on.
    #[inline]
    pub fn others_wait(&self) -> bool {
        !self.waiting.is_empty() || self.short.is_some()
    }

    /// An active connection of this host lacks memory: it waits as those in the queue do, until all have had their turn.
    pub fn fall_short(&mut self, host: Host) {
        self.short = Some((host, self.active.len() + 1));
    }

    /// A turn begins while an active connection lacks memory.
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

    /// A connection is active from now on; [`Schedule::has_space`] was true.
    pub fn activate(&mut self, key: Key) {
        self.active.push(key);
    }

    /// Takes one out of the active connections; another one may be there then.
    pub fn take_active(&mut self, at: usize) {
        self.active.swap_remove(at);
    }

    /// Takes a connection out of the active ones; it was the last to have its turn, as a rule.
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

    /// The first of those that wait.
    pub fn next_waiting(&mut self) -> Option<Key> {
        self.waiting.pop_front()
    }

    /// Has a connection wait behind all others. False: there is no memory to note it.
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
