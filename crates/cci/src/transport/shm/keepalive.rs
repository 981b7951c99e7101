//! Keepalive: which connections ask silent peers for a sign of life, and when.

use cci_memory::slab::Key;

/// The connections with keepalive on.
pub(super) struct Keepalive {
    conns: Vec<Key>,
    /// When the first of these connections is checked next.
    next_ns: u64,
}

impl Keepalive {
    pub const fn new() -> Keepalive {
        Keepalive { conns: Vec::new(), next_ns: 0 }
    }

    /// Turns keepalive on or off for a connection.
    pub fn set(&mut self, key: Key, is_on: bool) {
        self.conns.retain(|on| *on != key);
        if is_on {
            self.conns.push(key);
            self.next_ns = 0;
        }
    }

    /// When the next connection is checked; `u64::MAX` if there is none.
    pub fn deadline_ns(&self) -> u64 {
        if self.conns.is_empty() { u64::MAX } else { self.next_ns }
    }

    /// Calls `look` for every connection, if that is due. `look` returns when it is to be called for this connection again, or
    /// `None` to switch keepalive off.
    #[inline]
    pub fn look(&mut self, now_ns: u64, mut look: impl FnMut(Key) -> Option<u64>) {
        if now_ns < self.deadline_ns() {
            return;
        }
        let mut next_ns = u64::MAX;
        self.conns.retain(|&key| {
            let again_ns = look(key);
            next_ns = next_ns.min(again_ns.unwrap_or(u64::MAX));
            again_ns.is_some()
        });
        self.next_ns = next_ns;
    }
}
