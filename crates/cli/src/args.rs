//! What can be asked for: every subcommand with its options, help and examples.

use crate::run::args::RunArgs;
use crate::soak::args::SoakArgs;
use cci::Attribute;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  what was asked for failed; the message says why and what to do
  2  it was asked for in a way that can't be understood

Environment:
  CCI_CONFIG  an INI file that names the devices; without it they are found";

/// The Common Communication Interface: devices, ping, performance and endurance.
#[derive(Parser)]
#[command(name = "cci", version, after_help = EXIT_CODES, max_term_width = 110)]
pub struct Cli {
    /// Which subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Subcommand)]
pub enum Command {
    /// Show the devices of this machine, their limits, and what is unavailable with its remedy
    Info(InfoArgs),
    /// Ask a `cci serve` for echoes: round trip, loss, and which path the connection takes and why
    Ping(PingArgs),
    /// Measure latency and rate; every message is verified
    Perf(PerfArgs),
    /// Be the other side of `cci ping` and `cci perf`
    Serve(ServeArgs),
    /// Run mixed traffic with faults for as long as asked, check every byte, end with a verdict
    Soak(SoakArgs),
    /// Serve the files of a folder, by the name of a service
    Files(FilesArgs),
    /// Fetch a file from a `cci files`, wherever that is, and go on when it is started anew
    Get(GetArgs),
    /// Start a job on this host: N processes of a program, which end together
    Run(RunArgs),
    /// Start a job with the options of ACP's launcher; `acprun`, where a link to `cci` has that name
    #[command(disable_help_flag = true)]
    Acprun {
        /// Its options, the program and its arguments; `cci acprun -help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
        arguments: Vec<OsString>,
    },
    /// A peer of `cci soak`
    #[command(hide = true)]
    SoakPeer,
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  cci completions bash > ~/.local/share/bash-completion/completions/cci"
    )]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of the command or of a subcommand, in troff
    #[command(after_help = "Example:\n  cci man perf | man -l -")]
    Man {
        /// Which subcommand; otherwise the command as a whole
        subcommand: Option<String>,
    },
}

/// Options of `cci info`.
#[derive(Args)]
#[command(after_help = "Examples:\n  cci info\n  cci info --json | jq '.devices[].name'")]
pub struct InfoArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `cci ping`.
#[derive(Args)]
#[command(after_help = "\
Both sides sleep while there is nothing to do, as most programs will: the times are what such programs get.
`cci perf` polls, and shows what the device can do.

Examples:
  cci serve --service 7777                        in one terminal: prints its URIs
  cci ping shm://7777                             in another, with one of them
  cci ping tcp://127.0.0.1:7777 --explain         with the path that was taken, and why
  cci ping udp://127.0.0.1:7777 -c 1000 -i 0s     a thousand, each right after the one before
  cci ping udp://127.0.0.1:7777 -c 0              until Ctrl-C, which prints the summary")]
pub struct PingArgs {
    /// A URI that `cci serve` printed, such as shm://NAME or udp://HOST:PORT
    pub uri: String,
    /// Number of pings; 0: until Ctrl-C
    #[arg(short, long, default_value_t = 10)]
    pub count: u64,
    /// Pause between two pings, such as 10ms
    #[arg(short, long, default_value = "100ms")]
    pub interval: humantime::Duration,
    /// Bytes in each message
    #[arg(short, long, default_value_t = 64)]
    pub size: u32,
    /// Kind of connection
    #[arg(short, long, value_enum, ignore_case = true, default_value_t = Kind::Ro)]
    pub r#type: Kind,
    /// Give up connecting, or waiting for an echo, after this long
    #[arg(long, default_value = "3s")]
    pub timeout: humantime::Duration,
    /// The device to send from; otherwise the one that leads there
    #[arg(short, long)]
    pub device: Option<String>,
    /// Say which path the connection took, why not another, and what was measured
    #[arg(short, long)]
    pub explain: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `cci serve`.
#[derive(Args, Clone, Default)]
#[command(after_help = "\
Examples:
  cci serve                                 on every device; prints the URIs to ping
  cci serve --service 7777                  the same, on port 7777 and as shm://7777
  cci serve --device udp-lo --service 7777  on one device: udp://127.0.0.1:7777
  cci serve --device shm --service bench    as shm://bench")]
pub struct ServeArgs {
    /// Only on this device; otherwise on every one that is up
    #[arg(short, long)]
    pub device: Option<String>,
    /// Where to listen: a port for UDP and TCP, a number for raw Ethernet, a name or an absolute path for shared memory;
    /// otherwise chosen. The device `any` chooses, unless it is named by --device
    #[arg(short, long)]
    pub service: Option<String>,
    /// Pin the server to this core
    #[arg(long)]
    pub core: Option<usize>,
    /// Print the URIs as JSON, one line for each device
    #[arg(long)]
    pub json: bool,
    /// End when standard input closes: for a parent process that may be killed
    #[arg(long, hide = true)]
    pub lifeline: bool,
}

/// Options of `cci files`.
#[derive(Args)]
#[command(after_help = "\
Whoever reaches the service reads all files below the folder. On one host that is the same user; CCI_DIRECTORY names other
directories of services, and CCI_CONFIG the devices.

Examples:
  cci files ~/public                  the service is called files
  cci files /srv/data --name data     another name")]
pub struct FilesArgs {
    /// The folder
    pub folder: PathBuf,
    /// The name of the service
    #[arg(long, default_value = "files")]
    pub name: String,
    /// The device to listen on; `cci info` lists them
    #[arg(long)]
    pub device: Option<String>,
}

/// Options of `cci get`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cci get files/notes.txt                 into notes.txt
  cci get data/big.bin -o /tmp/big.bin    somewhere else; it is there when it is whole")]
pub struct GetArgs {
    /// The service and the file: SERVICE/PATH
    #[arg(value_name = "SERVICE/PATH")]
    pub what: String,
    /// Where to write it
    #[arg(short, long)]
    pub output: Option<PathBuf>,
    /// Seconds to wait for a service that is not there
    #[arg(long, default_value_t = 60)]
    pub timeout: u64,
    /// The device to dial from; `cci info` lists them
    #[arg(long)]
    pub device: Option<String>,
}

/// Options of `cci perf`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cci perf                                  every device of this machine: two to three minutes
  cci perf --quick                          a second or two for each device
  cci perf --full --device shm              every size, on one device
  cci perf --server --service 7777          on one machine, and on another one, with a URI that it prints:
  cci perf udp://192.168.0.7:7777
  cci perf --type ro --sizes 8,1024 --json
  cci perf --only rma,atomics --device shm  remote memory
  cci perf --veth --sizes 8,64              UDP, TCP and raw Ethernet on one virtual wire, as root

Each line is printed as soon as it is measured. Ctrl-C ends the run with the summary and the page of what was
measured until then; a second Ctrl-C ends it at once.

What is measured:
  latency   one message there and its echo back, verified at both ends outside of the time taken. Half of the
            round trip is shown: p50, p99 and p99.9 of all round trips after a warm-up.
  rate      a window of messages kept full; the receiver verifies, counts and takes the time.
  plain     the plainest code for the same work, on the same cores and the same path: for messages two sockets
            that poll, with one system call for each message; for memory memcpy between two mappings,
            process_vm_writev or process_vm_readv, or a TCP stream, in turn with the library.
  x         how many times as fast the library is as the plain code. Above 1 it is faster, in every column.
  memory    writes and reads of memory that the server has registered: one at a time, from the call to the
            completion, and many under way at once. Every byte is compared in between.
  atomics   fetch-add on one word, compare-and-swap on many; every result is checked.
  n/a       there is no such thing here. `not measured`: there is, and this run did not get it.")]
pub struct PerfArgs {
    /// Measure against the `cci perf --server` of this URI; otherwise against a second process here
    #[arg(conflicts_with = "server")]
    pub uri: Option<String>,
    /// Be the other side; the same as `cci serve`
    #[arg(long)]
    pub server: bool,
    /// Only this device; may be given several times
    #[arg(short, long)]
    pub device: Vec<String>,
    /// Across a new pair of virtual Ethernet interfaces between two network namespaces, instead of within this machine:
    /// UDP, TCP and raw Ethernet on the same wire (needs root and iproute2)
    #[arg(long, conflicts_with_all = ["uri", "server"])]
    pub veth: bool,
    /// With --server: where to listen, a port for UDP, a name or an absolute path for shared memory
    #[arg(short, long, requires = "server")]
    pub service: Option<String>,
    /// Only these kinds of connection, such as ro,uu [default: all three; with --quick ro]
    #[arg(short, long, value_enum, ignore_case = true, value_delimiter = ',')]
    pub r#type: Vec<Kind>,
    /// Only these of all that is measured
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<What>,
    /// Sizes in bytes; `max` is the longest message, and 64 MiB of memory [default: four from 8 B to the longest message, and
    /// four from 8 B to 1 MiB of memory]
    #[arg(long, value_delimiter = ',')]
    pub sizes: Vec<Size>,
    /// How long each measurement takes [default: so long that the whole takes two to three minutes, 0.2 at most]
    #[arg(long, value_parser = seconds, conflicts_with = "iterations")]
    pub seconds: Option<f64>,
    /// Messages or operations in each measurement, instead of a time
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub iterations: Option<u64>,
    /// A second or two for each device: two sizes, reliable ordered connections; enough to see that it works, too short to
    /// compare
    #[arg(long, conflicts_with_all = ["seconds", "iterations"])]
    pub quick: bool,
    /// More sizes, up to 64 MiB of memory, 0.2 s for each measurement: a minute or two for each device
    #[arg(long, conflicts_with = "quick")]
    pub full: bool,
    /// Messages or transfers in progress at once when the rate is measured [default: 1024, and 1 MiB at most]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub window: Option<u32>,
    /// Leave both processes to the scheduler instead of pinning them to a core each
    #[arg(long)]
    pub no_pin: bool,
    /// Print JSON (and write no page unless --html is given)
    #[arg(long)]
    pub json: bool,
    /// Where to write the page with the curves [default: cci-perf.html]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write no page
    #[arg(long, conflicts_with = "html")]
    pub no_html: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.001..=3600.0).contains(&value) { Ok(value) } else { Err("not in 0.001..=3600".to_owned()) }
}

/// What to measure, on the command line.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Latency and rate of messages
    Messages,
    /// Reads and writes of remote memory
    Rma,
    /// Atomic operations on remote memory
    Atomics,
}

/// A kind of connection, on the command line.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Reliable, ordered
    Ro,
    /// Reliable, unordered
    Ru,
    /// Unreliable, unordered
    Uu,
}

impl Kind {
    /// As the library calls it.
    pub fn attribute(self) -> Attribute {
        match self {
            Kind::Ro => Attribute::ReliableOrdered,
            Kind::Ru => Attribute::ReliableUnordered,
            Kind::Uu => Attribute::Unreliable,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Ro => "ro",
            Kind::Ru => "ru",
            Kind::Uu => "uu",
        })
    }
}

/// A message size, on the command line.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many.
    Bytes(u32),
    /// The longest the connection takes.
    Max,
}

impl std::str::FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Size, String> {
        match text {
            "max" => Ok(Size::Max),
            _ => text.parse().map(Size::Bytes).map_err(|_| "neither a number of bytes nor `max`".to_owned()),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Bytes(count) => write!(f, "{count}"),
            Size::Max => f.write_str("max"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_options_fit_each_other() {
        Cli::command().debug_assert();
    }
}
