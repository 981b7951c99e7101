//! Connections by rank: an endpoint of the job that connects to ranks on first use.

mod barrier;
mod book;
mod connections;
mod event;
mod hello;
mod peer;
#[cfg(test)]
mod tests;
mod watch;

#[doc(hidden)]
pub use connections::Connections;
pub use event::RankEvent;
pub use peer::Peer;

use crate::ended::Ended;
use crate::error::{JobError, Result};
use crate::job::Job;
use crate::limits::{BARRIER_EVENTS_MAX, BARRIER_RETRY_MS};
use barrier::{Barrier, SAID_BYTES, Said, Sent};
use cci::{Connection, Device, Endpoint, Event, Line, Options, SendError, SendFlags, ShortMessage};
use hello::Ticket;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use watch::Watch;

/// An endpoint that all ranks of a job have, and its connections by rank. A connection opens when one of its two ranks first
/// asks for it, and both get [`RankEvent::Connected`]. If both ask at once, they get one connection. Ranks of this job are
/// admitted without asking the program, and nobody else is.
///
/// ```no_run
/// # use cci_job::{Job, JobError, Peer, RankEvent, Ranks};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut job = Job::join()?;
/// let context = cci::Context::new()?;
/// let device = context.device("any").ok_or("no device any")?;
/// let mut ranks = Ranks::open(&mut job, device, cci::Options::default())?;
/// let timeout = std::time::Duration::from_secs(30);
/// if job.rank() == 0 {
///     ranks.connect(Peer::of(job.size() - 1), timeout)?;
/// }
/// while let Some(event) = ranks.wait(Some(timeout))? {
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
    connections: Connections,
    barrier: Barrier,
    /// The open connections of barriers, of which there are nine at most: every message of a barrier looks for one.
    barrier_connections: Vec<(u32, Connection)>,
    /// For each rank, the number of its host.
    hosts: Arc<[u32]>,
    /// There was no send buffer for a message of the barrier.
    barrier_waits: bool,
    /// How long a rank may take no message of a barrier, if this rank has called one.
    barrier_timeout: Option<Duration>,
    /// Events that come before those of the endpoint: they came while the last messages of a barrier were sent, or a handler has not taken them.
    kept: VecDeque<Event>,
    /// None where no launcher shows which ranks have ended.
    watch: Option<Watch>,
}

impl Ranks {
    /// Opens an endpoint on each rank. All ranks call it in the same order with exchanges and barriers, each with the device of its
    /// choice: `any` reaches ranks of this host by shared memory. The endpoint gets the job's security if its device can have
    /// security. With more than 16 ranks on this host its memory has a cap of 40 MB, unless `options` has another one than the
    /// default.
    ///
    /// # Errors
    /// The endpoint can't be opened. Those of [`Job::exchange`].
    pub fn open(job: &mut Job, device: &Device, options: Options) -> Result<Ranks> {
        let options = Connections::options(job, device, options)?;
        let endpoint = Endpoint::create(device, options)
            .map_err(|error| JobError::endpoint("an endpoint of the job", error))?;
        let connections = Connections::exchange(job, &endpoint)?;
        Ok(Ranks::over(endpoint, connections, job.hosts(), job.ended()))
    }

    fn over(
        endpoint: Endpoint,
        connections: Connections,
        hosts: Arc<[u32]>,
        ended: Option<Arc<Ended>>,
    ) -> Ranks {
        let barrier = Barrier::new(connections.rank(), &hosts);
        Ranks {
            endpoint,
            connections,
            barrier,
            barrier_connections: Vec::new(),
            barrier_waits: false,
            hosts,
            barrier_timeout: None,
            kept: VecDeque::new(),
            watch: ended.map(Watch::new),
        }
    }

    /// Starts a barrier, which ends in exactly one [`RankEvent::Barrier`] when all ranks have started theirs. Other events come meanwhile.
    /// Its messages travel over connections of their own with up to eight ranks, which open at the first barrier. A rank that takes no events
    /// for `timeout` while another one has sent it something counts as gone: give more than the longest time that ranks work between two calls
    /// of [`Ranks::next_event`] or [`Ranks::wait`]. Never blocks.
    ///
    /// A rank that closes its endpoint or dies ends this barrier and all later ones, on every rank. Ranks may learn of it in different barriers.
    ///
    /// # Errors
    /// A barrier is in progress. A rank is gone, which the error names. The endpoint can't connect. Nothing was
    /// started.
    pub fn barrier(&mut self, timeout: Duration) -> Result<()> {
        if self.barrier.is_running() {
            return Err(JobError::Argument("a barrier is under way: wait for its event first".into()));
        }
        if let Some(rank) = self.barrier.gone() {
            return Err(JobError::Gone { rank });
        }
        if self.barrier_connections.len() < self.barrier.neighbour_count() {
            for rank in self.barrier.neighbours().collect::<Vec<_>>() {
                self.connect(Peer::of_barriers(rank), timeout)?;
            }
        }
        if self.barrier_timeout != Some(timeout) {
            self.barrier_timeout = Some(timeout);
            for (_, connection) in self.barrier_connections.clone() {
                self.wait_for(connection, timeout);
            }
        }
        self.barrier.start();
        self.say();
        Ok(())
    }

    /// A rank may work for longer than a send of the program may take. A connection that is unknown now has ended, and an event says so.
    fn wait_for(&mut self, connection: Connection, timeout: Duration) {
        let _ = self.endpoint.set_send_timeout(connection, timeout);
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
            && self.kept.len() < BARRIER_EVENTS_MAX
            && let Some(event) = self.endpoint.next_event()
        {
            let is_message = matches!(event, Event::Recv(_));
            self.kept.push_back(event);
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
            .map(|(rank, endpoint)| {
                Ok(Ranks::over(endpoint, Connections::over(rank, &entries)?, hosts.clone(), None))
            })
            .collect()
    }

    /// Rank 0 of a job whose other ranks are made up, and have URIs as long as its own: for tests of what a rank of a large job takes.
    ///
    /// # Errors
    /// The system has no random numbers. All URIs together are too long.
    #[doc(hidden)]
    pub fn of_many(endpoint: Endpoint, size: u32) -> Result<Ranks> {
        let entry = book::entry(&Ticket::random()?, endpoint.uri());
        let connections = Connections::over(0, &vec![entry; size as usize])?;
        Ok(Ranks::over(endpoint, connections, (0..size).collect(), None))
    }

    /// Gives the endpoint up as it is, for tests of layers.
    #[doc(hidden)]
    pub fn into_endpoint(self) -> Endpoint {
        self.endpoint
    }

    /// The number of this rank.
    pub fn rank(&self) -> u32 {
        self.connections.rank()
    }

    /// For each rank, the number of its host.
    pub fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.connections.size()
    }

    /// Has connections with this label go over a network, even with ranks of this host, if endpoints are reached by several paths, as on the device
    /// `any`. All ranks must call it for the same labels, before they connect.
    pub fn prefer_network(&mut self, label: u16) {
        self.connections.prefer_network(label);
    }

    /// Returns the connection if it is open. Otherwise asks for it, unless that was done before, which ends in
    /// [`RankEvent::Connected`], or [`RankEvent::Failed`] after `timeout` at the latest. Never blocks. A rank may connect to itself.
    ///
    /// # Errors
    /// There is no such rank, or the endpoint can't connect: nothing was started.
    pub fn connect(&mut self, peer: Peer, timeout: Duration) -> Result<Option<Connection>> {
        if let Some(watch) = &mut self.watch
            && watch.has_ended(peer.rank())
            && self.connections.get(peer).is_none()
        {
            watch.refuse(peer);
            return Ok(None);
        }
        self.connections.connect(&mut self.endpoint, peer, Some(timeout))
    }

    /// The connection, if it is open.
    pub fn connection(&self, peer: Peer) -> Option<Connection> {
        self.connections.get(peer)
    }

    /// Whose a connection of the endpoint is, until it has ended.
    pub fn peer(&self, connection: Connection) -> Option<Peer> {
        Peer::from_context(self.endpoint.context(connection)?)
    }

    /// The endpoint, for messages and remote memory. Get events from [`Ranks::next_event`] and [`Ranks::wait`] only, and connect by
    /// [`Ranks::connect`]: events that are taken from the endpoint itself are lost to `Ranks`.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// Requests that were refused because they came from no rank of this job, or for a connection that is there.
    pub fn requests_refused(&self) -> u64 {
        self.connections.requests_refused()
    }

    /// Bytes that this process alone holds to find ranks: 0 if a rank of this host has the list for all, in memory that nobody can
    /// change any more.
    pub fn book_bytes(&self) -> usize {
        self.connections.book_bytes()
    }

    /// The next event, or none at this moment. Never blocks.
    pub fn next_event(&mut self) -> Option<RankEvent> {
        if self.barrier_waits {
            self.say();
        }
        if let Some(end) = self.barrier_end(true) {
            return Some(end);
        }
        if self.watches()
            && let Some(event) = self.next_of_watch()
        {
            return Some(event);
        }
        while let Some(event) = self.kept.pop_front().or_else(|| self.endpoint.next_event()) {
            if let Some(event) = self.on(event) {
                return Some(event);
            }
        }
        self.end_what_is_over()
    }

    /// Looks now and then whether ranks have ended. Returns whether [`Ranks::next_event`] has such an event: layers that get messages from the
    /// endpoint call this with each poll.
    #[doc(hidden)]
    #[inline]
    pub fn watches(&mut self) -> bool {
        let Ranks { watch: Some(watch), connections, endpoint, .. } = self else { return false };
        if watch.counts() {
            watch.look(connections, endpoint);
        }
        watch.has_news()
    }

    /// How long a sleep may last: nothing wakes a rank because another one has ended, so that it has to look. None: until something comes.
    /// Looks now, and returns 0 if [`Ranks::next_event`] has such an event.
    pub fn sleep_max(&mut self) -> Option<Duration> {
        let Ranks { watch: Some(watch), connections, endpoint, .. } = self else { return None };
        let left = watch.look(connections, endpoint);
        if watch.has_news() { Some(Duration::ZERO) } else { left }
    }

    #[cold]
    fn next_of_watch(&mut self) -> Option<RankEvent> {
        while let Some(event) = self.watch.as_mut()?.next_event() {
            if let Some(event) = self.on_rank_event(event) {
                return Some(event);
            }
        }
        None
    }

    /// The endpoint has no event at this moment, so that connections with ranks that have ended can go.
    fn end_what_is_over(&mut self) -> Option<RankEvent> {
        let Ranks { watch: Some(watch), connections, endpoint, .. } = self else { return None };
        if !watch.has_news() {
            return None;
        }
        watch.end(connections, endpoint);
        self.next_of_watch()
    }

    /// Makes progress and gives messages that have come to `handler`, each with its connection, as long as it takes them by returning true: up to `max`, and
    /// up to the next other event. A message that it does not take comes from [`Ranks::next_event`], and so does everything behind it. Returns how many it
    /// has taken, and whether events wait, or messages that it has not taken.
    #[doc(hidden)]
    #[inline]
    pub fn poll_messages(
        &mut self,
        max: usize,
        mut handler: impl FnMut(Connection, &[u8]) -> bool,
    ) -> (usize, bool) {
        if self.has_more_than_messages() {
            return (0, true);
        }
        let Ranks { endpoint, kept, .. } = self;
        let (messages, has_events) = endpoint.poll_messages(max, |message| {
            if !kept.is_empty() || !handler(message.connection(), &message) {
                kept.push_back(Event::Recv(message.keep()));
            }
        });
        (messages - kept.len(), has_events || !kept.is_empty())
    }

    /// Whether [`Ranks::next_event`] has something to do that comes before messages.
    #[inline]
    fn has_more_than_messages(&mut self) -> bool {
        self.barrier_waits || !self.kept.is_empty() || self.barrier.has_end() || self.watches()
    }

    /// Copies the next message to `line`, if it is a short one and all that there is to do now: see [`Endpoint::take_short`]. One that the caller does
    /// not know is for [`Ranks::take_said`].
    #[doc(hidden)]
    #[inline]
    pub fn take_short(&mut self, line: &mut Line) -> ShortMessage {
        if !self.endpoint.takes_short() || self.has_more_than_messages() {
            return ShortMessage::Other;
        }
        self.endpoint.take_short(line)
    }

    /// Takes a message that came short, if it is one of barriers: what comes of it is an event. Returns whether it is.
    #[doc(hidden)]
    pub fn take_said(&mut self, connection: Connection, message: &[u8]) -> bool {
        let Some(peer) = self.peer(connection).filter(Peer::is_of_barriers) else { return false };
        self.barrier.on_said(peer.rank(), Said::decode(message));
        self.say();
        true
    }

    /// Waits for the next event for up to `timeout`, or for ever; it spins for a while, and then sleeps. None after
    /// `timeout`.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<RankEvent>> {
        // What is there needs no clock.
        if let Some(event) = self.next_event() {
            return Ok(Some(event));
        }
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut left = timeout;
        loop {
            let retries = self.barrier_waits;
            if retries {
                self.say();
                let retry = Duration::from_millis(BARRIER_RETRY_MS);
                left = Some(left.map_or(retry, |left| left.min(retry)));
            }
            let sleep_max = self.sleep_max();
            left = left.into_iter().chain(sleep_max).min();
            let event =
                self.endpoint.wait(left).map_err(|error| JobError::endpoint("waiting for ranks", error))?;
            let is_none = event.is_none();
            let event = match event {
                None => self.end_what_is_over(),
                Some(event) => self.on(event),
            };
            if event.is_some() {
                return Ok(event);
            }
            let has_more_time = retries || sleep_max.is_some();
            if is_none && (!has_more_time || end.is_some_and(|end| end <= Instant::now())) {
                return Ok(None);
            }
            left = end.map(|end| end.saturating_duration_since(Instant::now()));
        }
    }

    /// Prepares for a sleep on the endpoint's [`cci::Sleeper`]. Returns false if [`Ranks::next_event`] may have something now, so that nobody
    /// must sleep. If the job survives deaths, do not sleep for longer than [`Ranks::sleep_max`].
    pub fn arm(&mut self) -> bool {
        if self.sleep_max() == Some(Duration::ZERO) {
            return false;
        }
        self.kept.is_empty() && !self.barrier_waits && !self.endpoint.arm()
    }

    /// Closes the endpoint with all connections, and delivers what was sent for up to `timeout`. Returns whether all of it was.
    pub fn close(self, timeout: Duration) -> bool {
        self.endpoint.close(timeout)
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
            event => {
                let Ranks { endpoint, connections, barrier, watch, .. } = self;
                let has_ended = |rank| watch.as_ref().is_some_and(|watch| watch.has_ended(rank));
                let admits = |peer: &Peer| {
                    let is_spoken_to = !peer.is_of_barriers() || barrier.is_neighbour(peer.rank());
                    is_spoken_to && !has_ended(peer.rank())
                };
                connections.on(endpoint, event, admits)?
            }
        };
        self.on_rank_event(event)
    }

    fn on_rank_event(&mut self, event: RankEvent) -> Option<RankEvent> {
        match event {
            RankEvent::Connected { peer, connection } if peer.is_of_barriers() => {
                self.barrier_connections.push((peer.rank(), connection));
                if let Some(timeout) = self.barrier_timeout {
                    self.wait_for(connection, timeout);
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
}
