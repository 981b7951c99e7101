//! Accumulations and indexed puts between processes of a job that one process is all of.

use super::onesided_tests::{Ends, bytes, heap, note, part};
use super::registered::address;
use super::tests::{runtimes, turn};
use super::*;
use crate::arithmetic::Reduction;
use crate::description::Description;
use crate::runtime::Runtime;
use cci::{Atomic, AtomicKind, AtomicWidth};

const SUM: Accumulation = Accumulation::Reduce(Reduction::Add);

fn elements(count: usize, description: &Description) -> Elements {
    Elements { count, description: description.clone() }
}

fn floats(values: impl Iterator<Item = f64>) -> Vec<u8> {
    values.flat_map(f64::to_ne_bytes).collect()
}

#[test]
fn sums_of_all_ranks_are_complete_in_whatever_shape() {
    for device in ["shm", "udp-lo", "tcp-lo", "any"] {
        let mut all = runtimes(device, 3);
        // 3,000 numbers in a row are added to each second one of 6,000, so that it takes many records; from every rank, rank 1 too.
        const COUNT: usize = 3_000;
        let theirs = heap(COUNT * 16);
        all[1].register_memory(&theirs).unwrap();
        let word = Description::bytes(8).unwrap();
        let second = Description::vector(COUNT, 1, 2, &word).unwrap();
        let row = Description::contiguous(COUNT, &word).unwrap();
        let ends = Ends::default();
        for (rank, runtime) in all.iter_mut().enumerate() {
            let mine = heap(COUNT * 8);
            assert!(mine.write(0, &floats((0..COUNT).map(|at| at as f64 * 10_f64.powi(rank as i32)))));
            let (there, here) = ((address(&theirs), elements(1, &second)), (&mine, 0, elements(1, &row)));
            runtime.accumulate((SUM, Number::F64), 1, there, here, note(&ends)).unwrap();
        }
        turn(&mut all, |_| ends.borrow().len() == 3);
        assert!(ends.borrow().iter().all(Result::is_ok), "{device}: {ends:?}");
        let expected = (0..2 * COUNT).map(|at| if at % 2 == 0 { (at / 2) as f64 * 111.0 } else { 0.0 });
        assert!(bytes(&theirs, 0, COUNT * 16) == floats(expected), "{device}");
    }
}

#[test]
fn accumulations_do_what_they_say() {
    let mut all = runtimes("shm", 2);
    let (theirs, mine) = (heap(12), heap(12));
    all[1].register_memory(&theirs).unwrap();
    let number = Description::bytes(4).unwrap();
    let words = |values: [i32; 3]| values.map(i32::to_ne_bytes).concat();
    for (how, result) in [
        (Accumulation::Set, [2, -3, 1]),
        (SUM, [9, 2, i32::MIN]),
        (Accumulation::Reduce(Reduction::Product), [14, -15, i32::MAX]),
        (Accumulation::Reduce(Reduction::Min), [2, -3, 1]),
        (Accumulation::Reduce(Reduction::Max), [7, 5, i32::MAX]),
        (Accumulation::Reduce(Reduction::And), [2, 5, 1]),
        (Accumulation::Reduce(Reduction::Or), [7, -3, i32::MAX]),
        (Accumulation::Reduce(Reduction::Xor), [5, -8, i32::MAX - 1]),
    ] {
        assert!(theirs.write(0, &words([7, 5, i32::MAX])) && mine.write(0, &words([2, -3, 1])));
        let ends = Ends::default();
        let (there, here) = ((address(&theirs), elements(3, &number)), (&mine, 0, elements(3, &number)));
        all[0].accumulate((how, Number::I32), 1, there, here, note(&ends)).unwrap();
        turn(&mut all, |_| ends.borrow().len() == 1);
        assert_eq!(bytes(&theirs, 0, 12), words(result), "{how:?}");
    }
}

#[test]
fn what_is_appended_by_all_ranks_is_there_once_and_whole() {
    for device in ["shm", "udp-lo", "tcp-lo", "any"] {
        let mut all = runtimes(device, 3);
        let (buffer, pointer) = (heap(1 << 20), heap(8));
        assert!(pointer.write(0, &address(&buffer).to_ne_bytes()));
        all[1].register_memory(&buffer).unwrap();
        all[1].register_memory(&pointer).unwrap();
        // Short ones go with the question, and long ones are fetched.
        let lengths = [1, 8, 8_160, 8_161, 40_000, 0, 3];
        let (ends, mut total) = (Ends::default(), 0);
        for round in 0..3 {
            for (rank, runtime) in all.iter_mut().enumerate() {
                for (number, len) in lengths.into_iter().enumerate() {
                    let mine = heap(len + 3);
                    assert!(mine.write(3, &vec![(rank * 100 + round * 10 + number) as u8; len]));
                    runtime.indexed_put(1, address(&pointer), part(&mine, 3, len), note(&ends)).unwrap();
                    total += len;
                }
            }
        }
        turn(&mut all, |_| ends.borrow().len() == 9 * lengths.len());
        assert!(ends.borrow().iter().all(Result::is_ok), "{device}: {ends:?}");
        assert_eq!(bytes(&pointer, 0, 8), (address(&buffer) + total as u64).to_ne_bytes(), "{device}");
        let all_bytes = bytes(&buffer, 0, total);
        let mut runs: Vec<(u8, usize)> =
            all_bytes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
        runs.sort_unstable();
        let each = (0..3).flat_map(|rank| (0..3).map(move |round| rank * 100 + round * 10));
        let mut expected: Vec<(u8, usize)> = each
            .flat_map(|first| {
                lengths.iter().enumerate().map(move |(number, &len)| ((first + number) as u8, len))
            })
            .filter(|(_, len)| *len > 0)
            .collect();
        expected.sort_unstable();
        assert_eq!(runs, expected, "{device}");
    }
}

#[test]
fn a_refused_update_changes_nothing() {
    for device in ["shm", "udp-lo"] {
        let mut all = runtimes(device, 2);
        let (buffer, pointer, mine) = (heap(100), heap(8), heap(20_000));
        assert!(mine.write(0, &[7; 20_000]));
        all[1].register_memory(&pointer).unwrap();
        let start = address(&buffer);
        let mut try_all = |what: &str, to: u64, is_registered: bool| {
            assert!(pointer.write(0, &to.to_ne_bytes()));
            for rank in 0..2 {
                for len in [8, 20_000] {
                    let ends = Ends::default();
                    if is_registered {
                        all[1].register_memory(&buffer).unwrap();
                    }
                    all[rank].indexed_put(1, address(&pointer), part(&mine, 0, len), note(&ends)).unwrap();
                    turn(&mut all, |_| ends.borrow().len() == 1);
                    let end = ends.borrow_mut().pop().unwrap();
                    assert!(
                        matches!(end, Err(AmError::NotRegistered { rank: 1, .. })),
                        "{device}: {what}: {end:?}"
                    );
                    assert_eq!(bytes(&pointer, 0, 8), to.to_ne_bytes(), "{device}: {what}");
                    assert_eq!(bytes(&buffer, 0, 100), [0; 100], "{device}: {what}");
                    if is_registered {
                        all[1].deregister_memory(&buffer).unwrap();
                    }
                }
            }
        };
        try_all("nobody has registered what it points to", start, false);
        try_all("it points to the last bytes", start + 93, true);
        try_all("it points to nothing", 0, true);
        try_all("it points behind all", u64::MAX, true);
        let ends = Ends::default();
        let word = Description::bytes(8).unwrap();
        let (there, here) = ((start, elements(2, &word)), (&mine, 0, elements(2, &word)));
        all[0].accumulate((SUM, Number::U64), 1, there, here, note(&ends)).unwrap();
        turn(&mut all, |_| ends.borrow().len() == 1);
        assert!(
            matches!(ends.borrow()[0], Err(AmError::NotRegistered { rank: 1, .. })),
            "{device}: {ends:?}"
        );
        assert_eq!(bytes(&buffer, 0, 100), [0; 100], "{device}");
    }
}

#[test]
fn mistakes_start_no_update() {
    let mut all = runtimes("shm", 1);
    let memory = heap(64);
    let never = |_: &mut Runtime, _| panic!("nothing was started");
    let (three, eight) = (Description::bytes(3).unwrap(), Description::bytes(8).unwrap());
    let mut accumulate = |what, remote: u64, description: &Description| {
        let (there, here) = ((remote, elements(1, description)), (&memory, 0, elements(1, description)));
        all[0].accumulate(what, 0, there, here, never)
    };
    let xor = Accumulation::Reduce(Reduction::Xor);
    assert!(matches!(accumulate((xor, Number::F32), 8, &eight), Err(AmError::Argument(_))));
    assert!(matches!(accumulate((SUM, Number::F32), 8, &three), Err(AmError::Argument(_))));
    assert!(matches!(accumulate((SUM, Number::U64), 12, &eight), Err(AmError::Argument(_))));
    assert!(matches!(all[0].indexed_put(0, 4, part(&memory, 0, 8), never), Err(AmError::Argument(_))));
    assert!(matches!(all[0].indexed_put(1, 8, part(&memory, 0, 8), never), Err(AmError::Range(_))));
    assert!(matches!(all[0].indexed_put(0, 8, part(&memory, 60, 8), never), Err(AmError::Range(_))));
    all[0].poll();
}

/// Atomic operations of one rank and accumulations of another one meet at the same word.
#[test]
fn accumulations_are_atomic_towards_all_others() {
    let mut all = runtimes("shm", 3);
    let theirs = all[1].allocate(8).unwrap();
    all[1].register_memory(&theirs).unwrap();
    let mine = heap(8);
    assert!(mine.write(0, &1_000_u64.to_ne_bytes()));
    let word = Description::bytes(8).unwrap();
    let ends = Ends::default();
    let add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
    for _ in 0..300 {
        let (there, here) = ((address(&theirs), elements(1, &word)), (&mine, 0, elements(1, &word)));
        all[0].accumulate((SUM, Number::U64), 1, there, here, note(&ends)).unwrap();
        let count = note(&ends);
        all[2].atomic(1, address(&theirs), add, |runtime, result| count(runtime, result.map(drop))).unwrap();
    }
    turn(&mut all, |_| ends.borrow().len() == 600);
    assert_eq!(bytes(&theirs, 0, 8), 300_300_u64.to_ne_bytes());
}

/// What is asked of a rank that is lost ends, whether the rank has heard of it or not.
#[test]
fn updates_end_with_their_rank() {
    for device in ["shm", "udp-lo"] {
        let mut all = runtimes(device, 2);
        let (buffer, mine) = (heap(100_000), heap(50_000));
        assert!(buffer.write(0, &(address(&buffer) + 8).to_ne_bytes()));
        all[1].register_memory(&buffer).unwrap();
        let (ends, first) = (Ends::default(), Ends::default());
        all[0].indexed_put(1, address(&buffer), part(&mine, 0, 8), note(&first)).unwrap();
        turn(&mut all, |_| first.borrow().len() == 1);
        for len in [8, 50_000].repeat(20) {
            all[0].indexed_put(1, address(&buffer), part(&mine, 0, len), note(&ends)).unwrap();
        }
        drop(all.pop());
        turn(&mut all, |_| ends.borrow().len() == 40);
        assert!(
            ends.borrow().iter().all(|end| matches!(end, Err(AmError::Gone { rank: 1, .. }))),
            "{ends:?}"
        );
        assert_eq!(all[0].process().operations(None), 0);
    }
}

/// What one description reaches may lie in several regions.
#[test]
fn pieces_of_several_regions_are_reached_or_none_is_touched() {
    for device in ["shm", "udp-lo"] {
        let mut all = runtimes(device, 2);
        let theirs: Vec<Memory> = (0..300).map(|_| heap(32)).collect();
        let mine = heap(300 * 8);
        let data: Vec<u8> = (0..300 * 8).map(|at| (at % 251 + 1) as u8).collect();
        assert!(mine.write(0, &data));
        for memory in &theirs[..299] {
            all[1].register_memory(memory).unwrap();
        }
        let at: Vec<isize> = theirs.iter().map(|memory| address(memory) as isize + 16).collect();
        let word = Description::bytes(8).unwrap();
        let spread = Description::hblock_indexed(1, &at, &word).unwrap();
        for rank in [0, 1] {
            for is_complete in [false, true] {
                for memory in &theirs {
                    assert!(memory.write(0, &[0; 32]));
                }
                if is_complete {
                    all[1].register_memory(&theirs[299]).unwrap();
                }
                for what in ["put", "accumulate"] {
                    let ends = Ends::default();
                    let (there, here) = ((0, elements(1, &spread)), (&mine, 0, elements(300, &word)));
                    let runtime: &mut Runtime = &mut all[rank];
                    let started = match what {
                        "put" => runtime.put_described(1, there, here, note(&ends)),
                        _ => {
                            runtime.accumulate((Accumulation::Set, Number::U64), 1, there, here, note(&ends))
                        }
                    };
                    started.unwrap();
                    turn(&mut all, |_| ends.borrow().len() == 1);
                    assert_eq!(ends.borrow()[0].is_ok(), is_complete, "{device}: {what}: {ends:?}");
                    let written: Vec<u8> = theirs.iter().flat_map(|memory| bytes(memory, 16, 8)).collect();
                    assert!(
                        written == if is_complete { data.clone() } else { vec![0; 2_400] },
                        "{device}: {what}"
                    );
                }
                if is_complete {
                    all[1].deregister_memory(&theirs[299]).unwrap();
                }
            }
        }
    }
}

/// The first one is being fetched, for which its rank would have to make progress, and so the others wait.
#[test]
fn a_rank_that_asks_for_too_many_updates_is_cut_off() {
    for (count, is_too_many) in [(16, false), (17, true)] {
        let mut all = runtimes("shm", 2);
        let (buffer, mine) = (heap(2_000_000), heap(50_000));
        assert!(buffer.write(0, &(address(&buffer) + 8).to_ne_bytes()));
        all[1].register_memory(&buffer).unwrap();
        let (ends, gone) = (Ends::default(), std::rc::Rc::new(std::cell::Cell::new(false)));
        let place = gone.clone();
        all[1].on_gone(move |_, _| place.set(true));
        all[0].indexed_put(1, address(&buffer), part(&mine, 0, 8), note(&ends)).unwrap();
        turn(&mut all, |_| ends.borrow().len() == 1);
        for _ in 0..count {
            all[0].indexed_put(1, address(&buffer), part(&mine, 0, 50_000), note(&ends)).unwrap();
            all[0].process().links.return_update(1);
        }
        for _ in 0..200 {
            all[1].poll();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(gone.get(), is_too_many, "{count}");
        turn(&mut all, |_| ends.borrow().len() == 1 + count);
        assert_eq!(ends.borrow().iter().all(Result::is_ok), !is_too_many);
    }
}
