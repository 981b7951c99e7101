//! Making and ending connections: where their structs meet the endpoints and events that C names with them.

use crate::connections::{bytes, context_of, duration, names};
use crate::endpoint::{CEndpoint, text};
use crate::events::CEvent;
use crate::guard::{Failure, guard};
use crate::types::*;
use cci::{Attribute, Connection};
use libc::{c_char, c_int, c_void, timeval};

/// The endpoint and the engine's name behind a program's connection pointer.
///
/// # Safety
/// `connection` is NULL or was given out by an event of an endpoint that is open and stays so for `'a`.
#[inline]
pub(crate) unsafe fn resolve<'a>(
    connection: *const cci_connection_t,
) -> Result<(&'a CEndpoint, Connection), Failure> {
    // SAFETY: as the caller promises.
    let (endpoint, connection) = unsafe { names(connection) }?;
    // SAFETY: the endpoint holds the connection's memory, so it is there too.
    Ok((unsafe { CEndpoint::of(endpoint) }?, connection))
}

pub(crate) fn attribute_of(attribute: cci_conn_attribute_t) -> Result<Attribute, Failure> {
    match attribute {
        CCI_CONN_ATTR_RO => Ok(Attribute::ReliableOrdered),
        CCI_CONN_ATTR_RU => Ok(Attribute::ReliableUnordered),
        CCI_CONN_ATTR_UU => Ok(Attribute::Unreliable),
        CCI_CONN_ATTR_UU_MC_TX => Ok(Attribute::MulticastSend),
        CCI_CONN_ATTR_UU_MC_RX => Ok(Attribute::MulticastReceive),
        other => Err(Failure::with_text(CCI_EINVAL, format!("{other} is not a connection attribute"))),
    }
}

/// Starts connecting.
///
/// # Safety
/// `endpoint` is NULL or open; `server_uri` NULL or a C string; `data_ptr` points to `data_len` bytes; `timeout` is
/// NULL or points to a `struct timeval`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_connect(
    endpoint: *const cci_endpoint_t,
    server_uri: *const c_char,
    data_ptr: *const c_void,
    data_len: u32,
    attribute: cci_conn_attribute_t,
    context: *const c_void,
    _flags: c_int,
    timeout: *const timeval,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those of the four.
        let (endpoint, uri, request, timeout) = unsafe {
            (
                CEndpoint::of(endpoint)?,
                text(server_uri, "cci_connect: server_uri")?,
                bytes(data_ptr, data_len as usize)?,
                duration(timeout)?,
            )
        };
        let attribute = attribute_of(attribute)?;
        endpoint.with(|endpoint, side| {
            side.check_connects("connect by cci_job_connect()")?;
            Ok(endpoint.connect(uri, request, attribute, context_of(context), timeout)?)
        })?
    })
}

/// Starts connecting to somebody of a name.
///
/// # Safety
/// As `cci_connect`; `peer` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_connect_expecting(
    endpoint: *const cci_endpoint_t,
    peer: *const c_char,
    server_uri: *const c_char,
    data_ptr: *const c_void,
    data_len: u32,
    attribute: cci_conn_attribute_t,
    context: *const c_void,
    _flags: c_int,
    timeout: *const timeval,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those of the five.
        let (endpoint, peer, uri, request, timeout) = unsafe {
            (
                CEndpoint::of(endpoint)?,
                text(peer, "cci_connect_expecting: peer")?,
                text(server_uri, "cci_connect_expecting: server_uri")?,
                bytes(data_ptr, data_len as usize)?,
                duration(timeout)?,
            )
        };
        let (attribute, context) = (attribute_of(attribute)?, context_of(context));
        endpoint.with(|endpoint, side| {
            side.check_connects("connect by cci_job_connect()")?;
            Ok(endpoint.connect_expecting(peer, uri, request, attribute, context, timeout)?)
        })?
    })
}

/// Accepts a connection request.
///
/// # Safety
/// `conn_req` is NULL or an event that was not returned yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_accept(conn_req: *const cci_event_t, context: *const c_void) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let event = unsafe { CEvent::of(conn_req) }?;
        // SAFETY: the event is out, so its endpoint is open; `c_endpoint` refuses one that outlived its endpoint.
        let endpoint = unsafe { event.c_endpoint() }?;
        let request = event.take_request()?;
        endpoint.with(|endpoint, _| endpoint.accept(request, context_of(context)))??;
        Ok(())
    })
}

/// Rejects a connection request.
///
/// # Safety
/// `conn_req` is NULL or an event that was not returned yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_reject(conn_req: *const cci_event_t) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let event = unsafe { CEvent::of(conn_req) }?;
        // SAFETY: as in `cci_accept`.
        let endpoint = unsafe { event.c_endpoint() }?;
        event.take_request()?.reject();
        // The word waits at the endpoint; send it now, since the program may sleep next.
        endpoint.with(|endpoint, _| endpoint.arm()).map(|_| ())
    })
}

/// Closes a connection from this side.
///
/// # Safety
/// `connection` is NULL or was given out by an event of an endpoint that is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_disconnect(connection: *const cci_connection_t) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (endpoint, connection) = unsafe { resolve(connection) }?;
        endpoint.with(|endpoint, side| {
            if endpoint.attribute(connection).is_none() {
                return Err(Failure::with_text(
                    CCI_EINVAL,
                    "cci_disconnect: the connection is closed already",
                ));
            }
            if let (Some(ranks), Some(contexts)) = (&mut side.ranks, &mut side.connections.contexts) {
                ranks.closed(endpoint, contexts, connection);
            }
            endpoint.disconnect(connection);
            Ok(())
        })?
    })
}
