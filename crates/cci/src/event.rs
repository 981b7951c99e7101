//! What happened: events, the messages in them, and requests to connect.

use crate::engine::origin::RequestBody;
use crate::{Attribute, ConnectFailure};
use cci_memory::pool::Slot;
use cci_secure::Identity;
use std::fmt;
use std::ops::Deref;

/// A connection of one endpoint: a small handle, free to copy. It holds nothing; a stale one is refused.
///
/// ```
/// use cci::{Connection, Endpoint, SendError, SendFlags};
///
/// fn greet(endpoint: &mut Endpoint, to: Connection) -> Result<(), SendError> {
///     match endpoint.send(to, b"hello", 0, SendFlags::SILENT) {
///         // As many sends are in progress as may be: get events, and try again.
///         Err(SendError::WouldBlock) => Ok(()),
///         sent => sent,
///     }
/// }
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Connection {
    /// As one number, for tables of the program's own; unique among the connections an endpoint ever had.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Back from [`Connection::to_bits`].
    pub const fn from_bits(bits: u64) -> Connection {
        Connection { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// How an operation ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Reliable: the peer's library has it. Unreliable: it has left.
    Success,
    /// The connection was closed by the peer, or ended, before the message was known to have arrived.
    Disconnected,
    /// The peer had no receive buffer until the send timed out. The message was not delivered.
    ReceiverNotReady,
    /// Nothing was heard of the peer until the send timed out, or it did not take this send in time. Whether the message was
    /// delivered is not known.
    TimedOut,
    /// The device failed.
    DeviceDead,
    /// The peer refused a handle, range or right, or has deregistered the region; or the local region was deregistered
    /// meanwhile. What was refused was not touched.
    RmaHandle,
    /// The peer could not carry out the operation: an atomic at a place not aligned to its width.
    RmaOperation,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Success => "success",
            Status::Disconnected => "disconnected",
            Status::ReceiverNotReady => "receiver not ready",
            Status::TimedOut => "timed out",
            Status::DeviceDead => "device dead",
            Status::RmaHandle => "remote memory handle, range or right refused",
            Status::RmaOperation => "remote memory operation not possible",
        })
    }
}

/// Why a connection ended that its program has not disconnected: see [`Event::Disconnected`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// The peer's program has disconnected, or closed its endpoint.
    Closed,
    /// The peer's process or endpoint is gone, and did not say goodbye.
    Died,
    /// The peer was silent, or took nothing, for longer than it may.
    TimedOut,
    /// This endpoint has ended it: the peer did not keep to the protocol, or there was no memory to go on.
    Refused,
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DisconnectReason::Closed => "closed by the peer",
            DisconnectReason::Died => "the peer died",
            DisconnectReason::TimedOut => "the peer was silent for too long",
            DisconnectReason::Refused => "ended here, because the peer did not keep to the protocol",
        })
    }
}

/// A received message: readable in place, 8-byte aligned, kept as long as the program likes. Dropping it, in any
/// order and on any thread, gives its buffer back to the endpoint (CCI-022, CCI-023).
///
/// ```
/// use cci::{Event, Message};
///
/// /// Keeps messages, and with each its receive buffer, until there is time for them.
/// fn keep(event: Event, later: &mut Vec<Message>) {
///     if let Event::Recv(message) = event {
///         println!("{} bytes, the first is {:?}", message.len(), message.first());
///         later.push(message);
///     }
/// }
/// ```
pub struct Message {
    slot: Slot,
    connection: Connection,
}

/// A [`Message`] taken apart, for those who keep it behind a C pointer. See [`Message::into_raw`].
pub struct RawMessage {
    /// The buffer.
    pub slot: Slot,
    /// Where it came from.
    pub connection: Connection,
}

impl Message {
    #[inline]
    pub(crate) fn new(slot: Slot, connection: Connection) -> Message {
        Message { slot, connection }
    }

    /// The connection it came on; answer there.
    #[inline]
    pub fn connection(&self) -> Connection {
        self.connection
    }

    /// The buffer and where it came from, for language bindings.
    pub fn into_raw(self) -> RawMessage {
        RawMessage { slot: self.slot, connection: self.connection }
    }
}

impl Deref for Message {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.slot
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message({} bytes from {:?})", self.len(), self.connection)
    }
}

/// Somebody wants to connect. Give it to [`crate::Endpoint::accept`] of the endpoint it came to or of another one of
/// the same kind of device (CCI-037); dropping it rejects it.
///
/// ```
/// use cci::{AcceptError, ConnectRequest, Endpoint};
///
/// fn decide(endpoint: &mut Endpoint, request: ConnectRequest) -> Result<(), AcceptError> {
///     println!("{} asks, and says {:?}", request.peer(), request.data());
///     if request.data() == b"please" { endpoint.accept(request, 7) } else { Ok(request.reject()) }
/// }
/// ```
pub struct ConnectRequest {
    /// In a box, so that events are small.
    pub(crate) body: Option<Box<RequestBody>>,
}

impl ConnectRequest {
    pub(crate) fn new(body: RequestBody) -> ConnectRequest {
        ConnectRequest { body: Some(Box::new(body)) }
    }

    /// What the peer sent along, 1,024 bytes at most (CCI-036).
    pub fn data(&self) -> &[u8] {
        self.body.as_ref().map_or(&[], |body| &body.payload)
    }

    /// What kind of connection it asks for.
    pub fn attribute(&self) -> Attribute {
        self.body.as_ref().map_or(Attribute::Unreliable, |body| body.attribute)
    }

    /// Who asks, as far as the device knows: an address, or a process and user.
    pub fn peer(&self) -> &str {
        self.body.as_ref().map_or("", |body| &body.peer)
    }

    /// Who asks, where that was proved: on endpoints with security ([`crate::Security`]). Its right to connect has been
    /// checked.
    pub fn peer_identity(&self) -> Option<&Identity> {
        self.body.as_ref()?.identity.as_ref()?.identity.as_ref()
    }

    /// Says no. The peer's attempt ends with [`ConnectFailure::Refused`]. The same as dropping it.
    pub fn reject(self) {}
}

impl Drop for ConnectRequest {
    #[inline]
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            body.refuse();
        }
    }
}

impl fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ConnectRequest({} from {}, {} bytes)",
            self.attribute().short_name(),
            self.peer(),
            self.data().len()
        )
    }
}

/// What an endpoint has to tell. Later versions may tell more: a program passes over what it does not know.
///
/// A server that keeps a table of its clients:
///
/// ```
/// use cci::{AcceptError, Connection, Endpoint, Event};
/// use std::collections::HashSet;
///
/// fn on(event: Event, endpoint: &mut Endpoint, clients: &mut HashSet<Connection>) -> Result<(), AcceptError> {
///     match event {
///         Event::ConnectRequest(request) => endpoint.accept(request, 0)?,
///         Event::Accept { result: Ok(client), .. } => drop(clients.insert(client)),
///         Event::Recv(message) => println!("{} bytes", message.len()),
///         Event::Disconnected { connection, reason, .. } => {
///             clients.remove(&connection);
///             println!("a client is gone: {reason}");
///         }
///         _ => {}
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A send completed, well or not: exactly once for each send that was taken, except silent ones.
    Send {
        /// The connection it was sent on.
        connection: Connection,
        /// As given to the send.
        context: u64,
        /// How it ended.
        status: Status,
    },
    /// A message came.
    Recv(Message),
    /// An attempt to connect ended: exactly once for each.
    Connect {
        /// As given to `connect`.
        context: u64,
        /// The connection, open; or why there is none.
        result: Result<Connection, ConnectFailure>,
    },
    /// Somebody wants to connect.
    ConnectRequest(ConnectRequest),
    /// An accepted connection is open, or failed before it was: exactly once for each accept.
    Accept {
        /// As given to `accept`.
        context: u64,
        /// The connection, open; or why there is none.
        result: Result<Connection, ConnectFailure>,
    },
    /// A peer was silent for longer than the keepalive time. Raised once; keepalive is then off for the connection,
    /// which stays open.
    KeepaliveTimedOut {
        /// Which.
        connection: Connection,
    },
    /// A connection has ended that this program has not disconnected: its peer has closed, or is lost. Exactly once for each, behind
    /// its last message and the last completion of its sends and operations; never for one that the program disconnects first.
    /// Nothing of the connection is left then, and the handle is refused, without a call of [`Endpoint::disconnect`].
    ///
    /// [`Endpoint::disconnect`]: crate::Endpoint::disconnect
    Disconnected {
        /// Which.
        connection: Connection,
        /// As given to `connect` or `accept`.
        context: u64,
        /// Why.
        reason: DisconnectReason,
    },
    /// The device failed: everything on this endpoint ends with errors; destroy it.
    DeviceFailed,
}

const _: () = assert!(size_of::<Option<Event>>() <= 40, "one is handed out with every message");
