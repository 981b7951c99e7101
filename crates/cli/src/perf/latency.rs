//! Round trips, one at a time.

use super::plan::Plan;
use super::results::{HalfRoundTrip, Latency};
use crate::client::{Client, Data, Echo};
use crate::failure::Outcome;
use crate::signals;
use cci::SendFlags;
use cci_measure::statistics::Times;
use cci_sys::clock;

/// An echo on UU that takes longer is lost.
const LOST_AFTER_NS: u64 = 50_000_000;
/// A reliable echo that takes longer is a failure: longer than the library's own send timeout.
const STUCK_AFTER_NS: u64 = 12_000_000_000;
/// Round trips before those that count: caches, branch predictors and round-trip estimators get to know the way.
const WARM_UP: u64 = 64;
const WARM_UP_NS: u64 = 10_000_000;

impl Client {
    /// Sends messages of `len` bytes one after the other, each when the echo of the one before has come.
    pub fn latency(&mut self, plan: &Plan, data: &Data, len: u32) -> Outcome<Latency> {
        self.start(data, len, true)?;
        let mut trips = Times::default();
        let (mut seq, mut lost, mut verified, mut first_wrong) = (0, 0, 0, None);
        let begin_ns = clock::now_ns();
        let mut counted_from_ns = None;
        loop {
            signals::go_on()?;
            let reliable = data.attribute.is_reliable();
            let patience_ns = if reliable { STUCK_AFTER_NS } else { LOST_AFTER_NS };
            let echo = self.round_trip(data, (seq, len), SendFlags::SILENT, patience_ns, lost > 0)?;
            seq += 1;
            let now_ns = clock::now_ns();
            match (echo, counted_from_ns) {
                (Echo::After { ns, wrong }, counting) => {
                    if counting.is_some() {
                        trips.record(ns);
                    }
                    verified += u64::from(wrong.is_none());
                    first_wrong = first_wrong.or(wrong.map(|reason| format!("echo: {reason}")));
                }
                (Echo::Missing, _) if reliable => return Err(self.silent("no echo")),
                (Echo::Missing, _) => {
                    self.let_pass(clock::now_ns() + LOST_AFTER_NS)?;
                    lost += 1;
                }
            }
            let counted_from_ns = match counted_from_ns {
                Some(from_ns) => from_ns,
                None if seq >= WARM_UP || now_ns - begin_ns > WARM_UP_NS => *counted_from_ns.insert(now_ns),
                None => continue,
            };
            if plan.budget.is_spent(now_ns - counted_from_ns, trips.count().max(lost)) {
                break;
            }
        }
        let report = self.finish(seq)?;
        Ok(Latency {
            half_round_trip: HalfRoundTrip(trips.summary(0.5)),
            sent: seq,
            verified,
            lost,
            wrong: wrong(data, seq, verified + lost, first_wrong, &report),
        })
    }
}

/// What both sides found wrong, if anything.
fn wrong(
    data: &Data,
    sent: u64,
    accounted: u64,
    mine: Option<String>,
    report: &crate::protocol::Report,
) -> Option<String> {
    if let Some(reason) = mine {
        return Some(reason);
    }
    if let Some(reason) = &report.first_wrong {
        return Some(format!("at the server: {reason}"));
    }
    if accounted != sent {
        return Some(format!("{accounted} of {sent} echoes were right"));
    }
    let expected = if data.attribute.is_reliable() { sent..=sent } else { 0..=sent };
    (!expected.contains(&report.verified))
        .then(|| format!("the server verified {} of {sent} messages", report.verified))
}
