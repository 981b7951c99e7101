//! Signals that the command, unlike the library, handles: Ctrl-C, and the one for files that grow too large.

use crate::failure::{Failure, Outcome};
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// How a shell shows a process that SIGINT ended: 128 and the signal's number.
const EXIT_INTERRUPTED: i32 = 130;

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on the first Ctrl-C (or SIGTERM) sets a flag, so that the command can end with what it has so far. The second
/// one ends the process at once.
pub fn catch_interrupts() -> Outcome<Arc<AtomicBool>> {
    let stop = STOP.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        // In this order: what the first signal sets is seen by the second.
        flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED, stop.clone())
            .and_then(|_| flag::register(signal, stop.clone()))
            .map_err(|error| Failure::new(format!("catching Ctrl-C: {error}")))?;
    }
    Ok(stop.clone())
}

/// Whether the user has asked for the end.
#[inline]
pub fn interrupted() -> bool {
    STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed))
}

/// An error where the user has asked for the end: for loops that may take long.
#[inline]
pub fn go_on() -> Outcome {
    if interrupted() { Err(Failure::interrupted()) } else { Ok(()) }
}

/// A write beyond the limit of file sizes (`ulimit -f`) becomes an error that says so, instead of the end of the process
/// without a word.
pub fn survive_file_size_limit() -> Outcome {
    flag::register(SIGXFSZ, Arc::default())
        .map(drop)
        .map_err(|error| Failure::new(format!("catching SIGXFSZ: {error}")))
}
