//! The nightly toolchain, which miri, sanitizers and fuzzing need, and nothing that users build.

use crate::process::{forget_package, succeeds};
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Through rustup, not `cargo +nightly`: inside `cargo xtask` the name `cargo` may be the stable one itself.
pub fn nightly(words: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly"]).args(words);
    for set_by_cargo in ["CARGO", "RUSTC", "RUSTDOC", "RUSTFLAGS", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(set_by_cargo);
    }
    forget_package(&mut command);
    command
}

/// Makes sure that `works` does, installing the toolchain with miri and the standard library's source if it does not.
fn have(works: impl Fn() -> bool) -> bool {
    if works() {
        return true;
    }
    let mut add = Command::new("rustup");
    add.args(["toolchain", "install", "nightly", "--profile", "minimal", "-c", "miri", "-c", "rust-src"]);
    succeeds(&mut add, MINUTE.saturating_mul(5)) && works()
}

/// A nightly toolchain with miri.
pub fn have_miri() -> Result<(), &'static str> {
    let works = || succeeds(&mut nightly(&["cargo", "miri", "setup"]), MINUTE.saturating_mul(5));
    have(works).then_some(()).ok_or("no nightly toolchain with miri, and rustup could not install one")
}

/// A nightly toolchain with the source of the standard library; answers what the compiler builds for.
pub fn have_nightly() -> Result<String, &'static str> {
    let sysroot = || {
        let output = nightly(&["rustc", "--print", "sysroot"]).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let has_source =
        |root: String| std::path::Path::new(&root).join("lib/rustlib/src/rust/library/Cargo.lock").exists();
    if !have(|| sysroot().is_some_and(has_source)) {
        return Err("no nightly toolchain with rust-src, and rustup could not install one");
    }
    let output = nightly(&["rustc", "-vV"]).output().map_err(|_| "rustc does not run")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or("rustc does not say what it builds for")
}
