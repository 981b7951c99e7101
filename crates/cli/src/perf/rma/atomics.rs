//! Atomics: one at a time, and many under way. Every result is checked: each addition has found another value, each
//! comparison the one it must; and in the end, what is left in the memory.

use super::super::plan::Plan;
use super::super::results::{AtomicCell, Completion};
use super::super::work::Operation;
use super::operations::{Atomics, Transfers};
use super::{ROUNDS, Region};
use crate::client::Client;
use crate::failure::Outcome;
use crate::{memory, signals};
use cci::{Atomic, AtomicKind, AtomicWidth};
use cci_measure::statistics::{Times, median};
use cci_measure::transfer::Direction;
use cci_sys::clock;

/// Operations of a round, one at a time and many under way.
const SINGLE: u64 = 256;
const STREAM: u64 = 4096;
const WINDOW: u64 = 64;
const WORD: u64 = 8;
/// A word for each: those of the first kind come first.
pub const REGION_BYTES: u64 = (SINGLE + STREAM) * WORD;

/// What the memory at the server must be, and what was counted.
struct State {
    operation: Operation,
    /// Additions done.
    sum: u64,
    /// Rounds done or under way.
    round: u64,
    operations: u64,
    verified: u64,
    wrong: Option<String>,
}

impl Client {
    /// Operations of one kind on memory that is zero.
    pub(super) fn atomics(
        &mut self,
        plan: &Plan,
        region: &Region,
        operation: Operation,
    ) -> Outcome<AtomicCell> {
        let mut state = State { operation, sum: 0, round: 0, operations: 0, verified: 0, wrong: None };
        let (mut times, mut per_s) = (Times::default(), Vec::new());
        let begin_ns = clock::now_ns();
        loop {
            signals::go_on()?;
            state.round += 1;
            // The first round sets up the path.
            let counts = state.round > 1;
            memory::fill(&region.memory, state.round, region.memory.len());
            let batch = state.batch(0);
            self.one_by_one(region, &batch, SINGLE, counts.then_some(&mut times))?;
            state.take(region, 0, SINGLE);
            let batch = state.batch(SINGLE);
            let took_ns = self.all_at_once(region, &batch, STREAM, WINDOW)?;
            state.take(region, SINGLE, STREAM);
            if counts {
                per_s.push(STREAM as f64 * 1e9 / took_ns.max(1) as f64);
            }
            let enough = plan.budget.is_spent(clock::now_ns() - begin_ns, times.count());
            if enough && state.round > *ROUNDS.start() || state.round > *ROUNDS.end() {
                break;
            }
        }
        self.all_at_once(region, &Transfers { direction: Direction::Read, size: REGION_BYTES }, 1, 1)?;
        state.end(region);
        Ok(AtomicCell {
            r#type: "",
            operation: operation.name(),
            latency: Completion(times.summary(1.0)),
            per_s: median(per_s),
            outstanding: WINDOW,
            operations: state.operations,
            verified: state.verified,
            wrong: state.wrong,
        })
    }
}

impl State {
    /// The operations of this round on the words from `first` on.
    fn batch(&self, first: u64) -> Atomics {
        let (kind, operand, compare) = match self.operation {
            Operation::FetchAdd => (AtomicKind::FetchAdd, 1, 0),
            Operation::CompareSwap => (AtomicKind::CompareSwap, self.round, self.round - 1),
        };
        let atomic = Atomic { kind, width: AtomicWidth::Eight, operand, compare };
        Atomics { atomic, first, spread: self.operation == Operation::CompareSwap }
    }

    /// Checks what they found.
    fn take(&mut self, region: &Region, first: u64, count: u64) {
        let mut found: Vec<u64> = (first..first + count).map(|nth| word(region, nth)).collect();
        // Additions under way at once may be done in any order.
        found.sort_unstable();
        let wrong = match self.operation {
            Operation::FetchAdd => (self.sum..).zip(&found).find(|(wanted, found)| wanted != *found),
            Operation::CompareSwap => {
                found.iter().map(|found| (self.round - 1, found)).find(|(wanted, found)| wanted != *found)
            }
        };
        let wrong = wrong.map(|(wanted, found)| format!("a result is {found} instead of {wanted}"));
        self.sum += count;
        self.operations += count;
        self.verified += if wrong.is_none() { count } else { 0 };
        self.wrong = self.wrong.take().or(wrong);
    }

    /// Checks what is left, which was read into the memory here.
    fn end(&mut self, region: &Region) {
        let wrong = (0..SINGLE + STREAM).find_map(|nth| {
            let wanted = match self.operation {
                Operation::CompareSwap => self.round,
                Operation::FetchAdd if nth == 0 => self.sum,
                Operation::FetchAdd => 0,
            };
            let left = word(region, nth);
            (left != wanted).then(|| format!("in the end word {nth} is {left} instead of {wanted}"))
        });
        self.wrong = self.wrong.take().or(wrong);
    }
}

fn word(region: &Region, nth: u64) -> u64 {
    let mut bytes = [0; WORD as usize];
    // Behind the end there is nothing to find, which is wrong too.
    if !region.memory.read((nth * WORD) as usize, &mut bytes) {
        return u64::MAX;
    }
    u64::from_le_bytes(bytes)
}
