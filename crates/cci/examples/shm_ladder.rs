//! Where the time of a short message over shared memory goes: half round trips of 8 bytes, from one bare cache line up
//! to the whole interface, a step at a time, between the same two threads.
//!
//! `cargo run --release -p cci --example shm_ladder [ROUNDS]` on an idle machine with two cores. The steps take turns
//! within each round, so that what disturbs one disturbs the others; ratios are taken within a round.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example for people")]

use cci::{Attribute, Connection, Context, Endpoint, Event, Options, SendError, SendFlags};
use cci_memory::pool::SlotPool;
use cci_memory::ring::{Consumer, Producer, RecordHeader, region_bytes};
use cci_sys::cpu;
use cci_sys::shared_memory::SharedMemory;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Instant;

const TRIPS: u64 = 10_000;
const MESSAGES: u64 = 100_000;
const RING_BYTES: usize = 256 << 10;
/// Lines of the step that goes on to a new one with each message, as a ring does.
const LINES: usize = RING_BYTES / 64;
const SMALL: [u8; 8] = [7; 8];

#[repr(align(128))]
struct Line(AtomicU64);

#[repr(align(64))]
struct RingLine(AtomicU64, AtomicU64);

/// What the two threads share for the steps below the ring.
struct Shared {
    gate: Barrier,
    /// Of the endpoint that is connected to.
    uri: Mutex<String>,
    line: Line,
    each_way: [Line; 2],
    moving: [Vec<RingLine>; 2],
}

/// One side of everything.
struct Side {
    shared: Arc<Shared>,
    /// 0 begins, 1 answers.
    me: u64,
    producer: Producer<Arc<SharedMemory>>,
    consumer: Consumer<SharedMemory>,
    pool: SlotPool,
    endpoint: Endpoint,
    connection: Connection,
    /// Round trips so far of the bounced line, and of the moving ones.
    bounced: u64,
    moved: u64,
}

/// What it is called, and one batch of it.
type Step = (&'static str, fn(&mut Side));

const STEPS: [Step; 9] = [
    ("one cache line, bounced", one_line),
    ("a line each way", line_each_way),
    ("a new line each time, 8 B beside", moving_lines),
    ("the same, fetched ahead", moving_lines_ahead),
    ("ring", |side| ring(side, false, false)),
    ("ring, fetched ahead, wake check", |side| ring(side, true, false)),
    ("the same, into receive buffers", |side| ring(side, true, true)),
    ("endpoints, silent sends", |side| endpoints(side, SendFlags::SILENT)),
    ("endpoints, with completions", |side| endpoints(side, SendFlags::NONE)),
];

fn one_line(side: &mut Side) {
    let line = &side.shared.line.0;
    for trip in 0..TRIPS {
        let base = 2 * (side.bounced + trip) + side.me;
        while line.load(Ordering::Acquire) != base {
            spin_loop();
        }
        line.store(base + 1, Ordering::Release);
    }
    side.bounced += TRIPS;
}

/// Ping-pong of any sort: the one who begins sends first.
fn ping_pong(side: &mut Side, mut send: impl FnMut(&mut Side, u64), mut receive: impl FnMut(&mut Side, u64)) {
    for trip in 0..TRIPS {
        if side.me == 0 {
            send(side, trip);
            receive(side, trip);
        } else {
            receive(side, trip);
            send(side, trip);
        }
    }
}

fn line_each_way(side: &mut Side) {
    let base = side.shared.each_way[side.me as usize].0.load(Ordering::Relaxed) + 1;
    ping_pong(
        side,
        |side, trip| side.shared.each_way[side.me as usize].0.store(base + trip, Ordering::Release),
        |side, trip| {
            while side.shared.each_way[1 - side.me as usize].0.load(Ordering::Acquire) != base + trip {
                spin_loop();
            }
        },
    );
}

/// Each line is used in turn, and never zeroed: what is awaited is the number of the lap.
fn moving_lines(side: &mut Side) {
    moving(side, false);
}

fn moving_lines_ahead(side: &mut Side) {
    moving(side, true);
}

fn moving(side: &mut Side, ahead: bool) {
    let begin = side.moved;
    side.moved += TRIPS;
    ping_pong(
        side,
        |side, trip| {
            let line = &side.shared.moving[side.me as usize][(begin + trip) as usize % LINES];
            line.1.store(trip, Ordering::Relaxed);
            line.0.store(begin + trip + 1, Ordering::Release);
        },
        |side, trip| {
            let line = &side.shared.moving[1 - side.me as usize][(begin + trip) as usize % LINES];
            while line.0.load(Ordering::Acquire) != begin + trip + 1 {
                spin_loop();
            }
            if ahead {
                // For writing, by a store that changes nothing: safe code has no prefetch.
                let ours = (begin + trip + 1 - side.me) as usize % LINES;
                side.shared.moving[side.me as usize][ours].1.store(0, Ordering::Relaxed);
            }
            assert_eq!(line.1.load(Ordering::Relaxed), trip);
        },
    );
}

fn ring(side: &mut Side, ahead: bool, buffers: bool) {
    ping_pong(
        side,
        |side, trip| {
            let header = RecordHeader { kind: 1, flags: 0, conn: 5, ack: 0 };
            while side.producer.push(header, &[&trip.to_ne_bytes()]).is_err() {}
            if ahead {
                assert!(!side.producer.needs_wake());
            }
        },
        |side, trip| loop {
            if let Some(record) = side.consumer.peek().unwrap() {
                if ahead {
                    side.producer.prefetch();
                }
                if buffers {
                    let mut slot = side.pool.take().unwrap();
                    let len = record.copy_to(slot.fill());
                    let slot = slot.freeze(len);
                    assert_eq!(number(&slot), trip);
                } else {
                    let mut bytes = [0; 8];
                    record.copy_to(&mut bytes);
                    assert_eq!(u64::from_ne_bytes(bytes), trip);
                }
                side.consumer.consume();
                side.consumer.publish_head();
                return;
            }
            spin_loop();
        },
    );
}

/// What a message says, read as one number. (The C library's comparison reads 32 bytes at once: that has to wait until
/// what was stored in pieces is in the cache.)
fn number(message: &[u8]) -> u64 {
    u64::from_ne_bytes(message.try_into().unwrap())
}

fn receive(endpoint: &mut Endpoint) {
    loop {
        match endpoint.next_event() {
            Some(Event::Recv(message)) => {
                assert_eq!(number(&message), u64::from_ne_bytes(SMALL));
                return;
            }
            Some(_) => {}
            None => spin_loop(),
        }
    }
}

fn endpoints(side: &mut Side, flags: SendFlags) {
    ping_pong(
        side,
        |side, _| side.endpoint.send(side.connection, &SMALL, 0, flags).unwrap(),
        |side, _| receive(&mut side.endpoint),
    );
}

/// One way, as fast as it goes; the last message is answered.
fn stream(side: &mut Side) {
    if side.me == 1 {
        (0..MESSAGES).for_each(|_| receive(&mut side.endpoint));
        return side.endpoint.send(side.connection, &SMALL, 0, SendFlags::SILENT).unwrap();
    }
    let mut sent = 0;
    while sent < MESSAGES {
        match side.endpoint.send(side.connection, &SMALL, 0, SendFlags::SILENT) {
            Ok(()) => sent += 1,
            Err(SendError::WouldBlock) => side.endpoint.progress(),
            Err(error) => panic!("{error}"),
        }
    }
    receive(&mut side.endpoint);
}

/// Times the steps; one row of half round trips, and the nanoseconds per message one way, for each round.
fn run(side: &mut Side, rounds: usize) -> Vec<[f64; STEPS.len() + 1]> {
    let round = |_| {
        let mut row = [0.0; STEPS.len() + 1];
        for (at, (_, step)) in STEPS.iter().enumerate() {
            side.shared.gate.wait();
            let start = Instant::now();
            step(side);
            row[at] = start.elapsed().as_nanos() as f64 / TRIPS as f64 / 2.0;
        }
        side.shared.gate.wait();
        let start = Instant::now();
        stream(side);
        row[STEPS.len()] = start.elapsed().as_nanos() as f64 / MESSAGES as f64;
        row
    };
    (0..rounds).map(round).collect()
}

fn rings() -> [(Producer<Arc<SharedMemory>>, Consumer<SharedMemory>); 2] {
    let [forth, back] = [(); 2].map(|()| {
        let ours = SharedMemory::create("ladder", region_bytes(RING_BYTES)).unwrap();
        let fd = ours.fd().unwrap().try_clone_to_owned().unwrap();
        let theirs = SharedMemory::open(fd, region_bytes(RING_BYTES)).unwrap();
        (theirs.into_producer(1024).unwrap(), ours.into_consumer(1024).unwrap())
    });
    [(forth.0, back.1), (back.0, forth.1)]
}

/// An endpoint of this thread's, connected to the other one's: 0 connects, 1 accepts.
fn connected(me: u64, uris: &Mutex<String>, gate: &Barrier) -> (Endpoint, Connection) {
    let context = Context::new().unwrap();
    let mut endpoint = Endpoint::create(context.device("shm").unwrap(), Options::default()).unwrap();
    if me == 1 {
        endpoint.uri().clone_into(&mut uris.lock().unwrap());
    }
    gate.wait();
    if me == 0 {
        endpoint.connect(&uris.lock().unwrap(), b"", Attribute::ReliableOrdered, 0, None).unwrap();
    }
    loop {
        match endpoint.next_event() {
            Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0).unwrap(),
            Some(Event::Accept { result, .. } | Event::Connect { result, .. }) => {
                return (endpoint, result.unwrap());
            }
            _ => {}
        }
    }
}

/// Everything of one thread, made by that thread: what two threads write to, each to its own, shares no cache line then.
fn side(shared: Arc<Shared>, me: u64, ring: (Producer<Arc<SharedMemory>>, Consumer<SharedMemory>)) -> Side {
    cpu::pin(me as usize).unwrap();
    let (endpoint, connection) = connected(me, &shared.uri, &shared.gate);
    let pool = SlotPool::new(64, 1024).unwrap();
    Side { shared, me, producer: ring.0, consumer: ring.1, pool, endpoint, connection, bounced: 0, moved: 0 }
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(60, |rounds| rounds.parse().unwrap());
    let line = || Line(AtomicU64::new(0));
    let moving = || (0..LINES).map(|_| RingLine(AtomicU64::new(0), AtomicU64::new(0))).collect();
    let shared = Arc::new(Shared {
        gate: Barrier::new(2),
        uri: Mutex::default(),
        line: line(),
        each_way: [line(), line()],
        moving: [moving(), moving()],
    });
    let [ours, theirs] = rings();
    let other = std::thread::spawn({
        let shared = Arc::clone(&shared);
        move || {
            let mut side = side(shared, 1, theirs);
            run(&mut side, rounds);
        }
    });
    let mut ours = side(shared, 0, ours);
    let rows = run(&mut ours, rounds);
    drop(ours);
    other.join().unwrap();
    let spread = |mut sample: Vec<f64>| {
        sample.sort_by(f64::total_cmp);
        [1, 5, 9].map(|part| sample[(sample.len() - 1) * part / 10])
    };
    println!("{:<36} p10, p50, p90", "8 B, half a round trip");
    for (at, (name, _)) in STEPS.iter().enumerate() {
        let ns = spread(rows.iter().map(|row| row[at]).collect());
        let ratio = spread(rows.iter().map(|row| row[at] / row[0]).collect());
        println!("{name:<36} {ns:6.1?} ns {ratio:6.2?} x");
    }
    let rate = spread(rows.iter().map(|row| 1e3 / row[STEPS.len()]).collect());
    println!("{:<36} {rate:6.1?} millions a second", "one way, endpoints, silent");
}
