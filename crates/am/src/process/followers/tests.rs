//! Puts that a message follows, between ranks that one process is all of.

use super::Following;
use crate::description::Description;
use crate::error::{AmError, Result};
use crate::limits::ARGS_MAX;
use crate::process::onesided_tests::{Ends, bytes, heap, note};
use crate::process::registered::address;
use crate::process::tests::{poll_all, runtimes, turn};
use crate::process::{Context, Elements};
use crate::runtime::Runtime;
use std::cell::RefCell;
use std::rc::Rc;

/// More than there are credits for.
const MESSAGES: usize = 2_000;
const WORD: usize = 8;

fn words(count: usize) -> Elements {
    Elements { count, description: Description::bytes(WORD).unwrap() }
}

fn following(context: Context, rank: u32, args: Vec<i64>) -> Following {
    Following { context, rank, handler: 7, args }
}

#[test]
fn the_handler_finds_the_data_of_its_put_and_all_come_in_order() {
    for device in ["shm", "udp-lo"] {
        let mut all = runtimes(device, 2);
        let context = all[0].context().unwrap();
        let (from, to) = (heap(MESSAGES * WORD), heap(MESSAGES * WORD));
        for number in 0..MESSAGES {
            assert!(from.write(number * WORD, &(number as u64 + 1).to_ne_bytes()));
        }
        all[1].register_memory(&to).unwrap();
        let handled = Rc::new(RefCell::new(Vec::new()));
        let (there, note_handled) = (to.clone(), handled.clone());
        let handle = move |_: &mut Runtime, message: &crate::Message<'_>| {
            let number = message.args()[0] as usize;
            assert!(message.data().is_empty());
            assert_eq!(bytes(&there, number * WORD, WORD), (number as u64 + 1).to_ne_bytes());
            note_handled.borrow_mut().push(number);
        };
        let theirs = all[1].context().unwrap();
        all[1].register(theirs, 7, handle).unwrap();
        let ends = Ends::default();
        for number in 0..MESSAGES {
            let remote = (address(&to) + (number * WORD) as u64, words(1));
            let local = (&from, (number * WORD) as isize, words(1));
            let message = following(context, 1, vec![number as i64]);
            all[0].put_am(remote, local, message, note(&ends)).unwrap();
        }
        turn(&mut all, |_| handled.borrow().len() == MESSAGES && ends.borrow().len() == MESSAGES);
        assert!(handled.borrow().iter().copied().eq(0..MESSAGES), "{device}");
        assert!(ends.borrow().iter().all(Result::is_ok), "{device}");
    }
}

#[test]
fn mistakes_start_nothing() {
    let mut all = runtimes("shm", 2);
    let (context, freed) = (all[0].context().unwrap(), all[0].named_context("freed").unwrap());
    all[0].free(freed).unwrap();
    let (from, to, ends) = (heap(2 * WORD), heap(2 * WORD), Ends::default());
    assert!(from.write(0, &[1; 2 * WORD]));
    all[1].register_memory(&to).unwrap();
    let mut try_put = |local: usize, message| {
        let (remote, local) = ((address(&to), words(1)), (&from, 0, words(local)));
        all[0].put_am(remote, local, message, note(&ends))
    };
    let to_nobody = try_put(1, following(context, 2, vec![]));
    assert!(matches!(to_nobody, Err(AmError::Range(_))), "{to_nobody:?}");
    let too_many = try_put(1, following(context, 1, vec![0; ARGS_MAX + 1]));
    assert!(matches!(too_many, Err(AmError::Argument(_))), "{too_many:?}");
    assert!(try_put(1, following(freed, 1, vec![])).is_err());
    assert!(try_put(2, following(context, 1, vec![])).is_err(), "both sides differ in length");
    for _ in 0..1_000 {
        poll_all(&mut all);
    }
    assert!(ends.borrow().is_empty());
    assert_eq!(bytes(&to, 0, 2 * WORD), [0; 2 * WORD]);
}

#[test]
fn a_put_that_fails_sends_no_message_and_one_to_a_rank_that_is_gone_ends() {
    let mut all = runtimes("shm", 2);
    let context = all[0].context().unwrap();
    let theirs = all[1].context().unwrap();
    all[1].register(theirs, 7, |_, _| panic!("nothing was written")).unwrap();
    let (from, to, ends) = (heap(WORD), heap(WORD), Ends::default());
    // The memory is not registered.
    let put = |runtime: &mut Runtime| {
        let (remote, local) = ((address(&to), words(1)), (&from, 0, words(1)));
        runtime.put_am(remote, local, following(context, 1, vec![]), note(&ends)).unwrap();
    };
    put(&mut all[0]);
    turn(&mut all, |_| ends.borrow().len() == 1);
    assert!(matches!(ends.borrow()[0], Err(AmError::NotRegistered { rank: 1, .. })), "{ends:?}");
    drop(all.pop());
    put(&mut all[0]);
    turn(&mut all, |_| ends.borrow().len() == 2);
    assert!(matches!(ends.borrow()[1], Err(AmError::Gone { rank: 1, .. })), "{ends:?}");
}

#[test]
fn whoever_leaves_has_sent_the_messages_of_its_puts() {
    let mut all = runtimes("udp-lo", 2);
    let context = all[0].context().unwrap();
    let (from, to, ends) = (heap(WORD), heap(WORD), Ends::default());
    let handled = Rc::new(RefCell::new(0));
    let theirs = all[1].context().unwrap();
    let count = handled.clone();
    all[1].register(theirs, 7, move |_, _| *count.borrow_mut() += 1).unwrap();
    all[1].register_memory(&to).unwrap();
    for _ in 0..MESSAGES {
        let (remote, local) = ((address(&to), words(1)), (&from, 0, words(1)));
        all[0].put_am(remote, local, following(context, 1, vec![]), note(&ends)).unwrap();
    }
    // `quiet` asks whether a runtime is idle.
    assert!(!all[0].is_idle());
    turn(&mut all, |all| {
        all[0].process().settle();
        all[0].is_idle()
    });
    assert!(*handled.borrow() == MESSAGES && ends.borrow().len() == MESSAGES);
}
