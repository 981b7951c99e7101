//! Global memory behind a lock, with a thread that serves other ranks while the program computes.
//!
//! A thread that calls makes progress itself, and the progress thread would only compete with it. So the progress thread follows
//! what the program does. It *naps* while calls come, and checks at the end of a nap whether there was one. If there was none, it
//! serves the ranks that have asked, and *watches*: it sleeps until something comes for the endpoint. The next call makes it nap
//! again. While a call takes long, the thread waits for the lock. So an idle process costs nothing, and a busy one costs a check
//! for each nap. Other ranks wait at most a nap after the program has stopped calling.

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
/// How long calls of the program keep the thread away, and how often it is tried again to send what waits for space.
const NAP: Duration = Duration::from_millis(1);
/// The most rounds of progress without a break, if there is always something to do.
const ROUNDS_MAX: u32 = 64;

/// A value that contains global memory, perhaps among other things, and perhaps no longer.
pub trait HasGlobalMemory: Send + 'static {
    /// The global memory. `None` ends the progress thread.
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
    /// The thread is dropped before `inner`, so that a thread of the program leaves the global memory. `None` if it was ended, or
    /// is not needed.
    thread: Mutex<Option<ProgressThread>>,
    helper: Arc<Helper>,
    inner: Arc<Mutex<State<T>>>,
    made_by: fork::Token,
}

struct State<T> {
    value: T,
    /// Whether the thread watches.
    is_watched: bool,
    /// The object on which the thread sleeps; `None` if there is no thread.
    sleeper: Option<Arc<Sleeper>>,
}

impl<T> State<T> {
    /// Wakes the thread, if it watches, so that it naps.
    #[cold]
    fn wake(&mut self) {
        self.is_watched = false;
        if let Some(sleeper) = &self.sleeper {
            sleeper.wake();
        }
    }
}

/// The state that the program's threads and the progress thread share.
struct Helper {
    /// Calls of the program. It is written under the lock, so there is one writer at a time, and read without the lock.
    calls: AtomicU64,
    /// Threads of the program that wait for the lock.
    wanted: AtomicU32,
    stops: Mutex<bool>,
    stopped: Condvar,
}

impl Helper {
    fn stops(&self) -> MutexGuard<'_, bool> {
        self.stops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Naps, and returns whether the thread must end.
    fn nap(&self) -> bool {
        let napped = self.stopped.wait_timeout_while(self.stops(), NAP, |stops| !*stops);
        *napped.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The value of a [`SharedGlobalMemory`] while this thread has the lock. Other threads wait for it, and other ranks are served
/// only in calls. So hold it for a call, and not while the program computes.
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
        // Relaxed: the lock orders it for threads that take the lock. For others it is a hint.
        calls.store(calls.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if state.is_watched {
            state.wake();
        }
        Ok(Locked { state })
    }

    /// Takes the lock. The progress thread stays away while a thread of the program waits for it.
    #[cold]
    fn lock_slowly(&self) -> MutexGuard<'_, State<T>> {
        // Relaxed: this is a hint. The lock itself decides whether it is free.
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

/// The progress thread, which ends when this is dropped.
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
            // A child of `fork` has no such thread, and must not touch what its handle points to.
            std::mem::forget(thread);
            return;
        }
        *self.helper.stops() = true;
        self.helper.stopped.notify_all();
        self.sleeper.wake();
        // If it panicked, its own message has reported that.
        let _ = thread.join();
    }
}

/// What the thread does next.
enum Next {
    Again,
    Nap,
    Watch,
    End,
}

/// The state of the thread itself.
struct Progress<T> {
    helper: Arc<Helper>,
    sleeper: Arc<Sleeper>,
    /// The thread does not keep it alive. In a child of `fork`, where there is no thread, nothing else would release it.
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
                // If the system can't wait, the thread checks from time to time.
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

    /// Whether the program has called since the last check, or is about to.
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
                // There is always something to do, or it seems so. This must not cost a whole core.
                if self.rounds.is_multiple_of(ROUNDS_MAX) { Next::Nap } else { Next::Again }
            }
        }
    }
}
