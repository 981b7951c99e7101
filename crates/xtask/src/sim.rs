//! Whole endpoints in simulation, at length: `cargo xtask sim`.

use crate::process::{cargo, run_tests};
use std::time::Duration;

const USAGE: &str = "usage: cargo xtask sim [--fabric datagrams|shared-memory|streams] [--seeds N] [--first S] [--seed S] [--trace]";
/// Seeds unless told otherwise: a night's worth.
const SEEDS: &str = "10000";

/// Runs scenarios of `cci_testkit::whole`, optimised. A failure is shrunk and shown, and with `--trace` all that led to it.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    let mut command = cargo(&["test", "--profile", "profiling", "-p", "cci-testkit", "--test", "sim"]);
    command.env("CCI_WORLD_SEEDS", SEEDS);
    let mut filter = "every_seed";
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let text = words.next().ok_or(USAGE)?;
            text.parse::<u64>().map(|_| *text).map_err(|_| format!("{text} is not a number; {USAGE}"))
        };
        match *word {
            "--seeds" => command.env("CCI_WORLD_SEEDS", number()?),
            "--first" => command.env("CCI_WORLD_FIRST", number()?),
            "--seed" => command.env("CCI_WORLD_SEED", number()?),
            "--fabric" => {
                filter = match words.next() {
                    Some(&"datagrams") => "every_seed_of_datagrams",
                    Some(&"shared-memory") => "every_seed_of_shared_memory",
                    Some(&"streams") => "every_seed_of_streams",
                    _ => return Err(USAGE.to_owned()),
                };
                continue;
            }
            "--trace" => command.env("CCI_WORLD_TRACE", "1"),
            _ => return Err(USAGE.to_owned()),
        };
    }
    command.args([filter, "--", "--nocapture"]);
    let tally = run_tests("whole endpoints in simulation", &mut command, Duration::from_secs(4 * 3_600));
    if tally.failed > 0 { Err(format!("simulation: {tally}")) } else { Ok(()) }
}
