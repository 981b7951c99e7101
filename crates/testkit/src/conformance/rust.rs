//! The suite's driver for Rust: `cci::Endpoint`.

use super::driver::{Counts, Driver, Flags, Happening, Polled, Port, Refusal, Setup};
use cci::{
    AcceptError, Attribute, ConnectError, ConnectRequest, Connection, Context, Endpoint, Event, Message,
    Options, SendError, SendFlags, Status,
};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The Rust API.
#[derive(Copy, Clone, Debug)]
pub struct Rust;

impl Driver for Rust {
    type Port = Endpoint;
    const STALE_HANDLES_ARE_REFUSED: bool = true;

    fn open(&self, device: &str, setup: &Setup) -> Endpoint {
        let context = Context::from_text(super::CONFIG, "conformance.ini".as_ref()).expect("CONFIG is right");
        let device = context.device(device).expect("CONFIG names it");
        let defaults = Options::default();
        let options = Options {
            recv_buffers: setup.recv_buffers,
            send_buffers: setup.send_buffers,
            send_timeout: setup.send_timeout,
            keepalive: setup.keepalive,
            memory_bytes_max: setup.memory_bytes_max.unwrap_or(defaults.memory_bytes_max),
            ..defaults
        };
        Endpoint::create(device, options)
            .unwrap_or_else(|error| panic!("no endpoint on {}: {error}", device.name()))
    }
}

/// A received message. (`Message` itself is not `AsRef`, which would be ambiguous beside its `Deref`.)
#[derive(Debug)]
pub struct Received(Message);

impl AsRef<[u8]> for Received {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Port for Endpoint {
    type Connection = Connection;
    type Message = Received;
    type Request = ConnectRequest;

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
            ConnectError::BadUri { .. } | ConnectError::RequestTooLong { .. } => Refusal::BadArgument,
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
        }
    }
}

fn happening(event: Event) -> Happening<Endpoint> {
    match event {
        Event::Send { connection, context, status } => Happening::Sent(connection, context, status),
        Event::Recv(message) => Happening::Received(message.connection(), Received(message)),
        Event::Connect { context, result } => Happening::Connected(context, result),
        Event::ConnectRequest(request) => Happening::Requested(request),
        Event::Accept { context, result } => Happening::Accepted(context, result),
        Event::KeepaliveTimedOut { connection } => Happening::Silent(connection),
        Event::DeviceFailed => Happening::DeviceFailed,
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
    }
}
