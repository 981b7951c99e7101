//! One process of a soak of messengers: long messages and calls, both ways on every connection, among peers that die.

use super::super::random::{Random, mix};
use super::super::talk::{Address, Order, PeerMessage, Plant, Report, Setup};
use super::letter::Letter;
use super::load::Load;
use super::process::{END_LIMIT_NS, REPORT_NS, find, report};
use crate::failure::{Failure, Outcome};
use cci::messages::{
    CallFailure, CallId, Event, Limits, Message, Messenger, Offer, ReplyError, Request, SendError,
    SendFailure, SendId,
};
use cci::{Attribute, Connection, DisconnectReason, Endpoint, Memory, Options, SendFlags, Status};
use cci_sys::clock;
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

const RECV_BUFFERS: u32 = 192;
/// Connections that this peer asks for, at once.
const SESSIONS_MAX: usize = 4;
/// Sends and calls of each side of a connection.
const STEPS_MAX: u64 = 40;
/// Longer messages are offered.
const WHOLE_BYTES_MAX: u64 = 200_000;
const LENT_BYTES_MAX: u64 = 4 << 20;
const EVENTS_MAX: usize = 64;
const OPEN_LIMIT_NS: u64 = 20_000_000_000;
/// Signs of life to each peer, within the time in which it would take this one for dead.
const SIGNS_PER_TIMEOUT: u64 = 8;
/// With what messages are refused, and requests answered that get an error.
const REFUSAL: u32 = 99;
const ERROR: u32 = 7;

/// One connection, or an attempt to make one.
struct Session {
    with: u32,
    is_client: bool,
    connection: Option<Connection>,
    is_ordered: bool,
    /// Sends and calls that are still to be begun.
    left: u64,
    /// Those that have not ended.
    under_way: u64,
    /// Since when the library has called its peer silent.
    silent_since_ns: Option<u64>,
    /// Letters sent, and those that came: their numbers.
    sent: u64,
    came: Vec<u64>,
}

/// A send or a call that has not ended.
struct Step {
    session: u32,
    has_deadline: bool,
    is_taken_back: bool,
}

enum Id {
    Send(SendId),
    Call(CallId),
}

pub(super) struct Peer {
    setup: Setup,
    orders: Receiver<Order>,
    messenger: Messenger,
    random: Random,
    report: Report,
    peers: Vec<Address>,
    sessions: HashMap<u32, Session>,
    /// What has not ended, by its context.
    steps: HashMap<u64, Step>,
    /// By the number of the offer.
    received_into: HashMap<u64, Memory>,
    requests: VecDeque<(Letter, Request)>,
    kept: VecDeque<Message>,
    keep_until_ns: u64,
    next: u32,
    report_ns: u64,
    /// When each peer was last sent a sign of life.
    said_ns: u64,
    load: Load,
    ending: Option<u64>,
    leaving: bool,
}

/// A messenger; a service that a dying process still has is waited for.
fn open(setup: &Setup, service: Option<&str>) -> Outcome<Messenger> {
    let timeout = setup.timeout();
    let options = Options::default()
        .service(service.map(str::to_owned))
        .recv_buffers(RECV_BUFFERS)
        .send_timeout(timeout)
        .keepalive(timeout);
    let limits = Limits::default()
        .whole_bytes_max(WHOLE_BYTES_MAX)
        .lent_bytes_max(LENT_BYTES_MAX)
        .staged_bytes_max(LENT_BYTES_MAX);
    let until_ns = clock::now_ns() + OPEN_LIMIT_NS;
    loop {
        let opened = find(&setup.device).map(|device| {
            Endpoint::create(&device, options.clone()).and_then(|made| Messenger::new(made, limits))
        });
        let failed = match opened {
            Ok(Ok(messenger)) => return Ok(messenger),
            Ok(Err(error)) => Failure::new(format!("opening a messenger on {}: {error}", setup.device)),
            Err(failure) => failure,
        };
        if clock::now_ns() > until_ns {
            return Err(failed);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Peer {
    pub(super) fn new(setup: Setup, orders: Receiver<Order>) -> Outcome<Peer> {
        let messenger = open(&setup, Some(&setup.service))?;
        report(&PeerMessage::Ready { uri: messenger.endpoint().uri().to_owned() });
        let now_ns = clock::now_ns();
        let load = Load::new(setup.load_percent, now_ns);
        Ok(Peer {
            random: Random::new(mix(setup.seed)),
            setup,
            orders,
            messenger,
            report: Report { endpoints: 1, ..Report::default() },
            peers: Vec::new(),
            sessions: HashMap::new(),
            steps: HashMap::new(),
            received_into: HashMap::new(),
            requests: VecDeque::new(),
            kept: VecDeque::new(),
            keep_until_ns: 0,
            next: 1,
            report_ns: now_ns,
            said_ns: now_ns,
            load,
            ending: None,
            leaving: false,
        })
    }

    pub(super) fn run(&mut self) -> Outcome {
        loop {
            let start_ns = clock::now_ns();
            if !self.take_orders()? {
                return Ok(());
            }
            let mut is_busy = false;
            for _ in 0..EVENTS_MAX {
                let Some(event) = self.messenger.next_event() else { break };
                is_busy = true;
                self.event(event)?;
            }
            if self.load.may_begin(start_ns) {
                is_busy |= self.begin_steps()?;
                self.answer_some()?;
                self.connect_one()?;
            }
            self.close_what_is_done();
            self.housekeeping(start_ns)?;
            let is_idle = self.sessions.is_empty() && self.steps.is_empty();
            if self.ending.is_some() && is_idle && self.leaving {
                return self.last_word();
            }
            self.load.worked_since(start_ns);
            if !is_busy {
                let pause = Duration::from_micros(self.random.between(50, 3_000));
                let event = self.messenger.wait(Some(pause));
                let event = event.map_err(|error| Failure::new(format!("waiting: {error}")))?;
                event.map_or(Ok(()), |event| self.event(event))?;
            }
        }
    }

    /// False: end at once.
    fn take_orders(&mut self) -> Outcome<bool> {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Peers(peers)) => self.peers = peers,
                Ok(Order::Renew) => self.renew()?,
                Ok(Order::Slow(ms)) => self.keep_until_ns = clock::now_ns() + ms * 1_000_000,
                Ok(Order::Explain) => report(&PeerMessage::Explained(self.describe())),
                Ok(Order::Leave) => self.leaving = true,
                Ok(Order::Begin) => (self.ending, self.report_ns) = (None, 0),
                Ok(Order::End) => (self.ending, self.report_ns) = (Some(clock::now_ns() + END_LIMIT_NS), 0),
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            }
        }
    }

    fn describe(&self) -> String {
        let sessions = self.sessions.values().map(|session| {
            let explained =
                session.connection.and_then(|connection| self.messenger.endpoint().explain(connection));
            format!(
                "with {}: {} to begin, {} under way\n{}\n",
                session.with,
                session.left,
                session.under_way,
                explained.unwrap_or_default()
            )
        });
        sessions.collect::<String>() + &format!("{:?}", self.messenger.counters())
    }

    /// A new messenger where the old one was.
    fn renew(&mut self) -> Outcome {
        self.forget_all();
        // Closed before the next is opened, which is to have the same service.
        self.messenger = open(&self.setup, None)?;
        self.messenger = open(&self.setup, Some(&self.setup.service))?;
        self.report.endpoints += 1;
        report(&PeerMessage::Ready { uri: self.messenger.endpoint().uri().to_owned() });
        Ok(())
    }

    fn forget_all(&mut self) {
        self.sessions.clear();
        self.steps.clear();
        self.received_into.clear();
        self.requests.clear();
        self.kept.clear();
    }

    fn session_of(&mut self, connection: Connection) -> Option<(u32, &mut Session)> {
        let is_it = |session: &Session| session.connection == Some(connection);
        self.sessions.iter_mut().find(|(_, session)| is_it(session)).map(|(id, session)| (*id, session))
    }

    fn event(&mut self, event: Event) -> Outcome {
        match event {
            Event::ConnectRequest(request) => {
                let Ok(with) = <[u8; 4]>::try_from(request.data()).map(u32::from_le_bytes) else {
                    return Err(Failure::new("a request to connect that nobody made"));
                };
                let is_ordered = request.attribute() == Attribute::ReliableOrdered;
                let id = self.enter(with, false, is_ordered);
                // One whose client is gone is refused.
                if self.messenger.accept(request, id.into()).is_err() {
                    self.sessions.remove(&id);
                }
            }
            Event::Connect { context, result } | Event::Accept { context, result } => {
                let Some(session) = self.sessions.get_mut(&(context as u32)) else { return Ok(()) };
                match result {
                    Ok(connection) => session.connection = Some(connection),
                    Err(why) => {
                        let with = session.with;
                        self.sessions.remove(&(context as u32));
                        self.broken(with, format!("connecting: {why}"), String::new());
                    }
                }
            }
            // So that nobody takes a peer that has nothing to say for a dead one.
            Event::Message(message) if message.is_empty() => {}
            Event::Message(message) => {
                self.came(message.connection(), &message)?;
                if clock::now_ns() < self.keep_until_ns {
                    self.kept.push_back(message);
                }
            }
            Event::Offer(offer) => self.decide(offer)?,
            Event::Received { offer, result, .. } => {
                let memory = self.received_into.remove(&offer.to_bits());
                if result.is_ok() {
                    let memory =
                        memory.ok_or_else(|| wrong("a message was received twice, or into no memory"))?;
                    let mut bytes = vec![0; offer.len_bytes() as usize];
                    if !memory.read(0, &mut bytes) {
                        return Err(wrong("the memory is too short"));
                    }
                    self.came(offer.connection(), &bytes)?;
                }
            }
            Event::Request(request) => {
                let letter = self.came(request.connection(), &request)?;
                self.requests.push_back((letter, request));
            }
            Event::Sent { connection, context, result } => {
                let step = self.end(connection, context)?;
                match result {
                    Ok(())
                    | Err(SendFailure::Refused(REFUSAL) | SendFailure::Failed(Status::Disconnected)) => {}
                    Err(SendFailure::Cancelled) if step.is_taken_back => {}
                    Err(SendFailure::Failed(status)) => self.failed(step.session, status),
                    Err(other) => return Err(wrong(format!("a send ended with: {other}"))),
                }
            }
            Event::Reply { connection, context, result } => self.replied(connection, context, result)?,
            Event::Disconnected { connection, reason, .. } => self.disconnected(connection, reason)?,
            Event::DeviceFailed => {
                self.report.device_failures += 1;
                report(&PeerMessage::Note("the device failed; a new messenger is opened".to_owned()));
                return self.renew();
            }
            // What it is answered then is dropped.
            Event::RequestCancelled(_) => {}
            // It is closed, which is reported next, or its peer is gone without a word.
            Event::KeepaliveTimedOut { connection } => {
                if let Some((_, session)) = self.session_of(connection) {
                    session.silent_since_ns.get_or_insert(clock::now_ns());
                }
            }
            other => return Err(wrong(format!("{other:?}"))),
        }
        Ok(())
    }

    fn enter(&mut self, with: u32, is_client: bool, is_ordered: bool) -> u32 {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let left = self.random.below(STEPS_MAX);
        let connection = None;
        let session = Session {
            with,
            is_client,
            connection,
            is_ordered,
            left,
            under_way: 0,
            silent_since_ns: None,
            sent: 0,
            came: Vec::new(),
        };
        self.sessions.insert(id, session);
        id
    }

    /// A message or a request has come.
    fn came(&mut self, connection: Connection, bytes: &[u8]) -> Outcome<Letter> {
        let letter =
            Letter::read(bytes).ok_or_else(|| wrong(format!("{} bytes that nobody sent so", bytes.len())))?;
        if let Some((_, session)) = self.session_of(connection) {
            let is_twice = session.came.contains(&letter.number);
            let is_late = session.is_ordered && session.came.last().is_some_and(|last| *last > letter.number);
            if is_twice || is_late {
                return Err(wrong(format!("letter {} came after {:?}", letter.number, session.came)));
            }
            session.came.push(letter.number);
        }
        self.count(bytes.len());
        Ok(letter)
    }

    fn count(&mut self, len: usize) {
        self.report.messages += 1;
        self.report.message_bytes += len as u64;
        if len > 8_192 {
            self.report.transfers += 1;
            self.report.transfer_bytes += len as u64;
        }
    }

    /// Refuses an offer or accepts it. Where it has ended meanwhile, that is reported.
    fn decide(&mut self, offer: Offer) -> Outcome {
        match self.random.below(8) {
            0 => _ = self.messenger.refuse(offer, REFUSAL),
            1..=3 => _ = self.messenger.receive(offer),
            _ => {
                let memory = self.messenger.allocate(offer.len_bytes() as usize);
                let memory =
                    memory.map_err(|error| Failure::new(format!("memory for a message: {error}")))?;
                if self.messenger.receive_into(offer, &memory, 0, 0).is_ok() {
                    self.received_into.insert(offer.to_bits(), memory);
                }
            }
        }
        Ok(())
    }

    /// A send or a call has ended.
    fn end(&mut self, connection: Connection, context: u64) -> Outcome<Step> {
        let step = self.steps.remove(&context);
        let step = step.ok_or_else(|| wrong(format!("{context} ended twice on {connection:?}")))?;
        if let Some(session) = self.sessions.get_mut(&step.session) {
            session.under_way -= 1;
        }
        Ok(step)
    }

    fn replied(
        &mut self,
        connection: Connection,
        context: u64,
        result: Result<Message, CallFailure>,
    ) -> Outcome {
        let step = self.end(connection, context)?;
        let check = |bytes: &[u8]| {
            let letter = Letter::read(bytes).filter(|letter| letter.number == context);
            letter
                .map(|_| ())
                .ok_or_else(|| wrong(format!("a reply of {} bytes that nobody gave so", bytes.len())))
        };
        match result {
            Ok(message) => {
                check(&message)?;
                self.count(message.len());
            }
            Err(CallFailure::Error { code: ERROR, message }) => check(&message)?,
            Err(CallFailure::Dropped) => {}
            Err(CallFailure::TimedOut) if step.has_deadline => {}
            Err(CallFailure::Cancelled) if step.is_taken_back => {}
            Err(CallFailure::Failed(Status::Disconnected)) => {}
            Err(CallFailure::NotSent(SendFailure::Failed(Status::Disconnected))) => {}
            Err(CallFailure::NotSent(SendFailure::Failed(status)) | CallFailure::Failed(status)) => {
                self.failed(step.session, status);
            }
            // The server has closed the connection while its reply was being fetched.
            Err(CallFailure::ReplyLost) => {}
            Err(other) => return Err(wrong(format!("a call ended with: {other}"))),
        }
        self.report.calls += 1;
        Ok(())
    }

    /// A send has failed, which a fault has to explain.
    fn failed(&mut self, session: u32, status: Status) {
        if let Some(session) = self.sessions.get(&session) {
            let (with, connection) = (session.with, session.connection);
            let explained = connection.and_then(|connection| self.messenger.endpoint().explain(connection));
            self.broken(
                with,
                format!("a send: {status}"),
                explained.map_or_else(String::new, |explained| explained.to_string()),
            );
        }
    }

    fn broken(&mut self, with: u32, why: String, explained: String) {
        self.report.broken += 1;
        report(&PeerMessage::Broken { with, why, explained });
    }

    fn disconnected(&mut self, connection: Connection, reason: DisconnectReason) -> Outcome {
        let Some((id, session)) = self.session_of(connection) else { return Ok(()) };
        if session.under_way > 0 {
            return Err(wrong(format!("{} sends and calls outlive their connection", session.under_way)));
        }
        let (with, is_client) = (session.with, session.is_client);
        self.sessions.remove(&id);
        // A client closes when it has done everything. Where the news of that gets lost, it looks like a death here; the client knows.
        if !is_client {
            self.report.clean += 1;
            // The client only learns that the connection is gone.
            if matches!(reason, DisconnectReason::TimedOut | DisconnectReason::Refused) {
                report(&PeerMessage::GivenUp { with, why: reason.to_string() });
            }
        } else {
            self.broken(with, format!("the connection ended: {reason:?}"), String::new());
        }
        Ok(())
    }

    /// Begins a send or a call on each connection that has some left, or takes one back.
    fn begin_steps(&mut self) -> Outcome<bool> {
        let mut has_begun = false;
        let ids: Vec<u32> = self.sessions.keys().copied().collect();
        for id in ids {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let Some(connection) = session.connection.filter(|_| session.left > 0) else { continue };
            let number = session.sent;
            let magnitude = self.random.between(5, 20);
            let len = self.random.between(24, 24 + (1 << magnitude)) as usize;
            let context = u64::from(id) << 32 | number;
            let (id_of_step, has_deadline) = if self.random.one_in(3) {
                let bytes = self.letter(number, len.min(WHOLE_BYTES_MAX as usize), context);
                let timeout_ms = self.random.between(1, 2_000);
                let timeout = self.random.one_in(4).then(|| Duration::from_millis(timeout_ms));
                (self.messenger.call(connection, &bytes, timeout, context).map(Id::Call), timeout.is_some())
            } else {
                let bytes = self.letter(number, len, context);
                let sent = if self.random.one_in(2) {
                    let memory = self.messenger.allocate(len);
                    let memory =
                        memory.map_err(|error| Failure::new(format!("memory for a message: {error}")))?;
                    if !memory.write(0, &bytes) {
                        return Err(wrong("the memory is too short"));
                    }
                    let part = [(&memory, 0..len)];
                    self.messenger.send(connection, &part, context, SendFlags::NONE)
                } else {
                    self.messenger.send(connection, &bytes, context, SendFlags::NONE)
                };
                (sent.map(Id::Send), false)
            };
            let id_of_step = match id_of_step {
                Ok(id_of_step) => id_of_step,
                Err(SendError::WouldBlock | SendError::Disconnected | SendError::UnknownConnection) => {
                    continue;
                }
                Err(error) => return Err(wrong(format!("a send was refused: {error}"))),
            };
            has_begun = true;
            let is_taken_back = self.random.one_in(10)
                && match id_of_step {
                    Id::Send(send) => self.messenger.cancel(send),
                    Id::Call(call) => self.messenger.cancel_call(call),
                };
            self.steps.insert(context, Step { session: id, has_deadline, is_taken_back });
            if let Some(session) = self.sessions.get_mut(&id) {
                (session.left, session.under_way, session.sent) =
                    (session.left - 1, session.under_way + 1, number + 1);
            }
            self.report.sent += 1;
        }
        Ok(has_begun)
    }

    fn letter(&mut self, number: u64, len: usize, context: u64) -> Vec<u8> {
        let mut bytes = Letter { number, context, seed: self.random.next() }.write(len);
        if self.setup.plant == Some(Plant::Corrupt)
            && self.report.messages > 100
            && let Some(last) = bytes.last_mut()
        {
            *last ^= 1;
        }
        bytes
    }

    /// Answers some requests, in any order.
    fn answer_some(&mut self) -> Outcome {
        while !self.requests.is_empty() && self.random.one_in(2) {
            let at = self.random.below(self.requests.len() as u64) as usize;
            let Some((asked, request)) = self.requests.swap_remove_back(at) else { break };
            let magnitude = self.random.between(5, 19);
            let len = self.random.between(24, 24 + (1 << magnitude)) as usize;
            let bytes = Letter { number: asked.context, context: 0, seed: self.random.next() }.write(len);
            let answered = match self.random.below(8) {
                0 => continue,
                1 => self.messenger.reply_error(request, ERROR, &bytes),
                _ => self.messenger.reply(request, &bytes),
            };
            match answered {
                Ok(()) | Err(ReplyError::Ended) => {}
                Err(ReplyError::NotSent { request, error: SendError::WouldBlock }) => {
                    self.requests.push_back((asked, request));
                    break;
                }
                Err(error) => return Err(wrong(format!("an answer was refused: {error}"))),
            }
        }
        Ok(())
    }

    fn connect_one(&mut self) -> Outcome {
        let asked = self.sessions.values().filter(|session| session.is_client).count();
        if self.ending.is_some() || asked >= SESSIONS_MAX {
            return Ok(());
        }
        let own = self.setup.index;
        let is_reachable =
            |peer: &&Address| peer.index != own && (!self.setup.across || peer.index % 2 != own % 2);
        let peers: Vec<&Address> = self.peers.iter().filter(is_reachable).collect();
        let Some(to) = peers.get(self.random.below(peers.len() as u64) as usize) else { return Ok(()) };
        let (uri, with) = (to.uri.clone(), to.index);
        let is_ordered = self.random.one_in(2);
        let attribute = if is_ordered { Attribute::ReliableOrdered } else { Attribute::ReliableUnordered };
        let id = self.enter(with, true, is_ordered);
        let timeout = Some(self.setup.timeout());
        let started = self.messenger.connect(&uri, &own.to_le_bytes(), attribute, id.into(), timeout);
        started.map_err(|error| Failure::new(format!("connecting to {uri}: {error}")))
    }

    /// A client closes a connection on which it has done everything.
    fn close_what_is_done(&mut self) {
        let (messenger, report) = (&mut self.messenger, &mut self.report);
        self.sessions.retain(|_, session| {
            let is_done = session.is_client && session.left == 0 && session.under_way == 0;
            let Some(connection) = session.connection.filter(|_| is_done) else { return true };
            messenger.disconnect(connection);
            report.clean += 1;
            false
        });
        // A request whose connection is over is no more than its bytes.
        self.requests.retain(|(_, request)| messenger.is_open(request.connection()));
    }

    fn housekeeping(&mut self, now_ns: u64) -> Outcome {
        let timeout_ns = self.setup.timeout_ms * 1_000_000;
        let is_lost = |session: &Session| {
            session.silent_since_ns.is_some_and(|since_ns| now_ns > since_ns + timeout_ns)
        };
        let lost = self.sessions.extract_if(|_, session| is_lost(session)).collect::<Vec<_>>();
        for (_, session) in lost {
            session.connection.into_iter().for_each(|connection| self.messenger.disconnect(connection));
            self.broken(session.with, "it is silent".to_owned(), String::new());
        }
        if now_ns >= self.said_ns + timeout_ns / SIGNS_PER_TIMEOUT {
            self.said_ns = now_ns;
            for connection in self.sessions.values().filter_map(|session| session.connection) {
                // One that finds no space has something under way, and one that has ended is reported.
                let _ = self.messenger.send(connection, b"", 0, SendFlags::SILENT);
            }
        }
        if now_ns >= self.keep_until_ns {
            self.kept.clear();
        }
        if let Some(until_ns) = self.ending
            && now_ns > until_ns
            && !self.sessions.is_empty()
        {
            return Err(wrong(format!("sessions do not end:\n{}", self.describe())));
        }
        let every_ns = if self.ending.is_some() { REPORT_NS / 10 } else { REPORT_NS };
        if now_ns < self.report_ns + every_ns {
            return Ok(());
        }
        self.report_ns = now_ns;
        let (counters, own) = (self.messenger.endpoint().counters(), self.messenger.counters());
        if own.lent_bytes + own.idle_lent_bytes > LENT_BYTES_MAX
            || own.staged_bytes + own.idle_staged_bytes > LENT_BYTES_MAX
        {
            return Err(wrong(format!("beyond a cap: {own:?}")));
        }
        if own.faults > 0 {
            return Err(wrong(format!("a peer was taken for a liar: {own:?}")));
        }
        self.report.memory_bytes = counters.memory.total_bytes;
        self.report.open = counters.connections_open;
        self.report.sessions = self.sessions.len() as u64;
        self.report.ending = self.ending.is_some();
        report(&PeerMessage::Report(self.report.clone()));
        Ok(())
    }

    /// Nothing may be left. Then the messenger goes.
    fn last_word(&mut self) -> Outcome {
        self.kept.clear();
        self.requests.clear();
        while let Some(event) = self.messenger.next_event() {
            self.event(event)?;
        }
        let (own, free) = (self.messenger.counters(), self.messenger.recv_buffers_free());
        let counters = self.messenger.endpoint().counters();
        let left = (
            own.lent_bytes,
            own.staged_bytes,
            counters.connections_open,
            self.steps.len(),
            self.received_into.len(),
        );
        if left != (0, 0, 0, 0, 0) || free != RECV_BUFFERS {
            return Err(wrong(format!(
                "left at the end: {own:?}, {} connections, {} steps, {} offers, {free} of {RECV_BUFFERS} buffers free",
                counters.connections_open,
                self.steps.len(),
                self.received_into.len()
            )));
        }
        report(&PeerMessage::Done(self.report.clone()));
        Ok(())
    }
}

fn wrong(what: impl Into<String>) -> Failure {
    Failure::new(what)
}
