//! Builds the program that the kernel runs for raw Ethernet. Its object is committed, so that building CCI needs no
//! clang; this makes it, and checks that it is what its source says.

use crate::process;
use crate::workspace::Workspace;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "crates/sys/src/xdp";
const SOURCE: &str = "steer.c";
const OBJECT: &str = "steer.o";
/// Others make another object of the same source, which is no worse but cannot be compared.
const CLANG_MAJOR: u32 = 14;
const FLAGS: &[&str] = &["-O2", "-g0", "-fno-ident", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-c"];

/// Makes the object anew.
pub fn build() -> Result<(), String> {
    let folder = Workspace::load()?.root.join(FOLDER);
    if let Err(reason) = clang() {
        return Err(format!("{reason}; install clang {CLANG_MAJOR}"));
    }
    compile(&folder, Path::new(OBJECT))
}

/// Fails if the object is not what its source makes; skips, with a reason, without the right clang.
pub fn check() -> Result<(), String> {
    let workspace = Workspace::load()?;
    if let Err(reason) = clang() {
        println!("--- bpf: skipped, {reason}");
        return Ok(());
    }
    let folder = workspace.root.join(FOLDER);
    let made = workspace.target.join(OBJECT);
    std::fs::create_dir_all(&workspace.target).map_err(|error| format!("bpf: {error}"))?;
    compile(&folder, &made)?;
    let read = |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    if read(&made)? == read(&folder.join(OBJECT))? {
        Ok(())
    } else {
        Err(format!("{FOLDER}/{OBJECT} is not what {SOURCE} makes: run `cargo xtask bpf` and commit it"))
    }
}

fn compile(folder: &Path, to: &Path) -> Result<(), String> {
    // From the folder: the object holds the name of the source as it is given.
    process::run("bpf", Command::new("clang").current_dir(folder).args(FLAGS).arg(SOURCE).arg("-o").arg(to))
}

/// Whether the right clang is there, else why not.
fn clang() -> Result<(), String> {
    let output =
        Command::new("clang").arg("--version").output().map_err(|error| format!("clang: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match major(&text) {
        Some(CLANG_MAJOR) => Ok(()),
        Some(other) => Err(format!("clang is version {other}, and the object was made by {CLANG_MAJOR}")),
        None => Err("clang does not say its version".to_owned()),
    }
}

/// The first number after "version".
fn major(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("version ")?;
    rest.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn versions_are_read() {
        assert_eq!(major("Debian clang version 14.0.6\nTarget: x"), Some(14));
        assert_eq!(major("clang version 19.1.7 (++2025)"), Some(19));
        assert_eq!(major("gcc"), None);
    }
}
