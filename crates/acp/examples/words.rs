//! Counts the words of a text by all ranks of a job together:
//!
//! ```sh
//! cargo cci run -n 4 cargo run --release -p cci-acp --example words [FILE]
//! ```
//!
//! Rank 0 streams the lines of the text to the others through channels. Each rank enters the words of its lines into a multiset over the memory of all ranks.
//! Then it looks through the words in its own memory, and enters the most frequent of them into a list on rank 0, which prints the first ten.

use cci_acp::{GlobalAddress, GlobalMemory, List, MultiSet, Receiver, Sender, Slots};
use std::collections::HashMap;
use std::error::Error;
use std::time::Instant;

const TEXT: &str = include_str!("../../../docs/guide.md");
const TOP: usize = 10;
/// Of each end of a channel.
const SLOTS: Slots = Slots { count: 16, bytes: 2_048 };
/// A longer line ends the program.
const LINE_BYTES_MAX: usize = 1 << 20;

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

    // Rank 0 makes the containers, and gives the others their handles.
    let mut handles = [0; 2];
    if rank == 0 {
        let ranks: Vec<u32> = (0..size).collect();
        let words = MultiSet::create(&mut global, &ranks, 1024, 0)?.handle();
        handles = [words, List::create(&mut global, 0)?.handle()].map(GlobalAddress::to_bits);
    }
    let mut shared = |handle| -> Result<GlobalAddress, Box<dyn Error>> {
        Ok(GlobalAddress::from_bits(global.broadcast(0, handle)?).ok_or("there is no container")?)
    };
    let (words, top) = (shared(handles[0])?, List::open(shared(handles[1])?));
    let words = MultiSet::open(&mut global, words)?;

    let started = Instant::now();
    let (lines, entered) = if rank == 0 && size > 1 {
        (stream(&mut global, &text)?, 0)
    } else if rank == 0 {
        let entered = text.lines().map(|line| enter(&mut global, &words, line)).sum::<Result<u64, _>>()?;
        (text.lines().count(), entered)
    } else {
        receive(&mut global, &words)?
    };
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "rank {rank}: {lines} lines, {:.0} a second; {entered} words entered, {:.0} a second",
        lines as f64 / seconds,
        entered as f64 / seconds
    );
    global.sync()?;

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

/// Sends the lines to the other ranks, each in turn, and then what no line is: one of no bytes. Returns how many lines there were.
fn stream(global: &mut GlobalMemory, text: &str) -> Result<usize, Box<dyn Error>> {
    let others = 1..global.size();
    let senders = others.map(|rank| Sender::create(global, rank, SLOTS)).collect::<Result<Vec<_>, _>>()?;
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    for (number, (line, sender)) in lines.iter().zip(senders.iter().cycle()).enumerate() {
        sender.send(global, line.as_bytes())?;
        if (number + 1).is_multiple_of(lines.len().div_ceil(4)) {
            eprintln!("rank 0: {} % of {} lines", 100 * (number + 1) / lines.len(), lines.len());
        }
    }
    for sender in senders {
        sender.send(global, b"")?;
        sender.free(global)?.wait(global)?;
    }
    Ok(lines.len())
}

/// Enters the words of all lines that come. Returns how many lines and words there were.
fn receive(global: &mut GlobalMemory, words: &MultiSet) -> Result<(usize, u64), Box<dyn Error>> {
    let receiver = Receiver::create(global, 0, SLOTS)?;
    let (mut line, mut lines, mut entered) = (vec![0; LINE_BYTES_MAX], 0, 0);
    loop {
        let len = receiver.receive(global, &mut line)?;
        let text = std::str::from_utf8(line.get(..len).unwrap_or_default())?;
        if text.is_empty() {
            receiver.free(global)?.wait(global)?;
            return Ok((lines, entered));
        }
        entered += enter(global, words, text)?;
        lines += 1;
    }
}

/// Enters the words of a line. Returns how many there were.
fn enter(global: &mut GlobalMemory, words: &MultiSet, line: &str) -> Result<u64, Box<dyn Error>> {
    let mut entered = 0;
    for word in words_of(line) {
        words.insert(global, word.to_lowercase().as_bytes())?;
        entered += 1;
    }
    Ok(entered)
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
