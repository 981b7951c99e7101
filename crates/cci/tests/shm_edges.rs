//! Shared memory: receivers that are not ready, ends, limits, many links, peers that lie or stop.

mod shm_common;

use cci::{
    Attribute, ConnectFailure, Connection, DisconnectReason, Endpoint, Event, Options, SendError, SendFlags,
    Status,
};
use cci_sys::unix::{Name, Stream};
use shm_common::*;
use std::time::{Duration, Instant};

#[test]
fn a_receiver_without_buffers_stalls_its_ring_and_resumes() {
    let (mut a, mut b) = (endpoint(), endpoint_with(few_buffers(4)));
    let mut c = endpoint();
    let (ours, _) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    let (other, _) = connect(&mut c, &mut b, Attribute::ReliableOrdered);
    for number in 0..20u64 {
        a.send(ours, &number.to_ne_bytes(), number, SendFlags::NONE).unwrap();
    }
    let (mut kept, mut completed) = (Vec::new(), 0);
    run_for(&mut a, &mut b, Duration::from_millis(30), |_, event| match event {
        Event::Recv(message) => kept.push(message),
        Event::Send { status: Status::Success, .. } => completed += 1,
        other => panic!("{other:?}"),
    });
    // Where there are others, one connection gets no more than half.
    assert_eq!((kept.len(), completed), (2, 2));
    assert_eq!(b.recv_buffers_free(), 2);
    assert!(a.explain(ours).unwrap().to_string().contains("peer has no receive buffer"));
    // The other link is not stopped by it.
    c.send(other, b"from c", 0, SendFlags::NONE).unwrap();
    drop(kept.pop());
    let mut numbers = vec![0];
    let (mut from_c, start) = (false, Instant::now());
    while numbers.len() < 19 || !from_c {
        assert!(start.elapsed() < PATIENCE, "{numbers:?} {from_c}");
        a.progress();
        while a.next_event().is_some() {}
        while c.next_event().is_some() {}
        if let Some(Event::Recv(message)) = b.next_event() {
            match <[u8; 8]>::try_from(&*message) {
                Ok(number) => numbers.push(u64::from_ne_bytes(number)),
                Err(_) => from_c = true,
            }
            kept.clear();
        }
    }
    assert_eq!(numbers[1..], (2..20).collect::<Vec<_>>(), "in order, nothing lost");
    assert!(counter(&b, "stalls") > 0 && b.counters().receiver_not_ready > 0);
}

#[test]
fn a_send_that_finds_no_buffer_in_time_ends_in_rnr_and_is_not_delivered() {
    for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered] {
        let (mut a, mut b) = (endpoint(), endpoint_with(few_buffers(2)));
        let (ours, _) = connect(&mut a, &mut b, attribute);
        a.set_send_timeout(ours, Duration::from_millis(40)).unwrap();
        for number in 0..5u64 {
            a.send(ours, &number.to_ne_bytes(), number, SendFlags::NONE).unwrap();
        }
        let (mut kept, mut ends) = (Vec::new(), Vec::new());
        run(&mut a, &mut b, "five completions", |_, event, _| {
            match event {
                Event::Recv(message) => kept.push(message),
                Event::Send { context, status, .. } => ends.push((context, status)),
                other => panic!("{other:?}"),
            }
            (ends.len() == 5).then_some(())
        });
        let rnr = Status::ReceiverNotReady;
        let expected = [(0, Status::Success), (1, Status::Success), (2, rnr), (3, rnr), (4, rnr)];
        assert_eq!(ends, expected);
        assert_eq!(a.connection_counters(ours).unwrap().receiver_not_ready, 3);
        // The connection lives on; what was taken back does not arrive.
        kept.clear();
        exchange(&mut a, &mut b, ours, b"after");
        assert!(a.is_open(ours));
        assert_eq!(b.counters().messages_received, 3);
    }
}

/// Sends until one finds the ring full, and waits; answers how many were sent.
fn fill(endpoint: &mut Endpoint, connection: Connection, flags: SendFlags) -> u64 {
    let waits = |endpoint: &Endpoint| {
        let explanation = endpoint.explain(connection).unwrap();
        explanation.facts.iter().any(|(name, _)| *name == "sends that wait for space")
    };
    for sent in 1..=1_000 {
        endpoint.send(connection, &[1; 8000], sent, flags).unwrap();
        if waits(endpoint) {
            return sent;
        }
    }
    panic!("a thousand messages fit into a ring");
}

#[test]
fn the_room_of_messages_taken_back_is_given_back() {
    let (mut a, mut b) = (endpoint(), endpoint_with(few_buffers(1)));
    let (ours, _) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    a.set_send_timeout(ours, Duration::from_millis(5)).unwrap();
    // Fill the ring and let all but the first be taken back.
    let (mut kept, sent, mut ended) = (Vec::new(), fill(&mut a, ours, SendFlags::NONE), 0);
    run(&mut a, &mut b, "the ends of the sends", |_, event, _| {
        match event {
            Event::Recv(message) => kept.push(message),
            Event::Send { .. } => ended += 1,
            other => panic!("{other:?}"),
        }
        (ended == sent).then_some(())
    });
    assert_eq!(kept.len(), 1);
    kept.clear();
    // The receiver passes over them, and finds nothing behind them.
    run_for(&mut a, &mut b, Duration::from_millis(2), |_, event| panic!("{event:?}"));
    let again = fill(&mut a, ours, SendFlags::SILENT);
    assert!(again + 1 >= sent, "{again} fit where {sent} did");
}

#[test]
fn an_unreliable_message_without_a_buffer_is_dropped_and_counted() {
    let (mut a, mut b) = (endpoint(), endpoint_with(few_buffers(1)));
    let (ours, _) = connect(&mut a, &mut b, Attribute::Unreliable);
    for number in 0..3u64 {
        a.send(ours, &number.to_ne_bytes(), number, SendFlags::NONE).unwrap();
        let Some(Event::Send { status: Status::Success, .. }) = a.next_event() else { panic!() };
    }
    let mut kept = Vec::new();
    run_for(&mut a, &mut b, Duration::from_millis(5), |_, event| {
        let Event::Recv(message) = event else { panic!("{event:?}") };
        kept.push(message);
    });
    assert_eq!((kept.len(), dropped(&b, "unreliable_no_buffer")), (1, 2));
    kept.clear();
    exchange(&mut a, &mut b, ours, b"after");
}

#[test]
fn closing_in_every_order_delivers_what_was_sent_and_frees_everything() {
    for both in [false, true] {
        for send_first in [false, true] {
            let (mut a, mut b) = (endpoint(), endpoint());
            let (ours, theirs) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
            let (mut came, mut completed, mut reported) = (0, 0, 0);
            if send_first {
                for number in 0..10 {
                    a.send(ours, &pattern(number, 100), number, SendFlags::NONE).unwrap();
                }
            }
            a.disconnect(ours);
            assert_eq!(a.send(ours, b"", 0, SendFlags::NONE), Err(SendError::Disconnected));
            if both {
                b.disconnect(theirs);
            }
            let start = Instant::now();
            while a.counters().memory.kinds.iter().any(|(kind, bytes)| *kind == "rings" && *bytes > 0) {
                assert!(start.elapsed() < PATIENCE, "the link stays");
                for (side, endpoint) in [&mut a, &mut b].into_iter().enumerate() {
                    match endpoint.next_event() {
                        Some(Event::Recv(_)) if side == 1 => came += 1,
                        Some(Event::Send { context, .. }) if side == 0 => {
                            assert_eq!(context, completed);
                            completed += 1;
                        }
                        Some(Event::Disconnected { connection, reason, .. }) if side == 1 => {
                            assert_eq!((connection, reason), (theirs, DisconnectReason::Closed));
                            reported += 1;
                        }
                        None => {}
                        Some(other) => panic!("{other:?}"),
                    }
                }
            }
            run_for(&mut a, &mut b, Duration::from_millis(2), |side, event| match event {
                Event::Recv(_) if side == 1 => came += 1,
                Event::Send { .. } => completed += 1,
                Event::Disconnected { .. } if side == 1 => reported += 1,
                other => panic!("{other:?}"),
            });
            assert_eq!(reported, u32::from(!both), "who has not disconnected itself, once");
            assert_eq!(completed, if send_first { 10 } else { 0 });
            assert!(both || came == completed, "{came} of {completed}");
            assert!(!b.is_open(theirs));
            assert!(both || b.send(theirs, b"", 0, SendFlags::NONE) == Err(SendError::UnknownConnection));
            assert_eq!((counter(&a, "links"), counter(&b, "links")), (0, 0));
            assert_eq!((a.counters().connections_open, b.counters().connections_open), (0, 0));
            // And again.
            let (ours, _) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
            exchange(&mut a, &mut b, ours, b"once more");
        }
    }
}

#[test]
fn messages_of_an_endpoint_that_is_gone_still_arrive() {
    let (mut a, mut b) = (endpoint(), endpoint_with(few_buffers(3)));
    let (ours, theirs) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    for number in 0..100u64 {
        a.send(ours, &number.to_ne_bytes(), 0, SendFlags::SILENT).unwrap();
    }
    let start = Instant::now();
    drop(a);
    assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
    // Three buffers only: it is drained in pieces, as they come back.
    for number in 0..100u64 {
        let Some(Event::Recv(message)) = b.wait(Some(PATIENCE)).unwrap() else { panic!("{number}") };
        assert_eq!(*message, number.to_ne_bytes());
    }
    while counter(&b, "links") > 0 {
        assert!(start.elapsed() < PATIENCE);
        assert!(b.next_event().is_none());
    }
    assert!(!b.is_open(theirs));
    assert_eq!(b.send(theirs, b"", 0, SendFlags::NONE), Err(SendError::Disconnected));
}

#[test]
fn sends_to_an_endpoint_that_goes_end_once() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let (ours, _) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    let mut sent = 0;
    while a.send(ours, &[0; 1000], sent, SendFlags::NONE).is_ok() {
        sent += 1;
    }
    b.progress();
    drop(b);
    for number in 0..sent {
        let Some(Event::Send { context, status, .. }) = a.wait(Some(PATIENCE)).unwrap() else {
            panic!("{number}")
        };
        assert_eq!(context, number);
        assert!(matches!(status, Status::Success | Status::Disconnected));
    }
    let event = a.wait(Some(PATIENCE)).unwrap();
    assert!(matches!(event, Some(Event::Disconnected { connection, .. }) if connection == ours), "{event:?}");
    assert!(a.wait(Some(Duration::from_millis(10))).unwrap().is_none());
    assert!(!a.is_open(ours));
}

#[test]
fn a_peer_that_does_not_poll_times_out_and_keepalive_says_so() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let (ours, theirs) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    let (idle, _) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    // Longer than a busy machine keeps this thread from polling.
    a.set_keepalive(idle, Some(Duration::from_millis(700))).unwrap();
    // As long as it polls, nothing happens.
    run_for(&mut a, &mut b, Duration::from_millis(1_500), |_, event| panic!("{event:?}"));
    a.set_send_timeout(ours, Duration::from_millis(30)).unwrap();
    a.send(ours, b"anybody?", 1, SendFlags::NONE).unwrap();
    let event = a.wait(Some(PATIENCE)).unwrap();
    assert!(matches!(event, Some(Event::Send { context: 1, status: Status::TimedOut, .. })), "{event:?}");
    assert!(!a.is_open(ours));
    let (mut silent, mut lost) = (0, 0);
    while silent == 0 || lost == 0 {
        match a.wait(Some(PATIENCE)).unwrap() {
            Some(Event::KeepaliveTimedOut { connection }) if connection == idle => silent += 1,
            Some(Event::Disconnected { connection, reason: DisconnectReason::TimedOut, .. }) => {
                assert_eq!(connection, ours);
                lost += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(a.wait(Some(Duration::from_millis(100))).unwrap().is_none(), "once");
    assert!(a.is_open(idle), "keepalive does not disconnect");
    // It comes back: the connection that nothing happened to goes on.
    exchange_ignoring(&mut a, &mut b, idle, b"back");
    a.disconnect(ours);
    run(&mut a, &mut b, "the end of the first", |_, event, _| {
        matches!(event, Event::Disconnected { connection, .. } if connection == theirs).then_some(())
    });
    assert!(!b.is_open(theirs));
}

/// As `exchange`, but other messages may come, too.
fn exchange_ignoring(a: &mut Endpoint, b: &mut Endpoint, on: cci::Connection, message: &[u8]) {
    a.send(on, message, 5, SendFlags::NONE).unwrap();
    run(a, b, "an exchange", |_, event, _| match event {
        Event::Recv(got) if *got == *message => Some(()),
        _ => None,
    });
}

#[test]
fn two_hundred_links_work_and_polling_does_not_slow_down() {
    let mut hub = endpoint();
    let uri = hub.uri().to_owned();
    let idle_poll_ns = |hub: &mut Endpoint| {
        let mut best_ns = u64::MAX;
        for _ in 0..50 {
            std::thread::sleep(Duration::from_micros(100));
            let start = Instant::now();
            for _ in 0..1_000 {
                assert!(hub.next_event().is_none());
            }
            best_ns = best_ns.min(start.elapsed().as_nanos() as u64 / 1_000);
        }
        best_ns
    };
    let mut peers = Vec::new();
    let mut first_ns = 0;
    for number in 0..200 {
        let options = Options::default().recv_buffers(8).send_buffers(64);
        let mut peer = endpoint_with(options);
        peer.connect(&uri, b"", Attribute::ReliableOrdered, 0, Some(PATIENCE)).unwrap();
        let (mut ours, mut theirs) = (None, None);
        run(&mut peer, &mut hub, "connecting", |_, event, endpoint| {
            match event {
                Event::ConnectRequest(request) => endpoint.accept(request, 0).unwrap(),
                Event::Connect { result, .. } => ours = Some(result.unwrap()),
                Event::Accept { result, .. } => theirs = Some(result.unwrap()),
                other => panic!("{other:?}"),
            }
            ours.zip(theirs)
        });
        peers.push((peer, ours.unwrap(), theirs.unwrap()));
        if number == 0 {
            first_ns = idle_poll_ns(&mut hub);
        }
    }
    assert_eq!(counter(&hub, "links"), 200);
    let last_ns = idle_poll_ns(&mut hub);
    println!("an idle poll takes {first_ns} ns with 1 link, {last_ns} ns with 200");
    assert!(last_ns <= 3 * first_ns + 100, "{last_ns} ns with 200 links, {first_ns} ns with one");
    assert!(counter(&hub, "links_polled") <= 16);
    // Every one is heard, hot or cold, and can be answered.
    for round in 0..3u64 {
        for (peer, connection, _) in &mut peers {
            peer.send(*connection, &round.to_ne_bytes(), 0, SendFlags::SILENT).unwrap();
        }
        let (mut came, start) = (0, Instant::now());
        while came < 200 {
            assert!(start.elapsed() < PATIENCE, "{came}");
            if let Some(Event::Recv(message)) = hub.next_event() {
                assert_eq!(*message, round.to_ne_bytes());
                hub.send(message.connection(), &message, 0, SendFlags::SILENT).unwrap();
                came += 1;
            }
        }
        for (number, (peer, _, _)) in peers.iter_mut().enumerate() {
            hub.progress();
            let event = peer.wait(Some(PATIENCE)).unwrap();
            assert!(matches!(event, Some(Event::Recv(_))), "{number}: {event:?}");
        }
    }
    // One that sleeps is woken by any of them.
    for at in [0, 7, 199] {
        assert!(hub.wait(Some(Duration::from_millis(2))).unwrap().is_none());
        let (peer, connection, _) = &mut peers[at];
        let (connection, wake) = (*connection, Duration::from_millis(20));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(wake);
                peer.send(connection, b"wake", 0, SendFlags::SILENT).unwrap();
            });
            let start = Instant::now();
            assert!(matches!(hub.wait(Some(PATIENCE)).unwrap(), Some(Event::Recv(_))));
            assert!(start.elapsed() < PATIENCE / 2);
        });
    }
}

#[test]
fn rings_stay_under_the_cap() {
    let cap = 4 << 20;
    let options = Options::default().recv_buffers(64).send_buffers(256).memory_bytes_max(cap);
    let mut hub = endpoint_with(options);
    let uri = hub.uri().to_owned();
    let (mut peers, mut refused) = (Vec::new(), None);
    while refused.is_none() {
        assert!(peers.len() < 200, "it never says no");
        let mut peer = endpoint_with(few_buffers(4));
        peer.connect(&uri, b"", Attribute::ReliableOrdered, 0, Some(PATIENCE)).unwrap();
        run(&mut peer, &mut hub, "an answer", |_, event, endpoint| match event {
            Event::ConnectRequest(request) => {
                let accepted = endpoint.accept(request, 0);
                assert!(matches!(accepted, Ok(()) | Err(cci::AcceptError::NoMemory)), "{accepted:?}");
                None
            }
            Event::Connect { result, .. } => {
                refused = result.err();
                Some(())
            }
            Event::Accept { result, .. } => {
                result.unwrap();
                None
            }
            other => panic!("{other:?}"),
        });
        run_for(&mut peer, &mut hub, Duration::from_millis(1), |_, _| {});
        let memory = hub.counters().memory;
        assert!(memory.total_bytes <= cap, "{memory:?}");
        peers.push(peer);
    }
    assert_eq!(refused, Some(ConnectFailure::NoMemory));
    assert!(peers.len() > 20, "small rings make room for many: {}", peers.len());
    // Room comes back with the links.
    peers.truncate(10);
    let start = Instant::now();
    while counter(&hub, "links") > 10 {
        assert!(start.elapsed() < PATIENCE);
        hub.progress();
    }
    let mut peer = endpoint();
    while hub.next_event().is_some() {}
    let (ours, _) = connect(&mut peer, &mut hub, Attribute::ReliableOrdered);
    exchange(&mut peer, &mut hub, ours, b"room again");
}

fn name_of(endpoint: &Endpoint) -> Name {
    Name::Abstract(format!("cci/{}", endpoint.uri().strip_prefix("shm://").unwrap()).into_bytes())
}

#[test]
fn strangers_who_talk_nonsense_or_nothing_harm_nobody() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let (ours, _) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    let name = name_of(&b);
    let mut strangers = Vec::new();
    for number in 0..300u64 {
        let stream = Stream::connect(&name).unwrap();
        match number % 3 {
            0 => drop(stream.send(&pattern(number, 1 + number as usize % 900), &[])),
            1 => drop(stream),
            _ => strangers.push(stream),
        }
    }
    let start = Instant::now();
    while dropped(&b, "bad_handshake") < 100 || dropped(&b, "handshake_timed_out") < 100 {
        assert!(start.elapsed() < PATIENCE, "{:?}", b.counters().drops);
        assert!(b.next_event().is_none());
        a.progress();
    }
    exchange(&mut a, &mut b, ours, b"undisturbed");
    // Those who were silent have been hung up on.
    assert!(strangers.iter().all(Stream::hung_up));
    let (again, _) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    exchange(&mut a, &mut b, again, b"still listening");
}

#[test]
fn a_server_that_accepts_nothing_else_than_nonsense_fails_the_attempt() {
    let name = format!("test.liar.{}", std::process::id());
    let listener =
        cci_sys::unix::Listener::bind(&Name::Abstract(format!("cci/{name}").into_bytes())).unwrap();
    let mut a = endpoint();
    a.connect(&format!("shm://{name}"), b"", Attribute::ReliableOrdered, 1, Some(PATIENCE)).unwrap();
    let stream = listener.accept().unwrap().unwrap();
    stream.send(b"not a protocol of yours", &[]).unwrap();
    let event = a.wait(Some(PATIENCE)).unwrap();
    assert!(
        matches!(event, Some(Event::Connect { result: Err(ConnectFailure::Disconnected), .. })),
        "{event:?}"
    );
    // The message names the other version.
    a.connect(&format!("shm://{name}"), b"", Attribute::ReliableOrdered, 1, Some(PATIENCE)).unwrap();
    let stream = listener.accept().unwrap().unwrap();
    stream.send(b"CCIm\x09\x04\0\0\0", &[]).unwrap();
    let event = a.wait(Some(PATIENCE)).unwrap();
    assert!(
        matches!(event, Some(Event::Connect { result: Err(ConnectFailure::Version { theirs: 9 }), .. })),
        "{event:?}"
    );
    assert_eq!(a.counters().connections_open, 0);
}
