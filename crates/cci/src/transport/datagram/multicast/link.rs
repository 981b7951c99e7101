//! One connection to or from a group, and its name.

use crate::connection::Connection;
use cci_memory::slab::Key;

/// Marks the name of a group connection: a place in the protocol's table is never so high.
const MARK: u64 = 1 << 31;

/// Whether a transport's name of a connection is that of one to or from a group.
#[inline]
pub(super) const fn is_group(link: u64) -> bool {
    link & MARK != 0
}

/// The transport's name of a group connection.
pub(super) fn pack(key: Key) -> u64 {
    u64::from(key.generation) << 32 | MARK | u64::from(key.index)
}

/// The place it names.
pub(super) fn unpack(link: u64) -> Key {
    Key { index: (link & !MARK) as u32, generation: (link >> 32) as u32 }
}

/// One end of a group connection.
#[derive(Copy, Clone, Debug)]
pub(super) enum End {
    Send {
        outlet: Key,
        /// The program has disconnected; what it sent waits for room.
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
    /// Without effect, since nothing is waited for; kept to be read back.
    pub send_timeout_ns: u64,
    pub keepalive_ns: u64,
}
