//! A connection to or from a group, and the link by which the engine identifies it.

use crate::connection::Connection;
use cci_memory::slab::Key;

/// This bit marks the link of a group connection: an index in the protocol's table is never so high.
const MARK: u64 = 1 << 31;

/// Whether a link is that of a group connection.
#[inline]
pub(super) const fn is_group(link: u64) -> bool {
    link & MARK != 0
}

/// The link of a group connection, by its key in the table.
pub(super) fn pack(key: Key) -> u64 {
    u64::from(key.generation) << 32 | MARK | u64::from(key.index)
}

/// The key in the table of the group connection that a link names.
pub(super) fn unpack(link: u64) -> Key {
    Key { index: (link & !MARK) as u32, generation: (link >> 32) as u32 }
}

/// What a group connection does: it sends or receives.
#[derive(Copy, Clone, Debug)]
pub(super) enum End {
    Send {
        outlet: Key,
        /// Whether the program has disconnected. What it has sent waits for space in the socket.
        closing: bool,
    },
    Receive {
        member: Key,
    },
}

/// A connection to or from a group.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub connection: Connection,
    pub end: End,
    pub messages: u64,
    pub bytes: u64,
    /// It has no effect, since sends to a group do not wait. The program may read it back.
    pub send_timeout_ns: u64,
    /// It has no effect, since a group has no single peer. The program may read it back.
    pub keepalive_ns: u64,
}
