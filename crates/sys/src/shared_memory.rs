//! Shared memory without a name: sealed memfds that can be handed over a UNIX socket.
//!
//! Such memory cannot change its length once made, so a peer cannot shrink it and make our next access a SIGBUS;
//! and its pages are there from the start, so that full memory is an error at set-up and not a SIGBUS later.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use rustix::fs::{FallocateFlags, FileType, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use crate::error::{Result, SysError, Tried};

/// What makes a length final.
const LENGTH_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// What `st_blocks` counts in, on every file system.
const BLOCK_BYTES: u64 = 512;

const WRITABLE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// From this size on it is worth asking how much memory is free.
const LARGE_BYTES: usize = 64 << 20;

/// Memory shared between processes, mapped into this one for as long as this value lives.
///
/// The memory is as hostile as its peers: read and write it through `cci-memory` only. (A peer can also punch a hole in
/// it, at the cost of zeros there and of a page that has to be found again.) A fork child does not inherit
/// the mapping (`MADV_DONTFORK`): a child that touches it gets a SIGSEGV, and is never a second owner.
#[derive(Debug)]
pub struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
    fd: Option<OwnedFd>,
    made_by: crate::process::fork::Token,
}

// SAFETY: the value owns a mapping that is valid from every thread; it hands out only a raw pointer, so whoever
// dereferences that answers for races.
unsafe impl Send for SharedMemory {}
// SAFETY: as above: `&SharedMemory` gives the address, length and descriptor, and none of them changes behind it.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes `len_bytes` (above 0) of zeroed, allocated, length-sealed memory and maps it.
    ///
    /// `name_for_debug` is what `/proc/PID/maps` shows; the kernel takes 249 bytes and no NUL.
    /// `ENOMEM`/`ENOSPC`: the memory, or the cgroup's share of it, does not suffice.
    pub fn create(name_for_debug: &str, len_bytes: usize) -> Result<SharedMemory> {
        let on = |error: SysError| error.on(format_args!("{name_for_debug}, {len_bytes} bytes"));
        let fd = memfd(name_for_debug, MemfdFlags::empty())
            .tried("create shared memory (memfd_create)")
            .map_err(on)?;
        set_len(&fd, len_bytes).tried("size shared memory (ftruncate)").map_err(on)?;
        allocate(&fd, len_bytes).tried("allocate shared memory (fallocate)").map_err(on)?;
        rustix::fs::fcntl_add_seals(&fd, LENGTH_SEALS)
            .tried("seal shared memory (F_ADD_SEALS)")
            .map_err(on)?;
        SharedMemory::map(fd, len_bytes, WRITABLE).map_err(on)
    }

    /// Maps memory that a peer sent, after checking that it is what it should be: a sealed file of exactly
    /// `len_bytes`, with all its pages. `ErrorKind::InvalidData`: it is not, and the descriptor has been closed.
    pub fn open(fd: OwnedFd, len_bytes: usize) -> Result<SharedMemory> {
        check(&fd, len_bytes)?;
        SharedMemory::map(fd, len_bytes, WRITABLE)
    }

    /// First byte; page-aligned.
    #[inline]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes; never 0.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "the memory is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The descriptor to hand to a peer; `None` after [`drop_fd`](SharedMemory::drop_fd).
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Its first four bytes as an atomic number, which whoever shares the memory uses as such.
    #[inline]
    pub fn first_word(&self) -> Option<&AtomicU32> {
        if self.len < size_of::<AtomicU32>() || !self.is_mapped() {
            return None;
        }
        // SAFETY: within the mapping, which lives as long as `self`; page-aligned; accessed atomically through here.
        Some(unsafe { self.base.cast::<AtomicU32>().as_ref() })
    }

    /// Closes the descriptor; the mapping stays.
    pub fn drop_fd(&mut self) {
        self.fd = None;
    }

    fn map(fd: OwnedFd, len: usize, prot: ProtFlags) -> Result<SharedMemory> {
        SharedMemory::map_at(fd, len, prot, None)
    }

    /// Maps at an address where nothing is mapped; without one, where the kernel likes.
    fn map_at(
        fd: OwnedFd,
        len: usize,
        prot: ProtFlags,
        address: Option<NonZeroUsize>,
    ) -> Result<SharedMemory> {
        const WHAT: &str = "map shared memory (mmap)";
        if len == 0 || len > isize::MAX as usize {
            return Err(SysError::new(WHAT, Errno::INVAL));
        }
        #[cfg(feature = "simulated")]
        crate::simulated::fault("mmap").tried(WHAT)?;
        let wanted = std::ptr::without_provenance_mut(address.map_or(0, NonZeroUsize::get));
        let fixed = if address.is_some() { MapFlags::FIXED_NOREPLACE } else { MapFlags::empty() };
        // SAFETY: a new mapping touches no memory that exists: the kernel picks the address, or refuses one that is taken.
        let start = unsafe { rustix::mm::mmap(wanted, len, prot, MapFlags::SHARED | fixed, &fd, 0) };
        let Some(base) = NonNull::new(start.tried(WHAT)?.cast::<u8>()) else {
            return Err(SysError::refused(WHAT, "mapped at address 0"));
        };
        // Built first, so that an error below unmaps.
        let memory = SharedMemory { base, len, fd: Some(fd), made_by: crate::process::fork::token() };
        if address.is_some_and(|address| address != base.addr()) {
            // A kernel before 4.17 takes the address for a hint.
            return Err(SysError::new(WHAT, Errno::EXIST));
        }
        // SAFETY: the range is exactly the mapping just made.
        unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork) }
            .tried("keep shared memory out of fork children (madvise)")?;
        Ok(memory)
    }
}

impl SharedMemory {
    /// Whether this process has the mapping: the one that made it has, its fork children do not.
    #[inline]
    pub fn is_mapped(&self) -> bool {
        crate::process::fork::same_process(self.made_by)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // A fork child has no such mapping; something else may lie at that address by now.
        if !crate::process::fork::same_process(self.made_by) {
            return;
        }
        #[cfg(feature = "simulated")]
        cci_memory::simulated::unmap(self.base.as_ptr(), self.len);
        // SAFETY: the range was mapped by `map`, is unmapped only by this, and no reference to it is handed out.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "our own mapping: {unmapped:?}");
    }
}

/// Refuses what a peer sent unless it is a sealed file of exactly `len_bytes` without holes. Holes would be filled at our
/// first touch, with memory that is charged to us and that the peer never had. Nothing is allocated to find that out.
fn check(fd: &OwnedFd, len_bytes: usize) -> Result<()> {
    const WHAT: &str = "open a peer's shared memory";
    // Only memfds (and hugetlbfs ones) answer F_GET_SEALS at all: EINVAL for every other kind of file.
    let seals = match rustix::fs::fcntl_get_seals(fd) {
        Ok(seals) => seals,
        Err(Errno::INVAL) => return Err(SysError::refused(WHAT, "not a memfd")),
        Err(error) => return Err(error).tried(WHAT),
    };
    if !seals.contains(LENGTH_SEALS) {
        return Err(SysError::refused(WHAT, "not sealed against shrinking, growing and unsealing"));
    }
    let stat = rustix::fs::fstat(fd).tried("open a peer's shared memory (fstat)")?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(SysError::refused(WHAT, "not a regular file"));
    }
    if usize::try_from(stat.st_size) != Ok(len_bytes) {
        let detail = format!("{} bytes where {len_bytes} were announced", stat.st_size);
        return Err(SysError::refused(WHAT, "wrong length").on(detail));
    }
    let allocated_bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES);
    if allocated_bytes < len_bytes as u64 {
        let detail = format!("{allocated_bytes} of {len_bytes} bytes");
        return Err(SysError::refused(WHAT, "sparse: not all of its pages are allocated").on(detail));
    }
    Ok(())
}

/// A memfd that can be sealed, and cannot be executed where the kernel (6.3) knows how to forbid it.
fn memfd(name: &str, more: MemfdFlags) -> std::result::Result<OwnedFd, Errno> {
    #[cfg(feature = "simulated")]
    crate::simulated::fault("memfd_create")?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | more;
    match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // A name with 250 bytes gets this answer, too: then the second call fails likewise.
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        done => done,
    }
}

/// Sets the length of a file of ours.
fn set_len(fd: &OwnedFd, len: usize) -> std::result::Result<(), Errno> {
    // Beyond this limit the kernel does not only refuse: it sends SIGXFSZ, which ends the program.
    if getrlimit(Resource::Fsize).current.is_some_and(|most| len as u64 > most) {
        return Err(Errno::FBIG);
    }
    rustix::fs::ftruncate(fd, len as u64)
}

/// Takes all pages now. Mode 0 changes nothing that is written already, so that it may run on memory in use.
fn allocate(fd: &OwnedFd, len: usize) -> std::result::Result<(), Errno> {
    // The kernel would take pages until the OOM killer ends somebody; a length that cannot fit is an error instead.
    if len >= LARGE_BYTES && crate::limits::memory_available_bytes().is_some_and(|bytes| len as u64 > bytes) {
        return Err(Errno::NOMEM);
    }
    take_pages(fd, len)
}

fn take_pages(fd: &OwnedFd, len: usize) -> std::result::Result<(), Errno> {
    loop {
        match rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, len as u64) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

mod ends;
mod lending;
mod read_only;
mod rma;

pub use lending::{Lending, LendingSlot, SLOTS_MAX};
pub use read_only::{ReadOnlyWord, SharedMemoryReader};

#[cfg(test)]
mod tests;
