//! The transports that one endpoint consists of.

use crate::device::{DeviceInfo, TransportKind};
use crate::engine::core::Core;
use crate::engine::event::Event;
use crate::engine::poller::Poller;
use crate::limits::{self, CONNECTIONS_MAX};
use crate::options::Options;
use crate::transport::Transport;
use std::sync::Arc;

/// The bits of a link that name the part. Indices of tables stay below them, and a part's own flags above.
const PART_SHIFT: u32 = 26;
const PART_MASK: u64 = 15 << PART_SHIFT;

const _: () = assert!(CONNECTIONS_MAX < 1 << PART_SHIFT, "a part's links leave four bits");

/// Why an endpoint whose peers have rights by their names goes without shared memory: whatever that admits would have rights
/// that nobody gave it. Within the host such an endpoint is reached by its sealed paths.
pub(super) const BY_NAME: &str = "rights go by name on this endpoint, and shared memory proves no names";

/// One transport among several. It has a poller of its own, which reports only its own descriptors.
pub(super) struct Part {
    pub kind: TransportKind,
    /// The device that it was opened for; None: it is one of the parts of a device `any`.
    pub device: Option<String>,
    /// The name that the device's configuration expects of every peer this endpoint connects to.
    pub expected: Option<Box<str>>,
    pub transport: Box<dyn Transport>,
    pub poller: Arc<Poller>,
    /// Bytes of the endpoint's memory cap that the other parts may take.
    pub set_apart_bytes: u64,
    /// Whether it makes progress in every poll.
    pub busy: bool,
}

impl Part {
    /// Calls the transport, with its own poller in the engine instead of the endpoint's.
    #[inline]
    pub fn turn<R>(&mut self, core: &mut Core, call: impl FnOnce(&mut dyn Transport, &mut Core) -> R) -> R {
        std::mem::swap(&mut core.poller, &mut self.poller);
        let turn = Turn { core, poller: &mut self.poller };
        call(&mut *self.transport, turn.core)
    }
}

/// Gives the engine its own poller back, also when a handler of the program's panics.
struct Turn<'a> {
    core: &'a mut Core,
    poller: &'a mut Arc<Poller>,
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        std::mem::swap(&mut self.core.poller, self.poller);
    }
}

/// Makes an endpoint's link of a part's index and the part's own link.
pub(super) fn pack(part: usize, link: u64) -> u64 {
    assert!(link & PART_MASK == 0, "a part's link has the place in a table in its low half");
    link | (part as u64) << PART_SHIFT
}

/// The index of the part that a link belongs to, and the part's own link.
#[inline]
pub(super) fn unpack(link: u64) -> (usize, u64) {
    ((link & PART_MASK) as usize >> PART_SHIFT, link & !PART_MASK)
}

/// Bytes of the memory cap that the engine needs: receive buffers and events.
pub(super) fn engine_bytes(device: &DeviceInfo, options: &Options) -> u64 {
    let events = u64::from(options.recv_buffers)
        + u64::from(options.send_buffers.min(limits::SENDS_DEFAULT))
        + u64::from(options.rma_operations.min(limits::RMA_EVENTS_RESERVED));
    let slots_bytes = u64::from(options.recv_buffers) * u64::from(device.max_send_size.next_multiple_of(64));
    slots_bytes + events * size_of::<Event>() as u64
}
