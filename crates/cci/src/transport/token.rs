//! What epoll reports for each descriptor of a transport: what it is, and whose.

use cci_memory::slab::Key;

/// No place in any table.
pub(crate) const NOWHERE: Key = Key { index: u32::MAX, generation: 0 };

/// Where clients come.
pub(crate) const LISTENER: u64 = 1;
/// The stream of a connection in the making.
pub(crate) const HAND: u64 = 2;
/// A connection's stream, of TCP.
pub(crate) const CONN: u64 = 3;
/// Its second one.
pub(crate) const BULK: u64 = 4;
/// The socket of a link in shared memory, which tells when the peer is gone.
pub(crate) const LIFELINE: u64 = 5;
/// What wakes a link's end.
pub(crate) const BELL: u64 = 6;
const KIND_SHIFT: u32 = 60;
const GENERATION_MASK: u32 = (1 << 28) - 1;

/// For a descriptor of this kind, of what is at this place.
pub(crate) fn make(kind: u64, key: Key) -> u64 {
    kind << KIND_SHIFT | u64::from(key.generation & GENERATION_MASK) << 32 | u64::from(key.index)
}

/// What it is.
pub(crate) fn kind(token: u64) -> u64 {
    token >> KIND_SHIFT
}

/// The place in its table.
pub(crate) fn index(token: u64) -> u32 {
    token as u32
}

/// Whether the place still has the tenant that the token was made for.
pub(crate) fn names(token: u64, key: Key) -> bool {
    make(kind(token), key) == token
}
