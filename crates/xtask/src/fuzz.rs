//! `cargo xtask fuzz`: every target in `fuzz/`, by cargo-fuzz, for a while; and the bounded run of `cargo xtask test`.

use crate::form::Form;
use crate::process::{Tally, run_quietly, succeeds};
use crate::toolchain::{have_nightly, nightly};
use crate::workspace::Workspace;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const BUILD_LIMIT: Duration = MINUTE.saturating_mul(20);
/// Of the bounded run, each target: enough to see that it works, and the same every time.
const RUNS: u64 = 20_000;
const SECONDS_BOUND: u64 = 4;
/// An input that takes longer is a finding.
const INPUT_SECONDS_MAX: u64 = 20;
const INPUT_BYTES_MAX: u64 = 4096;

/// How long each target runs.
#[derive(Clone, Copy)]
enum Effort {
    /// So many inputs from a fixed seed, or so many seconds, whichever is over first.
    Bounded,
    Seconds(u64),
    /// No new inputs: the corpus becomes the few inputs, kept and new, that reach what all of them reach.
    Minimise,
}

/// Of the command line.
#[derive(clap::Args)]
pub struct Arguments {
    /// How long each target runs
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// As `test` does: a fixed number of inputs from a fixed seed
    #[arg(long, conflicts_with_all = ["seconds", "minimise"])]
    bounded: bool,
    /// Add what was found so far to fuzz/corpus, and keep there only the inputs that reach something that no other does
    #[arg(long, conflicts_with = "seconds")]
    minimise: bool,
    /// Only these, by the names of their files in fuzz/fuzz_targets
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// `cargo xtask fuzz`: new inputs stay below `target/fuzz`, until `--minimise` takes those that reach more into
/// `fuzz/corpus`; what was found is printed.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let effort = match arguments {
        Arguments { bounded: true, .. } => Effort::Bounded,
        Arguments { minimise: true, .. } => Effort::Minimise,
        Arguments { seconds, .. } => Effort::Seconds(*seconds),
    };
    let workspace = Workspace::load()?;
    let mut targets = targets(&workspace.root)?;
    if let Some(unknown) = arguments.targets.iter().find(|name| !targets.contains(name)) {
        return Err(format!("there is no target {unknown:?}; there are {}", targets.join(", ")));
    }
    targets.retain(|target| arguments.targets.is_empty() || arguments.targets.contains(target));
    let tally = all(&workspace, &targets, effort)?;
    tally.print();
    if tally.failed == 0 { Ok(()) } else { Err(format!("{} targets found something", tally.failed)) }
}

/// The bounded run, or at length five minutes of each target; each counts as a test. Skipped where there is no nightly toolchain.
pub fn test(workspace: &Workspace, form: Form) -> Tally {
    let effort = match form {
        Form::Short => Effort::Bounded,
        Form::Long => Effort::Seconds(300),
    };
    counted(targets(&workspace.root).and_then(|targets| all(workspace, &targets, effort)))
}

/// A minute of each of three targets, other ones in each turn.
pub fn test_some(workspace: &Workspace, turn: u64) -> Tally {
    let some = |mut targets: Vec<String>| {
        let first = usize::try_from(turn).unwrap_or(0) % targets.len().max(1);
        targets.rotate_left(first);
        targets.truncate(3);
        targets
    };
    let result =
        targets(&workspace.root).and_then(|targets| all(workspace, &some(targets), Effort::Seconds(60)));
    counted(result)
}

/// Prints what it came to; what could not be run at all is one failure.
fn counted(result: Result<Tally, String>) -> Tally {
    let tally = result.unwrap_or_else(|reason| {
        println!("--- fuzz: FAILED: {reason}");
        Tally { failed: 1, ..Tally::default() }
    });
    tally.print();
    tally
}

/// The targets are the files.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let names = entries.flatten().filter_map(|entry| {
        entry.file_name().to_str().and_then(|name| name.strip_suffix(".rs")).map(str::to_owned)
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    Ok(names)
}

fn all(workspace: &Workspace, targets: &[String], effort: Effort) -> Result<Tally, String> {
    let host = match ready() {
        Ok(host) => host,
        Err(reason) => {
            println!("--- fuzz: skipped, {reason}");
            return Ok(Tally::default());
        }
    };
    let home = workspace.target.join("fuzz");
    build(workspace, &home)?;
    let mut tally = Tally::default();
    let mut inputs = 0;
    for target in targets {
        let binary = home.join(&host).join("release").join(target);
        let done = match effort {
            Effort::Minimise => minimise(workspace, &home, &binary, target),
            Effort::Bounded | Effort::Seconds(_) => one(workspace, &home, &binary, target, effort),
        };
        match done {
            Ok(count) => {
                tally.passed += 1;
                inputs += count;
            }
            Err(reason) => {
                println!("--- fuzz: {target}: FAILED: {reason}");
                tally.failed += 1;
            }
        }
    }
    println!("--- fuzz: {inputs} inputs to {} targets; {tally}", targets.len());
    note(inputs)?;
    Ok(tally)
}

/// Toolchain and cargo-fuzz, installed if they are missing; answers what the compiler builds for.
fn ready() -> Result<String, String> {
    let host = have_nightly()?;
    if !succeeds(&mut nightly(&["cargo", "fuzz", "--version"]), MINUTE) {
        // Unoptimised: compiling it is what takes the time.
        let mut install = Command::new("cargo");
        install.args(["install", "--locked", "--debug", "cargo-fuzz"]).env_remove("CARGO_TARGET_DIR");
        if !succeeds(&mut install, MINUTE.saturating_mul(10)) {
            return Err("cargo-fuzz can't be installed".to_owned());
        }
    }
    Ok(host)
}

fn build(workspace: &Workspace, home: &Path) -> Result<(), String> {
    let started = Instant::now();
    let mut command = nightly(&["cargo", "fuzz", "build", "--fuzz-dir", "fuzz"]);
    command.current_dir(&workspace.root).env("CARGO_TARGET_DIR", home);
    let log = home.join("build.log");
    logged(&mut command, &log)?;
    let built = run_quietly("building the targets", &mut command, BUILD_LIMIT);
    built.map_err(|reason| format!("{reason}{}", last_lines(&log)))?;
    println!("--- fuzz: built in {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// One target; answers how many inputs it was given.
fn one(
    workspace: &Workspace,
    home: &Path,
    binary: &Path,
    target: &str,
    effort: Effort,
) -> Result<u64, String> {
    // What is found new goes to the first of the folders.
    let folders = match effort {
        Effort::Seconds(_) => vec![made(home.join("corpus").join(target))?, kept(workspace, target)],
        _ => vec![kept(workspace, target)],
    };
    let found = made(home.join("artifacts").join(target))?;
    let mut command = Command::new(binary);
    command.arg(format!("-artifact_prefix={}/", found.display()));
    command.args([
        format!("-timeout={INPUT_SECONDS_MAX}"),
        format!("-max_len={INPUT_BYTES_MAX}"),
        "-print_final_stats=1".to_owned(),
    ]);
    let limit = match effort {
        Effort::Seconds(seconds) => {
            command.arg(format!("-max_total_time={seconds}"));
            Duration::from_secs(seconds) + MINUTE
        }
        _ => {
            // Nothing is written into the repository: what is kept there was chosen.
            let fixed = ["-seed=1".to_owned(), format!("-runs={RUNS}"), "-reduce_inputs=0".to_owned()];
            command.args(fixed).arg(format!("-max_total_time={SECONDS_BOUND}"));
            let scratch = home.join("bounded").join(target);
            // What an earlier run found would make this one another.
            let _ = fs::remove_dir_all(&scratch);
            command.arg(made(scratch)?);
            MINUTE
        }
    };
    let dictionary = workspace.root.join("fuzz/dictionaries").join(target);
    if dictionary.exists() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    command.args(folders);
    let log = home.join(format!("{target}.log"));
    logged(&mut command, &log)?;
    run_quietly(target, &mut command, limit).map_err(|reason| {
        let kept = format!("what it was is in {}; keep it in fuzz/regressions/{target}", found.display());
        format!("{reason}{}\n{kept}", last_lines(&log))
    })?;
    let count = executions(&log);
    println!("--- fuzz: {target}: {count} inputs");
    Ok(count)
}

/// Replaces the corpus of a target by the fewest inputs that reach the same edges of the program; answers how many.
///
/// Edges only: inputs that take the same edges more often are what fuzzing makes anew from these in its first seconds.
fn minimise(workspace: &Workspace, home: &Path, binary: &Path, target: &str) -> Result<u64, String> {
    let (old, found) = (kept(workspace, target), made(home.join("corpus").join(target))?);
    let new = home.join("minimised").join(target);
    let _ = fs::remove_dir_all(&new);
    let mut command = Command::new(binary);
    command.args(["-set_cover_merge=1", "-use_counters=0", "-detect_leaks=0"]);
    command.arg(format!("-max_len={INPUT_BYTES_MAX}"));
    command.args([made(new.clone())?, old.clone(), found]);
    let log = home.join(format!("{target}.log"));
    logged(&mut command, &log)?;
    run_quietly(target, &mut command, BUILD_LIMIT)
        .map_err(|reason| format!("{reason}{}", last_lines(&log)))?;
    let failed = |error: std::io::Error| format!("{target}: {error}");
    fs::remove_dir_all(&old).map_err(failed)?;
    fs::create_dir(&old).map_err(failed)?;
    let mut count = 0;
    for entry in fs::read_dir(&new).map_err(failed)?.flatten() {
        fs::copy(entry.path(), old.join(entry.file_name())).map_err(failed)?;
        count += 1;
    }
    println!("--- fuzz: {target}: {count} inputs are kept");
    Ok(count)
}

/// Where the repository keeps inputs for a target.
fn kept(workspace: &Workspace, target: &str) -> PathBuf {
    workspace.root.join("fuzz/corpus").join(target)
}

fn made(folder: PathBuf) -> Result<PathBuf, String> {
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

/// Standard error goes into a file.
fn logged(command: &mut Command, log: &Path) -> Result<(), String> {
    if let Some(folder) = log.parent() {
        made(folder.to_owned())?;
    }
    let file = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
    command.stderr(Stdio::from(file));
    Ok(())
}

fn text_of(log: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned()
}

fn last_lines(log: &Path) -> String {
    let text = text_of(log);
    let lines: Vec<&str> = text.lines().collect();
    format!("\n{}", lines.get(lines.len().saturating_sub(40)..).unwrap_or_default().join("\n"))
}

fn executions(log: &Path) -> u64 {
    let text = text_of(log);
    let line = text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// For docs/reliability.md; see `cci_testkit::figures`, which this crate does not use.
fn note(inputs: u64) -> Result<(), String> {
    let Some(path) = std::env::var_os("CCI_FIGURES").map(PathBuf::from) else { return Ok(()) };
    let file = File::options().create(true).append(true).open(&path);
    file.and_then(|mut file| file.write_all(format!("fuzz.inputs\t{inputs}\n").as_bytes()))
        .map_err(|error| format!("{}: {error}", path.display()))
}
