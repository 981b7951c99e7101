//! The progress thread: a thread of the library's own that runs handlers and callbacks while the program's threads compute.

use super::dispatch::serve;
use super::here::check_may_wait;
use super::live::lock;
use super::status::{Code, Result, call};
use super::types::*;
use libc::{c_int, sigset_t};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

const NAME: &str = "ccs-progress";

/// Handlers of the program's run there: as much as Linux gives the program's own threads.
const STACK_BYTES: usize = 8 << 20;

struct Progress {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

static PROGRESS: Mutex<Option<Progress>> = Mutex::new(None);

fn progress() -> MutexGuard<'static, Option<Progress>> {
    PROGRESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a thread of the library's run handlers and callbacks, or no more.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_set_progress_thread(on: c_int) -> c_int {
    call(|| {
        check_may_wait()?;
        if lock()?.threads == CCS_THREAD_SINGLE {
            return Err(Code::UNSUPPORTED);
        }
        if on == 0 { stop() } else { begin() }
    })
}

fn begin() -> Result<()> {
    let mut progress = progress();
    if progress.is_some() {
        return Ok(());
    }
    // Before it runs: from then on nobody sleeps with the lock.
    lock()?.has_progress_thread = true;
    let is_over = Arc::new(AtomicBool::new(false));
    let end = is_over.clone();
    let run = move || serve(|| end.load(Ordering::Acquire));
    let started = without_signals(|| Builder::new().name(NAME.to_owned()).stack_size(STACK_BYTES).spawn(run));
    match started {
        Ok(thread) => *progress = Some(Progress { is_over, thread }),
        Err(_) => {
            lock()?.has_progress_thread = false;
            return Err(Code::SYSTEM);
        }
    }
    Ok(())
}

/// Ends the thread, if there is one, when the handler has returned that it runs.
pub(super) fn stop() -> Result<()> {
    let Some(Progress { is_over, thread }) = progress().take() else { return Ok(()) };
    is_over.store(true, Ordering::Release);
    let ended = thread.join();
    lock()?.has_progress_thread = false;
    ended.map_err(|_| Code::SYSTEM)
}

/// Blocks all signals meanwhile, which a thread that is started inherits: the program's signals reach the program's threads.
fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    // SAFETY: a set of signals is plain bits, of which all zeros is a value.
    let (mut all, mut before): (sigset_t, sigset_t) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: both sets are on this stack; the call changes this thread's mask only.
    let is_masked = unsafe {
        libc::sigfillset(&raw mut all) == 0
            && libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0
    };
    let started = start();
    if is_masked {
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    }
    started
}
