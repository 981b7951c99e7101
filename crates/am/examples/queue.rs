//! Work that all processes of a job share: a queue in the memory of rank 0. Tasks are appended by indexed puts and taken by the tickets that
//! a fetch-and-add gives out. The work is to count primes, and an accumulate adds up what all have found.
//!
//! `cargo cci run -n 4 -- cargo run -qrp cci-am --example queue`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example for people")]

use cci::{Atomic, AtomicKind, AtomicWidth, Memory};
use cci_am::description::Description;
use cci_am::{Accumulation, Elements, Number, Part, Reduction, Runtime};
use cci_job::Job;
use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Primes are counted below this, in so many tasks. There are known to be so many.
const NUMBERS: u64 = 20_000_000;
const TASKS: u64 = 1_000;
const PRIMES: u64 = 1_270_607;
/// Lines about how far it is come no sooner after each other.
const PROGRESS: Duration = Duration::from_millis(500);

// The memory of rank 0, in words: how many primes were found, how many tickets are out, where the next task goes, and the tasks.
const FOUND: u64 = 0;
const TICKETS: u64 = 8;
const END: u64 = 16;
const FIRST: u64 = 24;
/// A task is the number that it begins with.
const TASK_BYTES: u64 = 8;

type Failure = Box<dyn Error>;

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Failure> {
    let mut job = Job::join()?;
    let mut runtime = Runtime::open(&mut job, cci::Options::default())?;
    let (rank, size) = (u64::from(runtime.rank()), u64::from(runtime.size()));
    let memory = runtime.allocate((FIRST + TASKS * TASK_BYTES) as usize)?;
    let mine = memory.as_ptr().addr() as u64;
    write(&memory, END, mine + FIRST)?;
    runtime.register_memory(&memory)?;
    let bases = job.exchange(&mine.to_le_bytes())?;
    let base = bases.first().and_then(|bytes| bytes.first_chunk()).ok_or("rank 0 has no queue")?;
    let queue = Queue { base: u64::from_le_bytes(*base), word: runtime.allocate(8)? };

    let start = Instant::now();
    // Each rank brings some of the tasks. Which comes where is chance.
    for task in (rank..TASKS).step_by(size as usize) {
        queue.append(&mut runtime, task * (NUMBERS / TASKS) + 1)?;
    }
    let (mut done, mut found, mut said) = (0, 0, start);
    loop {
        let ticket = queue.ticket(&mut runtime)?;
        if ticket >= TASKS {
            break;
        }
        found += primes(queue.task(&mut runtime, ticket)?, NUMBERS / TASKS);
        done += 1;
        if rank == 0 && said.elapsed() >= PROGRESS {
            said = Instant::now();
            eprintln!("rank 0: {} % of {TASKS} tasks are taken", ticket * 100 / TASKS);
        }
    }
    queue.report(&mut runtime, found)?;
    runtime.global_fence()?;
    let elapsed = start.elapsed();
    println!("rank {rank}: {done} tasks, {found} primes");
    if rank == 0 {
        let all = memory.load(FOUND as usize, AtomicWidth::Eight).map_err(|error| format!("{error:?}"))?;
        if all != PRIMES {
            return Err(format!("{all} primes were found below {NUMBERS}, and there are {PRIMES}").into());
        }
        let rate = TASKS as f64 / elapsed.as_secs_f64();
        println!("{size} ranks, {TASKS} tasks in {elapsed:.2?}: {rate:.0} tasks/s");
        println!("all {all} primes below {NUMBERS} were found, each once");
    }
    Ok(runtime.finish()?)
}

/// The queue at rank 0, and a word for what is put there and got from there.
struct Queue {
    base: u64,
    word: Memory,
}

impl Queue {
    fn append(&self, runtime: &mut Runtime, task: u64) -> Result<(), Failure> {
        write(&self.word, 0, task)?;
        let (part, end) = (Part { memory: self.word.clone(), offset: 0, len_bytes: 8 }, End::default());
        runtime.indexed_put(0, self.base + END, part, end.note(|()| 0))?;
        end.wait(runtime).map(drop)
    }

    /// The number of a task that nobody else takes.
    fn ticket(&self, runtime: &mut Runtime) -> Result<u64, Failure> {
        self.add(runtime, TICKETS, 1)
    }

    /// The task of a ticket, which may still have to come.
    fn task(&self, runtime: &mut Runtime, ticket: u64) -> Result<u64, Failure> {
        let at = FIRST + ticket * TASK_BYTES;
        while self.add(runtime, END, 0)? <= self.base + at {
            runtime.wait(Some(Duration::from_millis(1)))?;
        }
        self.add(runtime, at, 0)
    }

    /// Adds to how many primes were found.
    fn report(&self, runtime: &mut Runtime, found: u64) -> Result<(), Failure> {
        write(&self.word, 0, found)?;
        let (number, end) = (Elements { count: 1, description: Description::bytes(8)? }, End::default());
        let sum = (Accumulation::Reduce(Reduction::Add), Number::U64);
        let (remote, local) = ((self.base + FOUND, number.clone()), (&self.word, 0, number));
        runtime.accumulate(sum, 0, remote, local, end.note(|()| 0))?;
        end.wait(runtime).map(drop)
    }

    /// Adds to a word of the queue's, and returns what it was.
    fn add(&self, runtime: &mut Runtime, at: u64, operand: u64) -> Result<u64, Failure> {
        let (kind, width) = (AtomicKind::FetchAdd, AtomicWidth::Eight);
        let end = End::default();
        let change = Atomic { kind, width, operand, compare: 0 };
        runtime.atomic(0, self.base + at, change, end.note(|value| value))?;
        end.wait(runtime)
    }
}

/// How an operation ends.
#[derive(Default)]
struct End(Rc<Cell<Option<cci_am::Result<u64>>>>);

impl End {
    /// What an operation is to call.
    fn note<T>(
        &self,
        value: impl FnOnce(T) -> u64 + 'static,
    ) -> impl FnOnce(&mut Runtime, cci_am::Result<T>) + 'static {
        let end = self.0.clone();
        move |_, result| end.set(Some(result.map(value)))
    }

    fn wait(self, runtime: &mut Runtime) -> Result<u64, Failure> {
        runtime.fence(0)?;
        Ok(self.0.take().ok_or("a fence waits for everything")??)
    }
}

fn write(memory: &Memory, at: u64, word: u64) -> Result<(), Failure> {
    let is_inside = memory.write(at as usize, &word.to_ne_bytes());
    is_inside.then_some(()).ok_or("the memory is too short".into())
}

/// How many there are among so many numbers.
fn primes(first: u64, count: u64) -> u64 {
    // Multiples of each number are marked up to the root of the last one.
    let mut is_prime = vec![true; count as usize];
    for factor in (2..).take_while(|factor| factor * factor < first + count) {
        let least = (factor * factor).max(first.next_multiple_of(factor));
        for multiple in (least..first + count).step_by(factor as usize) {
            is_prime[(multiple - first) as usize] = false;
        }
    }
    // One is no prime.
    is_prime.into_iter().zip(first..).filter(|&(is_prime, number)| is_prime && number > 1).count() as u64
}
