//! One size, one direction: rounds of latency, bandwidth and baseline, each verified before the next begins.

use super::super::plan::Plan;
use super::super::results::{Completion, PlainMemory, RmaCell};
use super::baseline::{self, Baseline};
use super::operations::Transfers;
use super::{ROUNDS, Region};
use crate::client::Client;
use crate::failure::Outcome;
use crate::{memory, signals};
use cci_measure::statistics::{Times, median};
use cci_measure::transfer::Direction;
use cci_sys::clock;

/// Operations of a round, and bytes in them unless one alone has more.
const SINGLE: u64 = 256;
const SINGLE_BYTES: u64 = 4 << 20;
/// More than this no cache keeps between warming up and measuring.
const WARM_BYTES_MAX: u64 = 16 << 20;

/// What is found in the rounds.
#[derive(Default)]
struct Found {
    times: Times,
    bytes_per_s: Vec<f64>,
    baseline_bytes_per_s: Vec<f64>,
    ratios: Vec<f64>,
    transfers: u64,
    verified: u64,
    wrong: Option<String>,
    /// Tells the contents of each batch from those of all others.
    seed: u64,
}

impl Client {
    /// Transfers of `size` bytes.
    pub(super) fn transfer(
        &mut self,
        plan: &Plan,
        region: &Region,
        plain: &mut Option<Box<dyn Baseline>>,
        direction: Direction,
        size: u64,
    ) -> Outcome<RmaCell> {
        let batch = Transfers { direction, size };
        let single = (SINGLE_BYTES / size).clamp(1, SINGLE);
        let stream = plan.transfers(size);
        let window = u64::from(plan.window(u32::try_from(size).unwrap_or(u32::MAX)));
        let mut found = Found { seed: size << 32, ..Found::default() };
        // A path that has to be set up is set up by the first operations.
        self.one_by_one(region, &batch, SINGLE.min(stream), None)?;
        let begin_ns = clock::now_ns();
        for round in 1..=*ROUNDS.end() {
            signals::go_on()?;
            if stream > 1 {
                self.round(region, &batch, single, &mut found, |client, found| {
                    client.one_by_one(region, &batch, single, Some(&mut found.times))
                })?;
            }
            let mut took_ns = 0;
            self.round(region, &batch, stream, &mut found, |client, found| {
                took_ns = client.all_at_once(region, &batch, stream, window)?;
                if stream == 1 {
                    found.times.record(took_ns);
                }
                Ok(())
            })?;
            let rate = |ns: u64| (stream * size) as f64 * 1e9 / ns.max(1) as f64;
            found.bytes_per_s.push(rate(took_ns));
            found.seed += 1;
            let seed = found.seed;
            let run = |plain: &mut Box<dyn Baseline>| {
                baseline::run(plain.as_mut(), self, direction, (size, stream), seed)
            };
            let plain_ns = plain.as_mut().map(run);
            if let Some(baseline_ns) = plain_ns.transpose()?.flatten() {
                found.baseline_bytes_per_s.push(rate(baseline_ns));
                found.ratios.push(baseline_ns as f64 / took_ns.max(1) as f64);
            }
            let enough = plan.budget.is_spent(clock::now_ns() - begin_ns, found.transfers);
            if enough && round >= *ROUNDS.start() {
                break;
            }
        }
        Ok(found.cell(direction, size, plain.as_ref().map(|plain| plain.name())))
    }

    /// Contents in place, caches warm, then what is to be timed; then every byte of it is compared.
    fn round(
        &mut self,
        region: &Region,
        batch: &Transfers,
        count: u64,
        found: &mut Found,
        timed: impl FnOnce(&mut Client, &mut Found) -> Outcome,
    ) -> Outcome {
        let len = count * batch.size;
        if len <= WARM_BYTES_MAX {
            self.all_at_once(region, batch, count, count)?;
        }
        found.seed += 1;
        let seed = found.seed;
        // What was there from the warm-up is overwritten, so that it can't pass for what comes.
        match batch.direction {
            Direction::Write => memory::fill(&region.memory, seed, len as usize),
            Direction::Read => {
                self.fill_theirs(seed, len)?;
                memory::fill(&region.memory, !seed, len as usize);
            }
        }
        timed(self, found)?;
        let reason = match batch.direction {
            Direction::Write => self.check_theirs(seed, len)?,
            Direction::Read => memory::check(&region.memory, seed, len as usize).err(),
        };
        found.transfers += count;
        match reason {
            None => found.verified += count,
            Some(reason) => drop(found.wrong.get_or_insert(reason)),
        }
        Ok(())
    }
}

impl Found {
    fn cell(self, direction: Direction, size: u64, baseline: Option<&'static str>) -> RmaCell {
        RmaCell {
            r#type: "",
            memory: "",
            operation: direction.name(),
            size_bytes: size,
            latency: Completion(self.times.summary(1.0)),
            rounds: self.bytes_per_s.len() as u64,
            bytes_per_s: median(self.bytes_per_s),
            plain: baseline.filter(|_| !self.ratios.is_empty()).map(|name| PlainMemory {
                name,
                bytes_per_s: median(self.baseline_bytes_per_s),
                times_as_fast: median(self.ratios),
            }),
            transfers: self.transfers,
            verified: self.verified,
            wrong: self.wrong,
        }
    }
}
