//! Endpoints over real sockets of this machine. These tests are about sockets, clocks, names and memory; what the protocol does under
//! loss, reordering and restarts is tested in the simulator.

mod bulk;
mod connect;
mod exchange;
mod flow;
mod hostile;
mod lend;
mod multicast;
mod path;
pub(super) mod sealed;
mod wait;

use crate::{
    Attribute, ConnectFailure, Connection, Context, Device, Endpoint, Event, Message, Options, Status,
};
use std::path::Path;
use std::time::{Duration, Instant};

pub(super) const ALL: [Attribute; 3] =
    [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable];
/// A test that takes as long as this is stuck.
const PATIENCE: Duration = Duration::from_secs(20);
const NO_FURTHER: Option<Duration> = Some(Duration::from_secs(10));

/// A device on an address of this machine, as a configuration file gives it.
pub(super) fn device_with(ip: &str, more: &str) -> Option<Device> {
    let text = format!("[u]\ntransport = udp\nip = {ip}\n{more}\n");
    let context = Context::from_text(&text, Path::new("test.ini")).unwrap();
    let device = context.default_device().clone();
    if !device.is_up() {
        println!("skipped: {ip} is not on this machine");
        return None;
    }
    Some(device)
}

pub(super) fn device(ip: &str) -> Option<Device> {
    device_with(ip, "")
}

pub(super) fn endpoint(device: &Device) -> Endpoint {
    Endpoint::create(device, Options::default()).unwrap()
}

/// Two endpoints, and the connection between them as each knows it.
pub(super) struct Pair {
    pub client: Endpoint,
    pub server: Endpoint,
    pub to_server: Connection,
    pub to_client: Connection,
}

impl Pair {
    pub fn on(ip: &str, attribute: Attribute) -> Option<Pair> {
        Some(Pair::of(&device(ip)?, attribute, Options::default()))
    }

    pub fn of(device: &Device, attribute: Attribute, options: Options) -> Pair {
        let mut client = Endpoint::create(device, options.clone()).unwrap();
        let mut server = Endpoint::create(device, options).unwrap();
        let (to_server, to_client) = connect(&mut client, &mut server, attribute).unwrap();
        Pair { client, server, to_server, to_client }
    }

    /// Passes the events of both sides to `done` until it returns true.
    pub fn run(&mut self, mut done: impl FnMut(&mut Endpoint, &mut Endpoint, Side, Option<Event>) -> bool) {
        let start = Instant::now();
        loop {
            let event = self.client.next_event();
            if done(&mut self.client, &mut self.server, Side::Client, event) {
                return;
            }
            let event = self.server.next_event();
            if done(&mut self.client, &mut self.server, Side::Server, event) {
                return;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "stuck; client {:?} server {:?} {}",
                self.client.counters(),
                self.server.counters(),
                self.client.explain(self.to_server).unwrap_or_default()
            );
        }
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// Connects `client` to `server`, which accepts.
pub(super) fn connect(
    client: &mut Endpoint,
    server: &mut Endpoint,
    attribute: Attribute,
) -> Result<(Connection, Connection), ConnectFailure> {
    let uri = server.uri().to_owned();
    client.connect(&uri, b"hello", attribute, 7, NO_FURTHER).unwrap();
    let (mut ours, mut theirs) = (None, None);
    let start = Instant::now();
    while ours.is_none() || theirs.is_none() {
        match client.next_event() {
            Some(Event::Connect { context, result }) => {
                assert_eq!(context, 7);
                ours = Some(result?);
            }
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => {
                assert_eq!((request.data(), request.attribute()), (&b"hello"[..], attribute));
                server.accept(request, 9).unwrap();
            }
            Some(Event::Accept { context, result }) => {
                assert_eq!(context, 9);
                theirs = Some(result.unwrap());
            }
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        assert!(start.elapsed() < PATIENCE, "{:?} {:?}", client.counters(), server.counters());
    }
    Ok((ours.unwrap(), theirs.unwrap()))
}

/// The message of this number and length.
pub(super) fn fill(number: u64, len: usize) -> Vec<u8> {
    let seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len).map(|at| seed[at % 8] ^ (at / 8) as u8).collect()
}

pub(super) fn check(number: u64, message: &Message) {
    assert_eq!(message.as_ptr().align_offset(8), 0, "8-byte aligned");
    assert!(**message == *fill(number, message.len()), "message {number} of {} bytes", message.len());
}

pub(super) fn is_success(status: Status) {
    assert_eq!(status, Status::Success);
}

/// Checks one event of an exchange from client to server: messages come in order, sends succeed, and nothing else happens.
pub(super) fn note(side: Side, event: Option<Event>, got: &mut u64, done: &mut u64) {
    match (side, event) {
        (Side::Server, Some(Event::Recv(message))) => {
            check(*got, &message);
            *got += 1;
        }
        (Side::Client, Some(Event::Send { status, .. })) => {
            is_success(status);
            *done += 1;
        }
        (_, None) => {}
        (side, other) => panic!("{side:?} {other:?}"),
    }
}
