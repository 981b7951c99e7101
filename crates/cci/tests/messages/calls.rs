//! Request and reply.

use crate::common::{At, PATIENCE, Pair, Side, contents};
use cci::limits::CALLS_MAX;
use cci::messages::{CallFailure, Event, Limits, ReplyError, Request, SendError};
use cci::{Attribute, SendFlags, Status};
use std::time::{Duration, Instant};

crate::on_each_device!(
    requests_and_replies_of_all_lengths,
    errors_of_the_server,
    answers_out_of_order,
    answers_from_other_threads,
    a_dropped_request_is_known,
    deadlines,
    given_up,
    as_many_as_may_be_unanswered,
    ends_of_connections,
    beyond_the_limits,
    unreliable_connections_have_no_calls,
    among_messages_in_order,
);

const LENGTHS: [usize; 6] = [0, 1, 8, 5_000, 60_000, 700_000];

type Outcome = Result<Vec<u8>, CallFailure>;

/// Runs both sides until a call has ended. The server answers by `serve`.
fn outcome(pair: &mut Pair, context: u64, mut serve: impl FnMut(&mut Side, Request)) -> Outcome {
    pair.run(|side, at, event| match (at, event) {
        (At::Server, Event::Request(request)) => {
            serve(side, request);
            None
        }
        (At::Client, Event::Reply { context: got, result, .. }) => {
            assert_eq!(got, context);
            Some(result.map(|message| message.to_vec()))
        }
        (at, event) => panic!("{at:?}: {event:?}"),
    })
}

fn call(pair: &mut Pair, request: &[u8], context: u64) -> cci::messages::CallId {
    pair.client.messenger.call(pair.client.peer, request, None, context).unwrap()
}

fn requests_and_replies_of_all_lengths(device: &str) {
    for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered] {
        let mut pair = Pair::new(device, attribute);
        for (number, request_len) in LENGTHS.into_iter().enumerate() {
            for reply_len in LENGTHS {
                let (request, reply) = (contents(request_len, number), contents(reply_len, 7));
                call(&mut pair, &request, 5);
                let got = outcome(&mut pair, 5, |side, asked| {
                    assert!(asked[..] == request[..], "{device}: {request_len}");
                    side.messenger.reply(asked, &reply).unwrap();
                });
                assert!(got.unwrap() == reply, "{device}: {reply_len}");
            }
        }
        pair.idle();
        assert_eq!(pair.client.messenger.counters().late, 0);
    }
}

fn errors_of_the_server(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    for len in [0, 8, 100_000] {
        call(&mut pair, b"what?", 1);
        let failure = outcome(&mut pair, 1, |side, request| {
            side.messenger.reply_error(request, 404, &contents(len, 3)).unwrap();
        });
        match failure {
            Err(CallFailure::Error { code: 404, message }) => assert!(message[..] == contents(len, 3)),
            other => panic!("{other:?}"),
        }
    }
}

fn answers_out_of_order(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableUnordered);
    const COUNT: usize = 40;
    for at in 0..COUNT {
        call(&mut pair, &[at as u8], at as u64);
    }
    let (mut requests, mut ended) = (Vec::new(), [false; COUNT]);
    pair.run_until(|side, at, event| {
        match (at, event) {
            (At::Server, Event::Request(request)) => {
                requests.push(request);
                if requests.len() == COUNT {
                    // Every other one first, from behind.
                    let (even, odd): (Vec<_>, Vec<_>) =
                        requests.drain(..).partition(|request| request[0] % 2 == 0);
                    for request in even.into_iter().rev().chain(odd) {
                        let reply = [request[0], 1];
                        side.messenger.reply(request, &reply).unwrap();
                    }
                }
            }
            (At::Client, Event::Reply { context, result, .. }) => {
                assert_eq!(result.unwrap()[..], [context as u8, 1]);
                assert!(!std::mem::replace(&mut ended[context as usize], true));
            }
            (at, event) => panic!("{at:?}: {event:?}"),
        }
        ended == [true; COUNT]
    });
}

/// The server's messenger sleeps on its descriptor until a thread has answered.
fn answers_from_other_threads(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    for len in [8, 200_000] {
        call(&mut pair, b"think", 3);
        let mut thread = None;
        let request = pair.run(|_, at, event| match (at, event) {
            (At::Server, Event::Request(request)) => Some(request),
            (at, event) => panic!("{at:?}: {event:?}"),
        });
        thread.replace(std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            request.reply(contents(len, 9));
        }));
        let start = Instant::now();
        let reply = loop {
            assert!(start.elapsed() < PATIENCE);
            if let Some(event) = pair.server.messenger.wait(Some(Duration::from_millis(1))).unwrap() {
                panic!("{event:?}");
            }
            match pair.client.messenger.next_event() {
                Some(Event::Reply { context: 3, result, .. }) => break result.unwrap(),
                Some(event) => panic!("{event:?}"),
                None => {}
            }
        };
        assert!(reply[..] == contents(len, 9));
        thread.unwrap().join().unwrap();
    }
}

fn a_dropped_request_is_known(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    call(&mut pair, b"drop me", 1);
    assert!(matches!(outcome(&mut pair, 1, |_, request| drop(request)), Err(CallFailure::Dropped)));
}

fn deadlines(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    for (timeout, len) in
        [(Duration::ZERO, 8), (Duration::from_millis(30), 8), (Duration::from_millis(30), 90_000)]
    {
        let start = Instant::now();
        pair.client.messenger.call(pair.client.peer, &contents(len, 1), Some(timeout), 9).unwrap();
        let mut kept = Vec::new();
        let ended = outcome(&mut pair, 9, |_, request| kept.push(request));
        assert!(matches!(ended, Err(CallFailure::TimedOut)), "{ended:?}");
        assert!(start.elapsed() >= timeout);
        // The server may see it still, and must not be stuck with it.
        let mut cancelled = None;
        for _ in 0..10_000 {
            match pair.server.messenger.next_event() {
                Some(Event::Request(request)) => kept.push(request),
                Some(Event::RequestCancelled(id)) => assert!(cancelled.replace(id).is_none()),
                Some(event) => panic!("{event:?}"),
                None => {}
            }
            assert!(pair.client.messenger.next_event().is_none());
        }
        assert_eq!(cancelled, kept.first().map(Request::id), "{device}: the server knows");
        for request in kept {
            assert!(matches!(pair.server.messenger.reply(request, b"late"), Err(ReplyError::Ended)));
        }
    }
    // One that sleeps wakes up at the deadline.
    pair.client.messenger.call(pair.client.peer, b"", Some(Duration::from_millis(20)), 10).unwrap();
    let event = pair.client.messenger.wait(Some(PATIENCE)).unwrap();
    assert!(
        matches!(event, Some(Event::Reply { context: 10, result: Err(CallFailure::TimedOut), .. })),
        "{event:?}"
    );
}

fn given_up(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableUnordered);
    for len in [8, 90_000] {
        let id = pair.client.messenger.call(pair.client.peer, &contents(len, 1), None, 4).unwrap();
        assert!(pair.client.messenger.cancel_call(id) && !pair.client.messenger.cancel_call(id));
        let ended = pair.client.messenger.next_event();
        assert!(matches!(ended, Some(Event::Reply { context: 4, result: Err(CallFailure::Cancelled), .. })));
        // Whatever the server has got of it, it gets rid of it.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            match pair.server.messenger.next_event() {
                Some(Event::Request(request)) => drop(pair.server.messenger.reply(request, b"late")),
                Some(Event::RequestCancelled(_)) | None => {}
                Some(event) => panic!("{event:?}"),
            }
            assert!(pair.client.messenger.next_event().is_none());
        }
    }
    // One that is given up while its reply is being fetched.
    let id = call(&mut pair, b"long", 6);
    let reply = contents(900_000, 2);
    let mut sent = false;
    let start = Instant::now();
    while !sent {
        assert!(start.elapsed() < PATIENCE);
        assert!(pair.client.messenger.next_event().is_none());
        if let Some(Event::Request(request)) = pair.server.messenger.next_event() {
            pair.server.messenger.reply(request, &reply).unwrap();
            sent = true;
        }
    }
    let _ = pair.client.messenger.next_event().is_none_or(|event| panic!("{event:?}"));
    if pair.client.messenger.cancel_call(id) {
        assert!(matches!(outcome(&mut pair, 6, |_, _| ()), Err(CallFailure::Cancelled)));
    }
    pair.idle();
    // All of that leaves nothing behind.
    call(&mut pair, b"again", 7);
    assert_eq!(
        outcome(&mut pair, 7, |side, request| side.messenger.reply(request, b"yes").unwrap()).unwrap(),
        b"yes"
    );
    let counters = pair.client.messenger.counters();
    assert_eq!((counters.lent_bytes, counters.staged_bytes, counters.faults), (0, 0, 0));
    assert_eq!(pair.server.messenger.counters().staged_bytes, 0);
}

fn as_many_as_may_be_unanswered(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    let (mut kept, mut asked) = (Vec::new(), 0);
    let start = Instant::now();
    // The endpoint may have less space for the moment than there are calls.
    while asked < CALLS_MAX || kept.len() < CALLS_MAX as usize {
        assert!(start.elapsed() < PATIENCE);
        if asked < CALLS_MAX && pair.client.messenger.call(pair.client.peer, b"?", None, asked.into()).is_ok()
        {
            asked += 1;
        }
        assert!(pair.client.messenger.next_event().is_none());
        if let Some(Event::Request(request)) = pair.server.messenger.next_event() {
            kept.push(request);
        }
    }
    let refused = pair.client.messenger.call(pair.client.peer, b"?", None, 0);
    assert!(matches!(refused, Err(SendError::WouldBlock)), "{refused:?}");
    for request in kept {
        pair.server.messenger.reply(request, b"!").unwrap();
    }
    let mut ended = 0;
    pair.run_until(|_, _, event| {
        assert!(matches!(event, Event::Reply { result: Ok(_), .. }));
        ended += 1;
        ended == CALLS_MAX
    });
    call(&mut pair, b"?", 1);
}

/// The server leaves, then the client.
fn ends_of_connections(device: &str) {
    for leaver in [At::Server, At::Client] {
        let mut pair = Pair::new(device, Attribute::ReliableOrdered);
        for context in 0..5 {
            call(&mut pair, &contents([8, 50_000][context % 2], 1), context as u64);
        }
        let mut requests = Vec::new();
        pair.run_until(|_, _, event| match event {
            Event::Request(request) => {
                requests.push(request);
                requests.len() == 5
            }
            event => panic!("{event:?}"),
        });
        match leaver {
            At::Server => pair.server.messenger.disconnect(pair.server.peer),
            At::Client => pair.client.messenger.disconnect(pair.client.peer),
        }
        let (mut ended, mut is_over) = (0, false);
        pair.run_until(|_, at, event| {
            match (at, event) {
                (At::Client, Event::Reply { result: Err(CallFailure::Failed(Status::Disconnected)), .. }) => {
                    ended += 1
                }
                (_, Event::Disconnected { .. }) => is_over = true,
                (at, event) => panic!("{at:?}: {event:?}"),
            }
            ended == 5 && is_over
        });
        for request in requests {
            assert!(matches!(pair.server.messenger.reply(request, b"?"), Err(ReplyError::Ended)));
        }
        pair.idle();
    }
}

fn beyond_the_limits(device: &str) {
    let limits = Limits::default().whole_bytes_max(50_000);
    let mut pair = Pair::with(device, Attribute::ReliableOrdered, limits);
    call(&mut pair, &contents(50_001, 1), 1);
    let ended = outcome(&mut pair, 1, |_, request| panic!("{request:?}"));
    assert!(matches!(ended, Err(CallFailure::NotSent(_))), "{ended:?}");
    call(&mut pair, &contents(50_000, 1), 2);
    let reply = contents(50_000, 4);
    assert!(
        outcome(&mut pair, 2, |side, request| side.messenger.reply(request, &reply).unwrap()).unwrap()
            == reply
    );
    // A reply that would take more than half of what the client lends. Here the server is the client.
    let limits = Limits::default().whole_bytes_max(10_000).lent_bytes_max(40_000);
    let mut pair = Pair::with(device, Attribute::ReliableOrdered, limits);
    pair.server.messenger.call(pair.server.peer, b"more", None, 3).unwrap();
    let ended = pair.run(|side, at, event| match (at, event) {
        (At::Client, Event::Request(request)) => {
            side.messenger.reply(request, &contents(20_001, 1)).unwrap();
            None
        }
        (At::Server, Event::Reply { context: 3, result, .. }) => Some(result),
        (at, event) => panic!("{at:?}: {event:?}"),
    });
    assert!(
        matches!(ended, Err(CallFailure::ReplyTooLong { len_bytes: 20_001, max_bytes: 20_000 })),
        "{ended:?}"
    );
    pair.idle();
}

fn unreliable_connections_have_no_calls(device: &str) {
    let mut pair = Pair::new(device, Attribute::Unreliable);
    let refused = pair.client.messenger.call(pair.client.peer, b"?", None, 0);
    assert!(matches!(refused, Err(SendError::NotReliable)), "{refused:?}");
}

/// On a reliable ordered connection requests and replies have their places among the messages.
fn among_messages_in_order(device: &str) {
    let mut pair = Pair::new(device, Attribute::ReliableOrdered);
    let (to, flags) = (pair.client.peer, SendFlags::SILENT);
    for round in 0..4_u8 {
        pair.client.messenger.send(to, &contents(300_000, round.into()), 0, flags).unwrap();
        pair.client.messenger.call(to, &[round], None, round.into()).unwrap();
        pair.client.messenger.send(to, &[round, 1], 0, flags).unwrap();
        pair.client.messenger.call(to, &contents(20_000, round.into()), None, round.into()).unwrap();
    }
    let (mut came, mut replies) = (0, 0);
    pair.run_until(|side, at, event| {
        match (at, event) {
            (At::Server, Event::Message(message)) => {
                let expected = [contents(300_000, came / 4), vec![(came / 4) as u8, 1]];
                assert!(came % 2 == 0 && message[..] == expected[came % 4 / 2][..], "{device}: {came}");
                came += 1;
            }
            (At::Server, Event::Request(request)) => {
                let expected = [vec![(came / 4) as u8], contents(20_000, came / 4)];
                assert!(came % 2 == 1 && request[..] == expected[came % 4 / 2][..], "{device}: {came}");
                came += 1;
                side.messenger.reply(request, b"").unwrap();
            }
            (At::Client, Event::Reply { context, result, .. }) => {
                assert_eq!((context, result.unwrap().len()), (replies / 2, 0));
                replies += 1;
            }
            (at, event) => panic!("{at:?}: {event:?}"),
        }
        replies == 8
    });
}
