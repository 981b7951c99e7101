//! The connections that a program has.

use super::received::Received;
use super::waiter::Waiter;
use crate::connection::Connection;
use crate::messages::SendFailure;
use std::collections::{HashMap, VecDeque};

/// One connection.
#[derive(Default)]
pub(super) struct Peer {
    pub(super) received: VecDeque<Received>,
    pub(super) reader: Waiter,
    /// The peer has gone, or the connection failed.
    pub(super) has_ended: bool,
    /// Messages of the sink that have not ended.
    pub(super) sinking: u32,
    /// Why the first of them that failed did.
    pub(super) sink_failure: Option<SendFailure>,
    pub(super) flusher: Waiter,
}

impl Peer {
    /// Nothing more comes: whoever waits is woken, and finds that out.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
        self.reader.end();
        self.flusher.end();
    }
}

/// All connections that a program has. Those that are open have different indices, so they are found without hashing.
#[derive(Default)]
pub(super) struct Peers {
    by_index: Vec<Option<(Connection, Peer)>>,
    /// Connections that have ended, and whose indices others have by now.
    displaced: HashMap<Connection, Peer>,
}

impl Peers {
    pub(super) fn insert(&mut self, connection: Connection) {
        let at = connection.index as usize;
        if at >= self.by_index.len() {
            self.by_index.resize_with(at + 1, || None);
        }
        let Some(place) = self.by_index.get_mut(at) else { return };
        if let Some((ended, peer)) = place.replace((connection, Peer::default())) {
            self.displaced.insert(ended, peer);
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, connection: Connection) -> Option<&mut Peer> {
        match self.by_index.get_mut(connection.index as usize) {
            Some(Some((known, peer))) if *known == connection => Some(peer),
            _ => self.displaced.get_mut(&connection),
        }
    }

    pub(super) fn remove(&mut self, connection: Connection) -> Option<Peer> {
        let place = self.by_index.get_mut(connection.index as usize)?;
        match place.take_if(|(known, _)| *known == connection) {
            Some((_, peer)) => Some(peer),
            None => self.displaced.remove(&connection),
        }
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        let by_index = self.by_index.iter_mut().flatten().map(|(_, peer)| peer);
        by_index.chain(self.displaced.values_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_connection_is_kept_when_another_has_its_index() {
        let of = |generation| Connection { index: 3, generation };
        let mut peers = Peers::default();
        for generation in 1..=3 {
            peers.insert(of(generation));
            peers.get_mut(of(generation)).unwrap().sinking = generation;
        }
        for generation in 1..=3 {
            assert_eq!(peers.get_mut(of(generation)).unwrap().sinking, generation);
        }
        assert_eq!(peers.iter_mut().count(), 3);
        assert_eq!(peers.remove(of(1)).unwrap().sinking, 1);
        assert_eq!(peers.remove(of(3)).unwrap().sinking, 3);
        assert!(peers.remove(of(3)).is_none() && peers.get_mut(of(1)).is_none());
        assert_eq!(peers.remove(of(2)).unwrap().sinking, 2);
        assert!(peers.get_mut(Connection { index: 9, generation: 1 }).is_none());
    }
}
