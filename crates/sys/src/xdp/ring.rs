//! The four rings of an AF_XDP socket: single producer, single consumer, one side of each being the kernel.

use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use crate::mapped::Mapped;

/// The kernel wants a system call that wakes it when there is something in the ring.
const NEED_WAKEUP: u32 = libc::XDP_RING_NEED_WAKEUP;

/// A mapped ring of `T`, which is 8 or 16 bytes of plain numbers.
#[derive(Debug)]
struct Ring<T> {
    memory: Mapped,
    offsets: libc::xdp_ring_offset,
    entries: u32,
    _holds: PhantomData<fn() -> T>,
}

impl<T: Copy> Ring<T> {
    fn map(fd: &OwnedFd, at: u64, offsets: libc::xdp_ring_offset, entries: u32) -> io::Result<Ring<T>> {
        let len_bytes = offsets.desc as usize + entries as usize * size_of::<T>();
        let memory = Mapped::of(fd, len_bytes, at)?;
        // Checked once, so that the words below are inside.
        for offset in [offsets.producer, offsets.consumer, offsets.flags] {
            if !offset.is_multiple_of(4) || offset + 4 > offsets.desc {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the kernel's ring has another shape",
                ));
            }
        }
        Ok(Ring { memory, offsets, entries, _holds: PhantomData })
    }

    #[inline]
    fn offset(&self, number: u32) -> usize {
        self.offsets.desc as usize + (number & (self.entries - 1)) as usize * size_of::<T>()
    }

    fn needs_wakeup(&self) -> bool {
        self.memory.word(self.offsets.flags as usize).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }
}

/// A ring that the kernel fills.
#[derive(Debug)]
pub(super) struct Input<T> {
    ring: Ring<T>,
    /// How far we have read.
    read: u32,
    /// How far the kernel knows that we have read.
    published: u32,
    /// How far the kernel had written when we looked last.
    written: u32,
}

impl<T: Copy> Input<T> {
    pub fn map(fd: &OwnedFd, at: u64, offsets: libc::xdp_ring_offset, entries: u32) -> io::Result<Input<T>> {
        Ok(Input { ring: Ring::map(fd, at, offsets, entries)?, read: 0, published: 0, written: 0 })
    }

    fn look(&self, order: Ordering) -> u32 {
        self.ring.memory.word(self.ring.offsets.producer as usize).load(order)
    }

    /// Whether there is something to read.
    #[inline]
    pub fn ready(&self) -> bool {
        self.read != self.written || self.look(Ordering::Relaxed) != self.read
    }

    /// Number of the next entry, from the start.
    #[inline]
    pub fn position(&self) -> u32 {
        self.read
    }

    /// Fetches the next entry into the cache.
    #[inline]
    pub fn prefetch(&self) {
        self.ring.memory.prefetch(self.ring.offset(self.read), size_of::<T>());
    }

    /// The entry `ahead` positions after the next one to be read.
    #[inline]
    pub fn peek(&mut self, ahead: u32) -> Option<T> {
        if ahead >= self.written.wrapping_sub(self.read) {
            // Pairs with the kernel's release of the entries before this count.
            let written = self.look(Ordering::Acquire);
            // A count that makes no sense is none.
            if written.wrapping_sub(self.read) > self.ring.entries {
                return None;
            }
            self.written = written;
            if ahead >= written.wrapping_sub(self.read) {
                return None;
            }
        }
        // SAFETY: the kernel has written the entry, which is plain numbers, and does not touch it before `publish`.
        unsafe { self.ring.memory.read(self.ring.offset(self.read.wrapping_add(ahead))) }
    }

    /// Goes past `count` entries that were peeked.
    #[inline]
    pub fn skip(&mut self, count: u32) {
        self.read = self.read.wrapping_add(count);
    }

    /// Gives the kernel back the entries that were read.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.read {
            self.published = self.read;
            // Pairs with the kernel's acquire: we have read the entries.
            self.ring.memory.word(self.ring.offsets.consumer as usize).store(self.read, Ordering::Release);
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.ring.memory.len_bytes()
    }
}

/// A ring that we fill.
#[derive(Debug)]
pub(super) struct Output<T> {
    ring: Ring<T>,
    /// How far we have written.
    written: u32,
    /// How far the kernel knows that we have written.
    published: u32,
    /// How far the kernel had read when we looked last.
    read: u32,
}

impl<T: Copy> Output<T> {
    pub fn map(fd: &OwnedFd, at: u64, offsets: libc::xdp_ring_offset, entries: u32) -> io::Result<Output<T>> {
        Ok(Output { ring: Ring::map(fd, at, offsets, entries)?, written: 0, published: 0, read: 0 })
    }

    fn look(&mut self) {
        let at = self.ring.offsets.consumer as usize;
        // Pairs with the kernel's release: it has read the entries before this count.
        let read = self.ring.memory.word(at).load(Ordering::Acquire);
        // A count that makes no sense frees nothing.
        if self.written.wrapping_sub(read) <= self.ring.entries {
            self.read = read;
        }
    }

    /// How many entries can be pushed; looks when there seem to be fewer than `wanted`.
    #[inline]
    pub fn space(&mut self, wanted: u32) -> u32 {
        let space = self.ring.entries - self.written.wrapping_sub(self.read);
        if space >= wanted {
            return space;
        }
        self.look();
        self.ring.entries - self.written.wrapping_sub(self.read)
    }

    /// Writes an entry; false: full. The kernel sees it after `publish`.
    #[inline]
    pub fn push(&mut self, entry: T) -> bool {
        if self.space(1) == 0 {
            return false;
        }
        // SAFETY: the kernel does not read this entry before it is published.
        let done = unsafe { self.ring.memory.write(self.ring.offset(self.written), entry) };
        self.written = self.written.wrapping_add(1);
        done
    }

    /// Entry `number`, from the start, as it was pushed; or one pushed since into its slot if that is long ago.
    #[inline]
    pub fn entry(&self, number: u32) -> Option<T> {
        // SAFETY: only we write here, and entries are plain numbers.
        unsafe { self.ring.memory.read(self.ring.offset(number)) }
    }

    /// Shows the kernel the entries that were pushed.
    #[inline]
    pub fn publish(&mut self) {
        if self.published != self.written {
            self.published = self.written;
            // Pairs with the kernel's acquire: the entries are written.
            self.ring.memory.word(self.ring.offsets.producer as usize).store(self.written, Ordering::Release);
        }
    }

    /// How many entries the kernel has not read.
    #[inline]
    pub fn unread(&mut self) -> u32 {
        self.look();
        self.written.wrapping_sub(self.read)
    }

    /// Whether the kernel waits for a system call.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }

    pub fn memory_bytes(&self) -> usize {
        self.ring.memory.len_bytes()
    }
}
