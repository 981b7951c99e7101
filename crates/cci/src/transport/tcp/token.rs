//! What epoll reports for each descriptor: what it is, and whose.

use cci_ring::slab::Key;

/// No place in any table.
pub(super) const NOWHERE: Key = Key { index: u32::MAX, generation: 0 };

pub(super) const LISTENER: u64 = 1;
pub(super) const HAND: u64 = 2;
pub(super) const CONN: u64 = 3;
pub(super) const BULK: u64 = 4;
const KIND_SHIFT: u32 = 60;
const GENERATION_MASK: u32 = (1 << 28) - 1;

pub(super) fn make(kind: u64, key: Key) -> u64 {
    kind << KIND_SHIFT | u64::from(key.generation & GENERATION_MASK) << 32 | u64::from(key.index)
}

pub(super) fn kind(token: u64) -> u64 {
    token >> KIND_SHIFT
}

pub(super) fn index(token: u64) -> u32 {
    token as u32
}

/// Whether the place still has the tenant that the token was made for.
pub(super) fn names(token: u64, key: Key) -> bool {
    make(kind(token), key) == token
}
