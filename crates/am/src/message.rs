//! The argument of a handler that is a closure.

use crate::process::{Context, Token};

/// A message, as its handler gets it.
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

    /// The number of bytes of a large message that can be fetched.
    pub fn large_bytes(&self) -> Option<u64> {
        self.large_bytes
    }

    /// The token for [`Runtime::reply`](crate::Runtime::reply).
    pub fn token(&self) -> Token {
        self.token
    }
}
