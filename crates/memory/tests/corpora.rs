//! Inputs that fuzzing found worth keeping, without cargo-fuzz.
#![cfg(not(any(loom, miri)))]

mod common;
#[path = "common/hostile_bytes.rs"]
mod hostile_bytes;
#[path = "../../../fuzz/replay.rs"]
mod replay;

pub use common::Memory;

#[test]
fn kept_inputs_harm_nobody() {
    replay::replay("ring", hostile_bytes::ring);
}
