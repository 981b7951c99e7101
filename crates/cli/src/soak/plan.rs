//! What the soak of one device is to do.

use super::faults::Fault;
use super::random::mix;
use super::talk::{Plant, Setup};
use std::time::Duration;

/// Memory and descriptors are looked at so often in a long run, more often in a short one: what grows is judged by
/// [`SAMPLES_WANTED`] of them or more, also where the peers were slow to start.
const SAMPLE_MAX: Duration = Duration::from_secs(1);
const SAMPLE_MIN: Duration = Duration::from_millis(50);
const SAMPLES_WANTED: u32 = 64;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its place among the devices of the soak.
    pub number: usize,
    /// Device, or what drives it.
    pub device: String,
    /// What drives it.
    pub transport: String,
    /// Across a virtual pair.
    pub pair: bool,
    /// Through a relay.
    pub relay: bool,
    /// Processes.
    pub peers: usize,
    /// The seed of everything random in the soak.
    pub seed: u64,
    /// Percent of a core that each peer may take.
    pub load_percent: u32,
    /// How long the soak lasts.
    pub lasts: Duration,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// The mean time between two faults.
    pub fault_every: Duration,
    /// How long a peer waits for another.
    pub timeout: Duration,
    /// The peers are messengers.
    pub messengers: bool,
    /// An error of the first peer.
    pub plant: Option<Plant>,
}

impl Plan {
    /// Time between two looks at the peers.
    pub fn sample_every(&self) -> Duration {
        (self.lasts / SAMPLES_WANTED).clamp(SAMPLE_MIN, SAMPLE_MAX)
    }

    /// Where the peers are, in words.
    pub const fn site_name(&self) -> &'static str {
        match (self.pair, self.relay) {
            (true, _) => "virtual pair",
            (false, true) => "loopback, relayed",
            (false, false) => "this machine",
        }
    }

    /// How many peers no fault ends: two, on different sides of the pair, where there are others.
    pub const fn survivors(&self) -> usize {
        if self.peers > 2 { 2 } else { 1 }
    }

    /// What the peer of this index gets, in a soak of this seed.
    pub fn setup(&self, index: usize, seed: u64) -> Setup {
        let pid = std::process::id();
        // Below the ports that the system gives away by itself.
        let port = 20_000 + (pid as usize % 50 * 20 + self.number % 20) * 10 + index;
        let service = match self.transport.as_str() {
            "udp" | "tcp" => port.to_string(),
            "eth" => (index + 1).to_string(),
            _ => format!("soak-{pid}-{}-{index}", self.device),
        };
        Setup {
            device: self.device.clone(),
            service,
            index: index as u32,
            seed: mix(seed.wrapping_add(index as u64)),
            load_percent: self.load_percent,
            timeout_ms: self.timeout.as_millis() as u64,
            across: self.pair,
            messengers: self.messengers,
            plant: self.plant.filter(|_| index == 0),
        }
    }

    /// Whether it is on the far side of the pair.
    pub const fn is_there(index: usize) -> bool {
        index % 2 == 1
    }
}
