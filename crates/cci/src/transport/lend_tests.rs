//! What every transport promises of messages that are lent to handlers: tests that those of streams and of datagrams share.

use crate::{Connection, Endpoint, Event, Polled, SendFlags};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// A test that takes as long as this is stuck.
const PATIENCE: Duration = Duration::from_secs(20);

/// A message that begins with its number, of a length that depends on it: short ones with odd lengths, now and then a long one.
pub(super) fn numbered(number: u64) -> Vec<u8> {
    let len = if number % 37 == 5 { 3000 } else { 8 + number as usize % 50 };
    let mut message = vec![number as u8; len];
    message[..8].copy_from_slice(&number.to_le_bytes());
    message
}

pub(super) fn send(client: &mut Endpoint, to_server: Connection, numbers: std::ops::Range<u64>) {
    let messages: Vec<Vec<u8>> = numbers.map(numbered).collect();
    let burst: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    assert_eq!(client.send_burst(to_server, &burst, 1, SendFlags::NONE), Ok(burst.len()));
}

/// A handler gets so many messages in a call; in between, the program takes events, sleeps, or its handler panics.
pub(super) fn what_a_handler_does_not_get_comes_next_and_in_order(
    pair: impl Fn() -> (Endpoint, Endpoint, Connection),
) {
    const ROUNDS: u64 = 8;
    for max in [1, 2, 7, 33, 500] {
        let (mut client, mut server, to_server) = pair();
        let (mut next, mut calls, mut completions, start) = (0, 0, 0, Instant::now());
        for round in 1..=ROUNDS {
            send(&mut client, to_server, (round - 1) * 200..round * 200);
            while next < round * 200 || completions < round {
                assert!(start.elapsed() < PATIENCE, "{next}: {:?}", server.counters());
                completions += u64::from(matches!(client.next_event(), Some(Event::Send { .. })));
                calls += 1;
                match calls % 11 {
                    3 | 7 => {
                        let event = if calls % 2 == 0 {
                            server.next_event()
                        } else {
                            server.wait(Some(Duration::from_millis(1))).unwrap()
                        };
                        if let Some(Event::Recv(message)) = event {
                            assert_eq!(*message, numbered(next));
                            next += 1;
                        }
                    }
                    about => {
                        let mut taken = 0;
                        let handled = catch_unwind(AssertUnwindSafe(|| {
                            server.poll(max, |polled| {
                                let Polled::Message(message) = polled else { panic!("{polled:?}") };
                                assert_eq!(*message, numbered(next));
                                assert!(message.as_ptr().addr().is_multiple_of(8));
                                next += 1;
                                taken += 1;
                                if about == 9 && taken == 5 {
                                    std::panic::resume_unwind(Box::new("on purpose"));
                                }
                            })
                        }));
                        assert!(handled.is_err() || handled.is_ok_and(|count| count == taken));
                        assert!(taken <= max);
                    }
                }
            }
        }
    }
}

/// Nothing of a connection comes behind its end, however few messages a handler takes in a call. `leaves`: the client disconnects, and does
/// not just end.
pub(super) fn the_end_comes_behind_all_messages(
    (mut client, mut server, to_server): (Endpoint, Endpoint, Connection),
    leaves: bool,
) {
    send(&mut client, to_server, 0..100);
    if leaves {
        client.disconnect(to_server);
    } else {
        client.progress();
    }
    let mut client = leaves.then_some(client);
    let (mut next, mut ended, start) = (0, false, Instant::now());
    while !ended {
        assert!(start.elapsed() < PATIENCE, "{next}: {:?}", server.counters());
        client.iter_mut().for_each(Endpoint::progress);
        server.poll(3, |polled| match polled {
            Polled::Message(message) => {
                assert!(!ended);
                assert_eq!(*message, numbered(next));
                next += 1;
            }
            Polled::Event(Event::Disconnected { .. }) => ended = true,
            Polled::Event(other) => panic!("{other:?}"),
        });
    }
    assert_eq!(next, 100, "leaves: {leaves}");
}
