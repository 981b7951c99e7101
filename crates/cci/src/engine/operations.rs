//! Remote memory operations in progress: what each is to the program.

use crate::event::Connection;
use cci_ring::slab::{Key, Slab};

/// One operation, by the name that the transport knows it by.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Operation {
    pub connection: Connection,
    /// The program's, returned unchanged.
    pub context: u64,
    /// No event on success.
    pub silent: bool,
    /// Its number in the line of its connection, where completions are ordered.
    pub place: Option<u64>,
}

/// See the module.
pub(crate) struct Operations(Slab<Operation>);

impl Operations {
    /// Room for `max`; it is taken as it is first needed, and kept.
    pub fn new(max: u32) -> Operations {
        Operations(Slab::new(max))
    }

    /// Enters one; None: as many are in progress as may be.
    pub fn insert(&mut self, operation: Operation) -> Option<u64> {
        self.0.insert(operation).ok().map(Key::to_bits)
    }

    pub fn remove(&mut self, name: u64) -> Option<Operation> {
        self.0.remove(Key::from_bits(name))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        self.0.bytes() as u64
    }
}
