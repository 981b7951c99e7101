//! Who is at the other end of a connection, where that was proved, and what it may therefore do here.

use crate::event::Connection;
use crate::rma::Access;
use cci_secure::{Identity, Rights};
use std::collections::HashMap;

/// The other side, where an endpoint tells its peers apart, and what it is allowed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// None: it has not said, and need not.
    pub identity: Option<Identity>,
    pub rights: Rights,
}

impl Peer {
    /// What it may do with regions that are offered to everybody.
    pub fn access(&self) -> Access {
        let Rights { rma_read, rma_write, .. } = self.rights;
        match (rma_read, rma_write) {
            // An atomic operation does both.
            (true, true) => Access::ALL,
            (true, false) => Access::READ,
            (false, true) => Access::WRITE,
            (false, false) => Access::LOCAL,
        }
    }
}

/// The peers of an endpoint's connections. Empty where nothing is sealed.
#[derive(Default)]
pub(crate) struct Peers(HashMap<Connection, Peer>);

impl Peers {
    /// It is fixed for as long as the connection lives: the first word counts.
    pub fn insert(&mut self, connection: Connection, peer: &Peer) {
        self.0.entry(connection).or_insert_with(|| peer.clone());
    }

    /// Makes sure that one more can be entered. False: there is no memory.
    pub fn has_room_for_one(&mut self) -> bool {
        // An endpoint that tells nobody apart needs none.
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
