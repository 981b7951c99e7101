//! Shared memory: a few endpoints that connect to each other and to themselves, accept, refuse, send, close and vanish
//! at random, by seed. Whatever happens: every connect, accept and send ends exactly once, messages arrive at most once
//! and in order where that was promised, and in the end nothing is left.

mod shm_common;

use cci::{Attribute, ConnectRequest, Connection, Endpoint, Event, Options, SendError, SendFlags, Status};
use shm_common::*;
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::time::{Duration, Instant};

const ALL: [Attribute; 3] = [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable];
const ENDPOINTS: usize = 4;
const STEPS: u32 = 6_000;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit.max(1)
    }
}

struct Conn {
    /// Of the attempt, the same on both sides.
    dial: u64,
    attribute: Attribute,
    next_sent: u64,
    next_received: u64,
}

struct Side {
    endpoint: Endpoint,
    /// Hashed without a secret, so that a seed says which one is meant.
    conns: HashMap<Connection, Conn, BuildHasherDefault<DefaultHasher>>,
    making: HashSet<u64>,
    sends: HashMap<u64, Connection>,
    held: Vec<ConnectRequest>,
    kept: Vec<cci::Message>,
}

impl Side {
    fn new(random: &mut Random) -> Side {
        let options = Options::default()
            .recv_buffers([2, 16, 1024][random.below(3)])
            .send_buffers([8, 256][random.below(2)])
            .send_timeout(Duration::from_millis([20, 5_000][random.below(2)]))
            .memory_bytes_max([16 << 20, 256 << 20][random.below(2)]);
        Side {
            endpoint: endpoint_with(options),
            conns: HashMap::default(),
            making: HashSet::new(),
            sends: HashMap::new(),
            held: Vec::new(),
            kept: Vec::new(),
        }
    }

    fn handle(&mut self, event: Event, random: &mut Random) {
        match event {
            Event::ConnectRequest(request) => self.held.push(request),
            Event::Connect { context, result } | Event::Accept { context, result } => {
                assert!(self.making.remove(&context), "{context} ended twice");
                if let Ok(connection) = result {
                    let attribute = self.endpoint.attribute(connection).unwrap();
                    let conn = Conn { dial: context >> 1, attribute, next_sent: 0, next_received: 0 };
                    assert!(self.conns.insert(connection, conn).is_none());
                }
            }
            Event::Recv(message) => {
                // A connection that was closed here may have messages in the queue of events.
                if let Some(conn) = self.conns.get_mut(&message.connection()) {
                    let (dial, rest) = message.split_first_chunk::<8>().unwrap();
                    let (number, rest) = rest.split_first_chunk::<8>().unwrap();
                    let number = u64::from_ne_bytes(*number);
                    assert_eq!(u64::from_ne_bytes(*dial), conn.dial, "a message on the wrong connection");
                    assert!(number >= conn.next_received, "{number} after {}", conn.next_received);
                    assert_eq!(rest, pattern(number, rest.len()));
                    conn.next_received = number + 1;
                }
                if random.below(4) == 0 {
                    self.kept.push(message);
                }
            }
            Event::Send { context, status, .. } => {
                assert!(self.sends.remove(&context).is_some(), "{context} completed twice: {status}");
                let known = matches!(
                    status,
                    Status::Success | Status::Disconnected | Status::ReceiverNotReady | Status::TimedOut
                );
                assert!(known, "{status}");
            }
            Event::Disconnected { connection, .. } => {
                assert!(
                    self.conns.remove(&connection).is_some(),
                    "reported once, and not of one closed here"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

struct Chaos {
    sides: Vec<Side>,
    random: Random,
    next: u64,
}

impl Chaos {
    fn step(&mut self) {
        let at = self.random.below(self.sides.len());
        match self.random.below(100) {
            0..4 => self.connect(at),
            4..12 => self.answer(at),
            12..15 => self.disconnect(at),
            15..45 => self.send(at),
            45..50 => {
                let kept = &mut self.sides[at].kept;
                let keep = self.random.below(kept.len() + 1);
                kept.truncate(keep);
            }
            50 if self.random.below(40) == 0 => self.sides[at] = Side::new(&mut self.random),
            51 => {
                let side = &mut self.sides[at];
                if let Some(event) = side.endpoint.wait(Some(Duration::from_micros(100))).unwrap() {
                    side.handle(event, &mut self.random);
                }
            }
            _ => self.poll(at),
        }
    }

    fn poll(&mut self, at: usize) {
        let side = &mut self.sides[at];
        for _ in 0..self.random.below(20) {
            let Some(event) = side.endpoint.next_event() else { break };
            side.handle(event, &mut self.random);
        }
    }

    fn connect(&mut self, at: usize) {
        let to = self.random.below(self.sides.len());
        let uri = self.sides[to].endpoint.uri().to_owned();
        self.next += 1;
        let (dial, side) = (self.next, &mut self.sides[at]);
        if side.conns.len() + side.making.len() > 40 {
            return;
        }
        let timeout = [None, Some(Duration::from_millis(5))][self.random.below(2)];
        let attribute = ALL[self.random.below(3)];
        if side.endpoint.connect(&uri, &dial.to_ne_bytes(), attribute, dial << 1, timeout).is_ok() {
            side.making.insert(dial << 1);
        }
    }

    /// Answers a request, here or on another endpoint.
    fn answer(&mut self, at: usize) {
        let Some(request) = self.sides[at].held.pop() else { return };
        let to = if self.random.below(4) == 0 { self.random.below(self.sides.len()) } else { at };
        let dial = u64::from_ne_bytes(request.data().try_into().unwrap());
        if self.random.below(6) == 0 {
            return request.reject();
        }
        let side = &mut self.sides[to];
        if side.endpoint.accept(request, dial << 1 | 1).is_ok() {
            assert!(side.making.insert(dial << 1 | 1));
        }
    }

    fn disconnect(&mut self, at: usize) {
        let side = &mut self.sides[at];
        let Some(&connection) = side.conns.keys().nth(self.random.below(side.conns.len())) else { return };
        side.conns.remove(&connection);
        side.endpoint.disconnect(connection);
    }

    fn send(&mut self, at: usize) {
        let side = &mut self.sides[at];
        let which = self.random.below(side.conns.len());
        let Some((&connection, conn)) = side.conns.iter_mut().nth(which) else { return };
        for _ in 0..self.random.below(20) {
            let len = [0, 20, 500, 8176][self.random.below(4)];
            let body = pattern(conn.next_sent, len);
            let segments: [&[u8]; 3] = [&conn.dial.to_ne_bytes(), &conn.next_sent.to_ne_bytes(), &body];
            self.next += 1;
            let flags = if self.random.below(3) == 0 { SendFlags::SILENT } else { SendFlags::NONE };
            match side.endpoint.send_vectored(connection, &segments, self.next, flags) {
                Ok(()) => {
                    conn.next_sent += 1;
                    if flags == SendFlags::NONE {
                        side.sends.insert(self.next, connection);
                    }
                }
                Err(SendError::WouldBlock | SendError::Disconnected) => break,
                Err(error) => panic!("{error} ({:?})", conn.attribute),
            }
        }
    }

    /// Lets everything end, and looks at what is left.
    fn finish(&mut self) {
        let start = Instant::now();
        for side in &mut self.sides {
            side.kept.clear();
            side.held.clear();
        }
        loop {
            let mut over = true;
            for at in 0..self.sides.len() {
                self.poll(at);
                let side = &mut self.sides[at];
                side.kept.clear();
                side.held.clear();
                for (connection, _) in side.conns.drain() {
                    side.endpoint.disconnect(connection);
                }
                over &= counter(&side.endpoint, "requests_waiting") == 0;
                over &=
                    side.making.is_empty() && side.sends.is_empty() && counter(&side.endpoint, "links") == 0;
            }
            if over {
                break;
            }
            if start.elapsed() > PATIENCE {
                let state: Vec<_> = self
                    .sides
                    .iter()
                    .map(|side| (&side.making, side.sends.len(), side.endpoint.counters()))
                    .collect();
                panic!("not over: {state:#?}");
            }
        }
        for side in &self.sides {
            let counters = side.endpoint.counters();
            println!(
                "{} connections made, {} links made, {} joins, {} messages, {} failed sends, {} stalls, {:?}",
                counters.connections_made,
                counter(&side.endpoint, "links_made"),
                counter(&side.endpoint, "links_joined"),
                counters.messages_received,
                counters.sends_failed,
                counter(&side.endpoint, "stalls"),
                counters.drops
            );
            assert_eq!(counters.connections_open, 0);
            assert_eq!(counter(&side.endpoint, "sends_in_progress"), 0);
            assert_eq!(counter(&side.endpoint, "requests_waiting"), 0);
            let rings = counters.memory.kinds.iter().find(|(kind, _)| *kind == "rings");
            assert_eq!(rings.map(|(_, bytes)| *bytes), Some(0));
            for name in ["link_corrupt", "bad_record", "bad_handshake"] {
                assert_eq!(dropped(&side.endpoint, name), 0, "{name}");
            }
        }
    }
}

#[test]
fn whatever_happens_everything_ends_once() {
    let first: u64 = std::env::var("CCI_SEED").map_or(1, |seed| seed.parse().unwrap());
    let (start, mut seeds) = (Instant::now(), 0);
    for seed in first..first + 60 {
        if start.elapsed() > Duration::from_secs(20) {
            break;
        }
        println!("seed {seed}");
        let mut random = Random(seed);
        let sides = (0..ENDPOINTS).map(|_| Side::new(&mut random)).collect();
        let mut chaos = Chaos { sides, random, next: 0 };
        for _ in 0..STEPS {
            chaos.step();
        }
        chaos.finish();
        seeds += 1;
    }
    println!("{seeds} seeds");
    assert!(seeds > 0);
}
