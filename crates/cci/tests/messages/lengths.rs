//! Messages of all lengths arrive as they were, from whatever memory, and each send ends once.

use crate::common::{At, Pair, contents, filled};
use cci::messages::{Event, Limits, SendError};
use cci::{Attribute, Foreign, Memory, SendFlags};
use std::collections::HashSet;

crate::on_each_device!(
    every_length,
    gathered_from_slices,
    from_memory,
    from_parts_of_memory,
    kept_for_the_next_message,
    more_memories_than_are_kept,
    into_memory_of_the_program,
    both_ways_at_once,
    unordered,
    unreliable_is_short,
    any_context,
);

/// Sends from the client, takes everything at the server, and returns the message.
fn send_one(pair: &mut Pair, context: u64, len: usize) -> Vec<u8> {
    let (mut came, mut ended) = (None, None);
    pair.run_until(|side, at, event| {
        match (at, event) {
            (At::Client, Event::Sent { connection, context: of, result }) => {
                assert!(connection == side.peer && of == context && ended.is_none(), "{of}");
                ended = Some(result);
            }
            (At::Server, Event::Offer(offer)) => {
                assert!(offer.len_bytes() == len as u64 && offer.connection() == side.peer);
                side.messenger.receive(offer).unwrap();
            }
            (At::Server, Event::Message(message)) => {
                assert!(message.connection() == side.peer && came.is_none());
                assert!(message.as_ptr().addr().is_multiple_of(8));
                came = Some(message.to_vec());
            }
            (at, event) => panic!("{at:?}: {event:?}"),
        }
        came.is_some() && ended.is_some()
    });
    assert_eq!(ended, Some(Ok(())));
    came.unwrap()
}

fn every_length(device: &str) {
    for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered] {
        let mut pair = Pair::new(device, attribute);
        let short = pair.client.messenger.endpoint().max_send_size(pair.client.peer).unwrap() as usize - 8;
        let lengths =
            [0, 1, 7, short - 1, short, short + 1, 65_536, 262_144, 262_145, 1 << 20, (3 << 20) + 5];
        for (seed, len) in lengths.into_iter().enumerate() {
            let message = contents(len, seed);
            let context = 1_000 + seed as u64;
            pair.client.messenger.send(pair.client.peer, &message, context, SendFlags::NONE).unwrap();
            assert!(send_one(&mut pair, context, len) == message, "{device}: {len} bytes");
        }
        pair.idle();
        let counters = pair.client.messenger.counters();
        assert_eq!((counters.long_sent, counters.long_failed, counters.staged_bytes), (6, 0, 0));
        let counters = pair.server.messenger.counters();
        assert_eq!((counters.long_received, counters.lent_bytes, counters.faults), (6, 0, 0));
    }
}

fn gathered_from_slices(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    for (count, len) in [(3, 5), (20, 9), (3, 100_000), (20, 30_000)] {
        let parts: Vec<Vec<u8>> = (0..count).map(|seed| contents(len, seed)).collect();
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        pair.client.messenger.send(pair.client.peer, slices.as_slice(), 1, SendFlags::NONE).unwrap();
        assert!(send_one(&mut pair, 1, count * len) == parts.concat(), "{device}: {count} of {len}");
    }
}

fn from_memory(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    for len in [100, 700_000, (1 << 20) + 1] {
        let message = contents(len, len);
        let library = filled(&mut pair.client.messenger, &message);
        let own = Memory::foreign(Foreign::owned(message.clone().into_boxed_slice()));
        for memory in [library, own] {
            pair.client.messenger.send(pair.client.peer, &memory, 1, SendFlags::NONE).unwrap();
            assert!(send_one(&mut pair, 1, len) == message, "{device}: {len} bytes of {memory:?}");
        }
    }
    // What the program can't send any more does not stay open to the peer.
    pair.idle();
    assert_eq!(pair.client.messenger.endpoint().counters().regions, 0);
}

fn kept_for_the_next_message(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    let mut regions = HashSet::new();
    let memory = filled(&mut pair.client.messenger, &contents(200_000, 1));
    for round in 0..100_u8 {
        assert!(memory.write(0, &[round]), "the memory is the program's between two messages");
        pair.client.messenger.send(pair.client.peer, &memory, 1, SendFlags::NONE).unwrap();
        assert_eq!(send_one(&mut pair, 1, 200_000)[0], round);
        regions.insert(pair.client.messenger.counters().kept_regions);
    }
    // Where no peer maps it, the region ends with each message.
    assert!(regions.len() == 1 && regions.iter().all(|kept| *kept <= 1), "{device}: {regions:?}");
    let kept = pair.client.messenger.counters().kept_regions;
    assert_eq!(pair.client.messenger.endpoint().counters().regions, kept);
    pair.client.messenger.disconnect(pair.client.peer);
    assert_eq!(pair.client.messenger.counters().kept_regions, 0);
    assert_eq!(pair.client.messenger.endpoint().counters().regions, 0);
}

fn more_memories_than_are_kept(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    let memories: Vec<Memory> =
        (0..80).map(|seed| filled(&mut pair.client.messenger, &contents(20_000, seed))).collect();
    for _ in 0..2 {
        for (seed, memory) in memories.iter().enumerate() {
            pair.client.messenger.send(pair.client.peer, memory, 1, SendFlags::NONE).unwrap();
            assert!(send_one(&mut pair, 1, 20_000) == contents(20_000, seed), "{device}: {seed}");
        }
    }
    let kept = pair.client.messenger.counters().kept_regions;
    assert!(kept <= 64, "{device}: {kept} regions are kept");
    assert_eq!(pair.client.messenger.endpoint().counters().regions, kept);
}

fn from_parts_of_memory(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    let bytes = contents(900_000, 3);
    let memory = filled(&mut pair.client.messenger, &bytes);
    let own = Memory::foreign(Foreign::owned(bytes.clone().into_boxed_slice()));
    for (first, second) in [(5..25, 100..107), (10..400_000, 500_001..900_000)] {
        let parts = [(&memory, first.clone()), (&own, 7..7), (&own, second.clone()), (&memory, 0..1)];
        pair.client.messenger.send(pair.client.peer, &parts, 1, SendFlags::NONE).unwrap();
        let expected = [&bytes[first], &bytes[second], &bytes[..1]].concat();
        assert!(send_one(&mut pair, 1, expected.len()) == expected, "{device}");
    }
    let to = pair.client.peer;
    let beyond = pair.client.messenger.send(to, &[(&memory, 1..900_001)], 1, SendFlags::NONE);
    assert!(matches!(beyond, Err(SendError::Memory(_))), "{beyond:?}");
    let beyond = pair.client.messenger.send(to, &[(&memory, 899_999..900_001)], 1, SendFlags::NONE);
    assert!(matches!(beyond, Err(SendError::Memory(_))), "{beyond:?}");
    let five = [(); 5].map(|()| (&memory, 0..100_000));
    let beyond = pair.client.messenger.send(to, &five, 1, SendFlags::NONE);
    assert!(matches!(beyond, Err(SendError::TooManyParts)), "{beyond:?}");
    drop(memory);
    pair.idle();
    assert_eq!(pair.client.messenger.endpoint().counters().regions, 0);
}

fn into_memory_of_the_program(device: &str) {
    let limits = Limits::default().whole_bytes_max(0);
    let mut pair = Pair::with(device, Attribute::ReliableOrdered, limits);
    for len in [20_000, 5_000_000] {
        let message = contents(len, 9);
        let memory = filled(&mut pair.server.messenger, &vec![0xee; len + 20]);
        pair.client.messenger.send(pair.client.peer, &message, 1, SendFlags::NONE).unwrap();
        let (mut received, mut ended) = (0, 0);
        pair.run_until(|side, at, event| {
            match (at, event) {
                (At::Client, Event::Sent { context: 1, result: Ok(()), .. }) => ended += 1,
                (At::Server, Event::Offer(offer)) => {
                    let beyond = side.messenger.receive_into(offer, &memory, 21, 5);
                    assert!(beyond.is_err(), "{beyond:?}");
                    side.messenger.receive_into(offer, &memory, 10, 5).unwrap();
                    assert!(side.messenger.receive_into(offer, &memory, 10, 5).is_err(), "only once");
                    let progress = side.messenger.receive_progress(offer).unwrap();
                    assert!(progress.total_bytes == len as u64 && progress.moved_bytes <= len as u64);
                }
                (At::Server, Event::Received { offer, context: 5, result: Ok(()) }) => {
                    assert_eq!(side.messenger.receive_progress(offer), None);
                    assert!(side.messenger.refuse(offer, 0).is_err());
                    received += 1;
                }
                (at, event) => panic!("{at:?}: {event:?}"),
            }
            received == 1 && ended == 1
        });
        let mut out = vec![0; len + 20];
        assert!(memory.read(0, &mut out));
        assert!(out[10..len + 10] == message && out[..10] == [0xee; 10] && out[len + 10..] == [0xee; 10]);
    }
    assert_eq!(pair.server.messenger.endpoint().counters().regions, 0);
}

fn both_ways_at_once(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    const COUNT: usize = 12;
    let message = |at: usize| contents([10, 50_000, 400_000][at % 3], at);
    for side in [&mut pair.client, &mut pair.server] {
        for at in 0..COUNT {
            side.messenger.send(side.peer, &message(at), at as u64, SendFlags::NONE).unwrap();
        }
    }
    let (mut came, mut ended) = ([0; 2], [0; 2]);
    pair.run_until(|_, at, event| {
        match event {
            Event::Message(got) => {
                assert!(got[..] == message(came[at as usize]), "{device}: {at:?} {}", came[at as usize]);
                came[at as usize] += 1;
            }
            Event::Sent { result, .. } => {
                assert_eq!(result, Ok(()));
                ended[at as usize] += 1;
            }
            event => panic!("{at:?}: {event:?}"),
        }
        came == [COUNT; 2] && ended == [COUNT; 2]
    });
    pair.idle();
}

fn unordered(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableUnordered);
    const COUNT: usize = 15;
    let message = |at: usize| [&[at as u8][..], &contents([10, 50_000, 300_000][at % 3], at)].concat();
    for at in 0..COUNT {
        pair.client.messenger.send(pair.client.peer, &message(at), at as u64, SendFlags::NONE).unwrap();
    }
    let (mut came, mut ended) = ([false; COUNT], 0);
    pair.run_until(|_, _, event| {
        match event {
            Event::Message(got) => {
                let at = usize::from(got[0]);
                assert!(got[..] == message(at) && !came[at], "{device}: {at}");
                came[at] = true;
            }
            Event::Sent { result, .. } => {
                assert_eq!(result, Ok(()));
                ended += 1;
            }
            event => panic!("{event:?}"),
        }
        came == [true; COUNT] && ended == COUNT
    });
    pair.idle();
}

fn unreliable_is_short(device: &str) {
    let mut pair = Pair::new(device, Attribute::Unreliable);
    let (side, long) = (&mut pair.client, vec![0; 100_000]);
    let refused = side.messenger.send(side.peer, &long, 1, SendFlags::NONE);
    assert!(matches!(refused, Err(SendError::TooLong { len_bytes: 100_000, .. })), "{refused:?}");
    side.messenger.send(side.peer, b"short", 1, SendFlags::NONE).unwrap();
    assert_eq!(send_one(&mut pair, 1, 5), b"short");
}

/// Contexts are the program's, and may be any number.
fn any_context(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    for context in [0, u64::MAX, 1 << 63, 0x8000_0000_0000_0001, 0x8300_0000_0000_0001] {
        for len in [3, 30_000] {
            pair.client
                .messenger
                .send(pair.client.peer, &contents(len, 1), context, SendFlags::NONE)
                .unwrap();
            assert!(send_one(&mut pair, context, len) == contents(len, 1));
        }
    }
}
