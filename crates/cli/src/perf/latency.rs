//! Round trips, one at a time.

use super::client::{Client, Data, no_failure};
use super::plan::Plan;
use super::results::Latency;
use crate::failure::{Failure, Outcome};
use crate::pattern::{Pattern, SEQ_BYTES};
use crate::signals;
use cci::{Event, SendFlags};
use cci_sys::clock;
use hdrhistogram::Histogram;

/// An echo on UU that takes longer is lost.
const LOST_AFTER_NS: u64 = 50_000_000;
/// A reliable echo that takes longer is a failure: longer than the library's own send timeout.
const STUCK_AFTER_NS: u64 = 12_000_000_000;
/// Round trips before those that count: caches, branch predictors and round-trip estimators get to know the way.
const WARM_UP: u64 = 64;
const WARM_UP_NS: u64 = 10_000_000;

/// What came of one message.
enum Echo {
    After { ns: u64, wrong: Option<String> },
    Lost,
}

impl Client {
    /// Sends messages of `len` bytes one after the other, each when the echo of the one before has come.
    pub fn latency(&mut self, plan: &Plan, data: &Data, len: u32) -> Outcome<Latency> {
        self.start(data, len, true)?;
        let mut rtt = Histogram::<u64>::new_with_bounds(1, STUCK_AFTER_NS, 3)
            .map_err(|error| Failure::new(format!("histogram: {error}")))?;
        let (mut seq, mut lost, mut verified, mut first_wrong) = (0, 0, 0, None);
        let begin_ns = clock::now_ns();
        let mut counted_from_ns = None;
        loop {
            signals::go_on()?;
            let echo = self.round_trip(data, seq, len, lost > 0)?;
            seq += 1;
            let now_ns = clock::now_ns();
            match (echo, counted_from_ns) {
                (Echo::After { ns, wrong }, counting) => {
                    if counting.is_some() {
                        rtt.saturating_record(ns);
                    }
                    verified += u64::from(wrong.is_none());
                    first_wrong = first_wrong.or(wrong);
                }
                (Echo::Lost, _) => lost += 1,
            }
            let counted_from_ns = match counted_from_ns {
                Some(from_ns) => from_ns,
                None if seq >= WARM_UP || now_ns - begin_ns > WARM_UP_NS => *counted_from_ns.insert(now_ns),
                None => continue,
            };
            if plan.budget.is_spent(now_ns - counted_from_ns, rtt.len().max(lost)) {
                break;
            }
        }
        let report = self.finish(seq)?;
        let half = |quantile: f64| rtt.value_at_quantile(quantile) as f64 / 2.0;
        Ok(Latency {
            half_round_trip_ns_min: rtt.min() as f64 / 2.0,
            half_round_trip_ns_p50: half(0.5),
            half_round_trip_ns_p99: half(0.99),
            half_round_trip_ns_p999: half(0.999),
            half_round_trip_ns_max: rtt.max() as f64 / 2.0,
            half_round_trip_ns_mean: rtt.mean() / 2.0,
            samples: rtt.len(),
            sent: seq,
            verified,
            lost,
            wrong: wrong(data, seq, verified + lost, first_wrong, &report),
        })
    }

    #[inline]
    fn round_trip(&mut self, data: &Data, seq: u64, len: u32, any_lost: bool) -> Outcome<Echo> {
        let reliable = data.attribute.is_reliable();
        let sent_ns = clock::now_ns();
        let until_ns = sent_ns + if reliable { STUCK_AFTER_NS } else { LOST_AFTER_NS };
        while !self.send(data, seq, len, SendFlags::SILENT)? {
            self.endpoint.progress();
            if clock::now_ns() > until_ns {
                return Err(self.silent("no room to send"));
            }
        }
        loop {
            match self.next(until_ns)? {
                Some(Event::Recv(message)) if message.connection() == data.connection => {
                    let ns = clock::now_ns() - sent_ns;
                    let is_late = Pattern::seq_of(&message).is_some_and(|number| number < seq);
                    // What was given up as lost may still come.
                    if is_late && !reliable {
                        continue;
                    }
                    // Where messages carry no number, it may even come now.
                    let is_unnumbered = any_lost && (len as usize) < SEQ_BYTES;
                    let due = if is_unnumbered { self.pattern.seq_like(&message) } else { seq };
                    let wrong = self.pattern.check(&message, due, len as usize).err();
                    return Ok(Echo::After { ns, wrong: wrong.map(|reason| format!("echo: {reason}")) });
                }
                Some(event) => no_failure(&event)?,
                None if !reliable => {
                    self.let_pass(clock::now_ns() + LOST_AFTER_NS)?;
                    return Ok(Echo::Lost);
                }
                None => return Err(self.silent("no echo")),
            }
        }
    }
}

impl Client {
    /// Takes whatever still comes, so that it is not mistaken for what comes next.
    fn let_pass(&mut self, until_ns: u64) -> Outcome {
        while let Some(event) = self.next(until_ns)? {
            no_failure(&event)?;
        }
        Ok(())
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
