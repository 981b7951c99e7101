//! Many connections, many peers.

use super::RO;
use crate::conformance::{
    Capability, Driver, Environment, Pair, Port, Setup, Side, Skipped, conformance_timeout, connect,
    for_a_while, number_of, part, pattern,
};
use std::time::{Duration, Instant};

/// Two hundred connections between two endpoints, all in use, none confused with another.
pub fn many_connections<D: Driver>(env: &Environment<D>) {
    const CONNECTIONS: usize = 200;
    const EACH: u64 = 5;
    let setup = Setup { recv_buffers: 2048, send_buffers: 4096, ..Setup::default() };
    let (mut client, mut server): (Side<D>, Side<D>) =
        (Side::open(env, &setup), Side::open_server(env, &setup));
    let mut ends = Vec::new();
    for _ in 0..CONNECTIONS {
        ends.push(connect(&mut client, &mut server, RO));
    }
    for number in 0..EACH {
        for (at, (to_server, to_client)) in (0..).zip(&ends) {
            client.send(&mut server, *to_server, &pattern(at * 100 + number, 60), at);
            server.send(&mut client, *to_client, &pattern(at * 100 + number, 60), at);
        }
    }
    let total = CONNECTIONS * EACH as usize;
    crate::conformance::until(&mut client, &mut server, "everything on 200 connections", |client, server| {
        [client, server].iter().all(|side| side.inbox.len() == total && side.sent.len() == total)
    });
    for (side, end_of) in [(&client, 0), (&server, 1)] {
        let mut next = vec![0; CONNECTIONS];
        for (connection, message) in &side.inbox {
            let number = number_of(message.as_ref());
            let at = (number / 100) as usize;
            let expected = if end_of == 0 { ends[at].0 } else { ends[at].1 };
            assert_eq!(*connection, expected, "message of connection {at}");
            assert_eq!(number % 100, next[at], "in order on its connection");
            next[at] += 1;
        }
    }
    assert_eq!(client.port.counts().connections_open, CONNECTIONS as u64);
    for (to_server, to_client) in ends {
        client.port.disconnect(to_server);
        server.port.disconnect(to_client);
    }
    let patience = Instant::now() + conformance_timeout();
    while client.port.counts().connections_open + server.port.counts().connections_open > 0 {
        assert!(Instant::now() < patience, "all connections close");
        for_a_while(&mut client, &mut server, Duration::from_millis(1));
    }
}

/// Eight clients, one server that echoes: everyone gets its own answers, in order.
pub fn many_clients<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Crowd)?;
    const EACH: u64 = 100;
    let mut server: Side<D> = Side::server(env);
    let mut clients = Vec::new();
    for _ in 0..8 {
        let pair = Pair::of(Side::plain(env), server, RO);
        clients.push((pair.client, pair.to_server, 0_u64));
        server = pair.server;
    }
    let patience = Instant::now() + conformance_timeout();
    while clients.iter().any(|(_, _, answered)| *answered < EACH) {
        assert!(Instant::now() < patience, "all answers in time");
        for (who, (client, to_server, answered)) in (0..).zip(&mut clients) {
            if client.connected.len() == 1 && *answered < EACH && client.sent.len() as u64 == *answered {
                client.send(&mut server, *to_server, &pattern(who * 1000 + *answered, 50), *answered);
                // Counts as under way until both its completion and its answer are there.
                client.connected.clear();
            }
            client.poll();
            if client.sent.len() as u64 == *answered + 1
                && let Some((_, message)) = client.inbox.pop_front()
            {
                assert_eq!(number_of(message.as_ref()), who * 1000 + *answered);
                *answered += 1;
                client.connected.push((0, Ok(*to_server)));
            }
        }
        server.poll();
        while let Some((from, message)) = server.inbox.pop_front() {
            let (client, ..) = &mut clients[0];
            server.send(client, from, message.as_ref(), 0);
        }
    }
    part(clients.into_iter().map(|(client, ..)| client).chain([server]));
    Ok(())
}
