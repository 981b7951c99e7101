//! Ranks that are killed at any moment, while all do whatever there is: messages and answers, changes of memory, collectives. Those that live
//! judge together: order, each once, and whole.
//!
//! `CCI_CRASHES=N` lets N ranks of each size die, from the seed `CCI_SEED` on. `CCI_CRASHES_RANKS=64` is for jobs of that size alone.
#![allow(clippy::unwrap_used, reason = "a rank that can't go on fails")]

mod launch;

use cci::{Atomic, AtomicKind, AtomicWidth, Memory};
use cci_am::description::Description;
use cci_am::{
    Accumulation, AmError, Collective, Elements, Message, Number, Part, Reduction, Result, Runtime, Team,
};
use cci_job::Job;
use launch::launch;
use std::cell::RefCell;
use std::env;
use std::process::{Command, Output, abort};
use std::rc::Rc;
use std::time::Duration;

/// The seed; not set in the test itself.
const SEED: &str = "CCI_TEST_CRASH_SEED";
/// Within so many microseconds of the beginning the rank dies.
const CRASH_US: u64 = 30_000;
/// Changes of memory that each rank makes.
const CHANGES_MAX: usize = 2_000;

// The memory of each rank, in words: a sum of all, sums of each rank, a counter, a pointer to the end of the log, and the log.
const OWN: usize = 1;
const COUNTER: usize = 100;
const END: usize = 101;
const LOG: usize = 128;
const ENTRY_BYTES: usize = 16;
const MEMORY_BYTES: usize = 8 * LOG + 80 * CHANGES_MAX * ENTRY_BYTES;
const WORD: AtomicWidth = AtomicWidth::Eight;
const SUM: Reduction = Reduction::Add;

#[test]
fn the_living_have_everything_once_and_in_order() {
    let number = |name: &str| env::var(name).ok().map(|value| value.parse().unwrap());
    let (first, count) = (number("CCI_SEED").unwrap_or(1), number("CCI_CRASHES").unwrap_or(2));
    let sizes = number("CCI_CRASHES_RANKS").map_or(vec![2, 3, 4, 5, 8], |size| vec![size as u32]);
    for size in sizes {
        for seed in first..first + count {
            let ranks = launch(size, || {
                let mut command = Command::new(env::current_exe().unwrap());
                command.args(["--exact", "as_a_rank", "--nocapture"]).env(SEED, seed.to_string());
                command
            });
            let victim = victim(seed, size) as usize;
            // One that fails takes others with it.
            let is_wrong = |(rank, output): &(usize, &Output)| output.status.success() == (*rank == victim);
            let wrong: Vec<_> = ranks.iter().enumerate().filter(is_wrong).collect();
            assert!(wrong.is_empty(), "{size} ranks, seed {seed}, victim {victim}: {wrong:#?}");
        }
    }
}

/// Not a test where nothing has started it: what ranks do.
#[test]
fn as_a_rank() {
    if let Ok(seed) = env::var(SEED) {
        Rank::open(seed.parse().unwrap()).run();
    }
}

/// The finaliser of SplitMix64.
fn mix(input: u64) -> u64 {
    let mixed = (input ^ (input >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn victim(seed: u64, size: u32) -> u32 {
    (mix(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % u64::from(size)) as u32
}

/// For each rank: messages sent, and changes made of each kind. What is counted is what ended well.
#[derive(Clone, Default)]
struct Counts {
    sent: Vec<u64>,
    sums: Vec<u64>,
    counted: Vec<u64>,
    logged: Vec<u64>,
}

impl Counts {
    fn new(size: usize) -> Counts {
        let none = vec![0; size];
        Counts { sent: none.clone(), sums: none.clone(), counted: none.clone(), logged: none }
    }

    fn encode(&self) -> Vec<u8> {
        let all = [&self.sent, &self.sums, &self.counted, &self.logged];
        all.into_iter().flatten().flat_map(|count| count.to_le_bytes()).collect()
    }

    fn decode(bytes: &[u8], size: usize) -> Counts {
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let part = |at: usize| words[at * size..(at + 1) * size].to_vec();
        Counts { sent: part(0), sums: part(1), counted: part(2), logged: part(3) }
    }
}

#[derive(Default)]
struct State {
    counts: Counts,
    /// By rank: the number of the next message from there, and how many of this one's were answered.
    next: Vec<u64>,
    answered: Vec<u64>,
    /// Rounds of the collective that goes on for as long as all live, and whether one is under way.
    rounds: u64,
    is_collecting: bool,
    has_lost: bool,
    /// Others may have left.
    has_judged: bool,
}

struct Rank {
    runtime: Runtime,
    rng: u64,
    victim: u32,
    context: cci_am::Context,
    /// All but the victim.
    living: Team,
    memory: Memory,
    bases: Vec<u64>,
    /// Two ones, and entries of the log.
    ones: Memory,
    entries: Memory,
    changes: usize,
    state: Rc<RefCell<State>>,
}

impl Rank {
    fn open(seed: u64) -> Rank {
        let mut job = Job::join().unwrap();
        let mut runtime = Runtime::open(&mut job, cci::Options::default()).unwrap();
        let (rank, size) = (runtime.rank(), runtime.size());
        let victim = victim(seed, size);
        let context = runtime.context().unwrap();
        let none = vec![0; size as usize];
        let counts = Counts::new(size as usize);
        let state = State { counts, next: none.clone(), answered: none, ..State::default() };
        let state = Rc::new(RefCell::new(state));
        let of = state.clone();
        let request = move |runtime: &mut Runtime, message: &Message<'_>| {
            let next = &mut of.borrow_mut().next[message.sender() as usize];
            assert_eq!((message.args(), message.data().len() as u64), (&[*next as i64][..], *next % 300));
            *next += 1;
            runtime.reply(message.token(), 1, &[], &[]).unwrap();
        };
        runtime.register(context, 0, request).unwrap();
        let of = state.clone();
        let answer = move |_: &mut Runtime, message: &Message<'_>| {
            of.borrow_mut().answered[message.sender() as usize] += 1;
        };
        runtime.register(context, 1, answer).unwrap();
        let of = state.clone();
        runtime.on_gone(move |rank, why| {
            let mut state = of.borrow_mut();
            assert!(rank == victim || state.has_judged, "{rank}: {why}");
            state.has_lost = true;
        });
        let memory = runtime.allocate(MEMORY_BYTES).unwrap();
        let base = memory.as_ptr().addr() as u64;
        assert!(memory.write(8 * END, &(base + 8 * LOG as u64).to_ne_bytes()));
        runtime.register_memory(&memory).unwrap();
        let ones = runtime.allocate(16).unwrap();
        assert!(ones.write(0, &[1_u64.to_ne_bytes(), 1_u64.to_ne_bytes()].concat()));
        let entries = runtime.allocate(CHANGES_MAX * ENTRY_BYTES).unwrap();
        let bases = job.exchange(&base.to_le_bytes()).unwrap();
        let bases = bases.iter().map(|base| u64::from_le_bytes(*base.first_chunk().unwrap())).collect();
        let living = runtime.split_team(Team::WORLD, i32::from(rank == victim), rank as i32).unwrap();
        let rng = mix(seed << 32 | u64::from(rank));
        Rank { runtime, rng, victim, context, living, memory, bases, ones, entries, changes: 0, state }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.rng) % bound
    }

    fn run(mut self) {
        // All are connected then: who asks one that is dead for a connection waits for a minute, as it might only be late.
        (0..self.runtime.size()).for_each(|to| self.send(to));
        while self.state.borrow().answered.contains(&0) {
            self.runtime.wait(None).unwrap();
        }
        // The one that dies may have passed the barrier, and be dead before another one has.
        let barrier = self.runtime.barrier();
        if self.is_gone(barrier) {
            self.state.borrow_mut().has_lost = true;
        }
        if self.runtime.rank() == self.victim {
            let after = Duration::from_micros(self.below(CRASH_US));
            std::thread::spawn(move || {
                std::thread::sleep(after);
                abort();
            });
        }
        while !self.state.borrow().has_lost {
            self.step();
        }
        self.runtime.fence_all().unwrap();
        let is_left = |state: &State, victim: usize| {
            let is_unanswered = |(rank, sent): (usize, &u64)| rank != victim && state.answered[rank] < *sent;
            state.is_collecting || state.counts.sent.iter().enumerate().any(is_unanswered)
        };
        while is_left(&self.state.borrow(), self.victim as usize) {
            self.runtime.wait(Some(Duration::from_millis(10))).unwrap();
        }
        self.judge();
        self.state.borrow_mut().has_judged = true;
        // Whoever has heard of all others leaves, and these may lose it before they have.
        let _ = self.runtime.collective(self.living, Collective::Barrier);
    }

    /// Does one of all that there is.
    fn step(&mut self) {
        let to = self.below(u64::from(self.runtime.size())) as u32;
        self.collect();
        match self.below(8) {
            0..4 => self.send(to),
            4 if self.changes < CHANGES_MAX => self.add(to),
            5 if self.changes < CHANGES_MAX => self.count(to),
            6 if self.changes < CHANGES_MAX => self.log(to),
            _ => drop(self.runtime.poll()),
        }
    }

    fn is_gone(&self, result: Result<()>) -> bool {
        match result {
            Ok(()) => false,
            Err(AmError::Gone { rank, .. }) if rank == self.victim => true,
            Err(error) => panic!("{error}"),
        }
    }

    fn send(&mut self, to: u32) {
        let number = self.state.borrow().counts.sent[to as usize];
        let data = vec![1; number as usize % 300];
        let sent = self.runtime.request(self.context, to, 0, &[number as i64], &data);
        if !self.is_gone(sent) {
            self.state.borrow_mut().counts.sent[to as usize] += 1;
        }
    }

    /// What is called at the end of a change, which is counted there.
    fn end<T>(
        &mut self,
        to: u32,
        count: fn(&mut Counts) -> &mut Vec<u64>,
    ) -> impl FnOnce(&mut Runtime, Result<T>) + 'static {
        self.changes += 1;
        let (state, victim) = (self.state.clone(), self.victim);
        move |_, result| match result {
            Ok(_) => count(&mut state.borrow_mut().counts)[to as usize] += 1,
            Err(AmError::Gone { rank, .. }) if rank == victim && to == victim => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Adds one to the sum of all and to that of this rank, in one operation.
    fn add(&mut self, to: u32) {
        let apart = 8 * (OWN + self.runtime.rank() as usize);
        let pair = Description::strided(&[8, 2], &[apart as isize]).unwrap();
        let there = (self.bases[to as usize], Elements { count: 1, description: pair });
        let row = Elements { count: 2, description: Description::bytes(8).unwrap() };
        let end = self.end(to, |counts| &mut counts.sums);
        let what = (Accumulation::Reduce(SUM), Number::U64);
        let begun = self.runtime.accumulate(what, to, there, (&self.ones, 0, row), end);
        self.is_gone(begun);
    }

    fn count(&mut self, to: u32) {
        let one = Atomic { kind: AtomicKind::FetchAdd, width: WORD, operand: 1, compare: 0 };
        let (at, end) =
            (self.bases[to as usize] + 8 * COUNTER as u64, self.end(to, |counts| &mut counts.counted));
        let begun = self.runtime.atomic(to, at, one, end);
        self.is_gone(begun);
    }

    /// Appends the number of this rank and of the change.
    fn log(&mut self, to: u32) {
        let offset = self.changes * ENTRY_BYTES;
        let entry = [u64::from(self.runtime.rank()), self.changes as u64].map(u64::to_ne_bytes).concat();
        assert!(self.entries.write(offset, &entry));
        let part = Part { memory: self.entries.clone(), offset, len_bytes: ENTRY_BYTES };
        let (at, end) = (self.bases[to as usize] + 8 * END as u64, self.end(to, |counts| &mut counts.logged));
        let begun = self.runtime.indexed_put(to, at, part, end);
        self.is_gone(begun);
    }

    /// Keeps a sum over all ranks under way.
    fn collect(&mut self) {
        let round = {
            let mut state = self.state.borrow_mut();
            if state.is_collecting || state.has_lost {
                return;
            }
            state.is_collecting = true;
            state.rounds += 1;
            state.rounds
        };
        let (state, size) = (self.state.clone(), u64::from(self.runtime.size()));
        // Longer ones take other steps.
        let words = if round % 8 == 0 { 5_000 } else { 1 };
        let data = round.to_ne_bytes().repeat(words);
        let done = move |_: &mut Runtime, result: Result<Vec<u8>>| {
            let mut state = state.borrow_mut();
            state.is_collecting = false;
            match result {
                Ok(sums) => assert_eq!(sums, (size * round).to_ne_bytes().repeat(words)),
                Err(AmError::Gone { .. }) => state.has_lost = true,
                Err(error) => panic!("{error}"),
            }
        };
        let allreduce = Collective::Allreduce { data, with: (Number::U64, SUM) };
        let begun = self.runtime.collect(Team::WORLD, allreduce, done);
        if self.is_gone(begun) {
            let mut state = self.state.borrow_mut();
            (state.is_collecting, state.has_lost) = (false, true);
        }
    }

    /// Compares what the others have done with what is here.
    fn judge(&mut self) {
        let (size, me) = (self.runtime.size() as usize, self.runtime.rank() as usize);
        let mine = self.state.borrow().counts.encode();
        let all = self.runtime.collective(self.living, Collective::Allgather { data: mine.clone() }).unwrap();
        let living: Vec<usize> = (0..size).filter(|rank| *rank != self.victim as usize).collect();
        let counts: Vec<Counts> = all.chunks(mine.len()).map(|bytes| Counts::decode(bytes, size)).collect();
        let word = |at: usize| self.memory.load(8 * at, WORD).unwrap();
        let of_all =
            |count: fn(&Counts) -> &Vec<u64>| counts.iter().map(|counts| count(counts)[me]).sum::<u64>();
        for (rank, counts) in living.iter().zip(&counts) {
            assert_eq!(self.state.borrow().next[*rank], counts.sent[me], "messages of {rank}");
            assert_eq!(word(OWN + rank), counts.sums[me], "sums of {rank}");
        }
        assert_eq!(word(0), (0..size).map(|rank| word(OWN + rank)).sum::<u64>(), "sums are made whole");
        let counted = of_all(|counts| &counts.counted);
        assert!((counted..=counted + CHANGES_MAX as u64).contains(&word(COUNTER)), "{counted} were counted");
        let end = word(END) - self.bases[me] - 8 * LOG as u64;
        let mut log = vec![0; end as usize];
        assert!(self.memory.read(8 * LOG, &mut log));
        let mut entries: Vec<_> = log.chunks(ENTRY_BYTES).map(<[u8]>::to_vec).collect();
        let len = entries.len();
        entries.sort();
        entries.dedup();
        assert_eq!(entries.len(), len, "each once");
        for (rank, counts) in living.iter().zip(&counts) {
            let is_of = |entry: &&Vec<u8>| entry[..8] == (*rank as u64).to_ne_bytes();
            assert_eq!(entries.iter().filter(is_of).count() as u64, counts.logged[me], "entries of {rank}");
        }
    }
}
