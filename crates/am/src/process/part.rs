//! What a transfer copies.

use crate::description::Description;
use cci::Memory;

/// Which of two sides a transfer copies to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Writes to the remote memory.
    Put,
    /// Reads from it.
    Get,
}

/// A part of memory of this process.
#[derive(Clone, Debug)]
pub struct Part {
    /// The memory, which stays as long as the operation goes on.
    pub memory: Memory,
    /// Bytes from its beginning.
    pub offset: usize,
    /// How many bytes.
    pub len_bytes: usize,
}

/// Described data: `count` elements, the first of which has its origin at `origin`.
#[derive(Clone, Debug)]
pub struct Elements {
    /// How many elements.
    pub count: usize,
    /// What each is.
    pub description: Description,
}
