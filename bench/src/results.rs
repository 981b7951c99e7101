//! What a run yields: everything that a report is drawn from.

use crate::contestant::Role;
use crate::reading::Reading;
use crate::rows::Goal;
use crate::work::Work;
pub use cci_measure::machine::Machine;
use cci_measure::noise::Noise;
use cci_measure::statistics::{Spread, spread};
use serde::{Deserialize, Serialize};

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Where, when and how.
    pub run: Run,
    /// In the order of the report.
    pub rows: Vec<RowResult>,
}

/// Where, when and how it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Version of CCI.
    pub version: String,
    /// The commit, with a `+` where files were changed since; empty where git does not say.
    pub commit: String,
    /// The machine.
    pub machine: Machine,
    /// Start of the run, UTC.
    pub date: String,
    /// How long all of it took so far, seconds.
    pub took_s: u64,
    /// Turns of each contestant.
    pub rounds: u32,
    /// About how long one turn measures, milliseconds.
    pub turn_ms: u32,
    /// Whether peers were asked to take part.
    pub with_peers: bool,
    /// How noisy the two cores were before.
    pub noise_before: Noise,
    /// And after; None while it runs.
    pub noise_after: Option<Noise>,
    /// The part of all cores' time that the hypervisor gave to others during the run.
    pub steal_fraction: Option<f64>,
}

/// What came of one row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RowResult {
    /// As in the list of rows.
    pub name: String,
    /// For people.
    pub title: String,
    /// What was done.
    pub work: Work,
    /// What was promised.
    pub goals: Vec<Goal>,
    /// As of the run, which may have taken this row over from an earlier one.
    pub commit: String,
    /// The bare cache line's half round trip between the two cores before each round, nanoseconds: on a virtual machine
    /// it changes by a factor with where the hypervisor puts them.
    pub cache_line_ns: Vec<f64>,
    /// As the row's contestants.
    pub tracks: Vec<Track>,
}

/// What came of one contestant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Track {
    /// Its name in the tables.
    pub name: String,
    /// See [`Role`].
    pub role: Role,
    /// What exactly was measured: version and set-up.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Why it did not take part, if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
    /// How many times it did the work in each turn.
    pub count: u64,
    /// One a round, from the first one on.
    pub turns: Vec<Turn>,
}

/// One turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Turn {
    /// It went well.
    Done(Reading),
    /// It did not.
    Failed {
        /// Why.
        failed: String,
    },
}

impl Turn {
    /// Of a turn that went well.
    pub const fn reading(&self) -> Option<&Reading> {
        match self {
            Turn::Done(reading) => Some(reading),
            Turn::Failed { .. } => None,
        }
    }
}

impl Track {
    /// Of the turns that went well.
    pub fn values(&self) -> Option<Spread> {
        spread(self.turns.iter().filter_map(Turn::reading).map(|reading| reading.value).collect())
    }

    /// The quantiles reported, each over the turns that went well.
    pub fn quantiles_ns(&self) -> Option<[Spread; 3]> {
        let readings: Vec<[f64; 3]> =
            self.turns.iter().filter_map(Turn::reading).filter_map(|reading| reading.quantiles_ns).collect();
        let at = |index: usize| spread(readings.iter().map(|quantiles| quantiles[index]).collect());
        Some([at(0)?, at(1)?, at(2)?])
    }

    /// This one's value to the other's, in each round in which both succeeded.
    pub fn ratio_to(&self, other: &Track) -> Option<Spread> {
        let pairs = self.turns.iter().zip(&other.turns);
        let both = pairs.filter_map(|(mine, theirs)| Some(mine.reading()?.value / theirs.reading()?.value));
        spread(both.collect())
    }

    /// The reasons of the turns that failed.
    pub fn failures(&self) -> impl Iterator<Item = &str> {
        self.turns.iter().filter_map(|turn| match turn {
            Turn::Failed { failed } => Some(failed.as_str()),
            Turn::Done(_) => None,
        })
    }
}

impl RowResult {
    /// Whom the goals speak of: the first contestant that is CCI.
    pub fn ours(&self) -> Option<&Track> {
        self.tracks.iter().find(|track| track.role == Role::Ours)
    }

    /// The first of the baselines.
    pub fn baseline(&self) -> Option<&Track> {
        self.tracks.iter().find(|track| track.role == Role::Baseline)
    }

    /// The baseline beside the first.
    pub fn other_baseline(&self) -> Option<&Track> {
        self.tracks.iter().filter(|track| track.role == Role::Baseline).nth(1)
    }

    /// The peer whose median is the best.
    pub fn best_peer(&self) -> Option<&Track> {
        self.best_peer_of(|_| true)
    }

    /// The best of those that match each message to a receive, and complete both: UCX and the MPIs.
    pub fn best_message_passer(&self) -> Option<&Track> {
        self.best_peer_of(|peer| MESSAGE_PASSERS.iter().any(|name| peer.name.starts_with(name)))
    }

    fn best_peer_of(&self, counts: impl Fn(&Track) -> bool) -> Option<&Track> {
        let peers = self.tracks.iter().filter(|track| track.role == Role::Peer && counts(track));
        let measured = peers.filter_map(|peer| Some((peer.values()?.median, peer)));
        let better = |one: f64, other: f64| {
            if self.work.unit().more_is_better() { other.total_cmp(&one) } else { one.total_cmp(&other) }
        };
        measured.min_by(|one, other| better(one.0, other.0)).map(|(_, peer)| peer)
    }
}

/// How the names of [`RowResult::best_message_passer`]'s peers begin.
const MESSAGE_PASSERS: [&str; 3] = ["UCX", "Open MPI", "MPICH"];

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A track whose turns gave these; None: failed.
    pub fn track(name: &str, role: Role, values: &[Option<f64>]) -> Track {
        let turn = |value: &Option<f64>| match value {
            Some(value) => Turn::Done(Reading::of(*value)),
            None => Turn::Failed { failed: "it broke".to_owned() },
        };
        let turns = values.iter().map(turn).collect();
        Track { name: name.to_owned(), role, about: format!("{name} 1.0"), absent: None, count: 10, turns }
    }

    #[test]
    fn ratios_are_of_one_round_and_skip_failures() {
        let ours = track("cci", Role::Ours, &[Some(30.0), None, Some(80.0)]);
        let baseline = track("baseline", Role::Baseline, &[Some(10.0), Some(1.0), Some(20.0)]);
        let ratio = ours.ratio_to(&baseline).unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high, ratio.rounds), (3.5, 3.25, 3.75, 2));
        assert_eq!(ours.values().unwrap().median, 55.0);
        assert_eq!(ours.failures().collect::<Vec<_>>(), ["it broke"]);
        assert!(ours.ratio_to(&track("absent", Role::Peer, &[])).is_none());
    }

    #[test]
    fn the_best_peer_depends_on_the_work() {
        let row = |work| RowResult {
            name: String::new(),
            title: String::new(),
            work,
            goals: Vec::new(),
            commit: String::new(),
            cache_line_ns: Vec::new(),
            tracks: vec![
                track("a", Role::Peer, &[Some(1.0)]),
                track("absent", Role::Peer, &[]),
                track("b", Role::Peer, &[Some(2.0)]),
                track("UCX shm", Role::Peer, &[Some(1.5)]),
            ],
        };
        assert_eq!(row(Work::HalfTrip { len: 8 }).best_peer().unwrap().name, "a");
        assert_eq!(row(Work::Rate { len: 8 }).best_peer().unwrap().name, "b");
        assert_eq!(row(Work::Rate { len: 8 }).best_message_passer().unwrap().name, "UCX shm");
    }
}
