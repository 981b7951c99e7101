//! What a handler that is a closure gets.

use crate::process::{Context, Token};

/// A message, for its handler.
pub struct Message<'a> {
    pub(crate) token: Token,
    pub(crate) sender: u32,
    pub(crate) context: Context,
    pub(crate) args: &'a [i64],
    pub(crate) data: &'a [u8],
    pub(crate) large_bytes: Option<u64>,
}

impl Message<'_> {
    /// The rank that has sent it.
    pub fn sender(&self) -> u32 {
        self.sender
    }

    /// The context that it was sent in.
    pub fn context(&self) -> Context {
        self.context
    }

    /// Its arguments.
    pub fn args(&self) -> &[i64] {
        self.args
    }

    /// Its data, at an address that is a multiple of 16.
    pub fn data(&self) -> &[u8] {
        self.data
    }

    /// Of a large message, how many bytes there are to be fetched.
    pub fn large_bytes(&self) -> Option<u64> {
        self.large_bytes
    }

    /// For [`Runtime::reply`](crate::Runtime::reply).
    pub fn token(&self) -> Token {
        self.token
    }
}
