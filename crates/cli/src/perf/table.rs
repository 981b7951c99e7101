//! The results as text.

use super::results::{AtomicCell, ByHand, Cell, Results, RmaCell, Spread, Target};
use crate::text::{self, Table};
use std::fmt::Write;

/// The whole report.
pub fn render(results: &Results) -> String {
    let mut out = String::new();
    for target in &results.targets {
        device(target, &mut out);
    }
    let (machine, noise) = (&results.machine, &results.noise);
    let _ = writeln!(out, "{}", results.verified_line());
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
        machine.budget
    );
    let steal =
        noise.steal_fraction.map_or_else(|| "unknown".to_owned(), |part| format!("{:.2} %", part * 100.0));
    let _ = writeln!(
        out,
        "noise: {:.2} % of a bare loop taken away, {} at once at most; stolen by the hypervisor {steal}",
        noise.interrupted_fraction * 100.0,
        text::duration(noise.longest_interruption_ns as f64)
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

fn device(target: &Target, out: &mut String) {
    let server = target.uri.as_ref().map_or_else(String::new, |uri| format!(" to {uri}"));
    let _ = writeln!(out, "{}{server}", target.device);
    for note in target.notes() {
        let _ = writeln!(out, "  ({note})");
    }
    if !target.cells.is_empty() {
        let mut table = Table::new(1, HEAD);
        for cell in &target.cells {
            table.row(row(cell));
        }
        out.push_str(&table.render(2));
    }
    if !target.rma.is_empty() {
        let mut table = Table::new(2, RMA_HEAD);
        for cell in &target.rma {
            table.row(rma_row(cell));
        }
        let _ = writeln!(out, "  remote memory ({})", target.rma.first().map_or("", |cell| cell.r#type));
        out.push_str(&table.render(2));
    }
    if !target.atomics.is_empty() {
        let mut table = Table::new(1, ATOMIC_HEAD);
        for cell in &target.atomics {
            table.row(atomic_row(cell));
        }
        out.push_str(&table.render(2));
    }
    out.push('\n');
}

/// Over the rows of [`row`].
pub const HEAD: &[&str] = &[
    "type",
    "size",
    "½ rtt p50",
    "p99",
    "p99.9",
    "messages/s",
    "bytes/s",
    "lost",
    "by hand",
    "½ rtt",
    "ratio",
    "messages/s",
    "ratio",
];
/// Over the rows of [`rma_row`].
pub const RMA_HEAD: &[&str] =
    &["memory", "", "size", "done in p50", "p99", "p99.9", "bytes/s", "by hand", "", "ratio"];
/// Over the rows of [`atomic_row`].
pub const ATOMIC_HEAD: &[&str] = &["atomics", "done in p50", "p99", "p99.9", "a second", "under way"];

/// One line of the table, here and in the page.
pub fn rma_row(cell: &RmaCell) -> Vec<String> {
    let floor = cell.floor.as_ref();
    let mut row = vec![cell.memory.to_owned(), cell.operation.to_owned(), text::bytes(cell.size_bytes)];
    row.extend(times(&cell.latency));
    row.push(format!("{}B/s", text::si(cell.bytes_per_s)));
    row.push(floor.map_or("-", |floor| floor.name).to_owned());
    row.push(floor.map_or_else(String::new, |floor| format!("{}B/s", text::si(floor.bytes_per_s))));
    row.push(floor.map_or_else(String::new, |floor| format!("{:.2}", floor.ratio)));
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

/// One line of the table, here and in the page.
pub fn row(cell: &Cell) -> Vec<String> {
    let (latency, rate) = (&cell.latency, &cell.rate);
    let hand = |tell: fn(&ByHand) -> String| cell.by_hand.as_ref().map_or_else(String::new, tell);
    let measured = |ns: f64| if latency.samples == 0 { "-".to_owned() } else { text::duration(ns) };
    vec![
        cell.r#type.to_owned(),
        format!("{} B", cell.size_bytes),
        measured(latency.half_round_trip_ns_p50),
        measured(latency.half_round_trip_ns_p99),
        measured(latency.half_round_trip_ns_p999),
        format!("{}/s", text::si(rate.messages_per_s)),
        if cell.size_bytes == 0 { "-".to_owned() } else { format!("{}B/s", text::si(rate.bytes_per_s)) },
        match (rate.lost, latency.lost) {
            (0, 0) => "-".to_owned(),
            (0, echoes) => format!("{echoes} echoes"),
            _ => format!("{:.2} %", rate.lost_fraction() * 100.0),
        },
        cell.by_hand.as_ref().map_or("-", |hand| hand.name).to_owned(),
        hand(|hand| text::duration(hand.half_round_trip_ns_p50)),
        hand(|hand| format!("{:.2}", hand.half_round_trip_ratio)),
        hand(|hand| format!("{}/s", text::si(hand.messages_per_s))),
        hand(|hand| format!("{:.1}", hand.rate_ratio)),
    ]
}
