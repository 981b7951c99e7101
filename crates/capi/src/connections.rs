//! Connections behind C pointers: their structs, and making and ending them.
//!
//! A connection's struct is at the place its index has in the engine's table, in a block that never moves. It is
//! filled when the first event of the connection is given out, and overwritten only when the engine gives its index to
//! a later connection and that one's first event is given out. So a completion that comes after `cci_disconnect` still
//! points to memory of the endpoint's, with the old connection in it.

use crate::endpoint::{CEndpoint, text};
use crate::events::CEvent;
use crate::guard::{Failure, guard};
use crate::types::*;
use cci::{Attribute, Connection, Endpoint};
use libc::{c_char, c_int, c_void, timeval};
use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::ptr::{null, null_mut};
use std::time::Duration;

/// What `cci_connection_t *` points to. The engine's name for the connection lies where the public struct has
/// padding: 32 bytes in all.
#[repr(C)]
pub(crate) struct CConnection {
    max_send_size: u32,
    index: u32,
    endpoint: *const cci_endpoint_t,
    attribute: cci_conn_attribute_t,
    generation: u32,
    context: *mut c_void,
}

const _: () = {
    assert!(size_of::<CConnection>() == size_of::<cci_connection_t>());
    assert!(offset_of!(CConnection, max_send_size) == offset_of!(cci_connection_t, max_send_size));
    assert!(offset_of!(CConnection, endpoint) == offset_of!(cci_connection_t, endpoint));
    assert!(offset_of!(CConnection, attribute) == offset_of!(cci_connection_t, attribute));
    assert!(offset_of!(CConnection, context) == offset_of!(cci_connection_t, context));
};

const EMPTY: CConnection = CConnection {
    max_send_size: 0,
    index: 0,
    endpoint: null(),
    attribute: CCI_CONN_ATTR_RO,
    generation: 0,
    context: null_mut(),
};

const BLOCK: usize = 128;

/// The structs of an endpoint's connections, in blocks of 4 KiB that stay where they are.
#[derive(Default)]
pub(crate) struct Table {
    /// `UnsafeCell`: the program reads the structs while we hold `&mut Table`.
    blocks: Vec<Box<[UnsafeCell<CConnection>; BLOCK]>>,
}

// SAFETY: the table moves with its endpoint; its raw pointers are not used through it.
unsafe impl Send for Table {}

impl Table {
    /// The struct of a connection, filled if this is the first that is heard of it.
    pub fn get(
        &mut self,
        owner: &CEndpoint,
        endpoint: &Endpoint,
        connection: Connection,
    ) -> *const cci_connection_t {
        let bits = connection.to_bits();
        let (index, generation) = (bits as u32, (bits >> 32) as u32);
        let (block, within) = (index as usize / BLOCK, index as usize % BLOCK);
        while self.blocks.len() <= block {
            self.blocks.push(Box::new([const { UnsafeCell::new(EMPTY) }; BLOCK]));
        }
        let place = self.blocks[block][within].get();
        // SAFETY: only we write the structs, under the endpoint's lock, which we hold.
        let filled = unsafe { !(*place).endpoint.is_null() && (*place).generation == generation };
        // A connection that the engine does not know any more keeps what the place has: its last events may point there.
        if !filled && let Some(attribute) = endpoint.attribute(connection) {
            let fresh = CConnection {
                max_send_size: endpoint.max_send_size(connection).unwrap_or(0),
                index,
                endpoint: owner.public(),
                attribute: attribute_to_c(attribute),
                generation,
                context: context_to_c(endpoint.context(connection).unwrap_or(0)),
            };
            // SAFETY: as above. The program has no right to the connection that was here: its index is the engine's
            // to give again only after `cci_disconnect`.
            unsafe { place.write(fresh) };
        }
        place.cast_const().cast()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.blocks.len() * size_of::<[CConnection; BLOCK]>() + self.blocks.capacity() * size_of::<usize>()
    }
}

/// The endpoint and the engine's name behind a program's connection pointer.
///
/// # Safety
/// `connection` is NULL or was given out by an event of an endpoint that is open and stays so for `'a`.
#[inline]
pub(crate) unsafe fn resolve<'a>(
    connection: *const cci_connection_t,
) -> Result<(&'a CEndpoint, Connection), Failure> {
    // SAFETY: our struct, of which the public one shows a part; the caller promises that it is there. It is written
    // only before a program gets the pointer.
    let Some(found) = (unsafe { connection.cast::<CConnection>().as_ref() }) else {
        return Err(Failure::told(CCI_EINVAL, "the connection is NULL"));
    };
    // SAFETY: the endpoint holds the connection's memory, so it is there too.
    let endpoint = unsafe { CEndpoint::of(found.endpoint) }?;
    Ok((endpoint, Connection::from_bits(u64::from(found.generation) << 32 | u64::from(found.index))))
}

/// Contexts pass through the engine as numbers and come back the same pointers.
pub(crate) fn context_of(context: *const c_void) -> u64 {
    context.expose_provenance() as u64
}

/// See [`context_of`].
pub(crate) fn context_to_c(context: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(context as usize)
}

pub(crate) const fn attribute_to_c(attribute: Attribute) -> cci_conn_attribute_t {
    match attribute {
        Attribute::ReliableOrdered => CCI_CONN_ATTR_RO,
        Attribute::ReliableUnordered => CCI_CONN_ATTR_RU,
        Attribute::Unreliable => CCI_CONN_ATTR_UU,
    }
}

fn attribute_of(attribute: cci_conn_attribute_t) -> Result<Attribute, Failure> {
    match attribute {
        CCI_CONN_ATTR_RO => Ok(Attribute::ReliableOrdered),
        CCI_CONN_ATTR_RU => Ok(Attribute::ReliableUnordered),
        CCI_CONN_ATTR_UU => Ok(Attribute::Unreliable),
        CCI_CONN_ATTR_UU_MC_TX | CCI_CONN_ATTR_UU_MC_RX => Err(Failure::told(
            CCI_ERR_NOT_IMPLEMENTED,
            "multicast connections are not offered by this device",
        )),
        other => Err(Failure::told(CCI_EINVAL, format!("{other} is not a connection attribute"))),
    }
}

/// A time-out from C; NULL = none.
///
/// # Safety
/// `timeout` is NULL or points to a `struct timeval`.
pub(crate) unsafe fn duration(timeout: *const timeval) -> Result<Option<Duration>, Failure> {
    // SAFETY: as the caller promises.
    let Some(timeout) = (unsafe { timeout.as_ref() }) else { return Ok(None) };
    match (u64::try_from(timeout.tv_sec), u32::try_from(timeout.tv_usec)) {
        (Ok(seconds), Ok(micros)) if micros < 1_000_000 => Ok(Some(Duration::new(seconds, micros * 1000))),
        _ => Err(Failure::told(CCI_EINVAL, "the timeout is negative, or has a million microseconds or more")),
    }
}

/// Bytes from C.
///
/// # Safety
/// `data` is NULL or points to `len` bytes that stay for `'a` and are not written meanwhile.
#[inline]
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() || len > isize::MAX as usize {
        return Err(Failure::told(
            CCI_EINVAL,
            "the data are NULL but their length is not 0, or it is beyond any memory",
        ));
    }
    // SAFETY: as the caller promises, and the length fits.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) })
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
        endpoint
            .with(|endpoint, _| endpoint.connect(uri, request, attribute, context_of(context), timeout))??;
        Ok(())
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
        // SAFETY: the event is out, so its endpoint is open; `owner` refuses one that outlived its endpoint.
        let endpoint = unsafe { event.owner() }?;
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
        let endpoint = unsafe { event.owner() }?;
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
        endpoint.with(|endpoint, _| {
            if endpoint.attribute(connection).is_none() {
                return Err(Failure::told(CCI_EINVAL, "cci_disconnect: the connection is closed already"));
            }
            endpoint.disconnect(connection);
            Ok(())
        })?
    })
}
