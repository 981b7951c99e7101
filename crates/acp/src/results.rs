//! Places to which atomic operations on 4 bytes write the previous value. The core writes 8 bytes, and the program has given a
//! place of 4.

use crate::error::Result;
use crate::limits::RESULTS_MAX;
use cci::{Access, Endpoint, Foreign, Memory, RegionAddress, RegionHandle};

const RESULT_BYTES: usize = 8;

/// Places for as many operations as may be under way. They are allocated with the first operation.
#[derive(Default)]
pub(crate) struct Results {
    places: Option<(Memory, RegionHandle)>,
    free: Vec<Slot>,
}

/// Identifies a place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u8);

impl Results {
    /// Takes a place for an operation. `None` if all are taken; the end of another operation returns one.
    pub fn take(&mut self, endpoint: &mut Endpoint) -> Result<Option<(Slot, RegionAddress)>> {
        let handle = match &self.places {
            Some((_, handle)) => *handle,
            None => {
                let bytes = vec![0; RESULTS_MAX * RESULT_BYTES].into_boxed_slice();
                let memory = Memory::foreign(Foreign::owned(bytes));
                let handle = endpoint.register(&memory, Access::LOCAL)?;
                self.places = Some((memory, handle));
                self.free = (0..RESULTS_MAX as u8).map(Slot).collect();
                handle
            }
        };
        let slot = self.free.pop();
        Ok(slot.map(|slot| (slot, RegionAddress::new(handle, u64::from(slot.0) * RESULT_BYTES as u64))))
    }

    /// Frees a place, and returns its value: 4 bytes, since the upper ones of 8 are zeros.
    pub fn give_back(&mut self, slot: Slot) -> u32 {
        let mut bytes = [0; RESULT_BYTES];
        if let Some((memory, _)) = &self.places {
            let is_inside = memory.read(usize::from(slot.0) * RESULT_BYTES, &mut bytes);
            debug_assert!(is_inside);
        }
        self.free.push(slot);
        u64::from_ne_bytes(bytes) as u32
    }
}
