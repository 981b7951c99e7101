//! The face for streams: events lent to a handler, and messages sent in bursts.

use crate::connecting::resolve;
use crate::connections::{bytes, context_of};
use crate::endpoint::{CEndpoint, Side};
use crate::events::{CEvent, clear, fill, fill_kept, next_shown};
use crate::guard::{Failure, guard};
use crate::pool::event::{HOME, Held, LENT, LENT_ON_STACK, OUT, UNANSWERED};
use crate::types::*;
use cci::{Endpoint, LentMessage, SendFlags};
use libc::{c_int, c_void, iovec};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// A handler of the program's, which may be called with what was given along with it.
type Handler = unsafe extern "C" fn(*const cci_event_t, *mut c_void);

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
            // SAFETY: `lend` has the event while this runs.
            let mut call = |event| unsafe { handler(event, arg) };
            let mut handled = 0;
            loop {
                let (messages, has_events) =
                    lend_messages(c_endpoint, endpoint, side, max - handled, (handler, arg));
                handled += messages;
                if handled == max || messages > 0 && !has_events {
                    return (handled, Ok(()));
                }
                if !has_events {
                    return (handled, Err(nothing(c_endpoint, endpoint)));
                }
                if let Err(failure) = lend(c_endpoint, endpoint, side, &mut call) {
                    return (handled, Err(failure));
                }
                handled += 1;
            }
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

/// A message that is lent to a handler by an event on the stack of [`cci_poll`].
#[repr(C)]
struct LentOnStack {
    /// What the handler is given.
    event: CEvent,
    /// The message, while the handler runs that has not kept it. Its lifetime is that call's, in truth.
    message: Option<LentMessage<'static>>,
    c_endpoint: *const CEndpoint,
    /// The C side of the endpoint, which the handler's thread has while the handler runs.
    side: *mut Side,
}

/// Lends up to `max` messages to `call`, until something else comes first. Returns how many, and whether what comes next has to be
/// looked for.
fn lend_messages(
    c_endpoint: &CEndpoint,
    endpoint: &mut Endpoint,
    side: &mut Side,
    max: u32,
    (handler, arg): (Handler, *mut c_void),
) -> (u32, bool) {
    // Each message may be kept, in an event of the pool.
    let spare = side.events.spare();
    let mut lent = LentOnStack { event: CEvent::lent(side.events.home()), message: None, c_endpoint, side };
    let lent = &raw mut lent;
    let mut last = u64::MAX;
    // SAFETY of all of it: `lent` is on the stack above. The handler has the event for the length of its call, and nobody else uses it
    // meanwhile. The message is used until the handler returns, and no longer.
    let each = move |message: LentMessage<'_>| {
        let connection = message.connection();
        if last != connection.to_bits() {
            last = connection.to_bits();
            // SAFETY: see above.
            unsafe { (*lent).event.public.recv.connection = (*(*lent).side).connections.known(connection) };
        }
        // SAFETY: see above.
        unsafe {
            // A message is never longer than an MSS.
            (*lent).event.public.recv.len = message.len() as u32;
            (*lent).event.public.recv.ptr = message.as_ptr().cast();
            (*lent).message = Some(std::mem::transmute::<LentMessage<'_>, LentMessage<'static>>(message));
            handler(lent.cast_const().cast(), arg);
        }
    };
    let (messages, has_events) = endpoint.poll_messages(max.min(spare) as usize, each);
    (messages as u32, has_events || spare == 0)
}

/// Lends the next event to `call`.
#[inline]
fn lend(
    c_endpoint: &CEndpoint,
    endpoint: &mut Endpoint,
    side: &mut Side,
    call: &mut impl FnMut(*const cci_event_t),
) -> Result<(), Failure> {
    let Some(slot) = side.events.take() else { return Err(Failure::code(CCI_ENOBUFS)) };
    let first = endpoint.next_event();
    let Some(event) = first.and_then(|first| next_shown(endpoint, side, first)) else {
        side.events.put_back(slot);
        return Err(nothing(c_endpoint, endpoint));
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

/// Nothing is there; says whether that may be for want of receive buffers.
fn nothing(c_endpoint: &CEndpoint, endpoint: &mut Endpoint) -> Failure {
    let is_starved = endpoint.recv_buffers_free() == 0 && !c_endpoint.starve(endpoint);
    Failure::code(if is_starved { CCI_ENOBUFS } else { CCI_EAGAIN })
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
        if event.stage.load(Ordering::Relaxed) == LENT_ON_STACK {
            // SAFETY: the handler that calls this was given the event, so it is in the middle of `lend_messages`.
            let event = unsafe { keep_message(lent.cast_mut().cast()) }?;
            // SAFETY: not NULL, and the caller's to be written.
            unsafe { kept.write(event) };
            return Ok(());
        }
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

/// Puts a message that is lent into an event of the program's.
///
/// # Safety
/// `lent` is in the middle of `lend_messages`, whose handler calls this.
unsafe fn keep_message(lent: *mut LentOnStack) -> Result<*const cci_event_t, Failure> {
    // SAFETY: `lend_messages` waits for the handler, and leaves all of this alone meanwhile.
    unsafe {
        // There is one for each message that is lent.
        let Some(slot) = (*(*lent).side).events.take() else { return Err(Failure::code(CCI_ENOBUFS)) };
        let Some(message) = (*lent).message.take() else {
            (*(*lent).side).events.put_back(slot);
            return Err(Failure::with_text(CCI_EINVAL, "cci_keep_event: the event is the program's already"));
        };
        let connection = (*lent).event.public.recv.connection;
        Ok(fill_kept(&*(*lent).c_endpoint, slot, message.keep(), connection))
    }
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
        let mut inline = [const { MaybeUninit::<&[u8]>::uninit() }; MESSAGES_INLINE];
        let more: Vec<&[u8]>;
        let all = if let Some(inline) = inline.get_mut(..count) {
            for (at, slot) in inline.iter_mut().enumerate() {
                slot.write(message(at)?);
            }
            // SAFETY: each was just written.
            unsafe { &*(std::ptr::from_ref(inline) as *const [&[u8]]) }
        } else {
            more = (0..count).map(message).collect::<Result<_, _>>()?;
            &more[..]
        };
        let sent = c_endpoint.with(|endpoint, _| {
            endpoint.send_burst(connection, all, context, rust_flags).map_err(Failure::from)
        })??;
        // SAFETY: not NULL, and the caller's to be written. It is no more than `count`.
        unsafe { taken.write(sent as u32) };
        Ok(())
    })
}
