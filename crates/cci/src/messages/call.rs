//! What a client's program learns of a call, and what it may do wrong.

use super::answer::SendFailure;
use super::message::Message;
use crate::connection::Status;
use cci_memory::slab::Key;
use std::fmt;

/// Names a call, to give it up. One that has ended is refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallId(pub(super) Key);

impl CallId {
    /// As one number, for language bindings; never 0.
    pub fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// Back from [`CallId::to_bits`]. Any other number names no call.
    pub fn from_bits(bits: u64) -> CallId {
        CallId(Key::from_bits(bits))
    }
}

/// Why a call has no reply.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallFailure {
    /// The server's program answered with an error of its own.
    Error {
        /// The program's number for it.
        code: u32,
        /// What else it said.
        message: Message,
    },
    /// The server's program has dropped the request.
    Dropped,
    /// The deadline has passed. The server may have done what was asked.
    TimedOut,
    /// This program has given the call up. The server may have done what was asked.
    Cancelled,
    /// The request could not be sent. The server has not seen it.
    NotSent(SendFailure),
    /// The reply is longer than the memory that may be lent.
    ReplyTooLong {
        /// The length of the reply.
        len_bytes: u64,
        /// The longest that is taken.
        max_bytes: u64,
    },
    /// The server has answered, and the reply could not be delivered.
    ReplyLost,
    /// The connection has ended, or the reply could not be fetched. The server may have done what was asked.
    Failed(Status),
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallFailure::Error { code, message } => {
                write!(f, "the server answered with error {code} and {} bytes", message.len())
            }
            CallFailure::Dropped => f.write_str("the server has dropped the request"),
            CallFailure::TimedOut => f.write_str("no reply before the deadline"),
            CallFailure::Cancelled => f.write_str("given up here"),
            CallFailure::NotSent(failure) => write!(f, "the request was not sent: {failure}"),
            CallFailure::ReplyTooLong { len_bytes, max_bytes } => {
                write!(f, "the reply has {len_bytes} bytes, and at most {max_bytes} are taken here")
            }
            CallFailure::ReplyLost => f.write_str("the reply could not be delivered"),
            CallFailure::Failed(status) => status.fmt(f),
        }
    }
}

impl std::error::Error for CallFailure {}
