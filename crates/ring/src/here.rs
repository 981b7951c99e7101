//! Numbers for threads: read with one load, never given twice.

use core::cell::Cell;

use crate::atomic::raw::{AtomicU64, Ordering};

/// The number of no thread.
pub(crate) const NOWHERE: u64 = 0;

#[cfg(not(loom))]
thread_local! {
    static HERE: Cell<u64> = const { Cell::new(NOWHERE) };
}
#[cfg(loom)]
loom::thread_local! {
    static HERE: Cell<u64> = Cell::new(NOWHERE);
}

/// The number of the thread that calls.
#[inline]
pub(crate) fn number() -> u64 {
    HERE.with(|here| match here.get() {
        NOWHERE => first(here),
        number => number,
    })
}

#[cold]
fn first(here: &Cell<u64>) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(NOWHERE + 1);
    // Relaxed: it guards nothing; every number is given once. 64 bits do not run out.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    here.set(number);
    number
}
