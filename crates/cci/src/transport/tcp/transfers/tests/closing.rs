//! Peers that say that they close, and go on.

use super::{is_closed, scene, until};
use crate::transport::tcp::wire::{Header, Kind};
use std::io::Write;

/// Behind CLOSING no second stream is of use: the peer has no operations any more, nor does it take any.
#[test]
fn no_second_stream_comes_behind_closing() {
    let mut scene = scene();
    // Part of a record, so that it stays among those that are looked at.
    let mut second = scene.second(scene.ticket);
    second.write_all(&[50, 0]).unwrap();
    scene.server.progress();
    let closing = Header { kind: Kind::Closing, len: 0, ack: 0 };
    scene.first.write_all(&closing.bytes()).unwrap();
    until(&mut scene.server, |_| is_closed(&mut second).then_some(()));
    for _ in 0..3 {
        let mut again = scene.second(scene.ticket);
        let _ = again.write_all(&[50, 0]);
        until(&mut scene.server, |_| is_closed(&mut again).then_some(()));
    }
    assert_eq!(scene.drops("bad-second-stream"), 3);
}

/// Nobody closes twice.
#[test]
fn closing_is_said_once() {
    let mut scene = scene();
    let closing = Header { kind: Kind::Closing, len: 0, ack: 0 };
    scene.first.write_all(&[closing.bytes(), closing.bytes()].concat()).unwrap();
    until(&mut scene.server, |_| is_closed(&mut scene.first).then_some(()));
    assert_eq!(scene.drops("bad-record"), 1);
}
