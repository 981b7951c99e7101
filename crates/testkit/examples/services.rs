//! What `cargo xtask counts` runs under callgrind for services: `services SCENARIO COUNT`.
//!
//! Two nodes are in one thread and are polled by a fixed plan, as the endpoints of `exchanges` are. It is a program of its own, so that a change of
//! `cci-ripc` leaves the code of that one as it is.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for developers")]

use cci::Context;
use cci_ripc::{CallOptions, Event, Node, Options, Partner, Service, ServiceName, directory};
use cci_testkit::pair::PATIENCE;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Of a message.
const BYTES: usize = 8;
/// Before counting: nodes connect, tables have grown.
const WARM_UP: usize = 2_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (scenario, count) = match &words[..] {
        [scenario, count] => (scenario.as_str(), count.parse().unwrap_or(0)),
        _ => ("", 0),
    };
    let folder = std::env::temp_dir().join(format!("cci-services-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let done = match scenario.split_once('-').unwrap_or_default() {
        ("service", device) => messages(Two::open(device, &folder), count),
        ("rpc", device) => calls(Two::open(device, &folder), count),
        _ => false,
    };
    std::fs::remove_dir_all(&folder).expect("ours");
    if !done {
        eprintln!("usage: services service-DEVICE|rpc-DEVICE COUNT");
        return ExitCode::from(2);
    }
    ExitCode::SUCCESS
}

/// Two services that know each other.
struct Two {
    nodes: [Node; 2],
    services: [Service; 2],
    partners: [Partner; 2],
}

impl Two {
    fn open(device: &str, folder: &Path) -> Option<Two> {
        let config = match device {
            "shm" => "[shm]\ntransport = shm\n",
            "udp4" => "[udp]\ntransport = udp\nip = 127.0.0.1\n",
            _ => return None,
        };
        let context = Context::from_text(config, "services".as_ref()).expect("a device");
        let mut nodes = [(); 2].map(|()| {
            let directory = directory::open(&format!("host:{}", folder.display())).expect("a folder");
            Node::open(Options::default().directory(directory).device(context.default_device()))
                .expect("a node")
        });
        let names = ["one", "other"].map(|name| ServiceName::new(name).expect("a name"));
        let [one, other] = &mut nodes;
        let services = [one.register(&names[0]).expect("free"), other.register(&names[1]).expect("free")];
        let partners = [
            one.partner(services[0], &names[1]).expect("one"),
            other.partner(services[1], &names[0]).expect("one"),
        ];
        one.send(partners[0], b"hello").expect("it waits");
        let mut two = Two { nodes, services, partners };
        until(|| {
            two.nodes[0].progress();
            two.nodes[1].next_event(two.services[1]).is_some()
        });
        Some(two)
    }
}

/// Some rounds to warm up, then those that are counted. A round returns how often something had not arrived when it was looked for.
fn rounds(count: usize, mut round: impl FnMut(bool) -> usize) -> bool {
    (0..WARM_UP).for_each(|_| {
        round(false);
    });
    let late: usize = (0..count).map(|_| round(true)).sum();
    println!("late\t{late}");
    true
}

/// Acts, and what it does is counted, or not.
#[inline]
fn act<T>(is_counted: bool, act: impl FnOnce() -> T) -> T {
    if is_counted { counted(act) } else { act() }
}

/// Never inlined: callgrind finds it by its name.
#[inline(never)]
fn counted<T>(act: impl FnOnce() -> T) -> T {
    act()
}

/// Turns until `done`. Returns how often that took a pause, uncounted.
fn until(mut done: impl FnMut() -> bool) -> usize {
    if done() {
        return 0;
    }
    // The clock is not read for what comes in time: where instructions are counted, each reading moves it on.
    let started = Instant::now();
    let mut pauses = 0;
    while !done() {
        pauses += 1;
        assert!(started.elapsed() < PATIENCE, "nothing came");
        std::thread::sleep(Duration::from_micros(20));
    }
    pauses
}

/// Short messages, there and back.
fn messages(two: Option<Two>, count: usize) -> bool {
    let Some(Two { mut nodes, services, partners }) = two else { return false };
    rounds(count, |is_counted| {
        [(0, 1), (1, 0)]
            .into_iter()
            .map(|(from, to)| {
                let event = act(is_counted, || {
                    nodes[from].send(partners[from], &[7; BYTES]).expect("there is room");
                    nodes[to].next_event(services[to])
                });
                let is_message = |event: &Option<Event>| matches!(event, Some(Event::Message(message)) if message.item(0).len() == BYTES);
                if is_message(&event) {
                    return 0;
                }
                until(|| {
                    nodes[from].progress();
                    is_message(&nodes[to].next_event(services[to]))
                })
            })
            .sum()
    })
}

/// A call and its answer.
fn calls(two: Option<Two>, count: usize) -> bool {
    let Some(Two { mut nodes, services, partners }) = two else { return false };
    rounds(count, |is_counted| {
        let mut pauses = 0;
        let mut event = act(is_counted, || {
            nodes[0].call(partners[0], &[7; BYTES], CallOptions::default()).expect("there is room");
            nodes[1].next_event(services[1])
        });
        pauses += until(|| {
            if event.is_none() {
                event = nodes[1].next_event(services[1]);
            }
            event.is_some()
        });
        let Some(Event::Request(request)) = event else { panic!("no request") };
        let mut event = act(is_counted, || {
            nodes[1].answer(request.ticket(), &[8; BYTES]).expect("it was asked");
            nodes[0].next_event(services[0])
        });
        pauses += until(|| {
            if event.is_none() {
                event = nodes[0].next_event(services[0]);
            }
            event.is_some()
        });
        assert!(matches!(event, Some(Event::Answer { result: Ok(_), .. })), "{event:?}");
        pauses
    })
}
