//! The suite's driver for Java: each call is made in the Java process.

use crate::agent::{Answer, Line};
use crate::frame::{Reply, Request};
use crate::memory::JavaMemory;
use cci::{
    Atomic, Attribute, ConnectFailure, DisconnectReason, RegionAddress, RegionHandle, Rma, RmaFlags, Status,
};
use cci_testkit::conformance::{
    Counts, Driver, Flags, Grant, Happening, Polled, Port, Refusal, Setup, Whose,
};
use std::any::Any;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// The Java interface.
#[derive(Copy, Clone, Debug)]
pub struct Java;

/// Calls, as the agent counts them.
mod call {
    pub const OPEN: u8 = 1;
    pub const CONNECT: u8 = 2;
    pub const ACCEPT: u8 = 3;
    pub const REJECT: u8 = 4;
    pub const CLOSE_REQUEST: u8 = 5;
    pub const DISCONNECT: u8 = 6;
    pub const SEND: u8 = 7;
    pub const SEND_PARTS: u8 = 8;
    pub const SEND_BLOCKING: u8 = 9;
    pub const POLL: u8 = 10;
    pub const WAIT: u8 = 11;
    pub const POLL_BY_HANDLER: u8 = 12;
    pub const CLOSE_MESSAGE: u8 = 13;
    pub const MAX_SEND_SIZE: u8 = 14;
    pub const SET_SEND_TIMEOUT: u8 = 15;
    pub const SET_KEEPALIVE: u8 = 16;
    pub const TIMEOUTS: u8 = 17;
    pub const EXPLAIN: u8 = 18;
    pub const COUNTERS: u8 = 19;
    pub const CLOSE: u8 = 20;
}

/// An endpoint.
pub struct JavaPort {
    pub(crate) line: Arc<Line>,
    uri: String,
}

/// A message that the Java program has.
pub struct JavaMessage {
    line: Arc<Line>,
    number: u64,
    /// A copy, from a multiple of 8 on as the message is, which the agent checks.
    copy: Vec<u8>,
    start: usize,
}

impl JavaMessage {
    fn new(line: &Arc<Line>, number: u64, bytes: &[u8]) -> JavaMessage {
        // The place for the copy is nowhere moved from now on.
        let mut copy: Vec<u8> = Vec::with_capacity(bytes.len() + 8);
        let start = copy.as_ptr().align_offset(8);
        copy.resize(start, 0);
        copy.extend_from_slice(bytes);
        JavaMessage { line: line.clone(), number, copy, start }
    }
}

impl AsRef<[u8]> for JavaMessage {
    fn as_ref(&self) -> &[u8] {
        &self.copy[self.start..]
    }
}

impl Drop for JavaMessage {
    fn drop(&mut self) {
        self.line.end(Request::new(call::CLOSE_MESSAGE).u64(self.number), |mut reply| {
            // It ends with its endpoint.
            if reply.u8() == 1 {
                assert!(reply.bytes() == self.as_ref(), "a message that is kept stays as it is");
            }
        });
    }
}

/// A connection request, answered or not.
pub struct JavaRequest {
    line: Arc<Line>,
    number: u64,
    attribute: Attribute,
    data: Vec<u8>,
}

impl Drop for JavaRequest {
    fn drop(&mut self) {
        self.line.end(Request::new(call::CLOSE_REQUEST).u64(self.number), |_| {});
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("the suite's times fit")
}

const ATTRIBUTES: [Attribute; 5] = [
    Attribute::ReliableOrdered,
    Attribute::ReliableUnordered,
    Attribute::Unreliable,
    Attribute::MulticastSend,
    Attribute::MulticastReceive,
];

fn number_of(attribute: Attribute) -> u8 {
    let place = ATTRIBUTES.iter().position(|one| *one == attribute);
    place.and_then(|place| u8::try_from(place).ok()).expect("one of the five")
}

/// A status by its name in Java.
pub fn status_of(name: &str) -> Status {
    match name {
        "SUCCESS" => Status::Success,
        "DISCONNECTED" => Status::Disconnected,
        "RECEIVER_NOT_READY" => Status::ReceiverNotReady,
        "TIMED_OUT" => Status::TimedOut,
        "DEVICE_DEAD" => Status::DeviceDead,
        "RMA_HANDLE" => Status::RmaHandle,
        "RMA_OPERATION" => Status::RmaOperation,
        other => panic!("an operation ended with {other}"),
    }
}

fn opened(reply: &mut Reply) -> (u64, Result<u64, ConnectFailure>) {
    let (context, connection) = (reply.u64(), reply.u64());
    let result = match reply.text().as_str() {
        "SUCCESS" => Ok(connection),
        "CONNECTION_REFUSED" => Err(ConnectFailure::Refused),
        "TIMED_OUT" => Err(ConnectFailure::TimedOut),
        "NO_MEMORY" => Err(ConnectFailure::NoMemory),
        "DISCONNECTED" => Err(ConnectFailure::Disconnected),
        other => panic!("a connection failed with {other}"),
    };
    (context, result)
}

impl Driver for Java {
    type Port = JavaPort;
    const LANGUAGE: &'static str = "Java";
    const DISCONNECTED_HANDLES_GO: bool = true;
    const STALE_HANDLES_ARE_REFUSED: bool = true;
    const MEMORY_IS_COUNTED: bool = false;
    const EMPTY_MESSAGES_WITH_DATA: bool = false;
    const HANDLERS_MAY_PANIC: bool = true;

    fn open(&self, device: &str, setup: &Setup) -> JavaPort {
        let line = Arc::new(Line::open());
        let request = Request::new(call::OPEN)
            .bytes(device.as_bytes())
            .u32(setup.recv_buffers)
            .u32(setup.send_buffers)
            .u64(micros(setup.send_timeout))
            .u64(setup.keepalive.map_or(0, micros))
            .u64(setup.memory_bytes_max.unwrap_or(0));
        let uri = line.do_it(request).text();
        JavaPort { line, uri }
    }
}

impl Drop for JavaPort {
    fn drop(&mut self) {
        self.line.end(Request::new(call::CLOSE), |_| {});
    }
}

impl JavaPort {
    fn do_it(&self, request: Request) -> Reply {
        self.line.do_it(request)
    }

    fn happening(&self, kind: u8, reply: &mut Reply) -> Happening<JavaPort> {
        match kind {
            2 => {
                let (connection, number) = (reply.u64(), reply.u64());
                Happening::Received(connection, JavaMessage::new(&self.line, number, reply.bytes()))
            }
            3 => Happening::Sent(reply.u64(), reply.u64(), status_of(&reply.text())),
            4 => {
                let (context, result) = opened(reply);
                Happening::Connected(context, result)
            }
            5 => Happening::Requested(JavaRequest {
                line: self.line.clone(),
                number: reply.u64(),
                attribute: ATTRIBUTES[usize::from(reply.u8())],
                data: reply.bytes().to_vec(),
            }),
            6 => {
                let (context, result) = opened(reply);
                Happening::Accepted(context, result)
            }
            7 => Happening::Silent(reply.u64()),
            8 => {
                let (connection, context) = (reply.u64(), reply.u64());
                let reason = match reply.text().as_str() {
                    "CLOSED" => DisconnectReason::Closed,
                    "DIED" => DisconnectReason::Died,
                    "TIMED_OUT" => DisconnectReason::TimedOut,
                    "REFUSED" => DisconnectReason::Refused,
                    other => panic!("the reason {other}"),
                };
                Happening::Disconnected(connection, context, reason)
            }
            9 => Happening::DeviceFailed,
            other => panic!("an event of the kind {other}"),
        }
    }
}

impl Port for JavaPort {
    type Connection = u64;
    type Message = JavaMessage;
    type Request = JavaRequest;
    type Memory = JavaMemory;

    fn uri(&self) -> String {
        self.uri.clone()
    }

    fn connect(
        &mut self,
        uri: &str,
        request: &[u8],
        attribute: Attribute,
        context: u64,
        timeout: Option<Duration>,
    ) -> Result<(), Refusal> {
        let call = Request::new(call::CONNECT).bytes(uri.as_bytes()).bytes(request).u8(number_of(attribute));
        self.line.ask(call.u64(context).u64(timeout.map_or(u64::MAX, micros))).map(drop)
    }

    fn request_data(request: &JavaRequest) -> &[u8] {
        &request.data
    }

    fn request_attribute(request: &JavaRequest) -> Attribute {
        request.attribute
    }

    fn accept(&mut self, request: JavaRequest, context: u64) -> Result<(), Refusal> {
        self.line.ask(Request::new(call::ACCEPT).u64(request.number).u64(context)).map(drop)
    }

    fn reject(&mut self, request: JavaRequest) {
        self.do_it(Request::new(call::REJECT).u64(request.number));
    }

    fn disconnect(&mut self, connection: u64) {
        self.do_it(Request::new(call::DISCONNECT).u64(connection));
    }

    fn send(&mut self, to: u64, message: &[u8], context: u64, flags: Flags) -> Result<(), Refusal> {
        let call = Request::new(call::SEND).u64(to).u64(context).bool(flags.silent).bytes(message);
        self.line.ask(call).map(drop)
    }

    fn send_vectored(
        &mut self,
        to: u64,
        segments: &[&[u8]],
        context: u64,
        flags: Flags,
    ) -> Result<(), Refusal> {
        assert!(!flags.silent, "Java has no silent form of this");
        let count = u32::try_from(segments.len()).expect("few");
        let call = Request::new(call::SEND_PARTS).u64(to).u64(context).u32(count);
        let call = segments.iter().fold(call, |call, segment| call.bytes(segment));
        self.line.ask(call).map(drop)
    }

    fn send_blocking(&mut self, to: u64, message: &[u8]) -> Result<Status, Refusal> {
        let call = Request::new(call::SEND_BLOCKING).u64(to).bytes(message);
        self.line.ask(call).map(|mut reply| status_of(&reply.text()))
    }

    fn poll(&mut self) -> Polled<JavaPort> {
        let mut reply = self.do_it(Request::new(call::POLL));
        match reply.u8() {
            0 => Polled::Nothing,
            1 => Polled::NoBuffers,
            kind => Polled::Event(self.happening(kind, &mut reply)),
        }
    }

    fn poll_by_handler(
        &mut self,
        max: u32,
        keeps: &mut dyn FnMut(u64, &[u8]) -> bool,
        came: &mut Vec<Happening<JavaPort>>,
    ) -> u32 {
        let mut thrown: Option<Box<dyn Any + Send>> = None;
        let ended = self.line.ask_with(Request::new(call::POLL_BY_HANDLER).u32(max), |called, line| {
            if let Answer::Event(mut reply) = called {
                let kind = reply.u8();
                came.push(self.happening(kind, &mut reply));
                return;
            }
            let Answer::Message(mut reply) = called else { panic!("a handler is called") };
            let (connection, number) = (reply.u64(), reply.u64());
            let message = reply.bytes();
            let answer = match catch_unwind(AssertUnwindSafe(|| keeps(connection, message))) {
                Ok(false) => 0,
                Ok(true) => {
                    came.push(Happening::Received(connection, JavaMessage::new(&self.line, number, message)));
                    1
                }
                Err(panic) => {
                    thrown = Some(panic);
                    2
                }
            };
            Request::new(answer).send(line);
        });
        match (ended, thrown) {
            (Some(mut reply), None) => reply.u32(),
            (None, Some(panic)) => resume_unwind(panic),
            (ended, _) => panic!("a handler that throws ends the call, and no other: {ended:?}"),
        }
    }

    fn send_burst(&mut self, _: u64, _: &[&[u8]], _: u64, _: Flags) -> Result<usize, Refusal> {
        panic!("Java has no bursts")
    }

    fn send_loan(&mut self, _: u64, _: &[u8], _: u64, _: Flags) -> Result<(), Refusal> {
        panic!("Java has no loans")
    }

    fn return_loan(&mut self, _: u64, _: usize) -> Result<(), Refusal> {
        panic!("Java has no loans")
    }

    fn receive_mapped(&mut self, _: u64) {
        panic!("Java has no loans")
    }

    fn wait(&mut self, timeout: Duration) -> Option<Happening<JavaPort>> {
        let mut reply = self.do_it(Request::new(call::WAIT).u64(micros(timeout)));
        match reply.u8() {
            0 | 1 => None,
            kind => Some(self.happening(kind, &mut reply)),
        }
    }

    fn descriptor(&mut self) -> BorrowedFd<'_> {
        panic!("Java has no descriptors")
    }

    fn max_send_size(&self, connection: u64) -> usize {
        self.do_it(Request::new(call::MAX_SEND_SIZE).u64(connection)).u32() as usize
    }

    fn set_send_timeout(&mut self, connection: u64, timeout: Duration) {
        self.do_it(Request::new(call::SET_SEND_TIMEOUT).u64(connection).u64(micros(timeout)));
    }

    fn set_keepalive(&mut self, connection: u64, timeout: Option<Duration>) {
        let timeout = timeout.map_or(0, micros);
        self.do_it(Request::new(call::SET_KEEPALIVE).u64(connection).u64(timeout));
    }

    fn timeouts(&mut self, connection: u64) -> (Duration, Option<Duration>) {
        let mut reply = self.do_it(Request::new(call::TIMEOUTS).u64(connection));
        let [send, keepalive] = [(); 2].map(|()| Duration::from_micros(reply.u64()));
        (send, (!keepalive.is_zero()).then_some(keepalive))
    }

    fn explain(&self, connection: u64) -> String {
        self.do_it(Request::new(call::EXPLAIN).u64(connection)).text()
    }

    fn counts(&self) -> Counts {
        let json = self.do_it(Request::new(call::COUNTERS)).text();
        let number = |name: &str| -> u64 {
            let (_, rest) =
                json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name} in {json}"));
            let digits = rest.trim_start().split(|char: char| !char.is_ascii_digit()).next();
            digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{name} in {json}"))
        };
        Counts {
            messages_sent: number("messages_sent"),
            bytes_sent: number("bytes_sent"),
            messages_received: number("messages_received"),
            bytes_received: number("bytes_received"),
            sends_failed: number("sends_failed"),
            receiver_not_ready: number("receiver_not_ready"),
            connections_open: number("connections_open"),
            memory_bytes: number("memory_total_bytes"),
            memory_bytes_max: number("memory_cap_bytes"),
            rma_writes: number("rma_writes"),
            rma_reads: number("rma_reads"),
            rma_bytes: number("rma_bytes"),
            atomics: number("atomics"),
            rma_refused: number("rma_refused"),
            regions: number("regions"),
        }
    }

    fn memory(&mut self, whose: Whose, len_bytes: usize) -> JavaMemory {
        JavaMemory::new(&self.line, whose, len_bytes)
    }

    fn register(&mut self, memory: &JavaMemory, grant: Grant<u64>) -> Result<RegionHandle, Refusal> {
        memory.register(&self.line, &grant)
    }

    fn register_file(&mut self, _: &File, _: Grant<u64>) -> Result<RegionHandle, Refusal> {
        Err(Refusal::Other("Java names files by their paths, and only services have them".to_owned()))
    }

    fn deregister(&mut self, handle: &RegionHandle) -> Result<(), Refusal> {
        crate::memory::deregister(&self.line, handle)
    }

    fn rma(&mut self, to: u64, rma: &Rma<'_>) -> Result<(), Refusal> {
        crate::memory::rma(&self.line, to, rma, false).map(drop)
    }

    fn rma_blocking(&mut self, to: u64, rma: &Rma<'_>) -> Result<Status, Refusal> {
        crate::memory::rma(&self.line, to, rma, true).map(|mut reply| status_of(&reply.text()))
    }

    fn atomic(
        &mut self,
        to: u64,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        context: u64,
        flags: RmaFlags,
    ) -> Result<(), Refusal> {
        crate::memory::atomic(&self.line, to, (atomic, target, result), (context, flags), false).map(drop)
    }

    fn atomic_blocking(
        &mut self,
        to: u64,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
    ) -> Result<Status, Refusal> {
        let how = (0, RmaFlags::NONE);
        crate::memory::atomic(&self.line, to, (atomic, target, result), how, true)
            .map(|mut reply| status_of(&reply.text()))
    }
}
