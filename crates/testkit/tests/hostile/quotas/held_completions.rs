//! Completions that wait their turn behind a long operation, on a reliable ordered connection, count against that connection
//! only: sends to other peers go on.

use super::scene::{HONEST, PATIENCE, SILENT, Scene};
use cci::{Rma, RmaFlags, RmaKind, Status};
use std::time::Instant;

/// The long operation reads the same memory so often: more than any device moves in this test.
const SEGMENTS: usize = 1_024;
const SEGMENT_BYTES: usize = 16 << 20;
/// Sends behind it are tried until this many turns in a row brought neither room nor a completion.
const QUIET_TURNS_MAX: u32 = 500;
/// What has to get through to the honest peer meanwhile.
const HONEST_SENDS: u64 = 1_000;
/// The context of the long operation; sends behind it count up from there.
const LONG: u64 = 1 << 32;

fn held_completions_stop_nobody_else(name: &str) {
    let Some(mut scene) = Scene::open(name) else { return };
    let memories = scene.memories(SILENT, SEGMENT_BYTES);
    let [local, remote] = memories.segments(SEGMENTS, SEGMENT_BYTES as u64);
    let (kind, flags) = (RmaKind::Read, RmaFlags::NONE);
    let long = Rma { kind, local: &local, remote: &remote, message: None, context: LONG, flags };
    scene.server.rma(scene.connections[SILENT], &long).unwrap();
    let started = Instant::now();

    // As many sends behind it as are taken. They are acknowledged, and can't be reported before the operation is.
    let (mut behind, mut quiet_turns) = (0, 0);
    while quiet_turns < QUIET_TURNS_MAX {
        assert!(started.elapsed() < PATIENCE, "{behind} sends behind the operation");
        let before = behind;
        while scene.send(SILENT, LONG + behind + 1) {
            behind += 1;
        }
        scene.turn(&[SILENT, HONEST]);
        assert!(scene.completions.is_empty(), "the operation is over too soon for this test");
        quiet_turns = if behind == before { quiet_turns + 1 } else { 0 };
    }
    println!("{name}: {behind} sends behind the operation");
    assert!(behind > 10_000, "only {behind}: what holds them is not the operation");

    // The honest peer's turn: the other does nothing now, so that its operation stays as it is.
    for context in 0..HONEST_SENDS {
        assert!(scene.send(HONEST, context), "send {context} to the honest peer would block");
        while scene
            .completions
            .pop_front()
            .is_none_or(|completions| completions != (context, Status::Success))
        {
            assert!(started.elapsed() < PATIENCE, "send {context} to the honest peer");
            scene.turn(&[HONEST]);
        }
    }

    // The operation ends, as its memory goes. All that was held is reported, once and in order.
    scene.peers[SILENT].deregister(&memories.remote_handle).unwrap();
    let mut next = 0;
    while next <= behind {
        assert!(started.elapsed() < PATIENCE, "{next} of {behind} were reported");
        scene.turn(&[SILENT, HONEST]);
        while let Some(completions) = scene.completions.pop_front() {
            let status = if next == 0 { Status::RmaHandle } else { Status::Success };
            assert_eq!(completions, (LONG + next, status));
            next += 1;
        }
    }
    scene.turn(&[SILENT, HONEST]);
    assert!(scene.completions.is_empty());
    assert!(scene.send(SILENT, 0), "it may go on");
}

tests! {
    fn held_completions_stop_nobody_else_on_shm() = held_completions_stop_nobody_else("shm-ring");
    fn held_completions_stop_nobody_else_on_udp() = held_completions_stop_nobody_else("udp");
    fn held_completions_stop_nobody_else_on_tcp() = held_completions_stop_nobody_else("tcp");
    fn held_completions_stop_nobody_else_on_eth() = held_completions_stop_nobody_else("eth");
}
