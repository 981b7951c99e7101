//! What a program hears of connections that it did not end itself.

use super::{ATTRIBUTES, RELIABLE, RO};
use crate::conformance::{
    Area, Conn, Driver, Environment, Flags, Pair, Port, Refusal, Setup, Side, Skipped, Whose,
    conformance_timeout, connect, for_a_while, pattern, until,
};
use cci::{Access, DisconnectReason, Rma, RmaFlags, RmaKind, Status};
use std::time::{Duration, Instant};

/// The ordinary setup of a program that wants to hear of it.
fn listening() -> Setup {
    Setup { reports_disconnected: true, ..Setup::default() }
}

/// What is left of a connection whose end was reported: nothing where the handle goes with the event, and nothing after a
/// disconnect elsewhere.
fn is_over<D: Driver>(side: &mut Side<D>, connection: Conn<D>) {
    let refused = side.port.send(connection, b"anyone?", 0, Flags::default());
    assert_eq!(refused, Err(Refusal::Closed));
    side.port.disconnect(connection);
}

/// A peer disconnects, or its endpoint goes: the program hears once who it was and why, behind the last message and the last
/// completion.
pub fn told_once_behind_the_last_message<D: Driver>(env: &Environment<D>) {
    const MESSAGES: u64 = 40;
    for goes in [false, true] {
        for attribute in ATTRIBUTES {
            let mut pair = Pair::open(env, attribute, &listening());
            for number in 0..MESSAGES {
                pair.client
                    .port
                    .send(pair.to_server, &pattern(number, 300), number, Flags::default())
                    .unwrap();
            }
            let answers = if attribute.is_reliable() { 5 } else { 0 };
            for number in 0..answers {
                pair.server
                    .port
                    .send(pair.to_client, &pattern(number, 300), number, Flags::default())
                    .unwrap();
            }
            let Pair { mut client, mut server, to_server, to_client } = pair;
            if goes {
                // Nobody drives the server while the client's endpoint ends.
                until(&mut client, &mut server, "an end of every send", |client, server| {
                    client.sent.len() == MESSAGES as usize && server.sent.len() == answers as usize
                });
            }
            let mut client = Some(client);
            if goes {
                client = None;
            } else if let Some(client) = &mut client {
                client.port.disconnect(to_server);
            }
            let patience = Instant::now() + conformance_timeout();
            while server.disconnected.is_empty() {
                assert!(Instant::now() < patience, "{attribute:?}: no event says that the client has left");
                server.poll();
                client.iter_mut().for_each(|client| _ = client.poll());
            }
            assert_eq!(server.sent.len(), answers as usize, "every completion comes first");
            let came = server.inbox.len();
            if attribute.is_reliable() {
                assert!(came == MESSAGES as usize, "{attribute:?}: {came} messages came first");
            }
            assert_eq!(server.disconnected, [(to_client, 0, DisconnectReason::Closed)], "{attribute:?}");
            assert_eq!(server.port.counts().connections_open, 0);
            is_over(&mut server, to_client);
            let quiet_until = Instant::now() + Duration::from_millis(30);
            while Instant::now() < quiet_until {
                server.poll();
                client.iter_mut().for_each(|client| _ = client.poll());
            }
            assert_eq!(
                (server.disconnected.len(), server.inbox.len()),
                (1, came),
                "once, and nothing behind it"
            );
            if let Some(client) = client {
                assert_eq!(client.disconnected, [], "it has disconnected itself");
            }
        }
    }
}

/// A program that disconnects itself gets no event, also where the peer was faster and the event waits already.
pub fn own_disconnects_are_not_told<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let mut pair = Pair::open(env, attribute, &listening());
        pair.client.send(&mut pair.server, pair.to_server, &pattern(1, 50), 0);
        pair.client.port.disconnect(pair.to_server);
        // The message is taken, and the end of the connection behind it is not.
        pair.until("the message", |_, server| !server.inbox.is_empty());
        pair.server.port.disconnect(pair.to_client);
        for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(50));
        assert_eq!((pair.server.disconnected.len(), pair.client.disconnected.len()), (0, 0), "{attribute:?}");
        let (server, client) = (pair.server.port.counts(), pair.client.port.counts());
        assert_eq!((server.connections_open, client.connections_open), (0, 0));
    }
}

/// A program that did not ask sees nothing new: no event, and a refusal of what it sends.
pub fn who_did_not_ask_is_not_told<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    if D::DISCONNECTED_HANDLES_GO {
        return Err(Skipped("every program gets the event".to_owned()));
    }
    let mut pair = Pair::plain(env, RO);
    pair.client.port.disconnect(pair.to_server);
    for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(100));
    assert_eq!(pair.server.disconnected, []);
    is_over(&mut pair.server, pair.to_client);
    Ok(())
}

/// A thousand clients come and go: the server hears of each, and is left with nothing, without a call of its own.
pub fn a_thousand_short_lived_clients<D: Driver>(env: &Environment<D>) {
    let clients = env.rounds(1_000);
    let mut server: Side<D> = Side::open_server(env, &listening());
    let mut client: Side<D> = Side::plain(env);
    let mut memory_after_some = 0;
    for number in 0..clients {
        let (to_server, to_client) = connect(&mut client, &mut server, ATTRIBUTES[number % 3]);
        client.send(&mut server, to_server, &pattern(number as u64, 64), 0);
        // Reliable ones need not wait for their message; the others would lose it.
        client.port.disconnect(to_server);
        until(&mut client, &mut server, "word that the client has left", |_, server| {
            server.disconnected.len() > number
        });
        assert_eq!(server.disconnected[number].0, to_client);
        if !D::DISCONNECTED_HANDLES_GO {
            server.port.disconnect(to_client);
        }
        server.inbox.clear();
        if number == clients / 10 {
            memory_after_some = server.port.counts().memory_bytes;
        }
    }
    for_a_while(&mut client, &mut server, Duration::from_millis(100));
    assert_eq!(server.disconnected.len(), clients);
    assert!(server.disconnected.iter().all(|(_, _, reason)| *reason == DisconnectReason::Closed));
    let contexts: Vec<u64> = server.disconnected.iter().map(|(_, context, _)| *context).collect();
    assert_eq!(contexts, (0..clients as u64).collect::<Vec<_>>(), "as they were accepted");
    let counts = server.port.counts();
    assert_eq!(counts.connections_open, 0);
    assert!(
        counts.memory_bytes <= memory_after_some + (256 << 10),
        "{} bytes, {memory_after_some} before",
        counts.memory_bytes
    );
}

/// Whoever disconnects, or destroys its endpoint, as soon as the last message is there has acknowledged it: each send of the
/// peer's has succeeded.
pub fn the_last_message_is_acknowledged<D: Driver>(env: &Environment<D>) {
    for goes in [false, true] {
        for attribute in RELIABLE {
            for round in 0..env.rounds(4) {
                let mut pair = Pair::plain(env, attribute);
                for number in 0..3 {
                    pair.client
                        .port
                        .send(pair.to_server, &pattern(number, 100), number, Flags::default())
                        .unwrap();
                }
                pair.until("the last message", |_, server| server.inbox.len() == 3);
                let Pair { mut client, mut server, to_client, .. } = pair;
                let mut left = None;
                if goes {
                    drop(server);
                } else {
                    server.port.disconnect(to_client);
                    left = Some(server);
                }
                let patience = Instant::now() + conformance_timeout();
                while client.sent.len() < 3 {
                    assert!(Instant::now() < patience, "{} of 3 sends have ended", client.sent.len());
                    client.poll();
                    left.iter_mut().for_each(|server| _ = server.poll());
                }
                assert_eq!(
                    client.statuses(),
                    [Status::Success; 3],
                    "{attribute:?}, round {round}, goes: {goes}"
                );
            }
        }
    }
}

/// Two threads disconnect, where the one that leaves does so at any moment of what the other does.
pub fn the_last_message_is_acknowledged_at_any_moment<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        for round in 0..env.rounds(8) {
            let Pair { mut client, mut server, to_server, .. } = Pair::plain(env, attribute);
            let count = 1 + round % 5;
            let leaving = std::thread::spawn(move || {
                let patience = Instant::now() + conformance_timeout();
                while server.inbox.len() < count {
                    assert!(Instant::now() < patience, "the last message does not come");
                    server.poll();
                }
            });
            for number in 0..count as u64 {
                client.port.send(to_server, &pattern(number, 100), number, Flags::default()).unwrap();
            }
            let patience = Instant::now() + conformance_timeout();
            while client.sent.len() < count {
                assert!(Instant::now() < patience, "{} of {count} sends have ended", client.sent.len());
                client.poll();
            }
            leaving.join().unwrap();
            assert!(
                client.statuses().iter().all(|status| *status == Status::Success),
                "{attribute:?}, {round}"
            );
        }
    }
}

/// The peer leaves after a write that notifies it: it leaves when it hears of the data.
pub fn the_last_operation_is_answered<D: Driver>(env: &Environment<D>) {
    for goes in [false, true] {
        for attribute in RELIABLE {
            for round in 0..env.rounds(4) {
                let mut pair = Pair::plain(env, attribute);
                let lent = Area::new(&mut pair.server, Whose::Library, 4096, Access::ALL);
                let own = Area::new(&mut pair.client, Whose::Library, 4096, Access::LOCAL);
                let rma = Rma {
                    kind: RmaKind::Write,
                    local: &[own.segment(0, 64)],
                    remote: &[lent.segment(0, 64)],
                    message: Some(b"look"),
                    context: 7,
                    flags: RmaFlags::NONE,
                };
                pair.client.port.rma(pair.to_server, &rma).expect("it starts");
                pair.until("the message behind the data", |_, server| !server.inbox.is_empty());
                let Pair { mut client, mut server, to_client, .. } = pair;
                let mut left = None;
                if goes {
                    drop((server, lent));
                } else {
                    server.port.disconnect(to_client);
                    left = Some(server);
                }
                let patience = Instant::now() + conformance_timeout();
                while client.sent.is_empty() {
                    assert!(Instant::now() < patience, "the write does not end");
                    client.poll();
                    left.iter_mut().for_each(|server| _ = server.poll());
                }
                assert_eq!(
                    client.statuses(),
                    [Status::Success],
                    "{attribute:?}, round {round}, goes: {goes}"
                );
            }
        }
    }
}
