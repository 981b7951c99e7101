//! Forged handles, thrown at a real endpoint over each device: whatever the bytes are, who was not given a region does
//! not read it, change it, or hear a word of it, and the owner goes on. `CCI_HOSTILE_HANDLES` sets how many a device.

use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, Attribute, RegionHandle, Rma, RmaFlags, RmaKind, Segment, Status,
};
use cci_testkit::conformance::{
    Area, Conn, DeviceUnderTest, Environment, Grant, Pair, Port, Refusal, Rust, SHM, SHM_PULL, SHM_RING,
    Setup, UDP4, Whose, conformance_timeout, connect, contents, plain,
};
use cci_testkit::rng::Rng;
use std::collections::VecDeque;
use std::time::Instant;

/// Handles tried over each device, by default.
const HANDLES: u64 = 1_200_000;
/// Regions that are there at any time.
const REGIONS: usize = 24;
/// Bytes that an attack moves, at most.
const BYTES_MAX: u64 = 3_000;

/// A live region, as its owner knows it.
struct Target {
    handle: RegionHandle,
    access: Access,
    /// For the attacker's connection, or for all.
    is_ours: bool,
    memory: usize,
}

/// Everything of the attacked endpoint's.
struct Victim {
    memories: Vec<Area<Rust>>,
    targets: Vec<Target>,
    /// Handles of regions that are there no more.
    stale: Vec<RegionHandle>,
    /// Another connection than the attacker's.
    other: Conn<Rust>,
}

/// What an attack asks for.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Write,
    Read,
    Change(Atomic),
}

#[derive(Clone, Copy, Debug)]
struct Attack {
    handle: RegionHandle,
    offset: u64,
    len_bytes: u64,
    deed: Deed,
}

fn word(handle: RegionHandle, at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&handle.to_bytes()[at * 8..at * 8 + 8]);
    u64::from_le_bytes(word)
}

fn with_words(region: u64, len_bytes: u64, key: u64, rest: u64) -> RegionHandle {
    let mut bytes = [0; RegionHandle::BYTES];
    for (at, word) in [region, len_bytes, key, rest].into_iter().enumerate() {
        bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
    }
    RegionHandle::from_bytes(bytes)
}

impl Attack {
    /// What it must come to; None: it would be allowed.
    fn expected(&self, victim: &Victim) -> Option<Status> {
        let named = |target: &&Target| {
            // The number and the key say which region; the rest only informs the holder of the handle.
            word(target.handle, 0) == word(self.handle, 0) && word(target.handle, 2) == word(self.handle, 2)
        };
        let Some(target) = victim.targets.iter().find(named) else { return Some(Status::RmaHandle) };
        let (need, misaligned) = match self.deed {
            Deed::Write => (Access::WRITE, false),
            Deed::Read => (Access::READ, false),
            Deed::Change(atomic) => {
                let area = &victim.memories[target.memory];
                let start = area.memory.as_ptr().addr() as u64 + area.range.start as u64;
                let address = start.wrapping_add(self.offset);
                (Access::ATOMIC, !address.is_multiple_of(atomic.width.bytes() as u64))
            }
        };
        let end = self.offset.checked_add(self.len_bytes);
        let allowed = target.is_ours
            && target.access.contains(need)
            && end.is_some_and(|end| end <= target.handle.len_bytes());
        // Beyond what the handle itself says it is not even tried.
        let allowed = allowed && end.is_some_and(|end| end <= self.handle.len_bytes());
        match (allowed, misaligned) {
            (false, _) => Some(Status::RmaHandle),
            (true, true) => Some(Status::RmaOperation),
            (true, false) => None,
        }
    }
}

impl Victim {
    fn new(pair: &mut Pair<Rust>, other: Conn<Rust>) -> Victim {
        let memories = (0..6)
            .map(|number| {
                let whose = Whose::ALL[number % 2];
                let area = Area::new(&mut pair.server, whose, 40_000 * (number + 1), Access::LOCAL);
                pair.server.port.deregister(&area.handle).expect("registered");
                area
            })
            .collect();
        Victim { memories, targets: Vec::new(), stale: Vec::new(), other }
    }

    /// Registers one region more: some part of some memory, with some rights.
    fn register(&mut self, pair: &mut Pair<Rust>, rng: &mut Rng) {
        let memory = rng.below(self.memories.len() as u64) as usize;
        let area = &self.memories[memory];
        // From the area's first byte on, so that the oracle knows addresses.
        let len = rng.range(1, area.range.len() as u64) as usize;
        let access = [Access::LOCAL, Access::READ, Access::WRITE, Access::ATOMIC, Access::ALL];
        let access = access[rng.below(5) as usize] | access[rng.below(4) as usize];
        let is_ours = rng.below(4) > 0;
        let only = (!is_ours).then_some(self.other);
        let grant = Grant { range: area.range.start..area.range.start + len, access, only };
        let handle =
            Port::register(&mut pair.server.port, &area.memory, grant).expect("it can be registered");
        self.targets.push(Target { handle, access, is_ours, memory });
    }

    /// Nothing of any memory has changed.
    fn check(&self, tried: u64) {
        for area in &self.memories {
            area.check(&format!("after {tried} forged handles"));
        }
    }
}

/// Offsets and lengths at which sums wrap and ends lie.
fn edges(rng: &mut Rng, len_bytes: u64) -> (u64, u64) {
    let small = [1, 2, 4, 8, 9, 64, 1_000, BYTES_MAX][rng.below(8) as usize];
    let offset = match rng.below(8) {
        0 => len_bytes,
        1 => len_bytes.wrapping_sub(rng.below(small)),
        2 => len_bytes.wrapping_add(rng.below(1 << 20)),
        3 => u64::MAX - small,
        4 => (1 << 63) | rng.below(len_bytes.max(1)),
        5 => (1 << 32) | rng.below(len_bytes.max(1)),
        6 => rng.next_u64(),
        _ => rng.below(len_bytes.max(1)),
    };
    (offset, small)
}

/// One attack by chance.
fn attack(rng: &mut Rng, victim: &Victim, own: RegionHandle) -> Attack {
    let target = &victim.targets[rng.below(victim.targets.len() as u64) as usize];
    let second = &victim.targets[rng.below(victim.targets.len() as u64) as usize];
    let good = target.handle;
    let [region, len_bytes, key, rest] = [0, 1, 2, 3].map(|at| word(good, at));
    let mut inside = true;
    let handle = match rng.below(10) {
        0 => with_words(rng.next_u64(), rng.next_u64(), rng.next_u64(), rng.next_u64()),
        1 => {
            let mut bytes = good.to_bytes();
            let bit = rng.below(256) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            inside = (bit / 64).is_multiple_of(2);
            RegionHandle::from_bytes(bytes)
        }
        2 => with_words(
            region,
            len_bytes,
            key ^ (rng.next_u64() & rng.next_u64() & rng.next_u64()) | 1 << 9,
            rest,
        ),
        3 if !victim.stale.is_empty() => victim.stale[rng.below(victim.stale.len() as u64) as usize],
        // Another generation of the same place, or a neighbour, with a key that is good elsewhere.
        4 => with_words(region.wrapping_add(rng.range(1, 9) << (rng.below(2) * 32)), len_bytes, key, rest),
        5 => with_words(region, len_bytes, word(second.handle, 2), rest),
        6 => [own, with_words(0, 0, 0, 0), with_words(!0, !0, !0, !0), with_words(region, !0, 0, !0)]
            [rng.below(4) as usize],
        // A true handle, and more asked for than it gives.
        _ => {
            inside = rng.below(2) == 0;
            good
        }
    };
    let (mut offset, mut len_bytes) = edges(rng, good.len_bytes());
    if inside {
        len_bytes = len_bytes.min(good.len_bytes());
        offset = rng.below(good.len_bytes() - len_bytes + 1);
    }
    let deed = match rng.below(3) {
        0 => Deed::Write,
        1 => Deed::Read,
        _ => {
            let width = [AtomicWidth::Four, AtomicWidth::Eight][rng.below(2) as usize];
            len_bytes = width.bytes() as u64;
            let kind = AtomicKind::ALL[rng.below(7) as usize];
            Deed::Change(Atomic { kind, width, operand: rng.next_u64(), compare: rng.next_u64() })
        }
    };
    // A library that was tampered with asks for what it likes, whatever the handle says.
    let handle = if rng.below(4) > 0 { claiming_all(handle) } else { handle };
    Attack { handle, offset, len_bytes, deed }
}

/// The handle with its region and key, but endless and open to everything: the target must refuse what is outside.
fn claiming_all(handle: RegionHandle) -> RegionHandle {
    with_words(word(handle, 0), u64::MAX, word(handle, 2), u64::from(u8::MAX))
}

struct Attacker {
    pair: Pair<Rust>,
    victim: Victim,
    local_area: Area<Rust>,
    rng: Rng,
    tried: u64,
    /// What the operations under way must come to, in order.
    under_way: VecDeque<(Attack, Status)>,
}

impl Attacker {
    fn new(device: DeviceUnderTest) -> Attacker {
        let place = Environment::new(Rust, device, "");
        let setup = Setup { recv_buffers: 64, ..Setup::default() };
        let mut pair = Pair::open(&place, Attribute::ReliableOrdered, &setup);
        let (_, other) = connect(&mut pair.client, &mut pair.server, Attribute::ReliableOrdered);
        let victim = Victim::new(&mut pair, other);
        let local_area = Area::new(&mut pair.client, Whose::Library, 8_192, Access::ALL);
        let mut attacker = Attacker {
            pair,
            victim,
            local_area,
            rng: Rng::new(20_261_121),
            tried: 0,
            under_way: VecDeque::new(),
        };
        for _ in 0..REGIONS {
            attacker.victim.register(&mut attacker.pair, &mut attacker.rng);
        }
        attacker
    }

    fn poll(&mut self) {
        self.pair.client.poll();
        self.pair.server.poll();
        for (_, _, status) in self.pair.client.sent.drain(..) {
            let (attack, expected) = self.under_way.pop_front().expect("it ends once");
            assert_eq!(status, expected, "{attack:?}, after {} others", self.tried);
        }
    }

    /// Makes an attack, unless it would be allowed.
    fn make(&mut self, attack: Attack) {
        let Some(expected) = attack.expected(&self.victim) else { return };
        let patience = Instant::now() + conformance_timeout();
        let local = [self.local_area.segment(8, attack.len_bytes as usize)];
        let remote = [Segment::new(attack.handle, attack.offset, attack.len_bytes)];
        let with_message = self.rng.below(16) == 0;
        loop {
            let (client, to) = (&mut self.pair.client.port, self.pair.to_server);
            let message = with_message.then_some(&b"you have been robbed"[..]);
            let started = match attack.deed {
                Deed::Write => {
                    Port::rma(client, to, &Rma { message, ..plain(RmaKind::Write, &local, &remote, 0) })
                }
                Deed::Read => {
                    Port::rma(client, to, &Rma { message, ..plain(RmaKind::Read, &local, &remote, 0) })
                }
                Deed::Change(atomic) => {
                    let result = Some(self.local_area.address(0));
                    Port::atomic(client, to, atomic, remote[0].address, result, 0, RmaFlags::NONE)
                }
            };
            match started {
                Ok(()) => break self.under_way.push_back((attack, expected)),
                // What wraps is not even sent.
                Err(Refusal::BadArgument) => {
                    assert_eq!(attack.offset.checked_add(attack.len_bytes), None, "{attack:?}");
                    break;
                }
                Err(Refusal::WouldBlock) => {}
                Err(other) => panic!("{attack:?}: {other:?}"),
            }
            assert!(Instant::now() < patience, "attacks do not end");
            self.poll();
        }
        self.tried += 1;
        if self.tried.is_multiple_of(16) {
            self.poll();
        }
    }

    /// Every attack so far has ended, and nothing came of it; what is allowed still works.
    fn check(&mut self) {
        let patience = Instant::now() + conformance_timeout();
        while !self.under_way.is_empty() {
            assert!(Instant::now() < patience, "{} attacks do not end", self.under_way.len());
            self.poll();
        }
        self.victim.check(self.tried);
        self.local_area.check("what was refused was not read");
        assert!(self.pair.server.inbox.is_empty(), "no message of a refused operation");
        let Attacker { pair, victim, local_area, .. } = self;
        let memory = &mut victim.memories[0];
        let grant = Grant { range: memory.range.clone(), access: Access::ALL, only: None };
        let handle = Port::register(&mut pair.server.port, &memory.memory, grant).expect("room");
        let data = contents(self.tried, 2_000);
        local_area.put(100, &data);
        let status =
            pair.transfer(RmaKind::Write, local_area.segment(100, 2_000), Segment::new(handle, 50, 2_000));
        assert_eq!(status, Status::Success, "the owner goes on");
        memory.expect(50, &data);
        memory.check("written by one who may");
        Port::deregister(&mut pair.server.port, &handle).expect("registered");
        victim.stale.push(handle);
    }

    /// One region goes, another comes.
    fn churn(&mut self) {
        let patience = Instant::now() + conformance_timeout();
        // What is under way was judged by the regions that are there now.
        while !self.under_way.is_empty() {
            assert!(Instant::now() < patience, "{} attacks do not end", self.under_way.len());
            self.poll();
        }
        let at = self.rng.below(REGIONS as u64) as usize;
        let gone = self.victim.targets.swap_remove(at).handle;
        Port::deregister(&mut self.pair.server.port, &gone).expect("registered");
        self.victim.stale.push(gone);
        self.victim.register(&mut self.pair, &mut self.rng);
    }

    /// Every single bit of every region's handle, with every deed, within the region and beyond it.
    fn every_bit(&mut self) {
        for at in 0..REGIONS {
            let good = self.victim.targets[at].handle;
            for bit in 0..RegionHandle::BYTES * 8 {
                let mut bytes = good.to_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let handle = RegionHandle::from_bytes(bytes);
                let add = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Four, operand: 1, compare: 0 };
                let len_bytes = good.len_bytes().min(4);
                for (deed, len_bytes) in
                    [(Deed::Write, len_bytes), (Deed::Read, len_bytes), (Deed::Change(add), 4)]
                {
                    for offset in
                        [0, good.len_bytes(), good.len_bytes() - len_bytes.min(good.len_bytes()) + 1]
                    {
                        self.make(Attack { handle, offset, len_bytes, deed });
                        let handle = claiming_all(handle);
                        self.make(Attack { handle, offset, len_bytes, deed });
                    }
                }
            }
        }
    }
}

fn forged_handles_open_nothing(device: DeviceUnderTest) {
    let _network = match device.network() {
        Ok(network) => network,
        Err(reason) => return println!("{}: skipped, {reason}", device.name),
    };
    let handles = std::env::var("CCI_HOSTILE_HANDLES").ok().and_then(|text| text.parse().ok());
    let handles = handles.unwrap_or(HANDLES);
    let mut attacker = Attacker::new(device);
    attacker.every_bit();
    attacker.check();
    let bits = attacker.tried;
    while attacker.tried < handles {
        let attack = attack(&mut attacker.rng, &attacker.victim, attacker.local_area.handle);
        attacker.make(attack);
        if attacker.tried.is_multiple_of(4_096) {
            attacker.churn();
        }
        if attacker.tried.is_multiple_of(32_768) {
            attacker.check();
        }
    }
    attacker.check();
    let refused = attacker.pair.server.port.counts().rma_refused;
    println!(
        "{}: {} forged handles tried, {bits} of them single bits of good ones; {refused} refused by the owner",
        device.name, attacker.tried
    );
}

tests! {
    fn shm() = forged_handles_open_nothing(SHM);
    fn shm_pull() = forged_handles_open_nothing(SHM_PULL);
    fn shm_ring() = forged_handles_open_nothing(SHM_RING);
    fn udp() = forged_handles_open_nothing(UDP4);
}
