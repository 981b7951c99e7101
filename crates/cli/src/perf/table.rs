//! The results as tables, on the terminal and in the page: each row can be printed as soon as it is measured.

use super::results::{Cell, Completion, Plain, Results, Target};
use crate::text;
use cci::TransportKind;
use cci_measure::table::{Column, Table};
use std::fmt::Write;

/// There is no such thing here.
const NOT_APPLICABLE: &str = "n/a";
/// There is such a thing, and this run did not get it.
const NOT_MEASURED: &str = "not measured";

const MESSAGES: [Column; 8] = [
    Column::words("type", 4),
    Column::figures("size", 7),
    Column::figures("latency p50", 12),
    Column::figures("p99", 9),
    Column::figures("p99.9", 9),
    Column::figures("messages/s", 11),
    Column::figures("bytes/s", 10),
    Column::figures("lost", 7),
];
/// What is added to [`MESSAGES`] where they are compared with plain sockets.
const PLAIN: [Column; 4] = [
    Column::figures("plain p50", 11),
    Column::figures("x", 6),
    Column::figures("plain msg/s", 12),
    Column::figures("x", 6),
];
const MEMORY: [Column; 10] = [
    Column::words("memory", 7),
    Column::words("operation", 9),
    Column::figures("size", 8),
    Column::figures("done in p50", 12),
    Column::figures("p99", 9),
    Column::figures("p99.9", 9),
    Column::figures("bytes/s", 10),
    Column::words("  plain", 15),
    Column::figures("bytes/s", 10),
    Column::figures("x", 6),
];
const ATOMICS: [Column; 6] = [
    Column::words("atomics", 12),
    Column::figures("done in p50", 12),
    Column::figures("p99", 9),
    Column::figures("p99.9", 9),
    Column::figures("operations/s", 13),
    Column::figures("under way", 10),
];
const IN_SHORT: [Column; 7] = [
    Column::words("device", 0),
    Column::figures("smallest message", 0),
    Column::figures("latency p50", 0),
    Column::figures("messages/s", 0),
    Column::figures("messages, bytes/s", 0),
    Column::figures("memory, bytes/s", 0),
    Column::figures("fetch-add p50", 0),
];

/// The head of a device.
pub fn head(target: &Target) -> String {
    let server = target.uri.as_ref().map_or_else(String::new, |uri| format!(" to {uri}"));
    let notes: String = target.notes().iter().map(|note| format!("  ({note})\n")).collect();
    format!("\n{}{server}\n{notes}", target.device)
}

/// What follows the devices.
pub fn end(results: &Results) -> String {
    let mut out = String::new();
    if results.targets.len() > 1 {
        let _ = write!(out, "\nin short\n{}", in_short(results));
    }
    let stopped = if results.interrupted { "; interrupted, so not all was measured" } else { "" };
    let _ = writeln!(out, "\n{}{stopped}\n{}", results.verified_line(), results.time_line());
    out.extend(results.machine_lines().iter().map(|line| format!("{line}\n")));
    out += "latency is half of a round trip; x: times as fast as the plain code, above 1 is better\n";
    if let Some(warning) = results.noise.warning() {
        let _ = writeln!(out, "warning: {warning}; p99 and p99.9 suffer most");
    }
    let failures = results.failures();
    if !failures.is_empty() {
        out += "\nFAILED\n";
        out.extend(failures.iter().map(|failure| format!("  {failure}\n")));
    }
    out
}

/// A line for each device.
fn in_short(results: &Results) -> String {
    let mut table = Table::new(IN_SHORT);
    for target in &results.targets {
        let least = target.cells.first();
        let missing = || NOT_MEASURED.to_owned();
        let most = |all: &mut dyn Iterator<Item = f64>| match all.fold(0.0, f64::max) {
            most if most > 0.0 => bytes_per_s(most),
            _ => missing(),
        };
        table.row([
            target.device.clone(),
            least.map_or_else(missing, |cell| format!("{} {} B", cell.r#type, cell.size_bytes)),
            least.map_or_else(missing, |cell| latency(cell, cell.latency.half_round_trip.0.p50)),
            least.map_or_else(missing, |cell| per_s(cell.rate.messages_per_s)),
            most(&mut target.cells.iter().map(|cell| cell.rate.bytes_per_s)),
            most(&mut target.rma.iter().map(|cell| cell.bytes_per_s)),
            target.atomics.first().map_or_else(missing, |cell| text::duration(cell.latency.0.p50)),
        ]);
    }
    table.text(2)
}

/// The messages of a device.
pub fn messages(target: &Target) -> Table {
    let compared = target.plain_sockets.is_some();
    let mut table = Table::new(MESSAGES.into_iter().chain(compared.then_some(PLAIN).into_iter().flatten()));
    for cell in &target.cells {
        let (trip, rate) = (&cell.latency, &cell.rate);
        let mut row = vec![
            cell.r#type.to_owned(),
            format!("{} B", cell.size_bytes),
            latency(cell, trip.half_round_trip.0.p50),
            latency(cell, trip.half_round_trip.0.p99),
            latency(cell, trip.half_round_trip.0.p999),
            per_s(rate.messages_per_s),
            if cell.size_bytes == 0 { NOT_APPLICABLE.to_owned() } else { bytes_per_s(rate.bytes_per_s) },
            match (rate.lost, trip.lost) {
                (0, 0) => "0".to_owned(),
                (0, 1) => "1 echo".to_owned(),
                (0, echoes) => format!("{echoes} echoes"),
                _ => format!("{:.2} %", rate.lost_fraction() * 100.0),
            },
        ];
        if compared {
            let plain = |shown: fn(&Plain) -> String| {
                cell.plain.as_ref().map_or_else(|| NOT_APPLICABLE.to_owned(), shown)
            };
            row.push(plain(|plain| text::duration(plain.half_round_trip_ns_p50)));
            row.push(plain(|plain| times_as_fast(plain.latency_times_as_fast)));
            row.push(plain(|plain| per_s(plain.messages_per_s)));
            row.push(plain(|plain| times_as_fast(plain.rate_times_as_fast)));
        }
        table.row(row);
    }
    table
}

/// The remote memory of a device.
pub fn memory(target: &Target) -> Table {
    let mut table = Table::new(MEMORY);
    // With a server elsewhere there is nothing here to compare with, nor for a device that chooses between ways. Otherwise
    // the system does not let it be measured.
    let has_none = target.uri.is_some() || target.transport == TransportKind::Any.name();
    let missing = if has_none { NOT_APPLICABLE } else { NOT_MEASURED };
    for cell in &target.rma {
        let plain = cell.plain.as_ref();
        let [p50, p99, p999] = times(&cell.latency);
        table.row([
            cell.memory.to_owned(),
            cell.operation.to_owned(),
            text::bytes(cell.size_bytes),
            p50,
            p99,
            p999,
            bytes_per_s(cell.bytes_per_s),
            format!("  {}", plain.map_or(missing, |plain| plain.name)),
            plain.map_or_else(String::new, |plain| bytes_per_s(plain.bytes_per_s)),
            plain.map_or_else(String::new, |plain| times_as_fast(plain.times_as_fast)),
        ]);
    }
    table
}

/// The atomics of a device.
pub fn atomics(target: &Target) -> Table {
    let mut table = Table::new(ATOMICS);
    for cell in &target.atomics {
        let [p50, p99, p999] = times(&cell.latency);
        let (rate, outstanding) = (per_s(cell.per_s), cell.outstanding.to_string());
        table.row([cell.operation.to_owned(), p50, p99, p999, rate, outstanding]);
    }
    table
}

fn times(Completion(times): &Completion) -> [String; 3] {
    [times.p50, times.p99, times.p999].map(text::duration)
}

fn per_s(value: f64) -> String {
    format!("{}/s", text::si(value))
}

fn bytes_per_s(value: f64) -> String {
    format!("{}B/s", text::si(value))
}

/// "0.97", "12.7".
fn times_as_fast(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// A time of round trips, unless all of them were lost.
fn latency(cell: &Cell, ns: f64) -> String {
    if cell.latency.half_round_trip.0.samples == 0 { NOT_MEASURED.to_owned() } else { text::duration(ns) }
}
