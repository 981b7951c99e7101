//! The tests of directories of services in etcd, for which the feature `etcd` of `cci-ripc` is built.

use crate::process::{Tally, cargo, run_tests};
use crate::workspace::Workspace;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Processor time, several times what building and running take.
const LIMIT: Duration = Duration::from_secs(15 * 60);
/// Programs that are needed, what for, and Debian's packages that have them.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("protoc", "to build etcd's client", "protobuf-compiler"),
    ("etcd", "which the tests start, kill and stop", "etcd-server"),
];

/// Builds and runs them, in the target folder of the workspace's tests, whose dependencies are there. Without the programs that they need
/// they are skipped, which is printed.
pub fn test(workspace: &Workspace) -> Tally {
    if let Some((program, why, package)) = PROGRAMS.iter().find(|(program, ..)| !is_there(program)) {
        println!("--- etcd: skipped, no {program}, {why} (apt-get install {package})");
        return Tally::default();
    }
    let mut tests = cargo(&["test", "--locked", "-p", "cci-ripc", "--features", "etcd"]);
    tests.args(["--test", "directory_etcd"]).env("CARGO_TARGET_DIR", &workspace.target);
    run_tests("etcd", &mut tests, LIMIT)
}

fn is_there(program: &str) -> bool {
    let mut version = Command::new(program);
    version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}
