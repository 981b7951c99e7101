//! Refused, cancelled, or cut off: each side learns of it once, and nothing is left behind.

use crate::common::{At, Pair, contents, filled};
use cci::messages::{Event, Limits, Offer, ReceiveFailure, SendFailure, SendId};
use cci::{Attribute, Memory, SendFlags, Status};

crate::on_each_device!(
    refused_with_a_code,
    refused_while_it_is_received,
    longer_than_is_taken,
    cancelled_before_a_decision,
    cancelled_at_once,
    cancelled_while_it_is_received,
    what_is_behind_goes_on,
    disconnected_by_the_receiver,
    disconnected_by_the_sender,
);

const LEN: usize = 6_000_000;
const BOTH: [Attribute; 2] = [Attribute::ReliableOrdered, Attribute::ReliableUnordered];

/// A pair whose client has sent a long message from memory, up to the offer.
fn offered(device: &str, attribute: Attribute) -> (Pair, Memory, SendId, Offer) {
    let mut pair = Pair::new(device, attribute);
    let memory = filled(&mut pair.client.messenger, &contents(LEN, 1));
    let id = pair.client.messenger.send(pair.client.peer, &memory, 7, SendFlags::NONE).unwrap();
    let offer = pair.run(|_, at, event| match (at, event) {
        (At::Server, Event::Offer(offer)) => Some(offer),
        (at, event) => panic!("{at:?}: {event:?}"),
    });
    (pair, memory, id, offer)
}

/// Waits for the end of the send.
fn sent(pair: &mut Pair) -> Result<(), SendFailure> {
    pair.run(|_, at, event| match (at, event) {
        (At::Client, Event::Sent { context: 7, result, .. }) => Some(result),
        (at, event) => panic!("{at:?}: {event:?}"),
    })
}

/// Nothing is left of a message, and another one arrives.
fn all_is_well(pair: &mut Pair) {
    pair.idle();
    for side in [&mut pair.client, &mut pair.server] {
        let counters = side.messenger.counters();
        assert_eq!(side.messenger.endpoint().counters().regions, counters.kept_regions);
        assert_eq!((counters.lent_bytes, counters.staged_bytes, counters.faults), (0, 0, 0));
    }
    let next = contents(300_000, 5);
    pair.client.messenger.send(pair.client.peer, &next, 0, SendFlags::SILENT).unwrap();
    pair.run_until(
        |_, at, event| matches!((at, event), (At::Server, Event::Message(got)) if got[..] == next),
    );
}

fn refused_with_a_code(device: &str) {
    for attribute in BOTH {
        let (mut pair, _memory, id, offer) = offered(device, attribute);
        pair.server.messenger.refuse(offer, 4_000_000_000).unwrap();
        assert!(
            pair.server.messenger.refuse(offer, 1).is_err() && pair.server.messenger.receive(offer).is_err()
        );
        assert_eq!(sent(&mut pair), Err(SendFailure::Refused(4_000_000_000)));
        assert!(!pair.client.messenger.cancel(id));
        all_is_well(&mut pair);
    }
}

fn refused_while_it_is_received(device: &str) {
    for attribute in BOTH {
        let (mut pair, _memory, _, offer) = offered(device, attribute);
        let into = pair.server.messenger.allocate(LEN).unwrap();
        pair.server.messenger.receive_into(offer, &into, 0, 3).unwrap();
        assert_eq!(pair.server.messenger.receive_progress(offer).unwrap().total_bytes, LEN as u64);
        pair.server.messenger.refuse(offer, 9).unwrap();
        // Nothing is written there any more.
        assert!(into.write(0, &vec![0xaa; LEN]));
        assert_eq!(sent(&mut pair), Err(SendFailure::Refused(9)));
        all_is_well(&mut pair);
        let mut out = vec![0; LEN];
        assert!(into.read(0, &mut out) && out.iter().all(|byte| *byte == 0xaa));
    }
}

fn longer_than_is_taken(device: &str) {
    for attribute in BOTH {
        let mut pair = Pair::with(device, attribute, Limits::default().message_bytes_max(50_000));
        pair.client.messenger.send(pair.client.peer, &contents(50_001, 1), 7, SendFlags::NONE).unwrap();
        assert_eq!(sent(&mut pair), Err(SendFailure::TooLong { max_bytes: 50_000 }));
        pair.client.messenger.send(pair.client.peer, &contents(50_000, 1), 7, SendFlags::NONE).unwrap();
        pair.run_until(|_, at, event| at == At::Server && matches!(event, Event::Message(_)));
        assert_eq!(sent(&mut pair), Ok(()));
    }
}

fn cancelled_before_a_decision(device: &str) {
    for attribute in BOTH {
        let (mut pair, memory, id, offer) = offered(device, attribute);
        assert!(pair.client.messenger.cancel(id) && !pair.client.messenger.cancel(id));
        assert!(memory.write(0, &[0; 100]), "the memory is the program's again");
        let (mut result, mut received) = (None, None);
        pair.run_until(|_, at, event| {
            match (at, event) {
                (At::Client, Event::Sent { context: 7, result: of, .. }) if result.is_none() => {
                    result = Some(of)
                }
                (At::Server, Event::Received { offer: of, context: 0, result }) if received.is_none() => {
                    assert_eq!(of, offer);
                    received = Some(result);
                }
                (at, event) => panic!("{at:?}: {event:?}"),
            }
            result.is_some() && received.is_some()
        });
        assert_eq!(
            (result, received),
            (Some(Err(SendFailure::Cancelled)), Some(Err(ReceiveFailure::Cancelled)))
        );
        assert!(pair.server.messenger.receive(offer).is_err());
        all_is_well(&mut pair);
    }
}

/// The cancellation may come before the receiver has the offer, or while it fetches: whatever it is, both sides agree.
fn cancelled_at_once(device: &str) {
    for attribute in BOTH {
        let mut pair = Pair::new(device, attribute);
        for round in 0..20 {
            let id = pair
                .client
                .messenger
                .send(pair.client.peer, &contents(900_000, round), 7, SendFlags::NONE)
                .unwrap();
            for _ in 0..round {
                let _ = pair.client.messenger.endpoint().counters();
                assert!(pair.client.messenger.next_event().is_none());
            }
            assert!(pair.client.messenger.cancel(id));
            let (mut came, mut result) = (false, None);
            pair.run_until(|_, at, event| {
                match (at, event) {
                    (At::Client, Event::Sent { context: 7, result: of, .. }) => result = Some(of),
                    (At::Server, Event::Message(_)) => came = true,
                    (at, event) => panic!("{at:?}: {event:?}"),
                }
                result.is_some()
            });
            assert_eq!(result, Some(if came { Ok(()) } else { Err(SendFailure::Cancelled) }), "{round}");
        }
        all_is_well(&mut pair);
    }
}

fn cancelled_while_it_is_received(device: &str) {
    for attribute in BOTH {
        let (mut pair, _memory, id, offer) = offered(device, attribute);
        let into = pair.server.messenger.allocate(LEN).unwrap();
        pair.server.messenger.receive_into(offer, &into, 0, 3).unwrap();
        assert!(pair.client.messenger.cancel(id));
        let (mut result, mut received) = (None, None);
        pair.run_until(|_, at, event| {
            match (at, event) {
                (At::Client, Event::Sent { context: 7, result: of, .. }) if result.is_none() => {
                    result = Some(of)
                }
                (At::Server, Event::Received { context: 3, result, .. }) if received.is_none() => {
                    received = Some(result)
                }
                (at, event) => panic!("{at:?}: {event:?}"),
            }
            result.is_some() && received.is_some()
        });
        match received {
            Some(Ok(())) => assert_eq!(result, Some(Ok(()))),
            received => {
                assert_eq!(received, Some(Err(ReceiveFailure::Cancelled)));
                assert_eq!(result, Some(Err(SendFailure::Cancelled)));
            }
        }
        all_is_well(&mut pair);
    }
}

/// Messages behind one that was refused or cancelled come all the same, in order.
fn what_is_behind_goes_on(device: &str) {
    for cancels in [false, true] {
        let (mut pair, _memory, id, offer) = offered(device, Attribute::ReliableOrdered);
        for at in 0..5_u8 {
            let len = if at == 2 { 100_000 } else { 1 };
            pair.client.messenger.send(pair.client.peer, &vec![at; len], 0, SendFlags::SILENT).unwrap();
        }
        pair.idle();
        if cancels {
            assert!(pair.client.messenger.cancel(id));
        } else {
            pair.server.messenger.refuse(offer, 0).unwrap();
        }
        let (mut next, mut ended) = (0, false);
        pair.run_until(|_, at, event| {
            match (at, event) {
                (At::Client, Event::Sent { context: 7, result: Err(_), .. }) => ended = true,
                (At::Server, Event::Received { result: Err(ReceiveFailure::Cancelled), .. }) => {
                    assert!(cancels && next == 0);
                }
                (At::Server, Event::Message(message)) => {
                    assert_eq!(message[0], next);
                    next += 1;
                }
                (at, event) => panic!("{at:?}: {event:?}"),
            }
            next == 5 && ended
        });
    }
}

/// Short and long messages are under way in both directions when one side disconnects. What came before is not lost.
fn disconnected_by_the_receiver(device: &str) {
    for attribute in BOTH {
        for accepts in [false, true] {
            let (mut pair, _memory, _, offer) = offered(device, attribute);
            let into = pair.server.messenger.allocate(LEN).unwrap();
            pair.server
                .messenger
                .send(pair.server.peer, &contents(2_000_000, 2), 8, SendFlags::NONE)
                .unwrap();
            if accepts {
                pair.server.messenger.receive_into(offer, &into, 0, 3).unwrap();
            }
            let peer = pair.server.peer;
            pair.server.messenger.disconnect(peer);
            assert!(pair.server.messenger.receive(offer).is_err());
            let mut seen = Vec::new();
            pair.run_until(|_, at, event| {
                match (at, event) {
                    (At::Server, Event::Received { result: Err(ReceiveFailure::Disconnected), .. }) => {
                        seen.push("received")
                    }
                    (
                        At::Server,
                        Event::Sent {
                            context: 8,
                            result: Err(SendFailure::Failed(Status::Disconnected)),
                            ..
                        },
                    ) => {
                        seen.push("sent 8");
                    }
                    (
                        At::Client,
                        Event::Sent {
                            context: 7,
                            result: Err(SendFailure::Failed(Status::Disconnected)),
                            ..
                        },
                    ) => {
                        seen.push("sent 7");
                    }
                    (At::Client, Event::Disconnected { context: 1, .. }) => seen.push("disconnected"),
                    // Whether the client is offered the other message before the end is a matter of time; if so, it ends.
                    (At::Client, Event::Offer(_)) => seen.push("offer"),
                    (At::Client, Event::Received { result: Err(_), .. }) => seen.push("offer ended"),
                    (at, event) => panic!("{at:?}: {event:?}"),
                }
                seen.contains(&"disconnected")
            });
            assert_eq!(seen.last(), Some(&"disconnected"));
            let count = |what| seen.iter().filter(|seen| **seen == what).count();
            assert_eq!((count("received"), count("sent 8"), count("sent 7")), (1, 1, 1), "{seen:?}");
            assert_eq!(count("offer"), count("offer ended"), "{seen:?}");
            pair.idle();
            for side in [&mut pair.client, &mut pair.server] {
                assert_eq!(side.messenger.endpoint().counters().regions, 0);
            }
        }
    }
}

fn disconnected_by_the_sender(device: &str) {
    for attribute in BOTH {
        let (mut pair, _memory, _, offer) = offered(device, attribute);
        for at in 0..3_u8 {
            pair.client.messenger.send(pair.client.peer, &[at], 0, SendFlags::SILENT).unwrap();
        }
        let peer = pair.client.peer;
        pair.client.messenger.disconnect(peer);
        let (mut sent, mut received, mut next) = (0, 0, 0);
        pair.run_until(|_, at, event| match (at, event) {
            (
                At::Client,
                Event::Sent { context: 7, result: Err(SendFailure::Failed(Status::Disconnected)), .. },
            ) => {
                sent += 1;
                false
            }
            (At::Server, Event::Received { offer: of, result: Err(ReceiveFailure::Disconnected), .. }) => {
                assert_eq!(of, offer);
                received += 1;
                false
            }
            (At::Server, Event::Message(message)) => {
                assert_eq!(message[..], [next]);
                next += 1;
                false
            }
            (At::Server, Event::Disconnected { context: 2, .. }) => true,
            (at, event) => panic!("{at:?}: {event:?}"),
        });
        assert_eq!((sent, received, next), (1, 1, 3));
        pair.idle();
    }
}
