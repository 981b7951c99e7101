//! Memory that can be registered.

use super::Access;
use super::grantable::Grantable;
use crate::Connection;
use crate::error::RegisterError;
use cci_memory::bytes::{self as ring, AtomicOp, AtomicRefusal, Backing, Bytes, Foreign, Readable, Writable};
use cci_proto::{Atomic, AtomicKind, AtomicWidth};
use cci_sys::file;
use cci_sys::memory::RmaMemory;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

/// Memory that can be registered, so that peers read and write it. The program reads and writes it by the calls here, which copy, or
/// through [`Memory::as_ptr`], knowing that peers may change it at any time. Clones are cheap, and are the same memory. It lives until
/// the last clone is gone and no region of it is registered any more.
///
/// [`Endpoint::allocate`](crate::Endpoint::allocate) gives memory of the library's own, which processes on the same host
/// map directly; [`Memory::foreign`] takes memory that the program has from elsewhere, and [`Memory::file`] an open file.
///
/// In a child made by `fork` the library's memory is not mapped: the calls here find every byte beyond its end.
///
/// ```
/// use cci::{Access, Context, Endpoint, Options, RegionHandle};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut endpoint = Endpoint::create(Context::new()?.default_device(), Options::default())?;
/// let memory = endpoint.allocate(4_096)?;
/// assert!(memory.write(0, b"hello"));
/// let handle = endpoint.register(&memory, Access::READ)?;
/// // These bytes travel in a message; who has them may read the memory.
/// assert_eq!(RegionHandle::from_message(&handle.to_bytes()), Some(handle));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Memory {
    bytes: Bytes,
    source: Source,
}

#[derive(Clone)]
enum Source {
    /// Memory of the library's own, or a file.
    Grantable(Arc<Grantable>),
    Foreign(Arc<Foreign>),
}

impl Memory {
    pub(crate) fn library(segment: RmaMemory, bill: Arc<AtomicU64>, len_bytes: usize) -> Memory {
        let all = segment.bytes();
        let bytes = all.part(0, len_bytes).unwrap_or(all);
        Memory { bytes, source: Source::Grantable(Arc::new(Grantable::segment(segment, bill))) }
    }

    /// The bytes that a file has now, for peers to read. It must be a regular file that is open for reading, with a byte at least. It is not
    /// read before a peer asks, and then straight from the system's page cache: a peer on the same host that belongs to the same user, or to
    /// root, is given the file's descriptor with its first region, and reads by itself. So it can read the rest of the file, too, and go on
    /// after the region has ended. It shares the open file, with its position and flags. Others are sent what they ask for.
    ///
    /// Such memory has no address, and can't be written: it is registered with [`Access::READ`]. Where the file has become shorter, or
    /// can't be read, operations end with [`Status::RmaHandle`](crate::Status::RmaHandle). Who reads waits while bytes are not in the page cache.
    ///
    /// # Errors
    /// [`RegisterError::Length`] if the file is empty, and [`RegisterError::System`] if it is no such file.
    pub fn file(file: File) -> Result<Memory, RegisterError> {
        let len_bytes = file::check_regular(file.as_fd())?;
        let len_bytes = usize::try_from(len_bytes).unwrap_or(usize::MAX).min(isize::MAX as usize);
        if len_bytes == 0 {
            return Err(RegisterError::Length);
        }
        Ok(Memory {
            bytes: Bytes::EMPTY,
            source: Source::Grantable(Arc::new(Grantable::file(file, len_bytes))),
        })
    }

    /// Memory of the program's own: an array, a file mapping, another library's buffer. Making the [`Foreign`] is the
    /// one unsafe step; it says what must hold.
    pub fn foreign(memory: Foreign) -> Memory {
        let memory = Arc::new(memory);
        Memory { bytes: memory.bytes(), source: Source::Foreign(memory) }
    }

    /// Gives back heap memory that was made into this by [`Foreign::owned`]. `None` if it is other memory, or if somebody else has a
    /// handle of it, such as a region that is still registered.
    pub fn into_owned(self) -> Option<Box<[u8]>> {
        match self.source {
            Source::Foreign(memory) => Arc::into_inner(memory)?.into_owned(),
            Source::Grantable(_) => None,
        }
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "memory is never empty")]
    pub fn len(&self) -> usize {
        // Those of a file have no address.
        if self.bytes.is_empty() { self.file_len() } else { self.bytes.len() }
    }

    /// The first byte; for a file no address at all. Reading and writing through it races with peers: use atomics, volatile accesses, or an agreement
    /// with the peers about who may touch what and when, such as the message after the data.
    pub fn as_ptr(&self) -> *mut u8 {
        self.bytes.as_ptr().as_ptr()
    }

    /// Copies `out.len()` bytes out, from `offset` on. False, and nothing is done, beyond the end; also false if a file can't be read.
    #[inline(always)]
    #[must_use]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        (self.is_own_process() && self.bytes.read(offset, out)) || self.read_file(offset, out)
    }

    #[cold]
    fn read_file(&self, offset: usize, out: &mut [u8]) -> bool {
        let Some((file, len_bytes)) = self.as_file() else { return false };
        let is_within = offset.checked_add(out.len()).is_some_and(|end| end <= len_bytes);
        is_within && file.read_exact_at(out, offset as u64).is_ok()
    }

    #[cold]
    fn file_len(&self) -> usize {
        self.as_file().map_or(0, |(_, len_bytes)| len_bytes)
    }

    /// Copies `data` in, at `offset`. False, and nothing is done, beyond the end, and for a file.
    #[inline]
    #[must_use]
    pub fn write(&self, offset: usize, data: &[u8]) -> bool {
        self.is_own_process() && self.bytes.write(offset, data)
    }

    /// All of it, to gather bytes from. `None` for a file, and in a child made by `fork`, which does not have the library's memory.
    #[must_use]
    pub fn readable(&self) -> Option<Readable<'_>> {
        (self.is_own_process() && !self.is_file()).then(|| self.bytes.into())
    }

    /// All of it, to scatter bytes to. `None` for a file, and in a child made by `fork`, which does not have the library's memory.
    #[must_use]
    pub fn writable(&self) -> Option<Writable<'_>> {
        (self.is_own_process() && !self.is_file()).then(|| self.bytes.into())
    }

    /// Copies `len_bytes` of other memory, or of this one, from `from_offset` on to `offset` here. The two may overlap. False, and nothing is done,
    /// beyond the end of either, and for a file here; also false if a file can't be read.
    #[must_use]
    pub fn copy_from(&self, offset: usize, from: &Memory, from_offset: usize, len_bytes: usize) -> bool {
        let is_copied = self.is_own_process()
            && from.is_own_process()
            && self.bytes.copy_from(offset, &from.bytes, from_offset, len_bytes);
        is_copied || self.copy_file(offset, from, from_offset, len_bytes)
    }

    #[cold]
    fn copy_file(&self, offset: usize, from: &Memory, from_offset: usize, len_bytes: usize) -> bool {
        let Some((file, all_bytes)) = from.as_file() else { return false };
        let is_within = from_offset.checked_add(len_bytes).is_some_and(|end| end <= all_bytes);
        let read = || file::read_at(file, from_offset as u64, &self.bytes, offset, len_bytes);
        self.is_own_process() && is_within && read().is_ok_and(|is_whole| is_whole)
    }

    /// An atomic operation of the owner's own, atomic against those of peers; returns the value before.
    ///
    /// # Errors
    /// The place is beyond the end, or its address not a multiple of the operation's width.
    pub fn atomic(&self, offset: usize, atomic: Atomic) -> Result<u64, AtomicRefusal> {
        self.atomic_op(offset, atomic_op(atomic))
    }

    /// Reads 4 or 8 bytes at once, as an atomic operation; 4 bytes are zero-extended.
    ///
    /// # Errors
    /// Those of [`Memory::atomic`].
    pub fn load(&self, offset: usize, width: AtomicWidth) -> Result<u64, AtomicRefusal> {
        let load =
            AtomicOp { kind: ring::AtomicKind::Load, width: ring_width(width), operand: 0, compare: 0 };
        self.atomic_op(offset, load)
    }

    fn atomic_op(&self, offset: usize, op: AtomicOp) -> Result<u64, AtomicRefusal> {
        if self.is_own_process() { self.bytes.atomic(offset, op) } else { Err(AtomicRefusal::OutOfRange) }
    }

    /// The library's memory is not mapped in a child made by `fork`.
    #[inline(always)]
    pub(crate) fn is_own_process(&self) -> bool {
        match &self.source {
            Source::Grantable(it) => it.as_segment().is_none_or(|segment| segment.is_mapped()),
            Source::Foreign(_) => true,
        }
    }

    /// True where the library allocated it: peers on the same host map it directly.
    pub fn is_library(&self) -> bool {
        self.grantable().is_some_and(|it| it.as_segment().is_some())
    }

    /// True where the bytes are a file's.
    pub fn is_file(&self) -> bool {
        self.as_file().is_some()
    }

    /// The file whose bytes these are, and its length.
    #[inline]
    pub(crate) fn as_file(&self) -> Option<(&File, usize)> {
        self.grantable()?.as_file()
    }

    /// True for memory that the program has from elsewhere.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.source, Source::Foreign(_))
    }

    /// Whether the two are handles of one memory.
    pub fn is_same(&self, other: &Memory) -> bool {
        match (&self.source, &other.source) {
            (Source::Grantable(one), Source::Grantable(another)) => Arc::ptr_eq(one, another),
            (Source::Foreign(one), Source::Foreign(another)) => Arc::ptr_eq(one, another),
            _ => false,
        }
    }

    /// How many handles of it there are; each region has one.
    pub(crate) fn handles(&self) -> usize {
        match &self.source {
            Source::Grantable(it) => Arc::strong_count(it),
            Source::Foreign(foreign) => Arc::strong_count(foreign),
        }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// What peers of this host can be granted, for as long as somebody else has a handle of it.
    pub(crate) fn downgrade(&self) -> Option<Weak<Grantable>> {
        match &self.source {
            Source::Grantable(it) => Some(Arc::downgrade(it)),
            Source::Foreign(_) => None,
        }
    }

    /// What peers of this host can be granted: the library's memory behind it, or the file.
    #[inline]
    pub(crate) fn grantable(&self) -> Option<&Grantable> {
        match &self.source {
            Source::Grantable(it) => Some(it),
            Source::Foreign(_) => None,
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = match (self.is_foreign(), self.is_file()) {
            (true, _) => "foreign",
            (false, true) => "file",
            (false, false) => "library",
        };
        write!(f, "Memory({whose}, {} bytes)", self.len())
    }
}

/// How memory is registered: which part, for whom and with which rights.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Which part of the memory; None: all of it. Parts may overlap (CCI-057).
    pub range: Option<Range<usize>>,
    /// What peers may do.
    pub access: Access,
    /// The only connection whose peer may; None: the peers of all connections of the endpoint (CCI-056).
    pub only: Option<Connection>,
}

impl From<Access> for Registration {
    /// All of the memory, for all connections.
    fn from(access: Access) -> Registration {
        Registration { range: None, access, only: None }
    }
}

/// An operation of the program's, or of a peer's, in the words of those who carry it out.
pub(crate) fn atomic_op(atomic: Atomic) -> AtomicOp {
    AtomicOp {
        kind: match atomic.kind {
            AtomicKind::FetchAdd | AtomicKind::Add => ring::AtomicKind::Add,
            AtomicKind::Swap => ring::AtomicKind::Swap,
            AtomicKind::CompareSwap => ring::AtomicKind::CompareSwap,
            AtomicKind::And => ring::AtomicKind::And,
            AtomicKind::Or => ring::AtomicKind::Or,
            AtomicKind::Xor => ring::AtomicKind::Xor,
        },
        width: ring_width(atomic.width),
        operand: atomic.operand,
        compare: atomic.compare,
    }
}

fn ring_width(width: AtomicWidth) -> ring::AtomicWidth {
    match width {
        AtomicWidth::Four => ring::AtomicWidth::Four,
        AtomicWidth::Eight => ring::AtomicWidth::Eight,
    }
}
