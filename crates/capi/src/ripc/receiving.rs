//! Receiving.

use super::live::{Awaited, Live, Result, guarded, wrong};
use super::places::{Places, give};
use super::shared::with;
use super::waiting::{Wait, Waited, wait};
use cci_ripc::{Event, Message, Service, Ticket};
use libc::{c_int, c_void};
use std::time::{Duration, Instant};

const DONE: u8 = 0;
/// A signal was handled, not all long items are there, or the call failed.
const FAILED: u8 = 1;
const TIMED_OUT: u8 = 2;
const NOT_OURS: u8 = 255;

/// Takes the next message of a service, if there is one, or the next request, where the program takes those.
fn take(live: &mut Live, service: Service, takes_requests: bool) -> Option<(Message, Option<Ticket>)> {
    while let Some(event) = live.node.next_event(service) {
        match event {
            Event::Message(message) => return Some((message, None)),
            Event::Request(request) if takes_requests && live.calls.has_space() => {
                let (message, ticket) = request.into_parts();
                return Some((message, Some(ticket)));
            }
            Event::Request(request) | Event::TakeOver(request) => {
                // Who asks learns at once that nobody will answer, unless it is gone.
                let reason: &[u8] = if takes_requests {
                    b"this service has more requests without an answer than it may, or is asked to move"
                } else {
                    b"this service takes messages, and no calls"
                };
                let _refused = live.node.refuse(request.ticket(), reason);
            }
            Event::Answer { context, result, .. } => live.calls.ended(context, result),
            Event::Returned { context, fetched, .. } => live.calls.returned(context, fetched),
            // What the program does not wait for.
            _ => {}
        }
    }
    None
}

/// Gives a message to the program, and the number of the request, or 0. Returns what the call returns.
///
/// # Safety
/// The places are the caller's to be written.
unsafe fn hand_out(
    live: &mut Live,
    (message, ticket): (Message, Option<Ticket>),
    id: u16,
    (places, request): (Places, Option<*mut u64>),
) -> Result<u8> {
    // SAFETY: as the caller promises.
    let given = unsafe { give(live, id, &message, places) };
    if let (Err(_), Some(ticket)) = (&given, ticket) {
        let _refused = live.node.refuse(ticket, b"this service has no memory for the request");
    }
    let is_complete = given?;
    if let (Some(place), Some(ticket)) = (request, ticket) {
        // SAFETY: as the caller promises.
        unsafe { place.write(live.calls.asked(id, ticket)) };
    }
    Ok(if is_complete { DONE } else { FAILED })
}

/// Receives for a program. With a place for it, requests are received, too.
///
/// # Safety
/// The places are NULL, or the caller's to be written.
pub(super) unsafe fn receive(
    id: u16,
    timeout: Option<Duration>,
    places: Places,
    request: Option<*mut u64>,
) -> u8 {
    guarded(FAILED, || {
        if !places.are_there() || request.is_some_and(<*mut u64>::is_null) {
            return wrong("a place for what is received is NULL");
        }
        // SAFETY: as the caller promises.
        unsafe {
            places.clear();
            if let Some(request) = request {
                request.write(0);
            }
        };
        let Ok(service) = with(|live| live.registered(id).map(|registered| registered.service)) else {
            crate::guard::remember(format!("{id} is no service of this process: register it first"));
            return Ok(NOT_OURS);
        };
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let awaited = if request.is_some() { Awaited::Request(id, service) } else { Awaited::Event(service) };
        let waits = Wait { awaited, until, is_interruptible: true };
        let waited = wait(waits, |live| {
            if live.services.get(&id).is_none_or(|registered| registered.service != service) {
                return Ok(Some(NOT_OURS));
            }
            match take(live, service, request.is_some()) {
                // SAFETY: as the caller promises.
                Some(taken) => unsafe { hand_out(live, taken, id, (places, request)) }.map(Some),
                None if request.is_some() && live.calls.has_returned(id) => Ok(Some(TIMED_OUT)),
                None => Ok(None),
            }
        })?;
        match waited {
            Waited::Done(result) => Ok(result),
            Waited::TimedOut => Ok(TIMED_OUT),
            Waited::Interrupted => wrong("a signal was handled meanwhile"),
        }
    })
}

/// The time that a program gives. None: for ever.
pub(super) fn timeout_of(timeout_ms: c_int) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

/// Defines a call that receives into places of the published form.
macro_rules! receives {
    ($(#[$doc:meta])* $name:ident($($timeout_ms:ident)?)) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// Each place is NULL, or the caller's to be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($timeout_ms: c_int,)?
            service_id: u16,
            from_service_id: *mut u16,
            short_items: *mut *mut *mut c_void,
            short_item_sizes: *mut *mut u32,
            num_short_items: *mut u16,
            long_items: *mut *mut *mut c_void,
            long_item_sizes: *mut *mut u32,
            num_long_items: *mut u16,
        ) -> u8 {
            let timeout = None$(.or(timeout_of($timeout_ms)))?;
            let places = Places {
                from: from_service_id,
                short_items,
                short_sizes: short_item_sizes,
                num_short: num_short_items,
                long_items,
                long_sizes: long_item_sizes,
                num_long: num_long_items,
            };
            // SAFETY: as the caller promises.
            unsafe { receive(service_id, timeout, places, None) }
        }
    };
}

receives! {
    /// Receives one message, and waits for it.
    ripc_receive()
}

receives! {
    /// Receives one message, and waits for it for some time.
    ripc_receive_within(timeout_ms)
}
