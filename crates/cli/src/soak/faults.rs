//! What goes wrong on purpose, when, and to whom: by seed.

use super::random::Random;
use clap::ValueEnum;
use std::fmt;
use std::time::Duration;

/// What can be done to peers and to the network between them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// A peer is killed (SIGKILL) and started again with the same service
    Kill,
    /// A peer dies of a memory error (SIGSEGV) and is started again
    Segv,
    /// A peer stands still for a while (SIGSTOP, SIGCONT)
    Stop,
    /// A peer closes its endpoint and opens another one with the same service
    Renew,
    /// A peer keeps every message for a while, until no receive buffer is left
    Slow,
    /// Datagrams are lost, repeated and late for a while (UDP, between processes of this machine)
    Weather,
    /// The interface goes down, and up again (on a virtual pair)
    Link,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 7] =
        [Fault::Kill, Fault::Segv, Fault::Stop, Fault::Renew, Fault::Slow, Fault::Weather, Fault::Link];

    /// As a number, for tables.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Peers that are to survive everything are left alone.
    pub const fn spares_survivors(self) -> bool {
        matches!(self, Fault::Kill | Fault::Segv | Fault::Stop | Fault::Renew)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Kill => "kill",
            Fault::Segv => "segv",
            Fault::Stop => "stop",
            Fault::Renew => "renew",
            Fault::Slow => "slow",
            Fault::Weather => "weather",
            Fault::Link => "link",
        })
    }
}

/// The next fault.
#[derive(Copy, Clone, Debug)]
pub struct Next {
    /// What.
    pub fault: Fault,
    /// To whom, where it is done to one.
    pub whom: usize,
    /// For how long.
    pub lasts: Duration,
    /// Until the one after it.
    pub then: Duration,
}

/// Draws faults.
pub struct FaultSchedule {
    random: Random,
    kinds: Vec<Fault>,
    peers: usize,
    survivors: usize,
    mean: Duration,
    timeout: Duration,
}

/// A peer that is killed is started again within this, and sooner where faults are frequent.
const RESTART_MS_MAX: u64 = 2_000;
/// The longest time for which a peer is stopped.
const STOP_MS_MAX: u64 = 6_000;

impl FaultSchedule {
    /// Of these kinds, to `peers` peers of which the first `survivors` are to survive. One peer gives another up after
    /// `timeout`.
    pub fn new(
        seed: u64,
        kinds: Vec<Fault>,
        peers: usize,
        survivors: usize,
        mean: Duration,
        timeout: Duration,
    ) -> FaultSchedule {
        let kinds = kinds.into_iter().filter(|kind| !kind.spares_survivors() || peers > survivors).collect();
        FaultSchedule { random: Random::new(seed), kinds, peers, survivors, mean, timeout }
    }

    /// The next one; None where there are no kinds.
    pub fn draw(&mut self) -> Option<Next> {
        let random = &mut self.random;
        let fault = *self.kinds.get(random.below(self.kinds.len() as u64) as usize)?;
        let first = if fault.spares_survivors() { self.survivors } else { 0 };
        let whom = random.between(first as u64, self.peers.saturating_sub(1) as u64) as usize;
        let (mean_ms, timeout_ms) = (self.mean.as_millis() as u64, self.timeout.as_millis() as u64);
        let ms = match fault {
            Fault::Kill | Fault::Segv => random.between(1, RESTART_MS_MAX.min(4 * mean_ms).max(1)),
            // Half of them for a moment, which nobody may notice, the others beyond all patience if that is short.
            Fault::Stop if random.one_in(2) => {
                random.between(1, Self::moment(self.timeout).as_millis() as u64)
            }
            Fault::Stop => random.between(1, STOP_MS_MAX.min(timeout_ms * 3 / 2)),
            Fault::Renew => 0,
            Fault::Slow => random.between(50, 1_500),
            Fault::Weather => random.between(500, 6_000),
            Fault::Link => random.between(20, 2_000),
        };
        let then = random.between(0, 2 * mean_ms);
        Some(Next { fault, whom, lasts: Duration::from_millis(ms), then: Duration::from_millis(then) })
    }

    /// A peer that stands still for this long is missed by nobody who waits for `timeout`.
    pub fn moment(timeout: Duration) -> Duration {
        (timeout / 16).max(Duration::from_millis(1))
    }

    /// Losses, repetitions and delays in a thousand.
    pub fn weather(&mut self) -> (u64, u64, u64) {
        let random = &mut self.random;
        (random.below(60), random.below(30), random.below(60))
    }
}
