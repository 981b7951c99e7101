//! Connections over TCP with remote memory leave nothing behind: no descriptor, no memory. Alone in its process, so that
//! descriptors can be counted.

use cci::{
    Access, Attribute, Connection, Context, Endpoint, Event, Options, RegionAddress, RmaFlags, SendFlags,
    Status,
};
use std::path::Path;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 500;

fn endpoint() -> Endpoint {
    let text = "[t]\ntransport = tcp\nip = 127.0.0.1\n";
    let context = Context::from_text(text, Path::new("test.ini")).unwrap();
    Endpoint::create(context.default_device(), Options::default()).unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Polls both until `done`, which gets each event and whose it is.
fn until(ends: &mut [Endpoint; 2], mut done: impl FnMut(usize, &mut Endpoint, Option<Event>) -> bool) {
    let start = Instant::now();
    loop {
        for (at, end) in ends.iter_mut().enumerate() {
            let event = end.next_event();
            if done(at, end, event) {
                return;
            }
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", ends[0].counters());
    }
}

fn connect(ends: &mut [Endpoint; 2]) -> [Connection; 2] {
    let uri = ends[1].uri().to_owned();
    ends[0].connect(&uri, b"", Attribute::ReliableOrdered, 1, None).unwrap();
    let mut made = [None; 2];
    until(ends, |at, end, event| {
        match event {
            Some(Event::ConnectRequest(request)) => end.accept(request, 2).unwrap(),
            Some(Event::Connect { result, .. } | Event::Accept { result, .. }) => {
                made[at] = Some(result.unwrap());
            }
            _ => {}
        }
        made.iter().all(Option::is_some)
    });
    made.map(Option::unwrap)
}

#[test]
fn connections_with_remote_memory_leave_nothing_behind() {
    let mut ends = [endpoint(), endpoint()];
    let memories = [0, 1].map(|at: usize| ends[at].allocate(1 << 16).unwrap());
    let handles = [0, 1].map(|at: usize| ends[at].register(&memories[at], Access::ALL).unwrap());
    let mut before = None;
    for round in 0..ROUNDS {
        let [near, far] = connect(&mut ends);
        // Either side asks first; every third time nobody waits for what is under way.
        let (initiator, to) = if round % 2 == 0 { (0, near) } else { (1, far) };
        let (source, target) =
            (RegionAddress::new(handles[initiator], 0), RegionAddress::new(handles[1 - initiator], 0));
        ends[initiator].rma_write(to, source, target, 40_000, 7, RmaFlags::NONE).unwrap();
        ends[initiator].rma_read(to, source, target, 40_000, 7, RmaFlags::NONE).unwrap();
        ends[initiator].send(to, b"too", 7, SendFlags::NONE).unwrap();
        let mut ended = 0;
        let waits = round % 3 != 0;
        let count = |event: &Option<Event>| u64::from(matches!(event, Some(Event::Send { context: 7, .. })));
        if waits {
            until(&mut ends, |_, _, event| {
                if let Some(Event::Send { status, .. }) = &event {
                    assert_eq!(*status, Status::Success);
                }
                ended += count(&event);
                ended == 3
            });
        }
        ends[0].disconnect(near);
        if round % 5 != 0 {
            ends[1].disconnect(far);
        }
        until(&mut ends, |_, _, event| {
            ended += count(&event);
            ended == 3
        });
        if round % 5 == 0 {
            ends[1].disconnect(far);
        }
        if round == 50 {
            settle(&mut ends);
            before = Some((descriptors(), memory(&ends)));
        }
    }
    settle(&mut ends);
    let (descriptors_before, memory_before) = before.unwrap();
    assert_eq!(descriptors(), descriptors_before);
    assert!(memory(&ends) <= memory_before + (64 << 10), "{} bytes, then {}", memory_before, memory(&ends));
}

fn memory(ends: &[Endpoint; 2]) -> u64 {
    ends.iter().map(|end| end.counters().memory.total_bytes).sum()
}

/// Long enough for streams that linger.
fn settle(ends: &mut [Endpoint; 2]) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(1500) {
        ends.iter_mut().for_each(|end| assert!(end.next_event().is_none()));
    }
}
