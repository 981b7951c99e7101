//! Tokens that epoll reports with a transport's descriptors: each names the kind of the descriptor and its owner.

use cci_memory::slab::Key;

/// No slot of any table.
pub(crate) const NOWHERE: Key = Key { index: u32::MAX, generation: 0 };

/// The descriptor that listens for clients.
pub(crate) const LISTENER: u64 = 1;
/// The stream of a handshake.
pub(crate) const HANDSHAKE: u64 = 2;
/// A TCP connection's first stream.
pub(crate) const CONN: u64 = 3;
/// A TCP connection's second stream.
pub(crate) const SECOND_STREAM: u64 = 4;
/// The socket of a link in shared memory, which shows when the peer is gone.
pub(crate) const LIFELINE: u64 = 5;
/// What wakes a link's end.
pub(crate) const BELL: u64 = 6;
const KIND_SHIFT: u32 = 60;
const GENERATION_MASK: u32 = (1 << 28) - 1;

/// The token of a descriptor of this kind, which belongs to what has this key.
pub(crate) fn make(kind: u64, key: Key) -> u64 {
    kind << KIND_SHIFT | u64::from(key.generation & GENERATION_MASK) << 32 | u64::from(key.index)
}

/// The kind of the descriptor.
pub(crate) fn kind(token: u64) -> u64 {
    token >> KIND_SHIFT
}

/// The index in the table of its owner.
pub(crate) fn index(token: u64) -> u32 {
    token as u32
}

/// Whether the token was made for what has this key.
pub(crate) fn names(token: u64, key: Key) -> bool {
    make(kind(token), key) == token
}
