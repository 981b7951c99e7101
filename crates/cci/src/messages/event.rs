//! What a program gets: messages, offers, and what became of its own.

use super::answer::{ReceiveFailure, SendFailure};
use super::call::CallFailure;
use super::message::Message;
use super::request::{Request, RequestId};
use crate::connection::{Connection, DisconnectReason};
use crate::engine::event::ConnectRequest;
use crate::error::ConnectFailure;
use cci_memory::slab::Key;

/// A long message that a peer wants to send. Nothing of it has moved yet. The program accepts it into memory of its own or of the
/// library, refuses it, or leaves it for later; meanwhile, on a reliable ordered connection, what the peer sends after it waits. A
/// small handle, free to copy; that of a message that has ended is refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Offer {
    pub(super) key: Key,
    pub(super) connection: Connection,
    pub(super) len_bytes: u64,
}

impl Offer {
    /// The connection it comes on.
    pub fn connection(&self) -> Connection {
        self.connection
    }

    /// The length of the message in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// As one number, for language bindings, which [`Messenger::find_offer`](super::Messenger::find_offer) takes; never 0.
    pub fn to_bits(&self) -> u64 {
        self.key.to_bits()
    }
}

/// What a [`Messenger`](super::Messenger) reports. Later versions may report more: a program ignores what it does not know.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A send has ended, well or not: exactly once for each that was taken, except silent ones.
    Sent {
        /// The connection it was sent on.
        connection: Connection,
        /// As given to the send.
        context: u64,
        /// `Ok`: the peer's library has all of it, or, on an unreliable connection, it has left.
        result: Result<(), SendFailure>,
    },
    /// A message came, whole.
    Message(Message),
    /// A peer wants to send a message that is longer than [`Limits::whole_bytes_max`](super::Limits::whole_bytes_max).
    Offer(Offer),
    /// An offered message has ended: it was received into the program's memory, or was not received. Exactly once for each offer that
    /// the program has not refused, except those that end in [`Event::Message`].
    Received {
        /// Which.
        offer: Offer,
        /// As given to [`Messenger::receive_into`](super::Messenger::receive_into), or 0.
        context: u64,
        /// `Ok`: all of it is in the program's memory.
        result: Result<(), ReceiveFailure>,
    },
    /// A client has sent a request. The program answers it, on any thread and in any order.
    Request(Request),
    /// A client does not wait for the answer to a request any more, which the program has not answered. Its answer would be dropped.
    RequestCancelled(RequestId),
    /// A call has ended, well or not: exactly once for each.
    Reply {
        /// The connection it was made on.
        connection: Connection,
        /// As given to the call.
        context: u64,
        /// What the server answered; or why there is no answer.
        result: Result<Message, CallFailure>,
    },
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
    /// A peer was silent for longer than the keepalive time.
    KeepaliveTimedOut {
        /// Which.
        connection: Connection,
    },
    /// A connection has ended that this program has not disconnected. It comes after the ends of everything that was in progress on
    /// it, exactly once for each.
    Disconnected {
        /// Which.
        connection: Connection,
        /// As given to `connect` or `accept`.
        context: u64,
        /// Why.
        reason: DisconnectReason,
    },
    /// The device failed: everything on this endpoint ends with errors; drop the messenger.
    DeviceFailed,
}

impl Event {
    /// The bytes of a long message, which are in memory of the library.
    pub(super) fn lent_bytes(&self) -> u64 {
        match self {
            Event::Message(message)
            | Event::Reply { result: Ok(message) | Err(CallFailure::Error { message, .. }), .. } => {
                message.len() as u64
            }
            Event::Request(request) => request.len() as u64,
            _ => 0,
        }
    }

    /// The connection that a message, a request or an offer is of.
    pub(super) fn connection(&self) -> Option<Connection> {
        match self {
            Event::Message(message) => Some(message.connection()),
            Event::Request(request) => Some(request.connection()),
            Event::Offer(offer) => Some(offer.connection()),
            _ => None,
        }
    }
}
