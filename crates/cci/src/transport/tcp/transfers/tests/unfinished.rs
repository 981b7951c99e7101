//! Peers that begin something on the second stream and do not go on.

use super::{Scene, record, scene_with, until};
use crate::{Event, Options, SendFlags};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

const NOTIFY: u8 = 6;
const HOLD: u8 = 11;
const AGAIN: u8 = 12;

fn scene(recv_buffers: u32) -> Scene {
    scene_with(Options { send_timeout: Duration::from_millis(100), recv_buffers, ..Options::default() })
}

#[test]
fn a_record_that_never_ends_has_a_time() {
    let mut scene = scene(64);
    let mut second = scene.second(scene.ticket);
    let words = [scene.handle.region(), scene.handle.key(), 0, 100_000];
    let write = record(1, 1, 0, &words, &[7; 100_000]);
    let (mut received, mut at) = (Instant::now(), 0);
    while scene.drops("unfinished-record") == 0 {
        assert!(at < 800, "still under way");
        scene.server.progress();
        if received.elapsed() >= Duration::from_millis(10) {
            let _ = second.write(&write[at..=at]);
            (received, at) = (Instant::now(), at + 1);
        }
    }
    assert!(!scene.server.is_open(scene.connection));
}

/// A message is held, asked for, and never said again.
#[test]
fn a_message_that_was_asked_for_has_a_time() {
    let mut scene = scene(1);
    let mut second = scene.second(scene.ticket);
    let messages = [record(NOTIFY, 0, 0, &[], b"first"), record(NOTIFY, 0, 1, &[], b"second")].concat();
    second.write_all(&messages).unwrap();
    let mut came = Vec::new();
    let mut hear = |second: &mut std::net::TcpStream, kind: u8| {
        let mut some = [0; 256];
        match second.read(&mut some) {
            Ok(len) => came.extend_from_slice(&some[..len]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        came.chunks(12).any(|record| record.get(4) == Some(&kind))
    };
    until(&mut scene.server, |_| hear(&mut second, HOLD).then_some(()));
    let Some(Event::Recv(message)) = scene.server.next_event() else { panic!("the first one") };
    assert_eq!(*message, *b"first");
    drop(message);
    until(&mut scene.server, |_| hear(&mut second, AGAIN).then_some(()));
    let connection = scene.connection;
    until(&mut scene.server, |server| (!server.is_open(connection)).then_some(()));
    assert_eq!(scene.drops("unfinished-record"), 1);
    assert!(scene.server.send(connection, b"x", 0, SendFlags::NONE).is_err());
}
