//! Collectives that are counted in memory, by ranks of one process.

use super::collectives::tests::{Kind, check, kinds};
use super::counted_tests::{are_counted, counted};
use super::tests::{runtimes, turn};
use super::{Collective, Team};
use crate::arithmetic::{Number, Reduction};
use crate::error::{AmError, Result};
use crate::runtime::Runtime;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);
const SUM: (Number, Reduction) = (Number::I64, Reduction::Add);

type Results = Rc<RefCell<Vec<Option<Result<Vec<u8>>>>>>;

/// One that this rank starts.
fn start(runtime: &mut Runtime, team: Team, collective: Collective, results: &Results) {
    let (me, place) = (runtime.rank() as usize, Rc::clone(results));
    let done = move |_: &mut Runtime, result: Result<Vec<u8>>| {
        assert!(place.borrow_mut()[me].replace(result).is_none(), "it ends once");
    };
    runtime.collect(team, collective, done).unwrap();
}

/// What all are to do: what it is, how many bytes each has for it, and a seed for these.
type Task = (Kind, usize, u64);

/// All start so many collectives, each when the seed says so, and several before the first one has ended. What each gets is as it should be.
fn collect_all(all: &mut [Runtime], tasks: &[Task], seed: u64) {
    let size = all.len();
    let results: Vec<Results> =
        tasks.iter().map(|_| Rc::new(RefCell::new((0..size).map(|_| None).collect()))).collect();
    let (mut started, mut random, begun) = (vec![0; size], seed, Instant::now());
    let is_over = |results: &[Results]| results.iter().all(|one| one.borrow().iter().all(Option::is_some));
    while !is_over(&results) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let me = (random >> 33) as usize % size;
        // With some seeds one rank is far ahead, beyond what is offered then.
        let me = if seed % 3 == 1 && started[size - 1] < tasks.len() { size - 1 } else { me };
        let runtime = &mut all[me];
        if random >> 60 < 4
            && let Some((kind, len, seed)) = tasks.get(started[me])
        {
            let collective = kind.collective(me, size, *len, *seed);
            start(runtime, Team::WORLD, collective, &results[started[me]]);
            started[me] += 1;
        } else if random >> 62 == 2 {
            runtime.process().progress_collective();
        } else {
            runtime.poll();
        }
        assert!(begun.elapsed() < LIMIT, "it does not end");
    }
    for ((kind, len, seed), results) in tasks.iter().zip(&results) {
        let results: Vec<Vec<u8>> =
            results.borrow_mut().iter_mut().map(|one| one.take().unwrap().unwrap()).collect();
        check(kind, &results, *len, *seed);
    }
}

/// Short ones, those of a few segments, and one of many now and then.
fn tasks(size: usize, count: usize) -> impl Strategy<Value = Vec<Task>> {
    let words = prop_oneof![8 => 0..40_usize, 4 => 200..9_000_usize, 1 => 60_000..90_000_usize];
    let task = (kinds(size), words, any::<u64>()).prop_map(|(kind, words, seed)| (kind, words * 8, seed));
    prop::collection::vec(task, 1..=count)
}

#[test]
fn what_all_get_is_as_it_should_be() {
    for size in [2, 3, 5, 8] {
        let mut all = counted(size);
        let mut runner = TestRunner::new(ProptestConfig { cases: 12, ..ProptestConfig::default() });
        let run = |(tasks, seed): (Vec<Task>, u64)| {
            collect_all(&mut all, &tasks, seed);
            Ok(())
        };
        let all_tasks = (tasks(size as usize, 12), any::<u64>());
        let run = RefCell::new(run);
        runner.run(&all_tasks, |tasks| (run.borrow_mut())(tasks)).unwrap();
    }
}

/// No barrier is needed for that. A rank that has come too far for an offer does all by records, as all others then do.
#[test]
fn collectives_alone_have_memory_offered() {
    for (size, seed) in (0..12).map(|seed| ([2, 3, 5, 8][seed as usize % 4], seed)) {
        let mut all = runtimes("shm", size);
        let with = (Number::F64, Reduction::Add);
        let mut left = 40;
        while !are_counted(&mut all) {
            let kind = |at: u64| if at.is_multiple_of(3) { Kind::Allgather } else { Kind::Allreduce(with) };
            let tasks: Vec<Task> = (0..50).map(|at| (kind(at), 8 * at as usize, seed + at)).collect();
            collect_all(&mut all, &tasks, seed);
            left -= 1;
            assert!(left > 0, "{size} ranks, seed {seed}");
        }
        collect_all(&mut all, &vec![(Kind::Allreduce(SUM), 16, seed); 50], seed);
    }
}

#[test]
fn where_nothing_is_mapped_collectives_go_on_by_records() {
    let mut all = runtimes("udp-lo", 3);
    collect_all(&mut all, &vec![(Kind::Allreduce(SUM), 800, 3); 100], 1);
    assert!(!are_counted(&mut all));
}

#[test]
fn ranks_that_differ_find_that() {
    let allreduce = |len: usize| Collective::Allreduce { data: vec![1; len], with: SUM };
    let gather = |len: usize| Collective::Allgather { data: vec![1; len] };
    for [one, other] in [
        [allreduce(8), allreduce(16)],
        [allreduce(8), gather(8)],
        [gather(70_000), gather(140_000)],
        [allreduce(8), Collective::Allreduce { data: vec![1; 8], with: (Number::I64, Reduction::Min) }],
    ] {
        let mut all = counted(2);
        let results: Results = Rc::new(RefCell::new(vec![None, None]));
        start(&mut all[0], Team::WORLD, one, &results);
        start(&mut all[1], Team::WORLD, other, &results);
        turn(&mut all, |_| results.borrow().iter().flatten().any(Result::is_err));
        assert!(matches!(
            results.borrow().iter().flatten().find_map(|one| one.as_ref().err()),
            Some(AmError::Argument(_))
        ));
    }
}

/// Only rank 0 is connected with the one that goes.
#[test]
fn a_rank_that_goes_ends_what_goes_on() {
    for lost in [4, 0] {
        let mut all = counted(8);
        let results: Results = Rc::new(RefCell::new((0..8).map(|_| None).collect()));
        let data = vec![1; 100_000];
        for runtime in &mut all {
            start(runtime, Team::WORLD, Collective::Allreduce { data: data.clone(), with: SUM }, &results);
        }
        // All have arrived once, and have several steps before them.
        drop(all.remove(lost));
        turn(&mut all, |all| all.iter().all(|runtime| results.borrow()[runtime.rank() as usize].is_some()));
        for runtime in &mut all {
            let result = results.borrow_mut()[runtime.rank() as usize].take().unwrap();
            assert!(matches!(result, Err(AmError::Gone { rank, .. }) if rank as usize == lost), "{result:?}");
            let more = Collective::Allgather { data: vec![1] };
            assert!(matches!(
                runtime.collect(Team::WORLD, more, |_, _| panic!("it was not started")),
                Err(AmError::Gone { .. })
            ));
        }
    }
}

/// Each in a thread of its own. Rank 0 leaves with the memory as soon as all may.
#[test]
fn all_may_leave_after_a_collective() {
    for size in [2, 3, 8] {
        let expected: Vec<u8> = (0..size).flat_map(|rank| vec![rank as u8; 1_000]).collect();
        for _ in 0..10 {
            let (report, results) = mpsc::channel();
            for runtime in counted(size) {
                let (process, report) = (runtime.into_process(), report.clone());
                std::thread::spawn(move || {
                    let mut runtime = Runtime::over(process);
                    let data = vec![runtime.rank() as u8; 1_000];
                    let all = runtime.collective(Team::WORLD, Collective::Allgather { data }).unwrap();
                    runtime.finish().unwrap();
                    report.send(all).unwrap();
                });
            }
            for _ in 0..size {
                assert_eq!(results.recv_timeout(LIMIT).expect("all leave"), expected);
            }
        }
    }
}
