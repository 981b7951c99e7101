//! Connections with a deadline of their own, and those whose peers are asked for signs of life.

use super::base::Base;
use super::conn::Conn;
use super::conns::Conns;
use super::shared::Shared;
use crate::engine::core::Core;
use cci_memory::slab::Key;

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

    /// Asks silent peers for a sign of life, and reports those to the program that give none; keepalive is off for these then.
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
