//! The whole run: which rows, how long it will take, how noisy the machine is, and every row's result kept as it comes.

use crate::args::{Args, repository};
use crate::contestant::Role;
use crate::peers::Peers;
use crate::pinned::on_a_pinned_thread;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::report::{self, json, text};
use crate::results::{Machine, Results, RowResult, Run};
use crate::rounds;
use crate::rows::{self, Row};
use crate::work::Work;
use cci_measure::failure::{Failure, Outcome};
use cci_measure::noise::{self, Noise, StealClock};
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime};

/// What starting and ending a turn's processes takes, milliseconds: seen, for the estimate only.
const WORKER_START_MS: u64 = 80;
const PEER_START_MS: u64 = 500;
/// Turns of works whose amount is fixed: with a search for the highest rate; by how many are set up.
const LOADED_TURN_MS: u64 = 700;
const IDLE_TURN_MS: u64 = 500;
const CONNECTIONS_PER_MS: u64 = 100;

/// Measures what was asked for, and reports it.
pub fn run(args: &Args) -> Outcome {
    let peers = Peers::new((!args.no_peers).then(|| args.peers.clone()));
    let mut rows = rows::all(&peers);
    let order: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
    rows.retain(|row| args.only.is_empty() || args.only.iter().any(|text| row.name.contains(text)));
    if rows.is_empty() {
        return Err(Failure::new("no row has such a name").remedy("--list shows them"));
    }
    if args.list {
        list(&rows);
        return Ok(());
    }
    let mut results = match &args.resume {
        Some(file) => resumed(file, args)?,
        None => Results { run: describe(args), rows: Vec::new() },
    };
    // Rows that are no more go; those that were asked for by name are measured anew, otherwise those that are missing.
    results.rows.retain(|known| order.contains(&known.name));
    if args.only.is_empty() {
        rows.retain(|row| results.rows.iter().all(|known| known.name != row.name));
    } else {
        results.rows.retain(|known| rows.iter().all(|row| row.name != known.name));
    }
    measure(&rows, &order, args, &mut results)?;
    report::emit(&results, args.json, args.destination.folder().as_deref())
}

fn list(rows: &[Row]) {
    for row in rows {
        let names: Vec<String> = row.contestants.iter().map(|one| one.name()).collect();
        println!("{:<32} {}", row.name, names.join(", "));
    }
}

/// Row by row; each result is in the file before the next row begins.
fn measure(rows: &[Row], order: &[String], args: &Args, results: &mut Results) -> Outcome {
    let plan = args.plan();
    let partial = repository().join("target/bench/results.json");
    let turns = rows.iter().map(|row| row_turns(row, plan)).sum();
    let minutes = rows.iter().map(|row| estimate_ms(row, plan)).sum::<u64>().div_ceil(60_000);
    eprintln!(
        "{} rows, {turns} turns, about {minutes} min; results so far: {}",
        rows.len(),
        partial.display()
    );
    let (begin, took_before_s, steal) = (Instant::now(), results.run.took_s, StealClock::start());
    let mut progress = Progress::new(turns);
    let (count, commit) = (rows.len(), commit().unwrap_or_default());
    for (at, row) in rows.iter().enumerate() {
        let result = RowResult { commit: commit.clone(), ..rounds::measure(row, plan, &mut progress) };
        if !args.json {
            progress.note(&text::row(&result));
        }
        results.rows.push(result);
        results.rows.sort_by_key(|row| order.iter().position(|name| *name == row.name));
        results.run.took_s = took_before_s + begin.elapsed().as_secs();
        results.run.steal_fraction = steal.stolen_fraction().or(results.run.steal_fraction);
        if at + 1 == count {
            results.run.noise_after = Some(watch_noise());
        }
        json::write(&partial, results)?;
    }
    progress.end();
    Ok(())
}

fn row_turns(row: &Row, plan: Plan) -> u64 {
    row.contestants.len() as u64 * u64::from(1 + plan.rounds_of(row.work))
}

fn estimate_ms(row: &Row, plan: Plan) -> u64 {
    let turn_ms = match row.work {
        Work::Loaded { .. } => LOADED_TURN_MS,
        // Set up, too, before the first poll.
        Work::Poll { connections } | Work::IdleMemory { connections } => {
            IDLE_TURN_MS + u64::from(connections) / CONNECTIONS_PER_MS
        }
        _ => u64::from(plan.turn_ms),
    };
    // One small turn and one full one before the first round.
    let rounds = u64::from(plan.rounds_of(row.work));
    let one = |role| if role == Role::Peer { PEER_START_MS } else { WORKER_START_MS };
    row.contestants.iter().map(|contestant| (turn_ms + one(contestant.role())) * (rounds + 1)).sum()
}

/// What an earlier run measured, on this very machine. Each row says of which commit it is.
fn resumed(file: &Path, args: &Args) -> Outcome<Results> {
    let mut earlier = json::read(file)?;
    let now = describe(args);
    let same = |run: &Run| (run.machine.clone(), run.version.clone(), run.rounds, run.turn_ms);
    if same(&earlier.run) != same(&now) {
        let what = "measured on another machine, of another version or with other rounds";
        return Err(Failure::new(format!("{}: {what}", file.display())));
    }
    earlier.run.with_peers |= now.with_peers;
    Ok(earlier)
}

fn describe(args: &Args) -> Run {
    let plan = args.plan();
    Run {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit().unwrap_or_default(),
        machine: Machine::here(cci_sys::cpu::available()),
        date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        took_s: 0,
        rounds: plan.rounds,
        turn_ms: plan.turn_ms,
        with_peers: !args.no_peers,
        noise_before: watch_noise(),
        noise_after: None,
        steal_fraction: None,
    }
}

/// With a `+` where files differ from it.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git").arg("-C").arg(repository()).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let name = git(&["rev-parse", "--short=10", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs"])?.is_empty();
    Some(if changed { format!("{name}+") } else { name })
}

fn watch_noise() -> Noise {
    on_a_pinned_thread(noise::measure).unwrap_or_default()
}
