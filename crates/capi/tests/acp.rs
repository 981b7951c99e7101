//! The C tests of ACP: programs that know `acp.h` and the library only, as the ranks of a job.
#![allow(clippy::unwrap_used, reason = "a test that can't start fails")]

mod common;
#[path = "../../am/tests/launch/mod.rs"]
mod launch;

use common::Linked;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Once;
use std::time::Duration;
use std::{env, fs};

/// The devices that go by the name `any`, which is what ACP opens.
const DEVICES: [&str; 4] = ["any", "shm", "udp", "tcp"];

/// A configuration file in which `any` is this device. All are written once, before anybody reads one.
fn config(transport: &str) -> PathBuf {
    static WRITTEN: Once = Once::new();
    let path = |transport: &str| common::scratch().join(format!("{transport}.ini"));
    WRITTEN.call_once(|| {
        for transport in DEVICES {
            let ip = if transport == "shm" { "" } else { "ip = 127.0.0.1\n" };
            fs::write(path(transport), format!("[any]\ntransport = {transport}\n{ip}")).unwrap();
        }
    });
    path(transport)
}

/// Runs a program as so many ranks on this device, with these arguments.
fn ranks_of(device: &str, name: &str, size: u32, arguments: &[String]) -> Vec<Output> {
    let (program, config) = (common::compile(name, Linked::Shared), config(device));
    let start = || {
        let mut command = Command::new(&program);
        command.args(arguments).env("CCI_CONFIG", &config);
        command
    };
    launch::launch(size, start)
}

/// Runs a program as so many ranks on this device, each of which must succeed, say this, and have nothing on standard error: the library prints nothing.
fn run_on(device: &str, name: &str, size: u32, arguments: &[String], says: &str) {
    let ranks = ranks_of(device, name, size, arguments);
    let is_well = |output: &Output| {
        let is_said = String::from_utf8_lossy(&output.stdout).contains(says);
        output.status.success() && is_said && output.stderr.is_empty()
    };
    // What the first one says may follow from what has happened to another one.
    assert!(ranks.iter().all(is_well), "{name} {arguments:?}, {device}, {size} ranks: {ranks:#?}");
}

/// Runs a program as so many ranks on every device.
fn run(name: &str, size: u32, says: &str) {
    for device in DEVICES {
        run_on(device, name, size, &[], says);
    }
}

#[test]
fn alone() {
    let output = common::finish(&mut Command::new(common::compile("acp_ranks", Linked::Static)));
    assert!(output.contains("acp_ranks: all well"), "{output}");
}

#[test]
fn ranks() {
    for size in [1, 2, 3, 4] {
        run("acp_ranks", size, "acp_ranks: all well");
    }
}

#[test]
fn data_of_all_ranks() {
    for size in [1, 2, 4] {
        run("acp_data", size, "acp_data: all well");
    }
}

/// What grows with the number of ranks: each of the larger numbers is on one device.
#[test]
fn more_ranks() {
    for (size, device) in (5..=8).zip(DEVICES) {
        run_on(device, "acp_ranks", size, &[], "acp_ranks: all well");
        run_on(DEVICES[8 - size as usize], "acp_data", size, &[], "acp_data: all well");
    }
}

/// With `CCI_ACP_SEEDS`, so many seeds for each device and number of ranks. The devices go around otherwise than in the Rust suite.
#[test]
fn random_operations_of_all_ranks_come_to_what_the_models_say() {
    let seeds = env::var("CCI_ACP_SEEDS").map_or(1, |seeds| seeds.parse::<u32>().unwrap());
    // Through sockets, eight ranks on few cores take a second for a round.
    let devices = [("tcp", 2, 20), ("any", 6, 1_000), ("udp", 2, 20), ("shm", 6, 1_000)];
    for (size, (device, rounds, raises)) in (2..=8).zip(devices.into_iter().cycle()) {
        for seed in size..size + seeds {
            let arguments = [seed, rounds, raises].map(|number| number.to_string());
            run_on(device, "acp_random", size, &arguments, "acp_random: all well");
        }
    }
}

#[test]
fn ranks_that_compute_are_served() {
    for size in [3, 5] {
        run("acp_progress", size, "acp_progress: all well");
    }
}

/// On devices of one host, where a death is noticed at once.
#[test]
fn a_rank_that_dies_at_work_holds_up_nobody() {
    for device in ["any", "shm"] {
        for _ in 0..3 {
            let ranks = ranks_of(device, "acp_deaths", 3, &[]);
            let codes: Vec<_> = ranks.iter().map(|rank| rank.status.code()).collect();
            assert_eq!(codes, [Some(0), Some(9), Some(0)], "{device}: {ranks:#?}");
        }
    }
}

#[test]
fn misuse_is_refused_in_silence() {
    run("acp_misuse", 2, "acp_misuse: all well");
}

/// By the launcher, as one process ends here by itself, and another one never does.
#[test]
fn an_abort_says_why_and_ends_all_processes() {
    let program = common::compile("acp_misuse", Linked::Shared);
    let mut run = Command::new(common::command());
    run.args(["run", "-n", "2"]).arg(program).arg("abort").env("CCI_CONFIG", config("any"));
    run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let has_ended = common::wait(&mut run, Duration::from_secs(60));
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(has_ended && !output.status.success(), "{output:?}");
    assert!(said.contains("as the program wants: Numerical argument out of domain"), "{said}");
}

#[test]
fn the_papers_ring() {
    for size in [2, 4, 5] {
        run("acp_ring", size, "is here");
    }
}

/// The header is C of every standard from C99 on, and C++ of 2017.
#[test]
fn the_header_in_every_standard() {
    let source = common::package_folder().join("tests/c/acp_header.c");
    let object = common::scratch().join("acp_header.o");
    for standard in ["c99", "c11", "c17", "c2x", "c++17", "c++20"] {
        let mut cc = Command::new(if standard.starts_with("c++") { "c++" } else { "cc" });
        if standard.starts_with("c++") {
            cc.args(["-x", "c++"]);
        }
        cc.arg(format!("-std={standard}")).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", "-I"]);
        cc.arg(common::package_folder().join("include")).arg(&source).arg("-o").arg(&object);
        common::succeed(&mut cc);
    }
}
