//! What processes of this host can be granted direct use of: memory of the library's own, and files.

use cci_memory::atomic::fence;
use cci_memory::bytes::{self as ring, AtomicOp};
use cci_sys::SysError;
use cci_sys::memory::RmaMemory;
use cci_sys::shared_memory::SharedMemory;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A word in a page that peers can read and not write: while it is not 0, they may use what they were granted with it.
#[derive(Clone)]
pub(crate) struct LiveWord {
    pub control: Arc<SharedMemory>,
    pub word: u32,
}

/// The word of such a page that counts how often memory that was granted with one of its words got other pages, or was about to. No
/// grant has it. It is not 0: peers of versions that do not count leave it at 0.
pub(crate) const REPLACED_WORD: u32 = 0;

/// Of the next memory that is allocated, or given new pages, and of the next file.
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
        let before = ring::Backing::bytes(&*self.control).atomic(self.word as usize * 8, op);
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

/// Memory of the library's own, or a file, with its grants.
pub(crate) struct Grantable {
    content: Content,
    /// Names the pages that are in it now, to peers that use them.
    id: AtomicU64,
    /// The live words of all grants of it, by whatever endpoint.
    words: Mutex<Vec<LiveWord>>,
}

enum Content {
    /// Memory, as long as it is on some endpoint's bill.
    Segment { segment: RmaMemory, bill: Arc<AtomicU64> },
    /// A file that is open for reading, and how long it was when it was taken.
    File { file: File, len_bytes: usize },
}

impl Grantable {
    /// Takes memory, which is put on the bill.
    pub fn segment(segment: RmaMemory, bill: Arc<AtomicU64>) -> Grantable {
        bill.fetch_add(segment.len_bytes() as u64, Ordering::Relaxed);
        Grantable::new(Content::Segment { segment, bill })
    }

    /// Takes a file that was checked to be a regular one that is open for reading.
    pub fn file(file: File, len_bytes: usize) -> Grantable {
        Grantable::new(Content::File { file, len_bytes })
    }

    fn new(content: Content) -> Grantable {
        let id = AtomicU64::new(NEXT_ID.fetch_add(1, Ordering::Relaxed));
        Grantable { content, id, words: Mutex::default() }
    }

    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// The memory; `None` for a file.
    #[inline]
    pub fn as_segment(&self) -> Option<&SharedMemory> {
        match &self.content {
            Content::Segment { segment, .. } => Some(segment.shared()),
            Content::File { .. } => None,
        }
    }

    /// The file, and its length in bytes; `None` for memory.
    #[inline]
    pub fn as_file(&self) -> Option<(&File, usize)> {
        match &self.content {
            Content::Segment { .. } => None,
            Content::File { file, len_bytes } => Some((file, *len_bytes)),
        }
    }

    /// What peers are sent.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.content {
            Content::Segment { segment, .. } => segment.shared().fd(),
            Content::File { file, .. } => Some(file.as_fd()),
        }
    }

    /// Bytes that peers can reach by the descriptor.
    pub fn len_bytes(&self) -> u64 {
        match &self.content {
            Content::Segment { segment, .. } => segment.shared().len() as u64,
            Content::File { len_bytes, .. } => *len_bytes as u64,
        }
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

    /// Gives memory new pages with the same content. A file stays what it is: peers can't write to it.
    pub fn detach(&self) -> Result<(), SysError> {
        let Content::Segment { segment, .. } = &self.content else { return Ok(()) };
        // One at a time, and no new grant of the old pages meanwhile; those of other endpoints since we looked end.
        let words = self.words();
        words.iter().for_each(LiveWord::clear_for_other_pages);
        segment.shared().detach()?;
        self.id.store(NEXT_ID.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Ok(())
    }

    fn words(&self) -> MutexGuard<'_, Vec<LiveWord>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Content::Segment { segment, bill } = self {
            bill.fetch_sub(segment.len_bytes() as u64, Ordering::Relaxed);
        }
    }
}
