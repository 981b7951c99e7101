//! Memory for rings in tests: shared between threads, reached through atomics or raw pointers only.
#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::ptr::NonNull;
use std::sync::Arc;

use cci_memory::atomic::AtomicU64;
use cci_memory::ring::{Consumer, Producer, region_bytes};

/// A pair of cache lines.
#[repr(C, align(128))]
pub struct Line([AtomicU64; 16]);

/// A zeroed region.
#[derive(Clone)]
pub struct Memory(Arc<[Line]>);

impl Memory {
    /// For a ring of so many bytes.
    pub fn new(data_bytes: usize) -> Self {
        let lines = region_bytes(data_bytes) / size_of::<Line>();
        Memory((0..lines).map(|_| Line([const { AtomicU64::new(0) }; 16])).collect())
    }

    /// Where it begins.
    pub fn base(&self) -> NonNull<u8> {
        NonNull::from(&*self.0).cast()
    }

    /// How long it is.
    pub fn len_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// The 8-byte words of the region.
    pub fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        self.0.iter().flat_map(|line| &line.0)
    }

    /// The word at a byte offset of the region.
    pub fn word(&self, offset_bytes: usize) -> &AtomicU64 {
        &self.0[offset_bytes / 128].0[offset_bytes % 128 / 8]
    }

    /// The end that writes.
    pub fn producer(&self, payload_bytes_max: u32) -> Producer<Memory> {
        // SAFETY: zeroed, alive as long as the clone that the producer gets, atomics only, one producer per test.
        unsafe { Producer::new(self.base(), self.len_bytes(), payload_bytes_max, self.clone()) }.unwrap()
    }

    /// The end that reads.
    pub fn consumer(&self, payload_bytes_max: u32) -> Consumer<Memory> {
        // SAFETY: as above.
        unsafe { Consumer::new(self.base(), self.len_bytes(), payload_bytes_max, self.clone()) }.unwrap()
    }
}

/// Both ends of a ring.
pub fn pair(data_bytes: usize, payload_bytes_max: u32) -> (Producer<Memory>, Consumer<Memory>) {
    let memory = Memory::new(data_bytes);
    (memory.producer(payload_bytes_max), memory.consumer(payload_bytes_max))
}

/// A generator of numbers good enough for tests (xorshift64*).
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// One less than `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
