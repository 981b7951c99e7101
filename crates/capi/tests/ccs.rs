//! The C tests of CCS: programs that know `ccs.h` and the library only, as the ranks of a job.

mod common;
#[path = "../../am/tests/launch/mod.rs"]
mod launch;
#[path = "../../cli/tests/common/marked.rs"]
mod marked;

use common::Linked;
use marked::marked;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs, process};

/// Runs a program as so many ranks, each of which must succeed, and say this.
fn run(name: &str, size: u32, arguments: &[&str], says: &str) {
    launch_all(name, &common::compile(name, Linked::Shared), size, arguments, says);
}

fn launch_all(name: &str, program: &Path, size: u32, arguments: &[&str], says: &str) {
    let outputs = launch::launch(size, || {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    });
    let mut said = 0;
    for (rank, output) in outputs.iter().enumerate() {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{name}, rank {rank} of {size}: {}\n{out}{err}", output.status);
        said += u32::from(out.contains(says));
    }
    assert!(said > 0, "{name} of {size}: nobody says {says:?}");
}

#[test]
fn alone() {
    let output = common::finish(&mut Command::new(common::compile("ccs_alone", Linked::Shared)));
    assert!(output.contains("ccs_alone: all well"), "{output}");
}

/// Every function is tried outside of a job, and with each misuse that the interface names.
#[test]
fn misuse_has_its_code_and_changes_nothing() {
    for size in [1, 3] {
        run("ccs_misuse", size, &[], "ccs_misuse: all well");
    }
    let read = |path: &str| fs::read_to_string(common::package_folder().join(path)).expect("a file");
    let (header, program) = (read("include/ccs.h"), read("tests/c/ccs_misuse.c"));
    let outside =
        program.split("static void outside(void)").nth(1).and_then(|rest| rest.split("\n}\n").next());
    let outside = outside.expect("what is tried outside of a job");
    let declared = header.lines().filter_map(|line| line.strip_prefix("int "));
    let names: Vec<_> = declared.filter_map(|line| line.split_once('(').map(|(name, _)| name)).collect();
    assert!(names.len() > 70, "{names:?}");
    let has_code = |name: &&str| !name.starts_with("CCS_init") && *name != "CCS_wait_for_change_";
    for name in names.into_iter().filter(has_code) {
        assert!(outside.contains(&format!("CODE({name}(")), "{name} is not tried outside of a job");
    }
}

#[test]
fn the_papers_first_figure() {
    // The paper's program does not use all of its parameters.
    for size in [1, 2, 4] {
        run("ccs_figure1", size, &[], "has read rank 0's buffer");
    }
}

#[test]
fn ranks() {
    for size in 1..=8 {
        run("ccs_ranks", size, &[], "ccs_ranks: all well");
    }
}

#[test]
fn collectives() {
    for size in [1, 2, 3, 4, 7] {
        run("ccs_collectives", size, &[], "ccs_collectives: all well");
    }
}

/// Rank 1 of three dies: what the others hear, and how they end.
fn one_dies(mode: &str) -> Vec<(bool, String)> {
    let program = common::compile("ccs_deaths", Linked::Shared);
    let outputs = launch::launch(3, || {
        let mut command = Command::new(&program);
        command.arg(mode);
        command
    });
    let said = |output: &std::process::Output| {
        [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
    };
    let all: Vec<_> = outputs.iter().map(|output| (output.status.success(), said(output))).collect();
    assert!(!all[1].0, "rank 1 has died");
    all
}

#[test]
fn who_has_an_error_handler_survives() {
    for mode in ["survive", "survive", "survive", "unmet", "leave"] {
        let all = one_dies(mode);
        for (success, said) in [&all[0], &all[2]] {
            assert!(*success && said.contains("ccs_deaths: all well"), "{all:?}");
        }
        assert!(mode != "leave" || all.iter().any(|(_, said)| said.contains(", 1 lost")), "{all:?}");
    }
}

#[test]
fn without_an_error_handler_a_death_ends_the_job() {
    let all = one_dies("not");
    for (success, said) in [&all[0], &all[2]] {
        assert!(!success && said.contains("CCS: rank ") && said.contains("rank 1"), "{all:?}");
    }
}

/// With `CCI_CRASHES=N`, N jobs of each size, from the seed `CCI_SEED` on.
#[test]
fn without_an_error_handler_a_rank_killed_at_any_moment_ends_the_job() {
    let number = |name: &str| env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let (first, count) = (number("CCI_SEED").unwrap_or(1), number("CCI_CRASHES").unwrap_or(2));
    let program = common::compile("ccs_kills", Linked::Shared);
    for size in 2..=8 {
        for seed in first..first + count {
            one_is_killed(&program, size, seed);
        }
    }
}

/// Where the launcher lets the others go on, the library alone ends the job, on devices which show at once that a process has ended.
fn one_is_killed(program: &Path, size: u64, seed: u64) {
    let (device, goes_on) = [("shm", true), ("tcp", false), ("udp", false), ("shm", false), ("tcp", true)]
        [(seed + size) as usize % 5];
    let config = common::scratch().join(format!("{device}.ini"));
    let ip = if device == "shm" { "" } else { "ip = 127.0.0.1\n" };
    fs::write(&config, format!("[only]\ntransport = {device}\n{ip}")).expect("a file");
    let mark = format!("kills-{}-{size}-{seed}", process::id());
    let timeout = format!("{}s", launch::PATIENCE.as_secs());
    let mut command = Command::new(common::command());
    command.args(["run", "-n", &size.to_string(), "--timeout", &timeout]);
    command.args(goes_on.then_some("--keep-going")).arg(program).arg(seed.to_string());
    command.args(goes_on.then_some("met"));
    command.env("CCI_CONFIG", config).env("CCI_TEST_MARK", &mark);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = command.spawn().expect("the launcher starts");
    let has_ended = common::wait(&mut run, 2 * launch::PATIENCE);
    let left = marked(&format!("CCI_TEST_MARK={mark}"));
    let output = run.wait_with_output().expect("its output");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let of =
        format!("{size} ranks, seed {seed}, {device}, goes on: {goes_on}: {}\n{out}{err}", output.status);
    let victim = out.lines().find_map(|line| line.strip_prefix("rank ")?.strip_suffix(" dies"));
    let victim = victim.unwrap_or_else(|| panic!("{of}: no rank dies"));
    assert!(has_ended && !matches!(output.status.code(), Some(0 | 124) | None), "{of}");
    assert!(left.is_empty(), "{of}: {left:?} are left");
    assert!(!out.contains("has left"), "{of}");
    let by_library = err.contains("CCS: rank ") && err.contains(&format!("(rank {victim}, code 8)"));
    let by_launcher = err.contains(&format!("rank {victim} (process ")) && err.contains("SIGKILL");
    assert!(by_library || by_launcher && !goes_on, "{of}");
}

/// Both ends of a message for a handler that is not there can see that it waits.
#[test]
fn a_handler_that_never_comes_is_explained_at_both_ends() {
    for size in [2, 3] {
        run("ccs_explain", size, &[], "ccs_explain: all well");
    }
}

#[test]
fn a_progress_thread() {
    for threads in ["0", "1", "2"] {
        run("ccs_progress", 2, &[threads], "ccs_progress: all well");
    }
    run("ccs_progress", 1, &[], "ccs_progress: all well");
}

/// A configuration file need not have a device of the name `any`.
#[test]
fn without_a_device_any() {
    let (program, file) =
        (common::compile("ccs_figure1", Linked::Shared), common::scratch().join("no-any.conf"));
    fs::write(&file, "[memory]\ntransport = shm\n").expect("a file");
    let outputs = launch::launch(2, || {
        let mut command = Command::new(&program);
        command.env("CCI_CONFIG", &file);
        command
    });
    assert!(outputs.iter().all(|output| output.status.success()), "{outputs:?}");
}

/// Where no memory is mapped, so that transfers of short pieces travel packed.
#[test]
fn ranks_over_udp() {
    let (program, file) = (common::compile("ccs_ranks", Linked::Shared), common::scratch().join("udp.conf"));
    fs::write(&file, "[net]\ntransport = udp\nip = 127.0.0.1\n").expect("a file");
    let outputs = launch::launch(3, || {
        let mut command = Command::new(&program);
        command.env("CCI_CONFIG", &file);
        command
    });
    assert!(outputs.iter().all(|output| output.status.success()), "{outputs:?}");
}

#[test]
fn ranks_with_threads() {
    for threads in ["0", "2"] {
        run("ccs_ranks", 2, &[threads], "ccs_ranks: all well");
    }
}

/// The program of the guide, as it is written there.
#[test]
fn the_guides_program() {
    let guide = fs::read_to_string(common::package_folder().join("../../docs/guide.md")).expect("the guide");
    let program = guide.split("```c\n").find(|rest| rest.starts_with("#include <ccs.h>"));
    let program = program.and_then(|rest| rest.split("```").next()).expect("a program for CCS");
    let source = common::scratch().join("guide.c");
    fs::write(&source, program).expect("a file");
    launch_all("guide", &common::compile_file(&source, Linked::Shared), 2, &[], "hello");
}

/// The header is C of every standard from C99 on, and C++ of 2017.
#[test]
fn the_header_in_every_standard() {
    let source = common::package_folder().join("tests/c/ccs_header.c");
    let object = common::scratch().join("ccs_header.o");
    let standards = ["c99", "c11", "c17", "c2x", "c++17", "c++20"];
    for standard in standards {
        let mut cc = Command::new(if standard.starts_with("c++") { "c++" } else { "cc" });
        if standard.starts_with("c++") {
            cc.args(["-x", "c++"]);
        }
        cc.arg(format!("-std={standard}")).args([
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-O1",
            "-c",
            "-I",
        ]);
        cc.arg(common::package_folder().join("include")).arg(&source).arg("-o").arg(&object);
        common::succeed(&mut cc);
    }
}
