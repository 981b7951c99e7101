//! The flows of an endpoint.

use super::SLOTS;
use super::flow::Flow;
use super::operations::Ops;
use crate::connection::Connection;
use cci_memory::fallible;
use cci_memory::slab::{Key, Slab};

/// The flows of an endpoint.
pub(crate) struct Flows {
    table: Slab<Box<Flow>>,
    /// Idle ones, for the next connections.
    spare: Vec<Box<Flow>>,
    pub ops: Ops,
}

/// Idle flows kept.
const SPARE_MAX: usize = 16;
/// Memory of one flow.
pub(crate) const FLOW_BYTES: usize = size_of::<Flow>() + SLOTS * (5 * size_of::<u16>() + size_of::<u32>());
/// Flows of one endpoint: connections with something under way at the same time.
const FLOWS_MAX: u32 = 1 << 22;

impl Flows {
    pub fn new(operations_max: u32) -> Flows {
        Flows { table: Slab::new(FLOWS_MAX), spare: Vec::new(), ops: Ops::new(operations_max) }
    }

    /// Gives a connection a flow. None: there is no space for one.
    pub fn lend(&mut self, connection: Connection, now_ns: u64) -> Option<Key> {
        let spare = self.spare.pop();
        let mut flow = spare.or_else(|| fallible::boxed(Flow::new()).ok())?;
        flow.connection = connection;
        (flow.moved_ns, flow.moved) = (now_ns, true);
        self.table.insert(flow).ok()
    }

    /// Takes back a flow that is idle, or was ended.
    pub fn give_back(&mut self, key: Key) {
        if let Some(mut flow) = self.table.remove(key)
            && self.spare.len() < SPARE_MAX
        {
            flow.reset();
            flow.queued = false;
            self.spare.push(flow);
        }
    }

    /// The number of flows, idle ones included.
    pub fn made(&self) -> u32 {
        self.table.len() + self.spare.len() as u32
    }

    #[inline]
    pub fn get(&self, key: Key) -> Option<&Flow> {
        self.table.get(key).map(|flow| &**flow)
    }

    /// The flow, and the operations that it needs for everything.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<(&mut Flow, &mut Ops)> {
        Some((self.table.get_mut(key)?, &mut self.ops))
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let flows = self.table.len() as usize + self.spare.len();
        (self.table.bytes() + flows * FLOW_BYTES) as u64 + self.ops.bytes()
    }
}
