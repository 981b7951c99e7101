//! The table of what came of it: medians over rounds, each beside TCP.

use crate::contestants::Contestant;
use crate::weather::{RATE_MBIT_PER_S, Weather};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Where the table goes; nowhere if this is not set.
const TABLE: &str = "CCI_NETEM_TABLE";

/// Throughputs of each contestant, by weather: delay in ms, reordered in percent, lost in a thousandth.
type Rates = BTreeMap<(u32, u32, u32), BTreeMap<String, Vec<f64>>>;

/// What one run came to.
pub fn line(weather: &Weather, contestant: Contestant, bytes_per_s: f64) -> String {
    let Weather { delay_ms, reorder_pct, loss_permille } = weather;
    format!(
        "netem\t{delay_ms}\t{reorder_pct}\t{loss_permille}\t{}\t{:.4}",
        contestant.name(),
        bytes_per_s / 1e6
    )
}

fn parse(line: &str) -> Option<((u32, u32, u32), &str, f64)> {
    let fields: Vec<&str> = line.strip_prefix("netem\t")?.trim_end().split('\t').collect();
    let [delay, reorder, loss, name, rate] = fields[..] else { return None };
    Some(((delay.parse().ok()?, reorder.parse().ok()?, loss.parse().ok()?), name, rate.parse().ok()?))
}

/// Writes the table of these lines, if somebody wants one.
pub fn write(lines: &str) {
    let Some(path) = std::env::var_os(TABLE) else { return };
    let mut rates = Rates::new();
    for (weather, name, rate) in lines.lines().filter_map(parse) {
        rates.entry(weather).or_default().entry(name.to_owned()).or_default().push(rate);
    }
    std::fs::write(path, page(&rates)).expect("a place for the table");
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn page(rates: &Rates) -> String {
    let names = Contestant::ALL.map(Contestant::name);
    let rounds = rates.values().flat_map(BTreeMap::values).map(Vec::len).max().unwrap_or(0);
    let mut page = format!(
        "<!-- Written by `cargo xtask netem`. -->\n\n# A network that loses packets\n\nThroughput by loss, in both directions, over a wire of {RATE_MBIT_PER_S} \
         Mbit/s in a virtual machine (netem, two network namespaces, one processor), beside one plain TCP stream (CUBIC) in the same run. Every byte is checked. \
         Medians of {rounds} rounds: TCP in MB/s, everything else as a multiple of it.\n\n| one way | reordered | lost | {} |\n|---|---|---|",
        names.join(" | ")
    );
    page += &"---|".repeat(names.len());
    page.push('\n');
    for ((delay_ms, reorder_pct, loss_permille), of) in rates {
        let rate = |name: &str| of.get(name).map_or(f64::NAN, |rates| median(rates));
        let loss_pct = f64::from(*loss_permille) / 10.0;
        let _ = write!(page, "| {delay_ms} ms | {reorder_pct} % | {loss_pct} % |");
        let tcp = rate(names[0]);
        let _ = write!(page, " {tcp:.3} MB/s |");
        for name in &names[1..] {
            let _ = write!(page, " {:.2} |", rate(name) / tcp);
        }
        page.push('\n');
    }
    page
}
