//! The protocol over seeded networks: thousands of runs, each judged at every step.
//!
//! `CCI_SIM_SEEDS=N` runs N seeds (default 4,000), `CCI_SIM_SEED=S` runs only seed S; with `CCI_SIM_TRACE=1` a failure
//! shows the last 4,000 datagrams and events before it, with a greater number that many.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cci_testkit::sim::{RmaCounts, Scenario};

const SEEDS_DEFAULT: u64 = 4_000;

fn from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn run(seed: u64) -> Result<RmaCounts, String> {
    let scenario = Scenario::draw(seed);
    let result = catch_unwind(AssertUnwindSafe(|| scenario.run()));
    let what = match result {
        Ok(Ok(report)) => return Ok(report.rma),
        Ok(Err(what)) => what,
        Err(panic) => match panic.downcast_ref::<String>() {
            Some(text) => format!("panicked: {text}"),
            None => format!("panicked: {:?}", panic.downcast_ref::<&str>()),
        },
    };
    Err(format!(
        "seed {seed}: {what}\nscenario: {scenario:#?}\nreplay: CCI_SIM_SEED={seed} CCI_SIM_TRACE=1 cargo test -p cci-testkit --test proto_sim\n"
    ))
}

#[test]
fn every_seed_keeps_the_promises() {
    if let Some(seed) = from_env("CCI_SIM_SEED") {
        run(seed).unwrap_or_else(|what| panic!("{what}"));
        return;
    }
    let seeds = from_env("CCI_SIM_SEEDS").unwrap_or(SEEDS_DEFAULT);
    let mut failed: Vec<u64> = Vec::new();
    let mut first = None;
    let mut done = RmaCounts::default();
    for seed in 1..=seeds {
        let what = match run(seed) {
            Ok(counts) => {
                done += counts;
                continue;
            }
            Err(what) => what,
        };
        failed.push(seed);
        eprintln!("{}", what.lines().take(1).collect::<String>());
        first.get_or_insert(what);
        if failed.len() >= 40 {
            break;
        }
    }
    cci_testkit::figures::note("protocol.seeds_in_simulation", seeds);
    println!("{seeds} seeds: {done:?}");
    if let Some(what) = first {
        panic!("{} of {seeds} seeds failed: {failed:?}; the first:\n{what}", failed.len());
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut traces = std::collections::BTreeSet::new();
    for seed in 1..=40 {
        let once = Scenario::draw(seed).run().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        let again = Scenario::draw(seed).run().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        assert_eq!(once, again, "seed {seed}");
        traces.insert(once.trace);
    }
    assert_eq!(traces.len(), 40, "different seeds, different runs");
}
