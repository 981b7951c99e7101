//! A table of words that is spread over all processes of a job: each keeps the keys that fall to it, others ask it by active messages.
//!
//! `cargo cci run -n 4 -- cargo run -qrp cci-am --example table`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example for people")]

use cci_am::{Context, Message, Runtime};
use cci_job::Job;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Keys that each rank puts in, and looks up.
const KEYS: i64 = 100_000;
/// Lines about how far it is come no sooner after each other.
const PROGRESS: Duration = Duration::from_millis(500);

// Handlers: to put a value in, to look one up, and for what was found.
const INSERT: u16 = 0;
const LOOK_UP: u16 = 1;
const FOUND: u16 = 2;

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut job = Job::join()?;
    let mut runtime = Runtime::open(&mut job, cci::Options::default())?;
    let context = runtime.named_context("table")?;
    let table = Rc::new(RefCell::new(HashMap::new()));
    let (answers, wrong) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));

    let entries = table.clone();
    runtime.register(context, INSERT, move |_, message| {
        entries.borrow_mut().insert(message.args()[0], message.data().to_vec());
    })?;
    let entries = table.clone();
    runtime.register(context, LOOK_UP, move |runtime, message| {
        let entries = entries.borrow();
        let value = entries.get(&message.args()[0]).map(Vec::as_slice).unwrap_or_default();
        // There is always space for a reply, and this context is not freed.
        let replied = runtime.reply(message.token(), FOUND, message.args(), value);
        debug_assert!(replied.is_ok());
    })?;
    let (count, errors) = (answers.clone(), wrong.clone());
    runtime.register(context, FOUND, move |_, message: &Message<'_>| {
        count.set(count.get() + 1);
        if message.data() != word(message.args()[0]).as_bytes() {
            errors.set(errors.get() + 1);
        }
    })?;

    let start = Instant::now();
    let first = i64::from(runtime.rank()) * KEYS;
    send_all(&mut runtime, context, INSERT, first, |key| word(key).into_bytes())?;
    // Nobody looks for what is still on its way: a message that was sent before another one is handled before it, but only between two.
    runtime.quiet()?;
    // This rank looks up what the next one has put in.
    let others = (i64::from(runtime.rank()) + 1) % i64::from(runtime.size()) * KEYS;
    send_all(&mut runtime, context, LOOK_UP, others, |_| Vec::new())?;
    while answers.get() < KEYS {
        runtime.wait(None)?;
    }
    runtime.barrier()?;
    let elapsed = start.elapsed();

    let here = table.borrow().len();
    let rank = runtime.rank();
    if wrong.get() > 0 {
        return Err(format!("rank {rank}: {} of {KEYS} answers are wrong", wrong.get()).into());
    }
    println!("rank {rank}: {KEYS} keys put in and found again, {here} kept here");
    if rank == 0 {
        let messages = 3.0 * KEYS as f64 * f64::from(runtime.size());
        let rate = messages / elapsed.as_secs_f64() / 1e6;
        println!("{} ranks, {messages} active messages in {elapsed:.2?}: {rate:.2} M/s", runtime.size());
    }
    Ok(runtime.finish()?)
}

/// One message for each of this rank's keys, to whoever keeps it.
fn send_all(
    runtime: &mut Runtime,
    context: Context,
    handler: u16,
    first: i64,
    data: impl Fn(i64) -> Vec<u8>,
) -> Result<(), Box<dyn Error>> {
    let mut said = Instant::now();
    for key in first..first + KEYS {
        let keeper = (hash(key) % u64::from(runtime.size())) as u32;
        runtime.request(context, keeper, handler, &[key], &data(key))?;
        if runtime.rank() == 0 && said.elapsed() >= PROGRESS {
            said = Instant::now();
            let what = if handler == INSERT { "put in" } else { "looked up" };
            eprintln!("rank 0: {} % {what}", (key - first) * 100 / KEYS);
        }
    }
    Ok(())
}

fn word(key: i64) -> String {
    format!("value of {key}")
}

/// Spreads keys that follow each other (Steele, Lea and Flood 2014, the finaliser of SplitMix).
fn hash(key: i64) -> u64 {
    let mixed = (key as u64 ^ (key as u64 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
