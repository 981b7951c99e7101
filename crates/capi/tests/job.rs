//! The C tests of jobs: programs that know `cci_job.h` and the library only, as the ranks of a job.

mod common;
#[path = "../../am/tests/launch/mod.rs"]
mod launch;

use common::Linked;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::{fs, process};

fn program() -> PathBuf {
    common::compile("job", Linked::Shared)
}

fn launched(size: u32, mode: &str) -> Vec<Output> {
    // When it appears, the other ranks go on.
    let go = common::scratch().join(format!("go-{}-{size}-{mode}", process::id()));
    let program = program();
    let outputs = launch::launch(size, || {
        let mut command = Command::new(&program);
        command.arg(mode).env("JOB_GO", &go);
        command
    });
    let _ = fs::remove_file(go);
    outputs
}

fn is_well(output: &Output) -> bool {
    output.status.success() && String::from_utf8_lossy(&output.stdout).contains("job: all well")
}

#[test]
fn alone() {
    let output = common::finish(&mut Command::new(program()));
    assert!(output.contains("job: all well"), "{output}");
}

#[test]
fn ranks() {
    for size in [1, 2, 3, 4] {
        let outputs = launched(size, "ranks");
        assert!(outputs.iter().all(is_well), "{outputs:?}");
    }
}

/// Several processes speak with each other by rank, in both modes and on each kind of device.
#[test]
fn ranks_connect_by_number() {
    let program = common::compile("job_ranks", Linked::Shared);
    for (size, transport, mode) in
        [(1, "shm", "locking"), (4, "shm", "single"), (3, "udp", "locking"), (3, "udp", "single")]
    {
        let outputs = launch::launch(size, || {
            let mut command = Command::new(&program);
            command.args([transport, mode]).env("CCI_CONFIG", common::config());
            command
        });
        assert!(outputs.iter().all(is_well), "{transport}, {mode}: {outputs:?}");
    }
}

#[test]
fn those_that_survive_are_told_of_a_death() {
    for size in [1, 3] {
        let outputs = launched(size, "deaths");
        let living = if size == 1 { &outputs[..] } else { &outputs[..outputs.len() - 1] };
        assert!(living.iter().all(is_well), "{outputs:?}");
    }
}

/// No rank believes that it is alone because its launcher is not there.
#[test]
fn a_launcher_that_does_not_answer_is_an_error() {
    let mut command = Command::new(program());
    command.arg("lost").env("CCI_JOB_SOCKET", "cci-job-none").env("CCI_JOB_RANK", "0");
    command.env("CCI_JOB_KEY", "00".repeat(32));
    let output = common::finish(&mut command);
    assert!(output.contains("job: all well"), "{output}");
}
