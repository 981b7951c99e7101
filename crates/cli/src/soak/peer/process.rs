//! The loop of a peer: orders, events, sessions, reports.

use super::super::random::{Random, mix};
use super::super::talk::{Address, Order, PeerMessage, Plant, Report, Setup};
use super::frame::Hello;
use super::lent::Ledger;
use super::load::Load;
use super::loans::Loans;
use super::session::{self, End, Session, Shared};
use crate::failure::{Failure, Outcome};
use crate::pattern::Pattern;
use crate::{devices, text};
use cci::{Attribute, ConnectFailure, ConnectRequest, Connection, Device, Endpoint, Event, Message, Options};
use cci_sys::clock;
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

/// Receive buffers: few, so that they run out.
const RECV_BUFFERS: u32 = 192;
/// Sessions that this peer asks for, at once.
const SESSIONS_MAX: usize = 5;
/// How long a service may be in use by a process that is just dying.
const OPEN_LIMIT_NS: u64 = 20_000_000_000;
/// How long sessions may take to end when all is to end.
pub(super) const END_LIMIT_NS: u64 = 60_000_000_000;
pub(super) const REPORT_NS: u64 = 1_000_000_000;
/// Events taken between two looks at the rest.
const EVENTS_MAX: usize = 128;
/// What shared memory calls the times that giving up a region found the peer in the middle of a copy.
const REVOCATIONS: [&str; 2] = ["rma_revocations_waited", "rma_detached"];
/// Ends of sessions remembered.
const RECENT_MAX: usize = 40;
/// A message that a peer has lent is kept for up to this.
const LOAN_NS_MAX: u64 = 300_000_000;
/// What [`Plant::Leak`] loses with each report.
const LEAK_BYTES: usize = 24 << 20;

/// Nobody listens any more: the conductor is gone, and so is the reason to be.
pub(super) fn report(message: &PeerMessage) {
    if let Ok(mut line) = serde_json::to_vec(message) {
        line.push(b'\n');
        if text::emit(&line).is_err() {
            std::process::exit(0);
        }
    }
}

/// The peer, whose endpoint connects to the others' all the time.
pub(super) struct Peer {
    setup: Setup,
    orders: Receiver<Order>,
    shared: Shared,
    sessions: HashMap<u32, Session>,
    next_session: u32,
    peers: Vec<Address>,
    kept: VecDeque<Message>,
    keep_until_ns: u64,
    /// Messages that stay where their senders wrote them.
    loans: Loans,
    report_ns: u64,
    load: Load,
    ending: Option<u64>,
    leaving: bool,
    /// How sessions ended lately.
    recent: VecDeque<String>,
    leaked: Vec<Vec<u8>>,
    leaked_files: Vec<std::fs::File>,
}

/// An endpoint with its ledger; a service that a dying process still has is waited for, and an interface that is down.
fn open(setup: &Setup, service: Option<&str>) -> Outcome<(Endpoint, Ledger)> {
    let (name, timeout) = (setup.device.as_str(), setup.timeout());
    let options = Options::default()
        .service(service.map(str::to_owned))
        .recv_buffers(RECV_BUFFERS)
        .send_buffers(2048)
        .rma_operations(1024)
        .send_timeout(timeout)
        .keepalive(timeout);
    let until_ns = clock::now_ns() + OPEN_LIMIT_NS;
    let mut endpoint = loop {
        let failed = match find(name).map(|device| Endpoint::create(&device, options.clone())) {
            Ok(Ok(endpoint)) => break endpoint,
            Ok(Err(error)) => Failure::new(format!("opening an endpoint on {name}: {error}")),
            Err(failure) => failure,
        };
        if clock::now_ns() > until_ns {
            return Err(failed);
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let ledger = Ledger::new(&mut endpoint)
        .map_err(|error| Failure::new(format!("memory for the ledger: {error}")))?;
    Ok((endpoint, ledger))
}

/// By name, or the first that is up of what is to drive it.
pub(super) fn find(name: &str) -> Outcome<Device> {
    let context = devices::context()?;
    let of_kind = |device: &&Device| {
        device.transport().name() == name && device.is_up() && device.interface() != Some("docker0")
    };
    if let Some(device) = context.device(name) {
        return Ok(device.clone());
    }
    let mut found: Vec<&Device> = context.devices().iter().filter(of_kind).collect();
    // Of a machine's own, its loopback: nobody else is to be troubled. In a namespace with a wire, the wire.
    let wire = |device: &Device| device.interface() == Some(cci_measure::site::Site::INTERFACE);
    let loopback = |device: &Device| device.ip().is_some_and(|ip| ip.is_loopback());
    found.sort_by_key(|device| (!wire(device), !loopback(device)));
    match found.first() {
        Some(device) => Ok((*device).clone()),
        None => devices::named(&context, name).cloned(),
    }
}

impl Peer {
    pub(super) fn new(setup: Setup, orders: Receiver<Order>) -> Outcome<Peer> {
        let (endpoint, ledger) = open(&setup, Some(&setup.service))?;
        let shared = Shared {
            endpoint,
            ledger,
            pattern: Pattern::new(),
            random: Random::new(mix(setup.seed)),
            report: Report { endpoints: 1, ..Report::default() },
            scratch: Vec::new(),
            plant: setup.plant,
            given_up: VecDeque::new(),
        };
        report(&PeerMessage::Ready { uri: shared.endpoint.uri().to_owned() });
        let now_ns = clock::now_ns();
        let load = Load::new(setup.load_percent, now_ns);
        Ok(Peer {
            setup,
            orders,
            shared,
            sessions: HashMap::new(),
            next_session: 1,
            peers: Vec::new(),
            kept: VecDeque::new(),
            keep_until_ns: 0,
            loans: Loans::default(),
            report_ns: now_ns,
            load,
            ending: None,
            leaving: false,
            recent: VecDeque::new(),
            leaked: Vec::new(),
            leaked_files: Vec::new(),
        })
    }

    pub(super) fn run(&mut self) -> Outcome {
        loop {
            let start_ns = clock::now_ns();
            if !self.take_orders()? {
                return Ok(());
            }
            let mut busy = self.take_events()?;
            let may_begin = self.load.may_begin(start_ns);
            busy |= self.step_sessions(may_begin)?;
            self.begin_session(may_begin)?;
            self.housekeeping(start_ns)?;
            if let Some(until_ns) = self.ending
                && self.is_drained(start_ns, until_ns)?
            {
                return self.last_word();
            }
            self.load.worked_since(start_ns);
            if !busy {
                self.pause(may_begin)?;
            }
        }
    }

    /// Sometimes polls, sometimes sleeps, as programs do.
    fn pause(&mut self, may_poll: bool) -> Outcome {
        if may_poll && self.shared.random.one_in(2) {
            for _ in 0..self.shared.random.below(50) {
                self.shared.endpoint.progress();
            }
            return Ok(());
        }
        let pause = Duration::from_micros(self.shared.random.between(50, 5_000));
        let waited = self.shared.endpoint.wait(Some(pause));
        match waited.map_err(|error| Failure::new(format!("waiting: {error}")))? {
            Some(event) => self.event(event),
            None => Ok(()),
        }
    }

    /// False: end at once.
    fn take_orders(&mut self) -> Outcome<bool> {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Peers(peers)) => self.peers = peers,
                Ok(Order::Renew) => self.renew()?,
                Ok(Order::Slow(ms)) => self.keep_until_ns = clock::now_ns() + ms * 1_000_000,
                Ok(Order::Explain) => {
                    let all = self.sessions.values().map(|session| session.describe(&self.shared.endpoint));
                    let kept =
                        format!("{} messages kept, and {} of loans\n", self.kept.len(), self.loans.len());
                    report(&PeerMessage::Explained(all.fold(kept, |text, one| text + &one + "\n")));
                }
                Ok(Order::Leave) => self.leaving = true,
                // What it says next is of after the order.
                Ok(Order::Begin) => (self.ending, self.report_ns) = (None, 0),
                Ok(Order::End) => {
                    (self.ending, self.report_ns) = (Some(clock::now_ns() + END_LIMIT_NS), 0);
                }
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            }
        }
    }

    /// A new endpoint where the old one was.
    fn renew(&mut self) -> Outcome {
        self.sessions.clear();
        self.kept.clear();
        // Messages that peers have lent outlive the endpoint. It is closed before the next is opened, which is to have the same
        // service; one of no service is in between.
        (self.shared.endpoint, self.shared.ledger) = open(&self.setup, None)?;
        (self.shared.endpoint, self.shared.ledger) = open(&self.setup, Some(&self.setup.service))?;
        self.shared.report.endpoints += 1;
        report(&PeerMessage::Ready { uri: self.shared.endpoint.uri().to_owned() });
        Ok(())
    }

    fn take_events(&mut self) -> Outcome<bool> {
        for taken in 0..EVENTS_MAX {
            match self.shared.endpoint.next_event() {
                Some(event) => self.event(event)?,
                None => return Ok(taken > 0),
            }
        }
        Ok(true)
    }

    fn event(&mut self, event: Event) -> Outcome {
        let id = session::address(&event, &self.shared.endpoint);
        match event {
            Event::ConnectRequest(request) => return self.requested(request),
            Event::DeviceFailed => {
                self.shared.report.device_failures += 1;
                report(&PeerMessage::Note("the device failed; a new endpoint is opened".to_owned()));
                return self.renew();
            }
            _ => {}
        }
        let Some((id, session)) = id.and_then(|id| Some((id, self.sessions.get_mut(&id)?))) else {
            return match event {
                // Of a connection that was closed here, or of an endpoint before.
                Event::Recv(_)
                | Event::Mapped(_)
                | Event::KeepaliveTimedOut { .. }
                | Event::Disconnected { .. } => Ok(()),
                other => {
                    let recent: Vec<&str> = self.recent.iter().map(String::as_str).collect();
                    Err(Failure::new(format!("{other:?} is of no session; lately:\n{}", recent.join("\n"))))
                }
            };
        };
        let shared = &mut self.shared;
        let handled = match event {
            Event::Send { context, status, .. } => session.completed(shared, context as u32, status),
            Event::Recv(message) => {
                let handled = session.message(shared, &message);
                if clock::now_ns() < self.keep_until_ns {
                    self.kept.push_back(message);
                }
                handled
            }
            Event::Mapped(message) => {
                let bytes = message.to_vec();
                let handled = session.message(shared, &bytes);
                shared.report.loans += 1;
                let now_ns = clock::now_ns();
                let until_ns = self.keep_until_ns.max(now_ns + shared.random.below(LOAN_NS_MAX));
                self.loans.keep(message, bytes, until_ns).map_err(Failure::new)?;
                handled
            }
            Event::Connect { result, .. } => connected(session, shared, result),
            Event::Accept { result, .. } => match result {
                Ok(connection) => session.opened(shared, connection),
                Err(why) => Err(End::Broken(format!("accepting: {why}"))),
            },
            Event::KeepaliveTimedOut { .. } | Event::Disconnected { .. } => session.silent(),
            _ => Ok(()),
        };
        match handled {
            Ok(()) => Ok(()),
            Err(end) => self.ended(id, end),
        }
    }

    fn requested(&mut self, request: ConnectRequest) -> Outcome {
        let hello: Hello = serde_json::from_slice(request.data()).map_err(|_| {
            Failure::new(format!("a request of {} bytes that nobody made", request.data().len()))
        })?;
        if hello.reject {
            request.reject();
            self.shared.report.rejected += 1;
            return Ok(());
        }
        let id = self.next_session;
        self.next_session += 1;
        let session = Session::new(id, hello.from, false, request.attribute(), hello);
        match self.shared.endpoint.accept(request, u64::from(id) << 32) {
            Ok(()) => {
                self.sessions.insert(id, session);
            }
            Err(cci::AcceptError::Gone) => {}
            Err(error) => return Err(Failure::new(format!("accepting: {error}"))),
        }
        Ok(())
    }

    fn step_sessions(&mut self, may_begin: bool) -> Outcome<bool> {
        let mut busy = false;
        let mut over = Vec::new();
        for (&id, session) in &mut self.sessions {
            match session.step(&mut self.shared, may_begin) {
                Ok(did) => busy |= did,
                Err(end) => over.push((id, end)),
            }
        }
        for (id, end) in over {
            self.ended(id, end)?;
        }
        self.sessions.retain(|_, session| !session.is_gone());
        Ok(busy)
    }

    fn ended(&mut self, id: u32, end: End) -> Outcome {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(format!("session {id:#x} with {}: {end:?}", session.with));
        match end {
            End::Clean => self.shared.report.clean += 1,
            End::Broken(why) if session.lingers(&why) => return Ok(()),
            End::Broken(why) if !session.is_closing() => {
                self.shared.report.broken += 1;
                let explained = session.describe(&self.shared.endpoint);
                report(&PeerMessage::Broken { with: session.with, why, explained });
            }
            End::Broken(_) => {}
            End::Wrong(what) => {
                return Err(Failure::new(format!("{what}\n{}", session.describe(&self.shared.endpoint))));
            }
        }
        session.end(&mut self.shared).map_err(Failure::new)
    }

    fn begin_session(&mut self, may_begin: bool) -> Outcome {
        let asked = self.sessions.values().filter(|session| session.is_initiator() && !session.is_closing());
        if self.ending.is_some() || !may_begin || asked.count() >= SESSIONS_MAX || self.hangs() {
            return Ok(());
        }
        let own = self.setup.index;
        let reachable =
            |peer: &&Address| peer.index != own && (!self.setup.across || peer.index % 2 != own % 2);
        let peers: Vec<&Address> = self.peers.iter().filter(reachable).collect();
        let random = &mut self.shared.random;
        let Some(to) = peers.get(random.below(peers.len() as u64) as usize) else { return Ok(()) };
        let attribute = match random.below(5) {
            0 | 1 => Attribute::ReliableOrdered,
            2 | 3 => Attribute::ReliableUnordered,
            _ => Attribute::Unreliable,
        };
        let magnitude = random.between(0, 12);
        let hello = Hello {
            from: own,
            seed: random.next(),
            there: random.below(1 << magnitude),
            back: random.below(1 << magnitude),
            memory: attribute.is_reliable() && random.one_in(2),
            flood: random.one_in(4),
            reject: random.one_in(12),
        };
        let id = self.next_session;
        self.next_session += 1;
        let request = serde_json::to_vec(&hello).unwrap_or_default();
        let context = u64::from(id) << 32;
        let started =
            self.shared.endpoint.connect(&to.uri, &request, attribute, context, Some(self.setup.timeout()));
        started.map_err(|error| Failure::new(format!("connecting to {}: {error}", to.uri)))?;
        self.sessions.insert(id, Session::new(id, to.index, true, attribute, hello));
        Ok(())
    }

    fn hangs(&self) -> bool {
        self.shared.plant == Some(Plant::Hang) && self.shared.report.messages > 100
    }

    fn housekeeping(&mut self, now_ns: u64) -> Outcome {
        self.shared.check_given_up(Some(now_ns)).map_err(Failure::new)?;
        self.loans.give_back(Some(now_ns)).map_err(Failure::new)?;
        if now_ns >= self.keep_until_ns {
            self.kept.clear();
        }
        let every_ns = if self.ending.is_some() { REPORT_NS / 10 } else { REPORT_NS };
        if now_ns < self.report_ns + every_ns {
            return Ok(());
        }
        self.report_ns = now_ns;
        if self.hangs() {
            std::thread::sleep(Duration::from_secs(3600));
        }
        if self.shared.plant == Some(Plant::Leak) {
            self.leaked.push(vec![1; LEAK_BYTES]);
        }
        if self.shared.plant == Some(Plant::Descriptors) {
            self.leaked_files.extend((0..60).filter_map(|_| std::fs::File::open("/dev/null").ok()));
        }
        self.shared.ledger.check(true).map_err(Failure::new)?;
        self.account()?;
        report(&PeerMessage::Report(self.shared.report.clone()));
        Ok(())
    }

    /// What the library says of itself.
    fn account(&mut self) -> Outcome {
        let counters = self.shared.endpoint.counters();
        let memory = &counters.memory;
        if memory.total_bytes > memory.cap_bytes {
            return Err(Failure::new(format!(
                "the endpoint holds {} bytes and may hold {}: {:?}",
                memory.total_bytes, memory.cap_bytes, memory.kinds
            )));
        }
        let report = &mut self.shared.report;
        report.memory_bytes = memory.total_bytes;
        report.open = counters.connections_open;
        report.sessions = (self.sessions.len() + self.shared.given_up.len()) as u64;
        report.ending = self.ending.is_some();
        let repeated = counters.device.iter().filter(|(name, _)| name.contains("retransm"));
        report.retransmissions = repeated.map(|(_, count)| count).sum();
        let waited = counters.device.iter().filter(|(name, _)| REVOCATIONS.contains(name));
        report.revocations = waited.map(|(_, count)| count).sum();
        Ok(())
    }

    /// All sessions ended, and nothing is under way.
    fn is_drained(&mut self, now_ns: u64, until_ns: u64) -> Outcome<bool> {
        if self.sessions.is_empty() && self.leaving {
            return Ok(true);
        }
        if now_ns > until_ns && !self.sessions.is_empty() {
            let left: Vec<String> =
                self.sessions.values().map(|session| session.describe(&self.shared.endpoint)).collect();
            return Err(Failure::new(format!(
                "{} sessions do not end within {} s:\n{}",
                left.len(),
                END_LIMIT_NS / 1_000_000_000,
                left.join("\n")
            )));
        }
        Ok(false)
    }

    /// Nothing may be left. Then the endpoint goes.
    fn last_word(&mut self) -> Outcome {
        self.kept.clear();
        self.loans.give_back(None).map_err(Failure::new)?;
        self.shared.check_given_up(None).map_err(Failure::new)?;
        self.shared.ledger.check(false).map_err(Failure::new)?;
        self.shared.ledger.end(&mut self.shared.endpoint).map_err(Failure::new)?;
        self.account()?;
        let free = self.shared.endpoint.recv_buffers_free();
        let counters = self.shared.endpoint.counters();
        if free != RECV_BUFFERS || counters.regions != 0 || counters.connections_open != 0 {
            return Err(Failure::new(format!(
                "left at the end: {} of {RECV_BUFFERS} receive buffers are not free, {} regions, {} connections",
                RECV_BUFFERS - free.min(RECV_BUFFERS),
                counters.regions,
                counters.connections_open
            )));
        }
        report(&PeerMessage::Done(self.shared.report.clone()));
        Ok(())
    }
}

fn connected(
    session: &mut Session,
    shared: &mut Shared,
    result: Result<Connection, ConnectFailure>,
) -> Result<(), End> {
    match result {
        Ok(_) if session.wants_rejection() => Err(End::Wrong("a rejected request was accepted".to_owned())),
        Ok(connection) => session.opened(shared, connection),
        Err(ConnectFailure::Refused) if session.wants_rejection() => Err(End::Clean),
        Err(why) => Err(End::Broken(format!("connecting: {why}"))),
    }
}
