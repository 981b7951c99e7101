//! One process, and what it leaves to others of what an endpoint has for all.

use super::*;
use crate::transport::shm::peer::process_of;

fn small() -> Endpoint {
    let options =
        Options { memory_bytes_max: 8 << 20, recv_buffers: 16, send_buffers: 16, ..Options::default() };
    Endpoint::create(&builtin::shm("shm"), options).unwrap()
}

/// A client that asks, and whether it is offered a link.
fn is_offered(server: &mut Endpoint, endpoint: u64, pid: u32) -> Option<Stream> {
    let name = server.uri().strip_prefix("shm://").unwrap().to_owned();
    let stream = Stream::connect(&Name::Abstract(format!("cci/{name}").into_bytes())).unwrap();
    let request = Request { endpoint, conn: OWN, mss: 4096, attribute: Attribute::ReliableOrdered };
    stream.send(Message::Request(request, b"").bytes().as_slice(), &[]).unwrap();
    until(server, "a request", |server, event| {
        let Some(Event::ConnectRequest(mut request)) = event else { return None };
        request.body.as_mut().unwrap().inner.downcast_mut::<Asked>().unwrap().peer.pid = Some(pid);
        match server.accept(request, 1) {
            Ok(()) => Some(true),
            Err(AcceptError::NoMemory) => Some(false),
            Err(other) => panic!("{other}"),
        }
    })
    .then_some(stream)
}

#[test]
fn a_process_that_has_most_rings_keeps_no_other_out() {
    let mut server = small();
    // It confirms none of them.
    let mut kept: Vec<Stream> = Vec::new();
    while let Some(stream) = is_offered(&mut server, kept.len() as u64, 4711) {
        kept.push(stream);
        assert!(kept.len() < 1000, "without bound");
    }
    assert!(kept.len() > 20, "{}", kept.len());
    let honest: Vec<_> = (0..2).map_while(|number| is_offered(&mut server, 5000 + number, 4712)).collect();
    assert_eq!(honest.len(), 2, "beside {} of another process", kept.len());
    let memory = server.counters().memory;
    assert!(memory.total_bytes <= memory.cap_bytes, "{memory:?}");
}

#[test]
fn a_process_that_asks_a_thousand_times_keeps_no_other_from_asking() {
    let mut server = endpoint();
    let name = server.uri().strip_prefix("shm://").unwrap().to_owned();
    let mut streams = Vec::new();
    for endpoint in 0..1_100 {
        let stream = Stream::connect(&Name::Abstract(format!("cci/{name}").into_bytes())).unwrap();
        let request = Request { endpoint, conn: OWN, mss: 4096, attribute: Attribute::ReliableOrdered };
        stream.send(Message::Request(request, b"").bytes().as_slice(), &[]).unwrap();
        streams.push(stream);
        server.progress();
    }
    // The program takes them and answers none.
    let mut held = Vec::new();
    until(&mut server, "too many", |server, event| {
        held.extend(event);
        (dropped(server, "requests_over_quota") + held.len() as u64 >= 1_100).then_some(())
    });
    assert!(held.len() > 800 && held.len() < 1_000, "{}", held.len());
    let mut buffer = [0; wire::BYTES_MAX];
    let refused = streams.last().unwrap().recv(&mut buffer, 0).unwrap();
    assert_eq!(wire::parse(&buffer[..refused.len]), Ok(Message::Refuse(ConnectFailure::NoMemory)));
    // What it answers makes room again.
    held.clear();
    server.progress();
    assert_eq!(counter(&server, "requests_waiting"), 0);
    assert_ne!(process_of(1, Some(2)), process_of(2, Some(1)));
}

/// The first is offered a link, and the others wait for it. None of them ever confirms.
#[test]
fn clients_that_wait_for_each_others_link_have_no_longer_for_that() {
    let mut server = endpoint();
    let mut streams = Vec::new();
    let start = Instant::now();
    for _ in 0..5 {
        streams.push(is_offered(&mut server, 1, 4711).unwrap());
    }
    let mut failed = Vec::new();
    until(&mut server, "all ends", |_, event| {
        if let Some(Event::Accept { result, .. }) = event {
            assert_eq!(result, Err(ConnectFailure::TimedOut));
            failed.push(start.elapsed());
        }
        (failed.len() == streams.len()).then_some(())
    });
    assert!(failed[4] < failed[0] * 3 / 2, "{failed:?}");
}

/// Everybody on the host finds the name of an endpoint.
#[test]
fn strangers_that_connect_all_the_time_keep_nobody_out() {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    const STRANGERS: u64 = 5_000;
    if process::uid() != 0 {
        println!("skipped: not root, so no thread can become another user");
        return;
    }
    let (mut server, mut client) = (endpoint(), endpoint());
    let uri = server.uri().to_owned();
    let name = Name::Abstract(format!("cci/{}", uri.strip_prefix("shm://").unwrap()).into_bytes());
    let before_bytes = server.counters().memory.total_bytes;
    let (stop, tries, begun) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // This thread alone.
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
            // Not for ever, if an assertion below fails.
            while !stop.load(Ordering::Relaxed) && begun.elapsed() < 3 * PATIENCE {
                tries.fetch_add(u64::from(Stream::connect(&name).is_ok()), Ordering::Relaxed);
            }
        });
        until(&mut server, "a crowd", |server, event| {
            assert!(event.is_none(), "{event:?}");
            (dropped(server, "not_permitted") >= STRANGERS).then_some(())
        });
        assert_eq!(server.counters().memory.total_bytes, before_bytes);
        client.connect(&uri, b"", Attribute::ReliableOrdered, 1, None).unwrap();
        let made = until(&mut client, "a connection", |_, event| {
            if let Some(Event::ConnectRequest(request)) = server.next_event() {
                server.accept(request, 2).unwrap();
            }
            match event {
                Some(Event::Connect { result, .. }) => Some(result.is_ok()),
                _ => None,
            }
        });
        stop.store(true, Ordering::Relaxed);
        assert!(made, "beside {} strangers", tries.load(Ordering::Relaxed));
    });
}

fn counter(endpoint: &Endpoint, name: &str) -> u64 {
    endpoint.counters().device.iter().find(|(known, _)| *known == name).unwrap().1
}
