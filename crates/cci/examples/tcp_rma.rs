//! Remote memory over TCP.
//!
//! `cargo run --release -p cci --example tcp_rma -- [ROUNDS]`: 1 MB writes and reads, a few under way at once, next to the same
//! bytes through one TCP stream by hand, between the same two cores over loopback. Rounds alternate, so that what disturbs
//! one disturbs the other; the ratio is taken within each round, and every byte compared after it.
//!
//! Then an 8-byte ping-pong alone, and while 64 MB writes go over the same connection: what a small message waits behind
//! a large transfer. The same for an 8-byte write (the connection is unordered: on an ordered one its completion would be told
//! behind that of the long one before it).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example for people")]

use cci::{
    Access, Attribute, Connection, Context, Endpoint, Event, Memory, Options, Place, RmaFlags, RmaHandle,
    SendFlags, Status,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const PIECE: usize = 1 << 20;
/// Pieces of a round, and of them under way at once.
const PIECES: usize = 64;
const WINDOW: usize = 4;
const BYTES: usize = PIECE * PIECES;
const PINGS: usize = 20_000;
/// At the latest, pings end.
const PINGS_TIME: Duration = Duration::from_secs(3);
/// The context of the 64 MB writes.
const BULK: u64 = u64::MAX;

struct Client {
    endpoint: Endpoint,
    connection: Connection,
    local: RmaHandle,
    remote: RmaHandle,
    bulk_ended: u64,
    /// Long writes are started again as they end.
    keeps_busy: bool,
}

fn main() {
    let rounds: u8 = std::env::args().nth(1).map_or(21, |rounds| rounds.parse().unwrap());
    let context =
        Context::from_text("[t]\ntransport = tcp\nip = 127.0.0.1\n", Path::new("example.ini")).unwrap();
    let mut server = Endpoint::create(context.default_device(), Options::default()).unwrap();
    let mut endpoint = Endpoint::create(context.default_device(), Options::default()).unwrap();
    let lent = server.allocate(BYTES).unwrap();
    let remote = server.register(&lent, Access::ALL).unwrap();
    let uri = server.uri().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (placed, stop) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
    let other = std::thread::spawn({
        let (placed, stop) = (placed.clone(), stop.clone());
        move || {
            cci_sys::cpu::pin(1).unwrap();
            placed.wait();
            serve(server, listener, &placed, &stop);
        }
    });
    // Each on a core of its own before anybody works.
    placed.wait();
    cci_sys::cpu::pin(0).unwrap();
    endpoint.connect(&uri, b"", Attribute::ReliableUnordered, 0, None).unwrap();
    let connection = loop {
        if let Some(Event::Connect { result, .. }) = endpoint.next_event() {
            break result.unwrap();
        }
    };
    let memory = endpoint.allocate(BYTES).unwrap();
    let local = endpoint.register(&memory, Access::LOCAL).unwrap();
    let mut client = Client { endpoint, connection, local, remote, bulk_ended: 0, keeps_busy: false };
    client.against_a_stream(rounds, &memory, &lent, &mut stream, &placed);
    client.beside_bulk();
    println!("{}", client.endpoint.explain(connection).unwrap());
    stop.store(true, Ordering::Relaxed);
    client.endpoint.close(Duration::from_secs(1));
    other.join().unwrap();
}

impl Client {
    fn against_a_stream(
        &mut self,
        rounds: u8,
        memory: &Memory,
        lent: &Memory,
        stream: &mut TcpStream,
        placed: &Barrier,
    ) {
        let mut bytes = vec![0; BYTES];
        let [mut writes, mut reads, mut hand, mut ratio, mut read_ratio] = [const { Vec::new() }; 5];
        for round in 0..=rounds {
            bytes.fill(round + 1);
            assert!(memory.write(0, &bytes));
            let wrote = self.move_all(true);
            assert!(all_are(lent, round + 1), "what came is not what was written");
            assert!(memory.write(0, &vec![0; BYTES]));
            let read = self.move_all(false);
            assert!(all_are(memory, round + 1), "what came is not what was there");
            // The server makes room for the other end of the stream, on the same core.
            self.endpoint.send(self.connection, b"", 0, SendFlags::SILENT).unwrap();
            self.endpoint.progress();
            let start = Instant::now();
            stream.write_all(&bytes).unwrap();
            stream.read_exact(&mut [0]).unwrap();
            let by_hand = start.elapsed().as_secs_f64();
            placed.wait();
            // The first round gets to know the way.
            if round > 0 {
                writes.push(BYTES as f64 / wrote / 1e9);
                reads.push(BYTES as f64 / read / 1e9);
                hand.push(BYTES as f64 / by_hand / 1e9);
                ratio.push(by_hand / wrote);
                read_ratio.push(by_hand / read);
            }
        }
        for (name, sample) in [
            ("1 MB RMA writes, GB/s", &mut writes),
            ("1 MB RMA reads, GB/s", &mut reads),
            ("a TCP stream by hand, GB/s", &mut hand),
            ("writes / stream", &mut ratio),
            ("reads / stream", &mut read_ratio),
        ] {
            sample.sort_by(f64::total_cmp);
            let at = |part: usize| sample[(sample.len() - 1) * part / 10];
            println!("{name:<32} p10 {:8.2}  p50 {:8.2}  p90 {:8.2}", at(1), at(5), at(9));
        }
    }

    /// Moves everything in pieces; answers the seconds that it took.
    fn move_all(&mut self, write: bool) -> f64 {
        let start = Instant::now();
        let (mut started, mut done) = (0, 0);
        while done < PIECES {
            while started < PIECES && started - done < WINDOW {
                let offset = (started * PIECE) as u64;
                let (here, there) = (Place::new(self.local, offset), Place::new(self.remote, offset));
                let (endpoint, connection, none) = (&mut self.endpoint, self.connection, RmaFlags::NONE);
                if write {
                    endpoint.rma_write(connection, here, there, PIECE as u64, 0, none).unwrap();
                } else {
                    endpoint.rma_read(connection, here, there, PIECE as u64, 0, none).unwrap();
                }
                started += 1;
            }
            if let Some(Event::Send { status, .. }) = self.endpoint.next_event() {
                assert_eq!(status, Status::Success);
                done += 1;
            }
        }
        start.elapsed().as_secs_f64()
    }

    /// Small things alone, and beside 64 MB writes.
    fn beside_bulk(&mut self) {
        for (name, bulk) in [("alone", false), ("beside 64 MB writes", true)] {
            for (what, message) in
                [("8 B message, half round trip", true), ("8 B write, until it ends", false)]
            {
                let start = Instant::now();
                let before = self.bulk_ended;
                self.keeps_busy = bulk;
                for _ in 0..if bulk { 2 } else { 0 } {
                    self.write(BULK, BYTES);
                }
                let mut took = Vec::with_capacity(PINGS);
                while took.len() < PINGS && start.elapsed() < PINGS_TIME {
                    took.push(self.one(message));
                }
                let seconds = start.elapsed().as_secs_f64();
                let moved = (self.bulk_ended - before) * BYTES as u64;
                self.keeps_busy = false;
                let ended = self.bulk_ended;
                while bulk && self.bulk_ended < ended + 2 {
                    self.next();
                }
                took.sort_unstable();
                let at = |part: usize| took[(took.len() - 1) * part / 1000] as f64 / 1e3;
                println!(
                    "{what}, {name}: p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us; {:.2} GB/s beside it",
                    at(500),
                    at(990),
                    at(999),
                    moved as f64 / seconds / 1e9
                );
            }
        }
    }

    fn write(&mut self, context: u64, len: usize) {
        let (here, there) = (Place::new(self.local, 0), Place::new(self.remote, 0));
        self.endpoint.rma_write(self.connection, here, there, len as u64, context, RmaFlags::NONE).unwrap();
    }

    /// One ping, or one small write: nanoseconds.
    fn one(&mut self, message: bool) -> u64 {
        let start = Instant::now();
        if message {
            self.endpoint.send(self.connection, &[1; 8], 0, SendFlags::SILENT).unwrap();
            while !matches!(self.next(), Some(Event::Recv(_))) {}
            return start.elapsed().as_nanos() as u64 / 2;
        }
        self.write(7, 8);
        while !matches!(self.next(), Some(Event::Send { context: 7, .. })) {}
        start.elapsed().as_nanos() as u64
    }

    /// The next event; a long write that has ended is followed by another one, for as long as pings go on.
    fn next(&mut self) -> Option<Event> {
        let event = self.endpoint.next_event();
        if let Some(Event::Send { context: BULK, status, .. }) = event {
            assert_eq!(status, Status::Success);
            self.bulk_ended += 1;
            if self.keeps_busy {
                self.write(BULK, BYTES);
            }
        }
        event
    }
}

/// The other end: polls for the library until a message says that it is the stream's turn.
fn serve(mut server: Endpoint, listener: TcpListener, placed: &Barrier, stop: &AtomicBool) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut into = vec![0; BYTES];
    while !stop.load(Ordering::Relaxed) {
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
            Some(Event::Recv(message)) if message.is_empty() => {
                stream.read_exact(&mut into).unwrap();
                stream.write_all(&[0]).unwrap();
                assert!(into.iter().all(|&byte| byte == into[0]));
                placed.wait();
            }
            Some(Event::Recv(message)) => {
                server.send(message.connection(), &message, 0, SendFlags::SILENT).unwrap();
            }
            _ => {}
        }
    }
}

fn all_are(memory: &Memory, byte: u8) -> bool {
    let mut found = vec![0; BYTES];
    memory.read(0, &mut found) && found.iter().all(|&found| found == byte)
}
