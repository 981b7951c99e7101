//! The parts of a transfer.

use crate::description::Description;
use cci::Memory;

/// The direction of a transfer.
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
    /// The memory. It stays while the operation is under way.
    pub memory: Memory,
    /// Bytes from its beginning.
    pub offset: usize,
    /// How many bytes.
    pub len_bytes: usize,
}

/// Described data: `count` elements, the first of which has its origin at `origin`.
#[derive(Clone, Debug)]
pub struct Elements {
    /// The number of elements.
    pub count: usize,
    /// The description of each element.
    pub description: Description,
}
