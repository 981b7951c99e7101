//! What `cci run` can be asked for.

use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Most ranks of a job: each holds two pipes of the launcher on its host, and two of its threads.
pub const RANKS_MAX: u16 = 1024;

/// Options of `cci run`.
#[derive(Args)]
#[command(after_help = "\
Each rank has its number in CCI_JOB_RANK and the number of all ranks in CCI_JOB_SIZE. Output comes in whole lines. Rank 0
has the standard input of `cci run`, the others have none. Signals are passed on; a second Ctrl-C kills. If one rank fails,
the others are ended. What ranks have started ends with the job.

Hosts are filled in the order in which they are named. They have the same programs, folders and `cci` under the same paths;
ssh must reach them without a question. No command line of ssh or of a shell there has the program's arguments or the job's
key in it: those travel over the connection.

Exit codes:
  that of the first rank that failed; 128 + N if signal N ended it; 124 after --timeout
  1 or 2 if the job could not be started

Examples:
  cci run -n 4 ./program its arguments
  cci run -n 4 --label hostname
  cci run -n 2 --timeout 1m --bind none ./program
  cci run --hosts node1:4,node2:4 ./program
  cci run -n 6 --hostfile hosts --ssh 'ssh -p 2222' ./program")]
pub struct RunArgs {
    /// Number of ranks; with hosts, as many as these take
    #[arg(short = 'n', long, value_name = "N", required_unless_present_any = ["hosts", "hostfile", "agent"],
        value_parser = clap::value_parser!(u16).range(1..=i64::from(RANKS_MAX)))]
    pub ranks: Option<u16>,
    /// Hosts, and how many ranks each takes (1 if no number is given), such as a,b:2
    #[arg(long, value_name = "HOSTS", conflicts_with = "hostfile")]
    pub hosts: Option<String>,
    /// A file with a host in each line, such as `a`, `b:2` or `b slots=2`
    #[arg(long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,
    /// What reaches a host: it gets the host and a command line. By default ssh, which asks nothing
    #[arg(long, value_name = "COMMAND")]
    pub ssh: Option<String>,
    /// Begin each line of output with the rank that wrote it
    #[arg(long)]
    pub label: bool,
    /// End the job after this long, such as 90s
    #[arg(long, value_name = "T")]
    pub timeout: Option<humantime::Duration>,
    /// Let the other ranks go on if one fails
    #[arg(long)]
    pub keep_going: bool,
    /// What ranks are bound to; by default a core each if there are enough, otherwise nothing
    #[arg(long, value_enum)]
    pub bind: Option<Bind>,
    /// The process that guards this one; `cci run` starts itself with it
    #[arg(long, hide = true, value_name = "PID")]
    pub guard: Option<u32>,
    /// The agent on another host; `cci run` starts it there
    #[arg(long, hide = true)]
    pub agent: bool,
    /// The program and its arguments
    #[arg(
        required_unless_present = "agent",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
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
