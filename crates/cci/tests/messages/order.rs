//! Order, and what is held back while a long message is under way.

use crate::common::{At, PATIENCE, Pair, contents, filled};
use cci::limits::{HELD_MESSAGES_MAX, LONG_MESSAGES_MAX};
use cci::messages::{Event, Limits, SendError};
use cci::{Attribute, SendFlags};
use std::time::Instant;

crate::on_each_device!(
    behind_an_undecided_offer,
    ended_behind_a_very_long_one,
    offers_come_one_by_one,
    lent_memory_is_bounded,
    memory_is_not_held_by_what_has_to_wait,
    as_long_as_may_be_lent,
);

/// What is sent behind an offer that is not decided waits, and the sender is held back.
fn behind_an_undecided_offer(device: &str) {
    let limits = Limits::default().whole_bytes_max(0);
    let mut pair = Pair::with(device, Attribute::ReliableOrdered, limits);
    let long = contents(200_000, 1);
    let (to, flags) = (pair.client.peer, SendFlags::SILENT);
    let id = pair.client.messenger.send(to, &long, 77, SendFlags::NONE).unwrap();
    for at in 0..HELD_MESSAGES_MAX {
        pair.client.messenger.send(to, &at.to_le_bytes(), 0, flags).unwrap();
    }
    let held_back = pair.client.messenger.send(to, b"one more", 0, flags);
    assert!(matches!(held_back, Err(SendError::WouldBlock)), "{held_back:?}");
    let offer = pair.run(|_, at, event| match (at, event) {
        (At::Server, Event::Offer(offer)) => Some(offer),
        (at, event) => panic!("{at:?}: {event:?}"),
    });
    pair.idle();
    // The other direction goes on.
    pair.server.messenger.send(pair.server.peer, b"wait", 0, flags).unwrap();
    pair.run_until(|_, at, event| matches!((at, event), (At::Client, Event::Message(message)) if message[..] == *b"wait"));
    assert!(matches!(pair.client.messenger.send(to, b"one more", 0, flags), Err(SendError::WouldBlock)));
    assert_eq!(pair.client.messenger.send_progress(id).unwrap().total_bytes, 200_000);

    pair.server.messenger.receive(offer).unwrap();
    let (mut next, mut ended) = (None, false);
    pair.run_until(|_, at, event| {
        match (at, event) {
            (At::Client, Event::Sent { context: 77, result: Ok(()), .. }) => ended = true,
            (At::Server, Event::Message(message)) => match next {
                None => {
                    assert!(message[..] == long);
                    next = Some(0);
                }
                Some(at) => {
                    assert_eq!(message[..], u32::to_le_bytes(at));
                    next = Some(at + 1);
                }
            },
            (at, event) => panic!("{at:?}: {event:?}"),
        }
        next == Some(HELD_MESSAGES_MAX) && ended
    });
    assert_eq!(pair.client.messenger.send_progress(id), None);
    pair.client.messenger.send(to, b"one more", 0, flags).unwrap();
    pair.run_until(|_, at, event| matches!((at, event), (At::Server, Event::Message(_))));
}

/// Messages that are there before a very long one in front of them: the sender sends no more of them than the receiver may hold.
fn ended_behind_a_very_long_one(device: &str) {
    const COUNT: u64 = 100;
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    let to = pair.client.peer;
    let near = filled(&mut pair.client.messenger, &contents(20_000, 1));
    // Where peers map memory, they have mapped this before, and the long message's is new to them.
    pair.client.messenger.send(to, &near, 0, SendFlags::SILENT).unwrap();
    pair.run_until(|_, at, event| at == At::Server && matches!(event, Event::Message(_)));
    let far = filled(&mut pair.client.messenger, &contents(8 << 20, 2));
    pair.client.messenger.send(to, &far, 0, SendFlags::NONE).unwrap();
    let (mut sent, mut came, mut ended, start) = (1, Vec::new(), 0, Instant::now());
    while ended <= COUNT {
        assert!(start.elapsed() < PATIENCE, "{device}: {ended} have ended");
        while sent <= COUNT && pair.client.messenger.send(to, &near, sent, SendFlags::NONE).is_ok() {
            sent += 1;
        }
        while let Some(event) = pair.server.messenger.next_event() {
            match event {
                Event::Offer(offer) => pair.server.messenger.receive(offer).unwrap(),
                Event::Message(message) => came.push(message.len()),
                event => panic!("{device}: {event:?}"),
            }
        }
        // One at a time: the long message is read more slowly than the others.
        match pair.client.messenger.next_event() {
            None => {}
            Some(Event::Sent { result: Ok(()), .. }) => ended += 1,
            Some(event) => panic!("{device}: {event:?} after {ended} ends, {} messages", came.len()),
        }
    }
    assert_eq!((came[0], came.len() as u64), (8 << 20, COUNT + 1));
}

/// As many long messages as may be are under way; the program is offered one after the other, in order.
fn offers_come_one_by_one(device: &str) {
    let limits = Limits::default().whole_bytes_max(20_000);
    let mut pair = Pair::with(device, Attribute::ReliableOrdered, limits);
    let to = pair.client.peer;
    let message = |at: u32| contents(if at % 4 == 3 { 15_000 } else { 30_000 + at as usize }, at as usize);
    for at in 0..LONG_MESSAGES_MAX {
        pair.client.messenger.send(to, &message(at), at.into(), SendFlags::NONE).unwrap();
    }
    let held_back = pair.client.messenger.send(to, &message(0), 0, SendFlags::NONE);
    assert!(matches!(held_back, Err(SendError::WouldBlock)), "{held_back:?}");
    let (mut came, mut ended, mut offered) = (0, 0, None);
    pair.run_until(|side, at, event| {
        match (at, event) {
            (At::Client, Event::Sent { context, result: Ok(()), .. }) => {
                assert_eq!(context, ended);
                ended += 1;
            }
            (At::Server, Event::Offer(offer)) => {
                assert!(offered.is_none() && offer.len_bytes() == message(came).len() as u64);
                offered = Some(came);
                side.messenger.receive(offer).unwrap();
            }
            (At::Server, Event::Message(got)) => {
                assert!(got[..] == message(came), "{device}: {came}");
                assert_eq!(offered.take().is_some(), came % 4 != 3);
                came += 1;
            }
            (at, event) => panic!("{at:?}: {event:?}"),
        }
        came == LONG_MESSAGES_MAX && ended == u64::from(LONG_MESSAGES_MAX)
    });
}

/// Messages wait while the program has as much of the library's memory as may be lent, and come when it gives some back, on any thread.
fn lent_memory_is_bounded(device: &str) {
    let limits = Limits::default().lent_bytes_max(1 << 20);
    let mut pair = Pair::with(device, Attribute::ReliableOrdered, limits);
    let to = pair.client.peer;
    for at in 0..6 {
        pair.client.messenger.send(to, &contents(400_000, at), 0, SendFlags::SILENT).unwrap();
    }
    let mut kept = Vec::new();
    pair.run_until(|_, _, event| {
        let Event::Message(message) = event else { panic!("{event:?}") };
        assert!(message[..] == contents(400_000, kept.len()));
        kept.push(message);
        kept.len() == 2
    });
    pair.idle();
    let counters = pair.server.messenger.counters();
    assert!(counters.lent_bytes <= 1 << 20 && counters.lent_bytes >= 800_000, "{counters:?}");
    for at in 2..6 {
        let oldest = kept.remove(0);
        std::thread::spawn(move || drop(oldest)).join().unwrap();
        let message = pair.run(|_, _, event| match event {
            Event::Message(message) => Some(message),
            event => panic!("{event:?}"),
        });
        assert!(message[..] == contents(400_000, at));
        kept.push(message);
    }
    kept.clear();
    pair.idle();
    let counters = pair.server.messenger.counters();
    assert!(counters.lent_bytes == 0 && counters.idle_lent_bytes <= 1 << 20, "{counters:?}");
}

/// A message that waits behind one that is not decided has no memory of the library's, or that one might never get any.
fn memory_is_not_held_by_what_has_to_wait(device: &str) {
    let limits = Limits::default().lent_bytes_max(1 << 20).whole_bytes_max(600_000);
    let mut pair = Pair::with(device, Attribute::ReliableOrdered, limits);
    let to = pair.client.peer;
    for (seed, len) in [1_000_000, 500_000, 500_000].into_iter().enumerate() {
        pair.client.messenger.send(to, &contents(len, seed), 0, SendFlags::SILENT).unwrap();
    }
    let offer = pair.run(|_, at, event| match (at, event) {
        (At::Server, Event::Offer(offer)) => Some(offer),
        (at, event) => panic!("{at:?}: {event:?}"),
    });
    pair.idle();
    assert_eq!(pair.server.messenger.counters().lent_bytes, 0);
    pair.server.messenger.receive(offer).unwrap();
    let mut came = 0;
    pair.run_until(|_, _, event| {
        let Event::Message(message) = event else { panic!("{event:?}") };
        assert!(message[..] == contents(message.len(), came));
        came += 1;
        came == 3
    });
}

/// The cap on what is lent is no multiple of anything.
fn as_long_as_may_be_lent(device: &str) {
    const CAP: usize = 50_001;
    let limits = Limits::default().whole_bytes_max(CAP as u64).lent_bytes_max(CAP as u64);
    let mut pair = Pair::with(device, Attribute::ReliableOrdered, limits);
    for seed in 0..3 {
        let long = contents(CAP, seed);
        pair.client.messenger.send(pair.client.peer, &long, 0, SendFlags::SILENT).unwrap();
        pair.run_until(|_, _, event| match event {
            Event::Message(message) => message[..] == long[..],
            event => panic!("{event:?}"),
        });
    }
    assert!(pair.server.messenger.counters().idle_lent_bytes <= CAP as u64);
}
