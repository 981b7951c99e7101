//! The tests of directories of services in etcd, for which the feature `etcd` of `cci-ripc` is built.

use crate::process::{Tally, cargo, run_tests};
use crate::workspace::Workspace;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Processor time, several times what building and running take.
const LIMIT: Duration = Duration::from_secs(15 * 60);
/// Commands that must succeed, what each is needed for, and Debian's packages that have them.
const NEEDED: &[(&[&str], &str, &str)] = &[
    // It compiles one of the files that etcd's own import: Debian's compiler comes without them.
    (
        &["protoc", "--descriptor_set_out=/dev/null", "google/protobuf/struct.proto"],
        "to build etcd's client",
        "protobuf-compiler libprotobuf-dev",
    ),
    (&["etcd", "--version"], "for the tests to start, kill and stop", "etcd-server"),
];

/// Builds and runs them, in the target folder of the workspace's tests, whose dependencies are there. Without the programs that they need
/// they are skipped, which is printed.
pub fn test(workspace: &Workspace) -> Tally {
    if let Some((command, why, packages)) = NEEDED.iter().find(|(command, ..)| !succeeds(command)) {
        println!(
            "--- etcd: skipped, `{}` fails, which is needed {why} (apt-get install {packages})",
            command.join(" ")
        );
        return Tally::default();
    }
    let mut tests = cargo(&["test", "--locked", "-p", "cci-ripc", "--features", "etcd"]);
    tests.args(["--test", "directory_etcd"]).env("CARGO_TARGET_DIR", &workspace.target);
    run_tests("etcd", &mut tests, LIMIT)
}

fn succeeds(command: &[&str]) -> bool {
    let mut run = Command::new(command[0]);
    run.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    run.status().is_ok_and(|status| status.success())
}
