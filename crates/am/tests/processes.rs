//! Active messages between real processes: the examples, and ranks that die.
#![allow(clippy::unwrap_used, reason = "a rank that can't go on fails")]

mod launch;

use cci::{Atomic, AtomicKind, AtomicWidth};
use cci_am::{AmError, Change, Collective, Number, Part, Reduction, Runtime, Team};
use cci_job::Job;
use launch::launch;
use std::cell::Cell;
use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

/// What a rank shall do; not set in the tests themselves.
const ROLE: &str = "CCI_TEST_ROLE";
const DEVICE: &str = "CCI_TEST_DEVICE";
/// The collective in which ranks wait.
const WAITS_IN: &str = "CCI_TEST_WAITS_IN";

/// This program again, in a role.
fn role(name: &'static str) -> impl Fn() -> Command {
    move || {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "as_a_rank", "--nocapture"]).env(ROLE, name);
        command
    }
}

fn example(name: &str) -> PathBuf {
    let programs = env::current_exe().unwrap();
    programs.parent().unwrap().parent().unwrap().join("examples").join(name)
}

fn open() -> Runtime {
    let mut job = Job::join().unwrap();
    Runtime::open(&mut job, cci::Options::default()).unwrap()
}

/// Not a test where nothing has started it: what ranks do.
#[test]
fn as_a_rank() {
    match env::var(ROLE).as_deref() {
        Ok("all to all") => all_to_all(),
        Ok("one dies") => one_dies(),
        Ok("dies unmet") => dies_unmet(),
        Ok("symmetric") => symmetric(),
        Ok("late") => late(),
        _ => {}
    }
}

/// Everybody sends to everybody, as fast as it goes, and each message is answered.
fn all_to_all() {
    const EACH: u64 = 2_000;
    let mut runtime = open();
    let context = runtime.context().unwrap();
    let (asked, answered) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let count = asked.clone();
    let reply = move |runtime: &mut Runtime, message: &cci_am::Message<'_>| {
        count.set(count.get() + 1);
        runtime.reply(message.token(), 1, message.args(), message.data()).unwrap();
    };
    runtime.register(context, 0, reply).unwrap();
    let count = answered.clone();
    let take = move |_: &mut Runtime, message: &cci_am::Message<'_>| {
        assert_eq!(message.data().len() as i64, message.args()[0] % 500);
        count.set(count.get() + 1);
    };
    runtime.register(context, 1, take).unwrap();
    for number in 0..EACH as i64 {
        for rank in 0..runtime.size() {
            runtime.request(context, rank, 0, &[number], &vec![1; number as usize % 500]).unwrap();
        }
    }
    let all = EACH * u64::from(runtime.size());
    runtime.finish().unwrap();
    assert_eq!((asked.get(), answered.get()), (all, all));
}

/// All ranks have memory at one address, which others write to and add to although its rank does nothing for it.
fn symmetric() {
    const LEN: usize = 3 << 20;
    let mut runtime = open();
    let (me, size) = (runtime.rank(), runtime.size());
    let here = if me == 1 { LEN } else { LEN + 1 };
    let differ = runtime.allocate_symmetric(here);
    assert!(size == 1 || matches!(differ, Err(AmError::Argument(_))), "{differ:?}");
    let mut earlier = None;
    for round in 0..4 {
        let memory = runtime.allocate_symmetric(LEN).unwrap();
        let address = memory.as_ptr().addr() as u64;
        assert_ne!(earlier.replace(address), Some(address), "it is given again last");
        let data = address.to_ne_bytes().to_vec();
        let all = runtime.collective(Team::WORLD, Collective::Allgather { data }).unwrap();
        assert_eq!(all, address.to_ne_bytes().repeat(size as usize));
        let deregistered = runtime.deregister_memory(&memory);
        assert!(matches!(deregistered, Err(AmError::State(_))), "it is the library's: {deregistered:?}");

        let word = (u64::from(me) + round).to_ne_bytes();
        assert!(memory.write(8, &word));
        for rank in 0..size {
            let part = Part { memory: memory.clone(), offset: 8, len_bytes: 8 };
            runtime.put(rank, address + 64 + 8 * u64::from(me), part, |_, end| end.unwrap()).unwrap();
            let add = Change::Core(Atomic {
                kind: AtomicKind::FetchAdd,
                width: AtomicWidth::Eight,
                operand: 1,
                compare: 0,
            });
            runtime.atomic(rank, address, add, |_, end| assert!(end.is_ok())).unwrap();
        }
        runtime.global_fence().unwrap();
        assert_eq!(memory.load(0, AtomicWidth::Eight).unwrap(), u64::from(size));
        for rank in 0..size as usize {
            assert_eq!(memory.load(64 + 8 * rank, AtomicWidth::Eight).unwrap(), rank as u64 + round);
        }
        if round != 2 {
            runtime.free_symmetric(&memory).unwrap();
            assert!(matches!(runtime.free_symmetric(&memory), Err(AmError::Argument(_))));
        }
    }
    runtime.finish().unwrap();
}

/// Barriers and collectives for which one rank after another is so late that all others sleep, and many for which nobody is.
fn late() {
    let mut runtime = open();
    let (me, size) = (runtime.rank(), runtime.size());
    let number = |rank: u32, round: u32| (u64::from(rank) << 32 | u64::from(round)).to_ne_bytes();
    let gather = |runtime: &mut Runtime, round: u32| {
        let data = number(me, round).to_vec();
        let all = runtime.collective(Team::WORLD, Collective::Allgather { data }).unwrap();
        assert!(all.chunks(8).eq((0..size).map(|rank| number(rank, round))));
    };
    for round in 0..400 {
        if round % 4 == 0 && round / 4 % size == me {
            sleep(Duration::from_millis(5));
        }
        if round % 3 == 0 { gather(&mut runtime, round) } else { runtime.barrier().unwrap() }
    }
    for round in 0..5_000 {
        runtime.barrier().unwrap();
        gather(&mut runtime, round);
    }
    // Of several segments each, and so many that nobody is in step for long.
    for round in 0..20 {
        let data = number(me, round).repeat(40_000);
        let with = (Number::U64, Reduction::Max);
        let most = runtime.collective(Team::WORLD, Collective::Allreduce { data, with }).unwrap();
        assert!(most.chunks(8).all(|most| most == number(size - 1, round)));
    }
    runtime.finish().unwrap();
}

/// Rank 1 ends in the middle, and the others learn it wherever they are.
fn one_dies() {
    let mut job = Job::join().unwrap();
    // Over UDP nobody else says so.
    job.survive().unwrap();
    let context = cci::Context::new().unwrap();
    let device = context.device(&env::var(DEVICE).unwrap()).unwrap();
    let mut runtime = Runtime::open_on(&mut job, device, cci::Options::default()).unwrap();
    let context = runtime.context().unwrap();
    let gone = Rc::new(Cell::new(None));
    let report = gone.clone();
    runtime.on_gone(move |rank, _| report.set(Some(rank)));
    let handled = Rc::new(Cell::new(0));
    let count = handled.clone();
    runtime.register(context, 0, move |_, _| count.set(count.get() + 1)).unwrap();
    // All are connected then.
    runtime.barrier().unwrap();
    if runtime.rank() == 1 {
        while handled.get() < 1_000 {
            runtime.wait(None).unwrap();
        }
        exit(7);
    }
    let failed = loop {
        if let Err(error) = runtime.request(context, 1, 0, &[], b"to one that dies") {
            break error;
        }
    };
    assert!(matches!(failed, AmError::Gone { rank: 1, .. }), "{failed}");
    // The other one may have noticed before, and left.
    assert!(matches!(runtime.barrier(), Err(AmError::Gone { .. })));
    while gone.get().is_none() {
        runtime.poll();
    }
    // Rank 2 and rank 0 still have each other, unless the other one has noticed and left.
    let other = 2 - runtime.rank();
    match runtime.request(context, other, 0, &[], b"still there") {
        Ok(()) | Err(AmError::Gone { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

/// The last rank dies before anybody has a connection with it, and the others wait for it in the collective that the test names.
fn dies_unmet() {
    let mut job = Job::join().unwrap();
    job.survive().unwrap();
    let context = cci::Context::new().unwrap();
    let device = context.device(&env::var(DEVICE).unwrap()).unwrap();
    let mut runtime = Runtime::open_on(&mut job, device, cci::Options::default()).unwrap();
    let victim = runtime.size() - 1;
    if runtime.rank() == victim {
        exit(7);
    }
    let gone = Rc::new(Cell::new(false));
    let report = gone.clone();
    runtime.on_gone(move |rank, _| report.set(report.get() || rank == victim));
    let ended = match env::var(WAITS_IN).as_deref() {
        Ok("broadcast") => {
            let broadcast = Collective::Broadcast { root: victim, data: vec![0; 8] };
            runtime.collective(Team::WORLD, broadcast).map(drop)
        }
        Ok("allreduce") => {
            let with = (Number::U64, Reduction::Max);
            runtime.collective(Team::WORLD, Collective::Allreduce { data: vec![0; 8], with }).map(drop)
        }
        Ok("symmetric") => runtime.allocate_symmetric(4096).map(drop),
        _ => runtime.barrier(),
    };
    // Another one may have learned of it before, and left.
    assert!(matches!(&ended, Err(AmError::Gone { .. })), "{ended:?}");
    while !gone.get() {
        runtime.wait(None).unwrap();
    }
}

#[test]
fn all_speak_to_all() {
    for size in [1, 2, 5] {
        for rank in launch(size, role("all to all")) {
            assert!(rank.status.success(), "{size}: {rank:?}");
        }
    }
}

#[test]
fn barriers_wake_those_who_sleep() {
    for size in [2, 3, 8] {
        for rank in launch(size, role("late")) {
            assert!(rank.status.success(), "{size}: {rank:?}");
        }
    }
}

#[test]
fn symmetric_memory_is_at_one_address() {
    for size in [1, 2, 4] {
        for rank in launch(size, role("symmetric")) {
            assert!(rank.status.success(), "{size}: {rank:?}");
        }
    }
}

#[test]
fn whoever_sends_to_a_rank_that_dies_is_told() {
    for device in ["any", "udp-lo"] {
        let again = role("one dies");
        let ranks = launch(3, || {
            let mut command = again();
            command.env(DEVICE, device);
            command
        });
        assert_eq!(ranks[1].status.code(), Some(7), "{device}: {:?}", ranks[1]);
        assert!(ranks[0].status.success() && ranks[2].status.success(), "{device}: {ranks:?}");
    }
}

#[test]
fn who_waits_for_a_rank_that_died_unmet_learns_of_it() {
    let job = |device, waits_in| {
        let again = role("dies unmet");
        let ranks = launch(5, || {
            let mut command = again();
            command.env(DEVICE, device).env(WAITS_IN, waits_in);
            command
        });
        let (victim, others) = ranks.split_last().unwrap();
        assert_eq!(victim.status.code(), Some(7), "{device}, {waits_in}: {victim:?}");
        assert!(others.iter().all(|rank| rank.status.success()), "{device}, {waits_in}: {others:?}");
    };
    for device in ["any", "udp-lo"] {
        // Most of the time of a job is the time after which deaths are reported.
        std::thread::scope(|scope| {
            for waits_in in ["broadcast", "allreduce", "symmetric", "barrier"] {
                scope.spawn(move || job(device, waits_in));
            }
        });
    }
}

#[test]
fn the_table_finds_what_was_put_in() {
    for size in [1, 2, 4] {
        let ranks = launch(size, || Command::new(example("table")));
        for (number, rank) in ranks.iter().enumerate() {
            let said = String::from_utf8_lossy(&rank.stdout);
            assert!(rank.status.success(), "{size}: {rank:?}");
            let found = format!("rank {number}: 100000 keys put in and found again");
            assert!(said.contains(&found), "{size}: {said}");
        }
    }
}

/// Four blocks have neighbours on two sides each, six on three, and one none.
#[test]
fn heat_spreads_over_all_blocks_as_over_one() {
    for size in [1, 4, 6] {
        let ranks = launch(size, || Command::new(example("heat")));
        assert!(ranks.iter().all(|rank| rank.status.success()), "{size}: {ranks:?}");
        let said = String::from_utf8_lossy(&ranks[0].stdout);
        assert!(said.contains("cells are what one process computes alone, bit for bit"), "{size}: {said}");
    }
}

/// However the tasks fall to the ranks, each is taken once.
#[test]
fn the_queue_gives_each_task_to_one_rank() {
    for size in [1, 2, 4, 7] {
        let ranks = launch(size, || Command::new(example("queue")));
        assert!(ranks.iter().all(|rank| rank.status.success()), "{size}: {ranks:?}");
        let said = String::from_utf8_lossy(&ranks[0].stdout);
        assert!(said.contains("all 1270607 primes below 20000000 were found, each once"), "{size}: {said}");
    }
}
