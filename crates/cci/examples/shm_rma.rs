//! Remote memory over shared memory against its floors: 1 MB writes into the library's memory of another process next to
//! `memcpy` between two mappings of the same kind, and into its heap next to `process_vm_writev` by hand.
//!
//! `cargo run --release -p cci --example shm_rma -- [ROUNDS]` on an idle machine with two cores. Rounds of all alternate,
//! so that what disturbs one disturbs the other; ratios are taken within each round, and every byte compared after it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example for people")]

use cci::{
    Access, Attribute, Connection, Context, Endpoint, Event, Foreign, Memory, Options, Place, RmaFlags,
    RmaHandle, SendFlags, Status,
};
use cci_sys::floor::{Mappings, Process};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

const PIECE: usize = 1 << 20;
const PIECES: usize = 8;
const BYTES: usize = PIECE * PIECES;

fn main() {
    match std::env::args().nth(1) {
        Some(word) if word == "serve" => serve(),
        rounds => measure(rounds.map_or(41, |rounds| rounds.parse().unwrap())),
    }
}

fn endpoint() -> Endpoint {
    let context = Context::new().unwrap();
    Endpoint::create(context.device("shm").unwrap(), Options::default()).unwrap()
}

fn heap() -> Memory {
    Memory::foreign(Foreign::owned(vec![0; BYTES].into_boxed_slice()))
}

/// The other process: lends memory of both kinds, and says whether all of it is one byte when asked.
fn serve() {
    cci_sys::cpu::pin(1).unwrap();
    let mut endpoint = endpoint();
    let memories = [endpoint.allocate(BYTES).unwrap(), heap()];
    let handles = memories.each_ref().map(|memory| endpoint.register(memory, Access::ALL).unwrap());
    println!("{}", endpoint.uri());
    loop {
        match endpoint.next_event() {
            Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0).unwrap(),
            Some(Event::Accept { result, .. }) => {
                let mut words = handles.map(RmaHandle::to_bytes).concat();
                words.extend(u64::from(std::process::id()).to_le_bytes());
                words.extend((memories[1].as_ptr() as u64).to_le_bytes());
                endpoint.send(result.unwrap(), &words, 0, SendFlags::SILENT).unwrap();
            }
            Some(Event::Recv(message)) => {
                let &[which, byte] = &message[..] else { return };
                let mut found = vec![0; BYTES];
                let right =
                    memories[which as usize].read(0, &mut found) && found.iter().all(|&found| found == byte);
                endpoint.send(message.connection(), &[u8::from(right)], 0, SendFlags::SILENT).unwrap();
            }
            _ => std::hint::spin_loop(),
        }
    }
}

/// This end of the connection.
struct Client {
    endpoint: Endpoint,
    connection: Connection,
}

fn measure(rounds: u8) {
    let mut server = Command::new(std::env::current_exe().unwrap());
    let mut server = server.arg("serve").stdout(Stdio::piped()).spawn().unwrap();
    cci_sys::cpu::pin(0).unwrap();
    let mut uri = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut uri).unwrap();
    let mut endpoint = endpoint();
    endpoint.connect(uri.trim(), b"", Attribute::ReliableOrdered, 0, None).unwrap();
    let connection = loop {
        if let Some(Event::Connect { result, .. }) = endpoint.next_event() {
            break result.unwrap();
        }
    };
    let mut client = Client { endpoint, connection };
    let told = client.message();
    let word = |at: usize| u64::from_le_bytes(*told[at..].first_chunk().unwrap());
    let remote = [0, 32].map(|at| RmaHandle::from_message(&told[at..]).unwrap());
    let (process, address) = (Process::of(word(64) as u32).unwrap(), word(72));
    let memories = [client.endpoint.allocate(BYTES).unwrap(), heap()];
    let local = memories.each_ref().map(|memory| client.endpoint.register(memory, Access::LOCAL).unwrap());
    let mut mappings = Mappings::create(BYTES).unwrap();
    let mut buffer = vec![0; BYTES];

    let mut table = [const { Vec::new() }; 4];
    let mut by_hand_works = true;
    // The first rounds get to know the ways.
    for round in 0..rounds + 3 {
        let byte = round + 1;
        let mut took = [0.0; 4];
        // Each first once untimed, so that none finds caches colder than another.
        for byte in [!byte, byte] {
            mappings.source()[..BYTES].fill(byte);
            took[0] = seconds(|| (0..PIECES).for_each(|nth| assert!(mappings.copy(nth * PIECE, PIECE))));
        }
        assert!(mappings.target()[..BYTES].iter().all(|&found| found == byte));
        for which in [0, 1] {
            for byte in [!byte, byte] {
                buffer.fill(byte);
                assert!(memories[which].write(0, &buffer));
                took[1 + 2 * which] = seconds(|| client.write(local[which], remote[which]));
            }
            client.check(which, byte);
        }
        // In the other order: what the library wrote can't pass for it.
        for byte in [byte, !byte] {
            buffer.fill(byte);
            let mut pieces = buffer.chunks(PIECE).zip((address..).step_by(PIECE));
            took[2] = seconds(|| by_hand_works &= pieces.all(|(piece, at)| process.write(at, piece).is_ok()));
        }
        if by_hand_works {
            client.check(1, !byte);
        }
        if round >= 3 {
            table.iter_mut().zip(took).for_each(|(column, took)| column.push(took));
        }
    }
    client.endpoint.send(client.connection, b"", 0, SendFlags::SILENT).unwrap();
    server.wait().unwrap();
    let [memcpy, direct, by_hand, foreign] = table;
    report("memcpy", &memcpy, "1 MB writes, library memory", &direct);
    if by_hand_works {
        report("process_vm_writev", &by_hand, "1 MB writes, other memory", &foreign);
    } else {
        println!("process_vm_writev is not allowed here");
    }
}

fn report(floor: &str, floor_s: &[f64], name: &str, ours_s: &[f64]) {
    let rate = |seconds: &f64| BYTES as f64 / seconds / 1e9;
    let ratios = floor_s.iter().zip(ours_s).map(|(floor, ours)| floor / ours).collect();
    for (name, sample) in [
        (format!("{floor}, GB/s"), floor_s.iter().map(rate).collect()),
        (format!("{name}, GB/s"), ours_s.iter().map(rate).collect()),
        ("ratio".to_owned(), ratios),
    ] {
        let mut sample: Vec<f64> = sample;
        sample.sort_by(f64::total_cmp);
        let at = |part: usize| sample[(sample.len() - 1) * part / 10];
        println!("{name:<34} p10 {:8.3}  p50 {:8.3}  p90 {:8.3}", at(1), at(5), at(9));
    }
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

impl Client {
    fn write(&mut self, local: RmaHandle, remote: RmaHandle) {
        for nth in 0..PIECES {
            let offset = (nth * PIECE) as u64;
            let (from, to) = (Place::new(local, offset), Place::new(remote, offset));
            self.endpoint.rma_write(self.connection, from, to, PIECE as u64, 0, RmaFlags::NONE).unwrap();
        }
        let mut done = 0;
        while done < PIECES {
            if let Some(Event::Send { status, .. }) = self.endpoint.next_event() {
                assert_eq!(status, Status::Success);
                done += 1;
            }
        }
    }

    /// Has the other process compare.
    fn check(&mut self, which: usize, byte: u8) {
        self.endpoint.send(self.connection, &[which as u8, byte], 0, SendFlags::SILENT).unwrap();
        assert_eq!(self.message(), [1], "what came is not what was written");
    }

    fn message(&mut self) -> Vec<u8> {
        loop {
            if let Some(Event::Recv(message)) = self.endpoint.next_event() {
                return message.to_vec();
            }
        }
    }
}
