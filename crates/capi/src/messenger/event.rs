//! Events of a messenger on their way to C and back.

use super::handle::CMessenger;
use super::pool::{self, EMPTY, Held, Returned};
use super::types::*;
use crate::connections::{attribute_to_c, context_to_c, duration};
use crate::events::{clear, reason_to_c};
use crate::guard::{self, Failure, guard};
use crate::status::{of_call_failure, of_connect_failure, of_receive_failure, of_send_failure};
use crate::types::*;
use cci::messages::{CallFailure, Event, Message, Messenger};
use cci::{ConnectFailure, Connection};
use libc::{c_int, timeval};
use std::ptr::{NonNull, null};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

type CEvent = pool::CEvent<CMessenger>;

/// Writes an event into a struct of the pool.
fn fill(
    c_messenger: &Arc<CMessenger>,
    messenger: &Messenger,
    slot: NonNull<CEvent>,
    event: Event,
) -> *const cci_messenger_event_t {
    let on = |r#type, connection: Connection| {
        let context = context_to_c(messenger.endpoint().context(connection).unwrap_or(0));
        cci_messenger_event_t { r#type, connection: connection.to_bits(), context, ..EMPTY }
    };
    let shows = |event: cci_messenger_event_t, bytes: &[u8]| {
        let ptr = if bytes.is_empty() { null() } else { bytes.as_ptr().cast() };
        cci_messenger_event_t { ptr, len: bytes.len() as u64, ..event }
    };
    let opened = |r#type, context, result: Result<Connection, ConnectFailure>| {
        let (status, connection) = match result {
            Ok(connection) => (CCI_SUCCESS, connection.to_bits()),
            Err(failure) => {
                guard::remember(format!("connecting: {failure}"));
                (of_connect_failure(failure), 0)
            }
        };
        cci_messenger_event_t { r#type, status, connection, context: context_to_c(context), ..EMPTY }
    };
    let (public, held) = match event {
        Event::Sent { connection, context, result } => {
            let (status, code, len) = result.map_or_else(of_send_failure, |()| (CCI_SUCCESS, 0, 0));
            let (connection, context) = (connection.to_bits(), context_to_c(context));
            let r#type = CCI_MESSENGER_SENT;
            (cci_messenger_event_t { r#type, status, connection, context, code, len, ..EMPTY }, Held::Nothing)
        }
        Event::Message(message) => {
            let public = shows(on(CCI_MESSENGER_MESSAGE, message.connection()), &message);
            (public, Held::Message(message))
        }
        Event::Offer(offer) => {
            let public = on(CCI_MESSENGER_OFFER, offer.connection());
            let (id, len) = (offer.to_bits(), offer.len_bytes());
            (cci_messenger_event_t { id, len, ..public }, Held::Nothing)
        }
        Event::Received { offer, context, result } => {
            let public = cci_messenger_event_t {
                r#type: CCI_MESSENGER_RECEIVED,
                status: result.map_or_else(of_receive_failure, |()| CCI_SUCCESS),
                connection: offer.connection().to_bits(),
                context: context_to_c(context),
                len: offer.len_bytes(),
                id: offer.to_bits(),
                ..EMPTY
            };
            (public, Held::Nothing)
        }
        Event::Request(request) => {
            let public = shows(on(CCI_MESSENGER_REQUEST, request.connection()), &request);
            (cci_messenger_event_t { id: request.id().to_bits(), ..public }, Held::Request(request))
        }
        Event::RequestCancelled(request) => {
            let public = on(CCI_MESSENGER_REQUEST_CANCELLED, request.connection());
            (cci_messenger_event_t { id: request.to_bits(), ..public }, Held::Nothing)
        }
        Event::Reply { connection, context, result } => {
            let (connection, context) = (connection.to_bits(), context_to_c(context));
            let public = cci_messenger_event_t { r#type: CCI_MESSENGER_REPLY, connection, context, ..EMPTY };
            replied(public, result, shows)
        }
        Event::Connect { context, result } => (opened(CCI_MESSENGER_CONNECT, context, result), Held::Nothing),
        Event::Accept { context, result } => (opened(CCI_MESSENGER_ACCEPT, context, result), Held::Nothing),
        Event::ConnectRequest(request) => {
            let payload = request.data().to_vec();
            let code = attribute_to_c(request.attribute()) as u32;
            let public = cci_messenger_event_t { r#type: CCI_MESSENGER_CONNECT_REQUEST, code, ..EMPTY };
            (shows(public, &payload), Held::Connect(Some(request), payload))
        }
        Event::KeepaliveTimedOut { connection } => {
            (on(CCI_MESSENGER_KEEPALIVE_TIMEDOUT, connection), Held::Nothing)
        }
        Event::Disconnected { connection, context, reason } => {
            let (connection, context) = (connection.to_bits(), context_to_c(context));
            let (r#type, code) = (CCI_MESSENGER_DISCONNECTED, reason_to_c(reason) as u32);
            (cci_messenger_event_t { r#type, connection, context, code, ..EMPTY }, Held::Nothing)
        }
        Event::DeviceFailed => {
            (cci_messenger_event_t { r#type: CCI_MESSENGER_DEVICE_FAILED, ..EMPTY }, Held::Nothing)
        }
        // The tests of both languages see each kind of event that there is.
        other => unreachable!("an event that has no form in C: {other:?}"),
    };
    // SAFETY: `slot` was just taken from the pool, by the caller.
    unsafe { CEvent::give_out(slot, c_messenger, public, held) }
}

/// The end of a call.
fn replied(
    public: cci_messenger_event_t,
    result: Result<Message, CallFailure>,
    shows: impl FnOnce(cci_messenger_event_t, &[u8]) -> cci_messenger_event_t,
) -> (cci_messenger_event_t, Held) {
    match result {
        Ok(message) => (shows(public, &message), Held::Message(message)),
        Err(CallFailure::Error { code, message }) => {
            let public = cci_messenger_event_t { status: CCI_EXT_REPLY_ERROR, code, ..public };
            (shows(public, &message), Held::Message(message))
        }
        Err(CallFailure::NotSent(failure)) => {
            let (status, code, len) = of_send_failure(failure);
            (cci_messenger_event_t { status, code, len, not_sent: 1, ..public }, Held::Nothing)
        }
        Err(failure) => {
            let (status, len) = of_call_failure(&failure);
            (cci_messenger_event_t { status, len, ..public }, Held::Nothing)
        }
    }
}

/// Takes the next event; `CCI_EAGAIN` or `CCI_ENOBUFS` where there is none.
fn next(c_messenger: &Arc<CMessenger>) -> Result<*const cci_messenger_event_t, Failure> {
    c_messenger.with(|messenger| {
        let pool = || c_messenger.pool.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the event, so that none is lost for want of a struct.
        let slot = pool().take().ok_or(Failure::code(CCI_ENOBUFS))?;
        let mut event = messenger.next_event();
        let mut is_starved = false;
        if event.is_none() && messenger.recv_buffers_free() == 0 {
            is_starved = !c_messenger.starve(messenger);
            if !is_starved {
                event = messenger.next_event();
            }
        }
        match event {
            Some(event) => Ok(fill(c_messenger, messenger, slot, event)),
            None => {
                pool().put_back(slot);
                Err(Failure::code(if is_starved { CCI_ENOBUFS } else { CCI_EAGAIN }))
            }
        }
    })
}

/// Takes the next event, if there is one.
///
/// # Safety
/// `messenger` is NULL or open; `event` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_get_event(
    messenger: *const cci_messenger_t,
    event: *mut *const cci_messenger_event_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { clear(event, "cci_messenger_get_event: event is NULL") }?;
        // SAFETY: as the caller promises.
        let found = next(unsafe { CMessenger::of(messenger) }?)?;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { event.write(found) };
        Ok(())
    })
}

/// Waits for the next event.
///
/// # Safety
/// `messenger` is NULL or open; `timeout` NULL or a `struct timeval`; `event` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_wait_event(
    messenger: *const cci_messenger_t,
    timeout: *const timeval,
    event: *mut *const cci_messenger_event_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { clear(event, "cci_messenger_wait_event: event is NULL") }?;
        // SAFETY: as the caller promises.
        let (c_messenger, timeout) = unsafe { (CMessenger::of(messenger)?, duration(timeout)?) };
        // A time beyond the range of the clock means for ever.
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let found = loop {
            let failure = match next(c_messenger) {
                Ok(found) => break found,
                Err(failure) => failure,
            };
            let remaining = until.map(|until| until.saturating_duration_since(Instant::now()));
            if !failure.is_temporary() || remaining.is_some_and(|remaining| remaining.is_zero()) {
                return Err(failure);
            }
            // Without the lock, so that other threads can use the messenger. What they start makes the descriptor readable.
            c_messenger.sleep(remaining)?;
        };
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { event.write(found) };
        Ok(())
    })
}

/// Gives an event back, with what it owns. A request, or a connection request, that was not answered is refused.
///
/// # Safety
/// `event` is NULL or an event that was given out and not returned yet, and is not used after this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_return_event(event: *const cci_messenger_event_t) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let Returned { slot, held, owner } = unsafe { CEvent::take_back(event) }?;
        let frees_buffer = !matches!(held, Held::Nothing);
        drop(held);
        if let Some(messenger) = owner {
            messenger.pool.lock().unwrap_or_else(PoisonError::into_inner).put_back(slot);
            if frees_buffer {
                messenger.fed();
            }
            // The last event of a messenger that was closed frees all of them with this.
        }
        Ok(())
    })
}
