//! What becomes of a long message: the receiver's answer, and what each side's program learns of it.

use crate::connection::Status;
use std::fmt;

/// How the receiver's side ended a long message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has all of it.
    Received,
    /// Its program refused the message, with a code of its own.
    Refused(u32),
    /// It is longer than the receiver takes.
    TooLong { max_bytes: u64 },
    /// It could not be fetched, or was taken back.
    Failed,
}

impl Answer {
    /// The code and the argument in a frame.
    pub fn to_wire(self) -> (u8, u64) {
        match self {
            Answer::Received => (0, 0),
            Answer::Refused(code) => (1, code.into()),
            Answer::TooLong { max_bytes } => (2, max_bytes),
            Answer::Failed => (3, 0),
        }
    }

    /// `None` if no honest peer sends it.
    pub fn from_wire(code: u8, argument: u64) -> Option<Answer> {
        match (code, argument) {
            (0, 0) => Some(Answer::Received),
            (1, code) => Some(Answer::Refused(u32::try_from(code).ok()?)),
            (2, max_bytes) => Some(Answer::TooLong { max_bytes }),
            (3, 0) => Some(Answer::Failed),
            _ => None,
        }
    }
}

/// Why a message that was taken for sending did not arrive.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SendFailure {
    /// The receiver's program refused it, or stopped receiving it, with this code of its own.
    Refused(u32),
    /// It is longer than the receiver takes.
    TooLong {
        /// The longest message that the receiver takes, bytes.
        max_bytes: u64,
    },
    /// This program has cancelled it.
    Cancelled,
    /// The receiver could not read the memory that it was sent from.
    NotReadable,
    /// The connection, or the endpoint's own send, has failed.
    Failed(Status),
}

impl fmt::Display for SendFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendFailure::Refused(code) => write!(f, "refused by the receiver's program with code {code}"),
            SendFailure::TooLong { max_bytes } => {
                write!(f, "longer than the {max_bytes} bytes that the receiver takes")
            }
            SendFailure::Cancelled => f.write_str("cancelled here"),
            SendFailure::NotReadable => f.write_str("the receiver could not read the memory of the message"),
            SendFailure::Failed(status) => status.fmt(f),
        }
    }
}

impl std::error::Error for SendFailure {}

/// Why a message that was offered was not received.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReceiveFailure {
    /// The sender has taken it back, or the memory that it was sent from.
    Cancelled,
    /// The connection has ended.
    Disconnected,
    /// The memory that it was to be received into could not be written, or the message could not be fetched.
    Failed(Status),
}

impl fmt::Display for ReceiveFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceiveFailure::Cancelled => f.write_str("taken back by the sender"),
            ReceiveFailure::Disconnected => f.write_str("the connection has ended"),
            ReceiveFailure::Failed(status) => status.fmt(f),
        }
    }
}

impl std::error::Error for ReceiveFailure {}
