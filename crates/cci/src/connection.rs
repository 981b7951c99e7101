//! The handle of a connection, how operations on it end, and why it ends itself: what all others speak of, and what uses nothing
//! else.

use std::fmt;

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
    /// delivered, or the remote operation carried out, is not known. An atomic over shared memory also ends so when the target took
    /// its memory back in the middle of it; the connection lives on then.
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

/// Why a connection ended that its program has not disconnected: see [`Event::Disconnected`](crate::Event::Disconnected).
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
