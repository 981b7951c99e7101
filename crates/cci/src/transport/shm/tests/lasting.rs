//! Peers that go on talking and never let an operation end.

use super::rma::{READ, record, scene};
use crate::transport::shm::scripted::PATIENCE;
use crate::transport::shm::wire::kind;
use crate::{Event, RegionAddress, Rma, RmaFlags, RmaKind, Segment, SendFlags, Status};
use std::time::{Duration, Instant};

const SEND_TIMEOUT: Duration = Duration::from_millis(150);
/// How often the peer says something, well within the time-out.
const PACE: Duration = Duration::from_millis(15);
/// What it says in ten time-outs.
const ROUNDS_MAX: u32 = 100;

/// The peer reads our write and never answers it; meanwhile it asks for our memory all the time, which is something that moves.
#[test]
fn requests_of_the_peers_own_do_not_keep_our_operation() {
    let (mut server, _memory, handle, mut lie) = scene();
    server.set_send_timeout(lie.connection, SEND_TIMEOUT).unwrap();
    let (own, peer) = (RegionAddress::new(handle, 0), RegionAddress::new(handle, 64));
    let rma = Rma {
        kind: RmaKind::Write,
        local: &[Segment { address: own, len_bytes: 8 }],
        remote: &[Segment { address: peer, len_bytes: 8 }],
        message: None,
        context: 5,
        flags: RmaFlags::NONE,
    };
    server.rma(lie.connection, &rma).unwrap();
    let read = record(READ, 0, 0, &[handle.region(), handle.key(), 0, 8], &[]);
    let (start, mut received, mut rounds, mut status) = (Instant::now(), Instant::now(), 0, None);
    while status.is_none() && start.elapsed() < PATIENCE {
        assert!(rounds < ROUNDS_MAX, "still under way: {:?}", server.counters());
        if let Some(Event::Send { context: 5, status: with, .. }) = server.next_event() {
            status = Some(with);
        }
        lie.hear();
        if received.elapsed() >= PACE {
            lie.send_record(kind::RMA, &read);
            (received, rounds) = (Instant::now(), rounds + 1);
        }
    }
    assert!(rounds > 1);
    assert_eq!(status, Some(Status::TimedOut), "{:?}", server.counters());
}

/// The peer reads one message now and then, so that it never stands still: a send has its time once more, and no more.
#[test]
fn a_message_read_now_and_then_does_not_keep_the_others() {
    const MESSAGES: u64 = 200;
    /// Well within what a peer that goes on gets each time.
    const PACE: Duration = Duration::from_millis(4);
    let (mut server, _memory, _handle, mut lie) = scene();
    server.set_send_timeout(lie.connection, SEND_TIMEOUT).unwrap();
    for number in 0..MESSAGES {
        server.send(lie.connection, b"to be read", number, SendFlags::NONE).unwrap();
    }
    let (start, mut rounds, mut ended) = (Instant::now(), 0, Vec::new());
    while ended.len() < MESSAGES as usize {
        assert!(start.elapsed() < PATIENCE, "{} ended", ended.len());
        // Between two polls there always is one that was read.
        if let Ok(Some(_)) = lie.consumer.peek() {
            lie.consumer.consume();
            lie.consumer.publish_head();
        }
        rounds += 1;
        std::thread::sleep(PACE);
        while let Some(event) = server.next_event() {
            if let Event::Send { status, .. } = event {
                ended.push(status);
            }
        }
    }
    println!("{rounds} messages were read");
    // Twice the time-out, and as much again for a machine that is busy.
    assert!(rounds < 4 * (SEND_TIMEOUT.as_millis() / PACE.as_millis()), "{rounds} messages were read");
    assert_eq!(ended.last(), Some(&Status::TimedOut));
}
