//! Large messages between processes of a job that one process is all of.

use super::onesided_tests::{bytes, heap, part};
use super::tests::{poll_all, runtimes, turn};
use super::*;
use crate::description::Description;
use crate::limits::LARGE_MESSAGES_MAX;
use crate::runtime::Runtime;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How messages have ended, as it is written down: at their senders, or at their receivers.
type Ends = Rc<RefCell<Vec<String>>>;

fn note(ends: &Ends, name: String) -> impl FnOnce(&mut Runtime, Result<()>) + 'static {
    let ends = ends.clone();
    move |_, result| {
        let how = match result {
            Ok(()) => "well".to_owned(),
            Err(AmError::Aborted) => "aborted".to_owned(),
            Err(AmError::Differs { .. }) => "differs".to_owned(),
            Err(AmError::Gone { .. }) => "gone".to_owned(),
            Err(error) => error.to_string(),
        };
        ends.borrow_mut().push(format!("{name}: {how}"));
    }
}

fn row(len: usize) -> Elements {
    Elements { count: 1, description: Description::bytes(len).unwrap() }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// A context with this handler of large messages, the number 3, at each.
fn handle(
    all: &mut [Runtime],
    handler: impl Fn(&mut Runtime, &crate::Message<'_>) + Clone + 'static,
) -> Context {
    let mut made = None;
    for runtime in all {
        let context = runtime.context().unwrap();
        let handler = handler.clone();
        runtime.register_large(context, 3, move |runtime, message| handler(runtime, message)).unwrap();
        made = Some(context);
    }
    made.unwrap()
}

#[test]
fn data_of_any_length_go_where_the_handler_says() {
    for device in ["shm", "udp-lo", "tcp-lo"] {
        let mut all = runtimes(device, 2);
        let (ends, target) = (Ends::default(), heap(3_000_000));
        let (into, noted) = (target.clone(), ends.clone());
        let context = handle(&mut all, move |runtime, message| {
            let len = message.large_bytes().unwrap() as usize;
            assert_eq!((message.data(), message.args()), (&[][..], &[len as i64, -1][..]));
            let held = runtime.hold(message.token()).unwrap();
            assert!(matches!(runtime.hold(message.token()), Err(AmError::State(_))));
            // Every third one goes to every second byte.
            let (origin, elements) = match len % 3 {
                0 => (
                    5,
                    Elements {
                        count: len,
                        description: Description::resized(&Description::bytes(1).unwrap(), 0, 2).unwrap(),
                    },
                ),
                _ => (7, row(len)),
            };
            let done = note(&noted, format!("{len} received"));
            runtime.accept(held, (&into, origin, elements), done).unwrap();
            runtime.reply(message.token(), 4, &[], &[]).unwrap();
        });
        let replies = Rc::new(Cell::new(0));
        for runtime in &mut all {
            let count = replies.clone();
            runtime.register(context, 4, move |_, _| count.set(count.get() + 1)).unwrap();
        }
        let lens = [0, 1, 8_048, 8_049, 300_000, 1_000_003];
        for (number, len) in lens.into_iter().enumerate() {
            let data = pattern(len);
            let from = heap(len + 9);
            assert!(from.write(9, &data));
            let to = u32::from(number % 4 != 3);
            let args = [len as i64, -1];
            all[0]
                .send_large(context, to, 3, &args, part(&from, 9, len), note(&ends, format!("{len} sent")))
                .unwrap();
            turn(&mut all, |_| ends.borrow().len() == 2 && replies.get() == number + 1);
            let mut ended = std::mem::take(&mut *ends.borrow_mut());
            ended.sort();
            assert_eq!(ended, [format!("{len} received: well"), format!("{len} sent: well")], "{device}");
            let got = match len % 3 {
                0 => bytes(&target, 5, 2 * len).into_iter().step_by(2).collect(),
                _ => bytes(&target, 7, len),
            };
            assert!(got == data, "{device}: {len} bytes to {to}");
        }
        turn(&mut all, |all| all[0].process().is_idle() && all[1].process().is_idle());
    }
}

/// Both sides learn that a handler did not want a message, had no space for it, or did not decide. Later messages pass those that are held.
#[test]
fn messages_are_held_aborted_and_of_other_lengths() {
    for device in ["shm", "udp-lo"] {
        let mut all = runtimes(device, 2);
        let (ends, held, target) = (Ends::default(), Rc::new(RefCell::new(Vec::new())), heap(200));
        let (noted, keep, into) = (ends.clone(), held.clone(), target.clone());
        let context = handle(&mut all, move |runtime, message| {
            let number = message.args()[0];
            match number % 5 {
                0 => {}
                1 => keep.borrow_mut().push((number, runtime.hold(message.token()).unwrap())),
                2 => {
                    let held = runtime.hold(message.token()).unwrap();
                    runtime.abort(held).unwrap();
                    assert!(matches!(runtime.abort(held), Err(AmError::State(_))));
                }
                _ => {
                    let held = runtime.hold(message.token()).unwrap();
                    let outside = runtime.accept(held, (&into, 101, row(100)), |_, _| panic!("not accepted"));
                    assert!(matches!(outside, Err(AmError::Described(_))), "{outside:?}");
                    let len = if number % 5 == 3 { 99 } else { 100 };
                    runtime
                        .accept(held, (&into, 0, row(len)), note(&noted, format!("{number} received")))
                        .unwrap();
                }
            }
        });
        let from = heap(100);
        for to in [1, 0] {
            for number in 0..5 {
                let done = note(&ends, format!("{number} sent"));
                all[0].send_large(context, to, 3, &[number], part(&from, 0, 100), done).unwrap();
            }
            turn(&mut all, |_| ends.borrow().len() == 6 && held.borrow().len() == 1);
            let mut ended = std::mem::take(&mut *ends.borrow_mut());
            ended.sort();
            let wanted = [
                "0 sent: aborted",
                "2 sent: aborted",
                "3 received: differs",
                "3 sent: differs",
                "4 received: well",
                "4 sent: well",
            ];
            assert_eq!(ended, wanted, "{device}, to {to}");
            assert!(!all[0].process().is_idle());
            let (_, kept) = held.borrow_mut().pop().unwrap();
            let receiver = &mut all[to as usize];
            receiver.accept(kept, (&target, 100, row(100)), note(&ends, "1 received".into())).unwrap();
            assert!(matches!(receiver.abort(kept), Err(AmError::State(_))));
            turn(&mut all, |_| ends.borrow().len() == 2);
            assert!(std::mem::take(&mut *ends.borrow_mut()).iter().all(|end| end.ends_with("well")));
        }
        let never = |_: &mut Runtime, _| panic!("nothing was started");
        assert!(matches!(
            all[0].send_large(context, 2, 3, &[], part(&from, 0, 1), never),
            Err(AmError::Range(_))
        ));
        assert!(matches!(
            all[0].send_large(context, 1, 3, &[], part(&from, 1, 100), never),
            Err(AmError::Range(_))
        ));
        assert!(matches!(
            all[0].send_large(context, 1, 3, &[0; 17], part(&from, 0, 1), never),
            Err(AmError::Argument(_))
        ));
    }
}

/// A receiver that holds all of them bounds its senders, and what is held when its sender dies ends when it is accepted.
#[test]
fn held_messages_are_bounded_and_outlive_their_sender() {
    let mut all = runtimes("shm", 2);
    let (ends, held) = (Ends::default(), Rc::new(RefCell::new(Vec::new())));
    let keep = held.clone();
    let context = handle(&mut all, move |runtime, message| {
        keep.borrow_mut().push(runtime.hold(message.token()).unwrap());
    });
    let from = heap(8);
    let mut sent = 0;
    while sent < LARGE_MESSAGES_MAX {
        let process = all[0].process();
        match process.send_large(Starter::Program, context, 1, 3, &[], part(&from, 0, 8), u64::from(sent)) {
            Ok(()) => sent += 1,
            Err(AmError::WouldBlock) => poll_all(&mut all),
            Err(error) => panic!("{error}"),
        }
    }
    turn(&mut all, |_| held.borrow().len() == LARGE_MESSAGES_MAX as usize);
    let more = all[0].process().send_large(Starter::Program, context, 1, 3, &[], part(&from, 0, 8), 0);
    assert!(matches!(more, Err(AmError::WouldBlock)), "{more:?}");
    // An active message still passes.
    let handled = Rc::new(Cell::new(0));
    let count = handled.clone();
    all[1].register(context, 9, move |_, _| count.set(count.get() + 1)).unwrap();
    all[0].request(context, 1, 9, &[], b"passes").unwrap();
    turn(&mut all, |_| handled.get() == 1);

    let gone = Rc::new(Cell::new(false));
    let seen = gone.clone();
    all[1].on_gone(move |_, _| seen.set(true));
    drop(all.remove(0));
    turn(&mut all, |_| gone.get());
    let (one, target) = (held.borrow_mut().pop().unwrap(), heap(8));
    all[0].accept(one, (&target, 0, row(8)), note(&ends, "orphan".into())).unwrap();
    turn(&mut all, |_| !ends.borrow().is_empty());
    assert_eq!(*ends.borrow(), ["orphan: gone"]);
}
