//! What `cci run` can be asked for.

use clap::{Args, ValueEnum};
use std::ffi::OsString;

/// Most ranks of one host: each holds two pipes of the launcher, and two of its threads.
pub const RANKS_MAX: u16 = 1024;

/// Options of `cci run`.
#[derive(Args)]
#[command(after_help = "\
Each rank has its number in CCI_JOB_RANK and their number in CCI_JOB_SIZE. Their output comes in whole lines. Rank 0 has
the standard input of `cci run`, the others have none. Signals are passed on; a second Ctrl-C kills. Where one rank fails,
the rest are ended. What ranks have started ends with the job.

Exit codes:
  that of the first rank that failed; 128 + N if signal N ended it; 124 after --timeout
  1 or 2 if the job could not be started

Examples:
  cci run -n 4 ./program its arguments
  cci run -n 4 --label hostname
  cci run -n 2 --timeout 1m --bind none ./program")]
pub struct RunArgs {
    /// Number of ranks
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(RANKS_MAX)))]
    pub ranks: u16,
    /// Begin each line of output with the rank that wrote it
    #[arg(long)]
    pub label: bool,
    /// End the job after this long, such as 90s
    #[arg(long, value_name = "T")]
    pub timeout: Option<humantime::Duration>,
    /// Let the other ranks go on where one fails
    #[arg(long)]
    pub keep_going: bool,
    /// What ranks are bound to; otherwise a core each where there are enough, else nothing
    #[arg(long, value_enum)]
    pub bind: Option<Bind>,
    /// The process that guards the launcher; `cci run` starts itself with it
    #[arg(long, hide = true, value_name = "PID")]
    pub guard: Option<u32>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// What ranks are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bind {
    /// A core each
    Core,
    /// Nothing: the system chooses
    None,
}
