//! All tests, in one command: the workspace's own, those of the Java modules, the model checkers on cci-memory, and instructions counted; in the
//! long form also directories in etcd, fuzzing and sanitizers, which build much anew.

use crate::counts;
use crate::devices;
use crate::etcd;
use crate::form::Form;
use crate::fuzz;
use crate::java;
use crate::miri;
use crate::process::{Job, Spent, Tally, cargo, run_tests};
use crate::programs;
use crate::reliability;
use crate::sanitize;
use crate::share;
use crate::workspace::Workspace;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

const MINUTE: Duration = Duration::from_secs(60);
/// Processor time that each program may use, several times what it takes: a step may not go on for ever.
const PROGRAM_LIMIT: Duration = MINUTE.saturating_mul(30);
const LOOM_LIMIT: Duration = MINUTE.saturating_mul(10);
/// The long form is for a night.
const LONG_LIMIT: Duration = MINUTE.saturating_mul(6 * 60);

/// Proptest takes its seed from here.
const PROPERTY_SEED: &str = "PROPTEST_RNG_SEED";
const SHORT_SEED: u64 = 16;

/// Part of all tests.
struct Step {
    name: &'static str,
    run: fn(&Workspace, Form) -> Result<Tally, String>,
    place: Place,
}

/// Where a step comes when no step is named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In its turn, alone.
    Alone,
    /// In a program of its own beside those of the workspace.
    Beside,
    /// In its turn, alone, in the long form. CI's shares have each of these in turn.
    Long,
    /// Nowhere, unless it is asked for.
    OnRequest,
}

const STEPS: &[Step] = &[
    Step { name: WORKSPACE, run: |workspace, form| tests(workspace, form, Vec::new()), place: Place::Alone },
    Step { name: "fuzz", run: |workspace, form| Ok(fuzz::test(workspace, form)), place: Place::Long },
    Step {
        name: "sanitize",
        run: |workspace, _| Ok(sanitize::test(workspace, &sanitize::names())),
        place: Place::Long,
    },
    // Its feature builds much that nothing else needs.
    Step { name: "etcd", run: |workspace, _| Ok(etcd::test(workspace)), place: Place::Long },
    Step { name: "miri", run: |workspace, _| Ok(miri::memory(workspace)), place: Place::Beside },
    Step { name: "miri-proto", run: |workspace, _| Ok(miri::proto(workspace)), place: Place::Long },
    Step { name: "loom", run: |workspace, _| Ok(loom(workspace)), place: Place::Beside },
    // Behind the workspace's own, which build the library.
    Step { name: "java", run: |workspace, _| Ok(java::test(workspace)), place: Place::Alone },
    // Where other programs run, too much comes late to be counted.
    Step { name: "counts", run: |workspace, _| Ok(counts::test(workspace)), place: Place::Alone },
    Step { name: SHARE, run: |workspace, _| Ok(share::test(workspace)), place: Place::OnRequest },
];

const WORKSPACE: &str = "workspace";
const SHARE: &str = "share";

/// What the steps are called.
pub fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

/// Runs the steps of these names, or all if none is named, and a share of the long form if that is asked for, telling how
/// far it is; the last line on standard output is `N passed, N failed`.
pub fn run(form: Form, with_share: bool, only: &[String]) -> Result<(), String> {
    let workspace = Workspace::load()?;
    let all = only.is_empty();
    let chosen = |step: &&Step| {
        let named = only.iter().any(|name| name == step.name);
        let in_turn = step.place == Place::Alone || (step.place == Place::Long && form == Form::Long);
        named || (all && in_turn) || (with_share && step.name == SHARE)
    };
    let steps: Vec<&Step> = STEPS.iter().filter(chosen).collect();
    let mut tally = Tally::default();
    let mut times = Vec::new();
    let started = Spent::now();
    for (number, step) in (1..).zip(&steps) {
        let to_come: Vec<&str> = steps.iter().skip(number).map(|step| step.name).collect();
        let to_come = if to_come.is_empty() { "nothing".to_owned() } else { to_come.join(", ") };
        println!(
            "=== step {number} of {}: {} ({started} so far; to come: {to_come})",
            steps.len(),
            step.name
        );
        let before = Spent::now();
        let came_to = match step.name {
            WORKSPACE if all => tests(&workspace, form, beside(form)?)?,
            _ => (step.run)(&workspace, form)?,
        };
        times.push(format!("=== {:<9} {before}; {came_to}", step.name));
        tally.add(came_to);
    }
    println!("{}\n=== {:<9} {started}", times.join("\n"), "all");
    if tally.ignored > 0 {
        println!("({} tests are marked ignored)", tally.ignored);
    }
    if tally.flaky > 0 {
        println!("({} programs are flaky: search for FLAKY above)", tally.flaky);
    }
    println!("{tally}");
    if tally.failed == 0 { Ok(()) } else { Err(format!("{} tests failed", tally.failed)) }
}

/// The steps that are run beside the workspace's programs, as this program runs them alone.
fn beside(form: Form) -> Result<Vec<Job>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let job = |step: &Step| {
        let mut command = Command::new(&program);
        command.args(["test", step.name]).args((form == Form::Long).then_some("--long"));
        Job { name: format!("xtask test {}", step.name), command }
    };
    Ok(STEPS.iter().filter(|step| step.place == Place::Beside).map(job).collect())
}

/// The workspace's own tests, and what they say of the devices.
fn tests(workspace: &Workspace, form: Form, beside: Vec<Job>) -> Result<Tally, String> {
    // What is set for it is set for every program.
    let mut tests = Command::new("cargo");
    if form == Form::Long {
        tests.envs(reliability::at_length());
        // The installed library is built for release only here.
        tests.env("CCI_INSTALL_PROFILE", "release");
    }
    // `cargo test` without xtask draws anew each time.
    if std::env::var_os(PROPERTY_SEED).is_none() {
        let seed = match form {
            Form::Short => SHORT_SEED,
            Form::Long => UNIX_EPOCH.elapsed().map_or(SHORT_SEED, |since| since.as_secs()),
        };
        println!("--- properties: {PROPERTY_SEED}={seed} repeats this run");
        tests.env(PROPERTY_SEED, seed.to_string());
    }
    // Tests of what is installed have all they need built with them, and need this program only.
    tests.env("CCI_XTASK", std::env::current_exe().map_err(|error| error.to_string())?);
    let report = devices::record(workspace, &mut tests)?;
    let figures = reliability::record(workspace, &mut tests)?;
    let limit = if form == Form::Long { LONG_LIMIT } else { PROGRAM_LIMIT };
    let mut tally = programs::run(workspace, &tests, beside, limit)?;
    // The table of devices is a test of its own: what it says is what ran.
    tally.add(devices::check(workspace, &report));
    reliability::print(&figures);
    Ok(tally)
}

/// Every interleaving of the ring's and the pool's operations. In a target directory of its own: the flag applies
/// to the whole build graph and would otherwise rebuild everything twice.
fn loom(workspace: &Workspace) -> Tally {
    if !workspace.root.join("crates/memory/tests/loom.rs").exists() {
        println!("--- loom: skipped, crates/memory/tests/loom.rs is not there");
        return Tally::default();
    }
    let mut command = cargo(&["test", "-p", "cci-memory", "--release", "--locked", "--test", "loom"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", workspace.target.join("loom"));
    // It would take as long as all models together.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    run_tests("loom", &mut command, LOOM_LIMIT)
}
