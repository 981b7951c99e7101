//! Code under an interpreter that knows undefined behaviour. Needs a nightly toolchain.

use crate::process::{Tally, run_tests};
use crate::toolchain::{have_miri, nightly};
use crate::workspace::Workspace;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(12 * 60);

/// Of `cci-proto`, what the interpreter gets through in time, by the names of its modules: no whole endpoints, no properties.
const PROTO: &[&str] = &[
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

/// The unsafe code of `cci-memory`.
pub fn memory(workspace: &Workspace) -> Tally {
    let mut tests = nightly(&["cargo", "miri", "test", "--locked", "-p", "cci-memory"]);
    interpret(workspace, "miri on memory", &mut tests)
}

/// The arithmetic of the protocol. Its crate has no unsafe code, so each run of all tests can do without.
pub fn proto(workspace: &Workspace) -> Tally {
    let mut tests = nightly(&["cargo", "miri", "test", "--locked", "-p", "cci-proto", "--lib", "--"]);
    // One of them reads a file.
    tests.args(PROTO).env("MIRIFLAGS", "-Zmiri-disable-isolation");
    interpret(workspace, "miri on proto", &mut tests)
}

fn interpret(workspace: &Workspace, name: &str, tests: &mut Command) -> Tally {
    if let Err(reason) = have_miri() {
        println!("--- miri: skipped, {reason}");
        return Tally::default();
    }
    run_tests(name, tests.env("CARGO_TARGET_DIR", workspace.target.join("miri")), LIMIT)
}
