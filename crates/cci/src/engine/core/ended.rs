//! Connections that end without being disconnected by the program: the peer has closed, or is lost. The transport releases
//! such a connection, and one event reports it to the program, after the last message and the last completion.

use super::{ConnState, Core, key};
use crate::connection::{Connection, DisconnectReason};
use std::collections::VecDeque;

/// Connections that may end between two rounds of progress before the list of them grows.
const ENDED_RESERVED: usize = 64;

/// What becomes of a connection that this side's program has not closed, once its peer has closed it or is lost.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum DisconnectPolicy {
    /// [`Event::Disconnected`](crate::Event::Disconnected) reports it, and the handle is invalid from then on.
    #[default]
    Release,
    /// The event reports it, and the handle stays until the program disconnects it. For languages whose handles are pointers.
    Report,
    /// There is no event: sends fail from then on, and the handle stays until the program disconnects it.
    Ignore,
}

/// Connections that have ended and are yet to be released or reported.
pub(super) struct EndedConnections {
    policy: DisconnectPolicy,
    /// In [`ConnState::Ended`], or in [`ConnState::Released`] where there was no memory for the event.
    pending: VecDeque<Connection>,
    /// There was no memory to list them all: the table has more.
    is_incomplete: bool,
}

impl EndedConnections {
    pub fn new() -> EndedConnections {
        EndedConnections {
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

    /// The event of a connection is taken from the queue. False: the program has disconnected it
    /// meanwhile, and the event is dropped.
    #[cold]
    pub fn report(&self, conns: &mut super::Conns, connection: Connection) -> bool {
        let Some(conn) = conns.get_mut(key(connection)).filter(|conn| conn.state == ConnState::Released)
        else {
            return false;
        };
        match self.policy {
            DisconnectPolicy::Report | DisconnectPolicy::Ignore => conn.state = ConnState::Reported,
            DisconnectPolicy::Release => drop(conns.remove(key(connection))),
        }
        true
    }
}

impl Core {
    pub fn disconnect_policy(&self) -> DisconnectPolicy {
        self.ended_connections.policy
    }

    pub fn set_disconnect_policy(&mut self, policy: DisconnectPolicy) {
        self.ended_connections.policy = policy;
    }

    /// The peer is gone, everything that had come from it was delivered, and everything sent to it has completed.
    #[cold]
    pub fn ended(&mut self, connection: Connection, reason: DisconnectReason) {
        self.peer_gone(connection);
        let Some(conn) = self.conns.get_mut(key(connection)).filter(|conn| conn.state == ConnState::PeerGone)
        else {
            return;
        };
        conn.set_reason(reason);
        if self.ended_connections.policy != DisconnectPolicy::Ignore {
            conn.state = ConnState::Ended;
            self.ended_connections.list(connection);
        }
    }

    /// Whether the transport is to release connections, which [`Core::next_ended`] returns.
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.ended_connections.pending.is_empty()
    }

    /// A connection that the transport is to release, and the transport's name for it.
    pub fn next_ended(&mut self) -> Option<(Connection, u64)> {
        loop {
            let connection = self.ended_connections.pending.pop_front().or_else(|| self.unlisted())?;
            let Some(conn) = self.conns.get_mut(key(connection)) else { continue };
            if conn.state == ConnState::Ended {
                conn.state = ConnState::Releasing;
                return Some((connection, conn.link));
            }
            // Otherwise it waits for memory for its event, or the program has disconnected it meanwhile.
            if conn.state == ConnState::Released && !self.queue_disconnected(connection) {
                return None;
            }
        }
    }

    /// A connection that ended when there was no memory to list it.
    fn unlisted(&mut self) -> Option<Connection> {
        if !self.ended_connections.is_incomplete {
            return None;
        }
        let mut ended = self.conns.iter().filter(|(_, conn)| conn.state == ConnState::Ended);
        let found = ended.next().map(|(key, _)| Connection { index: key.index, generation: key.generation });
        self.ended_connections.is_incomplete = found.is_some();
        found
    }

    /// Notes that the transport has released a connection. True: an event is still to report it to the program.
    pub(super) fn released(&mut self, connection: Connection) -> bool {
        let Some(conn) = self.conns.get_mut(key(connection)) else { return false };
        if !matches!(conn.state, ConnState::Ended | ConnState::Releasing) {
            return false;
        }
        (conn.state, conn.link) = (ConnState::Released, u64::MAX);
        self.queue_disconnected(connection);
        true
    }

    /// Queues the event of a connection that was released. False: there is no memory for it now; the connection is listed, to
    /// be tried again.
    fn queue_disconnected(&mut self, connection: Connection) -> bool {
        let Some(conn) = self.conns.get(key(connection)) else { return true };
        let queued = self.events.push_disconnected(connection, conn.context, conn.reason());
        if !queued {
            self.ended_connections.list(connection);
        }
        queued
    }
}
