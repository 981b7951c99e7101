//! What `cargo xtask counts` runs under callgrind for ranks of jobs: `ranks SCENARIO COUNT`.
//!
//! Two ranks are in one thread and are polled by a fixed plan, as the endpoints of `exchanges` are. It is a program of its own, so that a change of
//! `cci-am` or `cci-acp` leaves the code of that one as it is.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for developers")]

mod global;

use cci::{Atomic, AtomicKind, AtomicWidth, Attribute, Memory, Options, Polled, SendFlags};
use cci_am::description::{Description, Readable, Writable};
use cci_am::process::Process;
use cci_am::{Collective, Context, Number, Part, Reduction, Runtime, Team};
use cci_job::{RankEvent, Ranks};
use cci_testkit::conformance::{SHM, UDP4};
use cci_testkit::pair::{PATIENCE, Pair};
use std::cell::Cell;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Of a message.
const BYTES: usize = 4;
/// Before counting: ranks connect and map each other's memory, tables have grown.
const WARM_UP: usize = 2_000;
/// Messages in a row, each of which is sent by itself.
const ROW: usize = 32;
/// The most polls that are counted for a row.
const POLLS_MAX: usize = 8;
/// The handler of messages that are not answered.
const HANDLER: u16 = 0;
const ADD_ONE: Atomic =
    Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
/// Blocks of the vector that is packed, their length and their distance.
const BLOCKS: usize = 512;
const BLOCK_BYTES: usize = 8;
const STRIDE_BYTES: usize = 16;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (scenario, count) = match &words[..] {
        [scenario, count] => (scenario.as_str(), count.parse().unwrap_or(0)),
        _ => ("", 0),
    };
    let (what, on) = scenario.split_once('-').unwrap_or_default();
    let device = [SHM, UDP4].into_iter().find(|known| known.name == on);
    let pair = device.map(|device| Pair::open(&device, &Options::default()));
    match (what, pair) {
        (_, Some(Err(reason))) => println!("skipped: {reason}"),
        ("handler", Some(Ok(pair))) => handled(pair, count),
        ("handler_stream", Some(Ok(pair))) => handled_in_a_row(pair, count),
        ("am", Some(Ok(pair))) => messages(pair, count),
        ("am_stream", Some(Ok(pair))) => messages_in_a_row(pair, count),
        ("barrier", Some(Ok(pair))) => barriers(pair, count),
        ("allreduce", Some(Ok(pair))) => allreduces(pair, count),
        ("put", Some(Ok(pair))) => puts(pair, count),
        ("add", Some(Ok(pair))) => additions(pair, count),
        ("pack", None) if on == "vector" => pack(count),
        ("fetch", Some(Ok(pair))) => global::fetches(pair, count),
        ("acp_put", Some(Ok(pair))) => global::copies(pair, count, true),
        ("acp_get", Some(Ok(pair))) => global::copies(pair, count, false),
        ("acp_add", Some(Ok(pair))) => global::additions(pair, count),
        ("acp_channel", Some(Ok(pair))) => global::channels(pair, count),
        ("map_find", Some(Ok(pair))) => global::finds(pair, count),
        ("map_insert", Some(Ok(pair))) => global::inserts(pair, count),
        _ => {
            eprintln!(
                "usage: ranks WHAT-DEVICE|pack-vector COUNT, where WHAT is handler, handler_stream, am, am_stream, barrier, \
                 allreduce, put, add, fetch, acp_put, acp_get, acp_add, acp_channel, map_find or map_insert"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Some rounds to warm up, then those that are counted. A round returns how often something had not arrived when it was looked for.
fn rounds(count: usize, mut round: impl FnMut(bool) -> usize) {
    (0..WARM_UP).for_each(|_| {
        round(false);
    });
    let late: usize = (0..count).map(|_| round(true)).sum();
    println!("late\t{late}");
}

/// Acts, and what it does is counted, or not.
#[inline]
fn act<T>(is_counted: bool, act: impl FnOnce() -> T) -> T {
    if is_counted { counted(act) } else { act() }
}

/// Never inlined: callgrind finds it by its name.
#[inline(never)]
fn counted<T>(act: impl FnOnce() -> T) -> T {
    act()
}

/// Turns until `done`. Returns how often that took a pause, uncounted.
fn until(mut done: impl FnMut() -> bool) -> usize {
    if done() {
        return 0;
    }
    let started = Instant::now();
    let mut pauses = 0;
    while !done() {
        pauses += 1;
        assert!(started.elapsed() < PATIENCE, "nothing came");
        std::thread::sleep(Duration::from_micros(20));
    }
    pauses
}

/// What active messages are compared with: the core's own, there and back, without completions, each taken by a handler.
fn handled(mut pair: Pair, count: usize) {
    let connections = pair.connect(Attribute::ReliableOrdered);
    rounds(count, |is_counted| {
        [(0, 1), (1, 0)]
            .into_iter()
            .map(|(from, to)| {
                let connection = connections[from];
                let [one, other] = &mut pair.ends;
                let (sender, receiver) = if from < to { (one, other) } else { (other, one) };
                let mut messages = 0;
                let mut take = |polled: Polled<'_>| match polled {
                    Polled::Message(message) => messages += usize::from(message.len() == BYTES),
                    Polled::Event(other) => panic!("{other:?}"),
                };
                act(is_counted, || {
                    sender.send(connection, &[7; BYTES], 0, SendFlags::SILENT).expect("there is room");
                    receiver.poll(1, &mut take)
                });
                if messages > 0 {
                    return 0;
                }
                until(|| {
                    receiver.poll(1, |_| messages += 1);
                    sender.poll(1, |_| {});
                    messages > 0
                })
            })
            .sum()
    });
}

/// What rows of active messages are compared with: rows of the core's own, there and back, each message sent by itself and taken by
/// a handler.
fn handled_in_a_row(mut pair: Pair, count: usize) {
    let connections = pair.connect(Attribute::ReliableOrdered);
    rounds(count, |is_counted| {
        [(0, 1), (1, 0)]
            .into_iter()
            .map(|(from, to)| {
                let connection = connections[from];
                let [one, other] = &mut pair.ends;
                let (sender, receiver) = if from < to { (one, other) } else { (other, one) };
                let messages = Cell::new(0);
                let take = |polled: Polled<'_>| match polled {
                    Polled::Message(message) => {
                        messages.set(messages.get() + usize::from(message.len() == BYTES))
                    }
                    Polled::Event(other) => panic!("{other:?}"),
                };
                act(is_counted, || {
                    for _ in 0..ROW {
                        sender.send(connection, &[7; BYTES], 0, SendFlags::SILENT).expect("there is room");
                    }
                    for _ in 0..POLLS_MAX {
                        receiver.poll(ROW, take);
                        if messages.get() >= ROW {
                            break;
                        }
                    }
                });
                until(|| {
                    if messages.get() < ROW {
                        receiver.poll(ROW, take);
                        sender.poll(1, |_| {});
                    }
                    messages.get() >= ROW
                })
            })
            .sum()
    });
}

/// Two ranks, each with one context.
struct TwoRanks {
    ranks: [Runtime; 2],
    context: Context,
    /// The messages that have come to both.
    arrived: Rc<Cell<usize>>,
}

impl TwoRanks {
    fn over(Pair { ends, .. }: Pair) -> TwoRanks {
        let mut ranks = Ranks::of_one_process(ends.into()).expect("two endpoints").into_iter();
        let mut ranks = [(); 2].map(|()| Runtime::over(Process::new(ranks.next().expect("two ranks"))));
        let arrived = Rc::new(Cell::new(0));
        let [context, _] = ranks.each_mut().map(|rank| {
            let context = rank.context().expect("the first one");
            let arrived = arrived.clone();
            let take = move |_: &mut Runtime, message: &cci_am::Message<'_>| {
                assert_eq!(message.data().len(), BYTES);
                arrived.set(arrived.get() + 1);
            };
            rank.register(context, HANDLER, take).expect("the first handler");
            context
        });
        TwoRanks { ranks, context, arrived }
    }

    /// Memory of both, which the second one has registered, as the first one has its own.
    fn memory(&mut self) -> [Memory; 2] {
        self.ranks.each_mut().map(|rank| {
            let memory = rank.allocate(4096).expect("memory");
            rank.register_memory(&memory).expect("room in the table");
            memory
        })
    }

    /// Has `start` start an operation until the target's memory is mapped, so that operations end as they start.
    fn map(&mut self, mut start: impl FnMut(&mut Runtime, Rc<Cell<bool>>)) {
        for _ in 0..1_000 {
            let is_done = Rc::new(Cell::new(false));
            start(&mut self.ranks[0], is_done.clone());
            until(|| {
                for rank in &mut self.ranks {
                    rank.poll();
                }
                is_done.get()
            });
        }
    }
}

/// Active messages there and back.
fn messages(pair: Pair, count: usize) {
    let TwoRanks { mut ranks, context, arrived } = TwoRanks::over(pair);
    rounds(count, |is_counted| {
        [(0, 1), (1, 0)]
            .into_iter()
            .map(|(from, to)| {
                let [one, other] = &mut ranks;
                let (sender, receiver) = if from < to { (one, other) } else { (other, one) };
                let before = arrived.get();
                act(is_counted, || {
                    sender.request(context, to, HANDLER, &[], &[7; BYTES]).expect("there is such a rank");
                    receiver.poll()
                });
                if arrived.get() > before {
                    return 0;
                }
                until(|| {
                    receiver.poll();
                    sender.poll();
                    arrived.get() > before
                })
            })
            .sum()
    });
}

/// Rows of active messages there and back.
fn messages_in_a_row(pair: Pair, count: usize) {
    let TwoRanks { mut ranks, context, arrived } = TwoRanks::over(pair);
    rounds(count, |is_counted| {
        [(0, 1), (1, 0)]
            .into_iter()
            .map(|(from, to)| {
                let [one, other] = &mut ranks;
                let (sender, receiver) = if from < to { (one, other) } else { (other, one) };
                let all = arrived.get() + ROW;
                act(is_counted, || {
                    for _ in 0..ROW {
                        sender.request(context, to, HANDLER, &[], &[7; BYTES]).expect("there is such a rank");
                    }
                    for _ in 0..POLLS_MAX {
                        receiver.poll();
                        if arrived.get() >= all {
                            break;
                        }
                    }
                });
                until(|| {
                    if arrived.get() < all {
                        receiver.poll();
                        sender.poll();
                    }
                    arrived.get() >= all
                })
            })
            .sum()
    });
}

/// Barriers of both ranks, each of which is one message there and one back.
fn barriers(pair: Pair, count: usize) {
    let mut ranks = Ranks::of_one_process(pair.ends.into()).expect("two endpoints");
    let has_passed = |rank: &mut Ranks| match rank.next_event() {
        Some(RankEvent::Barrier(end)) => end.map(|()| true).expect("nobody leaves"),
        Some(other) => panic!("{other:?}"),
        None => false,
    };
    rounds(count, |is_counted| {
        let [parent, child] = &mut ranks[..] else { unreachable!("a pair") };
        let mut passed = [false; 2];
        act(is_counted, || {
            child.barrier(PATIENCE).expect("none is under way");
            parent.barrier(PATIENCE).expect("none is under way");
            passed = [has_passed(parent), has_passed(child)];
        });
        until(|| {
            for (rank, passed) in [&mut *parent, &mut *child].into_iter().zip(&mut passed) {
                *passed = *passed || has_passed(rank);
            }
            passed == [true; 2]
        })
    });
}

/// Sums of one number of each rank, in memory that both map: one rank starts, the other one starts and has the sum, and the first one looks.
fn allreduces(pair: Pair, count: usize) {
    let mut ranks: Vec<Process> = Ranks::of_one_process(pair.ends.into())
        .expect("two endpoints")
        .into_iter()
        .map(Process::new)
        .collect();
    let sum = |data| Collective::Allreduce { data, with: (Number::I64, Reduction::Add) };
    rounds(count, |is_counted| {
        let [one, other] = &mut ranks[..] else { unreachable!("a pair") };
        let mut data = [(); 2].map(|()| vec![1; 8]);
        let mut sums: [Option<Vec<u8>>; 2] = [None, None];
        let take = |rank: &mut Process, sum: &mut Option<Vec<u8>>| {
            rank.progress_collective();
            if let Some((_, result)) = rank.next_collected() {
                *sum = Some(result.expect("nobody leaves"));
            }
        };
        act(is_counted, || {
            let [ours, theirs] = data.each_mut().map(std::mem::take);
            one.collect(Team::WORLD, sum(ours), 0).expect("there is room");
            other.collect(Team::WORLD, sum(theirs), 0).expect("there is room");
            take(other, &mut sums[1]);
            take(one, &mut sums[0]);
        });
        until(|| {
            take(one, &mut sums[0]);
            take(other, &mut sums[1]);
            sums.iter().all(|sum| sum.as_deref() == Some(&[2; 8]))
        })
    });
}

/// Puts to mapped memory of the other rank, each with a fence.
fn puts(pair: Pair, count: usize) {
    let mut both = TwoRanks::over(pair);
    let [from, to] = both.memory();
    let remote = to.as_ptr().addr() as u64;
    let part = Part { memory: from, offset: 0, len_bytes: 8 };
    both.map(|rank, is_done| {
        let done = move |_: &mut Runtime, result: cci_am::Result<()>| is_done.set(result.is_ok());
        rank.put(1, remote, &part, done).expect("there is room");
    });
    let [rank, _] = &mut both.ranks;
    rounds(count, |is_counted| {
        act(is_counted, || {
            rank.put(1, remote, &part, |_, result| result.expect("it is registered")).expect("there is room");
            rank.fence(1).expect("no handler runs");
        });
        0
    });
}

/// Fetch-and-add in mapped memory of the other rank.
fn additions(pair: Pair, count: usize) {
    let mut both = TwoRanks::over(pair);
    let [_, to] = both.memory();
    let remote = to.as_ptr().addr() as u64;
    both.map(|rank, is_done| {
        let done = move |_: &mut Runtime, result: cci_am::Result<u64>| is_done.set(result.is_ok());
        rank.atomic(1, remote, ADD_ONE, done).expect("there is room");
    });
    let [rank, _] = &mut both.ranks;
    rounds(count, |is_counted| {
        act(is_counted, || {
            rank.atomic(1, remote, ADD_ONE, |_, result| assert!(result.is_ok())).expect("there is room");
            rank.fence(1).expect("no handler runs");
        });
        0
    });
}

/// Packs and unpacks a vector of words.
fn pack(count: usize) {
    let word = Description::bytes(BLOCK_BYTES).expect("short");
    let stride = (STRIDE_BYTES / BLOCK_BYTES) as isize;
    let vector = Description::vector(BLOCKS, 1, stride, &word).expect("short");
    let mut memory: Vec<u8> = (0..BLOCKS * STRIDE_BYTES).map(|at| at as u8).collect();
    let mut packed = vec![0; BLOCKS * BLOCK_BYTES];
    rounds(count, |is_counted| {
        act(is_counted, || {
            let len = vector.pack(Readable::from(&memory[..]), 0, 1, 0, &mut packed).expect("all is inside");
            let back = vector.unpack(Writable::from(&mut memory[..]), 0, 1, 0, &packed);
            assert_eq!((len, back), (BLOCKS * BLOCK_BYTES, Ok(BLOCKS * BLOCK_BYTES)));
        });
        0
    });
}
