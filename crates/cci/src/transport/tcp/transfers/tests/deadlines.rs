//! Peers that keep an operation under way by saying little, all the time.

use super::{DATA, READ, Scene, record, scene_with, until};
use crate::{Event, Options, RegionAddress, Rma, RmaFlags, RmaKind, Segment, Status};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const NOTIFY: u8 = 6;
const HOLD: u8 = 11;
const AGAIN: u8 = 12;

const SEND_TIMEOUT: Duration = Duration::from_millis(150);
/// Of an operation: by the least rate it has 0.1 s for that.
const LEN_BYTES: u64 = 4096;
/// The peer says so little in each such time.
const PACE: Duration = Duration::from_millis(15);
/// More than twice the send timeout and that time take.
const ROUNDS_MAX: u32 = 60;

fn scene() -> Scene {
    scene_with(Options { send_timeout: SEND_TIMEOUT, ..Options::default() })
}

/// What came on the second stream, as records without their lengths. None: it has ended.
fn heard(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut some = [0; 4096];
    match stream.read(&mut some) {
        Ok(0) => return None,
        Ok(len) => bytes.extend_from_slice(&some[..len]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(_) => return None,
    }
    let mut records = Vec::new();
    while let Some(length) = bytes.first_chunk::<4>() {
        let end = 4 + u32::from_le_bytes(*length) as usize;
        if bytes.len() < end {
            break;
        }
        records.push(bytes.drain(..end).skip(4).collect());
    }
    Some(records)
}

/// The peer of a read brings one byte of it after the other.
fn trickled_read(scene: &mut Scene) -> TcpStream {
    let (own, peer) = (RegionAddress::new(scene.handle, 0), RegionAddress::new(scene.handle, LEN_BYTES));
    scene.server.rma_read(scene.connection, own, peer, LEN_BYTES, 5, RmaFlags::NONE).unwrap();
    let (mut second, mut bytes) = (scene.second(scene.ticket), Vec::new());
    until(&mut scene.server, |_| {
        let records = heard(&mut second, &mut bytes).expect("the stream goes on");
        (records.first().is_some_and(|record| record[0] == READ)).then_some(())
    });
    second
}

#[test]
fn a_byte_now_and_then_does_not_keep_an_operation() {
    let mut scene = scene();
    let mut second = trickled_read(&mut scene);
    let data = record(DATA, 0, 0, &[0], &[9; LEN_BYTES as usize]);
    let (mut received, mut at, mut status) = (Instant::now(), 0, None);
    while status.is_none() {
        assert!(at < ROUNDS_MAX as usize, "still under way");
        if let Some(Event::Send { context: 5, status: with, .. }) = scene.server.next_event() {
            status = Some(with);
        }
        if received.elapsed() >= PACE {
            let _ = second.write(&data[at..=at]);
            (received, at) = (Instant::now(), at + 1);
        }
    }
    assert_eq!(status, Some(Status::TimedOut));
    assert!(at > 1 && !scene.server.is_open(scene.connection), "{at}");
}

/// The program disconnects meanwhile: both streams end.
#[test]
fn a_byte_now_and_then_does_not_keep_a_disconnect() {
    let mut scene = scene();
    let mut second = trickled_read(&mut scene);
    let data = record(DATA, 0, 0, &[0], &[9; LEN_BYTES as usize]);
    scene.server.disconnect(scene.connection);
    let (mut received, mut at, mut bytes) = (Instant::now(), 0, Vec::new());
    while heard(&mut second, &mut bytes).is_some() {
        assert!(at < ROUNDS_MAX as usize, "still under way");
        let _ = scene.server.next_event();
        if received.elapsed() >= PACE {
            let _ = second.write(&data[at..=at]);
            (received, at) = (Instant::now(), at + 1);
        }
    }
    assert!(at > 1);
    until(&mut scene.server, |_| super::is_closed(&mut scene.first).then_some(()));
}

/// The peer holds a message, asks for it again, and holds it again.
#[test]
fn a_message_asked_for_again_and_again_does_not_keep_its_operation() {
    let mut scene = scene();
    let (own, peer) = (RegionAddress::new(scene.handle, 0), RegionAddress::new(scene.handle, LEN_BYTES));
    let rma = Rma {
        kind: RmaKind::Write,
        local: &[Segment { address: own, len_bytes: 8 }],
        remote: &[Segment { address: peer, len_bytes: 8 }],
        message: Some(b"done"),
        context: 5,
        flags: RmaFlags::NONE,
    };
    scene.server.rma(scene.connection, &rma).unwrap();
    let (mut second, mut bytes) = (scene.second(scene.ticket), Vec::new());
    let (mut since, mut rounds, mut status) = (None, 0, None);
    while status.is_none() {
        assert!(rounds < ROUNDS_MAX, "still under way");
        if let Some(Event::Send { context: 5, status: with, .. }) = scene.server.next_event() {
            status = Some(with);
        }
        for record in heard(&mut second, &mut bytes).unwrap_or_default() {
            if record[0] == NOTIFY {
                since = Some((Instant::now(), u16::from_le_bytes([record[2], record[3]])));
            }
        }
        if let Some((_, slot)) = since.filter(|(since, _)| since.elapsed() >= PACE) {
            let again = [record(HOLD, 0, slot, &[], &[]), record(AGAIN, 0, slot, &[], &[])].concat();
            let _ = second.write_all(&again);
            (since, rounds) = (None, rounds + 1);
        }
    }
    assert!(rounds > 1, "held, and asked for again");
    assert!(matches!(status, Some(Status::TimedOut | Status::ReceiverNotReady)), "{status:?}");
}
