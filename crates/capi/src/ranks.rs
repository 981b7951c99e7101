//! Connections by rank, beside a C endpoint.

use crate::guard::Failure;
use crate::types::*;
use cci::{Connection, Endpoint, Event};
use cci_job::{Connections, JobError, Peer, RankEvent};
use std::collections::HashMap;
use std::time::Duration;

/// What an endpoint of a job has beside other endpoints.
pub(crate) struct Ranks {
    connections: Connections,
    /// With whom a connection is or was: by its index, of which the engine gives each to one connection at a time.
    peers: HashMap<u32, (Connection, u32)>,
}

/// The contexts of programs for their connections with ranks, by those that the engine has. A rank that has not asked for a connection has
/// none.
pub(crate) type Contexts = HashMap<u64, u64>;

impl Ranks {
    pub fn new(connections: Connections) -> Ranks {
        Ranks { connections, peers: HashMap::new() }
    }

    /// Asks for a connection, unless it is there.
    pub fn connect(
        &mut self,
        endpoint: &mut Endpoint,
        contexts: &mut Contexts,
        (peer, context): (Peer, u64),
        timeout: Option<Duration>,
    ) -> Result<Option<Connection>, JobError> {
        let open = self.connections.connect(endpoint, peer, timeout)?;
        if open.is_none() {
            contexts.entry(peer.to_context()).or_insert(context);
        }
        Ok(open)
    }

    /// What programs see of an event. Connections that a rank did not ask for look as accepted ones do.
    pub fn show(&mut self, endpoint: &mut Endpoint, contexts: &mut Contexts, event: Event) -> Option<Event> {
        // Programs in C have no barriers over connections.
        match self.connections.on(endpoint, event, |peer| !peer.is_of_barriers())? {
            RankEvent::Connected { peer, connection } => {
                self.peers.insert(index(connection), (connection, peer.rank()));
                let result = Ok(connection);
                Some(match contexts.get(&peer.to_context()) {
                    Some(&context) => Event::Connect { context, result },
                    None => Event::Accept { context: 0, result },
                })
            }
            RankEvent::Failed { peer, why } => {
                let context = contexts.remove(&peer.to_context())?;
                Some(Event::Connect { context, result: Err(why) })
            }
            RankEvent::Ended { peer, connection, reason } => {
                let context = contexts.remove(&peer.to_context()).unwrap_or(0);
                Some(Event::Disconnected { connection, context, reason })
            }
            RankEvent::Endpoint(event) => Some(event),
            _ => None,
        }
    }

    /// The program closes a connection.
    pub fn closed(&mut self, endpoint: &Endpoint, contexts: &mut Contexts, connection: Connection) {
        if let Some(peer) = endpoint.context(connection).and_then(Peer::from_context) {
            contexts.remove(&peer.to_context());
            self.connections.closed(peer, connection);
        }
    }

    /// Whose a connection is or was.
    pub fn rank_of(&self, endpoint: &Endpoint, connection: Connection) -> Option<u32> {
        let known = self.peers.get(&index(connection)).filter(|(known, _)| *known == connection);
        // The other end of a rank's connection with itself has no event of its own.
        let of_engine = || Some(Peer::from_context(endpoint.context(connection)?)?.rank());
        known.map(|&(_, rank)| rank).or_else(of_engine)
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.connections.size()
    }

    /// Bytes held, but for the lists of others.
    pub fn bytes(&self) -> usize {
        self.connections.book_bytes() + self.peers.capacity() * size_of::<(u32, (Connection, u32))>()
    }
}

/// The place of a connection in the engine's table.
fn index(connection: Connection) -> u32 {
    connection.to_bits() as u32
}

/// Why a call is refused that an endpoint of a job has another one for.
pub(crate) fn not_of_a_job(instead: &str) -> Failure {
    Failure::with_text(CCI_EINVAL, format!("the endpoint is one of a job, whose ranks {instead}"))
}
