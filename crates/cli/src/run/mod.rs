//! `cci run`: a job on this host, or on several.
//!
//! Two processes of the command do it, so that neither can be killed and leave something behind. The *guard* is the one
//! that the user started; it starts the *launcher*, which starts the ranks. Orphans below either become its children
//! (`PR_SET_CHILD_SUBREAPER`), whatever group or session they have moved to. So each can find and end all of them when
//! the other one is gone.
//!
//! With hosts, the launcher starts no ranks. It starts `ssh` to each host, which starts an *agent* there, with a guard of its
//! own. The agent ends all that it has started when the connection ends.

mod agent;
pub mod args;
mod descendants;
mod guard;
mod hosts;
mod job;
mod launcher;
mod output;
mod placement;
mod progress;
mod ranks;
mod relay;
mod remote;
mod silence;
mod verdict;
mod wire;

use crate::failure::Outcome;
use args::RunArgs;
use std::process::ExitCode;

/// Runs the job to its end; the exit code is that of the job.
///
/// # Errors
/// It could not be started.
pub fn run(args: &RunArgs) -> Outcome<ExitCode> {
    match args.guard {
        None => guard::run(),
        Some(guard) if args.agent => agent::run(guard),
        Some(guard) => launcher::run(args, guard),
    }
}

/// The name of this host.
fn this_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
