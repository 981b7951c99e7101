//! Sending messages of any length.

use super::handle::CMessenger;
use super::payload::{gather, with_payload};
use super::types::*;
use crate::connections::{bytes, context_of};
use crate::guard::{Failure, guard};
use crate::types::*;
use cci::messages::{Messenger, Payload, Progress, SendId};
use cci::{Connection, SendFlags};
use libc::{c_int, c_void, iovec};

/// How a message is sent.
#[derive(Copy, Clone)]
struct How {
    connection: Connection,
    context: u64,
    flags: SendFlags,
    /// The program leaves the memory alone until the send has ended.
    is_lent: bool,
}

fn how(connection: u64, context: *const c_void, flags: c_int) -> Result<How, Failure> {
    let unknown = flags & !(CCI_FLAG_NO_COPY | CCI_FLAG_SILENT);
    if unknown != 0 {
        let text = format!("a messenger's sends do not take the flags {unknown:#x}");
        return Err(Failure::with_text(CCI_EINVAL, text));
    }
    let is_silent = flags & CCI_FLAG_SILENT != 0;
    let is_lent = flags & CCI_FLAG_NO_COPY != 0;
    if is_silent && is_lent {
        let text = "CCI_FLAG_SILENT with CCI_FLAG_NO_COPY: no event would report when the memory is free";
        return Err(Failure::with_text(CCI_EINVAL, text));
    }
    let flags = if is_silent { SendFlags::SILENT } else { SendFlags::NONE };
    let (connection, context) = (Connection::from_bits(connection), context_of(context));
    Ok(How { connection, context, flags, is_lent })
}

/// Starts a send, and says what it is called.
///
/// # Safety
/// `send` is NULL or a place for a number.
unsafe fn start<'a>(
    messenger: &mut Messenger,
    how: How,
    payload: impl Into<Payload<'a>>,
    send: *mut u64,
) -> Result<(), Failure> {
    let id = messenger.send(how.connection, payload, how.context, how.flags)?;
    if !send.is_null() {
        // SAFETY: as the caller promises.
        unsafe { send.write(id.to_bits()) };
    }
    Ok(())
}

/// Sends a message of any length.
///
/// # Safety
/// `messenger` is NULL or open; `ptr` points to `len` bytes, which with `CCI_FLAG_NO_COPY` stay mapped and are not changed until the
/// send has ended; `send` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_send(
    messenger: *const cci_messenger_t,
    connection: u64,
    ptr: *const c_void,
    len: u64,
    context: *const c_void,
    flags: c_int,
    send: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (messenger, message) =
            unsafe { (CMessenger::of(messenger)?, bytes(ptr, usize::try_from(len).unwrap_or(usize::MAX))?) };
        let how = how(connection, context, flags)?;
        if how.is_lent {
            // SAFETY: as the caller promises.
            return unsafe {
                with_payload(&[message], true, |payload| {
                    messenger.with(|messenger| start(messenger, how, payload, send))
                })
            };
        }
        // SAFETY: as the caller promises.
        messenger.with(|messenger| unsafe { start(messenger, how, message, send) })
    })
}

/// Sends a message gathered from segments.
///
/// # Safety
/// `data` points to `iovcnt` segments, each of which points to as many bytes as it says; the rest is as for [`cci_messenger_send`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_sendv(
    messenger: *const cci_messenger_t,
    connection: u64,
    data: *const iovec,
    iovcnt: u32,
    context: *const c_void,
    flags: c_int,
    send: *mut u64,
) -> c_int {
    guard(|| {
        let how = how(connection, context, flags)?;
        // SAFETY: as the caller promises.
        unsafe {
            let messenger = CMessenger::of(messenger)?;
            gather(data, iovcnt, |segments| {
                with_payload(segments, how.is_lent, |payload| {
                    messenger.with(|messenger| start(messenger, how, payload, send))
                })
            })
        }
    })
}

/// Takes a long message back.
///
/// # Safety
/// `messenger` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_cancel(messenger: *const cci_messenger_t, send: u64) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { CMessenger::of(messenger) }?.with(|messenger| {
            let nothing = || {
                Failure::with_text(
                    CCI_EINVAL,
                    "cci_messenger_cancel: the send has ended, or can't be cancelled",
                )
            };
            messenger.cancel(SendId::from_bits(send)).then_some(()).ok_or_else(nothing)
        })
    })
}

/// Says how much of a long message its receiver has.
///
/// # Safety
/// `messenger` is NULL or open; `progress` is NULL or a place to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_send_progress(
    messenger: *const cci_messenger_t,
    send: u64,
    progress: *mut cci_messenger_progress_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let messenger = unsafe { CMessenger::of(messenger) }?;
        let found = messenger.with(|messenger| Ok(messenger.send_progress(SendId::from_bits(send))))?;
        // SAFETY: as the caller promises.
        unsafe { show(found, progress) }
    })
}

/// # Safety
/// `place` is NULL or a place to be written.
pub(super) unsafe fn show(
    found: Option<Progress>,
    place: *mut cci_messenger_progress_t,
) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::with_text(CCI_EINVAL, "the place for the progress is NULL"));
    }
    let Some(Progress { moved_bytes, total_bytes }) = found else {
        return Err(Failure::with_text(CCI_EINVAL, "the message has ended, or is a short one"));
    };
    // SAFETY: not NULL, and the caller's to be written.
    unsafe { place.write(cci_messenger_progress_t { moved_bytes, total_bytes }) };
    Ok(())
}
