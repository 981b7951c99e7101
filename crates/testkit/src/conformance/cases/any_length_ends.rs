//! Long messages that do not arrive, by either side's decision or because a side is gone.

use super::RO;
use crate::conformance::cases::RELIABLE;
use crate::conformance::messenger::{
    Limits, MessengerDriver, MessengerPair, MessengerPort, MessengerSide, Parts, until,
};
use crate::conformance::{Capability, Environment, Refusal, Setup, Skipped, pattern};
use cci::Status;
use cci::messages::{ReceiveFailure, SendFailure};

const LONG: usize = 2 << 20;

/// One connection, on which the client has offered a long message.
fn offered<D: MessengerDriver>(pair: &mut MessengerPair<D>) -> (u64, u64) {
    let send = pair.client.send(pair.to_server, &pattern(1, LONG), 1);
    pair.until("an offer", |_, server| !server.offers.is_empty());
    let (_, offer, _) = pair.server.offers.pop_front().expect("just seen");
    (send, offer)
}

/// The receiver refuses an offer, or stops receiving; the sender learns the code, and nothing more comes at the receiver.
pub fn refused_with_a_code<D: MessengerDriver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let mut pair = MessengerPair::<D>::plain(env, attribute);
        let (_, offer) = offered(&mut pair);
        assert!(pair.server.port.refuse(offer, 413));
        assert!(!pair.server.port.refuse(offer, 413), "it has ended");
        pair.until("the sender's end", |client, _| !client.sent.is_empty());
        assert_eq!(pair.client.end_of_send(1), Err(SendFailure::Refused(413)));
        // While it is being received it may be there before anybody can stop it.
        let (_, offer) = offered(&mut pair);
        let into = pair.server.port.memory(&vec![0; LONG]);
        pair.server.port.receive_into(offer, &into, 5).expect("it is long enough");
        let is_stopped = pair.server.port.refuse(offer, 414);
        pair.until("both ends", |client, server| {
            !client.sent.is_empty() && (is_stopped || !server.received.is_empty())
        });
        pair.settle();
        let expected = if is_stopped { Err(SendFailure::Refused(414)) } else { Ok(()) };
        assert_eq!(pair.client.end_of_send(1), expected);
        assert_eq!(pair.server.received.len(), usize::from(!is_stopped));
        pair.check_home();
    }
}

/// The sender takes an offer back, before the receiver has decided and while it receives: one end each.
pub fn cancelled_by_the_sender<D: MessengerDriver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let mut pair = MessengerPair::<D>::plain(env, attribute);
        let (send, offer) = offered(&mut pair);
        assert!(pair.client.port.cancel(send));
        pair.until("both ends", |client, server| !client.sent.is_empty() && !server.received.is_empty());
        assert_eq!(pair.client.end_of_send(1), Err(SendFailure::Cancelled));
        assert_eq!(pair.server.received, [(offer, 0, Err(ReceiveFailure::Cancelled))]);
        assert_eq!(pair.server.port.receive(offer), Err(Refusal::BadArgument), "it has ended");
        pair.server.received.clear();
        let (send, offer) = offered(&mut pair);
        let into = pair.server.port.memory(&vec![0; LONG]);
        pair.server.port.receive_into(offer, &into, 5).expect("it is long enough");
        let is_taken_back = pair.client.port.cancel(send);
        pair.until("both ends", |client, server| !client.sent.is_empty() && !server.received.is_empty());
        let (_, context, received) = pair.server.received.remove(0);
        assert_eq!(context, 5);
        match (pair.client.end_of_send(1), received) {
            (Ok(()), Ok(())) => assert!(D::Messenger::bytes_of(&into) == pattern(1, LONG), "as it was sent"),
            (Err(SendFailure::Cancelled), Err(ReceiveFailure::Cancelled)) => assert!(is_taken_back),
            other => panic!("the sides differ: {other:?}"),
        }
        pair.check_home();
    }
}

/// A message that is longer than the receiver takes is refused without its program; so is memory that is too short, which changes nothing.
pub fn longer_than_is_taken<D: MessengerDriver>(env: &Environment<D>) {
    let limits = Limits::default().whole_bytes_max(10_000).message_bytes_max(100_000).lent_bytes_max(50_000);
    let mut pair = MessengerPair::<D>::open(env, RO, limits);
    pair.client.send(pair.to_server, &pattern(1, 100_001), 1);
    pair.until("its end", |client, _| !client.sent.is_empty());
    assert_eq!(pair.client.end_of_send(1), Err(SendFailure::TooLong { max_bytes: 100_000 }));
    assert!(pair.server.offers.is_empty() && pair.server.received.is_empty(), "nobody was asked");
    let long = pattern(2, 90_000);
    pair.client.send(pair.to_server, &long, 2);
    pair.until("an offer", |_, server| !server.offers.is_empty());
    let (_, offer, _) = pair.server.offers.pop_front().expect("just seen");
    let (short, enough) =
        (pair.server.port.memory(&[0; 80_000]), pair.server.port.memory(&vec![0; long.len()]));
    assert_eq!(pair.server.port.receive_into(offer, &short, 3), Err(Refusal::TooLong));
    assert_eq!(pair.server.port.receive(offer), Err(Refusal::TooLong), "more than may be lent");
    pair.server.port.receive_into(offer, &enough, 3).expect("it is long enough");
    pair.until("both ends", |client, server| !client.sent.is_empty() && !server.received.is_empty());
    assert_eq!(pair.client.end_of_send(2), Ok(()));
    assert_eq!(pair.server.received, [(offer, 3, Ok(()))]);
    assert!(D::Messenger::bytes_of(&enough)[..long.len()] == long);
    pair.check_home();
}

/// What is lent stays under its cap: further messages wait until some is given back, and none is lost.
pub fn lent_memory_has_a_cap<D: MessengerDriver>(env: &Environment<D>) {
    const CAP: u64 = 400_000;
    let limits = Limits::default().whole_bytes_max(100_000).lent_bytes_max(CAP);
    let mut pair = MessengerPair::<D>::open(env, RO, limits);
    for number in 0..12 {
        pair.client.send(pair.to_server, &pattern(number, 90_000), number);
    }
    for number in 0..12 {
        pair.until("the next message", |_, server| !server.messages.is_empty());
        pair.settle();
        let counts = pair.server.port.counts();
        assert!(counts.lent_bytes <= CAP, "{counts:?}");
        assert!(pair.server.messages.len() <= (CAP / 90_000) as usize, "the others wait");
        let (_, bytes) = pair.server.messages.pop_front().expect("just seen");
        assert!(bytes.as_ref() == pattern(number, 90_000), "{number} comes in its turn");
    }
    pair.until("all ends", |client, _| client.sent.len() == 12);
    assert!(pair.client.sent.drain(..).all(|(_, result)| result == Ok(())));
    pair.check_home();
}

/// A side that announces a message and then does nothing holds up nobody else.
pub fn a_sender_that_stops<D: MessengerDriver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Crowd)?;
    let mut pair = MessengerPair::<D>::plain(env, RO);
    let mut sleeper = MessengerSide::<D>::open(env, &Setup::default(), Limits::default());
    let (to_server, _) = MessengerPair::connect(&mut sleeper, &mut pair.server, RO);
    sleeper.send(to_server, &pattern(1, LONG), 1);
    until(&mut sleeper, &mut pair.server, "an offer", |_, server| !server.offers.is_empty());
    let (_, offer, _) = pair.server.offers.pop_front().expect("just seen");
    pair.server.port.receive(offer).expect("it may be lent");
    for number in 0..20 {
        pair.client.call(pair.to_server, &pattern(number, 40_000), number);
        pair.until("a request", |_, server| !server.requests.is_empty());
        pair.server.answer_next(None, &pattern(number, 50_000));
        pair.until("its reply", |client, _| !client.replies.is_empty());
        assert!(pair.client.end_of_call(number) == Ok(pattern(number, 50_000)));
    }
    until(&mut sleeper, &mut pair.server, "the long one", |sleeper, server| {
        !sleeper.sent.is_empty() && !server.messages.is_empty()
    });
    assert_eq!(sleeper.end_of_send(1), Ok(()));
    assert!(pair.server.messages.pop_front().expect("just seen").1.as_ref() == pattern(1, LONG));
    pair.check_home();
    Ok(())
}

/// When a side leaves, everything under way in both directions ends once at each side that gets events, in front of the end of the connection.
pub fn everything_ends_when_a_side_leaves<D: MessengerDriver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        for closes in [true, false] {
            let mut pair = MessengerPair::<D>::plain(env, attribute);
            let long = pattern(1, LONG);
            for context in 0..3 {
                pair.client.send(pair.to_server, &long, context);
                pair.client.call(pair.to_server, b"?", context);
            }
            let memory = pair.client.port.memory(&long);
            pair.client.port.send(pair.to_server, Parts::InPlace(&memory), 3, false).expect("room");
            pair.server.send(pair.to_client, &long, 4);
            pair.until("offers", |client, server| !client.offers.is_empty() && !server.offers.is_empty());
            pair.settle();
            let (_, offer, _) = pair.client.offers.pop_front().expect("just seen");
            if closes {
                pair.server.port.disconnect(pair.to_client);
                pair.until("the server's ends", |_, server| !server.sent.is_empty());
                assert_eq!(pair.server.end_of_send(4), Err(SendFailure::Failed(Status::Disconnected)));
            } else {
                let MessengerPair { client, server, to_server, to_client } = pair;
                // What it has of the client goes first.
                drop((server.messages, server.requests));
                drop(server.port);
                let server = MessengerSide::<D>::open_server(env, &Setup::default(), Limits::default());
                pair = MessengerPair { client, server, to_server, to_client };
            }
            pair.until("the end of the connection", |client, _| !client.disconnected.is_empty());
            pair.settle();
            let mut ends = std::mem::take(&mut pair.client.sent);
            ends.sort_unstable_by_key(|(context, _)| *context);
            let gone = Err(SendFailure::Failed(Status::Disconnected));
            assert_eq!(ends, [(0, gone), (1, gone), (2, gone), (3, gone)]);
            assert_eq!(pair.client.received, [(offer, 0, Err(ReceiveFailure::Disconnected))]);
            assert_eq!(pair.client.replies.len(), 3, "each call ends once");
            assert_eq!(pair.client.disconnected.len(), 1);
            let refused = pair.client.port.send(pair.to_server, Parts::Copied(&[b"late"]), 9, false);
            assert_eq!(refused, Err(Refusal::Closed));
            let counts = (pair.client.port.counts(), pair.server.port.counts());
            assert_eq!((counts.0.staged_bytes, counts.1.staged_bytes), (0, 0), "memory comes back");
            assert_eq!((counts.0.lent_bytes, counts.1.lent_bytes), (0, 0), "memory comes back");
        }
    }
}
