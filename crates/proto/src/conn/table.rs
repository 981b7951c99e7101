//! The connection table: an index finds a connection, with no hashing.
//!
//! It is no `cci_memory::slab::Slab`: that keeps a generation beside each entry, where this keeps the generation and the link in fields
//! that a connection has anyway. With a slab, an idle connection would take 96 bytes, and not 88. And a slab moves its entries when it
//! grows, which takes long with a million of them.

use super::send_timeouts::SendTimeouts;
use super::{Base, Conn};
use crate::{Address, Attribute, ConnKey, ConnState, Seq};

/// Connections per block: the table grows by blocks, so that growing moves nothing.
const BLOCK: usize = 64;

/// What a connection costs, with the send timeout that it may get.
const CONN_BYTES: usize = size_of::<Conn>() + SendTimeouts::BYTES_MAX;

/// All connections of an endpoint.
pub(crate) struct Table {
    blocks: Vec<Box<[Conn; BLOCK]>>,
    /// The first free entry; the others are linked through `peer_index`.
    free: u32,
    used: u32,
    max: u32,
}

const NONE: u32 = u32::MAX;

fn empty(next_free: u32) -> Conn {
    let base = Base {
        peer: Address::from(std::net::SocketAddr::from(([0, 0, 0, 0], 0))),
        nonce: 0,
        peer_nonce: 0,
        token: 0,
        peer_index: next_free,
        peer_generation: 0,
        generation: 0,
        idle_tx: Seq(0),
        idle_rx: Seq(0),
        idle_rtt: super::IdleRtt::default(),
        datagram_bytes: 0,
        bundle_bytes: 0,
        tx_epoch: 0,
        rx_epoch: 0,
        peer_window_kib: 0,
        idle_window: super::IdleWindow::default(),
        state: ConnState::Free,
        attribute: Attribute::Unreliable,
    };
    Conn { base, active: None }
}

impl Table {
    pub const GROWTH_BYTES: u64 = (BLOCK * CONN_BYTES + size_of::<Box<[Conn; BLOCK]>>()) as u64;

    pub fn new(max: u32) -> Table {
        Table { blocks: Vec::new(), free: NONE, used: 0, max }
    }

    pub fn bytes(&self) -> u64 {
        (self.blocks.len() * BLOCK * CONN_BYTES + self.blocks.capacity() * size_of::<Box<[Conn; BLOCK]>>())
            as u64
    }

    pub fn used(&self) -> u32 {
        self.used
    }

    pub fn is_full(&self) -> bool {
        self.used >= self.max
    }

    /// True if the next connection needs another block of table.
    pub fn must_grow(&self) -> bool {
        self.free == NONE
    }

    /// A free place; its generation is set and never was used at this place before (in 2^32 tries). None: the table is full,
    /// or there is no memory.
    pub fn add(&mut self) -> Option<(u32, &mut Conn)> {
        if self.is_full() {
            return None;
        }
        if self.free == NONE {
            self.blocks.try_reserve(1).ok()?;
            let first = (self.blocks.len() * BLOCK) as u32;
            let block = std::array::from_fn(|position| {
                empty(if position + 1 == BLOCK { NONE } else { first + position as u32 + 1 })
            });
            self.blocks.push(Box::new(block));
            self.free = first;
        }
        let index = self.free;
        let next = self.at(index)?.base.peer_index;
        self.free = next;
        self.used += 1;
        let conn = self.at_mut(index)?;
        let generation = conn.base.generation.wrapping_add(1);
        *conn = empty(NONE);
        conn.base.generation = generation;
        Some((index, conn))
    }

    /// The connection is gone; its key is dead from now on.
    pub fn remove(&mut self, index: u32) {
        let free = self.free;
        if let Some(conn) = self.at_mut(index) {
            assert!(conn.base.state != ConnState::Free && conn.active.is_none(), "removed once, and asleep");
            let generation = conn.base.generation;
            *conn = empty(free);
            conn.base.generation = generation;
            self.free = index;
            self.used -= 1;
        }
    }

    #[inline]
    pub fn at(&self, index: u32) -> Option<&Conn> {
        Some(&self.blocks.get(index as usize / BLOCK)?[index as usize % BLOCK])
    }

    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<&mut Conn> {
        Some(&mut self.blocks.get_mut(index as usize / BLOCK)?[index as usize % BLOCK])
    }

    #[inline]
    pub fn get(&self, key: ConnKey) -> Option<&Conn> {
        self.at(key.index)
            .filter(|conn| conn.base.generation == key.generation && conn.base.state != ConnState::Free)
    }

    #[inline]
    pub fn get_mut(&mut self, key: ConnKey) -> Option<&mut Conn> {
        self.at_mut(key.index)
            .filter(|conn| conn.base.generation == key.generation && conn.base.state != ConnState::Free)
    }

    /// Every index that may be in use.
    pub fn indices(&self) -> std::ops::Range<u32> {
        0..(self.blocks.len() * BLOCK) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_keys_are_refused() {
        let mut table = Table::new(2);
        let (index, conn) = table.add().unwrap();
        conn.base.state = ConnState::Up;
        let old = conn.key(index);
        assert!(table.get(old).is_some());
        table.remove(index);
        assert!(table.get(old).is_none());
        let (again, conn) = table.add().unwrap();
        conn.base.state = ConnState::Up;
        assert_eq!(again, index);
        assert!(table.get(old).is_none());
        assert!(table.add().is_some() && table.add().is_none(), "two at most");
    }
}
