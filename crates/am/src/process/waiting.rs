//! How a process waits for others: it checks again and again for a while, and then sleeps.
//!
//! If each rank of the host has a core, it keeps its own meanwhile, since a sleep and a wake-up take longer than most answers. If
//! ranks share cores, the answer may need this one. Then each check that finds nothing yields the core.

use super::Process;
use super::counted::Sleep;
use crate::error::Result;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

/// The shortest and longest time of checks before a sleep, nanoseconds, if each rank has a core.
const SPIN_NS: RangeInclusive<u64> = 2_000..=50_000;
/// These times for ranks that share cores. All others may have their turns meanwhile, and nobody is kept from running.
const YIELD_NS: RangeInclusive<u64> = 50_000..=1_000_000;
/// The clock is read with one of this many checks, if nothing else is done between them.
const LOOKS_PER_CLOCK: u32 = 16;

/// Learns from each wait how long the next one should check before it sleeps.
pub(crate) struct Looks {
    /// Whether the ranks of this host share its cores.
    yields: bool,
    budget_ns: u64,
}

impl Looks {
    /// Makes the state for a host with this many ranks and cores.
    pub fn new(ranks: usize, cores: usize) -> Looks {
        let mut looks = Looks { yields: ranks > cores, budget_ns: 0 };
        looks.budget_ns = *looks.bounds().end();
        looks
    }

    /// Checks until there is something, or it is time to sleep. Returns whether there was something.
    fn until(&mut self, timeout: Option<Duration>, mut look: impl FnMut() -> bool) -> bool {
        let budget = Duration::from_nanos(self.budget_ns).min(timeout.unwrap_or(Duration::MAX));
        let most_ns = *self.bounds().end();
        let looks = if self.yields { 1 } else { LOOKS_PER_CLOCK };
        let mut begun = None;
        loop {
            for _ in 0..looks {
                if look() {
                    self.budget_ns = (self.budget_ns * 2).min(most_ns);
                    return true;
                }
                if self.yields { thread::yield_now() } else { std::hint::spin_loop() }
            }
            // What comes with the first checks needs no clock.
            if begun.get_or_insert_with(Instant::now).elapsed() >= budget {
                return false;
            }
        }
    }

    /// Notes how long this process slept. A short sleep shows that somewhat more checking would have been enough.
    fn slept(&mut self, time: Duration) {
        let bounds = self.bounds();
        self.budget_ns = if time < Duration::from_nanos(*bounds.end()) {
            (self.budget_ns * 2).min(*bounds.end())
        } else {
            (self.budget_ns / 2).max(*bounds.start())
        };
    }

    fn bounds(&self) -> RangeInclusive<u64> {
        if self.yields { YIELD_NS } else { SPIN_NS }
    }
}

impl Process {
    /// Waits until there is progress to make, for up to `timeout`: it looks for a short while, and sleeps then. Handlers that are due already
    /// end it at once.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<()> {
        if self.has_due() { Ok(()) } else { self.wait_for_more(timeout) }
    }

    /// Waits until there is more progress to make, for up to `timeout`, though handlers may be due already: for those who can't take these now.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn wait_for_more(&mut self, timeout: Option<Duration>) -> Result<()> {
        let Process { looks, links, counted, .. } = self;
        if looks.until(timeout, || counted.look(links)) {
            return Ok(());
        }
        let sleep = self.counted.before_sleep(&mut self.links);
        if sleep == Sleep::No {
            return Ok(());
        }
        let begun = Instant::now();
        let waited = self.links.wait(timeout, self.memory.is_waiting() || sleep == Sleep::Short);
        self.looks.slept(begun.elapsed());
        self.counted.has_slept();
        waited
    }

    /// Prepares for sleep on a descriptor, which becomes readable when there is progress to make, for callers that do not hold the
    /// process while they sleep. `None` if there is some already; handlers that are due do not count. The caller must check again
    /// after a millisecond, since no event reports space.
    pub fn arm_for_more(&mut self) -> Option<BorrowedFd<'_>> {
        if self.counted.before_sleep(&mut self.links) == Sleep::No { None } else { self.links.arm() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_find_nothing_get_fewer_and_others_more() {
        for (ranks, bounds) in [(2, SPIN_NS), (8, YIELD_NS)] {
            let mut looks = Looks::new(ranks, 2);
            assert_eq!((looks.yields, looks.budget_ns), (ranks > 2, *bounds.end()));
            for _ in 0..20 {
                assert!(!looks.until(None, || false));
                looks.slept(Duration::from_secs(1));
            }
            assert_eq!(looks.budget_ns, *bounds.start());
            looks.slept(Duration::from_nanos(*bounds.start()));
            assert_eq!(looks.budget_ns, 2 * bounds.start(), "that was a short sleep");
            let mut left = 1_000;
            let mut last_one = || {
                left -= 1;
                left == 0
            };
            while !looks.until(None, &mut last_one) {}
            assert_eq!(left, 0, "it ends with the first look that finds something");
            for _ in 0..20 {
                assert!(looks.until(None, || true));
            }
            assert_eq!(looks.budget_ns, *bounds.end());
        }
    }

    #[test]
    fn a_wait_without_time_looks_a_few_times() {
        for ranks in [2, 8] {
            let mut count = 0;
            let look = || {
                count += 1;
                false
            };
            assert!(!Looks::new(ranks, 2).until(Some(Duration::ZERO), look));
            assert!((1..=LOOKS_PER_CLOCK).contains(&count));
        }
    }
}
