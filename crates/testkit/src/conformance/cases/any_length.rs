//! Messages of any length, from both sides of every threshold.

use super::RO;
use crate::conformance::cases::RELIABLE;
use crate::conformance::messenger::{Limits, MessengerDriver, MessengerPair, MessengerPort, Parts};
use crate::conformance::{Environment, Pair, Port, Refusal, pattern};
use cci::Attribute;
use cci::limits::{HELD_MESSAGES_MAX, LONG_MESSAGES_MAX};
use cci::messages::SendFailure;

/// So that each message that does not fit one of the endpoint's is offered first.
fn offers_all() -> Limits {
    Limits::default().whole_bytes_max(1)
}

/// Lengths on both sides of the longest message of an endpoint, with and without a messenger's head.
pub(super) fn lengths<D: MessengerDriver>(env: &Environment<D>) -> Vec<usize> {
    let pair = Pair::<D>::plain(env, RO);
    let mss = pair.client.port.max_send_size(pair.to_server);
    pair.part();
    vec![0, 1, 7, 8, mss - 9, mss - 8, mss - 7, mss, mss + 1, 2 * mss, 65_536, 300_001]
}

/// Messages of every length come whole, once, as they were; on RO in order.
pub fn every_length_comes_whole<D: MessengerDriver>(env: &Environment<D>) {
    let lengths = lengths(env);
    for attribute in RELIABLE {
        let mut pair = MessengerPair::<D>::plain(env, attribute);
        for (at, len) in lengths.iter().enumerate() {
            pair.client.send(pair.to_server, &pattern(at as u64, *len), at as u64);
        }
        pair.until("all messages", |client, server| {
            client.sent.len() == lengths.len() && server.messages.len() == lengths.len()
        });
        let mut came: Vec<Vec<u8>> = Vec::new();
        for (connection, bytes) in pair.server.messages.drain(..) {
            assert_eq!(connection, pair.to_client);
            came.push(bytes.as_ref().to_vec());
        }
        let mut sent: Vec<Vec<u8>> =
            lengths.iter().enumerate().map(|(at, len)| pattern(at as u64, *len)).collect();
        if attribute != RO {
            came.sort();
            sent.sort();
        }
        assert!(came == sent, "as they were sent");
        let mut ends = std::mem::take(&mut pair.client.sent);
        ends.sort_unstable_by_key(|(context, _)| *context);
        let expected: Vec<_> = (0..lengths.len() as u64).map(|context| (context, Ok(()))).collect();
        assert_eq!(ends, expected, "each ends once");
        pair.check_home();
    }
}

/// Several megabytes from memory of the library, into memory of the library: nothing is copied besides, and both sides can ask how far it is.
pub fn a_very_long_one_into_memory<D: MessengerDriver>(env: &Environment<D>) {
    const LEN: usize = 5 << 20;
    let mut pair = MessengerPair::<D>::plain(env, RO);
    let bytes = pattern(1, LEN);
    let (from, into) = (pair.client.port.memory(&bytes), pair.server.port.memory(&vec![0; LEN + 9]));
    let send = pair.client.port.send(pair.to_server, Parts::InPlace(&from), 1, false).expect("room");
    assert_eq!(pair.client.port.counts().staged_bytes, 0, "no copy");
    pair.until("an offer", |_, server| !server.offers.is_empty());
    let (connection, offer, len_bytes) = pair.server.offers.pop_front().expect("just seen");
    assert_eq!((connection, len_bytes), (pair.to_client, LEN as u64));
    let total = |progress: Option<cci::messages::Progress>| progress.map(|progress| progress.total_bytes);
    assert_eq!(total(pair.client.port.send_progress(send)), Some(LEN as u64));
    assert_eq!(total(pair.server.port.receive_progress(offer)), Some(LEN as u64));
    pair.server.port.receive_into(offer, &into, 9).expect("it is long enough");
    pair.until("both ends", |client, server| !client.sent.is_empty() && !server.received.is_empty());
    assert_eq!(pair.client.end_of_send(1), Ok(()));
    assert_eq!(pair.server.received, [(offer, 9, Ok(()))]);
    assert!(D::Messenger::bytes_of(&into)[..LEN] == bytes, "as it was sent");
    assert_eq!(pair.client.port.send_progress(send), None, "it has ended");
    assert_eq!(pair.server.port.receive_progress(offer), None, "it has ended");
    assert_eq!(pair.server.port.receive(offer), Err(Refusal::BadArgument), "it has ended");
    assert_eq!(pair.server.port.counts().long_received, 1);
    pair.check_home();
}

/// Messages that are gathered from segments, some of them empty, come in one piece; silent ones have no completion.
pub fn gathered_ones_come_in_one_piece<D: MessengerDriver>(env: &Environment<D>) {
    let mut pair = MessengerPair::<D>::plain(env, RO);
    for (at, lens) in [[0, 0, 0], [3, 0, 500], [5_000, 1, 5_000], [0, 200_000, 77]].iter().enumerate() {
        let parts: Vec<Vec<u8>> = (0..3).map(|part| pattern(part as u64 + 5, lens[part])).collect();
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let is_silent = at % 2 == 1;
        let sent = pair.client.port.send(pair.to_server, Parts::Copied(&slices), 3, is_silent);
        sent.expect("there is room");
        pair.until("it", |client, server| {
            server.messages.len() == 1 && client.sent.len() == usize::from(!is_silent)
        });
        pair.client.sent.clear();
        assert!(pair.server.messages.pop_front().expect("just seen").1.as_ref() == parts.concat());
    }
    pair.settle();
    assert_eq!(pair.client.sent, [], "silence");
    pair.check_home();
}

/// On RO what was sent behind a long message comes behind it, however long the program waits with its decision; the sender may send only
/// so much behind it.
pub fn order_is_kept_behind_a_long_one<D: MessengerDriver>(env: &Environment<D>) {
    let mut pair = MessengerPair::<D>::open(env, RO, offers_all());
    let long = pattern(1, 100_000);
    pair.client.send(pair.to_server, &pattern(0, 20), 0);
    pair.client.send(pair.to_server, &long, 1);
    for number in 2..2 + u64::from(HELD_MESSAGES_MAX) {
        pair.client.send(pair.to_server, &pattern(number, 20), number);
    }
    let one_more = pair.client.port.send(pair.to_server, Parts::Copied(&[b"one more"]), 99, false);
    assert_eq!(one_more, Err(Refusal::WouldBlock), "the sender is held back");
    pair.until("the offer", |_, server| !server.offers.is_empty());
    pair.settle();
    assert_eq!(pair.server.messages.len(), 1, "what was sent before it, and nothing behind it");
    let (_, offer, _) = pair.server.offers.pop_front().expect("just seen");
    pair.server.port.receive(offer).expect("it may be lent");
    let all = 2 + HELD_MESSAGES_MAX as usize;
    pair.until("all of it", |client, server| client.sent.len() == all && server.messages.len() == all);
    for (number, (_, bytes)) in pair.server.messages.drain(..).enumerate() {
        let len = if number == 1 { long.len() } else { 20 };
        assert!(bytes.as_ref() == pattern(number as u64, len), "{number} comes in its turn");
    }
    pair.client.sent.clear();
    pair.check_home();
}

/// On RU what was sent behind a long message does not wait for it.
pub fn unordered_ones_pass_a_long_one<D: MessengerDriver>(env: &Environment<D>) {
    let mut pair = MessengerPair::<D>::open(env, Attribute::ReliableUnordered, offers_all());
    pair.client.send(pair.to_server, &pattern(1, 100_000), 1);
    pair.client.send(pair.to_server, &pattern(2, 20), 2);
    pair.until("the short one, and the offer", |client, server| {
        client.sent.len() == 1 && server.messages.len() == 1 && server.offers.len() == 1
    });
    assert_eq!(pair.client.end_of_send(2), Ok(()));
    assert!(pair.server.messages.pop_front().expect("just seen").1.as_ref() == pattern(2, 20));
    let (_, offer, _) = pair.server.offers.pop_front().expect("just seen");
    pair.server.port.receive(offer).expect("it may be lent");
    pair.until("the long one", |client, server| client.sent.len() == 1 && server.messages.len() == 1);
    assert_eq!(pair.client.end_of_send(1), Ok(()));
    assert!(pair.server.messages.pop_front().expect("just seen").1.as_ref() == pattern(1, 100_000));
    pair.check_home();
}

/// A receiver that takes nothing holds the sender back after a number of messages, in bounded memory; taken back, each ends once.
pub fn a_receiver_that_never_takes<D: MessengerDriver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let mut pair = MessengerPair::<D>::open(env, attribute, offers_all());
        let long = pattern(1, 50_000);
        let sends = pair.fill(&long, LONG_MESSAGES_MAX.into());
        assert_eq!(sends.len(), LONG_MESSAGES_MAX as usize);
        pair.until("an offer", |_, server| !server.offers.is_empty());
        pair.settle();
        let shown = if attribute == RO { 1 } else { sends.len() };
        assert_eq!(pair.server.offers.len(), shown, "in order, they are offered one at a time");
        assert_eq!(pair.server.port.counts().lent_bytes, 0, "nothing has moved");
        for send in &sends {
            assert!(pair.client.port.cancel(*send), "it has not ended");
            assert!(!pair.client.port.cancel(*send), "it was taken back before");
        }
        pair.until("all ends", |client, server| {
            client.sent.len() == sends.len() && server.received.len() == server.offers.len()
        });
        pair.settle();
        let mut ends = std::mem::take(&mut pair.client.sent);
        ends.sort_unstable_by_key(|(context, _)| *context);
        for (at, end) in ends.into_iter().enumerate() {
            assert_eq!(end, (at as u64, Err(SendFailure::Cancelled)));
        }
        pair.check_home();
    }
}

/// An unreliable connection takes what fits one message of the endpoint.
pub fn unreliable_ones_are_short<D: MessengerDriver>(env: &Environment<D>) {
    let mut pair = MessengerPair::<D>::plain(env, Attribute::Unreliable);
    let long = pattern(1, 100_000);
    let sent = pair.client.port.send(pair.to_server, Parts::Copied(&[&long]), 1, false);
    assert_eq!(sent, Err(Refusal::TooLong));
    pair.client.send(pair.to_server, b"short", 2);
    pair.until("it", |client, server| client.sent.len() == 1 && server.messages.len() == 1);
    assert_eq!(pair.client.end_of_send(2), Ok(()));
    assert_eq!(pair.server.messages.pop_front().expect("just seen").1.as_ref(), b"short");
}
