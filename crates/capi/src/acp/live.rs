//! This process's part in the global address space, between `acp_init` and `acp_finalize`.

use super::ends::Ends;
use super::failure::{Result, Wrong, wrong};
use crate::guard::remember;
use cci_acp::GlobalMemory;
use cci_job::Job;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

enum Phase {
    Before,
    Live(Box<Live>),
    After,
}

static PHASE: Mutex<Phase> = Mutex::new(Phase::Before);

/// All that a process has.
pub(super) struct Live {
    pub global: GlobalMemory,
    pub job: Job,
    pub ends: Ends,
    pub chunks: Chunks,
}

/// How workspaces are made that do not exist yet.
pub(super) struct Chunks {
    pub first_rank: u32,
    pub bytes: u64,
}

impl Default for Chunks {
    fn default() -> Chunks {
        Chunks { first_rank: 0, bytes: 1 << 20 }
    }
}

fn lock() -> MutexGuard<'static, Phase> {
    PHASE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a body, no panic of which reaches the program. What it returns where it fails is `failed`.
pub(super) fn guarded<T>(failed: T, body: impl FnOnce() -> Result<T>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(Wrong(why))) => {
            remember(why);
            failed
        }
        Err(_) => {
            remember(
                "an internal error of the CCI library (a panic was caught); please report it".to_owned(),
            );
            failed
        }
    }
}

/// Runs the body of a call that needs a job.
pub(super) fn call<T>(failed: T, body: impl FnOnce(&mut Live) -> Result<T>) -> T {
    guarded(failed, || match &mut *lock() {
        Phase::Live(live) => body(live),
        Phase::Before => wrong("acp_init() was not called"),
        Phase::After => wrong("acp_finalize() was called"),
    })
}

/// Begins, once in the life of a process.
pub(super) fn begin(make: impl FnOnce() -> Result<Box<Live>>) -> Result<()> {
    let mut phase = lock();
    if !matches!(*phase, Phase::Before) {
        return wrong("acp_init() was called before");
    }
    *phase = Phase::Live(make()?);
    Ok(())
}

/// Ends, for good.
pub(super) fn end() -> Result<Box<Live>> {
    let mut phase = lock();
    if !matches!(*phase, Phase::Live(_)) {
        return wrong("this process takes part in no job");
    }
    match std::mem::replace(&mut *phase, Phase::After) {
        Phase::Live(live) => Ok(live),
        _ => wrong("this process takes part in no job"),
    }
}
