//! What is due: messages to be handled, and ends to be told.

use super::contexts::{Context, Handler};
use super::inbox::Inbox;
use crate::error::Result;
use crate::wire::Args;

/// Messages that were taken to be handled. There is one at most.
pub struct Batch {
    pub(super) inbox: Box<Inbox>,
}

/// Names a message while its handler runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Token(pub(super) u64);

impl Token {
    /// Its number, from 1 on.
    pub fn number(self) -> u64 {
        self.0
    }

    /// What a number stands for. It may be none whose handler runs: then it is refused.
    pub fn from_number(number: u64) -> Token {
        Token(number)
    }
}

/// What is due.
pub enum Due<'a> {
    /// A handler is to be called.
    Message(Delivery<'a>),
    /// A remote operation has ended.
    Done {
        /// What it was started with.
        cookie: u64,
        /// How it ended: with [`NotRegistered`](crate::AmError::NotRegistered), [`Gone`](crate::AmError::Gone), or well: then with the value that an atomic one found, or 0.
        result: Result<u64>,
    },
    /// A collective has ended.
    Collected {
        /// What it was started with.
        cookie: u64,
        /// What this member gets, or why it could not be.
        result: Result<Vec<u8>>,
    },
    /// A rank is gone.
    Gone {
        /// Which.
        rank: u32,
        /// Why.
        why: String,
    },
}

/// A message whose handler is to be called. [`Process::end`](super::Process::end) is to follow.
pub struct Delivery<'a> {
    /// What was registered.
    pub handler: Handler,
    /// For replies.
    pub token: Token,
    /// Who has sent it.
    pub sender: u32,
    /// The context that it was sent in.
    pub context: Context,
    /// Its arguments.
    pub args: Args<'a>,
    /// Its data, at an address that is a multiple of 16.
    pub data: &'a [u8],
    /// Of a large message, how many bytes its sender offers. Its handler says what becomes of them, beginning with
    /// [`Process::hold`](super::Process::hold); else they are aborted when it returns.
    pub large_bytes: Option<u64>,
}
