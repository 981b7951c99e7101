//! The global address space among real processes.
#![allow(clippy::unwrap_used, reason = "a rank that can't go on fails")]

#[path = "../../am/tests/launch/mod.rs"]
mod launch;

use cci::{Atomic, AtomicKind, AtomicWidth};
use cci_acp::{AcpError, GlobalAddress, GlobalMemory, Order};
use cci_job::Job;
use launch::launch;
use std::collections::HashSet;
use std::env;
use std::process::{Command, exit};

/// What a rank shall do, and on which device; not set in the tests themselves.
const ROLE: &str = "CCI_TEST_ROLE";
const DEVICE: &str = "CCI_TEST_DEVICE";
const DEVICES: [&str; 4] = ["shm", "udp-lo", "tcp-lo", "any"];
const STARTER_BYTES: usize = 10_240;

/// This program again, in a role.
fn role(name: &'static str, device: &'static str) -> impl Fn() -> Command {
    move || {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "as_a_rank", "--nocapture"]).env(ROLE, name).env(DEVICE, device);
        command
    }
}

/// Runs a role on ranks of every device.
fn all_ranks_do(name: &'static str, size: u32) {
    for device in DEVICES {
        for rank in launch(size, role(name, device)) {
            assert!(rank.status.success(), "{device}: {rank:?}");
        }
    }
}

fn open() -> (Job, GlobalMemory) {
    let mut job = Job::join().unwrap();
    let context = cci::Context::new().unwrap();
    let device = context.device(&env::var(DEVICE).unwrap()).unwrap();
    let global = GlobalMemory::open(&mut job, device, cci::Options::default(), STARTER_BYTES).unwrap();
    (job, global)
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

/// Rank 1 ends in the middle. The others are told so wherever they need it, and still have each other.
fn one_dies() {
    let (job, mut global) = open();
    let (_, starts) = exchange(&mut global, 4_096, 0);
    if job.rank() == 1 {
        exit(7);
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

#[test]
fn a_reset_gives_other_numbers_and_clears_memory() {
    all_ranks_do("other numbers", 3);
}

#[test]
fn whoever_needs_a_rank_that_dies_is_told() {
    // Over UDP it takes as long as a peer may be silent.
    for device in ["shm", "tcp-lo", "any"] {
        let ranks = launch(3, role("one dies", device));
        assert_eq!(ranks[1].status.code(), Some(7), "{device}: {:?}", ranks[1]);
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
