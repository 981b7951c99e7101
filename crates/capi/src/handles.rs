//! RMA handles behind C pointers: they stay where they are.

use crate::allocations::InUse;
use crate::guard::Failure;
use crate::types::*;
use cci::RegionHandle;
use std::cell::UnsafeCell;
use std::collections::{HashMap, VecDeque};

const BLOCK: usize = 128;

type Block = Box<[UnsafeCell<cci_rma_handle_t>; BLOCK]>;

/// The handles of an endpoint's registrations, in blocks of 4 KiB that stay where they are until the endpoint is
/// destroyed: a program that deregisters twice reads a stale handle, not somebody else's memory.
#[derive(Default)]
pub(crate) struct Handles {
    /// `UnsafeCell`: the program reads the handles while we hold `&mut Handles`.
    blocks: Vec<Block>,
    /// Slots not in use. They are taken from the front and given back at the end, so that a slot stays stale for long.
    free: VecDeque<usize>,
    registered: HashMap<RegionHandle, Registered>,
}

struct Registered {
    slot: usize,
    _in_use: Option<InUse>,
}

impl Handles {
    /// Stores a handle for the program until its registration ends, and gives its address.
    pub fn insert(&mut self, handle: RegionHandle, in_use: Option<InUse>) -> *const cci_rma_handle_t {
        if self.free.is_empty() {
            let made = self.blocks.len() * BLOCK;
            self.free.extend(made..made + BLOCK);
            let empty = || UnsafeCell::new(cci_rma_handle_t { stuff: [0; 4] });
            self.blocks.push(Box::new(std::array::from_fn(|_| empty())));
        }
        let slot = self.free.pop_front().unwrap_or_default();
        let at = self.blocks[slot / BLOCK][slot % BLOCK].get();
        // SAFETY: only we write handles, under the endpoint's lock, which we hold; the program has no right to what was
        // here, since it was deregistered. 32 bytes of either type are 32 bytes of the other.
        unsafe { at.cast::<[u8; RegionHandle::BYTES]>().write(handle.to_bytes()) };
        self.registered.insert(handle, Registered { slot, _in_use: in_use });
        at.cast_const()
    }

    /// Gives a handle's slot back when its registration has ended.
    pub fn remove(&mut self, handle: &RegionHandle) {
        if let Some(Registered { slot, .. }) = self.registered.remove(handle) {
            self.free.push_back(slot);
        }
    }

    /// Bytes of memory that the handles take.
    pub fn bytes(&self) -> usize {
        self.blocks.len() * size_of::<[cci_rma_handle_t; BLOCK]>()
            + self.free.capacity() * size_of::<usize>()
            + self.registered.capacity() * size_of::<(RegionHandle, Registered)>()
    }
}

const _: () = assert!(size_of::<cci_rma_handle_t>() == RegionHandle::BYTES);

/// What a program's handle says: any 32 bytes, at any address.
///
/// # Safety
/// `handle` is NULL or points to 32 bytes.
#[inline]
pub(crate) unsafe fn handle_of(handle: *const cci_rma_handle_t) -> Result<RegionHandle, Failure> {
    if handle.is_null() {
        return Err(Failure::with_text(CCI_EINVAL, "the RMA handle is NULL"));
    }
    // SAFETY: as the caller promises; a copy may lie anywhere in a message, so its alignment is not relied on.
    Ok(RegionHandle::from_bytes(unsafe { handle.cast::<[u8; RegionHandle::BYTES]>().read_unaligned() }))
}
