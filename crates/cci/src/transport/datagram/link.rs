//! The protocol's name of a connection as one number.

use cci_proto::ConnKey;

pub(super) const fn pack(key: ConnKey) -> u64 {
    (key.generation as u64) << 32 | key.index as u64
}

pub(super) const fn unpack(link: u64) -> ConnKey {
    ConnKey { index: link as u32, generation: (link >> 32) as u32 }
}
