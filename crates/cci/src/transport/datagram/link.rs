//! The number by which the engine identifies a connection: the protocol's key, packed.

use cci_proto::ConnKey;

/// The link of a connection.
pub(super) const fn pack(key: ConnKey) -> u64 {
    (key.generation as u64) << 32 | key.index as u64
}

/// The connection of a link.
pub(super) const fn unpack(link: u64) -> ConnKey {
    ConnKey { index: link as u32, generation: (link >> 32) as u32 }
}
