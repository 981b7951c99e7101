//! Elements of maps and sets, for those who go through them one at a time.

use crate::address::GlobalAddress;

/// An element of a map or a set, as long as it is there (`acp_map_it_t`).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// Which part of the container it is in: the place of its rank in the list of ranks that the container was made with.
    pub part: u32,
    /// Which bucket of that part.
    pub slot: u64,
    /// Where the element is.
    pub element: GlobalAddress,
}

/// Where an element's bytes are, until it is removed or its value is replaced: addresses and lengths.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The key.
    pub key: (GlobalAddress, u64),
    /// The value: of no bytes in a set, and of 8 in a multiset.
    pub value: (GlobalAddress, u64),
}
