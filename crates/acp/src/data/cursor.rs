//! Elements of maps and sets, for programs that visit them one at a time.

use crate::address::GlobalAddress;

/// An element of a map or a set, while it exists (`acp_map_it_t`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// The part of the container that has it: the index of its rank in the list of ranks with which the container was made.
    pub part: u32,
    /// The bucket of that part.
    pub slot: u64,
    /// The address of the element.
    pub element: GlobalAddress,
}

/// The addresses and lengths of an element's key and value, until it is removed or its value is replaced.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The key.
    pub key: (GlobalAddress, u64),
    /// The value. It has no bytes in a set, and 8 in a multiset.
    pub value: (GlobalAddress, u64),
}
