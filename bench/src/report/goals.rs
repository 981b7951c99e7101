//! What was promised, and what came of it.

use super::figures;
use crate::results::{Results, RowResult, Track};
use crate::rows::{Against, Bound, Goal};
use cci_measure::statistics::Spread;

/// One goal and its result.
pub struct Verdict {
    /// Name of the row.
    pub row: String,
    /// What was to be done.
    pub work: String,
    /// Beside what.
    pub against: String,
    /// The bound.
    pub goal: String,
    /// The ratio or value, with its spread.
    pub result: String,
    /// Whether the goal is met.
    pub state: State,
}

/// Whether it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// The median is on the right side.
    Met,
    /// The median is not, but some rounds are: their middle half reaches over the bound.
    NotQuite,
    /// It is not.
    NotMet,
    /// Nobody knows, and why.
    NotMeasured(String),
}

impl State {
    /// For tables.
    pub fn words(&self) -> String {
        match self {
            State::Met => "met".to_owned(),
            State::NotQuite => "**not met**, within the spread".to_owned(),
            State::NotMet => "**not met**".to_owned(),
            State::NotMeasured(why) => format!("not measured: {why}"),
        }
    }
}

/// What was promised, but has no row yet: work, against, goal, why.
const WITHOUT_ROW: &[[&str; 4]] = &[[
    "Half round trip over libfabric, 8 B",
    "the same libfabric provider, called directly",
    "≤ 60 ns more",
    "CCI has no libfabric device yet",
]];

/// Of all rows, in their order.
pub fn verdicts(results: &Results) -> Vec<Verdict> {
    let judged = results.rows.iter().flat_map(|row| row.goals.iter().map(|goal| judge(row, goal)));
    let missing = WITHOUT_ROW.iter().map(|[work, against, goal, why]| Verdict {
        row: String::new(),
        work: (*work).to_owned(),
        against: (*against).to_owned(),
        goal: (*goal).to_owned(),
        result: String::new(),
        state: State::NotMeasured((*why).to_owned()),
    });
    judged.chain(missing).collect()
}

fn judge(row: &RowResult, goal: &Goal) -> Verdict {
    let unit = row.work.unit();
    let of_itself = (goal.against == Against::Itself).then_some(unit);
    let (against, found) = match goal.against {
        Against::Itself => ("–".to_owned(), row.ours().and_then(Track::values).ok_or("CCI was not measured")),
        Against::Baseline => beside(row, row.baseline(), "the baseline was not measured"),
        Against::OtherBaseline => beside(row, row.other_baseline(), "the baseline was not measured"),
        Against::BestPeer => beside(row, row.best_peer(), "no peer took part"),
        Against::BestMessagePasser => {
            beside(row, row.best_message_passer(), "neither UCX nor an MPI took part")
        }
    };
    let result = found.as_ref().map_or_else(
        |_| String::new(),
        |spread| match of_itself {
            Some(unit) => figures::spread(unit, spread),
            None => figures::ratio(spread),
        },
    );
    let against = match goal.against {
        Against::BestPeer if found.is_ok() => format!("the best peer: {against}"),
        Against::BestPeer => "the best peer".to_owned(),
        Against::BestMessagePasser if found.is_ok() => format!("the best of UCX and the MPIs: {against}"),
        Against::BestMessagePasser => "the best of UCX and the MPIs".to_owned(),
        _ => against,
    };
    Verdict {
        row: row.name.clone(),
        work: row.title.clone(),
        against,
        goal: figures::bound(goal.bound, of_itself),
        result,
        state: found
            .map_or_else(|why| State::NotMeasured(why.to_owned()), |spread| state(goal.bound, &spread)),
    }
}

/// CCI's ratio to another's, whose name comes with it.
fn beside(
    row: &RowResult,
    other: Option<&Track>,
    missing: &'static str,
) -> (String, Result<Spread, &'static str>) {
    let name = other.map_or_else(|| "–".to_owned(), |other| other.name.clone());
    let ratio = match (row.ours(), other) {
        (Some(ours), _) if ours.values().is_none() => Err("CCI was not measured"),
        (Some(ours), Some(other)) => ours.ratio_to(other).ok_or(missing),
        (None, _) => Err("CCI was not measured"),
        (_, None) => Err(missing),
    };
    (name, ratio)
}

fn state(bound: Bound, found: &Spread) -> State {
    let (holds, reaches) = match bound {
        Bound::AtMost(limit) => (found.median <= limit, found.low <= limit),
        Bound::AtLeast(limit) => (found.median >= limit, found.high >= limit),
    };
    match (holds, reaches) {
        (true, _) => State::Met,
        (false, true) => State::NotQuite,
        (false, false) => State::NotMet,
    }
}
