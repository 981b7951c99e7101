//! Inputs that fuzzing found worth keeping, without cargo-fuzz: what was once found stays found.

#[path = "../../../fuzz/replay.rs"]
mod replay;

use cci_testkit::{figures, fuzz};

#[test]
fn kept_inputs_harm_nobody() {
    for (name, run) in fuzz::TARGETS {
        let count = replay::replay(name, run);
        println!("{name}: {count} inputs");
        figures::note("fuzz.inputs_kept", count);
    }
}
