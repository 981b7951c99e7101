//! Memory that this process lends to others in slots of one size. Others can map it for reading only.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::SharedMemory;
use crate::error::Result;

/// The most slots of one memory: a set of them is one word.
pub const SLOTS_MAX: u32 = u64::BITS;

/// The memory, as its one owner has it. It stays mapped until this value and all slots that it has given out are gone.
#[derive(Debug)]
pub struct Lending {
    shared: Arc<Shared>,
    /// The slots that are in, as bits.
    free: u64,
    slots: u32,
}

#[derive(Debug)]
struct Shared {
    memory: SharedMemory,
    slot_bytes: usize,
    /// The slots that came back since the owner last looked, as bits.
    returned: AtomicU64,
}

impl Lending {
    /// Makes `slots` slots (1 to [`SLOTS_MAX`]) of `slot_bytes` bytes each, of zeros.
    ///
    /// # Errors
    /// Those of [`SharedMemory::create_read_only_for_others`].
    pub fn create(slots: u32, slot_bytes: usize) -> Result<Lending> {
        let slots = slots.clamp(1, SLOTS_MAX);
        let len_bytes = slot_bytes.saturating_mul(slots as usize);
        let memory = SharedMemory::create_read_only_for_others(len_bytes)?;
        let shared = Shared { memory, slot_bytes, returned: AtomicU64::new(0) };
        Ok(Lending { shared: Arc::new(shared), free: u64::MAX >> (SLOTS_MAX - slots), slots })
    }

    /// What peers map.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.shared.memory.fd()
    }

    /// All of it, bytes.
    pub fn len_bytes(&self) -> usize {
        self.shared.memory.len()
    }

    /// How many slots there are, in or out.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes of each.
    pub fn slot_bytes(&self) -> usize {
        self.shared.slot_bytes
    }

    /// Whether a slot is of this memory.
    pub fn owns(&self, slot: &LendingSlot) -> bool {
        Arc::ptr_eq(&self.shared, &slot.shared)
    }

    /// Takes a slot; `None`: all are out. One that came back lately is preferred, as it is in the cache.
    pub fn take(&mut self) -> Option<LendingSlot> {
        // Relaxed: only a hint; who takes synchronises.
        if self.shared.returned.load(Ordering::Relaxed) != 0 {
            // Acquire pairs with the Release in `drop`: who had the slot is done with it.
            self.free |= self.shared.returned.swap(0, Ordering::Acquire);
        }
        if self.free == 0 {
            return None;
        }
        let index = self.free.trailing_zeros();
        self.free &= self.free - 1;
        Some(LendingSlot { shared: self.shared.clone(), index })
    }
}

/// A slot that is out: who has it is the only one that writes there. Dropping it, on any thread, gives it back.
#[derive(Debug)]
pub struct LendingSlot {
    shared: Arc<Shared>,
    index: u32,
}

impl LendingSlot {
    /// Which slot it is.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// What is written in it. Empty in a fork child, which has not got the memory.
    pub fn bytes(&self) -> &[u8] {
        let Some(base) = self.base() else { return &[] };
        // SAFETY: the slot lies within the mapping, which lives as long as `self`, and is initialised (zeroed by the kernel). Only
        // `bytes_mut` of this value, which is out once, leads to a writer: others can map the memory for reading only.
        unsafe { slice::from_raw_parts(base.as_ptr(), self.shared.slot_bytes) }
    }

    /// Where a message is written to. Empty in a fork child, which has not got the memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let Some(base) = self.base() else { return &mut [] };
        // SAFETY: as above. Others that read it meanwhile do so by another mapping, which takes any bytes for granted.
        unsafe { slice::from_raw_parts_mut(base.as_ptr(), self.shared.slot_bytes) }
    }

    fn base(&self) -> Option<NonNull<u8>> {
        let Shared { memory, slot_bytes, .. } = &*self.shared;
        if !memory.is_mapped() {
            return None;
        }
        // SAFETY: `create` has made the memory that long.
        Some(unsafe { memory.as_ptr().add(self.index as usize * slot_bytes) })
    }
}

impl Drop for LendingSlot {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `take`.
        self.shared.returned.fetch_or(1 << self.index, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci_memory::bytes::Trust;

    #[test]
    fn slots_are_out_once_and_come_back_on_any_thread() {
        let mut lending = Lending::create(3, 128).unwrap();
        assert_eq!((lending.slots(), lending.slot_bytes(), lending.len_bytes()), (3, 128, 384));
        let mut out: Vec<LendingSlot> = std::iter::from_fn(|| lending.take()).collect();
        let indices: Vec<u32> = out.iter().map(LendingSlot::index).collect();
        assert_eq!(indices, [0, 1, 2]);
        let last = out.pop();
        std::thread::spawn(move || drop(last)).join().unwrap();
        let again = lending.take().unwrap();
        assert_eq!(again.index(), 2);
        assert!(lending.take().is_none());
        drop((out, again));
        assert_eq!(std::iter::from_fn(|| lending.take().map(std::mem::forget)).count(), 3);
        let most = Lending::create(SLOTS_MAX + 1, 64).unwrap();
        assert_eq!(most.slots(), SLOTS_MAX);
    }

    #[test]
    fn a_peer_reads_what_is_written_and_cannot_write() {
        let mut lending = Lending::create(2, 4096).unwrap();
        let fd = |lending: &Lending| lending.fd().unwrap().try_clone_to_owned().unwrap();
        let reader = SharedMemory::open_read_only(fd(&lending), lending.len_bytes()).unwrap();
        assert!(SharedMemory::open(fd(&lending), lending.len_bytes()).is_err(), "mapped for writing");
        let (_first, mut second) = (lending.take().unwrap(), lending.take().unwrap());
        second.bytes_mut()[..5].copy_from_slice(b"hello");
        assert_eq!(&second.bytes()[..5], b"hello");
        let mut read = [0; 5];
        assert!(reader.read(4096, &mut read) && read == *b"hello" && reader.is_mapped());
        // SAFETY: this test writes nothing meanwhile.
        let trust = unsafe { Trust::new() };
        assert_eq!(reader.trusted(trust, 4096, 5), Some(&b"hello"[..]));
        assert!(reader.trusted(trust, 8190, 3).is_none() && reader.trusted(trust, usize::MAX, 3).is_none());
        // The memory outlives its owner as long as a slot is out.
        drop(lending);
        assert_eq!(&second.bytes()[..5], b"hello");
    }
}
