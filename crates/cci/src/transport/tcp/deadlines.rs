//! Connections with a deadline of their own, and those whose peers are asked for signs of life.

use super::conn::{Conn, Shared, State};
use crate::engine::core::Core;
use cci_memory::slab::{Key, Slab};

/// Which connections have deadlines and keepalives, and when the first of these is due.
pub(super) struct Deadlines {
    /// Connections that are being made or left.
    listed: Vec<Key>,
    /// None of these is due before.
    pub due_ns: u64,
    /// Connections whose keepalive is on.
    kept_alive: Vec<Key>,
    /// When these are to be looked at.
    keepalive_due_ns: u64,
}

impl Deadlines {
    pub const fn new() -> Deadlines {
        Deadlines { listed: Vec::new(), due_ns: u64::MAX, kept_alive: Vec::new(), keepalive_due_ns: u64::MAX }
    }

    /// Puts a connection into the list of those with a deadline of their own.
    pub fn add(&mut self, conn: &mut Conn) {
        self.due_ns = self.due_ns.min(conn.until_ns).min(conn.again_ns);
        if !std::mem::replace(&mut conn.has_deadline, true) {
            self.listed.push(conn.listed.key);
        }
    }

    /// One of those with a deadline of their own.
    pub fn get(&self, at: usize) -> Option<Key> {
        self.listed.get(at).copied()
    }

    /// Takes one out; another one may be there then.
    pub fn take(&mut self, at: usize) {
        self.listed.swap_remove(at);
    }

    /// When something is due at the latest.
    #[inline]
    pub fn first_ns(&self) -> u64 {
        self.due_ns.min(self.keepalive_due_ns)
    }

    /// The keepalive of a connection is on from now on.
    pub fn keep_alive(&mut self, key: Key) {
        self.kept_alive.push(key);
        self.keepalive_due_ns = 0;
    }

    /// The keepalive of a connection is off from now on.
    pub fn let_be(&mut self, key: Key) {
        self.kept_alive.retain(|kept| *kept != key);
    }

    /// Asks silent peers for a sign of life; tells the program of those that give none. Once: it is off then.
    pub fn ask_silent(&mut self, shared: &mut Shared, core: &mut Core, conns: &mut Slab<Conn>) {
        let now_ns = shared.now_ns;
        if self.keepalive_due_ns > now_ns {
            return;
        }
        let mut next_ns = u64::MAX;
        self.kept_alive.retain(|&key| {
            let Some(conn) = conns.get_mut(key) else { return false };
            if conn.keepalive_ns == 0 || matches!(conn.state, State::Closing | State::Lingering) {
                return false;
            }
            let limit_ns = conn.keepalive_ns;
            let silent_ns =
                if conn.stream.is_none() { u64::MAX } else { now_ns.saturating_sub(conn.heard_ns) };
            // Silent is who was asked and did not answer. When the program has not polled for a while, nobody was
            // asked; while messages are held here, no answer gets through.
            let was_asked = conn.stream.is_none()
                || conn.pinged_ns > conn.heard_ns
                    && now_ns.saturating_sub(conn.pinged_ns) >= limit_ns / 4
                    && !conn.input.is_holding();
            if silent_ns >= limit_ns && was_asked {
                conn.keepalive_ns = 0;
                shared.counts.keepalives += 1;
                core.keepalive_timed_out(conn.connection);
                return false;
            }
            if conn.stream.is_some()
                && silent_ns >= limit_ns / 2
                && now_ns.saturating_sub(conn.pinged_ns) >= limit_ns / 2
            {
                conn.pinged_ns = now_ns;
                conn.ping(&mut shared.streams);
            }
            next_ns = next_ns.min(now_ns.saturating_add((limit_ns / 4).max(1)));
            true
        });
        self.keepalive_due_ns = next_ns;
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        (self.listed.capacity() + self.kept_alive.capacity()) * size_of::<Key>()
    }
}
