//! Whole endpoints in simulation, at length: `cargo xtask sim`.

use crate::process::{cargo, run_tests};
use std::time::Duration;

/// Of the command line.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only this one
    #[arg(long)]
    fabric: Option<Fabric>,
    /// How many seeds
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first of them
    #[arg(long)]
    first: Option<u64>,
    /// This seed alone
    #[arg(long)]
    seed: Option<u64>,
    /// Show all that led to a failure
    #[arg(long)]
    trace: bool,
}

/// What joins the endpoints.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Fabric {
    Datagrams,
    SharedMemory,
    Streams,
}

/// Runs scenarios of `cci_testkit::whole`, optimised. A failure is shrunk and shown.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    let mut command = cargo(&["test", "--profile", "profiling", "-p", "cci-testkit", "--test", "sim"]);
    command.env("CCI_WORLD_SEEDS", arguments.seeds.to_string());
    let others = [
        ("CCI_WORLD_FIRST", arguments.first),
        ("CCI_WORLD_SEED", arguments.seed),
        ("CCI_WORLD_TRACE", arguments.trace.then_some(1)),
    ];
    for (name, value) in others {
        command.envs(value.map(|value| (name, value.to_string())));
    }
    let filter = match arguments.fabric {
        None => "every_seed",
        Some(Fabric::Datagrams) => "every_seed_of_datagrams",
        Some(Fabric::SharedMemory) => "every_seed_of_shared_memory",
        Some(Fabric::Streams) => "every_seed_of_streams",
    };
    command.args([filter, "--", "--nocapture"]);
    let tally = run_tests("whole endpoints in simulation", &mut command, Duration::from_secs(4 * 3_600));
    if tally.failed > 0 { Err(format!("simulation: {tally}")) } else { Ok(()) }
}
