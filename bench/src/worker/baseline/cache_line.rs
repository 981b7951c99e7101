//! One cache line handed back and forth between two threads.

use crate::reading::Reading;
use crate::worker::partner::cores;
use cci_measure::trouble::{Outcome, Trouble};
use cci_sys::{clock, cpu};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

#[repr(align(128))]
struct Line(AtomicU64);

/// Half of a round trip. Threads, since where memory is shared a line does not know whose it is.
pub fn half_trip(count: u64) -> Outcome<Reading> {
    let cores = cores()?;
    let warm_up = count / 10;
    let all = warm_up + count;
    let line = Line(AtomicU64::new(0));
    let pinned = |core| cpu::pin(core).map_err(|error| Trouble::new(error.to_string()));
    let took_ns = thread::scope(|scope| {
        let other = scope.spawn(|| {
            let placed = pinned(cores.second);
            // Also where that failed: the other one must not wait for ever.
            for trip in 0..all {
                take_turn(&line, 2 * trip + 1);
            }
            placed
        });
        pinned(cores.first)?;
        let mut begin_ns = clock::now_ns();
        for trip in 0..all {
            if trip == warm_up {
                begin_ns = clock::now_ns();
            }
            take_turn(&line, 2 * trip);
        }
        let took_ns = clock::now_ns() - begin_ns;
        other.join().unwrap_or_else(|_| Err(Trouble::new("the other thread panicked")))?;
        Ok::<u64, Trouble>(took_ns)
    })?;
    Ok(Reading::of(took_ns as f64 / count.max(1) as f64 / 2.0))
}

/// Waits until the line says `due`, and says the next.
#[inline]
fn take_turn(line: &Line, due: u64) {
    // Acquire and Release, as an exchange with data behind it would need.
    while line.0.load(Ordering::Acquire) != due {
        std::hint::spin_loop();
    }
    line.0.store(due + 1, Ordering::Release);
}
