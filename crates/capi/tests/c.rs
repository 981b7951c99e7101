//! The C tests of `tests/c`: programs that know the header and the library only.

mod common;

use common::Linked;
use std::path::Path;
use std::process::Command;

/// Each program on one device, linked in one of the two ways.
fn run(name: &str, linked: Linked, arguments: &[&str]) {
    let program = common::compile(name, linked);
    let output = common::run(&program, arguments);
    assert!(output.contains(&format!("{name}: all well")), "{name} {arguments:?}:\n{output}");
}

macro_rules! on_each_device {
    ($($test:ident: $program:literal $(, $argument:literal)*;)+) => {
        mod shm {
            $(
                #[test]
                fn $test() {
                    super::run($program, super::Linked::Shared, &["shm" $(, $argument)*]);
                }
            )+
        }

        mod udp {
            $(
                #[test]
                fn $test() {
                    super::run($program, super::Linked::Shared, &["udp" $(, $argument)*]);
                }
            )+
        }
    };
}

on_each_device! {
    calls: "calls";
    requests: "requests";
    requests_without_locks: "requests", "single";
    buffers: "buffers";
    exchange: "exchange";
    exchange_without_locks: "exchange", "single";
    threads: "threads";
    rma: "rma";
    rma_without_locks: "rma", "single";
    progress: "progress";
    regions: "regions";
    regions_without_locks: "regions", "single";
}

/// Groups are for UDP.
#[test]
fn multicast() {
    run("multicast", Linked::Shared, &["udp"]);
    run("multicast", Linked::Shared, &["udp", "single"]);
}

/// Shared memory has no need of it.
#[test]
fn security() {
    run("security", Linked::Shared, &["udp"]);
    run("security", Linked::Shared, &["udp", "single"]);
}

#[test]
fn static_library() {
    run("exchange", Linked::Static, &["shm"]);
}

/// A program that uses the library can be looked at with valgrind, which finds nothing wrong with the library either.
#[test]
fn under_valgrind() {
    let has_valgrind =
        Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    if !has_valgrind {
        eprintln!("skipped: no valgrind on this machine");
        return;
    }
    for name in ["requests", "buffers", "threads", "regions", "rma"] {
        for device in ["shm", "udp"] {
            let program = common::compile(name, Linked::Shared);
            let program = program.to_str().expect("UTF-8");
            let arguments = [
                "--quiet",
                "--error-exitcode=9",
                "--leak-check=full",
                "--errors-for-leak-kinds=definite",
                program,
                device,
            ];
            let output = common::run(Path::new("valgrind"), &arguments);
            assert!(output.contains("all well"), "{name} {device}:\n{output}");
        }
    }
}
