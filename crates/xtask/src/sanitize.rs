//! `cargo xtask sanitize`: the C test programs with the compilers' sanitizers, the library built with the same.
//!
//! The library is linked statically, and with it the runtime that comes with rustc: two runtimes in one process would not
//! know of each other. Nothing is suppressed.

use crate::process::{Tally, run_quietly};
use crate::toolchain::{have_nightly, nightly};
use crate::workspace::Workspace;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const BUILD_LIMIT: Duration = MINUTE.saturating_mul(25);
/// What the programs run on, as in the tests of cci-capi.
const CONFIG: &str = "[shm]\ntransport = shm\n\n[udp]\ntransport = udp\nip = 127.0.0.1\n";

/// One of the sanitizers.
struct Sanitizer {
    name: &'static str,
    /// Of the Rust side.
    rust_flags: &'static str,
    /// The standard library has to be built with it, too.
    builds_std: bool,
    /// Of the C side.
    c_flags: &'static [&'static str],
    /// The runtime that comes with rustc, by the end of its file's name; else the C compiler's.
    runtime: Option<&'static str>,
    environment: (&'static str, &'static str),
    programs: &'static [(&'static str, &'static [&'static str])],
}

/// Every program, with locks and without.
const ALL: &[(&str, &[&str])] = &[
    ("calls", &["shm"]),
    ("calls", &["udp"]),
    ("requests", &["shm"]),
    ("requests", &["udp", "single"]),
    ("buffers", &["shm"]),
    ("buffers", &["udp"]),
    ("exchange", &["shm", "single"]),
    ("exchange", &["udp"]),
    ("threads", &["shm"]),
    ("threads", &["udp"]),
    ("rma", &["shm"]),
    ("rma", &["udp", "single"]),
    ("progress", &["shm"]),
    ("progress", &["udp"]),
    ("regions", &["shm", "single"]),
    ("regions", &["udp"]),
    ("multicast", &["udp"]),
    ("security", &["udp"]),
];

/// Those in which several threads use one endpoint.
const THREADED: &[(&str, &[&str])] = &[
    ("threads", &["shm"]),
    ("threads", &["udp"]),
    ("progress", &["shm"]),
    ("progress", &["udp"]),
    ("exchange", &["shm"]),
    ("rma", &["udp"]),
];

const SANITIZERS: &[Sanitizer] = &[
    Sanitizer {
        name: "address",
        // Undefined behaviour too: one build for both.
        rust_flags: "-Zsanitizer=address -Zub-checks=yes",
        builds_std: false,
        c_flags: &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        runtime: Some("_rt.asan.a"),
        environment: ("ASAN_OPTIONS", "detect_stack_use_after_return=1:strict_string_checks=1"),
        programs: ALL,
    },
    Sanitizer {
        name: "undefined",
        // What the standard library's unsafe functions ask of their callers is checked with debug assertions.
        rust_flags: "-Zub-checks=yes",
        builds_std: false,
        c_flags: &["-fsanitize=undefined", "-fno-sanitize-recover=all"],
        runtime: None,
        environment: ("UBSAN_OPTIONS", "print_stacktrace=1"),
        programs: ALL,
    },
    Sanitizer {
        name: "thread",
        rust_flags: "-Zsanitizer=thread",
        builds_std: true,
        c_flags: &["-fsanitize=thread"],
        runtime: Some("_rt.tsan.a"),
        environment: ("TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1"),
        programs: THREADED,
    },
];

/// What they are called.
pub fn names() -> Vec<&'static str> {
    SANITIZERS.iter().map(|sanitizer| sanitizer.name).collect()
}

/// One of them, or all.
pub fn run(chosen: Option<&str>) -> Result<(), String> {
    let mut names = names();
    names.retain(|name| chosen.is_none_or(|chosen| chosen == *name));
    let tally = test(&Workspace::load()?, &names);
    println!("{tally}");
    if tally.failed == 0 { Ok(()) } else { Err(format!("{} programs failed", tally.failed)) }
}

/// These sanitizers; each run of a program counts as a test. Skipped where there is no nightly toolchain.
pub fn test(workspace: &Workspace, names: &[&str]) -> Tally {
    let mut tally = Tally::default();
    let host = match have_nightly() {
        Ok(host) => host,
        Err(reason) => {
            println!("--- sanitize: skipped, {reason}");
            return tally;
        }
    };
    for sanitizer in SANITIZERS.iter().filter(|sanitizer| names.contains(&sanitizer.name)) {
        match one(workspace, &host, sanitizer) {
            Ok(more) => tally.add(more),
            Err(reason) => {
                println!("--- sanitize {}: FAILED: {reason}", sanitizer.name);
                tally.failed += 1;
            }
        }
    }
    tally.print();
    tally
}

fn one(workspace: &Workspace, host: &str, sanitizer: &Sanitizer) -> Result<Tally, String> {
    let home = workspace.target.join("sanitize").join(sanitizer.name);
    let started = Instant::now();
    let library = library(workspace, host, sanitizer, &home)?;
    println!("--- sanitize {}: built in {:.0} s", sanitizer.name, started.elapsed().as_secs_f64());
    let config = home.join("cci.ini");
    fs::write(&config, CONFIG).map_err(|error| format!("{}: {error}", config.display()))?;
    let mut tally = Tally::default();
    for (name, arguments) in sanitizer.programs {
        let program = compile(workspace, host, sanitizer, &home, &library, name)?;
        let what = format!("{name} {}", arguments.join(" "));
        let (option, value) = sanitizer.environment;
        // Its findings go to standard error, which is this program's.
        let mut command = Command::new(&program);
        command.args(*arguments).env("CCI_CONFIG", &config).env(option, value);
        match run_quietly(&what, &mut command, MINUTE.saturating_mul(3)) {
            Ok(lines) if lines.iter().any(|line| line.contains("all well")) => tally.passed += 1,
            Ok(lines) => {
                println!("--- sanitize {}: {what}: FAILED:\n{}", sanitizer.name, lines.join("\n"));
                tally.failed += 1;
            }
            Err(reason) => {
                println!("--- sanitize {}: FAILED: {reason}", sanitizer.name);
                tally.failed += 1;
            }
        }
    }
    println!("--- sanitize {}: {tally} after {:.0} s", sanitizer.name, started.elapsed().as_secs_f64());
    Ok(tally)
}

/// The library, static.
fn library(workspace: &Workspace, host: &str, sanitizer: &Sanitizer, home: &Path) -> Result<PathBuf, String> {
    let mut build = nightly(&["cargo", "build", "--quiet", "--locked", "-p", "cci-capi", "--lib"]);
    build.args(["--target", host]).current_dir(&workspace.root);
    if sanitizer.builds_std {
        build.arg("-Zbuild-std");
    }
    build.env("CARGO_TARGET_DIR", home).env("RUSTFLAGS", sanitizer.rust_flags);
    // Building is what takes the time: twice as long with the usual optimisation.
    build.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    run_quietly("building the library", &mut build, BUILD_LIMIT)?;
    Ok(home.join(host).join("debug/libcci_capi.a"))
}

fn compile(
    workspace: &Workspace,
    host: &str,
    sanitizer: &Sanitizer,
    home: &Path,
    library: &Path,
    name: &str,
) -> Result<PathBuf, String> {
    let capi = workspace.root.join("crates/capi");
    let (object, program) = (home.join(format!("{name}.o")), home.join(name));
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-fno-omit-frame-pointer", "-c", "-I"]);
    compile.arg(capi.join("include")).args(sanitizer.c_flags);
    compile.arg(capi.join("tests/c").join(format!("{name}.c"))).arg("-o").arg(&object);
    run_quietly(&format!("compiling {name}.c"), &mut compile, MINUTE)?;
    let mut link = Command::new("cc");
    link.arg(&object).arg(library).arg("-o").arg(&program);
    match sanitizer.runtime {
        Some(end) => {
            let runtime = runtime(host, end)?;
            link.arg("-Wl,--whole-archive")
                .arg(runtime)
                .arg("-Wl,--no-whole-archive")
                .arg("-Wl,--export-dynamic");
        }
        None => {
            link.args(sanitizer.c_flags);
        }
    }
    link.args(["-lpthread", "-ldl", "-lm", "-lrt", "-lgcc_s"]);
    run_quietly(&format!("linking {name}"), &mut link, MINUTE)?;
    Ok(program)
}

/// The sanitizer's runtime that comes with rustc.
fn runtime(host: &str, end: &str) -> Result<PathBuf, String> {
    let output = nightly(&["rustc", "--print", "sysroot"]).output().map_err(|error| error.to_string())?;
    let root = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let folder = Path::new(&root).join("lib/rustlib").join(host).join("lib");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let found =
        entries.flatten().map(|entry| entry.path()).find(|path| path.to_string_lossy().ends_with(end));
    found.ok_or_else(|| format!("no runtime *{end} in {}", folder.display()))
}
