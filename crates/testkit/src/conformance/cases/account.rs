//! Accountability: counters, memory, explanations, keepalive, options (CCI-079 and the point 7).

use super::RO;
use super::buffers::{feeder, hungry, overfill};
use crate::conformance::{
    Capability, Driver, Environment, Flags, Pair, Port, Refusal, Setup, Side, Skipped, conformance_timeout,
    for_a_while, part, pattern, until,
};
use std::time::{Duration, Instant};

/// What one side counts as sent the other counts as received.
pub fn counters_add_up<D: Driver>(env: &Environment<D>) {
    let mut pair = Pair::plain(env, RO);
    let (mut messages, mut bytes) = (0, 0);
    for number in 0..100 {
        let message = pattern(number, 8 + number as usize * 7);
        pair.send(&message, number);
        messages += 1;
        bytes += message.len() as u64;
    }
    let too_long = vec![0; pair.client.port.max_send_size(pair.to_server) + 1];
    let refused = pair.client.port.send(pair.to_server, &too_long, 0, Flags::default());
    assert_eq!(refused, Err(Refusal::TooLong));
    pair.until("all of it", |client, server| client.sent.len() == 100 && server.inbox.len() == 100);
    let (client, server) = (pair.client.port.counts(), pair.server.port.counts());
    assert_eq!(
        (client.messages_sent, client.bytes_sent),
        (messages, bytes),
        "a refused message is not counted"
    );
    assert_eq!((server.messages_received, server.bytes_received), (messages, bytes));
    assert_eq!((client.messages_received, server.messages_sent), (0, 0));
    assert_eq!((client.sends_failed, client.receiver_not_ready, server.receiver_not_ready), (0, 0, 0));
    assert_eq!((client.connections_open, server.connections_open), (1, 1));
}

/// Whatever is opened and sent, the memory held stays under the cap that was set, and nobody crashes for want of it.
pub fn memory_stays_under_its_cap<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Crowd)?;
    const CAP: u64 = 12 << 20;
    let setup = Setup { memory_bytes_max: Some(CAP), recv_buffers: 512, ..Setup::default() };
    let (mut client, mut server): (Side<D>, Side<D>) =
        (Side::open(env, &setup), Side::open_server(env, &setup));
    let check = |side: &Side<D>| {
        let counts = side.port.counts();
        assert_eq!(counts.memory_bytes_max, CAP);
        assert!(counts.memory_bytes > 0 && counts.memory_bytes <= CAP, "{} bytes", counts.memory_bytes);
    };
    let mut others = Vec::new();
    let patience = Instant::now() + conformance_timeout() * 3;
    // Peers, one connection each: what a connection costs most is had by each new peer.
    for number in 0..40 {
        let small =
            Setup { recv_buffers: 8, send_buffers: 16, memory_bytes_max: Some(CAP), ..Setup::default() };
        let mut other = Side::open(env, &small);
        other.dial(&server.port.uri(), RO, number);
        while other.connected.is_empty() {
            assert!(Instant::now() < patience, "an end of attempt {number}");
            other.poll();
            server.poll();
            if let Some(request) = server.requests.pop_front() {
                // Out of memory is an answer too.
                let _ = server.port.accept(request, number);
            }
        }
        check(&other);
        check(&server);
        others.push(other);
    }
    assert!(others[0].connected[0].1.is_ok(), "one connection at least fits");
    client.dial(&server.port.uri(), RO, 1);
    until(&mut client, &mut server, "a request or an end", |client, server| {
        !server.requests.is_empty() || !client.connected.is_empty()
    });
    // Traffic as heavy as it gets, on the first peer.
    let other = &mut others[0];
    let to_server = other.connected[0].1.expect("open");
    for number in 0..500 {
        let _ = other.port.send(to_server, &pattern(number, 1000), number, Flags::default());
        other.poll();
        server.poll();
        server.inbox.clear();
        if number % 50 == 0 {
            check(&server);
            check(other);
        }
    }
    others.push(client);
    others.push(server);
    part(others);
    Ok(())
}

/// In plain words: transport, attribute, and what holds it up when something does.
pub fn explains_itself<D: Driver>(env: &Environment<D>) {
    let mut pair = Pair::of(Side::open(env, &feeder()), Side::open_server(env, &hungry()), RO);
    pair.send(&pattern(0, 100), 0);
    pair.until("a message", |client, server| client.sent.len() == 1 && server.inbox.len() == 1);
    let text = pair.client.port.explain(pair.to_server);
    let transport = env.about.scheme.trim_end_matches("://");
    for part in [transport, "RO", "uses", "held up by nothing"] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
    let Pair { client, server, to_server, .. } = &mut pair;
    overfill(client, *to_server, || {
        server.poll();
    });
    pair.until("no buffer left", |_, server| server.out_of_buffers);
    for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(100));
    let text = pair.client.port.explain(pair.to_server);
    assert!(text.contains("held up by: "), "something holds it up:\n{text}");
}

/// A peer that does nothing any more: said once, then never again; the connection stays open.
pub fn keepalive_is_raised_once<D: Driver>(env: &Environment<D>) {
    let mut pair = Pair::plain(env, RO);
    pair.client.port.set_keepalive(pair.to_server, Some(Duration::from_millis(200)));
    let started = Instant::now();
    // Only the client is driven: the server is alive but does nothing.
    while pair.client.silent.is_empty() {
        assert!(started.elapsed() < conformance_timeout(), "no word of the silent peer");
        pair.client.poll();
    }
    assert!(started.elapsed() >= Duration::from_millis(190), "not before its time");
    assert_eq!(pair.client.silent, [pair.to_server]);
    let quiet_until = Instant::now() + Duration::from_millis(700);
    while Instant::now() < quiet_until {
        pair.client.poll();
    }
    assert_eq!(pair.client.silent.len(), 1, "once");
    assert_eq!(pair.client.port.timeouts(pair.to_server).1, None, "it has turned itself off");
    pair.send(&pattern(1, 9), 1);
    pair.until("a message all the same", |client, server| client.sent.len() == 1 && server.inbox.len() == 1);
}

/// A peer that is driven but has nothing to say is not called silent.
pub fn keepalive_is_quiet_with_a_live_peer<D: Driver>(env: &Environment<D>) {
    let setup = Setup { keepalive: Some(Duration::from_millis(250)), ..Setup::default() };
    let mut pair = Pair::open(env, RO, &setup);
    for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(1500));
    assert!(pair.client.silent.is_empty() && pair.server.silent.is_empty(), "both were there all the time");
}

/// Time-outs are what they were set to, per connection, and begin as the endpoint's.
pub fn options_read_back<D: Driver>(env: &Environment<D>) {
    let setup = Setup {
        send_timeout: Duration::from_millis(4500),
        keepalive: Some(Duration::from_secs(30)),
        ..Setup::default()
    };
    let mut pair = Pair::open(env, RO, &setup);
    let both = (Duration::from_millis(4500), Some(Duration::from_secs(30)));
    assert_eq!(pair.client.port.timeouts(pair.to_server), both);
    assert_eq!(pair.server.port.timeouts(pair.to_client), both);
    pair.client.port.set_send_timeout(pair.to_server, Duration::from_millis(700));
    pair.client.port.set_keepalive(pair.to_server, None);
    assert_eq!(pair.client.port.timeouts(pair.to_server), (Duration::from_millis(700), None));
    assert_eq!(pair.server.port.timeouts(pair.to_client), both, "the other side has its own");
}
