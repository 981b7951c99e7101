//! What can be asked for.

use crate::plan::Plan;
use crate::work::{Placement, Work};
use clap::{Parser, Subcommand, ValueEnum};
use std::path::{Path, PathBuf};

/// Where the report's folder `docs` is.
pub fn repository() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// Turns of each contestant, and how long each measures: by default, and with `--quick`.
const USUAL: Plan = Plan { rounds: 5, turn_ms: 100 };
const QUICK: Plan = Plan { rounds: 3, turn_ms: 40 };

/// CCI beside the baseline and beside its peers, in turns on two pinned cores
///
/// The baseline is the same exchange in the plainest code that the operating system's calls allow. Everybody has one turn a round; what counts
/// is the ratio within a round. Each row's result is printed as it comes, and kept in target/bench/results.json.
#[derive(Debug, Parser)]
#[command(name = "bench", version, args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Only rows whose name contains this; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    /// Few and short turns: a first impression, no result to keep
    #[arg(long)]
    pub quick: bool,
    /// Turns of each contestant (5; with --quick 3)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: Option<u32>,
    /// About how long one turn measures, in milliseconds (100; with --quick 40)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub turn_ms: Option<u32>,
    /// Without the peers: only the baseline and CCI
    #[arg(long)]
    pub no_peers: bool,
    /// Where `bench/install-peers` put the peers' programs
    #[arg(long, value_name = "FOLDER", default_value = "target/peers")]
    pub peers: PathBuf,
    /// List the rows and who takes part, and measure nothing
    #[arg(long)]
    pub list: bool,
    /// Keep the rows in FILE, results of an earlier run on this machine, and measure those that it lacks; with --only,
    /// measure those anew
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Print the results as JSON instead of tables
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub destination: Destination,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What this program does besides.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One turn of the baseline or of CCI (what the benchmark starts)
    #[command(hide = true)]
    Work(WorkArgs),
    /// Draw the page of Jetty over RIPC and over TCP from what the benchmark of bindings/jetty has measured
    Fetch {
        /// The files that it has written
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        destination: Destination,
    },
    /// Draw the report again from the results of an earlier run
    Report {
        /// Its results.json
        file: PathBuf,
        #[command(flatten)]
        destination: Destination,
    },
}

/// Where a page goes, with its plots and results in a folder beside it.
#[derive(Debug, Clone, clap::Args)]
pub struct Destination {
    /// Write the report into FOLDER
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Write the report into the repository's docs
    #[arg(long, conflicts_with = "out")]
    write: bool,
}

impl Destination {
    /// None: nothing is written.
    pub fn folder(&self) -> Option<PathBuf> {
        if self.write { Some(repository().join("docs")) } else { self.out.clone() }
    }
}

impl Args {
    /// How long and how often is measured.
    pub fn plan(&self) -> Plan {
        let usual = if self.quick { QUICK } else { USUAL };
        Plan { rounds: self.rounds.unwrap_or(usual.rounds), turn_ms: self.turn_ms.unwrap_or(usual.turn_ms) }
    }
}

/// One turn.
#[derive(Debug, Clone, clap::Args)]
pub struct WorkArgs {
    /// Who does it.
    #[arg(long)]
    pub by: By,
    /// Where the two sides are.
    #[arg(long, default_value = "same-host")]
    pub placement: Placement,
    /// What is done, as `Work` writes itself, such as `half-trip:8`.
    #[arg(long)]
    pub work: Work,
    /// How many times.
    #[arg(long)]
    pub count: u64,
    /// The other side, which the first one starts. This says where the first one is (a URI, an address, …).
    #[arg(long, value_name = "WHERE")]
    pub partner_of: Option<String>,
}

/// Baseline and CCI, each in its forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// One cache line handed back and forth.
    CacheLine,
    /// Two plain UDP sockets.
    PlainUdp,
    /// Two plain TCP sockets.
    PlainTcp,
    /// Two plain AF_XDP sockets.
    PlainXdp,
    /// The C library's copy between mappings.
    Memcpy,
    /// Shared memory, made and freed as CCI does it.
    Pages,
    /// `process_vm_writev` and `process_vm_readv`, called directly.
    ProcessVm,
    /// Two plain eventfds.
    Eventfd,
    /// A word in shared memory, and `futex` called directly.
    Futex,
    /// CCI over shared memory.
    Shm,
    /// CCI over shared memory, with remote memory that is the program's own.
    ShmForeign,
    /// CCI over UDP.
    Udp,
    /// CCI over TCP.
    Tcp,
    /// CCI over raw Ethernet.
    Eth,
    /// CCI's device of several transports.
    Any,
    /// CCI over shared memory, through its locking form.
    ShmLocked,
    /// CCI over UDP, through its locking form.
    UdpLocked,
    /// CCI over shared memory, sleeping on the descriptor that it gives.
    ShmHandle,
    /// CCI over UDP, the same.
    UdpHandle,
    /// CCI over TCP, the same.
    TcpHandle,
    /// Ranks of a job (CCS), which find each other over shared memory.
    Ranks,
    /// Services (libRIPC) over shared memory, found in the directory of the host.
    ServicesShm,
    /// Services over UDP, found by multicast.
    ServicesUdp,
    /// Services over TCP, found in the directory of the host.
    ServicesTcp,
    /// Ranks of a job with global memory (ACP), which find each other over shared memory.
    Acp,
    /// Ranks of a job with global memory, over UDP on loopback.
    AcpUdp,
    /// Ranks of a job with nothing above their connections; its start is that of `cci run`.
    Job,
}

impl By {
    /// The baseline, which knows nothing of CCI.
    pub const fn is_baseline(self) -> bool {
        matches!(
            self,
            By::CacheLine
                | By::PlainUdp
                | By::PlainTcp
                | By::PlainXdp
                | By::Memcpy
                | By::Pages
                | By::ProcessVm
                | By::Eventfd
                | By::Futex
        )
    }

    /// Its word on the command line.
    pub fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
