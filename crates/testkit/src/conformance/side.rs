//! One side of an exchange: an endpoint, and everything it has reported so far. Cases drive both sides by turns in one
//! thread, which makes them the same at every run, except where the case is about threads.

use super::driver::{Driver, Flags, Happening, Polled, Port, Refusal, Setup};
use super::{Environment, conformance_timeout};
use cci::{Attribute, ConnectFailure, DisconnectReason, Status};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A connection of a side.
pub type Conn<D> = <<D as Driver>::Port as Port>::Connection;
/// A message of a side.
pub type Msg<D> = <<D as Driver>::Port as Port>::Message;
/// A request of a side.
pub type Req<D> = <<D as Driver>::Port as Port>::Request;
/// How an attempt ended.
pub type Attempt<D> = (u64, Result<Conn<D>, ConnectFailure>);

/// Polls without an event before the thread sleeps: on a machine of few cores the peer may be another thread.
const IDLE_POLLS: u32 = 200;
/// Polls between two sleeps from then on: what is waited for may be a time-out, which needs no processor.
const IDLE_POLLS_BETWEEN_SLEEPS: u32 = 20;

/// An endpoint of a case, with its connections and what has come.
pub struct Side<D: Driver> {
    /// The endpoint.
    pub port: D::Port,
    /// Messages received and not yet given back.
    pub inbox: VecDeque<(Conn<D>, Msg<D>)>,
    /// Completions of sends.
    pub sent: Vec<(Conn<D>, u64, Status)>,
    /// Ends of attempts to connect.
    pub connected: Vec<Attempt<D>>,
    /// Ends of accepts.
    pub accepted: Vec<Attempt<D>>,
    /// Requests neither accepted nor rejected.
    pub requests: VecDeque<Req<D>>,
    /// Keepalive events.
    pub silent: Vec<Conn<D>>,
    /// Connections that ended without a word of this side's, the contexts they were made with, and why.
    pub disconnected: Vec<(Conn<D>, u64, DisconnectReason)>,
    /// The last poll said that every receive buffer is out.
    pub out_of_buffers: bool,
    idle_polls: u32,
}

impl<D: Driver> Side<D> {
    /// Opens an endpoint.
    pub fn open(env: &Environment<D>, setup: &Setup) -> Side<D> {
        Side::of(env.driver.open(env.device, setup))
    }

    /// Opens an endpoint where others connect to it: on another device than those, if the two are ends of a wire.
    pub fn open_server(env: &Environment<D>, setup: &Setup) -> Side<D> {
        let _inside = env.far.as_ref().map(|far| far.enter().expect("who made it may enter it"));
        Side::of(env.driver.open(env.peer, setup))
    }

    /// Opens an endpoint where others connect to it, with the suite's ordinary setup.
    pub fn server(env: &Environment<D>) -> Side<D> {
        Side::open_server(env, &Setup::default())
    }

    /// Opens an endpoint with the suite's ordinary setup.
    pub fn plain(env: &Environment<D>) -> Side<D> {
        Side::open(env, &Setup::default())
    }

    /// Takes an endpoint.
    pub fn of(port: D::Port) -> Side<D> {
        Side {
            port,
            inbox: VecDeque::new(),
            sent: Vec::new(),
            connected: Vec::new(),
            accepted: Vec::new(),
            requests: VecDeque::new(),
            silent: Vec::new(),
            disconnected: Vec::new(),
            out_of_buffers: false,
            idle_polls: 0,
        }
    }

    /// Takes one event, if there is one, and files it.
    pub fn poll(&mut self) -> bool {
        let polled = self.port.poll();
        self.out_of_buffers = matches!(polled, Polled::NoBuffers);
        let Polled::Event(event) = polled else {
            self.rest();
            return false;
        };
        self.idle_polls = 0;
        self.file(event);
        true
    }

    /// Has up to `max` messages and events handled, and files what `keeps` wants kept and what is no message. Returns how many there
    /// were.
    pub fn handle(&mut self, max: u32, keeps: &mut dyn FnMut(Conn<D>, &[u8]) -> bool) -> u32 {
        let mut came = Vec::new();
        let handled = self.port.poll_by_handler(max, keeps, &mut came);
        came.into_iter().for_each(|event| self.file(event));
        if handled == 0 {
            self.rest();
        }
        handled
    }

    /// After a poll without an event: sleeps for a moment if there were many.
    fn rest(&mut self) {
        self.idle_polls += 1;
        if self.idle_polls >= IDLE_POLLS {
            self.idle_polls -= IDLE_POLLS_BETWEEN_SLEEPS;
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Files an event that came some other way.
    pub fn file(&mut self, event: Happening<D::Port>) {
        match event {
            Happening::Received(connection, message) => {
                let address = message.as_ref().as_ptr() as usize;
                assert!(address.is_multiple_of(8), "a received message is 8-byte aligned (CCI-022)");
                self.inbox.push_back((connection, message));
            }
            Happening::Sent(connection, context, status) => self.sent.push((connection, context, status)),
            Happening::Connected(context, result) => self.connected.push((context, result)),
            Happening::Requested(request) => self.requests.push_back(request),
            Happening::Accepted(context, result) => self.accepted.push((context, result)),
            Happening::Silent(connection) => self.silent.push(connection),
            Happening::Disconnected(connection, context, reason) => {
                self.disconnected.push((connection, context, reason));
            }
            Happening::DeviceFailed => panic!("the device failed"),
        }
    }

    /// Polls until nothing came a few times in a row.
    pub fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 20 {
            quiet = if self.poll() { 0 } else { quiet + 1 };
        }
    }

    /// Starts connecting, with the suite's patience.
    pub fn dial(&mut self, uri: &str, attribute: Attribute, context: u64) {
        self.port.connect(uri, b"", attribute, context, Some(conformance_timeout())).expect("connect starts");
    }

    /// Accepts the oldest request.
    pub fn accept_next(&mut self, context: u64) {
        let request = self.requests.pop_front().expect("a request is there");
        self.port.accept(request, context).expect("accept starts");
    }

    /// Sends, turning to the others for as long as there is no room.
    pub fn send(&mut self, peer: &mut Side<D>, to: Conn<D>, message: &[u8], context: u64) {
        let until = Instant::now() + conformance_timeout();
        loop {
            match self.port.send(to, message, context, Flags::default()) {
                Ok(()) => return,
                Err(Refusal::WouldBlock) => {
                    assert!(Instant::now() < until, "no room for a send in time");
                    self.poll();
                    peer.poll();
                }
                Err(other) => panic!("send refused: {other:?}"),
            }
        }
    }

    /// The statuses of all completions so far, in order.
    pub fn statuses(&self) -> Vec<Status> {
        self.sent.iter().map(|(_, _, status)| *status).collect()
    }

    /// The contexts of all completions so far, in order.
    pub fn contexts(&self) -> Vec<u64> {
        self.sent.iter().map(|(_, context, _)| *context).collect()
    }
}

/// Drives two sides by turns until `done`; fails, saying what it waited for, when that takes too long.
pub fn until<D: Driver>(
    a: &mut Side<D>,
    b: &mut Side<D>,
    what: &str,
    done: impl Fn(&Side<D>, &Side<D>) -> bool,
) {
    let until = Instant::now() + conformance_timeout();
    while !done(a, b) {
        if Instant::now() >= until {
            panic!("waited too long for {what}: {}; {}", summary(a), summary(b));
        }
        a.poll();
        b.poll();
    }
}

/// Drives two sides by turns for a while.
pub fn for_a_while<D: Driver>(a: &mut Side<D>, b: &mut Side<D>, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        a.poll();
        b.poll();
    }
}

/// Ends endpoints at the same time: each goes on for as long as others answer, so one after the other takes longer.
pub fn part<D: Driver>(sides: impl IntoIterator<Item = Side<D>>) {
    let threads: Vec<_> = sides.into_iter().map(|side| std::thread::spawn(move || drop(side))).collect();
    for thread in threads {
        thread.join().expect("an endpoint ends without a panic");
    }
}

/// Keeps one side going in a thread of its own until it is stopped, which gives it back.
pub fn poll_in_a_thread<D: Driver>(mut side: Side<D>) -> (Arc<AtomicBool>, JoinHandle<Side<D>>) {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            side.poll();
        }
        side
    });
    (stop, thread)
}

fn summary<D: Driver>(side: &Side<D>) -> String {
    format!(
        "{} received, {} sends completed, {} connects, {} accepts, {} requests ({})",
        side.inbox.len(),
        side.sent.len(),
        side.connected.len(),
        side.accepted.len(),
        side.requests.len(),
        side.port.uri()
    )
}

/// Two endpoints and a connection between them.
pub struct Pair<D: Driver> {
    /// The side that connected.
    pub client: Side<D>,
    /// The side that accepted.
    pub server: Side<D>,
    /// The connection as the client has it.
    pub to_server: Conn<D>,
    /// The connection as the server has it.
    pub to_client: Conn<D>,
}

impl<D: Driver> Pair<D> {
    /// Connects two new endpoints of the same setup.
    pub fn open(env: &Environment<D>, attribute: Attribute, setup: &Setup) -> Pair<D> {
        Pair::of(Side::open(env, setup), Side::open_server(env, setup), attribute)
    }

    /// Connects two new endpoints of the suite's ordinary setup.
    pub fn plain(env: &Environment<D>, attribute: Attribute) -> Pair<D> {
        Pair::open(env, attribute, &Setup::default())
    }

    /// Connects two endpoints.
    pub fn of(mut client: Side<D>, mut server: Side<D>, attribute: Attribute) -> Pair<D> {
        let (to_server, to_client) = connect(&mut client, &mut server, attribute);
        Pair { client, server, to_server, to_client }
    }

    /// Ends both endpoints.
    pub fn part(self) {
        part([self.client, self.server]);
    }

    /// Drives both sides until `done`.
    pub fn until(&mut self, what: &str, done: impl Fn(&Side<D>, &Side<D>) -> bool) {
        until(&mut self.client, &mut self.server, what, done);
    }

    /// Sends from the client until it is taken.
    pub fn send(&mut self, message: &[u8], context: u64) {
        self.client.send(&mut self.server, self.to_server, message, context);
    }
}

/// Makes one more connection between two sides; returns both ends of it.
pub fn connect<D: Driver>(
    client: &mut Side<D>,
    server: &mut Side<D>,
    attribute: Attribute,
) -> (Conn<D>, Conn<D>) {
    let (connects, accepts) = (client.connected.len(), server.accepted.len());
    client.dial(&server.port.uri(), attribute, connects as u64);
    until(client, server, "a request", |_, server| !server.requests.is_empty());
    server.accept_next(accepts as u64);
    until(client, server, "an open connection", |client, server| {
        client.connected.len() > connects && server.accepted.len() > accepts
    });
    let (context, connected) = client.connected.last().expect("just seen");
    assert_eq!(*context, connects as u64, "connect gives its context back");
    let to_server = connected.expect("connect succeeds");
    let (context, accepted) = server.accepted.last().expect("just seen");
    assert_eq!(*context, accepts as u64, "accept gives its context back");
    (to_server, accepted.expect("accept succeeds"))
}

/// A message that differs from all others: its number in the first bytes, the rest follows from number and length.
pub fn pattern(number: u64, len_bytes: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ len_bytes as u64 | 1;
    let mut bytes: Vec<u8> = number.to_le_bytes().into_iter().take(len_bytes).collect();
    while bytes.len() < len_bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.push(state as u8);
    }
    bytes
}

/// The number in a [`pattern`] of 8 bytes or more; fails if the rest does not follow from it.
pub fn number_of(message: &[u8]) -> u64 {
    let (number, _) = message.split_first_chunk::<8>().expect("a numbered message has 8 bytes");
    let number = u64::from_le_bytes(*number);
    assert!(message == pattern(number, message.len()), "message {number} arrived damaged");
    number
}
