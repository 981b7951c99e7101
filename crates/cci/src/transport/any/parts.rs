//! The transports that one endpoint is made of: how they are told apart, and when each is looked at.

use crate::device::{DeviceInfo, TransportKind};
use crate::engine::core::Core;
use crate::engine::event::Event;
use crate::engine::poller::Poller;
use crate::limits::{self, CONNECTIONS_MAX};
use crate::options::Options;
use crate::transport::Transport;
use std::sync::Arc;

/// Of a part's link, the bits that say which part's: places in tables stay below them, and marks of a part's own above.
const PART_SHIFT: u32 = 26;
const PART_MASK: u64 = 15 << PART_SHIFT;

const _: () = assert!(CONNECTIONS_MAX < 1 << PART_SHIFT, "a part's links leave four bits");

/// Why an endpoint whose peers have rights by their names goes without shared memory: whatever that admits would have rights
/// that nobody gave it. Within the host such an endpoint is reached by its sealed paths.
pub(super) const BY_NAME: &str = "rights go by name on this endpoint, and shared memory proves no names";

/// One transport among several. It has a poller of its own, so that it finds there only what is its own.
pub(super) struct Part {
    pub kind: TransportKind,
    /// The device that it was opened for; None: it is one of the parts of a device `any`.
    pub device: Option<String>,
    /// Whom that device's configuration expects wherever this endpoint connects to.
    pub expected: Option<Box<str>>,
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

/// The index of the part that a link is one of, and the part's own name for it.
#[inline]
pub(super) fn unpack(link: u64) -> (usize, u64) {
    ((link & PART_MASK) as usize >> PART_SHIFT, link & !PART_MASK)
}

/// The engine's own: receive buffers and events.
pub(super) fn engine_bytes(device: &DeviceInfo, options: &Options) -> u64 {
    let events = u64::from(options.recv_buffers)
        + u64::from(options.send_buffers.min(limits::SENDS_DEFAULT))
        + u64::from(options.rma_operations.min(limits::RMA_EVENTS_RESERVED));
    let slots_bytes = u64::from(options.recv_buffers) * u64::from(device.max_send_size.next_multiple_of(64));
    slots_bytes + events * size_of::<Event>() as u64
}
