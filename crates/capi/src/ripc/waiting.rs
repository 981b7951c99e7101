//! How a call waits: it looks again and again for a moment, then it sleeps without the lock.

use super::live::{Awaited, Live, Result, Waiter, Wrong, wrong};
use super::shared::{lock, on_wake};
use super::system::{EventFd, Masked, Woken, sleep};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The longest time that a call looks before it sleeps, if that has been worth it.
const SPIN_US_MAX: u32 = 50;
/// A sleep that was shorter was not worth it.
const SHORT_SLEEP: Duration = Duration::from_micros(100);

/// How long the next call looks before it sleeps, microseconds.
static SPIN_US: AtomicU32 = AtomicU32::new(SPIN_US_MAX);

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
            ([live.bed(), wake.raw()], live.node.next_due())
        };
        let began = Instant::now();
        let left = wait.until.map(|until| until.saturating_duration_since(began));
        let woken = sleep(&fds, left.map_or(due, |left| left.min(due)), masked.as_ref());
        if began.elapsed() < SHORT_SLEEP {
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
    // Relaxed: a guess.
    let spin_us = SPIN_US.load(Ordering::Relaxed);
    if spin_us == 0 {
        return Ok(None);
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_micros(spin_us.into()) && !is_over(until) {
        if let Some(found) = look_once(look)? {
            SPIN_US.store(SPIN_US_MAX, Ordering::Relaxed);
            return Ok(Some(found));
        }
        std::hint::spin_loop();
    }
    SPIN_US.store(spin_us / 2, Ordering::Relaxed);
    Ok(None)
}
