//! Barriers that are counted in memory, by ranks of one process.

use super::tests::{runtimes, turn};
use crate::error::AmError;
use crate::limits::{COUNTED_AFTER, COUNTED_AHEAD};
use crate::runtime::Runtime;
use crate::wire::{CountedWord, Word};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);
/// From this barrier on they are counted.
const FIRST: u32 = COUNTED_AFTER + COUNTED_AHEAD;

/// All pass so many barriers, each arriving when the seed says so. `busy` may start a message before it arrives at a barrier. Returns what each rank
/// was told of all: whether they were idle.
fn pass(
    all: &mut [Runtime],
    barriers: usize,
    seed: u64,
    busy: impl Fn(usize, usize) -> bool,
) -> Vec<Vec<bool>> {
    let mut found: Vec<Vec<bool>> = all.iter().map(|_| Vec::new()).collect();
    let mut inside = vec![false; all.len()];
    let (mut random, start) = (seed, Instant::now());
    while found.iter().any(|found| found.len() < barriers) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let rank = (random >> 33) as usize % all.len();
        let process = all[rank].process();
        if inside[rank] {
            if process.has_passed().unwrap() {
                inside[rank] = false;
                found[rank].push(process.are_all_idle());
            }
        } else if found[rank].len() < barriers {
            if busy(rank, found[rank].len()) {
                let context = process.context().unwrap();
                process.request(super::Starter::Program, context, rank as u32, 0, &[], &[]).unwrap();
            }
            process.arrive().unwrap();
            inside[rank] = true;
        } else {
            process.progress();
        }
        let (least, most) = (found.iter().map(Vec::len).min(), found.iter().map(Vec::len).max());
        assert!(most <= least.map(|least| least + 1), "nobody leaves before all have entered");
        assert!(start.elapsed() < LIMIT, "it does not end");
    }
    found
}

fn are_counted(all: &mut [Runtime]) -> bool {
    all.iter_mut().all(|runtime| runtime.process().counted.counts())
}

#[test]
fn barriers_of_one_host_are_counted_after_a_while() {
    for size in [2, 3, 5, 8] {
        let mut all = runtimes("shm", size);
        let mut left = 40;
        // Where a rank is quick, it gets to the barrier of an offer before it has mapped the memory. Then there is another offer.
        while !are_counted(&mut all) {
            pass(&mut all, 20, u64::from(size), |_, _| false);
            left -= 1;
            assert!(left > 0, "{size} ranks");
        }
        let found = pass(&mut all, 100, 7, |_, _| false);
        assert!(found.iter().flatten().all(|&idle| idle));
        // Of every third barrier somebody is not idle, and all know that of the same ones.
        let found =
            pass(&mut all, 60, 9, |rank, barrier| barrier % 3 == 0 && rank == barrier % size as usize);
        assert!((0..60).step_by(3).all(|barrier| !found[0][barrier]), "{size} ranks: {found:?}");
        assert!(found.windows(2).all(|two| two[0] == two[1]));
    }
}

#[test]
fn where_nothing_is_mapped_barriers_go_on_by_records() {
    let mut all = runtimes("udp-lo", 3);
    let found = pass(&mut all, 2 * FIRST as usize, 1, |_, _| false);
    assert!(!are_counted(&mut all) && found.iter().flatten().all(|&idle| idle));
}

/// Ranks whose next barrier is counted.
fn counted(size: u32) -> Vec<Runtime> {
    let mut all = runtimes("shm", size);
    for _ in 0..40 {
        pass(&mut all, 20, 3, |_, _| false);
        if are_counted(&mut all) {
            pass(&mut all, COUNTED_AHEAD as usize, 5, |_, _| false);
            return all;
        }
    }
    panic!("they are not counted");
}

/// Only rank 0 is connected with the one that goes.
#[test]
fn a_rank_that_goes_ends_a_counted_barrier_for_all() {
    let mut all = counted(8);
    drop(all.remove(4));
    for runtime in &mut all {
        // Some know it already.
        let _ = runtime.process().arrive();
    }
    turn(&mut all, |all| {
        all.iter_mut()
            .all(|runtime| matches!(runtime.process().has_passed(), Err(AmError::Gone { rank: 4, .. })))
    });
}

#[test]
fn rank_0_may_leave_before_others_have_seen_that_all_arrived() {
    let mut all = counted(3);
    for runtime in &mut all {
        runtime.process().arrive().unwrap();
    }
    let start = Instant::now();
    while !all[0].process().has_passed().unwrap() {
        assert!(start.elapsed() < LIMIT);
    }
    let first = all.remove(0).into_process();
    let left = std::thread::spawn(move || first.close(LIMIT));
    turn(&mut all, |all| all.iter_mut().all(|runtime| runtime.process().has_passed().unwrap()));
    assert!(all.iter_mut().all(|runtime| runtime.process().are_all_idle()));
    assert!(left.join().unwrap());
}

#[test]
fn what_can_not_be_said_of_counted_barriers_ends_the_connection() {
    for word in [CountedWord::Decision { is_agreed: true }, CountedWord::Lost { rank: 0 }] {
        let mut all = runtimes("shm", 2);
        pass(&mut all, 1, 1, |_, _| false);
        all[1].process().links.say(0, &Word::Counted(word));
        turn(&mut all, |all| all[0].process().check_all().is_err());
    }
}
