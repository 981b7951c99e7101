//! Request and reply.

use super::RO;
use super::any_length::lengths;
use crate::conformance::cases::RELIABLE;
use crate::conformance::messenger::{CallEnd, Limits, MessengerDriver, MessengerPair, MessengerPort};
use crate::conformance::{Environment, Refusal, pattern};
use cci::limits::CALLS_MAX;
use cci::messages::SendFailure;
use cci::{Attribute, Status};
use std::time::Duration;

/// Requests and replies of every length.
pub fn requests_and_replies_of_every_length<D: MessengerDriver>(env: &Environment<D>) {
    let lengths = lengths(env);
    for attribute in RELIABLE {
        let mut pair = MessengerPair::<D>::plain(env, attribute);
        let long = [(5, 3 << 20), (1 << 20, 0)];
        let pairs = lengths.iter().zip(lengths.iter().rev()).map(|(asked, replied)| (*asked, *replied));
        for (at, (asked, replied)) in pairs.chain(long).enumerate() {
            let context = at as u64;
            pair.client.call(pair.to_server, &pattern(1, asked), context);
            pair.until("the request", |_, server| !server.requests.is_empty());
            assert!(pair.server.requests[0].2.as_ref() == pattern(1, asked), "{asked} bytes");
            pair.server.answer_next(None, &pattern(2, replied));
            pair.until("the reply", |client, _| !client.replies.is_empty());
            assert!(pair.client.end_of_call(context) == Ok(pattern(2, replied)), "{replied} bytes");
        }
        let parts: [&[u8]; 3] = [b"gathered ", b"", b"from three"];
        pair.client.port.call(pair.to_server, &parts, None, 1).expect("there is room");
        pair.until("the request", |_, server| !server.requests.is_empty());
        assert_eq!(pair.server.requests[0].2.as_ref(), b"gathered from three");
        pair.server.answer_next(None, b"");
        pair.until("the reply", |client, _| !client.replies.is_empty());
        assert_eq!(pair.client.end_of_call(1), Ok(Vec::new()));
        pair.settle();
        assert_eq!((pair.client.sent.len(), pair.server.sent.len()), (0, 0), "no other ends");
        pair.check_home();
    }
}

/// As many as may be unanswered, then answered in another order: by a reply, by an error of the server's own, or dropped. Each ends once.
pub fn answers_in_any_order<D: MessengerDriver>(env: &Environment<D>) {
    let mut pair = MessengerPair::<D>::plain(env, RO);
    for context in 0..u64::from(CALLS_MAX) {
        pair.client.call(pair.to_server, &pattern(context, 30), context);
        pair.until("the request", |_, server| server.requests.len() as u64 == context + 1);
    }
    assert_eq!(pair.client.port.call(pair.to_server, &[b"more"], None, 0), Err(Refusal::WouldBlock));
    let mut at = 0;
    while !pair.server.requests.is_empty() {
        at = (at * 7 + 5) % pair.server.requests.len();
        let (_, _, mut request) = pair.server.requests.remove(at).expect("in range");
        let number = crate::conformance::number_of(request.as_ref());
        let answered = match number % 4 {
            0 => pair.server.port.answer(&mut request, None, &pattern(number, 50)),
            1 => pair.server.port.answer(&mut request, Some(number as u32), b"no such key"),
            2 => pair.server.port.answer(&mut request, Some(number as u32), &pattern(number, 30_000)),
            _ => Ok(()),
        };
        // There is room for a few long ones at a time.
        match answered {
            Err(Refusal::WouldBlock) => pair.server.requests.push_back((pair.to_client, 0, request)),
            other => other.expect("somebody waits"),
        }
        pair.client.poll();
        pair.server.poll();
    }
    pair.until("all ends", |client, _| client.replies.len() == CALLS_MAX as usize);
    pair.settle();
    let mut ends = std::mem::take(&mut pair.client.replies);
    ends.sort_by_key(|(context, _)| *context);
    for (number, (context, result)) in ends.into_iter().enumerate() {
        let (number, code) = (number as u64, number as u32);
        assert_eq!(context, number, "each once");
        let result = result.map(|bytes| bytes.as_ref().to_vec());
        let expected = match number % 4 {
            0 => Ok(pattern(number, 50)),
            1 => Err(CallEnd::Error { code, bytes: b"no such key".to_vec() }),
            2 => Err(CallEnd::Error { code, bytes: pattern(number, 30_000) }),
            _ => Err(CallEnd::Dropped),
        };
        assert!(result == expected, "call {number}");
    }
    pair.check_home();
}

/// Threads of the server's program answer while its messenger goes on.
pub fn answers_from_other_threads<D: MessengerDriver>(env: &Environment<D>) {
    let mut pair = MessengerPair::<D>::plain(env, RO);
    for context in 0..12 {
        pair.client.call(pair.to_server, &pattern(context, 30), context);
    }
    pair.until("all requests", |_, server| server.requests.len() == 12);
    let mut threads = Vec::new();
    for (number, (_, _, request)) in pair.server.requests.drain(..).enumerate() {
        let code = (number % 3 == 2).then_some(number as u32);
        let len = if number % 2 == 0 { 20 } else { 40_000 };
        threads.push(pair.server.port.answer_in_a_thread(request, code, pattern(number as u64, len)));
    }
    pair.until("all replies", |client, _| client.replies.len() == 12);
    for thread in threads {
        thread.join().expect("it ends without a panic");
    }
    let mut ends = std::mem::take(&mut pair.client.replies);
    ends.sort_by_key(|(context, _)| *context);
    for (number, (context, result)) in ends.into_iter().enumerate() {
        assert_eq!(context, number as u64, "each once");
        let bytes = pattern(context, if number % 2 == 0 { 20 } else { 40_000 });
        let expected =
            if number % 3 == 2 { Err(CallEnd::Error { code: number as u32, bytes }) } else { Ok(bytes) };
        assert!(result.map(|bytes| bytes.as_ref().to_vec()) == expected, "call {number}");
    }
    pair.check_home();
}

/// A call ends at its deadline or when it is given up; the server's program gets an event, and nobody waits for its answer any more.
pub fn deadlines_and_giving_up<D: MessengerDriver>(env: &Environment<D>) {
    let mut pair = MessengerPair::<D>::plain(env, RO);
    let soon = Some(Duration::from_millis(5));
    pair.client.port.call(pair.to_server, &[b"late"], soon, 1).expect("there is room");
    pair.until("its end, and the server's notice", |client, server| {
        !client.replies.is_empty() && !server.requests.is_empty() && !server.cancelled.is_empty()
    });
    assert_eq!(pair.client.end_of_call(1), Err(CallEnd::TimedOut));
    let (connection, id, mut request) = pair.server.requests.pop_front().expect("just seen");
    assert_eq!(pair.server.cancelled, [(connection, id)]);
    let answered = pair.server.port.answer(&mut request, None, b"too late");
    assert_eq!(answered, Err(Refusal::Closed), "nobody waits");
    drop(request);
    // Given up before the server has seen it, and after.
    for waits in [false, true] {
        let call = pair.client.call(pair.to_server, b"never mind", 2);
        if waits {
            pair.until("the request", |_, server| !server.requests.is_empty());
        }
        assert!(pair.client.port.cancel_call(call));
        assert!(!pair.client.port.cancel_call(call), "it has ended");
        pair.until("its end", |client, _| !client.replies.is_empty());
        assert_eq!(pair.client.end_of_call(2), Err(CallEnd::Cancelled));
        pair.settle();
        pair.server.requests.clear();
    }
    // A deadline in time changes nothing.
    let patient = Some(Duration::from_secs(100));
    pair.client.port.call(pair.to_server, &[b"in time"], patient, 3).expect("there is room");
    pair.until("the request", |_, server| !server.requests.is_empty());
    pair.server.answer_next(None, b"here");
    pair.until("the reply", |client, _| !client.replies.is_empty());
    assert_eq!(pair.client.end_of_call(3), Ok(b"here".to_vec()));
    // One that has passed already ends at once, or is refused where it can be said that it is no time.
    pair.client.port.call(pair.to_server, &[b"now"], Some(Duration::ZERO), 4).expect("there is room");
    pair.until("its end", |client, _| !client.replies.is_empty());
    assert_eq!(pair.client.end_of_call(4), Err(CallEnd::TimedOut));
    if let Some(called) = pair.client.port.call_until_the_past(pair.to_server) {
        assert_eq!(called, Err(Refusal::BadArgument));
    }
    pair.settle();
    assert!(pair.client.replies.is_empty(), "each has ended once");
    pair.server.requests.clear();
    pair.check_home();
}

/// A request is answered once, and only by the messenger that it came to.
pub fn answered_once_and_by_nobody_else<D: MessengerDriver>(env: &Environment<D>) {
    let mut pair = MessengerPair::<D>::plain(env, RO);
    pair.client.call(pair.to_server, b"whose?", 1);
    pair.until("the request", |_, server| !server.requests.is_empty());
    let (_, _, mut request) = pair.server.requests.pop_front().expect("just seen");
    let is_refused = |answered: Result<(), Refusal>| {
        assert!(matches!(answered, Err(Refusal::Closed | Refusal::BadArgument)), "{answered:?}");
    };
    is_refused(pair.client.port.answer(&mut request, None, b"a stranger's"));
    pair.server.port.answer(&mut request, None, b"mine").expect("somebody waits");
    is_refused(pair.server.port.answer(&mut request, None, b"mine again"));
    is_refused(pair.server.port.answer(&mut request, Some(1), b"an error"));
    drop(request);
    pair.until("the reply", |client, _| !client.replies.is_empty());
    pair.settle();
    assert_eq!(pair.client.end_of_call(1), Ok(b"mine".to_vec()));
    assert_eq!(pair.client.port.counts().faults + pair.server.port.counts().faults, 0);
    pair.check_home();
}

/// Requests and replies that are longer than the other side takes end the call with the reason; unreliable connections have no calls.
pub fn calls_beyond_the_limits<D: MessengerDriver>(env: &Environment<D>) {
    let limits = Limits::default().whole_bytes_max(20_000).lent_bytes_max(100_000);
    let mut pair = MessengerPair::<D>::open(env, RO, limits);
    pair.client.call(pair.to_server, &pattern(1, 20_001), 1);
    pair.until("its end", |client, _| !client.replies.is_empty());
    let too_long = CallEnd::NotSent(SendFailure::TooLong { max_bytes: 20_000 });
    assert_eq!(pair.client.end_of_call(1), Err(too_long));
    assert!(pair.server.requests.is_empty(), "the server has not seen it");
    pair.client.call(pair.to_server, &pattern(2, 20_000), 2);
    pair.until("the request", |_, server| !server.requests.is_empty());
    pair.server.answer_next(None, &pattern(3, 50_001));
    pair.until("its end", |client, _| !client.replies.is_empty());
    assert_eq!(pair.client.end_of_call(2), Err(CallEnd::ReplyTooLong { len_bytes: 50_001 }));
    pair.check_home();
    drop(pair);
    let mut unreliable = MessengerPair::<D>::plain(env, Attribute::Unreliable);
    let called = unreliable.client.port.call(unreliable.to_server, &[b"?"], None, 1);
    assert_eq!(called, Err(Refusal::BadArgument));
}

/// A server that closes the connection with requests in its program ends each call once. What it answers then goes nowhere.
pub fn calls_end_with_the_connection<D: MessengerDriver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let mut pair = MessengerPair::<D>::plain(env, attribute);
        for context in 0..5 {
            pair.client.call(pair.to_server, &pattern(context, 30), context);
        }
        pair.until("all requests", |_, server| server.requests.len() == 5);
        pair.server.answer_next(None, b"in time");
        pair.until("its reply", |client, _| client.replies.len() == 1);
        pair.server.port.disconnect(pair.to_client);
        let (_, _, mut request) = pair.server.requests.pop_front().expect("four are left");
        assert_eq!(pair.server.port.answer(&mut request, None, b"too late"), Err(Refusal::Closed));
        pair.until("the end of the connection", |client, _| !client.disconnected.is_empty());
        pair.settle();
        assert_eq!(pair.client.replies.len(), 5, "each ends once");
        for (at, (_, result)) in pair.client.replies.drain(..).enumerate() {
            match result.map(|bytes| bytes.as_ref().to_vec()) {
                Ok(bytes) => assert_eq!((at, bytes), (0, b"in time".to_vec())),
                Err(end) => assert_eq!(end, CallEnd::Failed(Status::Disconnected)),
            }
        }
        assert_eq!(pair.client.port.call(pair.to_server, &[b"?"], None, 1), Err(Refusal::Closed));
    }
}
