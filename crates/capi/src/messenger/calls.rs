//! Calls, and their answers.

use super::handle::CMessenger;
use super::payload::{gather, with_payload};
use super::pool::{CEvent, Held};
use super::types::*;
use crate::connections::{bytes, context_of, duration};
use crate::guard::{Failure, guard};
use crate::types::*;
use cci::Connection;
use cci::messages::{CallId, Messenger, Payload};
use libc::{c_int, c_void, iovec, timeval};
use std::time::Duration;

fn len_of(len: u64) -> usize {
    // Beyond any memory, which is refused where the bytes are looked at.
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// What is asked for beside the bytes of the request.
struct Asked {
    connection: Connection,
    timeout: Option<Duration>,
    context: u64,
}

/// Starts a call, and says what it is called.
///
/// # Safety
/// `call` is NULL or a place for a number.
unsafe fn start(
    messenger: &mut Messenger,
    asked: Asked,
    request: Payload<'_>,
    call: *mut u64,
) -> Result<(), Failure> {
    let id = messenger.call(asked.connection, request, asked.timeout, asked.context)?;
    if !call.is_null() {
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { call.write(id.to_bits()) };
    }
    Ok(())
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
        let asked =
            Asked { connection: Connection::from_bits(connection), timeout, context: context_of(context) };
        // SAFETY: as the caller promises.
        messenger.with(|messenger| unsafe { start(messenger, asked, request.into(), call) })
    })
}

/// Asks the peer, with a request that is gathered from segments.
///
/// # Safety
/// `messenger` is NULL or open; `data` points to `iovcnt` segments, each of which points to as many bytes as it says, which with
/// `CCI_FLAG_NO_COPY` stay mapped and are not changed until the call has ended; the rest is as for [`cci_messenger_call`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_callv(
    messenger: *const cci_messenger_t,
    connection: u64,
    data: *const iovec,
    iovcnt: u32,
    timeout: *const timeval,
    context: *const c_void,
    flags: c_int,
    call: *mut u64,
) -> c_int {
    guard(|| {
        if flags & !CCI_FLAG_NO_COPY != 0 {
            let text =
                format!("cci_messenger_callv does not take the flags {:#x}", flags & !CCI_FLAG_NO_COPY);
            return Err(Failure::with_text(CCI_EINVAL, text));
        }
        // SAFETY: as the caller promises.
        unsafe {
            let (messenger, timeout) = (CMessenger::of(messenger)?, duration(timeout)?);
            let (connection, context) = (Connection::from_bits(connection), context_of(context));
            let asked = Asked { connection, timeout, context };
            gather(data, iovcnt, |segments| {
                with_payload(segments, flags & CCI_FLAG_NO_COPY != 0, |request| {
                    messenger.with(|messenger| start(messenger, asked, request, call))
                })
            })
        }
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
/// `messenger` is NULL or open; `request` is NULL or an event that was not returned yet.
unsafe fn answer(
    messenger: *const cci_messenger_t,
    request: *const cci_messenger_event_t,
    code: Option<u32>,
    reply: Payload<'_>,
) -> Result<(), Failure> {
    // SAFETY: as the caller promises.
    unsafe {
        let messenger = CMessenger::of(messenger)?;
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
    guard(|| unsafe { answer(messenger, request, None, bytes(ptr, len_of(len))?.into()) })
}

/// Answers a request with a reply that is gathered from segments.
///
/// # Safety
/// `data` points to `iovcnt` segments, each of which points to as many bytes as it says; the rest is as for [`cci_messenger_reply`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_replyv(
    messenger: *const cci_messenger_t,
    request: *const cci_messenger_event_t,
    data: *const iovec,
    iovcnt: u32,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe {
            gather(data, iovcnt, |segments| answer(messenger, request, None, Payload::Gathered(segments)))
        }
    })
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
    guard(|| unsafe { answer(messenger, request, Some(code), bytes(ptr, len_of(len))?.into()) })
}
