//! The lock, and how calls take it.

use super::live::{Doing, Live, Result, guarded, wrong};
use std::ops::{Deref, DerefMut};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

static LIVE: Mutex<Option<Box<Live>>> = Mutex::new(None);
/// This process was made by `fork` from one that has a node: it has no thread, and nothing here is its own.
static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// Calls of the program's, by which the progress thread knows that it makes some.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// True while the progress thread rests.
static RESTING: Mutex<bool> = Mutex::new(false);
static CALLED: Condvar = Condvar::new();

/// How often the lock is tried when the process ends, and the pause between.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// What the lock protects. When it is given back, those are woken whose wait is over.
pub(super) struct Locked(MutexGuard<'static, Option<Box<Live>>>);

impl Deref for Locked {
    type Target = Option<Box<Live>>;
    fn deref(&self) -> &Option<Box<Live>> {
        &self.0
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Option<Box<Live>> {
        &mut self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(live) = &mut *self.0 {
            live.wake_waiters();
        }
    }
}

/// Takes the lock, for the progress thread.
pub(super) fn lock_apart() -> Locked {
    Locked(LIVE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Takes the lock, for a thread of the program's.
pub(super) fn lock() -> Result<Locked> {
    if IS_CHILD.load(Ordering::Relaxed) {
        return wrong("this process was made by fork() from one that has services: let it exec() a program");
    }
    let mut locked = lock_apart();
    // Relaxed: a hint for the progress thread.
    CALLS.fetch_add(1, Ordering::Relaxed);
    if let Some(live) = &mut *locked
        && live.doing == Doing::Watches
    {
        live.doing = Doing::Naps;
        live.thread_wake.signal();
    }
    Ok(locked)
}

/// How many calls there were.
pub(super) fn calls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

/// A thread of the program's sleeps no more.
pub(super) fn on_wake(live: &mut Live) {
    if live.waiters.is_empty() && live.doing == Doing::Rests {
        live.doing = Doing::Naps;
        *RESTING.lock().unwrap_or_else(PoisonError::into_inner) = false;
        CALLED.notify_one();
    }
}

/// The progress thread will rest: called with the lock.
pub(super) fn begin_rest(live: &mut Live) {
    live.doing = Doing::Rests;
    *RESTING.lock().unwrap_or_else(PoisonError::into_inner) = true;
}

/// Rests until a thread of the program's sleeps no more.
pub(super) fn rest() {
    let resting = RESTING.lock().unwrap_or_else(PoisonError::into_inner);
    drop(CALLED.wait_while(resting, |resting| *resting));
}

/// Runs the body of a call that needs a node.
pub(super) fn call<T>(failed: T, body: impl FnOnce(&mut Live) -> Result<T>) -> T {
    guarded(failed, || with(body))
}

/// Runs a body with the node.
pub(super) fn with<T>(body: impl FnOnce(&mut Live) -> Result<T>) -> Result<T> {
    let mut locked = lock()?;
    match &mut *locked {
        Some(live) => body(live),
        None => wrong("this process has no service: register one first"),
    }
}

/// In the child of a fork.
pub(super) extern "C" fn in_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// At the end of the process: takes its services out of the directory, and lets what was sent leave.
pub(super) extern "C" fn at_exit() {
    if IS_CHILD.load(Ordering::Relaxed) {
        return;
    }
    let _ended = catch_unwind(|| {
        for _ in 0..TRIES {
            if let Ok(mut live) = LIVE.try_lock() {
                drop(live.take());
                return;
            }
            // A thread is in a call, or has ended in one.
            std::thread::sleep(PAUSE);
        }
    });
}
