//! Flags and full queues.

use super::{RELIABLE, RO};
use crate::conformance::{
    Driver, Environment, Flags, Pair, Port, Refusal, Setup, conformance_timeout, number_of, part, pattern,
    poll_in_a_thread,
};
use cci::Status;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Silent sends arrive and raise no event; loud ones among them do, in order.
pub fn silent_sends_raise_no_event<D: Driver>(env: &Environment<D>) {
    const SENDS: u64 = 300;
    for attribute in RELIABLE {
        let setup = Setup { recv_buffers: 512, ..Setup::default() };
        let mut pair = Pair::open(env, attribute, &setup);
        let mut received = Vec::new();
        for number in 0..SENDS {
            let flags = Flags { silent: number % 10 != 0, no_copy: false };
            while let Err(refusal) =
                pair.client.port.send(pair.to_server, &pattern(number, 40), number, flags)
            {
                assert_eq!(refusal, Refusal::WouldBlock);
                pair.client.poll();
                pair.server.poll();
            }
            pair.server.poll();
            received.extend(pair.server.inbox.drain(..).map(|(_, message)| number_of(message.as_ref())));
        }
        let missing = SENDS as usize - received.len();
        pair.until("all messages", |client, server| {
            server.inbox.len() == missing && client.sent.len() >= SENDS as usize / 10
        });
        received.extend(pair.server.inbox.drain(..).map(|(_, message)| number_of(message.as_ref())));
        received.sort_unstable();
        assert!(received == (0..SENDS).collect::<Vec<_>>(), "each arrives once");
        pair.client.settle();
        let mut contexts = pair.client.contexts();
        if attribute != RO {
            contexts.sort_unstable();
        }
        assert_eq!(contexts, (0..SENDS).step_by(10).collect::<Vec<_>>(), "only the loud ones complete");
        pair.part();
    }
}

/// A blocking send returns its status, and raises no event.
pub fn blocking_send_returns_the_status<D: Driver>(env: &Environment<D>) {
    const SENDS: u64 = 200;
    for attribute in super::ATTRIBUTES {
        let Pair { mut client, server, to_server, .. } = Pair::<D>::plain(env, attribute);
        let (stop, thread) = poll_in_a_thread(server);
        for number in 0..SENDS {
            let status = client.port.send_blocking(to_server, &pattern(number, 64));
            assert_eq!(status, Ok(Status::Success), "{attribute:?} send {number}");
        }
        let longest = client.port.max_send_size(to_server);
        assert_eq!(client.port.send_blocking(to_server, &vec![0; longest + 1]), Err(Refusal::TooLong));
        stop.store(true, Ordering::Relaxed);
        let mut server = thread.join().expect("the server's thread");
        for _ in 0..1000 {
            client.poll();
            server.poll();
        }
        assert!(client.sent.is_empty(), "a blocking send raises no event");
        let numbers: Vec<u64> = server.inbox.iter().map(|(_, message)| number_of(message.as_ref())).collect();
        if attribute == RO {
            assert_eq!(numbers, (0..SENDS).collect::<Vec<_>>());
        } else if attribute.is_reliable() {
            assert_eq!(numbers.len(), SENDS as usize);
        }
        part([client, server]);
    }
}

/// A message that need not be copied arrives as well; its buffer is untouched until completion.
pub fn no_copy_sends<D: Driver>(env: &Environment<D>) {
    let mut pair = Pair::plain(env, RO);
    let longest = pair.client.port.max_send_size(pair.to_server);
    let messages: Vec<Vec<u8>> =
        (0..100).map(|number| pattern(number, 8 + number as usize * longest / 120)).collect();
    let flags = Flags { silent: false, no_copy: true };
    for (context, message) in (0..).zip(&messages) {
        while let Err(refusal) = pair.client.port.send(pair.to_server, message, context, flags) {
            assert_eq!(refusal, Refusal::WouldBlock);
            pair.client.poll();
            pair.server.poll();
        }
    }
    pair.until("all of it", |client, server| client.sent.len() == 100 && server.inbox.len() == 100);
    assert_eq!(pair.client.contexts(), (0..100).collect::<Vec<_>>());
    for (number, (_, message)) in (0..).zip(pair.server.inbox.drain(..)) {
        assert_eq!(number_of(message.as_ref()), number);
    }
}

/// With every send buffer in use a send is refused, nothing is lost, and there is room again later.
pub fn full_queue_loses_nothing<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let setup = Setup { send_buffers: 8, recv_buffers: 1024, ..Setup::default() };
        let mut pair = Pair::open(env, attribute, &setup);
        let mut sent = 0;
        for round in 0..50 {
            let taken_before = sent;
            loop {
                match pair.client.port.send(pair.to_server, &pattern(sent, 700), sent, Flags::default()) {
                    Ok(()) => sent += 1,
                    Err(refusal) => {
                        assert_eq!(refusal, Refusal::WouldBlock);
                        break;
                    }
                }
                assert!(sent - taken_before <= 8, "no more than send_buffers at once without an event taken");
            }
            assert!(sent > taken_before, "round {round}: room again after completions");
            pair.until("completions", |client, _| client.sent.len() == sent as usize);
        }
        pair.until("messages", |_, server| server.inbox.len() == sent as usize);
        let mut numbers: Vec<u64> =
            pair.server.inbox.iter().map(|(_, message)| number_of(message.as_ref())).collect();
        if attribute != RO {
            numbers.sort_unstable();
        }
        assert!(numbers == (0..sent).collect::<Vec<_>>(), "what was taken arrives, each once");
        assert!(pair.client.statuses().iter().all(|status| *status == Status::Success));
        pair.part();
    }
}

/// As many sends are taken as there are send buffers, of whatever length and whether the peer looks or not. All of them arrive in
/// order, once it does, and complete in order.
pub fn as_many_sends_are_taken_as_there_are_buffers<D: Driver>(env: &Environment<D>) {
    const BUFFERS: u32 = 4096;
    for len in [64, 1024, 4096, 8192] {
        let setup = Setup { send_buffers: BUFFERS, ..Setup::default() };
        let mut pair = Pair::open(env, RO, &setup);
        let len = len.min(pair.client.port.max_send_size(pair.to_server));
        let taken = fill(&mut pair, len);
        println!("{}: {taken} of {BUFFERS} sends of {len} bytes are taken", env.device);
        assert_eq!(taken, u64::from(BUFFERS), "sends of {len} bytes while the peer does not poll");
        let arrived = drain(&mut pair, taken as usize);
        assert!(arrived.into_iter().eq(0..taken), "each arrives once, in order");
        assert!(pair.client.contexts().into_iter().eq(0..taken), "each completes once, in order");
        assert!(pair.client.statuses().iter().all(|status| *status == Status::Success));
        assert_eq!(fill(&mut pair, len), u64::from(BUFFERS), "there is room for as many again");
        pair.part();
    }
}

/// Sends numbered messages of `len` bytes until one finds no room, with nobody polled. Returns how many were taken.
fn fill<D: Driver>(pair: &mut Pair<D>, len: usize) -> u64 {
    let mut message = vec![7; len];
    for number in 0_u64.. {
        message[..8].copy_from_slice(&number.to_le_bytes());
        match pair.client.port.send(pair.to_server, &message, number, Flags::default()) {
            Ok(()) => {}
            Err(Refusal::WouldBlock) => return number,
            Err(other) => panic!("send {number} of {len} bytes: {other:?}"),
        }
    }
    unreachable!("there is an end of room")
}

/// Polls both ends until `count` sends have completed and as many messages have come. Returns the messages' numbers.
fn drain<D: Driver>(pair: &mut Pair<D>, count: usize) -> Vec<u64> {
    let patience = Instant::now() + conformance_timeout();
    let mut numbers = Vec::new();
    while numbers.len() < count || pair.client.sent.len() < count {
        assert!(
            Instant::now() < patience,
            "{} of {count} came, {} completed: {}",
            numbers.len(),
            pair.client.sent.len(),
            pair.client.port.explain(pair.to_server)
        );
        pair.client.poll();
        pair.server.poll();
        let came = pair.server.inbox.drain(..).map(|(_, message)| message);
        numbers.extend(
            came.map(|message| *message.as_ref().first_chunk::<8>().expect("a number"))
                .map(u64::from_le_bytes),
        );
    }
    numbers
}

/// A connection that is closed while sends wait for room delivers them all first, to a peer that takes them.
pub fn sends_that_wait_are_delivered_before_a_disconnect<D: Driver>(env: &Environment<D>) {
    let setup = Setup { send_buffers: 1024, recv_buffers: 2048, ..Setup::default() };
    let mut pair = Pair::open(env, RO, &setup);
    let len = 4096.min(pair.client.port.max_send_size(pair.to_server));
    let taken = fill(&mut pair, len);
    pair.client.port.disconnect(pair.to_server);
    let refused = pair.client.port.send(pair.to_server, b"too late", 0, Flags::default());
    if D::STALE_HANDLES_ARE_REFUSED {
        assert_eq!(refused, Err(Refusal::Closed));
    }
    let arrived = drain(&mut pair, taken as usize);
    assert!(arrived.into_iter().eq(0..taken), "all that was taken arrives, in order");
    assert!(pair.client.contexts().into_iter().eq(0..taken));
    assert!(pair.client.statuses().iter().all(|status| *status == Status::Success));
}

/// A peer that closes while sends to it wait for room ends each of them, once and in order.
pub fn sends_that_wait_end_with_the_peer<D: Driver>(env: &Environment<D>) {
    let setup = Setup { send_buffers: 1024, send_timeout: Duration::from_secs(2), ..Setup::default() };
    let mut pair = Pair::open(env, RO, &setup);
    let len = 4096.min(pair.client.port.max_send_size(pair.to_server));
    let taken = fill(&mut pair, len);
    assert_eq!(taken, 1024);
    let Pair { mut client, server, to_server, .. } = pair;
    let gone = std::thread::spawn(move || drop(server));
    let patience = Instant::now() + conformance_timeout();
    while client.sent.len() < taken as usize {
        assert!(Instant::now() < patience, "{} of {taken} have ended", client.sent.len());
        client.poll();
    }
    client.settle();
    assert!(client.contexts().into_iter().eq(0..taken), "each ends once, in order");
    let statuses = client.statuses();
    let delivered = statuses.iter().take_while(|status| **status == Status::Success).count();
    let rest = &statuses[delivered..];
    assert!(
        rest.iter().all(|status| matches!(status, Status::Disconnected | Status::TimedOut)),
        "{delivered} of {taken} were taken, the others ended with the peer: {:?}",
        rest.iter().find(|status| **status == Status::Success)
    );
    assert!(!rest.is_empty(), "the peer took nothing while it was there");
    assert_eq!(client.port.send(to_server, b"to nobody", 0, Flags::default()), Err(Refusal::Closed));
    gone.join().expect("the peer ends");
    part([client]);
}
