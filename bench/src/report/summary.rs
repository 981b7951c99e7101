//! What a user gains, and where a peer is better: the first table of the page.

use super::figures;
use crate::results::Results;
use cci_measure::statistics::Spread;
use cci_measure::table;

/// One row for each thing that most programs do, on each kind of path.
const ROWS: [&str; 12] = [
    "shm/half-trip/8",
    "shm/stream/8",
    "shm/rate/8",
    "shm/rate/1024",
    "udp/half-trip/8",
    "udp/stream/8",
    "tcp/half-trip/8",
    "tcp/stream/8",
    "shm/write/8",
    "shm/write/1048576",
    "udp/write/1048576",
    "tcp/calls/8",
];

/// How fast CCI is beside the best peer, from the best to the worst. Empty where no peer was measured.
pub fn table(results: &Results) -> String {
    let rows = results.rows.iter().filter(|row| ROWS.contains(&row.name.as_str()));
    let mut compared: Vec<(Spread, Vec<String>)> = rows
        .filter_map(|row| {
            let (ours, peer) = (row.ours()?, row.best_peer()?);
            let speed =
                if row.work.unit().more_is_better() { ours.ratio_to(peer) } else { peer.ratio_to(ours) };
            let speed = speed?;
            let cells = vec![row.title.clone(), peer.name.clone(), figures::ratio(&speed)];
            Some((speed, cells))
        })
        .collect();
    if compared.is_empty() {
        return String::new();
    }
    compared.sort_by(|one, other| other.0.median.total_cmp(&one.0.median));
    table::markdown(
        &["work", "the best peer", "CCI's speed ÷ its"],
        compared.into_iter().map(|(_, cells)| cells),
    )
}
