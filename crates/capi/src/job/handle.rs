//! The job of this process behind a C pointer.

use super::types::cci_job_t;
use crate::guard::Failure;
use crate::types::*;
use cci_job::{Job, JobError};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// What `cci_job_t *` leads to. The pointer is compared with this one and never followed, so that one of a job that was left does no harm.
struct CJob {
    public: cci_job_t,
    /// `None`: it was left.
    job: Mutex<Option<Job>>,
    /// The process that has joined.
    process: u32,
}

/// A process takes part in one job.
static CURRENT: Mutex<Option<Arc<CJob>>> = Mutex::new(None);

fn current() -> Result<MutexGuard<'static, Option<Arc<CJob>>>, Failure> {
    match CURRENT.try_lock() {
        Ok(current) => Ok(current),
        Err(TryLockError::Poisoned(current)) => Ok(current.into_inner()),
        // In a fork child, nobody will ever give back a lock that a thread of the parent's had.
        Err(TryLockError::WouldBlock) => Err(busy()),
    }
}

fn busy() -> Failure {
    Failure::with_text(CCI_EBUSY, "another thread is in a call with the job")
}

/// Joins, and gives the pointer for programs.
pub(super) fn join() -> Result<*const cci_job_t, Failure> {
    let mut current = current()?;
    if current.is_some() {
        return Err(Failure::with_text(CCI_EBUSY, "cci_job_join: this process takes part in a job already"));
    }
    let job = Job::join()?;
    let public = cci_job_t {
        rank: job.rank(),
        size: job.size(),
        local_rank: job.local_rank(),
        local_size: job.local_size(),
        host: job.host(),
    };
    let joined = Arc::new(CJob { public, job: Mutex::new(Some(job)), process: std::process::id() });
    Ok(ptr::from_ref(&current.insert(joined).public))
}

/// The job that a program's pointer means.
fn find(job: *const cci_job_t) -> Result<Arc<CJob>, Failure> {
    let current = current()?;
    let found = current.as_ref().filter(|found| ptr::eq(job, &raw const found.public));
    let found = found.ok_or_else(|| {
        let what = if job.is_null() { "the job is NULL" } else { "this process has left the job" };
        Failure::with_text(CCI_EINVAL, what)
    })?;
    if found.process != std::process::id() {
        return Err(Failure::with_text(
            CCI_ERROR,
            "another process has joined the job: its copies can't use it",
        ));
    }
    Ok(found.clone())
}

/// Runs `f` with the job that a program's pointer means.
pub(super) fn with<R>(
    job: *const cci_job_t,
    f: impl FnOnce(&mut Job) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let found = find(job)?;
    let mut locked = match found.job.try_lock() {
        Ok(locked) => locked,
        Err(TryLockError::Poisoned(locked)) => locked.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(busy()),
    };
    f(locked.as_mut().ok_or_else(|| Failure::with_text(CCI_EINVAL, "this process has left the job"))?)
}

/// Leaves the job.
pub(super) fn leave(job: *const cci_job_t) -> Result<(), Failure> {
    let found = find(job)?;
    let left = match found.job.try_lock() {
        Ok(mut locked) => locked.take(),
        Err(TryLockError::Poisoned(locked)) => locked.into_inner().take(),
        Err(TryLockError::WouldBlock) => return Err(busy()),
    };
    let left = left.ok_or_else(|| Failure::with_text(CCI_EINVAL, "this process has left the job"))?;
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(left);
    Ok(())
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Failure {
        let status = match &error {
            JobError::Argument(_) => CCI_EINVAL,
            JobError::Refused(_) => CCI_ECONNREFUSED,
            JobError::Gone { .. } => CCI_ERR_DISCONNECTED,
            _ => CCI_ERROR,
        };
        Failure::with_text(status, error.to_string())
    }
}
