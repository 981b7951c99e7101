//! The shared, locking form of an endpoint, for several threads.

mod rma;
mod thread;

use crate::engine::poller::Poller;
use crate::{
    AcceptError, Attribute, ConnectError, ConnectRequest, Connection, ConnectionCounters, Device, Endpoint,
    EndpointCounters, Event, Explanation, SendError, SendFlags, Status, WaitError, limits,
};
use cci_sys::process::fork;
use cci_sys::{SysError, clock};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;
use thread::{Doing, Helper, ProgressThread};

/// An [`Endpoint`] for several threads: clone it and hand the clones out. Each call takes a lock; a waiting thread
/// does not hold it.
///
/// Of the threads that wait, one sleeps on the endpoint's descriptor. It makes progress when it wakes, and then wakes the others: what they
/// wait for may have come.
///
/// ```
/// use cci::{Context, Endpoint, Options, SharedEndpoint};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let endpoint = Endpoint::create(Context::new()?.default_device(), Options::default())?;
/// let shared = SharedEndpoint::new(endpoint);
/// let of_a_thread = shared.clone();
/// let waiter = std::thread::spawn(move || of_a_thread.wait(Some(Duration::from_millis(10))));
/// assert!(shared.next_event().is_none());
/// assert!(waiter.join().expect("it does not panic")?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedEndpoint {
    /// Dropped before `inner`, so that the endpoint is closed by the program's thread.
    thread: Option<Arc<ProgressThread>>,
    inner: Arc<Inner>,
}

struct Inner {
    /// These never change, and are had without the lock.
    uri: String,
    device: Device,
    made_by: fork::Token,
    state: Mutex<State>,
    changed: Condvar,
    poller: Arc<Poller>,
    helper: Option<Arc<Helper>>,
}

struct State {
    endpoint: Endpoint,
    /// Somebody sleeps on the descriptor, with what was known when it went to sleep.
    sleeper: bool,
    /// What the progress thread does, if there is one.
    helper: Doing,
}

/// An endpoint whose lock the caller has: see [`SharedEndpoint::lock_unless_held`].
#[must_use = "the lock is given back at once"]
pub struct LockedEndpoint<'a> {
    shared: &'a SharedEndpoint,
    state: MutexGuard<'a, State>,
}

impl LockedEndpoint<'_> {
    /// The endpoint.
    #[inline]
    pub fn endpoint(&mut self) -> &mut Endpoint {
        &mut self.state.endpoint
    }

    /// Sees to those who wait, and gives the lock back. A value that is only dropped, as after a panic, does no more than give it back.
    #[inline]
    pub fn unlock(mut self) {
        if self.state.sleeper {
            // What the sleeper knew may be out of date: an event is queued, or a deadline has come nearer.
            self.state.endpoint.arm();
        }
        self.shared.called(&mut self.state);
    }
}

/// An endpoint may move between threads, the shared form may be used from all of them.
const _: fn() = || {
    fn is_send<T: Send>() {}
    fn is_sync<T: Send + Sync>() {}
    is_send::<Endpoint>();
    is_sync::<SharedEndpoint>();
};

impl SharedEndpoint {
    /// Wraps an endpoint. [`Endpoint`]'s documentation holds for the methods of the same names.
    pub fn new(endpoint: Endpoint) -> SharedEndpoint {
        SharedEndpoint::over(endpoint, None)
    }

    fn over(endpoint: Endpoint, helper: Option<Arc<Helper>>) -> SharedEndpoint {
        let poller = endpoint.poller();
        let (uri, device, made_by) =
            (endpoint.uri().to_owned(), endpoint.device().clone(), endpoint.made_by());
        let state = Mutex::new(State { endpoint, sleeper: false, helper: Doing::Naps });
        let inner = Inner { uri, device, made_by, state, changed: Condvar::new(), poller, helper };
        SharedEndpoint { thread: None, inner: Arc::new(inner) }
    }

    /// Runs `f` with the endpoint locked: several calls in a row, or those this form does not repeat.
    ///
    /// # Panics
    /// In a child made by `fork`, which can't use its parent's endpoint, where a thread that the child does not have held
    /// the lock: nobody would ever give it back. [`SharedEndpoint::try_with`] and all other calls return an error instead.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut Endpoint) -> R) -> R {
        if self.is_ours() { self.with_own(f) } else { self.with_copy(f) }
    }

    /// Runs `f` with the endpoint locked, in the process that opened the endpoint. In a child made by `fork`, `f` is not run.
    ///
    /// # Errors
    /// This is a fork child.
    #[inline]
    pub fn try_with<R>(&self, f: impl FnOnce(&mut Endpoint) -> R) -> Result<R, SysError> {
        if self.is_ours() { Ok(self.with_own(f)) } else { Err(self.not_ours()) }
    }

    /// Locks the endpoint. Where another call holds the lock, it waits only if it `may_wait`; otherwise the result is `None`. For language
    /// bindings, whose callbacks could come back to the endpoint that called them.
    ///
    /// # Errors
    /// This is a fork child.
    #[inline(always)]
    pub fn lock_unless_held(
        &self,
        may_wait: impl FnOnce() -> bool,
    ) -> Result<Option<LockedEndpoint<'_>>, SysError> {
        if !self.is_ours() {
            return Err(self.not_ours());
        }
        let state = match self.inner.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) if may_wait() => self.lock(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        Ok(Some(LockedEndpoint { shared: self, state }))
    }

    /// Calls [`Endpoint::check_process`] with the endpoint locked.
    ///
    /// # Errors
    /// Those of [`Endpoint::check_process`].
    pub fn check_process(&self) -> Result<(), SysError> {
        fork::check(self.inner.made_by)
    }

    #[inline]
    fn is_ours(&self) -> bool {
        fork::same_process(self.inner.made_by)
    }

    #[cold]
    fn not_ours(&self) -> SysError {
        let error = self.check_process().err();
        error.unwrap_or_else(|| SysError::new("use an endpoint", std::io::ErrorKind::Unsupported))
    }

    /// In a fork child: every call of the endpoint's refuses by itself.
    #[cold]
    fn with_copy<R>(&self, f: impl FnOnce(&mut Endpoint) -> R) -> R {
        match self.inner.state.try_lock() {
            Ok(mut state) => f(&mut state.endpoint),
            Err(TryLockError::Poisoned(state)) => f(&mut state.into_inner().endpoint),
            Err(TryLockError::WouldBlock) => panic!(
                "SharedEndpoint::with in a fork child, while a thread of the parent's held the endpoint: open your own"
            ),
        }
    }

    #[inline]
    fn with_own<R>(&self, f: impl FnOnce(&mut Endpoint) -> R) -> R {
        let mut locked = LockedEndpoint { shared: self, state: self.lock() };
        let result = f(locked.endpoint());
        locked.unlock();
        result
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        match &self.inner.helper {
            Some(helper) => helper.lock(&self.inner.state),
            // A panic of the program's while it held the lock leaves the endpoint as it was between two calls.
            None => self.inner.state.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Lets the progress thread know that the program is calling.
    #[inline]
    fn called(&self, state: &mut State) {
        if let Some(helper) = &self.inner.helper {
            helper.on_call(state);
        }
    }

    /// What [`Endpoint::uri`] returns.
    pub fn uri(&self) -> String {
        self.inner.uri.clone()
    }

    /// What [`Endpoint::device`] returns.
    pub fn device(&self) -> Device {
        self.inner.device.clone()
    }

    /// Calls [`Endpoint::connect`] with the endpoint locked.
    ///
    /// # Errors
    /// Those of [`Endpoint::connect`].
    pub fn connect(
        &self,
        uri: &str,
        request: &[u8],
        attribute: Attribute,
        context: u64,
        timeout: Option<Duration>,
    ) -> Result<(), ConnectError> {
        self.try_with(|endpoint| endpoint.connect(uri, request, attribute, context, timeout))
            .map_err(ConnectError::System)?
    }

    /// Calls [`Endpoint::connect_expecting`] with the endpoint locked.
    ///
    /// # Errors
    /// Those of [`Endpoint::connect_expecting`].
    pub fn connect_expecting(
        &self,
        peer: &str,
        uri: &str,
        request: &[u8],
        attribute: Attribute,
        context: u64,
        timeout: Option<Duration>,
    ) -> Result<(), ConnectError> {
        self.try_with(|endpoint| endpoint.connect_expecting(peer, uri, request, attribute, context, timeout))
            .map_err(ConnectError::System)?
    }

    /// Calls [`Endpoint::accept`] with the endpoint locked.
    ///
    /// # Errors
    /// Those of [`Endpoint::accept`].
    pub fn accept(&self, request: ConnectRequest, context: u64) -> Result<(), AcceptError> {
        self.try_with(|endpoint| endpoint.accept(request, context)).map_err(AcceptError::System)?
    }

    /// Calls [`Endpoint::disconnect`] with the endpoint locked.
    pub fn disconnect(&self, connection: Connection) {
        let _ = self.try_with(|endpoint| endpoint.disconnect(connection));
    }

    /// Calls [`Endpoint::send`] with the endpoint locked.
    ///
    /// # Errors
    /// Those of [`Endpoint::send`].
    pub fn send(
        &self,
        connection: Connection,
        message: &[u8],
        context: u64,
        flags: SendFlags,
    ) -> Result<(), SendError> {
        self.try_with(|endpoint| endpoint.send(connection, message, context, flags))
            .unwrap_or(Err(SendError::OtherProcess))
    }

    /// Calls [`Endpoint::send_vectored`] with the endpoint locked.
    ///
    /// # Errors
    /// Those of [`Endpoint::send_vectored`].
    pub fn send_vectored(
        &self,
        connection: Connection,
        segments: &[&[u8]],
        context: u64,
        flags: SendFlags,
    ) -> Result<(), SendError> {
        self.try_with(|endpoint| endpoint.send_vectored(connection, segments, context, flags))
            .unwrap_or(Err(SendError::OtherProcess))
    }

    /// Does what [`Endpoint::send_blocking`] does. Other threads go on using the endpoint meanwhile.
    ///
    /// # Errors
    /// Those of [`Endpoint::send_blocking`].
    pub fn send_blocking(&self, connection: Connection, segments: &[&[u8]]) -> Result<Status, SendError> {
        if !self.is_ours() {
            return Err(SendError::OtherProcess);
        }
        let space_until_ns = self.with(|endpoint| endpoint.space_until_ns(connection));
        let context = loop {
            match self.with(|endpoint| endpoint.try_start_blocking(connection, segments)) {
                Err(SendError::WouldBlock) if clock::now_ns() < space_until_ns => self.pause_for_space(),
                other => break other?,
            }
        };
        Ok(self.wait_for_blocking(context))
    }

    /// Makes progress for a moment, after which there may be space. No event announces space.
    fn pause_for_space(&self) {
        let until_ns = clock::now_ns() + limits::SPACE_POLL_NS;
        let _ = self.until(Some(until_ns), |_| None::<()>);
    }

    fn wait_for_blocking(&self, context: u64) -> Status {
        loop {
            if let Ok(Some(status)) = self.until(None, |endpoint| endpoint.take_blocking_status(context)) {
                return status;
            }
        }
    }

    /// Calls [`Endpoint::next_event`] with the endpoint locked.
    pub fn next_event(&self) -> Option<Event> {
        self.try_with(Endpoint::next_event).ok().flatten()
    }

    /// Does what [`Endpoint::wait`] does. Each event goes to one of the threads that wait.
    ///
    /// # Errors
    /// Those of [`Endpoint::wait`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Event>, WaitError> {
        self.wait_with(timeout, Endpoint::next_event)
    }

    /// Waits until `look` finds something; it is called with the endpoint locked, so that what it takes can be entered
    /// into tables of the caller's before another thread's call changes what it means.
    ///
    /// # Errors
    /// Those of [`Endpoint::wait`].
    pub fn wait_with<T>(
        &self,
        timeout: Option<Duration>,
        look: impl FnMut(&mut Endpoint) -> Option<T>,
    ) -> Result<Option<T>, WaitError> {
        let until_ns = timeout.map(|timeout| {
            clock::now_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
        });
        self.until(until_ns, look)
    }

    /// Calls [`Endpoint::counters`] with the endpoint locked.
    pub fn counters(&self) -> EndpointCounters {
        self.try_with(|endpoint| endpoint.counters()).unwrap_or_default()
    }

    /// Calls [`Endpoint::connection_counters`] with the endpoint locked.
    pub fn connection_counters(&self, connection: Connection) -> Option<ConnectionCounters> {
        self.try_with(|endpoint| endpoint.connection_counters(connection)).ok().flatten()
    }

    /// Calls [`Endpoint::peer_identity`] with the endpoint locked.
    pub fn peer_identity(&self, connection: Connection) -> Option<cci_secure::Identity> {
        self.try_with(|endpoint| endpoint.peer_identity(connection).cloned()).ok().flatten()
    }

    /// Calls [`Endpoint::explain`] with the endpoint locked.
    pub fn explain(&self, connection: Connection) -> Option<Explanation> {
        self.try_with(|endpoint| endpoint.explain(connection)).ok().flatten()
    }

    /// Waits until `look` finds what it looks for, or it is `until_ns`.
    fn until<T>(
        &self,
        until_ns: Option<u64>,
        mut look: impl FnMut(&mut Endpoint) -> Option<T>,
    ) -> Result<Option<T>, WaitError> {
        self.check_process()?;
        if let Some(found) = self.spin(until_ns, &mut look) {
            return Ok(Some(found));
        }
        let mut state = self.lock();
        loop {
            state.endpoint.progress();
            self.called(&mut state);
            if let Some(found) = look(&mut state.endpoint) {
                if state.sleeper {
                    state.endpoint.arm();
                }
                // What this thread's progress brought in may be what another one waits for.
                self.inner.changed.notify_all();
                return Ok(Some(found));
            }
            let now_ns = clock::now_ns();
            if until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
                return Ok(None);
            }
            let remaining_ns = until_ns.map(|until_ns| until_ns - now_ns);
            if state.sleeper {
                state.endpoint.arm();
                state = self.follow(state, remaining_ns);
            } else {
                self.inner.changed.notify_all();
                state = self.lead(state, remaining_ns)?;
            }
        }
    }

    fn spin<T>(&self, until_ns: Option<u64>, look: &mut impl FnMut(&mut Endpoint) -> Option<T>) -> Option<T> {
        let start_ns = clock::now_ns();
        let budget_ns = self.with(|endpoint| endpoint.spin_budget_ns());
        let spin_until_ns = (start_ns + budget_ns).min(until_ns.unwrap_or(u64::MAX));
        loop {
            let found = self.with(|endpoint| {
                endpoint.progress();
                look(endpoint)
            });
            if found.is_some() {
                self.inner.changed.notify_all();
                return found;
            }
            if clock::now_ns() >= spin_until_ns {
                return None;
            }
            std::hint::spin_loop();
        }
    }

    fn follow<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        remaining_ns: Option<u64>,
    ) -> MutexGuard<'a, State> {
        match remaining_ns {
            Some(remaining_ns) => {
                let waited = self.inner.changed.wait_timeout(state, Duration::from_nanos(remaining_ns));
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.inner.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn lead<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        remaining_ns: Option<u64>,
    ) -> Result<MutexGuard<'a, State>, WaitError> {
        if state.endpoint.must_show_events() {
            // The descriptor stays readable for those who sleep on it outside, so nobody can sleep on it here for
            // something else: the end of a blocking send is looked for now and then.
            let soon_ns = remaining_ns
                .map_or(limits::SPACE_POLL_NS, |remaining_ns| remaining_ns.min(limits::SPACE_POLL_NS));
            return Ok(self.follow(state, Some(soon_ns)));
        }
        if !state.endpoint.arm_for_sleep()? {
            return Ok(state);
        }
        state.sleeper = true;
        drop(state);
        let slept = self.inner.poller.sleep(remaining_ns);
        let mut state = self.lock();
        state.sleeper = false;
        if let Some(helper) = &self.inner.helper {
            helper.on_wake(&mut state);
        }
        self.inner.changed.notify_all();
        slept.map(|()| state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::config::builtin;
    use crate::engine::core::SendOp;
    use std::sync::mpsc;
    use std::time::Instant;

    const PATIENCE: Duration = Duration::from_secs(5);
    const CONTEXT: u64 = 0x00de_ad00_0000;

    /// A thread that waits for a blocking send to end, asleep on the descriptor.
    fn waiter(shared: &SharedEndpoint) -> mpsc::Receiver<Status> {
        let (sender, outcome) = mpsc::channel();
        shared.with(|endpoint| endpoint.core_mut().caught.block_on(CONTEXT));
        let theirs = shared.clone();
        std::thread::spawn(move || {
            let ended = theirs.until(None, |endpoint| endpoint.take_blocking_status(CONTEXT));
            let _ = sender.send(ended.unwrap().unwrap());
        });
        outcome
    }

    fn end_it(endpoint: &mut Endpoint) {
        let connection = Connection { index: 0, generation: 1 };
        endpoint.core_mut().complete(connection, SendOp { context: CONTEXT, silent: false }, Status::Success);
    }

    #[test]
    fn a_blocking_send_that_another_thread_ends_wakes_its_own() {
        let shared = SharedEndpoint::new(Endpoint::create(&builtin::shm("shm"), Options::default()).unwrap());
        let outcome = waiter(&shared);
        let start = Instant::now();
        while !shared.lock().sleeper {
            assert!(start.elapsed() < PATIENCE, "it never slept");
            std::thread::yield_now();
        }
        // What this thread's progress brings in leaves nothing in the kernel that could wake the sleeper.
        shared.with(end_it);
        assert_eq!(outcome.recv_timeout(PATIENCE), Ok(Status::Success));
    }

    #[test]
    fn the_descriptor_stays_readable_while_a_blocking_send_waits() {
        let shared = SharedEndpoint::new(Endpoint::create(&builtin::shm("shm"), Options::default()).unwrap());
        let event = crate::ConnectFailure::Refused;
        shared.with(|endpoint| {
            endpoint.os_handle();
            let core = endpoint.core_mut();
            let attempt = core.insert(1, Attribute::Unreliable, crate::engine::core::ConnState::Connecting);
            core.failed(attempt.unwrap(), event);
        });
        let outcome = waiter(&shared);
        // A program's other thread, that sleeps on the descriptor, must be woken whenever it looks.
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(5));
            let start = Instant::now();
            shared.inner.poller.sleep(Some(1_000_000_000)).unwrap();
            assert!(start.elapsed() < Duration::from_millis(500), "an event was queued and it slept");
        }
        shared.with(end_it);
        assert_eq!(outcome.recv_timeout(PATIENCE), Ok(Status::Success));
    }
}
