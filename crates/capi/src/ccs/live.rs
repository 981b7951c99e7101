//! The runtime of this process, between `CCS_init` and `CCS_finalize`, and what each thread is at.

use super::here::Here;
use super::operations::{Callback, Collecting, Ending, Operations, Pointer, Then};
use super::presence;
use super::status::{Code, Result};
use super::types::*;
use cci_am::process::{Batch, Followers, Following, Process, Starter};
use cci_am::{AmError, Context};
use cci_job::Job;
use libc::c_int;
use std::collections::{HashMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where others may make progress too, a sleeper looks again after so long: it may be theirs that it waits for.
const SHARED_PAUSE: Duration = Duration::from_millis(1);

enum Phase {
    Before,
    Live(Box<Live>),
    After,
}

static PHASE: Mutex<Phase> = Mutex::new(Phase::Before);

/// All that a process has while it takes part in a job.
pub(super) struct Live {
    pub process: Process,
    pub job: Job,
    /// Which threads call: one of `CCS_THREAD_…`.
    pub threads: c_int,
    /// A thread of the library's own runs what is due, too.
    pub has_progress_thread: bool,
    /// By their numbers from 1 on; none were freed.
    pub contexts: Vec<Option<Context>>,
    /// What handlers of large messages are known by: functions, and what they are called with.
    pub large_handlers: Vec<(LargeHandler, Pointer)>,
    pub operations: Operations,
    /// Messages that follow operations which have ended, and wait for space.
    pub following: Followers<()>,
    pub collecting: HashMap<u64, Collecting>,
    pub collecting_made: u64,
    /// How collectives have ended that somebody waits for: well, or with a code.
    pub collected: HashMap<u64, Option<Code>>,
    /// Callbacks and errors that are due.
    pub due: VecDeque<Call>,
    pub error_handler: Option<(ErrorHandler, Pointer)>,
    /// So many handlers and callbacks have run, on any thread.
    pub ran: u64,
    /// The batch that a thread works on is out.
    pub is_dispatching: bool,
    /// A thread calls into the program, where one at a time may.
    pub is_calling: bool,
}

/// A call into the program that is due.
pub(super) enum Call {
    Callback { callback: Callback, arg: Pointer, status: c_int },
    Error { code: Code, rank: u32, what: String },
}

/// The runtime, for as long as this thread has the lock.
pub(super) struct Locked(MutexGuard<'static, Phase>);

impl Deref for Locked {
    type Target = Live;

    #[inline]
    fn deref(&self) -> &Live {
        match &*self.0 {
            Phase::Live(live) => live,
            _ => unreachable!("checked when it was locked"),
        }
    }
}

impl DerefMut for Locked {
    #[inline]
    fn deref_mut(&mut self) -> &mut Live {
        match &mut *self.0 {
            Phase::Live(live) => live,
            _ => unreachable!("checked when it was locked"),
        }
    }
}

/// Locks the runtime.
#[inline]
pub(super) fn lock() -> Result<Locked> {
    let phase = PHASE.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*phase, Phase::Live(_)) { Ok(Locked(phase)) } else { Err(Code::STATE) }
}

/// Begins, unless this process has begun before. Whoever makes the runtime holds the lock meanwhile.
pub(super) fn begin(make: impl FnOnce() -> Result<Box<Live>>) -> Result<()> {
    let mut phase = PHASE.lock().unwrap_or_else(PoisonError::into_inner);
    if !matches!(*phase, Phase::Before) {
        return Err(Code::STATE);
    }
    *phase = Phase::Live(make()?);
    presence::set(true);
    Ok(())
}

/// Ends: nothing is possible afterwards.
pub(super) fn end() -> Result<Box<Live>> {
    let mut phase = PHASE.lock().unwrap_or_else(PoisonError::into_inner);
    if !matches!(*phase, Phase::Live(_)) {
        return Err(Code::STATE);
    }
    presence::set(false);
    match std::mem::replace(&mut *phase, Phase::After) {
        Phase::Live(live) => Ok(live),
        _ => Err(Code::STATE),
    }
}

impl Locked {
    /// Gives the lock back while the program runs.
    pub fn outside<R>(self, run: impl FnOnce() -> R) -> (Option<Locked>, R) {
        drop(self);
        let result = run();
        (lock().ok(), result)
    }

    /// Sleeps until something may have changed, for up to `timeout`, and gives the lock back.
    pub fn sleep(mut self, timeout: Option<Duration>) -> Result<()> {
        let is_due = !Here::get().is_closed() && self.has_due();
        if is_due {
            return Ok(());
        }
        if !self.is_shared() {
            return Ok(self.process.wait_for_more(timeout)?);
        }
        let Some(fd) = self.process.arm_for_more() else { return Ok(()) };
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        drop(self);
        let pause = timeout.unwrap_or(SHARED_PAUSE).min(SHARED_PAUSE);
        let pause = libc::timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
        // SAFETY: one descriptor, and a time; both are on this stack. The descriptor may be closed meanwhile by a thread that finalises,
        // which no thread may do while another one waits: then the wait is a short one.
        unsafe { libc::ppoll(&raw mut poll, 1, &raw const pause, std::ptr::null()) };
        Ok(())
    }

    /// Takes a batch of what is due; only one thread has one.
    pub fn take_batch(&mut self) -> Option<Batch> {
        if self.is_dispatching {
            return None;
        }
        let batch = self.process.take_due()?;
        self.is_dispatching = true;
        Some(batch)
    }
}

impl Live {
    /// Whether other threads may be in this interface at any time.
    fn is_shared(&self) -> bool {
        self.threads == CCS_THREAD_MULTIPLE || self.has_progress_thread
    }

    /// Makes progress, and does what belongs to operations that have ended. Runs nothing of the program's.
    pub fn progress(&mut self) {
        self.process.progress();
        self.take_ended();
    }

    /// Does so for whoever waits for a collective: where it is counted in memory, progress for others is made only now and then.
    pub fn progress_collective(&mut self) {
        self.process.progress_collective();
        self.take_ended();
    }

    fn take_ended(&mut self) {
        while let Some((cookie, result)) = self.process.next_done() {
            self.end(cookie, result);
        }
        while let Some((cookie, result)) = self.process.next_collected() {
            self.end_collective(cookie, result);
        }
        self.send_following();
    }

    /// Whether this thread could run something.
    pub fn has_due(&self) -> bool {
        !self.is_calling && (!self.due.is_empty() || (!self.is_dispatching && self.process.has_due()))
    }

    /// Sends the messages that follow operations, as far as there is space.
    fn send_following(&mut self) {
        if self.following.is_empty() {
            return;
        }
        let mut following = std::mem::take(&mut self.following);
        following.send(|Following { context, rank, handler, args }| {
            match self.process.request(Starter::Handler, *context, *rank, *handler, args, &[]) {
                Err(AmError::WouldBlock) => return None,
                Ok(()) => {}
                Err(error) => {
                    let what = error.to_string();
                    self.report(Code::from(error), *rank, what);
                }
            }
            Some(())
        });
        self.following = following;
    }

    /// An operation has ended: its results are put where they belong, and its callback is due.
    pub fn end(&mut self, cookie: u64, result: Result<u64, AmError>) {
        let Some(Ending { callback, arg, result: outcome, then }) = self.operations.remove(cookie) else {
            return;
        };
        let status = match result {
            Ok(found) => {
                outcome.put(found);
                then.into_iter().for_each(|message| self.following.push(message, ()));
                CCS_SUCCESS
            }
            Err(error) => {
                let (what, rank) = (error.to_string(), rank_of(&error));
                let code = Code::from(error);
                if code == Code::NOT_REGISTERED {
                    self.report(code, rank, what);
                }
                code.number()
            }
        };
        if let Some(callback) = callback {
            self.due.push_back(Call::Callback { callback, arg, status });
        }
    }

    /// A collective has ended: what this process gets is put where it belongs, and its callback is due, or who waits for it finds how it ended.
    pub fn end_collective(&mut self, cookie: u64, result: Result<Vec<u8>, AmError>) {
        let Some(Collecting { to, then }) = self.collecting.remove(&cookie) else { return };
        let code = match result {
            Ok(bytes) => {
                to.put(&bytes);
                None
            }
            Err(error) => Some(Code::from(error)),
        };
        match then {
            Then::Kept => drop(self.collected.insert(cookie, code)),
            Then::Call(Some(callback), arg) => {
                let status = code.map_or(CCS_SUCCESS, Code::number);
                let callback = Callback::Plain(callback);
                self.due.push_back(Call::Callback { callback, arg, status });
            }
            Then::Call(None, _) => {}
        }
    }

    /// Has the program's error handler called, which is due.
    pub fn report(&mut self, code: Code, rank: u32, what: String) {
        self.due.push_back(Call::Error { code, rank, what });
    }
}

fn rank_of(error: &AmError) -> u32 {
    match error {
        AmError::NotRegistered { rank, .. } | AmError::Gone { rank, .. } => *rank,
        _ => 0,
    }
}
