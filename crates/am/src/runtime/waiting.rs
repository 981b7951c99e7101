//! Calls that wait, and run handlers meanwhile.

use super::Runtime;
use super::running_batch::{self, RunningBatch};
use crate::error::{AmError, Result};
use crate::limits::FENCES_PER_POLL;
use crate::process::{Collective, Team};
use std::time::{Duration, Instant};

/// Refuses a call that waits inside a handler.
pub(super) fn check(runtime: &Runtime) -> Result<()> {
    if runtime.is_handling { Err(AmError::State("a handler does not wait")) } else { Ok(()) }
}

/// Repeats a call until there is space for it, and runs handlers meanwhile. In a handler it is tried once.
pub(super) fn for_space<R>(
    runtime: &mut Runtime,
    mut call: impl FnMut(&mut Runtime) -> Result<R>,
) -> Result<R> {
    let mut has_polled = false;
    loop {
        let done = call(runtime);
        if runtime.is_handling || !matches!(done, Err(AmError::WouldBlock)) {
            return done;
        }
        if has_polled {
            runtime.process.wait(None)?;
        }
        // Space may have come without a handler, so the call is repeated before the next sleep.
        has_polled = !has_polled && !runtime.poll();
    }
}

/// [`Runtime::wait`].
pub(super) fn until_some_ran(runtime: &mut Runtime, timeout: Option<Duration>) -> Result<bool> {
    check(runtime)?;
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        if runtime.poll() {
            return Ok(true);
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(false);
        }
        runtime.process.wait(left)?;
    }
}

/// [`Runtime::fence`], or that of all ranks.
pub(super) fn fence(runtime: &mut Runtime, rank: Option<u32>) -> Result<()> {
    check(runtime)?;
    // If everything has ended when it was started, only callbacks are due. A full poll each time would take longer than a short
    // put.
    runtime.fences = runtime.fences.wrapping_add(1);
    let has_ended = runtime.process.operations(rank) == 0 && !runtime.process.has_due();
    if has_ended && !runtime.fences.is_multiple_of(FENCES_PER_POLL) {
        running_batch::run_ended(runtime);
        return Ok(());
    }
    await_ends(runtime, rank)
}

#[inline(never)]
fn await_ends(runtime: &mut Runtime, rank: Option<u32>) -> Result<()> {
    while runtime.process.operations(rank) > 0 {
        if !runtime.poll() && runtime.process.operations(rank) > 0 {
            runtime.process.wait(None)?;
        }
    }
    // Callbacks may still be due. Besides, a program that only puts and fences makes progress for others here.
    runtime.poll();
    Ok(())
}

/// [`Runtime::barrier`].
pub(super) fn barrier(runtime: &mut Runtime) -> Result<()> {
    check(runtime)?;
    runtime.process.arrive()?;
    while !runtime.process.has_passed()? {
        if !runtime.run_due() {
            runtime.process.wait(None)?;
        }
    }
    Ok(())
}

/// [`Runtime::collective`].
pub(super) fn collective(runtime: &mut Runtime, team: Team, collective: Collective) -> Result<Vec<u8>> {
    check(runtime)?;
    let cookie = runtime.callbacks.number();
    runtime.process.collect(team, collective, cookie)?;
    loop {
        runtime.process.progress_collective();
        while let Some((ended, result)) = runtime.process.next_collected() {
            RunningBatch::of(runtime, None).end_collective(ended, result);
        }
        runtime.run_due();
        if let Some((_, result)) = runtime.awaited.take_if(|(ended, _)| *ended == cookie) {
            return result;
        }
        runtime.process.wait(None)?;
    }
}

/// [`Runtime::quiet`].
pub(super) fn quiet(runtime: &mut Runtime) -> Result<()> {
    check(runtime)?;
    loop {
        runtime.process.settle();
        while !runtime.is_idle() {
            if !runtime.poll() && !runtime.is_idle() {
                runtime.process.check_all()?;
                runtime.process.wait(None)?;
            }
        }
        runtime.barrier()?;
        if runtime.process.are_all_idle() {
            return Ok(());
        }
    }
}
