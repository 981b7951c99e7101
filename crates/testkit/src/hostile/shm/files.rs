//! Descriptors that a hostile peer hands over: sealed memfds as they should be, and others.

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::os::fd::OwnedFd;

/// A memfd. It is what an honest peer hands over if it is allocated and sealed.
#[derive(Copy, Clone, Debug)]
pub struct Memfd {
    /// Its length.
    pub len_bytes: u64,
    /// All pages are there from the start; else it is one hole.
    pub is_allocated: bool,
    /// Sealed against another length.
    pub is_sealed: bool,
}

impl Memfd {
    /// As an honest peer makes it.
    pub const fn honest(len_bytes: u64) -> Memfd {
        Memfd { len_bytes, is_allocated: true, is_sealed: true }
    }

    /// One hole, of any length: it costs nothing.
    pub const fn sparse(len_bytes: u64) -> Memfd {
        Memfd { len_bytes, is_allocated: false, is_sealed: true }
    }

    /// Makes it.
    pub fn make(self) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("cci-hostile", flags).expect("a memfd");
        rustix::fs::ftruncate(&file, self.len_bytes).expect("a length");
        if self.is_allocated {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.len_bytes).expect("memory");
        }
        if self.is_sealed {
            let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
            rustix::fs::fcntl_add_seals(&file, seals).expect("seals");
        }
        file
    }
}

/// Bytes of a file that are really there.
pub fn allocated_bytes(file: &OwnedFd) -> u64 {
    let stat = rustix::fs::fstat(file).expect("it is open");
    u64::try_from(stat.st_blocks).unwrap_or(0) * 512
}
