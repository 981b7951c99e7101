//! Processes of a job that one process is all of.

use super::*;
use crate::limits;
use crate::runtime::Runtime;
use cci::{Context as Devices, Endpoint, Options};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

/// Nothing here takes nearly so long.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// To, from, which context, arguments, length and sum of the data.
type Seen = (u32, u32, usize, Vec<i64>, usize, u64);

fn processes(device: &str, count: u32) -> Vec<Process> {
    let devices = Devices::new().unwrap();
    let endpoint = |_| Endpoint::create(devices.device(device).unwrap(), Options::default()).unwrap();
    let ranks = Ranks::of_one_process((0..count).map(endpoint).collect()).unwrap();
    ranks.into_iter().map(Process::new).collect()
}

pub(super) fn runtimes(device: &str, count: u32) -> Vec<Runtime> {
    processes(device, count).into_iter().map(Runtime::over).collect()
}

/// Turns all until `done`.
pub(super) fn turn(all: &mut [Runtime], mut done: impl FnMut(&mut [Runtime]) -> bool) {
    let start = Instant::now();
    while !done(all) {
        for runtime in &mut *all {
            runtime.poll();
        }
        assert!(start.elapsed() < LIMIT, "nothing comes of it");
    }
}

pub(super) fn poll_all(all: &mut [Runtime]) {
    for runtime in all {
        runtime.poll();
    }
}

fn take<T: Default>(cell: &Rc<RefCell<T>>) -> T {
    std::mem::take(&mut cell.borrow_mut())
}

#[test]
fn messages_of_all_lengths_come_in_order_with_their_arguments() {
    for device in ["shm", "udp-lo", "tcp-lo", "any"] {
        let mut all = runtimes(device, 3);
        let got = Rc::new(RefCell::new(Vec::new()));
        for runtime in &mut all {
            let rank = runtime.rank();
            let (one, two) = (runtime.context().unwrap(), runtime.named_context("two").unwrap());
            for (context, name) in [(one, 1), (two, 2)] {
                let got = got.clone();
                let take = move |_: &mut Runtime, message: &crate::Message<'_>| {
                    assert_eq!(message.data().as_ptr().align_offset(16), 0);
                    let sum = message.data().iter().map(|&byte| u64::from(byte)).sum::<u64>();
                    let len = message.data().len();
                    got.borrow_mut().push((rank, message.sender(), name, message.args().to_vec(), len, sum));
                };
                runtime.register(context, 9, take).unwrap();
            }
        }
        let lens = [0, 1, 8, 100, 1_000, 4_096, limits::DATA_BYTES_MAX];
        let mut sent = Vec::new();
        for (number, len) in lens.into_iter().cycle().take(40).enumerate() {
            for from in 0..3 {
                let to = (from + number as u32) % 3;
                let args: Vec<i64> = (0..number as i64 % 17).map(|arg| (arg - number as i64) << 40).collect();
                let runtime = &mut all[from as usize];
                let context = match number % 2 {
                    0 => Context::of_number(0),
                    _ => runtime.named_context("two").unwrap(),
                };
                let data = vec![number as u8; len];
                runtime.request(context, to, 9, &args, &data).unwrap();
                let sum = (number as u8 as usize * len) as u64;
                sent.push((to, from, number % 2 + 1, args, len, sum));
            }
        }
        turn(&mut all, |_| got.borrow().len() == sent.len());
        let got = take(&got);
        for pair in (0..3).flat_map(|to| (0..3).map(move |from| (to, from))) {
            let of = |all: &[Seen]| -> Vec<_> {
                all.iter().filter(|one| (one.0, one.1) == pair).cloned().collect()
            };
            assert_eq!(of(&got), of(&sent), "{device}: to and from {pair:?}");
        }
    }
}

#[test]
fn described_data_arrive_packed() {
    let mut all = runtimes("shm", 2);
    let context = all[0].context().unwrap();
    let theirs = all[1].context().unwrap();
    let got = Rc::new(RefCell::new(Vec::new()));
    let answers = got.clone();
    all[0]
        .register(context, 1, move |_, message| answers.borrow_mut().push(message.data().to_vec()))
        .unwrap();
    // A column of a matrix of 20 rows.
    let matrix: Vec<u8> = (0..200).collect();
    let column = Description::strided(&[2, 20], &[10]).unwrap();
    let (take, rows, half) = (got.clone(), matrix.clone(), Description::strided(&[2, 10], &[10]).unwrap());
    let handle = move |runtime: &mut Runtime, message: &crate::Message<'_>| {
        take.borrow_mut().push(message.data().to_vec());
        let outside = runtime.reply_described(message.token(), 1, &[], &rows, 3, &half);
        assert!(matches!(outside, Err(AmError::Described(_))), "{outside:?}");
        runtime.reply_described(message.token(), 1, &[], &rows, 2, &half).unwrap();
        let again = runtime.reply_described(message.token(), 1, &[], &rows, 2, &half);
        assert!(again.is_err(), "a handler replies once");
    };
    all[1].register(theirs, 0, handle).unwrap();
    all[0].request_described(context, 1, 0, &[], &matrix[3..], 1, &column).unwrap();
    let outside = all[0].request_described(context, 1, 0, &[], &matrix[9..], 1, &column);
    assert!(matches!(outside, Err(AmError::Described(_))), "its last byte is not there: {outside:?}");
    let many = limits::DATA_BYTES_MAX / 40 + 1;
    let long = all[0].request_described(context, 1, 0, &[], &matrix, many, &column);
    assert!(matches!(long, Err(AmError::TooLong { .. })));
    turn(&mut all, |_| got.borrow().len() == 2);
    let packed = |of: &[u8]| -> Vec<u8> { of.iter().flat_map(|&first| [first, first + 1]).collect() };
    let sent: Vec<u8> = (0..20).map(|row| row * 10 + 3).collect();
    // Two elements of half a column: the second one begins where the last block of the first one ends.
    let replied: Vec<u8> = [0, 92].into_iter().flat_map(|at| (0..10).map(move |row| at + row * 10)).collect();
    assert_eq!(*got.borrow(), [packed(&sent), packed(&replied)]);
}

#[test]
fn a_ping_pong_of_replies_takes_one_credit() {
    let mut all = runtimes("shm", 2);
    let left = Rc::new(Cell::new(1_000));
    for runtime in &mut all {
        let context = runtime.context().unwrap();
        let left = left.clone();
        let reply = move |runtime: &mut Runtime, message: &crate::Message<'_>| {
            if left.get() > 0 {
                left.set(left.get() - 1);
                runtime.reply(message.token(), 0, &[], b"again").unwrap();
                let twice = runtime.reply(message.token(), 0, &[], b"twice");
                assert!(matches!(twice, Err(AmError::State(_))));
            }
        };
        runtime.register(context, 0, reply).unwrap();
    }
    all[0].request(Context::of_number(0), 1, 0, &[], b"begin").unwrap();
    turn(&mut all, |_| left.get() == 0);
    all.iter_mut().for_each(|runtime| runtime.process().settle());
    turn(&mut all, |all| all.iter_mut().all(|runtime| runtime.process().is_idle()));
}

/// Two processes send as much as they can, and each handler replies with as much as a message holds.
#[test]
fn handlers_that_flood_each_other_neither_block_nor_grow() {
    for device in ["shm", "udp-lo", "tcp-lo"] {
        let mut all = runtimes(device, 2);
        let (requests, replies) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        for runtime in &mut all {
            let context = runtime.context().unwrap();
            let (requests, replies) = (requests.clone(), replies.clone());
            let answer = move |runtime: &mut Runtime, message: &crate::Message<'_>| {
                requests.set(requests.get() + 1);
                runtime.reply(message.token(), 1, &[], &[2; limits::DATA_BYTES_MAX]).unwrap();
                let other = 1 - runtime.rank();
                // What a handler starts has credits of its own, and an end.
                let more = runtime.request(message.context(), other, 2, &[], &[]);
                assert!(matches!(more, Ok(()) | Err(AmError::WouldBlock)));
            };
            runtime.register(context, 0, answer).unwrap();
            runtime.register(context, 1, move |_, _| replies.set(replies.get() + 1)).unwrap();
            runtime.register(context, 2, |_, _| {}).unwrap();
        }
        let mut sent = 0;
        turn(&mut all, |all| {
            for runtime in all {
                let other = 1 - runtime.rank();
                while sent < 4_000
                    && runtime.try_request(Context::of_number(0), other, 0, &[], &[1; 3_000]).is_ok()
                {
                    sent += 1;
                }
            }
            replies.get() == 4_000
        });
        assert_eq!((sent, requests.get()), (4_000, 4_000), "{device}");
    }
}

#[test]
fn messages_wait_for_their_handlers_in_order_and_hold_the_sender_back() {
    let mut all = runtimes("shm", 2);
    let context = all[0].context().unwrap();
    let mut sent = 0;
    turn(&mut all, |all| {
        while all[0].try_request(context, 1, sent % 2, &[i64::from(sent)], b"early").is_ok() {
            sent += 1;
        }
        u32::from(sent) >= limits::credits(2) - limits::for_handlers(limits::credits(2))
    });
    for _ in 0..100 {
        poll_all(&mut all);
    }
    assert!(matches!(all[0].try_request(context, 1, 0, &[], b"one more"), Err(AmError::WouldBlock)));
    // The context comes first, then one handler, then the other.
    let got = Rc::new(RefCell::new(Vec::new()));
    let theirs = all[1].context().unwrap();
    for id in 0..2 {
        for _ in 0..10 {
            poll_all(&mut all);
        }
        assert!(got.borrow().len() <= 1, "what comes behind one that waits waits, too");
        let got = got.clone();
        all[1].register(theirs, id, move |_, message| got.borrow_mut().push(message.args()[0])).unwrap();
    }
    turn(&mut all, |_| got.borrow().len() == usize::from(sent));
    assert!(got.borrow().iter().copied().eq(0..i64::from(sent)));
    turn(&mut all, |all| all[0].try_request(context, 1, 0, &[-1], b"room").is_ok());
}

#[test]
fn a_freed_context_discards_what_comes() {
    let mut all = runtimes("shm", 2);
    let context = all[0].named_context("short-lived").unwrap();
    let theirs = all[1].named_context("short-lived").unwrap();
    all[1].register(theirs, 0, |_, _| panic!("its context was freed")).unwrap();
    all[1].free(theirs).unwrap();
    for _ in 0..2 * limits::credits(2) {
        turn(&mut all, |all| all[0].try_request(context, 1, 0, &[], b"late").is_ok());
    }
    all[0].process().settle();
    turn(&mut all, |all| all[0].process().is_idle());
    assert!(matches!(all[1].register(theirs, 1, |_, _| {}), Err(AmError::State(_))));
}

#[test]
fn mistakes_are_errors_and_change_nothing() {
    let mut all = runtimes("shm", 1);
    let runtime = &mut all[0];
    let context = runtime.context().unwrap();
    runtime.register(context, 0, |_, _| panic!("nothing was sent")).unwrap();
    assert!(matches!(runtime.register(context, 0, |_, _| {}), Err(AmError::Exists)));
    assert!(matches!(runtime.request(context, 1, 0, &[], &[]), Err(AmError::Range(_))));
    assert!(matches!(runtime.request(context, 0, 0, &[0; 17], &[]), Err(AmError::Argument(_))));
    let long = vec![0; limits::DATA_BYTES_MAX + 1];
    assert!(matches!(runtime.request(context, 0, 0, &[], &long), Err(AmError::TooLong { .. })));
    let other = runtime.context().unwrap();
    runtime.free(other).unwrap();
    assert!(matches!(runtime.request(other, 0, 0, &[], &[]), Err(AmError::State(_))));
    runtime.poll();
    assert!(runtime.process().is_idle());
}

#[test]
fn a_handler_does_not_wait() {
    let mut all = runtimes("shm", 1);
    let context = all[0].context().unwrap();
    let ran = Rc::new(Cell::new(0));
    let count = ran.clone();
    let wait = move |runtime: &mut Runtime, message: &crate::Message<'_>| {
        assert!(matches!(runtime.wait(None), Err(AmError::State(_))));
        assert!(matches!(runtime.barrier(), Err(AmError::State(_))));
        assert!(!runtime.poll());
        count.set(count.get() + 1);
        // To itself, until there are no credits left, which the call reports.
        while runtime.request(message.context(), 0, 1, &[], b"more").is_ok() {}
    };
    all[0].register(context, 0, wait).unwrap();
    let more = ran.clone();
    all[0].register(context, 1, move |_, _| more.set(more.get() + 1)).unwrap();
    all[0].request(context, 0, 0, &[], &[]).unwrap();
    turn(&mut all, |_| ran.get() as u32 == limits::credits(1));
}

#[test]
fn what_comes_behind_a_handler_that_panics_is_handled() {
    let mut all = runtimes("shm", 2);
    let contexts: Vec<_> = all.iter_mut().map(|runtime| runtime.context().unwrap()).collect();
    for (to, args) in [(0, 0), (1, 0), (1, 1)] {
        let (got, handler) = (Rc::new(RefCell::new(Vec::new())), (2 * to + args) as u16);
        let take = got.clone();
        let receive = move |_: &mut Runtime, message: &crate::Message<'_>| {
            assert_eq!(message.args(), &[7][..args]);
            take.borrow_mut().push(message.data()[0]);
            assert_ne!(message.data()[0], 1, "one of them fails");
        };
        all[to].register(contexts[to], handler, receive).unwrap();
        for number in 0..4 {
            all[0].request(contexts[0], to as u32, handler, &[7][..args], &[number]).unwrap();
        }
        let poll = std::panic::AssertUnwindSafe(|| turn(&mut all, |_| false));
        assert!(std::panic::catch_unwind(poll).is_err());
        turn(&mut all, |_| got.borrow().len() == 4);
        assert_eq!(*got.borrow(), [0, 1, 2, 3]);
        all[0].process().settle();
        turn(&mut all, |all| all.iter_mut().all(|runtime| runtime.process().is_idle()));
    }
}

#[test]
fn a_message_that_comes_alone_is_over_when_its_handler_panics() {
    let mut all = runtimes("shm", 2);
    let contexts: Vec<_> = all.iter_mut().map(|runtime| runtime.context().unwrap()).collect();
    let got = Rc::new(Cell::new(0));
    for (rank, context) in all.iter_mut().zip(&contexts) {
        let take = got.clone();
        let receive = move |_: &mut Runtime, message: &crate::Message<'_>| {
            take.set(take.get() + 1);
            assert_ne!(message.data(), [5], "one of them fails");
        };
        rank.register(*context, 0, receive).unwrap();
    }
    // There and back, as only a link with something under way is looked at so.
    for number in 0..10 {
        let (from, to) = if number % 2 == 0 { (0, 1) } else { (1, 0) };
        all[from].request(contexts[from], to as u32, 0, &[], &[number]).unwrap();
        let poll = std::panic::AssertUnwindSafe(|| turn(&mut all, |_| got.get() == u32::from(number) + 1));
        assert_eq!(std::panic::catch_unwind(poll).is_err(), number == 5);
        assert!(!all[to].process().is_handling());
    }
    for rank in &mut all {
        rank.process().settle();
    }
    turn(&mut all, |all| all.iter_mut().all(|runtime| runtime.process().is_idle()));
}

#[test]
fn a_rank_that_is_gone_is_reported_and_ends_barriers() {
    let mut all = runtimes("shm", 2);
    let context = all[0].context().unwrap();
    all[1].context().unwrap();
    all[0].request(context, 1, 0, &[], b"hello").unwrap();
    turn(&mut all, |all| all[0].process().links.are_sent());
    let gone = Rc::new(RefCell::new(Vec::new()));
    let report = gone.clone();
    all[0].on_gone(move |rank, _| report.borrow_mut().push(rank));
    drop(all.pop());
    assert!(matches!(all[0].barrier(), Err(AmError::Gone { rank: 1, .. })));
    turn(&mut all, |_| *gone.borrow() == [1]);
    assert!(matches!(all[0].request(context, 1, 0, &[], b"?"), Err(AmError::Gone { rank: 1, .. })));
    assert!(matches!(all[0].barrier(), Err(AmError::Gone { rank: 1, .. })));
}

/// With the job's key, and without good will.
#[test]
fn a_rank_that_does_not_keep_to_the_protocol_is_cut_off() {
    let name = crate::wire::ContextName::Unnamed(0).encode();
    let context = Header { value: name.len() as u32, ..Header::new(Kind::Context) };
    let context = [&context.encode()[..], &name].concat();
    let message = Header::new(Kind::Message).encode().to_vec();
    let answer = Header { flag: true, ..Header::new(Kind::Message) }.encode().to_vec();
    let arrival = |number| Header { value: number, ..Header::new(Kind::Barrier) }.encode().to_vec();
    // All that is allowed, and then what is not.
    let all_credits: Vec<_> = [context.clone()].into_iter().chain(vec![message.clone(); 256]).collect();
    let bad: Vec<Vec<Vec<u8>>> = vec![
        all_credits.iter().cloned().chain([message.clone()]).collect(),
        vec![context.clone(), answer],
        vec![message.clone()],
        vec![context.clone(), context.clone()],
        vec![arrival(2)],
        vec![arrival(0), arrival(0)],
        vec![vec![0; 16]],
        vec![vec![1; 3]],
        vec![[&message[..], &[1]].concat()],
    ];
    for (number, records) in [all_credits].into_iter().chain(bad).enumerate() {
        let devices = Devices::new().unwrap();
        let endpoint = |_| Endpoint::create(devices.device("shm").unwrap(), Options::default()).unwrap();
        let mut ranks = Ranks::of_one_process((0..2).map(endpoint).collect()).unwrap();
        let mut stranger = ranks.pop().unwrap();
        let mut process = Process::new(ranks.pop().unwrap());
        process.context().unwrap();
        stranger.connect(cci_job::Peer::of(0), LIMIT).unwrap();
        let (mut records, mut gone, start) = (VecDeque::from(records), false, Instant::now());
        let mut quiet_turns = 0;
        while !gone && quiet_turns < 100 {
            stranger.next_event();
            if let (Some(connection), Some(record)) =
                (stranger.connection(cci_job::Peer::of(0)), records.front())
                && stranger.endpoint().send(connection, record, 0, cci::SendFlags::SILENT).is_ok()
            {
                records.pop_front();
            }
            process.progress();
            if let Some(mut batch) = process.take_due() {
                while let Some(due) = process.next(&mut batch) {
                    gone |= matches!(due, Due::Gone { rank: 1, .. });
                }
                process.put_back(batch);
            }
            quiet_turns = if records.is_empty() { quiet_turns + 1 } else { 0 };
            assert!(start.elapsed() < LIMIT, "case {number}");
        }
        assert_eq!(gone, number > 0, "case {number}");
    }
}

#[test]
fn a_rank_that_asks_and_reads_no_answers_is_cut_off() {
    let devices = Devices::new().unwrap();
    let endpoint = |_| Endpoint::create(devices.device("shm").unwrap(), Options::default()).unwrap();
    let mut ranks = Ranks::of_one_process((0..2).map(endpoint).collect()).unwrap();
    let mut stranger = ranks.pop().unwrap();
    let mut process = Process::new(ranks.pop().unwrap());
    stranger.connect(cci_job::Peer::of(0), LIMIT).unwrap();
    let (mut asked, start) = (0, Instant::now());
    let question = crate::wire::Word::Ask(crate::wire::Range { start: 1, len_bytes: 1 }).encode();
    loop {
        match stranger.connection(cci_job::Peer::of(0)) {
            None => drop(stranger.next_event()),
            Some(connection) => {
                let sent = stranger.endpoint().send(connection, &question, 0, cci::SendFlags::SILENT);
                asked += usize::from(sent.is_ok());
            }
        }
        process.progress();
        if !process.gone.is_empty() {
            break;
        }
        assert!(
            start.elapsed() < LIMIT && asked < 10 * limits::OUTBOX_RECORDS_MAX,
            "{asked} answers are kept"
        );
    }
    assert!(asked > limits::OPERATIONS_MAX, "nobody is cut off for what is allowed");
}

/// Each on a thread of its own, as processes are.
#[test]
fn barriers_pass_and_all_is_handled_before_anybody_leaves() {
    for (device, count) in [("shm", 5), ("udp-lo", 3), ("tcp-lo", 2)] {
        let threads = processes(device, count).into_iter().map(|process| {
            std::thread::spawn(move || {
                let mut runtime = Runtime::over(process);
                let handled = Rc::new(Cell::new(0));
                let context = runtime.context().unwrap();
                let count = handled.clone();
                // Each message goes on to the next rank, until it has been everywhere thrice.
                let pass_on = move |runtime: &mut Runtime, message: &crate::Message<'_>| {
                    count.set(count.get() + 1);
                    let left = message.args()[0];
                    if left > 0 {
                        let next = (runtime.rank() + 1) % runtime.size();
                        runtime.request(message.context(), next, 0, &[left - 1], message.data()).unwrap();
                    }
                };
                runtime.register(context, 0, pass_on).unwrap();
                for _ in 0..20 {
                    runtime.barrier().unwrap();
                }
                let next = (runtime.rank() + 1) % runtime.size();
                let last = i64::from(runtime.size()) * 3 - 1;
                runtime.request(context, next, 0, &[last], b"around").unwrap();
                let size = runtime.size();
                runtime.finish().unwrap();
                assert_eq!(handled.get(), size * 3);
            })
        });
        let threads: Vec<_> = threads.collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

/// A rank that has lost another one leaves without the last barrier. Who waits there for both learns of it, although it had nothing to do with the
/// lost one.
#[test]
fn nobody_waits_in_a_barrier_for_a_rank_that_has_lost_one_and_left() {
    let mut all = runtimes("shm", 3);
    let contexts: Vec<_> = all.iter_mut().map(|runtime| runtime.context().unwrap()).collect();
    let handled = Rc::new(Cell::new(0));
    for (runtime, &context) in all.iter_mut().zip(&contexts) {
        let count = handled.clone();
        runtime.register(context, 0, move |_, _| count.set(count.get() + 1)).unwrap();
    }
    for to in [0, 2] {
        all[1].request(contexts[1], to, 0, &[], &[]).unwrap();
    }
    turn(&mut all, |_| handled.get() == 2);
    drop(all.pop());
    let lost = Rc::new(Cell::new(None));
    let report = lost.clone();
    all[1].on_gone(move |rank, _| report.set(Some(rank)));
    all[0].process().arrive().unwrap();
    turn(&mut all, |_| lost.get() == Some(2));
    assert!(matches!(all[0].process().has_passed(), Ok(false)), "it knows nothing yet");
    let leaving = all.pop().unwrap().into_process();
    let left = std::thread::spawn(move || leaving.close(LIMIT));
    let start = Instant::now();
    let error = loop {
        match all[0].process().has_passed() {
            Ok(passed) => assert!(!passed && start.elapsed() < LIMIT),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AmError::Gone { rank: 2, .. }), "{error}");
    assert!(left.join().unwrap());
}

/// Of five ranks, the third one never says anything to the first one, which has passed before it has connected with the third one.
#[test]
fn whoever_leaves_first_is_not_taken_for_lost_by_ranks_that_it_has_just_begun_to_reach() {
    let mut all = processes("shm", 5);
    let start = Instant::now();
    for process in &mut all[1..] {
        process.arrive().unwrap();
    }
    // A message connects ranks 0 and 1, so that what rank 0 says to rank 1 leaves at once. All others wait for rank 0.
    let mut first = all.remove(0);
    let context = first.context().unwrap();
    first.request(Starter::Program, context, 1, 0, &[], &[]).unwrap();
    let mut rounds = 0;
    while rounds < 100 {
        first.progress();
        for process in &mut all {
            assert!(!process.has_passed().unwrap(), "rank 0 has not arrived");
        }
        rounds += u32::from(first.links.are_sent());
        assert!(start.elapsed() < LIMIT, "ranks 0 and 1 do not connect");
    }
    first.arrive().unwrap();
    // Rank 1 hears of rank 0, and its answer is there before rank 0 has looked.
    for _ in 0..100 {
        all[0].progress();
    }
    assert!(first.has_passed().unwrap(), "all it has to hear has come");
    assert!(matches!(first.links.link(2).reach, link::Reach::Unused), "it has not connected with rank 2");
    let leaving = std::thread::spawn(move || first.close(LIMIT));
    // Its end comes behind what it has said.
    let mut have_passed = false;
    while !have_passed || !matches!(all[1].links.link(0).reach, link::Reach::Gone(_)) {
        all.iter_mut().for_each(Process::progress);
        have_passed = true;
        for process in &mut all {
            have_passed &= process.has_passed().unwrap();
        }
        assert!(start.elapsed() < LIMIT, "rank 2 does not hear of rank 0");
    }
    assert!(leaving.join().unwrap());
    for process in &mut all {
        process.check_all().expect("rank 0 has left, and was not lost");
    }
}
