//! One endpoint that answers any number of clients.

use super::lending::Wanted;
use super::session::Session;
use crate::failure::{Failure, Outcome};
use crate::pattern::Pattern;
use crate::protocol::{self, Answer, Hello, Order, Role};
use cci::{ConnectRequest, Connection, Endpoint, Event, Message, SendError, SendFlags};
use cci_sys::clock;
use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// After so long without a message, a measurement no longer keeps the server spinning.
const SPIN_NS: u64 = 300_000_000;
/// A client that works on our memory raises no event: it is given up after so long without an order.
const POLL_NS: u64 = 2_000_000_000;
/// The longest sleep: how soon the server notices that it is to end.
const SLEEP_NS_MAX: u64 = 50_000_000;
/// Polls without an event between two looks at the clock.
const POLLS_PER_LOOK: u32 = 64;

/// What one connection is for.
struct Peer {
    role: Role,
    session: u64,
    name: String,
    connection: Option<Connection>,
}

/// A server on one endpoint, with a session for each client.
pub struct Server {
    endpoint: Endpoint,
    pattern: Pattern,
    /// By the context that was given when accepting: found again without searching.
    peers: Vec<Option<Peer>>,
    sessions: HashMap<u64, Session>,
    /// Echoes that found no room, oldest first. While they wait they hold receive buffers, which slows the sender.
    waiting: VecDeque<Message>,
    /// Tell on standard error who comes and goes.
    talkative: bool,
    /// It has a core to itself: poll while something is measured.
    can_spin: bool,
    /// The client started this process, and may learn the address of the memory that it works on.
    is_child: bool,
    /// Polls without an event since the last look at the clock.
    polls: u32,
    /// The first look at the clock since something came.
    idle_since_ns: Option<u64>,
}

impl Server {
    /// Serves on `endpoint`.
    pub fn new(endpoint: Endpoint, talkative: bool, can_spin: bool, is_child: bool) -> Server {
        Server {
            endpoint,
            pattern: Pattern::new(),
            peers: Vec::new(),
            sessions: HashMap::new(),
            waiting: VecDeque::new(),
            talkative,
            can_spin,
            is_child,
            polls: 0,
            idle_since_ns: None,
        }
    }

    /// The endpoint it serves on.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Serves until `stop`.
    pub fn run(&mut self, stop: &AtomicBool) -> Outcome {
        while !stop.load(Ordering::Relaxed) {
            self.retry();
            let mut event = self.endpoint.next_event();
            if event.is_none() && self.may_sleep() {
                event = self.sleep()?;
            }
            if let Some(event) = event {
                (self.polls, self.idle_since_ns) = (0, None);
                self.on_event(event)?;
            }
        }
        Ok(())
    }

    /// Nothing came. While something is measured the server spins, where it has a core for that; else it sleeps.
    fn may_sleep(&mut self) -> bool {
        self.polls += 1;
        if self.polls == 1 {
            self.report_due();
        }
        if self.polls < POLLS_PER_LOOK {
            std::hint::spin_loop();
            return false;
        }
        self.polls = 0;
        let now_ns = clock::now_ns();
        let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
        let spin_ns = if self.is_polling() { POLL_NS } else { SPIN_NS };
        !self.can_spin || !self.is_measuring() || now_ns > since_ns + spin_ns
    }

    fn is_measuring(&self) -> bool {
        self.is_polling() || self.sessions.values().any(Session::is_measuring)
    }

    fn is_polling(&self) -> bool {
        self.sessions.values().any(|session| session.lending.wants_polling)
    }

    fn sleep(&mut self) -> Outcome<Option<Event>> {
        // A report may be due soon, and nothing announces room for an echo.
        let soon = self.is_measuring() || !self.waiting.is_empty();
        let limit = if soon { Duration::from_millis(1) } else { Duration::from_nanos(SLEEP_NS_MAX) };
        self.endpoint.wait(Some(limit)).map_err(|error| Failure::new(format!("waiting: {error}")))
    }

    fn on_event(&mut self, event: Event) -> Outcome {
        match event {
            Event::Recv(message) => self.on_message(message),
            Event::ConnectRequest(request) => self.on_request(request),
            Event::Accept { context, result } => match result {
                Ok(connection) => self.on_accepted(context, connection),
                Err(_) => self.forget(context, "it did not come about"),
            },
            Event::Disconnected { context, reason, .. } => self.forget(context, reason),
            Event::KeepaliveTimedOut { connection } => self.close(connection, "silent"),
            Event::DeviceFailed => {
                return Err(Failure::new(format!("device {} failed", self.endpoint.device().name()))
                    .remedy("`cci info` shows its state"));
            }
            // Echoes are silent, answers are awaited by the client, and nobody connects from here.
            _ => {}
        }
        Ok(())
    }

    fn on_request(&mut self, request: ConnectRequest) {
        let hello = match serde_json::from_slice::<Hello>(request.data()) {
            Ok(hello) if hello.version != protocol::VERSION => return request.reject(),
            Ok(hello) => hello,
            // Somebody's own client: it gets echoes.
            Err(_) => Hello::new(Role::Echo, 0),
        };
        let name = format!("{} ({})", request.peer(), request.attribute().short_name());
        let peer = Peer { role: hello.role, session: hello.session, name, connection: None };
        let context = self.peers.iter().position(Option::is_none).unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        if let Some(slot) = self.peers.get_mut(context) {
            *slot = Some(peer);
        }
        if let Err(error) = self.endpoint.accept(request, context as u64) {
            self.report(|| format!("not accepted: {error}"));
            self.forget(context as u64, error);
        }
    }

    fn on_accepted(&mut self, context: u64, connection: Connection) {
        let Some(Some(peer)) = self.peers.get_mut(context as usize) else { return };
        peer.connection = Some(connection);
        let (role, id, name) = (peer.role, peer.session, peer.name.clone());
        if role == Role::Control {
            // Where somebody else's number is used again, that one's memory must not stay registered.
            if let Some(mut before) = self.sessions.insert(id, Session::new(connection)) {
                before.lending.end(&mut self.endpoint);
            }
        } else if let Some(session) = self.sessions.get_mut(&id).filter(|_| role == Role::Data) {
            session.data = Some(connection);
            self.go_on(id);
        }
        if role != Role::Data {
            self.report(|| format!("connected: {name}"));
        }
    }

    fn on_message(&mut self, message: Message) {
        let connection = message.connection();
        let context = self.endpoint.context(connection).unwrap_or(u64::MAX);
        let Some(Some(peer)) = self.peers.get(context as usize) else { return };
        match peer.role {
            Role::Echo => self.echo(message),
            Role::Control => self.on_order(peer.session, &message),
            Role::Data => {
                let Some(session) = self.sessions.get_mut(&peer.session) else { return };
                // The echo goes first: verifying must not be part of the round trip.
                let full = session.wants_echo() && !echo(&mut self.endpoint, &message);
                session.verify(&message, &self.pattern);
                if full {
                    self.waiting.push_back(message);
                }
            }
        }
    }

    fn echo(&mut self, message: Message) {
        if !self.waiting.is_empty() || !echo(&mut self.endpoint, &message) {
            self.waiting.push_back(message);
        }
    }

    /// Sends what found no room before.
    fn retry(&mut self) {
        while let Some(message) = self.waiting.front() {
            if !echo(&mut self.endpoint, message) {
                return;
            }
            self.waiting.pop_front();
        }
    }

    fn on_order(&mut self, id: u64, message: &[u8]) {
        let order = match serde_json::from_slice(message) {
            Ok(order) => order,
            Err(error) => {
                let control = self.sessions.get(&id).map(|session| session.control);
                let answer = Answer::Confused(format!("not an order: {error}"));
                return control.into_iter().for_each(|control| self.answer(control, &answer));
            }
        };
        // Two connections may be two streams: the order can be here before the word that its sender's newest data
        // connection is open, to which the memory is to be lent.
        let is_coming =
            |peer: &Peer| peer.role == Role::Data && peer.session == id && peer.connection.is_none();
        if matches!(order, Order::Memory { .. }) && self.peers.iter().flatten().any(is_coming) {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.waiting = Some(order);
            }
            return;
        }
        self.obey(id, order);
    }

    /// The order that waited for a data connection.
    fn go_on(&mut self, id: u64) {
        if let Some(order) = self.sessions.get_mut(&id).and_then(|session| session.waiting.take()) {
            self.obey(id, order);
        }
    }

    fn obey(&mut self, id: u64, order: Order) {
        let lent_bytes = self.sessions.values().map(|session| session.lending.len_bytes()).sum();
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let answer = match order {
            order @ (Order::Start { .. } | Order::Finish { .. }) => session.order(order),
            Order::Memory { len, foreign } => {
                let wanted =
                    Wanted { len_bytes: len, foreign, only: session.data, with_address: self.is_child };
                Some(session.lending.lend(&mut self.endpoint, &wanted, lent_bytes))
            }
            Order::Fill { seed, len } => Some(session.lending.fill(seed, len)),
            Order::Check { seed, len } => Some(session.lending.check(seed, len)),
            Order::Poll(wanted) => {
                session.lending.wants_polling = wanted;
                Some(Answer::Ready)
            }
        };
        if let Some(answer) = answer {
            let control = session.control;
            self.answer(control, &answer);
        }
    }

    /// Answers are few and small: one that finds no room means that the client does not take them, and is gone.
    fn answer(&mut self, control: Connection, answer: &Answer) {
        if self.endpoint.send(control, &protocol::encode(answer), 0, SendFlags::SILENT).is_err() {
            self.close(control, "it takes no answers");
        }
    }

    /// Sends the report that waited for messages which have come, or will not.
    fn report_due(&mut self) {
        let mut due = None;
        for session in self.sessions.values_mut() {
            if let Some(answer) = session.idle() {
                due = Some((session.control, answer));
                break;
            }
        }
        if let Some((control, answer)) = due {
            self.answer(control, &answer);
        }
    }

    fn close(&mut self, connection: Connection, why: impl Display) {
        if let Some(context) = self.endpoint.context(connection) {
            self.forget(context, why);
        }
        self.endpoint.disconnect(connection);
    }

    /// Frees what belongs to a client that is gone.
    fn forget(&mut self, context: u64, why: impl Display) {
        let Some(peer) = self.peers.get_mut(context as usize).and_then(Option::take) else { return };
        if peer.role == Role::Control
            && let Some(mut session) = self.sessions.remove(&peer.session)
        {
            session.lending.end(&mut self.endpoint);
        }
        if peer.role == Role::Data && peer.connection.is_none() {
            self.go_on(peer.session);
        }
        if peer.role != Role::Data && peer.connection.is_some() {
            self.report(|| format!("gone: {}: {why}", peer.name));
        }
    }

    fn report(&self, what: impl FnOnce() -> String) {
        if self.talkative {
            eprintln!("{}: {}", self.endpoint.device().name(), what());
        }
    }
}

/// Sends a message back. False: no room now. A connection that has ended takes no more echoes.
fn echo(endpoint: &mut Endpoint, message: &Message) -> bool {
    !matches!(endpoint.send(message.connection(), message, 0, SendFlags::SILENT), Err(SendError::WouldBlock))
}
