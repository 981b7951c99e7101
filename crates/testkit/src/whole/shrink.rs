//! From a scenario that fails to the least one that does.
//!
//! Steps are left out, first in large parts, then in small ones, and what remains is made simpler, as long as the
//! same kind of promise is broken (delta debugging, Zeller 1999). Chance follows from each pair of machines' own
//! datagrams, so what is left out changes little of the rest.

use super::broken::Broken;
use super::scenario::{Act, Fabric, Job, Machine, Operating, Scenario, Step, Weather};
use std::time::{Duration, Instant};

/// How much is spent on it.
#[derive(Copy, Clone, Debug)]
pub struct Limits {
    /// Runs.
    pub runs: u32,
    /// Time on the wall.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { runs: 1_000, time: Duration::from_secs(60) }
    }
}

/// The least scenario that was found.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// It.
    pub scenario: Scenario,
    /// What it breaks.
    pub broken: Broken,
    /// Runs that it took.
    pub runs: u32,
}

struct Search<F> {
    best: Scenario,
    broken: Broken,
    run: F,
    runs: u32,
    limits: Limits,
    began: Instant,
}

/// Shrinks `scenario`, which broke `broken` in `run`, for which `None` means that all was kept.
pub fn shrink(
    scenario: &Scenario,
    broken: Broken,
    run: impl FnMut(&Scenario) -> Option<Broken>,
    limits: Limits,
) -> Shrunk {
    let mut search = Search { best: scenario.clone(), broken, run, runs: 0, limits, began: Instant::now() };
    loop {
        let before = size(&search.best);
        search.drop_steps();
        search.simplify();
        if size(&search.best) >= before || search.is_spent() {
            break;
        }
    }
    Shrunk { scenario: search.best, broken: search.broken, runs: search.runs }
}

/// What is to be made less.
fn size(scenario: &Scenario) -> u64 {
    let work = |step: &Step| match &step.act {
        Act::Send(_, _, job) => u64::from(job.messages),
        Act::Operate(_, _, spec) => u64::from(spec.operations),
        _ => 0,
    };
    let work: u64 = scenario.steps.iter().map(work).sum();
    let weather = &scenario.weather;
    let trouble = [weather.loss_pct, weather.duplicate_pct, weather.reorder_pct];
    let trouble = trouble.iter().filter(|pct| **pct > 0.0).count() as u64;
    1_000 * scenario.steps.len() as u64 + work + 100 * trouble
}

impl<F: FnMut(&Scenario) -> Option<Broken>> Search<F> {
    fn is_spent(&self) -> bool {
        self.runs >= self.limits.runs || self.began.elapsed() >= self.limits.time
    }

    /// Takes the candidate if it breaks the same rule.
    fn try_out(&mut self, candidate: Scenario) -> bool {
        if self.is_spent() {
            return false;
        }
        self.runs += 1;
        match (self.run)(&candidate) {
            Some(broken) if broken.rule == self.broken.rule => {
                self.best = candidate;
                self.broken = broken;
                true
            }
            _ => false,
        }
    }

    fn drop_steps(&mut self) {
        let mut chunk = self.best.steps.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            let mut dropped = false;
            while at < self.best.steps.len() {
                let mut candidate = self.best.clone();
                let end = (at + chunk).min(candidate.steps.len());
                candidate.steps.drain(at..end);
                if self.try_out(candidate) {
                    dropped = true;
                } else {
                    at += chunk;
                }
                if self.is_spent() {
                    return;
                }
            }
            if chunk == 1 && !dropped {
                return;
            }
            chunk = if dropped { chunk } else { chunk.div_ceil(2) };
        }
    }

    fn simplify(&mut self) {
        if let Fabric::SharedMemory { is_weak, fault_per_calls } = self.best.fabric {
            let without_faults = Fabric::SharedMemory { is_weak, fault_per_calls: 0 };
            let in_order = Fabric::SharedMemory { is_weak: false, fault_per_calls };
            for fabric in [without_faults, in_order] {
                self.try_out(Scenario { fabric, ..self.best.clone() });
            }
        }
        if let Fabric::Streams { any, fault_per_calls } = self.best.fabric {
            let without_faults = Fabric::Streams { any, fault_per_calls: 0 };
            let alone = Fabric::Streams { any: false, fault_per_calls };
            for fabric in [without_faults, alone] {
                self.try_out(Scenario { fabric, ..self.best.clone() });
            }
        }
        self.simplify_weather();
        self.simplify_machines();
        for at in 0..self.best.steps.len() {
            while let Some(less) = less(&self.best.steps[at].act) {
                let mut candidate = self.best.clone();
                candidate.steps[at].act = less;
                if !self.try_out(candidate) {
                    break;
                }
            }
        }
    }

    fn simplify_weather(&mut self) {
        let changes: [fn(&mut Weather); 6] = [
            |weather| weather.loss_pct = 0.0,
            |weather| weather.duplicate_pct = 0.0,
            |weather| weather.reorder_pct = 0.0,
            |weather| weather.jitter_ns = 0,
            |weather| weather.link_bits_per_s = 0,
            |weather| weather.inward_bits_per_s = 0,
        ];
        for change in changes {
            let mut candidate = self.best.clone();
            change(&mut candidate.weather);
            if candidate.weather != self.best.weather {
                self.try_out(candidate);
            }
        }
    }

    fn simplify_machines(&mut self) {
        let changes: [fn(&mut Machine); 6] = [
            |machine| machine.rate_ppm = 0,
            |machine| machine.keepalive_ns = None,
            |machine| machine.exported = false,
            |machine| machine.is_bonded = false,
            |machine| machine.first_seq = None,
            |machine| machine.socket_bytes = 4 << 20,
        ];
        for change in changes {
            let mut candidate = self.best.clone();
            candidate.machines.iter_mut().for_each(change);
            if candidate.machines != self.best.machines {
                self.try_out(candidate);
            }
        }
    }
}

/// An act with less to do; `None` if it can't be less.
fn less(act: &Act) -> Option<Act> {
    match act {
        Act::Send(talk, end, job) if job.messages > 1 => {
            Some(Act::Send(*talk, *end, Job { messages: job.messages / 2, ..job.clone() }))
        }
        Act::Operate(talk, end, spec) if spec.operations > 1 => {
            Some(Act::Operate(*talk, *end, Operating { operations: spec.operations / 2, ..spec.clone() }))
        }
        Act::Replay(count) if *count > 1 => Some(Act::Replay(count / 2)),
        Act::ReplayElsewhere(count) if *count > 1 => Some(Act::ReplayElsewhere(count / 2)),
        Act::Forge(count) if *count > 1 => Some(Act::Forge(count / 2)),
        _ => None,
    }
}
