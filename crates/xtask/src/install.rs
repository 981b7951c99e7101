//! `cargo xtask install --prefix DIR`: what a C program and a person at a shell need, with nothing but cargo and a
//! C linker.

use crate::process::{self, cargo};
use crate::workspace::Workspace;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The number in the shared library's soname; it changes when the C interface breaks.
const SONAME: &str = "libcci.so.2";

/// Shell, and where below the prefix its completions live.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/cci"),
    ("zsh", "share/zsh/site-functions/_cci"),
    ("fish", "share/fish/vendor_completions.d/cci.fish"),
];

/// Builds with this profile of Cargo.toml, unless that is done, and installs below `prefix`.
pub fn run(prefix: &Path, profile: &str, is_built: bool) -> Result<(), String> {
    let workspace = Workspace::load()?;
    if !is_built {
        let mut build =
            cargo(&["build", "--profile", profile, "--locked", "-p", "cci-capi", "-p", "cci-cli"]);
        process::run("build", &mut build)?;
    }
    fs::create_dir_all(prefix).map_err(|error| format!("{}: {error}", prefix.display()))?;
    let prefix = prefix.canonicalize().map_err(|error| format!("{}: {error}", prefix.display()))?;
    // Cargo's folder of the profile `dev` has another name.
    let built = workspace.target.join(if profile == "dev" { "debug" } else { profile });
    let capi = workspace.root.join("crates/capi");

    put(&built.join("libcci_capi.so"), &prefix.join("lib").join(SONAME), 0o755)?;
    link(SONAME, &prefix.join("lib/libcci.so"))?;
    put(&built.join("libcci_capi.a"), &prefix.join("lib/libcci.a"), 0o644)?;
    for header in headers(&capi.join("include"))? {
        let name = header.file_name().unwrap_or_default().to_owned();
        put(&header, &prefix.join("include").join(name), 0o644)?;
    }
    for name in ["acp", "cci", "ccs", "ripc"] {
        pkg_config(&capi.join(format!("{name}.pc.in")), name, &prefix)?;
    }
    put(&built.join("cci"), &prefix.join("bin/cci"), 0o755)?;
    completions(&prefix)
}

fn headers(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut headers: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    headers.retain(|path| path.extension().is_some_and(|extension| extension == "h"));
    headers.sort();
    if headers.is_empty() { Err(format!("{}: no header", folder.display())) } else { Ok(headers) }
}

/// Copies under a temporary name and renames: a running program goes on using the old file.
fn put(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let content = fs::read(from).map_err(|error| format!("{}: {error}", from.display()))?;
    write(&content, to, mode)
}

fn write(content: &[u8], to: &Path, mode: u32) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", to.display());
    let temporary = to.with_extension("new");
    fs::create_dir_all(to.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    fs::write(&temporary, content).map_err(failed)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(mode)).map_err(failed)?;
    fs::rename(&temporary, to).map_err(failed)?;
    println!("installed {}", to.display());
    Ok(())
}

fn link(target: &str, at: &Path) -> Result<(), String> {
    let temporary = at.with_extension("new");
    let failed = |error: std::io::Error| format!("{}: {error}", at.display());
    let _ = fs::remove_file(&temporary);
    std::os::unix::fs::symlink(target, &temporary).map_err(failed)?;
    fs::rename(&temporary, at).map_err(failed)?;
    println!("installed {} -> {target}", at.display());
    Ok(())
}

/// Fills in `@PREFIX@` and `@VERSION@`.
fn pkg_config(template: &Path, name: &str, prefix: &Path) -> Result<(), String> {
    let text = fs::read_to_string(template).map_err(|error| format!("{}: {error}", template.display()))?;
    let prefix_text = prefix.to_str().ok_or("the prefix is not UTF-8")?;
    let text = text.replace("@PREFIX@", prefix_text).replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    if let Some(line) = text.lines().find(|line| line.contains('@')) {
        return Err(format!("{}: nothing to fill in for {line:?}", template.display()));
    }
    write(text.as_bytes(), &prefix.join(format!("lib/pkgconfig/{name}.pc")), 0o644)
}

/// Asks the command itself.
fn completions(prefix: &Path) -> Result<(), String> {
    for (shell, path) in COMPLETIONS {
        let output = Command::new(prefix.join("bin/cci"))
            .args(["completions", shell])
            .output()
            .map_err(|error| format!("bin/cci: {error}"))?;
        if output.status.success() && !output.stdout.is_empty() {
            write(&output.stdout, &prefix.join(path), 0o644)?;
        }
    }
    Ok(())
}
