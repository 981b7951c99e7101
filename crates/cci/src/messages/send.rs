//! What is sent: from slices or registered memory; and why it may not be taken.

use crate::error::RegisterError;
use crate::rma::Memory;
use cci_memory::slab::Key;
use std::fmt;
use std::ops::Range;

/// The bytes of a message that is to be sent. A call takes whatever can be made into one: `&[u8]`, `&[&[u8]]`, `&Memory`, or a slice of
/// `(&Memory, range)`.
///
/// Slices are copied before the call returns. Memory is not copied if the message is long: it must not change until the send has ended.
#[derive(Copy, Clone, Debug)]
pub enum Payload<'a> {
    /// Bytes in one place.
    Bytes(&'a [u8]),
    /// Bytes gathered from several places, in order.
    Gathered(&'a [&'a [u8]]),
    /// All of a memory.
    Memory(&'a Memory),
    /// Up to [`LONG_SEGMENTS_MAX`](crate::limits::LONG_SEGMENTS_MAX) ranges of memory, in order.
    Parts(&'a [(&'a Memory, Range<usize>)]),
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Payload::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Payload<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Payload::Bytes(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Payload<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Payload::Bytes(bytes)
    }
}

impl<'a> From<&'a str> for Payload<'a> {
    fn from(text: &'a str) -> Self {
        Payload::Bytes(text.as_bytes())
    }
}

impl<'a> From<&'a String> for Payload<'a> {
    fn from(text: &'a String) -> Self {
        Payload::Bytes(text.as_bytes())
    }
}

impl<'a> From<&'a [&'a [u8]]> for Payload<'a> {
    fn from(segments: &'a [&'a [u8]]) -> Self {
        Payload::Gathered(segments)
    }
}

impl<'a, const N: usize> From<&'a [&'a [u8]; N]> for Payload<'a> {
    fn from(segments: &'a [&'a [u8]; N]) -> Self {
        Payload::Gathered(segments)
    }
}

impl<'a> From<&'a Memory> for Payload<'a> {
    fn from(memory: &'a Memory) -> Self {
        Payload::Memory(memory)
    }
}

impl<'a> From<&'a [(&'a Memory, Range<usize>)]> for Payload<'a> {
    fn from(parts: &'a [(&'a Memory, Range<usize>)]) -> Self {
        Payload::Parts(parts)
    }
}

impl<'a, const N: usize> From<&'a [(&'a Memory, Range<usize>); N]> for Payload<'a> {
    fn from(parts: &'a [(&'a Memory, Range<usize>); N]) -> Self {
        Payload::Parts(parts)
    }
}

impl Payload<'_> {
    /// The length of the message in bytes. `None` if it can't be counted.
    pub(super) fn len_bytes(&self) -> Option<usize> {
        match self {
            Payload::Bytes(bytes) => Some(bytes.len()),
            Payload::Gathered(segments) => sum(segments.iter().map(|segment| segment.len())),
            Payload::Memory(memory) => Some(memory.len()),
            Payload::Parts(parts) => sum(parts.iter().map(|(_, range)| range.len())),
        }
    }
}

fn sum(lengths: impl IntoIterator<Item = usize>) -> Option<usize> {
    lengths.into_iter().try_fold(0_usize, |sum, len| sum.checked_add(len))
}

/// Names a send, to ask how far it is and to cancel it. One that has ended is refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct SendId(pub(super) Option<Key>);

impl SendId {
    /// As one number, for language bindings: 0 for a short message, which can't be cancelled.
    pub fn to_bits(self) -> u64 {
        self.0.map_or(0, Key::to_bits)
    }

    /// Back from [`SendId::to_bits`]. Any other number names no send.
    pub fn from_bits(bits: u64) -> SendId {
        SendId((bits != 0).then(|| Key::from_bits(bits)))
    }
}

/// How much of a long message is at its receiver.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that have been moved. At the sender this is as many as the receiver has last said, which it does every few mebibytes.
    pub moved_bytes: u64,
    /// The length of the message in bytes.
    pub total_bytes: u64,
}

/// Why a message was not taken for sending. Nothing was sent, and no event will come.
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// As many sends, or as many long messages, are under way as may be, or as many messages are behind a long one; or the memory for
    /// copies is used up. Get events, then try again.
    WouldBlock,
    /// The message is longer than this connection takes: an unreliable one takes only what fits one message of the endpoint, and a
    /// message from slices must fit the memory for copies.
    TooLong {
        /// The length of the message.
        len_bytes: u64,
        /// The longest that is taken.
        max_bytes: u64,
    },
    /// The message is in more parts than one message may be.
    TooManyParts,
    /// Calls need a reliable connection.
    NotReliable,
    /// The memory of the message could not be used.
    Memory(RegisterError),
    /// The peer closed or died, or `disconnect` was called.
    Disconnected,
    /// No connection of this endpoint, or one that is not open yet.
    UnknownConnection,
    /// Another process opened the endpoint, and this one is its fork child: open your own.
    OtherProcess,
}

impl From<crate::SendError> for SendError {
    fn from(error: crate::SendError) -> SendError {
        match error {
            crate::SendError::WouldBlock => SendError::WouldBlock,
            crate::SendError::TooLong { len_bytes, max_bytes } => {
                SendError::TooLong { len_bytes: len_bytes as u64, max_bytes: max_bytes.into() }
            }
            crate::SendError::Disconnected => SendError::Disconnected,
            crate::SendError::UnknownConnection | crate::SendError::ReceiveOnly => {
                SendError::UnknownConnection
            }
            crate::SendError::OtherProcess => SendError::OtherProcess,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::WouldBlock => f.write_str(
                "as much is under way as may be, on the endpoint or on this connection; get events, then try again",
            ),
            SendError::TooLong { len_bytes, max_bytes } => {
                write!(f, "the message has {len_bytes} bytes, and at most {max_bytes} are taken here")
            }
            SendError::TooManyParts => f.write_str("the message is in more parts than one message may be"),
            SendError::NotReliable => f.write_str("calls need a reliable connection, and this one is not"),
            SendError::Memory(error) => error.fmt(f),
            SendError::Disconnected => f.write_str("the connection has ended"),
            SendError::UnknownConnection => f.write_str("no such connection of this endpoint, or it is not open yet"),
            SendError::OtherProcess => f.write_str("another process opened the endpoint"),
        }
    }
}

impl std::error::Error for SendError {}

/// Why an offered message was not accepted. Nothing has changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiveError {
    /// It has ended, or is being received already.
    Ended,
    /// It is longer than the memory it is to go to, or than what the library may lend.
    TooLong {
        /// The length of the message.
        len_bytes: u64,
        /// The longest that would be taken.
        max_bytes: u64,
    },
    /// The memory could not be used.
    Memory(RegisterError),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceiveError::Ended => f.write_str("the message has ended, or is being received already"),
            ReceiveError::TooLong { len_bytes, max_bytes } => {
                write!(f, "the message has {len_bytes} bytes, and there is memory for {max_bytes}")
            }
            ReceiveError::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReceiveError {}
