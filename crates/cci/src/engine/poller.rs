//! The descriptor of an endpoint: one epoll set that holds whatever the transport waits for, a timer for deadlines,
//! and an eventfd that is readable as long as events are queued. That makes it level-triggered: if an event can be
//! had, poll() says so.
//!
//! A progress thread must not be woken by queued events that the program is slow to take, so for its sake there is a
//! second set: what the transport waits for and the timer, without that eventfd. (One set in the other would do as well,
//! at the cost of 0.2 µs in the kernel for each datagram that comes.)
//!
//! The arming protocol, in order: make progress; if nothing came, ask the transport to arm (it raises its "wake me"
//! flags, then looks once more); set the timer; only then may the program sleep on the descriptor. A message that
//! comes in between is either seen by the second look or finds the flag raised and wakes us.

use cci_sys::SysError;
use cci_sys::clock;
use cci_sys::event::{Epoll, EventFd, Events, Interest, TimerFd, Trigger};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Tokens below this are the transport's.
pub(crate) const TOKEN_ENGINE: u64 = u64::MAX - 16;
const TOKEN_PENDING: u64 = u64::MAX;
const TOKEN_TIMER: u64 = u64::MAX - 1;
const TOKEN_LAYER: u64 = u64::MAX - 2;

/// An endpoint's descriptor. It is shared between the endpoint and those who sleep on it.
pub struct Poller {
    epoll: Epoll,
    apart: Option<Apart>,
    /// None in a part of another poller.
    signals: Option<Signals>,
    /// Room for what epoll reports; one sleeper at a time.
    woken: Mutex<Events>,
    /// Whether `pending` is readable now: saves the system call when nothing changes. Only the endpoint's owner
    /// touches it (under the lock, in the shared form), so Relaxed is enough.
    is_pending: AtomicBool,
    /// Somebody else has made `pending` readable.
    nudged: AtomicBool,
    /// When the timer goes off; u64::MAX = not set. Same owner.
    timer_at_ns: AtomicU64,
}

/// The engine's own descriptors.
struct Signals {
    pending: EventFd,
    timer: TimerFd,
}

/// What a progress thread sleeps on.
struct Apart {
    /// What the transport waits for, the timer, and `wake`.
    epoll: Epoll,
    /// Wakes the thread and nobody else.
    wake: EventFd,
}

impl Apart {
    fn new() -> Result<Apart, SysError> {
        let apart = Apart { epoll: Epoll::new()?, wake: EventFd::new()? };
        apart.epoll.add(&apart.wake, TOKEN_PENDING, Interest::Read, Trigger::Level)?;
        Ok(apart)
    }
}

impl Poller {
    /// `with_thread`: a progress thread will sleep apart from the others.
    pub fn new(with_thread: bool) -> Result<Poller, SysError> {
        let signals = Signals { pending: EventFd::new()?, timer: TimerFd::new()? };
        let apart = with_thread.then(Apart::new).transpose()?;
        let poller = Poller::bare(apart)?;
        poller.epoll.add(&signals.pending, TOKEN_PENDING, Interest::Read, Trigger::Level)?;
        poller.add(signals.timer.as_fd(), TOKEN_TIMER)?;
        Ok(Poller { signals: Some(signals), ..poller })
    }

    /// A poller whose readiness this one reports by `token`: for one of several transports of an endpoint, so that their own
    /// tokens can't be taken for each other's. Costs 0.2 µs more for each wake-up. Nobody sleeps on it.
    pub fn part(&self, token: u64) -> Result<Poller, SysError> {
        let part = Poller::bare(None)?;
        self.watch(part.epoll.as_fd(), token)?;
        Ok(part)
    }

    /// One on which nobody sleeps: it keeps what is set, and makes nothing readable.
    #[cfg(feature = "simulated")]
    pub fn for_simulation() -> Result<Poller, SysError> {
        Poller::bare(None)
    }

    fn bare(apart: Option<Apart>) -> Result<Poller, SysError> {
        Ok(Poller {
            epoll: Epoll::new()?,
            apart,
            signals: None,
            woken: Mutex::new(Events::with_capacity(8)),
            is_pending: AtomicBool::new(false),
            nudged: AtomicBool::new(false),
            timer_at_ns: AtomicU64::new(u64::MAX),
        })
    }

    /// Adds to both sets, or to none.
    fn add(&self, fd: BorrowedFd<'_>, token: u64) -> Result<(), SysError> {
        self.epoll.add(fd, token, Interest::Read, Trigger::Level)?;
        let Some(apart) = &self.apart else { return Ok(()) };
        apart.epoll.add(fd, token, Interest::Read, Trigger::Level).inspect_err(|_| {
            let _ = self.epoll.remove(fd);
        })
    }

    /// Adds a descriptor of the transport's, readable side, level-triggered.
    pub fn watch(&self, fd: BorrowedFd<'_>, token: u64) -> Result<(), SysError> {
        debug_assert!(token < TOKEN_ENGINE);
        self.add(fd, token)
    }

    /// Adds a descriptor of the layer that owns the endpoint, readable side, level-triggered. A progress thread is not woken by it.
    pub fn watch_for_layer(&self, fd: BorrowedFd<'_>) -> Result<(), SysError> {
        self.epoll.add(fd, TOKEN_LAYER, Interest::Read, Trigger::Level)
    }

    /// Changes what is watched of one that is: a transport whose queue is full wants to know when there is room.
    pub fn rewatch(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) {
        // One that is not in the set (a failed `watch`) is looked after by deadlines.
        let _ = self.epoll.modify(fd, token, interest, Trigger::Level);
        if let Some(apart) = &self.apart {
            let _ = apart.epoll.modify(fd, token, interest, Trigger::Level);
        }
    }

    /// What is readable right now, without waiting: for a transport whose program polls instead of sleeping. The
    /// engine's own tokens are among them.
    pub fn ready(&self, events: &mut Events) {
        // If the system can't say now, the next look may.
        let _ = self.epoll.wait(events, Some(0));
    }

    /// Takes it out again. Must happen before the descriptor is closed if it was passed to another process.
    pub fn unwatch(&self, fd: BorrowedFd<'_>) {
        // A descriptor that is not in the set any more is what we want.
        let _ = self.epoll.remove(fd);
        if let Some(apart) = &self.apart {
            let _ = apart.epoll.remove(fd);
        }
    }

    /// Makes the descriptor readable if events are queued, and not readable if none are.
    pub fn set_pending(&self, pending: bool) {
        let was = self.is_pending.swap(pending, Ordering::Relaxed);
        let nudged =
            !pending && self.nudged.load(Ordering::Relaxed) && self.nudged.swap(false, Ordering::Acquire);
        if was == pending && !nudged {
            return;
        }
        let Some(Signals { pending: event, .. }) = &self.signals else { return };
        // An eventfd of our own can't fail at either: it never fills up by ones and is never closed.
        let _ = if pending { event.signal() } else { event.drain().map(drop) };
    }

    /// Makes the descriptor readable, and shows that as something new, although it may be readable already: reactors that report edges
    /// sleep otherwise.
    pub fn renew_pending(&self) {
        self.is_pending.store(true, Ordering::Relaxed);
        if let Some(Signals { pending, .. }) = &self.signals {
            // It can't fail: see `set_pending`.
            let _ = pending.signal();
        }
    }

    /// Wakes whoever sleeps on the descriptor; from any thread. It stays readable until the owner has looked and calls
    /// [`Poller::set_pending`] with false.
    pub fn nudge(&self) {
        if let Some(signals) = &self.signals {
            let _ = signals.pending.signal();
        }
        // After the signal: an owner that sees the flag takes the signal back, one that does not is woken by it.
        self.nudged.store(true, Ordering::Release);
        self.wake_thread();
    }

    /// Wakes the progress thread, if there is one, from its next or present [`Poller::sleep_apart`].
    pub fn wake_thread(&self) {
        if let Some(apart) = &self.apart {
            let _ = apart.wake.signal();
        }
    }

    /// How the progress thread sleeps: until something comes for the transport, the timer goes off, or it is called.
    /// Queued events do not wake it.
    pub fn sleep_apart(&self, woken: &mut Events) -> Result<(), SysError> {
        let Some(apart) = &self.apart else { return Ok(()) };
        apart.epoll.wait(woken, None).map_err(|source| SysError::new("epoll_wait", source))?;
        if woken.iter().any(|event| event.token == TOKEN_PENDING) {
            let _ = apart.wake.drain();
        }
        Ok(())
    }

    /// The descriptor becomes readable at `at_ns` on the monotonic clock, or needlessly sooner; None: it need not. A timer that goes off
    /// sooner stays: deadlines move on with every message, and one needless wake-up costs less than a system call for each.
    pub fn set_timer(&self, at_ns: Option<u64>) -> Result<(), SysError> {
        let at_ns = at_ns.unwrap_or(u64::MAX);
        let set_ns = self.timer_at_ns.load(Ordering::Relaxed);
        if set_ns == u64::MAX && at_ns == u64::MAX {
            return Ok(());
        }
        let Some(Signals { timer, .. }) = &self.signals else {
            self.timer_at_ns.store(at_ns, Ordering::Relaxed);
            return Ok(());
        };
        // One that has gone off stays readable until it is set anew.
        if set_ns <= at_ns && set_ns > clock::now_ns() {
            return Ok(());
        }
        self.timer_at_ns.store(at_ns, Ordering::Relaxed);
        let set = if at_ns == u64::MAX { timer.disarm() } else { timer.arm(at_ns) };
        set.map_err(|source| SysError::new("timerfd_settime", source))
    }

    /// When the timer was last set to go off; None: it is not set.
    #[cfg(feature = "simulated")]
    pub fn timer_at_ns(&self) -> Option<u64> {
        Some(self.timer_at_ns.load(Ordering::Relaxed)).filter(|at_ns| *at_ns != u64::MAX)
    }

    /// Sleeps until something is readable or the time is over.
    pub fn sleep(&self, timeout_ns: Option<u64>) -> Result<(), SysError> {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let slept = self.epoll.wait(&mut woken, timeout_ns);
        slept.map(drop).map_err(|source| SysError::new("epoll_pwait2", source))
    }

    /// For the program's own poll(), select() or epoll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
