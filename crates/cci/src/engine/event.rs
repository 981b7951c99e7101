//! What happened: events, the messages in them, and requests to connect.

use super::borrowed::MappedMessage;
use super::requests::RequestBody;
use crate::connection::{Connection, DisconnectReason, Status};
use crate::{Attribute, ConnectFailure};
use cci_memory::pool::Slot;
use cci_secure::Identity;
use std::fmt;
use std::ops::Deref;

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

    /// Takes away the bytes that the request's data begins with, which a layer above has put there. False if it begins otherwise.
    pub(crate) fn strip_prefix(&mut self, prefix: &[u8]) -> bool {
        match self.body.as_mut() {
            Some(body) if body.payload.starts_with(prefix) => {
                body.payload.drain(..prefix.len());
                true
            }
            _ => false,
        }
    }

    /// Rejects the request, as dropping it does. The peer's attempt ends with [`ConnectFailure::Refused`].
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

/// What an endpoint reports. Later versions may report more: a program ignores what it does not know.
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
    /// A message came that lies in memory of the peer's and was not copied: only on connections for which the program has asked for
    /// that, by [`Endpoint::set_loans`](crate::Endpoint::set_loans).
    Mapped(MappedMessage),
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
    /// A connection has ended that this program has not disconnected: its peer has closed, or is lost. Exactly once for each, after
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
    /// The device failed: everything on this endpoint ends with errors; drop it.
    DeviceFailed,
}

const _: () = assert!(size_of::<Option<Event>>() <= 40, "one is handed out with every message");
