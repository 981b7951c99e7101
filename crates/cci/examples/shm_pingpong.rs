//! Shared memory against its floor: half round trips of 8 bytes between two endpoints that poll, next to one cache
//! line bounced between the same two threads; and messages a second one way.
//!
//! `cargo run --release -p cci --example shm_pingpong` on an idle machine with two cores. Rounds of both alternate, so
//! that what disturbs one disturbs the other; the ratio is taken within each round.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example for people")]

use cci::{Attribute, Connection, Context, Endpoint, Event, Options, SendError, SendFlags};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

const TRIPS: u64 = 10_000;
const MESSAGES: u64 = 100_000;
const SMALL: [u8; 8] = [7; 8];

#[repr(align(128))]
struct Line(AtomicU64);

fn endpoint() -> Endpoint {
    let context = Context::new().unwrap();
    Endpoint::create(context.device("shm").unwrap(), Options::default()).unwrap()
}

fn receive(endpoint: &mut Endpoint) -> Connection {
    loop {
        match endpoint.next_event() {
            Some(Event::Recv(message)) => return message.connection(),
            Some(_) => {}
            None => std::hint::spin_loop(),
        }
    }
}

fn bounce(line: &Line, me: u64) {
    for trip in 0..TRIPS {
        while line.0.load(Ordering::Acquire) != 2 * trip + me {
            std::hint::spin_loop();
        }
        line.0.store((2 * trip + me + 1) % (2 * TRIPS), Ordering::Release);
    }
}

/// The other thread: bounces the line, echoes messages, swallows a stream.
fn echo(mut endpoint: Endpoint, line: &Line, gate: &Barrier, rounds: usize) {
    cci_sys::cpu::pin(1).unwrap();
    gate.wait();
    let connection = loop {
        match endpoint.next_event() {
            Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0).unwrap(),
            Some(Event::Accept { result, .. }) => break result.unwrap(),
            _ => {}
        }
    };
    for _ in 0..rounds {
        gate.wait();
        bounce(line, 1);
        gate.wait();
        for _ in 0..TRIPS {
            receive(&mut endpoint);
            endpoint.send(connection, &SMALL, 0, SendFlags::SILENT).unwrap();
        }
        gate.wait();
        for _ in 0..MESSAGES {
            receive(&mut endpoint);
        }
        endpoint.send(connection, &SMALL, 0, SendFlags::SILENT).unwrap();
    }
}

fn stream(endpoint: &mut Endpoint, connection: Connection) {
    let mut sent = 0;
    while sent < MESSAGES {
        match endpoint.send(connection, &SMALL, 0, SendFlags::SILENT) {
            Ok(()) => sent += 1,
            Err(SendError::WouldBlock) => endpoint.progress(),
            Err(error) => panic!("{error}"),
        }
    }
    receive(endpoint);
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(60, |rounds| rounds.parse().unwrap());
    let (server, mut client) = (endpoint(), endpoint());
    let uri = server.uri().to_owned();
    let (line, gate) = (Arc::new(Line(AtomicU64::new(0))), Arc::new(Barrier::new(2)));
    let other = std::thread::spawn({
        let (line, gate) = (line.clone(), gate.clone());
        move || echo(server, &line, &gate, rounds)
    });
    // Each on a core of its own before anybody spins.
    gate.wait();
    cci_sys::cpu::pin(0).unwrap();
    client.connect(&uri, b"", Attribute::ReliableOrdered, 0, None).unwrap();
    let connection = loop {
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            break result.unwrap();
        }
    };
    let (mut floor, mut half, mut ratio, mut rate) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        gate.wait();
        let start = Instant::now();
        bounce(&line, 0);
        let floor_ns = start.elapsed().as_nanos() as f64 / TRIPS as f64 / 2.0;
        gate.wait();
        let start = Instant::now();
        for _ in 0..TRIPS {
            client.send(connection, &SMALL, 0, SendFlags::NONE).unwrap();
            receive(&mut client);
        }
        let half_ns = start.elapsed().as_nanos() as f64 / TRIPS as f64 / 2.0;
        gate.wait();
        let start = Instant::now();
        stream(&mut client, connection);
        rate.push(MESSAGES as f64 / start.elapsed().as_secs_f64() / 1e6);
        floor.push(floor_ns);
        half.push(half_ns);
        ratio.push(half_ns / floor_ns);
    }
    other.join().unwrap();
    for (name, sample) in [
        ("cache line bounced, ns", &mut floor),
        ("8 B half round trip, ns", &mut half),
        ("ratio", &mut ratio),
        ("8 B messages, millions a second", &mut rate),
    ] {
        sample.sort_by(f64::total_cmp);
        let at = |part: usize| sample[(sample.len() - 1) * part / 10];
        println!("{name:<32} p10 {:8.2}  p50 {:8.2}  p90 {:8.2}", at(1), at(5), at(9));
    }
}
