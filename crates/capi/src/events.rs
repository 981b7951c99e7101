//! Events on their way to C and back: where their structs meet the endpoints that give them out.

use crate::connections::{attribute_to_c, context_to_c};
use crate::endpoint::{CEndpoint, Side};
use crate::guard::{self, Failure, guard};
use crate::pool;
use crate::pool::event::{HOME, Held, LENT, LENT_ON_STACK, OUT, Request, UNANSWERED};
use crate::status::{of_connect_failure, of_status};
use crate::types::*;
use cci::{ConnectFailure, Connection, DisconnectReason, Endpoint, Event, Message, Status};
use libc::c_int;
use std::ptr::{NonNull, null};
use std::sync::atomic::Ordering;

pub(crate) use crate::pool::event::CEvent;

impl CEvent {
    /// The endpoint it came from.
    ///
    /// # Safety
    /// The event is out and its endpoint is not being destroyed meanwhile.
    #[inline]
    pub unsafe fn c_endpoint<'a>(&self) -> Result<&'a CEndpoint, Failure> {
        // SAFETY: it is out, so its home is there.
        if unsafe { pool::is_orphan(self.home) } {
            return Err(Failure::with_text(CCI_EINVAL, "the event's endpoint was destroyed"));
        }
        // SAFETY: the endpoint was there a moment ago and stays, says the caller.
        unsafe { self.c_endpoint.cast::<CEndpoint>().as_ref() }
            .ok_or_else(|| Failure::with_text(CCI_EINVAL, "not an event of an endpoint"))
    }
}

/// Writes an event into a struct from the pool.
#[inline]
pub(crate) fn fill(
    c_endpoint: &CEndpoint,
    endpoint: &Endpoint,
    side: &mut Side,
    slot: NonNull<CEvent>,
    event: Event,
) -> *const cci_event_t {
    let mut connection_of =
        |connection: Connection| side.connections.get(c_endpoint.public(), endpoint, connection);
    match event {
        Event::Send { connection, context, status } => {
            let send = send_to_c(status, connection_of(connection), context);
            put(c_endpoint, slot, send, OUT, Held::Nothing)
        }
        Event::Recv(message) => {
            let recv = recv_to_c(&message, connection_of(message.connection()));
            put(c_endpoint, slot, recv, OUT, Held::Message(message))
        }
        other => fill_any(c_endpoint, endpoint, side, slot, other),
    }
}

#[inline]
fn send_to_c(status: Status, connection: *const cci_connection_t, context: u64) -> cci_event_t {
    let (status, context) = (of_status(status), context_to_c(context));
    cci_event_t { send: cci_event_send_t { r#type: CCI_EVENT_SEND, status, connection, context } }
}

#[inline]
fn recv_to_c(message: &Message, connection: *const cci_connection_t) -> cci_event_t {
    // A message is never longer than an MSS.
    let (len, ptr) = (message.len() as u32, message.as_ptr().cast());
    cci_event_t { recv: cci_event_recv_t { r#type: CCI_EVENT_RECV, len, ptr, connection } }
}

/// Writes a message that was lent into a struct from the pool.
pub(crate) fn fill_kept(
    c_endpoint: &CEndpoint,
    slot: NonNull<CEvent>,
    message: Message,
    connection: *const cci_connection_t,
) -> *const cci_event_t {
    put(c_endpoint, slot, recv_to_c(&message, connection), OUT, Held::Message(message))
}

/// [`fill`] for every kind of event, apart from where those of messages pass.
#[inline(never)]
pub(crate) fn fill_any(
    c_endpoint: &CEndpoint,
    endpoint: &Endpoint,
    side: &mut Side,
    slot: NonNull<CEvent>,
    event: Event,
) -> *const cci_event_t {
    let mut connection_of =
        |connection: Connection| side.connections.get(c_endpoint.public(), endpoint, connection);
    let mut outcome = |result: Result<Connection, ConnectFailure>| match result {
        Ok(connection) => (CCI_SUCCESS, connection_of(connection)),
        Err(failure) => {
            guard::remember(format!("connecting: {failure}"));
            (of_connect_failure(failure), null())
        }
    };
    let public = match event {
        Event::Send { connection, context, status } => send_to_c(status, connection_of(connection), context),
        Event::Recv(message) => {
            let recv = recv_to_c(&message, connection_of(message.connection()));
            return put(c_endpoint, slot, recv, OUT, Held::Message(message));
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
            let held = Held::Request(Box::new(Request { payload, request }));
            return put(c_endpoint, slot, cci_event_t { request: shown }, UNANSWERED, held);
        }
        Event::KeepaliveTimedOut { connection } => cci_event_t {
            keepalive: cci_event_keepalive_timedout_t {
                r#type: CCI_EVENT_KEEPALIVE_TIMEDOUT,
                connection: connection_of(connection),
            },
        },
        Event::Disconnected { connection, reason, .. } => cci_event_t {
            ext_disconnected: cci_event_ext_disconnected_t {
                r#type: CCI_EVENT_EXT_DISCONNECTED,
                reason: reason_to_c(reason),
                connection: connection_of(connection),
            },
        },
        Event::DeviceFailed => cci_event_t {
            dev_failed: cci_event_endpoint_device_failed_t {
                r#type: CCI_EVENT_ENDPOINT_DEVICE_FAILED,
                endpoint: c_endpoint.public(),
            },
        },
        Event::Mapped(message) => {
            // There is a slice of it, as C programs ask for mapped messages of peers alone that they trust.
            let bytes = message.trusted().unwrap_or_default();
            let (len, ptr, connection) =
                (bytes.len() as u32, bytes.as_ptr().cast(), connection_of(message.connection()));
            let recv = cci_event_recv_t { r#type: CCI_EVENT_RECV, len, ptr, connection };
            return put(c_endpoint, slot, cci_event_t { recv }, OUT, Held::Mapped(message));
        }
        // The tests of both languages see each kind of event that there is.
        other => unreachable!("an event that has no form in C: {other:?}"),
    };
    put(c_endpoint, slot, public, OUT, Held::Nothing)
}

pub(crate) fn reason_to_c(reason: DisconnectReason) -> cci_ext_disconnect_reason_t {
    match reason {
        DisconnectReason::Closed => CCI_EXT_DISCONNECT_CLOSED,
        DisconnectReason::Died => CCI_EXT_DISCONNECT_DIED,
        DisconnectReason::TimedOut => CCI_EXT_DISCONNECT_TIMEDOUT,
        _ => CCI_EXT_DISCONNECT_REFUSED,
    }
}

#[inline]
fn put(
    c_endpoint: &CEndpoint,
    slot: NonNull<CEvent>,
    public: cci_event_t,
    stage: u32,
    held: Held,
) -> *const cci_event_t {
    let slot = slot.as_ptr();
    // SAFETY: `slot` was just taken from the pool and not given out: ours alone. What it holds is nothing, so that
    // nothing is lost by not dropping it: `cci_return_event` sees to that.
    unsafe {
        (*slot).public = public;
        (*slot).c_endpoint = c_endpoint.public();
        (*slot).held.get().write(held);
        (*slot).stage.store(stage, Ordering::Relaxed);
    }
    slot.cast_const().cast()
}

/// Takes the next event; `CCI_EAGAIN` or `CCI_ENOBUFS` where there is none.
// Always: a call would pass the event and the result through memory.
#[inline(always)]
fn next(
    c_endpoint: &CEndpoint,
    endpoint: &mut Endpoint,
    side: &mut Side,
) -> Result<*const cci_event_t, Failure> {
    // Before the event, so that none is lost for want of a struct.
    if !side.events.has_one() {
        return Err(Failure::code(CCI_ENOBUFS));
    }
    let event = endpoint.next_event();
    if event.is_none() {
        return nothing(c_endpoint, endpoint, side);
    }
    let Some(slot) = side.events.take() else { unreachable!("there was one a moment ago") };
    let mut connection_of =
        |connection: Connection| side.connections.get(c_endpoint.public(), endpoint, connection);
    // Each kind is taken out of what `next_event` has written: an event is five words, which would be moved on the way to `fill`.
    Ok(match event {
        Some(Event::Send { connection, context, status }) => {
            let send = send_to_c(status, connection_of(connection), context);
            put(c_endpoint, slot, send, OUT, Held::Nothing)
        }
        Some(Event::Recv(message)) => {
            let recv = recv_to_c(&message, connection_of(message.connection()));
            put(c_endpoint, slot, recv, OUT, Held::Message(message))
        }
        Some(other) => return fill_shown(c_endpoint, endpoint, side, slot, other),
        None => unreachable!("looked at above"),
    })
}

/// The first event that the program is to see: this one, or one after it. Endpoints of jobs answer requests of ranks by themselves.
pub(crate) fn next_shown(endpoint: &mut Endpoint, side: &mut Side, first: Event) -> Option<Event> {
    let Side { ranks, connections, .. } = side;
    let (Some(ranks), Some(contexts)) = (ranks, &mut connections.contexts) else { return Some(first) };
    let mut event = first;
    loop {
        if let Some(shown) = ranks.show(endpoint, contexts, event) {
            return Some(shown);
        }
        event = endpoint.next_event()?;
    }
}

/// Gives out the first event that the program is to see, if there is one.
// Apart, as it is for events that are no messages.
#[inline(never)]
fn fill_shown(
    c_endpoint: &CEndpoint,
    endpoint: &mut Endpoint,
    side: &mut Side,
    slot: NonNull<CEvent>,
    first: Event,
) -> Result<*const cci_event_t, Failure> {
    match next_shown(endpoint, side, first) {
        Some(event) => Ok(fill_any(c_endpoint, endpoint, side, slot, event)),
        None => {
            side.events.put_back(slot);
            nothing(c_endpoint, endpoint, side)
        }
    }
}

/// Nothing is there. Says whether that may be for want of receive buffers, unless that ends meanwhile.
// Apart: it returns nothing that the path of an event would have to keep for it.
#[inline(never)]
fn nothing(
    c_endpoint: &CEndpoint,
    endpoint: &mut Endpoint,
    side: &mut Side,
) -> Result<*const cci_event_t, Failure> {
    if endpoint.recv_buffers_free() > 0 {
        return Err(Failure::code(CCI_EAGAIN));
    }
    next_when_starved(c_endpoint, endpoint, side)
}

/// Nothing there, and no receive buffer was free.
#[cold]
fn next_when_starved(
    c_endpoint: &CEndpoint,
    endpoint: &mut Endpoint,
    side: &mut Side,
) -> Result<*const cci_event_t, Failure> {
    let Some(slot) = side.events.take() else { return Err(Failure::code(CCI_ENOBUFS)) };
    if c_endpoint.starve(endpoint)
        && let Some(first) = endpoint.next_event()
        && let Some(event) = next_shown(endpoint, side, first)
    {
        return Ok(fill_any(c_endpoint, endpoint, side, slot, event));
    }
    side.events.put_back(slot);
    let starved = endpoint.recv_buffers_free() == 0;
    Err(Failure::code(if starved { CCI_ENOBUFS } else { CCI_EAGAIN }))
}

/// Sets the program's pointer to an event to NULL, so that it agrees with the call's result; fails if the pointer to it is NULL.
///
/// # Safety
/// `event` is NULL or points to memory for a pointer.
#[inline]
pub(crate) unsafe fn clear<T>(event: *mut *const T, where_null: &str) -> Result<(), Failure> {
    if event.is_null() {
        return Err(Failure::with_text(CCI_EINVAL, where_null));
    }
    // SAFETY: not NULL, and the caller's to be written.
    unsafe { event.write(std::ptr::null()) };
    Ok(())
}

/// Takes the next event, if there is one. `*event` is NULL where there is none: published programs look at the pointer alone.
///
/// # Safety
/// `endpoint` is NULL or open; `event` is NULL or points to memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_get_event(
    endpoint: *const cci_endpoint_t,
    event: *mut *const cci_event_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { clear(event, "cci_get_event: event is NULL") }?;
        // SAFETY: as the caller promises.
        let c_endpoint = unsafe { CEndpoint::of(endpoint) }?;
        let found = c_endpoint.with(|endpoint, side| next(c_endpoint, endpoint, side))??;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { event.write(found) };
        Ok(())
    })
}

/// Says why an event can't be returned as it is.
#[cold]
fn not_to_be_returned(event: &CEvent) -> Failure {
    let text = if matches!(event.stage.load(Ordering::Relaxed), LENT | LENT_ON_STACK) {
        "cci_return_event: the event is lent to a handler, and goes back by itself; cci_keep_event() makes it the program's"
    } else {
        "cci_return_event: the connection request was neither accepted nor rejected"
    };
    Failure::with_text(CCI_EINVAL, text)
}

#[cold]
#[inline(never)]
fn drop_apart(held: Held) {
    drop(held);
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
        if event.stage.load(Ordering::Relaxed) >= UNANSWERED && !orphan {
            return Err(not_to_be_returned(event));
        }
        // SAFETY: the event is out and the caller's; it gives it up.
        let held = unsafe { &mut *event.held.get() };
        match held {
            // Completions.
            Held::Nothing => {}
            Held::Message(_) | Held::Mapped(_) => {
                // In place: where it is taken out, it is read by more bytes than were written at once just before.
                *held = Held::Nothing;
                if !orphan
                    // SAFETY: the endpoint that gave the event out is there, and stays during the call, says the caller.
                    && let Some(c_endpoint) = unsafe { event.c_endpoint.cast::<CEndpoint>().as_ref() }
                {
                    c_endpoint.fed();
                }
            }
            _ => drop_apart(std::mem::replace(held, Held::Nothing)),
        }
        event.stage.store(HOME, Ordering::Relaxed);
        // SAFETY: the caller gives it up, and so do we.
        unsafe { pool::give_back(NonNull::from(event)) };
        Ok(())
    })
}
