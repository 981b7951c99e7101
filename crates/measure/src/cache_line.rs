//! What the two cores can do at best: one cache line handed back and forth. Shared memory cannot be faster, and on a
//! virtual machine this changes by a factor with where the hypervisor puts the two.

use crate::cores::Cores;
use cci_sys::{clock, cpu};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Round trips in a batch, and batches, of which the fastest counts: an interruption spoils only its own.
const ROUNDS: u64 = 2_000;
const BATCHES: u64 = 21;

/// Half of the round trip of one cache line between the two cores, nanoseconds. None where there are not two.
pub fn half_round_trip_ns(cores: &Cores) -> Option<f64> {
    let theirs = cores.theirs?;
    let line = AtomicU64::new(0);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            // Unpinned, it would measure something else: better nothing.
            let pinned = cpu::pin(theirs).is_ok();
            line.store(if pinned { 1 } else { u64::MAX }, Ordering::Release);
            if pinned {
                answer(&line);
            }
            pinned
        });
        let fastest = ask(&line);
        other.join().is_ok_and(|pinned| pinned).then_some(fastest)
    })
}

/// Odd numbers are answered with the next even one.
fn answer(line: &AtomicU64) {
    let last = 2 + 2 * ROUNDS * BATCHES;
    let mut due = 3;
    while due < last {
        // Pairs with the Release of `ask`.
        while line.load(Ordering::Acquire) != due {
            std::hint::spin_loop();
        }
        line.store(due + 1, Ordering::Release);
        due += 2;
    }
}

fn ask(line: &AtomicU64) -> f64 {
    // Pairs with the Release of the other thread: it is pinned now, or will not answer.
    while line.load(Ordering::Acquire) == 0 {
        std::hint::spin_loop();
    }
    if line.load(Ordering::Acquire) == u64::MAX {
        return 0.0;
    }
    let mut number = 1;
    let batches = (0..BATCHES).map(|_| {
        let begin_ns = clock::now_ns();
        for _ in 0..ROUNDS {
            number += 2;
            line.store(number, Ordering::Release);
            while line.load(Ordering::Acquire) != number + 1 {
                std::hint::spin_loop();
            }
        }
        (clock::now_ns() - begin_ns) as f64 / ROUNDS as f64 / 2.0
    });
    batches.fold(f64::MAX, f64::min)
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
