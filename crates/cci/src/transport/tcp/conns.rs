//! The table of an endpoint's connections.

use super::conn::Conn;
use super::established::Established;
use crate::limits;
use cci_memory::slab::{Key, Slab};

/// Bytes of a connection's entry in the table.
const CONN_BYTES: usize = size_of::<Option<Conn>>() + 8;

/// Settings of new connections.
pub(super) struct Defaults {
    pub send_timeout_ns: u64,
    pub keepalive_ns: u64,
}

/// The table of connections.
pub(super) struct Conns {
    table: Slab<Conn>,
    /// The most bytes that the table may take.
    bytes_max: u64,
    /// One more than the highest index that a connection ever had.
    end: u32,
    pub defaults: Defaults,
}

impl Conns {
    pub fn new(bytes_max: u64, defaults: Defaults) -> Conns {
        Conns { table: Slab::new(limits::CONNECTIONS_MAX), bytes_max, end: 0, defaults }
    }

    /// Enters the connection that `make` makes of `seed`, if the table still fits under the cap. Otherwise gives `seed` back.
    pub fn insert<S>(&mut self, seed: S, make: impl FnOnce(S, Key) -> Conn) -> Result<Key, S> {
        // The table doubles when it is full.
        let bytes = self.table.bytes();
        let is_full = (self.table.len() as usize + 1) * CONN_BYTES > bytes;
        if is_full && 2 * bytes as u64 > self.bytes_max {
            return Err(seed);
        }
        let Conns { table, defaults, .. } = self;
        let key = table.insert_with(seed, |seed, key| {
            let mut conn = make(seed, key);
            let base = conn.base_mut();
            base.listed.key = key;
            (base.send_timeout_ns, base.keepalive_ns) = (defaults.send_timeout_ns, defaults.keepalive_ns);
            conn
        })?;
        self.end = self.end.max(key.index + 1);
        Ok(key)
    }

    pub fn remove(&mut self, key: Key) -> Option<Conn> {
        self.table.remove(key)
    }

    #[inline]
    pub fn get(&self, key: Key) -> Option<&Conn> {
        self.table.get(key)
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Conn> {
        self.table.get_mut(key)
    }

    #[inline]
    pub fn established(&self, key: Key) -> Option<&Established> {
        self.table.get(key)?.established()
    }

    #[inline]
    pub fn established_mut(&mut self, key: Key) -> Option<&mut Established> {
        self.table.get_mut(key)?.established_mut()
    }

    pub fn key_at(&self, index: u32) -> Option<Key> {
        self.table.key_at(index)
    }

    /// All connections, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Conn)> {
        self.table.iter()
    }

    /// One more than the highest index that a connection ever had.
    pub fn end(&self) -> u32 {
        self.end
    }

    #[inline]
    pub fn len(&self) -> u32 {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Bytes held by the table itself.
    pub fn bytes(&self) -> usize {
        self.table.bytes()
    }
}
