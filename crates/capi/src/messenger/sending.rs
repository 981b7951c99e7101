//! Sending messages of any length.

use super::handle::CMessenger;
use super::types::*;
use crate::allocations::library_memory;
use crate::connections::{bytes, context_of};
use crate::guard::{Failure, guard};
use crate::types::*;
use cci::messages::{Messenger, Payload, Progress, SendId};
use cci::{Connection, Foreign, Memory, SendFlags, limits};
use libc::{c_int, c_void, iovec};
use std::ops::Range;
use std::ptr::NonNull;

/// Segments that are gathered without allocating.
const SEGMENTS_INLINE: usize = 16;
/// Most segments of a send: what the system's own `writev` takes.
const SEGMENTS_MAX: u32 = 1024;
/// Messages up to this length are copied at less cost than their memory is registered.
const COPIED_BYTES_MAX: usize = 8_192;

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
        let text = "CCI_FLAG_SILENT with CCI_FLAG_NO_COPY: nothing would tell when the memory is free";
        return Err(Failure::with_text(CCI_EINVAL, text));
    }
    let flags = if is_silent { SendFlags::SILENT } else { SendFlags::NONE };
    let (connection, context) = (Connection::from_bits(connection), context_of(context));
    Ok(How { connection, context, flags, is_lent })
}

/// Memory that holds a range of the program's addresses, of the library or of the program.
///
/// # Safety
/// The memory stays mapped until what is done with it has ended.
pub(super) unsafe fn memory_of(start: *const c_void, len: usize) -> Result<(Memory, Range<usize>), Failure> {
    let Some(base) = NonNull::new(start.cast_mut().cast::<u8>()) else {
        return Err(Failure::with_text(CCI_EINVAL, "the memory of the message is NULL"));
    };
    Ok(match library_memory(base.addr().get(), len)? {
        Some((memory, range, _)) => (memory, range),
        // SAFETY: as the caller promises.
        None => (Memory::foreign(unsafe { Foreign::new(base, len) }), 0..len),
    })
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
        if how.is_lent && message.len() > COPIED_BYTES_MAX {
            // SAFETY: as the caller promises.
            let part = unsafe { memory_of(ptr, message.len()) }?;
            let parts = [(&part.0, part.1.clone())];
            // SAFETY: as the caller promises.
            return messenger.with(|messenger| unsafe { start(messenger, how, &parts, send) });
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
        if iovcnt > SEGMENTS_MAX || (data.is_null() && iovcnt > 0) {
            let text = "cci_messenger_sendv: data is NULL, or more than 1024 segments";
            return Err(Failure::with_text(CCI_EINVAL, text));
        }
        let how = how(connection, context, flags)?;
        // SAFETY: as the caller promises.
        let messenger = unsafe { CMessenger::of(messenger) }?;
        let mut inline: [&[u8]; SEGMENTS_INLINE] = [&[]; SEGMENTS_INLINE];
        let mut apart = Vec::new();
        let count = iovcnt as usize;
        let segments = if count <= SEGMENTS_INLINE {
            &mut inline[..count]
        } else {
            apart.resize(count, &[][..]);
            &mut apart[..]
        };
        for (at, segment) in segments.iter_mut().enumerate() {
            // SAFETY: `data` points to `count` segments, and each to its bytes, says the caller.
            *segment = unsafe {
                let iovec { iov_base, iov_len } = data.add(at).read();
                bytes(iov_base, iov_len)?
            };
        }
        let segments = &*segments;
        let total_bytes = segments.iter().try_fold(0_usize, |sum, segment| sum.checked_add(segment.len()));
        if how.is_lent
            && count <= limits::LONG_SEGMENTS_MAX
            && total_bytes.is_some_and(|total| total > COPIED_BYTES_MAX)
        {
            let mut memories = Vec::with_capacity(count);
            for segment in segments.iter().filter(|segment| !segment.is_empty()) {
                // SAFETY: as the caller promises.
                memories.push(unsafe { memory_of(segment.as_ptr().cast(), segment.len()) }?);
            }
            let parts: Vec<_> = memories.iter().map(|(memory, range)| (memory, range.clone())).collect();
            // SAFETY: as the caller promises.
            return messenger.with(|messenger| unsafe { start(messenger, how, &parts[..], send) });
        }
        // SAFETY: as the caller promises.
        messenger.with(|messenger| unsafe { start(messenger, how, segments, send) })
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
