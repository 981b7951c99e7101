//! Contestants taking turns: every round each has one, in another order, so that ratios can be taken within a round.

use crate::contestant::Contestant;
use crate::plan::Plan;
use crate::reading::Reading;
use crate::results::{RowResult, Track, Turn};
use crate::rows::Row;
use crate::work::Work;
use cci_measure::failure::Outcome;

/// A first turn is never repeated more often than this to find how much fills a turn.
const SIZING_TURNS: u32 = 4;
/// Who fails so often in a row, has no further turns: one that hangs would cost minutes in every round.
const FAILURES_MAX: usize = 2;

/// What is reported while a row is measured.
pub trait Watch {
    /// This contestant's turn begins.
    fn turn(&mut self, row: &str, contestant: &str);
    /// So many turns are over, or will not take place.
    fn done(&mut self, turns: u64);
    /// Somebody does not take part, or no longer.
    fn out(&mut self, row: &str, contestant: &str, why: &str);
    /// Asked before each round: half a round trip of the bare cache line.
    fn cache_line_ns(&mut self) -> Option<f64>;
}

/// One row: how much work fills a turn of each contestant, then the rounds.
pub fn measure(row: &Row, plan: Plan, watch: &mut dyn Watch) -> RowResult {
    let rounds = plan.rounds_of(row.work);
    let mut tracks: Vec<Track> = Vec::new();
    for contestant in &row.contestants {
        watch.turn(&row.name, &contestant.name());
        let track = enter(row, contestant.as_ref(), plan);
        match &track.absent {
            None => watch.done(1),
            Some(why) => {
                watch.out(&row.name, &track.name, why);
                watch.done(1 + u64::from(rounds));
            }
        }
        tracks.push(track);
    }
    let mut cache_line_ns = Vec::new();
    for round in 0..rounds as usize {
        cache_line_ns.extend(watch.cache_line_ns());
        for place in 0..tracks.len() {
            // Another order each round: nobody always comes after the same one.
            let at = (place + round) % tracks.len();
            let (track, contestant) = (&mut tracks[at], &row.contestants[at]);
            if !track.takes_part() {
                continue;
            }
            watch.turn(&row.name, &track.name);
            match contestant.turn(row.work, track.count) {
                Ok(reading) => track.turns.push(Turn::Done(reading)),
                Err(failure) => track.turns.push(Turn::Failed { failed: failure.to_string() }),
            }
            watch.done(1);
            if !track.takes_part() {
                watch.out(&row.name, &track.name, track.failures().last().unwrap_or_default());
                watch.done((rounds as usize - track.turns.len()) as u64);
            }
        }
    }
    RowResult {
        name: row.name.clone(),
        title: row.title.clone(),
        work: row.work,
        goals: row.goals.clone(),
        commit: String::new(),
        cache_line_ns,
        tracks,
    }
}

/// Who it is, and how much work fills its turns; or why it does not take part.
fn enter(row: &Row, contestant: &dyn Contestant, plan: Plan) -> Track {
    let mut track = Track {
        name: contestant.name(),
        role: contestant.role(),
        about: String::new(),
        absent: None,
        count: 0,
        turns: Vec::new(),
    };
    let entered = contestant.about().and_then(|about| {
        track.about = about;
        size(|count| contestant.turn(row.work, count), row.work, f64::from(plan.turn_ms) * 1e6)
    });
    match entered {
        Ok(count) => track.count = count,
        Err(failure) => track.absent = Some(failure.to_string()),
    }
    track
}

/// How many times the work fills a turn.
fn size(turn: impl Fn(u64) -> Outcome<Reading>, work: Work, turn_ns: f64) -> Outcome<u64> {
    let mut count = work.first_count();
    for _ in 0..SIZING_TURNS {
        let Some(one_ns) = work.one_ns(turn(count)?.value) else { return Ok(count) };
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
    fn takes_part(&self) -> bool {
        let last = self.turns.iter().rev().take(FAILURES_MAX);
        self.absent.is_none() && last.filter(|turn| turn.reading().is_none()).count() < FAILURES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestant::Role;
    use cci_measure::failure::Failure;
    use std::cell::Cell;

    /// Takes 50 ns a message; fails from some turn on.
    struct Scripted {
        name: &'static str,
        turns_before_failing: Cell<u32>,
    }

    impl Contestant for Scripted {
        fn name(&self) -> String {
            self.name.to_owned()
        }

        fn role(&self) -> Role {
            Role::Ours
        }

        fn about(&self) -> Outcome<String> {
            Ok("scripted".to_owned())
        }

        fn turn(&self, _: Work, _: u64) -> Outcome<Reading> {
            match self.turns_before_failing.get() {
                0 => Err(Failure::new("scripted failure")),
                left => {
                    self.turns_before_failing.set(left - 1);
                    Ok(Reading::of(50.0))
                }
            }
        }
    }

    #[derive(Default)]
    struct Log {
        turns: Vec<String>,
        out: Vec<String>,
        done: u64,
    }

    impl Watch for Log {
        fn turn(&mut self, _: &str, contestant: &str) {
            self.turns.push(contestant.to_owned());
        }

        fn done(&mut self, turns: u64) {
            self.done += turns;
        }

        fn out(&mut self, _: &str, contestant: &str, why: &str) {
            self.out.push(format!("{contestant}: {why}"));
        }

        fn cache_line_ns(&mut self) -> Option<f64> {
            Some(25.0)
        }
    }

    fn row(turns_before_failing: &[(&'static str, u32)]) -> Row {
        let contestant = |&(name, turns): &(&'static str, u32)| -> Box<dyn Contestant> {
            Box::new(Scripted { name, turns_before_failing: Cell::new(turns) })
        };
        Row {
            name: "x/half-trip/8".to_owned(),
            title: String::new(),
            work: Work::HalfTrip { len: 8 },
            goals: Vec::new(),
            contestants: turns_before_failing.iter().map(contestant).collect(),
        }
    }

    #[test]
    fn a_row_goes_on_without_those_who_fail() {
        // 2,000 at first, then what fills the turn: two turns for sizing.
        let row = row(&[("never", 0), ("always", 99), ("at first", 3)]);
        let mut log = Log::default();
        let result = measure(&row, Plan { rounds: 5, turn_ms: 200 }, &mut log);
        let [never, always, at_first] = &result.tracks[..] else { panic!("three tracks") };
        assert_eq!((never.absent.as_deref(), never.turns.len()), (Some("scripted failure"), 0));
        assert_eq!((always.turns.len(), always.failures().count()), (5, 0));
        assert_eq!((at_first.turns.len(), at_first.failures().count()), (3, 2));
        assert_eq!(always.count, 2_000_000);
        assert_eq!(log.out, ["never: scripted failure", "at first: scripted failure"]);
        assert_eq!((log.done, result.cache_line_ns.len()), (3 * 6, 5));
    }

    #[test]
    fn each_round_begins_with_another_one() {
        let row = row(&[("a", 99), ("b", 99)]);
        let mut log = Log::default();
        measure(&row, Plan { rounds: 3, turn_ms: 200 }, &mut log);
        assert_eq!(log.turns, ["a", "b", "a", "b", "b", "a", "a", "b"]);
    }
}
