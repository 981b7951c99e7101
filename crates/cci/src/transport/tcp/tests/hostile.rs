//! Peers that are no endpoints.

use super::{PATIENCE, address, connect, counted, dropped, endpoint, until};
use crate::transport::tcp::preamble::Preamble;
use crate::transport::tcp::wire::{Header, Kind};
use crate::{Attribute, ConnectFailure, Endpoint, Event, Options, SendFlags};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

pub(super) const RO: Attribute = Attribute::ReliableOrdered;

pub(super) fn dial(server: &Endpoint) -> TcpStream {
    let stream = TcpStream::connect(address(server)).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
    stream
}

pub(super) fn hello() -> Vec<u8> {
    Preamble::Hello { attribute: RO, mss: 8192, payload: Some(b"hi".to_vec()) }.bytes()
}

pub(super) fn record(kind: Kind, ack: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Header { kind, len: payload.len() as u16, ack }.bytes().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

/// A connection of which one end is ours, byte by byte.
pub(super) fn accepted(server: &mut Endpoint) -> TcpStream {
    let mut stream = dial(server);
    stream.write_all(&hello()).unwrap();
    until(server, |server, event| match event {
        Some(Event::ConnectRequest(request)) => {
            server.accept(request, 3).unwrap();
            true
        }
        _ => false,
    });
    let mut answer = vec![0; Preamble::Heard.bytes().len() + 40];
    stream.read_exact(&mut answer).unwrap();
    stream.write_all(&record(Kind::Confirm, 0, b"")).unwrap();
    until(server, |_, event| matches!(event, Some(Event::Accept { result: Ok(_), .. })));
    stream
}

/// Whether the other side has closed, within some time.
fn is_closed(server: &mut Endpoint, stream: &mut TcpStream) -> bool {
    let start = Instant::now();
    let mut buffer = [0; 4096];
    while start.elapsed() < PATIENCE / 4 {
        server.progress();
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return true,
            Err(_) => {}
        }
    }
    false
}

#[test]
fn what_is_no_handshake_is_cut_off_and_counted() {
    let mut server = endpoint(Options::default());
    let mut wrong_version = hello();
    wrong_version[5] = 9;
    let nonsense: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0; 64],
        b"CCIt\x0a\x02\0\0........",
        b"CCIt\x01\x02\0\0\xff\xff\xff\xff\xff\xff\x00\x00",
    ];
    for (at, bytes) in nonsense.into_iter().enumerate() {
        let mut stream = dial(&server);
        stream.write_all(bytes).unwrap();
        assert!(is_closed(&mut server, &mut stream), "number {at}");
        assert_eq!(dropped(&server, "bad-handshake"), at as u64 + 1);
    }
    let mut stream = dial(&server);
    stream.write_all(&wrong_version).unwrap();
    server.progress();
    assert!(is_closed(&mut server, &mut stream), "it gets the version, and the stream is closed");
    // A second stream for a connection that there is not.
    let mut stream = dial(&server);
    stream.write_all(&Preamble::Bulk { key: 1 << 32, nonce: [1; 16] }.bytes()).unwrap();
    assert!(is_closed(&mut server, &mut stream));
    assert_eq!(dropped(&server, "bad-second-stream"), 1);
}

#[test]
fn a_peer_that_lies_loses_its_connection_and_no_other() {
    let (mut client, mut server) = (endpoint(Options::default()), endpoint(Options::default()));
    let (to_server, _) = connect(&mut client, &mut server, RO).unwrap();
    let lies = [
        record(Kind::Ack, 1, b""),
        record(Kind::NotReady, 0, b""),
        record(Kind::Ready, 0, &1u32.to_le_bytes()),
        record(Kind::Resume, 0, b""),
        record(Kind::AskBulk, 0, b""),
        record(Kind::Ready, 0, b"12"),
        record(Kind::Message, 0, &[0; 8193]),
        vec![0, 0, 77, 0, 0, 0, 0, 0],
        vec![0, 0, 2, 1, 0, 0, 0, 0],
    ];
    for (at, lie) in lies.iter().enumerate() {
        let mut stream = accepted(&mut server);
        stream.write_all(&record(Kind::Message, 0, b"honest so far")).unwrap();
        until(&mut server, |_, event| matches!(event, Some(Event::Recv(_))));
        stream.write_all(lie).unwrap();
        assert!(is_closed(&mut server, &mut stream), "lie {at}");
        assert_eq!(dropped(&server, "bad-record"), at as u64 + 1);
    }
    client.send(to_server, b"still here", 0, SendFlags::SILENT).unwrap();
    until(&mut server, |_, event| matches!(event, Some(Event::Recv(message)) if *message == *b"still here"));
}

/// A message comes byte by byte, and in pieces of every size.
#[test]
fn records_may_be_cut_anywhere() {
    let mut server = endpoint(Options::default());
    let mut stream = accepted(&mut server);
    let messages: Vec<Vec<u8>> = (0..60u8).map(|number| vec![number; usize::from(number) * 130]).collect();
    let bytes: Vec<u8> = messages.iter().flat_map(|message| record(Kind::Message, 0, message)).collect();
    let (mut got, mut at, mut seed) = (0, 0, 1u32);
    while got < messages.len() {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let len = (seed >> 20) as usize % if at < 600 { 2 } else { 3000 } + 1;
        let part = &bytes[at..(at + len).min(bytes.len())];
        stream.write_all(part).unwrap();
        at += part.len();
        for _ in 0..3 {
            if let Some(Event::Recv(message)) = server.next_event() {
                assert!(*message == *messages[got], "message {got}");
                got += 1;
            }
        }
    }
    assert_eq!(dropped(&server, "bad-record"), 0);
}

/// Asks for answers and reads none of them: held to a bound, then cut off.
#[test]
fn answers_that_are_not_read_pile_up_to_a_bound() {
    let mut server = endpoint(Options::default());
    let mut stream = accepted(&mut server);
    stream.set_write_timeout(Some(Duration::from_millis(5))).unwrap();
    let pings: Vec<u8> = (0..4096).flat_map(|_| record(Kind::Ping, 0, b"")).collect();
    let before = server.counters().memory.total_bytes;
    let start = Instant::now();
    while dropped(&server, "answers-not-read") == 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", server.counters());
        let _ = stream.write(&pings);
        server.progress();
        assert!(server.counters().memory.total_bytes < before + (1 << 20));
    }
}

/// More silent clients than are let in: who has something to say gets in all the same.
#[test]
fn silent_clients_do_not_keep_others_out() {
    let (mut client, mut server) = (endpoint(Options::default()), endpoint(Options::default()));
    let mut silent = Vec::new();
    for _ in 0..super::super::handshakes::CLIENTS_MAX + 20 {
        silent.push(dial(&server));
        server.progress();
    }
    let mut half = dial(&server);
    half.write_all(&hello()[..11]).unwrap();
    connect(&mut client, &mut server, RO).unwrap();
    assert!(dropped(&server, "silent-client") > 0);
    // The bound holds: handshakes take no more memory than so many.
    assert!(counted(&server, "requests_received") == 1);
}

/// A server that is none of ours.
#[test]
fn servers_that_are_no_endpoints_end_the_attempt() {
    let mut client = endpoint(Options::default());
    let mut version = Preamble::OtherHello.bytes();
    (version[8], version[9]) = (3, 4);
    let answers: [(Vec<u8>, Option<ConnectFailure>); 5] = [
        (b"220 mail.example ESMTP\r\n".to_vec(), Some(ConnectFailure::Disconnected)),
        (Vec::new(), Some(ConnectFailure::Disconnected)),
        (version, Some(ConnectFailure::Version { theirs: 4 })),
        (Preamble::Reject { no_memory: true }.bytes(), Some(ConnectFailure::NoMemory)),
        ([Preamble::Heard.bytes(), Preamble::Heard.bytes()].concat(), Some(ConnectFailure::Disconnected)),
    ];
    for (answer, expected) in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("tcp://{}", listener.local_addr().unwrap());
        client.connect(&uri, b"", RO, 1, Some(PATIENCE)).unwrap();
        let mut reported = None;
        let (mut stream, _) = listener.accept().unwrap();
        let mut taken = [0; 16];
        client.progress();
        stream.read_exact(&mut taken).unwrap();
        stream.write_all(&answer).unwrap();
        drop(stream);
        until(&mut client, |_, event| {
            if let Some(Event::Connect { result, .. }) = event {
                reported = result.err();
                return true;
            }
            false
        });
        assert_eq!(reported, expected, "{answer:?}");
    }
}
