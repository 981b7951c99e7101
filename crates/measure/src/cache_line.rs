//! What the two cores can do at best: one cache line handed back and forth. Shared memory cannot be faster, and on a
//! virtual machine this changes by a factor with where the hypervisor puts the two.

use crate::cores::Cores;
use cci_sys::{SysError, clock, cpu};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Round trips in a batch, and batches, of which the fastest counts: an interruption spoils only its own.
const ROUNDS: u64 = 2_000;
const BATCHES: usize = 21;

/// A line with nothing else in it or beside it.
#[repr(align(128))]
struct Line(AtomicU64);

/// Half of the round trip of one cache line between the two cores, nanoseconds. None where there are not two.
pub fn half_round_trip_ns(cores: &Cores) -> Option<f64> {
    let batches = half_round_trips_ns(cores.theirs?, &[ROUNDS; BATCHES]).ok()?;
    batches.into_iter().reduce(f64::min)
}

/// Half of the mean round trip of one cache line between this thread and one on another core, nanoseconds: of so many
/// round trips after the other. Threads, since where memory is shared a line does not know whose it is.
///
/// # Errors
/// The other thread can't be pinned: unpinned, it would measure something else.
pub fn half_round_trips_ns(theirs: usize, batches: &[u64]) -> Result<Vec<f64>, SysError> {
    let line = Line(AtomicU64::new(0));
    let all: u64 = batches.iter().sum();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let pinned = cpu::pin(theirs);
            // Also where that failed: this side waits for its answers.
            (0..all).for_each(|trip| line.hand_on(2 * trip + 1));
            pinned
        });
        let mut trip = 0;
        let mut batch = |rounds: u64| {
            let begin_ns = clock::now_ns();
            for _ in 0..rounds {
                line.hand_on(2 * trip);
                trip += 1;
            }
            (clock::now_ns() - begin_ns) as f64 / rounds.max(1) as f64 / 2.0
        };
        let found = batches.iter().map(|&rounds| batch(rounds)).collect();
        other.join().unwrap_or(Ok(())).map(|()| found)
    })
}

impl Line {
    /// Waits until the line says `due`, and says the next number.
    #[inline]
    fn hand_on(&self, due: u64) {
        // Acquire and Release, as an exchange with data behind it would need.
        while self.0.load(Ordering::Acquire) != due {
            std::hint::spin_loop();
        }
        self.0.store(due + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_come_to_their_end() {
        let cores = cpu::allowed().unwrap();
        let &[mine, theirs, ..] = cores.as_slice() else {
            println!("skipped: one core only");
            return;
        };
        let cores = Cores { available: cores.len(), can_spin: true, mine: Some(mine), theirs: Some(theirs) };
        assert!(half_round_trip_ns(&cores).is_some_and(|ns| ns > 0.0));
        assert_eq!(half_round_trip_ns(&Cores { theirs: None, ..cores }), None);
    }
}
