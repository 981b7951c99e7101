//! Events on their way to C and back: where their structs meet the endpoints that give them out.

use crate::connections::{attribute_to_c, context_to_c};
use crate::endpoint::{CEndpoint, Side};
use crate::guard::{Failure, guard};
use crate::pool;
use crate::pool::event::{HOME, Held, OUT, Request, UNANSWERED};
use crate::status::{of_connect_failure, of_status};
use crate::types::*;
use cci::{ConnectFailure, Connection, Endpoint, Event};
use libc::c_int;
use std::cell::UnsafeCell;
use std::ptr::{NonNull, null};
use std::sync::atomic::Ordering;

pub(crate) use crate::pool::event::CEvent;

impl CEvent {
    /// The endpoint it came from.
    ///
    /// # Safety
    /// The event is out and its endpoint is not being destroyed meanwhile.
    pub unsafe fn owner<'a>(&self) -> Result<&'a CEndpoint, Failure> {
        // SAFETY: it is out, so its home is there.
        if unsafe { pool::is_orphan(self.home) } {
            return Err(Failure::told(CCI_EINVAL, "the event's endpoint was destroyed"));
        }
        // SAFETY: the endpoint was there a moment ago and stays, says the caller.
        unsafe { self.owner.cast::<CEndpoint>().as_ref() }
            .ok_or_else(|| Failure::told(CCI_EINVAL, "not an event of an endpoint"))
    }
}

/// Writes an event into a struct from the pool.
pub(crate) fn fill(
    owner: &CEndpoint,
    endpoint: &Endpoint,
    side: &mut Side,
    place: NonNull<CEvent>,
    event: Event,
) -> *const cci_event_t {
    let mut connection_of =
        |connection: Connection| side.connections.get(owner.public(), endpoint, connection);
    let mut outcome = |result: Result<Connection, ConnectFailure>| match result {
        Ok(connection) => (CCI_SUCCESS, connection_of(connection)),
        Err(failure) => (of_connect_failure(failure), null()),
    };
    let mut stage = OUT;
    let mut held = Held::Nothing;
    let public = match event {
        Event::Send { connection, context, status } => cci_event_t {
            send: cci_event_send_t {
                r#type: CCI_EVENT_SEND,
                status: of_status(status),
                connection: connection_of(connection),
                context: context_to_c(context),
            },
        },
        Event::Recv(message) => {
            let recv = cci_event_recv_t {
                r#type: CCI_EVENT_RECV,
                // A message is never longer than an MSS.
                len: message.len() as u32,
                ptr: message.as_ptr().cast(),
                connection: connection_of(message.connection()),
            };
            held = Held::Message(message);
            cci_event_t { recv }
        }
        Event::Connect { context, result } => {
            let (status, connection) = outcome(result);
            let context = context_to_c(context);
            cci_event_t {
                connect: cci_event_connect_t { r#type: CCI_EVENT_CONNECT, status, context, connection },
            }
        }
        Event::Accept { context, result } => {
            let (status, connection) = outcome(result);
            let context = context_to_c(context);
            cci_event_t {
                accept: cci_event_accept_t { r#type: CCI_EVENT_ACCEPT, status, context, connection },
            }
        }
        Event::ConnectRequest(request) => {
            let payload = request.data().to_vec();
            let shown = cci_event_connect_request_t {
                r#type: CCI_EVENT_CONNECT_REQUEST,
                data_len: payload.len() as u32,
                data_ptr: if payload.is_empty() { null() } else { payload.as_ptr().cast() },
                attribute: attribute_to_c(request.attribute()),
            };
            stage = UNANSWERED;
            held = Held::Request(Box::new(Request { payload, request }));
            cci_event_t { request: shown }
        }
        Event::KeepaliveTimedOut { connection } => cci_event_t {
            keepalive: cci_event_keepalive_timedout_t {
                r#type: CCI_EVENT_KEEPALIVE_TIMEDOUT,
                connection: connection_of(connection),
            },
        },
        Event::DeviceFailed => cci_event_t {
            dev_failed: cci_event_endpoint_device_failed_t {
                r#type: CCI_EVENT_ENDPOINT_DEVICE_FAILED,
                endpoint: owner.public(),
            },
        },
    };
    let place = place.as_ptr();
    // SAFETY: `place` was just taken from the pool and not given out: ours alone.
    unsafe {
        (*place).public = public;
        (*place).owner = owner.public();
        (*place).held = UnsafeCell::new(held);
        (*place).stage.store(stage, Ordering::Relaxed);
    }
    place.cast_const().cast()
}

/// Takes the next event; `CCI_EAGAIN` or `CCI_ENOBUFS` where there is none.
fn next(owner: &CEndpoint, endpoint: &mut Endpoint, side: &mut Side) -> Result<*const cci_event_t, Failure> {
    // Before the event, so that none is lost for want of a struct.
    let Some(place) = side.events.take() else { return Err(Failure::code(CCI_ENOBUFS)) };
    let event = match endpoint.next_event() {
        None if endpoint.recv_buffers_free() == 0 && owner.starve(endpoint) => endpoint.next_event(),
        other => other,
    };
    match event {
        Some(event) => Ok(fill(owner, endpoint, side, place, event)),
        None => {
            side.events.put_back(place);
            let starved = endpoint.recv_buffers_free() == 0;
            Err(Failure::code(if starved { CCI_ENOBUFS } else { CCI_EAGAIN }))
        }
    }
}

/// Takes the next event, if there is one.
///
/// # Safety
/// `endpoint` is NULL or open; `event` is NULL or points to a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_get_event(
    endpoint: *const cci_endpoint_t,
    event: *mut *const cci_event_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let owner = unsafe { CEndpoint::of(endpoint) }?;
        if event.is_null() {
            return Err(Failure::told(CCI_EINVAL, "cci_get_event: event is NULL"));
        }
        let found = owner.with(|endpoint, side| next(owner, endpoint, side))??;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { event.write(found) };
        Ok(())
    })
}

/// Gives an event back, with what it owns.
///
/// # Safety
/// `event` is NULL or an event that was given out and not returned yet, and is not used after this.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_return_event(event: *const cci_event_t) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let event = unsafe { CEvent::of(event) }?;
        // SAFETY: it is out, so its home is there.
        let orphan = unsafe { pool::is_orphan(event.home) };
        if event.stage.load(Ordering::Relaxed) == UNANSWERED && !orphan {
            let text = "cci_return_event: the connection request was neither accepted nor rejected";
            return Err(Failure::told(CCI_EINVAL, text));
        }
        // SAFETY: the event is out and the caller's; it gives it up.
        let held = std::mem::replace(unsafe { &mut *event.held.get() }, Held::Nothing);
        let was_message = matches!(held, Held::Message(_));
        drop(held);
        if was_message && !orphan {
            // SAFETY: the endpoint is there, and stays during the call, says the caller.
            unsafe { event.owner() }?.fed();
        }
        event.stage.store(HOME, Ordering::Relaxed);
        // SAFETY: the caller gives it up, and so do we.
        unsafe { pool::give_back(NonNull::from(event)) };
        Ok(())
    })
}
