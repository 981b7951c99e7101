//! Making connections (CCI-032 to CCI-037).

use super::{ATTRIBUTES, RO};
use crate::conformance::{
    Capability, Driver, Environment, Flags, Pair, Port, Refusal, Side, Skipped, conformance_timeout, connect,
    number_of, pattern, until,
};
use cci::{Attribute, ConnectFailure};
use std::time::{Duration, Instant};

/// A request's payload, of 0 to 1,024 bytes, and its attribute reach the server; both sides hear once.
pub fn connects_with_any_payload<D: Driver>(env: &Environment<D>) {
    let (mut client, mut server) = (Side::plain(env), Side::server(env));
    let uri = server.port.uri();
    assert!(uri.starts_with(env.about.scheme), "{uri}");
    let mut made = 0;
    for attribute in ATTRIBUTES {
        for len_bytes in [0, 1, 7, 1023, 1024] {
            let payload = pattern(made, len_bytes);
            client
                .port
                .connect(&uri, &payload, attribute, 1000 + made, Some(conformance_timeout()))
                .expect("connect starts");
            until(&mut client, &mut server, "a request", |_, server| !server.requests.is_empty());
            let request = server.requests.front().expect("just seen");
            assert!(D::Port::request_data(request) == payload, "payload of {len_bytes} bytes");
            assert_eq!(D::Port::request_attribute(request), attribute);
            server.accept_next(2000 + made);
            made += 1;
            let count = made as usize;
            until(&mut client, &mut server, "an open connection", |client, server| {
                client.connected.len() >= count && server.accepted.len() >= count
            });
        }
    }
    client.settle();
    server.settle();
    assert_eq!((client.connected.len(), server.accepted.len()), (made as usize, made as usize), "each once");
    let contexts: Vec<_> = client.connected.iter().map(|(context, _)| *context).collect();
    assert_eq!(contexts, (1000..1000 + made).collect::<Vec<_>>());
    for (at, (_, connection)) in client.connected.iter().enumerate() {
        let connection = connection.expect("open");
        let others = client.connected.iter().skip(at + 1);
        assert!(others.into_iter().all(|(_, other)| *other != Ok(connection)), "handles differ");
        assert!(client.port.max_send_size(connection) > 0);
    }
}

/// 1,025 bytes are too many.
pub fn refuses_a_long_payload<D: Driver>(env: &Environment<D>) {
    let (mut client, mut server) = (Side::plain(env), Side::server(env));
    let refused = client.port.connect(&server.port.uri(), &[0; 1025], RO, 1, Some(Duration::from_secs(1)));
    assert_eq!(refused, Err(Refusal::BadArgument));
    client.settle();
    server.settle();
    assert!(client.connected.is_empty() && server.requests.is_empty(), "nothing was started");
}

/// The server says no: refused, once, and both go on.
pub fn reject_refuses<D: Driver>(env: &Environment<D>) {
    let (mut client, mut server) = (Side::plain(env), Side::server(env));
    for attempt in 0..3 {
        client.dial(&server.port.uri(), RO, attempt);
        until(&mut client, &mut server, "a request", |_, server| !server.requests.is_empty());
        let request = server.requests.pop_front().expect("just seen");
        server.port.reject(request);
        until(&mut client, &mut server, "the refusal", |client, _| client.connected.len() > attempt as usize);
        let last = client.connected.last().expect("just seen");
        assert_eq!((last.0, last.1.err()), (attempt, Some(ConnectFailure::Refused)));
    }
    client.settle();
    assert_eq!(client.connected.len(), 3);
    assert!(server.accepted.is_empty());
    exchange(&mut client, &mut server);
}

/// One message each way over a new connection.
fn exchange<D: Driver>(client: &mut Side<D>, server: &mut Side<D>) {
    let (to_server, to_client) = connect(client, server, RO);
    client.send(server, to_server, &pattern(77, 100), 0);
    server.send(client, to_client, &pattern(78, 100), 0);
    until(client, server, "both messages", |client, server| {
        !client.inbox.is_empty() && !server.inbox.is_empty()
    });
    assert_eq!(server.inbox.pop_front().map(|(_, message)| number_of(message.as_ref())), Some(77));
    assert_eq!(client.inbox.pop_front().map(|(_, message)| number_of(message.as_ref())), Some(78));
}

/// Where nobody listens, the attempt ends: refused where the device can know, else timed out.
pub fn nobody_there<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Crowd)?;
    // All are opened before the one that goes, so that none of them gets its address.
    let (mut client, mut other, gone): (Side<D>, Side<D>, Side<D>) =
        (Side::plain(env), Side::server(env), Side::server(env));
    let uri = gone.port.uri();
    drop(gone);
    let started = client.port.connect(&uri, b"anyone?", RO, 5, Some(Duration::from_millis(700)));
    started.expect("connect starts");
    until(&mut client, &mut other, "the end of the attempt", |client, _| !client.connected.is_empty());
    let (context, result) = client.connected[0];
    assert_eq!(context, 5);
    let failure = result.expect_err("nobody is there");
    assert!(matches!(failure, ConnectFailure::Refused | ConnectFailure::TimedOut), "{failure:?}");
    exchange(&mut client, &mut other);
    assert_eq!(client.connected.len(), 2, "one end each");
    Ok(())
}

/// A server that never answers: timed out at the time asked for, once.
pub fn connect_times_out_once<D: Driver>(env: &Environment<D>) {
    let (mut client, mut server) = (Side::plain(env), Side::server(env));
    let started = Instant::now();
    let timeout = Duration::from_millis(300);
    client.port.connect(&server.port.uri(), b"", RO, 9, Some(timeout)).expect("connect starts");
    until(&mut client, &mut server, "the time-out", |client, _| !client.connected.is_empty());
    let took = started.elapsed();
    assert_eq!(client.connected, [(9, Err(ConnectFailure::TimedOut))]);
    assert!(took >= timeout && took < Duration::from_secs(5), "took {took:?}");
    client.settle();
    assert_eq!(client.connected.len(), 1);
}

/// Accepting after the client gave up fails, with an error at the call or with one event.
pub fn late_accept_fails<D: Driver>(env: &Environment<D>) {
    let setup = crate::conformance::Setup { send_timeout: Duration::from_secs(2), ..Default::default() };
    let (mut client, mut server) = (Side::open(env, &setup), Side::open_server(env, &setup));
    client
        .port
        .connect(&server.port.uri(), b"", RO, 1, Some(Duration::from_millis(200)))
        .expect("connect starts");
    until(&mut client, &mut server, "request and time-out", |client, server| {
        !client.connected.is_empty() && !server.requests.is_empty()
    });
    let request = server.requests.pop_front().expect("just seen");
    if server.port.accept(request, 4).is_ok() {
        until(&mut client, &mut server, "the accept's end", |_, server| !server.accepted.is_empty());
        let (context, result) = server.accepted[0];
        assert_eq!(context, 4);
        assert!(result.is_err(), "the client is not there any more");
    }
    client.settle();
    assert_eq!(client.connected.len(), 1, "the attempt has ended before");
    exchange(&mut client, &mut server);
}

/// What is no URI of this device is refused at the call.
pub fn bad_uris_are_refused<D: Driver>(env: &Environment<D>) {
    let mut client: Side<D> = Side::plain(env);
    let long = format!("{}{}", env.about.scheme, "x".repeat(5000));
    let wrong =
        ["", "nonsense", "http://127.0.0.1:80", "://", env.about.scheme, &long, "udp://1.2.3.4:99999"];
    for uri in wrong {
        let refused = client.port.connect(uri, b"", RO, 0, Some(Duration::from_millis(100)));
        assert_eq!(refused, Err(Refusal::BadArgument), "{uri:?}");
    }
    client.settle();
    assert!(client.connected.is_empty());
}

/// A request that came to one endpoint is accepted on another: a broker and its worker (CCI-037).
pub fn accepts_on_another_endpoint<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Crowd)?;
    let (mut client, mut broker, mut worker): (Side<D>, Side<D>, Side<D>) =
        (Side::plain(env), Side::server(env), Side::server(env));
    client.dial(&broker.port.uri(), RO, 1);
    until(&mut client, &mut broker, "a request", |_, broker| !broker.requests.is_empty());
    let request = broker.requests.pop_front().expect("just seen");
    worker.port.accept(request, 2).expect("the worker accepts");
    let until_all = Instant::now() + conformance_timeout();
    while client.connected.is_empty() || worker.accepted.is_empty() {
        assert!(Instant::now() < until_all, "waited too long for the worker's connection");
        client.poll();
        broker.poll();
        worker.poll();
    }
    let to_worker = client.connected[0].1.expect("connected to the worker");
    let to_client = worker.accepted[0].1.expect("accepted by the worker");
    assert!(broker.accepted.is_empty(), "the event comes where it was accepted");
    // The broker still serves others, and the worker's connections do not depend on it.
    exchange(&mut client, &mut broker);
    drop(broker);
    let mut pair = Pair { client, server: worker, to_server: to_worker, to_client };
    for number in 0..100 {
        pair.send(&pattern(number, 200), number);
        pair.server.send(&mut pair.client, pair.to_client, &pattern(number, 50), number);
    }
    pair.until("everything from and to the worker", |client, worker| {
        client.inbox.len() == 100 && worker.inbox.len() == 100 && worker.sent.len() == 100
    });
    Ok(())
}

/// Fifty requests wait at once and are answered last first, some with no.
pub fn many_requests_answered_in_any_order<D: Driver>(env: &Environment<D>) {
    const ATTEMPTS: u64 = 50;
    let (mut client, mut server): (Side<D>, Side<D>) = (Side::plain(env), Side::server(env));
    for number in 0..ATTEMPTS {
        let payload = number.to_le_bytes();
        let timeout = Some(conformance_timeout());
        client.port.connect(&server.port.uri(), &payload, RO, number, timeout).expect("connect starts");
    }
    until(&mut client, &mut server, "all requests", |_, server| server.requests.len() == ATTEMPTS as usize);
    while let Some(request) = server.requests.pop_back() {
        let number = D::Port::request_data(&request).first().copied().expect("8 bytes");
        if number % 5 == 0 {
            server.port.reject(request);
        } else {
            server.port.accept(request, number.into()).expect("accept starts");
        }
    }
    until(&mut client, &mut server, "all answers", |client, server| {
        client.connected.len() == ATTEMPTS as usize && server.accepted.len() == ATTEMPTS as usize * 4 / 5
    });
    for (context, result) in &client.connected {
        assert_eq!(result.is_err(), context % 5 == 0, "attempt {context}: {result:?}");
    }
    let mut contexts: Vec<_> = client.connected.iter().map(|(context, _)| *context).collect();
    contexts.sort_unstable();
    assert_eq!(contexts, (0..ATTEMPTS).collect::<Vec<_>>());
}

/// An endpoint connects to itself.
pub fn connects_to_itself<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Itself)?;
    let mut side: Side<D> = Side::plain(env);
    let uri = side.port.uri();
    side.dial(&uri, RO, 1);
    let until_all = Instant::now() + conformance_timeout();
    let poll_until = |side: &mut Side<D>, what: &str, done: fn(&Side<D>) -> bool| {
        while !done(side) {
            assert!(Instant::now() < until_all, "waited too long for {what}");
            side.poll();
        }
    };
    poll_until(&mut side, "a request", |side| !side.requests.is_empty());
    side.accept_next(2);
    poll_until(&mut side, "both ends", |side| !side.connected.is_empty() && !side.accepted.is_empty());
    let out = side.connected[0].1.expect("connected");
    let back = side.accepted[0].1.expect("accepted");
    assert_ne!(out, back, "two ends, two handles");
    for number in 0..20 {
        side.port.send(out, &pattern(number, 300), number, Flags::default()).expect("room");
        side.port.send(back, &pattern(100 + number, 300), number, Flags::default()).expect("room");
    }
    poll_until(&mut side, "all messages", |side| side.inbox.len() == 40 && side.sent.len() == 40);
    for (connection, message) in side.inbox.drain(..) {
        let from_back = number_of(message.as_ref()) >= 100;
        assert_eq!(connection, if from_back { out } else { back });
    }
    Ok(())
}

/// Without a time limit an attempt goes on until it is answered.
pub fn connects_without_a_time_limit<D: Driver>(env: &Environment<D>) {
    let (mut client, mut server): (Side<D>, Side<D>) = (Side::plain(env), Side::server(env));
    client.port.connect(&server.port.uri(), b"", Attribute::Unreliable, 3, None).expect("connect starts");
    // The client alone for a while: nobody answers yet.
    let alone_until = Instant::now() + Duration::from_millis(400);
    while Instant::now() < alone_until {
        client.poll();
    }
    assert!(client.connected.is_empty());
    until(&mut client, &mut server, "a request", |_, server| !server.requests.is_empty());
    server.accept_next(0);
    until(&mut client, &mut server, "the connection", |client, _| !client.connected.is_empty());
    assert!(client.connected[0].1.is_ok());
}
