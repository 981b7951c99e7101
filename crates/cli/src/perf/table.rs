//! The results as text.

use super::results::{Cell, Results, Target};
use crate::text::{self, Table};
use std::fmt::Write;

/// The whole report.
pub fn render(results: &Results) -> String {
    let mut out = String::new();
    for target in &results.targets {
        device(target, &mut out);
    }
    let (machine, noise) = (&results.machine, &results.noise);
    let _ = writeln!(out, "{} messages sent and verified", results.verified());
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
        let mut table =
            Table::new(1, &["type", "size", "½ rtt p50", "p99", "p99.9", "messages/s", "bytes/s", "lost"]);
        for cell in &target.cells {
            table.row(row(cell));
        }
        out.push_str(&table.render(2));
    }
    out.push('\n');
}

/// One line of the table, here and in the page.
pub fn row(cell: &Cell) -> Vec<String> {
    let (latency, rate) = (&cell.latency, &cell.rate);
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
    ]
}
