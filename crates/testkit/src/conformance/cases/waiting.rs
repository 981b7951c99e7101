//! Waiting: the descriptor and `wait` (CCI-018 to CCI-020).

use super::RO;
use super::buffers::{feeder, hungry, overfill};
use crate::conformance::{
    Driver, Environment, Flags, Happening, Pair, Polled, Port, Setup, Side, conformance_timeout, number_of,
    pattern, poll_in_a_thread, until,
};
use cci::{ConnectFailure, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// True when poll() says that the descriptor is readable within `timeout`.
fn is_readable<P: Port>(port: &mut P, timeout: Duration) -> bool {
    let descriptor = port.descriptor();
    let mut fds = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut fds, Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.expect("poll works") > 0,
        }
    }
}

const NOW: Duration = Duration::ZERO;

/// Polls until there is nothing, and the descriptor says so too. It may be readable without an event, for an
/// acknowledgement, say; but not for ever.
fn drain_until_quiet<D: Driver>(side: &mut Side<D>) {
    let patience = Instant::now() + conformance_timeout();
    loop {
        assert!(Instant::now() < patience, "the descriptor stays readable without an event");
        while side.poll() {}
        if !is_readable(&mut side.port, NOW) {
            return;
        }
    }
}

/// Readable when an event can be had, for as long as it can; not readable when none can.
pub fn descriptor_says_when_an_event_is_there<D: Driver>(env: &Environment<D>) {
    let mut pair = Pair::plain(env, RO);
    for number in 0..50 {
        drain_until_quiet(&mut pair.server);
        pair.client.settle();
        drain_until_quiet(&mut pair.server);
        for at in 0..3 {
            let sent =
                pair.client.port.send(pair.to_server, &pattern(number * 3 + at, 100), 0, Flags::default());
            sent.expect("room");
        }
        pair.client.settle();
        let mut taken = 0;
        while taken < 3 {
            assert!(
                is_readable(&mut pair.server.port, Duration::from_secs(5)),
                "readable for message {taken} of 3"
            );
            assert!(is_readable(&mut pair.server.port, NOW), "it stays readable until the event is taken");
            let before = pair.server.inbox.len();
            pair.server.poll();
            taken += pair.server.inbox.len() - before;
            pair.client.poll();
        }
        pair.server.inbox.clear();
    }
    drain_until_quiet(&mut pair.client);
    drain_until_quiet(&mut pair.server);
}

/// Two threads exchange messages, sleeping on the descriptor whenever there is nothing: none is missed.
pub fn no_wake_up_is_lost_on_the_descriptor<D: Driver>(env: &Environment<D>) {
    ping_pong(env, |side: &mut Side<D>| {
        loop {
            match side.port.poll() {
                Polled::Event(event) => return event,
                Polled::Nothing | Polled::NoBuffers => {
                    assert!(is_readable(&mut side.port, Duration::from_secs(10)), "a wake-up was lost");
                }
            }
        }
    });
}

/// Messages go back and forth between two sides that sleep in `wait`: each must wake.
pub fn no_wake_up_is_lost_in_wait<D: Driver>(env: &Environment<D>) {
    ping_pong(env, |side: &mut Side<D>| side.port.wait(Duration::from_secs(10)).expect("a wake-up was lost"));
}

/// Some thousand messages to and fro between two threads, with pauses of many lengths so that the peer is at every
/// stage of falling asleep when a message comes. `next` must return the next event.
fn ping_pong<D: Driver>(
    env: &Environment<D>,
    next: impl Fn(&mut Side<D>) -> Happening<D::Port> + Copy + Send + 'static,
) {
    const ROUNDS: u64 = 3000;
    let Pair { mut client, mut server, to_server, .. } = Pair::<D>::plain(env, RO);
    let receive = move |side: &mut Side<D>| {
        while side.inbox.is_empty() {
            let event = next(side);
            side.file(event);
        }
        side.inbox.pop_front().expect("just seen")
    };
    let echo = std::thread::spawn(move || {
        for round in 0..ROUNDS {
            let (from, message) = receive(&mut server);
            pause(round.wrapping_mul(31));
            server
                .port
                .send(from, message.as_ref(), round, Flags { silent: true, no_copy: false })
                .expect("room");
        }
        // Its last answer may still need it.
        let linger = Instant::now() + Duration::from_millis(300);
        while Instant::now() < linger {
            server.poll();
        }
    });
    for round in 0..ROUNDS {
        pause(round.wrapping_mul(17));
        client.port.send(to_server, &pattern(round, 16), round, Flags::default()).expect("room");
        let (_, message) = receive(&mut client);
        assert_eq!(number_of(message.as_ref()), round);
        client.sent.clear();
    }
    echo.join().expect("the echoing thread");
}

/// None mostly; then busy or asleep for up to some 300 microseconds.
fn pause(seed: u64) {
    let time = Duration::from_micros(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56);
    match seed % 8 {
        0 => std::thread::sleep(time),
        1 | 2 => {
            let until = Instant::now() + time;
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        _ => {}
    }
}

/// Without an event, `wait` returns at its time, not before and not much later.
pub fn wait_times_out<D: Driver>(env: &Environment<D>) {
    let mut pair = Pair::plain(env, RO);
    pair.client.settle();
    pair.server.settle();
    for wait_ms in [0, 1, 20, 150] {
        let started = Instant::now();
        let timeout = Duration::from_millis(wait_ms);
        assert!(pair.client.port.wait(timeout).is_none());
        let took = started.elapsed();
        assert!(
            took >= timeout && took < timeout + Duration::from_secs(2),
            "waited {took:?} for {timeout:?}"
        );
    }
}

/// What ends by the clock wakes those who sleep on the descriptor: no polling is needed for it.
pub fn deadlines_wake_the_descriptor<D: Driver>(env: &Environment<D>) {
    let setup = Setup { send_timeout: Duration::from_secs(1), ..feeder() };
    let (mut client, mut server): (Side<D>, Side<D>) =
        (Side::open(env, &setup), Side::open_server(env, &setup));
    // A request that nobody answers.
    let timeout = Some(Duration::from_millis(300));
    client.port.connect(&server.port.uri(), b"", RO, 7, timeout).expect("connect starts");
    until(&mut client, &mut server, "a request", |_, server| !server.requests.is_empty());
    sleep_until(&mut client, "the time-out of the attempt", |client| !client.connected.is_empty());
    assert_eq!(client.connected, [(7, Err(ConnectFailure::TimedOut))]);
    server.requests.drain(..).for_each(|request| server.port.reject(request));
    drop(server);
    // Sends that the peer, which is there all the time, has no room for.
    let Pair { mut client, server, to_server, .. } = Pair::of(client, Side::open_server(env, &hungry()), RO);
    let (stop, serving) = poll_in_a_thread(server);
    let taken = overfill(&mut client, to_server, || {});
    sleep_until(&mut client, "the end of every send", |client| client.sent.len() == taken as usize);
    assert!(client.statuses().contains(&Status::ReceiverNotReady));
    stop.store(true, Ordering::Relaxed);
    serving.join().expect("the server's thread");
}

/// As a program with an event loop does: polls only when the descriptor says so.
fn sleep_until<D: Driver>(side: &mut Side<D>, what: &str, done: impl Fn(&Side<D>) -> bool) {
    let patience = Instant::now() + conformance_timeout();
    loop {
        while side.poll() {}
        if done(side) {
            return;
        }
        assert!(Instant::now() < patience, "waited too long for {what}");
        assert!(is_readable(&mut side.port, Duration::from_secs(5)), "nothing woke us for {what}");
    }
}

/// A request wakes a server asleep on its descriptor, the answer wakes the client on its own.
pub fn connecting_wakes_the_descriptor<D: Driver>(env: &Environment<D>) {
    let mut server: Side<D> = Side::server(env);
    let uri = server.port.uri();
    drain_until_quiet(&mut server);
    let serving = std::thread::spawn(move || {
        let patience = Instant::now() + conformance_timeout();
        while server.accepted.is_empty() {
            assert!(Instant::now() < patience, "no request came");
            while server.poll() {}
            while !server.requests.is_empty() {
                server.accept_next(1);
            }
            if server.accepted.is_empty() && !is_readable(&mut server.port, Duration::from_secs(10)) {
                panic!("the request, or its end, woke nobody");
            }
        }
        server
    });
    let mut client: Side<D> = Side::plain(env);
    client.dial(&uri, RO, 1);
    while client.connected.is_empty() {
        if !client.poll() {
            assert!(is_readable(&mut client.port, Duration::from_secs(10)), "the answer woke nobody");
        }
    }
    assert!(client.connected[0].1.is_ok());
    // The server may still need an answer of ours to open its end.
    let patience = Instant::now() + conformance_timeout();
    while !serving.is_finished() {
        assert!(Instant::now() < patience, "the server's end does not open");
        client.poll();
    }
    let server = serving.join().expect("the server's thread");
    assert!(server.accepted[0].1.is_ok());
}
