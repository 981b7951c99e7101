//! `cci run`: a job on this host.
//!
//! Two processes of the command do it, so that neither can be killed and leave something behind. The *guard* is the one
//! that the user started; it starts the *launcher*, which starts the ranks. Orphans below either become its children
//! (`PR_SET_CHILD_SUBREAPER`), whatever group or session they have moved to. So each can find and end all of them when
//! the other one is gone.

pub mod args;
mod descendants;
mod guard;
mod launcher;
mod output;
mod relay;
mod verdict;

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
        Some(guard) => launcher::run(args, guard),
    }
}
