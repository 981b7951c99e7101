//! Records between this process and all others: what is sent, what has come, and from which rank.

use super::barrier::Arrival;
use super::contexts::Context;
use super::framing::{Arrived, cut};
use super::inbox::Inbox;
use super::link::{Link, Nonsense, Reach};
use super::news::News;
use super::sending::{send_record, send_short};
use super::table::Table;
use crate::error::{AmError, Result};
use crate::limits::{
    self, COLLECTIVE_BYTES_MAX, HEADER_BYTES, OUTBOX_RECORDS_MAX, POLL_EVENTS, POLL_MESSAGES, SILENCE_LIMIT,
    UPDATES_MAX,
};
use crate::wire::{Collected, ContextName, Head, Header, Kind, Word, gathered_head};
use cci::{Connection, Endpoint, Event, Line, SendError, SendFlags, ShortMessage, TransportKind};
use cci_job::{Peer, RankEvent, Ranks};
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// A rank that has not answered by then is considered dead.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// Time between two attempts to send records that wait for space.
const SPACE_PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Links {
    ranks: Ranks,
    links: Table,
    /// Ranks by their connections, and the one that was looked up last.
    by_connection: HashMap<Connection, u32>,
    last: Option<(Connection, u32)>,
    /// Records that have come and were not examined yet.
    arrived: Arrived,
    /// Ranks with records in their outboxes.
    backlog: Vec<u32>,
    /// Ranks that may have to get credits back.
    owing: Vec<u32>,
    /// The number of credits with each rank, and how many of them are reserved for handlers.
    credits: u32,
    for_handlers: u32,
    /// How many messages were started in total.
    started: u64,
    news: VecDeque<News>,
}

/// The origin of a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Starter {
    /// The program, which waits if necessary.
    Program,
    /// A handler, which can't wait. A part of the credits is reserved for handlers.
    Handler,
}

impl Links {
    pub fn new(mut ranks: Ranks) -> Links {
        ranks.endpoint().set_default_send_timeout(SILENCE_LIMIT);
        let credits = limits::credits(ranks.size());
        let mut links = Table::new(ranks.size(), credits);
        links.link(ranks.rank()).reach = Reach::Own;
        Links {
            ranks,
            links,
            by_connection: HashMap::new(),
            last: None,
            arrived: Arrived::default(),
            backlog: Vec::new(),
            owing: Vec::new(),
            credits,
            for_handlers: limits::for_handlers(credits),
            started: 0,
            news: VecDeque::new(),
        }
    }

    pub fn rank(&self) -> u32 {
        self.ranks.rank()
    }

    pub fn size(&self) -> u32 {
        self.ranks.size()
    }

    /// The state of a rank, created at its first use.
    #[inline]
    pub fn link(&mut self, rank: u32) -> &mut Link {
        self.links.link(rank)
    }

    /// The state of a rank that was used before.
    #[inline(always)]
    pub fn known(&mut self, rank: u32) -> Option<&mut Link> {
        self.links.known(rank)
    }

    /// The number of credits with each rank, and how many of them are reserved for handlers.
    pub fn credits(&self) -> (u32, u32) {
        (self.credits, self.for_handlers)
    }

    /// The number of credits with each rank.
    #[inline]
    pub fn credits_of_each(&self) -> u32 {
        self.credits
    }

    /// Starts a short message without arguments, as [`Links::start`] does, if everything is ready. The rank need not exist.
    /// Returns false if nothing was done.
    #[inline(always)]
    pub fn start_at_once(
        &mut self,
        starter: Starter,
        rank: u32,
        context: Context,
        handler: u16,
        data: &[u8],
    ) -> bool {
        let kept_back = if starter == Starter::Program { self.for_handlers } else { 0 };
        let Some(link) = self.links.known(rank) else { return false };
        let Reach::Open(connection) = link.reach else { return false };
        if link.credits <= kept_back || !link.is_ready(context) {
            return false;
        }
        let credits = link.owed_now();
        let header = Header::message(false, context.number(), handler, 0, data.len());
        let Some(sent) = send_short(self.ranks.endpoint(), connection, Header { credits, ..header }, data)
        else {
            return false;
        };
        link.credits -= 1;
        link.owed -= u32::from(credits);
        self.started += 1;
        if sent.is_err() {
            self.keep_short(rank, context, handler, credits, data);
        }
        true
    }

    #[cold]
    fn keep_short(&mut self, rank: u32, context: Context, handler: u16, credits: u16, data: &[u8]) {
        let header = Header::message(false, context.number(), handler, 0, data.len());
        self.keep(rank, &Header { credits, ..header }.encode(), data);
    }

    /// Starts a message to a rank: takes a credit for it and sends it, or lets it wait. There is enough space for all messages
    /// with a credit. Before the first message of a context, the rank is informed about the context.
    #[expect(clippy::too_many_arguments, reason = "a message, and who starts it")]
    pub fn start(
        &mut self,
        starter: Starter,
        rank: u32,
        context: Context,
        name: &ContextName,
        header: Header,
        args: &[i64],
        data: &[u8],
    ) -> Result<()> {
        let kept_back = if starter == Starter::Program { self.for_handlers } else { 0 };
        let link = self.link(rank);
        if let Reach::Gone(why) = &link.reach {
            return Err(AmError::Gone { rank, why: why.clone() });
        }
        if link.credits <= kept_back {
            return Err(AmError::WouldBlock);
        }
        link.credits -= 1;
        self.started += 1;
        self.send(rank, context, name, header, args, data);
        Ok(())
    }

    /// Notes that a message has come from a rank, complete.
    #[inline]
    pub fn arrive(&mut self, rank: u32, is_own: bool) -> Result<(), Nonsense> {
        let all = self.credits;
        let link = self.link(rank);
        // The messages that a process sends to itself are bounded by its credits alone.
        if link.reach == Reach::Own { Ok(()) } else { link.arrive(is_own, all) }
    }

    /// Returns a credit, to this process or to the rank.
    #[inline(always)]
    pub fn end_chain(&mut self, rank: u32, is_own: bool) {
        let all = self.credits;
        let link = self.link(rank);
        link.depart(is_own);
        if is_own || link.reach == Reach::Own {
            link.regain(1, all);
        } else {
            link.owed += 1;
            if link.must_return(all) {
                self.owing.push(rank);
            }
        }
    }

    /// Sends a message that has a credit.
    pub fn send(
        &mut self,
        rank: u32,
        context: Context,
        name: &ContextName,
        mut header: Header,
        args: &[i64],
        data: &[u8],
    ) {
        if !self.links.link(rank).introduce(context) {
            self.introduce(rank, context, name);
        }
        header.credits = self.links.link(rank).take_owed();
        if args.is_empty() {
            self.post(rank, &header.encode(), data);
        } else {
            self.post(rank, Head::new(&header, args).bytes(), data);
        }
    }

    /// Informs a rank about the context of a number.
    #[cold]
    fn introduce(&mut self, rank: u32, context: Context, name: &ContextName) {
        let body = name.encode();
        let value = body.len() as u32;
        let known = Header { context: context.number(), value, ..Header::new(Kind::Context) };
        self.post(rank, &known.encode(), &body);
    }

    /// Sends a rank a record that does not wait for others.
    pub fn say(&mut self, rank: u32, word: &Word) {
        self.post(rank, &word.encode(), &[]);
    }

    //= wire.md R-AM-13
    /// Whether a rank may be asked to change memory of its once more. If so, it is.
    pub fn take_update(&mut self, rank: u32) -> bool {
        let asked = &mut self.link(rank).updates_asked;
        let is_free = *asked < UPDATES_MAX;
        *asked += u32::from(is_free);
        is_free
    }

    /// Notes that the rank has made a change.
    pub fn return_update(&mut self, rank: u32) {
        let asked = &mut self.link(rank).updates_asked;
        *asked = asked.saturating_sub(1);
    }

    /// Sends a rank a record that does not wait for others, with data that are not copied behind its head first.
    pub fn say_with(&mut self, rank: u32, head: &[u8], data: &[u8]) {
        self.post(rank, head, data);
    }

    //= wire.md R-AM-13
    /// Sends a rank the data that it has asked for by this number. Returns false if more data than it may have asked for wait for it.
    pub fn say_gathered(&mut self, rank: u32, id: u64, data: &[u8]) -> bool {
        let is_data = |record: &[u8]| record.first() == Some(&(Kind::Gathered as u8));
        let waiting = self.link(rank).outbox.iter().filter(|record| is_data(record)).count();
        let may = waiting < UPDATES_MAX as usize;
        if may {
            self.post(rank, &gathered_head(id, data.len()), data);
        }
        may
    }

    /// Sends a rank a record of a collective without data.
    pub fn say_collected(&mut self, rank: u32, collected: &Collected) {
        self.post(rank, &collected.encode_head(), &[]);
    }

    //= wire.md R-AM-12
    /// Sends a rank a part of a collective. Returns false if the rank must first take what was sent before.
    pub fn say_collected_data(&mut self, rank: u32, head: &[u8], data: &[u8]) -> bool {
        let most = self.collective_records_max();
        let link = self.link(rank);
        if link.collective_sent >= most || !link.outbox.is_empty() {
            return false;
        }
        link.collective_sent += 1;
        self.post(rank, head, data);
        true
    }

    /// How many parts of collectives a rank may have that it has not taken.
    pub fn collective_records_max(&self) -> u32 {
        self.credits
    }

    /// How much of a collective fits in one record to a rank. `None` if there is no connection yet (it is being opened), or no
    /// longer.
    pub fn collective_bytes_max(&mut self, rank: u32) -> Option<usize> {
        let connection = self.connection(rank).ok()??;
        let max = self.endpoint().max_send_size(connection)? as usize;
        Some(max.saturating_sub(2 * HEADER_BYTES).min(COLLECTIVE_BYTES_MAX) / 8 * 8).filter(|&max| max > 0)
    }

    /// Notes that a part of a collective of a rank was taken.
    pub fn collected_one(&mut self, rank: u32) {
        let most = self.collective_records_max();
        let link = self.link(rank);
        link.collective_taken += 1;
        if link.collective_taken >= most / 2 {
            let value = std::mem::take(&mut link.collective_taken);
            self.post(rank, &Header { value, ..Header::new(Kind::CollectivesTaken) }.encode(), &[]);
        }
    }

    /// The first of these ranks that is gone, and the reason.
    pub fn first_gone(&self, ranks: &[u32]) -> Option<(u32, String)> {
        self.links.iter().find_map(|(rank, link)| match &link.reach {
            Reach::Gone(why) if ranks.contains(&rank) => Some((rank, why.clone())),
            _ => None,
        })
    }

    /// The connection with a rank, if there is one. Otherwise it is opened.
    pub fn connection(&mut self, rank: u32) -> Result<Option<Connection>> {
        match &self.link(rank).reach {
            Reach::Open(connection) => Ok(Some(*connection)),
            Reach::Gone(why) => Err(AmError::Gone { rank, why: why.clone() }),
            Reach::Unused => {
                self.open_connection(rank);
                Ok(None)
            }
            Reach::Connecting | Reach::Own => Ok(None),
        }
    }

    fn open_connection(&mut self, rank: u32) {
        self.link(rank).reach = Reach::Connecting;
        if let Err(error) = self.ranks.connect(Peer::of(rank), CONNECT_LIMIT) {
            self.lose(rank, error.to_string());
        }
    }

    /// The endpoint, for memory and remote operations.
    pub fn endpoint(&mut self) -> &mut Endpoint {
        self.ranks.endpoint()
    }

    /// Whether an open connection with a rank goes through shared memory, so that memory of the rank can be mapped.
    pub fn is_mapped(&mut self, rank: u32) -> bool {
        let Ok(Some(connection)) = self.connection(rank) else { return false };
        self.endpoint().explain(connection).is_some_and(|path| path.kind == Some(TransportKind::Shm))
    }

    /// Informs a rank that this one has arrived.
    pub fn report_arrival(&mut self, arrival: Arrival) {
        let header = Header {
            flag: arrival.is_busy,
            count: arrival.round,
            value: arrival.number,
            ..Header::new(Kind::Barrier)
        };
        self.post(arrival.to, &header.encode(), &[]);
    }

    /// Asks all ranks to give credits back as soon as they can.
    pub fn want_credits(&mut self) {
        let all = self.credits;
        let wanting = |(rank, link): (u32, &Link)| (link.credits < all).then_some(rank);
        let wanting: Vec<u32> = self.links.iter().filter_map(wanting).collect();
        for rank in wanting {
            self.post(rank, &Header::new(Kind::CreditsWanted).encode(), &[]);
        }
    }

    //= wire.md R-AM-8
    /// Tells all ranks that have heard of this one that it leaves after so many barriers, in the last of which all were idle or not, and if it
    /// does so because it has lost a rank.
    pub fn leave(&mut self, lost: Option<u32>, (passed, was_idle): (u32, bool)) {
        let is_there = |link: &Link| match link.reach {
            // A record waits for a connection that is about to be opened.
            Reach::Unused => !link.outbox.is_empty(),
            Reach::Connecting | Reach::Open(_) => true,
            Reach::Own | Reach::Gone(_) => false,
        };
        let ranks = self.links.iter().filter_map(|(rank, link)| is_there(link).then_some(rank));
        let ranks: Vec<u32> = ranks.collect();
        for rank in ranks {
            let (flag, value) = (lost.is_some(), lost.unwrap_or_default());
            let (count, context) = (was_idle.into(), passed as u16);
            self.post(
                rank,
                &Header { flag, count, context, value, ..Header::new(Kind::Leaving) }.encode(),
                &[],
            );
        }
    }

    /// Whether nothing that this process has started is under way.
    pub fn are_idle(&self) -> bool {
        let is_idle = |link: &Link| matches!(link.reach, Reach::Gone(_)) || link.is_idle(self.credits);
        self.arrived.inbox.is_empty() && self.links.iter().all(|(_, link)| is_idle(link))
    }

    /// How many messages this process has started, without replies.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Whether all records have been given to the core.
    pub fn are_sent(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Sends a record, or lets it wait.
    fn post(&mut self, rank: u32, head: &[u8], data: &[u8]) {
        let link = self.links.link(rank);
        match link.reach {
            Reach::Open(connection) if link.outbox.is_empty() => {
                if send_record(self.ranks.endpoint(), connection, head, data).is_err() {
                    // Space comes, parts are made, or the end of the connection is reported. All of this is handled when the
                    // outbox is emptied.
                    self.keep(rank, head, data);
                }
            }
            Reach::Own => self.post_own(rank, head, data),
            Reach::Gone(_) => {}
            _ => self.keep(rank, head, data),
        }
    }

    /// Delivers a record to this process itself.
    fn post_own(&mut self, rank: u32, head: &[u8], data: &[u8]) {
        match Header::decode(head) {
            Some(header) if header.is_message() || header.kind == Kind::Context => {
                let record = [head, data].concat();
                // It is examined in detail, since no credits of another rank bound it.
                self.arrived.inbox.push(rank, &record, false);
            }
            Some(header) => self.arrived.words.push((rank, Word::Header(header))),
            None => debug_assert!(false, "what is encoded can be decoded"),
        }
    }

    #[cold]
    fn keep(&mut self, rank: u32, head: &[u8], data: &[u8]) {
        let link = self.link(rank);
        if link.outbox.len() >= OUTBOX_RECORDS_MAX {
            return self.refuse_rank(rank);
        }
        if link.outbox.is_empty() {
            self.backlog.push(rank);
        }
        self.link(rank).outbox.push_back([head, data].concat().into_boxed_slice());
    }

    /// Whether there is nothing to do but to receive.
    #[inline(always)]
    pub fn only_receives(&mut self) -> bool {
        let are_empty = self.backlog.is_empty() && self.owing.is_empty() && self.arrived.are_parts_empty();
        are_empty && !self.has_news() && !self.ranks.watches()
    }

    /// Whether [`Links::take_short`] may find something.
    #[inline(always)]
    pub fn takes_short(&mut self) -> bool {
        self.ranks.endpoint().takes_short()
    }

    /// Copies the next record to `line`, if it is a short one and nothing else is to be done.
    #[inline(always)]
    pub fn take_short(&mut self, line: &mut Line) -> ShortMessage {
        self.ranks.endpoint().take_short(line)
    }

    /// The rank of a connection, if it is the one that was looked up last.
    #[inline(always)]
    pub fn last_rank(&self, connection: Connection) -> Option<u32> {
        self.last.and_then(|(last, rank)| (last == connection).then_some(rank))
    }

    /// Sorts a record.
    #[inline(never)]
    pub fn take_record(&mut self, connection: Connection, record: &[u8]) {
        let Links { links, arrived, by_connection, last, .. } = self;
        if !sort(connection, record, by_connection, last, links, arrived) {
            self.refuse(connection);
        }
    }

    /// Sends what can be sent, and receives what has come. Returns whether there was anything.
    #[inline(always)]
    pub fn progress(&mut self) -> bool {
        let Links { ranks, links, arrived, by_connection, last, .. } = self;
        let mut nonsense = None;
        let (messages, has_events) = ranks.endpoint().poll_messages(POLL_MESSAGES, |message| {
            let connection = message.connection();
            if !sort(connection, &message, by_connection, last, links, arrived) {
                nonsense = Some(connection);
            }
        });
        let has_more = !self.arrived.words.is_empty() || !self.backlog.is_empty() || !self.owing.is_empty();
        if has_events || self.ranks.watches() || has_more || nonsense.is_some() {
            return self.progress_more(nonsense, has_events) || messages > 0;
        }
        messages > 0
    }

    /// Does the rest of progress beside messages. Returns whether there was anything that others see.
    #[inline(never)]
    fn progress_more(&mut self, nonsense: Option<Connection>, has_events: bool) -> bool {
        if let Some(connection) = nonsense {
            self.refuse(connection);
        }
        let has_events = has_events || self.ranks.watches();
        if has_events {
            self.take_events();
        }
        if !self.arrived.words.is_empty() {
            self.take_words();
        }
        let waits = !self.backlog.is_empty();
        if waits {
            self.empty_outboxes();
        }
        if !self.owing.is_empty() {
            self.return_credits();
        }
        has_events || waits && self.backlog.is_empty()
    }

    fn take_events(&mut self) {
        for _ in 0..POLL_EVENTS {
            let Some(event) = self.ranks.next_event() else { return };
            if matches!(event, RankEvent::Ended { .. }) {
                // What the rank has sent before comes first.
                self.take_words();
            }
            match event {
                RankEvent::Connected { peer, connection } if peer.rank() != self.rank() => {
                    self.by_connection.insert(connection, peer.rank());
                    let link = self.link(peer.rank());
                    if !matches!(link.reach, Reach::Gone(_)) {
                        link.reach = Reach::Open(connection);
                    }
                }
                RankEvent::Failed { peer, why } => self.lose(peer.rank(), why.to_string()),
                RankEvent::Died { rank } => self.lose(rank, "its process has died".into()),
                RankEvent::Ended { peer, connection, reason } => {
                    self.by_connection.remove(&connection);
                    self.last = None;
                    self.lose(peer.rank(), reason.to_string());
                }
                // Records that waited for space have the context 0.
                RankEvent::Endpoint(Event::Send { context, status, .. }) if context > 0 => {
                    self.news.push_back(News::Ended { operation: context, status });
                }
                RankEvent::Endpoint(Event::Recv(message)) => {
                    self.take_record(message.connection(), &message);
                }
                _ => {}
            }
        }
    }

    fn take_words(&mut self) {
        for (rank, word) in std::mem::take(&mut self.arrived.words) {
            let header = match word {
                Word::Header(header) => header,
                Word::Collected(collected) => {
                    self.news.push_back(News::Collected { rank, collected });
                    continue;
                }
                Word::Counted(word) => {
                    self.news.push_back(News::Counted { rank, word });
                    continue;
                }
                Word::LargeEnded(number, outcome) => {
                    self.news.push_back(News::LargeEnded { rank, number, outcome });
                    continue;
                }
                word => {
                    self.news.push_back(News::Memory { rank, word });
                    continue;
                }
            };
            self.links.regain(rank, header.credits);
            let link = self.links.link(rank);
            match header.kind {
                Kind::CreditsWanted => {
                    link.is_wanted = true;
                    if link.owed > 0 {
                        self.owing.push(rank);
                    }
                }
                Kind::Leaving => {
                    link.is_leaving = true;
                    let (passed, was_idle) = (header.context, header.count != 0);
                    self.news.push_back(News::Leaving { rank, passed, was_idle });
                    if header.flag {
                        self.news.push_back(News::LostElsewhere { rank: header.value });
                    }
                }
                Kind::CollectivesTaken => {
                    link.collective_sent = link.collective_sent.saturating_sub(header.value);
                }
                Kind::Barrier => self.news.push_back(News::Arrived {
                    rank,
                    number: header.value,
                    round: header.count,
                    is_busy: header.flag,
                }),
                _ => {}
            }
        }
    }

    fn return_credits(&mut self) {
        for rank in std::mem::take(&mut self.owing) {
            let all = self.credits;
            let link = self.link(rank);
            if link.must_return(all) {
                let header = Header { credits: link.take_owed(), ..Header::new(Kind::Credits) };
                self.post(rank, &header.encode(), &[]);
            }
        }
    }

    fn empty_outboxes(&mut self) {
        for rank in std::mem::take(&mut self.backlog) {
            match self.empty_outbox(rank) {
                Ok(true) => {}
                Ok(false) => self.backlog.push(rank),
                Err(why) => self.lose(rank, why),
            }
        }
    }

    /// Sends the records of an outbox. Returns whether it is empty.
    fn empty_outbox(&mut self, rank: u32) -> Result<bool, String> {
        let Links { ranks, links, .. } = self;
        let link = links.link(rank);
        let connection = match link.reach {
            Reach::Open(connection) => connection,
            Reach::Unused => {
                self.open_connection(rank);
                return Ok(matches!(self.link(rank).reach, Reach::Gone(_)));
            }
            _ => return Ok(matches!(link.reach, Reach::Gone(_))),
        };
        while let Some(record) = link.outbox.front() {
            // Its completion wakes a program that waits for space.
            match ranks.endpoint().send(connection, record, 0, SendFlags::NONE) {
                Ok(()) => drop(link.outbox.pop_front()),
                Err(SendError::WouldBlock) => return Ok(false),
                Err(SendError::TooLong { max_bytes, .. }) => cut(&mut link.outbox, max_bytes as usize),
                // An event gives the reason, and comes next.
                Err(SendError::Disconnected) => return Ok(false),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(true)
    }

    //= wire.md R-AM-10
    /// The rank does not keep to the protocol, and nothing more is taken from it.
    pub fn refuse(&mut self, connection: Connection) {
        self.ranks.endpoint().disconnect(connection);
        if let Some(rank) = self.by_connection.remove(&connection) {
            self.last = None;
            self.lose(rank, "it sends what no process of this version sends".into());
        }
    }

    /// Does what [`Links::refuse`] does, by the rank's number.
    pub fn refuse_rank(&mut self, rank: u32) {
        if let Reach::Open(connection) = self.link(rank).reach {
            self.refuse(connection);
        }
    }

    fn lose(&mut self, rank: u32, why: String) {
        let link = self.link(rank);
        if matches!(link.reach, Reach::Gone(_) | Reach::Own) {
            return;
        }
        link.reach = Reach::Gone(why.clone());
        link.outbox = VecDeque::new();
        let is_leaving = link.is_leaving;
        self.backlog.retain(|&other| other != rank);
        self.arrived.lose(rank);
        if !is_leaving {
            self.news.push_back(News::Gone { rank, why });
        }
    }

    /// Whether the links have news.
    #[inline(always)]
    pub fn has_word(&self) -> bool {
        !self.news.is_empty()
    }

    pub fn next_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    #[inline(always)]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty() || !self.arrived.is_empty()
    }

    /// Exchanges the inbox of records that have come for an empty one.
    #[inline(always)]
    pub fn swap_inbox(&mut self, empty: &mut Box<Inbox>) {
        std::mem::swap(&mut self.arrived.inbox, empty);
    }

    /// Ranks that have waiting records.
    pub fn holding(&self) -> Vec<u32> {
        self.links.iter().filter_map(|(rank, link)| (!link.held.is_empty()).then_some(rank)).collect()
    }

    /// Sleeps until something comes, for up to `timeout`. `needs_space` says whether something may wait for space in the
    /// endpoint.
    pub fn wait(&mut self, timeout: Option<Duration>, needs_space: bool) -> Result<()> {
        // If everything under way was sent without completions, no event reports space.
        let timeout = if self.are_sent() && !needs_space {
            timeout
        } else {
            Some(timeout.unwrap_or(SPACE_PAUSE).min(SPACE_PAUSE))
        };
        let timeout = timeout.into_iter().chain(self.ranks.sleep_max()).min();
        let waited = self.ranks.endpoint().wait_any(timeout);
        waited.map(drop).map_err(|error| {
            AmError::Job(cci_job::JobError::Endpoint {
                what: "waiting for ranks".into(),
                error: Box::new(error),
            })
        })
    }

    /// Prepares for sleep on the endpoint's descriptor. `None` if there is something now.
    pub fn arm(&mut self) -> Option<BorrowedFd<'_>> {
        let endpoint = self.ranks.endpoint();
        let _ = endpoint.os_handle();
        if endpoint.arm() { None } else { Some(self.ranks.endpoint().os_handle()) }
    }

    /// [`Process::into_endpoint`](super::Process::into_endpoint).
    pub fn into_endpoint(self) -> Endpoint {
        self.ranks.into_endpoint()
    }

    /// Delivers what was sent for up to `timeout`, and ends all connections.
    pub fn close(mut self, timeout: Duration) -> bool {
        let start = Instant::now();
        while !self.are_sent() && start.elapsed() < timeout {
            self.progress();
            if !self.are_sent() && self.wait(Some(timeout.saturating_sub(start.elapsed())), false).is_err() {
                break;
            }
        }
        self.ranks.close(timeout.saturating_sub(start.elapsed()))
    }
}

/// Sorts a record that has come. Returns false if no process of this version sends it.
#[inline(always)]
fn sort(
    connection: Connection,
    bytes: &[u8],
    by_connection: &HashMap<Connection, u32>,
    last: &mut Option<(Connection, u32)>,
    links: &mut Table,
    arrived: &mut Arrived,
) -> bool {
    let rank = match *last {
        Some((known, rank)) if known == connection => rank,
        _ => {
            // It came on a connection that this process has ended.
            let Some(&rank) = by_connection.get(&connection) else { return true };
            *last = Some((connection, rank));
            rank
        }
    };
    arrived.sort(rank, bytes, links)
}
