//! The global address space among real processes.
#![allow(clippy::unwrap_used, reason = "a rank that can't go on fails")]

mod roles;
#[path = "../examples/words.rs"]
mod words;

use cci::{Atomic, AtomicKind, AtomicWidth};
use cci_acp::{AcpError, Deque, GlobalAddress, GlobalMemory, List, Map, MultiSet, Order, Space, Vector};
use cci_job::Job;
use roles::{ROLE, all_ranks_do, launch, role};
use std::collections::HashSet;
use std::env;
use std::time::Duration;

const STARTER_BYTES: usize = 10_240;

fn open() -> (Job, GlobalMemory) {
    roles::open(STARTER_BYTES, 0)
}

/// Not a test where nothing has started it: what ranks do.
#[test]
fn as_a_rank() {
    match env::var(ROLE).as_deref() {
        Ok("addresses") => addresses(),
        Ok("copies") => copies(),
        Ok("orders") => orders(),
        Ok("counters") => counters(),
        Ok("other numbers") => other_numbers(),
        Ok("one dies") => one_dies(),
        Ok("two barriers") => two_barriers(),
        Ok("containers") => containers(),
        Ok("one dies at work") => one_dies_at_work(),
        Ok("words") => words::run(),
        _ => {}
    }
}

/// Global addresses lead back to what they were made of, and to nothing else.
fn addresses() {
    let (job, mut global) = open();
    let (rank, size) = (job.rank(), job.size());
    assert_eq!((global.rank(), global.size()), (rank, size));
    for other in 0..size {
        let starter = global.starter(other).unwrap();
        assert_eq!((starter.rank(), starter.color()), (other, 0));
        let local = global.local(starter);
        if other == rank {
            let (memory, offset) = local.unwrap();
            assert_eq!((memory.as_ptr(), offset), (global.starter_memory().as_ptr(), 0));
        } else {
            assert!(
                matches!(local, Err(AcpError::Argument(_))),
                "memory of another rank has no address here"
            );
        }
    }
    assert!(matches!(global.starter(size), Err(AcpError::Rank { .. })));
    let memory = global.allocate(100_000).unwrap();
    for color in 0..global.colors() {
        let key = global.register(&memory, color).unwrap();
        let start = global.address(key, 0).unwrap();
        assert_eq!((start.rank(), start.color()), (rank, color));
        let inside = GlobalAddress::from_bits(start.to_bits() + 77_777).unwrap();
        assert_eq!(global.address(key, 77_777).unwrap(), inside);
        let (found, offset) = global.local(inside).unwrap();
        assert_eq!((found.as_ptr(), offset), (memory.as_ptr(), 77_777));
        assert!(global.address(key, 100_000).is_ok() && global.address(key, 100_001).is_err());
        assert!(matches!(global.local(start.checked_add(100_001).unwrap()), Err(AcpError::NotRegistered(_))));
        global.unregister(key).unwrap();
        assert!(matches!(global.unregister(key), Err(AcpError::Argument(_))), "twice");
        assert!(global.address(key, 0).is_err() && global.local(inside).is_err());
    }
    assert!(matches!(global.register(&memory, global.colors()), Err(AcpError::Argument(_))));
    for _ in 0..20 {
        global.sync().unwrap();
    }
    global.close().unwrap();
}

/// Memory of this rank, and where every rank has as much.
fn exchange(global: &mut GlobalMemory, len_bytes: usize, color: u32) -> (cci::Memory, Vec<GlobalAddress>) {
    let memory = global.allocate(len_bytes).unwrap();
    let key = global.register(&memory, color).unwrap();
    let own = global.address(key, 0).unwrap();
    assert!(global.starter_memory().write(0, &own.to_bits().to_ne_bytes()));
    global.sync().unwrap();
    let into = global.starter(global.rank()).unwrap().checked_add(8).unwrap();
    let mut starts = vec![];
    for rank in 0..global.size() {
        let handle = global.copy(into, global.starter(rank).unwrap(), 8, Order::Now).unwrap();
        global.complete(handle).unwrap();
        let mut bytes = [0; 8];
        assert!(global.starter_memory().read(8, &mut bytes));
        starts.push(GlobalAddress::from_bits(u64::from_ne_bytes(bytes)).unwrap());
    }
    global.sync().unwrap();
    (memory, starts)
}

fn bytes(memory: &cci::Memory, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert!(memory.read(offset, &mut bytes));
    bytes
}

/// Every rank copies from every rank to every rank, lengths of all kinds.
fn copies() {
    const EACH: usize = 150_000;
    let (job, mut global) = open();
    let (rank, size) = (job.rank() as usize, job.size() as usize);
    for color in 0..global.colors() {
        // What a rank has first, and then a part for each pair of who copies and whence.
        let (memory, starts) = exchange(&mut global, EACH * (1 + size * size), color);
        let own: Vec<u8> = (0..EACH).map(|at| (at * 31 + rank * 7 + 1) as u8).collect();
        assert!(memory.write(0, &own));
        global.sync().unwrap();
        let lens = [1, 8, 100, 4_096, EACH];
        for to in 0..size {
            for from in 0..size {
                let part = (EACH * (1 + rank * size + from)) as u64;
                let dst = starts[to].checked_add(part).unwrap();
                for len in lens {
                    global.copy(dst, starts[from], len, Order::All).unwrap();
                }
            }
        }
        global.complete_all().unwrap();
        global.sync().unwrap();
        for by in 0..size {
            for from in 0..size {
                let theirs: Vec<u8> = (0..EACH).map(|at| (at * 31 + from * 7 + 1) as u8).collect();
                let found = bytes(&memory, EACH * (1 + by * size + from), EACH);
                assert!(found == theirs, "rank {by} has copied from {from} to {rank}");
            }
        }
        global.sync().unwrap();
    }
    assert_eq!(global.faults(), 0);
    global.close().unwrap();
}

/// A number goes around all ranks by copies that one rank orders, and each finds what the one before has brought.
fn orders() {
    const TURNS: u64 = 200;
    let (job, mut global) = open();
    let (rank, size) = (job.rank(), job.size());
    let (memory, starts) = exchange(&mut global, 1 << 20, 0);
    if rank == 0 {
        for number in 1..=TURNS {
            assert!(memory.write(0, &number.to_ne_bytes()));
            let mut last = None;
            for hop in 0..size {
                let (from, to) = (starts[hop as usize], starts[((hop + 1) % size) as usize]);
                // The way around ends beside where it begins.
                let to = if hop + 1 == size { to.checked_add(8).unwrap() } else { to };
                let order = match (last, number % 2) {
                    (None, _) => Order::Now,
                    (Some(last), 0) => Order::After(last),
                    (Some(_), _) => Order::All,
                };
                last = Some(global.copy(to, from, 8, order).unwrap());
            }
            global.complete(last.unwrap()).unwrap();
            assert_eq!(bytes(&memory, 8, 8), number.to_ne_bytes(), "it went through all ranks");
        }
    }
    global.sync().unwrap();
    // A flag follows its data: who sees the flag finds the data.
    const DATA: usize = 200_000;
    let flag = starts[1].checked_add(DATA as u64).unwrap();
    let answer = starts[0].checked_add(DATA as u64).unwrap();
    let wait_for = |global: &mut GlobalMemory, number: u64| {
        while bytes(&memory, DATA, 8) != number.to_ne_bytes() {
            global.progress();
        }
    };
    for number in 1..=TURNS / 10 {
        let fill = vec![number as u8; DATA];
        match rank {
            0 => {
                assert!(memory.write(0, &fill) && memory.write(DATA + 8, &number.to_ne_bytes()));
                global.copy(starts[1], starts[0], DATA, Order::Now).unwrap();
                let source = starts[0].checked_add(DATA as u64 + 8).unwrap();
                global.copy(flag, source, 8, Order::Continue).unwrap();
                global.complete_all().unwrap();
                wait_for(&mut global, number);
            }
            1 => {
                wait_for(&mut global, number);
                assert!(bytes(&memory, 0, DATA) == fill, "the flag came before its data");
                global.copy(answer, flag, 8, Order::Now).unwrap();
                global.complete_all().unwrap();
            }
            _ => {}
        }
    }
    global.close().unwrap();
}

/// All ranks add to one word of each rank at once, of 8 and of 4 bytes, and each finds another number there.
fn counters() {
    const EACH: u64 = 500;
    let (job, mut global) = open();
    let size = u64::from(job.size());
    for width in [AtomicWidth::Eight, AtomicWidth::Four] {
        let len = if width == AtomicWidth::Eight { 8 } else { 4 };
        let (memory, starts) = exchange(&mut global, 1 << 16, 1);
        let own = starts[job.rank() as usize];
        let atomic = Atomic { kind: AtomicKind::FetchAdd, width, operand: 1, compare: 0 };
        let mut offset = 64;
        for _ in 0..EACH {
            for &start in &starts {
                global.atomic(own.checked_add(offset).unwrap(), start, atomic, Order::Now).unwrap();
                offset += len;
            }
        }
        global.complete_all().unwrap();
        global.sync().unwrap();
        let value = |at: u64| {
            let bytes = bytes(&memory, at as usize, len as usize);
            bytes.iter().rev().fold(0_u64, |value, &byte| value << 8 | u64::from(byte))
        };
        assert_eq!(value(0), size * EACH, "every addition counts once");
        for target in 0..size {
            let found: HashSet<u64> =
                (0..EACH).map(|turn| value(64 + (turn * size + target) * len)).collect();
            assert_eq!(found.len() as u64, EACH, "nobody finds a number twice");
            assert!(found.iter().all(|&found| found < size * EACH));
        }
        global.sync().unwrap();
    }
    global.close().unwrap();
}

/// Ranks move on by one, and lose what they had.
fn other_numbers() {
    let (job, mut global) = open();
    let size = job.size();
    let (memory, _) = exchange(&mut global, 4_096, 1);
    let key = global.register(&memory, 0).unwrap();
    assert!(global.starter_memory().write(0, b"to be cleared"));
    // All want the same number, then one that none has.
    for wrong in [0, size] {
        assert!(matches!(global.reset(wrong), Err(AcpError::Argument(_))));
        assert!(global.rank() == job.rank() && global.address(key, 0).is_ok(), "nothing has changed");
        assert_eq!(bytes(global.starter_memory(), 0, 13), b"to be cleared");
    }
    for turn in 1..=size {
        let number = (job.rank() + turn) % size;
        global.reset(number).unwrap();
        assert_eq!(global.rank(), number);
        assert!(global.address(key, 0).is_err() && global.unregister(key).is_err());
        assert_eq!(bytes(global.starter_memory(), 0, 13), [0; 13]);
        // Numbers name the processes that have taken them.
        let (memory, starts) = exchange(&mut global, 4_096, turn % 2);
        assert!(memory.write(0, &job.rank().to_ne_bytes()));
        global.sync().unwrap();
        for other in 0..size {
            let own = starts[number as usize].checked_add(8).unwrap();
            assert_eq!(starts[other as usize].rank(), other);
            global.copy(own, starts[other as usize], 4, Order::All).unwrap();
            global.complete_all().unwrap();
            assert_eq!(bytes(&memory, 8, 4), ((other + size - turn) % size).to_ne_bytes());
        }
        global.sync().unwrap();
    }
    assert_eq!((global.rank(), global.faults()), (job.rank(), 0));
    global.close().unwrap();
}

/// Rank 1 ends in the middle. The others learn it wherever they need to, and still have each other.
fn one_dies() {
    let (mut job, mut global) = open();
    // Over UDP nobody else says so.
    job.survive().unwrap();
    let (_, starts) = exchange(&mut global, 4_096, 0);
    if job.rank() == 1 {
        roles::die();
    }
    let (own, other) = (starts[job.rank() as usize], starts[2 - job.rank() as usize]);
    // To it, and from it to another rank.
    for dst in [None, Some(other)] {
        let failed = loop {
            let (dst, src) = dst.map_or((starts[1], own), |dst| (dst, starts[1]));
            let handle = global.copy(dst, src, 8, Order::Now).unwrap();
            if let Err(error) = global.complete(handle) {
                break error;
            }
        };
        assert!(matches!(failed, AcpError::Failed { .. }), "{failed}");
        let behind = global.copy(own, other, 8, Order::All).unwrap();
        assert!(global.complete(behind).is_err(), "it was ordered behind");
        global.take_failure().unwrap().unwrap();
    }
    global.copy(own, own, 8, Order::All).unwrap();
    global.complete_all().unwrap();
    assert!(global.sync().is_err(), "not all ranks can come");
}

const HEAP_BYTES: usize = 4 << 20;
/// Between two looks whether a rank has died.
const DEATH_PAUSE: Duration = Duration::from_millis(1);

fn open_with_heap() -> (Job, GlobalMemory) {
    roles::open(STARTER_BYTES, HEAP_BYTES)
}

/// What rank 0 says becomes known to all, by its starter memory.
fn from_rank_0(global: &mut GlobalMemory, number: u64) -> GlobalAddress {
    if global.rank() == 0 {
        assert!(global.starter_memory().write(0, &number.to_ne_bytes()));
    }
    global.sync().unwrap();
    let own = global.starter(global.rank()).unwrap().checked_add(8).unwrap();
    let theirs = global.starter(0).unwrap();
    let handle = global.copy(own, theirs, 8, Order::Now).unwrap();
    global.complete(handle).unwrap();
    let number = u64::from_ne_bytes(bytes(global.starter_memory(), 8, 8).try_into().unwrap());
    global.sync().unwrap();
    GlobalAddress::from_bits(number).unwrap()
}

/// All ranks work on one container of each kind, wherever it is, and nothing is lost or counted twice.
fn containers() {
    const EACH: u64 = 40;
    let (job, mut global) = open_with_heap();
    let global = &mut global;
    let (rank, size) = (job.rank(), job.size());
    let ranks: Vec<u32> = (0..size).collect();
    let number = |global: &mut GlobalMemory, make: &dyn Fn(&mut GlobalMemory) -> GlobalAddress| {
        let made = if rank == 0 { make(global).to_bits() } else { 0 };
        from_rank_0(global, made)
    };
    let map = number(global, &|global| Map::create(global, &ranks, 8, 1).unwrap().handle());
    let counts = number(global, &|global| MultiSet::create(global, &ranks, 4, 2).unwrap().handle());
    let deque = number(global, &|global| Deque::create(global, 0, 1).unwrap().handle());
    let list = number(global, &|global| List::create(global, 2).unwrap().handle());
    let vector = number(global, &|global| Vector::create(global, 0, 0).unwrap().handle());
    let (map, counts) = (Map::open(global, map).unwrap(), MultiSet::open(global, counts).unwrap());
    let (deque, list, vector) = (Deque::open(deque), List::open(list), Vector::open(vector));
    let mut entered = 0_u64;
    for turn in 0..EACH {
        // Each rank has its own values for the same keys: the first one counts.
        let value = vec![rank as u8; 300];
        entered += u64::from(map.insert(global, &turn.to_ne_bytes(), &value).unwrap());
        counts.insert(global, &(turn % 7).to_ne_bytes()).unwrap();
        let own = (u64::from(rank) << 32 | turn).to_ne_bytes();
        deque.push_back(global, &own).unwrap();
        list.push_front(global, &own, (rank + turn as u32) % size).unwrap();
        vector.push(global, &own).unwrap();
    }
    counts.add(global, b"entered", entered).unwrap();
    global.sync().unwrap();
    let all: u64 = EACH * u64::from(size);
    assert_eq!((map.len(global).unwrap(), counts.count(global, b"entered").unwrap()), (EACH, EACH));
    let sum: u64 = (0..7_u64).map(|key| counts.count(global, &key.to_ne_bytes()).unwrap()).sum();
    assert_eq!(sum, all);
    for turn in 0..EACH {
        let value = map.get(global, &turn.to_ne_bytes()).unwrap().unwrap();
        assert!(value.len() == 300 && value.iter().all(|&byte| byte == value[0]), "whole");
    }
    let local = map.local_len(global).unwrap();
    counts.add(global, b"local", local).unwrap();
    let unique = |bytes: &[u8]| bytes.as_chunks::<8>().0.iter().copied().collect::<HashSet<_>>().len() as u64;
    let mut found = vec![0; (all * 8) as usize];
    vector.read(global, 0, &mut found).unwrap();
    assert_eq!((vector.len(global).unwrap(), unique(&found)), (all * 8, all));
    deque.read(global, 0, &mut found).unwrap();
    assert_eq!((deque.len(global).unwrap(), unique(&found)), (all * 8, all));
    let elements = list.to_vec(global).unwrap();
    assert_eq!((elements.len() as u64, unique(&elements.concat())), (all, all));
    global.sync().unwrap();
    assert_eq!(counts.count(global, b"local").unwrap(), EACH, "each key is on one rank");
    global.sync().unwrap();
    // All take from the deque at once.
    let mut taken = 0;
    while !deque.pop_front(global, 8).unwrap().is_empty() {
        taken += 1;
    }
    counts.add(global, b"taken", taken).unwrap();
    global.sync().unwrap();
    assert_eq!(counts.count(global, b"taken").unwrap(), all);
    global.sync().unwrap();
    if rank == 0 {
        map.destroy(global).unwrap();
        counts.destroy(global).unwrap();
        deque.destroy(global).unwrap();
        list.destroy(global).unwrap();
        vector.destroy(global).unwrap();
    }
    global.sync().unwrap();
    assert_eq!(global.faults(), 0);
}

/// Rank 1 is killed in the middle of its work on a map and a list whose memory others have. They go on.
fn one_dies_at_work() {
    let (job, mut global) = open_with_heap();
    let global = &mut global;
    let rank = job.rank();
    let make = |global: &mut GlobalMemory| {
        let map = Map::create(global, &[0, 2], 1, 0).unwrap();
        let list = List::create(global, 2).unwrap();
        map.replace(global, b"list", &list.handle().to_bits().to_ne_bytes()).unwrap();
        map.handle().to_bits()
    };
    let number = if rank == 0 { make(global) } else { 0 };
    let map = from_rank_0(global, number);
    let map = Map::open(global, map).unwrap();
    let list = map.get(global, b"list").unwrap().unwrap();
    let list = List::open(GlobalAddress::from_bits(u64::from_ne_bytes(list.try_into().unwrap())).unwrap());
    // All are connected with rank 1 then: who asks one that is dead for a connection, and does not survive deaths, waits for a minute.
    let of_rank_1 = global.starter(1).unwrap();
    global.read(of_rank_1, &mut [0; 8]).unwrap();
    global.sync().unwrap();
    if rank == 1 {
        let instant = u64::from(std::process::id()) * 7_919 % 20_000;
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(instant));
            std::process::abort();
        });
    }
    let mut turn = 0_u64;
    while rank == 1 || turn < 300 {
        turn += 1;
        map.replace(global, &(turn % 5).to_ne_bytes(), &vec![rank as u8; 50 + turn as usize % 50]).unwrap();
        // Not in the memory of the rank that dies.
        list.push_back(global, &[rank as u8], if rank == 0 { 2 } else { 0 }).unwrap();
        list.pop_front(global).unwrap();
    }
    for key in 0..5_u64 {
        let value = map.get(global, &key.to_ne_bytes()).unwrap().unwrap();
        assert!(value.iter().all(|&byte| byte == value[0]), "a value is whole");
    }
    // They meet, as long as rank 1 has left them barriers.
    map.update(global, b"done", |was| Some([was.unwrap_or_default(), &[rank as u8]].concat())).unwrap();
    while map.get(global, b"done").unwrap().unwrap().len() < 2 {
        global.progress();
    }
    // Rank 1 may be at work until now, however long ago it should have died.
    while !global.has_died(1).unwrap() {
        global.serve(DEATH_PAUSE).unwrap();
    }
    let elements = list.to_vec(global).unwrap();
    assert_eq!(elements.len() as u64, list.len(global).unwrap());
    assert_eq!(map.len(global).unwrap(), 7);
    // Neither leaves before the other one has looked, however long that takes: each writes so into the other's memory, and reads its own.
    let starter =
        |global: &GlobalMemory, rank, offset| global.starter(rank).unwrap().checked_add(offset).unwrap();
    let has_looked = starter(global, rank, 24);
    let there = starter(global, 2 - rank, 16);
    assert!(global.starter_memory().write(24, &1_u64.to_ne_bytes()));
    // The other one may be gone before this ends. Then it has written already.
    let _ = global.copy(there, has_looked, 8, Order::Now).and_then(|handle| global.complete(handle));
    while bytes(global.starter_memory(), 16, 8) != 1_u64.to_ne_bytes() {
        global.progress();
    }
}

#[test]
fn all_ranks_work_on_containers_at_once() {
    all_ranks_do("containers", 3);
}

#[test]
fn a_rank_that_dies_at_work_holds_up_nobody() {
    for device in ["shm", "any"] {
        for _ in 0..4 {
            let ranks = launch(3, role("one dies at work", device));
            assert!(!ranks[1].status.success(), "{device}: {:?}", ranks[1]);
            assert!(ranks[0].status.success() && ranks[2].status.success(), "{device}: {ranks:?}");
        }
    }
}

#[test]
fn the_example_counts_words() {
    for rank in launch(4, role("words", "any")) {
        assert!(rank.status.success(), "{rank:?}");
    }
}

#[test]
fn a_reset_gives_other_numbers_and_clears_memory() {
    all_ranks_do("other numbers", 3);
}

#[test]
fn whoever_needs_a_rank_that_dies_is_told() {
    for device in ["shm", "tcp-lo", "udp-lo", "any"] {
        let ranks = launch(3, role("one dies", device));
        assert_eq!(ranks[1].status.code(), None, "{device}: {:?}", ranks[1]);
        assert!(ranks[0].status.success() && ranks[2].status.success(), "{device}: {ranks:?}");
    }
}

/// Whoever has left a barrier waits for the launcher at once, and makes no progress: the others leave it all the same.
fn two_barriers() {
    let (mut job, mut global) = open();
    for _ in 0..50 {
        global.sync().unwrap();
        job.barrier().unwrap();
    }
    global.close().unwrap();
}

#[test]
fn all_leave_a_barrier_while_the_first_make_no_progress() {
    all_ranks_do("two barriers", 4);
}

#[test]
fn atomics_of_all_ranks_count_once() {
    all_ranks_do("counters", 4);
}

#[test]
fn copies_between_any_two_ranks_arrive() {
    all_ranks_do("copies", 3);
}

#[test]
fn orders_hold_across_three_ranks() {
    all_ranks_do("orders", 3);
}

#[test]
fn addresses_lead_back_to_memory() {
    all_ranks_do("addresses", 3);
}
