//! The connections of a rank with others, apart from the endpoint that has them: what they are asked for, and what the endpoint's events say
//! of them.

use super::book::{self, Book};
use super::event::RankEvent;
use super::hello::{self, Ticket};
use super::peer::Peer;
use crate::error::{JobError, Result};
use crate::job::Job;
use crate::limits::{LOCAL_RANKS_ROOMY, SMALL_ENDPOINT_BYTES};
use cci::limits::MEMORY_BYTES_DEFAULT;
use cci::{ConnectFailure, ConnectRequest, Connection, Device, Endpoint, Event, Options, TransportKind};
use std::collections::HashMap;
use std::time::Duration;

/// A rank's connections by rank. Their endpoint stays with its owner, who gives it to each call, shows every event of it to
/// [`Connections::on`], and neither connects nor accepts by itself.
pub struct Connections {
    rank: u32,
    book: Book,
    ticket: Ticket,
    /// Only those that somebody has asked for.
    states: HashMap<Peer, State>,
    /// Labels of connections that do not go through shared memory where a rank has another address.
    by_network: Vec<u16>,
    refused: u64,
}

/// What becomes of a connection.
enum State {
    /// This rank has asked. Where the peer has asked meanwhile and has to wait, its request is here.
    Asking { held: Option<ConnectRequest> },
    /// The peer has asked. This rank may have asked, too, of which nothing comes unless this fails.
    Accepting { asking: bool },
    /// It is there.
    Open(Connection),
}

impl Connections {
    /// The options of an endpoint of the job's on `device`: with the job's security where the device has any, and small where many ranks
    /// share the host.
    ///
    /// # Errors
    /// The job's key does not make credentials.
    pub fn options(job: &Job, device: &Device, options: Options) -> Result<Options> {
        let is_memory = device.transport() == TransportKind::Shm;
        let options = if is_memory { options } else { options.security(job.security()?) };
        Ok(fitting(options, job.local_size()))
    }

    /// Sends all ranks where this one's endpoint is, and learns where theirs are. All ranks call it in the same order with exchanges.
    ///
    /// # Errors
    /// Those of [`Job::exchange`].
    pub fn exchange(job: &mut Job, endpoint: &Endpoint) -> Result<Connections> {
        let mine = Ticket::random()?;
        let entries = job.exchange(&book::entry(&mine, endpoint.uri()))?;
        let mut connections = Connections::over(job.rank(), &entries)?;
        if connections.book.is_large() {
            connections.share_book(job)?;
        }
        Ok(connections)
    }

    /// The first rank of each host keeps the book for all others there. One that does not get at it keeps its own.
    fn share_book(&mut self, job: &mut Job) -> Result<()> {
        let publishes = job.local_rank() == 0 && job.local_size() > 1;
        let place = if publishes { self.book.publish().unwrap_or_default() } else { Vec::new() };
        let places = job.exchange(&place)?;
        let first = (0..job.size()).find(|&rank| job.host_of(rank) == Some(job.host()));
        if let Some(place) = first.and_then(|first| places.get(first as usize)) {
            self.book.adopt(place);
        }
        Ok(())
    }

    /// With everybody's entries.
    pub(super) fn over(rank: u32, entries: &[Vec<u8>]) -> Result<Connections> {
        let (book, ticket) = Book::new(entries)?;
        Ok(Connections { rank, book, ticket, states: HashMap::new(), by_network: Vec::new(), refused: 0 })
    }

    #[cfg(test)]
    pub(super) fn book(&mut self) -> &mut Book {
        &mut self.book
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// See [`super::Ranks::rank`].
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.book.size()
    }

    /// See [`super::Ranks::requests_refused`].
    pub fn requests_refused(&self) -> u64 {
        self.refused
    }

    /// See [`super::Ranks::book_bytes`].
    pub fn book_bytes(&self) -> usize {
        self.book.memory_bytes()
    }

    /// See [`super::Ranks::prefer_network`].
    pub fn prefer_network(&mut self, label: u16) {
        if !self.by_network.contains(&label) {
            self.by_network.push(label);
        }
    }

    /// See [`super::Ranks::connect`].
    ///
    /// # Errors
    /// There is no such rank, or the endpoint can't connect: nothing was started.
    pub fn connect(
        &mut self,
        endpoint: &mut Endpoint,
        peer: Peer,
        timeout: Option<Duration>,
    ) -> Result<Option<Connection>> {
        match self.states.get(&peer) {
            Some(State::Open(connection)) => return Ok(Some(*connection)),
            Some(_) => return Ok(None),
            None => {}
        }
        let mut uri = self.book.uri(peer.rank())?;
        if self.by_network.contains(&peer.label())
            && let Some(network) = cci::network_uri(&uri)
        {
            uri = network;
        }
        let hello = hello::encode(&self.ticket, self.rank, peer.label());
        endpoint
            .connect(&uri, &hello, peer.attribute(), peer.to_context(), timeout)
            .map_err(|error| JobError::endpoint(format!("a connection with rank {}", peer.rank()), error))?;
        self.states.insert(peer, State::Asking { held: None });
        Ok(None)
    }

    /// The owner of the endpoint has closed a connection.
    pub fn closed(&mut self, peer: Peer, connection: Connection) {
        if self.get(peer) == Some(connection) {
            self.states.remove(&peer);
        }
    }

    /// A rank has ended. Returns its connections that are open, which stay. Those that were asked for are here without a handle: nothing comes of
    /// them any more.
    pub(super) fn give_up(&mut self, rank: u32) -> Vec<(Peer, Option<Connection>)> {
        let of_rank = self.states.iter().filter(|(peer, _)| peer.rank() == rank);
        let given_up: Vec<_> = of_rank
            .map(|(&peer, state)| match state {
                State::Open(connection) => (peer, Some(*connection)),
                State::Asking { .. } | State::Accepting { .. } => (peer, None),
            })
            .collect();
        self.states.retain(|peer, state| peer.rank() != rank || matches!(state, State::Open(_)));
        given_up
    }

    /// The connection, if it is open.
    pub fn get(&self, peer: Peer) -> Option<Connection> {
        match self.states.get(&peer) {
            Some(State::Open(connection)) => Some(*connection),
            _ => None,
        }
    }

    /// What an event says of connections.
    ///
    /// `admits`: whether a rank may ask for a connection.
    pub fn on(
        &mut self,
        endpoint: &mut Endpoint,
        event: Event,
        admits: impl Fn(&Peer) -> bool,
    ) -> Option<RankEvent> {
        match event {
            Event::ConnectRequest(request) => self.on_request(endpoint, request, admits),
            Event::Connect { context, result } => {
                self.on_connect(endpoint, Peer::from_context(context)?, result)
            }
            Event::Accept { context, result } => {
                self.on_accept(endpoint, Peer::from_context(context)?, result)
            }
            Event::Disconnected { connection, context, reason } => {
                let peer = Peer::from_context(context)?;
                // Another one than that of the table is the other end of a connection with this rank itself.
                self.get(peer).filter(|&open| open == connection)?;
                self.states.remove(&peer);
                Some(RankEvent::Ended { peer, connection, reason })
            }
            event => Some(RankEvent::Endpoint(event)),
        }
    }

    /// If both ranks ask at once, the request of the lower one is accepted. The lower one holds the other's back until its own has
    /// been answered: a refusal could overtake its own request, and look to the other rank like a dead one.
    fn on_request(
        &mut self,
        endpoint: &mut Endpoint,
        request: ConnectRequest,
        admits: impl Fn(&Peer) -> bool,
    ) -> Option<RankEvent> {
        let peer = hello::decode(request.data(), request.attribute(), &self.ticket, self.book.size());
        let Some(peer) = peer.filter(admits) else {
            self.refused += 1;
            return None;
        };
        match self.states.get_mut(&peer) {
            None => self.accept(endpoint, peer, request, false),
            Some(State::Asking { .. }) if peer.rank() == self.rank => {
                // A refused accept reaches this rank as the end of its attempt.
                let _ = endpoint.accept(request, peer.to_context());
                None
            }
            Some(State::Asking { .. }) if peer.rank() < self.rank => {
                self.accept(endpoint, peer, request, true)
            }
            Some(State::Asking { held: held @ None }) => {
                *held = Some(request);
                None
            }
            Some(_) => {
                self.refused += 1;
                None
            }
        }
    }

    fn accept(
        &mut self,
        endpoint: &mut Endpoint,
        peer: Peer,
        request: ConnectRequest,
        asking: bool,
    ) -> Option<RankEvent> {
        match endpoint.accept(request, peer.to_context()) {
            Ok(()) => {
                self.states.insert(peer, State::Accepting { asking });
                None
            }
            // This rank's own attempt goes on, and the peer learns that its own was refused.
            Err(_) if asking => None,
            Err(_) => {
                self.states.remove(&peer);
                Some(RankEvent::Failed { peer, why: ConnectFailure::Refused })
            }
        }
    }

    fn on_connect(
        &mut self,
        endpoint: &mut Endpoint,
        peer: Peer,
        result: Result<Connection, ConnectFailure>,
    ) -> Option<RankEvent> {
        match (self.states.get_mut(&peer), result) {
            (Some(State::Asking { .. }), Ok(connection)) => {
                // Drops the request that was held back, which refuses it.
                self.states.insert(peer, State::Open(connection));
                Some(RankEvent::Connected { peer, connection })
            }
            (_, Ok(connection)) => {
                endpoint.disconnect(connection);
                None
            }
            (Some(State::Asking { held }), Err(why)) => match held.take() {
                Some(request) => self.accept(endpoint, peer, request, false),
                None => {
                    self.states.remove(&peer);
                    Some(RankEvent::Failed { peer, why })
                }
            },
            (Some(State::Accepting { asking }), Err(_)) => {
                *asking = false;
                None
            }
            (_, Err(_)) => None,
        }
    }

    fn on_accept(
        &mut self,
        endpoint: &mut Endpoint,
        peer: Peer,
        result: Result<Connection, ConnectFailure>,
    ) -> Option<RankEvent> {
        match (self.states.get(&peer), result) {
            (Some(State::Accepting { .. }), Ok(connection)) => {
                self.states.insert(peer, State::Open(connection));
                Some(RankEvent::Connected { peer, connection })
            }
            (_, Ok(connection)) if peer.rank() != self.rank => {
                endpoint.disconnect(connection);
                None
            }
            (Some(State::Accepting { asking: true }), Err(_)) => {
                self.states.insert(peer, State::Asking { held: None });
                None
            }
            (Some(State::Accepting { asking: false }), Err(why)) => {
                self.states.remove(&peer);
                Some(RankEvent::Failed { peer, why })
            }
            _ => None,
        }
    }
}

/// The options of an endpoint of which one host has so many.
fn fitting(mut options: Options, local_size: u32) -> Options {
    if local_size > LOCAL_RANKS_ROOMY && options.memory_bytes_max == MEMORY_BYTES_DEFAULT {
        options.memory_bytes_max = SMALL_ENDPOINT_BYTES;
    }
    options
}
