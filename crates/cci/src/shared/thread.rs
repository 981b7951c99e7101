//! The progress thread: it serves peers while the program computes and calls nothing.
//!
//! Whoever calls the library makes progress itself, and the thread would only be in its way. So it goes by what the
//! program does:
//! - it *naps* while calls come: at the end of a nap it looks whether there was one, and naps again;
//! - it *rests* while a thread of the program's is asleep in a call: that one wakes when something comes. It is called
//!   when that call returns;
//! - it *watches* otherwise: asleep on what the transport waits for, without a time limit but the transport's own next
//!   deadline. The first call of the program's sends it to its nap.
//!
//! So an idle endpoint costs nothing, a busy one a look per nap, and a peer waits for no more than a nap once the program
//! has stopped calling. The thread takes no events: it leaves them in the queue, and the descriptor readable.

use super::{Inner, SharedEndpoint, State};
use crate::engine::poller::Poller;
use crate::{CreateError, Device, Endpoint, Options, limits};
use cci_sys::SysError;
use cci_sys::event::Events;
use cci_sys::process::fork;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

const NAME: &str = "cci-progress";
/// Rounds of progress without a break, when there is always something to do.
const ROUNDS_MAX: u32 = 64;

/// What the program's threads and the progress thread know of each other.
pub(super) struct Helper {
    poller: Arc<Poller>,
    /// Calls of the program's. Written under the endpoint's lock, so that no two writers meet; read without it.
    calls: AtomicU64,
    /// Threads of the program's that stand before the endpoint's lock.
    wanted: AtomicU32,
    stop: AtomicBool,
    /// True while the thread rests. Held for moments only, and never while the endpoint's lock is waited for.
    resting: Mutex<bool>,
    called: Condvar,
}

/// What the thread does, as the program's threads see it under the endpoint's lock.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Doing {
    /// Something that ends by itself.
    Naps,
    /// Asleep for as long as another thread is asleep in the library.
    Rests,
    /// Asleep on the descriptors, with what was known when it went to sleep.
    Watches,
}

impl Helper {
    fn new(poller: Arc<Poller>) -> Helper {
        Helper {
            poller,
            calls: AtomicU64::new(0),
            wanted: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            resting: Mutex::new(false),
            called: Condvar::new(),
        }
    }

    /// The endpoint's lock, for a thread of the program's: while one stands before it, the progress thread keeps away.
    pub fn lock<'a>(&self, state: &'a Mutex<State>) -> MutexGuard<'a, State> {
        if let Ok(state) = state.try_lock() {
            return state;
        }
        // Relaxed: a hint. Whether the lock is free is the lock's business.
        self.wanted.fetch_add(1, Ordering::Relaxed);
        let locked = state.lock().unwrap_or_else(PoisonError::into_inner);
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        locked
    }

    /// The program is in a call, and has done what may be news to the thread.
    #[inline]
    pub fn on_call(&self, state: &mut State) {
        // Relaxed: the lock orders it for those who take the lock, and for others it is a hint.
        self.calls.store(self.calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if state.helper == Doing::Watches {
            state.helper = Doing::Naps;
            self.poller.wake_thread();
        }
    }

    /// The program's thread that slept in the library sleeps no more.
    pub fn on_wake(&self, state: &mut State) {
        if state.helper == Doing::Rests {
            state.helper = Doing::Naps;
            *self.resting() = false;
            self.called.notify_one();
        }
    }

    fn resting(&self) -> MutexGuard<'_, bool> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn nap(&self) {
        let nap = Duration::from_nanos(limits::PROGRESS_NAP_NS);
        drop(self.called.wait_timeout_while(self.resting(), nap, |_| !self.stops()));
    }

    fn sleep(&self) {
        drop(self.called.wait_while(self.resting(), |resting| *resting && !self.stops()));
    }
}

/// What comes next for the thread.
enum Next {
    Again,
    Nap,
    Sleep,
    Watch,
    End,
}

/// The thread's own side.
struct Progress {
    helper: Arc<Helper>,
    /// Not kept alive by the thread while it sleeps: in a fork child, where there is no thread, nothing else would let go.
    inner: Weak<Inner>,
    calls_seen: u64,
    rounds: u32,
}

impl Progress {
    fn run(mut self) {
        let mut woken = Events::with_capacity(8);
        loop {
            match self.step() {
                Next::Again => {}
                Next::Nap => self.helper.nap(),
                Next::Sleep => self.helper.sleep(),
                Next::Watch => {
                    if self.helper.poller.sleep_apart(&mut woken).is_err() {
                        // The system can't wait; looking now and then can.
                        self.helper.nap();
                    }
                }
                Next::End => return,
            }
        }
    }

    fn step(&mut self) -> Next {
        if self.helper.stops() {
            return Next::End;
        }
        let calls = self.helper.calls.load(Ordering::Relaxed);
        if calls != self.calls_seen || self.helper.wanted.load(Ordering::Relaxed) > 0 {
            self.calls_seen = calls;
            return Next::Nap;
        }
        let Some(inner) = self.inner.upgrade() else { return Next::End };
        let mut state = inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.helper = Doing::Naps;
        if self.helper.calls.load(Ordering::Relaxed) != self.calls_seen {
            return Next::Nap;
        }
        if state.sleeper {
            state.helper = Doing::Rests;
            *self.helper.resting() = true;
            return Next::Sleep;
        }
        let may_sleep = state.endpoint.progress_apart();
        if state.endpoint.has_news() {
            inner.changed.notify_all();
        }
        self.rounds = if may_sleep { 0 } else { self.rounds + 1 };
        if may_sleep {
            state.helper = Doing::Watches;
            return Next::Watch;
        }
        // Always something to do, or something that only looks so: not at the cost of a whole core.
        if self.rounds.is_multiple_of(ROUNDS_MAX) { Next::Nap } else { Next::Again }
    }
}

/// Ends the thread when the last clone of the endpoint is dropped.
pub(super) struct ProgressThread {
    helper: Arc<Helper>,
    thread: Option<JoinHandle<()>>,
    made_by: fork::Token,
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !fork::same_process(self.made_by) {
            // A fork child has no such thread; what its handle points to is not to be touched.
            std::mem::forget(thread);
            return;
        }
        self.helper.stop.store(true, Ordering::Release);
        // With the mutex, so that the thread is either asleep and hears this, or has yet to look.
        drop(self.helper.resting());
        self.helper.called.notify_all();
        self.helper.poller.wake_thread();
        if thread.thread().id() != std::thread::current().id() {
            // If it panicked, the panic's own message has said so.
            let _ = thread.join();
        }
    }
}

impl SharedEndpoint {
    /// Opens an endpoint with a progress thread: one that serves peers while the program computes and calls nothing, so
    /// that their remote memory operations go on, acknowledgements leave and time-outs are kept. It takes no events.
    ///
    /// While the program calls the library it makes progress itself and the thread stays out of its way: once the
    /// program has stopped calling, a peer waits for a millisecond at most until the thread serves it. On an idle
    /// endpoint the thread sleeps. It can't serve anybody while [`SharedEndpoint::with`] is running a closure. It ends
    /// when the last clone is dropped; the signals of the process are not delivered on it. A fork child has no such thread.
    ///
    /// # Errors
    /// Those of [`Endpoint::create`], and [`CreateError::System`] where the system starts no thread.
    pub fn with_progress_thread(device: &Device, options: Options) -> Result<SharedEndpoint, CreateError> {
        let endpoint = Endpoint::open(device, options, true)?;
        let helper = Arc::new(Helper::new(endpoint.poller()));
        let mut shared = SharedEndpoint::over(endpoint, Some(helper.clone()));
        let inner = Arc::downgrade(&shared.inner);
        let progress = Progress { helper: helper.clone(), inner, calls_seen: 0, rounds: 0 };
        let thread = cci_sys::thread::spawn_quiet(NAME, move || progress.run())
            .map_err(|source| CreateError::System(SysError::new("pthread_create", source)))?;
        let made_by = fork::token();
        shared.thread = Some(Arc::new(ProgressThread { helper, thread: Some(thread), made_by }));
        Ok(shared)
    }
}
