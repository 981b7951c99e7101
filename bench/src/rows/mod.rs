//! What is compared with what, and what must be reached.

mod connections;
mod forms;
mod global_memory;
mod layers;
mod load;
mod messages;
mod ranks;
mod remote_memory;
mod services;
mod waiting;

use crate::args::By;
use crate::contestant::{Contestant, Worker};
use crate::peers::Peers;
use crate::work::{Placement, Work};
use serde::{Deserialize, Serialize};

/// One line of the result: a piece of work and who does it.
pub struct Row {
    /// Unique, for `--only`: `shm/half-trip/8`. Rows that differ in the last part alone, a number, share a table and a plot.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// The work.
    pub work: Work,
    /// What must be reached, if anything was promised.
    pub goals: Vec<Goal>,
    /// The baseline first where there is one, then CCI, then peers.
    pub contestants: Vec<Box<dyn Contestant>>,
}

/// A bound on the ratio of CCI's value to another's, within a round. CCI is the row's first contestant of that role; others
/// are there for information.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// To whose.
    pub against: Against,
    /// Where it must lie.
    pub bound: Bound,
}

/// The other side of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Against {
    /// The first of the baselines.
    Baseline,
    /// The second of the baselines.
    OtherBaseline,
    /// The best of the peers that took part.
    BestPeer,
    /// The best of UCX and the MPIs, as far as they took part.
    BestMessagePasser,
    /// None: the value itself is bounded, in the work's unit.
    Itself,
}

/// A side and a number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

/// At most so many times the baseline.
const fn baseline_at_most(ratio: f64) -> Goal {
    Goal { against: Against::Baseline, bound: Bound::AtMost(ratio) }
}

/// At least so many times the baseline.
const fn baseline_at_least(ratio: f64) -> Goal {
    Goal { against: Against::Baseline, bound: Bound::AtLeast(ratio) }
}

/// At least so many times the best peer.
const fn best_peer_at_least(ratio: f64) -> Goal {
    Goal { against: Against::BestPeer, bound: Bound::AtLeast(ratio) }
}

/// At most so many times the best peer.
const fn best_peer_at_most(ratio: f64) -> Goal {
    Goal { against: Against::BestPeer, bound: Bound::AtMost(ratio) }
}

/// All rows, in the order of the report.
pub fn all(peers: &Peers) -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(messages::rows(peers));
    rows.extend(remote_memory::rows(peers));
    rows.extend(layers::rows(peers));
    rows.extend(ranks::rows(peers));
    rows.extend(services::rows(peers));
    rows.extend(global_memory::rows(peers));
    rows.extend(waiting::rows());
    rows.extend(connections::rows());
    rows.extend(forms::rows());
    rows.extend(load::rows());
    rows
}

/// Who takes part.
type Contestants = Vec<Box<dyn Contestant>>;
/// Makes those of one row.
type Makes = fn() -> Contestants;

impl Row {
    /// Without goals.
    fn new(name: String, title: String, work: Work, contestants: Contestants) -> Row {
        Row { name, title, work, goals: Vec::new(), contestants }
    }

    /// With what must be reached.
    fn with_goals(self, goals: &[Goal]) -> Row {
        Row { goals: goals.to_vec(), ..self }
    }
}

/// A baseline on this machine as it is.
fn baseline(name: &'static str, by: By) -> Box<dyn Contestant> {
    Box::new(Worker::baseline(name, by, Placement::SameHost))
}

/// CCI on this machine as it is.
fn ours(name: &'static str, by: By) -> Box<dyn Contestant> {
    Box::new(Worker::ours(name, by, Placement::SameHost))
}

/// A baseline and CCI across a pair of virtual interfaces.
fn across_a_pair(baseline: (&'static str, By), ours: (&'static str, By)) -> Contestants {
    let place = Placement::VirtualPair;
    vec![
        Box::new(Worker::baseline(baseline.0, baseline.1, place)),
        Box::new(Worker::ours(ours.0, ours.1, place)),
    ]
}

fn with_peers(mut contestants: Contestants, peers: Contestants) -> Contestants {
    contestants.extend(peers);
    contestants
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::Role;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_goals_have_their_other_side() {
        let rows = all(&Peers::new(None));
        let mut names = HashSet::new();
        for row in &rows {
            assert!(names.insert(row.name.clone()), "{} twice", row.name);
            let has = |role| row.contestants.iter().any(|one| one.role() == role);
            assert!(has(Role::Ours), "{}: nobody of ours", row.name);
            let on_baseline = row.goals.iter().any(|goal| goal.against == Against::Baseline);
            assert!(!on_baseline || has(Role::Baseline), "{}: a goal without its baseline", row.name);
            let on_other = row.goals.iter().any(|goal| goal.against == Against::OtherBaseline);
            let baselines = row.contestants.iter().filter(|one| one.role() == Role::Baseline).count();
            assert!(!on_other || baselines > 1, "{}: a goal without its other baseline", row.name);
        }
        assert!(rows.iter().filter(|row| !row.goals.is_empty()).count() >= 15);
    }
}
