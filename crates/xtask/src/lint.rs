//! What must hold of the code besides its tests.

use crate::bpf;
use crate::features;
use crate::process::{self, cargo, succeeds};
use crate::tidy;
use std::process::Command;
use std::time::Duration;

/// Runs every lint, also after one has failed: one run should show everything that is wrong.
pub fn run() -> Result<(), String> {
    let steps: [fn() -> Result<(), String>; 7] =
        [format, tidy::run, bpf::check, clippy, features::check, docs, deny];
    let failures: Vec<String> = steps.iter().filter_map(|step| step().err()).collect();
    if failures.is_empty() {
        println!("lints: all passed");
        return Ok(());
    }
    Err(format!("lints failed:\n  {}", failures.join("\n  ")))
}

fn format() -> Result<(), String> {
    process::run("rustfmt", &mut cargo(&["fmt", "--all", "--check"]))
}

fn clippy() -> Result<(), String> {
    process::run(
        "clippy",
        &mut cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]),
    )
}

fn docs() -> Result<(), String> {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"]);
    process::run("rustdoc", command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Licences, sources, duplicates, and known vulnerabilities when their database can be had.
fn deny() -> Result<(), String> {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    if !succeeds(&mut cargo(&["deny", "--version"]), minutes(1)) {
        // Unoptimised: it runs for a second, and compiling it is what takes the time.
        let mut install = cargo(&["install", "--locked", "--debug", "cargo-deny"]);
        install.env_remove("CARGO_TARGET_DIR");
        if let Err(reason) = process::run("installing cargo-deny", &mut install) {
            println!("--- cargo-deny: skipped, {reason}");
            return Ok(());
        }
    }
    process::run("cargo-deny", &mut cargo(&["deny", "--locked", "check", "bans", "licenses", "sources"]))?;
    let mut fetch = Command::new("cargo");
    if succeeds(fetch.args(["deny", "fetch", "db"]), minutes(2)) {
        process::run(
            "cargo-deny advisories",
            &mut cargo(&["deny", "--locked", "check", "advisories", "--disable-fetch"]),
        )
    } else {
        println!("--- cargo-deny advisories: skipped, the database can't be reached");
        Ok(())
    }
}
