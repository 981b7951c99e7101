//! What the protocol reports to the program, and how calls can fail.

use crate::Address;

/// The kind of service of a connection (CCI-028, CCI-029, CCI-030).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Attribute {
    /// Every message exactly once, in order; completions in order.
    ReliableOrdered = 0,
    /// Every message exactly once; delivered and completed in any order.
    ReliableUnordered = 1,
    /// Each message at most once, perhaps never.
    Unreliable = 2,
}

impl Attribute {
    /// The attribute with this number on the wire.
    pub(crate) fn from_wire(number: u8) -> Option<Attribute> {
        match number {
            0 => Some(Attribute::ReliableOrdered),
            1 => Some(Attribute::ReliableUnordered),
            2 => Some(Attribute::Unreliable),
            _ => None,
        }
    }

    /// True for the two reliable services.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        !matches!(self, Attribute::Unreliable)
    }
}

/// How a send ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Reliable: the peer has stored it. Unreliable: it has left.
    Success = 0,
    /// The peer closed or reset the connection first; whether the message arrived is not known.
    Disconnected = 1,
    /// The peer had no buffer for it until the send timeout; it was not and will not be delivered.
    ReceiverNotReady = 2,
    /// Nothing was heard from the peer until the send timeout; the connection is broken. Whether the message
    /// arrived is not known.
    TimedOut = 3,
    /// The carrier is gone. Not raised by the protocol itself.
    DeviceDead = 4,
    /// Remote memory access: the peer refused the handle, range or right, or the memory on either side went away
    /// meanwhile.
    RmaHandle = 5,
    /// Remote memory access: the peer cannot do that there (a misaligned atomic).
    RmaOperation = 6,
}

/// A connection of this endpoint: index and generation. Keys of connections that are gone are refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConnKey {
    /// Place in the endpoint's table.
    pub index: u32,
    /// Which of the connections that have had this place.
    pub generation: u32,
}

/// A connection request, as the program sees it. Self-contained: it may be accepted on another endpoint
/// (CCI-037).
#[derive(Debug)]
pub struct Request {
    pub(crate) ticket: RequestTicket,
    pub(crate) attribute: Attribute,
    pub(crate) client_index: u32,
    pub(crate) client_generation: u32,
    pub(crate) first_seq: u32,
    pub(crate) datagram_bytes_max: u16,
    pub(crate) window_kib: u16,
    /// The client has another path to this server and would use both.
    pub(crate) bond: bool,
    pub(crate) timestamp: u32,
    pub(crate) came_at: crate::Time,
    pub(crate) payload: Box<[u8]>,
}

impl Request {
    /// What the client sent along with its request: at most [`crate::limits::REQUEST_BYTES_MAX`] bytes.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The service the client asks for.
    #[must_use]
    pub fn attribute(&self) -> Attribute {
        self.attribute
    }

    /// Where the request came from.
    #[must_use]
    pub fn peer(&self) -> Address {
        self.ticket.peer
    }

    /// Names the request to the endpoint it came to.
    #[must_use]
    pub fn ticket(&self) -> RequestTicket {
        self.ticket
    }
}

/// Names a request to the endpoint it came to; see [`crate::Endpoint::request_taken`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestTicket {
    pub(crate) peer: Address,
    pub(crate) nonce: u64,
}

/// Something that happened. Every operation started ends in exactly one of these.
#[derive(Debug)]
pub enum Event {
    /// A client asks for a connection; accept or reject it.
    Request(Request),
    /// The connection asked for with `token` is there.
    Connected {
        /// The connection.
        conn: ConnKey,
        /// What was given to [`crate::Endpoint::connect`].
        token: u64,
    },
    /// The connection asked for with `token` will not come; the key is free.
    ConnectFailed {
        /// The connection that would have been.
        conn: ConnKey,
        /// What was given to [`crate::Endpoint::connect`].
        token: u64,
        /// Why.
        why: ConnectFailure,
    },
    /// The client has confirmed the connection accepted with `token`.
    Accepted {
        /// The connection.
        conn: ConnKey,
        /// What was given to [`crate::Endpoint::accept`].
        token: u64,
    },
    /// The client never confirmed; the key is free.
    AcceptFailed {
        /// The connection that would have been.
        conn: ConnKey,
        /// What was given to [`crate::Endpoint::accept`].
        token: u64,
        /// Why.
        why: AcceptFailure,
    },
    /// A send is over, or several messages of one burst are. Not raised for silent sends, whose failures are only counted.
    Sent {
        /// The connection.
        conn: ConnKey,
        /// The connection's token.
        token: u64,
        /// What was given to [`crate::Endpoint::send`] or [`crate::Endpoint::send_burst`].
        context: u64,
        /// How it ended.
        status: Status,
        /// How many messages of the burst these are; 1 for a message that was sent by itself.
        count: u32,
    },
    /// A remote memory operation is over: everything it reads or writes is there, or never will be.
    Rma {
        /// The connection.
        conn: ConnKey,
        /// The connection's token.
        token: u64,
        /// What was given to [`crate::Endpoint::rma`] or [`crate::Endpoint::atomic`].
        operation: u64,
        /// How it ended.
        status: Status,
    },
    /// The peer has not answered for a keepalive period. Raised once; keepalive is then off, the connection is
    /// not closed.
    KeepaliveTimedOut {
        /// The connection.
        conn: ConnKey,
        /// The connection's token.
        token: u64,
    },
    /// The peer closed, was reset or stopped answering: later sends fail. Raised behind the last message that had
    /// arrived from it, and behind the ends of all sends and operations. The key stays until
    /// [`crate::Endpoint::disconnect`].
    Disconnected {
        /// The connection.
        conn: ConnKey,
        /// The connection's token.
        token: u64,
        /// Why.
        reason: DisconnectReason,
    },
    /// A local [`crate::Endpoint::disconnect`] is complete; the key is free.
    Closed {
        /// The connection that was.
        conn: ConnKey,
        /// Its token.
        token: u64,
    },
}

/// Why a connection ended that this side did not close.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum DisconnectReason {
    /// The peer closed it.
    Closed,
    /// The peer's endpoint does not know it any more.
    Died,
    /// The peer was not heard of, or did not take what it must, until the time was over.
    TimedOut,
    /// This side ended it, because the peer did not finish what it had begun.
    Refused,
}

/// Why a connection did not come about, seen by the client.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConnectFailure {
    /// The server's program rejected the request.
    Refused,
    /// No answer in the time given.
    TimedOut,
    /// The server speaks another version of the protocol.
    Version {
        /// The highest version it speaks.
        theirs: u8,
    },
    /// [`crate::Endpoint::disconnect`] was called before it was there.
    Cancelled,
    /// This endpoint's memory cap does not allow another connection.
    NoMemory,
}

/// Why an accepted connection did not come about, seen by the server.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum AcceptFailure {
    /// The client never confirmed.
    TimedOut,
    /// The client has given up or restarted meanwhile.
    Gone,
    /// [`crate::Endpoint::disconnect`] was called before the client confirmed.
    Cancelled,
}

/// Why [`crate::Endpoint::connect`] refused: the caller's fault or a limit of this endpoint.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConnectError {
    /// The request payload is longer than `max` bytes.
    TooLong {
        /// The limit, in bytes.
        max: usize,
    },
    /// `connections_max` connections exist.
    TooMany,
    /// The memory cap is reached.
    NoMemory,
}

/// Why [`crate::Endpoint::accept`] refused; the request comes back.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum AcceptError {
    /// `connections_max` connections exist.
    TooMany,
    /// The memory cap is reached.
    NoMemory,
}

/// How much of a burst [`crate::Endpoint::send_burst`] took.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Messages, from the first on.
    pub messages: u32,
    /// Bytes of these messages.
    pub bytes: u64,
}

/// Why [`crate::Endpoint::send`] refused; nothing was queued and nothing is lost.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum SendError {
    /// Longer than the connection's largest message, `max` bytes.
    TooLong {
        /// The limit, in bytes.
        max: usize,
    },
    /// The window, the packet pool or `sends_max` is full: try again after completions.
    WouldBlock,
    /// The peer has closed or died, or this side is closing.
    Disconnected,
    /// The connection is not there yet: wait for [`Event::Connected`] or [`Event::Accepted`].
    NotConnected,
    /// No such connection, or no longer.
    Unknown,
}

/// The key names no connection, or one that is gone.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unknown;

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no such connection, or no longer")
    }
}

impl std::error::Error for Unknown {}
