//! Connecting, sending and closing on a good network.

use super::*;
use crate::limits::REQUEST_BYTES_MAX;

#[test]
fn connects_sends_and_closes() {
    for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable] {
        let mut net = Net::pair(1);
        let (client, server) = net.join(attribute);
        for number in 0..1000u64 {
            net.send(0, client, &number.to_le_bytes(), number);
        }
        net.run(SECOND / 20);
        let got: Vec<u64> = net.apps[1]
            .messages
            .iter()
            .map(|(_, bytes)| u64::from_le_bytes(bytes[..].try_into().unwrap()))
            .collect();
        assert_eq!(got, (0..1000).collect::<Vec<_>>(), "{attribute:?}");
        let want: Vec<_> = (0..1000).map(|number| (number, Status::Success)).collect();
        assert_eq!(net.apps[0].statuses(), want, "{attribute:?}");
        assert!(net.datagrams < 60, "{} datagrams for 1000 messages", net.datagrams);
        net.ends[0].disconnect(net.now, client).unwrap();
        assert_eq!(net.ends[0].send(net.now, client, &[b"x"], 0, false), Err(SendError::Disconnected));
        net.run(SECOND);
        assert!(net.apps[0].has(|event| matches!(event, Event::Closed { .. })));
        assert!(net.apps[1].has(|event| matches!(event, Event::Disconnected { .. })));
        assert_eq!(net.ends[0].send(net.now, client, &[b"x"], 0, false), Err(SendError::Unknown));
        assert_eq!(net.ends[1].send(net.now, server, &[b"x"], 0, false), Err(SendError::Disconnected));
        net.ends[1].disconnect(net.now, server).unwrap();
        net.run(SECOND);
        assert!(net.apps[1].has(|event| matches!(event, Event::Closed { .. })));
        assert_eq!(net.ends[0].counters().faults() + net.ends[1].counters().faults(), 0);
        net.assert_clean();
    }
}

#[test]
fn messages_go_both_ways_and_of_every_size() {
    let mut net = Net::pair(2);
    let (client, server) = net.join(Attribute::ReliableOrdered);
    let max = net.ends[0].connection(client).unwrap().message_bytes_max;
    assert_eq!(max, 1472 - 56);
    for len in 0..=max {
        let bytes: Vec<u8> = (0..len).map(|at| (at + len) as u8).collect();
        net.send(0, client, &bytes, 0);
        net.send(1, server, &bytes, 0);
    }
    assert_eq!(
        net.ends[0].send(net.now, client, &[&vec![0; max + 1]], 0, false),
        Err(SendError::TooLong { max })
    );
    net.run(SECOND);
    for app in &net.apps {
        assert_eq!(app.messages.len(), max + 1);
        for (len, (_, bytes)) in app.messages.iter().enumerate() {
            assert!(
                bytes.len() == len && bytes.iter().enumerate().all(|(at, &byte)| byte == (at + len) as u8)
            );
        }
    }
    net.assert_clean();
}

#[test]
fn an_idle_connection_sleeps_and_wakes() {
    let mut net = Net::pair(3);
    let (client, server) = net.join(Attribute::ReliableOrdered);
    net.send(0, client, b"one", 1);
    net.run(SECOND);
    let asleep = |end: &Endpoint| end.next_deadline().is_some_and(|at| at > net.now.plus(15 * SECOND));
    assert!(net.ends.iter().all(asleep), "but for the question whether the peer lives, one day");
    assert_ne!(net.ends[0].connection(client).unwrap().rtt_ns, 0, "remembered");
    net.send(0, client, b"two", 2);
    net.send(1, server, b"three", 3);
    net.run(SECOND);
    assert_eq!(net.apps[1].messages.len(), 2);
    assert_eq!(net.apps[0].messages.len(), 1);
    net.assert_clean();
}

#[test]
fn a_request_is_refused() {
    let mut net = Net::pair(4);
    let payload = [5; REQUEST_BYTES_MAX];
    net.ends[0].connect(net.now, address(1), &payload, Attribute::ReliableOrdered, 1, None).unwrap();
    let request = net.request();
    assert_eq!(request.payload(), payload);
    net.ends[1].reject(net.now, request);
    net.run(SECOND);
    assert!(
        net.apps[0].has(|event| matches!(event, Event::ConnectFailed { why: ConnectFailure::Refused, .. }))
    );
    assert_eq!(
        net.ends[0].connect(net.now, address(1), &[0; 1025], Attribute::Unreliable, 1, None),
        Err(ConnectError::TooLong { max: 1024 })
    );
}

#[test]
fn a_dial_times_out_or_is_cancelled() {
    let mut net = Net::pair(5);
    net.cut = true;
    net.ends[0].connect(net.now, address(1), b"", Attribute::Unreliable, 1, Some(3 * SECOND)).unwrap();
    let other = net.ends[0].connect(net.now, address(1), b"", Attribute::Unreliable, 2, None).unwrap();
    net.run(2 * SECOND);
    net.ends[0].disconnect(net.now, other).unwrap();
    net.run(2 * SECOND);
    let failures: Vec<_> = net.apps[0]
        .events
        .iter()
        .map(|event| match event {
            Event::ConnectFailed { token, why, .. } => (*token, *why),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(failures, [(2, ConnectFailure::Cancelled), (1, ConnectFailure::TimedOut)]);
    assert_eq!(net.ends[0].memory().handshakes_bytes, 0);
}

#[test]
fn another_endpoint_accepts() {
    let config = Config::default();
    let mut net = Net::new(6, vec![config.clone(), config.clone(), config]);
    let client = net.ends[0]
        .connect(net.now, address(1), b"to any worker", Attribute::ReliableOrdered, 1, None)
        .unwrap();
    let request = net.request();
    let ticket = request.ticket();
    let worker = net.ends[2].accept(net.now, request, 3).unwrap();
    net.ends[1].request_taken(ticket);
    net.run(SECOND);
    assert_eq!(net.ends[0].connection(client).unwrap().peer, address(2));
    net.send(0, client, b"ping", 1);
    net.send(2, worker, b"pong", 1);
    net.run(SECOND);
    assert_eq!((net.apps[2].messages.len(), net.apps[0].messages.len()), (1, 1));
}

#[test]
fn keepalive_asks_and_then_tells() {
    let config = Config { keepalive_ns: SECOND, ..Config::default() };
    let mut net = Net::new(7, vec![config, Config::default()]);
    net.join(Attribute::ReliableOrdered);
    net.run(10 * SECOND);
    let silent = |event: &Event| matches!(event, Event::KeepaliveTimedOut { .. });
    assert!(!net.apps[0].has(silent));
    net.cut = true;
    net.run(10 * SECOND);
    assert_eq!(net.apps[0].events.iter().filter(|event| silent(event)).count(), 1);
}

#[test]
fn a_restarted_peer_resets() {
    let mut net = Net::pair(8);
    let (client, _) = net.join(Attribute::ReliableOrdered);
    net.run(SECOND);
    net.ends[1] = Endpoint::new(Config { secret: [99; 32], ..Config::default() }).unwrap();
    net.send(0, client, b"anyone?", 5);
    net.run(SECOND);
    assert_eq!(net.apps[0].statuses(), [(5, Status::Disconnected)]);
    assert!(net.apps[0].has(|event| matches!(event, Event::Disconnected { .. })));
    net.ends[0].disconnect(net.now, client).unwrap();
    net.run(MS);
    assert!(net.apps[0].has(|event| matches!(event, Event::Closed { .. })));
    net.assert_clean();
}

#[test]
fn a_silent_peer_times_out() {
    let mut net = Net::pair(9);
    let (client, _) = net.join(Attribute::ReliableOrdered);
    net.ends[0].set_send_timeout(client, 2 * SECOND).unwrap();
    net.cut = true;
    for context in 0..5 {
        net.send(0, client, &[1; 900], context);
    }
    net.run(SECOND);
    assert!(net.apps[0].statuses().is_empty());
    net.run(2 * SECOND);
    let want: Vec<_> = (0..5).map(|context| (context, Status::TimedOut)).collect();
    assert_eq!(net.apps[0].statuses(), want);
    assert!(net.apps[0].has(|event| matches!(event, Event::Disconnected { .. })));
}

#[test]
fn both_close_at_once() {
    let mut net = Net::pair(10);
    let (client, server) = net.join(Attribute::ReliableOrdered);
    for context in 0..50 {
        net.send(0, client, &[1; 700], context);
        net.send(1, server, &[1; 700], context);
    }
    net.ends[0].disconnect(net.now, client).unwrap();
    net.ends[1].disconnect(net.now, server).unwrap();
    net.run(2 * SECOND);
    for app in &net.apps {
        assert!(app.has(|event| matches!(event, Event::Closed { .. })));
        assert_eq!(app.statuses().len(), 50, "each send completes once");
    }
    net.assert_clean();
}

#[test]
fn what_was_sent_before_the_close_arrives() {
    let mut net = Net::pair(11);
    let (client, _) = net.join(Attribute::ReliableOrdered);
    for context in 0..200 {
        net.send(0, client, &[1; 1000], context);
    }
    net.ends[0].disconnect(net.now, client).unwrap();
    net.run(2 * SECOND);
    assert_eq!(net.apps[1].messages.len(), 200);
    assert!(net.apps[0].statuses().iter().all(|(_, status)| *status == Status::Success));
    assert!(net.apps[0].has(|event| matches!(event, Event::Closed { .. })));
}

#[test]
fn a_flood_of_requests_is_bounded() {
    let mut net = Net::new(12, vec![Config::default(), Config { requests_max: 4, ..Config::default() }]);
    for token in 0..20 {
        net.ends[0].connect(net.now, address(1), &[1; 1000], Attribute::Unreliable, token, None).unwrap();
    }
    net.run(2 * SECOND);
    let waiting = net.apps[1].events.iter().filter(|event| matches!(event, Event::Request(_))).count();
    assert_eq!(waiting, 2, "half of them: the other half is for other hosts");
    assert!(net.ends[1].counters().requests_dropped > 0);
    // As the program answers, the others, who ask again, get their turn.
    for _ in 0..20 {
        net.serve(0);
    }
    net.run(5 * SECOND);
    let up = net.apps[0].events.iter().filter(|event| matches!(event, Event::Connected { .. })).count();
    assert_eq!(up, 20);
}

#[test]
fn another_version_is_named() {
    let mut net = Net::pair(13);
    net.ends[0].connect(net.now, address(1), b"", Attribute::Unreliable, 1, None).unwrap();
    let mut out = Out { sent: VecDeque::new(), next: None, bytes: Vec::new(), space: 64 };
    net.ends[0].poll_transmit(net.now, &mut out, &mut net.apps[0]);
    let (_, mut hello) = out.sent.pop_front().unwrap();
    hello[0] = 3 << 4 | 1;
    net.ends[1].handle_datagram(net.now, address(0), &hello, &mut net.apps[1]);
    let mut out = Out { sent: VecDeque::new(), next: None, bytes: Vec::new(), space: 64 };
    net.ends[1].poll_transmit(net.now, &mut out, &mut net.apps[1]);
    let (_, mut notice) = out.sent.pop_front().unwrap();
    // A notice as the server of another version would write it.
    notice[0] = 3 << 4 | 6;
    (notice[24], notice[25]) = (2, 3);
    net.ends[0].handle_datagram(net.now, address(1), &notice, &mut net.apps[0]);
    let named = |event: &Event| {
        matches!(event, Event::ConnectFailed { why: ConnectFailure::Version { theirs: 3 }, .. })
    };
    assert!(net.apps[0].has(named));
}

#[test]
fn a_peer_that_dies_while_closing_is_missed() {
    let mut net = Net::pair(14);
    let (client, server) = net.join(Attribute::ReliableOrdered);
    net.ends[1].set_send_timeout(server, 3 * SECOND).unwrap();
    // The server hears a lingering peer, and then nothing any more.
    for context in 0..100 {
        net.send(0, client, &[1; 1000], context);
    }
    net.ends[0].disconnect(net.now, client).unwrap();
    net.run_until(SECOND, "closing seen", |net| {
        net.ends[1].connection(server).is_some_and(|info| info.state == ConnState::PeerClosed)
    });
    net.cut = true;
    net.run(10 * SECOND);
    assert!(net.apps[1].has(|event| matches!(event, Event::Disconnected { .. })));
}

/// An acknowledgement that is due is no try to close.
//= wire.md R-CLOSE-4
#[test]
fn a_close_is_tried_at_its_own_times() {
    let mut net = Net::pair(15);
    let (client, server) = net.join(Attribute::ReliableOrdered);
    net.send(1, server, b"to be acknowledged soon", 1);
    net.run_until(SECOND, "arrived", |net| !net.apps[0].messages.is_empty());
    net.cut = true;
    net.ends[0].disconnect(net.now, client).unwrap();
    // The program is away until both are due, before anything has left.
    net.now = net.now.plus(SECOND);
    net.ends[0].handle_timeout(net.now, &mut net.apps[0]);
    let sent = net.ends[0].counters().datagrams_sent;
    let is_closed = |event: &Event| matches!(event, Event::Closed { .. });
    net.run(SECOND / 100);
    assert!(!net.apps[0].has(is_closed), "given up before the peer could answer");
    net.run_until(60 * SECOND, "given up", |net| net.apps[0].has(is_closed));
    let tries = net.ends[0].counters().datagrams_sent - sent;
    assert!((9..=11).contains(&tries), "{tries} tries");
}

/// It dials as others do, and is nobody to those who dial it.
//= wire.md R-HS-11
#[test]
fn an_endpoint_that_only_dials_answers_no_request() {
    let dials = Config { serves: false, ..Config::default() };
    let mut net = Net::new(1, vec![dials, Config::default()]);
    let (client, _) = net.join(Attribute::ReliableOrdered);
    net.send(0, client, b"a message", 1);
    net.run(SECOND);
    assert_eq!(net.apps[1].messages.len(), 1);
    let unexpected = |net: &Net| net.ends[0].counters().fault(PeerFault::Unexpected);
    assert_eq!(unexpected(&net), 0);
    let sent = net.ends[0].counters().datagrams_sent;
    let reliable = Attribute::ReliableOrdered;
    net.ends[1].connect(net.now, address(0), b"who", reliable, 3, Some(3 * SECOND)).unwrap();
    let is_over = |event: &Event| matches!(event, Event::ConnectFailed { .. });
    net.run_until(60 * SECOND, "the attempt is over", |net| net.apps[1].has(is_over));
    assert!(!net.apps[0].has(|event| matches!(event, Event::Request(_))));
    assert_eq!(net.ends[0].counters().datagrams_sent, sent, "not a word");
    assert!(unexpected(&net) > 1, "each try is counted");
}

/// By when an accepted client must have confirmed: its server's send timeout, within a second and thirty.
#[test]
fn an_accepted_client_that_stays_silent_is_given_up() {
    for (timeout_ns, wanted_ns) in [(100 * MS, SECOND), (5 * SECOND, 5 * SECOND), (100 * SECOND, 30 * SECOND)]
    {
        let config = Config { send_timeout_ns: timeout_ns, ..Config::default() };
        let mut net = Net::new(31, vec![Config::default(), config]);
        net.ends[0].connect(net.now, address(1), b"", Attribute::ReliableOrdered, 7, None).unwrap();
        net.serve(9);
        net.cut = true;
        let started = net.now;
        net.run_until(60 * SECOND, "it is given up", |net| {
            net.apps[1].has(|event| {
                matches!(event, Event::AcceptFailed { why: AcceptFailure::TimedOut, token: 9, .. })
            })
        });
        let took_ns = net.now.since(started);
        assert!(took_ns >= wanted_ns && took_ns < wanted_ns + SECOND, "{took_ns} ns, not {wanted_ns}");
        assert_eq!(net.ends[1].connections(), 0);
        net.assert_clean();
    }
}
