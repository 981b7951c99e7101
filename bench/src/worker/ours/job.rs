//! Ranks of a job with nothing above their connections: how soon they meet, and barriers.

use super::dial::failed;
use super::ranks;
use crate::args::WorkArgs;
use crate::child::STARTED_NS;
use crate::contestant::this_program;
use crate::reading::Reading;
use crate::work::Work;
use crate::worker::exchange::not_done;
use crate::worker::partner;
use cci::{Context, Options};
use cci_job::{Job, RankEvent, Ranks};
use cci_measure::failure::{Failure, Outcome};
use cci_sys::clock;
use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// Nothing is waited for longer.
const LIMIT: Duration = Duration::from_secs(60);

/// Starts the ranks, each of which does this with a partner's arguments. The reading is rank 0's.
pub fn run(args: &WorkArgs) -> Outcome<Option<Reading>> {
    match (args.work, &args.partner_of) {
        (Work::Start { ranks }, None) => cci_run(args, ranks),
        (Work::Start { .. }, Some(_)) => start(),
        (Work::Barrier { .. }, None) => ranks::launch(args).map(|()| None),
        (Work::Barrier { .. }, Some(_)) => barriers(args.count),
        _ => Err(not_done(args)),
    }
}

/// This process becomes `cci run`: so the time of its own start counts as that of the peers' launchers does.
fn cci_run(args: &WorkArgs, ranks: u32) -> Outcome<Option<Reading>> {
    let launcher = this_program()?.with_file_name("cci");
    let rank = partner::command(args, "rank")?;
    let mut command = Command::new(&launcher);
    command.args(["run", "-n", &ranks.to_string(), "--bind", "none", "--"]);
    command.arg(rank.get_program()).args(rank.get_args());
    let error = command.exec();
    Err(Failure::new(format!("starting {}: {error}", launcher.display()))
        .remedy("cargo build --release -p cci-cli"))
}

/// An endpoint of the job, which every rank needs before it can speak to others: MPI has its own after `MPI_Init`.
fn open() -> Outcome<Ranks> {
    let mut job = Job::join().map_err(|error| failed("joining the job")(&error))?;
    let context = Context::new().map_err(|error| failed("devices")(&error))?;
    let device = context.device("any").ok_or_else(|| Failure::new("no device any"))?;
    Ranks::open(&mut job, device, Options::default()).map_err(|error| failed("ranks")(&error))
}

fn start() -> Outcome<Option<Reading>> {
    let started_ns: u64 = env::var(STARTED_NS)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Failure::new(format!("{STARTED_NS} should say when the launcher was started")))?;
    let mut ranks = open()?;
    barrier(&mut ranks)?;
    let took_ns = clock::now_ns().saturating_sub(started_ns);
    let reading = (ranks.rank() == 0).then(|| Reading::of(took_ns as f64));
    end(ranks)?;
    Ok(reading)
}

fn barriers(count: u64) -> Outcome<Option<Reading>> {
    let mut ranks = open()?;
    // Not before: an endpoint that may use one core alone never spins, since it would keep its peer from running.
    let cores = partner::cores()?;
    cci_sys::cpu::pin(if ranks.rank().is_multiple_of(2) { cores.first } else { cores.second })?;
    for _ in 0..=count / 10 {
        barrier(&mut ranks)?;
    }
    let begin_ns = clock::now_ns();
    for _ in 0..count {
        barrier(&mut ranks)?;
    }
    let took_ns = clock::now_ns() - begin_ns;
    let reading = (ranks.rank() == 0).then(|| Reading::of(took_ns as f64 / count.max(1) as f64));
    end(ranks)?;
    Ok(reading)
}

fn barrier(ranks: &mut Ranks) -> Outcome {
    ranks.barrier(LIMIT).map_err(|error| failed("barrier")(&error))?;
    loop {
        match ranks.wait(Some(LIMIT)).map_err(|error| failed("barrier")(&error))? {
            Some(RankEvent::Barrier(end)) => return end.map_err(|error| failed("barrier")(&error)),
            Some(_) => {}
            None => return Err(Failure::new("the other ranks are silent")),
        }
    }
}

/// Whoever still waits gets what this rank has said.
fn end(ranks: Ranks) -> Outcome {
    if ranks.close(LIMIT) { Ok(()) } else { Err(Failure::new("ranks do not take what was said to them")) }
}
