//! Messages and segments of remote operations with a peer that is silent leave half of what is kept for them to others.

use super::scene::{HONEST, Memories, PATIENCE, SILENT, Scene};
use cci::{Rma, RmaError, RmaFlags, RmaKind, Status};
use std::time::Instant;

/// Operations with the silent peer are tried until this many turns in a row had none taken.
const QUIET_TURNS_MAX: u32 = 500;
/// What has to be done with the honest peer meanwhile.
const HONEST_OPERATIONS: u64 = 200;
/// The context of the first operation with the silent peer.
const STUCK: u64 = 1 << 32;

/// What each operation is made of.
#[derive(Copy, Clone)]
struct Shape {
    segments: usize,
    message_bytes: usize,
}

fn start(scene: &mut Scene, peer: usize, memories: &Memories, shape: Shape, context: u64) -> bool {
    let ([local, remote], message) = (memories.segments(shape.segments, 8), vec![7; shape.message_bytes]);
    let message = (shape.message_bytes > 0).then_some(&message[..]);
    let (kind, flags) = (RmaKind::Write, RmaFlags::NONE);
    let rma = Rma { kind, local: &local, remote: &remote, message, context, flags };
    match scene.server.rma(scene.connections[peer], &rma) {
        Ok(()) => true,
        Err(RmaError::WouldBlock) => false,
        Err(other) => panic!("{other}"),
    }
}

/// How many operations with a silent peer are taken, while others are not kept from theirs.
fn operations_leave_their_share(name: &str, shape: impl FnOnce(&Scene) -> Shape) -> u64 {
    let Some(mut scene) = Scene::open(name) else { return 0 };
    let shape = shape(&scene);
    let memories = [SILENT, HONEST].map(|peer| scene.memories(peer, 4_096));
    let started = Instant::now();
    let (mut stuck, mut quiet_turns) = (0, 0);
    while quiet_turns < QUIET_TURNS_MAX {
        assert!(started.elapsed() < PATIENCE, "{stuck} operations");
        let before = stuck;
        while start(&mut scene, SILENT, &memories[SILENT], shape, STUCK + stuck) {
            stuck += 1;
        }
        scene.turn(&[HONEST]);
        quiet_turns = if stuck == before { quiet_turns + 1 } else { 0 };
    }
    println!(
        "{name}: {stuck} operations of {} segments and {} bytes are stuck",
        shape.segments, shape.message_bytes
    );
    for context in 0..HONEST_OPERATIONS {
        let taken = start(&mut scene, HONEST, &memories[HONEST], shape, context);
        assert!(taken, "operation {context} with the honest peer would block: {stuck} others are stuck");
        while scene
            .completions
            .pop_front()
            .is_none_or(|completions| completions != (context, Status::Success))
        {
            assert!(started.elapsed() < PATIENCE, "operation {context} with the honest peer");
            scene.turn(&[HONEST]);
        }
    }
    // What was stuck goes on when its peer does.
    for context in STUCK..STUCK + stuck {
        while scene
            .completions
            .pop_front()
            .is_none_or(|completions| completions != (context, Status::Success))
        {
            assert!(started.elapsed() < PATIENCE, "operation {context}");
            scene.turn(&[SILENT, HONEST]);
        }
    }
    assert!(start(&mut scene, SILENT, &memories[SILENT], shape, 0));
    stuck
}

/// Each with the longest message there is.
fn messages_leave_their_share(name: &str) {
    operations_leave_their_share(name, |scene| {
        let longest = scene.server.max_send_size(scene.connections[SILENT]).unwrap();
        Shape { segments: 1, message_bytes: longest as usize }
    });
}

/// Each with as many segments as there may be.
fn segments_leave_their_share(name: &str) {
    operations_leave_their_share(name, |_| Shape { segments: 1_024, message_bytes: 0 });
}

tests! {
    fn messages_leave_their_share_on_shm() = messages_leave_their_share("shm-ring");
    fn messages_leave_their_share_on_tcp() = messages_leave_their_share("tcp");
    fn messages_leave_their_share_on_udp() = messages_leave_their_share("udp");
    fn messages_leave_their_share_on_eth() = messages_leave_their_share("eth");
    fn segments_leave_their_share_on_shm() = segments_leave_their_share("shm-ring");
    fn segments_leave_their_share_on_tcp() = segments_leave_their_share("tcp");
    fn segments_leave_their_share_on_udp() = segments_leave_their_share("udp");
    fn segments_leave_their_share_on_eth() = segments_leave_their_share("eth");
}
