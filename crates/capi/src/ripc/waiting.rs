//! How a call waits: it looks again and again for a moment, then it sleeps without the lock.

use super::live::{Awaited, Live, Result, Waiter, Wrong, wrong};
use super::shared::{lock, on_wake};
use super::system::{EventFd, Masked, Woken, sleep};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The longest time that a call looks before it sleeps, if that has been worth it. In this time a server reads some
/// megabytes of a file.
const SPIN_US_MAX: u32 = 1_000;
/// A call that has looked for so long yields its core between looks: whom it waits for may have none.
const YIELD_AFTER: Duration = Duration::from_micros(50);

/// Of so many calls that would not look, one does: what comes may have become quick.
const PROBE_EVERY: u32 = 16;

/// How long the next call looks before it sleeps, microseconds.
static SPIN_US: AtomicU32 = AtomicU32::new(SPIN_US_MAX);
/// Calls that have not looked.
static SKIPPED: AtomicU32 = AtomicU32::new(0);

/// How a wait has ended.
pub(super) enum Waited<T> {
    Done(T),
    TimedOut,
    /// A signal was handled.
    Interrupted,
}

/// What a call waits for, and how.
#[derive(Copy, Clone)]
pub(super) struct Wait {
    pub awaited: Awaited,
    pub until: Option<Instant>,
    /// Whether a signal ends it.
    pub is_interruptible: bool,
}

thread_local! {
    /// What this thread is woken by.
    static WAKE: Option<Arc<EventFd>> = EventFd::new().ok().map(Arc::new);
}

fn look_once<T>(look: &mut impl FnMut(&mut Live) -> Result<Option<T>>) -> Result<Option<T>> {
    match &mut *lock()? {
        Some(live) => look(live),
        None => wrong("this process has no service: register one first"),
    }
}

/// Waits until `look`, which is called with the lock, finds something.
pub(super) fn wait<T>(wait: Wait, mut look: impl FnMut(&mut Live) -> Result<Option<T>>) -> Result<Waited<T>> {
    if let Some(found) = look_once(&mut look)? {
        return Ok(Waited::Done(found));
    }
    if is_over(wait.until) {
        return Ok(Waited::TimedOut);
    }
    // From here on, a signal is handled while the thread sleeps, and ends that.
    let masked = wait.is_interruptible.then(Masked::new);
    let began = Instant::now();
    if let Some(found) = spin(wait.until, &mut look)? {
        return Ok(Waited::Done(found));
    }
    let wake = WAKE.try_with(Clone::clone).ok().flatten();
    let wake = wake.ok_or_else(|| Wrong("this process has no descriptor left".to_owned()))?;
    loop {
        let (fds, due) = {
            let mut locked = lock()?;
            let Some(live) = &mut *locked else { return wrong("this process ends") };
            if let Some(found) = look(live)? {
                return Ok(Waited::Done(found));
            }
            wake.drain();
            // The node is armed for it when the lock is given back.
            live.waiters.push(Waiter { awaited: wait.awaited, wake: wake.clone(), is_woken: false });
            ([live.epoll(), wake.raw()], live.node.next_due())
        };
        let left = wait.until.map(|until| until.saturating_duration_since(Instant::now()));
        let woken = sleep(&fds, left.map_or(due, |left| left.min(due)), masked.as_ref());
        if began.elapsed() < Duration::from_micros(SPIN_US_MAX.into()) {
            // To look for longer would have spared this sleep.
            SPIN_US.store(SPIN_US_MAX, Ordering::Relaxed);
        }
        let found = {
            let mut locked = lock()?;
            let Some(live) = &mut *locked else { return wrong("this process ends") };
            live.waiters.retain(|waiter| !Arc::ptr_eq(&waiter.wake, &wake));
            on_wake(live);
            if woken == Woken::TimedOut {
                live.node.check_directory();
            }
            look(live)?
        };
        match found {
            Some(found) => return Ok(Waited::Done(found)),
            None if woken == Woken::Interrupted && wait.is_interruptible => return Ok(Waited::Interrupted),
            None if is_over(wait.until) => return Ok(Waited::TimedOut),
            None => {}
        }
    }
}

fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// Spins for a moment before a sleep, so that what comes soon is taken sooner. It spins for less time if that has found
/// nothing lately.
fn spin<T>(
    until: Option<Instant>,
    look: &mut impl FnMut(&mut Live) -> Result<Option<T>>,
) -> Result<Option<T>> {
    // Relaxed: guesses.
    let guess_us = SPIN_US.load(Ordering::Relaxed);
    let is_probe = guess_us == 0 && SKIPPED.fetch_add(1, Ordering::Relaxed).is_multiple_of(PROBE_EVERY);
    let spin_us = if is_probe { SPIN_US_MAX } else { guess_us };
    if spin_us == 0 {
        return Ok(None);
    }
    let began = Instant::now();
    loop {
        let looked = began.elapsed();
        if looked >= Duration::from_micros(spin_us.into()) || is_over(until) {
            break;
        }
        if let Some(found) = look_once(look)? {
            SPIN_US.store(SPIN_US_MAX, Ordering::Relaxed);
            return Ok(Some(found));
        }
        if looked < YIELD_AFTER {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
    SPIN_US.store(guess_us / 2, Ordering::Relaxed);
    Ok(None)
}
