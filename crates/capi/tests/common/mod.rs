//! Builds the libraries and C programs against them, as a program outside this repository would.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// What the suite's C programs run on.
pub const CONFIG: &str = "[shm]\ntransport = shm\n\n[udp]\ntransport = udp\nip = 127.0.0.1\n";

/// Where the header and the sources are.
pub fn package_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Cargo, as a person would run it: without what it says in the environment of the package that it tests. Build scripts watch these
/// variables: where they differ from one cargo command to the next, half of the workspace is compiled again.
pub fn cargo() -> Command {
    let mut command = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let of_package = ["CARGO_MANIFEST_", "CARGO_PKG_"];
        if name.to_str().is_some_and(|name| of_package.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
    command
}

/// The program `xtask`, where it runs these tests and has built the libraries and the command with them. Built anew, they would have other
/// features than all of the workspace together, and so would half of what they depend on.
pub fn xtask_that_built() -> Option<PathBuf> {
    std::env::var_os("CCI_XTASK").map(PathBuf::from)
}

/// A folder laid out like an installed prefix's `lib`: `libcci.so.2`, `libcci.so` and `libcci.a`.
pub fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder").to_owned();
        if xtask_that_built().is_none() {
            let mut build = cargo();
            // With the command, as `cargo xtask install` builds both: alone, the library would have what it depends on with other features.
            build
                .args(["build", "--quiet", "--locked", "-p", "cci-capi", "-p", "cci-cli", "--target-dir"])
                .arg(&target);
            succeed(build.current_dir(package_folder()));
        }
        let lib = scratch().join("lib");
        fs::create_dir_all(&lib).expect("a folder");
        let built = target.join("debug");
        for (name, leads_to) in [
            ("libcci.so.2", built.join("libcci_capi.so")),
            ("libcci.so", PathBuf::from("libcci.so.2")),
            ("libcci.a", built.join("libcci_capi.a")),
        ] {
            let link = lib.join(name);
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(leads_to, link).expect("a link");
        }
        lib
    })
}

/// The command, which is built with the libraries.
pub fn command() -> PathBuf {
    libraries();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
    target.join("debug/cci")
}

/// A folder of this test program's own.
pub fn scratch() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    let name = program.file_stem().expect("a name");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi").join(name);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// How a C program is linked.
#[derive(Copy, Clone, Debug)]
pub enum Linked {
    Shared,
    Static,
}

/// Compiles `tests/c/NAME.c`, warnings being errors; once, however many tests want it.
pub fn compile(name: &str, linked: Linked) -> PathBuf {
    static COMPILED: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = format!("{name}-{linked:?}");
    compiled.entry(key).or_insert_with(|| compile_now(name, linked)).clone()
}

fn compile_now(name: &str, linked: Linked) -> PathBuf {
    compile_file(&package_folder().join("tests/c").join(format!("{name}.c")), linked)
}

/// Compiles the part of the guide in C that begins so, between what is put around it.
pub fn compile_from_guide(begins: &str, around: [&str; 2]) {
    let guide = fs::read_to_string(package_folder().join("../../docs/guide.md")).expect("the guide");
    let part = guide.split("```c\n").find(|rest| rest.starts_with(begins));
    let part = part.and_then(|rest| rest.split("```").next()).expect("a part in C");
    let source = scratch().join(format!("guide-{}.c", part.len()));
    fs::write(&source, format!("{}{part}{}", around[0], around[1])).expect("a file");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
    succeed(cc.arg(package_folder().join("include")).arg(source));
}

/// Compiles any source file, warnings being errors.
pub fn compile_file(source: &Path, linked: Linked) -> PathBuf {
    let name = source.file_stem().and_then(OsStr::to_str).expect("a name");
    let program = scratch().join(format!("{name}-{linked:?}"));
    let lib = libraries();
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(package_folder().join("include"))
        .arg(source)
        .arg("-o")
        .arg(&program);
    match linked {
        Linked::Shared => cc.arg("-L").arg(lib).arg("-lcci").arg(format!("-Wl,-rpath,{}", lib.display())),
        // The libraries after it are `Libs.private` of cci.pc.
        Linked::Static => cc.arg(lib.join("libcci.a")).args(private_libraries()),
    };
    succeed(cc.arg("-lpthread"));
    program
}

/// `Libs.private` of `cci.pc.in`.
pub fn private_libraries() -> Vec<String> {
    let text = fs::read_to_string(package_folder().join("cci.pc.in")).expect("cci.pc.in");
    let line = text.lines().find_map(|line| line.strip_prefix("Libs.private:")).expect("Libs.private");
    line.split_whitespace().map(str::to_owned).collect()
}

/// Runs a command, which must succeed.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A configuration file for the C programs.
pub fn config() -> PathBuf {
    static CONFIG_FILE: OnceLock<PathBuf> = OnceLock::new();
    let write = || {
        let path = scratch().join("cci.ini");
        fs::write(&path, CONFIG).expect("a file");
        path
    };
    CONFIG_FILE.get_or_init(write).clone()
}

/// Runs a C test program, which must succeed.
pub fn run(program: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).env("CCI_CONFIG", config());
    finish(&mut command)
}

/// Runs a command, which must succeed; gives what it said.
pub fn finish(command: &mut Command) -> String {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // Seconds where the machine is quiet. Only a program that hangs takes so long.
    let in_time = wait(&mut child, Duration::from_secs(600));
    let output = child.wait_with_output().expect("its output");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(in_time, "{command:?} did not end:\n{text}");
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text.into_owned()
}

/// Waits for a child's end; kills it if that does not come in time, and says so by false.
pub fn wait(child: &mut Child, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    while child.try_wait().expect("its status").is_none() {
        if Instant::now() > until {
            let _ = child.kill();
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}
