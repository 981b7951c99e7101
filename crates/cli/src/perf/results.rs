//! What was measured. Its JSON is what `cci perf --json` prints.

use super::machine::Machine;
use crate::text;
use cci::{Device, TransportKind};
use cci_measure::noise::Noise;
use cci_measure::statistics::Summary;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Where and how.
    pub machine: Machine,
    /// What interfered.
    pub noise: Noise,
    /// The user ended it before all was measured.
    pub interrupted: bool,
    /// How long it took, seconds.
    pub elapsed_s: f64,
    /// By device.
    pub targets: Vec<Target>,
}

/// One device of this machine, or one URI.
#[derive(Clone, Debug, Serialize)]
pub struct Target {
    /// Name of the device.
    pub device: String,
    /// "shm", "udp", "tcp", "eth" or "any".
    pub transport: &'static str,
    /// The server, if it was not a process of ours.
    pub uri: Option<String>,
    /// Both processes are on this machine: the numbers are its kernel's, not the wire's.
    pub within_machine: bool,
    /// Both are at the ends of a pair of virtual Ethernet interfaces.
    pub across_a_pair: bool,
    /// "UDP sockets" or "TCP sockets": what messages are compared with, if that can be done.
    pub plain_sockets: Option<&'static str>,
    /// How long it took, seconds.
    pub elapsed_s: f64,
    /// One cache line from core to core just before, nanoseconds (shared memory only).
    pub cache_line_ns: Option<f64>,
    /// Why it was not measured to the end.
    pub failure: Option<String>,
    /// By kind of connection and size.
    pub cells: Vec<Cell>,
    /// Remote memory, by kind of memory, operation and size.
    pub rma: Vec<RmaCell>,
    /// By operation.
    pub atomics: Vec<AtomicCell>,
}

/// One kind of connection, one size.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// "RO", "RU" or "UU".
    pub r#type: &'static str,
    /// Bytes in each message.
    pub size_bytes: u32,
    /// Round trips.
    pub latency: Latency,
    /// Streams.
    pub rate: Rate,
    /// Two sockets and nothing above them, right after, if that can be compared.
    pub plain: Option<Plain>,
}

/// The figures of plain sockets that carried the same messages.
#[derive(Clone, Debug, Serialize)]
pub struct Plain {
    /// As the library's.
    pub half_round_trip_ns_p50: f64,
    /// How many times as fast the library's round trip is: above 1 it is faster.
    pub latency_times_as_fast: f64,
    /// A system call for each message.
    pub messages_per_s: f64,
    /// How many times as many messages a second the library carries.
    pub rate_times_as_fast: f64,
}

/// Half of the time from sending a message to having its echo.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Those after the warm-up.
    #[serde(flatten)]
    pub half_round_trip: HalfRoundTrip,
    /// Messages sent, warm-up included.
    pub sent: u64,
    /// Those of which both directions were verified.
    pub verified: u64,
    /// Those of which no echo came (UU only).
    pub lost: u64,
    /// What was wrong first, if anything.
    pub wrong: Option<String>,
}

/// What the receiver of a stream counted.
#[derive(Clone, Debug, Serialize)]
pub struct Rate {
    /// Messages a second that came.
    pub messages_per_s: f64,
    /// Bytes a second in them.
    pub bytes_per_s: f64,
    /// Messages sent.
    pub sent: u64,
    /// Messages that came.
    pub received: u64,
    /// Those of them that were what they had to be.
    pub verified: u64,
    /// Sent and not come (UU only).
    pub lost: u64,
    /// What was wrong first, if anything.
    pub wrong: Option<String>,
}

/// One kind of memory, one way, one size.
#[derive(Clone, Debug, Serialize)]
pub struct RmaCell {
    /// "RO" or "RU".
    pub r#type: &'static str,
    /// "library" or "foreign".
    pub memory: &'static str,
    /// "write" or "read".
    pub operation: &'static str,
    /// Bytes in each transfer.
    pub size_bytes: u64,
    /// One at a time.
    pub latency: Completion,
    /// Many under way: median of the rounds.
    pub bytes_per_s: f64,
    /// How many those were.
    pub rounds: u64,
    /// The plainest code for the same, if it could be had.
    pub plain: Option<PlainMemory>,
    /// Transfers made, warm-up left out.
    pub transfers: u64,
    /// Those of which every byte was compared and right.
    pub verified: u64,
    /// What was wrong first, if anything.
    pub wrong: Option<String>,
}

/// What there is to compare with, in the same rounds.
#[derive(Clone, Debug, Serialize)]
pub struct PlainMemory {
    /// "memcpy", "process_vm_*v" or "TCP stream".
    pub name: &'static str,
    /// Median of the rounds.
    pub bytes_per_s: f64,
    /// How many times as many bytes a second the library moves: median of the rounds.
    pub times_as_fast: f64,
}

/// One kind of atomic operation.
#[derive(Clone, Debug, Serialize)]
pub struct AtomicCell {
    /// "RO" or "RU".
    pub r#type: &'static str,
    /// "fetch-add" or "compare-swap".
    pub operation: &'static str,
    /// One at a time.
    pub latency: Completion,
    /// Many under way: operations a second, median of the rounds.
    pub per_s: f64,
    /// How many were under way.
    pub outstanding: u64,
    /// Operations done.
    pub operations: u64,
    /// Those whose result was what it must be.
    pub verified: u64,
    /// What was wrong first, if anything.
    pub wrong: Option<String>,
}

/// Times of half a round trip.
#[derive(Clone, Debug)]
pub struct HalfRoundTrip(pub Summary);

/// Times from the call that starts an operation to having its completion.
#[derive(Clone, Debug)]
pub struct Completion(pub Summary);

impl Serialize for HalfRoundTrip {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, "half_round_trip_ns", to)
    }
}

impl Serialize for Completion {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, "completion_ns", to)
    }
}

/// With what it is, and the unit, in the names of the fields.
fn serialize<S: Serializer>(times: &Summary, what: &str, to: S) -> Result<S::Ok, S::Error> {
    let Summary { min, p50, p99, p999, max, mean, samples } = times;
    let mut map = to.serialize_map(Some(7))?;
    for (name, ns) in [("min", min), ("p50", p50), ("p99", p99), ("p999", p999), ("max", max), ("mean", mean)]
    {
        map.serialize_entry(&format!("{what}_{name}"), ns)?;
    }
    map.serialize_entry("samples", samples)?;
    map.end()
}

impl Results {
    /// Nothing measured yet.
    pub fn new(machine: Machine, noise: Noise) -> Results {
        Results { machine, noise, interrupted: false, elapsed_s: 0.0, targets: Vec::new() }
    }

    /// Everything that went wrong, a line each.
    pub fn failures(&self) -> Vec<String> {
        let mut all: Vec<(String, Option<&String>)> = Vec::new();
        for target in &self.targets {
            let device = &target.device;
            for cell in &target.cells {
                let of = |what: &str| format!("{device} {}, {} B, {what}", cell.r#type, cell.size_bytes);
                all.push((of("latency"), cell.latency.wrong.as_ref()));
                all.push((of("rate"), cell.rate.wrong.as_ref()));
            }
            for cell in &target.rma {
                let (memory, kind, size) = (cell.memory, cell.operation, cell.size_bytes);
                all.push((format!("{device} {memory} memory, {kind}, {size} B"), cell.wrong.as_ref()));
            }
            for cell in &target.atomics {
                all.push((format!("{device} {}", cell.operation), cell.wrong.as_ref()));
            }
            all.push((device.clone(), target.failure.as_ref()));
        }
        all.into_iter().filter_map(|(what, reason)| Some(format!("{what}: {}", reason?))).collect()
    }

    /// What was verified, in words.
    pub fn verified_line(&self) -> String {
        let sum = |of: fn(&Target) -> u64| self.targets.iter().map(of).sum::<u64>();
        let messages =
            sum(|target| target.cells.iter().map(|cell| cell.latency.verified + cell.rate.verified).sum());
        let operations = sum(|target| {
            let atomics = target.atomics.iter().map(|cell| cell.verified);
            target.rma.iter().map(|cell| cell.verified).chain(atomics).sum()
        });
        match (messages, operations) {
            (0, 0) => "nothing verified".to_owned(),
            (_, 0) => format!("{messages} messages verified"),
            (0, _) => format!("{operations} operations on memory verified"),
            _ => format!("{messages} messages and {operations} operations on memory verified"),
        }
    }

    /// What took how long.
    pub fn time_line(&self) -> String {
        let of = |target: &Target| format!("{} {:.0} s", target.device, target.elapsed_s);
        let each: Vec<String> = self.targets.iter().map(of).collect();
        match each.as_slice() {
            [_, _, ..] => format!("took {}: {}", minutes(self.elapsed_s), each.join(", ")),
            _ => format!("took {}", minutes(self.elapsed_s)),
        }
    }

    /// The machine, how it was measured, and what interfered: a line each.
    pub fn machine_lines(&self) -> [String; 3] {
        let (machine, noise) = (&self.machine, &self.noise);
        let steal = noise.steal_fraction.map_or_else(|| "unknown".to_owned(), percent);
        [
            format!(
                "{}, {}, {}, cci {}",
                machine.machine.processor,
                text::count(machine.machine.cores, "core"),
                machine.machine.kernel,
                machine.version
            ),
            format!(
                "clock {} ({} a reading); {}; {}",
                machine.clock,
                text::duration(noise.clock_read_ns),
                machine.method,
                machine.budget()
            ),
            format!(
                "noise: {} of a bare loop taken away, {} at once at most; stolen by the hypervisor: {steal}",
                percent(noise.interrupted_fraction),
                text::duration(noise.longest_interruption_ns as f64)
            ),
        ]
    }
}

fn percent(fraction: f64) -> String {
    format!("{:.2} %", fraction * 100.0)
}

/// "45 s", "2 min 5 s".
pub fn minutes(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {} s", seconds / 60, seconds % 60) }
}

impl Target {
    /// Not measured yet.
    pub fn new(device: &Device, uri: Option<&str>, across_a_pair: bool) -> Target {
        let has_wire = device.ip().is_some_and(|ip| !ip.is_loopback());
        Target {
            device: device.name().to_owned(),
            transport: device.transport().name(),
            uri: uri.map(str::to_owned),
            within_machine: uri.is_none()
                && has_wire
                && !across_a_pair
                && device.transport() != TransportKind::Any,
            across_a_pair,
            plain_sockets: None,
            elapsed_s: 0.0,
            cache_line_ns: None,
            failure: None,
            cells: Vec::new(),
            rma: Vec::new(),
            atomics: Vec::new(),
        }
    }

    /// What to know when reading the numbers.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.within_machine {
            notes.push(
                "within this machine: its kernel short-circuits the packets, the wire is not measured"
                    .to_owned(),
            );
        }
        if self.across_a_pair {
            notes.push("across a pair of virtual Ethernet interfaces between two namespaces".to_owned());
        }
        if let Some(name) = self.plain_sockets {
            notes.push(format!("compared with two plain {name}"));
        }
        if let Some(ns) = self.cache_line_ns {
            notes.push(format!("one cache line from core to core took {}, just before", text::duration(ns)));
        }
        notes
    }
}

impl Rate {
    /// The part that was lost.
    pub fn lost_fraction(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost as f64 / self.sent as f64 }
    }
}
