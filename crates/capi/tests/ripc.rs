//! The C tests of libRIPC: programs that know `ripc.h` and the library only, as processes that find each other in a directory of their own.

mod common;

use common::Linked;
use std::fs;
use std::process::Command;

/// How the processes reach each other: as they would without a configuration, and each transport alone.
const PATHS: [(&str, &str); 3] = [
    ("shm", "[shm]\ntransport = shm\n"),
    ("udp", "[udp]\ntransport = udp\nip = 127.0.0.1\n"),
    ("tcp", "[tcp]\ntransport = tcp\nip = 127.0.0.1\n"),
];

fn run_on(name: &str, linked: Linked, config: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cci.ini");
    fs::write(&file, config).expect("a file");
    let directory = folder.path().join("services");
    fs::create_dir(&directory).expect("a folder");
    let mut command = Command::new(common::compile(name, linked));
    command.env("CCI_CONFIG", &file).env("CCI_DIRECTORY", format!("host:{}", directory.display()));
    let output = common::finish(&mut command);
    assert!(output.contains(&format!("{name}: all well")), "{output}");
    println!("{output}");
    let left: Vec<_> = fs::read_dir(&directory).expect("the folder").flatten().collect();
    // What a killed process leaves, nobody has locked; those that end take their services out.
    assert!(left.len() <= 2, "{left:?}");
}

fn run(name: &str) {
    for (path, config) in PATHS {
        println!("{name} over {path}");
        run_on(name, Linked::Shared, config);
    }
}

#[test]
fn misuse_and_buffers() {
    run_on("ripc_misuse", Linked::Static, PATHS[0].1);
    run("ripc_misuse");
}

#[test]
fn short_messages() {
    run("ripc_messages");
}

#[test]
fn long_messages() {
    run("ripc_long");
}

#[test]
fn the_published_clients() {
    run("ripc_pingpong");
}

#[test]
fn groups() {
    run("ripc_multicast");
}

#[test]
fn services_that_are_killed_and_started_again() {
    run("ripc_restart");
}

#[test]
fn senders_that_exit_and_receivers_that_do_not_receive() {
    run("ripc_ends");
}

/// The header is C of every standard from C99 on, and C++.
#[test]
fn the_header_in_every_standard() {
    let source = common::package_folder().join("tests/c/ripc_header.c");
    let object = common::scratch().join("ripc_header.o");
    for standard in ["c99", "c11", "c17", "c2x", "c++98", "c++11", "c++17", "c++20"] {
        let mut cc = Command::new(if standard.starts_with("c++") { "c++" } else { "cc" });
        if standard.starts_with("c++") {
            cc.args(["-x", "c++"]);
        }
        cc.arg(format!("-std={standard}")).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", "-I"]);
        cc.arg(common::package_folder().join("include")).arg(&source).arg("-o").arg(&object);
        common::succeed(&mut cc);
    }
}
