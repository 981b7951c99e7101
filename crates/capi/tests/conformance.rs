//! The conformance suite through the C interface: the functions that C programs call, on every device.

#[path = "conformance/messenger.rs"]
mod messenger;
#[path = "conformance/rma.rs"]
mod rma;

use cci::{
    Atomic, Attribute, ConnectFailure, DisconnectReason, Memory, RegionAddress, RegionHandle, Rma, RmaFlags,
    Status,
};
use cci_capi::types::*;
use cci_capi::*;
use cci_testkit::conformance::{
    Counts, Driver, Flags, Grant, Happening, Polled, Port, Refusal, Setup, Whose,
};
use libc::{c_char, c_int, c_void, timeval};
use rma::CMemory;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::ptr::{null, null_mut};
use std::sync::Once;
use std::time::Duration;

/// The C interface.
#[derive(Copy, Clone, Debug)]
struct C;

/// An endpoint. Its descriptor is asked for when it is created: C has no later moment.
struct CPort {
    endpoint: *const cci_endpoint_t,
    fd: c_int,
    /// Memory that may be registered here, let go when the endpoint is gone.
    registered: Vec<Memory>,
}

// SAFETY: the library was initialised without the single-threaded flag.
unsafe impl Send for CPort {}

/// A connection pointer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct CConn(*const cci_connection_t);

// SAFETY: as for `CPort`.
unsafe impl Send for CConn {}

/// A receive event.
struct CMessage(*const cci_event_t);

// SAFETY: as for `CPort`.
unsafe impl Send for CMessage {}

impl AsRef<[u8]> for CMessage {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: a receive event that was not returned yet; the library keeps the bytes as they are until then.
        unsafe {
            let recv = (*self.0).recv;
            assert_eq!(recv.ptr.addr() % 8, 0, "messages are aligned to 8 bytes");
            std::slice::from_raw_parts(recv.ptr.cast(), recv.len as usize)
        }
    }
}

impl Drop for CMessage {
    fn drop(&mut self) {
        // SAFETY: out, and not used after this.
        assert_eq!(unsafe { cci_return_event(self.0) }, CCI_SUCCESS);
    }
}

/// A connection request, and the endpoint that it came to.
struct CRequest {
    event: *const cci_event_t,
    came_to: *const cci_endpoint_t,
}

// SAFETY: as for `CPort`.
unsafe impl Send for CRequest {}

impl Drop for CRequest {
    fn drop(&mut self) {
        // SAFETY: out, and not used after this. An unanswered request is to be answered first: with no.
        unsafe {
            if cci_return_event(self.event) == CCI_EINVAL {
                assert_eq!(cci_reject(self.event), CCI_SUCCESS);
                assert_eq!(cci_return_event(self.event), CCI_SUCCESS);
            }
        }
    }
}

/// Words for the last failure.
fn last_error() -> String {
    // SAFETY: a C string that stays until this thread's next failure.
    unsafe { CStr::from_ptr(cci_last_error()) }.to_string_lossy().into_owned()
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).expect("the suite's times fit")
}

fn to_timeval(duration: Duration) -> timeval {
    timeval { tv_sec: duration.as_secs() as i64, tv_usec: duration.subsec_micros().into() }
}

fn initialise() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance.ini");
        std::fs::write(&path, cci_testkit::conformance::config()).expect("a file");
        // SAFETY: every test of this program comes here first and waits; none reads the environment before.
        unsafe { std::env::set_var("CCI_CONFIG", path) };
        // C programs read the configuration once, and each case may have a network of its own: it is read in one that
        // is like all of them.
        let read = std::thread::spawn(|| {
            let _network = cci_testkit::conformance::network_for_all();
            let mut caps = 0;
            // SAFETY: a place for a number.
            let status = unsafe { cci_init(CCI_ABI_VERSION, 0, &mut caps) };
            assert_eq!((status, caps), (CCI_SUCCESS, CCI_CAP_THREAD_SAFE), "{}", last_error());
        });
        read.join().expect("the library is ready");
    });
}

fn device(name: &str) -> *const cci_device_t {
    let mut list = null();
    // SAFETY: a place for a pointer.
    assert_eq!(unsafe { cci_get_devices(&mut list) }, CCI_SUCCESS);
    loop {
        // SAFETY: the list ends with NULL, and we have not seen it yet.
        let device = unsafe { *list };
        assert!(!device.is_null(), "no device {name}");
        // SAFETY: a device of the list, with a name.
        if unsafe { CStr::from_ptr((*device).name) }.to_str() == Ok(name) {
            return device;
        }
        // SAFETY: NULL is still to come.
        list = unsafe { list.add(1) };
    }
}

impl Driver for C {
    type Port = CPort;
    const LANGUAGE: &'static str = "C";
    const DISCONNECTED_HANDLES_GO: bool = false;
    const STALE_HANDLES_ARE_REFUSED: bool = false;
    const MEMORY_IS_COUNTED: bool = false;
    const EMPTY_MESSAGES_WITH_DATA: bool = false;
    const HANDLERS_MAY_PANIC: bool = false;

    fn open(&self, name: &str, setup: &Setup) -> CPort {
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
        let mut port = CPort { endpoint: null(), fd: -1, registered: Vec::new() };
        // SAFETY: a device of the list, options, and places for the results.
        let status = unsafe {
            cci_create_endpoint_with(device(name), null(), &options, 0, &mut port.endpoint, &mut port.fd)
        };
        assert_eq!(status, CCI_SUCCESS, "no endpoint on {name}: {}", last_error());
        if setup.reports_disconnected {
            let on: u32 = 1;
            // SAFETY: an open endpoint and a number.
            let status = unsafe {
                cci_set_opt(port.endpoint.cast(), CCI_OPT_EXT_ENDPT_DISCONNECT_EVENTS, (&raw const on).cast())
            };
            assert_eq!(status, CCI_SUCCESS, "{}", last_error());
        }
        port
    }
}

impl Drop for CPort {
    fn drop(&mut self) {
        // SAFETY: open, and not used after this.
        assert_eq!(unsafe { cci_destroy_endpoint(self.endpoint) }, CCI_SUCCESS);
    }
}

fn reason_of(reason: cci_ext_disconnect_reason_t) -> DisconnectReason {
    match reason {
        CCI_EXT_DISCONNECT_CLOSED => DisconnectReason::Closed,
        CCI_EXT_DISCONNECT_DIED => DisconnectReason::Died,
        CCI_EXT_DISCONNECT_TIMEDOUT => DisconnectReason::TimedOut,
        CCI_EXT_DISCONNECT_REFUSED => DisconnectReason::Refused,
        other => panic!("reason {other}"),
    }
}

fn attribute_to_c(attribute: Attribute) -> cci_conn_attribute_t {
    match attribute {
        Attribute::ReliableOrdered => CCI_CONN_ATTR_RO,
        Attribute::ReliableUnordered => CCI_CONN_ATTR_RU,
        Attribute::Unreliable => CCI_CONN_ATTR_UU,
        Attribute::MulticastSend => CCI_CONN_ATTR_UU_MC_TX,
        Attribute::MulticastReceive => CCI_CONN_ATTR_UU_MC_RX,
    }
}

fn attribute_of(attribute: cci_conn_attribute_t) -> Attribute {
    match attribute {
        CCI_CONN_ATTR_RO => Attribute::ReliableOrdered,
        CCI_CONN_ATTR_RU => Attribute::ReliableUnordered,
        CCI_CONN_ATTR_UU => Attribute::Unreliable,
        other => panic!("attribute {other}"),
    }
}

fn status_of(status: cci_status_t) -> Option<Status> {
    Some(match status {
        CCI_SUCCESS => Status::Success,
        CCI_ERR_DISCONNECTED => Status::Disconnected,
        CCI_ERR_RNR => Status::ReceiverNotReady,
        CCI_ETIMEDOUT => Status::TimedOut,
        CCI_ERR_DEVICE_DEAD => Status::DeviceDead,
        CCI_ERR_RMA_HANDLE => Status::RmaHandle,
        CCI_ERR_RMA_OP => Status::RmaOperation,
        _ => return None,
    })
}

fn failure_of(status: cci_status_t) -> ConnectFailure {
    match status {
        CCI_ECONNREFUSED => ConnectFailure::Refused,
        CCI_ETIMEDOUT => ConnectFailure::TimedOut,
        CCI_ENOMEM => ConnectFailure::NoMemory,
        CCI_ERR_DISCONNECTED => ConnectFailure::Disconnected,
        other => panic!("a connection failed with {other}"),
    }
}

fn refused(status: c_int) -> Result<(), Refusal> {
    Err(match status {
        CCI_SUCCESS => return Ok(()),
        CCI_EMSGSIZE => Refusal::TooLong,
        CCI_ENOBUFS => Refusal::WouldBlock,
        CCI_ERR_DISCONNECTED => Refusal::Closed,
        CCI_EINVAL => Refusal::BadArgument,
        other => Refusal::Other(format!("{other}: {}", last_error())),
    })
}

fn flags_to_c(flags: Flags) -> c_int {
    // NO_COPY is not given on: it promises that the message stays, and the suite only lends it.
    if flags.silent { CCI_FLAG_SILENT } else { 0 }
}

fn pointer(context: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(context as usize)
}

/// A text from the library, which is freed.
fn take_text(text: *mut c_char) -> String {
    // SAFETY: a C string from `malloc`, ours.
    unsafe {
        let copy = CStr::from_ptr(text).to_str().expect("UTF-8").to_owned();
        libc::free(text.cast());
        copy
    }
}

impl CPort {
    /// Turns an event into what the suite knows, and returns it unless it holds something.
    fn happening(&self, event: *const cci_event_t) -> Happening<CPort> {
        // SAFETY: an event that was just given out; `type` says which member holds.
        unsafe {
            let result = |status, connection: *const cci_connection_t| {
                assert_eq!(connection.is_null(), status != CCI_SUCCESS, "NULL unless success");
                if status == CCI_SUCCESS { Ok(CConn(connection)) } else { Err(failure_of(status)) }
            };
            let happening = match (*event).r#type {
                CCI_EVENT_RECV => {
                    return Happening::Received(CConn((*event).recv.connection), CMessage(event));
                }
                CCI_EVENT_CONNECT_REQUEST => {
                    return Happening::Requested(CRequest { event, came_to: self.endpoint });
                }
                CCI_EVENT_SEND => {
                    let send = (*event).send;
                    let status = status_of(send.status).expect("the status of a send");
                    Happening::Sent(CConn(send.connection), send.context.addr() as u64, status)
                }
                CCI_EVENT_CONNECT => {
                    let connect = (*event).connect;
                    let context = connect.context.addr() as u64;
                    Happening::Connected(context, result(connect.status, connect.connection))
                }
                CCI_EVENT_ACCEPT => {
                    let accept = (*event).accept;
                    Happening::Accepted(
                        accept.context.addr() as u64,
                        result(accept.status, accept.connection),
                    )
                }
                CCI_EVENT_KEEPALIVE_TIMEDOUT => Happening::Silent(CConn((*event).keepalive.connection)),
                CCI_EVENT_EXT_DISCONNECTED => {
                    let gone = (*event).ext_disconnected;
                    let context = (*gone.connection).context.addr() as u64;
                    Happening::Disconnected(CConn(gone.connection), context, reason_of(gone.reason))
                }
                CCI_EVENT_ENDPOINT_DEVICE_FAILED => Happening::DeviceFailed,
                other => panic!("event {other}"),
            };
            assert_eq!(cci_return_event(event), CCI_SUCCESS);
            happening
        }
    }

    fn json(&self) -> String {
        let mut json = null_mut();
        // SAFETY: an open endpoint and a place for a pointer.
        assert_eq!(unsafe { cci_get_counters(self.endpoint, null(), &mut json) }, CCI_SUCCESS);
        take_text(json)
    }
}

/// A number of the JSON that the library gives.
fn number(json: &str, name: &str) -> u64 {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name} in {json}"));
    let digits = rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().expect("a number")
}

/// What the suite's handler is given along.
struct HandlerCall<'a> {
    port: &'a CPort,
    keeps: &'a mut dyn FnMut(CConn, &[u8]) -> bool,
    came: &'a mut Vec<Happening<CPort>>,
}

/// Keeps events that are no messages, and the messages that the case wants kept. It lets no panic out.
unsafe extern "C" fn handle(event: *const cci_event_t, arg: *mut c_void) {
    // SAFETY: an event that is lent for this call, and what `poll_by_handler` gave along.
    unsafe {
        let call = &mut *arg.cast::<HandlerCall<'_>>();
        assert_eq!(cci_return_event(event), CCI_EINVAL, "it is lent");
        let mut other = null();
        assert_eq!(cci_get_event(call.port.endpoint, &mut other), CCI_EBUSY, "it must not use its endpoint");
        assert_eq!(cci_destroy_endpoint(call.port.endpoint), CCI_EBUSY, "nor end it");
        if (*event).r#type == CCI_EVENT_RECV {
            let recv = (*event).recv;
            assert!(recv.ptr.addr().is_multiple_of(8), "a lent message is 8-byte aligned");
            let message = std::slice::from_raw_parts(recv.ptr.cast(), recv.len as usize);
            if !(call.keeps)(CConn(recv.connection), message) {
                return;
            }
        }
        let mut kept = null();
        assert_eq!(cci_keep_event(event, &mut kept), CCI_SUCCESS);
        assert_eq!(cci_keep_event(kept, &mut other), CCI_EINVAL, "it is the program's already");
        call.came.push(call.port.happening(kept));
    }
}

impl Port for CPort {
    type Connection = CConn;
    type Message = CMessage;
    type Request = CRequest;
    type Memory = CMemory;

    fn uri(&self) -> String {
        let mut uri: *mut c_char = null_mut();
        // SAFETY: an open endpoint and a place for a pointer.
        let status = unsafe { cci_get_opt(self.endpoint.cast(), CCI_OPT_ENDPT_URI, (&raw mut uri).cast()) };
        assert_eq!(status, CCI_SUCCESS);
        take_text(uri)
    }

    fn connect(
        &mut self,
        uri: &str,
        request: &[u8],
        attribute: Attribute,
        context: u64,
        timeout: Option<Duration>,
    ) -> Result<(), Refusal> {
        let Ok(uri) = CString::new(uri) else { return Err(Refusal::BadArgument) };
        let timeout = timeout.map(to_timeval);
        // SAFETY: an open endpoint, a C string, as many bytes as said, and a time or NULL.
        refused(unsafe {
            cci_connect(
                self.endpoint,
                uri.as_ptr(),
                request.as_ptr().cast(),
                request.len() as u32,
                attribute_to_c(attribute),
                pointer(context),
                0,
                timeout.as_ref().map_or(null(), std::ptr::from_ref),
            )
        })
    }

    fn request_data(request: &CRequest) -> &[u8] {
        // SAFETY: a request event that was not returned yet.
        unsafe {
            let shown = (*request.event).request;
            match shown.data_len {
                0 => &[],
                len => std::slice::from_raw_parts(shown.data_ptr.cast(), len as usize),
            }
        }
    }

    fn request_attribute(request: &CRequest) -> Attribute {
        // SAFETY: a request event that was not returned yet.
        attribute_of(unsafe { (*request.event).request.attribute })
    }

    fn accept(&mut self, request: CRequest, context: u64) -> Result<(), Refusal> {
        // SAFETY: a request event that was not returned yet, and an open endpoint.
        refused(unsafe {
            if request.came_to == self.endpoint {
                cci_accept(request.event, pointer(context))
            } else {
                cci_accept_on(request.event, self.endpoint, pointer(context))
            }
        })
    }

    fn reject(&mut self, request: CRequest) {
        // SAFETY: a request event that was not returned yet.
        assert_eq!(unsafe { cci_reject(request.event) }, CCI_SUCCESS);
    }

    fn disconnect(&mut self, connection: CConn) {
        // SAFETY: a connection of ours.
        assert_eq!(unsafe { cci_disconnect(connection.0) }, CCI_SUCCESS, "{}", last_error());
    }

    fn send(&mut self, to: CConn, message: &[u8], context: u64, flags: Flags) -> Result<(), Refusal> {
        let flags = flags_to_c(flags);
        // SAFETY: a connection of ours, and as many bytes as said.
        refused(unsafe {
            cci_send(to.0, message.as_ptr().cast(), message.len() as u32, pointer(context), flags)
        })
    }

    fn send_vectored(
        &mut self,
        to: CConn,
        segments: &[&[u8]],
        context: u64,
        flags: Flags,
    ) -> Result<(), Refusal> {
        let (context, flags) = (pointer(context), flags_to_c(flags));
        if let [header, data] = segments {
            // SAFETY: a connection of ours, and as many bytes as said, twice.
            return refused(unsafe {
                cci_send2(
                    to.0,
                    header.as_ptr().cast(),
                    header.len() as u32,
                    data.as_ptr().cast(),
                    data.len() as u32,
                    context,
                    flags,
                )
            });
        }
        let iovec = |segment: &&[u8]| libc::iovec {
            iov_base: segment.as_ptr().cast_mut().cast(),
            iov_len: segment.len(),
        };
        let iovecs: Vec<libc::iovec> = segments.iter().map(iovec).collect();
        // SAFETY: a connection of ours, and as many segments as said.
        refused(unsafe { cci_sendv(to.0, iovecs.as_ptr(), iovecs.len() as u32, context, flags) })
    }

    fn send_blocking(&mut self, to: CConn, message: &[u8]) -> Result<Status, Refusal> {
        let len = message.len() as u32;
        // SAFETY: a connection of ours, and as many bytes as said.
        let status = unsafe { cci_send(to.0, message.as_ptr().cast(), len, null(), CCI_FLAG_BLOCKING) };
        match status_of(status) {
            // C has one number for both: a send refused, and one that was under way when the peer left.
            Some(Status::Disconnected) | None => refused(status).map(|()| Status::Success),
            Some(status) => Ok(status),
        }
    }

    fn poll(&mut self) -> Polled<CPort> {
        let mut event = null();
        // SAFETY: an open endpoint and a place for a pointer.
        match unsafe { cci_get_event(self.endpoint, &mut event) } {
            CCI_SUCCESS => Polled::Event(self.happening(event)),
            CCI_EAGAIN => Polled::Nothing,
            CCI_ENOBUFS => Polled::NoBuffers,
            other => panic!("cci_get_event: {other}: {}", last_error()),
        }
    }

    fn poll_by_handler(
        &mut self,
        max: u32,
        keeps: &mut dyn FnMut(CConn, &[u8]) -> bool,
        came: &mut Vec<Happening<CPort>>,
    ) -> u32 {
        let mut call = HandlerCall { port: self, keeps, came };
        let mut count = u32::MAX;
        // SAFETY: an open endpoint, a handler that takes this argument, and a place for a number.
        let status =
            unsafe { cci_poll(self.endpoint, max, Some(handle), (&raw mut call).cast(), &mut count) };
        match status {
            CCI_SUCCESS => assert!(count > 0 || max == 0, "a success is of something"),
            CCI_EAGAIN | CCI_ENOBUFS => assert_eq!(count, 0),
            other => panic!("cci_poll: {other}: {}", last_error()),
        }
        count
    }

    fn send_burst(
        &mut self,
        to: CConn,
        messages: &[&[u8]],
        context: u64,
        flags: Flags,
    ) -> Result<usize, Refusal> {
        let iovec = |message: &&[u8]| libc::iovec {
            iov_base: message.as_ptr().cast_mut().cast(),
            iov_len: message.len(),
        };
        let iovecs: Vec<libc::iovec> = messages.iter().map(iovec).collect();
        let mut taken = u32::MAX;
        // SAFETY: a connection of ours, as many messages as said, and a place for a number.
        let status = unsafe {
            cci_send_burst(
                to.0,
                iovecs.as_ptr(),
                iovecs.len() as u32,
                pointer(context),
                flags_to_c(flags),
                &mut taken,
            )
        };
        assert!(status == CCI_SUCCESS || taken == 0, "nothing was sent");
        refused(status).map(|()| taken as usize)
    }

    fn send_loan(&mut self, to: CConn, message: &[u8], context: u64, flags: Flags) -> Result<(), Refusal> {
        // SAFETY: a connection of ours, places for what is given out, and memory that was lent for so many bytes.
        unsafe {
            let mut memory = null_mut();
            refused(cci_loan(to.0, message.len() as u32, &mut memory))?;
            std::ptr::copy_nonoverlapping(message.as_ptr(), memory.cast(), message.len());
            let len = message.len() as u32;
            assert_eq!(cci_send_loan(to.0, memory, len + 1, null(), 0), CCI_EINVAL, "longer than it is");
            assert_eq!(cci_send_loan(to.0, memory, len, null(), CCI_FLAG_BLOCKING), CCI_EINVAL);
            let sent = refused(cci_send_loan(to.0, memory, len, pointer(context), flags_to_c(flags)));
            if sent.is_err() {
                assert_eq!(cci_return_loan(to.0, memory), CCI_SUCCESS, "it is still the program's");
            }
            assert_eq!(cci_return_loan(to.0, memory), CCI_EINVAL, "it is not the program's any more");
            sent
        }
    }

    fn return_loan(&mut self, to: CConn, len_bytes: usize) -> Result<(), Refusal> {
        let mut memory = null_mut();
        // SAFETY: a connection of ours, a place for a pointer, and memory that was lent for so many bytes.
        unsafe {
            refused(cci_loan(to.0, len_bytes as u32, &mut memory))?;
            std::ptr::write_bytes(memory.cast::<u8>(), 9, len_bytes);
            assert_eq!(cci_return_loan(to.0, memory), CCI_SUCCESS);
            assert_eq!(cci_return_loan(to.0, memory), CCI_EINVAL, "only once");
        }
        Ok(())
    }

    fn receive_mapped(&mut self, connection: CConn) {
        let (on, other) = (1u32, 2u32);
        // SAFETY: a connection of ours, and numbers.
        unsafe {
            let set = |value: &u32| {
                cci_set_opt(connection.0.cast(), CCI_OPT_EXT_CONN_LOANS, std::ptr::from_ref(value).cast())
            };
            assert_eq!((set(&other), set(&on)), (CCI_ERANGE, CCI_SUCCESS));
        }
    }

    fn wait(&mut self, timeout: Duration) -> Option<Happening<CPort>> {
        let timeout = to_timeval(timeout);
        let mut event = null();
        // SAFETY: an open endpoint, a time, and a place for a pointer.
        match unsafe { cci_wait_event(self.endpoint, &timeout, &mut event) } {
            CCI_SUCCESS => Some(self.happening(event)),
            CCI_EAGAIN => None,
            other => panic!("cci_wait_event: {other}: {}", last_error()),
        }
    }

    fn descriptor(&mut self) -> BorrowedFd<'_> {
        // SAFETY: the endpoint's own, which it keeps open.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }

    fn max_send_size(&self, connection: CConn) -> usize {
        // SAFETY: a connection of ours.
        unsafe { (*connection.0).max_send_size as usize }
    }

    fn set_send_timeout(&mut self, connection: CConn, timeout: Duration) {
        let value = micros(timeout);
        // SAFETY: a connection of ours, and a number.
        let status =
            unsafe { cci_set_opt(connection.0.cast(), CCI_OPT_CONN_SEND_TIMEOUT, (&raw const value).cast()) };
        assert_eq!(status, CCI_SUCCESS, "{}", last_error());
    }

    fn set_keepalive(&mut self, connection: CConn, timeout: Option<Duration>) {
        let value = timeout.map_or(0, micros);
        // SAFETY: a connection of ours, and a number.
        let status = unsafe {
            cci_set_opt(connection.0.cast(), CCI_OPT_CONN_KEEPALIVE_TIMEOUT, (&raw const value).cast())
        };
        assert_eq!(status, CCI_SUCCESS, "{}", last_error());
    }

    fn timeouts(&mut self, connection: CConn) -> (Duration, Option<Duration>) {
        let read = |name| {
            let mut value = 0_u32;
            // SAFETY: a connection of ours, and a place for a number.
            let status = unsafe { cci_get_opt(connection.0.cast(), name, (&raw mut value).cast()) };
            assert_eq!(status, CCI_SUCCESS, "{}", last_error());
            Duration::from_micros(value.into())
        };
        let keepalive = read(CCI_OPT_CONN_KEEPALIVE_TIMEOUT);
        (read(CCI_OPT_CONN_SEND_TIMEOUT), (!keepalive.is_zero()).then_some(keepalive))
    }

    fn explain(&self, connection: CConn) -> String {
        let mut text = null_mut();
        // SAFETY: a connection of ours, and a place for a pointer.
        assert_eq!(unsafe { cci_explain(connection.0, &mut text) }, CCI_SUCCESS, "{}", last_error());
        take_text(text)
    }

    fn counts(&self) -> Counts {
        let json = self.json();
        Counts {
            messages_sent: number(&json, "messages_sent"),
            bytes_sent: number(&json, "bytes_sent"),
            messages_received: number(&json, "messages_received"),
            bytes_received: number(&json, "bytes_received"),
            sends_failed: number(&json, "sends_failed"),
            receiver_not_ready: number(&json, "receiver_not_ready"),
            connections_open: number(&json, "connections_open"),
            memory_bytes: number(&json, "memory_total_bytes"),
            memory_bytes_max: number(&json, "memory_cap_bytes"),
            rma_writes: number(&json, "rma_writes"),
            rma_reads: number(&json, "rma_reads"),
            rma_bytes: number(&json, "rma_bytes"),
            atomics: number(&json, "atomics"),
            rma_refused: number(&json, "rma_refused"),
            regions: number(&json, "regions"),
        }
    }

    fn memory(&mut self, whose: Whose, len_bytes: usize) -> CMemory {
        self.memory_of(whose, len_bytes)
    }

    fn register(&mut self, memory: &CMemory, grant: Grant<CConn>) -> Result<RegionHandle, Refusal> {
        self.register_part(memory, grant)
    }

    fn register_file(&mut self, file: &File, grant: Grant<CConn>) -> Result<RegionHandle, Refusal> {
        self.register_part_of_file(file, grant)
    }

    fn deregister(&mut self, handle: &RegionHandle) -> Result<(), Refusal> {
        self.deregister_handle(handle)
    }

    fn rma(&mut self, to: CConn, rma: &Rma<'_>) -> Result<(), Refusal> {
        self.start_rma(to, rma)
    }

    fn rma_blocking(&mut self, to: CConn, rma: &Rma<'_>) -> Result<Status, Refusal> {
        self.wait_rma(to, rma)
    }

    fn atomic(
        &mut self,
        to: CConn,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        context: u64,
        flags: RmaFlags,
    ) -> Result<(), Refusal> {
        self.start_atomic(to, atomic, target, result, context, flags)
    }

    fn atomic_blocking(
        &mut self,
        to: CConn,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
    ) -> Result<Status, Refusal> {
        self.wait_atomic(to, atomic, target, result)
    }
}

mod shm {
    cci_testkit::conformance!(super::C, cci_testkit::conformance::SHM);
}

mod udp4 {
    cci_testkit::conformance!(super::C, cci_testkit::conformance::UDP4);
}

mod udp6 {
    cci_testkit::conformance!(super::C, cci_testkit::conformance::UDP6);
}

mod tcp4 {
    cci_testkit::conformance!(super::C, cci_testkit::conformance::TCP4);
}

mod eth {
    cci_testkit::conformance!(super::C, cci_testkit::conformance::ETH);
}

mod any {
    cci_testkit::conformance!(super::C, cci_testkit::conformance::ANY);
}

mod shm_memory {
    cci_testkit::conformance!(remote memory: super::C, cci_testkit::conformance::SHM);
}

mod udp4_memory {
    cci_testkit::conformance!(remote memory: super::C, cci_testkit::conformance::UDP4);
}

mod udp6_memory {
    cci_testkit::conformance!(remote memory: super::C, cci_testkit::conformance::UDP6);
}

mod tcp4_memory {
    cci_testkit::conformance!(remote memory: super::C, cci_testkit::conformance::TCP4);
}

mod eth_memory {
    cci_testkit::conformance!(remote memory: super::C, cci_testkit::conformance::ETH);
}

mod any_memory {
    cci_testkit::conformance!(remote memory: super::C, cci_testkit::conformance::ANY);
}

mod udp4_multicast {
    cci_testkit::conformance!(multicast: super::C, cci_testkit::conformance::UDP4);
}

mod udp6_multicast {
    cci_testkit::conformance!(multicast: super::C, cci_testkit::conformance::UDP6_WIRE);
}

mod shm_messengers {
    cci_testkit::conformance!(messengers: super::C, cci_testkit::conformance::SHM);
}

mod udp4_messengers {
    cci_testkit::conformance!(messengers: super::C, cci_testkit::conformance::UDP4);
}

mod udp6_messengers {
    cci_testkit::conformance!(messengers: super::C, cci_testkit::conformance::UDP6);
}

mod tcp4_messengers {
    cci_testkit::conformance!(messengers: super::C, cci_testkit::conformance::TCP4);
}

mod eth_messengers {
    cci_testkit::conformance!(messengers: super::C, cci_testkit::conformance::ETH);
}

mod any_messengers {
    cci_testkit::conformance!(messengers: super::C, cci_testkit::conformance::ANY);
}
