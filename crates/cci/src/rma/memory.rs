//! Memory that can be registered.

use super::Access;
use crate::Connection;
use cci_memory::atomic::fence;
use cci_memory::bytes::{self as ring, AtomicOp, AtomicRefusal, Backing, Bytes, Foreign, Readable, Writable};
use cci_proto::{Atomic, AtomicKind, AtomicWidth};
use cci_sys::SysError;
use cci_sys::memory::RmaMemory;
use cci_sys::shared_memory::SharedMemory;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Memory that can be registered, so that peers read and write it. The program reads and writes it by the calls here, which copy, or
/// through [`Memory::as_ptr`], knowing that peers may change it at any time. Clones are cheap, and are the same memory. It lives until
/// the last clone is gone and no region of it is registered any more.
///
/// [`Endpoint::allocate`](crate::Endpoint::allocate) gives memory of the library's own, which processes on the same host
/// map directly; [`Memory::foreign`] takes memory that the program has from elsewhere.
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
    Library(Arc<Charged>),
    Foreign(Arc<Foreign>),
}

/// Memory of the library's own, as long as it is on some endpoint's bill.
pub(crate) struct Charged {
    pub segment: RmaMemory,
    pub bill: Arc<AtomicU64>,
    /// Names the pages that are in it now, to peers that map them.
    id: AtomicU64,
    /// The live words of all grants of it, by whatever endpoint.
    words: Mutex<Vec<LiveWord>>,
}

/// A word in a page that peers can read and not write: while it is not 0, they may use what they were granted with it.
#[derive(Clone)]
pub(crate) struct LiveWord {
    pub control: Arc<SharedMemory>,
    pub word: u32,
}

/// The word of such a page that counts how often memory that was granted with one of its words got other pages, or was about to. No
/// grant has it. It is not 0: peers of versions that do not count leave it at 0.
pub(crate) const REPLACED_WORD: u32 = 0;

/// Of the next memory that is allocated, or given new pages.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl LiveWord {
    pub fn set(&self, token: u64) {
        self.atomic(ring::AtomicKind::Swap, token);
    }

    /// What it holds.
    pub fn get(&self) -> u64 {
        self.atomic(ring::AtomicKind::Load, 0)
    }

    /// Sequentially consistent. Returns the value from before.
    fn atomic(&self, kind: ring::AtomicKind, operand: u64) -> u64 {
        let op = AtomicOp { kind, width: ring::AtomicWidth::Eight, operand, compare: 0 };
        let before = self.control.bytes().atomic(self.word as usize * 8, op);
        debug_assert!(before.is_ok(), "words are given out within the page");
        before.unwrap_or(0)
    }

    /// Sequentially consistent, with a fence behind it: who looks at the rings next sees all who still use the memory.
    pub fn clear(&self) {
        self.set(0);
        fence(Ordering::SeqCst);
    }

    /// Clears it because the memory gets other pages. A peer that finds it cleared behind an operation learns from the count whether it
    /// may have changed pages that nobody uses any more.
    fn clear_for_other_pages(&self) {
        let replaced = LiveWord { control: Arc::clone(&self.control), word: REPLACED_WORD };
        replaced.atomic(ring::AtomicKind::Add, 1);
        self.clear();
    }

    fn is(&self, other: &LiveWord) -> bool {
        self.word == other.word && Arc::ptr_eq(&self.control, &other.control)
    }
}

impl Charged {
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Makes a grant, and reports it, while the pages stay the same.
    pub fn grant<T>(&self, word: &LiveWord, token: u64, notify: impl FnOnce() -> T) -> T {
        let mut words = self.words();
        if !words.iter().any(|known| known.is(word)) {
            words.push(word.clone());
        }
        word.set(token);
        notify()
    }

    pub fn remove_word(&self, word: &LiveWord) {
        self.words().retain(|known| !known.is(word));
    }

    /// Ends all grants, because the pages will be replaced.
    pub fn clear_words(&self) {
        self.words().iter().for_each(LiveWord::clear_for_other_pages);
    }

    /// Gives the memory new pages with the same content.
    pub fn detach(&self) -> Result<(), SysError> {
        // One at a time, and no new grant of the old pages meanwhile; those of other endpoints since we looked end.
        let words = self.words();
        words.iter().for_each(LiveWord::clear_for_other_pages);
        self.segment.shared().detach()?;
        self.id.store(NEXT_ID.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    }

    fn words(&self) -> MutexGuard<'_, Vec<LiveWord>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.bill.fetch_sub(self.segment.len_bytes() as u64, Ordering::Relaxed);
    }
}

impl Memory {
    pub(crate) fn library(segment: RmaMemory, bill: Arc<AtomicU64>, len_bytes: usize) -> Memory {
        bill.fetch_add(segment.len_bytes() as u64, Ordering::Relaxed);
        let all = segment.bytes();
        let bytes = all.part(0, len_bytes).unwrap_or(all);
        let id = AtomicU64::new(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        let charged = Charged { segment, bill, id, words: Mutex::default() };
        Memory { bytes, source: Source::Library(Arc::new(charged)) }
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
            Source::Library(_) => None,
        }
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "memory is never empty")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The first byte. Reading and writing through it races with peers: use atomics, volatile accesses, or an agreement
    /// with the peers about who may touch what and when, such as the message after the data.
    pub fn as_ptr(&self) -> *mut u8 {
        self.bytes.as_ptr().as_ptr()
    }

    /// Copies `out.len()` bytes out, from `offset` on. False, and nothing is done, beyond the end.
    #[inline]
    #[must_use]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        self.is_own_process() && self.bytes.read(offset, out)
    }

    /// Copies `data` in, at `offset`. False, and nothing is done, beyond the end.
    #[inline]
    #[must_use]
    pub fn write(&self, offset: usize, data: &[u8]) -> bool {
        self.is_own_process() && self.bytes.write(offset, data)
    }

    /// All of it, to gather bytes from. `None` in a child made by `fork`, which does not have the library's memory.
    #[must_use]
    pub fn readable(&self) -> Option<Readable<'_>> {
        self.is_own_process().then(|| self.bytes.into())
    }

    /// All of it, to scatter bytes to. `None` in a child made by `fork`, which does not have the library's memory.
    #[must_use]
    pub fn writable(&self) -> Option<Writable<'_>> {
        self.is_own_process().then(|| self.bytes.into())
    }

    /// Copies `len_bytes` of other memory, or of this one, from `from_offset` on to `offset` here. The two may overlap. False, and nothing is done,
    /// beyond the end of either.
    #[must_use]
    pub fn copy_from(&self, offset: usize, from: &Memory, from_offset: usize, len_bytes: usize) -> bool {
        self.is_own_process()
            && from.is_own_process()
            && self.bytes.copy_from(offset, &from.bytes, from_offset, len_bytes)
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
    #[inline]
    pub(crate) fn is_own_process(&self) -> bool {
        match &self.source {
            Source::Library(charged) => charged.segment.shared().is_mapped(),
            Source::Foreign(_) => true,
        }
    }

    /// True where the library allocated it: peers on the same host map it directly.
    pub fn is_library(&self) -> bool {
        matches!(self.source, Source::Library(_))
    }

    /// Whether the two are handles of one memory.
    pub(crate) fn is_same(&self, other: &Memory) -> bool {
        match (&self.source, &other.source) {
            (Source::Library(one), Source::Library(another)) => Arc::ptr_eq(one, another),
            (Source::Foreign(one), Source::Foreign(another)) => Arc::ptr_eq(one, another),
            _ => false,
        }
    }

    /// How many handles of it there are; each region has one.
    pub(crate) fn handles(&self) -> usize {
        match &self.source {
            Source::Library(charged) => Arc::strong_count(charged),
            Source::Foreign(foreign) => Arc::strong_count(foreign),
        }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// The library's memory behind it, for as long as somebody else has a handle of it.
    pub(crate) fn downgrade(&self) -> Option<Weak<Charged>> {
        match &self.source {
            Source::Library(charged) => Some(Arc::downgrade(charged)),
            Source::Foreign(_) => None,
        }
    }

    /// The library's memory behind it.
    pub(crate) fn charged(&self) -> Option<&Charged> {
        match &self.source {
            Source::Library(charged) => Some(charged),
            Source::Foreign(_) => None,
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.is_library() { "library" } else { "foreign" };
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
