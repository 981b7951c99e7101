//! Loans: messages that are written where they are sent from.

use super::{ATTRIBUTES, RELIABLE, RO};
use crate::conformance::{
    Driver, Environment, Flags, Pair, Port, Refusal, conformance_timeout, number_of, pattern,
};
use cci::{Attribute, Status};
use std::time::Instant;

/// How the receiver gets what is lent.
const WAYS: [bool; 2] = [false, true];

/// Sends a loan, turning to both sides for as long as there is no memory or space for it.
fn lend<D: Driver>(pair: &mut Pair<D>, message: &[u8], context: u64, flags: Flags) {
    let until = Instant::now() + conformance_timeout();
    loop {
        match pair.client.port.send_loan(pair.to_server, message, context, flags) {
            Ok(()) => return,
            Err(Refusal::WouldBlock) => {
                assert!(Instant::now() < until, "no space for a loan in time");
                pair.client.poll();
                pair.server.poll();
            }
            Err(other) => panic!("loan refused: {other:?}"),
        }
    }
}

/// Among other messages, each loan arrives once, in its place, whatever its length, and whether it is copied or read where it lies.
pub fn loans_arrive_in_their_places<D: Driver>(env: &Environment<D>) {
    const SENDS: u64 = 300;
    for (attribute, is_mapped) in RELIABLE.into_iter().flat_map(|attribute| WAYS.map(|way| (attribute, way)))
    {
        let mut pair = Pair::<D>::plain(env, attribute);
        if is_mapped {
            pair.server.port.receive_mapped(pair.to_client);
        }
        let longest = pair.client.port.max_send_size(pair.to_server);
        let mut numbers = Vec::new();
        for number in 0..SENDS {
            let len = [8, 100, 1024, longest / 2, longest][number as usize % 5].min(longest);
            let message = pattern(number, len.max(8));
            if number % 3 == 0 {
                pair.send(&message, number);
            } else {
                lend(&mut pair, &message, number, Flags::default());
            }
            pair.client.poll();
            pair.server.poll();
            numbers.extend(pair.server.inbox.drain(..).map(|(_, message)| number_of(message.as_ref())));
        }
        let until = Instant::now() + conformance_timeout();
        while numbers.len() < SENDS as usize || pair.client.sent.len() < SENDS as usize {
            assert!(Instant::now() < until, "{} of {SENDS} messages in time", numbers.len());
            pair.client.poll();
            pair.server.poll();
            numbers.extend(pair.server.inbox.drain(..).map(|(_, message)| number_of(message.as_ref())));
        }
        if attribute != RO {
            numbers.sort_unstable();
        }
        assert!(numbers == (0..SENDS).collect::<Vec<_>>(), "{attribute:?}: each once, in order");
        // Those of loans that were read where they lay have no place in the order.
        let mut contexts = pair.client.contexts();
        contexts.sort_unstable();
        assert!(contexts == (0..SENDS).collect::<Vec<_>>(), "{attribute:?}: one completion each");
        assert!(pair.client.statuses().iter().all(|status| *status == Status::Success));
        pair.part();
    }
}

/// Messages that were lent are kept and returned in any order, on any thread, and all memory is lent again afterwards.
pub fn loans_are_kept_and_come_back<D: Driver>(env: &Environment<D>) {
    const ROUNDS: u64 = 20;
    const KEPT: u64 = 12;
    for is_mapped in WAYS {
        let mut pair = Pair::<D>::plain(env, RO);
        if is_mapped {
            pair.server.port.receive_mapped(pair.to_client);
        }
        let len = pair.client.port.max_send_size(pair.to_server).min(4000);
        for round in 0..ROUNDS {
            for number in round * KEPT..(round + 1) * KEPT {
                lend(&mut pair, &pattern(number, len), number, Flags::default());
            }
            pair.until("all messages", |_, server| server.inbox.len() == KEPT as usize);
            let mut kept: Vec<_> = pair.server.inbox.drain(..).collect();
            // Every second one goes back first, on another thread.
            let mut later = Vec::new();
            while let Some(message) = kept.pop() {
                later.extend(kept.pop());
                std::thread::scope(|scope| scope.spawn(|| drop(message)).join()).expect("it goes back");
            }
            for (_, message) in &later {
                let number = number_of(message.as_ref());
                assert!(message.as_ref() == pattern(number, len), "a kept message stays as it is");
            }
            drop(later);
            let expected = ((round + 1) * KEPT) as usize;
            pair.until("all completions", |client, _| client.sent.len() == expected);
        }
        pair.part();
    }
}

/// Memory that is given back unsent is lent again; what is too long is refused; a silent loan raises no event, and one on an unreliable
/// connection is a message like any other.
pub fn loans_that_are_not_sent_come_back<D: Driver>(env: &Environment<D>) {
    for attribute in ATTRIBUTES {
        let mut pair = Pair::<D>::plain(env, attribute);
        let longest = pair.client.port.max_send_size(pair.to_server);
        for _ in 0..200 {
            assert_eq!(pair.client.port.return_loan(pair.to_server, longest), Ok(()));
            pair.client.poll();
            pair.server.poll();
        }
        let too_long = vec![1; longest + 1];
        let refused = pair.client.port.send_loan(pair.to_server, &too_long, 1, Flags::default());
        assert_eq!(refused, Err(Refusal::TooLong));
        let silent = Flags { silent: true, no_copy: false };
        lend(&mut pair, &pattern(7, 600.min(longest)), 7, silent);
        lend(&mut pair, &pattern(8, 600.min(longest)), 8, Flags::default());
        pair.until("a completion", |client, _| !client.sent.is_empty());
        assert_eq!(pair.client.contexts(), [8]);
        if attribute != Attribute::Unreliable {
            pair.until("both messages", |_, server| server.inbox.len() == 2);
        }
        pair.part();
    }
}

/// What the receiver keeps stays as it is when the sender's connection, and then its endpoint, is gone; each send has completed then.
pub fn what_is_lent_outlives_the_connection<D: Driver>(env: &Environment<D>) {
    const SENDS: u64 = 9;
    for is_mapped in WAYS {
        let mut pair = Pair::<D>::plain(env, RO);
        if is_mapped {
            pair.server.port.receive_mapped(pair.to_client);
        }
        let len = pair.client.port.max_send_size(pair.to_server).min(4000);
        for number in 0..SENDS {
            lend(&mut pair, &pattern(number, len), number, Flags::default());
        }
        pair.until("all messages", |_, server| server.inbox.len() == SENDS as usize);
        pair.client.port.disconnect(pair.to_server);
        pair.until("all completions", |client, _| client.sent.len() == SENDS as usize);
        let mut contexts = pair.client.contexts();
        contexts.sort_unstable();
        assert!(contexts == (0..SENDS).collect::<Vec<_>>(), "one completion each");
        let Pair { client, mut server, .. } = pair;
        drop(client);
        for _ in 0..100 {
            server.poll();
        }
        for (number, (_, message)) in server.inbox.iter().enumerate() {
            assert!(message.as_ref() == pattern(number as u64, len), "it stays as it is");
        }
    }
}
