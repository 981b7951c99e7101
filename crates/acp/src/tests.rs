//! Ranks of one process, whose progress the tests decide about.

use super::*;
use cci::{Atomic, AtomicKind, AtomicWidth, Context, Endpoint, Foreign, Memory, Options};
use cci_job::Ranks;
use std::time::{Duration, Instant};

const DEVICES: [&str; 4] = ["shm", "udp-lo", "tcp-lo", "any"];
const STARTER_BYTES: usize = 4_096;
const PATIENCE: Duration = Duration::from_secs(60);
const TURNS_MAX: u64 = 200_000_000;

fn open(device: &str, count: u32) -> Vec<GlobalMemory> {
    open_with(device, count, (Options::default(), 0))
}

fn open_with(device: &str, count: u32, (options, heap_bytes): (Options, usize)) -> Vec<GlobalMemory> {
    let context = Context::new().unwrap();
    let endpoint = |_| Endpoint::create(context.device(device).unwrap(), options.clone()).unwrap();
    let ranks = Ranks::of_one_process((0..count).map(endpoint).collect()).unwrap();
    ranks.into_iter().map(|ranks| GlobalMemory::over(ranks, STARTER_BYTES, heap_bytes).unwrap()).collect()
}

/// Lets all ranks but `asleep` make progress until `done`.
fn turn(all: &mut [GlobalMemory], asleep: Option<usize>, mut done: impl FnMut(&mut [GlobalMemory]) -> bool) {
    let start = Instant::now();
    for _ in 0..TURNS_MAX {
        for (_, global) in all.iter_mut().enumerate().filter(|&(rank, _)| Some(rank) != asleep) {
            global.progress();
        }
        if done(all) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "nothing comes of it");
    }
    panic!("nothing comes of it");
}

fn word(memory: &Memory, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    assert!(memory.read(offset, &mut bytes));
    u64::from_ne_bytes(bytes)
}

fn heap(len: usize) -> Memory {
    Memory::foreign(Foreign::owned(vec![0; len].into_boxed_slice()))
}

#[test]
fn what_is_independent_does_not_wait_for_what_has_to() {
    for device in DEVICES {
        let mut all = open(device, 3);
        let starters = [0, 1, 2].map(|rank| all[0].starter(rank).unwrap());
        assert!(all[0].starter_memory().write(0, &7_u64.to_ne_bytes()));
        // Rank 1 has never spoken, and makes no progress: nothing of this can end.
        let to_1 = all[0].copy(starters[1], starters[0], 8, Order::Now).unwrap();
        let behind =
            all[0].copy(starters[2].checked_add(8).unwrap(), starters[0], 8, Order::After(to_1)).unwrap();
        let at_once = all[0].copy(starters[2].checked_add(16).unwrap(), starters[0], 8, Order::Now).unwrap();
        turn(&mut all, Some(1), |all| word(all[2].starter_memory(), 16) == 7);
        assert!(!all[0].has_ended(to_1) && !all[0].has_ended(at_once), "{device}: operations end in order");
        assert_eq!(word(all[2].starter_memory(), 8), 0, "{device}: it has to wait");
        turn(&mut all, None, |all| all[0].has_ended(at_once));
        assert!(all[0].has_ended(behind));
        assert_eq!((word(all[1].starter_memory(), 0), word(all[2].starter_memory(), 8)), (7, 7));
        all[0].complete(at_once).unwrap();
    }
}

/// Else every access to a container there is a question to the other rank.
#[test]
fn heaps_of_all_ranks_of_a_host_are_mapped() {
    const RANKS: u32 = 5;
    const HEAP_BYTES: usize = 128 << 20;
    for device in ["shm", "any"] {
        let options = memory::with_heaps(Options::default(), HEAP_BYTES as u64, RANKS);
        let mut all = open_with(device, RANKS, (options, HEAP_BYTES));
        let own = all[0].starter(0).unwrap();
        let mut mapped_bytes = 0;
        for rank in 1..RANKS {
            let theirs = all[0].heap(rank).unwrap();
            for _ in 0..1_000 {
                let here = all[0].copy(own, theirs, 8, Order::Now).unwrap();
                turn(&mut all, None, |all| all[0].has_ended(here));
            }
            all[0].complete_all().unwrap();
            let memory = all[0].links.endpoint().counters().memory;
            let before = mapped_bytes;
            mapped_bytes = memory.kinds.iter().find(|(kind, _)| kind.contains("mapped")).unwrap().1;
            assert!(mapped_bytes - before >= HEAP_BYTES as u64, "{device}: {rank}, {memory:?}");
        }
    }
}

/// On `any` a colour is a path.
#[test]
fn the_second_colour_goes_over_a_network() {
    for (device, paths) in [("any", ["shm", "udp"]), ("shm", ["shm", "shm"]), ("tcp-lo", ["tcp", "tcp"])] {
        let mut all = open(device, 2);
        let own = all[0].starter(0).unwrap();
        assert!(all[0].starter_memory().write(0, &7_u64.to_ne_bytes()));
        for (color, path) in (0..).zip(paths) {
            let memory = all[1].allocate(4_096).unwrap();
            let key = all[1].register(&memory, color).unwrap();
            let target = all[1].address(key, 8).unwrap();
            assert_eq!(target.color(), color);
            for _ in 0..100 {
                let there = all[0].copy(target, own, 8, Order::Now).unwrap();
                turn(&mut all, None, |all| all[0].has_ended(there));
            }
            assert_eq!(word(&memory, 8), 7);
            let connection = all[0].links.connection(links::Lane { rank: 1, color }).unwrap().unwrap();
            let explanation = all[0].links.endpoint().explain(connection).unwrap();
            assert!(explanation.transport.starts_with(path), "{device}, colour {color}: {explanation}");
        }
    }
}

#[test]
fn nothing_is_fixed_in_how_many_are_under_way() {
    const COUNT: u64 = 50_000;
    let mut all = open("udp-lo", 3);
    let [own, one, two] = [0, 1, 2].map(|rank| all[0].starter(rank).unwrap());
    assert!(all[0].starter_memory().write(0, &9_u64.to_ne_bytes()));
    let mut last = None;
    for number in 0..COUNT {
        let to = if number % 2 == 0 { one } else { two };
        let order = if number % 100 == 99 { Order::All } else { Order::Now };
        last = Some(all[0].copy(to.checked_add(number % 64 * 8).unwrap(), own, 8, order).unwrap());
    }
    turn(&mut all, None, |all| all[0].has_ended(last.unwrap()));
    all[0].complete_all().unwrap();
    assert_eq!((word(all[1].starter_memory(), 62 * 8), word(all[2].starter_memory(), 63 * 8)), (9, 9));
}

#[test]
fn misuse_is_refused_and_changes_nothing() {
    for device in DEVICES {
        let mut all = open(device, 3);
        let [own, one, two] = [0, 1, 2].map(|rank| all[0].starter(rank).unwrap());
        let far = |address: GlobalAddress, offset| address.checked_add(offset).unwrap();
        let at = |bits| GlobalAddress::from_bits(bits).unwrap();
        // This rank's own part, a rank that there is not, a colour that there is not.
        for (dst, src, len) in [(far(own, 4_096), one, 1), (one, own, 4_097), (one, far(own, 1), usize::MAX)]
        {
            assert!(matches!(all[0].copy(dst, src, len, Order::Now), Err(AcpError::NotRegistered(_))));
        }
        assert!(matches!(
            all[0].copy(at(4 << 43), own, 1, Order::Now),
            Err(AcpError::Rank { rank: 3, size: 3 })
        ));
        let colored = at(one.to_bits() | 3 << 41);
        assert!(matches!(all[0].copy(own, colored, 1, Order::Now), Err(AcpError::Argument(_))));
        // Another rank's: beyond its end, in the other colour, never registered, by a third party.
        assert!(all[1].starter_memory().write(0, &[5; 4_096]));
        let other = at(one.to_bits() | 1 << 41);
        let wrong = [
            (far(one, 4_090), own, 8),
            (own, far(one, 4_096), 1),
            (other, own, 8),
            (far(one, 1 << 30), own, 1),
            (far(two, 1 << 30), one, 8),
            (two, far(one, 4_095), 2),
        ];
        for (dst, src, len) in wrong {
            let handle = all[0].copy(dst, src, len, Order::Now).unwrap();
            let behind = all[0].copy(one, own, 8, Order::After(handle)).unwrap();
            turn(&mut all, None, |all| all[0].has_ended(behind));
            let failed = all[0].complete(behind);
            assert!(
                matches!(failed, Err(AcpError::Failed { .. })),
                "{device}: {len} bytes from {src} to {dst}: {failed:?}"
            );
            assert!(all[0].take_failure().unwrap().is_some());
            assert!(all[0].complete_all().is_ok() && all[0].take_failure().unwrap().is_none());
        }
        assert_eq!(
            word(all[1].starter_memory(), 0),
            u64::from_ne_bytes([5; 8]),
            "{device}: it was behind a failure"
        );
        assert_eq!(word(all[1].starter_memory(), 4_088), u64::from_ne_bytes([5; 8]));
        // Nothing is wrong with a copy of nothing.
        let nothing = all[0].copy(far(one, 1 << 30), far(own, 4_096), 0, Order::Now).unwrap();
        assert!(all[0].has_ended(nothing));
        assert!(all.iter().all(|global| global.faults() == 0));
    }
}

#[test]
fn memory_that_is_no_more_registered_is_reached_no_more() {
    for device in DEVICES {
        let mut all = open(device, 2);
        let own = all[0].starter(0).unwrap();
        for (memory, color) in [(heap(100), 0), (all[1].allocate(100).unwrap(), 1)] {
            let key = all[1].register(&memory, color).unwrap();
            let there = all[1].address(key, 8).unwrap();
            assert!(all[0].starter_memory().write(0, &3_u64.to_ne_bytes()));
            let handle = all[0].copy(there, own, 8, Order::Now).unwrap();
            turn(&mut all, None, |all| all[0].has_ended(handle));
            assert_eq!(word(&memory, 8), 3, "{device}");
            all[1].unregister(key).unwrap();
            let again = all[1].register(&memory, color).unwrap();
            assert!(all[0].starter_memory().write(0, &4_u64.to_ne_bytes()));
            let handle = all[0].copy(there, own, 8, Order::Now).unwrap();
            turn(&mut all, None, |all| all[0].has_ended(handle));
            assert!(all[0].take_failure().unwrap().is_some(), "{device}");
            assert_eq!(word(&memory, 8), 3, "{device}");
            all[1].unregister(again).unwrap();
        }
    }
}

/// Random copies among all ranks' memory, one after the other, against plain arrays.
#[test]
fn random_copies_do_what_arrays_do() {
    const BYTES: usize = 3_000;
    for (device, seed) in DEVICES.into_iter().zip(1_u64..) {
        let mut all = open(device, 3);
        let mut random = seed;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        let mut memories = vec![];
        let mut model = vec![];
        let mut starts = vec![];
        for (rank, global) in all.iter_mut().enumerate() {
            let memory = if rank == 1 { heap(BYTES) } else { global.allocate(BYTES).unwrap() };
            let bytes: Vec<u8> = (0..BYTES).map(|_| next(256) as u8).collect();
            assert!(memory.write(0, &bytes));
            let key = global.register(&memory, rank as u32 % 2).unwrap();
            starts.push(global.address(key, 0).unwrap());
            memories.push(memory);
            model.push(bytes);
        }
        for _ in 0..300 {
            let len = next(BYTES);
            let [(to, to_at), (from, from_at)] = [(); 2].map(|()| (next(3), next(BYTES - len + 1)));
            let address = |rank: usize, at: usize| starts[rank].checked_add(at as u64).unwrap();
            let by = next(3);
            let handle = all[by].copy(address(to, to_at), address(from, from_at), len, Order::All).unwrap();
            turn(&mut all, None, |all| all[by].has_ended(handle));
            let bytes = model[from][from_at..from_at + len].to_vec();
            model[to][to_at..to_at + len].copy_from_slice(&bytes);
        }
        for (memory, bytes) in memories.iter().zip(&model) {
            let mut found = vec![0; BYTES];
            assert!(memory.read(0, &mut found));
            assert!(&found == bytes, "{device}");
        }
        assert!(all.iter_mut().all(|global| global.complete_all().is_ok() && global.faults() == 0));
    }
}

/// Every change on words of every rank, against the same on numbers.
#[test]
fn atomics_do_what_numbers_do() {
    const KINDS: [AtomicKind; 6] = [
        AtomicKind::FetchAdd,
        AtomicKind::Swap,
        AtomicKind::CompareSwap,
        AtomicKind::And,
        AtomicKind::Or,
        AtomicKind::Xor,
    ];
    for device in DEVICES {
        let mut all = open(device, 3);
        let memories = [all[0].allocate(64).unwrap(), heap(64), all[2].allocate(64).unwrap()];
        let mut starts = vec![];
        for (rank, (global, memory)) in all.iter_mut().zip(&memories).enumerate() {
            let key = global.register(memory, rank as u32 % 2).unwrap();
            starts.push(global.address(key, 0).unwrap());
        }
        let mut model = [[0x1234_5678_9abc_def0_u64; 2]; 3];
        for memory in &memories {
            assert!([0, 8].into_iter().all(|at| memory.write(at, &model[0][0].to_ne_bytes())));
        }
        for round in 0..90_usize {
            let (by, at, kind) = (round % 3, round / 3 % 3, KINDS[round % 6]);
            let is_wide = round % 4 < 2;
            let width = if is_wide { AtomicWidth::Eight } else { AtomicWidth::Four };
            let mask = if is_wide { u64::MAX } else { u64::from(u32::MAX) };
            let cell = &mut model[at][usize::from(is_wide)];
            let before = *cell & mask;
            let operand = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(round as u64 + 1) & mask;
            // Half of the comparisons hold.
            let compare = if round % 12 < 6 { before } else { before ^ 1 };
            let after = match kind {
                AtomicKind::FetchAdd => before.wrapping_add(operand),
                AtomicKind::Swap => operand,
                AtomicKind::CompareSwap => {
                    if compare == before {
                        operand
                    } else {
                        before
                    }
                }
                AtomicKind::And => before & operand,
                AtomicKind::Or => before | operand,
                _ => before ^ operand,
            };
            *cell = *cell & !mask | after & mask;
            let offset = |rank: usize, at: u64| starts[rank].checked_add(at).unwrap();
            assert!(memories[by].write(24, &[0xee; 16]));
            let atomic = Atomic { kind, width, operand, compare };
            let src = offset(at, 8 * u64::from(is_wide));
            let handle = all[by].atomic(offset(by, 24), src, atomic, Order::All).unwrap();
            turn(&mut all, None, |all| all[by].has_ended(handle));
            all[by].complete(handle).unwrap();
            let len = if is_wide { 8 } else { 4 };
            let mut found = [0; 16];
            assert!(memories[by].read(24, &mut found));
            assert_eq!(
                found[..len],
                before.to_ne_bytes()[..len],
                "{device}: {kind:?} {width:?} by {by} at {at}"
            );
            assert!(found[len..].iter().all(|&byte| byte == 0xee), "{device}: nothing behind it");
            assert_eq!(
                word(&memories[at], 8 * usize::from(is_wide)),
                *cell,
                "{device}: {kind:?} {width:?} by {by} at {at}"
            );
        }
    }
}

#[test]
fn more_atomics_on_4_bytes_than_have_places_are_all_done() {
    const COUNT: u32 = 5_000;
    for device in ["shm", "udp-lo"] {
        let mut all = open(device, 2);
        let memory = heap(8);
        let key = all[1].register(&memory, 0).unwrap();
        let src = all[1].address(key, 4).unwrap();
        let own = all[0].starter(0).unwrap();
        let atomic = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Four, operand: 1, compare: 0 };
        let mut last = None;
        for number in 0..u64::from(COUNT) {
            let dst = own.checked_add(number % 1_024 * 4).unwrap();
            last = Some(all[0].atomic(dst, src, atomic, Order::Now).unwrap());
        }
        turn(&mut all, None, |all| all[0].has_ended(last.unwrap()));
        all[0].complete_all().unwrap();
        assert_eq!(
            word(&memory, 0),
            u64::from_ne_bytes([[0; 4], COUNT.to_ne_bytes()].concat().try_into().unwrap())
        );
    }
}

#[test]
fn misused_atomics_are_refused() {
    let mut all = open("shm", 2);
    let [own, one] = [0, 1].map(|rank| all[0].starter(rank).unwrap());
    let atomic = |width| Atomic { kind: AtomicKind::FetchAdd, width, operand: 1, compare: 0 };
    let far = |address: GlobalAddress, offset| address.checked_add(offset).unwrap();
    for (dst, src, width) in [
        (one, own, AtomicWidth::Eight),
        (far(own, 4), one, AtomicWidth::Eight),
        (own, far(one, 4), AtomicWidth::Eight),
        (own, far(one, 2), AtomicWidth::Four),
        (far(own, 2), one, AtomicWidth::Four),
    ] {
        assert!(matches!(all[0].atomic(dst, src, atomic(width), Order::Now), Err(AcpError::Argument(_))));
    }
    let beyond = far(own, 4_096);
    for (dst, src) in [(beyond, one), (own, beyond)] {
        let refused = all[0].atomic(dst, src, atomic(AtomicWidth::Eight), Order::Now);
        assert!(matches!(refused, Err(AcpError::NotRegistered(_))));
    }
    let handle = all[0].atomic(own, far(one, 4_096), atomic(AtomicWidth::Eight), Order::Now).unwrap();
    turn(&mut all, None, |all| all[0].has_ended(handle));
    assert!(matches!(all[0].complete(handle), Err(AcpError::Failed { .. })));
    assert_eq!((word(all[0].starter_memory(), 0), word(all[1].starter_memory(), 0)), (0, 0));
}

/// Tables II and III of the paper, each beside what is held here.
#[test]
fn no_end_of_a_channel_holds_more_than_the_papers() {
    let mut all = open("shm", 2);
    for kib in [4, 16, 64, 256, 1_024] {
        for count in [2, 4, 8] {
            let slots = Slots { count, bytes: kib << 10 };
            let slots_bytes = (count as usize * kib as usize) << 10;
            let sender = Sender::create(&mut all[0], 1, slots).unwrap();
            let receiver = Receiver::create(&mut all[1], 0, slots).unwrap();
            let held = [sender.held_bytes(&all[0]), receiver.held_bytes(&all[1])];
            let papers = [slots_bytes + 168 + 16 * count as usize, slots_bytes + 160];
            println!(
                "{kib} KiB x {count}: sender {} of {}, receiver {} of {}",
                held[0], papers[0], held[1], papers[1]
            );
            assert!(held.iter().all(|&held| held > slots_bytes), "{held:?}");
            assert!(held[0] <= papers[0] && held[1] <= papers[1], "{held:?} of {papers:?}");
            let freed = [sender.free(&mut all[0]).unwrap(), receiver.free(&mut all[1]).unwrap()];
            turn(&mut all, None, |all| (0..2).all(|rank| freed[rank].has_ended(&mut all[rank])));
        }
    }
}
