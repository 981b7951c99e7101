//! What one endpoint by every way costs where the way is shared memory: half round trips of 8 bytes between two endpoints
//! that poll, on the device `shm` and on the device `any`, in turns; and messages a second one way.
//!
//! `cargo run --release -p cci --example any_pingpong` on an idle machine with two cores. The ratio is taken within each
//! round.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example for people")]

use cci::{Attribute, Connection, Context, Endpoint, Event, Options, SendError, SendFlags};
use std::sync::{Arc, Barrier};
use std::time::Instant;

const TRIPS: u64 = 10_000;
const MESSAGES: u64 = 100_000;
const SMALL: [u8; 8] = [7; 8];
/// The plain one first.
const DEVICES: [&str; 2] = ["shm", "any"];

fn endpoint(device: &str) -> Endpoint {
    let context = Context::new().unwrap();
    Endpoint::create(context.device(device).unwrap(), Options::default()).unwrap()
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

/// The other thread: echoes messages, swallows a stream; on each endpoint in turn.
fn echo(mut endpoints: [Endpoint; 2], gate: &Barrier, rounds: usize) {
    cci_sys::cpu::pin(1).unwrap();
    let connections = endpoints.each_mut().map(|endpoint| {
        gate.wait();
        loop {
            match endpoint.next_event() {
                Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0).unwrap(),
                Some(Event::Accept { result, .. }) => break result.unwrap(),
                _ => {}
            }
        }
    });
    for _ in 0..rounds {
        for (endpoint, connection) in endpoints.iter_mut().zip(connections) {
            gate.wait();
            for _ in 0..TRIPS {
                receive(endpoint);
                endpoint.send(connection, &SMALL, 0, SendFlags::SILENT).unwrap();
            }
            gate.wait();
            for _ in 0..MESSAGES {
                receive(endpoint);
            }
            endpoint.send(connection, &SMALL, 0, SendFlags::SILENT).unwrap();
        }
    }
}

fn connect(client: &mut Endpoint, uri: &str) -> Connection {
    client.connect(uri, b"", Attribute::ReliableOrdered, 0, None).unwrap();
    loop {
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            return result.unwrap();
        }
    }
}

fn half_trip_ns(client: &mut Endpoint, connection: Connection) -> f64 {
    let start = Instant::now();
    for _ in 0..TRIPS {
        client.send(connection, &SMALL, 0, SendFlags::NONE).unwrap();
        receive(client);
    }
    start.elapsed().as_nanos() as f64 / TRIPS as f64 / 2.0
}

fn rate(client: &mut Endpoint, connection: Connection) -> f64 {
    let start = Instant::now();
    let mut sent = 0;
    while sent < MESSAGES {
        match client.send(connection, &SMALL, 0, SendFlags::SILENT) {
            Ok(()) => sent += 1,
            Err(SendError::WouldBlock) => client.progress(),
            Err(error) => panic!("{error}"),
        }
    }
    receive(client);
    MESSAGES as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(60, |rounds| rounds.parse().unwrap());
    let (servers, mut clients) = (DEVICES.map(endpoint), DEVICES.map(endpoint));
    let uris = servers.each_ref().map(|server| server.uri().to_owned());
    let gate = Arc::new(Barrier::new(2));
    let other = std::thread::spawn({
        let gate = gate.clone();
        move || echo(servers, &gate, rounds)
    });
    cci_sys::cpu::pin(0).unwrap();
    let mut connections = Vec::new();
    for (client, uri) in clients.iter_mut().zip(&uris) {
        gate.wait();
        connections.push(connect(client, uri));
    }
    println!("{}", clients[1].explain(connections[1]).unwrap());
    let (mut half_ns, mut rates) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for _ in 0..rounds {
        for (at, (client, connection)) in clients.iter_mut().zip(&connections).enumerate() {
            gate.wait();
            half_ns[at].push(half_trip_ns(client, *connection));
            gate.wait();
            rates[at].push(rate(client, *connection));
        }
    }
    other.join().unwrap();
    let ratios = |of: &[Vec<f64>; 2]| of[1].iter().zip(&of[0]).map(|(any, plain)| any / plain).collect();
    let (half_ratio, rate_ratio): (Vec<f64>, Vec<f64>) = (ratios(&half_ns), ratios(&rates));
    let [plain_ns, any_ns] = half_ns;
    let [plain_rate, any_rate] = rates;
    for (name, mut sample) in [
        ("shm: 8 B half round trip, ns", plain_ns),
        ("any: 8 B half round trip, ns", any_ns),
        ("ratio", half_ratio),
        ("shm: 8 B messages, M/s", plain_rate),
        ("any: 8 B messages, M/s", any_rate),
        ("ratio of rates", rate_ratio),
    ] {
        sample.sort_by(f64::total_cmp);
        let at = |part: usize| sample[(sample.len() - 1) * part / 10];
        println!("{name:<32} p10 {:8.2}  p50 {:8.2}  p90 {:8.2}", at(1), at(5), at(9));
    }
}
