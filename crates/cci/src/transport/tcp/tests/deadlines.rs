//! Peers that go on talking and never let anything end.

use super::hostile::{RO, record};
use super::{PATIENCE, endpoint, until};
use crate::transport::tcp::preamble::{Preamble, Ticket};
use crate::transport::tcp::wire::{HEADER_BYTES, Header, Kind};
use crate::{Connection, Endpoint, Event, Options, SendFlags, Status};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const SEND_TIMEOUT: Duration = Duration::from_millis(150);
/// How long the peer keeps each message before it refuses it.
const PACE: Duration = Duration::from_millis(15);
/// Refusals within four send timeouts.
const ROUNDS_MAX: u32 = 40;

/// An endpoint whose peer is a stream of the test's, after an honest handshake.
fn dialled() -> (Endpoint, Connection, TcpStream) {
    let mut client = endpoint(Options { send_timeout: SEND_TIMEOUT, ..Options::default() });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    client.connect(&format!("tcp://{at}"), b"", RO, 1, Some(PATIENCE)).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    client.progress();
    stream.read_exact(&mut [0; 16]).unwrap();
    let ticket = Ticket { key: 7, secret: [7; 16] };
    stream
        .write_all(
            &[Preamble::Heard.bytes(), Preamble::Accept { mss: 8192, port: at.port(), ticket }.bytes()]
                .concat(),
        )
        .unwrap();
    let mut connection = None;
    until(&mut client, |_, event| {
        if let Some(Event::Connect { result, .. }) = event {
            connection = Some(result.unwrap());
        }
        connection.is_some()
    });
    stream.set_nonblocking(true).unwrap();
    (client, connection.unwrap(), stream)
}

/// The records that have come, without what messages say. None: the stream has ended.
fn heard(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Vec<Kind>> {
    let mut some = [0; 4096];
    match stream.read(&mut some) {
        Ok(0) => return None,
        Ok(len) => bytes.extend_from_slice(&some[..len]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(_) => return None,
    }
    let mut kinds = Vec::new();
    while let Some(header) = bytes.first_chunk::<HEADER_BYTES>() {
        let header = Header::parse(*header, 8192).unwrap();
        let len = HEADER_BYTES + usize::from(header.len);
        if bytes.len() < len {
            break;
        }
        bytes.drain(..len);
        kinds.push(header.kind);
    }
    Some(kinds)
}

/// A peer that refuses each message after a while, and asks for it again in the same breath.
#[derive(Default)]
struct Refuser {
    bytes: Vec<u8>,
    since: Option<Instant>,
    rounds: u32,
}

impl Refuser {
    /// Returns false if the stream has ended.
    fn go_on(&mut self, stream: &mut TcpStream) -> bool {
        let Some(kinds) = heard(stream, &mut self.bytes) else { return false };
        if kinds.contains(&Kind::Message) {
            self.since = Some(Instant::now());
        }
        if self.since.is_some_and(|since| since.elapsed() >= PACE) {
            let again = [record(Kind::NotReady, 0, b""), record(Kind::Ready, 0, &1u32.to_le_bytes())];
            let _ = stream.write_all(&again.concat());
            (self.since, self.rounds) = (None, self.rounds + 1);
        }
        true
    }
}

#[test]
fn not_ready_and_ready_in_turn_do_not_keep_a_send() {
    let (mut client, connection, mut stream) = dialled();
    client.send(connection, b"take it", 5, SendFlags::NONE).unwrap();
    let (mut peer, mut status) = (Refuser::default(), None);
    while status.is_none() {
        assert!(peer.rounds < ROUNDS_MAX, "still under way: {:?}", client.counters());
        if let Some(Event::Send { context: 5, status: with, .. }) = client.next_event() {
            status = Some(with);
        }
        peer.go_on(&mut stream);
    }
    assert!(peer.rounds > 1, "refused, and asked for again");
    assert!(matches!(status, Some(Status::TimedOut | Status::ReceiverNotReady)), "{status:?}");
}

/// The program disconnects meanwhile: the connection ends, and its stream.
#[test]
fn not_ready_and_ready_in_turn_do_not_keep_a_disconnect() {
    let (mut client, connection, mut stream) = dialled();
    client.send(connection, b"take it", 5, SendFlags::NONE).unwrap();
    client.disconnect(connection);
    let mut peer = Refuser::default();
    while peer.go_on(&mut stream) {
        assert!(peer.rounds < ROUNDS_MAX, "still under way: {:?}", client.counters());
        let _ = client.next_event();
    }
    assert!(peer.rounds > 1, "refused, and asked for again");
}
