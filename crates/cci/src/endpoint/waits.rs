//! Waiting for events: spinning, then sleeping.

use super::{Endpoint, as_ns};
use crate::engine::event::Event;
use crate::engine::poller::Poller;
use crate::error::WaitError;
use crate::limits;
use crate::transport::Armed;
use cci_sys::clock;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// How a spin has ended.
enum Spun<T> {
    Found(T),
    /// The caller's time is up.
    TimedOut,
    /// Nothing has come for so long that a sleep is better.
    Nothing,
}

impl Endpoint {
    /// Waits for the next event: spins for as long as that pays, then sleeps. Returns `None` after `timeout`; without a timeout it waits
    /// for ever (CCI-019).
    ///
    /// # Errors
    /// [`WaitError`] if the system refuses to wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Event>, WaitError> {
        self.check_process()?;
        if let Some(event) = self.next_event() {
            return Ok(Some(event));
        }
        let until_ns = timeout.map(|timeout| clock::now_ns().saturating_add(as_ns(timeout)));
        loop {
            match self.spin(until_ns, Endpoint::look_for_event) {
                Spun::Found(event) => return Ok(Some(event)),
                Spun::Nothing => self.sleep(until_ns, |endpoint| endpoint.core.has_events())?,
                Spun::TimedOut => {}
            }
            if let Some(event) = self.next_event() {
                return Ok(Some(event));
            }
            if until_ns.is_some_and(|until_ns| clock::now_ns() >= until_ns) {
                return Ok(None);
            }
        }
    }

    /// The next event, without keeping the level of the descriptor: a caller that waits looks again and again.
    #[inline]
    fn look_for_event(&mut self) -> Option<Event> {
        if !self.exported.get() {
            return self.next_event();
        }
        self.progress();
        if self.core.has_events() { self.next_event() } else { None }
    }

    /// Waits as [`Endpoint::wait`] does, but takes no event. Returns whether [`Endpoint::next_event`] has one now.
    ///
    /// # Errors
    /// Those of [`Endpoint::wait`].
    pub fn wait_any(&mut self, timeout: Option<Duration>) -> Result<bool, WaitError> {
        self.check_process()?;
        self.progress();
        let until_ns = timeout.map(|timeout| clock::now_ns().saturating_add(as_ns(timeout)));
        while !self.core.has_events() {
            if until_ns.is_some_and(|until_ns| clock::now_ns() >= until_ns) {
                return Ok(false);
            }
            self.pause(until_ns, |endpoint| endpoint.core.has_events())?;
        }
        Ok(true)
    }

    /// Has [`Endpoint::os_handle`] readable, too, as long as another descriptor is, and ends each sleep of [`Endpoint::wait_or_wake`] then: for
    /// a program or layer that waits for something else, too. The descriptor is watched until it is closed. [`Endpoint::wait`] and
    /// [`Endpoint::wait_any`] must not be used any more, since they would not sleep while it is readable.
    ///
    /// # Errors
    /// [`WaitError`]: it can't be watched, or is watched already.
    pub fn wake_on(&mut self, descriptor: BorrowedFd<'_>) -> Result<(), WaitError> {
        self.check_process()?;
        self.core.poller.watch_for_layer(descriptor)
    }

    /// Waits as [`Endpoint::wait_any`] does, but also returns when a descriptor of [`Endpoint::wake_on`] is readable, and may return early.
    ///
    /// # Errors
    /// Those of [`Endpoint::wait`].
    pub fn wait_or_wake(&mut self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.check_process()?;
        let until_ns = timeout.map(|timeout| clock::now_ns().saturating_add(as_ns(timeout)));
        self.pause(until_ns, |endpoint| endpoint.core.has_events())
    }

    /// Spins, then sleeps, until `done` or `until_ns`. May return early.
    pub(super) fn pause(
        &mut self,
        until_ns: Option<u64>,
        done: impl Fn(&Endpoint) -> bool,
    ) -> Result<(), WaitError> {
        let look = |endpoint: &mut Endpoint| {
            endpoint.progress();
            done(endpoint).then_some(())
        };
        match self.spin(until_ns, look) {
            Spun::Found(()) | Spun::TimedOut => Ok(()),
            Spun::Nothing => self.sleep(until_ns, done),
        }
    }

    /// Looks again and again for as long as that pays, at least once.
    fn spin<T>(
        &mut self,
        until_ns: Option<u64>,
        mut look: impl FnMut(&mut Endpoint) -> Option<T>,
    ) -> Spun<T> {
        let began_ns = clock::now_ns();
        let spin_until_ns = began_ns + self.spin.budget_ns();
        let spins = spin_until_ns > began_ns && until_ns.is_none_or(|until_ns| until_ns > began_ns);
        // Where it spins, it reads the clock now and then: a reading takes longer than a look at a ring, and would delay what comes meanwhile.
        let looks = if spins { limits::LOOKS_PER_CLOCK } else { 1 };
        loop {
            for _ in 0..looks {
                if let Some(found) = look(self) {
                    self.spin.paid();
                    return Spun::Found(found);
                }
                if spins {
                    std::hint::spin_loop();
                }
            }
            let now_ns = clock::now_ns();
            if until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
                return Spun::TimedOut;
            }
            if now_ns >= spin_until_ns {
                return Spun::Nothing;
            }
        }
    }

    /// Sleeps until something comes, or `until_ns`, unless it is `done`. May return early.
    fn sleep(
        &mut self,
        until_ns: Option<u64>,
        done: impl FnOnce(&Endpoint) -> bool,
    ) -> Result<(), WaitError> {
        if !self.arm_for_sleep()? || done(self) {
            return Ok(());
        }
        let now_ns = clock::now_ns();
        self.core.counters.sleeps += 1;
        self.core.poller.sleep(until_ns.map(|until_ns| until_ns.saturating_sub(now_ns)))?;
        self.spin.failed(clock::now_ns().saturating_sub(now_ns));
        if self.core.has_events() {
            self.core.poller.set_pending(true);
        }
        Ok(())
    }

    /// Prepares for the sleep of somebody who waits for something else than events, and sleeps although events are queued. Returns false
    /// if the caller must look again instead. The next call makes the descriptor readable again if events are queued.
    pub(crate) fn arm_for_sleep(&mut self) -> Result<bool, WaitError> {
        let known = self.core.news();
        let Armed::Sleep { deadline_ns } = self.arm_transport() else { return Ok(false) };
        self.core.poller.set_pending(false);
        self.core.poller.set_timer(deadline_ns)?;
        // Arming times out what is due. If that is what the caller waits for, nothing would wake it.
        Ok(self.core.news() == known && !self.core.requests.has_news())
    }

    /// Makes the descriptor readable if events are queued and the program has it, since another thread may sleep on it. Returns whether
    /// it did.
    pub(crate) fn must_show_events(&self) -> bool {
        let must = self.exported.get() && self.core.has_events();
        if must {
            self.core.poller.set_pending(true);
        }
        must
    }

    pub(crate) fn spin_budget_ns(&self) -> u64 {
        self.spin.budget_ns()
    }

    pub(crate) fn poller(&self) -> Arc<Poller> {
        self.core.poller.clone()
    }
}
