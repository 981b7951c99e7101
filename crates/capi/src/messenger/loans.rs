//! Memory of the library that messages are sent from and received into.

use super::handle::CMessenger;
use super::types::*;
use crate::allocations;
use crate::guard::{Failure, guard};
use crate::types::*;
use libc::{c_int, c_void};

/// Gives memory of the library's own, which peers on the same host map.
///
/// # Safety
/// `messenger` is NULL or open; `start` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_alloc(
    messenger: *const cci_messenger_t,
    length: u64,
    start: *mut *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let c_messenger = unsafe { CMessenger::of(messenger) }?;
        if start.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_messenger_alloc: start is NULL"));
        }
        let length = allocations::length_of(length)?;
        let memory = c_messenger.with(|messenger| Ok(messenger.allocate(length)?))?;
        let given = allocations::give(memory, messenger.addr());
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { start.write(given) };
        Ok(())
    })
}

/// Takes such memory back.
///
/// # Safety
/// `messenger` is NULL or open; the program does not use the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_free(messenger: *const cci_messenger_t, start: *mut c_void) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { CMessenger::of(messenger) }?.with(|open| {
            drop(allocations::take_back(start, messenger.addr())?);
            // Regions that were kept for the next message from there go now, not when the program asks for events the next time.
            open.arm();
            Ok(())
        })
    })
}
