//! What is measured, for how long.

use super::work::{Kind, Operation, ROUNDS_MIN};
use crate::args::Size::{Bytes, Max};
use crate::args::{PerfArgs, Size, What};
use crate::failure::{Failure, Outcome};
use crate::protocol::LENT_BYTES_MAX;
use cci::{Attribute, Device, TransportKind};
use cci_measure::transfer::Direction;

/// The most that a measurement takes unless another value is given; with `--full` each takes so long.
const USUAL_NS_MAX: u64 = 200_000_000;
/// The least: shorter ones say little.
const USUAL_NS_MIN: u64 = 20_000_000;
/// A run takes about so long, whatever the number of devices, unless another value is given.
const RUN_NS: u64 = 150_000_000_000;
/// What a measurement takes with its warm-up, in percent of its time.
const OVERHEAD_PERCENT: u64 = 120;
/// How often the bytes of a round are filled, moved and compared, with the plain code and what warms up; and the nanoseconds
/// that a byte takes then, more or less.
const PASSES: u64 = 10;
const NS_PER_BYTE: u64 = 1;
/// Transfers in a round of remote memory.
const TRANSFERS_MAX: u64 = 4096;
/// To start a server and to connect, for each device.
const START_NS: u64 = 500_000_000;
/// Messages under way at once, unless another value is given.
const WINDOW: u32 = 1024;
/// And bytes in them.
const WINDOW_BYTES: u32 = 1 << 20;
const WINDOW_MIN: u32 = 16;
/// Remote memory for batches of small transfers.
const RMA_BYTES_MIN: u64 = 16 << 20;

/// How much is measured where nothing else is said.
struct Extent {
    /// Kinds of connection.
    attributes: &'static [Attribute],
    /// Of messages.
    sizes: &'static [Size],
    /// Of transfers of remote memory.
    rma_sizes: &'static [Size],
    /// Bytes under way in a round of remote memory, unless one transfer has more.
    round_bytes: u64,
    /// How long a measurement takes at most.
    measurement_ns: u64,
    /// Shorter where there are many measurements.
    is_fitted: bool,
}

/// With `--quick`.
const QUICK: Extent = Extent {
    attributes: &[Attribute::ReliableOrdered],
    sizes: &[Bytes(8), Max],
    rma_sizes: &[Bytes(8), Bytes(64 << 10)],
    round_bytes: 1 << 20,
    measurement_ns: 20_000_000,
    is_fitted: false,
};
const USUAL: Extent = Extent {
    attributes: &[Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable],
    sizes: &[Bytes(8), Bytes(64), Bytes(1024), Max],
    rma_sizes: &[Bytes(8), Bytes(4 << 10), Bytes(64 << 10), Bytes(1 << 20)],
    round_bytes: 8 << 20,
    measurement_ns: USUAL_NS_MAX,
    is_fitted: true,
};
/// With `--full`.
const FULL: Extent = Extent {
    sizes: &[Bytes(0), Bytes(8), Bytes(64), Bytes(512), Bytes(1024), Bytes(4096), Max],
    rma_sizes: &[
        Bytes(8),
        Bytes(64),
        Bytes(512),
        Bytes(4 << 10),
        Bytes(32 << 10),
        Bytes(256 << 10),
        Bytes(1 << 20),
        Bytes(4 << 20),
        Bytes(64 << 20),
    ],
    round_bytes: 16 << 20,
    is_fitted: false,
    ..USUAL
};

/// What `cci perf` measures, and for how long.
pub struct Plan {
    /// Kinds of connection.
    pub attributes: Vec<Attribute>,
    sizes: Vec<Size>,
    extent: Extent,
    /// Measure messages.
    pub with_messages: bool,
    /// Measure reads and writes of remote memory.
    pub with_rma: bool,
    /// Measure atomics.
    pub with_atomics: bool,
    /// When a measurement ends.
    pub budget: Budget,
    /// The time of a measurement follows from their number.
    is_fitted: bool,
    window: Option<u32>,
}

/// When a measurement ends.
#[derive(Copy, Clone, Debug)]
pub enum Budget {
    /// After a time.
    Nanoseconds(u64),
    /// After so many messages.
    Messages(u64),
}

impl Budget {
    /// Whether so much time, or so many messages or operations, are enough.
    #[inline]
    pub const fn is_spent(self, took_ns: u64, count: u64) -> bool {
        match self {
            Budget::Nanoseconds(ns) => took_ns >= ns,
            Budget::Messages(wanted) => count >= wanted,
        }
    }
}

impl Plan {
    /// From the command line.
    pub fn new(args: &PerfArgs) -> Plan {
        let extent = match (args.quick, args.full) {
            (true, _) => QUICK,
            (false, true) => FULL,
            (false, false) => USUAL,
        };
        let mut attributes: Vec<Attribute> = Vec::new();
        for kind in &args.r#type {
            if !attributes.contains(&kind.attribute()) {
                attributes.push(kind.attribute());
            }
        }
        if attributes.is_empty() {
            attributes = extent.attributes.to_vec();
        }
        let wants = |what: What| args.only.is_empty() || args.only.contains(&what);
        // Remote memory needs a reliable connection.
        let reliable = attributes.iter().any(|attribute| attribute.is_reliable());
        Plan {
            attributes,
            sizes: args.sizes.clone(),
            with_messages: wants(What::Messages),
            with_rma: reliable && wants(What::Rma),
            with_atomics: reliable && wants(What::Atomics),
            budget: match (args.iterations, args.seconds) {
                (Some(count), _) => Budget::Messages(count),
                (None, Some(seconds)) => Budget::Nanoseconds((seconds * 1e9) as u64),
                (None, None) => Budget::Nanoseconds(extent.measurement_ns),
            },
            is_fitted: extent.is_fitted && args.iterations.is_none() && args.seconds.is_none(),
            window: args.window,
            extent,
        }
    }

    /// Chooses the time of a measurement so that all of them end in time. With each goes whether its messages are
    /// compared with plain sockets.
    pub fn fit<'a>(&mut self, devices: impl Iterator<Item = (&'a Device, bool)>) {
        if !self.is_fitted {
            return;
        }
        let devices: Vec<_> = devices.collect();
        let mut ns = USUAL_NS_MAX;
        loop {
            self.budget = Budget::Nanoseconds(ns);
            let is_short = self.estimate_ns(devices.iter().copied()).is_some_and(|all_ns| all_ns <= RUN_NS);
            if is_short || ns <= USUAL_NS_MIN {
                return;
            }
            ns -= USUAL_NS_MIN / 4;
        }
    }

    /// About how long the devices will take; None where numbers of messages decide.
    pub fn estimate_ns<'a>(&self, devices: impl Iterator<Item = (&'a Device, bool)>) -> Option<u64> {
        let Budget::Nanoseconds(ns) = self.budget else { return None };
        let of = |(device, compared): (&Device, bool)| {
            let each_ns = ns * OVERHEAD_PERCENT / 100;
            let messages = self.message_steps(device) * if compared { 2 } else { 1 };
            let rounds_ns = |size: u64| ROUNDS_MIN * PASSES * NS_PER_BYTE * self.round_bytes(size);
            let (transfers, atomics) = self.rma_parts(device.transport());
            let sizes = self.rma_sizes();
            let all_sizes_ns: u64 = sizes.iter().map(|&size| each_ns.max(rounds_ns(size))).sum();
            START_NS + (messages + atomics) * each_ns + transfers * all_sizes_ns
        };
        Some(devices.map(of).sum())
    }

    /// Measurements of remote memory on a transport: of transfers, for each size, and of atomics.
    pub fn rma_parts(&self, transport: TransportKind) -> (u64, u64) {
        let transfers = if self.with_rma { Kind::of(transport).len() * Direction::BOTH.len() } else { 0 };
        let atomics = if self.with_atomics { Operation::BOTH.len() } else { 0 };
        (transfers as u64, atomics as u64)
    }

    /// Bytes of one size in a round of remote memory.
    fn round_bytes(&self, size: u64) -> u64 {
        self.transfers(size) * size
    }

    /// Transfers of one size in a round of remote memory.
    pub fn transfers(&self, size: u64) -> u64 {
        (self.extent.round_bytes / size.max(1)).clamp(1, TRANSFERS_MAX)
    }

    /// The sizes for a connection that takes `len_max` bytes: ascending, each once, those that are too long left out.
    pub fn sizes(&self, len_max: u32) -> Outcome<Vec<u32>> {
        let chosen = if self.sizes.is_empty() { self.extent.sizes } else { &self.sizes };
        let as_bytes = |size: &Size| match *size {
            Bytes(count) => count,
            Max => len_max,
        };
        let sizes = ascending(chosen.iter().map(as_bytes).filter(|&len| len <= len_max));
        // Those that remote memory takes and no message are not a mistake.
        if sizes.is_empty() && !self.with_rma {
            return Err(Failure::usage(format!("--sizes: this connection takes {len_max} bytes at most"))
                .remedy("--sizes max"));
        }
        Ok(sizes)
    }

    /// The sizes of transfers of remote memory, ascending, each once.
    pub fn rma_sizes(&self) -> Vec<u64> {
        let chosen = if self.sizes.is_empty() { self.extent.rma_sizes } else { &self.sizes };
        let as_bytes = |size: &Size| match *size {
            Bytes(count) => u64::from(count),
            Max => LENT_BYTES_MAX,
        };
        ascending(chosen.iter().map(as_bytes).filter(|len| (1..=LENT_BYTES_MAX).contains(len)))
    }

    /// Bytes of remote memory that these take: batches of small ones lie side by side.
    pub fn rma_bytes(&self) -> u64 {
        self.rma_sizes().last().copied().unwrap_or(1).max(RMA_BYTES_MIN)
    }

    /// The kind of connection that remote memory is measured on: the first that can.
    pub fn rma_attribute(&self) -> Option<Attribute> {
        let wanted = self.with_rma || self.with_atomics;
        self.attributes.iter().copied().find(|attribute| wanted && attribute.is_reliable())
    }

    /// Measurements of messages on a device: a latency and a rate for each kind and size.
    pub fn message_steps(&self, device: &Device) -> u64 {
        let len_max = device.max_send_size();
        let sizes = self.sizes(len_max).map_or(0, |sizes| sizes.len());
        let messages = if self.with_messages { self.attributes.len() * sizes * 2 } else { 0 };
        messages as u64
    }

    /// Messages of `len` bytes under way at once in a rate measurement.
    pub fn window(&self, len: u32) -> u32 {
        let by_bytes = (WINDOW_BYTES / len.max(1)).max(WINDOW_MIN);
        self.window.unwrap_or_else(|| WINDOW.min(by_bytes))
    }
}

fn ascending<T: Ord>(sizes: impl Iterator<Item = T>) -> Vec<T> {
    let mut sizes: Vec<T> = sizes.collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn plan(options: &[&str]) -> Plan {
        let words = ["cci", "perf"].iter().chain(options);
        let Ok(Cli { command: Command::Perf(args) }) = Cli::try_parse_from(words) else {
            panic!("{options:?} are options of perf")
        };
        Plan::new(&args)
    }

    /// Seconds for so many devices like the one of this machine that is always there.
    fn seconds(options: &[&str], devices: usize) -> u64 {
        let context = crate::devices::context().unwrap();
        let device = context.device("shm").unwrap();
        let all = || std::iter::repeat_n((device, true), devices);
        let mut plan = plan(options);
        plan.fit(all());
        plan.estimate_ns(all()).unwrap() / 1_000_000_000
    }

    #[test]
    fn a_run_takes_two_to_three_minutes_whatever_the_machine() {
        assert!(seconds(&[], 1) < 60, "one device takes no longer than its measurements");
        for devices in [7, 12, 30] {
            assert!((100..=180).contains(&seconds(&[], devices)), "{devices}: {}", seconds(&[], devices));
        }
        assert!(seconds(&["--full"], 7) > seconds(&[], 7));
        // What is asked for is done, however long it takes.
        assert!(seconds(&["--seconds", "2"], 7) > 600);
    }

    #[test]
    fn the_first_figures_of_a_quick_run_are_there_at_once() {
        let plan = plan(&["--quick"]);
        let Budget::Nanoseconds(each_ns) = plan.budget else { panic!("a time") };
        // A latency and a rate, each with its comparison, and what it takes to start.
        assert!(4 * each_ns * OVERHEAD_PERCENT / 100 + START_NS < 1_000_000_000);
        assert!(seconds(&["--quick"], 7) <= 10, "{}", seconds(&["--quick"], 7));
    }
}
