//! The region under loom: the same words, each a loom atomic, on the heap.

use core::ptr::NonNull;
use std::sync::Arc;

use loom::cell::UnsafeCell;

use super::{BadRegion, Consumer, LINE_BYTES, LINE_PAYLOAD_BYTES, Producer, RECORD_HEADER_BYTES};
use crate::atomic::{AtomicU64, Ordering};

struct Memory {
    head: AtomicU64,
    stall: AtomicU64,
    attention: AtomicU64,
    heavy: AtomicU64,
    direct: AtomicU64,
    light: AtomicU64,
    /// What a consumer finds where it takes a word for a header, also when that is payload.
    data: Vec<AtomicU64>,
    /// The payload bytes proper, by word: plain memory, whose races loom reports.
    payload: Vec<UnsafeCell<u64>>,
}

// SAFETY: the cells are reached through loom's checks only, which report a race instead of having one.
unsafe impl Sync for Memory {}
// SAFETY: plain numbers.
unsafe impl Send for Memory {}

pub(super) struct Region<M> {
    memory: Arc<Memory>,
    _owner: M,
}

/// The two ends of a ring of `data_bytes` bytes of data, for a model.
pub fn pair(data_bytes: usize, payload_bytes_max: u32) -> (Producer<()>, Consumer<()>) {
    let memory = Arc::new(Memory {
        head: AtomicU64::new(0),
        stall: AtomicU64::new(0),
        attention: AtomicU64::new(0),
        heavy: AtomicU64::new(0),
        direct: AtomicU64::new(0),
        light: AtomicU64::new(0),
        data: (0..data_bytes / 8).map(|_| AtomicU64::new(0)).collect(),
        payload: (0..data_bytes / 8).map(|_| UnsafeCell::new(0)).collect(),
    });
    let region = || Region { memory: Arc::clone(&memory), _owner: () };
    (Producer::in_region(region(), payload_bytes_max), Consumer::in_region(region(), payload_bytes_max))
}

impl<M> Region<M> {
    /// # Safety
    ///
    /// None needed: it always fails, as loom's atomics can't lie in raw memory.
    pub(super) unsafe fn new(_: NonNull<u8>, _: usize, _: u32, _: M) -> Result<Self, BadRegion> {
        Err(BadRegion::Size)
    }

    pub(super) fn share(&self) -> Self
    where
        M: Clone,
    {
        Region { memory: Arc::clone(&self.memory), _owner: self._owner.clone() }
    }

    pub(super) fn data_bytes(&self) -> u64 {
        self.memory.data.len() as u64 * 8
    }

    pub(super) fn head(&self) -> &AtomicU64 {
        &self.memory.head
    }

    pub(super) fn stall(&self) -> &AtomicU64 {
        &self.memory.stall
    }

    pub(super) fn attention(&self) -> &AtomicU64 {
        &self.memory.attention
    }

    pub(super) fn heavy(&self) -> &AtomicU64 {
        &self.memory.heavy
    }

    pub(super) fn direct(&self) -> &AtomicU64 {
        &self.memory.direct
    }

    pub(super) fn light(&self) -> &AtomicU64 {
        &self.memory.light
    }

    pub(super) fn lines(&self) -> Lines<'_> {
        Lines(&self.memory)
    }

    pub(super) fn word(&self, position: u64) -> &AtomicU64 {
        self.lines().word(position)
    }

    pub(super) fn tag(&self, position: u64) -> &AtomicU64 {
        self.lines().tag(position)
    }

    pub(super) fn prefetch_for_write(&self, _: u64) {}

    pub(super) fn demote(&self, _: u64, _: u64) {}

    /// # Safety
    ///
    /// None needed here; the real region has a contract.
    pub(super) unsafe fn write(&self, position: u64, segments: &[&[u8]], len_bytes: usize) {
        // SAFETY: none is needed.
        unsafe { self.lines().write(position, segments, len_bytes) };
    }

    /// # Safety
    ///
    /// `to` is writable for `len` bytes.
    pub(super) unsafe fn read(&self, position: u64, skip: usize, to: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.lines().read(position, skip, to, len) };
    }
}

/// The lines of the data.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a>(&'a Memory);

impl<'a> Lines<'a> {
    fn index(self, position: u64) -> usize {
        (position as usize & (self.0.data.len() * 8 - 1) & !(LINE_BYTES - 1)) / 8
    }

    pub(super) fn word(self, position: u64) -> &'a AtomicU64 {
        &self.0.data[self.index(position)]
    }

    pub(super) fn tag(self, position: u64) -> &'a AtomicU64 {
        &self.0.data[self.index(position) + 1]
    }

    /// # Safety
    ///
    /// None needed here; the real region has a contract.
    unsafe fn write(self, position: u64, segments: &[&[u8]], len_bytes: usize) {
        let bytes = segments.concat();
        assert_eq!(bytes.len(), len_bytes);
        let first = self.index(position) + RECORD_HEADER_BYTES / 8;
        for (index, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let word = u64::from_ne_bytes(word);
            // SAFETY: loom has checked that nobody else is at it.
            self.0.payload[first + index].with_mut(|cell| unsafe { cell.write(word) });
            if (first + index).is_multiple_of(LINE_BYTES / 8) {
                self.0.data[first + index].store(word, Ordering::Relaxed);
            }
        }
    }

    /// # Safety
    ///
    /// None needed here; the real region has a contract.
    pub(super) unsafe fn write_line(self, position: u64, message: &[u8]) {
        // SAFETY: none is needed.
        unsafe { self.write(position, &[message], message.len()) };
    }

    pub(super) fn read_line(self, position: u64, to: &mut [u8; LINE_PAYLOAD_BYTES], len: usize) {
        // SAFETY: `to` is as long as the slice.
        unsafe { self.read(position, 0, NonNull::from(&mut to[..len]).cast(), len) };
    }

    /// # Safety
    ///
    /// `to` is writable for `len` bytes.
    unsafe fn read(self, position: u64, skip: usize, to: NonNull<u8>, len: usize) {
        let first = self.index(position) + RECORD_HEADER_BYTES / 8;
        for byte in 0..len {
            // SAFETY: loom has checked that nobody writes to it.
            let word =
                self.0.payload[first + (skip + byte) / 8].with(|cell| unsafe { cell.read() }).to_ne_bytes();
            // SAFETY: `byte < len`.
            unsafe { to.add(byte).write(word[(skip + byte) % 8]) };
        }
    }
}
