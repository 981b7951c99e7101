//! The face for streams: events lent to a handler, and messages sent in bursts.

use crate::connecting::resolve;
use crate::connections::{bytes, context_of};
use crate::endpoint::{CEndpoint, Side};
use crate::events::{CEvent, clear, fill};
use crate::guard::{Failure, guard};
use crate::pool::event::{HOME, Held, LENT, OUT, UNANSWERED};
use crate::types::*;
use cci::{Endpoint, SendFlags};
use libc::{c_int, c_void, iovec};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Messages of a burst that are looked at in one go.
const MESSAGES_INLINE: usize = 64;

/// Gives what came to a handler, which has each event for the length of its call.
///
/// # Safety
/// `endpoint` is NULL or open; `handler` may be called with `arg`, and does not unwind or jump out; `count` is NULL or memory for a
/// number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_poll(
    endpoint: *const cci_endpoint_t,
    max: u32,
    handler: cci_ext_handler_t,
    arg: *mut c_void,
    count: *mut u32,
) -> c_int {
    guard(|| {
        if !count.is_null() {
            // SAFETY: not NULL, and the caller's to be written.
            unsafe { count.write(0) };
        }
        // SAFETY: as the caller promises.
        let c_endpoint = unsafe { CEndpoint::of(endpoint) }?;
        let handler =
            handler.ok_or_else(|| Failure::with_text(CCI_EINVAL, "cci_poll: the handler is NULL"))?;
        let polled = c_endpoint.with_handler(|endpoint, side| {
            let mut handled = 0;
            let mut end = Ok(());
            while handled < max && end.is_ok() {
                // SAFETY: `lend` has the event while this runs.
                let call = |event| unsafe { handler(event, arg) };
                match lend(c_endpoint, endpoint, side, call) {
                    Ok(()) => handled += 1,
                    Err(failure) => end = Err(failure),
                }
            }
            (handled, end)
        });
        // A handler that returned events could not have the endpoint look for messages that waited for their buffers.
        c_endpoint.fed();
        let (handled, end) = polled?;
        if !count.is_null() {
            // SAFETY: not NULL, and the caller's to be written.
            unsafe { count.write(handled) };
        }
        if handled == 0 { end } else { Ok(()) }
    })
}

/// Lends the next event to `call`.
#[inline]
fn lend(
    c_endpoint: &CEndpoint,
    endpoint: &mut Endpoint,
    side: &mut Side,
    call: impl FnOnce(*const cci_event_t),
) -> Result<(), Failure> {
    let Some(slot) = side.events.take() else { return Err(Failure::code(CCI_ENOBUFS)) };
    let Some(event) = endpoint.next_event() else {
        side.events.put_back(slot);
        let is_starved = endpoint.recv_buffers_free() == 0 && !c_endpoint.starve(endpoint);
        return Err(Failure::code(if is_starved { CCI_ENOBUFS } else { CCI_EAGAIN }));
    };
    fill(c_endpoint, endpoint, side, slot, event);
    // SAFETY: the event was just taken from the pool, and nobody else has it.
    let lent = unsafe { slot.as_ref() };
    lent.stage.store(LENT, Ordering::Relaxed);
    call(slot.as_ptr().cast_const().cast());
    if lent.stage.load(Ordering::Relaxed) == LENT {
        // SAFETY: the handler has had the event, and did not keep it. A request that was not answered is refused.
        drop(std::mem::replace(unsafe { &mut *lent.held.get() }, Held::Nothing));
        lent.stage.store(HOME, Ordering::Relaxed);
        side.events.put_back(slot);
    }
    Ok(())
}

/// Makes an event that was lent to a handler one of the program's.
///
/// # Safety
/// `lent` is NULL or what the handler that calls this was given; `kept` is NULL or memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_keep_event(lent: *const cci_event_t, kept: *mut *const cci_event_t) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { clear(kept, "cci_keep_event: kept is NULL") }?;
        // SAFETY: as the caller promises.
        let event = unsafe { CEvent::of(lent) }?;
        // SAFETY: the handler has the event, and nobody else uses what it holds.
        let is_request = matches!(unsafe { &*event.held.get() }, Held::Request(_));
        let stage = if is_request { UNANSWERED } else { OUT };
        let was_lent = event.stage.compare_exchange(LENT, stage, Ordering::Relaxed, Ordering::Relaxed);
        if was_lent.is_err() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_keep_event: the event is the program's already"));
        }
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { kept.write(NonNull::from(event).as_ptr().cast_const().cast()) };
        Ok(())
    })
}

/// Sends several messages in order.
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint; `messages` points to `count` messages, each of which points to as many
/// bytes as it says; `taken` is NULL or memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_send_burst(
    connection: *const cci_connection_t,
    messages: *const iovec,
    count: u32,
    context: *const c_void,
    flags: c_int,
    taken: *mut u32,
) -> c_int {
    guard(|| {
        if taken.is_null() || messages.is_null() && count > 0 {
            return Err(Failure::with_text(CCI_EINVAL, "cci_send_burst: taken or messages is NULL"));
        }
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { taken.write(0) };
        if flags & !CCI_FLAG_SILENT != 0 {
            return Err(Failure::with_text(
                CCI_EINVAL,
                format!("cci_send_burst: flags {:#x}, of which it knows CCI_FLAG_SILENT alone", flags),
            ));
        }
        let rust_flags = if flags == 0 { SendFlags::NONE } else { SendFlags::SILENT };
        // SAFETY: as the caller promises.
        let (c_endpoint, connection) = unsafe { resolve(connection) }?;
        let message = |at: usize| {
            // SAFETY: `messages` points to `count` messages, says the caller, and `at < count`.
            let iovec { iov_base, iov_len } = unsafe { messages.add(at).read() };
            // SAFETY: as the caller promises of each message.
            unsafe { bytes(iov_base, iov_len) }
        };
        let count = count as usize;
        let context = context_of(context);
        let mut inline: [&[u8]; MESSAGES_INLINE] = [&[]; MESSAGES_INLINE];
        let more: Vec<&[u8]>;
        let all = if count <= MESSAGES_INLINE {
            for (slot, found) in inline.iter_mut().zip((0..count).map(message)) {
                *slot = found?;
            }
            &inline[..count]
        } else {
            more = (0..count).map(message).collect::<Result<_, _>>()?;
            &more[..]
        };
        let sent =
            c_endpoint.with(|endpoint, _| endpoint.send_burst(connection, all, context, rust_flags))??;
        // SAFETY: not NULL, and the caller's to be written. It is no more than `count`.
        unsafe { taken.write(sent as u32) };
        Ok(())
    })
}
