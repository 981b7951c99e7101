//! Taking part in a job: `include/cci_job.h` over [`cci_job`].

mod endpoints;
mod handle;
pub mod types;
mod values;

use crate::connections::duration;
use crate::endpoint::text;
use crate::guard::{Failure, guard};
use crate::types::*;
use cci_job::RankStatus;
use libc::{c_char, c_int, c_void, timeval};
use std::time::Duration;
use types::*;
use values::{bytes, check_place, give};

/// Joins the job that this process was started for.
///
/// # Safety
/// `job` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_job_join(job: *mut *const cci_job_t) -> c_int {
    guard(|| {
        check_place(job, "cci_job_join: job")?;
        let joined = handle::join()?;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { job.write(joined) };
        Ok(())
    })
}

/// Leaves the job.
#[unsafe(no_mangle)]
pub extern "C" fn cci_job_leave(job: *const cci_job_t) -> c_int {
    guard(|| handle::leave(job))
}

/// Gives the number of a rank's host.
///
/// # Safety
/// `host` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_job_host_of(job: *const cci_job_t, rank: u32, host: *mut u32) -> c_int {
    guard(|| {
        check_place(host, "cci_job_host_of: host")?;
        let found = handle::with(job, |job| job.host_of(rank).ok_or_else(|| no_rank(rank, job.size())))?;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { host.write(found) };
        Ok(())
    })
}

/// Keeps a value for ranks that ask for it.
///
/// # Safety
/// `key` is NULL or a C string; `ptr` is NULL or points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_job_put(
    job: *const cci_job_t,
    key: *const c_char,
    ptr: *const c_void,
    len: u32,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (key, value) = unsafe { (text(key, "cci_job_put: key")?, bytes(ptr, len)?) };
        handle::with(job, |job| Ok(job.put(key, value)?))
    })
}

/// Gives what a rank has put.
///
/// # Safety
/// `key` is NULL or a C string; `value` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_job_get(
    job: *const cci_job_t,
    rank: u32,
    key: *const c_char,
    value: *mut *mut cci_job_value_t,
) -> c_int {
    guard(|| {
        check_place(value, "cci_job_get: value")?;
        // SAFETY: as the caller promises.
        let key = unsafe { text(key, "cci_job_get: key") }?;
        let found = handle::with(job, |job| {
            if rank >= job.size() {
                return Err(no_rank(rank, job.size()));
            }
            let none = || {
                Failure::with_text(CCI_ERR_NOT_FOUND, format!("rank {rank} has put nothing under {key:?}"))
            };
            job.get(rank, key)?.ok_or_else(none)
        })?;
        let found = give(&[found])?;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { value.write(found) };
        Ok(())
    })
}

/// Gives everybody this rank's value, and this rank everybody's.
///
/// # Safety
/// `ptr` is NULL or points to `len` bytes; `values` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_job_exchange(
    job: *const cci_job_t,
    ptr: *const c_void,
    len: u32,
    values: *mut *mut cci_job_value_t,
) -> c_int {
    guard(|| {
        check_place(values, "cci_job_exchange: values")?;
        // SAFETY: as the caller promises.
        let value = unsafe { bytes(ptr, len) }?;
        let all = give(&handle::with(job, |job| Ok(job.exchange(value)?))?)?;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { values.write(all) };
        Ok(())
    })
}

/// Blocks until all ranks have called it.
#[unsafe(no_mangle)]
pub extern "C" fn cci_job_barrier(job: *const cci_job_t) -> c_int {
    guard(|| handle::with(job, |job| Ok(job.barrier()?)))
}

/// Asks the launcher to end the job.
///
/// # Safety
/// `reason` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_job_abort(job: *const cci_job_t, code: c_int, reason: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let reason = unsafe { text(reason, "cci_job_abort: reason") }?;
        let code = u8::try_from(code)
            .map_err(|_| Failure::with_text(CCI_EINVAL, "cci_job_abort: an exit code is 1 to 255"))?;
        handle::with(job, |job| Ok(job.abort(code, reason)?))
    })
}

/// Says that this rank goes on when another one dies.
#[unsafe(no_mangle)]
pub extern "C" fn cci_job_survive(job: *const cci_job_t) -> c_int {
    guard(|| handle::with(job, |job| Ok(job.survive()?)))
}

/// Says what has become of a rank.
///
/// # Safety
/// `timeout` is NULL or a `struct timeval`; `status` is NULL or a place to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_job_status(
    job: *const cci_job_t,
    rank: u32,
    timeout: *const timeval,
    status: *mut cci_job_status_t,
) -> c_int {
    guard(|| {
        check_place(status, "cci_job_status: status")?;
        // SAFETY: as the caller promises.
        let limit = unsafe { duration(timeout) }?.unwrap_or(Duration::MAX);
        let found = handle::with(job, |job| match rank < job.size() {
            true => Ok(job.status(rank, limit)?),
            false => Err(no_rank(rank, job.size())),
        })?;
        let (r#type, code) = match found {
            RankStatus::Running => (CCI_JOB_RUNNING, 0),
            RankStatus::Left => (CCI_JOB_LEFT, 0),
            RankStatus::Exited(code) => (CCI_JOB_EXITED, code),
            RankStatus::Killed(signal) => (CCI_JOB_KILLED, signal),
            RankStatus::Lost => (CCI_JOB_LOST, 0),
            _ => return Err(Failure::with_text(CCI_ERROR, "the launcher says what C has no number for")),
        };
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { status.write(cci_job_status_t { r#type, code: code.into() }) };
        Ok(())
    })
}

fn no_rank(rank: u32, size: u32) -> Failure {
    Failure::with_text(CCI_ERANGE, format!("there is no rank {rank} in a job of {size}"))
}
