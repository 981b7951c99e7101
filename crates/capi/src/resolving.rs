//! From host names to addresses.

use crate::endpoint::text;
use crate::guard::{Failure, guard};
use crate::options::give_text;
use crate::types::*;
use libc::{c_char, c_int};
use std::ptr::null_mut;

/// Replaces the host names in a URI by addresses. May block.
///
/// # Safety
/// `uri` is NULL or a C string; `resolved` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_resolve(uri: *const c_char, resolved: *mut *mut c_char) -> c_int {
    guard(|| {
        if resolved.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_resolve: resolved is NULL"));
        }
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { resolved.write(null_mut()) };
        // SAFETY: NULL or a C string, says the caller.
        let uri = unsafe { text(uri, "cci_resolve: uri") }?;
        let copy = give_text(&cci::resolve(uri)?)?;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { resolved.write(copy) };
        Ok(())
    })
}
