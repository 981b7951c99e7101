//! Places for the values that atomic operations find.

use crate::error::{AmError, Result};
use crate::limits::OPERATIONS_MAX;
use cci::{Access, Endpoint, Foreign, Memory, RegionAddress, RegionHandle};

const RESULT_BYTES: usize = 8;

/// A place for each operation that may be under way. They are allocated with the first operation.
#[derive(Default)]
pub(crate) struct Results {
    places: Option<(Memory, RegionHandle)>,
    free: Vec<Slot>,
}

/// Identifies a place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u16);

impl Results {
    /// Takes a place. There are as many places as operations.
    pub fn take(&mut self, endpoint: &mut Endpoint) -> Result<Slot> {
        if self.places.is_none() {
            let bytes = vec![0; OPERATIONS_MAX * RESULT_BYTES].into_boxed_slice();
            let memory = Memory::foreign(Foreign::owned(bytes));
            let handle = endpoint.register(&memory, Access::LOCAL)?;
            self.places = Some((memory, handle));
            self.free = (0..OPERATIONS_MAX as u16).rev().map(Slot).collect();
        }
        self.free.pop().ok_or(AmError::WouldBlock)
    }

    pub fn give_back(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    pub fn address(&self, slot: Slot) -> Option<RegionAddress> {
        let (_, handle) = self.places.as_ref()?;
        Some(RegionAddress::new(*handle, u64::from(slot.0) * RESULT_BYTES as u64))
    }

    /// The value that was written to a place.
    pub fn value(&self, slot: Slot) -> u64 {
        let mut bytes = [0; RESULT_BYTES];
        if let Some((memory, _)) = &self.places {
            let is_inside = memory.read(usize::from(slot.0) * RESULT_BYTES, &mut bytes);
            debug_assert!(is_inside);
        }
        u64::from_ne_bytes(bytes)
    }
}

const _: () = assert!(OPERATIONS_MAX <= u16::MAX as usize, "a slot has 16 bits");
