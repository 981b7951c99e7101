//! One side of an exchange of messengers: a messenger, and everything that it has said so far.

use super::super::driver::{Refusal, Setup};
use super::super::{Environment, conformance_timeout};
use super::driver::{CallEnd, Limits, MessengerDriver, MessengerEvent, MessengerPort, Parts};
use cci::messages::{ReceiveFailure, SendFailure};
use cci::{Attribute, ConnectFailure, DisconnectReason};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

type Port<D> = <D as MessengerDriver>::Messenger;
type Bytes<D> = <Port<D> as MessengerPort>::Bytes;
type Request<D> = <Port<D> as MessengerPort>::Request;

/// Polls without an event before the thread lets others run.
const IDLE_POLLS: u32 = 200;

/// A messenger of a case, with what has come.
pub struct MessengerSide<D: MessengerDriver> {
    /// The messenger.
    pub port: Port<D>,
    /// Messages that were not given back, with their connections.
    pub messages: VecDeque<(u64, Bytes<D>)>,
    /// Offers: connection, number, length.
    pub offers: VecDeque<(u64, u64, u64)>,
    /// Ends of offers: number, context, how.
    pub received: Vec<(u64, u64, Result<(), ReceiveFailure>)>,
    /// Requests that were not answered: connection, number, request.
    pub requests: VecDeque<(u64, u64, Request<D>)>,
    /// Requests that nobody waits for any more: connection, number.
    pub cancelled: Vec<(u64, u64)>,
    /// Ends of sends: context, how.
    pub sent: Vec<(u64, Result<(), SendFailure>)>,
    /// Ends of calls: context, how.
    pub replies: Vec<(u64, Result<Bytes<D>, CallEnd>)>,
    /// Connections that ended without a word of this side's, and why. Nothing of theirs comes afterwards.
    pub disconnected: Vec<(u64, DisconnectReason)>,
    opened: Vec<Result<u64, ConnectFailure>>,
    connect_requests: VecDeque<<Port<D> as MessengerPort>::ConnectRequest>,
    idle_polls: u32,
}

impl<D: MessengerDriver> MessengerSide<D> {
    /// Opens a messenger.
    pub fn open(env: &Environment<D>, setup: &Setup, limits: Limits) -> MessengerSide<D> {
        MessengerSide::of(env.driver.open_messenger(env.device, setup, limits))
    }

    /// Opens a messenger where others connect to it.
    pub fn open_server(env: &Environment<D>, setup: &Setup, limits: Limits) -> MessengerSide<D> {
        let _inside = env.far.as_ref().map(|far| far.enter().expect("who made it may enter it"));
        MessengerSide::of(env.driver.open_messenger(env.peer, setup, limits))
    }

    fn of(port: Port<D>) -> MessengerSide<D> {
        MessengerSide {
            port,
            messages: VecDeque::new(),
            offers: VecDeque::new(),
            received: Vec::new(),
            requests: VecDeque::new(),
            cancelled: Vec::new(),
            sent: Vec::new(),
            replies: Vec::new(),
            disconnected: Vec::new(),
            opened: Vec::new(),
            connect_requests: VecDeque::new(),
            idle_polls: 0,
        }
    }

    /// Takes one event, if there is one, and files it.
    pub fn poll(&mut self) -> bool {
        let Some(event) = self.port.poll() else {
            self.idle_polls += 1;
            if self.idle_polls.is_multiple_of(IDLE_POLLS) {
                std::thread::sleep(Duration::from_micros(50));
            }
            return false;
        };
        self.idle_polls = 0;
        self.file(event);
        true
    }

    fn file(&mut self, event: MessengerEvent<Port<D>>) {
        let is_over = |connection: u64| self.disconnected.iter().any(|(over, _)| *over == connection);
        match event {
            MessengerEvent::Sent { connection, context, result } => {
                assert!(!is_over(connection), "a send outlives its connection");
                self.sent.push((context, result));
            }
            MessengerEvent::Message { connection, bytes } => {
                let address = bytes.as_ref().as_ptr() as usize;
                assert!(bytes.as_ref().is_empty() || address.is_multiple_of(8), "messages are aligned");
                assert!(!is_over(connection), "a message outlives its connection");
                self.messages.push_back((connection, bytes));
            }
            MessengerEvent::Offer { connection, offer, len_bytes } => {
                assert!(!is_over(connection), "an offer outlives its connection");
                self.offers.push_back((connection, offer, len_bytes));
            }
            MessengerEvent::Received { offer, context, result } => {
                self.received.push((offer, context, result));
            }
            MessengerEvent::Request { connection, id, request } => {
                assert!(!is_over(connection), "a request outlives its connection");
                self.requests.push_back((connection, id, request));
            }
            MessengerEvent::RequestCancelled { connection, id } => self.cancelled.push((connection, id)),
            MessengerEvent::Reply { connection, context, result } => {
                assert!(!is_over(connection), "a call outlives its connection");
                self.replies.push((context, result));
            }
            MessengerEvent::Connect { result, .. } | MessengerEvent::Accept { result, .. } => {
                self.opened.push(result);
            }
            MessengerEvent::ConnectRequest(request) => self.connect_requests.push_back(request),
            MessengerEvent::Disconnected { connection, reason, .. } => {
                assert!(!is_over(connection), "reported twice");
                self.disconnected.push((connection, reason));
            }
        }
    }

    /// Sends bytes, which must be taken. Returns the number of the send.
    pub fn send(&mut self, to: u64, bytes: &[u8], context: u64) -> u64 {
        self.port.send(to, Parts::Copied(&[bytes]), context, false).expect("there is room")
    }

    /// Asks, which must be taken. Returns the number of the call.
    pub fn call(&mut self, to: u64, request: &[u8], context: u64) -> u64 {
        self.port.call(to, &[request], None, context).expect("there is room")
    }

    /// Answers the oldest request, which must be taken.
    pub fn answer_next(&mut self, code: Option<u32>, bytes: &[u8]) {
        let (_, _, mut request) = self.requests.pop_front().expect("a request is there");
        self.port.answer(&mut request, code, bytes).expect("somebody waits, and there is room");
    }

    /// The end of the only send since this was last asked.
    pub fn end_of_send(&mut self, context: u64) -> Result<(), SendFailure> {
        assert_eq!(self.sent.len(), 1, "one end: {:?}", self.sent);
        let (ended, result) = self.sent.remove(0);
        assert_eq!(ended, context, "the context comes back");
        result
    }

    /// The end of the only call since this was last asked.
    pub fn end_of_call(&mut self, context: u64) -> Result<Vec<u8>, CallEnd> {
        assert_eq!(self.replies.len(), 1, "one end of a call");
        let (ended, result) = self.replies.remove(0);
        assert_eq!(ended, context, "the context comes back");
        result.map(|bytes| bytes.as_ref().to_vec())
    }

    fn summary(&self) -> String {
        format!(
            "{} messages, {} offers, {} ends of offers, {} requests, {} cancelled, {} sends ended, {} calls ended, {} disconnected, {:?}",
            self.messages.len(),
            self.offers.len(),
            self.received.len(),
            self.requests.len(),
            self.cancelled.len(),
            self.sent.len(),
            self.replies.len(),
            self.disconnected.len(),
            self.port.counts()
        )
    }
}

/// Two messengers and a connection between them.
pub struct MessengerPair<D: MessengerDriver> {
    /// The side that connected.
    pub client: MessengerSide<D>,
    /// The side that accepted.
    pub server: MessengerSide<D>,
    /// The connection as the client has it.
    pub to_server: u64,
    /// The connection as the server has it.
    pub to_client: u64,
}

impl<D: MessengerDriver> MessengerPair<D> {
    /// Connects two new messengers with the library's limits.
    pub fn plain(env: &Environment<D>, attribute: Attribute) -> MessengerPair<D> {
        MessengerPair::open(env, attribute, Limits::default())
    }

    /// Connects two new messengers; `limits` are those of both.
    pub fn open(env: &Environment<D>, attribute: Attribute, limits: Limits) -> MessengerPair<D> {
        let setup = Setup::default();
        let mut server = MessengerSide::open_server(env, &setup, limits);
        let mut client = MessengerSide::open(env, &setup, limits);
        let (to_server, to_client) = MessengerPair::connect(&mut client, &mut server, attribute);
        MessengerPair { client, server, to_server, to_client }
    }

    /// Makes a connection between two messengers. Returns both ends of it.
    pub fn connect(
        client: &mut MessengerSide<D>,
        server: &mut MessengerSide<D>,
        attribute: Attribute,
    ) -> (u64, u64) {
        client.port.connect(&server.port.uri(), attribute, 1);
        until(client, server, "a request to connect", |_, server| !server.connect_requests.is_empty());
        let request = server.connect_requests.pop_front().expect("just seen");
        server.port.accept(request, 2);
        until(client, server, "an open connection", |client, server| {
            !client.opened.is_empty() && !server.opened.is_empty()
        });
        let opened = |side: &mut MessengerSide<D>| side.opened.remove(0).expect("it opens");
        (opened(client), opened(server))
    }

    /// Drives both sides until `done`.
    pub fn until(&mut self, what: &str, done: impl Fn(&MessengerSide<D>, &MessengerSide<D>) -> bool) {
        until(&mut self.client, &mut self.server, what, done);
    }

    /// Drives both sides until nothing has come for a while.
    pub fn settle(&mut self) {
        let until = Instant::now() + conformance_timeout();
        let mut quiet = 0;
        while quiet < 500 {
            assert!(Instant::now() < until, "it never comes to rest");
            let moved = self.client.poll() | self.server.poll();
            quiet = if moved { 0 } else { quiet + 1 };
        }
    }

    /// The memory of both sides comes home once the program has given everything back, and the connection works.
    pub fn check_home(&mut self) {
        let is_home = |side: &MessengerSide<D>| {
            let counts = side.port.counts();
            (counts.lent_bytes, counts.staged_bytes) == (0, 0)
        };
        self.until("all memory to come home", |client, server| is_home(client) && is_home(server));
        let (ended, came) = (self.client.sent.len(), self.server.messages.len());
        self.client.send(self.to_server, b"and on", 77);
        self.until("one more message", |client, server| {
            client.sent.len() > ended && server.messages.len() > came
        });
        assert_eq!(self.client.sent.pop(), Some((77, Ok(()))));
        assert_eq!(self.server.messages.pop_back().expect("just seen").1.as_ref(), b"and on");
    }

    /// Sends from the client until there is no room. Returns the numbers of what was taken; contexts count up from 0.
    pub fn fill(&mut self, bytes: &[u8], most: u64) -> Vec<u64> {
        let mut sends = Vec::new();
        loop {
            assert!((sends.len() as u64) <= most, "no end of what is taken");
            let context = sends.len() as u64;
            match self.client.port.send(self.to_server, Parts::Copied(&[bytes]), context, false) {
                Ok(send) => sends.push(send),
                Err(Refusal::WouldBlock) => return sends,
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

/// Drives two sides by turns until `done`; fails, saying what it waited for, when that takes too long.
pub fn until<D: MessengerDriver>(
    a: &mut MessengerSide<D>,
    b: &mut MessengerSide<D>,
    what: &str,
    done: impl Fn(&MessengerSide<D>, &MessengerSide<D>) -> bool,
) {
    let until = Instant::now() + conformance_timeout();
    while !done(a, b) {
        if Instant::now() >= until {
            panic!("waited too long for {what}: {}; {}", a.summary(), b.summary());
        }
        a.poll();
        b.poll();
    }
}
