//! What the ring does between two ends that are honest.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use cci_memory::ring::{
    Armed, BadRegion, Consumer, Like, Line, Producer, PushError, RecordHeader, payload_bytes_limit,
    record_bytes, region_bytes,
};
use common::{Memory, Random, pair};

fn header(number: u32) -> RecordHeader {
    RecordHeader { kind: number as u8, flags: (number >> 8) as u8, conn: number, ack: !number }
}

fn pop(consumer: &mut Consumer<Memory>) -> Option<(RecordHeader, Vec<u8>)> {
    let record = consumer.peek().unwrap()?;
    let mut bytes = vec![0; record.len_bytes() as usize];
    assert_eq!(record.copy_to(&mut bytes), bytes.len());
    let header = record.header();
    consumer.consume();
    Some((header, bytes))
}

#[test]
fn carries_records_of_every_length_in_order() {
    let limit = payload_bytes_limit(1024);
    let (mut producer, mut consumer) = pair(1024, limit as u32);
    let mut end = 0;
    producer.prefetch();
    for len in (0..=limit).step_by(if cfg!(miri) { 7 } else { 1 }) {
        let bytes: Vec<u8> = (0..len).map(|at| (at + len) as u8).collect();
        let (left, right) = bytes.split_at(len / 3);
        let span = producer.push(header(len as u32), &[left, &[], right]).unwrap();
        assert!(span.start() >= end && span.end() == span.start() + record_bytes(len) as u64);
        assert_eq!(producer.consumed(), Ok(end));
        end = span.end();
        assert_eq!(pop(&mut consumer), Some((header(len as u32), bytes)));
        assert_eq!(pop(&mut consumer), None);
        assert!(consumer.publish_head());
        assert!(!consumer.publish_head());
        assert_eq!(producer.consumed(), Ok(end));
    }
}

#[test]
fn partial_copies_read_what_they_say() {
    let (mut producer, mut consumer) = pair(1024, 200);
    let bytes: Vec<u8> = (0..200).collect();
    producer.push(header(1), &[&bytes]).unwrap();
    let record = consumer.peek().unwrap().unwrap();
    for skip in (0..210).step_by(if cfg!(miri) { 13 } else { 1 }) {
        for len in [0, 1, 3, 8, 17, 64, 65, 300] {
            let mut to = [0xFF; 300];
            let count = record.copy_from(skip, &mut to[..len]);
            assert_eq!(count, len.min(200usize.saturating_sub(skip)));
            assert_eq!(&to[..count], bytes.get(skip..skip + count).unwrap_or(&[]));
            assert!(to[count..].iter().all(|byte| *byte == 0xFF));
        }
    }
    let mut to = [MaybeUninit::uninit(); 256];
    let count = record.copy_to_uninit(&mut to);
    // SAFETY: so many bytes were written.
    let read: Vec<u8> = to[..count].iter().map(|byte| unsafe { byte.assume_init() }).collect();
    assert_eq!(read, bytes);
}

#[test]
fn a_full_ring_says_so_and_loses_nothing() {
    let (mut producer, mut consumer) = pair(256, 48);
    assert_eq!(producer.push(header(0), &[&[0; 49]]), Err(PushError::TooLong));
    let mut next = 0;
    for round in 0..50u32 {
        let mut pushed = 0;
        while producer.push(header(round + pushed), &[&pushed.to_ne_bytes()]).is_ok() {
            pushed += 1;
        }
        assert_eq!(pushed, 3, "one of the four lines stays free");
        assert_eq!(producer.push(header(0), &[]), Err(PushError::Full));
        for number in 0..pushed {
            assert_eq!(pop(&mut consumer), Some((header(round + number), number.to_ne_bytes().to_vec())));
        }
        // Not published: no room yet.
        assert_eq!(producer.push(header(0), &[]), Err(PushError::Full));
        consumer.publish_head();
        next += 3 * 64;
        assert_eq!(producer.consumed(), Ok(next));
    }
}

#[test]
fn a_peeked_record_stays_until_consumed() {
    let (mut producer, mut consumer) = pair(256, 48);
    producer.push(header(1), &[b"one"]).unwrap();
    producer.push(header(2), &[b"two"]).unwrap();
    for _ in 0..3 {
        assert_eq!(consumer.peek().unwrap().unwrap().header(), header(1));
    }
    consumer.consume();
    consumer.consume();
    assert_eq!(pop(&mut consumer), Some((header(2), b"two".to_vec())));
}

#[test]
fn one_arming_asks_for_one_wake() {
    let (mut producer, mut consumer) = pair(256, 48);
    assert!(!producer.needs_wake());
    assert_eq!(consumer.arm(), Armed::MaySleep);
    assert!(!producer.needs_progress_wake(), "armed for records only");
    producer.push(header(1), &[]).unwrap();
    assert!(producer.needs_wake());
    assert!(!producer.needs_wake());
    assert_eq!(consumer.arm(), Armed::HasRecord);
    consumer.disarm();
    assert!(!producer.needs_wake());
    assert_eq!(consumer.arm_for_progress(), Armed::HasRecord);
    assert!(producer.needs_progress_wake());
    assert!(!producer.needs_wake());
}

#[test]
fn a_record_taken_back_is_not_delivered() {
    let (mut producer, mut consumer) = pair(1024, 100);
    let delivered = producer.push(header(1), &[b"delivered"]).unwrap();
    let late = producer.push(header(2), &[&[2; 100]]).unwrap();
    let kept = producer.push(header(3), &[b"kept"]).unwrap();
    assert!(producer.try_cancel().unwrap().is_none(), "it is not stalled");
    assert!(pop(&mut consumer).is_some());
    consumer.stall();
    assert!(consumer.is_stalled() && producer.is_stalled());
    assert!(consumer.peek().unwrap().is_none());
    assert_eq!(consumer.arm(), Armed::MaySleep, "nothing that could be taken");
    {
        let mut guard = producer.try_cancel().unwrap().unwrap();
        assert!(!consumer.resume());
        assert!(!guard.void(delivered));
        assert!(guard.void(late));
    }
    assert!(consumer.resume());
    assert!(!producer.is_stalled());
    assert_eq!(pop(&mut consumer), Some((header(3), b"kept".to_vec())));
    consumer.publish_head();
    assert_eq!(producer.consumed(), Ok(kept.end()));
}

/// Takes the next record, and those of one line behind it that carry the same.
fn pop_lines(consumer: &mut Consumer<Memory>, lines: &mut [Line]) -> Vec<(RecordHeader, Vec<u8>)> {
    let Some(record) = consumer.peek().unwrap() else { return Vec::new() };
    let like = record.like(48);
    let mut popped = Vec::from_iter(pop(consumer));
    let header = popped[0].0;
    let (taken, bytes) = consumer.take_lines(like, lines);
    assert_eq!(bytes as usize, lines[..taken].iter().map(|line| line.bytes().len()).sum());
    popped.extend(lines[..taken].iter().map(|line| (header, line.bytes().to_vec())));
    popped
}

#[test]
fn records_that_become_visible_together_are_taken_together() {
    let (mut producer, mut consumer) = pair(1024, 100);
    let bytes: Vec<u8> = (0..100).collect();
    let mut lines = vec![Line::EMPTY; 20];
    for round in 0..50 {
        let lens = [8, 0, 48, 17, 3, 49, 8];
        let all: Vec<&[u8]> = lens.iter().map(|len| &bytes[round..round + len]).collect();
        let (span, taken) = producer.push_lines(header(1), &all, 100, 99).unwrap().unwrap();
        assert_eq!((span.records(), taken), (5, 76), "up to the one that takes two lines");
        assert_eq!(span.end() - span.start(), 5 * 64);
        assert_eq!(producer.push_lines(header(1), &all[5..], 100, 99), Ok(None));
        let (last, _) = producer.push_lines(header(2), &all[6..], 100, 99).unwrap().unwrap();
        assert_eq!((last.start(), last.records()), (span.end(), 1));
        let popped = pop_lines(&mut consumer, &mut lines);
        assert!(popped.iter().map(|(_, bytes)| &bytes[..]).eq(all[..5].iter().copied()), "round {round}");
        assert_eq!(pop(&mut consumer), Some((header(2), all[6].to_vec())), "it carries something else");
        assert!(pop_lines(&mut consumer, &mut lines).is_empty());
        consumer.publish_head();
    }
    assert_eq!(producer.push_lines(header(1), &[&bytes[..9]], 8, 99), Ok(None), "longer than allowed");
    let all = [&bytes[..1]; 40];
    assert_eq!(producer.push_lines(header(1), &all, 1, 7).unwrap().unwrap().0.records(), 7);
    assert_eq!(
        producer.push_lines(header(1), &all, 1, 99).unwrap().unwrap().0.records(),
        8,
        "one line stays free"
    );
    assert_eq!(producer.push_lines(header(1), &all, 1, 99), Ok(None));
    assert_eq!(pop_lines(&mut consumer, &mut lines[..4]).len(), 5);
    assert_eq!(pop_lines(&mut consumer, &mut lines).len(), 10);
}

#[test]
fn records_of_several_lines_become_visible_together_up_to_the_end_of_the_data() {
    let (mut producer, mut consumer) = pair(1024, 200);
    let bytes: Vec<u8> = (0..200).collect();
    for round in 0..50 {
        // Two lines each, up to the one that takes three.
        let all: Vec<&[u8]> = [49, 112, 60, 113, 60].iter().map(|&len| &bytes[round..round + len]).collect();
        let mut sent = 0;
        while sent < all.len() {
            let before = sent;
            let (span, taken) = producer.push_alike(header(1), &all[sent..], 200, 99).unwrap().unwrap();
            let messages = &all[sent..sent + span.records() as usize];
            sent += messages.len();
            assert!(before >= 3 || sent <= 3, "what takes more lines is left");
            assert_eq!(taken as usize, messages.iter().map(|message| message.len()).sum());
            assert_eq!(span.end() - span.start(), (record_bytes(messages[0].len()) * messages.len()) as u64);
            for message in messages {
                assert_eq!(pop(&mut consumer), Some((header(1), message.to_vec())), "round {round}");
            }
            assert_eq!(pop(&mut consumer), None);
            assert_eq!(consumer.head(), span.end());
            consumer.publish_head();
        }
    }
    let message = &bytes[..100];
    assert_eq!(producer.push_alike(header(1), &[message], 99, 9), Ok(None), "longer than allowed");
    let mut records = 0;
    while let Some((span, _)) = producer.push_alike(header(1), &[message; 9], 200, 2).unwrap() {
        assert!(span.records() <= 2);
        records += span.records();
    }
    assert!((6..=7).contains(&records), "{records}: one line stays free, and one may be a PAD");
    while pop(&mut consumer).is_some() {
        records -= 1;
    }
    assert_eq!(records, 0);
}

#[test]
fn a_record_of_one_line_is_taken_without_a_look_at_the_rest() {
    let (mut producer, mut consumer) = pair(1024, 100);
    let bytes: Vec<u8> = (0..100).collect();
    let mut to = [0; 48];
    for round in 0..50u32 {
        let len = round as usize % 49;
        producer.push(header(round), &[&bytes[..len]]).unwrap();
        producer.push(header(round), &[&bytes[..49]]).unwrap();
        assert_eq!(consumer.peek_line(header(round).kind ^ 1), None, "of another kind");
        let (found, len_bytes) = consumer.peek_line(header(round).kind).unwrap();
        assert_eq!((found, len_bytes as usize), (header(round), len));
        consumer.take_line(len_bytes, &mut to);
        assert_eq!(to[..len], bytes[..len]);
        assert_eq!(consumer.peek_line(header(round).kind), None, "it takes two lines");
        consumer.consume();
        assert_eq!(pop(&mut consumer), Some((header(round), bytes[..49].to_vec())));
        assert_eq!(consumer.peek_line(header(round).kind), None, "there is none");
        consumer.publish_head();
    }
    producer.push(header(1), &[&bytes[..8]]).unwrap();
    consumer.stall();
    assert_eq!(consumer.peek_line(header(1).kind), None, "nothing while it is stalled");
}

#[test]
fn of_records_in_a_row_those_are_taken_back_that_were_not_taken() {
    let (mut producer, mut consumer) = pair(1024, 100);
    let (mut span, _) = producer.push_lines(header(1), &[&[7; 8][..]; 6], 100, 99).unwrap().unwrap();
    assert!(pop(&mut consumer).is_some() && pop(&mut consumer).is_some());
    consumer.stall();
    assert_eq!(consumer.take_lines(like_those(), &mut [Line::EMPTY]).0, 0, "nothing while it is stalled");
    assert_eq!(producer.try_cancel().unwrap().unwrap().void_run(&mut span), 4);
    assert_eq!((span.records(), span.consume_to(producer.consumed().unwrap())), (2, 2));
    assert!(consumer.resume());
    assert_eq!(pop(&mut consumer), None);
    assert_eq!(consumer.head(), producer.tail());
}

/// What records with `header(1)` are like.
fn like_those() -> Like {
    let (mut producer, mut consumer) = pair(256, 48);
    producer.push(header(1), &[]).unwrap();
    consumer.peek().unwrap().unwrap().like(48)
}

#[test]
fn lines_longer_than_asked_for_are_left_to_peek() {
    let (mut producer, mut consumer) = pair(1024, 100);
    producer.push_lines(header(1), &[&[7; 8][..], &[7; 9], &[7; 8]], 100, 99).unwrap().unwrap();
    let like = consumer.peek().unwrap().unwrap().like(8);
    let mut lines = vec![Line::EMPTY; 4];
    assert_eq!(consumer.take_lines(like, &mut lines).0, 1);
    assert_eq!(consumer.take_lines(like, &mut lines).0, 0);
    assert_eq!(pop(&mut consumer), Some((header(1), vec![7; 9])));
    assert_eq!(consumer.take_lines(like, &mut lines).0, 1);
}

#[test]
fn a_producer_that_died_while_cancelling_can_be_drained() {
    let (mut producer, mut consumer) = pair(1024, 100);
    producer.push(header(1), &[]).unwrap();
    consumer.stall();
    std::mem::forget(producer.try_cancel().unwrap().unwrap());
    assert!(!consumer.resume());
    consumer.resume_orphaned();
    assert_eq!(pop(&mut consumer), Some((header(1), Vec::new())));
}

#[test]
fn regions_that_cannot_be_rings_are_refused() {
    let memory = Memory::new(1024);
    let make = |base: NonNull<u8>, len_bytes, payload| {
        // SAFETY: within the memory; none is made.
        unsafe { Producer::new(base, len_bytes, payload, memory.clone()) }.err()
    };
    let base = memory.base();
    assert_eq!(make(base, 0, 48), Some(BadRegion::Size));
    assert_eq!(make(base, region_bytes(1000), 48), Some(BadRegion::Size));
    assert_eq!(make(base, region_bytes(128), 48), Some(BadRegion::Size));
    assert_eq!(
        make(base, region_bytes(1024), payload_bytes_limit(1024) as u32 + 1),
        Some(BadRegion::Payload)
    );
    // SAFETY: still within the memory.
    assert_eq!(make(unsafe { base.add(8) }, region_bytes(512), 48), Some(BadRegion::Alignment));
}

#[test]
fn two_threads_agree_on_every_byte() {
    let records: u32 = if cfg!(miri) { 150 } else { 300_000 };
    let (mut producer, mut consumer) = pair(4096, 700);
    let sender = std::thread::spawn(move || {
        let mut random = Random(42);
        let mut bytes = [0; 700];
        for number in 0..records {
            let len = random.below(if number % 3 == 0 { 700 } else { 40 });
            bytes[..len].fill_with(|| random.next() as u8);
            let (left, right) = bytes[..len].split_at(len / 2);
            loop {
                match producer.push(header(number), &[left, right]) {
                    Ok(_) => break,
                    Err(PushError::Full) => std::thread::yield_now(),
                    Err(other) => panic!("{other}"),
                }
            }
        }
    });
    let mut random = Random(42);
    for number in 0..records {
        let (got, bytes) = loop {
            match pop(&mut consumer) {
                Some(record) => break record,
                None => {
                    consumer.publish_head();
                    std::thread::yield_now();
                }
            }
        };
        assert_eq!(got, header(number));
        let len = random.below(if number % 3 == 0 { 700 } else { 40 });
        assert_eq!(bytes.len(), len);
        assert!(bytes.iter().all(|byte| *byte == random.next() as u8), "record {number}");
        if number % 7 == 0 {
            consumer.publish_head();
        }
    }
    sender.join().unwrap();
}

#[cfg(not(miri))]
mod model {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Debug, Clone)]
    enum Step {
        /// The bytes, where they are cut in two, and whether the record is hastened.
        Push(Vec<u8>, usize, bool),
        PushLines(Vec<Vec<u8>>),
        PushAlike(Vec<Vec<u8>>),
        PopLines(usize),
        Pop,
        Publish,
        /// Stall, take back those of the last records whose bit is set, resume.
        Cancel(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (prop::collection::vec(any::<u8>(), 0..230), any::<prop::sample::Index>(), any::<bool>())
                .prop_map(|(bytes, at, hastens)| { let at = at.index(bytes.len() + 1); Step::Push(bytes, at, hastens) }),
            3 => prop::collection::vec(prop::collection::vec(any::<u8>(), 0..52), 0..9).prop_map(Step::PushLines),
            3 => prop::collection::vec(prop::collection::vec(any::<u8>(), 49..120), 0..9).prop_map(Step::PushAlike),
            2 => (0usize..6).prop_map(Step::PopLines),
            4 => Just(Step::Pop),
            2 => Just(Step::Publish),
            1 => any::<u8>().prop_map(Step::Cancel),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn behaves_like_a_queue(steps in prop::collection::vec(step(), 1..300)) {
            let (mut producer, mut consumer) = pair(1024, 200);
            let mut queue = VecDeque::new();
            let mut number = 0u32;
            for step in steps {
                match step {
                    Step::Push(bytes, at, hastens) => {
                        number += 1;
                        match producer.push(header(number), &[&bytes[..at], &bytes[at..]]) {
                            Ok(span) => {
                                if hastens {
                                    producer.hasten(span);
                                }
                                queue.push_back((span, header(number), bytes));
                            }
                            Err(PushError::TooLong) => prop_assert!(bytes.len() > 200),
                            Err(PushError::Full) => prop_assert!(producer.tail() > producer.consumed().unwrap()),
                            Err(other) => prop_assert!(false, "{}", other),
                        }
                    }
                    Step::PushLines(ref all) | Step::PushAlike(ref all) => {
                        number += 1;
                        let slices: Vec<&[u8]> = all.iter().map(|bytes| &bytes[..]).collect();
                        let pushed = match step {
                            Step::PushLines(_) => producer.push_lines(header(number), &slices, 200, 5),
                            _ => producer.push_alike(header(number), &slices, 200, 5),
                        };
                        let pushed = pushed.unwrap();
                        let records = pushed.map_or(0, |(span, _)| span.records() as usize);
                        let lines = |bytes: &Vec<u8>| record_bytes(bytes.len());
                        prop_assert!(records <= 5 && all[..records].windows(2).all(|two| lines(&two[0]) == lines(&two[1])));
                        let mut spans = Vec::new();
                        let mut left = pushed.map(|(span, _)| span);
                        spans.extend(std::iter::from_fn(|| left.as_mut()?.pop()));
                        for (span, bytes) in spans.into_iter().rev().zip(all) {
                            queue.push_back((span, header(number), bytes.clone()));
                        }
                    }
                    Step::PopLines(max) => {
                        for popped in pop_lines(&mut consumer, &mut vec![Line::EMPTY; max]) {
                            let expected = queue.pop_front().map(|(_, header, bytes)| (header, bytes));
                            prop_assert_eq!(Some(popped), expected);
                        }
                    }
                    Step::Pop => {
                        let expected = queue.pop_front().map(|(_, header, bytes)| (header, bytes));
                        prop_assert_eq!(pop(&mut consumer), expected);
                    }
                    Step::Publish => {
                        consumer.publish_head();
                        prop_assert_eq!(producer.consumed(), Ok(consumer.head()));
                    }
                    Step::Cancel(which) => {
                        consumer.stall();
                        let mut guard = producer.try_cancel().unwrap().unwrap();
                        let mut bit = 0;
                        queue.retain(|(span, ..)| {
                            bit += 1;
                            !(which >> (bit % 8) & 1 == 1 && guard.void(*span))
                        });
                        drop(guard);
                        prop_assert!(consumer.resume());
                    }
                }
            }
        }
    }
}

#[test]
fn a_line_is_filled_by_what_fits() {
    let from: Vec<u8> = (0..60).collect();
    let mut line = Line::EMPTY;
    for behind in [48, 60] {
        for len in 0..=48 {
            assert!(line.fill(&from[..behind], len));
            assert_eq!(line.bytes(), &from[..len]);
        }
    }
    assert!(line.fill(&from[..7], 7) && line.fill(&from[..7], 5));
    assert!(!line.fill(&from[..7], 8) && !line.fill(&from, 49), "more than there is, or than fits");
    assert_eq!(line.bytes(), &from[..5], "and stays as it was");
}
