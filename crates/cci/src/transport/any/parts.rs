//! The transports that one endpoint is made of: how they are told apart, and when each is looked at.

use crate::device::TransportKind;
use crate::engine::core::Core;
use crate::engine::poller::Poller;
use crate::limits::CONNECTIONS_MAX;
use crate::transport::Transport;
use std::sync::Arc;

/// Of a part's link, the bits that say which part's: places in tables stay below them, and marks of a part's own above.
const PART_SHIFT: u32 = 28;
const PART_MASK: u64 = 3 << PART_SHIFT;

const _: () = assert!(CONNECTIONS_MAX < 1 << PART_SHIFT, "a part's links leave two bits");

/// One transport among several. It has a poller of its own, so that it finds there only what is its own.
pub(super) struct Part {
    pub kind: TransportKind,
    pub transport: Box<dyn Transport>,
    pub poller: Arc<Poller>,
    /// Of the endpoint's memory cap, what the other parts may take.
    pub set_apart_bytes: u64,
    /// Looked at in every poll.
    pub busy: bool,
}

impl Part {
    /// Calls the transport, with its own poller in the engine's place.
    #[inline]
    pub fn turn<R>(&mut self, core: &mut Core, call: impl FnOnce(&mut dyn Transport, &mut Core) -> R) -> R {
        std::mem::swap(&mut core.poller, &mut self.poller);
        core.set_apart_bytes = self.set_apart_bytes;
        let result = call(&mut *self.transport, core);
        std::mem::swap(&mut core.poller, &mut self.poller);
        result
    }
}

/// A link as the endpoint knows it.
pub(super) fn pack(part: usize, link: u64) -> u64 {
    assert!(link & PART_MASK == 0, "a part's link has the place in a table in its low half");
    link | (part as u64) << PART_SHIFT
}

/// Back: the part's place, and its own name.
#[inline]
pub(super) fn unpack(link: u64) -> (usize, u64) {
    ((link & PART_MASK) as usize >> PART_SHIFT, link & !PART_MASK)
}
