//! One-sided memory between processes of a job that one process is all of.

mod mapped;

use super::registered::address;
use super::tests::{runtimes, turn};
use super::*;
use crate::arithmetic::{Change, Number, Reduction};
use crate::description::Description;
use crate::limits::{ENDED_MAX, OPERATIONS_MAX};
use crate::runtime::Runtime;
use cci::{Atomic, AtomicKind, AtomicWidth, Foreign};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Memory of the program's own.
pub(super) fn heap(len: usize) -> Memory {
    Memory::foreign(Foreign::owned(vec![0; len].into_boxed_slice()))
}

pub(super) fn part(memory: &Memory, offset: usize, len_bytes: usize) -> Part {
    Part { memory: memory.clone(), offset, len_bytes }
}

pub(super) fn bytes(memory: &Memory, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert!(memory.read(offset, &mut bytes));
    bytes
}

/// How operations have ended, as it is written down.
pub(super) type Ends = Rc<RefCell<Vec<Result<()>>>>;

pub(super) fn note(ends: &Ends) -> impl FnOnce(&mut Runtime, Result<()>) + 'static {
    let ends = ends.clone();
    move |_, result| ends.borrow_mut().push(result)
}

#[test]
fn puts_and_gets_of_all_lengths_arrive_at_every_rank() {
    for device in ["shm", "udp-lo", "tcp-lo", "any"] {
        let mut all = runtimes(device, 3);
        let own: Vec<Memory> = vec![all[0].allocate(300_000).unwrap(), heap(300_000), heap(300_000)];
        for (runtime, memory) in all.iter_mut().zip(&own) {
            runtime.register_memory(memory).unwrap();
        }
        // Registered by nobody.
        let (from, back) = (heap(100_000), heap(100_000));
        let ends = Ends::default();
        let mut at = 0;
        for (number, len) in [1, 8, 100, 4_096, 70_000, 0].into_iter().enumerate() {
            let data: Vec<u8> = (0..len).map(|byte| (byte * 7 + number) as u8).collect();
            assert!(from.write(0, &data));
            for to in 0..3_u32 {
                let remote = address(&own[to as usize]) + at as u64;
                all[1].put(to, remote, part(&from, 0, len), note(&ends)).unwrap();
                turn(&mut all, |all| all[1].process().operations(Some(to)) == 0);
                assert_eq!(bytes(&own[to as usize], at, len), data, "{device}: {len} bytes to {to}");
                all[1].get(to, remote, part(&back, 5, len), note(&ends)).unwrap();
                turn(&mut all, |all| all[1].process().operations(None) == 0);
                assert_eq!(bytes(&back, 5, len), data, "{device}: {len} bytes from {to}");
            }
            at += len;
        }
        turn(&mut all, |_| ends.borrow().len() == 36);
        assert!(ends.borrow().iter().all(Result::is_ok), "{device}: {ends:?}");
    }
}

#[test]
fn what_is_not_registered_is_refused_and_not_touched() {
    for device in ["shm", "udp-lo", "tcp-lo"] {
        let mut all = runtimes(device, 2);
        let theirs = heap(4_096);
        let local = heap(64);
        assert!(local.write(0, &[9; 64]));
        let start = address(&theirs);
        let put = |all: &mut [Runtime], remote: u64| {
            let ends = Ends::default();
            all[0].put(1, remote, part(&local, 0, 64), note(&ends)).unwrap();
            turn(all, |_| !ends.borrow().is_empty());
            let ended = ends.borrow_mut().pop().unwrap();
            assert!(ends.borrow().is_empty());
            ended
        };
        let is_refused = |result: Result<()>| matches!(result, Err(AmError::NotRegistered { rank: 1, .. }));
        assert!(is_refused(put(&mut all, start)), "{device}: never registered");
        all[1].register_memory(&theirs).unwrap();
        all[1].register_memory(&theirs).unwrap();
        assert!(is_refused(put(&mut all, start + 4_096 - 63)), "{device}: a byte beyond it");
        assert!(is_refused(put(&mut all, start - 1)), "{device}: a byte before it");
        assert!(put(&mut all, start).is_ok(), "{device}: inside");
        all[1].deregister_memory(&theirs).unwrap();
        assert!(put(&mut all, start + 64).is_ok(), "{device}: registered twice, and once still");
        all[1].deregister_memory(&theirs).unwrap();
        assert!(is_refused(put(&mut all, start + 128)), "{device}: not any more");
        assert!(matches!(all[1].deregister_memory(&theirs), Err(AmError::State(_))));
        all[1].register_memory(&theirs).unwrap();
        assert!(put(&mut all, start + 192).is_ok(), "{device}: again, by another handle");
        let written: Vec<bool> = bytes(&theirs, 0, 256).chunks(64).map(|some| some == [9; 64]).collect();
        assert_eq!(written, [true, true, false, true], "{device}");
    }
}

/// What is mapped has ended when it is started, until the target takes it back.
#[test]
fn what_is_mapped_ends_when_it_is_started() {
    let mut all = runtimes("shm", 2);
    let theirs = all[1].allocate(8_192).unwrap();
    all[1].register_memory(&theirs).unwrap();
    let (local, kept, start) = (heap(4_096), heap(4_096), address(&theirs));
    all[0].register_memory(&kept).unwrap();
    let add = |operand| {
        let (kind, width) = (AtomicKind::FetchAdd, AtomicWidth::Eight);
        Change::Core(Atomic { kind, width, operand, compare: 0 })
    };
    let put = |all: &mut [Runtime], len| {
        all[0].process().transfer(Transfer::Put, 1, start + 64, &part(&local, 0, len), 7).unwrap()
    };
    for round in 1..4_u8 {
        assert!(local.write(0, &[round; 4_096]) && kept.write(0, &[round + 100; 4_096]));
        // The first ones ask where the memory is, and for its mapping.
        turn(&mut all, |all| put(all, 8).is_some());
        for len in [1, 16, 17, 2_048, 2_049, 4_000] {
            assert_eq!(put(&mut all, len), Some(0));
            assert_eq!(bytes(&theirs, 64, len), vec![round; len]);
        }
        let elements = |lens: &[usize], strides: &[isize]| Elements {
            count: 1,
            description: Description::strided(lens, strides).unwrap(),
        };
        let (there, here) = (elements(&[4, 100], &[40]), elements(&[8, 50], &[16]));
        let (remote, near) = ((start + 4_096, there), (&local, 0, here));
        let gaps = all[0].process().transfer_described(Transfer::Put, 1, remote, near, 7).unwrap();
        assert_eq!(gaps, Some(0));
        let old = if round == 1 { 0 } else { round + 99 };
        let expected: Vec<u8> = (0..4_000).map(|at| if at % 40 < 4 { round } else { old }).collect();
        assert_eq!(bytes(&theirs, 4_096, 4_000), expected);
        let process = all[0].process();
        let whole = process.transfer(Transfer::Put, 1, start + 4_096, &part(&kept, 0, 4_096), 7).unwrap();
        let back = process.transfer(Transfer::Get, 1, start + 64, &part(&kept, 8, 40), 7).unwrap();
        assert_eq!((whole, back), (Some(0), Some(0)));
        assert_eq!(bytes(&theirs, 4_096, 4_096), vec![round + 100; 4_096]);
        assert_eq!(bytes(&kept, 8, 40), vec![round; 40]);
        let found: Vec<_> = (0..3).map(|_| process.atomic(1, start, add(5), 7).unwrap()).collect();
        let first = u64::from(round - 1) * 15;
        assert_eq!(found, [Some(first), Some(first + 5), Some(first + 10)]);

        all[1].deregister_memory(&theirs).unwrap();
        let before = bytes(&theirs, 0, 8_192);
        let ends = Ends::default();
        all[0].put(1, start, part(&local, 0, 8), note(&ends)).unwrap();
        turn(&mut all, |_| !ends.borrow().is_empty());
        assert!(matches!(ends.borrow()[0], Err(AmError::NotRegistered { rank: 1, .. })), "{ends:?}");
        assert_eq!(bytes(&theirs, 0, 8_192), before);
        all[1].register_memory(&theirs).unwrap();
    }
}

/// Callbacks of operations on what is mapped run once each, in the order of these, as handlers do: at the next fence, or while a put waits for
/// space.
#[test]
fn callbacks_of_what_is_mapped_run_once_and_in_order() {
    let mut all = runtimes("shm", 2);
    let theirs = all[1].allocate(4_096).unwrap();
    all[1].register_memory(&theirs).unwrap();
    let (local, start) = (part(&heap(64), 0, 64), address(&theirs));
    let put = |all: &mut [Runtime]| all[0].process().transfer(Transfer::Put, 1, start, &local, 0).unwrap();
    turn(&mut all, |all| put(all).is_some());
    turn(&mut all, |all| all[0].process().operations(None) == 0);
    let noted = Rc::new(RefCell::new(Vec::new()));
    let (count, runtime) = (3 * ENDED_MAX + 10, &mut all[0]);
    for number in 0..count {
        let ends = noted.clone();
        let end = move |_: &mut Runtime, result: Result<()>| ends.borrow_mut().push((number, result.is_ok()));
        runtime.put(1, start, &local, end).unwrap();
        assert_eq!(noted.borrow().len(), number / ENDED_MAX * ENDED_MAX, "when there is no space");
    }
    let add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 3, compare: 0 };
    for _ in 0..2 {
        let found = noted.clone();
        let end = move |runtime: &mut Runtime, value: Result<u64>| {
            assert!(matches!(runtime.fence(1), Err(AmError::State(_))), "a handler does not wait");
            assert!(!runtime.poll());
            found.borrow_mut().push((value.unwrap() as usize, true));
        };
        runtime.atomic(1, start + 128, add, end).unwrap();
    }
    runtime.fence(1).unwrap();
    let expected = (0..count).chain([0, 3]).map(|number| (number, true)).collect::<Vec<_>>();
    assert!(noted.take() == expected);
    runtime.fence(1).unwrap();
    assert!(noted.take().is_empty());
}

#[test]
fn a_rank_refuses_itself_what_it_has_not_registered() {
    let mut all = runtimes("shm", 1);
    let (memory, ends) = (heap(64), Ends::default());
    all[0].put(0, address(&memory), part(&memory, 0, 8), note(&ends)).unwrap();
    turn(&mut all, |_| !ends.borrow().is_empty());
    assert!(matches!(ends.borrow()[0], Err(AmError::NotRegistered { rank: 0, .. })));
}

/// Ranks that are one process have no address that all of them have.
#[test]
fn where_no_address_is_free_for_all_nobody_has_symmetric_memory() {
    let mut all = runtimes("shm", 2);
    assert!(matches!(all[0].allocate_symmetric(0), Err(AmError::Argument(_))));
    let mut rounds = 0;
    loop {
        let ends = Rc::new(RefCell::new(Vec::new()));
        for runtime in &mut all {
            let collective = runtime.process().begin_symmetric(5_000).unwrap();
            let note = ends.clone();
            runtime
                .collect(Team::WORLD, collective, move |runtime, end| {
                    note.borrow_mut().push(runtime.process().end_symmetric(&end.unwrap()));
                })
                .unwrap();
        }
        turn(&mut all, |_| ends.borrow().len() == 2);
        rounds += 1;
        match ends.borrow().as_slice() {
            [Ok(None), Ok(None)] => {}
            [Err(AmError::Full(_)), Err(AmError::Full(_))] => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(rounds, crate::limits::SYMMETRIC_ATTEMPTS_MAX);
    assert!(matches!(all[0].free_symmetric(&heap(8)), Err(AmError::Argument(_))));
}

#[test]
fn mistakes_start_nothing() {
    let mut all = runtimes("shm", 1);
    let memory = heap(64);
    let never = |_: &mut Runtime, _| panic!("nothing was started");
    assert!(matches!(all[0].put(1, 0, part(&memory, 0, 8), never), Err(AmError::Range(_))));
    for (offset, len) in [(60, 5), (usize::MAX, 2)] {
        assert!(matches!(all[0].put(0, 0, part(&memory, offset, len), never), Err(AmError::Range(_))));
    }
    assert!(matches!(all[0].get(0, u64::MAX, part(&memory, 0, 2), never), Err(AmError::Argument(_))));
    assert_eq!(all[0].process().operations(None), 0);
    all[0].poll();
}

/// On threads, as a fence waits for the other side.
#[test]
fn a_fence_waits_for_more_operations_than_there_may_be_at_once() {
    for device in ["shm", "udp-lo"] {
        let count = OPERATIONS_MAX + 1_000;
        let mut all = runtimes(device, 2).into_iter().map(Runtime::into_process);
        let (mine, other) = (all.next().unwrap(), all.next().unwrap());
        let target = heap(8);
        let remote = address(&target);
        let serving = std::thread::spawn(move || {
            let mut runtime = Runtime::over(other);
            runtime.register_memory(&target).unwrap();
            runtime.barrier().unwrap();
            runtime.finish().unwrap();
            bytes(&target, 0, 8)
        });
        let mut runtime = Runtime::over(mine);
        runtime.barrier().unwrap();
        let (local, ended) = (heap(8), Rc::new(Cell::new(0)));
        assert!(local.write(0, b"finished"));
        for _ in 0..count {
            let ended = ended.clone();
            let done = move |_: &mut Runtime, result: Result<()>| {
                result.unwrap();
                ended.set(ended.get() + 1);
            };
            runtime.put(1, remote, part(&local, 0, 8), done).unwrap();
        }
        runtime.fence(1).unwrap();
        assert_eq!(ended.get(), count, "{device}");
        runtime.finish().unwrap();
        assert_eq!(serving.join().unwrap(), b"finished", "{device}");
    }
}

#[test]
fn operations_on_a_rank_that_is_gone_end() {
    let mut all = runtimes("shm", 2);
    let (memory, ends) = (heap(64), Ends::default());
    // Its answer never comes.
    all[0].put(1, address(&memory), part(&memory, 0, 8), note(&ends)).unwrap();
    turn(&mut all[..1], |all| all[0].process().links.are_sent() || !ends.borrow().is_empty());
    drop(all.pop());
    turn(&mut all, |_| !ends.borrow().is_empty());
    all[0].put(1, address(&memory), part(&memory, 0, 8), note(&ends)).unwrap();
    turn(&mut all, |_| ends.borrow().len() == 2);
    assert!(ends.borrow().iter().all(|end| matches!(end, Err(AmError::Gone { rank: 1, .. }))), "{ends:?}");
    assert_eq!(all[0].process().operations(None), 0);
}

#[test]
fn atomics_find_what_was_there_and_none_is_lost() {
    for device in ["shm", "udp-lo", "tcp-lo"] {
        let mut all = runtimes(device, 3);
        let memory = all[0].allocate(64).unwrap();
        all[0].register_memory(&memory).unwrap();
        let word = address(&memory) + 8;
        let atomic = |kind, operand, compare| Atomic { kind, width: AtomicWidth::Eight, operand, compare };
        let found = Rc::new(RefCell::new(Vec::new()));
        // Each rank adds 1 a hundred times, the owner too: every value is found once.
        for _ in 0..100 {
            for runtime in &mut all {
                let found = found.clone();
                let take =
                    move |_: &mut Runtime, result: Result<u64>| found.borrow_mut().push(result.unwrap());
                runtime.atomic(0, word, atomic(AtomicKind::FetchAdd, 1, 0), take).unwrap();
            }
        }
        turn(&mut all, |_| found.borrow().len() == 300);
        found.borrow_mut().sort_unstable();
        assert!(found.borrow().iter().copied().eq(0..300), "{device}");
        for (kind, operand, compare, was) in [
            (AtomicKind::CompareSwap, 7, 300, 300),
            (AtomicKind::CompareSwap, 9, 300, 7),
            (AtomicKind::Swap, 6, 0, 7),
            (AtomicKind::Or, 9, 0, 6),
            (AtomicKind::And, 3, 0, 15),
            (AtomicKind::Xor, 1, 0, 3),
            (AtomicKind::FetchAdd, 0, 0, 2),
        ] {
            for rank in [2, 0] {
                found.borrow_mut().clear();
                let take = found.clone();
                let note =
                    move |_: &mut Runtime, result: Result<u64>| take.borrow_mut().push(result.unwrap());
                // The owner only looks.
                let (kind, operand) = if rank == 2 { (kind, operand) } else { (AtomicKind::FetchAdd, 0) };
                all[rank].atomic(0, word, atomic(kind, operand, compare), note).unwrap();
                turn(&mut all, |_| !found.borrow().is_empty());
                if rank == 2 {
                    assert_eq!(*found.borrow(), [was], "{device}: {kind:?}");
                }
            }
        }
    }
}

/// What the core has no operation for is tried until nobody has come between.
#[test]
fn sums_of_floats_and_extremes_lose_nothing() {
    for device in ["shm", "udp-lo", "tcp-lo"] {
        let mut all = runtimes(device, 3);
        let memory = all[0].allocate(64).unwrap();
        all[0].register_memory(&memory).unwrap();
        let word = address(&memory);
        let found = Rc::new(RefCell::new(Vec::new()));
        for round in 0..40_u64 {
            for runtime in &mut all {
                let add = Change::Reduce(Number::F64, Reduction::Add, 0.25_f64.to_bits());
                let largest = Change::Reduce(Number::I32, Reduction::Max, round);
                let note = |found: &Rc<RefCell<Vec<u64>>>| {
                    let found = found.clone();
                    move |_: &mut Runtime, result: Result<u64>| found.borrow_mut().push(result.unwrap())
                };
                runtime.atomic(0, word, add, note(&found)).unwrap();
                runtime.atomic(0, word + 8, largest, note(&Rc::default())).unwrap();
            }
        }
        turn(&mut all, |all| {
            found.borrow().len() == 120 && all.iter_mut().all(|one| one.process().operations(None) == 0)
        });
        let mut sums: Vec<f64> = found.borrow().iter().map(|&bits| f64::from_bits(bits)).collect();
        sums.sort_by(f64::total_cmp);
        assert!(sums.iter().copied().eq((0..120).map(|step| f64::from(step) * 0.25)), "{device}: {sums:?}");
        let mut bytes = [0; 16];
        assert!(memory.read(0, &mut bytes));
        assert_eq!(bytes, *[&30_f64.to_ne_bytes()[..], &39_u64.to_ne_bytes()].concat(), "{device}");
        let bits = Change::Reduce(Number::F32, Reduction::Xor, 1);
        assert!(matches!(all[1].atomic(0, word, bits, |_, _| ()), Err(AmError::Argument(_))));
    }
}

#[test]
fn atomics_on_words_that_are_not_there_are_refused() {
    let mut all = runtimes("shm", 2);
    let add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Four, operand: 1, compare: 0 };
    let never = |_: &mut Runtime, _| panic!("nothing was started");
    assert!(matches!(all[1].atomic(0, 4_098, add, never), Err(AmError::Argument(_))));
    assert!(matches!(all[1].atomic(2, 4_096, add, never), Err(AmError::Range(_))));
    let ends = Rc::new(RefCell::new(Vec::new()));
    for runtime in &mut all {
        let ends = ends.clone();
        runtime.atomic(0, 4_096, add, move |_, result| ends.borrow_mut().push(result)).unwrap();
    }
    turn(&mut all, |_| ends.borrow().len() == 2);
    let refused = |end: &Result<u64>| matches!(end, Err(AmError::NotRegistered { rank: 0, address: 4_096 }));
    assert!(ends.borrow().iter().all(refused), "{ends:?}");
}

#[test]
fn described_puts_and_gets_copy_what_packing_and_unpacking_would() {
    let byte = Description::bytes(1).unwrap();
    let column = Description::strided(&[8, 900], &[24]).unwrap();
    let face = Description::hvector(20, 1, 1_000, &Description::strided(&[2, 45], &[21]).unwrap()).unwrap();
    let scattered = Description::hindexed(&[1_000, 1, 799], &[2_000, 0, 5_000], &byte).unwrap();
    let row = Description::bytes(1_800).unwrap();
    let elements = |description: &Description, count| Elements { count, description: description.clone() };
    let (rows, one) = (elements(&row, 4), |description: &Description| elements(description, 1));
    // Each has 1,800 bytes, or 7,200: a column of 900 by 8 bytes, a face of 20 by 45 by 2.
    let cases = [
        (one(&face), elements(&row, 1)),
        (elements(&row, 1), one(&scattered)),
        (one(&column), rows.clone()),
        (rows, one(&column)),
        (one(&face), one(&scattered)),
        (elements(&byte, 0), elements(&row, 0)),
    ];
    for device in ["shm", "udp-lo", "tcp-lo"] {
        let mut all = runtimes(device, 2);
        let theirs = [heap(50_000), heap(50_000)];
        for (runtime, memory) in all.iter_mut().zip(&theirs) {
            runtime.register_memory(memory).unwrap();
        }
        let local = heap(50_000);
        let data: Vec<u8> = (0..50_000_u32).map(|at| ((at * 31) >> 3) as u8).collect();
        for (number, (here, there)) in cases.iter().enumerate() {
            for rank in 0..2_u32 {
                let memory = &theirs[rank as usize];
                assert!(local.write(0, &data) && memory.write(0, &vec![0; 50_000]));
                let ends = Ends::default();
                let (at, origin) = (address(memory) + 100, 7);
                all[0]
                    .put_described(rank, (at, there.clone()), (&local, origin, here.clone()), note(&ends))
                    .unwrap();
                turn(&mut all, |_| ends.borrow().len() == 1);
                // A plain model: packed there, unpacked here.
                let mut packed = vec![0; here.description.size() * here.count];
                here.description.pack((&data[..]).into(), origin, here.count, 0, &mut packed).unwrap();
                let mut model = vec![0; 50_000];
                there.description.unpack((&mut model[..]).into(), 100, there.count, 0, &packed).unwrap();
                assert!(bytes(memory, 0, 50_000) == model, "{device}: put {number} to {rank}");
                assert!(local.write(0, &vec![0; 50_000]));
                all[0]
                    .get_described(rank, (at, there.clone()), (&local, origin, here.clone()), note(&ends))
                    .unwrap();
                turn(&mut all, |_| ends.borrow().len() == 2);
                let mut model = vec![0; 50_000];
                here.description.unpack((&mut model[..]).into(), origin, here.count, 0, &packed).unwrap();
                assert!(bytes(&local, 0, 50_000) == model, "{device}: get {number} from {rank}");
                assert!(ends.borrow().iter().all(Result::is_ok), "{device}: {number}: {ends:?}");
            }
        }
    }
}

#[test]
fn descriptions_that_differ_or_do_not_fit_start_nothing() {
    let mut all = runtimes("shm", 1);
    let memory = heap(100);
    all[0].register_memory(&memory).unwrap();
    let bytes = |len| Elements { count: 1, description: Description::bytes(len).unwrap() };
    let never = |_: &mut Runtime, _| panic!("nothing was started");
    let at = address(&memory);
    let differ = all[0].put_described(0, (at, bytes(8)), (&memory, 0, bytes(9)), never);
    assert!(matches!(differ, Err(AmError::Argument(_))));
    for (origin, len) in [(93, 8), (-1, 8), (0, 101)] {
        let outside = all[0].put_described(0, (at, bytes(len)), (&memory, origin, bytes(len)), never);
        assert!(matches!(outside, Err(AmError::Described(_))), "{origin} and {len}");
    }
    let many = Elements { count: usize::MAX, ..bytes(8) };
    let large = all[0].put_described(0, (at, many.clone()), (&memory, 0, many), never);
    assert!(matches!(large, Err(AmError::Argument(_))));
    let low = Elements { count: 1, description: Description::strided(&[8, 2], &[-200]).unwrap() };
    let below = all[0].put_described(0, (100, low), (&memory, 0, bytes(16)), never);
    assert!(matches!(below, Err(AmError::Argument(_))), "{below:?}");
}
