//! Segments that only their maker can write to: control pages that peers look at.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cci_memory::bytes::{AtomicKind, AtomicOp, AtomicRefusal, AtomicWidth, Bytes, Trust, Word};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::ProtFlags;

use super::{LENGTH_SEALS, SharedMemory, WRITABLE, allocate, check, memfd, set_len};
use crate::error::{Result, SysError, Tried};

const NAME: &str = "cci-control";

impl SharedMemory {
    /// Makes `len_bytes` (above 0) of zeroed, allocated memory that we may write to and nobody else ever, whoever gets
    /// the descriptor: it is sealed against new writable mappings, writes and holes.
    ///
    /// `ENOMEM`/`ENOSPC`: no memory for it. `EINVAL`: the kernel (before 5.1) does not know this seal.
    pub fn create_read_only_for_others(len_bytes: usize) -> Result<SharedMemory> {
        let on = |error: SysError| error.on(format_args!("{NAME}, {len_bytes} bytes"));
        let fd = memfd(NAME, MemfdFlags::empty()).tried("create shared memory (memfd_create)").map_err(on)?;
        set_len(&fd, len_bytes).tried("size shared memory (ftruncate)").map_err(on)?;
        allocate(&fd, len_bytes).tried("allocate shared memory (fallocate)").map_err(on)?;
        // Our mapping comes first: after the seal not even we could make one.
        let memory = SharedMemory::map(fd, len_bytes, WRITABLE).map_err(on)?;
        if let Some(fd) = memory.fd() {
            rustix::fs::fcntl_add_seals(fd, LENGTH_SEALS | SealFlags::FUTURE_WRITE)
                .tried("seal shared memory against others' writes (F_ADD_SEALS)")
                .map_err(on)?;
        }
        Ok(memory)
    }

    /// Maps a peer's memory for reading only, after the checks of [`open`](Self::open). Whether the peer can still
    /// write to it is not asked: it can.
    pub fn open_read_only(fd: OwnedFd, len_bytes: usize) -> Result<SharedMemoryReader> {
        check(&fd, len_bytes)?;
        Ok(SharedMemoryReader(SharedMemory::map(fd, len_bytes, ProtFlags::READ)?))
    }
}

/// A peer's memory, mapped for reading only; the peer may change it at any time.
#[derive(Debug)]
pub struct SharedMemoryReader(SharedMemory);

impl SharedMemoryReader {
    /// Length in bytes; never 0.
    #[allow(clippy::len_without_is_empty, reason = "the memory is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Closes the descriptor; the mapping stays.
    pub fn drop_fd(&mut self) {
        self.0.drop_fd();
    }

    /// Copies `out.len()` bytes from `offset` on to `out`. `false`: out of range, and nothing was done.
    #[must_use = "`false` means that nothing was copied"]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        self.bytes().read(offset, out)
    }

    /// `len` bytes from `offset` on, in place, where the peer is trusted not to change them as long as the slice is used. `None`: out
    /// of range.
    pub fn trusted(&self, _: Trust, offset: usize, len: usize) -> Option<&[u8]> {
        let bytes = self.bytes().part(offset, len)?;
        // SAFETY: in range of a mapping that lives as long as `self`, and initialised, as every page of a file is. Nobody of this
        // process can write there; that the peer does not is what a `Trust` promises.
        Some(unsafe { std::slice::from_raw_parts(bytes.as_ptr().as_ptr(), len) })
    }

    /// Whether this process has the mapping: a fork child has not.
    pub fn is_mapped(&self) -> bool {
        self.0.is_mapped()
    }

    /// The aligned word of 8 bytes at `offset`, loaded once, sequentially consistent.
    #[inline(always)]
    pub fn load(&self, offset: usize) -> std::result::Result<u64, AtomicRefusal> {
        let width = AtomicWidth::Eight;
        self.bytes().atomic(offset, AtomicOp { kind: AtomicKind::Load, width, operand: 0, compare: 0 })
    }

    /// The aligned word of 8 bytes at `offset`, to be loaded often.
    ///
    /// # Errors
    /// There is none.
    pub fn word(self: &Arc<Self>, offset: usize) -> std::result::Result<ReadOnlyWord, AtomicRefusal> {
        Ok(ReadOnlyWord { word: self.bytes().word(offset)?, _memory: self.clone() })
    }

    #[inline]
    fn bytes(&self) -> Bytes {
        // SAFETY: mapped readable as long as this value lives, and only read by the functions above.
        unsafe { Bytes::new(self.0.as_ptr(), self.0.len()) }
    }
}

/// A word of a peer's memory, which this keeps mapped.
#[derive(Debug, Clone)]
pub struct ReadOnlyWord {
    word: Word,
    _memory: Arc<SharedMemoryReader>,
}

impl ReadOnlyWord {
    /// Loads it once, sequentially consistent.
    #[inline(always)]
    pub fn load(&self) -> u64 {
        self.word.load()
    }
}
