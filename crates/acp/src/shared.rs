//! Global memory behind a lock, with a thread that serves other ranks while the program computes.
//!
//! A thread that calls makes progress itself, and the progress thread would only compete with it. So the progress thread follows what the
//! program does. It *naps* while calls come, and looks at the end of a nap whether there was one. If there was none, it serves the ranks
//! that have asked, and *watches*: it sleeps until something comes for the endpoint. The next call sends it back to its nap. While a call
//! takes long, it waits for the lock. So an idle process costs nothing, a busy one a look for each nap, and others wait for no more than a
//! nap once the program has stopped calling.

use crate::error::{AcpError, Result};
use crate::memory::GlobalMemory;
use cci::{Sleeper, SysError};
use cci_job::JobError;
use cci_sys::process::fork;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

const NAME: &str = "acp-progress";
/// How long calls of the program's keep the thread away, and how often what waits for space is tried again.
const NAP: Duration = Duration::from_millis(1);
/// Rounds of progress without a break, where there is always something to do.
const ROUNDS_MAX: u32 = 64;

/// A value that has global memory, perhaps among other things, and perhaps not any more.
pub trait HasGlobalMemory: Send + 'static {
    /// The global memory. None ends the progress thread.
    fn global_memory(&mut self) -> Option<&mut GlobalMemory>;
}

impl HasGlobalMemory for GlobalMemory {
    fn global_memory(&mut self) -> Option<&mut GlobalMemory> {
        Some(self)
    }
}

impl<T: HasGlobalMemory> HasGlobalMemory for Box<T> {
    fn global_memory(&mut self) -> Option<&mut GlobalMemory> {
        (**self).global_memory()
    }
}

impl<T: HasGlobalMemory> HasGlobalMemory for Option<T> {
    fn global_memory(&mut self) -> Option<&mut GlobalMemory> {
        self.as_mut()?.global_memory()
    }
}

/// Global memory, or a value that has it, behind a lock, with a progress thread: other ranks are served while the program computes and
/// makes no calls.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut job = cci_job::Job::join()?;
/// # let context = cci::Context::new()?;
/// # let device = context.device("any").ok_or("no device any")?;
/// let global = cci_acp::GlobalMemory::open(&mut job, device, cci::Options::default(), 10_240)?;
/// let shared = cci_acp::SharedGlobalMemory::with_progress_thread(global)?;
/// shared.lock()?.sync()?;
/// // Here it may compute for as long as it likes.
/// shared.into_inner()?.close()?;
/// # Ok(())
/// # }
/// ```
pub struct SharedGlobalMemory<T: HasGlobalMemory = GlobalMemory> {
    /// Dropped before `inner`, so that global memory is left by a thread of the program's. None: it was ended, or nobody needs it.
    thread: Mutex<Option<ProgressThread>>,
    helper: Arc<Helper>,
    inner: Arc<Mutex<State<T>>>,
    made_by: fork::Token,
}

struct State<T> {
    value: T,
    /// The thread watches.
    is_watched: bool,
    /// What it sleeps on. None: there is no thread.
    sleeper: Option<Arc<Sleeper>>,
}

impl<T> State<T> {
    /// Sends the thread, which watches, to its nap.
    #[cold]
    fn wake(&mut self) {
        self.is_watched = false;
        if let Some(sleeper) = &self.sleeper {
            sleeper.wake();
        }
    }
}

/// What the program's threads and the progress thread know of each other.
struct Helper {
    /// Calls of the program's. Written under the lock, so that no two writers meet; read without it.
    calls: AtomicU64,
    /// Threads of the program's that stand before the lock.
    wanted: AtomicU32,
    stops: Mutex<bool>,
    stopped: Condvar,
}

impl Helper {
    fn stops(&self) -> MutexGuard<'_, bool> {
        self.stops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the thread shall end.
    fn nap(&self) -> bool {
        let napped = self.stopped.wait_timeout_while(self.stops(), NAP, |stops| !*stops);
        *napped.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The value of a [`SharedGlobalMemory`], for as long as this thread has the lock. Other threads wait for it, and other ranks are served only in calls
/// meanwhile: hold it for a call, and not while the program computes.
pub struct Locked<'a, T> {
    state: MutexGuard<'a, State<T>>,
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.state.value
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.state.value
    }
}

impl<T: HasGlobalMemory> SharedGlobalMemory<T> {
    /// Starts a progress thread, on which no signals of the process are delivered. A job of one rank gets none.
    ///
    /// # Errors
    /// There is no global memory in it. The system has no more descriptors or threads.
    pub fn with_progress_thread(mut value: T) -> Result<SharedGlobalMemory<T>> {
        let global = value.global_memory().ok_or(AcpError::Argument("there is no global memory"))?;
        let sleeper = match global.size() {
            1 => None,
            _ => Some(Arc::new(global.links.endpoint().sleeper().map_err(JobError::from)?)),
        };
        let helper = Helper {
            calls: AtomicU64::new(0),
            wanted: AtomicU32::new(0),
            stops: Mutex::new(false),
            stopped: Condvar::new(),
        };
        let (helper, watcher) = (Arc::new(helper), sleeper.clone());
        let inner = Arc::new(Mutex::new(State { value, is_watched: false, sleeper }));
        let made_by = fork::token();
        let start = |sleeper| ProgressThread::start(&helper, &inner, sleeper);
        let thread = watcher.map(start).transpose()?;
        Ok(SharedGlobalMemory { thread: Mutex::new(thread), helper, inner, made_by })
    }

    /// Takes the lock, for a call or several in a row.
    ///
    /// # Errors
    /// This process is a child that `fork` has made: global memory is its parent's.
    #[inline]
    pub fn lock(&self) -> Result<Locked<'_, T>> {
        fork::check(self.made_by).map_err(JobError::from)?;
        let mut state = match self.inner.try_lock() {
            Ok(state) => state,
            Err(_) => self.lock_slowly(),
        };
        let calls = &self.helper.calls;
        // Relaxed: the lock orders it for those who take the lock, and for others it is a hint.
        calls.store(calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if state.is_watched {
            state.wake();
        }
        Ok(Locked { state })
    }

    /// While a thread of the program's stands before the lock, the progress thread keeps away.
    #[cold]
    fn lock_slowly(&self) -> MutexGuard<'_, State<T>> {
        // Relaxed: a hint. Whether the lock is free is the lock's business.
        self.helper.wanted.fetch_add(1, Ordering::Relaxed);
        let state = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.helper.wanted.fetch_sub(1, Ordering::Relaxed);
        state
    }

    /// Ends the progress thread. From then on other ranks are served in calls.
    pub fn stop(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(thread);
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).sleeper = None;
    }

    /// Ends the progress thread and gives the value back, which [`GlobalMemory::close`] needs.
    ///
    /// # Errors
    /// This process is a child that `fork` has made.
    pub fn into_inner(self) -> Result<T> {
        fork::check(self.made_by).map_err(JobError::from)?;
        self.stop();
        let state =
            Arc::into_inner(self.inner).ok_or(AcpError::Argument("the progress thread has not ended"))?;
        Ok(state.into_inner().unwrap_or_else(PoisonError::into_inner).value)
    }
}

/// The thread, which ends when this is dropped.
struct ProgressThread {
    helper: Arc<Helper>,
    sleeper: Arc<Sleeper>,
    thread: Option<JoinHandle<()>>,
    made_by: fork::Token,
}

impl ProgressThread {
    fn start<T: HasGlobalMemory>(
        helper: &Arc<Helper>,
        inner: &Arc<Mutex<State<T>>>,
        sleeper: Arc<Sleeper>,
    ) -> Result<ProgressThread> {
        let progress = Progress {
            helper: helper.clone(),
            sleeper: sleeper.clone(),
            inner: Arc::downgrade(inner),
            calls_seen: 0,
            rounds: 0,
        };
        let thread = cci_sys::thread::spawn_quiet(NAME, move || progress.run());
        let thread = thread.map_err(|source| JobError::from(SysError::new("pthread_create", source)))?;
        Ok(ProgressThread { helper: helper.clone(), sleeper, thread: Some(thread), made_by: fork::token() })
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !fork::same_process(self.made_by) {
            // A fork child has no such thread; what its handle points to is not to be touched.
            std::mem::forget(thread);
            return;
        }
        *self.helper.stops() = true;
        self.helper.stopped.notify_all();
        self.sleeper.wake();
        // That it panicked, if it did, is told by the panic's own message.
        let _ = thread.join();
    }
}

/// What comes next for the thread.
enum Next {
    Again,
    Nap,
    Watch,
    End,
}

/// The thread's own side.
struct Progress<T> {
    helper: Arc<Helper>,
    sleeper: Arc<Sleeper>,
    /// Not kept alive by the thread: in a fork child, where there is no thread, nothing else would let go.
    inner: Weak<Mutex<State<T>>>,
    calls_seen: u64,
    rounds: u32,
}

impl<T: HasGlobalMemory> Progress<T> {
    fn run(mut self) {
        loop {
            let ends = match self.step() {
                Next::Again => *self.helper.stops(),
                Next::Nap => self.helper.nap(),
                // Where the system can't wait, looking now and then can.
                Next::Watch => match self.sleeper.sleep() {
                    Ok(()) => *self.helper.stops(),
                    Err(_) => self.helper.nap(),
                },
                Next::End => true,
            };
            if ends {
                return;
            }
        }
    }

    /// Whether the program has called since the last look, or is about to.
    fn was_called(&mut self) -> bool {
        let calls = self.helper.calls.load(Ordering::Relaxed);
        let was_called = calls != self.calls_seen || self.helper.wanted.load(Ordering::Relaxed) > 0;
        self.calls_seen = calls;
        was_called
    }

    fn step(&mut self) -> Next {
        if self.was_called() {
            return Next::Nap;
        }
        let Some(inner) = self.inner.upgrade() else { return Next::End };
        let mut state = inner.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_watched = false;
        if self.was_called() {
            return Next::Nap;
        }
        let Some(global) = state.value.global_memory() else { return Next::End };
        match global.prepare_sleep() {
            Some(true) => {
                self.rounds = 0;
                state.is_watched = true;
                Next::Watch
            }
            Some(false) => Next::Nap,
            None => {
                self.rounds += 1;
                // Always something to do, or something that only looks so: not at the cost of a whole core.
                if self.rounds.is_multiple_of(ROUNDS_MAX) { Next::Nap } else { Next::Again }
            }
        }
    }
}
