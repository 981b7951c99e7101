//! Counts the words of a text by all ranks of a job together:
//!
//! ```sh
//! cargo cci run -n 4 cargo run --release -p cci-acp --example words [FILE]
//! ```
//!
//! Each rank takes every so-manieth line and enters its words into a multiset over the memory of all ranks. Then it looks through the words in its own
//! memory, and enters the most frequent of them into a list on rank 0, which prints the first ten.

use cci_acp::{GlobalAddress, GlobalMemory, List, MultiSet, Order};
use std::collections::HashMap;
use std::error::Error;
use std::time::Instant;

const TEXT: &str = include_str!("../../../docs/guide.md");
const TOP: usize = 10;

#[allow(dead_code, reason = "a test has this file as a module, and calls run")]
fn main() {
    run();
}

/// What each rank does. It ends with 1 if something is wrong.
pub fn run() {
    if let Err(error) = count() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn count() -> Result<(), Box<dyn Error>> {
    let text = match std::env::args().nth(1) {
        Some(file) if !file.starts_with("--") => std::fs::read_to_string(file)?,
        _ => TEXT.to_owned(),
    };
    let mut job = cci_job::Job::join()?;
    let context = cci::Context::new()?;
    let device = context.device("any").ok_or("no device any")?;
    let mut global = GlobalMemory::open_with_heap(&mut job, device, cci::Options::default(), 64, 8 << 20)?;
    let (rank, size) = (global.rank(), global.size());

    // Rank 0 makes the containers, and its starter memory says where they are.
    if rank == 0 {
        let ranks: Vec<u32> = (0..size).collect();
        let words = MultiSet::create(&mut global, &ranks, 1024, 0)?.handle();
        let top = List::create(&mut global, 0)?.handle();
        let handles = [words, top].map(|handle| handle.to_bits().to_ne_bytes());
        assert!(global.starter_memory().write(0, handles.as_flattened()));
    }
    global.sync()?;
    let own = global.starter(rank)?.checked_add(16).ok_or("starter memory is too short")?;
    let copied = global.copy(own, global.starter(0)?, 16, Order::Now)?;
    global.complete(copied)?;
    let mut handles = [[0; 8]; 2];
    assert!(global.starter_memory().read(16, handles.as_flattened_mut()));
    let [words, top] = handles.map(|handle| GlobalAddress::from_bits(u64::from_ne_bytes(handle)));
    let words = MultiSet::open(&mut global, words.ok_or("there is no multiset")?)?;
    let top = List::open(top.ok_or("there is no list")?);

    let started = Instant::now();
    let mut entered = 0_u64;
    for line in text.lines().skip(rank as usize).step_by(size as usize) {
        for word in words_of(line) {
            words.insert(&mut global, word.to_lowercase().as_bytes())?;
            entered += 1;
        }
    }
    global.sync()?;
    let seconds = started.elapsed().as_secs_f64();
    println!("rank {rank}: {entered} words entered, {:.0} a second", entered as f64 / seconds);

    // The most frequent of those in this rank's memory.
    let mut frequent = Vec::new();
    let mut entries = words.local_entries(&global);
    while let Some((word, times)) = entries.next(&mut global)? {
        frequent.push((MultiSet::times(&times)?, word));
    }
    frequent.sort_unstable_by(|one, other| other.cmp(one));
    for (times, word) in frequent.into_iter().take(TOP) {
        top.push_back(&mut global, &[&times.to_be_bytes()[..], &word].concat(), rank)?;
    }
    global.sync()?;
    if rank == 0 {
        top.sort_by(&mut global, |one, other| other.cmp(one))?;
        report(&mut global, top, &text)?;
    }
    global.close()?;
    Ok(())
}

/// Prints the most frequent words, and compares them with a count by one process.
fn report(global: &mut GlobalMemory, top: List, text: &str) -> Result<(), Box<dyn Error>> {
    let mut expected: HashMap<String, u64> = HashMap::new();
    for word in text.lines().flat_map(words_of) {
        *expected.entry(word.to_lowercase()).or_default() += 1;
    }
    for element in top.to_vec(global)?.into_iter().take(TOP) {
        let (times, word) = element.split_first_chunk().ok_or("the list has something else")?;
        let (times, word) = (u64::from_be_bytes(*times), String::from_utf8_lossy(word));
        println!("{times:6} {word}");
        if expected.get(&*word) != Some(&times) {
            return Err(format!("one process counts {:?} times {word}", expected.get(&*word)).into());
        }
    }
    println!("all counts are right");
    Ok(())
}

fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
}
