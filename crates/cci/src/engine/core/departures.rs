//! Connections that end without a word of our program: its peer has closed, or is lost. The transport lets go of such a connection,
//! and the program is told once, behind the last message and the last completion.

use super::{ConnState, Core, key};
use crate::connection::{Connection, DisconnectReason};
use cci_memory::slab::Slab;
use std::collections::VecDeque;

/// Connections that may end between two rounds of progress before the list of them grows.
const ENDED_RESERVED: usize = 64;

/// What becomes of a connection that this side's program has not closed, once its peer has closed it or is lost.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum DisconnectPolicy {
    /// The program is told by [`Event::Disconnected`](crate::Event::Disconnected), and the handle is gone with that.
    #[default]
    Release,
    /// The program is told, and the handle stays until the program disconnects it. For languages whose handles are pointers.
    Report,
    /// The program is not told: its sends fail from then on, and the handle stays until the program disconnects it.
    Ignore,
}

/// Connections on their way out.
pub(super) struct Departures {
    policy: DisconnectPolicy,
    /// In [`ConnState::Ended`], or in [`ConnState::Left`] where there was no memory for the event.
    pending: VecDeque<Connection>,
    /// There was no memory to list them all: the table has more.
    is_incomplete: bool,
}

impl Departures {
    pub fn new() -> Departures {
        Departures {
            policy: DisconnectPolicy::default(),
            pending: VecDeque::with_capacity(ENDED_RESERVED),
            is_incomplete: false,
        }
    }

    /// How many are still to be dealt with, as far as they are listed.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    fn list(&mut self, connection: Connection) {
        match self.pending.try_reserve(1) {
            Ok(()) => self.pending.push_back(connection),
            // There are others in the list, with which this one will be found.
            Err(_) => self.is_incomplete = true,
        }
    }

    /// The event of a connection is taken from the queue. False: the program has disconnected it meanwhile, and is told nothing.
    #[cold]
    pub fn report(&self, conns: &mut Slab<super::Conn>, connection: Connection) -> bool {
        let Some(conn) = conns.get_mut(key(connection)).filter(|conn| conn.state == ConnState::Left) else {
            return false;
        };
        match self.policy {
            DisconnectPolicy::Report | DisconnectPolicy::Ignore => conn.state = ConnState::Told,
            DisconnectPolicy::Release => drop(conns.remove(key(connection))),
        }
        true
    }
}

impl Core {
    pub fn disconnect_policy(&self) -> DisconnectPolicy {
        self.departures.policy
    }

    pub fn set_disconnect_policy(&mut self, policy: DisconnectPolicy) {
        self.departures.policy = policy;
    }

    /// The peer is gone, everything that had come from it was delivered, and everything under way to it has completed.
    #[cold]
    pub fn ended(&mut self, connection: Connection, reason: DisconnectReason) {
        self.peer_gone(connection);
        let Some(conn) = self.conns.get_mut(key(connection)).filter(|conn| conn.state == ConnState::PeerGone)
        else {
            return;
        };
        conn.reason = reason;
        if self.departures.policy != DisconnectPolicy::Ignore {
            conn.state = ConnState::Ended;
            self.departures.list(connection);
        }
    }

    /// Whether the transport is to let go of connections: see [`Core::next_ended`].
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.departures.pending.is_empty()
    }

    /// A connection that the transport is to let go of, and the transport's name for it.
    pub fn next_ended(&mut self) -> Option<(Connection, u64)> {
        loop {
            let connection = self.departures.pending.pop_front().or_else(|| self.unlisted())?;
            let Some(conn) = self.conns.get_mut(key(connection)) else { continue };
            if conn.state == ConnState::Ended {
                conn.state = ConnState::Releasing;
                return Some((connection, conn.link));
            }
            // Else it waits for memory for its event, or the program has disconnected it meanwhile.
            if conn.state == ConnState::Left && !self.queue_departure(connection) {
                return None;
            }
        }
    }

    /// A connection that ended when there was no memory to list it.
    fn unlisted(&mut self) -> Option<Connection> {
        if !self.departures.is_incomplete {
            return None;
        }
        let mut ended = self.conns.iter().filter(|(_, conn)| conn.state == ConnState::Ended);
        let found = ended.next().map(|(key, _)| Connection { index: key.index, generation: key.generation });
        self.departures.is_incomplete = found.is_some();
        found
    }

    /// The transport has let go of a connection. True: the program is still to be told.
    pub(super) fn has_left(&mut self, connection: Connection) -> bool {
        let Some(conn) = self.conns.get_mut(key(connection)) else { return false };
        if !matches!(conn.state, ConnState::Ended | ConnState::Releasing) {
            return false;
        }
        (conn.state, conn.link) = (ConnState::Left, u64::MAX);
        self.queue_departure(connection);
        true
    }

    /// Queues the event of a connection that has left. False: there is no memory for it now; it is listed to be tried again.
    fn queue_departure(&mut self, connection: Connection) -> bool {
        let Some(conn) = self.conns.get(key(connection)) else { return true };
        let queued = self.events.push_disconnected(connection, conn.context, conn.reason);
        if !queued {
            self.departures.list(connection);
        }
        queued
    }
}
