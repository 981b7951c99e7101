//! The parts that need no endpoint, the format, pieces, order, and the states of a send; and what only the inside can bring about.

use super::answer::{Answer, SendFailure};
use super::base::Due;
use super::lent::Taken;
use super::order::{BeyondWindow, Order};
use super::outgoing::{Outgoing, Report};
use super::own::Own;
use super::pieces::Pieces;
use super::wire::{CONTROL_BYTES_MAX, CallNumber, Frame, NoReply, Purpose, Source};
use super::{Event, Limits, Messenger};
use crate::connection::{Connection, Status};
use crate::limits::{
    CALLS_ALL_MAX, HELD_MESSAGES_MAX, LONG_AHEAD_BYTES, LONG_MESSAGES_MAX, LONG_PIECE_BYTES, LONG_PIECES_MAX,
    LONG_SEGMENTS_MAX,
};
use crate::rma::{Access, RegionHandle, Registration, Segment};
use crate::{Attribute, Context, Endpoint, Options, SendFlags};
use cci_memory::slab::Key;
use proptest::prelude::*;
use std::path::Path;

fn segments() -> impl Strategy<Value = Vec<Segment>> {
    let segment = (any::<[u8; 32]>(), 0..1_u64 << 50, 1..1_u64 << 40);
    let segment =
        segment.prop_map(|(handle, offset, len)| Segment::new(RegionHandle::from_bytes(handle), offset, len));
    proptest::collection::vec(segment, 1..=LONG_SEGMENTS_MAX)
}

fn frames() -> impl Strategy<Value = Frame> {
    let answers = prop_oneof![
        Just(Answer::Received),
        any::<u32>().prop_map(Answer::Refused),
        any::<u64>().prop_map(|max_bytes| Answer::TooLong { max_bytes }),
        Just(Answer::Failed),
    ];
    let calls =
        (0..CALLS_ALL_MAX, any::<u16>()).prop_map(|(index, tag)| CallNumber::new(index, tag).unwrap());
    let purposes = prop_oneof![
        Just(Purpose::Message),
        calls.clone().prop_map(Purpose::Request),
        calls.clone().prop_map(Purpose::Reply),
        (calls.clone(), any::<u32>()).prop_map(|(call, code)| Purpose::Error { call, code }),
    ];
    let why = prop_oneof![Just(NoReply::Dropped), Just(NoReply::Lost), Just(NoReply::GivenUp)];
    let offers = (any::<u32>(), purposes.clone(), segments()).prop_map(|(number, purpose, segments)| {
        Frame::Offer { number, purpose, source: Source::new(&segments).unwrap() }
    });
    prop_oneof![
        purposes.prop_map(Frame::Message),
        offers,
        calls.clone().prop_map(|call| Frame::GiveUp { call }),
        (calls, why).prop_map(|(call, why)| Frame::NoReply { call, why }),
        (any::<u32>(), answers).prop_map(|(number, answer)| Frame::Answer { number, answer }),
        any::<u32>().prop_map(|number| Frame::Cancel { number }),
        (any::<u32>(), any::<u64>())
            .prop_map(|(number, moved_bytes)| Frame::Progress { number, moved_bytes }),
    ]
}

proptest! {
    #[test]
    fn frames_are_read_as_they_were_written(frame in frames()) {
        let mut bytes = [0; CONTROL_BYTES_MAX];
        let bytes = frame.emit(&mut bytes);
        prop_assert_eq!(Frame::parse(bytes), Some(frame));
        prop_assert_eq!(Frame::is_message(bytes), frame == Frame::Message(Purpose::Message));
        let of_call = match frame {
            Frame::Message(purpose @ (Purpose::Request(_) | Purpose::Reply(_))) => Some(purpose),
            _ => None,
        };
        prop_assert_eq!(Frame::call_purpose(bytes), of_call);
        for len in 0..bytes.len() {
            prop_assert_eq!(Frame::parse(&bytes[..len]), None);
        }
    }

    #[test]
    fn what_is_read_is_what_would_be_written(bytes in proptest::collection::vec(any::<u8>(), 0..250), kind in 0..8_u8, count in prop_oneof![0..6_u8, any::<u8>()]) {
        let mut bytes = bytes;
        if bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&[kind, count, 0, 0]);
        }
        if let Some(purpose) = Frame::call_purpose(&bytes) {
            prop_assert_eq!(Frame::parse(&bytes), Some(Frame::Message(purpose)));
        }
        match Frame::parse(&bytes) {
            None => {}
            Some(Frame::Message(Purpose::Message)) => prop_assert!(Frame::is_message(&bytes)),
            Some(frame @ Frame::Message(purpose)) => {
                let mut again = [0; CONTROL_BYTES_MAX];
                prop_assert_eq!(frame.emit(&mut again), &bytes[..purpose.head_bytes()]);
            }
            Some(frame) => {
                let mut again = [0; CONTROL_BYTES_MAX];
                prop_assert_eq!(frame.emit(&mut again), &bytes[..]);
            }
        }
    }

    #[test]
    fn parts_of_a_source_are_its_bytes(segments in segments(), cut in any::<(u64, u64)>()) {
        let source = Source::new(&segments).unwrap();
        let offset = cut.0 % source.len_bytes();
        let len_bytes = 1 + cut.1 % (source.len_bytes() - offset);
        let (part, count) = source.part(offset, len_bytes);
        let mut at = 0;
        let mut parts = part[..count].iter();
        // Where each segment and the part overlap, there is one segment of the part.
        for segment in &segments {
            let (start, end) = (at.max(offset), (at + segment.len_bytes).min(offset + len_bytes));
            if start < end {
                let expected = Segment::new(segment.address.handle, segment.address.offset + start - at, end - start);
                prop_assert_eq!(parts.next(), Some(&expected));
            }
            at += segment.len_bytes;
        }
        prop_assert_eq!(parts.next(), None);
    }

    #[test]
    fn pieces_are_all_of_the_message(len_bytes in 1..40 * LONG_PIECE_BYTES, ends in proptest::collection::vec(any::<bool>(), 0..200)) {
        let (mut pieces, mut under_way, mut at, mut ended) = (Pieces::new(len_bytes), 0, 0, 0);
        let mut ends = ends.into_iter().chain(std::iter::repeat(true));
        let mut is_done = false;
        while !is_done {
            let next = pieces.next();
            prop_assert_eq!(next.is_some(), at < len_bytes && under_way < LONG_PIECES_MAX);
            match next.filter(|_| under_way == 0 || !ends.next().unwrap()) {
                Some((offset, len)) => {
                    prop_assert!(offset == at && len == LONG_PIECE_BYTES.min(len_bytes - at));
                    pieces.started();
                    (at, under_way) = (at + len, under_way + 1);
                }
                None => {
                    is_done = pieces.ended();
                    (ended, under_way) = (ended + 1, under_way - 1);
                    prop_assert_eq!(is_done, ended == len_bytes.div_ceil(LONG_PIECE_BYTES));
                }
            }
            prop_assert_eq!(pieces.has_any_under_way(), under_way > 0);
            prop_assert!(pieces.moved_bytes() <= len_bytes);
        }
        prop_assert!(at == len_bytes && pieces.moved_bytes() == len_bytes && pieces.next().is_none());
    }

    /// Steps: a message comes, a long one is offered, or one that is under way ends, with an event or without.
    #[test]
    fn what_is_held_comes_in_order(steps in proptest::collection::vec((0..4_u8, any::<u16>()), 0..300)) {
        let mut order = Order::new();
        // What was sent, and whether it may be given to the program: None is a long message that has not ended.
        let mut sent: Vec<Option<Option<usize>>> = Vec::new();
        let mut given = 0;
        for (step, which) in steps {
            let number = sent.len();
            let pending: Vec<_> = sent.iter().enumerate().filter(|(_, state)| state.is_none()).map(|(at, _)| at).collect();
            match step {
                0 if order.is_empty() => {
                    prop_assert!(pending.is_empty());
                    sent.push(Some(Some(number)));
                    given += 1;
                }
                0 => {
                    let held = sent.iter().skip(given).filter(|state| matches!(state, Some(Some(at)) if *at < 1_000_000)).count();
                    let is_held = order.hold(number) != Err(BeyondWindow);
                    prop_assert_eq!(is_held, held < HELD_MESSAGES_MAX as usize);
                    if is_held {
                        sent.push(Some(Some(number)));
                    }
                }
                1 if pending.len() < LONG_MESSAGES_MAX as usize => {
                    // There are no more places than for the messages and the long ones of an honest peer.
                    if order.begin(number).is_ok() {
                        sent.push(None);
                    }
                }
                1 => {}
                _ if pending.is_empty() => {}
                _ => {
                    let at = pending[usize::from(which) % pending.len()];
                    let event = (step == 2).then_some(at + 1_000_000);
                    order.end(at, event);
                    sent[at] = Some(event);
                }
            }
            while let Some(event) = order.pop() {
                while sent[given] == Some(None) {
                    given += 1;
                }
                prop_assert_eq!(Some(Some(event)), sent[given]);
                given += 1;
            }
            while sent.get(given) == Some(&Some(None)) {
                given += 1;
            }
            prop_assert!(sent.get(given).is_none_or(Option::is_none), "the next one has not ended");
            prop_assert_eq!(order.pending().next(), (given < sent.len()).then_some(given));
        }
    }
}

fn outgoing() -> Outgoing {
    Outgoing::new(
        Connection { index: 1, generation: 1 },
        5,
        Purpose::Message,
        Report { context: 9, silent: false },
        1_000,
    )
}

#[test]
fn a_send_ends_by_what_the_receiver_says() {
    let mut send = outgoing();
    assert!(!send.has_arrived());
    assert_eq!(send.ends_by(Answer::Received), Ok(()));
    assert_eq!(send.ends_by(Answer::Refused(3)), Err(SendFailure::Refused(3)));
    assert_eq!(send.ends_by(Answer::TooLong { max_bytes: 4 }), Err(SendFailure::TooLong { max_bytes: 4 }));
    assert_eq!(send.ends_by(Answer::Failed), Err(SendFailure::NotReadable));
    assert_eq!(send.fails_by(Status::TimedOut), SendFailure::Failed(Status::TimedOut));
}

/// The cancellation is sent once, and not before the peer has the offer.
#[test]
fn a_cancellation_does_not_overtake_the_offer() {
    let mut early = outgoing();
    assert_eq!((early.cancel(), early.cancel()), (Some(false), None));
    assert!(early.has_arrived() && !early.has_arrived());
    let mut late = outgoing();
    assert!(!late.has_arrived());
    assert_eq!((late.cancel(), late.cancel()), (Some(true), None));
    for send in [early, late] {
        assert_eq!(send.ends_by(Answer::Received), Ok(()), "too late");
        for answer in [Answer::Failed, Answer::Refused(1), Answer::TooLong { max_bytes: 1 }] {
            assert_eq!(send.ends_by(answer), Err(SendFailure::Cancelled));
        }
        assert_eq!(send.fails_by(Status::ReceiverNotReady), SendFailure::Cancelled);
        assert_eq!(send.fails_by(Status::Disconnected), SendFailure::Failed(Status::Disconnected));
    }
}

#[test]
fn progress_grows_and_ends_at_the_end() {
    let mut send = outgoing();
    for (says, moved_bytes) in [(0, 0), (400, 400), (300, 400), (u64::MAX, 1_000), (0, 1_000)] {
        send.moves_to(says);
        assert_eq!(send.moved_bytes(), moved_bytes);
    }
}

#[test]
fn contexts_of_the_layer_are_told_from_others() {
    for key in [Key { index: 0, generation: 1 }, Key { index: (1 << 24) - 1, generation: u32::MAX }] {
        for own in [
            Own::Offer(key),
            Own::Cancel(key),
            Own::Answer(key),
            Own::Piece(key),
            Own::Kept(key),
            Own::Request(key),
            Own::Reply(key),
            Own::NoReply(key),
        ] {
            assert_eq!(Own::from_context(own.to_context()), Some(own));
        }
    }
    for context in [0, 1, u64::MAX >> 1, u64::MAX] {
        assert_eq!(Own::from_context(context), None);
    }
}

/// A long message that can't be fetched any more sets free what waited behind it. That comes before what the endpoint has.
#[test]
fn what_a_failure_sets_free_is_not_overtaken() {
    let context = Context::from_text("[m]\ntransport = shm\n", Path::new("test.ini")).unwrap();
    let new = |limits| {
        Messenger::new(Endpoint::create(&context.devices()[0], Options::default()).unwrap(), limits).unwrap()
    };
    let (mut client, mut server) = (new(Limits::default()), new(Limits::default().whole_bytes_max(0)));
    client.connect(server.endpoint().uri(), b"", Attribute::ReliableOrdered, 0, None).unwrap();
    let (mut to_server, mut offer) = (None, None);
    while offer.is_none() {
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
            Some(Event::Offer(shown)) => offer = Some(shown),
            _ => {}
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            let to = result.unwrap();
            client.send(to, &vec![1; 100_000], 0, SendFlags::SILENT).unwrap();
            client.send(to, b"held", 0, SendFlags::SILENT).unwrap();
            to_server = Some(to);
        }
    }
    for _ in 0..100 {
        assert!(server.next_event().is_none() && client.next_event().is_none());
    }
    client.send(to_server.unwrap(), b"newer", 0, SendFlags::SILENT).unwrap();

    let (offer, memory) = (offer.unwrap(), server.allocate(100_000).unwrap());
    server.receiving.begin(&mut server.base, offer.key, memory.clone(), 0, None).unwrap();
    // The endpoint had no space for the first piece, and meanwhile the region has gone.
    let what = Registration { range: None, access: Access::LOCAL, only: None };
    let region = server.base.endpoint.register(&memory, what).unwrap();
    server.base.endpoint.deregister(&region).unwrap();
    server.receiving.set_region(offer.key, region);
    server.base.due.push_back(Due::Fetch(offer.key));
    assert!(matches!(server.next_event(), Some(Event::Received { result: Err(_), .. })));
    for expected in [&b"held"[..], b"newer"] {
        let message = loop {
            match server.next_event() {
                Some(Event::Message(message)) => break message,
                None => assert!(client.next_event().is_none()),
                event => panic!("{event:?}"),
            }
        };
        assert_eq!(message[..], *expected);
    }
}

/// Memory of the library that the endpoint still reads into counts as lent, although the message has ended.
#[test]
fn memory_in_use_is_lent() {
    const LEN: usize = 100_000;
    let context = Context::from_text("[m]\ntransport = shm\n", Path::new("test.ini")).unwrap();
    let new = |limits| {
        Messenger::new(Endpoint::create(&context.devices()[0], Options::default()).unwrap(), limits).unwrap()
    };
    let (mut client, mut server) = (new(Limits::default()), new(Limits::default().whole_bytes_max(0)));
    client.connect(server.endpoint().uri(), b"", Attribute::ReliableOrdered, 0, None).unwrap();
    let offer = loop {
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
            Some(Event::Offer(offer)) => break offer,
            _ => {}
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            client.send(result.unwrap(), &vec![1; LEN], 0, SendFlags::SILENT).unwrap();
        }
    };
    let capacity = server.receiving.capacity.clone();
    let Taken::Buffer(buffer) = capacity.take(LEN) else { panic!() };
    let lent_bytes = buffer.len() as u64;
    let memory = buffer.into_memory();
    server.receiving.begin(&mut server.base, offer.key, memory.clone(), 0, Some(capacity)).unwrap();
    server.refuse(offer, 1).unwrap();
    assert_eq!(server.counters().lent_bytes, lent_bytes);
    drop(memory);
    for _ in 0..100 {
        assert!(server.next_event().is_none());
    }
    assert_eq!((server.counters().lent_bytes, server.counters().idle_lent_bytes), (0, lent_bytes));
}

/// Two messengers on a device with these settings, of which the first one connects to the second.
fn connecting(settings: &str) -> (Messenger, Messenger) {
    let context = Context::from_text(&format!("[m]\n{settings}\n"), Path::new("test.ini")).unwrap();
    let new = || {
        let endpoint = Endpoint::create(&context.devices()[0], Options::default()).unwrap();
        Messenger::new(endpoint, Limits::default()).unwrap()
    };
    let (mut client, server) = (new(), new());
    client.connect(server.endpoint().uri(), b"", Attribute::ReliableOrdered, 0, None).unwrap();
    (client, server)
}

/// Bulk data make way for what programs say to each other, and not for the messages by which this layer moves a long one.
#[test]
fn a_long_message_does_not_make_way_for_its_own_frames() {
    let (mut client, mut server) = connecting("transport = shm");
    let to_server = loop {
        if let Some(Event::ConnectRequest(request)) = server.next_event() {
            server.accept(request, 0).unwrap();
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            break result.unwrap();
        }
    };
    for (message, prompt_messages) in [(vec![1; 100_000], 0), (vec![2; 8], 1)] {
        client.send(to_server, &message, 0, SendFlags::NONE).unwrap();
        let (mut is_sent, mut is_received) = (false, false);
        while !(is_sent && is_received) {
            is_received |=
                matches!(server.next_event(), Some(Event::Message(came)) if came[..] == message[..]);
            is_sent |= matches!(client.next_event(), Some(Event::Sent { result: Ok(()), .. }));
        }
        let counted = [&client, &server].map(|messenger| messenger.endpoint().prompt_messages());
        assert_eq!(counted, [prompt_messages; 2]);
    }
}

/// What waits its turn has no memory yet, and one message is begun before the one before it is here.
#[test]
fn a_connection_has_few_long_messages_fetched_at_once() {
    const LEN: usize = 1 << 20;
    let (mut client, mut server) = connecting("transport = udp\nip = 127.0.0.1");
    let message = client.allocate(LEN).unwrap();
    let (mut received, mut lent_bytes_max) = (0, 0);
    while received < LONG_MESSAGES_MAX {
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            let to_server = result.unwrap();
            for _ in 0..LONG_MESSAGES_MAX {
                client.send(to_server, &message, 0, SendFlags::SILENT).unwrap();
            }
        }
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
            Some(Event::Message(_)) => received += 1,
            _ => {}
        }
        lent_bytes_max = lent_bytes_max.max(server.counters().lent_bytes);
    }
    // The last one is given its memory while a byte less than that is still to come, and one that is here waits to be taken.
    let bounds = LONG_AHEAD_BYTES..=LONG_AHEAD_BYTES + 2 * LEN as u64;
    assert!(bounds.contains(&lent_bytes_max), "{lent_bytes_max} bytes");
}

/// Copies between places that lie alike in their lines are the fastest, and what is sent mostly begins a page.
#[test]
fn a_long_message_begins_a_line() {
    let (mut client, mut server) = connecting("transport = shm");
    let (mut sent, mut kept) = (0, Vec::new());
    for _ in 0..1_000_000 {
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
            Some(Event::Message(message)) => kept.push(message),
            _ => {}
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            // As many as may wait for their answers.
            for len in (10_000..).step_by(50_001).take(LONG_MESSAGES_MAX as usize) {
                client.send(result.unwrap(), &vec![len as u8; len], 0, SendFlags::SILENT).unwrap();
                sent += 1;
            }
        }
        if kept.len() == LONG_MESSAGES_MAX as usize {
            break;
        }
    }
    assert_eq!((sent, kept.len()), (LONG_MESSAGES_MAX, LONG_MESSAGES_MAX as usize));
    for message in &kept {
        assert!(
            message.as_ptr().addr().is_multiple_of(64),
            "{} bytes at {:p}",
            message.len(),
            message.as_ptr()
        );
        assert!(message.iter().all(|byte| *byte == message.len() as u8));
    }
}
