//! Numbers for threads: read with one load, never given twice.

use core::cell::Cell;

use crate::raw_atomic::{AtomicU64, Ordering};

/// The number of no thread.
pub(crate) const NONE: u64 = 0;

#[cfg(not(loom))]
thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(NONE) };
}
#[cfg(loom)]
loom::thread_local! {
    static NUMBER: Cell<u64> = Cell::new(NONE);
}

/// The number of the thread that calls.
#[inline]
pub(crate) fn number() -> u64 {
    NUMBER.with(|number| match number.get() {
        NONE => first(number),
        number => number,
    })
}

#[cold]
fn first(of_thread: &Cell<u64>) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(NONE + 1);
    // Relaxed: it guards nothing; every number is given once. 64 bits do not run out.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    of_thread.set(number);
    number
}
