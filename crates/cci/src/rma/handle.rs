//! Handles: what names a region, here and at the peers.

use std::fmt;
use std::ops::BitOr;

/// What peers may do with a region; combine with `|`. A region that only takes part in operations of its owner's own
/// needs none of it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct Access(u8);

impl Access {
    /// Nothing: for use as the local side of operations.
    pub const LOCAL: Access = Access(0);
    /// Peers may read.
    pub const READ: Access = Access(1);
    /// Peers may write.
    pub const WRITE: Access = Access(2);
    /// Peers may use atomic operations.
    pub const ATOMIC: Access = Access(4);
    /// All of it.
    pub const ALL: Access = Access(7);

    /// True when all of `other` is in `self`.
    pub const fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u8) -> Access {
        Access(bits & Access::ALL.0)
    }
}

impl BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = f.debug_set();
        for (access, name) in [(Access::READ, "read"), (Access::WRITE, "write"), (Access::ATOMIC, "atomic")] {
            if self.contains(access) {
                names.entry(&format_args!("{name}"));
            }
        }
        names.finish()
    }
}

/// Names a registered region to its owner and to peers (CCI-055, CCI-059). It is 32 plain bytes, the same on every machine, which
/// may travel in any message. They hold the region's number, length and rights, and a random key of 64 bits, so that nobody can guess a
/// handle. A peer that changes the bytes gains nothing: the owner checks each access against its own table.
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct RegionHandle([u8; RegionHandle::BYTES]);

impl RegionHandle {
    /// Length of a handle, bytes.
    pub const BYTES: usize = 32;

    pub(crate) fn new(region: u64, len_bytes: u64, key: u64, access: Access) -> RegionHandle {
        let mut bytes = [0; RegionHandle::BYTES];
        bytes[..8].copy_from_slice(&region.to_le_bytes());
        bytes[8..16].copy_from_slice(&len_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&key.to_le_bytes());
        bytes[24] = access.bits();
        RegionHandle(bytes)
    }

    /// The bytes, to be sent to a peer.
    pub const fn to_bytes(self) -> [u8; RegionHandle::BYTES] {
        self.0
    }

    /// A handle that came from a peer. Any bytes make one; whether it is good shows when it is used.
    pub const fn from_bytes(bytes: [u8; RegionHandle::BYTES]) -> RegionHandle {
        RegionHandle(bytes)
    }

    /// The first 32 bytes of a message as a handle; None if it is shorter.
    pub fn from_message(message: &[u8]) -> Option<RegionHandle> {
        message.first_chunk().copied().map(RegionHandle)
    }

    /// How long the region is, bytes, by what the handle says.
    #[inline]
    pub fn len_bytes(&self) -> u64 {
        self.word(1)
    }

    /// What peers may do, by what the handle says.
    pub fn access(&self) -> Access {
        Access::from_bits(self.0[24])
    }

    pub(crate) fn region(&self) -> u64 {
        self.word(0)
    }

    pub(crate) fn key(&self) -> u64 {
        self.word(2)
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.0[at * 8..at * 8 + 8]);
        u64::from_le_bytes(word)
    }
}

impl fmt::Debug for RegionHandle {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionHandle({:x}, {} bytes, {:?})", self.region(), self.len_bytes(), self.access())
    }
}
