//! Memory of the library that long messages are received into, and lent to the program in: plain memory of the heap, under a cap, which
//! the program gives back on any thread.

use crate::endpoint::layers::Waker;
use crate::rma::Memory;
use cci_memory::bytes::Foreign;
use cci_memory::fallible;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers are this much long, or a multiple of it, so that one is good for other messages of about the same length.
const GRAIN_BYTES: usize = 4_096;
/// The most buffers that are kept for the next messages.
const IDLE_MAX: usize = 64;
/// A message begins where a cache line does, as it mostly does in the sender's memory: copies between two places that lie alike in their
/// lines are the fastest. A buffer is longer by a line than what is counted of it, so that there is such a place.
const LINE_BYTES: usize = 64;

/// Memory for one message.
pub struct Buffer(Box<[u8]>);

impl Buffer {
    /// `None`: the system has no memory.
    fn zeroed(len: usize) -> Option<Buffer> {
        fallible::zeroed(len.checked_add(LINE_BYTES)?).map(Buffer)
    }

    /// What [`Buffer::into_memory`] made. `None`: somebody else has a handle of it, or it is other memory.
    pub fn from_memory(memory: Memory) -> Option<Buffer> {
        memory.into_owned().map(Buffer)
    }

    /// As memory that can be registered.
    pub fn into_memory(self) -> Memory {
        Memory::foreign(Foreign::owned(self.0))
    }

    /// How long a message it holds, and how much of the cap it takes.
    pub fn len(&self) -> usize {
        Buffer::len_in(self.0.len())
    }

    /// How long a message a memory holds that was made from a buffer.
    pub fn len_in(memory_len: usize) -> usize {
        memory_len.saturating_sub(LINE_BYTES)
    }

    /// Where in it the message begins.
    pub fn start(&self) -> usize {
        self.0.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES)
    }
}

/// How much may be lent, how much is, and the buffers that are kept for the next messages.
pub struct Capacity {
    max_bytes: u64,
    buffers: Mutex<Buffers>,
    /// A message waits for memory.
    is_wanted: AtomicBool,
    /// Memory has come back since a message began to wait for some.
    has_news: AtomicBool,
    waker: Waker,
}

#[derive(Default)]
struct Buffers {
    lent_bytes: u64,
    idle_bytes: u64,
    idle: Vec<Buffer>,
}

/// What became of the wish for a buffer.
pub enum Taken {
    Buffer(Buffer),
    /// The cap is reached, or the system has no memory, and some that is lent will come back.
    Later,
    /// The system has no memory, and nothing is lent that could come back.
    Never,
}

impl Capacity {
    pub fn new(max_bytes: u64, waker: Waker) -> Arc<Capacity> {
        Arc::new(Capacity {
            max_bytes,
            buffers: Mutex::default(),
            is_wanted: AtomicBool::new(false),
            has_news: AtomicBool::new(false),
            waker,
        })
    }

    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// The bytes that are lent, and those that are kept.
    pub fn in_use_bytes(&self) -> (u64, u64) {
        let buffers = self.lock();
        (buffers.lent_bytes, buffers.idle_bytes)
    }

    /// From now on [`Capacity::has_news`] says whether memory has come back, or nobody waits for any.
    pub fn set_wanted(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::SeqCst);
    }

    /// How many bytes are left when one more message of `len` bytes is lent.
    pub fn left_bytes(&self, len: usize) -> u64 {
        self.max_bytes.saturating_sub(self.lock().lent_bytes.saturating_add(len as u64))
    }

    /// A buffer for a message of `len` bytes, which is no more than the cap, or longer. One that is not there now is worth another
    /// attempt when memory comes back that was taken after [`Capacity::set_wanted`].
    pub fn take(&self, len: usize) -> Taken {
        // At the cap, a message has just what it needs.
        let whole = len.checked_next_multiple_of(GRAIN_BYTES).filter(|whole| *whole as u64 <= self.max_bytes);
        let needed = whole.unwrap_or(len);
        let mut buffers = self.lock();
        let buffer = match buffers.reuse(needed) {
            Some(buffer) => buffer,
            None => {
                while buffers.in_use_bytes().saturating_add(needed as u64) > self.max_bytes {
                    let Some(idle) = buffers.idle.pop() else { return Taken::Later };
                    buffers.idle_bytes -= idle.len() as u64;
                }
                let made = Buffer::zeroed(needed).or_else(|| {
                    // What is kept may be what the system lacks.
                    buffers.free_idle();
                    Buffer::zeroed(needed)
                });
                match made {
                    Some(buffer) => buffer,
                    None if buffers.lent_bytes == 0 => return Taken::Never,
                    None => return Taken::Later,
                }
            }
        };
        buffers.lent_bytes += buffer.len() as u64;
        Taken::Buffer(buffer)
    }

    /// Takes back a buffer.
    pub fn give_back(&self, buffer: Buffer) {
        let mut buffers = self.lock();
        let len_bytes = buffer.len() as u64;
        buffers.lent_bytes -= len_bytes;
        if buffers.idle.len() < IDLE_MAX {
            buffers.idle_bytes += len_bytes;
            buffers.idle.push(buffer);
        }
        drop(buffers);
        if self.is_wanted.swap(false, Ordering::SeqCst) {
            self.has_news.store(true, Ordering::SeqCst);
            self.waker.wake();
        }
    }

    /// A buffer that was taken is gone.
    pub fn forget(&self, len_bytes: u64) {
        let mut buffers = self.lock();
        buffers.lent_bytes = buffers.lent_bytes.saturating_sub(len_bytes);
    }

    /// Whether memory has come back for which a message waits.
    pub fn has_news(&self) -> bool {
        self.has_news.load(Ordering::SeqCst)
    }

    /// Takes note of the memory that has come back.
    pub fn take_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed) && self.has_news.swap(false, Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffers {
    fn in_use_bytes(&self) -> u64 {
        self.lent_bytes.saturating_add(self.idle_bytes)
    }

    fn free_idle(&mut self) {
        self.idle.clear();
        self.idle_bytes = 0;
    }

    /// The shortest buffer that is kept and long enough, but not more than twice as long as need be. Of several, the one that came back
    /// last, which is the likeliest to be in a cache.
    fn reuse(&mut self, needed: usize) -> Option<Buffer> {
        let fits = |len: usize| len >= needed && len <= needed.saturating_mul(2);
        let lengths = self.idle.iter().map(|buffer| buffer.len()).enumerate().rev();
        let (at, _) = lengths.filter(|(_, len)| fits(*len)).min_by_key(|(_, len)| *len)?;
        let buffer = self.idle.remove(at);
        self.idle_bytes -= buffer.len() as u64;
        Some(buffer)
    }
}

/// A long message in memory of the library, which goes back when this is dropped.
pub struct Lent {
    buffer: Buffer,
    len: usize,
    capacity: Arc<Capacity>,
}

impl Lent {
    pub fn new(buffer: Buffer, len: usize, capacity: Arc<Capacity>) -> Lent {
        Lent { buffer, len, capacity }
    }
}

impl Deref for Lent {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let start = self.buffer.start();
        self.buffer.0.get(start..start + self.len).unwrap_or(&[])
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.capacity.give_back(Buffer(std::mem::take(&mut self.buffer.0)));
    }
}
