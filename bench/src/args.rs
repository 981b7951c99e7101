//! What can be asked for.

use crate::work::{Place, Work};
use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// CCI beside the floor and beside its peers, in turns on two pinned cores
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
pub struct Args {
    /// Only rows whose name contains this; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    /// Turns of each contestant
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,
    /// About how long one turn measures, in milliseconds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub turn_ms: u32,
    /// Without the peers: only the floor and CCI
    #[arg(long)]
    pub no_peers: bool,
    /// Where `bench/install-peers` put the peers' programs
    #[arg(long, value_name = "FOLDER", default_value = "target/peers")]
    pub peers: PathBuf,
    /// List the rows and who takes part, and measure nothing
    #[arg(long)]
    pub list: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What this program does besides.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One turn of the floor or of CCI (what the benchmark starts)
    #[command(hide = true)]
    Work(WorkArgs),
}

/// One turn.
#[derive(Debug, Clone, clap::Args)]
pub struct WorkArgs {
    /// Who does it.
    #[arg(long)]
    pub by: By,
    /// Where the two sides are.
    #[arg(long, default_value = "here")]
    pub place: Place,
    /// What is done, as `Work` writes itself, such as `half-trip:8`.
    #[arg(long)]
    pub work: Work,
    /// How many times.
    #[arg(long)]
    pub count: u64,
    /// The other side, which the first one starts; it tells here where the first one is (a URI, an address, …).
    #[arg(long, value_name = "WHERE")]
    pub partner_of: Option<String>,
}

/// Floor and CCI, each in its forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// One cache line handed back and forth.
    CacheLine,
    /// Two UDP sockets by hand.
    HandUdp,
    /// Two TCP sockets by hand.
    HandTcp,
    /// CCI over shared memory.
    Shm,
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
}

impl By {
    /// As on the command line.
    pub fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}
