//! Segmented buffers among real processes.
#![allow(clippy::unwrap_used, reason = "a rank that can't go on fails")]

mod roles;

use cci::Memory;
use cci_acp::{
    AcpError, GlobalMemory, Indices, Receiver, SegmentDestination, SegmentSource, Segments, Sender, Slots,
};
use roles::{ROLE, all_ranks_do, close, launch, role};
use std::env;

const SEGMENTS: Segments = Segments { count: 4, bytes: 3_000 };

/// Not a test where nothing has started it: what ranks do.
#[test]
fn as_a_rank() {
    match env::var(ROLE).as_deref() {
        Ok("shapes") => shapes(),
        Ok("all to all") => all_to_all(),
        Ok("ends") => ends(),
        Ok("cycles") => cycles(),
        Ok("one dies") => one_dies(),
        Ok("wrong") => wrong(),
        _ => {}
    }
}

fn open() -> GlobalMemory {
    roles::open(64, 0).1
}

fn memory(global: &mut GlobalMemory, segments: Segments) -> Memory {
    global.allocate(segments.len_bytes().unwrap()).unwrap()
}

fn source(global: &mut GlobalMemory, to: u32, segments: Segments) -> (SegmentSource, Memory) {
    let memory = memory(global, segments);
    (SegmentSource::create(global, to, &memory, segments).unwrap(), memory)
}

fn destination(global: &mut GlobalMemory, from: u32, segments: Segments) -> (SegmentDestination, Memory) {
    let memory = memory(global, segments);
    (SegmentDestination::create(global, from, &memory, segments).unwrap(), memory)
}

fn pattern(number: u64, len: u64) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + number * 7 + at / 251) as u8).collect()
}

/// Fills the segment at the tail, and publishes it.
fn publish(global: &mut GlobalMemory, (source, memory): &(SegmentSource, Memory), segments: Segments) {
    source.wait(global).unwrap();
    let tail = source.indices(global).unwrap().tail;
    let at = tail % segments.count * segments.bytes;
    assert!(memory.write(at as usize, &pattern(tail, segments.bytes)));
    source.publish(global).unwrap();
}

/// Checks the segment at the head, and releases it.
fn take(global: &mut GlobalMemory, (destination, memory): &(SegmentDestination, Memory), segments: Segments) {
    destination.wait(global).unwrap();
    let head = destination.indices(global).unwrap().head;
    let mut bytes = vec![0; segments.bytes as usize];
    assert!(memory.read((head % segments.count * segments.bytes) as usize, &mut bytes));
    assert!(bytes == pattern(head, segments.bytes), "segment {head} of {segments:?}");
    destination.release(global).unwrap();
}

/// All numbers and lengths of segments.
fn shapes() {
    let mut global = open();
    for (count, bytes, turns) in
        [(1, 1, 50), (1, 5_000, 50), (2, 100, 300), (7, 3_000, 500), (3, 300_000, 40)]
    {
        let segments = Segments { count, bytes };
        if global.rank() == 0 {
            let source = source(&mut global, 1, segments);
            for turn in 0..turns {
                if turn == 1 {
                    source.0.connect(&mut global).unwrap();
                    assert!(source.0.is_connected(&mut global));
                }
                publish(&mut global, &source, segments);
            }
            source.0.disconnect(&mut global).unwrap();
            let Indices { tail, sent, .. } = source.0.indices(&mut global).unwrap();
            assert_eq!((tail, sent), (turns, turns), "all of it is there");
            assert!(source.0.publish(&mut global).is_err() && !source.0.is_connected(&mut global));
            source.0.free(&mut global).unwrap();
        } else {
            let destination = destination(&mut global, 0, segments);
            destination.0.connect(&mut global).unwrap();
            for _ in 0..turns {
                take(&mut global, &destination, segments);
            }
            assert_eq!(destination.0.indices(&mut global).unwrap().head, turns);
            assert!(destination.0.release(&mut global).is_err(), "there is nothing");
            assert!(destination.0.wait(&mut global).is_err(), "there will be nothing");
            destination.0.free(&mut global).unwrap();
        }
    }
    close(global);
}

/// Buffers of all pairs in both directions, two of each, and channels beside them, all in use at once.
fn all_to_all() {
    let mut global = open();
    let rank = global.rank();
    let others: Vec<u32> = (0..global.size()).filter(|&other| other != rank).collect();
    let slots = Slots { count: 2, bytes: 100 };
    let mut sources = vec![];
    let mut destinations = vec![];
    let mut channels = vec![];
    for &other in others.iter().chain(others.iter().rev()) {
        sources.push(source(&mut global, other, SEGMENTS));
        channels.push((
            Sender::create(&mut global, other, slots).unwrap(),
            Receiver::create(&mut global, other, slots).unwrap(),
        ));
        destinations.push(destination(&mut global, other, SEGMENTS));
    }
    for _ in 0..60 {
        for source in &sources {
            publish(&mut global, source, SEGMENTS);
        }
        for (sender, _) in &channels {
            sender.send(&mut global, b"beside").unwrap();
        }
        for destination in &destinations {
            take(&mut global, destination, SEGMENTS);
        }
        for (_, receiver) in &channels {
            assert_eq!(receiver.receive(&mut global, &mut [0; 10]).unwrap(), 6);
        }
    }
    global.sync().unwrap();
    sources.into_iter().for_each(|(source, _)| source.free(&mut global).unwrap());
    destinations.into_iter().for_each(|(destination, _)| destination.free(&mut global).unwrap());
    close(global);
}

/// Either end disconnects, or is freed, before the other one.
fn ends() {
    let mut global = open();
    let is_source = global.rank() == 0;
    // The source ends first: what it has published can be taken.
    if is_source {
        let source = source(&mut global, 1, SEGMENTS);
        (0..SEGMENTS.count).for_each(|_| publish(&mut global, &source, SEGMENTS));
        assert!(!source.0.has_room(&mut global).unwrap());
        assert!(matches!(source.0.publish(&mut global), Err(AcpError::Full(_))));
        source.0.free(&mut global).unwrap();
    } else {
        let destination = destination(&mut global, 0, SEGMENTS);
        // It is connected once a segment has come, so that it is the end of the connection that ends this loop.
        while destination.0.indices(&mut global).unwrap().tail < SEGMENTS.count
            || destination.0.is_connected(&mut global)
        {}
        (0..SEGMENTS.count).for_each(|_| take(&mut global, &destination, SEGMENTS));
        // The word of the end may come later than the last segment.
        while let Ok(has_data) = destination.0.has_data(&mut global) {
            assert!(!has_data, "there were no more");
        }
        destination.0.free(&mut global).unwrap();
    }
    global.sync().unwrap();
    // The destination ends first: the source learns so, and waits for nothing.
    if is_source {
        let source = source(&mut global, 1, SEGMENTS);
        source.0.connect(&mut global).unwrap();
        let end = loop {
            if let Err(end) = source.0.wait(&mut global).and_then(|()| source.0.publish(&mut global)) {
                break end;
            }
        };
        assert!(matches!(end, AcpError::Argument(_)), "{end}");
        source.0.free(&mut global).unwrap();
    } else {
        let destination = destination(&mut global, 0, SEGMENTS);
        destination.0.wait(&mut global).unwrap();
        destination.0.disconnect(&mut global).unwrap();
        assert!(destination.0.has_data(&mut global).unwrap(), "what has come can be taken");
        destination.0.free(&mut global).unwrap();
    }
    global.sync().unwrap();
    // The source is gone before the destination is made.
    if is_source {
        let source = source(&mut global, 1, SEGMENTS);
        let memory = source.1;
        assert!(memory.write(0, b"nobody"));
        source.0.publish(&mut global).unwrap();
        global.sync().unwrap();
    } else {
        global.sync().unwrap();
    }
    // Other segments at the two ends.
    let other = Segments { bytes: SEGMENTS.bytes + 8, ..SEGMENTS };
    let unequal = if is_source {
        let source = source(&mut global, 1, SEGMENTS);
        source.0.connect(&mut global)
    } else {
        // The first one belongs to the source that was published to before.
        let first = destination(&mut global, 0, SEGMENTS);
        first.0.wait(&mut global).unwrap();
        let destination = destination(&mut global, 0, other);
        destination.0.wait(&mut global)
    };
    assert!(matches!(unequal, Err(AcpError::Argument(_))), "{unequal:?}");
    close(global);
}

/// Buffers come and go by the thousand, in both directions, and leave nothing.
fn cycles() {
    const WARM_UP: u32 = 500;
    const CYCLES: u32 = 10_000;
    let mut global = open();
    let other = 1 - global.rank();
    let segments = Segments { count: 2, bytes: 1 << 20 };
    let memory = memory(&mut global, segments);
    let mut before = (0, 0);
    for cycle in 0..WARM_UP + CYCLES {
        if cycle == WARM_UP {
            before = roles::held();
        }
        if (cycle + global.rank()).is_multiple_of(2) {
            let source = SegmentSource::create(&mut global, other, &memory, segments).unwrap();
            source.connect(&mut global).unwrap();
            source.free(&mut global).unwrap();
        } else {
            let destination = SegmentDestination::create(&mut global, other, &memory, segments).unwrap();
            destination.connect(&mut global).unwrap();
            destination.free(&mut global).unwrap();
        }
    }
    let after = roles::held();
    // A page for each eighth cycle would be more.
    assert!(after.0 < before.0 + (1 << 20) && after.1 <= before.1 + 2, "{before:?}, then {after:?}");
    close(global);
}

/// Rank 1 ends in the middle: whoever waits for it gets an error, and has its other buffers.
fn one_dies() {
    let (mut job, mut global) = roles::open(64, 0);
    // Over UDP nobody else says so.
    job.survive().unwrap();
    let rank = global.rank();
    if rank == 1 {
        let source = source(&mut global, 0, SEGMENTS);
        let _destination = destination(&mut global, 0, SEGMENTS);
        publish(&mut global, &source, SEGMENTS);
        source.0.connect(&mut global).unwrap();
        global.sync().unwrap();
        roles::die();
    }
    if rank == 0 {
        let (from, to) = (destination(&mut global, 1, SEGMENTS), source(&mut global, 1, SEGMENTS));
        take(&mut global, &from, SEGMENTS);
        global.sync().unwrap();
        let gone = from.0.wait(&mut global);
        assert!(matches!(gone, Err(AcpError::Gone { rank: 1, .. })), "{gone:?}");
        let gone = loop {
            if let Err(gone) = to.0.wait(&mut global).and_then(|()| to.0.publish(&mut global)) {
                break gone;
            }
        };
        assert!(matches!(gone, AcpError::Gone { rank: 1, .. }), "{gone:?}");
        to.0.free(&mut global).unwrap();
        from.0.free(&mut global).unwrap();
    } else {
        global.sync().unwrap();
    }
    let (to, from) = (source(&mut global, 2 - rank, SEGMENTS), destination(&mut global, 2 - rank, SEGMENTS));
    for _ in 0..10 {
        publish(&mut global, &to, SEGMENTS);
        take(&mut global, &from, SEGMENTS);
    }
    // Not before the other one has it all.
    to.0.free(&mut global).unwrap();
    while from.0.is_connected(&mut global) {
        global.progress();
    }
}

/// What can't be right is refused, and changes nothing.
fn wrong() {
    let mut global = open();
    let (rank, size) = (global.rank(), global.size());
    let memory = memory(&mut global, SEGMENTS);
    for (other, segments) in [
        (rank, SEGMENTS),
        (size, SEGMENTS),
        (1 - rank, Segments { count: 0, ..SEGMENTS }),
        (1 - rank, Segments { bytes: 0, ..SEGMENTS }),
        (1 - rank, Segments { count: 1 << 40, ..SEGMENTS }),
        (1 - rank, Segments { count: u64::MAX, ..SEGMENTS }),
    ] {
        assert!(
            SegmentSource::create(&mut global, other, &memory, segments).is_err(),
            "{other}, {segments:?}"
        );
        assert!(SegmentDestination::create(&mut global, other, &memory, segments).is_err());
    }
    // A reset ends buffers.
    let to = SegmentSource::create(&mut global, 1 - rank, &memory, SEGMENTS).unwrap();
    let from = SegmentDestination::create(&mut global, 1 - rank, &memory, SEGMENTS).unwrap();
    to.connect(&mut global).unwrap();
    global.reset(1 - rank).unwrap();
    assert!(to.publish(&mut global).is_err() && from.has_data(&mut global).is_err());
    assert!(to.free(&mut global).is_err() && from.free(&mut global).is_err());
    let (to, from) = (source(&mut global, rank, SEGMENTS), destination(&mut global, rank, SEGMENTS));
    publish(&mut global, &to, SEGMENTS);
    take(&mut global, &from, SEGMENTS);
    close(global);
}

#[test]
fn segments_of_all_shapes_come_in_order() {
    all_ranks_do("shapes", 2);
}

#[test]
fn buffers_of_all_pairs_work_at_once_beside_channels() {
    all_ranks_do("all to all", 3);
}

#[test]
fn either_end_may_end_first() {
    all_ranks_do("ends", 2);
}

#[test]
fn buffers_that_come_and_go_leave_nothing() {
    all_ranks_do("cycles", 2);
}

#[test]
fn whoever_waits_for_a_rank_that_dies_is_told() {
    for device in ["shm", "tcp-lo", "udp-lo", "any"] {
        let ranks = launch(3, role("one dies", device));
        assert_eq!(ranks[1].status.code(), None, "{device}: {:?}", ranks[1]);
        assert!(ranks[0].status.success() && ranks[2].status.success(), "{device}: {ranks:?}");
    }
}

#[test]
fn what_cannot_be_right_is_refused() {
    all_ranks_do("wrong", 2);
}
