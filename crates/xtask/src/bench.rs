//! The benchmark: built for release and run, with all arguments passed on.

use crate::process::{self, cargo};

/// Runs it.
pub fn run(options: &[String]) -> Result<(), String> {
    // For the rows of the C interface: the shared library beside the program.
    process::run("libcci", &mut cargo(&["build", "--release", "--locked", "-q", "-p", "cci-capi", "--lib"]))?;
    // For rows that start jobs: the launcher beside the program.
    process::run("cci", &mut cargo(&["build", "--release", "--locked", "-q", "-p", "cci-cli", "--bins"]))?;
    let mut command = cargo(&["run", "--release", "--locked", "-q", "-p", "cci-bench", "--"]);
    process::run("bench", command.args(options))
}
