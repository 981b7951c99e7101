//! Shared memory: remote memory access, on each of its paths.

mod shm_common;

use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, Attribute, Connection, Context, Endpoint, Event, Foreign,
    MappedTarget, Memory, Options, RegionAddress, RegionHandle, Registration, Rma, RmaError, RmaFlags,
    RmaKind, Segment, SendFlags, Status,
};
use shm_common::*;
use std::path::Path;

/// How the bytes are to go.
#[derive(Copy, Clone, Debug, PartialEq)]
enum RmaPath {
    Ring,
    Direct,
    Pulled,
    /// As the library chooses, foreign memory.
    Free,
}

const RMA_PATHS: [RmaPath; 4] = [RmaPath::Ring, RmaPath::Direct, RmaPath::Pulled, RmaPath::Free];

fn endpoint_for(path: RmaPath) -> Endpoint {
    let (direct, cma) = match path {
        RmaPath::Ring => ("off", "off"),
        RmaPath::Direct => ("on", "off"),
        RmaPath::Pulled => ("off", "always"),
        RmaPath::Free => ("on", "on"),
    };
    let text = format!("[m]\ntransport = shm\ndirect = {direct}\ncma = {cma}\n");
    let context = Context::from_text(&text, Path::new("test.ini")).unwrap();
    Endpoint::create(&context.devices()[0], Options::default()).unwrap()
}

fn memory_for(endpoint: &mut Endpoint, path: RmaPath, len: usize) -> Memory {
    match path {
        RmaPath::Direct | RmaPath::Ring => endpoint.allocate(len).unwrap(),
        RmaPath::Pulled | RmaPath::Free => Memory::foreign(Foreign::owned(vec![0; len].into_boxed_slice())),
    }
}

struct Pair {
    a: Endpoint,
    b: Endpoint,
    ours: Connection,
    theirs: Connection,
    path: RmaPath,
}

fn pair(path: RmaPath, attribute: Attribute) -> Pair {
    let (mut a, mut b) = (endpoint_for(path), endpoint_for(path));
    let (ours, theirs) = connect(&mut a, &mut b, attribute);
    Pair { a, b, ours, theirs, path }
}

impl Pair {
    /// Waits for the completion with this context.
    fn completion(&mut self, context: u64) -> Status {
        let what = format!("{:?}: completion {context}", self.path);
        run(&mut self.a, &mut self.b, &what, |whose, event, _| match event {
            Event::Send { context: got, status, .. } if whose == 0 => {
                assert_eq!(got, context);
                Some(status)
            }
            other => panic!("unexpected {other:?}"),
        })
    }

    fn write(&mut self, from: RegionAddress, to: RegionAddress, len: u64) -> Status {
        self.a.rma_write(self.ours, from, to, len, 9, RmaFlags::NONE).unwrap();
        self.completion(9)
    }

    fn read(&mut self, into: RegionAddress, from: RegionAddress, len: u64) -> Status {
        self.a.rma_read(self.ours, into, from, len, 8, RmaFlags::NONE).unwrap();
        self.completion(8)
    }

    fn atomic(
        &mut self,
        kind: AtomicKind,
        operand: u64,
        compare: u64,
        at: RegionAddress,
        result: RegionAddress,
    ) -> Status {
        let atomic = Atomic { kind, width: AtomicWidth::Eight, operand, compare };
        self.a.atomic(self.ours, atomic, at, Some(result), 7, RmaFlags::NONE).unwrap();
        self.completion(7)
    }
}

fn contents(memory: &Memory, offset: usize, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    assert!(memory.read(offset, &mut out));
    out
}

#[test]
fn bytes_of_all_sizes_and_offsets_go_both_ways() {
    const LEN: usize = 3 << 20;
    for path in RMA_PATHS {
        for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered] {
            let mut pair = pair(path, attribute);
            let local = memory_for(&mut pair.a, path, LEN);
            let remote = memory_for(&mut pair.b, path, LEN);
            let ours = pair.a.register(&local, Access::LOCAL).unwrap();
            let theirs = pair.b.register(&remote, Access::READ | Access::WRITE).unwrap();
            let sizes = [1, 7, 8, 64, 1000, 4096, 4097, 15_361, 40_000, 300_001, 2 << 20];
            for (number, &len) in sizes.iter().enumerate() {
                for (from, to) in [(0, 0), (3, 100_001), (4096, 77), (1 << 19, 13)] {
                    let data = pattern(number as u64 + 1, len);
                    assert!(local.write(from, &data));
                    let (from_at, to_at) =
                        (RegionAddress::new(ours, from as u64), RegionAddress::new(theirs, to as u64));
                    assert_eq!(pair.write(from_at, to_at, len as u64), Status::Success);
                    assert!(contents(&remote, to, len) == data, "{path:?}: {len} from {from} to {to}");
                    let back = RegionAddress::new(ours, 7);
                    assert_eq!(pair.read(back, to_at, len as u64), Status::Success);
                    assert!(contents(&local, 7, len) == data, "{path:?}: {len} from {to} to 7");
                    // Nothing beside it.
                    assert!(remote.write(to, &vec![0; len]));
                    assert!(contents(&remote, 0, LEN).iter().all(|&byte| byte == 0), "{path:?}: {len}");
                }
            }
            let (direct, pulled) = (counter(&pair.a, "rma_direct"), counter(&pair.b, "rma_pulled"));
            let paths = pair.a.explain(pair.ours).unwrap().paths;
            assert_eq!(direct > 0, path == RmaPath::Direct, "{path:?}");
            assert_eq!(
                pulled > 0,
                path == RmaPath::Pulled || path == RmaPath::Free && pulled > 0,
                "{paths:?}"
            );
            let counters = pair.a.counters();
            assert_eq!(counters.rma_writes, 4 * sizes.len() as u64);
            assert!(counters.drops.is_empty(), "{:?}", counters.drops);
        }
    }
}

/// Programs that always have several operations under way find out, too, which path is the faster one.
#[test]
fn the_ring_and_pulls_are_compared_though_operations_are_always_under_way() {
    const UNDER_WAY: u64 = 4;
    for (len, operations) in [(64 << 10, 200), (5 << 20, 16)] {
        compare_the_paths(len, UNDER_WAY, operations);
    }
}

fn compare_the_paths(len: usize, under_way: u64, operations: u64) {
    let mut pair = pair(RmaPath::Free, Attribute::ReliableOrdered);
    let local = memory_for(&mut pair.a, RmaPath::Free, len);
    let remote = memory_for(&mut pair.b, RmaPath::Free, len);
    let here = RegionAddress::new(pair.a.register(&local, Access::LOCAL).unwrap(), 0);
    let there = RegionAddress::new(pair.b.register(&remote, Access::ALL).unwrap(), 0);
    for kind in [RmaKind::Write, RmaKind::Read] {
        let start = |pair: &mut Pair, context| {
            let (a, to, len) = (&mut pair.a, pair.ours, len as u64);
            let started = match kind {
                RmaKind::Write => a.rma_write(to, here, there, len, context, RmaFlags::NONE),
                RmaKind::Read => a.rma_read(to, here, there, len, context, RmaFlags::NONE),
            };
            started.unwrap();
        };
        (0..under_way).for_each(|context| start(&mut pair, context));
        for context in 0..operations {
            assert_eq!(pair.completion(context), Status::Success);
            start(&mut pair, under_way + context);
        }
        (operations..operations + under_way).for_each(|context| {
            assert_eq!(pair.completion(context), Status::Success);
        });
    }
    let text = pair.a.explain(pair.ours).unwrap().to_string();
    assert!(!text.contains("not compared with the ring yet"), "{text}");
}

#[test]
fn what_was_not_granted_is_refused_and_touches_nothing() {
    for path in RMA_PATHS {
        let mut pair = pair(path, Attribute::ReliableOrdered);
        let local = memory_for(&mut pair.a, path, 100_000);
        let remote = memory_for(&mut pair.b, path, 100_000);
        assert!(local.write(0, &vec![0xAB; 100_000]));
        let ours = pair.a.register(&local, Access::ALL).unwrap();
        let theirs = |pair: &mut Pair, range: std::ops::Range<usize>, access, only| {
            pair.b.register(&remote, Registration { range: Some(range), access, only }).unwrap()
        };
        let read_only = theirs(&mut pair, 1000..99_000, Access::READ, None);
        let write_only = theirs(&mut pair, 1000..99_000, Access::WRITE, None);
        let gone = theirs(&mut pair, 0..100_000, Access::ALL, None);
        let other = connect(&mut pair.a, &mut pair.b, Attribute::ReliableOrdered);
        let scoped = theirs(&mut pair, 0..100_000, Access::ALL, Some(other.1));
        // Good uses first, so that whatever can be cached is cached.
        let small = RegionAddress::new(ours, 0);
        for _ in 0..3 {
            assert_eq!(
                pair.read(RegionAddress::new(ours, 50_000), RegionAddress::new(read_only, 0), 8),
                Status::Success
            );
            assert_eq!(
                pair.read(RegionAddress::new(ours, 50_000), RegionAddress::new(gone, 0), 8),
                Status::Success
            );
        }
        pair.b.deregister(&gone).unwrap();
        let mut forged = read_only.to_bytes();
        forged[17] ^= 1;
        let forged = RegionHandle::from_bytes(forged);
        for len in [8_u64, 5000, 60_000] {
            for (handle, offset) in [
                (read_only, 0),
                (write_only, 98_000 - len + 1),
                (write_only, u64::MAX - 100_000),
                (gone, 0),
                (scoped, 0),
                (forged, 0),
                (RegionHandle::from_bytes([0xFF; 32]), 0),
                (ours, 0),
            ] {
                let to = RegionAddress::new(handle, offset);
                assert_eq!(pair.write(small, to, len), Status::RmaHandle, "{path:?} {len} {handle:?}");
            }
            for handle in [write_only, gone, scoped, forged] {
                assert_eq!(pair.read(small, RegionAddress::new(handle, 0), len), Status::RmaHandle);
            }
        }
        assert_eq!(
            pair.atomic(AtomicKind::FetchAdd, 1, 0, RegionAddress::new(read_only, 0), small),
            Status::RmaHandle
        );
        assert!(contents(&remote, 0, 100_000).iter().all(|&byte| byte == 0), "{path:?}");
        assert!(contents(&local, 0, 8) == [0xAB; 8]);
        let refused = pair.b.counters().rma_refused;
        // What the handle itself says is beyond its region is refused before it is sent.
        assert_eq!(refused, 3 * 10 + 1, "{path:?}");
        // Over the connection that it is for, it works.
        pair.a.rma_write(other.0, small, RegionAddress::new(scoped, 0), 8, 9, RmaFlags::NONE).unwrap();
        assert_eq!(pair.completion(9), Status::Success);
        assert!(matches!(
            pair.a.rma_write(pair.ours, RegionAddress::new(ours, 99_999), small, 2, 1, RmaFlags::NONE),
            Err(RmaError::LocalHandle)
        ));
    }
}

#[test]
fn atomics_of_all_kinds() {
    for path in RMA_PATHS {
        let mut pair = pair(path, Attribute::ReliableOrdered);
        let local = memory_for(&mut pair.a, path, 4096);
        let remote = memory_for(&mut pair.b, path, 4096);
        let ours = pair.a.register(&local, Access::LOCAL).unwrap();
        let theirs = pair.b.register(&remote, Access::ALL).unwrap();
        let (at, result) = (RegionAddress::new(theirs, 64), RegionAddress::new(ours, 8));
        for round in 0..3_u64 {
            assert!(remote.write(64, &100_u64.to_ne_bytes()));
            for (kind, operand, compare, before, after) in [
                (AtomicKind::FetchAdd, 5, 0, 100, 105_u64),
                (AtomicKind::Swap, 7, 0, 105, 7),
                (AtomicKind::CompareSwap, 9, 8, 7, 7),
                (AtomicKind::CompareSwap, 9, 7, 7, 9),
                (AtomicKind::Add, 3, 0, 9, 12),
                (AtomicKind::And, 10, 0, 12, 8),
                (AtomicKind::Or, 3, 0, 8, 11),
                (AtomicKind::Xor, 1, 0, 11, 10),
            ] {
                assert_eq!(pair.atomic(kind, operand, compare, at, result), Status::Success);
                assert_eq!(contents(&local, 8, 8), u64::to_ne_bytes(before), "{path:?} {round} {kind:?}");
                assert_eq!(contents(&remote, 64, 8), after.to_ne_bytes(), "{path:?} {round} {kind:?}");
            }
        }
        let odd = RegionAddress::new(theirs, 3);
        assert_eq!(pair.atomic(AtomicKind::Add, 1, 0, odd, result), Status::RmaOperation, "{path:?}");
        let counted = 20_000_u64;
        let add = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Four, operand: 1, compare: 0 };
        let (mut started, mut done) = (0, 0);
        let target = remote.clone();
        let thread =
            std::thread::spawn(move || (0..counted).for_each(|_| assert!(target.atomic(128, add).is_ok())));
        while done < counted {
            while started < counted {
                match pair.a.atomic(pair.ours, add, RegionAddress::new(theirs, 128), None, 1, RmaFlags::NONE)
                {
                    Ok(()) => started += 1,
                    Err(RmaError::WouldBlock) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            while let Some(event) = pair.a.next_event() {
                assert!(matches!(event, Event::Send { status: Status::Success, .. }), "{event:?}");
                done += 1;
            }
            assert!(pair.b.next_event().is_none());
        }
        thread.join().unwrap();
        assert_eq!(contents(&remote, 128, 4), (2 * counted as u32).to_ne_bytes(), "{path:?}");
    }
}

#[test]
fn segments_and_the_message_behind_them() {
    for path in RMA_PATHS {
        let mut pair = pair(path, Attribute::ReliableOrdered);
        let source = memory_for(&mut pair.a, path, 1 << 20);
        let destination = memory_for(&mut pair.b, path, 1 << 20);
        let ours = pair.a.register(&source, Access::LOCAL).unwrap();
        let theirs = pair.b.register(&destination, Access::READ | Access::WRITE).unwrap();
        let data = pattern(5, 1 << 20);
        assert!(source.write(0, &data));
        for kind in [RmaKind::Write, RmaKind::Read] {
            // 600 runs of 100 bytes, and a long one.
            let mut local: Vec<Segment> = (0..300).map(|at| Segment::new(ours, at * 1000, 200)).collect();
            let mut remote: Vec<Segment> = (0..600).map(|at| Segment::new(theirs, at * 500, 100)).collect();
            local.push(Segment::new(ours, 400_000, 300_000));
            remote.push(Segment::new(theirs, 400_000, 300_000));
            let (flags, message) = (RmaFlags::NONE, Some(&b"it is there"[..]));
            let rma = Rma { kind, local: &local, remote: &remote, message, context: 3, flags };
            pair.a.rma(pair.ours, &rma).unwrap();
            let (mut received, mut ended) = (false, false);
            let memory = destination.clone();
            run(&mut pair.a, &mut pair.b, "a message behind data", |_, event, _| {
                match event {
                    Event::Recv(message) => {
                        assert_eq!(&*message, b"it is there");
                        for at in 0..600 {
                            let from = at / 2 * 1000 + at % 2 * 100;
                            assert_eq!(contents(&memory, at * 500, 100), data[from..from + 100]);
                        }
                        assert!(contents(&memory, 400_000, 300_000) == data[400_000..700_000]);
                        received = true;
                    }
                    Event::Send { context: 3, status: Status::Success, .. } => ended = true,
                    other => panic!("{path:?} unexpected {other:?}"),
                }
                (received && ended).then_some(())
            });
        }
        // No message behind what was refused.
        let bad = Segment::new(theirs, (1 << 20) - 50_000, 50_001);
        let (local, flags) = ([Segment::new(ours, 0, 50_001)], RmaFlags::NONE);
        let rma = Rma {
            kind: RmaKind::Write,
            local: &local,
            remote: &[bad],
            message: Some(b"no"),
            context: 4,
            flags,
        };
        pair.a.rma(pair.ours, &rma).unwrap();
        assert_eq!(pair.completion(4), Status::RmaHandle);
    }
}

#[test]
fn a_fence_waits_for_what_was_before_it() {
    for path in RMA_PATHS {
        let mut pair = pair(path, Attribute::ReliableOrdered);
        let local = memory_for(&mut pair.a, path, 1 << 20);
        let remote = memory_for(&mut pair.b, path, 1 << 20);
        let ours = pair.a.register(&local, Access::LOCAL).unwrap();
        let theirs = pair.b.register(&remote, Access::ALL).unwrap();
        for round in 1..=50_u8 {
            // Writes to the same place, each fenced: the last one is what stays.
            for step in 0..4_u8 {
                assert!(local.write(usize::from(step) << 17, &vec![round.wrapping_mul(4) + step; 100_000]));
                let from = RegionAddress::new(ours, u64::from(step) << 17);
                let to = RegionAddress::new(theirs, 0);
                let (context, len) = (u64::from(step), if step == 3 { 70_000 } else { 100_000 });
                pair.a.rma_write(pair.ours, from, to, len, context, RmaFlags::FENCE).unwrap();
            }
            pair.a.send(pair.ours, b"m", 4, SendFlags::NONE).unwrap();
            let flag = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Eight, operand: 1, compare: 0 };
            pair.a
                .atomic(pair.ours, flag, RegionAddress::new(theirs, 1 << 19), None, 5, RmaFlags::FENCE)
                .unwrap();
            let (mut next, mut came) = (0, 0);
            let memory = remote.clone();
            run(&mut pair.a, &mut pair.b, "fenced operations", |_, event, _| {
                match event {
                    Event::Send { context, status: Status::Success, .. } => {
                        assert_eq!(context, next, "in the order of issue");
                        next += 1;
                    }
                    Event::Recv(_) => {
                        let counted = contents(&memory, 1 << 19, 8);
                        assert!(path == RmaPath::Direct || counted == u64::from(round - 1).to_ne_bytes());
                        came += 1;
                    }
                    other => panic!("unexpected {other:?}"),
                }
                (next == 6 && came == 1).then_some(())
            });
            let last = round.wrapping_mul(4) + 3;
            assert!(contents(&remote, 0, 70_000).iter().all(|&byte| byte == last), "{path:?}");
            assert!(contents(&remote, 70_000, 30_000).iter().all(|&byte| byte == last - 1), "{path:?}");
        }
    }
}

#[test]
fn thousands_outstanding_among_messages() {
    for path in RMA_PATHS {
        let mut pair = pair(path, Attribute::ReliableUnordered);
        let local = memory_for(&mut pair.a, path, 1 << 20);
        let remote = memory_for(&mut pair.b, path, 1 << 20);
        let ours = pair.a.register(&local, Access::LOCAL).unwrap();
        let theirs = pair.b.register(&remote, Access::ALL).unwrap();
        assert!(local.write(0, &pattern(9, 1 << 20)));
        let count = 4000_u64;
        for at in 0..count {
            let (from, to) = (RegionAddress::new(ours, at * 250), RegionAddress::new(theirs, at * 250));
            pair.a.rma_write(pair.ours, from, to, 250, at, RmaFlags::NONE).unwrap();
        }
        let mut seen = vec![false; count as usize];
        let (mut done, mut messages) = (0, 0);
        for at in 0..100 {
            pair.a.send(pair.ours, b"between", 10_000 + at, SendFlags::NONE).unwrap();
        }
        run(&mut pair.a, &mut pair.b, "thousands", |_, event, _| {
            match event {
                Event::Send { context, status, .. } => {
                    assert_eq!(status, Status::Success);
                    if let Some(seen) = seen.get_mut(context as usize) {
                        assert!(!std::mem::replace(seen, true), "once");
                    }
                    done += 1;
                }
                Event::Recv(_) => messages += 1,
                other => panic!("unexpected {other:?}"),
            }
            (done == count + 100 && messages == 100).then_some(())
        });
        assert!(contents(&remote, 0, 1_000_000) == pattern(9, 1 << 20)[..1_000_000], "{path:?}");
    }
}

#[test]
fn operations_go_on_behind_a_disconnect_and_end_with_the_peer() {
    for path in RMA_PATHS {
        let mut pair = pair(path, Attribute::ReliableOrdered);
        let local = memory_for(&mut pair.a, path, 8 << 20);
        let remote = memory_for(&mut pair.b, path, 8 << 20);
        let ours = pair.a.register(&local, Access::LOCAL).unwrap();
        let theirs = pair.b.register(&remote, Access::ALL).unwrap();
        assert!(local.write(0, &vec![7; 8 << 20]));
        let (from, to) = (RegionAddress::new(ours, 0), RegionAddress::new(theirs, 0));
        pair.a.rma_write(pair.ours, from, to, 8 << 20, 1, RmaFlags::NONE).unwrap();
        pair.a.disconnect(pair.ours);
        assert_eq!(pair.completion(1), Status::Success, "{path:?}");
        assert!(contents(&remote, 0, 8 << 20).iter().all(|&byte| byte == 7));
        // Once more, and the peer leaves in the middle.
        let (second, second_theirs) = connect(&mut pair.a, &mut pair.b, Attribute::ReliableOrdered);
        for context in 0..20 {
            // Some wait for a fence, some to be timed.
            let flags = if context % 2 == 0 { RmaFlags::FENCE } else { RmaFlags::NONE };
            pair.a.rma_read(second, from, to, 8 << 20, context, flags).unwrap();
        }
        let _ = pair.theirs;
        pair.b.disconnect(second_theirs);
        let mut ended = 0;
        run(&mut pair.a, &mut pair.b, "the end", |_, event, _| {
            let (context, status) = match event {
                Event::Send { context, status, .. } => (context, status),
                // The peer's side of the first connection.
                Event::Disconnected { .. } => return None,
                other => panic!("unexpected {other:?}"),
            };
            assert_eq!(context, ended, "{path:?}");
            assert!(matches!(status, Status::Success | Status::Disconnected), "{status:?}");
            ended += 1;
            (ended == 20).then_some(())
        });
        assert!(pair.b.counters().drops.iter().all(|drop| drop.name == "after_close"));
    }
}

/// Memory that was deregistered belongs to its program again, which may use it for something else at once. A read that
/// fetches from there must not end as if it had read the region.
#[test]
fn a_pulled_read_of_a_region_that_goes_meanwhile_does_not_succeed() {
    const LEN: usize = 16 << 20;
    for turns in 0..40 {
        let mut pair = pair(RmaPath::Pulled, Attribute::ReliableOrdered);
        let local = memory_for(&mut pair.a, pair.path, LEN);
        let remote = memory_for(&mut pair.b, pair.path, LEN);
        let ours = pair.a.register(&local, Access::LOCAL).unwrap();
        let theirs = pair.b.register(&remote, Access::READ).unwrap();
        assert!(remote.write(0, &vec![7; LEN]));
        let (into, from) = (RegionAddress::new(ours, 0), RegionAddress::new(theirs, 0));
        // The first one may go another way, until both know that they may fetch from each other.
        assert_eq!(pair.read(into, from, LEN as u64), Status::Success);
        assert!(local.write(0, &vec![0; LEN]));
        pair.a.rma_read(pair.ours, into, from, LEN as u64, 8, RmaFlags::NONE).unwrap();
        // The peer says where the region is, and then looks no more for some turns.
        for _ in 0..10 {
            assert!(pair.b.next_event().is_none());
        }
        let mut status = None;
        for _ in 0..turns {
            if let Some(Event::Send { status: ended, .. }) = pair.a.next_event() {
                status = Some(ended);
            }
        }
        assert_eq!(status, None, "whether the region was still there is not known yet");
        pair.b.deregister(&theirs).unwrap();
        assert!(remote.write(0, &vec![9; LEN]));
        assert_eq!(pair.completion(8), Status::RmaHandle, "after {turns} turns");
    }
}

/// What needs no local region: bytes of a slice, to a region that the peer has let this side map.
#[test]
fn bytes_are_written_and_read_at_once_in_mapped_regions_and_nowhere_else() {
    let mut pair = pair(RmaPath::Direct, Attribute::ReliableOrdered);
    let local = memory_for(&mut pair.a, RmaPath::Direct, 4096);
    let remote = memory_for(&mut pair.b, RmaPath::Direct, 2 << 20);
    let ours = pair.a.register(&local, Access::LOCAL).unwrap();
    let theirs = pair.b.register(&remote, Access::READ | Access::WRITE).unwrap();
    let read_only = pair.b.register(&remote, Access::READ).unwrap();
    let data = pattern(3, 1 << 20);
    let at = |region: RegionHandle, offset: u64| RegionAddress::new(region, offset);
    assert!(!pair.a.write_at_once(pair.ours, &data, at(theirs, 0)), "nothing is mapped yet");
    assert_eq!(pair.write(at(ours, 0), at(theirs, 0), 8), Status::Success);
    assert_eq!(pair.read(at(ours, 0), at(read_only, 0), 8), Status::Success);
    let start = std::time::Instant::now();
    while !pair.a.write_at_once(pair.ours, &data, at(theirs, 4097)) {
        assert!(start.elapsed() < std::time::Duration::from_secs(60), "{:?}", pair.a.counters());
        assert_eq!(pair.write(at(ours, 0), at(theirs, 0), 8), Status::Success);
    }
    assert!(contents(&remote, 4097, data.len()) == data);
    let mut back = vec![0; data.len()];
    assert!(pair.a.read_at_once(pair.ours, at(theirs, 4097), &mut back) && back == data);
    let block = (&local, 96);
    for kind in [RmaKind::Read, RmaKind::Write] {
        // Bytes 10 to 1,009 of the data come here, and then go to the beginning there.
        let target = at(theirs, if kind == RmaKind::Read { 4107 } else { 0 });
        assert!(pair.a.copy_at_once(kind, pair.ours, block, target, 1000));
    }
    assert_eq!(
        (contents(&local, 96, 1000), contents(&remote, 0, 1000)),
        (data[10..1010].to_vec(), data[10..1010].to_vec())
    );
    let before = contents(&remote, 0, 2 << 20);
    let mut copy = |kind, block, target, len| pair.a.copy_at_once(kind, pair.ours, block, target, len);
    assert!(!copy(RmaKind::Write, (&local, 3097), at(theirs, 0), 1000), "beyond the end here");
    assert!(!copy(RmaKind::Write, block, at(theirs, (2 << 20) - 999), 1000), "beyond the end there");
    assert!(!copy(RmaKind::Write, block, at(read_only, 0), 8), "may only be read");
    assert!(!pair.a.read_at_once(pair.ours, at(theirs, (1 << 20) + 1), &mut back), "beyond the end");
    assert!(!pair.a.read_at_once(pair.ours, at(theirs, 0), &mut [0; (1 << 20) + 1]), "more than 1 MiB");
    assert!(!pair.a.write_at_once(pair.ours, &data, at(theirs, (1 << 20) + 1)), "beyond the end");
    assert!(!pair.a.write_at_once(pair.ours, &pattern(4, (1 << 20) + 1), at(theirs, 0)), "more than 1 MiB");
    assert!(!pair.a.write_at_once(pair.ours, &data, at(read_only, 0)), "may only be read");
    pair.b.deregister(&theirs).unwrap();
    assert!(!pair.a.write_at_once(pair.ours, &data, at(theirs, 0)), "no region any more");
    assert!(!pair.a.read_at_once(pair.ours, at(theirs, 0), &mut back), "no region any more");
    assert!(!pair.a.copy_at_once(RmaKind::Read, pair.ours, block, at(theirs, 0), 8), "no region any more");
    assert!(contents(&remote, 0, 2 << 20) == before, "what is refused touches nothing");
}

#[test]
fn memory_is_copied_within_its_bounds() {
    let mut endpoint = endpoint_for(RmaPath::Direct);
    let (one, other) = (endpoint.allocate(100).unwrap(), endpoint.allocate(50).unwrap());
    let numbers: Vec<u8> = (0..100).collect();
    assert!(one.write(0, &numbers));
    assert!(other.copy_from(10, &one, 60, 40));
    assert_eq!(contents(&other, 10, 40), numbers[60..]);
    assert!(one.copy_from(1, &one, 0, 99), "parts that overlap");
    assert_eq!(contents(&one, 1, 99), numbers[..99]);
    assert!(!other.copy_from(11, &one, 60, 40) && !other.copy_from(0, &one, 61, 40));
    assert!(!other.copy_from(usize::MAX, &one, 0, 2));
    assert_eq!(contents(&other, 0, 10), [0; 10]);
    assert!(other.copy_from(50, &one, 100, 0));
}

/// Long pieces find mapped regions that are more than are remembered; all of them do, each time.
#[test]
fn long_pieces_are_copied_at_once_in_more_regions_than_are_remembered() {
    const REGIONS: usize = 40;
    const LEN: usize = 8 << 10;
    let mut pair = pair(RmaPath::Direct, Attribute::ReliableOrdered);
    let local = memory_for(&mut pair.a, RmaPath::Direct, LEN);
    let remote = memory_for(&mut pair.b, RmaPath::Direct, LEN);
    let ours = RegionAddress::new(pair.a.register(&local, Access::LOCAL).unwrap(), 0);
    let theirs: Vec<RegionAddress> = (0..REGIONS)
        .map(|_| RegionAddress::new(pair.b.register(&remote, Access::READ | Access::WRITE).unwrap(), 0))
        .collect();
    for &region in &theirs {
        let mut tries = 0;
        while !pair.a.write_long_at_once(pair.ours, &[0; LEN], region) {
            assert!(tries < 10_000, "it is not mapped: {:?}", pair.a.counters());
            assert_eq!(pair.write(ours, region, 8), Status::Success);
            tries += 1;
        }
    }
    for turn in 0..5 {
        for (number, &region) in theirs.iter().enumerate() {
            let data = pattern((turn * REGIONS + number) as u64, LEN);
            if number % 2 == 0 {
                assert!(
                    pair.a.write_long_at_once(pair.ours, &data, region),
                    "region {number} in turn {turn}"
                );
            } else {
                assert!(local.write(0, &data));
                assert!(pair.a.copy_long_at_once(RmaKind::Write, pair.ours, (&local, 0), region, LEN));
            }
            assert!(contents(&remote, 0, LEN) == data);
        }
    }
    pair.b.deregister(&theirs[0].handle).unwrap();
    assert!(!pair.a.write_long_at_once(pair.ours, &[9; LEN], theirs[0]), "no region any more");
}

/// A region of the peer's that side `a` has mapped, and local memory that is not registered.
struct MappedScene {
    pair: Pair,
    local: Memory,
    remote: Memory,
    theirs: RegionHandle,
    target: MappedTarget,
}

const MAPPED_BYTES: usize = 4 << 20;

fn mapped_scene(access: Access) -> MappedScene {
    let mut pair = pair(RmaPath::Direct, Attribute::ReliableOrdered);
    let local = memory_for(&mut pair.a, RmaPath::Direct, MAPPED_BYTES);
    let remote = memory_for(&mut pair.b, RmaPath::Direct, MAPPED_BYTES);
    let ours = pair.a.register(&local, Access::LOCAL).unwrap();
    let theirs = pair.b.register(&remote, access).unwrap();
    assert_eq!(pair.a.mapped_target(pair.ours, theirs), None, "nothing is mapped yet");
    for _ in 0..10_000 {
        let (here, there) = (RegionAddress::new(ours, 0), RegionAddress::new(theirs, 0));
        let done = if access.contains(Access::WRITE) {
            pair.write(here, there, 8)
        } else {
            pair.read(here, there, 8)
        };
        assert_eq!(done, Status::Success);
        if let Some(target) = pair.a.mapped_target(pair.ours, theirs) {
            pair.a.deregister(&ours).unwrap();
            return MappedScene { pair, local, remote, theirs, target };
        }
    }
    panic!("it is not mapped: {:?}", pair.a.counters());
}

impl MappedScene {
    fn copy(&mut self, kind: RmaKind, local_offset: usize, offset: u64, len: usize) -> bool {
        self.pair.a.copy_mapped_at_once(kind, (&self.local, local_offset), (&self.target, offset), len)
    }

    fn add(&mut self, offset: u64) -> Option<Result<u64, Status>> {
        let add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 3, compare: 0 };
        self.pair.a.fetch_mapped_at_once(add, (&self.target, offset))
    }

    /// No operation does anything, whatever has become of the region.
    fn assert_refused(&mut self, why: &str) {
        let (here, there) = (contents(&self.local, 0, MAPPED_BYTES), contents(&self.remote, 0, MAPPED_BYTES));
        let counters = format!("{:?}", self.pair.a.counters());
        assert!(!self.copy(RmaKind::Write, 64, 0, 64), "{why}");
        assert!(!self.copy(RmaKind::Read, 64, 0, 64), "{why}");
        assert_eq!(self.add(0), None, "{why}");
        assert!(!self.pair.a.write_mapped_at_once(&[1; 8], (&self.target, 0)), "{why}");
        assert!(!self.pair.a.read_mapped_at_once((&self.target, 0), &mut [1; 8]), "{why}");
        assert!(contents(&self.local, 0, MAPPED_BYTES) == here, "{why}");
        assert!(contents(&self.remote, 0, MAPPED_BYTES) == there, "{why}");
        assert_eq!(format!("{:?}", self.pair.a.counters()), counters, "{why}");
    }
}

#[test]
fn a_mapped_region_that_was_found_is_used_within_its_bounds_and_rights() {
    let mut scene = mapped_scene(Access::ALL);
    let data = pattern(5, MAPPED_BYTES);
    assert!(scene.local.write(0, &data));
    let lens = [1, 3, 4, 8, 13, 16, 17, 32, 33, 64, 65, 128, 129, 512, 4097, 1 << 20];
    for (at, len) in lens.into_iter().enumerate() {
        assert!(scene.copy(RmaKind::Write, 7 * at, 1 + 3 * at as u64, len), "{len} bytes");
        assert!(contents(&scene.remote, 1 + 3 * at, len) == data[7 * at..7 * at + len], "{len} bytes");
        assert!(scene.copy(RmaKind::Read, (2 << 20) + at, 3 * at as u64, len), "{len} bytes");
        let (here, there) =
            (contents(&scene.local, (2 << 20) + at, len), contents(&scene.remote, 3 * at, len));
        assert!(here == there, "{len} bytes");
    }
    assert!(scene.copy(RmaKind::Write, MAPPED_BYTES - 8, MAPPED_BYTES as u64 - 8, 8), "the last ones");
    assert!(scene.copy(RmaKind::Write, MAPPED_BYTES - 8, 64, 8));
    let before = u64::from_ne_bytes(contents(&scene.remote, 64, 8).try_into().unwrap());
    assert_eq!(scene.add(64), Some(Ok(before)));
    assert_eq!(contents(&scene.remote, 64, 8), before.wrapping_add(3).to_ne_bytes());
    let (mut found, last) = ([0; 8], (&scene.target, MAPPED_BYTES as u64 - 8));
    assert!(scene.pair.a.write_mapped_at_once(&data[..8], last));
    assert!(scene.pair.a.read_mapped_at_once(last, &mut found) && found == data[..8]);
    assert!(!scene.pair.a.write_mapped_at_once(&data[..9], last));
    assert!(!scene.pair.a.read_mapped_at_once(last, &mut [0; 9]));

    let (here, there) = (contents(&scene.local, 0, MAPPED_BYTES), contents(&scene.remote, 0, MAPPED_BYTES));
    let end = MAPPED_BYTES as u64;
    let beyond =
        [(0, end - 7), (0, end), (0, u64::MAX), (0, u64::MAX - 7), (MAPPED_BYTES - 7, 0), (usize::MAX, 0)];
    for (local, remote) in beyond {
        for kind in [RmaKind::Write, RmaKind::Read] {
            assert!(!scene.copy(kind, local, remote, 8), "{kind:?} from {local} to {remote}");
        }
    }
    assert!(!scene.copy(RmaKind::Write, 0, 0, (1 << 20) + 1), "more than 1 MiB");
    assert!(!scene.copy(RmaKind::Read, 0, 0, (1 << 20) + 1), "more than 1 MiB");
    assert_eq!([4, end - 7, end, u64::MAX - 7].map(|offset| scene.add(offset)), [None; 4]);
    assert!(
        contents(&scene.local, 0, MAPPED_BYTES) == here && contents(&scene.remote, 0, MAPPED_BYTES) == there
    );

    for (access, may) in [(Access::READ, [false, true]), (Access::WRITE, [true, false])] {
        let mut scene = mapped_scene(access);
        let done = [RmaKind::Write, RmaKind::Read].map(|kind| scene.copy(kind, 0, 0, 8));
        assert_eq!((done, scene.add(0)), (may, None), "{access:?}");
    }
}

#[test]
fn a_mapped_region_that_was_found_is_no_more_once_something_has_happened_to_it() {
    let mut deregistered = mapped_scene(Access::ALL);
    deregistered.pair.b.deregister(&deregistered.theirs).unwrap();
    deregistered.assert_refused("the peer has taken it back");
    let again = deregistered.pair.b.register(&deregistered.remote, Access::ALL).unwrap();
    assert_ne!(again, deregistered.theirs);
    deregistered.assert_refused("it is another region now");

    let mut disconnected = mapped_scene(Access::ALL);
    disconnected.pair.a.disconnect(disconnected.pair.ours);
    disconnected.assert_refused("this side has closed the connection");

    let mut left = mapped_scene(Access::ALL);
    left.pair.b.disconnect(left.pair.theirs);
    let Pair { a, b, .. } = &mut left.pair;
    run(a, b, "the end", |whose, event, _| {
        (whose == 0 && matches!(event, Event::Disconnected { .. })).then_some(())
    });
    left.assert_refused("the peer has closed the connection");
}

/// Nothing passes an operation that was started before on an ordered connection.
#[test]
fn a_mapped_region_that_was_found_waits_for_operations_before() {
    let mut scene = mapped_scene(Access::ALL);
    let slow = Memory::foreign(Foreign::owned(vec![0; 4096].into()));
    let slow = RegionAddress::new(scene.pair.b.register(&slow, Access::ALL).unwrap(), 0);
    let ours = RegionAddress::new(scene.pair.a.register(&scene.local, Access::LOCAL).unwrap(), 0);
    scene.pair.a.rma_write(scene.pair.ours, ours, slow, 4096, 9, RmaFlags::NONE).unwrap();
    assert!(!scene.copy(RmaKind::Write, 0, 0, 8), "the write before has not ended");
    assert_eq!(scene.add(0), None);
    assert_eq!(scene.pair.completion(9), Status::Success);
    assert!(scene.copy(RmaKind::Write, 0, 0, 8));
    assert!(scene.add(0).is_some());
}

/// A region that is found again after many others is itself, or is not found.
#[test]
fn mapped_regions_that_take_each_others_place_are_not_taken_for_each_other() {
    const REGIONS: usize = 40;
    let mut scene = mapped_scene(Access::ALL);
    let parts: Vec<Memory> =
        (0..REGIONS).map(|_| memory_for(&mut scene.pair.b, RmaPath::Direct, 4096)).collect();
    let regions: Vec<RegionHandle> =
        parts.iter().map(|part| scene.pair.b.register(part, Access::ALL).unwrap()).collect();
    let ours = RegionAddress::new(scene.pair.a.register(&scene.local, Access::LOCAL).unwrap(), 0);
    for &region in &regions {
        assert_eq!(scene.pair.write(ours, RegionAddress::new(region, 0), 8), Status::Success);
    }
    let mut targets: Vec<Option<MappedTarget>> = vec![None; REGIONS];
    let (mut used, mut lost) = (0, 0);
    for turn in 0..30_u8 {
        for (number, (&region, part)) in regions.iter().zip(&parts).enumerate() {
            let data = [turn, number as u8, 1, 2, 3, 4, 5, 6];
            assert!(scene.local.write(0, &data));
            let Some(target) = targets[number] else {
                targets[number] = scene.pair.a.mapped_target(scene.pair.ours, region);
                continue;
            };
            if scene.pair.a.copy_mapped_at_once(RmaKind::Write, (&scene.local, 0), (&target, 0), 8) {
                assert_eq!(contents(part, 0, 8), data);
                used += 1;
            } else {
                assert_ne!(contents(part, 0, 8), data);
                targets[number] = None;
                lost += 1;
            }
        }
    }
    assert!(used > 0 && lost > 0, "{used} times used, {lost} times lost");
    for (number, part) in parts.iter().enumerate() {
        let found = contents(part, 0, 8);
        assert!(found[1] == number as u8 || found[2] != 1, "region {number} holds {found:?}");
    }
}
