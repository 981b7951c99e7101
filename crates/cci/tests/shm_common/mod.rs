//! What the tests of the shared-memory device share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use cci::{Attribute, Connection, Context, Device, Endpoint, Event, Options, SendFlags, Status};
use std::path::Path;
use std::time::{Duration, Instant};

/// No step of a test takes longer, or it has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn device() -> Device {
    let context = Context::from_text("[m]\ntransport = shm\n", Path::new("test.ini")).unwrap();
    context.devices()[0].clone()
}

pub fn endpoint() -> Endpoint {
    endpoint_with(Options::default())
}

pub fn endpoint_with(options: Options) -> Endpoint {
    Endpoint::create(&device(), options).unwrap()
}

/// Small receive side, so that it runs out of buffers soon.
pub fn few_buffers(recv_buffers: u32) -> Options {
    Options::default().recv_buffers(recv_buffers)
}

/// Takes events of both until `done` says so; gives it each event and whose it is (0 or 1).
pub fn run<T>(
    a: &mut Endpoint,
    b: &mut Endpoint,
    what: &str,
    mut done: impl FnMut(usize, Event, &mut Endpoint) -> Option<T>,
) -> T {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(event) = a.next_event()
            && let Some(result) = done(0, event, a)
        {
            return result;
        }
        if let Some(event) = b.next_event()
            && let Some(result) = done(1, event, b)
        {
            return result;
        }
    }
    panic!("{what} did not happen in {PATIENCE:?}");
}

/// Polls both for a while; no event is expected but those that `allow` takes.
pub fn run_for(a: &mut Endpoint, b: &mut Endpoint, time: Duration, mut allow: impl FnMut(usize, Event)) {
    let start = Instant::now();
    while start.elapsed() < time {
        if let Some(event) = a.next_event() {
            allow(0, event);
        }
        if let Some(event) = b.next_event() {
            allow(1, event);
        }
    }
}

/// Connects `a` to `b`; both connections.
pub fn connect(a: &mut Endpoint, b: &mut Endpoint, attribute: Attribute) -> (Connection, Connection) {
    let uri = b.uri().to_owned();
    a.connect(&uri, b"hello", attribute, 77, Some(PATIENCE)).unwrap();
    let (mut ours, mut theirs) = (None, None);
    run(a, b, "connecting", |_, event, endpoint| {
        match event {
            Event::ConnectRequest(request) => {
                assert_eq!((request.data(), request.attribute()), (b"hello".as_slice(), attribute));
                endpoint.accept(request, 88).unwrap();
            }
            Event::Connect { context: 77, result } => ours = Some(result.unwrap()),
            Event::Accept { context: 88, result } => theirs = Some(result.unwrap()),
            // An earlier connection of theirs.
            Event::Disconnected { .. } => {}
            other => panic!("unexpected {other:?}"),
        }
        ours.zip(theirs)
    })
}

/// The bytes of message number `number` of so many bytes.
pub fn pattern(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number.wrapping_mul(31).wrapping_add(at as u64 * 7)) as u8).collect()
}

/// Sends one message and waits until it has arrived and completed.
pub fn exchange(a: &mut Endpoint, b: &mut Endpoint, on: Connection, message: &[u8]) {
    a.send(on, message, 5, SendFlags::NONE).unwrap();
    let (mut came, mut completed) = (false, false);
    run(a, b, "an exchange", |_, event, _| {
        match event {
            Event::Recv(got) => {
                assert_eq!(&*got, message);
                came = true;
            }
            Event::Send { context: 5, status, .. } => {
                assert_eq!(status, Status::Success);
                completed = true;
            }
            other => panic!("unexpected {other:?}"),
        }
        (came && completed).then_some(())
    });
}

/// A device counter by its name.
pub fn counter(endpoint: &Endpoint, name: &str) -> u64 {
    endpoint.counters().device.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
}

/// A drop counter by its name.
pub fn dropped(endpoint: &Endpoint, name: &str) -> u64 {
    endpoint.counters().drops.iter().find(|reason| reason.name == name).map_or(0, |reason| reason.count)
}
