//! Every kind of record in every state, from a seed; and peers that begin records and stop.

use super::{Scene, is_closed, record, scene, until};
use crate::transport::tcp::wire::{HEADER_BYTES, Header, Kind};
use crate::{Event, RegionAddress, RmaFlags, SendFlags};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    /// Mostly small, sometimes anything.
    fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => u64::MAX - self.below(3),
            1 => self.below(1 << 40),
            2 => 1 << 20,
            _ => self.below(5000),
        }
    }
}

/// A record of the first stream.
fn first_record(random: &mut Random) -> Vec<u8> {
    const KINDS: [Kind; 11] = [
        Kind::Message,
        Kind::Ack,
        Kind::NotReady,
        Kind::Ready,
        Kind::Resume,
        Kind::Ping,
        Kind::Pong,
        Kind::Closing,
        Kind::Close,
        Kind::Confirm,
        Kind::AskBulk,
    ];
    let kind = KINDS[random.below(11) as usize];
    let kind = if random.below(3) == 0 {
        kind
    } else {
        [Kind::Message, Kind::Ack, Kind::Ping][random.below(3) as usize]
    };
    let len = match kind {
        Kind::Message => random.below(3000),
        Kind::Ready => 4,
        _ => 0,
    } as u16;
    let ack = if random.below(4) == 0 { random.below(6) as u32 } else { 0 };
    let mut bytes = Header { kind, len, ack }.bytes().to_vec();
    bytes.extend((0..len).map(|at| at as u8));
    if random.below(100) == 0 {
        bytes[random.below(HEADER_BYTES as u64) as usize] ^= 1 << random.below(8);
    }
    bytes
}

/// A record of the second stream: of any kind, now and then with the right place.
fn second_record(random: &mut Random, scene: &Scene) -> Vec<u8> {
    let address = [scene.handle.region(), scene.handle.key(), random.number()];
    let address = if random.below(4) == 0 { [random.number(), random.number(), 0] } else { address };
    let slot = if random.below(20) == 0 { random.below(1 << 16) } else { random.below(6) } as u16;
    let kind = if random.below(3) == 0 { random.below(16) } else { 1 + random.below(3) } as u8;
    let any = if random.below(4) == 0 { 256 } else { 3 };
    let flags = random.below(any) as u8;
    let len = if random.below(4) == 0 { random.below(100_000) } else { random.below(64) } as usize;
    let data = vec![5; len];
    let words = match kind {
        // A write; what is left of it is what comes, or more.
        1 => vec![
            address[0],
            address[1],
            address[2],
            (len as u64).wrapping_add(random.below(2) * random.number()),
        ],
        2 => vec![address[0], address[1], address[2], random.number()],
        3 => vec![random.below(2) * random.number()],
        _ => (0..random.below(7)).map(|_| random.number()).collect(),
    };
    let data = if matches!(kind, 2 | 7) { &[][..] } else { &data };
    let mut bytes = record(kind, flags, slot, &words, data);
    if random.below(50) == 0 {
        bytes.truncate(random.below(bytes.len() as u64) as usize);
    }
    bytes
}

/// Reads and forgets; false: it is closed.
fn drain(stream: &mut TcpStream) -> bool {
    let mut some = [0; 4096];
    loop {
        match stream.read(&mut some) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

/// Starts one of each. What was taken ends once, whatever the peer says.
fn start_all(scene: &mut Scene, begun: &mut HashMap<u64, u32>, random: &mut Random) {
    let (to, handle) = (scene.connection, scene.handle);
    for _ in 0..random.below(5) {
        let name = begun.len() as u64 + 100;
        let (local, remote) = (
            RegionAddress::new(handle, random.below(4096) * 8),
            RegionAddress::new(handle, random.below(4096) * 8),
        );
        let len = 1 + random.below(300_000);
        let flags = if random.below(4) == 0 { RmaFlags::FENCE } else { RmaFlags::NONE };
        let taken = match random.below(4) {
            0 => scene.server.rma_write(to, local, remote, len, name, flags).is_ok(),
            1 => scene.server.rma_read(to, local, remote, len, name, flags).is_ok(),
            _ => scene.server.send(to, &[3; 900], name, SendFlags::NONE).is_ok(),
        };
        if taken {
            begun.insert(name, 0);
        }
    }
}

fn one_seed(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut scene = scene();
    let mut begun = HashMap::new();
    let mut second = None;
    let mut has_gone = false;
    let (start, rounds) = (Instant::now(), 5 + random.below(60));
    let mut disconnected = false;
    let mut round = 0;
    // What a stream did not take of a record comes before the next one.
    let mut tails: [Vec<u8>; 2] = [Vec::new(), Vec::new()];
    loop {
        assert!(start.elapsed() < Duration::from_secs(20), "seed {seed}: {begun:?}");
        round += 1;
        if round <= rounds {
            if !disconnected {
                start_all(&mut scene, &mut begun, &mut random);
            }
            if second.is_none() && random.below(3) == 0 {
                second = Some(scene.second(scene.ticket));
            }
            let more = first_record(&mut random);
            tails[0].extend(more);
            let more = second_record(&mut random, &scene);
            tails[1].extend(more);
            if random.below(40) == 0 {
                scene.server.disconnect(scene.connection);
                disconnected = true;
            }
            if random.below(30) == 0 && !has_gone {
                // The memory goes in the middle of whatever is under way; what is under way says so.
                has_gone = true;
                let _ = scene.server.deregister(&scene.handle);
            }
        }
        let _ = scene.first.write(&tails[0]).map(|len| tails[0].drain(..len));
        let mut alive = drain(&mut scene.first);
        if let Some(second) = second.as_mut() {
            let _ = second.write(&tails[1]).map(|len| tails[1].drain(..len));
            alive &= drain(second);
        }
        for _ in 0..4 {
            if let Some(Event::Send { context, .. }) = scene.server.next_event() {
                *begun.get_mut(&context).expect("never begun") += 1;
            }
        }
        assert!(begun.values().all(|ends| *ends <= 1), "seed {seed}: {begun:?}");
        if round > rounds || !alive {
            // The peer dies.
            break;
        }
    }
    let Scene { server, first, .. } = &mut scene;
    let _ = first.shutdown(std::net::Shutdown::Both);
    drop(second);
    until(server, |server| {
        while let Some(event) = server.next_event() {
            if let Event::Send { context, .. } = event {
                *begun.get_mut(&context).expect("never begun") += 1;
            }
        }
        begun.values().all(|ends| *ends > 0).then_some(())
    });
    assert!(begun.values().all(|ends| *ends == 1), "seed {seed}: {begun:?}");
    let connection = scene.connection;
    until(&mut scene.server, |server| (!server.is_open(connection)).then_some(()));
}

#[test]
fn every_record_in_every_state_ends_everything_once() {
    for seed in 1..=120 {
        one_seed(seed);
    }
}

/// More peers than have a turn in one poll have begun a record, and stopped: who waits sleeps all the same.
#[test]
fn many_that_stopped_in_the_middle_keep_nobody_awake() {
    let mut scene = scene();
    let mut others: Vec<TcpStream> = Vec::new();
    let mut firsts = Vec::new();
    for _ in 0..12 {
        let (first, ticket, _) = super::join(&mut scene.server, scene.at);
        let mut second = scene.second(ticket);
        second.write_all(&[1, 0]).unwrap();
        others.push(second);
        firsts.push(first);
    }
    let end = Instant::now() + Duration::from_millis(50);
    while Instant::now() < end {
        scene.server.progress();
    }
    let before = scene.server.counters().sleeps;
    assert!(scene.server.wait(Some(Duration::from_millis(100))).unwrap().is_none());
    assert!(scene.server.counters().sleeps > before, "it asked all the time instead");
    assert!(!others.iter_mut().any(is_closed));
}
