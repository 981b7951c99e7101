//! Receiving messages that are offered.

use super::handle::CMessenger;
use super::payload::memory_of;
use super::sending::show;
use super::types::*;
use crate::connections::context_of;
use crate::guard::{Failure, guard};
use crate::types::*;
use cci::messages::{Messenger, Offer, ReceiveError};
use libc::{c_int, c_void};

/// Runs `f` with a messenger and one of its offers.
///
/// # Safety
/// `messenger` is NULL or open.
unsafe fn with_offer(
    messenger: *const cci_messenger_t,
    offer: u64,
    f: impl FnOnce(&mut Messenger, Offer) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // SAFETY: as the caller promises.
    unsafe { CMessenger::of(messenger) }?.with(|messenger| {
        let offer = messenger.find_offer(offer).ok_or(ReceiveError::Ended)?;
        f(messenger, offer)
    })
}

/// Accepts an offer into memory that the library lends.
///
/// # Safety
/// `messenger` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_receive(messenger: *const cci_messenger_t, offer: u64) -> c_int {
    // SAFETY: as the caller promises.
    guard(|| unsafe { with_offer(messenger, offer, |messenger, offer| Ok(messenger.receive(offer)?)) })
}

/// Accepts an offer into memory of the program.
///
/// # Safety
/// `messenger` is NULL or open; `ptr` points to `len` bytes that stay mapped, and that the program leaves alone until the offer has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_receive_into(
    messenger: *const cci_messenger_t,
    offer: u64,
    ptr: *mut c_void,
    len: u64,
    context: *const c_void,
) -> c_int {
    guard(|| {
        let len = usize::try_from(len).ok().filter(|len| *len > 0 && *len <= isize::MAX as usize);
        let bad =
            || Failure::with_text(CCI_EINVAL, "cci_messenger_receive_into: len is 0, or beyond any memory");
        // SAFETY: as the caller promises.
        let (memory, range) = unsafe { memory_of(ptr, len.ok_or_else(bad)?) }?;
        // SAFETY: as the caller promises.
        unsafe {
            with_offer(messenger, offer, |messenger, offer| {
                let (len_bytes, max_bytes) = (offer.len_bytes(), range.len() as u64);
                // The range may be a part of more memory.
                if len_bytes > max_bytes {
                    return Err(ReceiveError::TooLong { len_bytes, max_bytes }.into());
                }
                Ok(messenger.receive_into(offer, &memory, range.start, context_of(context))?)
            })
        }
    })
}

/// Refuses an offer, or stops receiving the message.
///
/// # Safety
/// `messenger` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_refuse(
    messenger: *const cci_messenger_t,
    offer: u64,
    code: u32,
) -> c_int {
    // SAFETY: as the caller promises.
    guard(|| unsafe { with_offer(messenger, offer, |messenger, offer| Ok(messenger.refuse(offer, code)?)) })
}

/// Says how much of an offered message is here.
///
/// # Safety
/// `messenger` is NULL or open; `progress` is NULL or a place to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_receive_progress(
    messenger: *const cci_messenger_t,
    offer: u64,
    progress: *mut cci_messenger_progress_t,
) -> c_int {
    // SAFETY: as the caller promises.
    guard(|| unsafe {
        with_offer(messenger, offer, |messenger, offer| show(messenger.receive_progress(offer), progress))
    })
}
