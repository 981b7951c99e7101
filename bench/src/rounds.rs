//! Contestants taking turns: every round each has one, in another order, and ratios are taken within a round.

use crate::args::Args;
use crate::contestant::Role;
use crate::peers::Peers;
use crate::reading::Reading;
use crate::rows::{self, Row};
use cci_measure::trouble::{Outcome, Trouble};

/// A first turn is never repeated more often than this to find how much fills a turn.
const SIZING_TURNS: u32 = 4;

/// What came of one row.
pub struct RowResult {
    /// Name, title, work and goals.
    pub row: Row,
    /// As the row's contestants.
    pub tracks: Vec<Track>,
}

/// What came of one contestant.
pub struct Track {
    /// As in the tables.
    pub name: String,
    /// See [`Role`].
    pub role: Role,
    /// What exactly was measured, or why nothing was.
    pub about: Result<String, String>,
    /// One reading a round; rounds in which it failed are None.
    pub readings: Vec<Option<Reading>>,
}

/// Measures what was asked for.
pub fn run(args: &Args) -> Outcome {
    let peers = Peers::new((!args.no_peers).then(|| args.peers.clone()));
    let wanted = |row: &Row| args.only.is_empty() || args.only.iter().any(|text| row.name.contains(text));
    let rows: Vec<Row> = rows::all(&peers).into_iter().filter(wanted).collect();
    if rows.is_empty() {
        return Err(Trouble::new("no row has such a name").remedy("--list shows them"));
    }
    for row in rows {
        if args.list {
            let names: Vec<String> = row.contestants.iter().map(|one| one.name()).collect();
            println!("{:<32} {}", row.name, names.join(", "));
            continue;
        }
        let result = measure(row, args.rounds, f64::from(args.turn_ms) * 1e6);
        for track in &result.tracks {
            println!("{} {}: {:?} {:?}", result.row.name, track.name, track.median(), track.about);
        }
    }
    Ok(())
}

/// One row: how much work fills a turn of each contestant, then the rounds.
pub fn measure(row: Row, rounds: u32, turn_ns: f64) -> RowResult {
    let mut tracks: Vec<Track> = row
        .contestants
        .iter()
        .map(|one| Track {
            name: one.name(),
            role: one.role(),
            about: one.about().map_err(|trouble| trouble.to_string()),
            readings: Vec::new(),
        })
        .collect();
    let mut counts = Vec::new();
    for (contestant, track) in row.contestants.iter().zip(&mut tracks) {
        let sized = match track.about {
            Ok(_) => size(|count| contestant.turn(row.work, count), &row, turn_ns),
            Err(_) => Ok(0),
        };
        match sized {
            Ok(count) => counts.push(count),
            Err(trouble) => {
                track.about = Err(trouble.to_string());
                counts.push(0);
            }
        }
    }
    for round in 0..rounds as usize {
        for place in 0..tracks.len() {
            // Another order each round: nobody always comes after the same one.
            let at = (place + round) % tracks.len();
            let (track, contestant) = (&mut tracks[at], &row.contestants[at]);
            if track.about.is_ok() {
                track.readings.push(contestant.turn(row.work, counts[at]).ok());
            }
        }
    }
    RowResult { row, tracks }
}

/// How many times the work fills a turn.
fn size(turn: impl Fn(u64) -> Outcome<Reading>, row: &Row, turn_ns: f64) -> Outcome<u64> {
    let mut count = row.work.first_count();
    for _ in 0..SIZING_TURNS {
        let Some(one_ns) = row.work.one_ns(turn(count)?.value) else { return Ok(count) };
        let fits = (turn_ns / one_ns).max(1.0) as u64;
        // The first ones are slower than those that follow: once more where it was far too little.
        if fits < count.saturating_mul(4) {
            return Ok(fits);
        }
        count = fits;
    }
    Ok(count)
}

impl Track {
    /// Of the rounds that succeeded.
    pub fn median(&self) -> Option<f64> {
        median(self.readings.iter().flatten().map(|reading| reading.value).collect())
    }

    /// This one's value to the other's, in each round in which both succeeded.
    pub fn ratios(&self, other: &Track) -> Vec<f64> {
        let pairs = self.readings.iter().zip(&other.readings);
        pairs.filter_map(|(mine, theirs)| Some(mine.as_ref()?.value / theirs.as_ref()?.value)).collect()
    }
}

/// The one in the middle; None of nothing.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let high = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { high } else { (values[middle - 1] + high) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_one_round_and_skip_failures() {
        let track = |values: &[Option<f64>]| Track {
            name: String::new(),
            role: Role::Ours,
            about: Ok(String::new()),
            readings: values.iter().map(|value| value.map(Reading::of)).collect(),
        };
        let (ours, floor) =
            (track(&[Some(30.0), None, Some(80.0)]), track(&[Some(10.0), Some(1.0), Some(20.0)]));
        assert_eq!(ours.ratios(&floor), [3.0, 4.0]);
        assert_eq!(
            (ours.median(), median(vec![1.0, 9.0, 2.0]), median(vec![])),
            (Some(55.0), Some(2.0), None)
        );
    }
}
