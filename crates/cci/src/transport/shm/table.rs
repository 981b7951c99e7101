//! The table of links.

use super::link::{Life, Link};
use super::peer::{Peer, Side};
use crate::engine::poller::Poller;
use crate::limits::CONNECTIONS_MAX;
use crate::transport::token;
use cci_memory::slab::{Key, Slab};
use std::collections::HashMap;
use std::os::fd::AsFd;

/// All links of an endpoint, by key, by number and by peer.
pub(super) struct Table {
    all: Slab<Box<Link>>,
    by_id: HashMap<(u64, Side), Key>,
    by_peer: HashMap<Peer, Key>,
    /// One more than the highest index that a link ever had.
    indices: u32,
}

impl Table {
    pub fn new() -> Table {
        Table { all: Slab::new(CONNECTIONS_MAX), by_id: HashMap::new(), by_peer: HashMap::new(), indices: 0 }
    }

    pub fn len(&self) -> u32 {
        self.all.len()
    }

    pub fn indices(&self) -> u32 {
        self.indices
    }

    /// Bytes of the table itself.
    pub fn bytes(&self) -> u64 {
        self.all.bytes() as u64
    }

    pub fn get(&self, key: Key) -> Option<&Link> {
        self.all.get(key).map(|link| &**link)
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Link> {
        self.all.get_mut(key).map(|link| &mut **link)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, &Link)> {
        self.all.iter().map(|(key, link)| (key, &**link))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.all.iter_mut().map(|(_, link)| &mut **link)
    }

    /// The link at an index.
    pub fn at(&self, index: u32) -> Option<&Link> {
        self.all.at(index).map(|(_, link)| &**link)
    }

    /// The link of a token of the poller.
    pub fn named_by(&self, what: u64) -> Option<Key> {
        self.all.key_at(token::index(what)).filter(|key| token::names(what, *key))
    }

    /// The link to a peer that another connection may join.
    pub fn with_peer(&mut self, peer: &Peer) -> Option<&mut Link> {
        let key = *self.by_peer.get(peer)?;
        self.get_mut(key).filter(|link| link.life == Life::Up)
    }

    /// This end of the link with the number `id`.
    pub fn with_id(&mut self, id: u64, side: Side) -> Option<&mut Link> {
        let key = *self.by_id.get(&(id, side))?;
        self.get_mut(key)
    }

    /// Enters a link with one connection on it, and watches it. Returns `None` if there is no memory, or the kernel refuses.
    pub fn insert(&mut self, poller: &Poller, link: Link) -> Option<Key> {
        let (id, side, peer) = (link.id, link.side, link.peer);
        self.by_id.try_reserve(1).ok()?;
        self.by_peer.try_reserve(1).ok()?;
        let key = self
            .all
            .insert_with(Box::new(link), |mut link, key| {
                (link.key, link.conns) = (key, 1);
                link
            })
            .ok()?;
        let link = self.all.get(key)?;
        let watched = poller
            .watch(link.bell.as_fd(), token::make(token::BELL, key))
            .and_then(|()| poller.watch(link.lifeline.as_fd(), token::make(token::LIFELINE, key)));
        if watched.is_err() {
            self.remove(poller, key);
            return None;
        }
        self.by_id.insert((id, side), key);
        self.by_peer.insert(peer, key);
        self.indices = self.indices.max(key.index + 1);
        Some(key)
    }

    /// Removes a link, and stops watching it.
    pub fn remove(&mut self, poller: &Poller, key: Key) -> Option<Box<Link>> {
        let link = self.all.remove(key)?;
        poller.unwatch(link.bell.as_fd());
        poller.unwatch(link.lifeline.as_fd());
        if self.by_id.get(&(link.id, link.side)) == Some(&key) {
            self.by_id.remove(&(link.id, link.side));
        }
        if self.by_peer.get(&link.peer) == Some(&key) {
            self.by_peer.remove(&link.peer);
        }
        Some(link)
    }
}
