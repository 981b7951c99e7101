//! Calls of other services, and answers to theirs.

use super::given::{Array, check_len, long_parts, offered, slice};
use super::live::{Awaited, Live, Result, Wrong, guarded, wrong};
use super::places::{Places, give, give_one};
use super::receiving::{receive, timeout_of};
use super::shared::{call, with};
use super::waiting::{Wait, Waited, wait};
use cci_ripc::{CallError, CallOptions, Content, Event, SendError};
use libc::{c_int, c_void};
use std::ptr;
use std::time::{Duration, Instant};

/// The call's request is not sent to a second life of the service.
const ONCE: c_int = 1;

const ANSWERED: u8 = 0;
const FAILED: u8 = 1;
const NOT_YET: u8 = 2;
const REFUSED: u8 = 3;
const TIMED_OUT: u8 = 4;
const NOT_REACHED: u8 = 5;
const LOST: u8 = 6;
const NO_CALL: u8 = 255;

/// What is sent: `struct ripc_content`.
#[repr(C)]
pub struct RipcContent {
    short_items: *mut *mut c_void,
    short_sizes: *mut u32,
    long_items: *mut *mut c_void,
    long_sizes: *mut u32,
    return_bufs: *mut *mut c_void,
    return_sizes: *mut u32,
    num_short: u16,
    num_long: u16,
    num_return_bufs: u16,
}

/// What was received: `struct ripc_message`.
#[repr(C)]
pub struct RipcMessage {
    short_items: *mut *mut c_void,
    short_sizes: *mut u32,
    long_items: *mut *mut c_void,
    long_sizes: *mut u32,
    num_short: u16,
    num_long: u16,
    from: u16,
}

impl RipcMessage {
    /// Where its parts are written. They are NULL if it is.
    fn places(message: *mut RipcMessage) -> Places {
        if message.is_null() {
            let (items, sizes) = (ptr::null_mut(), ptr::null_mut());
            let number = ptr::null_mut();
            return Places {
                from: number,
                short_items: items,
                short_sizes: sizes,
                num_short: number,
                long_items: items,
                long_sizes: sizes,
                num_long: number,
            };
        }
        // SAFETY: a program that does not give NULL gives a message; nothing is read.
        unsafe {
            Places {
                from: &raw mut (*message).from,
                short_items: &raw mut (*message).short_items,
                short_sizes: &raw mut (*message).short_sizes,
                num_short: &raw mut (*message).num_short,
                long_items: &raw mut (*message).long_items,
                long_sizes: &raw mut (*message).long_sizes,
                num_long: &raw mut (*message).num_long,
            }
        }
    }
}

/// Runs `send` with what a program gives. NULL is content without items.
///
/// # Safety
/// `content` is NULL or as the header says.
unsafe fn with_content<T>(
    content: *const RipcContent,
    send: impl FnOnce(&mut Live, Content<'_>) -> Result<T>,
) -> Result<T> {
    if content.is_null() {
        return with(|live| send(live, Content::default()));
    }
    // SAFETY: as the caller promises.
    let content = unsafe { &*content };
    let array = |places, lens, count| Array { places, lens, count };
    // SAFETY: as the caller promises.
    let (short, long, returns) = unsafe {
        (
            array(content.short_items, content.short_sizes, content.num_short).short_items()?,
            array(content.long_items, content.long_sizes, content.num_long).long_items()?,
            array(content.return_bufs, content.return_sizes, content.num_return_bufs).returns()?,
        )
    };
    check_len(&short)?;
    // SAFETY: so long are the items, as the caller promises.
    let slices: Vec<&[u8]> = short.iter().map(|&item| unsafe { slice(item) }).collect::<Result<_>>()?;
    with(|live| {
        let long = long_parts(live, &long)?;
        let returns = offered(live, &returns)?;
        send(live, Content::from(&slices[..]).long_items(&long).return_buffers(&returns))
    })
}

/// Begins a call of another service. Returns its number.
///
/// # Safety
/// `content` is NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_call(
    src: u16,
    dest: u16,
    content: *const RipcContent,
    timeout_ms: c_int,
    flags: c_int,
) -> u64 {
    guarded(0, || {
        let timeout = timeout_of(timeout_ms).filter(|timeout| !timeout.is_zero());
        let timeout = timeout.ok_or_else(|| Wrong(format!("{timeout_ms} ms are no time for a call")))?;
        if flags & !ONCE != 0 {
            return wrong(format!("{flags} has flags that this library does not know"));
        }
        let options = CallOptions::default().timeout(timeout);
        let options = if flags == ONCE { options.once() } else { options };
        // SAFETY: as the caller promises.
        unsafe { with_content(content, |live, content| begin(live, (src, dest), content, options)) }
    })
}

fn begin(
    live: &mut Live,
    (src, dest): (u16, u16),
    content: Content<'_>,
    options: CallOptions,
) -> Result<u64> {
    if live.registered(src)?.is_group {
        return wrong("a group calls nobody");
    }
    let partner = live.partner(src, dest)?;
    let Some(number) = live.calls.begin(src) else {
        return wrong("this process has 1,024 calls: take the replies of some first");
    };
    let begun = live.node.call(partner, content, options.context(number));
    live.take_notices();
    match begun {
        Ok(_) => Ok(number),
        Err(error) => {
            live.calls.not_begun(number);
            Err(error.into())
        }
    }
}

/// Takes the end of a call, and waits for it for some time.
///
/// # Safety
/// The places are NULL, or the caller's to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_reply(
    src: u16,
    call: *mut u64,
    timeout_ms: c_int,
    reply: *mut RipcMessage,
) -> u8 {
    guarded(FAILED, || {
        let places = RipcMessage::places(reply);
        if call.is_null() || !places.are_there() {
            return wrong("a place for the reply or its number is NULL");
        }
        // SAFETY: as the caller promises.
        let number = unsafe {
            places.clear();
            call.read()
        };
        let Ok(service) = with(|live| Ok(live.registered(src)?.service)) else { return Ok(NO_CALL) };
        let until = timeout_of(timeout_ms).map(|timeout| Instant::now() + timeout);
        let waits = Wait { awaited: Awaited::Reply(src, service), until, is_interruptible: true };
        let mut is_first = true;
        let waited = wait(waits, |live| {
            if !std::mem::take(&mut is_first) {
                live.node.progress();
            }
            while let Some(Event::Answer { context, result, .. }) = live.node.next_answer(service) {
                live.calls.ended(context, result);
            }
            if !live.calls.has(src, number) {
                return Ok(Some(NO_CALL));
            }
            let Some((number, result)) = live.calls.take(src, number) else { return Ok(None) };
            // SAFETY: as the caller promises.
            unsafe {
                call.write(number);
                end_of(live, src, result, places).map(Some)
            }
        })?;
        Ok(match waited {
            Waited::Done(NO_CALL) => {
                crate::guard::remember(format!("service {src} has no call {number} without a reply"));
                NO_CALL
            }
            Waited::Done(result) => result,
            Waited::TimedOut | Waited::Interrupted => NOT_YET,
        })
    })
}

/// Gives the end of a call to the program. Returns what the call of the library returns.
///
/// # Safety
/// The places are the caller's to be written.
unsafe fn end_of(live: &mut Live, src: u16, result: super::calls::Reply, places: Places) -> Result<u8> {
    let error = match result {
        Ok(message) => {
            // SAFETY: as the caller promises.
            let is_complete = unsafe { give(live, src, &message, places) }?;
            return Ok(if is_complete { ANSWERED } else { FAILED });
        }
        Err(error) => error,
    };
    crate::guard::remember(error.to_string());
    Ok(match error {
        CallError::Refused(reason) => {
            // SAFETY: as the caller promises.
            unsafe { give_one(live, &reason, places) }?;
            REFUSED
        }
        CallError::TimedOut { reached: true, .. } => TIMED_OUT,
        CallError::TimedOut { reached: false, .. } => NOT_REACHED,
        CallError::Lost => LOST,
        _ => FAILED,
    })
}

/// Receives one message or request, and waits for it for some time.
///
/// # Safety
/// The places are NULL, or the caller's to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_receive_request(
    timeout_ms: c_int,
    service_id: u16,
    request: *mut u64,
    message: *mut RipcMessage,
) -> u8 {
    let timeout: Option<Duration> = timeout_of(timeout_ms);
    // SAFETY: as the caller promises.
    unsafe { receive(service_id, timeout, RipcMessage::places(message), Some(request)) }
}

/// Answers a request.
///
/// # Safety
/// `content` is NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_answer(request: u64, content: *const RipcContent) -> u8 {
    // SAFETY: as the caller promises.
    guarded(FAILED, || unsafe {
        with_content(content, |live, content| {
            answer(live, request, |live, ticket| live.node.answer(ticket, content))
        })
    })
}

/// Answers a request with long items, and has the program notified when they are its own again.
///
/// # Safety
/// `content` is NULL or as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_lend_answer(request: u64, content: *const RipcContent) -> u8 {
    guarded(FAILED, || {
        // SAFETY: as the caller promises.
        if content.is_null() || unsafe { (*content).num_long } == 0 {
            return wrong("an answer without long items lends nothing: give it by ripc_answer()");
        }
        // SAFETY: as the caller promises.
        unsafe {
            with_content(content, |live, content| {
                if live.calls.request(request).is_none() {
                    return wrong(format!("{request} is no request without an answer"));
                }
                if !live.calls.will_lend(request) {
                    return wrong("4,096 answers lend: take some that have returned first");
                }
                let answered =
                    answer(live, request, |live, ticket| live.node.answer(ticket, content.context(request)));
                if answered.is_err() {
                    live.calls.not_lent(request);
                }
                answered
            })
        }
    })
}

/// Takes a request whose answer's long items are the program's again.
///
/// # Safety
/// The places are NULL, or the caller's to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_returned(service_id: u16, request: *mut u64, fetched: *mut u8) -> u8 {
    guarded(FAILED, || {
        if request.is_null() || fetched.is_null() {
            return wrong("a place for the request, or for whether it was fetched, is NULL");
        }
        with(|live| {
            if let Err(super::live::Wrong(reason)) = live.registered(service_id).map(|_| ()) {
                crate::guard::remember(reason);
                return Ok(NO_CALL);
            }
            live.node.progress();
            live.take_notices();
            let Some((number, was_fetched)) = live.calls.take_returned(service_id) else {
                return Ok(NOT_YET);
            };
            // SAFETY: as the caller promises.
            unsafe {
                request.write(number);
                fetched.write(was_fetched.into());
            }
            Ok(ANSWERED)
        })
    })
}

/// Answers that a request can't be carried out.
///
/// # Safety
/// There are so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_refuse(request: u64, reason: *const c_void, size: u32) -> u8 {
    let reason = (reason.cast_mut().cast::<u8>(), size as usize);
    guarded(FAILED, || {
        check_len(&[reason])?;
        // SAFETY: as the caller promises.
        let reason = unsafe { slice(reason) }?;
        with(|live| answer(live, request, |live, ticket| live.node.refuse(ticket, reason)))
    })
}

fn answer(
    live: &mut Live,
    request: u64,
    answer: impl FnOnce(&mut Live, cci_ripc::Ticket) -> std::result::Result<(), SendError>,
) -> Result<u8> {
    let Some(ticket) = live.calls.request(request) else {
        return wrong(format!("{request} is no request without an answer"));
    };
    let answered = answer(live, ticket);
    live.take_notices();
    // Who is gone for long is answered for good.
    if matches!(answered, Ok(()) | Err(SendError::Gone | SendError::Unknown)) {
        live.calls.answered(request);
    }
    answered?;
    Ok(ANSWERED)
}

/// Frees what came with a message, but for its long items.
///
/// # Safety
/// The message is NULL, or was received and not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_free_message(message: *mut RipcMessage) {
    if message.is_null() {
        return;
    }
    // SAFETY: as the caller promises.
    let message = unsafe { &mut *message };
    if message.num_short > 0 && !message.short_items.is_null() {
        // SAFETY: there is a first item.
        let payload = unsafe { message.short_items.read() };
        call((), |live| {
            live.buffers.free(&mut live.node, payload.addr());
            Ok(())
        });
    }
    for array in [
        message.short_items.cast::<c_void>(),
        message.short_sizes.cast(),
        message.long_items.cast(),
        message.long_sizes.cast(),
    ] {
        // SAFETY: they are the program's to free, or NULL.
        unsafe { libc::free(array) };
    }
    (message.short_items, message.long_items) = (ptr::null_mut(), ptr::null_mut());
    (message.short_sizes, message.long_sizes) = (ptr::null_mut(), ptr::null_mut());
    (message.num_short, message.num_long) = (0, 0);
}
