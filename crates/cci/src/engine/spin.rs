//! How long a wait spins before it sleeps. Spinning pays when the event comes sooner than a sleep and a wake-up would
//! take (about `SPIN_NS_MAX`), and never on a machine with one core, where it only keeps the peer from running.

use crate::limits::{SPIN_NS_MAX, SPIN_NS_MIN};

/// Learns from each wait how long the next one should spin.
pub(crate) struct Spin {
    budget_ns: u64,
    alone: bool,
}

impl Spin {
    /// `cores`: how many this process may use.
    pub fn new(cores: usize) -> Spin {
        Spin { budget_ns: SPIN_NS_MAX, alone: cores < 2 }
    }

    /// How long to spin now.
    pub fn budget_ns(&self) -> u64 {
        if self.alone { 0 } else { self.budget_ns }
    }

    /// The event came while spinning: spin as long again, and longer.
    pub fn paid(&mut self) {
        self.budget_ns = (self.budget_ns * 2).min(SPIN_NS_MAX);
    }

    /// It did not come, and we slept `slept_ns`. A short sleep says that a little more spinning would have caught it.
    pub fn failed(&mut self, slept_ns: u64) {
        self.budget_ns = if slept_ns < SPIN_NS_MAX {
            (self.budget_ns * 2).min(SPIN_NS_MAX)
        } else {
            (self.budget_ns / 2).max(SPIN_NS_MIN)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_core_never_spins() {
        assert_eq!(Spin::new(1).budget_ns(), 0);
    }

    #[test]
    fn long_sleeps_shrink_the_budget_and_short_ones_bring_it_back() {
        let mut spin = Spin::new(2);
        for _ in 0..20 {
            spin.failed(1_000_000);
        }
        assert_eq!(spin.budget_ns(), SPIN_NS_MIN);
        for _ in 0..20 {
            spin.failed(SPIN_NS_MAX / 2);
        }
        assert_eq!(spin.budget_ns(), SPIN_NS_MAX);
    }
}
