//! Messages that are due to be handled, and ends that are due to be reported.

use super::contexts::{Context, Handler};
use super::inbox::Inbox;
use crate::error::Result;
use crate::wire::Args;

/// Messages that were taken to be handled. There is at most one batch.
pub struct Batch {
    pub(super) inbox: Box<Inbox>,
}

/// Identifies a message while its handler runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Token(pub(super) u64);

impl Token {
    /// The token's number, from 1 on.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The token of a number. If no handler of such a message runs, calls refuse it.
    pub fn from_number(number: u64) -> Token {
        Token(number)
    }
}

/// Something that is due.
pub enum Due<'a> {
    /// A handler is to be called.
    Message(Delivery<'a>),
    /// A remote operation has ended.
    Done {
        /// The number with which it was started.
        cookie: u64,
        /// The result: [`NotRegistered`](crate::AmError::NotRegistered), [`Gone`](crate::AmError::Gone), or the value that an
        /// atomic operation found; 0 for others.
        result: Result<u64>,
    },
    /// A collective has ended.
    Collected {
        /// The number with which it was started.
        cookie: u64,
        /// The result of this member, or why there is none.
        result: Result<Vec<u8>>,
    },
    /// A rank is gone.
    Gone {
        /// The rank.
        rank: u32,
        /// The reason.
        why: String,
    },
}

/// A message whose handler is to be called. The caller must call [`Process::end`](super::Process::end) afterwards.
pub struct Delivery<'a> {
    /// The handler that was registered.
    pub handler: Handler,
    /// The token for replies.
    pub token: Token,
    /// The rank that has sent it.
    pub sender: u32,
    /// The context that it was sent in.
    pub context: Context,
    /// Its arguments.
    pub args: Args<'a>,
    /// Its data, at an address that is a multiple of 16.
    pub data: &'a [u8],
    /// The number of bytes that the sender of a large message offers. The handler decides what happens to them, beginning with
    /// [`Process::hold`](super::Process::hold). Otherwise the message is aborted when the handler returns.
    pub large_bytes: Option<u64>,
}
