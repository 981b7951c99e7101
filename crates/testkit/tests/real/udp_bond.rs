//! Channel bonding over real sockets: two pairs of virtual interfaces between two namespaces of the test's own (CCI-032,
//! SS-010).

use crate::stage::{PATIENCE, across, connect, ips, open};
use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, Attribute, Connection, Endpoint, Event, Options, RegionAddress,
    RmaFlags, SendFlags, Status,
};
use cci_testkit::net::{End, Veth, Wire};
use std::time::{Duration, Instant};

fn wires(rate_bits_per_s: Option<u64>) -> Option<Veth> {
    across(&[Wire { rate_bits_per_s, ..Wire::default() }; 2])
}

/// An endpoint of an end: on both its interfaces, or on the first only.
fn open_udp(veth: &Veth, end: End, both: bool) -> Endpoint {
    let wires: &[u8] = if both { &[0, 1] } else { &[0] };
    open(veth, end, &format!("transport = udp\nip = {}", ips(veth, end, wires)), Options::default())
}

/// Two connected endpoints, driven by one thread.
struct Pair {
    client: Endpoint,
    server: Endpoint,
    to_server: Connection,
}

impl Pair {
    fn new(veth: &Veth, both: bool, attribute: Attribute) -> Pair {
        let (client, server) = (open_udp(veth, End::A, both), open_udp(veth, End::B, both));
        Pair::join(client, server, attribute)
    }

    fn join(mut client: Endpoint, mut server: Endpoint, attribute: Attribute) -> Pair {
        let [to_server, _] = connect(&mut client, &mut server, attribute);
        Pair { client, server, to_server }
    }

    /// Bits a second of messages that arrive in so long, sent as fast as they are taken.
    fn rate(&mut self, time: Duration) -> f64 {
        let message = [7; 1_400];
        let (start, mut bytes) = (Instant::now(), 0);
        while start.elapsed() < time {
            for _ in 0..16 {
                let _ = self.client.send(self.to_server, &message, 0, SendFlags::SILENT);
            }
            self.client.progress();
            while let Some(event) = self.server.next_event() {
                let Event::Recv(got) = event else { panic!("{event:?}") };
                bytes += got.len();
            }
            if let Some(event) = self.client.next_event() {
                panic!("{event:?}");
            }
        }
        bytes as f64 * 8.0 / start.elapsed().as_secs_f64()
    }

    fn explained(&mut self) -> String {
        self.client.explain(self.to_server).unwrap().to_string()
    }

    /// A counter of the client's by its name.
    fn counter(&self, name: &str) -> u64 {
        let counters = self.client.counters();
        let found = counters.device.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no counter {name}: {counters:?}")).1
    }

    /// Drives both sides for a while with nothing to say.
    fn rest(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {
            self.client.progress();
            self.server.progress();
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Drives both sides with nothing to say until both paths are used.
    fn rest_until_both_are_used(&mut self) {
        let start = Instant::now();
        while self.explained().matches("uses path").count() < 2 {
            self.rest(Duration::from_millis(20));
            assert!(start.elapsed() < PATIENCE, "{}", self.explained());
        }
    }
}

#[test]
fn bandwidth_adds_up() {
    // So slow that a machine that is busy with other things fills them too. The simulator has faster ones (`simulated`, `bond`).
    let Some(veth) = wires(Some(10_000_000)) else { return };
    for attribute in [Attribute::ReliableUnordered, Attribute::ReliableOrdered] {
        // A machine may be so busy that they stand idle all the same: three tries.
        let best = (0..3).map(|_| gain(&veth, attribute)).find(|gain| *gain > 1.6);
        assert!(best.is_some(), "{attribute:?}: two interfaces carry no more than one");
    }
}

/// How many times as much two interfaces carry as one.
fn gain(veth: &Veth, attribute: Attribute) -> f64 {
    let rate = |both: bool| {
        let mut pair = Pair::new(veth, both, attribute);
        pair.rate(Duration::from_millis(300));
        let rate = pair.rate(Duration::from_millis(1_200));
        let shown = pair.explained();
        println!("{:.1} Mbit/s\n{shown}", rate / 1e6);
        // On a busy machine a path may just be down: what it brings is what counts.
        rate
    };
    let (alone, bonded) = (rate(false), rate(true));
    println!("{attribute:?}: {:.2} times as much by two interfaces", bonded / alone);
    bonded / alone
}

/// What a message of this number holds.
fn fill(number: u64) -> Vec<u8> {
    let len = 8 + (number.wrapping_mul(0x9e37_79b9) % 1_300) as usize;
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((8..len).map(|at| number as u8 ^ at as u8));
    bytes
}

/// Messages, remote writes and atomics, while one interface goes down and comes back: everything once.
fn survive(down: impl Fn(&Veth), up: impl Fn(&Veth), attribute: Attribute) {
    const MESSAGES: u64 = 12_000;
    const CHUNK_BYTES: usize = 40_000;
    const CHUNKS: usize = 100;
    let Some(veth) = wires(Some(100_000_000)) else { return };
    let mut pair = Pair::new(&veth, true, attribute);
    pair.rest(Duration::from_millis(50));
    assert!(pair.explained().contains("uses path 2"), "{}", pair.explained());
    let theirs = pair.server.allocate(CHUNK_BYTES * CHUNKS + 8).unwrap();
    let remote = pair.server.register(&theirs, Access::ALL).unwrap();
    let ours = pair.client.allocate(CHUNK_BYTES * CHUNKS).unwrap();
    let local = pair.client.register(&ours, Access::LOCAL).unwrap();
    let written: Vec<u8> = (0..CHUNK_BYTES * CHUNKS).map(|at| (at / 7 + at / CHUNK_BYTES) as u8).collect();
    assert!(ours.write(0, &written));
    let counter = RegionAddress::new(remote, (CHUNK_BYTES * CHUNKS) as u64);
    let (mut sent, mut sent_done, mut chunks, mut chunks_done, mut got) = (0, 0, 0, 0, 0);
    let mut seen = vec![false; MESSAGES as usize];
    let mut phase = 0;
    let start = Instant::now();
    let (client, server, to) = (&mut pair.client, &mut pair.server, pair.to_server);
    while sent_done < MESSAGES || got < MESSAGES || chunks_done < 2 * CHUNKS {
        while sent < MESSAGES && client.send(to, &fill(sent), sent, SendFlags::NONE).is_ok() {
            sent += 1;
        }
        while chunks < CHUNKS && chunks - chunks_done / 2 < 4 {
            let at = (chunks * CHUNK_BYTES) as u64;
            let (from, into) = (RegionAddress::new(local, at), RegionAddress::new(remote, at));
            client.rma_write(to, from, into, CHUNK_BYTES as u64, MESSAGES, RmaFlags::NONE).unwrap();
            let add = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Eight, operand: 1, compare: 0 };
            client.atomic(to, add, counter, None, MESSAGES, RmaFlags::NONE).unwrap();
            chunks += 1;
        }
        match client.next_event() {
            Some(Event::Send { status, context, .. }) => {
                assert_eq!(status, Status::Success);
                if context == MESSAGES { chunks_done += 1 } else { sent_done += 1 }
            }
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        match server.next_event() {
            Some(Event::Recv(message)) => {
                let number = u64::from_le_bytes(message[..8].try_into().unwrap());
                assert_eq!(*message, *fill(number), "message {number} is whole");
                assert!(!std::mem::replace(&mut seen[number as usize], true), "message {number} twice");
                got += 1;
            }
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        if phase == 0 && got > MESSAGES / 4 {
            down(&veth);
            phase = 1;
        } else if phase == 1 && got > MESSAGES / 2 {
            let shown = client.explain(to).unwrap().to_string();
            println!("with one interface down, after {:?}:\n{shown}", start.elapsed());
            assert!(shown.contains("down: nothing comes back"), "{shown}");
            up(&veth);
            phase = 2;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "phase {phase}, {sent} sent, {sent_done} done, {got} came, {chunks_done} operations\n{}\n{:?}\n{:?}",
            client.explain(to).unwrap(),
            client.counters(),
            server.counters()
        );
    }
    let mut came = vec![0; CHUNK_BYTES * CHUNKS];
    assert!(theirs.read(0, &mut came) && came == written, "what was written is there");
    assert_eq!(theirs.load(CHUNK_BYTES * CHUNKS, AtomicWidth::Eight), Ok(CHUNKS as u64), "each atomic once");
    println!("all there after {:?}", start.elapsed());
    // The path is used again.
    pair.rest_until_both_are_used();
    let before = [pair.counter("path1_datagram_bytes_sent"), pair.counter("path2_datagram_bytes_sent")];
    pair.rate(Duration::from_millis(500));
    let after = [pair.counter("path1_datagram_bytes_sent"), pair.counter("path2_datagram_bytes_sent")];
    println!("bytes by each path afterwards: {}, {}", after[0] - before[0], after[1] - before[1]);
    assert!((0..2).all(|index| after[index] - before[index] > 500_000), "{}", pair.explained());
    assert!(pair.counter("paths_lost") >= 1);
}

#[test]
fn an_interface_of_ours_that_goes_down_loses_nothing() {
    for wire in [0, 1] {
        survive(|veth| veth.down(End::A, wire), |veth| veth.up(End::A, wire), Attribute::ReliableUnordered);
    }
}

#[test]
fn an_interface_of_the_peers_that_goes_down_loses_nothing() {
    survive(|veth| veth.down(End::B, 1), |veth| veth.up(End::B, 1), Attribute::ReliableUnordered);
    survive(|veth| veth.down(End::B, 0), |veth| veth.up(End::B, 0), Attribute::ReliableOrdered);
}

#[test]
fn a_dead_first_interface_does_not_prevent_connecting() {
    let Some(veth) = wires(None) else { return };
    let (client, server) = (open_udp(&veth, End::A, true), open_udp(&veth, End::B, true));
    veth.down(End::B, 0);
    let mut pair = Pair::join(client, server, Attribute::ReliableUnordered);
    assert!(pair.rate(Duration::from_millis(100)) > 0.0);
    veth.up(End::B, 0);
    pair.rest_until_both_are_used();
}

#[test]
fn peers_with_one_interface_connect_to_peers_with_two() {
    let Some(veth) = wires(None) else { return };
    for (client_both, server_both) in [(true, false), (false, true)] {
        for attribute in [Attribute::ReliableUnordered, Attribute::Unreliable] {
            let (client, server) =
                (open_udp(&veth, End::A, client_both), open_udp(&veth, End::B, server_both));
            let mut pair = Pair::join(client, server, attribute);
            assert!(pair.rate(Duration::from_millis(100)) > 0.0);
            assert!(!pair.explained().contains("path 2"), "{}", pair.explained());
        }
    }
}
