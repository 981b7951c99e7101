//! Operations on memory that is mapped, beside what keeps them from being done at once.

use super::{Ends, bytes, heap, note, part};
use crate::arithmetic::Change;
use crate::error::AmError;
use crate::limits::FENCES_PER_POLL;
use crate::process::registered::address;
use crate::process::tests::{runtimes, turn};
use crate::process::{Context, Transfer};
use crate::runtime::Runtime;
use cci::{Atomic, AtomicKind, AtomicWidth};
use std::cell::Cell;
use std::rc::Rc;

/// Puts until one ends as it is started.
fn map(all: &mut [Runtime], rank: u32, start: u64) {
    let local = heap(8);
    turn(all, |all| {
        let process = all[0].process();
        process.transfer(Transfer::Put, rank, start, &part(&local, 0, 8), 0).unwrap().is_some()
    });
    turn(all, |all| all[0].process().operations(None) == 0);
}

#[test]
fn nothing_passes_an_operation_that_waits() {
    let mut all = runtimes("shm", 2);
    let [theirs, other] = [(); 2].map(|()| {
        let memory = all[1].allocate(4_096).unwrap();
        all[1].register_memory(&memory).unwrap();
        memory
    });
    let start = address(&theirs);
    map(&mut all, 1, start);
    let local = heap(8);
    assert!(local.write(0, &[3; 8]));
    let put = |all: &mut [Runtime], at: u64| {
        all[0].process().transfer(Transfer::Put, 1, at, &part(&local, 0, 8), 0).unwrap()
    };
    assert_eq!(put(&mut all, start), Some(0));
    assert_eq!(put(&mut all, address(&other)), None, "it is to be asked which region that is");
    assert_eq!(put(&mut all, start + 8), None, "it comes after the one that waits");
    let add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
    assert_eq!(all[0].process().atomic(1, start + 16, Change::Core(add), 0).unwrap(), None);
    turn(&mut all, |all| all[0].process().operations(None) == 0);
    assert_eq!((bytes(&other, 0, 8), bytes(&theirs, 8, 9)), (vec![3; 8], [&[3; 8][..], &[1]].concat()));
}

/// Ranks whose numbers have the same low bits share a place for what is remembered of their memory.
#[test]
fn memory_of_one_rank_is_not_taken_for_that_of_another() {
    const OTHER: u32 = 17;
    let mut all = runtimes("shm", OTHER + 1);
    let theirs = all[1].allocate(4_096).unwrap();
    all[1].register_memory(&theirs).unwrap();
    let start = address(&theirs);
    map(&mut all, 1, start);
    let (local, ends) = (heap(8), Ends::default());
    assert!(local.write(0, &[3; 8]));
    all[0].put(OTHER, start, part(&local, 0, 8), note(&ends)).unwrap();
    turn(&mut all, |_| !ends.borrow().is_empty());
    assert!(matches!(ends.borrow()[0], Err(AmError::NotRegistered { rank: OTHER, .. })), "{ends:?}");
    assert_eq!(bytes(&theirs, 0, 8), [0; 8]);
}

/// A fence runs the callbacks of all that has ended, whoever has found out.
#[test]
fn a_fence_runs_callbacks_of_what_has_ended_before() {
    let mut all = runtimes("shm", 2);
    let theirs = heap(4_096);
    all[1].register_memory(&theirs).unwrap();
    let ends = Ends::default();
    for round in 1..4 * FENCES_PER_POLL as usize {
        all[0].put(1, address(&theirs), part(&heap(64), 0, 64), note(&ends)).unwrap();
        for _ in 0..1_000_000 {
            if all[0].process().operations(None) == 0 {
                break;
            }
            all[0].process().progress();
            all[1].poll();
        }
        all[0].fence(1).unwrap();
        assert_eq!(ends.borrow().len(), round);
    }
    assert!(ends.borrow().iter().all(Result::is_ok));
}

/// Who only puts and fences hears others, too.
#[test]
fn messages_are_handled_by_who_puts_and_fences_alone() {
    let mut all = runtimes("shm", 2);
    let theirs = all[1].allocate(4_096).unwrap();
    all[1].register_memory(&theirs).unwrap();
    let contexts: Vec<Context> = all.iter_mut().map(|runtime| runtime.context().unwrap()).collect();
    let handled = Rc::new(Cell::new(0));
    let count = handled.clone();
    all[0].register(contexts[0], 0, move |_, _| count.set(count.get() + 1)).unwrap();
    let start = address(&theirs);
    map(&mut all, 1, start);
    all[1].request(contexts[1], 0, 0, &[], b"first").unwrap();
    turn(&mut all, |_| handled.get() == 1);
    let local = part(&heap(8), 0, 8);
    for round in 2..10 {
        all[1].request(contexts[1], 0, 0, &[], b"next").unwrap();
        for _ in 0..4 * FENCES_PER_POLL {
            all[0].put(1, start, &local, |_, result| assert!(result.is_ok())).unwrap();
            all[0].fence(1).unwrap();
        }
        assert_eq!(handled.get(), round);
    }
}
