//! Both ends of a shared-memory connection in one thread: what the code costs when no cache line moves.
//!
//! `cargo run --release -p cci --example shm_alone`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example for people")]
use cci::{Attribute, Context, Endpoint, Event, Options, SendFlags};
use std::time::Instant;

fn main() {
    let context = Context::new().unwrap();
    let mut ends =
        [0, 1].map(|_| Endpoint::create(context.device("shm").unwrap(), Options::default()).unwrap());
    let uri = ends[1].uri().to_owned();
    ends[0].connect(&uri, b"", Attribute::ReliableOrdered, 0, None).unwrap();
    let mut connections = [None, None];
    while connections.iter().any(Option::is_none) {
        for (end, connection) in ends.iter_mut().zip(&mut connections) {
            match end.next_event() {
                Some(Event::ConnectRequest(request)) => end.accept(request, 0).unwrap(),
                Some(Event::Accept { result, .. } | Event::Connect { result, .. }) => {
                    *connection = result.ok()
                }
                _ => {}
            }
        }
    }
    let connections = connections.map(Option::unwrap);
    let mut best = [f64::MAX; 2];
    for round in 0..400 {
        let flags = if round % 2 == 0 { SendFlags::NONE } else { SendFlags::SILENT };
        let start = Instant::now();
        for _ in 0..1000 {
            for side in 0..2 {
                ends[side].send(connections[side], &[7; 8], 0, flags).unwrap();
                while !matches!(ends[1 - side].next_event(), Some(Event::Recv(_))) {}
            }
        }
        let ns = start.elapsed().as_nanos() as f64 / 2000.0;
        best[round % 2] = best[round % 2].min(ns);
    }
    println!(
        "one message, both sides' work: {:.1} ns with completion events, {:.1} ns silent",
        best[0], best[1]
    );
}
