//! Atomic operations on peers' memory (CCS-062): exactly once, whole, against each other and the owner's own.

use super::{RELIABLE, RO};
use crate::conformance::{
    Area, Capability, Conn, Driver, Environment, Pair, Port, Refusal, Setup, Shared, Side, Skipped, Whose,
    conformance_timeout, connect, part,
};
use crate::rng::Rng;
use cci::{Access, Atomic, AtomicKind, AtomicWidth, Attribute, RmaFlags, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// An operation without a comparison.
fn op(kind: AtomicKind, width: AtomicWidth, operand: u64) -> Atomic {
    Atomic { kind, width, operand, compare: 0 }
}

/// A client of several, its connection, and where its results go.
struct Client<D: Driver> {
    side: Side<D>,
    to_server: Conn<D>,
    results: Area<D>,
    started: usize,
}

/// A server and clients of it.
fn clients<D: Driver>(
    env: &Environment<D>,
    attribute: Attribute,
    count: usize,
    results_bytes: usize,
) -> (Side<D>, Vec<Client<D>>) {
    let mut server = Side::server(env);
    let clients = (0..count).map(|_| {
        let mut side = Side::open(env, &Setup { recv_buffers: 16, ..Setup::default() });
        let (to_server, _) = connect(&mut side, &mut server, attribute);
        let results = Area::new(&mut side, Whose::Library, results_bytes, Access::LOCAL);
        Client { side, to_server, results, started: 0 }
    });
    let clients = clients.collect();
    (server, clients)
}

impl<D: Driver> Client<D> {
    /// Starts operation after operation, as made by `next` from its number, for as long as there is room.
    fn start(&mut self, count: usize, next: impl Fn(usize) -> (Atomic, cci::RegionAddress)) {
        for _ in 0..16 {
            if self.started == count {
                return;
            }
            let (atomic, target) = next(self.started);
            let result = Some(self.results.address(self.started * 8));
            let context = self.started as u64;
            match self.side.port.atomic(self.to_server, atomic, target, result, context, RmaFlags::NONE) {
                Ok(()) => self.started += 1,
                Err(Refusal::WouldBlock) => return,
                Err(other) => panic!("refused: {other:?}"),
            }
        }
    }

    /// Every operation ended, well; what was there before each.
    fn results(&self, count: usize) -> Vec<u64> {
        let mut contexts = self.side.contexts();
        contexts.sort_unstable();
        assert!(contexts.into_iter().eq(0..count as u64), "each ends once");
        assert!(self.side.statuses().iter().all(|status| *status == Status::Success));
        (0..count).map(|number| self.results.word(number * 8)).collect()
    }
}

/// Drives everybody until each client's operations have ended.
fn run_all<D: Driver>(
    server: &mut Side<D>,
    clients: &mut [Client<D>],
    count: usize,
    next: impl Fn(usize, usize) -> (Atomic, cci::RegionAddress),
) {
    let patience = Instant::now() + conformance_timeout() * 2;
    while clients.iter().any(|client| client.side.sent.len() < count) {
        assert!(Instant::now() < patience, "operations do not end");
        for (who, client) in clients.iter_mut().enumerate() {
            client.start(count, |number| next(who, number));
            client.side.poll();
        }
        server.poll();
    }
}

/// Several clients add to one word: every value between is seen by exactly one of them.
pub fn fetch_adds_add_up<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Crowd)?;
    const CLIENTS: usize = 3;
    const ADDS: usize = 2_000;
    for attribute in RELIABLE {
        for (whose, width) in [(Whose::Library, AtomicWidth::Eight), (Whose::Foreign, AtomicWidth::Four)] {
            let (mut server, mut clients) = clients::<D>(env, attribute, CLIENTS, ADDS * 8);
            let mut remote_area = Area::new(&mut server, whose, 64, Access::ATOMIC);
            remote_area.put_word(32, 0);
            run_all(&mut server, &mut clients, ADDS, |_, _| {
                (op(AtomicKind::FetchAdd, width, 1), remote_area.address(32))
            });
            let mut seen: Vec<u64> = clients.iter().flat_map(|client| client.results(ADDS)).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..(CLIENTS * ADDS) as u64), "each number was given out once");
            remote_area.expect(32, &((CLIENTS * ADDS) as u64).to_ne_bytes());
            remote_area.check("the sum");
            part(clients.into_iter().map(|client| client.side).chain([server]));
        }
    }
    Ok(())
}

/// Clients claim slots of a table by compare-and-swap: each slot belongs to the one whose swap succeeded.
pub fn compare_swap_claims_each_slot_once<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Crowd)?;
    const CLIENTS: usize = 3;
    const SLOTS: usize = 600;
    for whose in Whose::ALL {
        let (mut server, mut clients) = clients::<D>(env, Attribute::ReliableUnordered, CLIENTS, SLOTS * 8);
        let mut remote_area = Area::new(&mut server, whose, SLOTS * 8, Access::ATOMIC);
        remote_area.put(0, &[0; SLOTS * 8]);
        let claim = |who: usize, slot: usize| {
            let width = AtomicWidth::Eight;
            let operand = (who as u64 + 1) << 40 | slot as u64;
            let slot = (slot * (who + 1) * 7) % SLOTS;
            (
                Atomic { kind: AtomicKind::CompareSwap, width, operand, compare: 0 },
                remote_area.address(slot * 8),
            )
        };
        run_all(&mut server, &mut clients, SLOTS, claim);
        let mut claimed = 0;
        for (who, client) in clients.iter().enumerate() {
            for (number, before) in client.results(SLOTS).into_iter().enumerate() {
                let (atomic, target) = claim(who, number);
                let holds = remote_area.word(target.offset as usize);
                let mine = holds == atomic.operand;
                assert_eq!(mine, before == 0, "client {who}, slot {}", target.offset / 8);
                assert!(mine || before == holds, "who came late sees who was first");
                claimed += usize::from(mine);
            }
        }
        let taken = (0..SLOTS).filter(|slot| remote_area.word(slot * 8) != 0).count();
        assert_eq!(claimed, taken, "each slot was claimed by one");
        assert!(taken >= SLOTS / 7, "{taken} slots");
        part(clients.into_iter().map(|client| client.side).chain([server]));
    }
    Ok(())
}

/// 4-byte operations wrap within their word.
pub fn four_bytes_leave_the_neighbours_alone<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        for whose in Whose::ALL {
            let mut pair = Pair::<D>::plain(env, attribute);
            let mut local_area = Area::new(&mut pair.client, Whose::Foreign, 64, Access::LOCAL);
            let mut remote_area = Area::new(&mut pair.server, whose, 64, Access::ATOMIC);
            for at in [0, 4, 8, 20, 60] {
                remote_area.put(at, &u32::MAX.to_ne_bytes());
                let mut add = op(AtomicKind::FetchAdd, AtomicWidth::Four, 3);
                // What is above the width counts for nothing.
                add.operand |= 0xabcd_0000_0000_0000;
                let status = pair.change(add, remote_area.address(at), Some(local_area.address(at / 8 * 8)));
                assert_eq!(status, Status::Success);
                local_area.expect(at / 8 * 8, &u64::from(u32::MAX).to_ne_bytes());
                remote_area.expect(at, &2_u32.to_ne_bytes());
                remote_area.check("wrapped");
                local_area.check("with zeros above");
            }
            pair.part();
        }
    }
}

/// What an operation makes of a word.
fn model(atomic: Atomic, before: u64) -> u64 {
    let after = match atomic.kind {
        AtomicKind::FetchAdd | AtomicKind::Add => before.wrapping_add(atomic.operand),
        AtomicKind::Swap => atomic.operand,
        AtomicKind::CompareSwap if before == atomic.compare => atomic.operand,
        AtomicKind::CompareSwap => before,
        AtomicKind::And => before & atomic.operand,
        AtomicKind::Or => before | atomic.operand,
        AtomicKind::Xor => before ^ atomic.operand,
    };
    if atomic.width == AtomicWidth::Four { after & 0xffff_ffff } else { after }
}

/// Every kind, both widths, with and without a result, against a model.
pub fn every_kind_does_what_it_says<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        for whose in Whose::ALL {
            let mut pair = Pair::<D>::plain(env, attribute);
            let mut local_area = Area::new(&mut pair.client, Whose::Library, 8, Access::LOCAL);
            let mut remote_area = Area::new(&mut pair.server, whose, 64, Access::ATOMIC);
            let mut rng = Rng::new(6);
            for round in 0..350 {
                let kind = AtomicKind::ALL[round % AtomicKind::ALL.len()];
                let width = [AtomicWidth::Four, AtomicWidth::Eight][rng.below(2) as usize];
                let at = rng.below(64 / width.bytes() as u64) as usize * width.bytes();
                let before = match width {
                    AtomicWidth::Four => {
                        u64::from(u32::from_ne_bytes(*remote_area.model(at, 4).first_chunk().expect("4")))
                    }
                    AtomicWidth::Eight => {
                        u64::from_ne_bytes(*remote_area.model(at, 8).first_chunk().expect("8"))
                    }
                };
                let compare = if rng.below(2) == 0 { before } else { rng.next_u64() };
                let compare = if width == AtomicWidth::Four { compare & 0xffff_ffff } else { compare };
                let atomic = Atomic { kind, width, operand: rng.next_u64(), compare };
                let result =
                    matches!(kind, AtomicKind::FetchAdd | AtomicKind::Swap | AtomicKind::CompareSwap)
                        && rng.below(4) > 0;
                let status =
                    pair.change(atomic, remote_area.address(at), result.then(|| local_area.address(0)));
                assert_eq!(status, Status::Success, "{atomic:?}");
                remote_area.expect(at, &model(atomic, before).to_ne_bytes()[..width.bytes()]);
                if result {
                    local_area.expect(0, &before.to_ne_bytes());
                }
                remote_area.check("after an operation");
                local_area.check("after an operation");
            }
            pair.part();
        }
    }
}

/// Misaligned ones can't be done, those beyond the end may not: the word stays as it was.
pub fn atomics_out_of_place_are_refused<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        for whose in Whose::ALL {
            let mut pair = Pair::<D>::plain(env, attribute);
            let mut local_area = Area::new(&mut pair.client, Whose::Library, 8, Access::LOCAL);
            let mut remote_area = Area::new(&mut pair.server, whose, 64, Access::ATOMIC);
            for kind in AtomicKind::ALL {
                for (width, at, expected) in [
                    (AtomicWidth::Eight, 1, Status::RmaOperation),
                    (AtomicWidth::Eight, 4, Status::RmaOperation),
                    (AtomicWidth::Four, 2, Status::RmaOperation),
                    (AtomicWidth::Four, 63, Status::RmaHandle),
                    (AtomicWidth::Eight, 60, Status::RmaHandle),
                    (AtomicWidth::Eight, 64, Status::RmaHandle),
                    (AtomicWidth::Four, 1 << 62, Status::RmaHandle),
                ] {
                    let status = pair.change(op(kind, width, 1), remote_area.address(at), None);
                    assert_eq!(status, expected, "{kind:?} of {width:?} bytes at {at}");
                }
            }
            remote_area.check("refused");
            let result = Some(local_area.address(0));
            let swap = op(AtomicKind::Swap, AtomicWidth::Eight, 7);
            assert_eq!(
                pair.change(swap, remote_area.address(8), result),
                Status::Success,
                "the connection goes on"
            );
            local_area.expect(0, remote_area.model(8, 8));
            remote_area.expect(8, &7_u64.to_ne_bytes());
            local_area.check("the word before");
            remote_area.check("swapped");
            pair.part();
        }
    }
}

/// The owner's program changes the word at the same time, with its processor's own atomics.
pub fn atomics_against_the_owners_own<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Crowd)?;
    const ADDS: usize = 4_000;
    for whose in Whose::ALL {
        let (mut server, mut clients) = clients::<D>(env, RO, 2, ADDS * 8);
        let mut remote_area = Area::new(&mut server, whose, 64, Access::ATOMIC);
        remote_area.put_word(16, 0);
        let (memory, at) = (remote_area.memory.clone(), remote_area.range.start + 16);
        let add = op(AtomicKind::FetchAdd, AtomicWidth::Eight, 1);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let owner = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while !stopped.load(Ordering::Relaxed) && seen.len() < 50_000_000 {
                seen.push(memory.own_atomic(at, add));
                // The clients, which take longer, need the processor, too.
                if seen.len() % 64 == 0 {
                    std::thread::sleep(Duration::from_micros(20));
                }
            }
            seen
        });
        run_all(&mut server, &mut clients, ADDS, |_, _| (add, remote_area.address(16)));
        stop.store(true, Ordering::Relaxed);
        let mut seen = owner.join().expect("the owner's program");
        seen.extend(clients.iter().flat_map(|client| client.results(ADDS)));
        let count = seen.len() as u64;
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..count), "each number was given out once");
        remote_area.expect(16, &count.to_ne_bytes());
        remote_area.check("the sum of all");
        part(clients.into_iter().map(|client| client.side).chain([server]));
    }
    Ok(())
}
