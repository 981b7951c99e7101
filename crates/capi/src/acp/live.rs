//! This process's part in the global address space, between `acp_init` and `acp_finalize`.

use super::ends::Ends;
use super::failure::{Result, Wrong, guarded, wrong};
use cci_acp::{GlobalMemory, HasGlobalMemory, SharedGlobalMemory};
use cci_job::Job;
use std::sync::{Mutex, OnceLock, PoisonError};

/// What this process has, from `acp_init` on, with the progress thread; nothing any more from `acp_finalize` on.
static LIVE: OnceLock<SharedGlobalMemory<Option<Box<Live>>>> = OnceLock::new();
/// Held while a process begins.
static BEGINNING: Mutex<()> = Mutex::new(());

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

impl HasGlobalMemory for Live {
    fn global_memory(&mut self) -> Option<&mut GlobalMemory> {
        Some(&mut self.global)
    }
}

/// Runs the body of a call that needs a job.
pub(super) fn call<T>(failed: T, body: impl FnOnce(&mut Live) -> Result<T>) -> T {
    guarded(failed, || {
        let Some(shared) = LIVE.get() else { return wrong("acp_init() was not called") };
        match &mut *shared.lock()? {
            Some(live) => body(live),
            None => wrong("acp_finalize() was called"),
        }
    })
}

/// Begins, once in the life of a process.
pub(super) fn begin(make: impl FnOnce() -> Result<Box<Live>>) -> Result<()> {
    let _beginning = BEGINNING.lock().unwrap_or_else(PoisonError::into_inner);
    if LIVE.get().is_some() {
        return wrong("acp_init() was called before");
    }
    let shared = SharedGlobalMemory::with_progress_thread(Some(make()?))?;
    // Whoever else could have set it waits for the lock.
    let _ = LIVE.set(shared);
    Ok(())
}

/// Ends, for good.
pub(super) fn end() -> Result<Box<Live>> {
    let Some(shared) = LIVE.get() else { return wrong("acp_init() was not called") };
    let live = shared.lock()?.take();
    shared.stop();
    live.ok_or_else(|| Wrong("acp_finalize() was called before".into()))
}
