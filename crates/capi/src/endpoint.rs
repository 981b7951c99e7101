//! An endpoint behind a C pointer.

use crate::allocations;
use crate::borrowed::Borrowed;
use crate::connections::Table;
use crate::guard::{Failure, guard};
use crate::handles::Handles;
use crate::pool::Pool;
use crate::ranks::{Ranks, not_of_a_job};
use crate::types::*;
use cci::{Device, DisconnectPolicy, Endpoint, LockedEndpoint, Options, SharedEndpoint};
use libc::{c_char, c_int};
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Events that may be out with the program beyond one for each receive and send buffer.
const SPARE_EVENTS: u32 = 1024;

/// What `cci_endpoint_t *` points to.
#[repr(C)]
pub(crate) struct CEndpoint {
    public: cci_endpoint_t,
    engine: Engine,
    /// Reached in `with` only.
    side: UnsafeCell<Side>,
    /// `cci_get_event` has answered `CCI_ENOBUFS` since a receive buffer last came back.
    starved: AtomicBool,
    /// The thread in which `cci_poll` calls handlers, by its mark; 0: none.
    handler_thread: AtomicUsize,
}

/// A number that no other thread has at the same time, and that is not 0.
fn thread_mark() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.try_with(|mark| std::ptr::from_ref(mark).addr()).unwrap_or(usize::MAX)
}

/// No handler runs any more.
struct EndHandlers<'a>(&'a AtomicUsize);

impl Drop for EndHandlers<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cold]
fn in_handler() -> Failure {
    Failure::with_text(CCI_EBUSY, "a handler of cci_poll() must not use the endpoint that called it")
}

/// What C needs beside the Rust endpoint; under the same lock.
pub(crate) struct Side {
    pub connections: Table,
    pub events: Pool,
    pub handles: Handles,
    pub borrowed: Borrowed,
    /// If it is an endpoint of a job.
    pub ranks: Option<Box<Ranks>>,
}

impl Side {
    /// One event for each buffer whose completion it reports, and some more.
    pub fn set_event_limit(&mut self, options: &Options) {
        self.events.set_max(event_limit(options));
    }

    /// Refuses what ranks do by other calls, on an endpoint of a job. `instead`: what they do.
    pub fn check_connects(&self, instead: &str) -> Result<(), Failure> {
        if self.ranks.is_some() { Err(not_of_a_job(instead)) } else { Ok(()) }
    }

    /// Bytes held for C alone.
    pub fn bytes(&self) -> u64 {
        let ranks = self.ranks.as_ref().map_or(0, |ranks| ranks.bytes());
        let tables = self.connections.bytes() + self.handles.bytes() + self.borrowed.bytes();
        (self.events.bytes() + tables + ranks) as u64
    }
}

/// The events that the program may have at once.
pub(crate) fn event_limit(options: &Options) -> u32 {
    options.recv_buffers.saturating_add(options.send_buffers).saturating_add(SPARE_EVENTS)
}

/// How an endpoint is used.
#[derive(Copy, Clone)]
pub(crate) enum Mode {
    /// By any thread.
    Locking,
    /// By any thread, and by one of the library's own while none calls.
    ProgressThread,
    /// By one thread at a time, which the program sees to.
    SingleThreaded,
}

/// CCI-081: a locking mode and one without locks.
#[expect(clippy::large_enum_variant, reason = "in a box of its own, one per endpoint")]
enum Engine {
    Locking(SharedEndpoint),
    Single { endpoint: UnsafeCell<Endpoint>, busy: AtomicBool },
}

// SAFETY: `side` and the plain endpoint are reached in `with` only: under the lock of the shared endpoint, or, in
// single-threaded mode, by the one thread that the program promised (checked as far as a flag can). Everything
// else is atomic or never written after `create`.
unsafe impl Sync for CEndpoint {}

/// Clears the flag of single-threaded mode, also when a panic passes.
struct Leave<'a>(&'a AtomicBool);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// What keeps others from an endpoint during a call.
enum Entered<'a> {
    Locking(LockedEndpoint<'a>),
    Single { endpoint: &'a mut Endpoint, _leave: Leave<'a> },
}

impl Entered<'_> {
    #[inline]
    fn endpoint(&mut self) -> &mut Endpoint {
        match self {
            Entered::Locking(locked) => locked.endpoint(),
            Entered::Single { endpoint, .. } => endpoint,
        }
    }

    /// Ends the call.
    #[inline]
    fn leave(self) {
        if let Entered::Locking(locked) = self {
            locked.unlock();
        }
    }
}

impl CEndpoint {
    /// Opens an endpoint on `device`, which is `public` to C.
    pub fn create(
        device: &Device,
        public: *const cci_device_t,
        mode: Mode,
        options: Options,
    ) -> Result<Box<CEndpoint>, Failure> {
        let events_max = event_limit(&options);
        let engine = match mode {
            Mode::Locking => Engine::Locking(SharedEndpoint::new(Endpoint::create(device, options)?)),
            Mode::ProgressThread => Engine::Locking(SharedEndpoint::with_progress_thread(device, options)?),
            Mode::SingleThreaded => {
                let endpoint = UnsafeCell::new(Endpoint::create(device, options)?);
                Engine::Single { endpoint, busy: AtomicBool::new(false) }
            }
        };
        let side = Side {
            connections: Table::default(),
            events: Pool::new(events_max),
            handles: Handles::default(),
            borrowed: Borrowed::default(),
            ranks: None,
        };
        let created = Box::new(CEndpoint {
            public: cci_endpoint_t { device: public },
            engine,
            side: UnsafeCell::new(side),
            starved: AtomicBool::new(false),
            handler_thread: AtomicUsize::new(0),
        });
        // Published programs know no event of connections that end; see `CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS`.
        created.with(|endpoint, _| endpoint.set_disconnect_policy(DisconnectPolicy::Ignore))?;
        Ok(created)
    }

    /// Ends it.
    ///
    /// # Safety
    /// `endpoint` came from `Box::into_raw`, nobody else uses it, and this is the only call for it.
    pub unsafe fn destroy(endpoint: *mut CEndpoint) {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(endpoint) });
        allocations::forget(endpoint.addr());
    }

    /// The endpoint that a program's pointer leads to.
    ///
    /// # Safety
    /// `endpoint` is NULL or one that is open, and stays so for `'a`.
    #[inline]
    pub unsafe fn of<'a>(endpoint: *const cci_endpoint_t) -> Result<&'a CEndpoint, Failure> {
        // SAFETY: the public part is the first field of ours; the caller promises the rest.
        unsafe { endpoint.cast::<CEndpoint>().as_ref() }
            .ok_or_else(|| Failure::with_text(CCI_EINVAL, "the endpoint is NULL"))
    }

    pub fn public(&self) -> *const cci_endpoint_t {
        std::ptr::from_ref(self).cast()
    }

    /// Runs `f` as [`CEndpoint::with`] does. `f` may call handlers of the program's: what they call of this endpoint is refused.
    pub fn with_handler<R>(&self, f: impl FnOnce(&mut Endpoint, &mut Side) -> R) -> Result<R, Failure> {
        self.with(|endpoint, side| {
            // Relaxed: whether it is this thread that runs a handler only this thread needs to know.
            self.handler_thread.store(thread_mark(), Ordering::Relaxed);
            let _end = EndHandlers(&self.handler_thread);
            f(endpoint, side)
        })
    }

    /// Refuses a call that a handler makes of the endpoint that called it.
    #[inline]
    pub fn refuse_handler(&self) -> Result<(), Failure> {
        if self.handler_thread.load(Ordering::Relaxed) == thread_mark() { Err(in_handler()) } else { Ok(()) }
    }

    /// Runs `f` with the endpoint and its C side, locked. `f` must not call into the C interface.
    // `f` is called in one place, where it can be inlined.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut Endpoint, &mut Side) -> R) -> Result<R, Failure> {
        let mut entered = self.enter()?;
        // SAFETY: what `enter` returned keeps others out, `with` is the only place that reaches `side`, and `f` does not come back here
        // (the lock is not recursive, and the flag of single-threaded mode would refuse it).
        let result = f(entered.endpoint(), unsafe { &mut *self.side.get() });
        entered.leave();
        Ok(result)
    }

    // Always: its result would be passed through memory.
    #[inline(always)]
    fn enter(&self) -> Result<Entered<'_>, Failure> {
        match &self.engine {
            // In a fork child an error, before anything is touched that a thread of the parent's may have been at.
            Engine::Locking(shared) => {
                let locked = shared.lock_unless_held(|| self.refuse_handler().is_ok())?;
                locked.map(Entered::Locking).ok_or_else(in_handler)
            }
            Engine::Single { endpoint, busy } => {
                // A plain load and a plain store: a check for mistakes, not a lock.
                if busy.load(Ordering::Relaxed) {
                    return Err(self.busy());
                }
                busy.store(true, Ordering::Relaxed);
                let leave = Leave(busy);
                // SAFETY: the program promised one thread at a time for this endpoint at `cci_init`, and who is in a call has set the
                // flag.
                let endpoint = unsafe { &mut *endpoint.get() };
                endpoint.check_process()?;
                Ok(Entered::Single { endpoint, _leave: leave })
            }
        }
    }

    /// Why nobody can enter an endpoint in single-threaded mode just now.
    #[cold]
    fn busy(&self) -> Failure {
        let other =
            || Failure::with_text(CCI_EBUSY, "another thread is using this endpoint in single-threaded mode");
        self.refuse_handler().err().unwrap_or_else(other)
    }

    /// Waits until `look` finds something. What it takes from the endpoint it enters on the C side under the same lock:
    /// another thread's call in between could give the name of a connection to a new one.
    pub fn wait_with<T>(
        &self,
        timeout: Option<Duration>,
        mut look: impl FnMut(&mut Endpoint, &mut Side) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        self.refuse_handler()?;
        match &self.engine {
            Engine::Locking(shared) => Ok(shared.wait_with(timeout, |endpoint| {
                // SAFETY: as in `with`: the lock is held while this runs, and `look` does not come back here.
                look(endpoint, unsafe { &mut *self.side.get() })
            })?),
            Engine::Single { .. } => self.with(|endpoint, side| {
                let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
                loop {
                    let left = end.map(|end| end.saturating_duration_since(Instant::now()));
                    if !endpoint.wait_any(left)? {
                        return Ok(None);
                    }
                    if let Some(found) = look(endpoint, side) {
                        return Ok(Some(found));
                    }
                }
            })?,
        }
    }

    /// The locking form, for calls that wait without holding the lock.
    pub fn shared(&self) -> Option<&SharedEndpoint> {
        match &self.engine {
            Engine::Locking(shared) => Some(shared),
            Engine::Single { .. } => None,
        }
    }

    /// Says that no receive buffer is free, so that the return of one is worth a look. True: one came back meanwhile.
    pub fn starve(&self, endpoint: &mut Endpoint) -> bool {
        // SeqCst here and in `fed`: either we see the buffer that came back, or whoever gave it back sees the flag.
        self.starved.store(true, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        endpoint.recv_buffers_free() > 0
    }

    /// A receive buffer came back. If messages may be waiting for one, they are taken in now, so that the descriptor
    /// says so even to a program that sleeps on it without asking for events first.
    #[inline]
    pub fn fed(&self) {
        // Without locks it is the endpoint's own thread that returns: program order is enough.
        if self.shared().is_some() {
            std::sync::atomic::fence(Ordering::SeqCst);
        }
        if self.starved.load(Ordering::Relaxed) {
            self.feed();
        }
    }

    /// Takes messages in that may be waiting for a receive buffer.
    #[cold]
    #[inline(never)]
    fn feed(&self) {
        let is_starved = self.starved.swap(false, Ordering::SeqCst);
        if is_starved && self.with(|endpoint, _| endpoint.arm()).is_err() {
            // A handler has returned it: `cci_poll` looks again at its end.
            self.starved.store(true, Ordering::Relaxed);
        }
    }
}

/// Text from C.
///
/// # Safety
/// `text` is NULL or a C string that stays for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::with_text(CCI_EINVAL, format!("{what} is NULL")));
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| Failure::with_text(CCI_EINVAL, format!("{what} is not UTF-8 text")))
}

/// Prepares the descriptor for a wait.
///
/// # Safety
/// `endpoint` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_arm_os_handle(endpoint: *const cci_endpoint_t, _flags: c_int) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let endpoint = unsafe { CEndpoint::of(endpoint) }?;
        // Something there already is no failure: the descriptor is readable then, and the wait returns at once.
        endpoint.with(|endpoint, _| endpoint.arm()).map(|_| ())
    })
}
