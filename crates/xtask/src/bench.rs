//! The benchmark: built for release and run, with all arguments passed on.

use crate::process::{self, cargo};

/// Runs it.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let mut command = cargo(&["run", "--release", "--locked", "-q", "-p", "cci-bench", "--"]);
    process::run("bench", command.args(arguments))
}
