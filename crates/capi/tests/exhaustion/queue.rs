//! A listener that has no descriptor left for those who wait before it: it sleeps, and lets them in once it has some.

use crate::limit::{self, Lowered};
use cci::{Attribute, Context, Endpoint, Event, Options};
use cci_testkit::conformance::{DeviceUnderTest, config};
use std::path::Path;
use std::time::{Duration, Instant};

const CLIENTS: u64 = 8;
const WAIT: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(60);
/// Of the time that it waits, a waiter may be awake so much: it looks again every few milliseconds.
const AWAKE_SHARE: u32 = 5;

/// Time that this thread has had of a processor.
fn awake() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for the time.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Answers how often descriptors ran out.
pub fn run(about: &DeviceUnderTest) -> u64 {
    let context = Context::from_text(&config(), Path::new("exhaustion.ini")).expect("it is right");
    let device = context.device(about.name).expect("the configuration names it");
    let open = || Endpoint::create(device, Options::default()).expect("an endpoint");
    for spare in 0..4 {
        let (mut client, mut server) = (open(), open());
        for number in 0..CLIENTS {
            let started =
                client.connect(server.uri(), b"", Attribute::ReliableOrdered, number, Some(PATIENCE));
            started.expect("there are descriptors for the client");
        }
        let limit = Lowered::to(libc::RLIMIT_NOFILE, limit::lowest_descriptor() + spare);
        let (sleeps, before, started) = (server.counters().sleeps, awake(), Instant::now());
        let mut asked = Vec::new();
        while started.elapsed() < WAIT {
            let event = server.wait(Some(WAIT.saturating_sub(started.elapsed()))).expect("the system waits");
            asked.extend(event);
        }
        let (awake, slept) = (awake() - before, server.counters().sleeps - sleeps);
        drop(limit);
        println!(
            "  {spare} descriptors: awake for {awake:.1?} of {WAIT:.0?}, slept {slept} times, {} let in",
            asked.len()
        );
        assert!(awake < WAIT / AWAKE_SHARE, "awake for {awake:?} of {WAIT:?}");
        assert!((1..=100).contains(&slept), "it slept {slept} times");
        assert!(asked.len() < CLIENTS as usize, "nothing ran out");
        let (mut accepted, mut connected) = (0, 0);
        let started = Instant::now();
        while accepted < CLIENTS || connected < CLIENTS {
            assert!(started.elapsed() < PATIENCE, "{accepted} accepted, {connected} connected");
            let event = asked.pop().or_else(|| server.next_event());
            match event {
                Some(Event::ConnectRequest(request)) => {
                    server.accept(request, 1).expect("there is enough again")
                }
                Some(Event::Accept { result, .. }) => {
                    result.expect("there is enough again");
                    accepted += 1;
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            match client.next_event() {
                Some(Event::Connect { result, .. }) => {
                    result.expect("the listener held it, and then let it in");
                    connected += 1;
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    }
    4
}
