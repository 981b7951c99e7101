//! Real sockets with a bad network between them: everything arrives, exactly once, in order where that was promised.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use cci::{Attribute, Connection, Context, Endpoint, Event, Options, SendFlags, Status};
use cci_testkit::relay::{Relay, Weather};
use std::path::Path;
use std::time::{Duration, Instant};

const COUNT: u64 = 4_000;
const PATIENCE: Duration = Duration::from_secs(60);

fn endpoint() -> Option<Endpoint> {
    let text = "[u]\ntransport = udp\nip = 127.0.0.1\nmtu = 1500\n";
    let context = Context::from_text(text, Path::new("test.ini")).unwrap();
    if !context.default_device().is_up() {
        println!("skipped: no loopback interface is up here");
        return None;
    }
    Some(Endpoint::create(context.default_device(), Options::default()).unwrap())
}

fn fill(number: u64) -> Vec<u8> {
    let len = 8 + (number * 37 % 1300) as usize;
    let mut bytes: Vec<u8> = (0..len).map(|at| (number as usize * 31 + at * 7) as u8).collect();
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

struct Talk {
    endpoint: Endpoint,
    connection: Option<Connection>,
    sent: u64,
    done: u64,
    next: u64,
    seen: Vec<bool>,
    ordered: bool,
}

impl Talk {
    fn new(endpoint: Endpoint, attribute: Attribute) -> Talk {
        let ordered = attribute == Attribute::ReliableOrdered;
        Talk {
            endpoint,
            connection: None,
            sent: 0,
            done: 0,
            next: 0,
            seen: vec![false; COUNT as usize],
            ordered,
        }
    }

    fn step(&mut self) {
        if let Some(connection) = self.connection {
            while self.sent < COUNT && self.sent < self.done + 256 {
                let message = fill(self.sent);
                if self.endpoint.send(connection, &message, self.sent, SendFlags::NONE).is_err() {
                    break;
                }
                self.sent += 1;
            }
        }
        match self.endpoint.next_event() {
            Some(Event::ConnectRequest(request)) => self.endpoint.accept(request, 0).unwrap(),
            Some(Event::Connect { result, .. } | Event::Accept { result, .. }) => {
                self.connection = Some(result.unwrap());
            }
            Some(Event::Send { status, context, .. }) => {
                assert_eq!(status, Status::Success);
                assert!(!self.ordered || context == self.done, "completions in order");
                self.done += 1;
            }
            Some(Event::Recv(message)) => {
                let number = u64::from_le_bytes(message[..8].try_into().unwrap());
                assert!(!self.ordered || number == self.next, "messages in order");
                assert!(*message == *fill(number), "message {number} is whole");
                assert!(!std::mem::replace(&mut self.seen[number as usize], true), "message {number} twice");
                self.next += 1;
            }
            None => {}
            Some(other) => panic!("{other:?}"),
        }
    }

    fn is_done(&self) -> bool {
        self.done == COUNT && self.next == COUNT
    }
}

fn exchange(attribute: Attribute, weather: Weather, seed: u64) {
    let (Some(client), Some(server)) = (endpoint(), endpoint()) else { return };
    let addr = server.uri().strip_prefix("udp://").unwrap().parse().unwrap();
    let relay = Relay::start(addr, weather, seed).unwrap();
    let (mut client, mut server) = (Talk::new(client, attribute), Talk::new(server, attribute));
    let uri = format!("udp://{}", relay.addr());
    client.endpoint.connect(&uri, b"", attribute, 0, Some(PATIENCE)).unwrap();
    let start = Instant::now();
    while !client.is_done() || !server.is_done() {
        client.step();
        server.step();
        assert!(
            start.elapsed() < PATIENCE,
            "seed {seed} {weather:?}: client {}/{}/{} server {}/{}/{}\n{:?}\n{:?}",
            client.sent,
            client.done,
            client.next,
            server.sent,
            server.done,
            server.next,
            client.endpoint.counters(),
            server.endpoint.counters()
        );
    }
    println!("{attribute:?} {weather:?}: {:?}, {} datagrams lost on purpose", start.elapsed(), relay.lost());
    assert!(relay.lost() > 0);
}

const BAD: Weather = Weather { lost: 50, repeated: 20, late: 50 };

#[test]
fn ordered_over_five_percent_loss() {
    for seed in 1..=3 {
        exchange(Attribute::ReliableOrdered, BAD, seed);
    }
}

#[test]
fn unordered_over_five_percent_loss() {
    for seed in 4..=6 {
        exchange(Attribute::ReliableUnordered, BAD, seed);
    }
}
