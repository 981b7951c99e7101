//! The results as lines of text: each can be printed as soon as it is measured, so the columns have fixed widths.

use super::results::{AtomicCell, Cell, Plain, Results, RmaCell, Spread, Target};
use crate::text::{self, Table};
use cci::TransportKind;
use std::fmt::Write;

/// There is no such thing here.
pub const NOT_APPLICABLE: &str = "n/a";
/// There is such a thing, and this run did not get it.
pub const NOT_MEASURED: &str = "not measured";

/// A column: its title, its width, and whether it holds words.
pub struct Column(&'static str, usize, bool);

impl Column {
    /// What stands above it.
    pub const fn title(&self) -> &'static str {
        self.0
    }

    /// It holds words, not figures.
    pub const fn is_words(&self) -> bool {
        self.2
    }
}

const fn words(title: &'static str, width: usize) -> Column {
    Column(title, width, true)
}

const fn figures(title: &'static str, width: usize) -> Column {
    Column(title, width, false)
}

/// Over the rows of [`row`].
pub const MESSAGES: &[Column] = &[
    words("type", 4),
    figures("size", 7),
    figures("latency p50", 12),
    figures("p99", 9),
    figures("p99.9", 9),
    figures("messages/s", 11),
    figures("bytes/s", 10),
    figures("lost", 7),
];
/// The further ones where messages are compared with plain sockets.
pub const PLAIN: &[Column] =
    &[figures("plain p50", 11), figures("x", 6), figures("plain msg/s", 12), figures("x", 6)];
/// Over the rows of [`rma_row`].
pub const MEMORY: &[Column] = &[
    words("memory", 7),
    words("operation", 9),
    figures("size", 8),
    figures("done in p50", 12),
    figures("p99", 9),
    figures("p99.9", 9),
    figures("bytes/s", 10),
    words("  plain", 15),
    figures("bytes/s", 10),
    figures("x", 6),
];
/// Over the rows of [`atomic_row`].
pub const ATOMICS: &[Column] = &[
    words("atomics", 12),
    figures("done in p50", 12),
    figures("p99", 9),
    figures("p99.9", 9),
    figures("operations/s", 13),
    figures("under way", 10),
];

/// The head of a device.
pub fn head(target: &Target) -> String {
    let server = target.uri.as_ref().map_or_else(String::new, |uri| format!(" to {uri}"));
    let mut out = format!("\n{}{server}\n", target.device);
    for note in target.notes() {
        let _ = writeln!(out, "  ({note})");
    }
    out
}

/// Titles of columns.
pub fn titles(columns: &[&[Column]]) -> String {
    let all: Vec<&Column> = columns.iter().flat_map(|part| part.iter()).collect();
    line(columns, &all.iter().map(|Column(title, ..)| (*title).to_owned()).collect::<Vec<_>>())
}

/// One row in columns.
pub fn line(columns: &[&[Column]], cells: &[String]) -> String {
    let all = columns.iter().flat_map(|part| part.iter());
    let mut out = String::from(" ");
    for (Column(_, width, is_words), cell) in all.zip(cells) {
        let _ = if *is_words { write!(out, " {cell:<width$}") } else { write!(out, " {cell:>width$}") };
    }
    format!("{}\n", out.trim_end())
}

/// What follows the devices.
pub fn end(results: &Results) -> String {
    let mut out = String::new();
    if results.targets.len() > 1 {
        let _ = write!(out, "\nin short\n{}", in_short(results));
    }
    let (machine, noise) = (&results.machine, &results.noise);
    let stopped = if results.interrupted { "; interrupted, so not all was measured" } else { "" };
    let _ = writeln!(out, "\n{}{stopped}", results.verified_line());
    let _ = writeln!(out, "{}", results.time_line());
    let _ = writeln!(
        out,
        "{}, {}, {}, cci {}",
        machine.processor,
        text::count(machine.cores, "core"),
        machine.kernel,
        machine.version
    );
    let _ = writeln!(
        out,
        "clock {} ({} a reading); {}; {}",
        machine.clock,
        text::duration(noise.clock_read_ns),
        machine.method,
        machine.budget()
    );
    let steal =
        noise.steal_fraction.map_or_else(|| "unknown".to_owned(), |part| format!("{:.2} %", part * 100.0));
    let _ = writeln!(
        out,
        "noise: {:.2} % of a bare loop taken away, {} at once at most; stolen by the hypervisor: {steal}",
        noise.interrupted_fraction * 100.0,
        text::duration(noise.longest_interruption_ns as f64)
    );
    let _ = writeln!(
        out,
        "latency is half of a round trip; x: times as fast as the plain code, above 1 is better"
    );
    if let Some(warning) = noise.warning() {
        let _ = writeln!(out, "warning: {warning}; p99 and p99.9 suffer most");
    }
    let failures = results.failures();
    if !failures.is_empty() {
        let _ = writeln!(out, "\nFAILED");
        for failure in failures {
            let _ = writeln!(out, "  {failure}");
        }
    }
    out
}

/// A line for each device.
fn in_short(results: &Results) -> String {
    let mut table = Table::new(
        1,
        &[
            "device",
            "smallest message",
            "latency p50",
            "messages/s",
            "messages, bytes/s",
            "memory, bytes/s",
            "fetch-add p50",
        ],
    );
    for target in &results.targets {
        let least = target.cells.first();
        let missing = || NOT_MEASURED.to_owned();
        let most = |all: &mut dyn Iterator<Item = f64>| all.fold(0.0, f64::max);
        let bytes_per_s = |most: f64| if most > 0.0 { format!("{}B/s", text::si(most)) } else { missing() };
        table.row(vec![
            target.device.clone(),
            least.map_or_else(missing, |cell| format!("{} {} B", cell.r#type, cell.size_bytes)),
            least.map_or_else(missing, |cell| latency(cell, cell.latency.half_round_trip_ns_p50)),
            least.map_or_else(missing, |cell| format!("{}/s", text::si(cell.rate.messages_per_s))),
            bytes_per_s(most(&mut target.cells.iter().map(|cell| cell.rate.bytes_per_s))),
            bytes_per_s(most(&mut target.rma.iter().map(|cell| cell.bytes_per_s))),
            target
                .atomics
                .first()
                .map_or_else(missing, |cell| text::duration(cell.latency.completion_ns_p50)),
        ]);
    }
    table.render(2)
}

/// One line of the table, here and in the page.
pub fn rma_row(cell: &RmaCell, target: &Target) -> Vec<String> {
    let plain = cell.plain.as_ref();
    // With a server elsewhere there is nothing here to compare with, nor for a device that chooses between ways. Otherwise
    // the system does not let it be measured.
    let has_none = target.uri.is_some() || target.transport == TransportKind::Any.name();
    let missing = if has_none { NOT_APPLICABLE } else { NOT_MEASURED };
    let mut row = vec![cell.memory.to_owned(), cell.operation.to_owned(), text::bytes(cell.size_bytes)];
    row.extend(times(&cell.latency));
    row.push(format!("{}B/s", text::si(cell.bytes_per_s)));
    row.push(format!("  {}", plain.map_or(missing, |plain| plain.name)));
    row.push(plain.map_or_else(String::new, |plain| format!("{}B/s", text::si(plain.bytes_per_s))));
    row.push(plain.map_or_else(String::new, |plain| times_as_fast(plain.times_as_fast)));
    row
}

/// One line of the table, here and in the page.
pub fn atomic_row(cell: &AtomicCell) -> Vec<String> {
    let mut row = vec![cell.operation.to_owned()];
    row.extend(times(&cell.latency));
    row.push(format!("{}/s", text::si(cell.per_s)));
    row.push(cell.outstanding.to_string());
    row
}

fn times(spread: &Spread) -> [String; 3] {
    [spread.completion_ns_p50, spread.completion_ns_p99, spread.completion_ns_p999].map(text::duration)
}

/// "0.97", "12.7".
fn times_as_fast(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// A time of round trips, unless all of them were lost.
fn latency(cell: &Cell, ns: f64) -> String {
    if cell.latency.samples == 0 { NOT_MEASURED.to_owned() } else { text::duration(ns) }
}

/// One line of the table, here and in the page; with those of [`PLAIN`] where the device has them.
pub fn row(cell: &Cell, target: &Target) -> Vec<String> {
    let (trip, rate) = (&cell.latency, &cell.rate);
    let mut row = vec![
        cell.r#type.to_owned(),
        format!("{} B", cell.size_bytes),
        latency(cell, trip.half_round_trip_ns_p50),
        latency(cell, trip.half_round_trip_ns_p99),
        latency(cell, trip.half_round_trip_ns_p999),
        format!("{}/s", text::si(rate.messages_per_s)),
        match cell.size_bytes {
            0 => NOT_APPLICABLE.to_owned(),
            _ => format!("{}B/s", text::si(rate.bytes_per_s)),
        },
        match (rate.lost, trip.lost) {
            (0, 0) => "0".to_owned(),
            (0, 1) => "1 echo".to_owned(),
            (0, echoes) => format!("{echoes} echoes"),
            _ => format!("{:.2} %", rate.lost_fraction() * 100.0),
        },
    ];
    if target.plain_sockets.is_some() {
        let plain = |shown: fn(&Plain) -> String| {
            cell.plain.as_ref().map_or_else(|| NOT_APPLICABLE.to_owned(), shown)
        };
        row.push(plain(|plain| text::duration(plain.half_round_trip_ns_p50)));
        row.push(plain(|plain| times_as_fast(plain.latency_times_as_fast)));
        row.push(plain(|plain| format!("{}/s", text::si(plain.messages_per_s))));
        row.push(plain(|plain| times_as_fast(plain.rate_times_as_fast)));
    }
    row
}

/// The columns of [`row`].
pub fn message_columns(target: &Target) -> Vec<&'static [Column]> {
    let plain = target.plain_sockets.map(|_| PLAIN);
    std::iter::once(MESSAGES).chain(plain).collect()
}
