//! The types of `cci_job.h`.
#![allow(non_camel_case_types, reason = "the names of the C interface")]

use cci_job::limits;
use libc::c_void;

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

/// A value of a rank.
#[repr(C)]
pub struct cci_job_value_t {
    /// Its bytes.
    pub ptr: *const c_void,
    /// How many.
    pub len: u32,
}
