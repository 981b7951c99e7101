//! Connections by rank: an endpoint of the job that connects to ranks on first use.

mod barrier;
mod book;
mod hello;
mod peer;
#[cfg(test)]
mod tests;

pub use peer::Peer;

use crate::error::{JobError, Result};
use crate::job::Job;
use crate::limits::{BARRIER_EVENTS_MAX, BARRIER_RETRY_MS, LOCAL_RANKS_ROOMY, SMALL_ENDPOINT_BYTES};
use barrier::{Barrier, SAID_BYTES, Said, Sent};
use book::Book;
use cci::limits::MEMORY_BYTES_DEFAULT;
use cci::{
    ConnectFailure, ConnectRequest, Connection, Device, DisconnectReason, Endpoint, Event, Options,
    SendError, SendFlags, TransportKind,
};
use hello::Ticket;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An endpoint that all ranks of a job have, and its connections by rank. A connection opens when one of its two ranks
/// first asks for it, and both get [`RankEvent::Connected`]. If both ask at once, one connection comes of it. Only ranks of this
/// job are admitted, without a question to the program.
///
/// ```no_run
/// # use cci_job::{Job, JobError, Peer, RankEvent, Ranks};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut job = Job::join()?;
/// let context = cci::Context::new()?;
/// let device = context.device("any").ok_or("no device any")?;
/// let mut ranks = Ranks::open(&mut job, device, cci::Options::default())?;
/// let limit = std::time::Duration::from_secs(30);
/// if job.rank() == 0 {
///     ranks.connect(Peer::of(job.size() - 1), limit)?;
/// }
/// while let Some(event) = ranks.wait(Some(limit))? {
///     match event {
///         RankEvent::Connected { peer, .. } => println!("connected with rank {}", peer.rank()),
///         RankEvent::Failed { peer, why } => println!("no connection with rank {}: {why}", peer.rank()),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Ranks {
    endpoint: Endpoint,
    rank: u32,
    book: Book,
    ticket: Ticket,
    /// Only those that somebody has asked for.
    connections: HashMap<Peer, State>,
    refused: u64,
    barrier: Barrier,
    /// The open connections of barriers, of which there are nine at most: every message of a barrier looks for one.
    barrier_connections: Vec<(u32, Connection)>,
    /// For each rank, the number of its host.
    hosts: Arc<[u32]>,
    /// There was no send buffer for a message of the barrier.
    barrier_waits: bool,
    /// How long a rank may take no message of a barrier, if this rank has called one.
    barrier_limit: Option<Duration>,
    /// Events that came while the last messages of a barrier were sent.
    behind_barrier: VecDeque<Event>,
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

/// What [`Ranks`] have to tell. Later versions may tell more.
#[derive(Debug)]
#[non_exhaustive]
pub enum RankEvent {
    /// A connection is open, whoever has asked for it.
    Connected {
        /// Which.
        peer: Peer,
        /// Its handle, for calls of the endpoint.
        connection: Connection,
    },
    /// A connection that this rank or its peer has asked for did not open: the rank is dead or does not answer.
    Failed {
        /// Which.
        peer: Peer,
        /// Why.
        why: ConnectFailure,
    },
    /// A connection has ended: its peer has closed or died. Nothing comes from it any more.
    Ended {
        /// Which.
        peer: Peer,
        /// What its handle was.
        connection: Connection,
        /// Why.
        reason: DisconnectReason,
    },
    /// The barrier that [`Ranks::barrier`] has started has ended: all ranks have called it, or it fails with [`JobError::Gone`].
    Barrier(Result<()>),
    /// An event of the endpoint: a message, a completion, a failure of the device. [`Ranks::peer`] says whose it is.
    Endpoint(Event),
}

impl Ranks {
    /// Opens an endpoint on each rank. All ranks call it in the same order with exchanges and barriers, each with the device that
    /// it likes: `any` reaches ranks of this host by shared memory. The endpoint gets the job's security where its device has any, and
    /// with more than 16 ranks on this host a cap of 40 MB on its memory, if `options` has not another one than the default.
    ///
    /// # Errors
    /// The endpoint can't be opened. Those of [`Job::exchange`].
    pub fn open(job: &mut Job, device: &Device, options: Options) -> Result<Ranks> {
        let is_memory = device.transport() == TransportKind::Shm;
        let options = if is_memory { options } else { options.security(job.security()?) };
        let options = fitting(options, job.local_size());
        let endpoint = Endpoint::create(device, options)
            .map_err(|error| JobError::endpoint("an endpoint of the job", error))?;
        let mine = Ticket::random()?;
        let entries = job.exchange(&book::entry(&mine, endpoint.uri()))?;
        let mut ranks = Ranks::over(endpoint, job.rank(), &entries, job.hosts())?;
        if ranks.book.is_large() {
            ranks.share_book(job)?;
        }
        Ok(ranks)
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

    /// Over the endpoint of a rank, with everybody's entries.
    fn over(endpoint: Endpoint, rank: u32, entries: &[Vec<u8>], hosts: Arc<[u32]>) -> Result<Ranks> {
        let (book, ticket) = Book::new(entries)?;
        let barrier = Barrier::new(rank, &hosts);
        let connections = HashMap::new();
        Ok(Ranks {
            endpoint,
            rank,
            book,
            ticket,
            connections,
            refused: 0,
            barrier,
            barrier_connections: Vec::new(),
            barrier_waits: false,
            hosts,
            barrier_limit: None,
            behind_barrier: VecDeque::new(),
        })
    }

    /// Starts a barrier, which ends in exactly one [`RankEvent::Barrier`] when all ranks have started theirs. Other events come meanwhile.
    /// Its messages travel over connections of their own with up to eight ranks, which open at the first barrier. A rank that takes no events
    /// for `limit` while another one has something to tell it counts as gone: give more than the longest time that ranks work between
    /// two calls of [`Ranks::next_event`] or [`Ranks::wait`]. Never blocks.
    ///
    /// A rank that closes its endpoint or dies ends this barrier and all later ones, on every rank. Ranks may learn of it in different barriers.
    ///
    /// # Errors
    /// A barrier is under way. A rank is gone, and which. The endpoint can't connect. Nothing was started.
    pub fn barrier(&mut self, limit: Duration) -> Result<()> {
        if self.barrier.is_running() {
            return Err(JobError::Argument("a barrier is under way: wait for its event first".into()));
        }
        if let Some(rank) = self.barrier.gone() {
            return Err(JobError::Gone { rank });
        }
        if self.barrier_connections.len() < self.barrier.neighbour_count() {
            for rank in self.barrier.neighbours().collect::<Vec<_>>() {
                self.connect(Peer::of_barriers(rank), limit)?;
            }
        }
        if self.barrier_limit != Some(limit) {
            self.barrier_limit = Some(limit);
            for (_, connection) in self.barrier_connections.clone() {
                self.wait_for(connection, limit);
            }
        }
        self.barrier.start();
        self.say();
        Ok(())
    }

    /// A rank may work for longer than a send of the program may take. A connection that is unknown now has ended, and an event says so.
    fn wait_for(&mut self, connection: Connection, limit: Duration) {
        let _ = self.endpoint.set_send_timeout(connection, limit);
    }

    /// Sends what the barrier has to say, as far as there are connections and buffers. Returns whether it has sent anything.
    fn say(&mut self) -> bool {
        let Ranks { barrier, barrier_connections, endpoint, .. } = self;
        let send = |rank, said: Said| {
            let Some(&(_, connection)) = barrier_connections.iter().find(|&&(to, _)| to == rank) else {
                return Sent::NotConnected;
            };
            match endpoint.send(connection, said.encode(&mut [0; SAID_BYTES]), 0, SendFlags::SILENT) {
                Err(SendError::WouldBlock) => Sent::Full,
                // A connection that can't send is at its end, and says so by an event.
                Ok(()) | Err(_) => Sent::Done,
            }
        };
        let spoken = barrier.say(send);
        self.barrier_waits = spoken.is_full;
        spoken.has_sent
    }

    /// The end of a barrier. `has_sent`: this rank may have sent something of which nobody has answered yet.
    fn barrier_end(&mut self, has_sent: bool) -> Option<RankEvent> {
        let end = self.barrier.take_end()?;
        // What this rank has said leaves when its endpoint makes progress, and the program may let it make none for long now. A message
        // is the last event that is kept: behind it may be the end of its connection, which would then have no peer any more.
        while has_sent
            && self.behind_barrier.len() < BARRIER_EVENTS_MAX
            && let Some(event) = self.endpoint.next_event()
        {
            let is_message = matches!(event, Event::Recv(_));
            self.behind_barrier.push_back(event);
            if is_message {
                break;
            }
        }
        Some(RankEvent::Barrier(end.map_err(|rank| JobError::Gone { rank })))
    }

    /// The ranks of a job that this process is all of, each with an endpoint of its own: for tests of layers.
    ///
    /// # Errors
    /// The system has no random numbers. A URI is too long.
    #[doc(hidden)]
    pub fn of_one_process(endpoints: Vec<Endpoint>) -> Result<Vec<Ranks>> {
        let ticket = Ticket::random()?;
        let entries: Vec<_> = endpoints.iter().map(|endpoint| book::entry(&ticket, endpoint.uri())).collect();
        let hosts: Arc<[u32]> = vec![0; entries.len()].into();
        (0..)
            .zip(endpoints)
            .map(|(rank, endpoint)| Ranks::over(endpoint, rank, &entries, hosts.clone()))
            .collect()
    }

    /// Gives the endpoint up as it is, for tests of layers.
    #[doc(hidden)]
    pub fn into_endpoint(self) -> Endpoint {
        self.endpoint
    }

    /// The number of this rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// For each rank, the number of its host.
    pub fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.book.size()
    }

    /// Returns the connection if it is open. Else it is asked for, unless it was before, and becomes
    /// [`RankEvent::Connected`], or [`RankEvent::Failed`] after `limit` at the latest. Never blocks. A rank connects to itself, too.
    ///
    /// # Errors
    /// There is no such rank, or the endpoint can't connect: nothing was started.
    pub fn connect(&mut self, peer: Peer, limit: Duration) -> Result<Option<Connection>> {
        match self.connections.get(&peer) {
            Some(State::Open(connection)) => return Ok(Some(*connection)),
            Some(_) => return Ok(None),
            None => {}
        }
        let uri = self.book.uri(peer.rank())?;
        let hello = hello::encode(&self.ticket, self.rank, peer.label());
        self.endpoint
            .connect(&uri, &hello, peer.attribute(), peer.to_context(), Some(limit))
            .map_err(|error| JobError::endpoint(format!("a connection with rank {}", peer.rank()), error))?;
        self.connections.insert(peer, State::Asking { held: None });
        Ok(None)
    }

    /// The connection, if it is open.
    pub fn connection(&self, peer: Peer) -> Option<Connection> {
        match self.connections.get(&peer) {
            Some(State::Open(connection)) => Some(*connection),
            _ => None,
        }
    }

    /// Whose a connection of the endpoint is, until it has ended.
    pub fn peer(&self, connection: Connection) -> Option<Peer> {
        Peer::from_context(self.endpoint.context(connection)?)
    }

    /// The endpoint, for messages and remote memory. Get events from [`Ranks::next_event`] and [`Ranks::wait`] only, and connect by
    /// [`Ranks::connect`]: what the endpoint itself is asked for is lost to the ranks.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Requests that were refused because they came from no rank of this job, or for a connection that is there.
    pub fn requests_refused(&self) -> u64 {
        self.refused
    }

    /// Bytes that this process alone holds to find ranks. None where a rank of this host has the list for all, in memory that nobody can
    /// change any more.
    pub fn book_bytes(&self) -> usize {
        self.book.memory_bytes()
    }

    /// The next event, or none at this moment. Never blocks.
    pub fn next_event(&mut self) -> Option<RankEvent> {
        if self.barrier_waits {
            self.say();
        }
        if let Some(end) = self.barrier_end(true) {
            return Some(end);
        }
        while let Some(event) = self.behind_barrier.pop_front().or_else(|| self.endpoint.next_event()) {
            if let Some(event) = self.on(event) {
                return Some(event);
            }
        }
        None
    }

    /// Waits for the next event for up to `timeout`, or for ever; it sleeps where that takes long. None after `timeout`.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<RankEvent>> {
        if let Some(end) = self.barrier_end(true) {
            return Ok(Some(end));
        }
        while let Some(event) = self.behind_barrier.pop_front() {
            if let Some(event) = self.on(event) {
                return Ok(Some(event));
            }
        }
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let mut left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let retries = self.barrier_waits;
            if retries {
                self.say();
                let retry = Duration::from_millis(BARRIER_RETRY_MS);
                left = Some(left.map_or(retry, |left| left.min(retry)));
            }
            let event =
                self.endpoint.wait(left).map_err(|error| JobError::endpoint("waiting for ranks", error))?;
            match event {
                None if !retries || end.is_some_and(|end| end <= Instant::now()) => return Ok(None),
                None => {}
                Some(event) => {
                    if let Some(event) = self.on(event) {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }

    /// Closes the endpoint with all connections, and delivers what was sent for up to `limit`. Returns whether all of it was.
    pub fn close(self, limit: Duration) -> bool {
        self.endpoint.close(limit)
    }

    fn on(&mut self, event: Event) -> Option<RankEvent> {
        let event = match event {
            Event::Recv(message) => match self.peer(message.connection()).filter(Peer::is_of_barriers) {
                None => return Some(RankEvent::Endpoint(Event::Recv(message))),
                Some(peer) => {
                    let said = Said::decode(&message);
                    drop(message);
                    self.barrier.on_said(peer.rank(), said);
                    let has_sent = self.say();
                    return self.barrier_end(has_sent);
                }
            },
            event => self.on_connections(event)?,
        };
        match event {
            RankEvent::Connected { peer, connection } if peer.is_of_barriers() => {
                self.barrier_connections.push((peer.rank(), connection));
                if let Some(limit) = self.barrier_limit {
                    self.wait_for(connection, limit);
                }
            }
            RankEvent::Failed { peer, .. } | RankEvent::Ended { peer, .. } if peer.is_of_barriers() => {
                self.barrier_connections.retain(|&(rank, _)| rank != peer.rank());
                self.barrier.on_gone(peer.rank());
            }
            event => return Some(event),
        }
        self.say();
        self.barrier_end(true)
    }

    /// What an event says of connections.
    fn on_connections(&mut self, event: Event) -> Option<RankEvent> {
        match event {
            Event::ConnectRequest(request) => self.on_request(request),
            Event::Connect { context, result } => self.on_connect(Peer::from_context(context)?, result),
            Event::Accept { context, result } => self.on_accept(Peer::from_context(context)?, result),
            Event::Disconnected { connection, context, reason } => {
                let peer = Peer::from_context(context)?;
                // Another one than that of the table is the other end of a connection with this rank itself.
                self.connection(peer).filter(|&open| open == connection)?;
                self.connections.remove(&peer);
                Some(RankEvent::Ended { peer, connection, reason })
            }
            event => Some(RankEvent::Endpoint(event)),
        }
    }

    /// If both ranks ask at once, the request of the lower one is accepted. The lower one holds the other's back until its own has
    /// been answered: a refusal could overtake its own request, and look to the other rank like a dead one.
    fn on_request(&mut self, request: ConnectRequest) -> Option<RankEvent> {
        let peer = hello::decode(request.data(), request.attribute(), &self.ticket, self.book.size());
        let admits = |peer: &Peer| !peer.is_of_barriers() || self.barrier.is_neighbour(peer.rank());
        let Some(peer) = peer.filter(admits) else {
            self.refused += 1;
            return None;
        };
        match self.connections.get_mut(&peer) {
            None => self.accept(peer, request, false),
            Some(State::Asking { .. }) if peer.rank() == self.rank => {
                // A refused accept reaches this rank as the end of its attempt.
                let _ = self.endpoint.accept(request, peer.to_context());
                None
            }
            Some(State::Asking { .. }) if peer.rank() < self.rank => self.accept(peer, request, true),
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

    fn accept(&mut self, peer: Peer, request: ConnectRequest, asking: bool) -> Option<RankEvent> {
        match self.endpoint.accept(request, peer.to_context()) {
            Ok(()) => {
                self.connections.insert(peer, State::Accepting { asking });
                None
            }
            // This rank's own attempt goes on, and the peer learns that its own was refused.
            Err(_) if asking => None,
            Err(_) => {
                self.connections.remove(&peer);
                Some(RankEvent::Failed { peer, why: ConnectFailure::Refused })
            }
        }
    }

    fn on_connect(&mut self, peer: Peer, result: Result<Connection, ConnectFailure>) -> Option<RankEvent> {
        match (self.connections.get_mut(&peer), result) {
            (Some(State::Asking { .. }), Ok(connection)) => {
                // Drops the request that was held back, which refuses it.
                self.connections.insert(peer, State::Open(connection));
                Some(RankEvent::Connected { peer, connection })
            }
            (_, Ok(connection)) => {
                self.endpoint.disconnect(connection);
                None
            }
            (Some(State::Asking { held }), Err(why)) => match held.take() {
                Some(request) => self.accept(peer, request, false),
                None => {
                    self.connections.remove(&peer);
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

    fn on_accept(&mut self, peer: Peer, result: Result<Connection, ConnectFailure>) -> Option<RankEvent> {
        match (self.connections.get(&peer), result) {
            (Some(State::Accepting { .. }), Ok(connection)) => {
                self.connections.insert(peer, State::Open(connection));
                Some(RankEvent::Connected { peer, connection })
            }
            (_, Ok(connection)) if peer.rank() != self.rank => {
                self.endpoint.disconnect(connection);
                None
            }
            (Some(State::Accepting { asking: true }), Err(_)) => {
                self.connections.insert(peer, State::Asking { held: None });
                None
            }
            (Some(State::Accepting { asking: false }), Err(why)) => {
                self.connections.remove(&peer);
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
