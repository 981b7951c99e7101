//! The progress thread: a rank that computes and calls nothing serves the others.
#![allow(clippy::unwrap_used, reason = "a rank that can't go on fails")]

mod roles;

use cci::{Atomic, AtomicKind, AtomicWidth, Foreign, Memory};
use cci_acp::{GlobalAddress, GlobalMemory, Order, Receiver, Sender, SharedGlobalMemory, Slots, Space};
use roles::{ROLE, all_ranks_do};
use std::fs;
use std::time::Duration;

const STARTER_BYTES: usize = 4_096;
const BYTES: usize = 200_000;
/// Where the first rank says that it has done all that it wants of the second one.
const DONE_AT: usize = BYTES - 8;
/// Of a channel, and the length of a message that takes many of them.
const SLOTS: Slots = Slots { count: 2, bytes: 64 };
const MESSAGE_BYTES: usize = 1_000;
/// How long an idle thread is watched, and how often it may wake: connections look now and then whether the other side lives.
const IDLE: Duration = Duration::from_secs(2);
const WAKES_MAX: u64 = 20;
/// How often it is watched, until it is found asleep.
const LOOKS_MAX: usize = 10;

/// Not a test where nothing has started it: what ranks do.
#[test]
fn as_a_rank() {
    match std::env::var(ROLE).as_deref() {
        Ok("served") => served(),
        Ok("idle") => idle(),
        _ => {}
    }
}

/// Names and numbers of this process's threads of the library.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_ours = |task: &std::path::PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim_end() == "acp-progress")
    };
    tasks.filter(is_ours).map(|task| task.to_str().unwrap().to_owned()).collect()
}

/// Waits until the progress thread has its name, which it has as soon as it runs.
fn progress_thread() -> String {
    loop {
        match &threads()[..] {
            [] => std::thread::yield_now(),
            [task] => return task.clone(),
            more => panic!("one thread, not {more:?}"),
        }
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How often a thread has been given a core.
fn switches(task: &str) -> u64 {
    let status = fs::read_to_string(format!("{task}/status")).unwrap();
    let of = |line: &str| {
        line.contains("ctxt_switches").then(|| line.split_whitespace().last()?.parse::<u64>().ok())
    };
    status.lines().filter_map(|line| of(line).flatten()).sum()
}

/// Memory of the program's, which nobody can map, registered; and the other ranks' addresses of theirs.
fn exchange(global: &mut GlobalMemory) -> (Memory, Vec<GlobalAddress>) {
    let memory = Memory::foreign(Foreign::owned(vec![0; BYTES].into_boxed_slice()));
    let key = global.register(&memory, 0).unwrap();
    let own = global.address(key, 0).unwrap().to_bits();
    let all = (0..global.size()).map(|rank| global.broadcast(rank, own).unwrap()).collect::<Vec<_>>();
    (memory, all.into_iter().map(|bits| GlobalAddress::from_bits(bits).unwrap()).collect())
}

fn word(memory: &Memory, at: usize) -> u64 {
    let mut bytes = [0; 8];
    assert!(memory.read(at, &mut bytes));
    u64::from_ne_bytes(bytes)
}

/// Rank 0 does everything with rank 1 that one can, while rank 1 looks at its own memory only.
fn served() {
    let before = descriptors();
    let (job, mut global) = roles::open(STARTER_BYTES, 0);
    let (rank, size) = (job.rank(), job.size());
    let (memory, all) = exchange(&mut global);
    global.sync().unwrap();
    let receives = (rank == 1).then(|| {
        let into = Memory::foreign(Foreign::owned(vec![0; MESSAGE_BYTES].into_boxed_slice()));
        let receiver = Receiver::create(&mut global, 0, SLOTS).unwrap();
        let request = receiver.start(&mut global, &into).unwrap();
        (receiver, request, into)
    });
    let shared = SharedGlobalMemory::with_progress_thread(global).unwrap();
    progress_thread();
    match rank {
        0 => asks(&mut shared.lock().unwrap(), &memory, &all),
        1 => {
            // It computes.
            while word(&memory, DONE_AT) == 0 {
                std::hint::spin_loop();
            }
        }
        // It sleeps, without the library.
        _ => {
            while word(&memory, DONE_AT) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    if let Some((receiver, request, into)) = receives {
        let global = &mut *shared.lock().unwrap();
        assert_eq!(request.wait(global).unwrap(), MESSAGE_BYTES);
        assert_eq!(word(&into, 8), u64::from_ne_bytes([9, 9, 11, 11, 13, 13, 15, 15]));
        receiver.free(global).unwrap().wait(global).unwrap();
    }
    shared.lock().unwrap().sync().unwrap();
    assert!(size == 3 && shared.lock().unwrap().faults() == 0);
    shared.into_inner().unwrap().close().unwrap();
    drop(job);
    assert_eq!((threads().len(), descriptors()), (0, before), "nothing is left");
}

fn asks(global: &mut GlobalMemory, memory: &Memory, all: &[GlobalAddress]) {
    let at = |rank: usize, offset: usize| all[rank].checked_add(offset as u64).unwrap();
    let complete = |global: &mut GlobalMemory, handle| global.complete(handle).unwrap();
    let data: Vec<u8> = (0..BYTES / 2).map(|at| at as u8 | 1).collect();
    assert!(memory.write(0, &data));
    // There and back, long and short.
    for len in [8, 1_000, BYTES / 2 - 8] {
        let there = global.copy(at(1, 0), at(0, 0), len, Order::Now).unwrap();
        let back = global.copy(at(0, BYTES / 2), at(1, 0), len, Order::After(there)).unwrap();
        complete(global, back);
        let mut found = vec![0; len];
        assert!(memory.read(BYTES / 2, &mut found) && found == data[..len]);
    }
    // From one that sleeps to one that computes, which rank 2 does by its own thread, and the other way round.
    let there = global.copy(at(2, 1_000), at(1, 0), 5_000, Order::All).unwrap();
    let back = global.copy(at(1, BYTES / 2), at(2, 1_000), 5_000, Order::After(there)).unwrap();
    complete(global, back);
    let back = global.copy(at(0, BYTES / 2), at(1, BYTES / 2), 5_000, Order::Now).unwrap();
    complete(global, back);
    let mut found = vec![0; 5_000];
    assert!(memory.read(BYTES / 2, &mut found) && found[..] == data[..5_000]);
    let counter = BYTES - 16;
    for expected in 0..50 {
        let atomic = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
        let added = global.atomic(at(0, BYTES / 2), at(1, counter), atomic, Order::Now).unwrap();
        complete(global, added);
        assert_eq!(word(memory, BYTES / 2), expected);
    }
    // A channel connects, and a message goes through few slots, which the other rank's thread empties.
    let sender = Sender::create(global, 1, SLOTS).unwrap();
    sender.send(global, &data[..MESSAGE_BYTES]).unwrap();
    for rank in [1, 2] {
        global.write(at(rank, DONE_AT), &1u64.to_ne_bytes()).unwrap();
    }
    sender.free(global).unwrap().wait(global).unwrap();
}

#[test]
fn ranks_that_call_nothing_are_served() {
    all_ranks_do("served", 3);
}

/// A thread with nothing to do sleeps, also where its process was busy before.
fn idle() {
    let (job, mut global) = roles::open(STARTER_BYTES, 0);
    let (_memory, all) = exchange(&mut global);
    let shared = SharedGlobalMemory::with_progress_thread(global).unwrap();
    let next = all[(job.rank() as usize + 1) % all.len()];
    for _ in 0..100 {
        let mut bytes = [0; 100];
        shared.lock().unwrap().read(next, &mut bytes).unwrap();
    }
    shared.lock().unwrap().sync().unwrap();
    let task = &progress_thread();
    // On a busy machine the other rank, or this thread, may still be at work at first.
    let woke = (0..LOOKS_MAX).map(|_| {
        let before = switches(task);
        std::thread::sleep(IDLE);
        switches(task) - before
    });
    let woke: Vec<u64> = woke.take_while(|&woke| woke > WAKES_MAX).collect();
    assert!(woke.len() < LOOKS_MAX, "it woke {woke:?} times, and has no rest");
    shared.lock().unwrap().sync().unwrap();
    shared.into_inner().unwrap().close().unwrap();
}

#[test]
fn an_idle_thread_sleeps() {
    all_ranks_do("idle", 2);
}
