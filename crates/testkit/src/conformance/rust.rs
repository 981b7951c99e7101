//! The suite's driver for Rust: `cci::Endpoint`.

use super::driver::{Counts, Driver, Flags, Grant, Happening, Polled, Port, Refusal, Setup, Shared, Whose};
use crate::loopback;
use cci::{
    AcceptError, Atomic, Attribute, ConnectError, ConnectRequest, Connection, Context, Endpoint, Event,
    Foreign, Loans, MappedMessage, Memory, Message, Options, RegionAddress, RegionHandle, RegisterError,
    Registration, Rma, RmaError, RmaFlags, SendError, SendFlags, Status,
};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The Rust API.
#[derive(Copy, Clone, Debug)]
pub struct Rust;

impl Driver for Rust {
    type Port = Endpoint;
    const LANGUAGE: &'static str = "Rust";
    const DISCONNECTED_HANDLES_GO: bool = true;
    const STALE_HANDLES_ARE_REFUSED: bool = true;
    const MEMORY_IS_COUNTED: bool = true;
    const EMPTY_MESSAGES_WITH_DATA: bool = true;
    const HANDLERS_MAY_PANIC: bool = true;

    fn open(&self, device: &str, setup: &Setup) -> Endpoint {
        let defaults = Options::default();
        let memory_bytes_max = setup.memory_bytes_max.unwrap_or(defaults.memory_bytes_max);
        let options = defaults
            .recv_buffers(setup.recv_buffers)
            .send_buffers(setup.send_buffers)
            .send_timeout(setup.send_timeout)
            .keepalive(setup.keepalive)
            .memory_bytes_max(memory_bytes_max);
        if device == super::LOOP.name {
            return loopback::open(options).expect("it needs nothing that a machine may not have");
        }
        let context = Context::from_text(&super::config_of(device), "conformance.ini".as_ref());
        let context = context.expect("it is right");
        let device = context.device(device).expect("it is the one");
        Endpoint::create(device, options)
            .unwrap_or_else(|error| panic!("no endpoint on {}: {error}", device.name()))
    }
}

/// A received message. (`Message` itself is not `AsRef`, which would be ambiguous beside its `Deref`.)
#[derive(Debug)]
pub struct Received(Form);

#[derive(Debug)]
enum Form {
    InBuffer(Message),
    /// A copy of it, which is what a program reads, and the message, whose drop gives it back.
    Mapped(Vec<u8>, MappedMessage),
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Form::Mapped(copy, message) = &self.0 {
            assert!(*copy == message.to_vec(), "a message that is kept stays as it is");
        }
    }
}

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Form::InBuffer(message) => message,
            Form::Mapped(copy, _) => copy,
        }
    }
}

impl Shared for Memory {
    fn len_bytes(&self) -> usize {
        self.len()
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(Memory::read(self, offset, out), "in range");
    }

    fn write(&self, offset: usize, data: &[u8]) {
        assert!(Memory::write(self, offset, data), "in range");
    }

    fn own_atomic(&self, offset: usize, atomic: Atomic) -> u64 {
        self.atomic(offset, atomic).expect("in range and aligned")
    }
}

impl Port for Endpoint {
    type Connection = Connection;
    type Message = Received;
    type Request = ConnectRequest;
    type Memory = Memory;

    fn uri(&self) -> String {
        Endpoint::uri(self).to_owned()
    }

    fn connect(
        &mut self,
        uri: &str,
        request: &[u8],
        attribute: Attribute,
        context: u64,
        timeout: Option<Duration>,
    ) -> Result<(), Refusal> {
        Endpoint::connect(self, uri, request, attribute, context, timeout).map_err(|error| match error {
            ConnectError::BadUri { .. }
            | ConnectError::RequestTooLong { .. }
            | ConnectError::RequestToGroup { .. } => Refusal::BadArgument,
            other => Refusal::Other(other.to_string()),
        })
    }

    fn request_data(request: &ConnectRequest) -> &[u8] {
        request.data()
    }

    fn request_attribute(request: &ConnectRequest) -> Attribute {
        request.attribute()
    }

    fn accept(&mut self, request: ConnectRequest, context: u64) -> Result<(), Refusal> {
        Endpoint::accept(self, request, context).map_err(|error| match error {
            AcceptError::Gone => Refusal::Closed,
            other => Refusal::Other(other.to_string()),
        })
    }

    fn reject(&mut self, request: ConnectRequest) {
        request.reject();
    }

    fn disconnect(&mut self, connection: Connection) {
        Endpoint::disconnect(self, connection);
    }

    fn send(&mut self, to: Connection, message: &[u8], context: u64, flags: Flags) -> Result<(), Refusal> {
        Endpoint::send(self, to, message, context, send_flags(flags)).map_err(refusal)
    }

    fn send_vectored(
        &mut self,
        to: Connection,
        segments: &[&[u8]],
        context: u64,
        flags: Flags,
    ) -> Result<(), Refusal> {
        Endpoint::send_vectored(self, to, segments, context, send_flags(flags)).map_err(refusal)
    }

    fn send_blocking(&mut self, to: Connection, message: &[u8]) -> Result<Status, Refusal> {
        Endpoint::send_blocking(self, to, &[message]).map_err(refusal)
    }

    fn poll(&mut self) -> Polled<Endpoint> {
        match self.next_event() {
            Some(event) => Polled::Event(happening(event)),
            None if self.recv_buffers_free() == 0 => Polled::NoBuffers,
            None => Polled::Nothing,
        }
    }

    fn poll_by_handler(
        &mut self,
        max: u32,
        keeps: &mut dyn FnMut(Connection, &[u8]) -> bool,
        came: &mut Vec<Happening<Endpoint>>,
    ) -> u32 {
        let handled = Endpoint::poll(self, max as usize, |polled| match polled {
            cci::Polled::Message(message) => {
                assert!(message.as_ptr().addr().is_multiple_of(8), "a lent message is 8-byte aligned");
                let connection = message.connection();
                if keeps(connection, &message) {
                    came.push(Happening::Received(connection, Received(Form::InBuffer(message.keep()))));
                }
            }
            cci::Polled::Event(Event::Recv(_)) => panic!("messages are lent"),
            cci::Polled::Event(event) => came.push(happening(event)),
        });
        u32::try_from(handled).expect("no more than the maximum")
    }

    fn send_burst(
        &mut self,
        to: Connection,
        messages: &[&[u8]],
        context: u64,
        flags: Flags,
    ) -> Result<usize, Refusal> {
        Endpoint::send_burst(self, to, messages, context, send_flags(flags)).map_err(refusal)
    }

    fn send_loan(
        &mut self,
        to: Connection,
        message: &[u8],
        context: u64,
        flags: Flags,
    ) -> Result<(), Refusal> {
        // A byte more than is sent.
        let most = Endpoint::max_send_size(self, to).map_or(usize::MAX, |most| most as usize);
        let len = if message.len() < most { message.len() + 1 } else { message.len() };
        let mut loan = self.loan(to, len).map_err(refusal)?;
        assert_eq!((loan.connection(), loan.len()), (to, len));
        loan[..message.len()].copy_from_slice(message);
        loan.truncate(message.len());
        Endpoint::send_loan(self, loan, context, send_flags(flags)).map_err(|refused| {
            assert!(*refused.loan == *message, "it is as it was");
            refusal(refused.error)
        })
    }

    fn return_loan(&mut self, to: Connection, len_bytes: usize) -> Result<(), Refusal> {
        let mut loan = self.loan(to, len_bytes).map_err(refusal)?;
        loan.fill(9);
        Ok(())
    }

    fn receive_mapped(&mut self, connection: Connection) {
        self.set_loans(connection, Loans::Mapped).expect("the connection is open");
    }

    fn wait(&mut self, timeout: Duration) -> Option<Happening<Endpoint>> {
        Endpoint::wait(self, Some(timeout)).expect("the system lets us wait").map(happening)
    }

    fn descriptor(&mut self) -> BorrowedFd<'_> {
        self.os_handle()
    }

    fn max_send_size(&self, connection: Connection) -> usize {
        Endpoint::max_send_size(self, connection).expect("the connection is open") as usize
    }

    fn set_send_timeout(&mut self, connection: Connection, timeout: Duration) {
        Endpoint::set_send_timeout(self, connection, timeout).expect("the connection is open");
    }

    fn set_keepalive(&mut self, connection: Connection, timeout: Option<Duration>) {
        Endpoint::set_keepalive(self, connection, timeout).expect("the connection is open");
    }

    fn timeouts(&mut self, connection: Connection) -> (Duration, Option<Duration>) {
        Endpoint::timeouts(self, connection).expect("the connection is open")
    }

    fn explain(&self, connection: Connection) -> String {
        Endpoint::explain(self, connection).expect("the connection is open").to_string()
    }

    fn counts(&self) -> Counts {
        let counters = self.counters();
        Counts {
            messages_sent: counters.messages_sent,
            bytes_sent: counters.bytes_sent,
            messages_received: counters.messages_received,
            bytes_received: counters.bytes_received,
            sends_failed: counters.sends_failed,
            receiver_not_ready: counters.receiver_not_ready,
            connections_open: counters.connections_open,
            memory_bytes: counters.memory.total_bytes,
            memory_bytes_max: counters.memory.cap_bytes,
            rma_writes: counters.rma_writes,
            rma_reads: counters.rma_reads,
            rma_bytes: counters.rma_bytes,
            atomics: counters.atomics,
            rma_refused: counters.rma_refused,
            regions: counters.regions,
        }
    }

    fn memory(&mut self, whose: Whose, len_bytes: usize) -> Memory {
        match whose {
            Whose::Library => self.allocate(len_bytes).expect("the system has memory"),
            Whose::Foreign => Memory::foreign(Foreign::owned(vec![0; len_bytes].into_boxed_slice())),
        }
    }

    fn register(&mut self, memory: &Memory, grant: Grant<Connection>) -> Result<RegionHandle, Refusal> {
        let what = Registration { range: Some(grant.range), access: grant.access, only: grant.only };
        Endpoint::register(self, memory, what).map_err(register_refusal)
    }

    fn register_file(&mut self, file: &File, grant: Grant<Connection>) -> Result<RegionHandle, Refusal> {
        let file = file.try_clone().map_err(|error| Refusal::Other(error.to_string()))?;
        let memory = Memory::file(file).map_err(register_refusal)?;
        Port::register(self, &memory, grant)
    }

    fn deregister(&mut self, handle: &RegionHandle) -> Result<(), Refusal> {
        Endpoint::deregister(self, handle).map_err(register_refusal)
    }

    fn rma(&mut self, to: Connection, rma: &Rma<'_>) -> Result<(), Refusal> {
        Endpoint::rma(self, to, rma).map_err(rma_refusal)
    }

    fn rma_blocking(&mut self, to: Connection, rma: &Rma<'_>) -> Result<Status, Refusal> {
        Endpoint::rma_blocking(self, to, rma).map_err(rma_refusal)
    }

    fn atomic(
        &mut self,
        to: Connection,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        context: u64,
        flags: RmaFlags,
    ) -> Result<(), Refusal> {
        Endpoint::atomic(self, to, atomic, target, result, context, flags).map_err(rma_refusal)
    }

    fn atomic_blocking(
        &mut self,
        to: Connection,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
    ) -> Result<Status, Refusal> {
        Endpoint::atomic_blocking(self, to, atomic, target, result, RmaFlags::NONE).map_err(rma_refusal)
    }
}

fn register_refusal(error: RegisterError) -> Refusal {
    match error {
        RegisterError::TooMany => Refusal::WouldBlock,
        RegisterError::System(error) => Refusal::Other(error.to_string()),
        _ => Refusal::BadArgument,
    }
}

fn rma_refusal(error: RmaError) -> Refusal {
    match error {
        RmaError::TooLong { .. } => Refusal::TooLong,
        RmaError::WouldBlock => Refusal::WouldBlock,
        RmaError::Disconnected | RmaError::UnknownConnection | RmaError::OtherProcess => Refusal::Closed,
        RmaError::Unreliable
        | RmaError::Lengths
        | RmaError::LocalHandle
        | RmaError::TooManySegments { .. } => Refusal::BadArgument,
    }
}

fn happening(event: Event) -> Happening<Endpoint> {
    match event {
        Event::Send { connection, context, status } => Happening::Sent(connection, context, status),
        Event::Recv(message) => Happening::Received(message.connection(), Received(Form::InBuffer(message))),
        Event::Mapped(message) => {
            let copy = message.to_vec();
            Happening::Received(message.connection(), Received(Form::Mapped(copy, message)))
        }
        Event::Connect { context, result } => Happening::Connected(context, result),
        Event::ConnectRequest(request) => Happening::Requested(request),
        Event::Accept { context, result } => Happening::Accepted(context, result),
        Event::KeepaliveTimedOut { connection } => Happening::Silent(connection),
        Event::Disconnected { connection, context, reason } => {
            Happening::Disconnected(connection, context, reason)
        }
        Event::DeviceFailed => Happening::DeviceFailed,
        other => panic!("an event that this suite does not know: {other:?}"),
    }
}

fn send_flags(flags: Flags) -> SendFlags {
    let silent = if flags.silent { SendFlags::SILENT } else { SendFlags::NONE };
    let no_copy = if flags.no_copy { SendFlags::NO_COPY } else { SendFlags::NONE };
    silent | no_copy
}

fn refusal(error: SendError) -> Refusal {
    match error {
        SendError::TooLong { .. } => Refusal::TooLong,
        SendError::WouldBlock => Refusal::WouldBlock,
        SendError::Disconnected | SendError::UnknownConnection => Refusal::Closed,
        SendError::ReceiveOnly | SendError::OtherProcess => Refusal::BadArgument,
    }
}
