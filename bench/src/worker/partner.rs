//! The second process of a turn.

use crate::args::WorkArgs;
use crate::contestant::this_program;
use crate::work::Placement;
use cci_measure::failure::{Failure, Outcome};
use cci_measure::site::Site;
use cci_sys::{clock, cpu};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Nothing is waited for longer.
const LIMIT_NS: u64 = 20_000_000_000;
/// Polls between two looks at the other process.
const POLLS_PER_LOOK: u32 = 64;

/// Cores of the two sides; both must be there, or there is nothing to measure.
pub struct Cores {
    /// Of the first process.
    pub first: usize,
    /// Of its partner.
    pub second: usize,
}

/// The two first cores this process may use.
pub fn cores() -> Outcome<Cores> {
    match cpu::allowed()?.as_slice() {
        &[first, second, ..] => Ok(Cores { first, second }),
        _ => Err(Failure::new("two cores are needed, one for each side")),
    }
}

/// Pins this process to its core: the partner's for the partner.
pub fn pin(args: &WorkArgs) -> Outcome {
    let cores = cores()?;
    let mine = if args.partner_of.is_some() { cores.second } else { cores.first };
    Ok(cpu::pin(mine)?)
}

/// Where the sides are; this process is on the first one's.
pub fn site(args: &WorkArgs) -> Outcome<Site> {
    match args.placement {
        Placement::SameHost => Ok(Site::same_host()),
        Placement::VirtualPair => Site::across_a_pair(),
    }
}

/// This program as another side of the same turn.
pub fn command(args: &WorkArgs, first: &str) -> Outcome<Command> {
    let mut command = Command::new(this_program()?);
    command.args(["work", "--by", &args.by.word(), "--work", &args.work.to_string()]);
    command.args(["--count", &args.count.to_string(), "--placement", &args.placement.word()]);
    command.args(["--partner-of", first]);
    Ok(command)
}

/// The second process, which ends with this value.
pub struct Partner(Child);

impl Partner {
    /// Starts it on the other side. To be called before `pin`, which it would inherit.
    pub fn start(args: &WorkArgs, site: &Site, first: &str) -> Outcome<Partner> {
        Partner::start_with(args, site, first, (Stdio::null(), Stdio::null()))
    }

    /// Starts the partner with the given standard input and output.
    pub fn start_with(
        args: &WorkArgs,
        site: &Site,
        first: &str,
        (input, output): (Stdio, Stdio),
    ) -> Outcome<Partner> {
        let mut command = command(args, first)?;
        command.stdin(input).stdout(output);
        let child = site.in_peer_namespace(|| command.spawn());
        Ok(Partner(child.map_err(|error| Failure::new(format!("starting the second process: {error}")))?))
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// What it prints, where that was asked for.
    pub fn output(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    /// Waits for its end, which must be a good one. `poll` is called meanwhile: what was sent last may need it to leave.
    pub fn end(mut self, mut poll: impl FnMut()) -> Outcome {
        let until_ns = clock::now_ns() + LIMIT_NS;
        loop {
            for _ in 0..POLLS_PER_LOOK {
                poll();
            }
            match self.0.try_wait() {
                Ok(None) if clock::now_ns() < until_ns => {}
                Ok(None) => return Err(Failure::new("the second process does not end")),
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(Failure::new(format!("the second process: {status}"))),
                Err(error) => return Err(Failure::new(format!("the second process: {error}"))),
            }
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        // Where the turn failed: by its own id, so that nothing else is hit.
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
