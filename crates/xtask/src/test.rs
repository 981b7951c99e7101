//! All tests, in one command: the workspace's own, then the model checkers on cci-memory, and instructions counted.

use crate::counts;
use crate::devices;
use crate::fuzz;
use crate::process::{Tally, cargo, run_tests};
use crate::reliability;
use crate::sanitize;
use crate::toolchain::{have_miri, nightly};
use crate::workspace::Workspace;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// Nothing may hang CI: each step has its end, several times what it takes.
const WORKSPACE_LIMIT: Duration = MINUTE.saturating_mul(50);
const LOOM_LIMIT: Duration = MINUTE.saturating_mul(10);
const MIRI_LIMIT: Duration = MINUTE.saturating_mul(12);

/// Proptest takes its seed from here.
const PROPERTY_SEED: &str = "PROPTEST_RNG_SEED";

/// Runs them all; the last line on standard output is `N passed, N failed`.
pub fn run() -> Result<(), String> {
    let workspace = Workspace::load()?;
    let mut tally = Tally::default();
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast", "--locked"]);
    // What properties are tried on follows from a seed, so that a change that passes once passes again. `cargo test` by hand draws
    // anew each time.
    if std::env::var_os(PROPERTY_SEED).is_none() {
        tests.env(PROPERTY_SEED, "16");
    }
    let report = devices::record(&workspace, &mut tests)?;
    let figures = reliability::record(&workspace, &mut tests)?;
    tally.add(run_tests("tests", &mut tests, WORKSPACE_LIMIT));
    // The table of devices is a test of its own: what it says is what ran.
    match devices::check(&workspace, &report) {
        Ok(()) => tally.passed += 1,
        Err(_) => tally.failed += 1,
    }
    tally.add(loom(&workspace));
    tally.add(miri(&workspace));
    tally.add(fuzz::test(&workspace));
    tally.add(sanitize::test(&workspace, sanitize::IN_CI));
    tally.add(counts::test(&workspace));
    reliability::print(&figures);
    if tally.ignored > 0 {
        println!("({} tests are marked ignored)", tally.ignored);
    }
    println!("{tally}");
    if tally.failed == 0 { Ok(()) } else { Err(format!("{} tests failed", tally.failed)) }
}

/// Every interleaving of the ring's and the pool's operations. In a target directory of its own: the flag applies
/// to the whole build graph and would otherwise rebuild everything twice.
fn loom(workspace: &Workspace) -> Tally {
    if !workspace.root.join("crates/memory/tests/loom.rs").exists() {
        println!("--- loom: skipped, crates/memory/tests/loom.rs is not there");
        return Tally::default();
    }
    let mut command = cargo(&["test", "-p", "cci-memory", "--release", "--locked", "--test", "loom"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", workspace.target.join("loom"));
    run_tests("loom", &mut command, LOOM_LIMIT)
}

/// Of `cci-proto`, what the interpreter gets through in time, by the names of its modules: no whole endpoints, no properties.
const MIRI_PROTO: &[&str] = &[
    "address::",
    "conn::state",
    "conn::table",
    "counters::",
    "pool::",
    "reliable::rtt",
    "reliable::sends",
    "secret::",
    "time::",
];

/// The unsafe code of `cci-memory` under an interpreter that knows undefined behaviour, and the arithmetic of the protocol.
/// Needs a nightly toolchain.
fn miri(workspace: &Workspace) -> Tally {
    if let Err(reason) = have_miri() {
        println!("--- miri: skipped, {reason}");
        return Tally::default();
    }
    let mut tally = Tally::default();
    let mut memory = nightly(&["cargo", "miri", "test", "--locked", "-p", "cci-memory"]);
    memory.env("CARGO_TARGET_DIR", workspace.target.join("miri"));
    tally.add(run_tests("miri on memory", &mut memory, MIRI_LIMIT));
    let mut proto = nightly(&["cargo", "miri", "test", "--locked", "-p", "cci-proto", "--lib", "--"]);
    // One of them reads a file.
    proto.args(MIRI_PROTO).env("MIRIFLAGS", "-Zmiri-disable-isolation");
    proto.env("CARGO_TARGET_DIR", workspace.target.join("miri"));
    tally.add(run_tests("miri on proto", &mut proto, MIRI_LIMIT));
    tally
}
