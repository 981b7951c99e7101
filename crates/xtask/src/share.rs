//! A bounded share of the long form, the next one with each commit, which CI runs beside the short form.

use crate::etcd;
use crate::form::Form;
use crate::fuzz;
use crate::miri;
use crate::process::{Tally, cargo, run_tests};
use crate::sanitize;
use crate::workspace::Workspace;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

/// Chooses the share, and what is drawn in it.
const TURN: &str = "CCI_SHARE";
/// Processor time of a share: several times what each takes.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// What is run of the long form in one turn.
struct Share {
    name: &'static str,
    run: fn(&Workspace, u64) -> Tally,
}

const SHARES: &[Share] = &[
    Share { name: "new seeds of whole endpoints in simulation", run: |_, turn| whole_endpoints(turn) },
    Share { name: "processes that die, with another seed", run: |_, turn| processes(turn) },
    Share { name: "more garbage in shared memory", run: |_, _| garbage() },
    Share { name: "properties with another seed", run: |_, turn| properties(turn) },
    Share { name: "the library as it is released, installed", run: |_, _| installed() },
    Share { name: "a minute of each of some fuzzing targets", run: fuzz::test_some },
    Share {
        name: "each fuzzing target for a moment",
        run: |workspace, _| fuzz::test(workspace, Form::Short),
    },
    Share { name: "errors with memory", run: |workspace, _| sanitize::test(workspace, &["address"]) },
    Share { name: "undefined behaviour", run: |workspace, _| sanitize::test(workspace, &["undefined"]) },
    Share { name: "directories in etcd", run: |workspace, _| etcd::test(workspace) },
    Share { name: "parts of the protocol under miri", run: |workspace, _| miri::proto(workspace) },
    Share { name: "races of threads", run: |workspace, _| sanitize::test(workspace, &["thread"]) },
];

/// Runs the share whose turn it is, and says how to run it again.
pub fn test(workspace: &Workspace) -> Tally {
    let turn = turn();
    let at = usize::try_from(turn % SHARES.len() as u64).unwrap_or(0);
    let share = &SHARES[at];
    println!(
        "--- share {} of {}: {}; {TURN}={turn} cargo xtask test share repeats it",
        at + 1,
        SHARES.len(),
        share.name
    );
    (share.run)(workspace, turn)
}

/// What the environment says; else how many commits there are, so that each share has its turn; or the day's number where that is not
/// known.
fn turn() -> u64 {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
    };
    let commit = || {
        // A shallow clone has the last commits only, always as many.
        let is_whole = git(&["rev-parse", "--is-shallow-repository"])? == "false";
        is_whole.then(|| git(&["rev-list", "--count", "HEAD"])?.parse().ok()).flatten()
    };
    let given = std::env::var(TURN).ok().and_then(|text| text.parse().ok());
    given.or_else(commit).unwrap_or_else(|| UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs() / 86_400))
}

/// Of each kind of network.
const SEEDS: u64 = 3_000;

fn whole_endpoints(turn: u64) -> Tally {
    let mut tests = cargo(&["test", "--locked", "-p", "cci-testkit", "--test", "sim", "every_seed"]);
    // Beyond the seeds that the short form begins with, and in each turn others.
    let first = 1_000_000 + turn % 1_000_000 * SEEDS;
    tests.env("CCI_WORLD_FIRST", first.to_string()).env("CCI_WORLD_SEEDS", SEEDS.to_string());
    run_tests("whole endpoints in simulation", &mut tests, LIMIT)
}

fn processes(turn: u64) -> Tally {
    let mut tests = cargo(&["test", "--locked", "-p", "cci-cli", "--test", "crash"]);
    tests.env("CCI_CRASH_SECONDS", "90").env("CCI_CRASH_SEED", turn.to_string());
    run_tests("processes that die", &mut tests, LIMIT)
}

fn garbage() -> Tally {
    let mut tests = cargo(&["test", "--locked", "-p", "cci-testkit", "--test", "shm_scribble"]);
    run_tests("garbage in shared memory", tests.env("CCI_SCRIBBLE_ROUNDS", "300"), LIMIT)
}

fn installed() -> Tally {
    let mut tests = cargo(&["test", "--locked", "-p", "cci-capi", "--test", "installed"]);
    run_tests("the installed library", tests.env("CCI_INSTALL_PROFILE", "release"), LIMIT)
}

fn properties(turn: u64) -> Tally {
    let mut tests = cargo(&[
        "test",
        "--locked",
        "--lib",
        "-p",
        "cci",
        "-p",
        "cci-proto",
        "-p",
        "cci-memory",
        "-p",
        "cci-secure",
    ]);
    run_tests("properties", tests.env("PROPTEST_RNG_SEED", turn.to_string()), LIMIT)
}
