//! Shared memory: short messages that are taken by themselves.

mod shm_common;

use cci::{Attribute, Connection, Endpoint, Event, Line, SendFlags, ShortMessage, Status};
use shm_common::*;
use std::time::Instant;

/// What an endpoint has received, and how much of it by itself.
#[derive(Default)]
struct Received {
    messages: Vec<Vec<u8>>,
    by_themselves: usize,
}

impl Received {
    /// Takes what is there, with a look at short messages first.
    fn take(&mut self, endpoint: &mut Endpoint, on: Connection) {
        let mut line = Line::EMPTY;
        match endpoint.take_short(&mut line) {
            ShortMessage::Message(connection) => {
                assert_eq!(connection, on);
                self.messages.push(line.bytes().to_vec());
                self.by_themselves += 1;
            }
            ShortMessage::Nothing => {}
            ShortMessage::Other => {
                endpoint.poll_messages(4, |message| self.messages.push(message.to_vec()));
                while let Some(event) = endpoint.next_event() {
                    match event {
                        Event::Recv(message) => self.messages.push(message.to_vec()),
                        Event::Send { .. } => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
    }
}

#[test]
fn short_messages_come_in_order_with_all_others() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let (ours, theirs) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    let (mut received, mut answers, start) = (Received::default(), Received::default(), Instant::now());
    let mut sent = Vec::new();
    for number in 0..20_000_u64 {
        // Mostly one at a time, and then some together; some too long for a line, and some that complete.
        let together = if number % 50 == 0 { 7 } else { 1 };
        for more in 0..together {
            let len = if number % 20 == 3 { 49 + more as usize } else { (number % 49) as usize };
            let flags = if number % 9 == 0 { SendFlags::NONE } else { SendFlags::SILENT };
            let message = pattern(number + more, len);
            a.send(ours, &message, number, flags).unwrap();
            sent.push(message);
        }
        while received.messages.len() < sent.len() {
            received.take(&mut b, theirs);
            answers.take(&mut a, ours);
            assert!(start.elapsed() < PATIENCE, "{} of {}", received.messages.len(), sent.len());
        }
        if number % 3 == 0 {
            b.send(theirs, &number.to_le_bytes(), 0, SendFlags::SILENT).unwrap();
        }
    }
    while answers.messages.len() < 6_667 {
        answers.take(&mut a, ours);
        assert!(start.elapsed() < PATIENCE, "{} answers", answers.messages.len());
    }
    assert_eq!(received.messages, sent);
    let expected = (0..20_000_u64).step_by(3).map(|number| number.to_le_bytes().to_vec());
    assert!(answers.messages.iter().cloned().eq(expected));
    assert!(received.by_themselves > 10_000, "{} came by themselves", received.by_themselves);
    assert!(answers.by_themselves > 1_000, "{} answers did", answers.by_themselves);
    let counters = b.connection_counters(theirs).unwrap();
    assert_eq!(counters.messages_received, sent.len() as u64);
    assert_eq!(b.counters().messages_received, sent.len() as u64);
}

#[test]
fn the_end_of_a_send_comes_before_its_answer() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let (ours, theirs) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    let (mut line, start) = (Line::EMPTY, Instant::now());
    for number in 0..1_000 {
        a.send(ours, b"question", number, SendFlags::NONE).unwrap();
        let mut received = Received::default();
        while received.messages.is_empty() {
            received.take(&mut b, theirs);
            assert!(start.elapsed() < PATIENCE);
        }
        b.send(theirs, b"answer", 0, SendFlags::SILENT).unwrap();
        loop {
            // The end of the send waits, or is in what has come: nothing is taken before it.
            let short = a.take_short(&mut line);
            assert!(matches!(short, ShortMessage::Other | ShortMessage::Nothing), "{short:?}");
            match a.next_event() {
                Some(Event::Send { context, .. }) => break assert_eq!(context, number),
                Some(other) => panic!("{other:?}"),
                None => assert!(start.elapsed() < PATIENCE),
            }
        }
        let mut answers = Received::default();
        while answers.messages.is_empty() {
            answers.take(&mut a, ours);
            assert!(start.elapsed() < PATIENCE);
        }
        assert_eq!(answers.messages, [b"answer"]);
    }
}

#[test]
fn nothing_is_taken_from_a_connection_that_closes() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let (ours, theirs) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    let mut received = Received::default();
    let start = Instant::now();
    for number in 0..3 {
        a.send(ours, b"before", 0, SendFlags::SILENT).unwrap();
        while received.messages.len() <= number {
            received.take(&mut b, theirs);
            assert!(start.elapsed() < PATIENCE);
        }
    }
    b.disconnect(theirs);
    a.send(ours, b"after", 0, SendFlags::SILENT).unwrap();
    let mut line = Line::EMPTY;
    loop {
        let short = b.take_short(&mut line);
        assert!(matches!(short, ShortMessage::Other | ShortMessage::Nothing), "{short:?}");
        b.poll_messages(1, |message| panic!("{message:?}"));
        if matches!(a.next_event(), Some(Event::Disconnected { .. })) {
            break;
        }
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(b.next_event().is_none());
}

/// What is sent in silence is entered together. Ends of other sends come all the same once their messages were taken, not before.
#[test]
fn sends_end_when_their_messages_were_taken_behind_silent_ones() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let (ours, _) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    let (mut received, mut ended, start) = (Vec::new(), Vec::new(), Instant::now());
    for round in 0..200_u64 {
        let mut numbers = Vec::new();
        for number in 0..60_u64 {
            let is_silent = number % 20 != 7;
            let len = if number % 9 == 8 { 100 } else { 8 };
            let flags = if is_silent { SendFlags::SILENT } else { SendFlags::NONE };
            a.send(ours, &pattern(number, len), 100 * round + number, flags).unwrap();
            numbers.push((number, len));
        }
        while received.len() < numbers.len() || ended.len() < 3 {
            let most = 1 + round as usize % 25;
            b.poll_messages(most, |message| received.push(message.to_vec()));
            while let Some(event) = b.next_event() {
                match event {
                    Event::Recv(message) => received.push(message.to_vec()),
                    other => panic!("{other:?}"),
                }
            }
            while let Some(event) = a.next_event() {
                match event {
                    Event::Send { context, status, .. } => {
                        assert_eq!(status, Status::Success);
                        assert!(received.len() as u64 > context - 100 * round, "{context} was not taken");
                        ended.push(context - 100 * round);
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(start.elapsed() < PATIENCE, "{} came, {} ended", received.len(), ended.len());
        }
        assert!(received.iter().zip(numbers).all(|(got, (number, len))| *got == pattern(number, len)));
        assert_eq!(ended, [7, 27, 47]);
        (received, ended) = (Vec::new(), Vec::new());
    }
}
