//! Where atomic operations put the values that they found.

use crate::error::{AmError, Result};
use crate::limits::OPERATIONS_MAX;
use cci::{Access, Endpoint, Foreign, Memory, RegionAddress, RegionHandle};

const RESULT_BYTES: usize = 8;

/// A place for each operation that may be under way, made with the first of them.
#[derive(Default)]
pub(crate) struct Results {
    places: Option<(Memory, RegionHandle)>,
    free: Vec<Slot>,
}

/// Names a place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u16);

impl Results {
    /// A place of one's own. There are no more operations than places.
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

    /// What has been put there.
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
