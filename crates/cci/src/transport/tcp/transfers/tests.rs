//! Peers that lie about, or on, their second stream.

mod closing;
mod deadlines;
mod dialled;
mod every_record;
mod turns;
mod unfinished;

use super::super::preamble::{Preamble, Ticket};
use super::super::wire::{HEADER_BYTES, Header, Kind};
use crate::{
    Access, Attribute, Connection, Context, Endpoint, Event, Memory, Options, RegionAddress, RegionHandle,
    RmaFlags,
};
use cci_secure::{Challenge, Prover};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// As `ordered_rma` writes them.
const WRITE: u8 = 1;
const READ: u8 = 2;
const DATA: u8 = 3;
const DONE: u8 = 7;
const WHERE: u8 = 9;

fn endpoint(options: Options) -> Endpoint {
    let context =
        Context::from_text("[t]\ntransport = tcp\nip = 127.0.0.1\n", Path::new("test.ini")).unwrap();
    Endpoint::create(context.default_device(), options).unwrap()
}

/// A scripted client, and the server's side of its connection.
struct Scene {
    server: Endpoint,
    connection: Connection,
    first: TcpStream,
    at: SocketAddr,
    ticket: Ticket,
    memory: Memory,
    handle: RegionHandle,
}

/// Lets the endpoint work until `done` says so, for no longer than five seconds.
fn until<T>(server: &mut Endpoint, mut done: impl FnMut(&mut Endpoint) -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        server.progress();
        if let Some(found) = done(server) {
            return found;
        }
        assert!(Instant::now() < end, "not in five seconds");
    }
}

/// A part of the handshake that the server says; None: not all of it is there yet.
fn hear(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Preamble> {
    loop {
        let needed = match Preamble::parse(bytes) {
            Ok(received) => return Some(received),
            Err(needed) => needed.expect("the server is honest"),
        };
        let mut more = vec![0; needed - bytes.len()];
        match stream.read(&mut more) {
            Ok(len) => bytes.extend_from_slice(&more[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A scripted client connects.
fn join(server: &mut Endpoint, at: SocketAddr) -> (TcpStream, Ticket, Connection) {
    let mut first = TcpStream::connect(at).unwrap();
    let hello =
        Preamble::Hello { attribute: Attribute::ReliableOrdered, mss: 8192, payload: Some(Vec::new()) };
    first.write_all(&hello.bytes()).unwrap();
    first.set_nonblocking(true).unwrap();
    until(server, |server| match server.next_event() {
        Some(Event::ConnectRequest(request)) => {
            server.accept(request, 7).unwrap();
            Some(())
        }
        _ => None,
    });
    let (mut bytes, mut ticket) = (Vec::new(), None);
    until(server, |_| {
        while let Some(received) = hear(&mut first, &mut bytes) {
            bytes.clear();
            if let Preamble::Accept { ticket: reported, .. } = received {
                ticket = Some(reported);
                break;
            }
        }
        ticket.map(|_| ())
    });
    let confirm = Header { kind: Kind::Confirm, len: 0, ack: 0 };
    first.write_all(&confirm.bytes()).unwrap();
    let connection = until(server, |server| match server.next_event() {
        Some(Event::Accept { result: Ok(connection), .. }) => Some(connection),
        _ => None,
    });
    (first, ticket.unwrap(), connection)
}

/// A second stream of a scripted client. With a key of no connection it is closed.
fn second(server: &mut Endpoint, at: SocketAddr, ticket: Ticket) -> TcpStream {
    let mut second = TcpStream::connect(at).unwrap();
    second.set_nodelay(true).unwrap();
    let nonce = [5; 16];
    second.write_all(&Preamble::Bulk { key: ticket.key, nonce }.bytes()).unwrap();
    second.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    let received =
        until(
            server,
            |_| if is_ended(&second) { Some(None) } else { hear(&mut second, &mut bytes).map(Some) },
        );
    if let Some(Preamble::Challenge { nonce: acceptor, proof }) = received {
        let challenge = Challenge { key: ticket.key, dialler: nonce, acceptor };
        let _ = proof;
        let proof = challenge.prove(&ticket.secret, Prover::Dialler);
        second.write_all(&Preamble::Proof { proof }.bytes()).unwrap();
    }
    second
}

/// The other side has closed, and nothing is left to be read.
fn is_ended(stream: &TcpStream) -> bool {
    stream.peek(&mut [0]).is_ok_and(|len| len == 0)
}

fn scene() -> Scene {
    scene_with(Options { send_timeout: Duration::from_secs(5), ..Options::default() })
}

fn scene_with(options: Options) -> Scene {
    let mut server = endpoint(options);
    let memory = server.allocate(1 << 20).unwrap();
    let handle = server.register(&memory, Access::ALL).unwrap();
    let at: SocketAddr = server.uri().strip_prefix("tcp://").unwrap().parse().unwrap();
    let (first, ticket, connection) = join(&mut server, at);
    Scene { server, connection, first, at, ticket, memory, handle }
}

impl Scene {
    /// Dials a second stream and says what proves that this is the peer.
    fn second(&mut self, ticket: Ticket) -> TcpStream {
        second(&mut self.server, self.at, ticket)
    }

    fn drops(&self, name: &str) -> u64 {
        let drops = self.server.counters().drops;
        drops.iter().find(|drop| drop.name == name).map_or(0, |drop| drop.count)
    }

    fn is_untouched(&self) -> bool {
        let mut bytes = vec![1; 1 << 20];
        self.memory.read(0, &mut bytes) && bytes.iter().all(|&byte| byte == 0)
    }
}

fn record(kind: u8, flags: u8, slot: u16, words: &[u64], tail: &[u8]) -> Vec<u8> {
    let [s0, s1] = slot.to_le_bytes();
    let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let len = (8 + words.len() + tail.len()) as u32;
    [&len.to_le_bytes()[..], &[kind, flags, s0, s1, 0, 0, 0, 0], &words, tail].concat()
}

fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(0) => true,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
        Ok(_) => false,
    }
}

#[test]
fn a_second_stream_needs_the_ticket_and_comes_once() {
    let mut scene = scene();
    let mut secret = scene.ticket.secret;
    secret[7] ^= 1;
    for wrong in [Ticket { secret, ..scene.ticket }, Ticket { key: scene.ticket.key ^ 1, ..scene.ticket }] {
        let mut second = scene.second(wrong);
        until(&mut scene.server, |_| is_closed(&mut second).then_some(()));
    }
    assert_eq!(scene.drops("bad-second-stream"), 2);
    let mut good = scene.second(scene.ticket);
    let address = [scene.handle.region(), scene.handle.key(), 5];
    good.write_all(&record(WRITE, 1, 0, &[address[0], address[1], address[2], 4], &[9; 4])).unwrap();
    let mut answer = [0; 12];
    until(&mut scene.server, |_| (good.peek(&mut answer).is_ok_and(|len| len == 12)).then_some(()));
    assert_eq!(answer[..], record(DONE, 0, 0, &[], &[])[..]);
    let mut again = scene.second(scene.ticket);
    until(&mut scene.server, |_| is_closed(&mut again).then_some(()));
    assert_eq!(scene.drops("bad-second-stream"), 3);
    assert!(scene.server.is_open(scene.connection));
    let mut bytes = [0; 10];
    assert!(scene.memory.read(0, &mut bytes) && bytes == [0, 0, 0, 0, 0, 9, 9, 9, 9, 0]);
}

#[test]
fn lies_on_the_second_stream_cost_that_connection() {
    let mut other = scene();
    let lies = [
        ("a length beyond all", vec![0xff; 8]),
        ("where does it lie", record(WHERE, 0, 0, &[1, 2, 3, 8], &[])),
        ("an answer to nothing", record(DONE, 0, 9, &[], &[])),
        ("data for nothing", record(DATA, 0, 5, &[0], &[1; 100_000])),
        ("a slot that is none", record(READ, 0, 128, &[1, 2, 3, 8], &[])),
        ("more data than the piece", record(WRITE, 0, 0, &[1, 2, 3, 2], &[3; 100_000])),
    ];
    for (what, bytes) in lies {
        let mut scene = scene();
        let mut second = scene.second(scene.ticket);
        let _ = second.write_all(&bytes);
        let connection = scene.connection;
        until(&mut scene.server, |server| (!server.is_open(connection)).then_some(()));
        assert_eq!(scene.drops("bad-record"), 1, "{what}");
        assert!(scene.is_untouched(), "{what}");
    }
    other.server.progress();
    assert!(other.server.is_open(other.connection));
}

#[test]
fn what_is_only_wrong_is_refused_and_read_to_its_end() {
    let mut scene = scene();
    let mut second = scene.second(scene.ticket);
    let forged = [scene.handle.region(), scene.handle.key() ^ 1, 0, 200_000];
    let beyond = [scene.handle.region(), scene.handle.key(), (1 << 20) - 100_000, 200_000];
    let good = [scene.handle.region(), scene.handle.key(), 0, 1];
    let mut bytes = record(WRITE, 1, 0, &forged, &[8; 200_000]);
    bytes.extend(record(WRITE, 1, 1, &beyond, &[8; 200_000]));
    bytes.extend(record(WRITE, 1, 2, &good, &[0]));
    let (mut sent, mut heard) = (0, Vec::new());
    until(&mut scene.server, |_| {
        sent += second.write(&bytes[sent..]).unwrap_or(0);
        let mut some = [0; 64];
        let len = second.read(&mut some).unwrap_or(0);
        heard.extend_from_slice(&some[..len]);
        (heard.len() >= 36).then_some(())
    });
    let expected =
        [record(DONE, 2, 0, &[], &[]), record(DONE, 2, 1, &[], &[]), record(DONE, 0, 2, &[], &[])].concat();
    assert_eq!(heard, expected);
    assert!(scene.is_untouched() && scene.server.is_open(scene.connection));
    assert_eq!(scene.server.counters().rma_refused, 2);
}

#[test]
fn a_second_stream_that_ends_ends_the_connection() {
    let mut scene = scene();
    let second = scene.second(scene.ticket);
    until(&mut scene.server, |server| {
        let text = server.explain(scene.connection).unwrap().to_string();
        text.contains("past the messages").then_some(())
    });
    drop(second);
    let connection = scene.connection;
    until(&mut scene.server, |server| (!server.is_open(connection)).then_some(()));
    until(&mut scene.server, |_| is_closed(&mut scene.first).then_some(()));
}

#[test]
fn the_side_that_accepted_asks_for_the_second_stream() {
    let mut scene = scene();
    let handle = scene.handle;
    let (local, remote) = (RegionAddress::new(handle, 0), RegionAddress::new(handle, 100));
    scene.server.rma_write(scene.connection, local, remote, 8, 0, RmaFlags::NONE).unwrap();
    let mut asked = [0; HEADER_BYTES];
    until(&mut scene.server, |_| (scene.first.read(&mut asked).is_ok_and(|len| len > 0)).then_some(()));
    assert_eq!(Header::parse(asked, 8192).map(|header| header.kind), Ok(Kind::AskBulk));
    let second = scene.second(scene.ticket);
    let mut came = vec![0; 4 + 8 + 32 + 8];
    until(&mut scene.server, |_| (second.peek(&mut came).is_ok_and(|len| len == 52)).then_some(()));
    let words = [handle.region(), handle.key(), 100, 8];
    assert_eq!(came, record(WRITE, 1, 0, &words, &[0; 8]));
}
