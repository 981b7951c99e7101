//! Ends of connections and endpoints (CCI-038, CCI-039, CCI-064).

use super::{RELIABLE, RO};
use crate::conformance::{
    Driver, Environment, Flags, Pair, Port, Refusal, Setup, Side, Skipped, conformance_timeout, connect,
    for_a_while, number_of, pattern,
};
use cci::Status;
use std::time::{Duration, Instant};

/// What was sent before a disconnect is delivered, and every send completes once.
pub fn disconnect_delivers_and_completes_all<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let mut pair = Pair::plain(env, attribute);
        for number in 0..50 {
            let sent = pair.client.port.send(pair.to_server, &pattern(number, 400), number, Flags::default());
            sent.expect("room for 50");
        }
        pair.client.port.disconnect(pair.to_server);
        pair.until("everything sent before", |client, server| {
            client.sent.len() == 50 && server.inbox.len() == 50
        });
        for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(30));
        let mut contexts = pair.client.contexts();
        let mut numbers: Vec<u64> =
            pair.server.inbox.iter().map(|(_, message)| number_of(message.as_ref())).collect();
        if attribute != RO {
            contexts.sort_unstable();
            numbers.sort_unstable();
        }
        let all: Vec<u64> = (0..50).collect();
        assert_eq!((contexts, numbers), (all.clone(), all), "each once");
        assert!(pair.client.statuses().iter().all(|status| *status == Status::Success));
    }
}

/// Sends until the peer's end is noticed; every send that was taken completes once.
fn send_until_refused<D: Driver>(pair: &mut Pair<D>) {
    let patience = Instant::now() + conformance_timeout();
    let mut taken = 0;
    loop {
        assert!(Instant::now() < patience, "the peer is gone and sends are still taken");
        match pair.client.port.send(pair.to_server, &pattern(taken, 30), taken, Flags::default()) {
            Ok(()) => taken += 1,
            Err(Refusal::Closed) => break,
            Err(Refusal::WouldBlock) => {}
            Err(other) => panic!("{other:?}"),
        }
        pair.client.poll();
        pair.server.poll();
    }
    pair.until("an end of each send", |client, _| client.sent.len() == taken as usize);
    pair.client.settle();
    let mut contexts = pair.client.contexts();
    contexts.sort_unstable();
    assert_eq!(contexts, (0..taken).collect::<Vec<_>>(), "each send completes once");
    let bad = |status: &&Status| !matches!(status, Status::Success | Status::Disconnected);
    assert_eq!(pair.client.statuses().iter().find(bad), None);
}

/// After a disconnect the other side's sends fail, soon, and completions stay exact.
pub fn peer_learns_at_its_next_send<D: Driver>(env: &Environment<D>) {
    for attribute in super::ATTRIBUTES {
        let mut pair = Pair::plain(env, attribute);
        pair.server.port.disconnect(pair.to_client);
        if attribute.is_reliable() {
            send_until_refused(&mut pair);
        } else {
            let patience = Instant::now() + conformance_timeout();
            while pair.client.port.send(pair.to_server, b"anyone?", 0, Flags::default())
                != Err(Refusal::Closed)
            {
                assert!(Instant::now() < patience, "the peer is gone and sends are still taken");
                pair.client.poll();
                pair.server.poll();
            }
        }
        pair.client.port.disconnect(pair.to_server);
        pair.server.inbox.clear();
        // Both go on with other connections.
        let (to_server, _) = connect(&mut pair.client, &mut pair.server, attribute);
        assert!(pair.client.port.max_send_size(to_server) > 0);
        pair.part();
    }
}

/// The last message before a disconnect arrives, although nobody polls the sender for long.
pub fn last_message_before_disconnect_arrives<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        for round in 0..env.rounds(20) as u64 {
            let mut pair = Pair::plain(env, attribute);
            pair.server.port.send(pair.to_client, &pattern(round, 77), 0, Flags::default()).expect("room");
            pair.server.port.disconnect(pair.to_client);
            pair.until("the last message", |client, _| !client.inbox.is_empty());
            let (from, message) = pair.client.inbox.pop_front().expect("just seen");
            assert_eq!((from, number_of(message.as_ref())), (pair.to_server, round));
            // Who hears that the other has gone does not wait for it.
            for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(5));
            pair.part();
        }
    }
}

/// Both sides disconnect with messages under way in both directions: each send completes once.
pub fn both_disconnect_at_once<D: Driver>(env: &Environment<D>) {
    let setup = Setup { send_timeout: Duration::from_secs(3), ..Setup::default() };
    for attribute in RELIABLE {
        let mut pair = Pair::open(env, attribute, &setup);
        for number in 0..20 {
            pair.client
                .port
                .send(pair.to_server, &pattern(number, 900), number, Flags::default())
                .expect("room");
            pair.server
                .port
                .send(pair.to_client, &pattern(number, 900), number, Flags::default())
                .expect("room");
        }
        pair.client.port.disconnect(pair.to_server);
        pair.server.port.disconnect(pair.to_client);
        pair.until("an end of each send", |client, server| {
            client.sent.len() == 20 && server.sent.len() == 20
        });
        for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(30));
        for side in [&pair.client, &pair.server] {
            let mut contexts = side.contexts();
            contexts.sort_unstable();
            assert_eq!(contexts, (0..20).collect::<Vec<_>>(), "each once");
        }
        let (to_server, _) = connect(&mut pair.client, &mut pair.server, RO);
        assert!(pair.client.port.max_send_size(to_server) > 0);
        pair.part();
    }
}

/// An endpoint goes away with messages under way: it takes a moment at most, and the peer's sends end.
pub fn destroy_with_traffic_in_flight<D: Driver>(env: &Environment<D>) {
    let setup = Setup { send_timeout: Duration::from_secs(2), ..Setup::default() };
    let Pair { mut client, mut server, to_server, to_client } = Pair::<D>::open(env, RO, &setup);
    for number in 0..100 {
        client.port.send(to_server, &pattern(number, 500), number, Flags::default()).expect("room");
        server.port.send(to_client, &pattern(number, 500), number, Flags::default()).expect("room");
    }
    let started = Instant::now();
    drop(client);
    assert!(started.elapsed() < Duration::from_secs(5), "destroying took {:?}", started.elapsed());
    let patience = Instant::now() + conformance_timeout();
    let mut taken = 100;
    loop {
        assert!(Instant::now() < patience, "the peer is gone and sends are still taken");
        server.poll();
        match server.port.send(to_client, &pattern(taken, 30), taken, Flags::default()) {
            Ok(()) => taken += 1,
            Err(Refusal::Closed) => break,
            Err(Refusal::WouldBlock) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    while server.sent.len() < taken as usize {
        assert!(Instant::now() < patience, "{} of {taken} sends ended", server.sent.len());
        server.poll();
    }
    let numbers: Vec<u64> = server.inbox.drain(..).map(|(_, message)| number_of(message.as_ref())).collect();
    assert_eq!(
        numbers,
        (0..numbers.len() as u64).collect::<Vec<_>>(),
        "in order, without a gap, up to some point"
    );
    let mut contexts = server.contexts();
    contexts.sort_unstable();
    assert_eq!(contexts, (0..taken).collect::<Vec<_>>(), "each once");
    // The survivor goes on.
    let mut next = Side::open(env, &setup);
    let (to_server, _) = connect(&mut next, &mut server, RO);
    next.send(&mut server, to_server, &pattern(5, 5), 0);
}

/// The handle of a closed connection is refused, also when its place in the table is in use again.
pub fn stale_handles_are_refused<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    if !D::STALE_HANDLES_ARE_REFUSED {
        return Err(Skipped("handles are pointers, which may not be used after their end".to_owned()));
    }
    let mut pair = Pair::plain(env, RO);
    let stale = pair.to_server;
    pair.client.port.disconnect(stale);
    let refused = pair.client.port.send(stale, b"x", 0, Flags::default());
    assert_eq!(refused, Err(Refusal::Closed), "at once");
    for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(20));
    for _ in 0..5 {
        let (to_server, _) = connect(&mut pair.client, &mut pair.server, RO);
        assert_ne!(to_server, stale);
        assert_eq!(pair.client.port.send(stale, b"x", 0, Flags::default()), Err(Refusal::Closed));
        pair.client.port.disconnect(stale);
        pair.client.send(&mut pair.server, to_server, &pattern(1, 20), 0);
        pair.until("a message on the living one", |_, server| !server.inbox.is_empty());
        pair.server.inbox.clear();
        pair.client.port.disconnect(to_server);
    }
    Ok(())
}

/// A hundred connections one after the other leave nothing behind.
pub fn connects_again_and_again<D: Driver>(env: &Environment<D>) {
    let (mut client, mut server): (Side<D>, Side<D>) = (Side::plain(env), Side::server(env));
    let mut memory_after_ten = (0, 0);
    for round in 0..100 {
        let (to_server, to_client) = connect(&mut client, &mut server, RO);
        client.send(&mut server, to_server, &pattern(round, 100), round);
        crate::conformance::until(&mut client, &mut server, "the message", |client, server| {
            client.sent.len() > round as usize && !server.inbox.is_empty()
        });
        let (_, message) = server.inbox.pop_front().expect("just seen");
        assert_eq!(number_of(message.as_ref()), round);
        if round % 2 == 0 {
            client.port.disconnect(to_server);
            server.port.disconnect(to_client);
        } else {
            server.port.disconnect(to_client);
            client.port.disconnect(to_server);
        }
        if round == 10 {
            memory_after_ten = (client.port.counts().memory_bytes, server.port.counts().memory_bytes);
        }
    }
    for_a_while(&mut client, &mut server, Duration::from_millis(200));
    for (side, memory_before) in [(&client, memory_after_ten.0), (&server, memory_after_ten.1)] {
        let counts = side.port.counts();
        assert_eq!(counts.connections_open, 0);
        let slack = 256 * 1024;
        assert!(
            counts.memory_bytes <= memory_before + slack,
            "{} bytes after 100 connections, {memory_before} after ten",
            counts.memory_bytes
        );
    }
}
