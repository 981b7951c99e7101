//! The peers of an endpoint's connections, where they were proved.

use super::peer::Peer;
use crate::connection::Connection;
use std::collections::HashMap;

/// The peers of an endpoint's connections. Empty where nothing is sealed.
#[derive(Default)]
pub(crate) struct Peers(HashMap<Connection, Peer>);

impl Peers {
    /// It is fixed for as long as the connection lives: the first word counts.
    pub fn insert(&mut self, connection: Connection, peer: &Peer) {
        self.0.entry(connection).or_insert_with(|| peer.clone());
    }

    /// Makes sure that one more can be entered. False: there is no memory.
    pub fn has_space_for_one(&mut self) -> bool {
        // An endpoint that does not distinguish its peers needs none.
        self.0.is_empty() || self.0.try_reserve(1).is_ok()
    }

    pub fn get(&self, connection: Connection) -> Option<&Peer> {
        self.0.get(&connection)
    }

    #[inline]
    pub fn remove(&mut self, connection: Connection) {
        if !self.0.is_empty() {
            self.0.remove(&connection);
        }
    }

    /// Their places; names are shared between connections.
    pub fn bytes(&self) -> u64 {
        (self.0.capacity() * (size_of::<(Connection, Peer)>() + 1) * 8 / 7) as u64
    }
}
