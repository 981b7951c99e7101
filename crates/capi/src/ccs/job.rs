//! Taking part in a job: who this process is, progress, the end.

use super::dispatch::{poll, wait_for_run, wait_until};
use super::errors;
use super::here::{Here, check_may_wait};
use super::live::{Live, begin, end, lock};
use super::operations::Operations;
use super::presence::is_live;
use super::progress;
use super::status::{Code, Result, as_int, call, place};
use super::types::*;
use crate::guard::remember;
use cci_am::AmError;
use cci_am::process::{Followers, Process};
use cci_job::{Job, Ranks};
use libc::{c_char, c_int};
use std::collections::{HashMap, VecDeque};
use std::ffi::CStr;
use std::time::Duration;

/// Messages are delivered to others for so long when a process leaves.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);
/// What a peer's put or atomic changes raises nothing: who waits for it looks again after so long.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// Joins the job that this process was started in, with one thread at a time.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_init() -> c_int {
    call(|| join(CCS_THREAD_SERIALIZED))
}

/// Joins the job, for as many threads as are asked for.
///
/// # Safety
/// `provided` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_init_thread(required: c_int, provided: *mut c_int) -> c_int {
    call(|| {
        let provided = place(provided)?;
        if !(CCS_THREAD_SINGLE..=CCS_THREAD_MULTIPLE).contains(&required) {
            return Err(Code::ARG);
        }
        join(required)?;
        // SAFETY: the caller's to be written.
        unsafe { provided.write(required) };
        Ok(())
    })
}

fn join(threads: c_int) -> Result<()> {
    begin(|| {
        let mut job = Job::join().map_err(AmError::from)?;
        let context = cci::Context::new().map_err(|error| {
            remember(format!("looking for devices: {error}"));
            Code::SYSTEM
        })?;
        // A configuration file may have none of that name.
        let device = context.device("any").unwrap_or_else(|| context.default_device());
        let ranks = Ranks::open(&mut job, device, cci::Options::default()).map_err(AmError::from)?;
        Ok(Box::new(Live {
            process: Process::new(ranks),
            job,
            threads,
            has_progress_thread: false,
            contexts: Vec::new(),
            large_handlers: Vec::new(),
            operations: Operations::default(),
            following: Followers::default(),
            collecting: HashMap::new(),
            collecting_made: 0,
            collected: HashMap::new(),
            due: VecDeque::new(),
            error_handler: None,
            ran: 0,
            is_dispatching: false,
            is_calling: false,
        }))
    })
}

/// Waits until nothing is under way anywhere, and leaves the job.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_finalize() -> c_int {
    call(|| {
        check_may_wait()?;
        if Here::get().is_closed() {
            return Err(Code::STATE);
        }
        progress::stop()?;
        match settle() {
            // Those that live on, although others died, leave without waiting for those.
            Ok(()) | Err(Code::PEER) => {}
            Err(code) => return Err(code),
        }
        // An end or a loss that was found runs nothing yet: it makes a callback or a report due.
        while poll()? || lock()?.has_due() {}
        let live = end()?;
        live.process.close(LEAVE_LIMIT);
        Ok(())
    })
}

/// Waits until all messages of all ranks have been handled, with all that came of them.
fn settle() -> Result<()> {
    loop {
        lock()?.process.settle();
        wait_until(|live| {
            if live.process.is_idle() && live.following.is_empty() {
                return Ok(Some(()));
            }
            live.process.check_all()?;
            Ok(None)
        })?;
        barrier()?;
        if lock()?.process.are_all_idle() {
            return Ok(());
        }
    }
}

/// Whether this process takes part in a job now.
///
/// # Safety
/// `flag` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_initialized(flag: *mut c_int) -> c_int {
    call(|| {
        let flag = place(flag)?;
        // SAFETY: the caller's to be written.
        unsafe { flag.write(is_live().into()) };
        Ok(())
    })
}

fn ask(out: *mut c_int, ask: impl FnOnce(&Live) -> u32) -> c_int {
    call(|| {
        let (out, live) = (place(out)?, lock()?);
        // SAFETY: the caller's to be written.
        unsafe { out.write(as_int(ask(&live))) };
        Ok(())
    })
}

/// The number of this process in its job.
///
/// # Safety
/// `rank` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_rank(rank: *mut c_int) -> c_int {
    ask(rank, |live| live.process.rank())
}

/// How many processes the job has.
///
/// # Safety
/// `n` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_nprocs(n: *mut c_int) -> c_int {
    ask(n, |live| live.process.size())
}

/// The number of this process among those of its host.
///
/// # Safety
/// `rank` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_local_rank(rank: *mut c_int) -> c_int {
    ask(rank, |live| live.job.local_rank())
}

/// How many processes of the job this host has.
///
/// # Safety
/// `n` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_local_nprocs(n: *mut c_int) -> c_int {
    ask(n, |live| live.job.local_size())
}

/// Ends the whole job. It returns only if this process takes part in none.
///
/// # Safety
/// `why` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_abort(exit_code: c_int, why: *const c_char) -> c_int {
    call(|| {
        drop(lock()?);
        let why = match why.is_null() {
            true => "CCS_abort".into(),
            // SAFETY: as the caller promises.
            false => unsafe { CStr::from_ptr(why) }.to_string_lossy(),
        };
        // A value that is no exit code is reported as a failure.
        errors::end(u8::try_from(exit_code).ok().filter(|&code| code != 0).unwrap_or(1), &why)
    })
}

/// Makes progress and runs what is due; never blocks.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_poll() -> c_int {
    call(|| if poll()? { Ok(()) } else { Err(Code::AGAIN) })
}

/// Waits until something ran.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_wait(timeout_ns: i64) -> c_int {
    call(|| {
        let limit = match timeout_ns {
            -1 => None,
            0.. => Some(Duration::from_nanos(timeout_ns.cast_unsigned())),
            _ => return Err(Code::ARG),
        };
        wait_for_run(limit)
    })
}

/// The step of `CCS_block_until`: waits until something ran, or until it is time to look again.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_wait_for_change_() -> c_int {
    match call(|| wait_for_run(Some(LOOK_PAUSE))) {
        CCS_ERR_AGAIN => CCS_SUCCESS,
        CCS_SUCCESS => CCS_SUCCESS,
        code => {
            // A condition that can't come true here must not be taken for true.
            let what = "CCS_block_until outside of a job, or in a handler or callback, which can't wait";
            if let Some(code) = Code::from_number(code) {
                errors::raise(code, 0, what);
            }
            code
        }
    }
}

/// Waits until all ranks have called it.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_barrier() -> c_int {
    call(barrier)
}

pub(super) fn barrier() -> Result<()> {
    check_may_wait()?;
    lock()?.process.arrive()?;
    wait_until(|live| Ok(live.process.has_passed()?.then_some(())))
}
