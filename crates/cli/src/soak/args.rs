//! Options of `cci soak`.

use super::talk::Plant;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// The arguments of `cci soak`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  cci soak                                  a minute on every device of this machine
  cci soak --for 1h --device shm            an hour of shared memory, with a live screen
  cci soak --faults none --load 100         as much as the machine can do, undisturbed
  cci soak --faults kill,stop --every 10s --plain --json-file soak.json

What is done:
  Each device gets peer processes that connect to each other and disconnect all the time. Each connection carries
  messages of every length both ways, silent and not, and on reliable ones writes, reads, atomics, fences and
  messages behind the data, in memory that is registered and deregistered for it. Some requests are rejected, some
  memory is taken back while it is worked on. With --messengers, the peers send messages of any length and call each
  other, and some are cancelled, refused or given up. The first two peers are never harmed; the others are, by --faults.
What is checked:
  every byte; each message once, and in order on RO; each operation completes once; atomics add up; memory holds what
  was written to it or nothing, also after writers that died half way, and does not change once it is taken back; a
  session ends early only where a fault explains it; nothing stalls; memory does not grow; at the end every session has
  ended, every buffer is home, and the first two peers hold the descriptors, mappings and threads they held before any
  fault.
Where: shm and any in this machine, udp on its loopback through a relay that loses, repeats and delays; tcp and eth
across a virtual pair of interfaces that goes down and up (as root; otherwise tcp is on the loopback, and eth is not).
Ctrl-C ends it early, with a verdict all the same. Exit code 0: survived. 1: something was wrong, or a device carried
nothing that could be checked. 2: wrong arguments.")]
pub struct SoakArgs {
    /// Only this device: shm, udp, tcp, eth, any, or one by name; may be given several times, or a list
    #[arg(short, long, value_delimiter = ',')]
    pub device: Vec<String>,
    /// How long, such as 30s or 1h; one second at least
    #[arg(long, default_value = "1m", value_parser = duration)]
    pub r#for: humantime::Duration,
    /// Processes on each device
    #[arg(long, default_value_t = 4, value_parser = peers)]
    pub peers: usize,
    /// Which faults: all, none, or some of kill,segv,stop,renew,slow,weather,link
    #[arg(long, value_delimiter = ',', default_value = "all")]
    pub faults: Vec<String>,
    /// Time between two faults on a device, on average
    #[arg(long, default_value = "2s")]
    pub fault_every: humantime::Duration,
    /// How long a send, an attempt to connect or a silent peer is waited for
    #[arg(long, default_value = "15s", value_parser = duration)]
    pub timeout: humantime::Duration,
    /// Makes the traffic and the faults; otherwise any
    #[arg(long)]
    pub seed: Option<u64>,
    /// How much of a core each process may take, percent
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub load: u32,
    /// UDP and any too across a virtual pair of interfaces, instead of within this machine
    #[arg(long)]
    pub veth: bool,
    /// Peers are messengers: they send messages of any length and call each other
    #[arg(long)]
    pub messengers: bool,
    /// Print the results as JSON at the end, and nothing else
    #[arg(long)]
    pub json: bool,
    /// Write the results as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub json_file: Option<PathBuf>,
    /// Print a line for each device now and then, instead of a live screen
    #[arg(long)]
    pub plain: bool,
    /// Time between these lines
    #[arg(long, default_value = "10s")]
    pub every: humantime::Duration,
    /// The first peer of each device makes this error, which must be found
    #[arg(long, value_enum, hide = true)]
    pub plant: Option<Plant>,
}

/// Less than a second is over before the peers have found each other.
const LASTS_MIN: Duration = Duration::from_secs(1);

fn duration(text: &str) -> Result<humantime::Duration, String> {
    let value: humantime::Duration = text.parse().map_err(|error| format!("{error}; write 30s or 1h"))?;
    if Duration::from(value) < LASTS_MIN { Err("one second (1s) at least".to_owned()) } else { Ok(value) }
}

fn peers(text: &str) -> Result<usize, String> {
    let value: usize = text.parse().map_err(|_| "not a number".to_owned())?;
    if (2..=10).contains(&value) { Ok(value) } else { Err("not in 2..=10".to_owned()) }
}
