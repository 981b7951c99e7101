//! Programs that do not call for a while, or do not take their events.

mod shm_common;

use cci::{
    Attribute, ConnectFailure, Context, Endpoint, Event, Options, SendError, SendFlags, SharedEndpoint,
    Status,
};
use shm_common::{PATIENCE, connect, endpoint, endpoint_with, run_for};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn udp() -> Endpoint {
    let text = "[u]\ntransport = udp\nip = 127.0.0.1\n";
    let context = Context::from_text(text, Path::new("test.ini")).unwrap();
    Endpoint::create(&context.devices()[0], Options::default()).unwrap()
}

/// The peer is there and answers; it is our own program that was away, and asked nobody.
fn is_not_called_silent(mut a: Endpoint, mut b: Endpoint) {
    const LIMIT: Duration = Duration::from_millis(400);
    let (ours, _) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    a.set_keepalive(ours, Some(LIMIT)).unwrap();
    let start = Instant::now();
    while start.elapsed() < LIMIT * 2 {
        assert!(b.next_event().is_none());
    }
    run_for(&mut a, &mut b, LIMIT * 2, |who, event| panic!("{event:?} at {who}"));
    // A peer that is asked and says nothing is found out all the same, and once.
    let (start, mut reported) = (Instant::now(), 0);
    while start.elapsed() < LIMIT * 3 {
        match a.next_event() {
            Some(Event::KeepaliveTimedOut { connection }) if connection == ours => reported += 1,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
    assert_eq!(reported, 1);
}

#[test]
fn a_living_peer_is_not_called_silent_over_shm() {
    is_not_called_silent(endpoint(), endpoint());
}

#[test]
fn a_living_peer_is_not_called_silent_over_udp() {
    is_not_called_silent(udp(), udp());
}

#[test]
fn completions_that_nobody_takes_do_not_fill_the_memory() {
    let few = Options::default().recv_buffers(4).send_buffers(8).rma_operations(8);
    let (mut a, mut b) = (endpoint_with(few), endpoint());
    let (ours, _) = connect(&mut a, &mut b, Attribute::Unreliable);
    let mut sent = 0;
    for number in 0..2_000 {
        match a.send(ours, b"gone", number, SendFlags::NONE) {
            Ok(()) => sent += 1,
            Err(error) => assert_eq!(error, SendError::WouldBlock),
        }
        while b.next_event().is_some() {}
    }
    assert!((8..=4 + 8 + 8 + 64).contains(&sent), "{sent} completions wait");
    a.send(ours, b"no completion to wait", 0, SendFlags::SILENT).unwrap();
    let mut completed = 0;
    while let Some(event) = a.next_event() {
        assert!(matches!(event, Event::Send { .. }), "{event:?}");
        completed += 1;
    }
    assert_eq!(completed, sent);
    a.send(ours, b"again", 0, SendFlags::NONE).unwrap();
}

/// A long read, and messages behind it that complete at once: their completions come after it.
#[test]
fn completions_behind_a_long_operation_do_not_fill_the_memory() {
    const BYTES: u64 = 64 << 20;
    let text = "[u]\ntransport = udp\nip = 127.0.0.1\n";
    let context = Context::from_text(text, Path::new("test.ini")).unwrap();
    let few = Options::default().recv_buffers(64).send_buffers(64).rma_operations(8);
    let most = 64 + 64 + 8 + 64;
    let mut a = Endpoint::create(&context.devices()[0], few).unwrap();
    let mut b = udp();
    let (ours, _) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    let local = cci::Memory::foreign(cci::Foreign::owned(vec![0; BYTES as usize].into_boxed_slice()));
    let remote = cci::Memory::foreign(cci::Foreign::owned(vec![5; BYTES as usize].into_boxed_slice()));
    let into = a.register(&local, cci::Access::READ).unwrap();
    let from = b.register(&remote, cci::Access::READ).unwrap();
    let (into, from) = (cci::RegionAddress::new(into, 0), cci::RegionAddress::new(from, 0));
    a.rma_read(ours, into, from, BYTES, u64::MAX, cci::RmaFlags::NONE).unwrap();
    let held = |part: &(&str, u64)| part.0 == "remote operations on their way" && part.1 > 0;
    assert!(a.counters().memory.kinds.iter().any(held), "what it takes is reported");
    let (mut sent, mut reported) = (0, 0);
    let start = Instant::now();
    loop {
        while a.send(ours, b"behind", sent, SendFlags::NONE).is_ok() {
            sent += 1;
        }
        while b.next_event().is_some() {}
        assert!(sent <= most, "{sent} sends, and nothing reported");
        match a.next_event() {
            Some(Event::Send { context: u64::MAX, .. }) => break,
            Some(other) => panic!("{other:?} before the read"),
            None => assert!(start.elapsed() < PATIENCE),
        }
    }
    assert!(sent > 64, "messages went on meanwhile: {sent}");
    while reported < sent {
        assert!(start.elapsed() < PATIENCE);
        while b.next_event().is_some() {}
        if let Some(event) = a.next_event() {
            assert!(matches!(event, Event::Send { context, .. } if context == reported), "{event:?}");
            reported += 1;
        }
    }
}

#[test]
fn a_blocking_send_does_not_wait_for_room_for_ever() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let (ours, _) = connect(&mut a, &mut b, Attribute::Unreliable);
    a.set_send_timeout(ours, Duration::from_millis(100)).unwrap();
    // The peer does not read. Nothing that is under way has a time of its own: unreliable sends have ended.
    // A line each, so that they leave no space in the ring.
    while a.send(ours, &[7; 40], 0, SendFlags::SILENT).is_ok() {}
    let start = Instant::now();
    let sent = a.send_blocking(ours, &[b"no room"]);
    // There was no send buffer in time, or there was one and the peer took nothing.
    assert!(matches!(sent, Err(SendError::WouldBlock) | Ok(Status::TimedOut)), "{sent:?}");
    assert!(start.elapsed() < PATIENCE / 2);
    while b.next_event().is_some() {}
    assert!(a.send_blocking(ours, &[b"room"]).is_ok());
}

/// A request that another thread drops must wake the endpoint that it came to, or nobody answers the client.
fn refused_from_another_thread(mut a: Endpoint, mut b: Endpoint) {
    let uri = b.uri().to_owned();
    a.connect(&uri, b"", Attribute::ReliableOrdered, 1, Some(PATIENCE)).unwrap();
    let (give, given) = mpsc::channel();
    let server = std::thread::spawn(move || {
        while let Some(event) = b.wait(Some(PATIENCE / 2)).unwrap() {
            let Event::ConnectRequest(request) = event else { panic!("{event:?}") };
            give.send(request).unwrap();
        }
    });
    let start = Instant::now();
    let request = loop {
        assert!(a.next_event().is_none());
        assert!(start.elapsed() < PATIENCE);
        if let Ok(request) = given.try_recv() {
            break request;
        }
    };
    // The server's thread is asleep by now.
    std::thread::sleep(Duration::from_millis(100));
    drop(request);
    let event = a.wait(Some(PATIENCE / 5)).unwrap();
    let Some(Event::Connect { context: 1, result: Err(ConnectFailure::Refused) }) = event else {
        panic!("{event:?}")
    };
    server.join().unwrap();
}

#[test]
fn a_request_dropped_by_another_thread_is_refused_at_once_over_shm() {
    refused_from_another_thread(endpoint(), endpoint());
}

#[test]
fn a_request_dropped_by_another_thread_is_refused_at_once_over_udp() {
    refused_from_another_thread(udp(), udp());
}

#[test]
fn requests_that_outlive_their_endpoint_end_one_by_one() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let uri = b.uri().to_owned();
    for context in 0..2 {
        a.connect(&uri, b"", Attribute::ReliableOrdered, context, Some(PATIENCE)).unwrap();
    }
    let (mut requests, start) = (Vec::new(), Instant::now());
    while requests.len() < 2 && start.elapsed() < PATIENCE {
        if let Some(Event::ConnectRequest(request)) = b.next_event() {
            requests.push(request);
        }
    }
    drop(b);
    assert!(a.wait(Some(Duration::from_millis(50))).unwrap().is_none());
    for _ in 0..2 {
        drop(requests.pop());
        let event = a.wait(Some(PATIENCE / 5)).unwrap();
        assert!(matches!(event, Some(Event::Connect { result: Err(_), .. })), "{event:?}");
    }
}

/// What falls due while a thread goes to sleep is reported at once: nothing else would wake it.
fn time_is_up_on_the_way_to_sleep(mut a: Endpoint, mut b: Endpoint) {
    const LIMIT: Duration = Duration::from_micros(700);
    let (ours, _) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    let a = SharedEndpoint::new(a);
    // Something else may wake it later, and a busy machine may be slow now and then.
    let mut late = 0;
    for round in 0..300 {
        a.send(ours, b"there?", round, SendFlags::NONE).unwrap();
        let (mut heard, mut reported) = (false, false);
        while !heard || !reported {
            heard |= matches!(b.next_event(), Some(Event::Recv(_)));
            reported |= matches!(a.next_event(), Some(Event::Send { .. }));
        }
        a.with(|a| a.set_keepalive(ours, Some(LIMIT))).unwrap();
        let start = Instant::now();
        let event = a.wait(Some(Duration::from_secs(2))).unwrap();
        assert!(matches!(event, Some(Event::KeepaliveTimedOut { .. })), "{round}: {event:?}");
        late += u32::from(start.elapsed() > LIMIT * 50);
    }
    assert!(late < 60, "late {late} times");
}

#[test]
fn time_is_up_on_the_way_to_sleep_over_shm() {
    time_is_up_on_the_way_to_sleep(endpoint(), endpoint());
}

#[test]
fn time_is_up_on_the_way_to_sleep_over_udp() {
    time_is_up_on_the_way_to_sleep(udp(), udp());
}
