//! Values of ranks on their way from C and back.

use super::types::*;
use crate::guard::Failure;
use crate::types::*;
use libc::c_void;

/// Values begin at multiples of it.
const ALIGN_BYTES: usize = 8;

pub(super) fn check_place<T>(place: *const T, what: &str) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::with_text(CCI_EINVAL, format!("{what} is NULL")));
    }
    Ok(())
}

/// The value that a program gives.
///
/// # Safety
/// `ptr` is NULL or points to `len` bytes that stay for `'a`.
pub(super) unsafe fn bytes<'a>(ptr: *const c_void, len: u32) -> Result<&'a [u8], Failure> {
    if len > CCI_JOB_VALUE_BYTES_MAX {
        let text = format!("a value has up to {CCI_JOB_VALUE_BYTES_MAX} bytes, and not {len}");
        return Err(Failure::with_text(CCI_EMSGSIZE, text));
    }
    match (ptr.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::with_text(CCI_EINVAL, "the value is NULL")),
        // SAFETY: as the caller promises.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(ptr.cast(), len as usize) }),
    }
}

/// A copy of values that the program frees: their places, and the bytes behind these, in one piece of memory.
pub(super) fn give(values: &[Vec<u8>]) -> Result<*mut cci_job_value_t, Failure> {
    const { assert!(align_of::<cci_job_value_t>() <= ALIGN_BYTES) };
    let places_bytes = values.len() * size_of::<cci_job_value_t>();
    let values_bytes: usize = values.iter().map(|value| value.len().next_multiple_of(ALIGN_BYTES)).sum();
    // SAFETY: any size may be asked for.
    let places = unsafe { libc::malloc(places_bytes + values_bytes) }.cast::<cci_job_value_t>();
    if places.is_null() {
        return Err(Failure::with_text(CCI_ENOMEM, "out of memory"));
    }
    let mut offset = places_bytes;
    for (at, value) in values.iter().enumerate() {
        // SAFETY: there is room for all places and, behind them, for each value rounded up, and the memory is new.
        unsafe {
            let to = places.cast::<u8>().add(offset);
            to.copy_from_nonoverlapping(value.as_ptr(), value.len());
            places.add(at).write(cci_job_value_t { ptr: to.cast_const().cast(), len: value.len() as u32 });
        }
        offset += value.len().next_multiple_of(ALIGN_BYTES);
    }
    Ok(places)
}
