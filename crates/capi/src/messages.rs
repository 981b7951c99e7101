//! Sending.

use crate::connecting::resolve;
use crate::connections::{bytes, context_of};
use crate::endpoint::CEndpoint;
use crate::guard::{Failure, guard};
use crate::status::of_status;
use crate::types::*;
use cci::{Attribute, Connection, SendFlags};
use libc::{c_int, c_void, iovec};

/// Segments that are gathered without allocating.
const SEGMENTS_INLINE: usize = 16;
/// Most segments of a send: what the system's own `writev` takes.
const SEGMENTS_MAX: u32 = 1024;

const FLAGS: c_int =
    CCI_FLAG_BLOCKING | CCI_FLAG_NO_COPY | CCI_FLAG_SILENT | CCI_FLAG_READ | CCI_FLAG_WRITE | CCI_FLAG_FENCE;

/// Sends a message made of segments.
///
/// # Safety
/// `connection` as for [`resolve`].
pub(crate) unsafe fn send(
    connection: *const cci_connection_t,
    segments: &[&[u8]],
    context: *const c_void,
    flags: c_int,
) -> Result<(), Failure> {
    // SAFETY: as the caller promises.
    let (c_endpoint, connection) = unsafe { resolve(connection) }?;
    if flags & !FLAGS != 0 {
        return Err(Failure::with_text(CCI_EINVAL, format!("unknown flags {:#x} of a send", flags & !FLAGS)));
    }
    let mut rust_flags = SendFlags::NONE;
    if flags & CCI_FLAG_NO_COPY != 0 {
        rust_flags = rust_flags | SendFlags::NO_COPY;
    }
    if flags & CCI_FLAG_SILENT != 0 {
        rust_flags = rust_flags | SendFlags::SILENT;
        if flags & CCI_FLAG_NO_COPY != 0 {
            check_silent_no_copy(c_endpoint, connection)?;
        }
    }
    if flags & CCI_FLAG_BLOCKING == 0 {
        let context = context_of(context);
        return c_endpoint.with(|endpoint, _| {
            endpoint.send_vectored(connection, segments, context, rust_flags).map_err(Failure::from)
        })?;
    }
    c_endpoint.refuse_handler()?;
    let status = match c_endpoint.shared() {
        Some(shared) => shared.send_blocking(connection, segments)?,
        None => c_endpoint.with(|endpoint, _| endpoint.send_blocking(connection, segments))??,
    };
    match of_status(status) {
        CCI_SUCCESS => Ok(()),
        failed => Err(Failure::with_text(failed, format!("blocking send: {status}"))),
    }
}

/// Only where completions come in order does a later one show that the buffer of a silent send is free.
pub(crate) fn check_silent_no_copy(c_endpoint: &CEndpoint, connection: Connection) -> Result<(), Failure> {
    match c_endpoint.with(|endpoint, _| endpoint.attribute(connection))? {
        Some(Attribute::ReliableOrdered) | None => Ok(()),
        Some(_) => Err(Failure::with_text(
            CCI_EINVAL,
            "CCI_FLAG_SILENT with CCI_FLAG_NO_COPY needs an RO connection",
        )),
    }
}

/// Sends one message.
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint; `msg_ptr` points to `msg_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_send(
    connection: *const cci_connection_t,
    msg_ptr: *const c_void,
    msg_len: u32,
    context: *const c_void,
    flags: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let message = unsafe { bytes(msg_ptr, msg_len as usize) }?;
        // As a rule; `send` does it for several segments, at a higher price.
        let rust_flags = match flags {
            0 => SendFlags::NONE,
            CCI_FLAG_SILENT => SendFlags::SILENT,
            // SAFETY: as the caller promises.
            _ => return unsafe { send(connection, &[message], context, flags) },
        };
        // SAFETY: as the caller promises.
        let (c_endpoint, connection) = unsafe { resolve(connection) }?;
        let context = context_of(context);
        c_endpoint.with(|endpoint, _| {
            endpoint.send(connection, message, context, rust_flags).map_err(Failure::from)
        })?
    })
}

/// Sends one message gathered from segments.
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint; `data` points to `iovcnt` segments, each of which points
/// to as many bytes as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_sendv(
    connection: *const cci_connection_t,
    data: *const iovec,
    iovcnt: u32,
    context: *const c_void,
    flags: c_int,
) -> c_int {
    guard(|| {
        if iovcnt > SEGMENTS_MAX || (data.is_null() && iovcnt > 0) {
            return Err(Failure::with_text(
                CCI_EINVAL,
                "cci_sendv: data is NULL, or more than 1024 segments",
            ));
        }
        let count = iovcnt as usize;
        let mut total_bytes = 0_u64;
        let segment = |at: usize| {
            // SAFETY: `data` points to `count` segments, says the caller, and `at < count`.
            let iovec { iov_base, iov_len } = unsafe { data.add(at).read() };
            total_bytes = total_bytes.saturating_add(iov_len as u64);
            if total_bytes > u64::from(u32::MAX) {
                return Err(Failure::with_text(CCI_EMSGSIZE, "cci_sendv: the segments have more than 4 GiB"));
            }
            // SAFETY: as the caller promises of each segment.
            unsafe { bytes(iov_base, iov_len) }
        };
        if count <= SEGMENTS_INLINE {
            let mut inline: [&[u8]; SEGMENTS_INLINE] = [&[]; SEGMENTS_INLINE];
            for (slot, found) in inline.iter_mut().zip((0..count).map(segment)) {
                *slot = found?;
            }
            // SAFETY: as the caller promises.
            return unsafe { send(connection, &inline[..count], context, flags) };
        }
        let segments = (0..count).map(segment).collect::<Result<Vec<_>, _>>()?;
        // SAFETY: as the caller promises.
        unsafe { send(connection, &segments, context, flags) }
    })
}
