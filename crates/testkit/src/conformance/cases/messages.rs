//! Messages: sizes, order, contents (CCI-028 to CCI-031, CCI-040 to CCI-049).

use super::{ATTRIBUTES, RELIABLE, RO};
use crate::conformance::{
    Conn, Driver, Environment, Flags, Pair, Port, Refusal, Side, Skipped, conformance_timeout, number_of,
    pattern,
};
use cci::{Attribute, Status};
use std::time::{Duration, Instant};

/// Every size that could be special, up to the connection's longest, arrives as it was; one byte more is refused.
pub fn every_size_arrives<D: Driver>(env: &Environment<D>) {
    for attribute in ATTRIBUTES {
        let mut pair = Pair::plain(env, attribute);
        let longest = pair.client.port.max_send_size(pair.to_server);
        assert_eq!(
            longest,
            pair.server.port.max_send_size(pair.to_client),
            "both sides know the same maximum"
        );
        assert!(longest >= 1024, "a device takes messages worth sending: {longest}");
        let mut sizes =
            vec![0, 1, 2, 7, 8, 9, 15, 16, 31, 32, 33, 47, 48, 49, 63, 64, 65, 127, 128, 129, 255, 256];
        sizes.extend([
            257,
            511,
            512,
            1000,
            1023,
            longest / 2,
            longest - 9,
            longest - 8,
            longest - 1,
            longest,
        ]);
        for (number, len_bytes) in (0..).zip(sizes) {
            let message = pattern(number, len_bytes);
            arrives(&mut pair, attribute, &message, number);
        }
        let too_long = pair.client.port.send(pair.to_server, &vec![0; longest + 1], 0, Flags::default());
        assert_eq!(too_long, Err(Refusal::TooLong));
        pair.client.settle();
        assert!(pair.server.inbox.is_empty(), "nothing came of the message that was refused");
        pair.part();
    }
}

/// An unreliable message may be lost, even here; then it is sent again.
fn arrives<D: Driver>(pair: &mut Pair<D>, attribute: Attribute, message: &[u8], number: u64) {
    let attempts = if attribute == Attribute::Unreliable { 20 } else { 1 };
    for _ in 0..attempts {
        pair.client.sent.clear();
        pair.send(message, number);
        pair.until("a completion", |client, _| !client.sent.is_empty());
        assert_eq!(pair.client.sent, [(pair.to_server, number, Status::Success)]);
        if attribute == Attribute::Unreliable {
            let patience = Instant::now() + Duration::from_millis(200);
            while pair.server.inbox.is_empty() && Instant::now() < patience {
                pair.client.poll();
                pair.server.poll();
            }
        } else {
            pair.until("the message", |_, server| !server.inbox.is_empty());
        }
        if let Some((connection, received)) = pair.server.inbox.pop_front() {
            assert_eq!(connection, pair.to_client, "it says where it came from");
            assert!(
                received.as_ref() == message,
                "{} bytes of {attribute:?} arrive as they were",
                message.len()
            );
            assert!(pair.server.inbox.is_empty(), "once");
            return;
        }
    }
    panic!("{} bytes of {attribute:?} never arrived", message.len());
}

/// A length for each number, small ones mostly.
fn varied_len(number: u64, longest: usize) -> usize {
    match number % 11 {
        0 => longest,
        1 => longest / 3,
        2..5 => 500 + number as usize % 400,
        _ => 8 + number as usize % 50,
    }
}

/// Sends `count` messages of various lengths both ways, giving received ones back at once. Returns the numbers that
/// the server and the client received, in order of arrival.
fn flood_both_ways<D: Driver>(pair: &mut Pair<D>, count: u64) -> (Vec<u64>, Vec<u64>) {
    let longest = pair.client.port.max_send_size(pair.to_server);
    let patience = Instant::now() + conformance_timeout();
    let Pair { client, server, to_server, to_client } = pair;
    let (mut next, mut last_came) = ((0, 0), Instant::now());
    let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
    // Unreliable messages may still be under way when all sends have completed.
    while client.sent.len() < count as usize
        || server.sent.len() < count as usize
        || last_came.elapsed() < Duration::from_millis(100)
    {
        assert!(Instant::now() < patience, "{next:?} of {count} sent, {} completed", client.sent.len());
        next.0 = send_some(client, *to_server, next.0, count, longest);
        next.1 = send_some(server, *to_client, next.1, count, longest);
        for (side, numbers) in [(&mut *client, &mut at_client), (&mut *server, &mut at_server)] {
            side.poll();
            for (_, message) in side.inbox.drain(..) {
                numbers.push(number_of(message.as_ref()));
                last_came = Instant::now();
            }
        }
    }
    (at_server, at_client)
}

/// Sends up to seven messages from number `next` on, as far as there is room. Returns the number of the next.
fn send_some<D: Driver>(side: &mut Side<D>, to: Conn<D>, next: u64, count: u64, longest: usize) -> u64 {
    for number in next..count.min(next + 7) {
        let message = pattern(number, varied_len(number, longest));
        match side.port.send(to, &message, number, Flags::default()) {
            Ok(()) => {}
            Err(Refusal::WouldBlock) => return number,
            Err(other) => panic!("send refused: {other:?}"),
        }
    }
    count.min(next + 7)
}

/// RO: in order, once, and completions in order too (CCI-028).
pub fn ordered_and_completed_in_order<D: Driver>(env: &Environment<D>) {
    let mut pair = Pair::plain(env, RO);
    let (at_server, at_client) = flood_both_ways(&mut pair, 2000);
    let all: Vec<u64> = (0..2000).collect();
    assert!(at_server == all && at_client == all, "in order, each once");
    assert!(pair.client.contexts() == all && pair.server.contexts() == all, "completed in order, each once");
    assert!(pair.client.statuses().iter().all(|status| *status == Status::Success));
}

/// RU: in any order, once (CCI-029).
pub fn unordered_exactly_once<D: Driver>(env: &Environment<D>) {
    let mut pair = Pair::plain(env, Attribute::ReliableUnordered);
    let (mut at_server, mut at_client) = flood_both_ways(&mut pair, 2000);
    let all: Vec<u64> = (0..2000).collect();
    let (mut client_done, mut server_done) = (pair.client.contexts(), pair.server.contexts());
    for numbers in [&mut at_server, &mut at_client, &mut client_done, &mut server_done] {
        numbers.sort_unstable();
        assert!(*numbers == all, "each once");
    }
    assert!(pair.client.statuses().iter().all(|status| *status == Status::Success));
}

/// UU: at most once, intact, and every send completes (CCI-030).
pub fn unreliable_at_most_once<D: Driver>(env: &Environment<D>) {
    let mut pair = Pair::plain(env, Attribute::Unreliable);
    let (mut at_server, mut at_client) = flood_both_ways(&mut pair, 2000);
    for numbers in [&mut at_server, &mut at_client] {
        let received = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), received, "none twice");
        assert!(received > 0 && numbers.iter().all(|number| *number < 2000), "{received} received");
    }
    let mut contexts = pair.client.contexts();
    contexts.sort_unstable();
    assert!(contexts == (0..2000).collect::<Vec<u64>>(), "each send completes once");
}

/// The smaller maximum of the two sides holds, whichever side has it (CCI-048).
pub fn smaller_side_decides_the_size<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    let small_place = env.smaller()?;
    for (client_place, server_place) in [(env, &small_place), (&small_place, env)] {
        let (client, server): (Side<D>, Side<D>) = (Side::plain(client_place), Side::server(server_place));
        let mut pair = Pair::of(client, server, RO);
        let longest = pair.client.port.max_send_size(pair.to_server);
        assert_eq!(longest, pair.server.port.max_send_size(pair.to_client));
        assert!((512..1500).contains(&longest), "the smaller side's: {longest}");
        pair.send(&pattern(3, longest), 0);
        pair.until("the longest message", |_, server| !server.inbox.is_empty());
        assert_eq!(pair.server.inbox.pop_front().map(|(_, message)| number_of(message.as_ref())), Some(3));
        let too_long = pair.server.port.send(pair.to_client, &vec![0; longest + 1], 0, Flags::default());
        assert_eq!(too_long, Err(Refusal::TooLong));
        pair.part();
    }
    Ok(())
}

/// A received message is sent on as it lies there, and given back only then (CCI-022).
pub fn echo_from_the_received_message<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let mut pair = Pair::plain(env, attribute);
        let longest = pair.client.port.max_send_size(pair.to_server);
        for number in 0..300 {
            let message = pattern(number, varied_len(number, longest));
            pair.send(&message, number);
            pair.until("the message", |_, server| !server.inbox.is_empty());
            let (from, received) = pair.server.inbox.pop_front().expect("just seen");
            pair.server.send(&mut pair.client, from, received.as_ref(), number);
            drop(received);
            pair.until("the echo", |client, _| !client.inbox.is_empty());
            let (_, echo) = pair.client.inbox.pop_front().expect("just seen");
            assert!(echo.as_ref() == message, "echo {number}");
        }
        pair.part();
    }
}

/// Segments arrive as one message, whatever their number and lengths, none and empty ones included (CCI-042).
pub fn gathered_from_segments<D: Driver>(env: &Environment<D>) {
    let mut pair = Pair::plain(env, RO);
    let longest = pair.client.port.max_send_size(pair.to_server);
    let whole = pattern(11, longest);
    let splits: [&[usize]; 8] = [
        &[],
        &[0],
        &[0, 0, 0],
        &[8, 1],
        &[1, 0, 63, 1],
        &[3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59],
        &[16, longest - 16],
        &[longest - 1, 1],
    ];
    for (context, split) in (0..).zip(splits) {
        let mut at = 0;
        let mut segments: Vec<&[u8]> = Vec::new();
        for len_bytes in split {
            segments.push(&whole[at..at + len_bytes]);
            at += len_bytes;
        }
        let sent = pair.client.port.send_vectored(pair.to_server, &segments, context, Flags::default());
        sent.expect("room");
        pair.until("the message", |client, server| {
            !server.inbox.is_empty() && client.sent.len() > context as usize
        });
        let (_, received) = pair.server.inbox.pop_front().expect("just seen");
        assert!(received.as_ref() == &whole[..at], "segments {split:?}");
    }
    let too_long: [&[u8]; 2] = [&whole, b"x"];
    let refused = pair.client.port.send_vectored(pair.to_server, &too_long, 0, Flags::default());
    assert_eq!(refused, Err(Refusal::TooLong));
}
