//! Connections with other ranks, one for each colour, and the records that they carry.

use crate::error::{AcpError, Result};
use crate::limits::{COLORS, NETWORK_COLOR, OUTBOX_RECORDS_MAX, SILENCE_LIMIT, SPACE_PAUSE};
use crate::numbering::Numbering;
use crate::wire::Record;
use cci::{
    Attribute, Connection, Endpoint, Event, Line, Message, SendError, SendFlags, ShortMessage, Status,
};
use cci_job::numbered::Numbered;
use cci_job::{JobError, Peer, RankEvent, Ranks};
use std::collections::VecDeque;
use std::time::Duration;

/// A rank that has not answered by then is considered dead.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// A rank and a colour, which have one connection and one queue of operations. The number after the last colour stands for
/// channels.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lane {
    pub rank: u32,
    pub color: u32,
}

/// An event of the links.
#[derive(Debug)]
pub(crate) enum News {
    /// A rank has sent a record.
    Said(Lane, Record),
    /// A rank has sent a record of channels.
    OfChannels(u32, Message),
    /// A remote operation has ended.
    Ended { context: u64, status: Status },
    /// A connection has ended, or was never made.
    Gone(Lane),
    /// The barrier that this rank has called has ended.
    Barrier(Result<(), JobError>),
}

/// The state of a lane that was used.
#[derive(Default)]
struct Link {
    connection: Option<Connection>,
    /// Why there will be no connection any more.
    gone: Option<String>,
    /// Records that wait for the connection, or for space.
    outbox: VecDeque<Vec<u8>>,
}

/// The ranks of the connections of channels.
#[derive(Default)]
struct Origins {
    /// Ranks of the job, by connection.
    by_connection: Numbered<Connection, u32>,
    /// The connection that brought the last message, and the number of its rank.
    last: Option<(Connection, u32)>,
}

pub(crate) struct Links {
    pub ranks: Ranks,
    /// The numbers of the ranks of the job. Links are kept by ranks of the job, so a reset does not change them.
    numbering: Numbering,
    links: Numbered<Lane, Link>,
    /// The connection that was used last, with the number of its rank, if it is open.
    last: Option<(Lane, Connection)>,
    origins: Origins,
    /// Links with records in their outboxes.
    backlog: Vec<Lane>,
    /// Records that no process of this version sends, or more of them than it would send.
    pub faults: u64,
    /// An event that a wait has taken.
    taken: Option<RankEvent>,
}

impl Links {
    pub fn new(mut ranks: Ranks) -> Links {
        ranks.endpoint().set_default_send_timeout(SILENCE_LIMIT);
        ranks.prefer_network(NETWORK_COLOR as u16);
        Links {
            ranks,
            numbering: Numbering::default(),
            links: Numbered::default(),
            last: None,
            origins: Origins::default(),
            backlog: Vec::new(),
            faults: 0,
            taken: None,
        }
    }

    /// The number of this rank.
    pub fn rank(&self) -> u32 {
        self.numbering.number(self.ranks.rank())
    }

    /// The number of a rank of the job.
    pub fn number(&self, job_rank: u32) -> u32 {
        self.numbering.number(job_rank)
    }

    /// The lane with the rank of the job in place of its number.
    fn of_job(&self, lane: Lane) -> Lane {
        Lane { rank: self.numbering.job_rank(lane.rank), ..lane }
    }

    /// The lane with the rank's number in place of the rank of the job.
    fn numbered(&self, lane: Lane) -> Lane {
        Lane { rank: self.numbering.number(lane.rank), ..lane }
    }

    pub fn endpoint(&mut self) -> &mut Endpoint {
        self.ranks.endpoint()
    }

    /// Gives ranks other numbers.
    pub fn renumber(&mut self, numbering: Numbering) {
        self.numbering = numbering;
        (self.last, self.origins.last) = (None, None);
    }

    /// The connection, if there is one. Otherwise it is opened.
    #[inline]
    pub fn connection(&mut self, lane: Lane) -> Result<Option<Connection>> {
        match self.last {
            Some((last, connection)) if last == lane => Ok(Some(connection)),
            _ => {
                let found = self.look_up(lane)?;
                self.last = found.map(|connection| (lane, connection)).or(self.last);
                Ok(found)
            }
        }
    }

    fn look_up(&mut self, lane: Lane) -> Result<Option<Connection>> {
        let rank = lane.rank;
        let lane = self.of_job(lane);
        if let Some(Link { connection, gone, .. }) = self.links.get(&lane) {
            return match gone {
                Some(why) => Err(AcpError::Gone { rank, why: why.clone() }),
                None => Ok(*connection),
            };
        }
        let connection = match peer(lane) {
            Some(peer) => self.ranks.connect(peer, CONNECT_LIMIT)?,
            None => None,
        };
        self.links.insert(lane, Link { connection, ..Link::default() });
        Ok(connection)
    }

    /// Sends a record to a rank, now or when there is space. Records for a rank that is gone are dropped: [`News::Gone`] reports
    /// its end.
    pub fn say(&mut self, lane: Lane, record: &Record) {
        let job_lane = self.of_job(lane);
        if self.links.get(&job_lane).is_some_and(|link| link.outbox.len() >= OUTBOX_RECORDS_MAX) {
            self.faults += 1;
            return;
        }
        self.say_bytes(lane, &record.encode());
    }

    /// Sends a record of channels, as [`Links::say`] does. The number of channels bounds the number of such records.
    pub fn say_bytes(&mut self, lane: Lane, record: &[u8]) {
        let Ok(connection) = self.connection(lane) else { return };
        let lane = self.of_job(lane);
        let Some(link) = self.links.get_mut(&lane) else { return };
        if link.outbox.is_empty() {
            if let Some(connection) = connection
                && send(self.ranks.endpoint(), connection, record)
            {
                return;
            }
            self.backlog.push(lane);
        }
        link.outbox.push_back(record.to_vec());
    }

    /// Whether no record waits to be sent.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Sends waiting records, as far as there is space.
    pub fn send(&mut self) {
        let Links { ranks, links, backlog, .. } = self;
        backlog.retain(|lane| {
            let Some(link) = links.get_mut(lane) else { return false };
            let Some(connection) = link.connection else { return link.gone.is_none() };
            while let Some(record) = link.outbox.front() {
                if !send(ranks.endpoint(), connection, record) {
                    return true;
                }
                link.outbox.pop_front();
            }
            false
        });
    }

    /// Makes progress, and returns its next event. `None` if there is none now, or `events_left` is 0. Each event that is taken
    /// lowers `events_left` by one. Never blocks.
    pub fn next(&mut self, events_left: &mut usize) -> Option<News> {
        while *events_left > 0 {
            *events_left -= 1;
            let event = self.taken.take().or_else(|| self.ranks.next_event())?;
            if let Some(news) = self.on(event) {
                return Some(news);
            }
        }
        None
    }

    /// Makes progress, and passes up to `max` messages of channels to `take`, each with the number of its rank, while `take`
    /// returns true. Returns how many were taken, and whether [`Links::next`] has more.
    #[inline]
    pub fn poll_messages(&mut self, max: usize, mut take: impl FnMut(u32, &[u8]) -> bool) -> (usize, bool) {
        if self.taken.is_some() {
            return (0, true);
        }
        let Links { ranks, numbering, origins, .. } = self;
        ranks.poll_messages(max, |connection, message| {
            origins.rank(connection, numbering).is_some_and(|rank| take(rank, message))
        })
    }

    /// Copies the next message to `line`, if it is a short one and nothing else is to be done now. This takes less time than
    /// [`Links::poll_messages`].
    #[inline]
    pub fn take_short(&mut self, line: &mut Line) -> ShortMessage {
        if self.taken.is_some() { ShortMessage::Other } else { self.ranks.take_short(line) }
    }

    /// The number of the rank that a connection of channels is with.
    #[inline]
    pub fn rank_of_channels(&mut self, connection: Connection) -> Option<u32> {
        self.origins.rank(connection, &self.numbering)
    }

    /// The lane of a message that [`Links::take_short`] has taken. `None` if the message is not for the owner of the links.
    pub fn lane_of(&mut self, connection: Connection, message: &[u8]) -> Option<Lane> {
        if self.ranks.take_said(connection, message) {
            return None;
        }
        let lane = self.ranks.peer(connection).and_then(|peer| self.lane(peer));
        self.faults += u64::from(lane.is_none());
        Some(self.numbered(lane?))
    }

    /// Sleeps until something comes. Sleeps only for a moment if something waits for space.
    pub fn wait(&mut self, for_space: bool) -> Result<()> {
        let pause = (for_space || !self.backlog.is_empty()).then_some(SPACE_PAUSE);
        self.taken = self.ranks.wait(pause)?;
        Ok(())
    }

    /// Prepares for the sleep of a thread that does not have the links. Returns whether it may sleep until something comes, or
    /// only for a moment because something waits for space. `None` if there may be more to do.
    pub fn prepare_sleep(&mut self) -> Option<bool> {
        if self.taken.is_some() || !self.ranks.arm() { None } else { Some(self.backlog.is_empty()) }
    }

    /// Sleeps until something comes, or for this time.
    pub fn wait_for(&mut self, pause: Duration) -> Result<()> {
        self.taken = self.ranks.wait(Some(pause))?;
        Ok(())
    }

    /// Whether a connection with a rank has ended, or was never made. If there is none, one is opened, so the answer comes later.
    pub fn has_lost(&mut self, rank: u32) -> bool {
        rank != self.rank()
            && (0..COLORS).any(|color| {
                let lane = Lane { rank, color };
                let is_known = color == 0 || self.links.contains_key(&self.of_job(lane));
                is_known && self.connection(lane).is_err()
            })
    }

    fn on(&mut self, event: RankEvent) -> Option<News> {
        match event {
            RankEvent::Connected { peer, connection } => {
                let lane = self.lane(peer)?;
                if lane.color == COLORS {
                    self.origins.by_connection.insert(connection, lane.rank);
                }
                self.links.entry(lane).or_default().connection = Some(connection);
                self.last = None;
                None
            }
            RankEvent::Failed { peer, why } => self.lose(peer, why.to_string()),
            RankEvent::Ended { peer, reason, .. } => self.lose(peer, reason.to_string()),
            RankEvent::Barrier(end) => Some(News::Barrier(end)),
            RankEvent::Endpoint(Event::Send { context, status, .. }) => Some(News::Ended { context, status }),
            RankEvent::Endpoint(Event::Recv(message)) => {
                let said = || {
                    let lane = self.numbered(self.lane(self.ranks.peer(message.connection())?)?);
                    match lane.color {
                        COLORS => Some(News::OfChannels(lane.rank, message)),
                        _ => Some(News::Said(lane, Record::decode(&message)?)),
                    }
                };
                let said = said();
                self.faults += u64::from(said.is_none());
                said
            }
            _ => None,
        }
    }

    fn lose(&mut self, peer: Peer, why: String) -> Option<News> {
        let lane = self.lane(peer)?;
        (self.last, self.origins.last) = (None, None);
        let link = self.links.entry(lane).or_default();
        if let Some(connection) = link.connection {
            self.origins.by_connection.remove(&connection);
        }
        *link = Link { gone: Some(why), ..Link::default() };
        Some(News::Gone(self.numbered(lane)))
    }

    /// The lane of a connection, by the rank of the job. `None` if no process of this version makes such a connection.
    fn lane(&self, peer: Peer) -> Option<Lane> {
        let is_lane = peer.attribute() == Attribute::ReliableOrdered && u32::from(peer.label()) <= COLORS;
        is_lane.then_some(Lane { rank: peer.rank(), color: peer.label().into() })
    }
}

impl Origins {
    /// The number of the rank that a connection of channels is with.
    #[inline]
    fn rank(&mut self, connection: Connection, numbering: &Numbering) -> Option<u32> {
        match self.last {
            Some((last, rank)) if last == connection => Some(rank),
            _ => self.find(connection, numbering),
        }
    }

    #[inline(never)]
    fn find(&mut self, connection: Connection, numbering: &Numbering) -> Option<u32> {
        let rank = numbering.number(*self.by_connection.get(&connection)?);
        self.last = Some((connection, rank));
        Some(rank)
    }
}

/// Sends a record. Returns false if there is no space for it now. If a connection can't send any more, an event reports its end.
fn send(endpoint: &mut Endpoint, connection: Connection, record: &[u8]) -> bool {
    !matches!(endpoint.send(connection, record, 0, SendFlags::SILENT), Err(SendError::WouldBlock))
}

fn peer(lane: Lane) -> Option<Peer> {
    Peer::new(lane.rank, lane.color as u16, Attribute::ReliableOrdered)
}
