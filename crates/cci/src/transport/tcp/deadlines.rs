//! Connections with a deadline of their own, and those whose peers are asked for signs of life.

use super::base::Base;
use super::conn::Conn;
use super::conns::Conns;
use super::shared::Shared;
use crate::engine::core::Core;
use cci_memory::slab::Key;

/// The connections that have deadlines or keepalives, and when the first of these is due.
pub(super) struct Deadlines {
    /// Connections that are being made or left.
    listed: Vec<Key>,
    /// No listed connection is due earlier.
    pub due_ns: u64,
    /// Connections whose keepalive is on.
    kept_alive: Vec<Key>,
    /// When the connections with keepalive are checked next.
    keepalive_due_ns: u64,
}

impl Deadlines {
    pub const fn new() -> Deadlines {
        Deadlines { listed: Vec::new(), due_ns: u64::MAX, kept_alive: Vec::new(), keepalive_due_ns: u64::MAX }
    }

    /// Puts a connection into the list of those with a deadline of their own.
    pub fn add(&mut self, base: &mut Base, due_ns: u64) {
        self.due_ns = self.due_ns.min(due_ns);
        if !std::mem::replace(&mut base.has_deadline, true) {
            self.listed.push(base.listed.key);
        }
    }

    /// A connection with a deadline of its own.
    pub fn get(&self, at: usize) -> Option<Key> {
        self.listed.get(at).copied()
    }

    /// Removes the connection at this place. Another one may take its place.
    pub fn take(&mut self, at: usize) {
        self.listed.swap_remove(at);
    }

    /// The latest time at which something must be done.
    #[inline]
    pub fn first_ns(&self) -> u64 {
        self.due_ns.min(self.keepalive_due_ns)
    }

    /// Switches the keepalive of a connection on.
    pub fn keep_alive(&mut self, key: Key) {
        self.kept_alive.push(key);
        self.keepalive_due_ns = 0;
    }

    /// Switches the keepalive of a connection off.
    pub fn let_be(&mut self, key: Key) {
        self.kept_alive.retain(|kept| *kept != key);
    }

    /// Asks silent peers for a sign of life. A peer that gives none is reported to the program, and its keepalive is switched
    /// off.
    pub fn ask_silent(&mut self, shared: &mut Shared, core: &mut Core, conns: &mut Conns) {
        let now_ns = shared.now_ns;
        if self.keepalive_due_ns > now_ns {
            return;
        }
        let mut next_ns = u64::MAX;
        self.kept_alive.retain(|&key| {
            let Some(conn) = conns.get_mut(key) else { return false };
            let limit_ns = conn.base().keepalive_ns;
            if limit_ns == 0 {
                return false;
            }
            let is_silent = match conn {
                Conn::Dialling(_) => return false,
                Conn::Established(conn) if conn.stage.is_left() => return false,
                Conn::Established(conn) => conn.ask_if_silent(&mut shared.streams, now_ns),
                Conn::Gone(_) => true,
            };
            if is_silent {
                conn.base_mut().keepalive_ns = 0;
                shared.counts.keepalives += 1;
                core.keepalive_timed_out(conn.base().connection);
                return false;
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
