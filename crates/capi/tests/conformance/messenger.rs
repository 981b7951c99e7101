//! Messengers through the C interface.

use super::{
    C, attribute_to_c, device, failure_of, initialise, last_error, micros, number, pointer, reason_of,
    refused, status_of, take_text, to_timeval,
};
use cci::messages::{ReceiveFailure, SendFailure};
use cci::{Attribute, ConnectFailure};
use cci_capi::messenger::types::*;
use cci_capi::types::*;
use cci_capi::*;
use cci_testkit::conformance::messenger::{
    CallEnd, Limits, MessengerCounts, MessengerDriver, MessengerEvent, MessengerPort, Parts, Progress,
};
use cci_testkit::conformance::{Refusal, Setup, conformance_timeout};
use libc::{c_int, c_void, iovec, timeval};
use std::ffi::CString;
use std::ptr::{null, null_mut};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A messenger.
pub struct CMessenger(*const cci_messenger_t);

// SAFETY: the library was initialised without the single-threaded flag.
unsafe impl Send for CMessenger {}

impl Drop for CMessenger {
    fn drop(&mut self) {
        // SAFETY: open, and not used after this.
        assert_eq!(unsafe { cci_messenger_close(self.0) }, CCI_SUCCESS);
    }
}

/// An event that shows bytes, or waits for an answer.
pub struct CEvent(*const cci_messenger_event_t);

// SAFETY: as for `CMessenger`.
unsafe impl Send for CEvent {}

impl AsRef<[u8]> for CEvent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: an event that was not returned yet; the library keeps the bytes as they are until then.
        unsafe {
            let cci_messenger_event_t { ptr, len, .. } = *self.0;
            assert_eq!(ptr.is_null(), len == 0, "NULL if there are none");
            if ptr.is_null() { &[] } else { std::slice::from_raw_parts(ptr.cast(), len as usize) }
        }
    }
}

impl Drop for CEvent {
    fn drop(&mut self) {
        // SAFETY: out, and not used after this.
        assert_eq!(unsafe { cci_messenger_return_event(self.0) }, CCI_SUCCESS);
    }
}

/// Memory of the library, which goes with its messenger.
pub struct CLoan {
    start: *mut c_void,
    len: usize,
}

// SAFETY: the suite looks at it only while no message is under way.
unsafe impl Send for CLoan {}

impl MessengerDriver for C {
    type Messenger = CMessenger;

    fn open_messenger(&self, name: &str, setup: &Setup, limits: Limits) -> CMessenger {
        initialise();
        let options = cci_endpoint_options_t {
            size: size_of::<cci_endpoint_options_t>() as u32,
            recv_buf_count: setup.recv_buffers,
            send_buf_count: setup.send_buffers,
            send_timeout_us: micros(setup.send_timeout),
            keepalive_timeout_us: setup.keepalive.map_or(0, micros),
            rma_op_count: 0,
            memory_cap_bytes: setup.memory_bytes_max.unwrap_or(0),
            progress_thread: 0,
            reserved: 0,
            security: null(),
        };
        let limits = cci_messenger_limits_t {
            size: size_of::<cci_messenger_limits_t>() as u32,
            reserved: 0,
            whole_bytes_max: limits.whole_bytes_max,
            message_bytes_max: limits.message_bytes_max,
            lent_bytes_max: limits.lent_bytes_max,
            staged_bytes_max: limits.staged_bytes_max,
        };
        let mut messenger = null();
        // SAFETY: a device of the list, options, limits, and a place for the result.
        let status = unsafe {
            cci_messenger_open(device(name), null(), &options, &limits, &mut messenger, null_mut())
        };
        assert_eq!(status, CCI_SUCCESS, "no messenger on {name}: {}", last_error());
        CMessenger(messenger)
    }
}

fn segments(parts: &[&[u8]]) -> Vec<iovec> {
    let segment = |part: &&[u8]| iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
    parts.iter().map(segment).collect()
}

/// The end of a send, of an event's status, code and length.
fn sent(status: c_int, code: u32, len: u64) -> Result<(), SendFailure> {
    Err(match status {
        CCI_SUCCESS => return Ok(()),
        CCI_EXT_REFUSED => SendFailure::Refused(code),
        CCI_EMSGSIZE => SendFailure::TooLong { max_bytes: len },
        CCI_EXT_CANCELLED => SendFailure::Cancelled,
        CCI_ERR_RMA_HANDLE => SendFailure::NotReadable,
        other => SendFailure::Failed(status_of(other).expect("the status of a send")),
    })
}

fn received(status: c_int) -> Result<(), ReceiveFailure> {
    Err(match status {
        CCI_SUCCESS => return Ok(()),
        CCI_EXT_CANCELLED => ReceiveFailure::Cancelled,
        CCI_ERR_DISCONNECTED => ReceiveFailure::Disconnected,
        other => ReceiveFailure::Failed(status_of(other).expect("the status of a read")),
    })
}

/// The end of a call, by its event.
fn replied(event: CEvent) -> Result<CEvent, CallEnd> {
    // SAFETY: an event that was not returned yet.
    let cci_messenger_event_t { status, code, len, not_sent, .. } = unsafe { *event.0 };
    if not_sent != 0 {
        let failure = sent(status, code, len).expect_err("it was not sent");
        return Err(CallEnd::NotSent(failure));
    }
    Err(match status {
        CCI_SUCCESS => return Ok(event),
        CCI_EXT_REPLY_ERROR => CallEnd::Error { code, bytes: event.as_ref().to_vec() },
        CCI_EXT_DROPPED => CallEnd::Dropped,
        CCI_ETIMEDOUT => CallEnd::TimedOut,
        CCI_EXT_CANCELLED => CallEnd::Cancelled,
        CCI_ENOMEM => CallEnd::ReplyTooLong { len_bytes: len },
        CCI_EXT_REPLY_LOST => CallEnd::ReplyLost,
        other => CallEnd::Failed(status_of(other).expect("the status of a call")),
    })
}

fn opened(status: c_int, connection: u64) -> Result<u64, ConnectFailure> {
    assert_eq!(connection == 0, status != CCI_SUCCESS, "0 unless success");
    if status == CCI_SUCCESS { Ok(connection) } else { Err(failure_of(status)) }
}

impl CMessenger {
    fn progress(&self, of: impl FnOnce(*mut cci_messenger_progress_t) -> c_int) -> Option<Progress> {
        let mut progress = cci_messenger_progress_t { moved_bytes: 0, total_bytes: 0 };
        let status = of(&mut progress);
        let cci_messenger_progress_t { moved_bytes, total_bytes } = progress;
        (status == CCI_SUCCESS).then_some(Progress { moved_bytes, total_bytes })
    }

    fn call_with(
        &mut self,
        to: u64,
        request: &[&[u8]],
        timeout: *const timeval,
        context: u64,
    ) -> Result<u64, Refusal> {
        let (data, mut call) = (segments(request), 0);
        let (count, context) = (data.len() as u32, pointer(context));
        // SAFETY: open; slices that the call copies, a time or NULL, and a place for a number.
        let status =
            unsafe { cci_messenger_callv(self.0, to, data.as_ptr(), count, timeout, context, 0, &mut call) };
        refused(status).map(|()| call)
    }
}

impl MessengerPort for CMessenger {
    type Bytes = CEvent;
    type Request = CEvent;
    type ConnectRequest = CEvent;
    type Memory = CLoan;

    fn uri(&self) -> String {
        let mut uri = null_mut();
        // SAFETY: open, and a place for a pointer.
        assert_eq!(unsafe { cci_messenger_uri(self.0, &mut uri) }, CCI_SUCCESS);
        take_text(uri)
    }

    fn connect(&mut self, uri: &str, attribute: Attribute, context: u64) {
        let uri = CString::new(uri).expect("no NUL");
        let timeout = to_timeval(conformance_timeout());
        let (attribute, context) = (attribute_to_c(attribute), pointer(context));
        // SAFETY: open, a C string, no payload and a time.
        let status =
            unsafe { cci_messenger_connect(self.0, uri.as_ptr(), null(), 0, attribute, context, &timeout) };
        assert_eq!(status, CCI_SUCCESS, "{}", last_error());
    }

    fn accept(&mut self, request: CEvent, context: u64) {
        // SAFETY: open, and an event that was not returned.
        let status = unsafe { cci_messenger_accept(self.0, request.0, pointer(context)) };
        assert_eq!(status, CCI_SUCCESS, "{}", last_error());
    }

    fn disconnect(&mut self, connection: u64) {
        // SAFETY: open.
        assert_eq!(unsafe { cci_messenger_disconnect(self.0, connection) }, CCI_SUCCESS, "{}", last_error());
    }

    fn send(
        &mut self,
        to: u64,
        message: Parts<'_, CLoan>,
        context: u64,
        silent: bool,
    ) -> Result<u64, Refusal> {
        let (flags, context, mut send) = (if silent { CCI_FLAG_SILENT } else { 0 }, pointer(context), 0);
        // SAFETY: open; bytes that the call copies, or that stay as they are until the send has ended; a place for a number.
        let status = unsafe {
            match message {
                Parts::Copied(&[bytes]) => {
                    let (ptr, len) = (bytes.as_ptr().cast(), bytes.len() as u64);
                    cci_messenger_send(self.0, to, ptr, len, context, flags, &mut send)
                }
                Parts::Copied(parts) => {
                    let (data, count) = (segments(parts), parts.len() as u32);
                    cci_messenger_sendv(self.0, to, data.as_ptr(), count, context, flags, &mut send)
                }
                Parts::InPlace(loan) => {
                    let (ptr, len) = (loan.start.cast_const(), loan.len as u64);
                    cci_messenger_send(self.0, to, ptr, len, context, flags | CCI_FLAG_NO_COPY, &mut send)
                }
            }
        };
        refused(status).map(|()| send)
    }

    fn cancel(&mut self, send: u64) -> bool {
        // SAFETY: open.
        unsafe { cci_messenger_cancel(self.0, send) == CCI_SUCCESS }
    }

    fn send_progress(&mut self, send: u64) -> Option<Progress> {
        // SAFETY: open, and a place for the numbers.
        self.progress(|out| unsafe { cci_messenger_send_progress(self.0, send, out) })
    }

    fn receive(&mut self, offer: u64) -> Result<(), Refusal> {
        // SAFETY: open.
        refused(unsafe { cci_messenger_receive(self.0, offer) })
    }

    fn receive_into(&mut self, offer: u64, memory: &CLoan, context: u64) -> Result<(), Refusal> {
        let (start, len) = (memory.start, memory.len as u64);
        // SAFETY: open, and memory that the suite leaves alone until the offer has ended.
        refused(unsafe { cci_messenger_receive_into(self.0, offer, start, len, pointer(context)) })
    }

    fn refuse(&mut self, offer: u64, code: u32) -> bool {
        // SAFETY: open.
        unsafe { cci_messenger_refuse(self.0, offer, code) == CCI_SUCCESS }
    }

    fn receive_progress(&mut self, offer: u64) -> Option<Progress> {
        // SAFETY: open, and a place for the numbers.
        self.progress(|out| unsafe { cci_messenger_receive_progress(self.0, offer, out) })
    }

    fn call(
        &mut self,
        to: u64,
        request: &[&[u8]],
        timeout: Option<Duration>,
        context: u64,
    ) -> Result<u64, Refusal> {
        let timeout = timeout.map(to_timeval);
        self.call_with(to, request, timeout.as_ref().map_or(null(), |timeout| timeout), context)
    }

    fn call_until_the_past(&mut self, to: u64) -> Option<Result<u64, Refusal>> {
        Some(self.call_with(to, &[b"?"], &timeval { tv_sec: -1, tv_usec: 0 }, 0))
    }

    fn cancel_call(&mut self, call: u64) -> bool {
        // SAFETY: open.
        unsafe { cci_messenger_cancel_call(self.0, call) == CCI_SUCCESS }
    }

    fn answer(&mut self, request: &mut CEvent, code: Option<u32>, bytes: &[u8]) -> Result<(), Refusal> {
        // SAFETY: open, and an event that was not returned.
        refused(unsafe { answer(self.0, request.0, code, bytes) })
    }

    fn answer_in_a_thread(&self, request: CEvent, code: Option<u32>, bytes: Vec<u8>) -> JoinHandle<()> {
        let messenger = self.0.expose_provenance();
        std::thread::spawn(move || {
            let request = request;
            let messenger = std::ptr::with_exposed_provenance(messenger);
            let until = Instant::now() + conformance_timeout();
            loop {
                // SAFETY: the case keeps the messenger open until this thread has ended, and the event was not returned.
                match unsafe { answer(messenger, request.0, code, &bytes) } {
                    CCI_SUCCESS => return,
                    CCI_ENOBUFS => std::thread::sleep(Duration::from_micros(200)),
                    other => panic!("{other}: {}", last_error()),
                }
                assert!(Instant::now() < until, "no room for an answer in time");
            }
        })
    }

    fn memory(&mut self, bytes: &[u8]) -> CLoan {
        let mut start = null_mut();
        // SAFETY: open, and a place for a pointer.
        let status = unsafe { cci_messenger_alloc(self.0, bytes.len() as u64, &mut start) };
        assert_eq!(status, CCI_SUCCESS, "{}", last_error());
        // SAFETY: as many bytes, which nobody else knows yet.
        unsafe { start.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        CLoan { start, len: bytes.len() }
    }

    fn bytes_of(memory: &CLoan) -> Vec<u8> {
        // SAFETY: the case asks while its messenger is open and nothing is under way.
        unsafe { std::slice::from_raw_parts(memory.start.cast::<u8>(), memory.len) }.to_vec()
    }

    fn poll(&mut self) -> Option<MessengerEvent<CMessenger>> {
        let mut event = null();
        // SAFETY: open, and a place for a pointer.
        match unsafe { cci_messenger_get_event(self.0, &mut event) } {
            CCI_SUCCESS => {}
            CCI_EAGAIN | CCI_ENOBUFS => return None,
            other => panic!("{other}: {}", last_error()),
        }
        let event = CEvent(event);
        // SAFETY: just given out.
        let shown = unsafe { *event.0 };
        let cci_messenger_event_t { r#type, status, connection, len, id, code, .. } = shown;
        let context = shown.context.addr() as u64;
        Some(match r#type {
            CCI_MESSENGER_SENT => {
                MessengerEvent::Sent { connection, context, result: sent(status, code, len) }
            }
            CCI_MESSENGER_MESSAGE => MessengerEvent::Message { connection, bytes: event },
            CCI_MESSENGER_OFFER => MessengerEvent::Offer { connection, offer: id, len_bytes: len },
            CCI_MESSENGER_RECEIVED => {
                MessengerEvent::Received { offer: id, context, result: received(status) }
            }
            CCI_MESSENGER_REQUEST => MessengerEvent::Request { connection, id, request: event },
            CCI_MESSENGER_REQUEST_CANCELLED => MessengerEvent::RequestCancelled { connection, id },
            CCI_MESSENGER_REPLY => MessengerEvent::Reply { connection, context, result: replied(event) },
            CCI_MESSENGER_CONNECT => MessengerEvent::Connect { context, result: opened(status, connection) },
            CCI_MESSENGER_CONNECT_REQUEST => MessengerEvent::ConnectRequest(event),
            CCI_MESSENGER_ACCEPT => MessengerEvent::Accept { context, result: opened(status, connection) },
            CCI_MESSENGER_DISCONNECTED => {
                MessengerEvent::Disconnected { connection, context, reason: reason_of(code) }
            }
            other => panic!("event {other}"),
        })
    }

    fn counts(&self) -> MessengerCounts {
        let mut json = null_mut();
        // SAFETY: open, and a place for a pointer.
        assert_eq!(unsafe { cci_messenger_get_counters(self.0, 0, &mut json) }, CCI_SUCCESS);
        let json = take_text(json);
        let (_, own) = json.split_once("\"messenger\"").expect("its own are there");
        MessengerCounts {
            long_received: number(own, "long_received"),
            long_failed: number(own, "long_failed"),
            faults: number(own, "faults"),
            lent_bytes: number(own, "lent_bytes"),
            staged_bytes: number(own, "staged_bytes"),
        }
    }
}

/// Answers a request, with an error if there is a code.
///
/// # Safety
/// The messenger is open, and the event was not returned.
unsafe fn answer(
    messenger: *const cci_messenger_t,
    request: *const cci_messenger_event_t,
    code: Option<u32>,
    bytes: &[u8],
) -> c_int {
    let (ptr, len) = (bytes.as_ptr().cast(), bytes.len() as u64);
    // SAFETY: as the caller promises; and bytes that the call copies.
    unsafe {
        match code {
            None => cci_messenger_reply(messenger, request, ptr, len),
            Some(code) => cci_messenger_reply_error(messenger, request, code, ptr, len),
        }
    }
}
