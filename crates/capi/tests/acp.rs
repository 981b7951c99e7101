//! The C tests of ACP: programs that know `acp.h` and the library only, as the ranks of a job.

mod common;
#[path = "../../am/tests/launch/mod.rs"]
mod launch;

use common::Linked;
use std::process::{Command, Output};

/// Runs a program as so many ranks, each of which must succeed, and say this.
fn run(name: &str, size: u32, says: &str) {
    let program = common::compile(name, Linked::Shared);
    let ranks = launch::launch(size, || Command::new(&program));
    let is_well =
        |output: &Output| output.status.success() && String::from_utf8_lossy(&output.stdout).contains(says);
    // What the first one says may follow from what has happened to another one.
    assert!(ranks.iter().all(is_well), "{name}, {size} ranks: {ranks:#?}");
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
