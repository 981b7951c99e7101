//! Messages that handlers are lent: in bursts, in parts, and up to the end of a connection.

use super::hostile::{RO, accepted, record};
use super::{PATIENCE, connect, dropped, endpoint, until};
use crate::transport::lend_tests::{self, numbered, send};
use crate::transport::tcp::wire::Kind;
use crate::{Connection, Endpoint, Event, Options, Polled, SendFlags};
use std::io::Write;
use std::time::Instant;

/// Two endpoints and a connection from the first to the second.
fn pair() -> (Endpoint, Endpoint, Connection) {
    let (mut client, mut server) = (endpoint(Options::default()), endpoint(Options::default()));
    let (to_server, _) = connect(&mut client, &mut server, RO).unwrap();
    (client, server, to_server)
}

#[test]
fn what_a_handler_does_not_get_comes_next_and_in_order() {
    lend_tests::what_a_handler_does_not_get_comes_next_and_in_order(pair);
}

#[test]
fn the_end_comes_behind_all_messages() {
    for leaves in [true, false] {
        lend_tests::the_end_comes_behind_all_messages(pair(), leaves);
    }
}

/// A program that disconnects gets nothing more of what was read before.
#[test]
fn nothing_is_lent_after_a_disconnect() {
    let (mut client, mut server) = (endpoint(Options::default()), endpoint(Options::default()));
    let (to_server, to_client) = connect(&mut client, &mut server, RO).unwrap();
    // A poll that asks the kernel queues what it reports instead, and those messages come after all. Such rounds are repeated.
    let (mut sent, mut next, start) = (0, 0, Instant::now());
    loop {
        send(&mut client, to_server, sent..sent + 100);
        sent += 100;
        let before = next;
        while next == before {
            assert!(start.elapsed() < PATIENCE, "{next}: {:?}", server.counters());
            client.progress();
            next += server.poll(1, |_| {}) as u64;
        }
        if server.counters().messages_received == next {
            break;
        }
        until(&mut server, |_, event| {
            next += u64::from(matches!(event, Some(Event::Recv(_))));
            next == sent
        });
    }
    server.disconnect(to_client);
    until(&mut client, |_, event| matches!(event, Some(Event::Disconnected { .. })));
    for _ in 0..200 {
        server.poll(9, |polled| assert!(matches!(polled, Polled::Event(_)), "{polled:?}"));
    }
}

/// Bytes may come one by one, and a record of nonsense behind good ones: these come first.
#[test]
fn a_peer_that_writes_bytes_one_by_one_and_then_nonsense() {
    let mut server = endpoint(Options::default());
    let mut stream = accepted(&mut server);
    stream.set_nodelay(true).unwrap();
    let (mut next, mut ended) = (0, false);
    let mut poll = |server: &mut Endpoint, ended: &mut bool| {
        server.poll(64, |polled| match polled {
            Polled::Message(message) => {
                assert_eq!(*message, numbered(next));
                next += 1;
            }
            Polled::Event(Event::Disconnected { .. }) => *ended = true,
            Polled::Event(other) => panic!("{other:?}"),
        });
        next
    };
    for number in 0..4 {
        for byte in record(Kind::Message, 0, &numbered(number)) {
            stream.write_all(&[byte]).unwrap();
            poll(&mut server, &mut ended);
        }
    }
    let mut bytes: Vec<u8> = (4..60).flat_map(|number| record(Kind::Message, 0, &numbered(number))).collect();
    // It has taken nothing, so nobody can acknowledge a message.
    bytes.extend_from_slice(&record(Kind::Message, 7, b"nonsense"));
    bytes.extend_from_slice(&record(Kind::Message, 0, &numbered(60)));
    stream.write_all(&bytes).unwrap();
    let start = Instant::now();
    while !ended {
        assert!(start.elapsed() < PATIENCE, "{:?}", server.counters());
        poll(&mut server, &mut ended);
    }
    assert_eq!(poll(&mut server, &mut ended), 60);
    assert_eq!(dropped(&server, "bad-record"), 1);
}

/// A peer that sends more than a handler takes in each call keeps no other peer waiting.
#[test]
fn each_connection_has_its_turn() {
    let mut server = endpoint(Options::default());
    let [mut busy, mut quiet] = [endpoint(Options::default()), endpoint(Options::default())];
    let (from_busy, on_busy) = connect(&mut busy, &mut server, RO).unwrap();
    let (from_quiet, on_quiet) = connect(&mut quiet, &mut server, RO).unwrap();
    let message = [7; 16];
    let burst = [message.as_slice(); 32];
    let (mut of_quiet, mut of_busy, start) = (0, 0, Instant::now());
    for round in 0..20 {
        quiet.send(from_quiet, &message, round, SendFlags::SILENT).unwrap();
        let before = of_busy;
        while of_quiet <= round {
            assert!(start.elapsed() < PATIENCE, "{of_quiet} and {of_busy}: {:?}", server.counters());
            assert!(of_busy - before < 50_000, "the busy peer has all turns");
            let _ = busy.send_burst(from_busy, &burst, 1, SendFlags::SILENT);
            busy.progress();
            quiet.progress();
            server.poll(16, |polled| {
                let Polled::Message(message) = polled else { panic!("{polled:?}") };
                match message.connection() {
                    connection if connection == on_busy => of_busy += 1,
                    connection if connection == on_quiet => of_quiet += 1,
                    other => panic!("{other:?}"),
                }
            });
        }
    }
}
