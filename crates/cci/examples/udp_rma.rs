//! Remote memory over UDP against its floor: 1 MB writes, a few under way at once, next to the same bytes through one
//! TCP stream by hand, between the same two cores over loopback.
//!
//! `cargo run --release -p cci --example udp_rma -- [ROUNDS]`. Rounds of both alternate, so that what disturbs one
//! disturbs the other; the ratio is taken within each round, and every byte compared after it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example for people")]

use cci::{
    Access, Attribute, Context, Endpoint, Event, Memory, Options, Place, RmaFlags, RmaHandle, SendFlags,
    Status,
};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

const PIECE: usize = 1 << 20;
/// Pieces of a round, and of them under way at once.
const PIECES: usize = 32;
const WINDOW: usize = 4;
const BYTES: usize = PIECE * PIECES;

fn main() {
    let rounds: u8 = std::env::args().nth(1).map_or(21, |rounds| rounds.parse().unwrap());
    let context =
        Context::from_text("[u]\ntransport = udp\nip = 127.0.0.1\n", Path::new("example.ini")).unwrap();
    let mut server = Endpoint::create(context.default_device(), Options::default()).unwrap();
    let mut client = Endpoint::create(context.default_device(), Options::default()).unwrap();
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
    client.connect(&uri, b"", Attribute::ReliableOrdered, 0, None).unwrap();
    let connection = loop {
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            break result.unwrap();
        }
    };
    let memory = client.allocate(BYTES).unwrap();
    let local = client.register(&memory, Access::LOCAL).unwrap();
    let mut bytes = vec![0; BYTES];
    let (mut ours, mut hand, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        bytes.fill(round + 1);
        assert!(memory.write(0, &bytes));
        let start = Instant::now();
        write(&mut client, connection, local, remote);
        let took = start.elapsed().as_secs_f64();
        assert!(lent_is(&lent, round + 1), "what came is not what was written");
        // The server makes room for the other end of the stream, on the same core.
        client.send(connection, b"", 0, SendFlags::SILENT).unwrap();
        client.progress();
        let start = Instant::now();
        stream.write_all(&bytes).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        let by_hand = start.elapsed().as_secs_f64();
        placed.wait();
        // The first round gets to know the way.
        if round > 0 {
            ours.push(BYTES as f64 / took / 1e9);
            hand.push(BYTES as f64 / by_hand / 1e9);
            ratio.push(by_hand / took);
        }
    }
    stop.store(true, Ordering::Relaxed);
    client.close(std::time::Duration::from_secs(1));
    other.join().unwrap();
    for (name, sample) in [
        ("1 MB RMA writes, GB/s", &mut ours),
        ("a TCP stream by hand, GB/s", &mut hand),
        ("ratio", &mut ratio),
    ] {
        sample.sort_by(f64::total_cmp);
        let at = |part: usize| sample[(sample.len() - 1) * part / 10];
        println!("{name:<32} p10 {:8.2}  p50 {:8.2}  p90 {:8.2}", at(1), at(5), at(9));
    }
}

fn write(client: &mut Endpoint, connection: cci::Connection, local: RmaHandle, remote: RmaHandle) {
    let (mut started, mut done) = (0, 0);
    while done < PIECES {
        while started < PIECES && started - done < WINDOW {
            let offset = (started * PIECE) as u64;
            let (from, to) = (Place::new(local, offset), Place::new(remote, offset));
            client.rma_write(connection, from, to, PIECE as u64, 0, RmaFlags::NONE).unwrap();
            started += 1;
        }
        if let Some(Event::Send { status, .. }) = client.next_event() {
            assert_eq!(status, Status::Success);
            done += 1;
        }
    }
}

/// The other end of both: polls for the library until a message says that it is the stream's turn.
fn serve(mut server: Endpoint, listener: TcpListener, placed: &Barrier, stop: &AtomicBool) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut into = vec![0; BYTES];
    while !stop.load(Ordering::Relaxed) {
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
            Some(Event::Recv(_)) => {
                stream.read_exact(&mut into).unwrap();
                stream.write_all(&[0]).unwrap();
                assert!(into.iter().all(|&byte| byte == into[0]));
                placed.wait();
            }
            _ => {}
        }
    }
}

fn lent_is(lent: &Memory, byte: u8) -> bool {
    let mut found = vec![0; BYTES];
    lent.read(0, &mut found) && found.iter().all(|&found| found == byte)
}
