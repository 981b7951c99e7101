//! The types of `cci_job.h`.
#![allow(non_camel_case_types, reason = "the names of the C interface")]

use cci_job::limits;
use libc::{c_int, c_void};

/// Longest value, bytes.
pub const CCI_JOB_VALUE_BYTES_MAX: u32 = 4096;
/// Longest key, bytes.
pub const CCI_JOB_KEY_BYTES_MAX: u32 = 64;
/// Longest reason of an abort, bytes.
pub const CCI_JOB_REASON_BYTES_MAX: u32 = 512;

const _: () = assert!(CCI_JOB_VALUE_BYTES_MAX as usize == limits::VALUE_BYTES_MAX);
const _: () = assert!(CCI_JOB_KEY_BYTES_MAX as usize == limits::KEY_BYTES_MAX);
const _: () = assert!(CCI_JOB_REASON_BYTES_MAX as usize == limits::REASON_BYTES_MAX);

/// What programs see of a job.
#[repr(C)]
pub struct cci_job_t {
    /// The number of this rank.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// The number of this rank on its host.
    pub local_rank: u32,
    /// How many its host has.
    pub local_size: u32,
    /// The number of its host.
    pub host: u32,
}

/// Its process has not ended.
pub const CCI_JOB_RUNNING: c_int = 0;
/// It has left the job.
pub const CCI_JOB_LEFT: c_int = 1;
/// Its process has ended with a code.
pub const CCI_JOB_EXITED: c_int = 2;
/// A signal has ended its process.
pub const CCI_JOB_KILLED: c_int = 3;
/// Its host can't be reached.
pub const CCI_JOB_LOST: c_int = 4;

/// What has become of a rank.
#[repr(C)]
pub struct cci_job_status_t {
    /// One of the above.
    pub r#type: c_int,
    /// The exit code or the signal.
    pub code: i32,
}

/// A value of a rank.
#[repr(C)]
pub struct cci_job_value_t {
    /// Its bytes.
    pub ptr: *const c_void,
    /// How many.
    pub len: u32,
}
