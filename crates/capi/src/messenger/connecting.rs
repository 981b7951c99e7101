//! Connections of messengers.

use super::handle::CMessenger;
use super::pool::{CEvent, Held};
use super::types::*;
use crate::connecting::attribute_of;
use crate::connections::{bytes, context_of, duration};
use crate::endpoint::text;
use crate::guard::{Failure, guard};
use crate::types::*;
use cci::{ConnectRequest, Connection};
use libc::{c_char, c_int, c_void, timeval};

/// Starts connecting to another messenger.
///
/// # Safety
/// `messenger` is NULL or open; `server_uri` is NULL or a C string; `data_ptr` points to `data_len` bytes; `timeout` is NULL or a
/// `struct timeval`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_connect(
    messenger: *const cci_messenger_t,
    server_uri: *const c_char,
    data_ptr: *const c_void,
    data_len: u32,
    attribute: cci_conn_attribute_t,
    context: *const c_void,
    timeout: *const timeval,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those of the four.
        let (messenger, uri, request, timeout) = unsafe {
            (
                CMessenger::of(messenger)?,
                text(server_uri, "cci_messenger_connect: server_uri")?,
                bytes(data_ptr, data_len as usize)?,
                duration(timeout)?,
            )
        };
        let (attribute, context) = (attribute_of(attribute)?, context_of(context));
        messenger.with(|messenger| Ok(messenger.connect(uri, request, attribute, context, timeout)?))
    })
}

/// Takes the connection request out of its event, for its one answer.
///
/// # Safety
/// `event` is NULL or an event that was not returned yet.
unsafe fn take_request(event: *const cci_messenger_event_t) -> Result<ConnectRequest, Failure> {
    // SAFETY: as the caller promises.
    unsafe {
        CEvent::<CMessenger>::answer(event, |held| {
            let request = match held {
                Held::Connect(request, _) => request.take(),
                _ => None,
            };
            let not_one = || Failure::with_text(CCI_EINVAL, "not a connection request");
            (request.is_some(), request.ok_or_else(not_one))
        })
    }
}

/// Accepts a connection request.
///
/// # Safety
/// `messenger` is NULL or open; `event` is NULL or an event that was not returned yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_accept(
    messenger: *const cci_messenger_t,
    event: *const cci_messenger_event_t,
    context: *const c_void,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (messenger, request) = unsafe { (CMessenger::of(messenger)?, take_request(event)?) };
        messenger.with(|messenger| Ok(messenger.accept(request, context_of(context))?))
    })
}

/// Rejects a connection request.
///
/// # Safety
/// As [`cci_messenger_accept`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_reject(
    messenger: *const cci_messenger_t,
    event: *const cci_messenger_event_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (messenger, request) = unsafe { (CMessenger::of(messenger)?, take_request(event)?) };
        request.reject();
        // The refusal waits at the endpoint; it is sent now, since the program may sleep next.
        messenger.with(|messenger| {
            messenger.arm();
            Ok(())
        })
    })
}

/// Closes a connection from this side.
///
/// # Safety
/// `messenger` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_disconnect(
    messenger: *const cci_messenger_t,
    connection: u64,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let messenger = unsafe { CMessenger::of(messenger) }?;
        let connection = Connection::from_bits(connection);
        messenger.with(|messenger| {
            if !messenger.is_open(connection) {
                let text = "cci_messenger_disconnect: the connection is closed already, or is none of this messenger";
                return Err(Failure::with_text(CCI_EINVAL, text));
            }
            messenger.disconnect(connection);
            Ok(())
        })
    })
}
