//! Calls, and their answers.

use super::handle::CMessenger;
use super::pool::{CEvent, Held};
use super::types::*;
use crate::connections::{bytes, context_of, duration};
use crate::guard::{Failure, guard};
use crate::types::*;
use cci::Connection;
use cci::messages::CallId;
use libc::{c_int, c_void, timeval};

fn len_of(len: u64) -> usize {
    // Beyond any memory, which is refused where the bytes are looked at.
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// Asks the peer.
///
/// # Safety
/// `messenger` is NULL or open; `ptr` points to `len` bytes; `timeout` is NULL or a `struct timeval`; `call` is NULL or a place for a
/// number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_call(
    messenger: *const cci_messenger_t,
    connection: u64,
    ptr: *const c_void,
    len: u64,
    timeout: *const timeval,
    context: *const c_void,
    call: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (messenger, request, timeout) =
            unsafe { (CMessenger::of(messenger)?, bytes(ptr, len_of(len))?, duration(timeout)?) };
        let (connection, context) = (Connection::from_bits(connection), context_of(context));
        let id = messenger.with(|messenger| Ok(messenger.call(connection, request, timeout, context)?))?;
        if !call.is_null() {
            // SAFETY: not NULL, and the caller's to be written.
            unsafe { call.write(id.to_bits()) };
        }
        Ok(())
    })
}

/// Gives a call up.
///
/// # Safety
/// `messenger` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_cancel_call(messenger: *const cci_messenger_t, call: u64) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { CMessenger::of(messenger) }?.with(|messenger| {
            let ended = || Failure::with_text(CCI_EINVAL, "cci_messenger_cancel_call: the call has ended");
            messenger.cancel_call(CallId::from_bits(call)).then_some(()).ok_or_else(ended)
        })
    })
}

/// Answers a request, with an error if there is a `code`.
///
/// # Safety
/// `messenger` is NULL or open; `request` is NULL or an event that was not returned yet; `ptr` points to `len` bytes.
unsafe fn answer(
    messenger: *const cci_messenger_t,
    request: *const cci_messenger_event_t,
    code: Option<u32>,
    ptr: *const c_void,
    len: u64,
) -> Result<(), Failure> {
    // SAFETY: as the caller promises.
    let (messenger, reply) = unsafe { (CMessenger::of(messenger)?, bytes(ptr, len_of(len))?) };
    // SAFETY: as the caller promises.
    unsafe {
        CEvent::check_origin(request, messenger)?;
        CEvent::<CMessenger>::answer(request, |held| {
            let Held::Request(request) = held else {
                return (false, Err(Failure::with_text(CCI_EINVAL, "not a request")));
            };
            let answered = messenger.with(|messenger| Ok(messenger.answer(request, code, reply)));
            match answered {
                Ok(Ok(())) => (true, Ok(())),
                Ok(Err(Some(error))) => (false, Err(error.into())),
                Ok(Err(None)) => (true, Err(Failure::code(CCI_ERR_DISCONNECTED))),
                Err(failure) => (false, Err(failure)),
            }
        })
    }
}

/// Answers a request.
///
/// # Safety
/// `messenger` is NULL or open; `request` is NULL or an event that was not returned yet; `ptr` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_reply(
    messenger: *const cci_messenger_t,
    request: *const cci_messenger_event_t,
    ptr: *const c_void,
    len: u64,
) -> c_int {
    // SAFETY: as the caller promises.
    guard(|| unsafe { answer(messenger, request, None, ptr, len) })
}

/// Answers a request with an error.
///
/// # Safety
/// As [`cci_messenger_reply`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_reply_error(
    messenger: *const cci_messenger_t,
    request: *const cci_messenger_event_t,
    code: u32,
    ptr: *const c_void,
    len: u64,
) -> c_int {
    // SAFETY: as the caller promises.
    guard(|| unsafe { answer(messenger, request, Some(code), ptr, len) })
}
