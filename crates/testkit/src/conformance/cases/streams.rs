//! The face for streams: messages received by a handler, and sent in bursts.

use super::buffers::{feeder, hungry, overfill};
use super::{ATTRIBUTES, RELIABLE, RO};
use crate::conformance::{
    Driver, Environment, Flags, Pair, Port, Refusal, Setup, Side, Skipped, conformance_timeout, number_of,
    part, pattern,
};
use cci::{Attribute, Status};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

const SILENT: Flags = Flags { silent: true, no_copy: false };

/// Sends a burst of these messages, turning to the receiver for as long as there is no space for the rest. Returns how many completions
/// will come.
fn send_all<D: Driver>(
    pair: &mut Pair<D>,
    messages: &[Vec<u8>],
    context: u64,
    flags: Flags,
    mut receive: impl FnMut(&mut Side<D>),
) -> usize {
    let all: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let (mut sent, mut completions) = (0, 0);
    let until = Instant::now() + conformance_timeout();
    while sent < all.len() {
        assert!(Instant::now() < until, "no space for a burst in time");
        match pair.client.port.send_burst(pair.to_server, &all[sent..], context, flags) {
            Ok(taken) => {
                assert!((1..=all.len() - sent).contains(&taken), "some, and no more than there are");
                sent += taken;
                completions += usize::from(!flags.silent);
            }
            Err(Refusal::WouldBlock) => {
                pair.client.poll();
                receive(&mut pair.server);
            }
            Err(other) => panic!("burst refused: {other:?}"),
        }
    }
    completions
}

/// Both sides see everything by handlers alone: the request, the connection, messages of every length, completions.
pub fn handlers_are_given_what_comes<D: Driver>(env: &Environment<D>) {
    const SENDS: u64 = 400;
    for attribute in RELIABLE {
        let (mut client, mut server): (Side<D>, Side<D>) = (Side::plain(env), Side::server(env));
        client.dial(&server.port.uri(), attribute, 5);
        let until = Instant::now() + conformance_timeout();
        while client.connected.is_empty() || server.accepted.is_empty() {
            assert!(Instant::now() < until, "no connection in time");
            client.handle(3, &mut |_, _| panic!("no message yet"));
            server.handle(3, &mut |_, _| panic!("no message yet"));
            if !server.requests.is_empty() {
                server.accept_next(6);
            }
        }
        let (5, Ok(to_server)) = client.connected[0] else { panic!("connected") };
        let (6, Ok(to_client)) = server.accepted[0] else { panic!("accepted") };
        let longest = client.port.max_send_size(to_server);
        let (mut next, mut numbers) = (0, Vec::new());
        while numbers.len() < SENDS as usize || client.sent.len() < SENDS as usize {
            assert!(Instant::now() < until, "{} of {SENDS} messages in time", numbers.len());
            let end = SENDS.min(next + 9);
            while next < end {
                let number = next;
                let len = if number % 7 == 0 { longest } else { 8 + number as usize * 3 % 200 };
                let sent = client.port.send(to_server, &pattern(number, len), number, Flags::default());
                if sent == Err(Refusal::WouldBlock) {
                    break;
                }
                sent.expect("a send is taken");
                next = number + 1;
            }
            client.handle(5, &mut |_, _| panic!("nothing is sent to the client"));
            server.handle(5, &mut |connection, message| {
                assert_eq!(connection, to_client);
                numbers.push(number_of(message));
                false
            });
        }
        let mut contexts = client.contexts();
        if attribute != RO {
            contexts.sort_unstable();
            numbers.sort_unstable();
        }
        assert!(numbers == (0..SENDS).collect::<Vec<_>>(), "{attribute:?}: each once, in order");
        assert!(contexts == (0..SENDS).collect::<Vec<_>>(), "{attribute:?}: one completion each, in order");
        assert!(server.inbox.is_empty(), "nothing was kept");
        part([client, server]);
    }
}

/// A handler is called no more often than the program says, and what is left comes later, as an event or to a handler.
pub fn handlers_are_called_as_often_as_allowed<D: Driver>(env: &Environment<D>) {
    const SENDS: u64 = 60;
    let mut pair = Pair::<D>::plain(env, RO);
    for number in 0..SENDS {
        pair.send(&pattern(number, 30), number);
    }
    let mut numbers = Vec::new();
    assert_eq!(pair.server.handle(0, &mut |_, _| panic!("not even once")), 0);
    let until = Instant::now() + conformance_timeout();
    while numbers.len() < SENDS as usize {
        assert!(Instant::now() < until, "{} of {SENDS} messages in time", numbers.len());
        pair.client.poll();
        let before = numbers.len();
        let handled = pair.server.handle(7, &mut |_, message| {
            numbers.push(number_of(message));
            false
        });
        assert_eq!(numbers.len() - before, handled as usize);
        assert!(handled <= 7);
        pair.server.poll();
        numbers.extend(pair.server.inbox.drain(..).map(|(_, message)| number_of(message.as_ref())));
    }
    assert!(numbers == (0..SENDS).collect::<Vec<_>>(), "both ways take from one queue: {numbers:?}");
    pair.part();
}

/// A lent message holds no buffer after the call; a kept one does, is as it was for as long as it is kept, and counts as any other.
pub fn kept_messages_hold_buffers<D: Driver>(env: &Environment<D>) {
    const BUFFERS: usize = 8;
    const ROUNDS: u64 = 6;
    for attribute in RELIABLE {
        let setup = Setup { recv_buffers: BUFFERS as u32, ..Setup::default() };
        let mut pair = Pair::<D>::of(Side::plain(env), Side::open_server(env, &setup), attribute);
        let until = Instant::now() + conformance_timeout();
        for round in 0..ROUNDS {
            let numbers = round * 30..(round + 1) * 30;
            for number in numbers.clone() {
                pair.send(&pattern(number, 30 + number as usize * 5), number);
            }
            let mut received = Vec::new();
            // In odd rounds every message is kept until no more come.
            while round % 2 == 1 && pair.server.inbox.len() < BUFFERS {
                assert!(Instant::now() < until, "{} kept in time", pair.server.inbox.len());
                pair.client.poll();
                pair.server.handle(64, &mut |_, _| true);
            }
            if round % 2 == 1 {
                let (mut more, started) = (0, Instant::now());
                while started.elapsed() < Duration::from_millis(20) {
                    pair.client.poll();
                    more += pair.server.handle(64, &mut |_, _| true);
                }
                assert_eq!((more, pair.server.inbox.len()), (0, BUFFERS), "no more than there are buffers");
                received.extend(pair.server.inbox.drain(..).map(|(_, message)| number_of(message.as_ref())));
            }
            while received.len() < 30 || pair.client.sent.len() < 30 {
                assert!(Instant::now() < until, "{} of 30 in time", received.len());
                pair.client.poll();
                pair.server.handle(64, &mut |_, message| {
                    received.push(number_of(message));
                    false
                });
            }
            if attribute != RO {
                received.sort_unstable();
            }
            assert_eq!(received, numbers.collect::<Vec<_>>(), "{attribute:?}: nothing lost, nothing twice");
            assert!(pair.client.sent.drain(..).all(|(.., status)| status == Status::Success));
        }
        pair.part();
    }
}

/// The panic of a handler goes on to the program, which loses the message that the handler had, and nothing else.
pub fn a_handler_that_panics_loses_one_message<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    const SENDS: u64 = 40;
    if !D::HANDLERS_MAY_PANIC {
        return Err(Skipped("handlers let no panic out".to_owned()));
    }
    let mut pair = Pair::<D>::plain(env, RO);
    for number in 0..SENDS {
        pair.send(&pattern(number, 20 + number as usize * 9), number);
    }
    let (mut next, mut panics) = (0, 0);
    let until = Instant::now() + conformance_timeout();
    while next < SENDS || pair.client.sent.len() < SENDS as usize {
        assert!(Instant::now() < until, "{next} of {SENDS} messages in time");
        pair.client.poll();
        let server = &mut pair.server;
        let handled = catch_unwind(AssertUnwindSafe(|| {
            server.handle(64, &mut |_, message| {
                assert_eq!(number_of(message), next, "in order");
                next += 1;
                if next.is_multiple_of(5) {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
                false
            })
        }));
        panics += u64::from(handled.is_err());
    }
    assert_eq!(panics, SENDS / 5);
    assert!(pair.client.statuses().iter().all(|status| *status == Status::Success));
    pair.part();
    Ok(())
}

/// Bursts of every size and length arrive as single messages do, and raise one completion each, or none if they are silent.
pub fn bursts_complete_once<D: Driver>(env: &Environment<D>) {
    for attribute in ATTRIBUTES {
        let setup = Setup { recv_buffers: 1024, ..Setup::default() };
        let mut pair = Pair::<D>::open(env, attribute, &setup);
        let longest = pair.client.port.max_send_size(pair.to_server);
        let (mut next, mut numbers, mut expected) = (0_u64, Vec::new(), Vec::new());
        for size in [1, 2, 3, 31, 32, 33, 64, 65, 100, 200] {
            let messages: Vec<Vec<u8>> = (next..next + size)
                .map(|number| {
                    pattern(number, if number % 50 == 0 { longest } else { 8 + number as usize % 90 })
                })
                .collect();
            next += size;
            let flags = if size == 3 || size == 64 { SILENT } else { Flags::default() };
            let completions = send_all(&mut pair, &messages, size, flags, |server| {
                server.handle(100, &mut |_, message| {
                    numbers.push(number_of(message));
                    false
                });
            });
            expected.extend(vec![size; completions]);
        }
        assert_eq!(pair.client.port.send_burst(pair.to_server, &[], 9, Flags::default()), Ok(0));
        let until = Instant::now() + conformance_timeout();
        let mut quiet = 0;
        // Unreliable messages may be lost.
        while pair.client.sent.len() < expected.len() || quiet < 200 && numbers.len() < next as usize {
            assert!(Instant::now() < until, "{} of {next} messages in time", numbers.len());
            pair.client.poll();
            let handled = pair.server.handle(100, &mut |_, message| {
                numbers.push(number_of(message));
                false
            });
            quiet = if handled == 0 && attribute == Attribute::Unreliable { quiet + 1 } else { 0 };
        }
        pair.client.settle();
        let mut contexts = pair.client.contexts();
        if attribute != RO {
            contexts.sort_unstable();
            numbers.sort_unstable();
            numbers.dedup();
            expected.sort_unstable();
        }
        assert_eq!(contexts, expected, "{attribute:?}: one completion each");
        assert!(pair.client.statuses().iter().all(|status| *status == Status::Success));
        if attribute != Attribute::Unreliable {
            assert!(numbers == (0..next).collect::<Vec<_>>(), "{attribute:?}: each once");
        }
        pair.part();
    }
}

/// A burst for which there is not space enough is taken in part; with no space at all it is refused.
pub fn partial_bursts_say_how_many_were_taken<D: Driver>(env: &Environment<D>) {
    const BUFFERS: usize = 8;
    for attribute in RELIABLE {
        let setup = Setup { send_buffers: BUFFERS as u32, ..Setup::default() };
        let mut pair = Pair::<D>::of(Side::open(env, &setup), Side::server(env), attribute);
        let (mut next, mut numbers, mut completions) = (0, Vec::new(), 0);
        for round in 0..20 {
            let (before, mut refused) = (next, false);
            while !refused {
                let messages: Vec<Vec<u8>> = (next..next + 20).map(|number| pattern(number, 500)).collect();
                let all: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
                match pair.client.port.send_burst(pair.to_server, &all, round, Flags::default()) {
                    Ok(taken) => {
                        assert!((1..=BUFFERS).contains(&taken), "{taken} with {BUFFERS} send buffers");
                        next += taken as u64;
                        completions += 1;
                    }
                    Err(refusal) => {
                        assert_eq!(refusal, Refusal::WouldBlock);
                        refused = true;
                    }
                }
                assert!(next - before <= 100, "an end, as the peer is not polled");
            }
            assert!(next > before, "round {round}: space again");
            let until = Instant::now() + conformance_timeout();
            while pair.client.sent.len() < completions || numbers.len() < next as usize {
                assert!(Instant::now() < until, "{} of {next} messages in time", numbers.len());
                pair.client.poll();
                pair.server.handle(64, &mut |_, message| {
                    numbers.push(number_of(message));
                    false
                });
            }
        }
        if attribute != RO {
            numbers.sort_unstable();
        }
        assert!(numbers == (0..next).collect::<Vec<_>>(), "{attribute:?}: what was taken, and no more");
        assert!(pair.client.statuses().iter().all(|status| *status == Status::Success));
        pair.part();
    }
}

/// A message that can't be sent ends the burst before it; alone at the front it is refused with the reason.
pub fn a_burst_stops_at_what_cannot_be_sent<D: Driver>(env: &Environment<D>) {
    let mut pair = Pair::<D>::plain(env, RO);
    let longest = pair.client.port.max_send_size(pair.to_server);
    let (long, short) = (vec![0; longest + 1], pattern(0, 20));
    let burst: [&[u8]; 4] = [&short, &short, &long, &short];
    assert_eq!(pair.client.port.send_burst(pair.to_server, &burst, 1, Flags::default()), Ok(2));
    assert_eq!(
        pair.client.port.send_burst(pair.to_server, &burst[2..], 2, Flags::default()),
        Err(Refusal::TooLong)
    );
    assert_eq!(pair.client.port.send_burst(pair.to_server, &burst[2..], 2, SILENT), Err(Refusal::TooLong));
    pair.until("the first two", |client, server| client.sent.len() == 1 && server.inbox.len() == 2);
    pair.client.settle();
    pair.server.settle();
    assert_eq!((pair.client.contexts(), pair.server.inbox.len()), (vec![1], 2), "nothing of the others");
    pair.part();
}

/// A burst of which the receiver's program takes only a part ends as the first of its messages that failed.
pub fn a_burst_fails_as_its_first_failure<D: Driver>(env: &Environment<D>) {
    const SIZE: usize = 40;
    let patient = Setup { send_timeout: Duration::from_secs(1), ..feeder() };
    let mut pair = Pair::<D>::of(Side::open(env, &patient), Side::open_server(env, &hungry()), RO);
    let Pair { client, server, to_server, .. } = &mut pair;
    let taken = overfill(client, *to_server, || {
        server.poll();
    });
    pair.until("an end of every send", |client, _| client.sent.len() == taken as usize);
    pair.client.sent.clear();
    // The receiver keeps all its buffers, so that no message of these finds one.
    let messages: Vec<Vec<u8>> = (0..SIZE as u64).map(|number| pattern(number, 64)).collect();
    let all: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let taken =
        pair.client.port.send_burst(pair.to_server, &all, 77, Flags::default()).expect("space for some");
    let silent = pair.client.port.send_burst(pair.to_server, &all[..1], 78, SILENT);
    pair.until("the end of the burst", |client, _| !client.sent.is_empty());
    assert_eq!(pair.client.sent, [(pair.to_server, 77, Status::ReceiverNotReady)], "{taken} were taken");
    pair.client.settle();
    assert_eq!(pair.client.sent.len(), 1, "and a silent one that fails gives no event: {silent:?}");
    pair.part();
}

/// Bursts that are under way when the peer leaves end, once each; later ones are refused.
pub fn bursts_end_with_the_peer<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let setup = Setup { send_timeout: Duration::from_secs(2), send_buffers: 512, ..Setup::default() };
        let mut pair = Pair::<D>::of(Side::open(env, &setup), Side::server(env), attribute);
        let messages: Vec<Vec<u8>> = (0..20).map(|number| pattern(number, 100)).collect();
        let all: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let mut bursts = 0;
        while bursts < 10
            && pair.client.port.send_burst(pair.to_server, &all, bursts, Flags::default()).is_ok()
        {
            bursts += 1;
        }
        assert!(bursts > 0);
        let Pair { mut client, server, to_server, .. } = pair;
        drop(server);
        let until = Instant::now() + conformance_timeout();
        while client.sent.len() < bursts as usize {
            assert!(Instant::now() < until, "{} of {bursts} ended in time", client.sent.len());
            client.handle(4, &mut |_, _| panic!("nothing is sent to the client"));
        }
        client.settle();
        let mut contexts = client.contexts();
        contexts.sort_unstable();
        assert_eq!(contexts, (0..bursts).collect::<Vec<_>>(), "{attribute:?}: once each");
        if D::STALE_HANDLES_ARE_REFUSED {
            let until = Instant::now() + conformance_timeout();
            loop {
                match client.port.send_burst(to_server, &all, 99, SILENT) {
                    Err(Refusal::Closed) => break,
                    Ok(_) | Err(Refusal::WouldBlock) => assert!(Instant::now() < until, "refused in time"),
                    Err(other) => panic!("burst refused: {other:?}"),
                }
                client.poll();
            }
        }
        drop(client);
    }
}
