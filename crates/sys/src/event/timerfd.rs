//! A descriptor that becomes readable at a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::error::{Result, Tried};

/// A one-shot timer on the clock of [`crate::clock::now_ns`], non-blocking.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// A new one, not armed.
    pub fn new() -> Result<TimerFd> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        timerfd_create(TimerfdClockId::Monotonic, flags).tried("make a timer (timerfd_create)").map(TimerFd)
    }

    /// Readable from `deadline_ns` on; at once when that has passed. Replaces an earlier deadline.
    pub fn arm(&self, deadline_ns: u64) -> io::Result<()> {
        // 0 would disarm, and times before the first nanosecond after boot have passed anyway.
        self.set(deadline_ns.max(1))
    }

    /// Not readable any more, and never until armed again.
    pub fn disarm(&self) -> io::Result<()> {
        self.set(0)
    }

    /// Takes the signal back; says whether the timer had fired.
    pub fn drain(&self) -> io::Result<bool> {
        let mut count = [0; 8];
        loop {
            match rustix::io::read(&self.0, &mut count) {
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn set(&self, at_ns: u64) -> io::Result<()> {
        #[cfg(feature = "simulated")]
        if crate::simulated::is_entered() {
            return Ok(());
        }
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: once, it_value: timespec(at_ns) };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `ns` nanoseconds as the kernel takes them.
pub(super) fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now_ns;

    fn fires_before(timer: &TimerFd, deadline_ns: u64) -> bool {
        while now_ns() < deadline_ns {
            if timer.drain().unwrap() {
                return true;
            }
        }
        false
    }

    #[test]
    fn fires_once_at_its_time_and_not_when_disarmed() {
        let timer = TimerFd::new().unwrap();
        assert!(!timer.drain().unwrap());
        let due_ns = now_ns() + 2_000_000;
        timer.arm(due_ns).unwrap();
        assert!(fires_before(&timer, due_ns + 2_000_000_000));
        assert!(now_ns() >= due_ns);
        assert!(!timer.drain().unwrap());
        timer.arm(0).unwrap();
        assert!(timer.drain().unwrap(), "the past is due at once");
        timer.arm(now_ns() + 1_000_000).unwrap();
        timer.disarm().unwrap();
        assert!(!fires_before(&timer, now_ns() + 3_000_000));
        timer.arm(u64::MAX).unwrap();
    }
}
