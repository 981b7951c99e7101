//! What the 2011 paper has and CCI 2.x dropped, and what users of the rivals miss. All of it comes after the 2.x
//! part of the header.

use crate::connecting::resolve;
use crate::connections::{bytes, context_of, duration};
use crate::endpoint::{CEndpoint, text};
use crate::events::{CEvent, clear, fill_any, next_shown};
use crate::guard::{self, Failure, guard};
use crate::json;
use crate::messages::send;
use crate::opening;
use crate::options::give_text;
use crate::security::security_of;
use crate::types::*;
use cci::Options;
use libc::{c_char, c_int, c_void, timeval};
use std::mem::offset_of;
use std::time::Duration;

/// Sends a header and data as one message (CCI-042).
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint; the pointers point to as many bytes as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_send2(
    connection: *const cci_connection_t,
    header_ptr: *const c_void,
    header_len: u32,
    data_ptr: *const c_void,
    data_len: u32,
    context: *const c_void,
    flags: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those of all three.
        unsafe {
            let segments = [bytes(header_ptr, header_len as usize)?, bytes(data_ptr, data_len as usize)?];
            send(connection, &segments, context, flags)
        }
    })
}

/// Accepts a connection request on another endpoint than the one it came to (CCI-037).
///
/// # Safety
/// `conn_req` is NULL or an event that was not returned yet; `endpoint` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_accept_on(
    conn_req: *const cci_event_t,
    endpoint: *const cci_endpoint_t,
    context: *const c_void,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let event = unsafe { CEvent::of(conn_req) }?;
        // SAFETY: the event is out, so its endpoint is open; `c_endpoint` refuses one that outlived its endpoint.
        let origin = unsafe { event.c_endpoint() }?;
        // SAFETY: as the caller promises.
        let target = unsafe { CEndpoint::of(endpoint) }?;
        target.with(|_, side| side.check_connects("accept by themselves"))??;
        let request = event.take_request()?;
        let accepted = target.with(|endpoint, _| endpoint.accept(request, context_of(context)))?;
        // What became of the request waits at its endpoint. Without locks it may be in another thread's hands: there
        // it is noticed at its next call.
        if origin.shared().is_some() && !std::ptr::eq(origin, target) {
            origin.with(|endpoint, _| endpoint.arm())?;
        }
        Ok(accepted?)
    })
}

/// Waits for the next event (CCI-019).
///
/// # Safety
/// `endpoint` is NULL or open; `timeout` NULL or a `struct timeval`; `event` NULL or memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_wait_event(
    endpoint: *const cci_endpoint_t,
    timeout: *const timeval,
    event: *mut *const cci_event_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { clear(event, "cci_wait_event: event is NULL") }?;
        // SAFETY: as the caller promises.
        let (c_endpoint, timeout) = unsafe { (CEndpoint::of(endpoint)?, duration(timeout)?) };
        // Before the event, so that none is lost for want of a struct.
        let slot = c_endpoint.with(|_, side| side.events.take())?.ok_or(Failure::code(CCI_ENOBUFS))?;
        let waited = c_endpoint.wait_with(timeout, |endpoint, side| {
            let first = endpoint.next_event()?;
            let event = next_shown(endpoint, side, first)?;
            Some(fill_any(c_endpoint, endpoint, side, slot, event))
        });
        let found = match waited {
            Ok(Some(found)) => found,
            other => {
                let failure = other.map_or_else(|failure| failure, |_| Failure::code(CCI_EAGAIN));
                c_endpoint.with(|_, side| side.events.put_back(slot))?;
                return Err(failure);
            }
        };
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { event.write(found) };
        Ok(())
    })
}

/// Opens an endpoint with options.
///
/// # Safety
/// As `cci_create_endpoint_at`; `options` is NULL or points to a struct of the size that its first field says, and so does
/// its `security`, whose pointers are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_create_endpoint_with(
    device: *const cci_device_t,
    service: *const c_char,
    options: *const cci_endpoint_options_t,
    _flags: c_int,
    endpoint: *mut *const cci_endpoint_t,
    fd: *mut cci_os_handle_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let Wanted { mut options, progress_thread } = unsafe { options_of(options) }?;
        if !service.is_null() {
            // SAFETY: as the caller promises.
            options.service = opening::port_or_name(unsafe { text(service, "service") }?);
        }
        // SAFETY: the caller's promises are `create`'s.
        unsafe { opening::create(device, options, progress_thread, endpoint, fd) }
    })
}

/// What a program asks for.
pub(crate) struct Wanted {
    pub options: Options,
    pub progress_thread: bool,
}

/// # Safety
/// `given` is NULL or points to a struct of the size that its first field says, and so does its `security`.
pub(crate) unsafe fn options_of(given: *const cci_endpoint_options_t) -> Result<Wanted, Failure> {
    let mut options = Options::default();
    if given.is_null() {
        return Ok(Wanted { options, progress_thread: false });
    }
    // SAFETY: the size is the first field, and there is one, says the caller.
    let size = unsafe { given.cast::<u32>().read() } as usize;
    if size < offset_of!(cci_endpoint_options_t, recv_buf_count) || size > 4096 {
        return Err(Failure::with_text(
            CCI_EINVAL,
            "the options' size field must be sizeof(cci_endpoint_options_t)",
        ));
    }
    // A program built with an older header gives fewer fields, one built with a newer header more, which must be 0.
    let known = size_of::<cci_endpoint_options_t>();
    // SAFETY: `size` bytes are there, says the caller.
    let given_bytes = unsafe { std::slice::from_raw_parts(given.cast::<u8>(), size) };
    if given_bytes.get(known..).is_some_and(|remainder| remainder.iter().any(|byte| *byte != 0)) {
        return Err(Failure::with_text(
            CCI_EINVAL,
            "the options have fields that this library does not know",
        ));
    }
    let mut fields = [0_u8; size_of::<cci_endpoint_options_t>()];
    let copied = size.min(known);
    fields[..copied].copy_from_slice(&given_bytes[..copied]);
    // SAFETY: integers and plain pointers: any bytes are a value.
    let fields: cci_endpoint_options_t = unsafe { std::mem::transmute(fields) };
    let micros = |value: u32| Duration::from_micros(u64::from(value));
    if fields.recv_buf_count > 0 {
        options.recv_buffers = fields.recv_buf_count;
    }
    if fields.send_buf_count > 0 {
        options.send_buffers = fields.send_buf_count;
    }
    if fields.send_timeout_us > 0 {
        options.send_timeout = micros(fields.send_timeout_us);
    }
    if fields.keepalive_timeout_us > 0 {
        options.keepalive = Some(micros(fields.keepalive_timeout_us));
    }
    if fields.rma_op_count > 0 {
        options.rma_operations = fields.rma_op_count;
    }
    if fields.memory_cap_bytes > 0 {
        options.memory_bytes_max = fields.memory_cap_bytes;
    }
    if fields.reserved != 0 {
        return Err(Failure::with_text(CCI_EINVAL, "the options' reserved field must be 0"));
    }
    if !fields.security.is_null() {
        // SAFETY: as the caller promises.
        options.security = Some(unsafe { security_of(fields.security) }?);
    }
    Ok(Wanted { options, progress_thread: fields.progress_thread != 0 })
}

/// Says why a connection goes where it goes and what holds it up.
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint; `text` is NULL or memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_explain(connection: *const cci_connection_t, text: *mut *mut c_char) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (c_endpoint, connection) = unsafe { resolve(connection) }?;
        if text.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_explain: text is NULL"));
        }
        let explanation = c_endpoint.with(|endpoint, _| endpoint.explain(connection))?.ok_or_else(|| {
            Failure::with_text(CCI_ERR_DISCONNECTED, "cci_explain: the connection is closed")
        })?;
        let copy = give_text(&explanation.to_string())?;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { text.write(copy) };
        Ok(())
    })
}

/// Gives counters as JSON: of a connection, or, where that is NULL, of an endpoint.
///
/// # Safety
/// `endpoint` is NULL or open; `connection` is NULL or of an open endpoint; `json` is NULL or memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_get_counters(
    endpoint: *const cci_endpoint_t,
    connection: *const cci_connection_t,
    json: *mut *mut c_char,
) -> c_int {
    guard(|| {
        if json.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_get_counters: json is NULL"));
        }
        let text = if connection.is_null() {
            // SAFETY: as the caller promises.
            let c_endpoint = unsafe { CEndpoint::of(endpoint) }?;
            let (counters, side_bytes) =
                c_endpoint.with(|endpoint, side| (endpoint.counters(), side.bytes()))?;
            json::of_endpoint(&counters, side_bytes)
        } else {
            // SAFETY: as the caller promises.
            let (c_endpoint, connection) = unsafe { resolve(connection) }?;
            let counters = c_endpoint.with(|endpoint, _| endpoint.connection_counters(connection))?;
            let closed =
                || Failure::with_text(CCI_ERR_DISCONNECTED, "cci_get_counters: the connection is closed");
            json::of_connection(&counters.ok_or_else(closed)?)
        };
        let copy = give_text(&text)?;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { json.write(copy) };
        Ok(())
    })
}

/// What the last failing call of this thread had to say.
#[unsafe(no_mangle)]
pub extern "C" fn cci_last_error() -> *const c_char {
    guard::last()
}
