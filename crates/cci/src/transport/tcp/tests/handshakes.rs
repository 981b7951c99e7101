//! Scripted handshakes: what the program learns, and when, and what becomes of peers that speak another version.

use super::hostile::{RO, dial, record};
use super::{PATIENCE, dropped, endpoint, until};
use crate::transport::tcp::preamble::Preamble;
use crate::transport::tcp::wire::Kind;
use crate::{Endpoint, Event, Options};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// So many bytes of what the server says.
fn heard(server: &mut Endpoint, stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let (start, mut bytes) = (Instant::now(), Vec::new());
    while bytes.len() < len {
        assert!(start.elapsed() < PATIENCE, "{bytes:?}");
        server.progress();
        let mut some = vec![0; len - bytes.len()];
        match stream.read(&mut some) {
            Ok(0) => return bytes,
            Ok(got) => bytes.extend_from_slice(&some[..got]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    bytes
}

fn announced() -> Vec<u8> {
    Preamble::Hello { attribute: RO, mss: 8192, payload: None }.bytes()
}

/// A client with several ways to this endpoint settles on one first: only then the program hears of it.
#[test]
fn a_request_that_was_announced_is_shown_when_it_comes() {
    let mut server = endpoint(Options::default());
    let mut gone = dial(&server);
    gone.write_all(&announced()).unwrap();
    assert_eq!(heard(&mut server, &mut gone, 8), Preamble::Heard.bytes());
    drop(gone);
    let mut stays = dial(&server);
    stays.write_all(&announced()).unwrap();
    assert_eq!(heard(&mut server, &mut stays, 8), Preamble::Heard.bytes());
    for _ in 0..50 {
        assert!(server.next_event().is_none(), "nothing was asked for yet");
    }
    let request = Preamble::Request { payload: b"for you".to_vec() };
    stays.write_all(&request.bytes()).unwrap();
    until(&mut server, |server, event| match event {
        Some(Event::ConnectRequest(request)) => {
            assert_eq!(request.data(), b"for you");
            server.accept(request, 3).unwrap();
            true
        }
        _ => false,
    });
    let accept = heard(&mut server, &mut stays, 40);
    assert!(matches!(Preamble::parse(&accept), Ok(Preamble::Accept { .. })), "{accept:?}");
    stays.write_all(&record(Kind::Confirm, 0, b"")).unwrap();
    until(&mut server, |_, event| matches!(event, Some(Event::Accept { result: Ok(_), .. })));
}

/// What does not belong where it is said.
#[test]
fn parts_out_of_turn_are_faults() {
    let request = || Preamble::Request { payload: b"for you".to_vec() }.bytes();
    let turns = [
        request(),
        Preamble::Proof { proof: [1; 32] }.bytes(),
        Preamble::Challenge { nonce: [1; 16], proof: [1; 32] }.bytes(),
        [announced(), announced()].concat(),
        [announced(), Preamble::Bulk { key: 1, nonce: [1; 16] }.bytes()].concat(),
    ];
    let mut server = endpoint(Options::default());
    for (at, bytes) in turns.into_iter().enumerate() {
        let mut stream = dial(&server);
        stream.write_all(&bytes).unwrap();
        until(&mut server, |server, event| {
            assert!(event.is_none());
            dropped(server, "bad-handshake") == at as u64 + 1
        });
    }
}

/// A peer of the version before this one gets the version that is spoken here, on either stream.
#[test]
fn an_older_peer_is_told_the_version() {
    let mut server = endpoint(Options::default());
    let hello = b"CCIt\x01\x01\0\0\0\x20\0\0\x02\0\0\0hi";
    let bulk = [&b"CCIt\x02\x01\0\0"[..], &[7; 24]].concat();
    for received in [&hello[..], &bulk] {
        let mut stream = dial(&server);
        stream.write_all(received).unwrap();
        let answer = heard(&mut server, &mut stream, 16);
        assert_eq!(answer, b"CCIt\x05\x02\0\0\x02\x02\0\0\0\0\0\0");
        assert_eq!(heard(&mut server, &mut stream, 1), b"", "and closed");
    }
}

/// A client that was accepted and confirms nothing is given up; so is one that never says what it wants.
#[test]
fn who_does_not_go_on_is_given_up() {
    let mut server = endpoint(Options { send_timeout: Duration::from_millis(10), ..Options::default() });
    let mut mute = dial(&server);
    mute.write_all(&announced()).unwrap();
    let mut accepted = dial(&server);
    accepted.write_all(&super::hostile::hello()).unwrap();
    until(&mut server, |server, event| match event {
        Some(Event::ConnectRequest(request)) => {
            server.accept(request, 3).unwrap();
            true
        }
        _ => false,
    });
    until(&mut server, |_, event| match event {
        Some(Event::Accept { context: 3, result }) => {
            assert_eq!(result.err(), Some(crate::ConnectFailure::TimedOut));
            true
        }
        _ => false,
    });
    until(&mut server, |server, _| dropped(server, "silent-client") == 1);
}
