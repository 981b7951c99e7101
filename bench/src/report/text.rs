//! Lines for a terminal.

use super::figures;
use super::goals::{self, Verdict};
use crate::results::{Results, RowResult, Track};

/// One row as soon as it is there: everybody's value, and CCI's ratio to it.
pub fn row(row: &RowResult) -> String {
    let width = row.tracks.iter().map(|track| track.name.chars().count()).max().unwrap_or_default();
    let line = row.cache_line_ns.iter().copied().reduce(f64::min);
    let line = line.map_or_else(String::new, |ns| format!("  (cache line {ns:.0} ns)"));
    let mut out = format!("{}  {}{line}", row.name, row.title);
    for track in &row.tracks {
        let pad = " ".repeat(width - track.name.chars().count());
        out += &format!("\n  {}{pad}  {}", track.name, outcome(row, track));
    }
    out
}

fn outcome(row: &RowResult, track: &Track) -> String {
    let Some(values) = track.values() else {
        let why = track.absent.as_deref().or_else(|| track.failures().last());
        return format!("did not take part: {}", why.unwrap_or("it had no turn"));
    };
    let mut out = figures::spread(row.work.unit(), &values);
    if let Some([_, p99, p999]) = track.quantiles_ns() {
        let value = |quantile: f64| figures::value(row.work.unit(), quantile);
        out += &format!("  p99 {}  p99.9 {}", value(p99.median), value(p999.median));
    }
    if let Some(ours) = row.ours().filter(|ours| ours.name != track.name)
        && let Some(ratio) = ours.ratio_to(track)
    {
        out += &format!("   {} ÷ this: {}", ours.name, figures::ratio(&ratio));
    }
    match track.failures().count() {
        0 => out,
        failed => format!("{out}   {failed} of {} turns failed", track.turns.len()),
    }
}

/// What was promised and what came of it.
pub fn goals(results: &Results) -> String {
    let mut out = String::new();
    for Verdict { row, against, goal, result, state, .. } in goals::verdicts(results) {
        if !row.is_empty() {
            let words = state.words().replace("**", "");
            out += &format!("{row:<28} {against:<32} {goal:<10} {result:<24} {words}\n");
        }
    }
    out
}
