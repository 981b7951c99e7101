//! More second streams than there is memory for at once. What is counted is polls, not time.

use super::{DATA, DONE, READ, Scene, WRITE, join, record, scene_with, second};
use crate::{Options, SendFlags};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const NOTIFY: u8 = 6;
/// Connections of a crowd: three times as many as have what moving takes at once.
const MANY: usize = 12;
/// In so many polls whoever waits for its turn has had it.
const POLLS_MAX: u32 = 4_000;

/// A server that has little memory.
fn poor() -> Scene {
    scene_with(Options {
        recv_buffers: 16,
        send_buffers: 16,
        rma_operations: 16,
        memory_bytes_max: 4 << 20,
        send_timeout: Duration::from_secs(60),
        ..Options::default()
    })
}

/// Both streams of a scripted peer.
struct Peer {
    _first: TcpStream,
    second: TcpStream,
    came: Vec<u8>,
    /// Requests that have been answered.
    answered: u32,
}

fn peer(scene: &mut Scene) -> Peer {
    let (first, ticket, _) = join(&mut scene.server, scene.at);
    let second = second(&mut scene.server, scene.at, ticket);
    Peer { _first: first, second, came: Vec::new(), answered: 0 }
}

impl Peer {
    /// Takes what came, as whole records; how many answers end a request of `len` bytes, or of any.
    fn hear(&mut self) {
        let mut some = [0; 1 << 16];
        loop {
            match self.second.read(&mut some) {
                Ok(0) => panic!("closed"),
                Ok(len) => self.came.extend_from_slice(&some[..len]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        while let Some(length) = self.came.first_chunk::<4>() {
            let end = 4 + u32::from_le_bytes(*length) as usize;
            if self.came.len() < end {
                break;
            }
            self.answered += u32::from(matches!(self.came[4], DONE | DATA));
            self.came.drain(..end);
        }
    }
}

/// What an honest peer asks for is carried out while those before go on as they do.
fn is_served(scene: &mut Scene, mut many: impl FnMut()) -> u32 {
    let mut honest = peer(scene);
    let address = [scene.handle.region(), scene.handle.key(), 64, 8];
    honest.second.write_all(&record(WRITE, 1, 0, &address, &[9; 8])).unwrap();
    for polls in 0..POLLS_MAX {
        scene.server.progress();
        many();
        honest.hear();
        if honest.answered > 0 {
            return polls;
        }
    }
    panic!("not in {POLLS_MAX} polls: {:?}", scene.server.counters().device);
}

/// A sleep is a sleep: it is not ended again and again by streams from which nothing is taken.
fn sleeps(scene: &mut Scene) {
    for _ in 0..200 {
        scene.server.progress();
    }
    std::thread::sleep(Duration::from_millis(5));
    for _ in 0..200 {
        scene.server.progress();
    }
    let polls = |scene: &Scene| {
        let counters = scene.server.counters();
        counters.device.iter().find(|(name, _)| *name == "kernel_polls").map_or(0, |(_, count)| *count)
    };
    let before = polls(scene);
    let _ = scene.server.wait(Some(Duration::from_millis(200))).unwrap();
    assert!(polls(scene) - before < 40, "{} polls in a sleep", polls(scene) - before);
}

#[test]
fn parts_of_records_keep_nobody_from_memory() {
    let mut scene = poor();
    let words = [scene.handle.region(), scene.handle.key(), 4_096, 100_000];
    let write = record(WRITE, 1, 0, &words, &[7; 100_000]);
    let parts = [
        vec![50, 0],
        write[..30].to_vec(),
        write[..5_000].to_vec(),
        write[..99_000].to_vec(),
        record(NOTIFY, 0, 0, &[], &[5; 8_000])[..4_000].to_vec(),
        record(WRITE, 0, 0, &[words[0], words[1], 4_096, 2_000], &[7; 100]),
    ];
    let mut many = Vec::new();
    for at in 0..MANY {
        let mut peer = peer(&mut scene);
        peer.second.write_all(&parts[at % parts.len()]).unwrap();
        many.push(peer);
        scene.server.progress();
    }
    let polls = is_served(&mut scene, || ());
    println!("served after {polls} polls");
    sleeps(&mut scene);
    // And those that go on have lost nothing.
    for (at, peer) in many.iter_mut().enumerate().filter(|(at, _)| matches!(at % 6, 1..=3)) {
        let sent = [30, 5_000, 99_000][at % 6 - 1];
        peer.second.set_nonblocking(false).unwrap();
        for part in write[sent..].chunks(16 << 10) {
            peer.second.write_all(part).unwrap();
            scene.server.progress();
        }
        peer.second.set_nonblocking(true).unwrap();
    }
    for _ in 0..POLLS_MAX {
        scene.server.progress();
        many.iter_mut().for_each(Peer::hear);
    }
    for (at, peer) in many.iter().enumerate() {
        assert_eq!(peer.answered, u32::from(matches!(at % 6, 1..=3)), "peer {at}");
    }
    let mut bytes = vec![0; 100_000];
    assert!(scene.memory.read(4_096, &mut bytes) && bytes.iter().all(|byte| *byte == 7));
}

/// Peers that ask for data and do not take it.
#[test]
fn answers_that_are_not_taken_keep_nobody_from_memory() {
    let mut scene = poor();
    let words = [scene.handle.region(), scene.handle.key(), 0, 1 << 20];
    let mut many = Vec::new();
    for _ in 0..MANY {
        let mut peer = peer(&mut scene);
        for slot in 0..16 {
            peer.second.write_all(&record(READ, 0, slot, &words, &[])).unwrap();
        }
        many.push(peer);
        for _ in 0..20 {
            scene.server.progress();
        }
    }
    let polls = is_served(&mut scene, || ());
    println!("served after {polls} polls");
    sleeps(&mut scene);
    // Whoever takes them in the end gets them all.
    let mut last = many.pop().unwrap();
    let before = last.answered;
    for _ in 0..10 * POLLS_MAX {
        scene.server.progress();
        last.hear();
        if last.answered - before >= 16 * 4 {
            return;
        }
    }
    panic!("{} records of data", last.answered);
}

/// Peers that always have something under way: each gets its turn.
#[test]
fn more_busy_peers_than_there_is_memory_for_take_turns() {
    let mut scene = poor();
    let words = [scene.handle.region(), scene.handle.key(), 0, 4_096];
    let mut many: Vec<Peer> = (0..MANY).map(|_| peer(&mut scene)).collect();
    let ask = |peer: &mut Peer, slot: u16| {
        let _ = peer.second.write_all(&record(READ, 0, slot, &words, &[]));
    };
    for peer in &mut many {
        (0..8).for_each(|slot| ask(peer, slot));
    }
    let mut rounds = 0;
    while rounds < 3 * POLLS_MAX && many.iter().map(|peer| peer.answered).sum::<u32>() < 20_000 {
        rounds += 1;
        scene.server.progress();
        for peer in &mut many {
            let before = peer.answered;
            peer.hear();
            // Answers come in the order of the requests.
            (before..peer.answered).for_each(|at| ask(peer, (at % 8) as u16));
        }
    }
    let answered: Vec<u32> = many.iter().map(|peer| peer.answered).collect();
    println!("{answered:?} answers in {rounds} polls");
    let (least, most) = (answered.iter().min().unwrap(), answered.iter().max().unwrap());
    assert!(least * 4 > *most, "{answered:?}");
    // The server's own operations have a place beside theirs.
    let to = scene.connection;
    assert!(scene.server.send(to, b"still", 1, SendFlags::SILENT).is_ok());
}

/// So many peers of one host ask for data and do not take it that what they hold is all that their host may have: another
/// one of that host gets its turn long before their time is up, and of the crowd no more end than must.
#[test]
fn those_of_its_own_host_that_take_nothing_keep_nobody_from_memory() {
    let mut scene = poor();
    let words = [scene.handle.region(), scene.handle.key(), 0, 1 << 20];
    let mut many = Vec::new();
    for at in 0..8 * MANY {
        let mut peer = peer(&mut scene);
        if at % 2 == 0 {
            peer.second.write_all(&record(NOTIFY, 0, 0, &[], &[5; 8_000])[..7_900]).unwrap();
        } else {
            for slot in 0..16 {
                peer.second.write_all(&record(READ, 0, slot, &words, &[])).unwrap();
            }
        }
        many.push(peer);
        for _ in 0..20 {
            scene.server.progress();
        }
    }
    let mut honest = peer(&mut scene);
    let address = [scene.handle.region(), scene.handle.key(), 64, 8];
    honest.second.write_all(&record(WRITE, 1, 0, &address, &[9; 8])).unwrap();
    let start = Instant::now();
    while honest.answered == 0 {
        scene.server.progress();
        honest.hear();
        // Their time is a minute.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", scene.server.counters().device);
    }
    let live = many.iter().filter(|peer| !super::is_ended(&peer._first)).count();
    println!("{live} of {} go on", many.len());
    assert!(live > 0);
}
