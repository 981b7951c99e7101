//! Receive buffers: kept, given back, run out of (CCI-022 to CCI-024, CCI-063).

use super::{RELIABLE, RO};
use crate::conformance::{
    Capability, Conn, Driver, Environment, Flags, Pair, Port, Refusal, Setup, Side, Skipped,
    conformance_timeout, connect, for_a_while, number_of, pattern, until,
};
use cci::{Attribute, Status};
use std::time::{Duration, Instant};

/// Messages stay as they are for as long as they are kept, and go back in any order, from any thread.
pub fn messages_are_kept_and_returned_in_any_order<D: Driver>(env: &Environment<D>) {
    const BUFFERS: u64 = 32;
    let setup = Setup { recv_buffers: BUFFERS as u32, ..Setup::default() };
    let mut pair = Pair::open(env, RO, &setup);
    for round in 0..10 {
        let numbers = round * BUFFERS..(round + 1) * BUFFERS;
        for number in numbers.clone() {
            pair.send(&pattern(number, 600), number);
        }
        pair.until("a message in every buffer", |_, server| server.inbox.len() == BUFFERS as usize);
        // Traffic the other way while they are kept must not touch them.
        pair.server.send(&mut pair.client, pair.to_client, &pattern(1, 900), 0);
        pair.until("the answer", |client, _| !client.inbox.is_empty());
        pair.client.inbox.clear();
        let kept = std::mem::take(&mut pair.server.inbox);
        let seen: Vec<u64> = kept.iter().map(|(_, message)| number_of(message.as_ref())).collect();
        assert_eq!(seen, numbers.collect::<Vec<_>>());
        give_back(kept, round);
    }
    assert_eq!(pair.client.contexts().len(), 320);
}

/// Gives messages back in an order and from a thread that depend on `round`.
fn give_back<T: Send + 'static>(kept: std::collections::VecDeque<T>, round: u64) {
    let (mut odd, mut even) = (Vec::new(), Vec::new());
    for (at, message) in kept.into_iter().enumerate() {
        if at % 2 == 0 { even.push(message) } else { odd.push(message) }
    }
    if round.is_multiple_of(2) {
        odd.reverse();
        let other = std::thread::spawn(move || drop(odd));
        // Both threads give back at the same time.
        even.into_iter().rev().for_each(drop);
        other.join().expect("dropping does not panic");
    } else {
        drop(odd);
        drop(even);
    }
}

/// With every buffer out, the program gets an event that says so, and the sender waits; then all arrives, in order, nothing lost.
pub fn all_buffers_out_then_recovery<D: Driver>(env: &Environment<D>) {
    const BUFFERS: usize = 8;
    for attribute in RELIABLE {
        let setup = Setup { recv_buffers: BUFFERS as u32, ..Setup::default() };
        let mut pair = Pair::open(env, attribute, &setup);
        for round in 0..5 {
            pair.client.sent.clear();
            let numbers = round * 30..(round + 1) * 30;
            for number in numbers.clone() {
                pair.send(&pattern(number, 300), number);
            }
            pair.until("the word that buffers are out", |_, server| server.out_of_buffers);
            for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(30));
            assert_eq!(pair.server.inbox.len(), BUFFERS, "no more than there are buffers");
            assert!(pair.client.sent.len() <= 30);
            let mut received = Vec::new();
            let patience = Instant::now() + conformance_timeout();
            while received.len() < 30 || pair.client.sent.len() < 30 {
                assert!(Instant::now() < patience, "{} of 30 after buffers came back", received.len());
                if let Some((_, message)) = pair.server.inbox.pop_front() {
                    received.push(number_of(message.as_ref()));
                }
                pair.client.poll();
                pair.server.poll();
            }
            if attribute != RO {
                received.sort_unstable();
            }
            assert_eq!(received, numbers.collect::<Vec<_>>(), "{attribute:?}: nothing lost, nothing twice");
            assert!(pair.client.statuses().iter().all(|status| *status == Status::Success));
        }
    }
}

/// How a receiver is opened that is to run out of room: a library may hold some messages for which there is no
/// receive buffer, as many as its cap allows, so the cap is low.
pub(super) fn hungry() -> Setup {
    Setup { recv_buffers: 4, memory_bytes_max: Some(4 << 20), ..Setup::default() }
}

/// How its client is opened, whose messages may be short ones: it has room for more than the receiver.
pub(super) fn feeder() -> Setup {
    Setup { send_buffers: 16 << 10, ..Setup::default() }
}

/// Sends long messages, numbered from 0, until there has been no room for another one for a while: more than a [`hungry`]
/// receiver that gives nothing back has room for. Between them the client is driven, and `others`. Returns how many
/// were taken.
pub(super) fn overfill<D: Driver>(client: &mut Side<D>, to: Conn<D>, mut others: impl FnMut()) -> u64 {
    let longest = client.port.max_send_size(to);
    let enough = (6 << 20) / longest as u64;
    let mut full_since = None;
    let mut number = 0;
    while number < enough {
        match client.port.send(to, &pattern(number, longest), number, Flags::default()) {
            Ok(()) => {
                number += 1;
                full_since = None;
            }
            Err(Refusal::WouldBlock) => {
                let since = full_since.get_or_insert_with(Instant::now);
                if since.elapsed() > Duration::from_millis(50) {
                    break;
                }
                client.poll();
                others();
            }
            Err(other) => panic!("send refused: {other:?}"),
        }
    }
    number
}

/// A receiver without buffers for longer than the send timeout: `ReceiverNotReady`, never delivered; what was reported as
/// a success is delivered; the connection lives on.
pub fn receiver_not_ready_ends_at_the_send_timeout<D: Driver>(env: &Environment<D>) {
    // Long enough for a busy machine, which might hold either side up.
    let patient = Setup { send_timeout: Duration::from_secs(1), ..feeder() };
    for attribute in RELIABLE {
        let mut pair = Pair::of(Side::open(env, &patient), Side::open_server(env, &hungry()), attribute);
        let started = Instant::now();
        let Pair { client, server, to_server, .. } = &mut pair;
        let taken = overfill(client, *to_server, || {
            server.poll();
        });
        pair.until("an end of every send", |client, _| client.sent.len() == taken as usize);
        assert!(started.elapsed() >= Duration::from_millis(990), "not before the send timeout");
        let (mut arrived, mut refused) = (Vec::new(), 0);
        for (_, number, status) in pair.client.sent.drain(..) {
            match status {
                Status::Success => arrived.push(number),
                Status::ReceiverNotReady => refused += 1,
                other => panic!("{attribute:?} message {number} of {taken}: {other}"),
            }
        }
        assert!(refused > 0 && arrived.len() >= 4, "{} arrived, {refused} refused", arrived.len());
        let mut numbers = eat(&mut pair, arrived.len());
        if attribute != RO {
            numbers.sort_unstable();
            arrived.sort_unstable();
        }
        assert!(
            numbers == arrived,
            "what was reported as not delivered never is: {numbers:?}, reported {arrived:?}"
        );
        for number in 10_000..10_004 {
            pair.send(&pattern(number, 100), number);
        }
        pair.until("life after it", |client, server| client.sent.len() == 4 && server.inbox.len() == 4);
        assert!(pair.client.statuses().iter().all(|status| *status == Status::Success));
        let mut numbers = eat(&mut pair, 4);
        numbers.sort_unstable();
        assert_eq!(numbers, [10_000, 10_001, 10_002, 10_003]);
        pair.part();
    }
}

/// Gives messages back until `count` have come and a moment longer; returns their numbers.
fn eat<D: Driver>(pair: &mut Pair<D>, count: usize) -> Vec<u64> {
    let patience = Instant::now() + conformance_timeout();
    let mut numbers = Vec::new();
    let mut full_since = Instant::now();
    while numbers.len() < count || full_since.elapsed() < Duration::from_millis(50) {
        assert!(
            Instant::now() < patience,
            "{} of {count} messages that were reported as delivered",
            numbers.len()
        );
        if numbers.len() < count {
            full_since = Instant::now();
        }
        pair.client.poll();
        pair.server.poll();
        numbers.extend(pair.server.inbox.drain(..).map(|(_, message)| number_of(message.as_ref())));
    }
    numbers
}

/// While one peer has no buffers, sends to others go on.
pub fn only_the_named_sender_waits<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Crowd)?;
    let starved = Setup { recv_buffers: 2, ..Setup::default() };
    let mut client: Side<D> = Side::plain(env);
    let (mut starving, mut healthy): (Side<D>, Side<D>) =
        (Side::open_server(env, &starved), Side::server(env));
    let (to_starving, _) = connect(&mut client, &mut starving, RO);
    let (to_healthy, _) = connect(&mut client, &mut healthy, RO);
    for number in 0..10 {
        client.port.send(to_starving, &pattern(number, 200), number, Flags::default()).expect("room");
    }
    until(&mut client, &mut starving, "the starving one to be out of buffers", |_, starving| {
        starving.out_of_buffers && starving.inbox.len() == 2
    });
    client.sent.clear();
    for number in 0..500 {
        client.send(&mut healthy, to_healthy, &pattern(number, 200), number);
        starving.poll();
        healthy.poll();
        for (_, message) in healthy.inbox.drain(..) {
            number_of(message.as_ref());
        }
    }
    let done = |client: &Side<D>| client.sent.iter().filter(|(to, ..)| *to == to_healthy).count();
    let patience = Instant::now() + conformance_timeout();
    while done(&client) < 500 {
        assert!(Instant::now() < patience, "{} of 500 to the healthy one", done(&client));
        for side in [&mut client, &mut starving, &mut healthy] {
            side.poll();
        }
        healthy.inbox.clear();
    }
    // And the starving one gets its own when it eats.
    let mut eaten = 0;
    while eaten < 10 {
        assert!(Instant::now() < patience, "{eaten} of 10 at the starving one");
        eaten += starving.inbox.drain(..).count();
        client.poll();
        starving.poll();
    }
    Ok(())
}

/// An unreliable message that finds no buffer is dropped and counted; its sender completes and goes on.
pub fn unreliable_without_a_buffer_is_dropped<D: Driver>(env: &Environment<D>) {
    let setup = Setup { recv_buffers: 4, ..Setup::default() };
    let mut pair = Pair::open(env, Attribute::Unreliable, &setup);
    for number in 0..100 {
        pair.send(&pattern(number, 64), number);
        pair.server.poll();
    }
    pair.until("all completions", |client, _| client.sent.len() == 100);
    assert!(pair.client.statuses().iter().all(|status| *status == Status::Success), "they have left");
    for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(20));
    assert!(pair.server.inbox.len() <= 4);
    pair.server.inbox.clear();
    for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(20));
    pair.server.inbox.clear();
    assert!(pair.server.port.counts().receiver_not_ready > 0, "what is dropped is counted");
    let mut again = 0;
    while pair.server.inbox.is_empty() {
        again += 1;
        assert!(again < 50, "unreliable messages flow again once there are buffers");
        pair.send(&pattern(1000 + again, 64), 0);
        for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(10));
    }
}
