//! The progress thread: it serves peers while the program calls nothing, costs nothing while there is nothing to do, and
//! ends with its endpoint.

mod shm_common;

use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, Attribute, ConnectFailure, Connection, Context, Device,
    Endpoint, Event, Foreign, Memory, Options, RegionAddress, RmaFlags, SendError, SendFlags, SharedEndpoint,
    Status,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shm_common::PATIENCE;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tests here count the threads of the process: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn udp() -> Device {
    let context =
        Context::from_text("[u]\ntransport = udp\nip = 127.0.0.1\n", Path::new("test.ini")).unwrap();
    context.devices()[0].clone()
}

fn devices() -> [Device; 2] {
    [shm_common::device(), udp()]
}

fn with_thread(device: &Device) -> SharedEndpoint {
    SharedEndpoint::with_progress_thread(device, Options::default()).unwrap()
}

/// Progress threads of this process: how often each went to sleep.
fn sleeps_of_threads() -> Vec<u64> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        // A thread that ends meanwhile is none.
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if name.trim_end() != "cci-progress" {
            continue;
        }
        let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        found.push(line.map_or(0, |count| count.trim().parse().unwrap()));
    }
    found
}

/// A thread takes its name once it runs, and is listed until the kernel has cleaned up behind it.
fn sleeps_of(count: usize) -> Vec<u64> {
    let start = Instant::now();
    loop {
        let all = sleeps_of_threads();
        if all.len() == count {
            return all;
        }
        assert!(start.elapsed() < PATIENCE, "{} progress threads, not {count}", all.len());
        std::thread::yield_now();
    }
}

fn sleeps_of_the_thread() -> u64 {
    sleeps_of(1)[0]
}

/// Connects `a` to `b`; both connections.
fn connect(a: &mut Endpoint, b: &SharedEndpoint, attribute: Attribute) -> (Connection, Connection) {
    a.connect(&b.uri(), b"", attribute, 77, Some(PATIENCE)).unwrap();
    let (mut ours, mut theirs, start) = (None, None, Instant::now());
    while start.elapsed() < PATIENCE {
        match a.next_event() {
            Some(Event::Connect { result, .. }) => ours = Some(result.unwrap()),
            Some(other) => panic!("unexpected {other:?}"),
            None => {}
        }
        match b.next_event() {
            Some(Event::ConnectRequest(request)) => b.accept(request, 88).unwrap(),
            Some(Event::Accept { result, .. }) => theirs = Some(result.unwrap()),
            Some(other) => panic!("unexpected {other:?}"),
            None => {}
        }
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            return (ours, theirs);
        }
    }
    panic!("not connected in {PATIENCE:?}");
}

/// Sends one message and waits until the peer's library has it.
fn send(a: &mut Endpoint, on: Connection, context: u64) {
    a.send(on, b"to somebody who computes", context, SendFlags::NONE).unwrap();
    match a.wait(Some(PATIENCE)).unwrap() {
        Some(Event::Send { context: ended, status, .. }) => {
            assert_eq!((ended, status), (context, Status::Success))
        }
        other => panic!("unexpected {other:?}"),
    }
}

/// How long the thread leaves a program alone that calls nothing.
const NAP: Duration = Duration::from_nanos(cci::limits::PROGRESS_NAP_NS);

#[test]
fn a_program_that_computes_is_still_there_for_its_peers() {
    let _alone = alone();
    for device in devices() {
        let target = with_thread(&device);
        let mut peer = Endpoint::create(&device, Options::default()).unwrap();
        let (ours, _) = connect(&mut peer, &target, Attribute::ReliableOrdered);
        // From here on the target's program computes for a second.
        let (start, mut sent, mut slowest) = (Instant::now(), 0, Duration::ZERO);
        while start.elapsed() < Duration::from_secs(1) {
            std::thread::sleep(Duration::from_micros(2_500));
            let before = Instant::now();
            send(&mut peer, ours, sent);
            slowest = slowest.max(before.elapsed());
            sent += 1;
        }
        println!("{}: {sent} sends in {:?}, slowest {slowest:?}", device.transport().name(), start.elapsed());
        assert!(sent >= 100, "only {sent} sends were acknowledged");
        // And finds everything where it belongs.
        for number in 0..sent {
            assert!(matches!(target.next_event(), Some(Event::Recv(_))), "message {number}");
        }
        assert!(target.next_event().is_none());
    }
}

#[test]
fn a_program_that_computes_lends_its_memory_meanwhile() {
    const LEN: usize = 100_000;
    let _alone = alone();
    for device in devices() {
        let target = with_thread(&device);
        // Not the library's: memory that peers may map needs nobody's help.
        let lent = Memory::foreign(Foreign::owned(vec![0; LEN].into_boxed_slice()));
        let remote = target.register(&lent, Access::ALL).unwrap();
        let mut peer = Endpoint::create(&device, Options::default()).unwrap();
        let (ours, _) = connect(&mut peer, &target, Attribute::ReliableOrdered);
        let own = peer.allocate(2 * LEN).unwrap();
        let local = peer.register(&own, Access::LOCAL).unwrap();
        let add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
        let whole = LEN as u64 - 8;
        let (start, mut rounds, mut slowest) = (Instant::now(), 0_u64, Duration::ZERO);
        while start.elapsed() < Duration::from_secs(2) {
            let before = Instant::now();
            assert!(own.write(0, &rounds.to_le_bytes().repeat(LEN / 8)));
            let (source, back) = (RegionAddress::new(local, 0), RegionAddress::new(local, LEN as u64));
            let target = RegionAddress::new(remote, 8);
            peer.rma_write(ours, source, target, whole, 1, RmaFlags::NONE).unwrap();
            peer.rma_read(ours, back, target, whole, 2, RmaFlags::FENCE).unwrap();
            peer.atomic(ours, add, RegionAddress::new(remote, 0), None, 3, RmaFlags::NONE).unwrap();
            for context in 1..=3 {
                match peer.wait(Some(PATIENCE)).unwrap() {
                    Some(Event::Send { context: ended, status, .. }) => {
                        assert_eq!((ended, status), (context, Status::Success));
                    }
                    other => panic!("unexpected {other:?}"),
                }
            }
            let mut came = vec![0; LEN - 8];
            assert!(own.read(LEN, &mut came));
            assert!(came.chunks_exact(8).all(|word| word == rounds.to_le_bytes()), "round {rounds}");
            slowest = slowest.max(before.elapsed());
            rounds += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        println!(
            "{}: {rounds} rounds in {:?}, slowest {slowest:?}",
            device.transport().name(),
            start.elapsed()
        );
        assert!(rounds > 50);
        let mut count = [0; 8];
        assert!(lent.read(0, &mut count) && u64::from_le_bytes(count) == rounds);
    }
}

#[test]
fn the_thread_sleeps_while_there_is_nothing_to_do() {
    let _alone = alone();
    let still = |what: &str, at_most: u64| {
        std::thread::sleep(Duration::from_millis(20));
        let before = sleeps_of_the_thread();
        std::thread::sleep(Duration::from_millis(250));
        let woken = sleeps_of_the_thread() - before;
        println!("{what}: {woken} in 250 ms");
        assert!(woken <= at_most, "{what}: it woke {woken} times in 250 ms");
    };
    for device in devices() {
        let target = with_thread(&device);
        still("with no connection", 3);
        let mut peer = Endpoint::create(&device, Options::default()).unwrap();
        let (ours, _) = connect(&mut peer, &target, Attribute::ReliableOrdered);
        // The protocol's own parting words: acknowledgements, a last look for a lost one.
        std::thread::sleep(Duration::from_millis(100));
        peer.progress();
        still("connected", 4);
        send(&mut peer, ours, 1);
        std::thread::sleep(Duration::from_millis(100));
        still("with an event that the program does not take", 4);
        target.with(|endpoint| {
            endpoint.os_handle();
        });
        still("the same, with the descriptor out", 4);
        assert!(matches!(target.next_event(), Some(Event::Recv(_))));
        let waiting = target.clone();
        let waiter =
            std::thread::spawn(move || waiting.wait(Some(Duration::from_millis(700))).unwrap().is_none());
        still("while a thread waits in the library", 4);
        assert!(waiter.join().unwrap());
    }
}

#[test]
fn the_thread_leaves_a_busy_program_alone() {
    let _alone = alone();
    for device in devices() {
        let target = with_thread(&device);
        let before = (sleeps_of_the_thread(), target.counters().thread_rounds);
        let start = Instant::now();
        let (mut called, mut away) = (start, Duration::ZERO);
        while called - start < Duration::from_millis(400) {
            assert!(target.next_event().is_none());
            let now = Instant::now();
            // On a busy machine it is the program that is not let run: the thread may then take over, once a nap.
            if now - called > NAP / 2 {
                away += now - called;
            }
            called = now;
        }
        let (naps, rounds) = (sleeps_of_the_thread() - before.0, target.counters().thread_rounds - before.1);
        println!(
            "{}: {naps} naps, {rounds} rounds in 400 ms, of which the program was away {away:?}",
            device.transport().name()
        );
        let excused = 2 * away.div_duration_f64(NAP).ceil() as u64;
        assert!(
            naps <= 500 + excused && rounds <= 20 + excused,
            "{naps} naps, {rounds} rounds, away {away:?}"
        );
    }
}

#[test]
fn the_descriptor_tells_of_events_that_the_thread_brought_in() {
    let _alone = alone();
    for device in devices() {
        let target = with_thread(&device);
        let mut peer = Endpoint::create(&device, Options::default()).unwrap();
        let (ours, _) = connect(&mut peer, &target, Attribute::ReliableOrdered);
        let handle = target.with(|endpoint| endpoint.os_handle().try_clone_to_owned()).unwrap();
        assert!(target.next_event().is_none());
        for round in 0..600 {
            // On both sides of a nap.
            std::thread::sleep(Duration::from_micros(round * 37 % 2_500));
            peer.send(ours, b"wake up", round, SendFlags::NONE).unwrap();
            peer.progress();
            if round % 3 == 0 {
                // The thread has it by then, and the socket is empty.
                std::thread::sleep(Duration::from_millis(2));
            }
            let mut seen = 0;
            while seen == 0 {
                let mut fds = [PollFd::new(&handle, PollFlags::IN)];
                let limit = Timespec { tv_sec: 5, tv_nsec: 0 };
                assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "round {round}: nobody said anything");
                while let Some(event) = target.next_event() {
                    assert!(matches!(event, Event::Recv(_)), "{event:?}");
                    seen += 1;
                }
            }
            while !matches!(peer.next_event(), Some(Event::Send { .. })) {}
        }
        // And it is not readable when nothing is there. (The protocol's own work may make it readable for a moment.)
        std::thread::sleep(Duration::from_millis(200));
        assert!(target.next_event().is_none());
        let mut fds = [PollFd::new(&handle, PollFlags::IN)];
        let limit = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 0);
    }
}

#[test]
fn waits_and_blocking_sends_of_several_threads_go_on() {
    let _alone = alone();
    const EACH: u64 = 300;
    for device in devices() {
        let (server, client) = (with_thread(&device), with_thread(&device));
        client.connect(&server.uri(), b"", Attribute::ReliableOrdered, 1, Some(PATIENCE)).unwrap();
        let Some(Event::ConnectRequest(request)) = server.wait(Some(PATIENCE)).unwrap() else { panic!() };
        server.accept(request, 2).unwrap();
        let Some(Event::Connect { result, .. }) = client.wait(Some(PATIENCE)).unwrap() else { panic!() };
        let ours = result.unwrap();
        assert!(matches!(server.wait(Some(PATIENCE)).unwrap(), Some(Event::Accept { .. })));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for number in 0..EACH {
                        if number % 50 == 0 {
                            std::thread::sleep(Duration::from_millis(3));
                        }
                        assert_eq!(client.send_blocking(ours, &[b"question"]), Ok(Status::Success));
                    }
                });
                scope.spawn(|| {
                    for _ in 0..EACH {
                        let event = server.wait(Some(PATIENCE)).unwrap();
                        assert!(matches!(event, Some(Event::Recv(_))), "{event:?}");
                    }
                });
            }
        });
    }
}

#[test]
fn it_ends_when_the_last_clone_is_dropped() {
    let _alone = alone();
    for (which, device) in devices().into_iter().enumerate() {
        let start = Instant::now();
        for round in 0..300 {
            let shared = with_thread(&device);
            let nobody = format!("shm://{}/nobody", std::process::id());
            if which == 0 && round % 3 == 0 {
                let failed = shared.connect(&nobody, b"", Attribute::Unreliable, 1, Some(PATIENCE));
                drop(failed);
            }
            let others: Vec<_> = (0..round % 4).map(|_| shared.clone()).collect();
            std::thread::scope(|scope| {
                for (number, other) in others.into_iter().enumerate() {
                    scope.spawn(move || {
                        let _ = other.wait(Some(Duration::from_micros(number as u64 * 400)));
                        drop(other);
                    });
                }
                if round % 2 == 0 {
                    std::thread::sleep(Duration::from_micros(round * 11));
                }
                drop(shared);
            });
            assert!(sleeps_of(0).is_empty());
        }
        println!("{}: 300 endpoints opened and dropped in {:?}", device.transport().name(), start.elapsed());
        assert!(start.elapsed() < Duration::from_secs(120), "no wake-up is lost");
    }
}

#[test]
fn a_request_decided_elsewhere_is_answered_though_nobody_calls() {
    let _alone = alone();
    for device in devices() {
        let target = with_thread(&device);
        let mut peer = Endpoint::create(&device, Options::default()).unwrap();
        peer.connect(&target.uri(), b"", Attribute::ReliableOrdered, 5, Some(PATIENCE)).unwrap();
        let start = Instant::now();
        let mut request = loop {
            peer.progress();
            if let Some(Event::ConnectRequest(request)) = target.next_event() {
                break Some(request);
            }
            assert!(start.elapsed() < PATIENCE);
        };
        let (asked, mut refused) = (Instant::now(), None);
        while refused.is_none() && asked.elapsed() < PATIENCE {
            // The thread watches by now. Dropping the request is no call of the endpoint's.
            if asked.elapsed() > Duration::from_millis(50) {
                drop(request.take());
            }
            if let Some(Event::Connect { result, .. }) = peer.wait(Some(Duration::from_millis(5))).unwrap() {
                refused = Some(result);
            }
        }
        assert_eq!(refused, Some(Err(ConnectFailure::Refused)));
        assert!(asked.elapsed() < Duration::from_millis(500), "{:?}", asked.elapsed());
    }
}

#[test]
fn it_ends_amid_traffic() {
    let _alone = alone();
    for device in devices() {
        let (start, mut taken) = (Instant::now(), 0);
        for round in 0..60 {
            let target = with_thread(&device);
            let mut peer = Endpoint::create(&device, Options::default()).unwrap();
            let (ours, _) = connect(&mut peer, &target, Attribute::ReliableOrdered);
            let until = Instant::now() + Duration::from_micros(round * 80);
            std::thread::scope(|scope| {
                let sender = scope.spawn(move || {
                    let (mut sent, mut ended) = (0_u64, 0);
                    let start = Instant::now();
                    // As long as the target takes them, and then until each has ended.
                    let mut open = true;
                    while open || ended < sent {
                        assert!(start.elapsed() < PATIENCE, "{ended} of {sent} ended");
                        match peer.send(ours, b"traffic", sent, SendFlags::NONE) {
                            Ok(()) => sent += 1,
                            Err(SendError::WouldBlock) => {}
                            Err(_) => open = false,
                        }
                        while let Some(event) = peer.next_event() {
                            match event {
                                Event::Send { .. } => ended += 1,
                                Event::Disconnected { .. } => assert_eq!(ended, sent, "behind all of them"),
                                other => panic!("{other:?}"),
                            }
                        }
                    }
                    sent
                });
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                drop(target);
                taken += sender.join().unwrap();
            });
            assert!(sleeps_of(0).is_empty());
        }
        println!(
            "{}: 60 endpoints dropped amid {taken} sends in {:?}",
            device.transport().name(),
            start.elapsed()
        );
    }
}
