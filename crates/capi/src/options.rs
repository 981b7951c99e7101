//! Options of endpoints and connections.

use crate::connecting::resolve;
use crate::endpoint::CEndpoint;
use crate::guard::{Failure, guard};
use crate::loans::loans_of;
use crate::ranks::not_of_a_job;
use crate::types::*;
use cci::{Connection, DisconnectPolicy};
use libc::{c_char, c_int, c_void};
use std::time::Duration;

/// An option, and which kind of handle it is of.
enum Handle<'a> {
    Endpoint(&'a CEndpoint),
    Connection(&'a CEndpoint, Connection),
}

/// # Safety
/// `handle` is NULL or what `name` asks for: an open endpoint, or a connection of one.
unsafe fn handle_of<'a>(
    handle: *const cci_opt_handle_t,
    name: cci_opt_name_t,
) -> Result<Handle<'a>, Failure> {
    if handle.is_null() {
        return Err(Failure::with_text(CCI_EINVAL, "the option's handle is NULL"));
    }
    match name {
        CCI_OPT_ENDPT_SEND_TIMEOUT..=CCI_OPT_ENDPT_RMA_ALIGN
        | CCI_OPT_EXT_ENDPT_MEMORY_CAP
        | CCI_OPT_EXT_ENDPT_MEMORY_USED
        | CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS => {
            // SAFETY: as the caller promises.
            Ok(Handle::Endpoint(unsafe { CEndpoint::of(handle.cast()) }?))
        }
        CCI_OPT_CONN_SEND_TIMEOUT | CCI_OPT_CONN_KEEPALIVE_TIMEOUT | CCI_OPT_EXT_CONN_LOANS => {
            // SAFETY: as the caller promises.
            let (endpoint, connection) = unsafe { resolve(handle.cast()) }?;
            Ok(Handle::Connection(endpoint, connection))
        }
        other => Err(Failure::with_text(CCI_EINVAL, format!("there is no option {other}"))),
    }
}

fn micros(value: u32) -> Duration {
    Duration::from_micros(u64::from(value))
}

/// 0 = off.
fn keepalive(value: u32) -> Option<Duration> {
    (value > 0).then(|| micros(value))
}

/// As much of a time as the number holds.
fn to_micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

fn send_timeout(value: u32) -> Result<Duration, Failure> {
    if value == 0 {
        return Err(Failure::with_text(CCI_ERANGE, "a send timeout of 0 us would fail every send"));
    }
    Ok(micros(value))
}

/// Sets an option.
///
/// # Safety
/// `handle` is NULL or what `name` asks for; `val` is NULL or points to a value of the option's type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_set_opt(
    handle: *const cci_opt_handle_t,
    name: cci_opt_name_t,
    val: *const c_void,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let handle = unsafe { handle_of(handle, name) }?;
        if val.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_set_opt: val is NULL"));
        }
        if matches!(
            name,
            CCI_OPT_ENDPT_URI
                | CCI_OPT_ENDPT_RMA_ALIGN
                | CCI_OPT_EXT_ENDPT_MEMORY_CAP
                | CCI_OPT_EXT_ENDPT_MEMORY_USED
        ) {
            return Err(Failure::with_text(CCI_EINVAL, "cci_set_opt: this option can only be read"));
        }
        // SAFETY: every option that can be set is a `uint32_t`, and `val` points to one, says the caller.
        let value = unsafe { val.cast::<u32>().read_unaligned() };
        match handle {
            Handle::Endpoint(endpoint) => set_endpoint(endpoint, name, value),
            Handle::Connection(endpoint, connection) => set_connection(endpoint, connection, name, value),
        }
    })
}

fn set_endpoint(c_endpoint: &CEndpoint, name: cci_opt_name_t, value: u32) -> Result<(), Failure> {
    c_endpoint.with(|endpoint, side| {
        match name {
            CCI_OPT_ENDPT_SEND_TIMEOUT => endpoint.set_default_send_timeout(send_timeout(value)?),
            CCI_OPT_ENDPT_KEEPALIVE_TIMEOUT => endpoint.set_default_keepalive(keepalive(value)),
            CCI_OPT_ENDPT_RECV_BUF_COUNT => endpoint.set_recv_buffers(value)?,
            CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS if value == 0 && side.ranks.is_some() => {
                return Err(not_of_a_job("get an event for every connection that ends"));
            }
            CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS => endpoint.set_disconnect_policy(match value {
                0 => DisconnectPolicy::Ignore,
                1 => DisconnectPolicy::Report,
                _ => return Err(Failure::with_text(CCI_ERANGE, "disconnect events are on (1) or off (0)")),
            }),
            _ => endpoint.set_send_buffers(value)?,
        }
        side.set_event_limit(endpoint.options());
        Ok(())
    })?
}

fn set_connection(
    c_endpoint: &CEndpoint,
    connection: Connection,
    name: cci_opt_name_t,
    value: u32,
) -> Result<(), Failure> {
    c_endpoint.with(|endpoint, _| {
        if name == CCI_OPT_CONN_SEND_TIMEOUT {
            endpoint.set_send_timeout(connection, send_timeout(value)?)?;
        } else if name == CCI_OPT_EXT_CONN_LOANS {
            endpoint.set_loans(connection, loans_of(value)?)?;
        } else {
            endpoint.set_keepalive(connection, keepalive(value))?;
        }
        Ok(())
    })?
}

/// Reads an option.
///
/// # Safety
/// `handle` is NULL or what `name` asks for; `val` is NULL or points to a place for a value of the option's type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_get_opt(
    handle: *const cci_opt_handle_t,
    name: cci_opt_name_t,
    val: *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let handle = unsafe { handle_of(handle, name) }?;
        if val.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_get_opt: val is NULL"));
        }
        match handle {
            // SAFETY: `val` points to a place for what the option is, says the caller.
            Handle::Endpoint(endpoint) => unsafe { get_endpoint(endpoint, name, val) },
            Handle::Connection(..) if name == CCI_OPT_EXT_CONN_LOANS => {
                Err(Failure::with_text(CCI_EINVAL, "cci_get_opt: this option can only be set"))
            }
            Handle::Connection(endpoint, connection) => {
                let timeouts = endpoint.with(|endpoint, _| endpoint.timeouts(connection))?;
                let Some((send, keepalive)) = timeouts else {
                    return Err(Failure::with_text(
                        CCI_ERR_DISCONNECTED,
                        "cci_get_opt: the connection is closed",
                    ));
                };
                let value =
                    if name == CCI_OPT_CONN_SEND_TIMEOUT { send } else { keepalive.unwrap_or_default() };
                // SAFETY: as above.
                unsafe { val.cast::<u32>().write_unaligned(to_micros(value)) };
                Ok(())
            }
        }
    })
}

/// # Safety
/// `val` points to a place for what the option is.
unsafe fn get_endpoint(
    c_endpoint: &CEndpoint,
    name: cci_opt_name_t,
    val: *mut c_void,
) -> Result<(), Failure> {
    let options = c_endpoint.with(|endpoint, _| endpoint.options().clone())?;
    let number = match name {
        CCI_OPT_ENDPT_SEND_TIMEOUT => to_micros(options.send_timeout),
        CCI_OPT_ENDPT_KEEPALIVE_TIMEOUT => to_micros(options.keepalive.unwrap_or_default()),
        CCI_OPT_ENDPT_RECV_BUF_COUNT => options.recv_buffers,
        CCI_OPT_ENDPT_SEND_BUF_COUNT => options.send_buffers,
        CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS => {
            let policy = c_endpoint.with(|endpoint, _| endpoint.disconnect_policy())?;
            u32::from(policy == DisconnectPolicy::Report)
        }
        CCI_OPT_ENDPT_URI => {
            let uri = c_endpoint.with(|endpoint, _| give_text(endpoint.uri()))??;
            // SAFETY: a `char **`, says the caller.
            unsafe { val.cast::<*mut c_char>().write_unaligned(uri) };
            return Ok(());
        }
        CCI_OPT_ENDPT_RMA_ALIGN => {
            // SAFETY: a `cci_alignment_t *`, says the caller.
            unsafe { val.cast::<cci_alignment_t>().write_unaligned(cci_alignment_t::default()) };
            return Ok(());
        }
        _ => {
            let bytes = if name == CCI_OPT_EXT_ENDPT_MEMORY_CAP {
                options.memory_bytes_max
            } else {
                c_endpoint.with(|endpoint, side| endpoint.counters().memory.total_bytes + side.bytes())?
            };
            // SAFETY: a `uint64_t *`, says the caller.
            unsafe { val.cast::<u64>().write_unaligned(bytes) };
            return Ok(());
        }
    };
    // SAFETY: a `uint32_t *`, says the caller.
    unsafe { val.cast::<u32>().write_unaligned(number) };
    Ok(())
}

/// A copy of a text from `malloc`, which the caller of the C interface frees.
pub(crate) fn give_text(text: &str) -> Result<*mut c_char, Failure> {
    // SAFETY: any size may be asked for.
    let copy = unsafe { libc::malloc(text.len() + 1) }.cast::<u8>();
    if copy.is_null() {
        return Err(Failure::with_text(CCI_ENOMEM, "out of memory"));
    }
    // SAFETY: the copy has room for the text and the NUL after it, and is not the text.
    unsafe {
        copy.copy_from_nonoverlapping(text.as_ptr(), text.len());
        copy.add(text.len()).write(0);
    }
    Ok(copy.cast())
}
