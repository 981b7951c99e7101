//! Barriers that are counted in memory, by ranks of one process.

use super::counted::{MEMORY_BYTES, Sleep};
use super::tests::{runtimes, turn};
use super::{Collective, Context, Due, Process, Starter, Team};
use crate::error::{AmError, Result};
use crate::limits::{COUNTED_AFTER, COUNTED_AHEAD};
use crate::runtime::Runtime;
use crate::wire::{CountedWord, Word};
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);
/// From this barrier on they are counted.
const FIRST: u32 = COUNTED_AFTER + COUNTED_AHEAD;

/// All pass so many barriers, each arriving when the seed says so. `busy` may start a message before it arrives at a barrier. Returns what each rank
/// learned of all: whether they were idle.
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
                process.request(Starter::Program, context, rank as u32, 0, &[], &[]).unwrap();
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

pub(super) fn are_counted(all: &mut [Runtime]) -> bool {
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

/// All do one collective.
fn gather(all: &mut [Runtime]) {
    let (ended, size) = (Rc::new(Cell::new(0)), all.len());
    for runtime in &mut *all {
        let ended = Rc::clone(&ended);
        let done = move |_: &mut Runtime, result: Result<Vec<u8>>| {
            assert_eq!(result.unwrap(), vec![1; size]);
            ended.set(ended.get() + 1);
        };
        runtime.collect(Team::WORLD, Collective::Allgather { data: vec![1] }, done).unwrap();
    }
    turn(all, |_| ended.get() == size);
}

/// Ranks whose next barrier and collective are counted.
pub(super) fn counted(size: u32) -> Vec<Runtime> {
    let mut all = runtimes("shm", size);
    for _ in 0..40 {
        pass(&mut all, 20, 3, |_, _| false);
        for _ in 0..20 {
            gather(&mut all);
        }
        let are_counted = |runtime: &mut Runtime| {
            let process = runtime.process();
            process.counted.counts_from(process.position())
        };
        if all.iter_mut().all(are_counted) {
            return all;
        }
    }
    panic!("they are not counted");
}

/// A rank that does what programs do, sends messages and waits at barriers and for collectives, but has time for no more than one look before each
/// sleep.
struct Hasty {
    context: Context,
    /// That are to come. Between two that are multiples of 3 there are collectives instead.
    barriers: u32,
    /// To be sent before the next barrier.
    messages: u32,
    is_inside: bool,
    is_collecting: bool,
    is_asleep: bool,
}

impl Hasty {
    fn new(process: &mut Process, barriers: u32, messages: u32) -> Hasty {
        let context = process.context().unwrap();
        process.register(context, 0, 0).unwrap();
        Hasty { context, barriers, messages, is_inside: false, is_collecting: false, is_asleep: false }
    }

    /// What it does until it has to wait.
    fn go_on(&mut self, process: &mut Process, messages: u32) {
        let has_run = if self.is_collecting {
            process.progress_collective();
            if let Some((cookie, result)) = process.next_collected() {
                assert_eq!(cookie, self.barriers.into());
                assert_eq!(result.unwrap(), numbers(process.size(), self.barriers));
                self.barriers -= 1;
                (self.messages, self.is_collecting) = (messages, false);
                return;
            }
            run_due(process)
        } else if self.is_inside {
            if process.has_passed().unwrap() {
                self.barriers -= 1;
                (self.messages, self.is_inside) = (messages, false);
                return;
            }
            run_due(process)
        } else {
            process.progress();
            let has_run = run_due(process);
            while self.messages > 0 {
                let to = if process.rank() == 0 { self.messages % process.size() } else { 0 };
                match process.request(Starter::Program, self.context, to, 0, &[], &[]) {
                    Ok(()) => self.messages -= 1,
                    Err(AmError::WouldBlock) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            if self.messages == 0 && self.barriers.is_multiple_of(3) {
                process.arrive().unwrap();
                self.is_inside = true;
                return;
            }
            if self.messages == 0 {
                let data = number(process.rank(), self.barriers).to_vec();
                let collective = Collective::Allgather { data };
                process.collect(Team::WORLD, collective, self.barriers.into()).unwrap();
                self.is_collecting = true;
                return;
            }
            has_run
        };
        self.is_asleep = !has_run && falls_asleep(process);
    }
}

/// What a rank has for a collective.
fn number(rank: u32, at: u32) -> [u8; 8] {
    (u64::from(at) << 32 | u64::from(rank)).to_ne_bytes()
}

/// What all have.
fn numbers(size: u32, at: u32) -> Vec<u8> {
    (0..size).flat_map(|rank| number(rank, at)).collect()
}

/// Whether it would sleep until it is woken, as [`Process::wait`] decides that.
fn falls_asleep(process: &mut Process) -> bool {
    if process.has_due() || process.memory.is_waiting() || !process.links.are_sent() {
        return false;
    }
    let Process { links, counted, .. } = process;
    !counted.look(links) && counted.before_sleep(links) == Sleep::Long
}

/// Whether something has come for whoever sleeps.
fn is_woken(process: &mut Process) -> bool {
    process.links.endpoint().wait_any(Some(Duration::ZERO)).unwrap()
}

/// Returns whether there was anything.
fn run_due(process: &mut Process) -> bool {
    let Some(mut batch) = process.take_due() else { return false };
    let mut has_run = false;
    loop {
        let token = match process.next(&mut batch) {
            None => break,
            Some(Due::Message(message)) => Some(message.token),
            Some(_) => None,
        };
        has_run = true;
        if let Some(token) = token {
            process.end(token);
        }
    }
    process.put_back(batch);
    has_run
}

/// Ranks run in an order by `seed` until each has passed so many barriers, and sends so many messages before each. It must not come to it that
/// all of them sleep.
fn pass_hastily(all: &mut [Runtime], barriers: u32, messages: u32, seed: u64) {
    let ranks = all.iter_mut().map(|runtime| Hasty::new(runtime.process(), barriers, messages));
    let mut ranks: Vec<Hasty> = ranks.collect();
    let (mut random, mut asleep, start) = (seed, 0, Instant::now());
    while ranks.iter().any(|rank| rank.barriers > 0) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (random >> 33) as usize % ranks.len();
        let (rank, process) = (&mut ranks[at], all[at].process());
        if rank.is_asleep && is_woken(process) {
            rank.is_asleep = false;
        }
        if !rank.is_asleep && rank.barriers > 0 {
            rank.go_on(process, messages);
        } else if rank.barriers == 0 {
            process.progress();
            run_due(process);
        }
        let do_all_sleep = ranks.iter().all(|rank| rank.is_asleep || rank.barriers == 0);
        asleep = if do_all_sleep { asleep + 1 } else { 0 };
        assert!(asleep < 10_000, "all sleep: {} ranks, {messages} messages, seed {seed}", ranks.len());
        assert!(start.elapsed() < LIMIT, "it does not end");
    }
}

#[test]
fn nobody_sleeps_while_all_have_arrived() {
    for size in [2, 3, 8] {
        let mut all = counted(size);
        for seed in 0..20 {
            pass_hastily(&mut all, 50, 0, seed);
        }
    }
}

/// Ranks that wait for credits of one that sleeps in a barrier would wait for ever.
#[test]
fn nobody_sleeps_with_credits_of_others() {
    for size in [2, 3, 8] {
        let mut all = counted(size);
        let messages = 2 * all[0].process().links.credits_of_each() + 3;
        for seed in 0..5 {
            pass_hastily(&mut all, 4, messages, seed);
        }
    }
}

/// Each in a thread of its own, in which it sleeps.
#[test]
fn whoever_sleeps_at_once_is_woken() {
    for (size, barriers, are_messages) in [(2, 500, false), (3, 500, false), (8, 200, false), (4, 20, true)] {
        let mut all = counted(size);
        let messages = if are_messages { 2 * all[0].process().links.credits_of_each() + 3 } else { 0 };
        let ranks: Vec<_> = all
            .into_iter()
            .map(|runtime| {
                let mut process = runtime.into_process();
                std::thread::spawn(move || {
                    let mut rank = Hasty::new(&mut process, barriers, messages);
                    while rank.barriers > 0 {
                        rank.go_on(&mut process, messages);
                        if std::mem::take(&mut rank.is_asleep) {
                            let begun = Instant::now();
                            process.links.wait(Some(LIMIT), false).unwrap();
                            assert!(begun.elapsed() < LIMIT, "rank {} is not woken", process.rank());
                        }
                    }
                    process
                })
            })
            .collect();
        // No process is gone before all of them have passed.
        let all: Vec<Process> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        assert_eq!(all.len(), size as usize);
    }
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

/// A rank has begun what an offer named, and hears of its end and of the next offer at once.
#[test]
fn what_began_before_an_offer_goes_on_by_records() {
    let mut all = runtimes("shm", 2);
    pass(&mut all, 1, 1, |_, _| false);
    let endpoint = all[0].process().links.endpoint();
    let memory = endpoint.allocate(MEMORY_BYTES).unwrap();
    let handle = endpoint.register(&memory, cci::Access::ALL).unwrap();
    let offer = |at: u32| CountedWord::Offer { barrier: at, collective: at, handle };
    let ended = Rc::new(Cell::new(0));
    for (me, runtime) in all.iter_mut().enumerate() {
        if me == 1 {
            runtime.process().hear_counted(0, offer(1));
        }
        let ended = Rc::clone(&ended);
        let done = move |_: &mut Runtime, result: Result<Vec<u8>>| {
            assert_eq!(result.unwrap(), [5, 5]);
            ended.set(ended.get() + 1);
        };
        runtime.collect(Team::WORLD, Collective::Allgather { data: vec![5] }, done).unwrap();
        runtime.process().arrive().unwrap();
    }
    let process = all[1].process();
    assert!(process.counted.collecting() == 1 && process.counted.is_inside());
    process.hear_counted(0, CountedWord::Decision { is_agreed: false });
    process.hear_counted(0, offer(50));
    turn(&mut all, |all| {
        let passed = all
            .iter_mut()
            .filter_map(|runtime| runtime.process().has_passed().unwrap().then_some(()))
            .count();
        passed == 2 && ended.get() == 2
    });
}

/// Whoever waits for something else does not look all the time meanwhile.
#[test]
fn a_rank_sleeps_while_a_collective_goes_on() {
    let mut all = counted(2);
    let nothing = |_: &mut Runtime, _: Result<Vec<u8>>| panic!("the other rank has not come");
    all[0].collect(Team::WORLD, Collective::Barrier, nothing).unwrap();
    for _ in 0..3 {
        turn(&mut all, |all| {
            let process = all[0].process();
            process.progress();
            falls_asleep(process)
        });
        // Something has woken it.
        all[0].process().counted.has_slept();
    }
}
