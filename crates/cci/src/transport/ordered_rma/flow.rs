//! What a connection needs while it has remote memory operations under way, in either direction.

use super::operations::{NIL, Ops, Stage, Usage};
use super::slots::{Job, Slot};
use super::{SLOTS, Start};
use crate::engine::core::Core;
use crate::event::{Connection, Status};
use crate::limits::RMA_OPERATION_BYTES;
pub(crate) use crate::limits::progress_ns as allowance_ns;
use cci_memory::fallible;
use cci_memory::slab::{Key, Slab};
use cci_proto::RmaKind;
use std::collections::VecDeque;

/// An operation through the channel whose time is taken, by the transport's clock.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Trial {
    pub kind: RmaKind,
    pub len_bytes: u64,
    /// 0: not taken yet.
    pub began_ns: u64,
    pub has_ended: bool,
}

/// See the module.
pub(crate) struct Flow {
    pub connection: Connection,
    // The asking side.
    pub(super) first: u32,
    pub(super) last: u32,
    /// Operations that have not ended.
    pub(super) ops: u32,
    /// What they move, and [`RMA_OPERATION_BYTES`] for each.
    pub(super) pending_bytes: u64,
    /// None of them has a send timeout that begins earlier.
    from_ns: u64,
    /// What they hold of what all connections share.
    pub(super) usage: Usage,
    /// Of these, those that have left the line or are being cut.
    pub(super) begun: u32,
    pub(super) slots: [Slot; SLOTS],
    /// One bit for each.
    pub(super) free: u128,
    /// Abandoned, and the peer was not told yet.
    pub(super) to_end: u128,
    /// We fetch for these.
    pub(super) fetching: VecDeque<u16>,
    /// Fenced operations in line that have not begun.
    pub(super) fences: u32,
    /// Operations in line that have begun.
    pub(super) cutting: u32,
    /// Messages that the peer has no buffer for, one bit for each slot.
    pub(super) held: u128,
    /// Of these, those that it wants again, in the order that it named them.
    pub(super) again: VecDeque<u16>,
    /// Operations whose message is to be pushed.
    pub(super) messages: VecDeque<u32>,
    // The answering side.
    pub(super) jobs: [Job; SLOTS],
    /// Jobs that are not free.
    pub(super) busy: u128,
    /// Answers to be pushed.
    pub(super) answers: u128,
    /// Reads and fetches, in order.
    pub(super) line: VecDeque<u16>,
    /// Messages of the peer's that it holds until we have buffers, in order.
    pub(super) holding: VecDeque<u16>,
    /// Of these, those that it has been asked for since then, and has not said.
    pub(super) asked: u128,
    asked_ns: u64,
    /// The operation that is a trial of the channel has begun, or ended: what it was, and how much.
    pub trial: Option<Trial>,
    /// Something moved since it was last asked.
    pub moved: bool,
    /// When something last moved, by the transport's clock.
    pub moved_ns: u64,
    /// Is in the transport's list of those with something to push.
    pub queued: bool,
    /// The connection is to be closed once there are no operations left.
    pub closing: bool,
}

const _: () = assert!(SLOTS == u128::BITS as usize, "one bit of a word for each slot");

impl Flow {
    fn new() -> Flow {
        Flow {
            connection: Connection { index: u32::MAX, generation: 0 },
            first: NIL,
            last: NIL,
            ops: 0,
            pending_bytes: 0,
            from_ns: u64::MAX,
            usage: Usage::default(),
            begun: 0,
            slots: [Slot::Free; SLOTS],
            free: u128::MAX,
            to_end: 0,
            fetching: VecDeque::with_capacity(SLOTS),
            fences: 0,
            cutting: 0,
            held: 0,
            again: VecDeque::with_capacity(SLOTS),
            messages: VecDeque::with_capacity(SLOTS),
            jobs: [Job::Free; SLOTS],
            busy: 0,
            answers: 0,
            line: VecDeque::with_capacity(SLOTS),
            holding: VecDeque::with_capacity(SLOTS),
            asked: 0,
            asked_ns: 0,
            trial: None,
            moved: false,
            moved_ns: 0,
            queued: false,
            closing: false,
        }
    }

    /// Nothing is under way, in neither direction.
    pub fn is_idle(&self) -> bool {
        self.ops == 0 && self.busy == 0 && self.free == u128::MAX
    }

    /// Operations of this side that have not ended.
    pub fn operations(&self) -> u32 {
        self.ops
    }

    /// What the peer's operations came to is to be pushed.
    pub fn has_answers(&self) -> bool {
        self.answers != 0
    }

    /// Something is to be pushed or fetched.
    pub fn has_work(&self) -> bool {
        self.answers != 0
            || self.to_end != 0
            || self.first != NIL
            || !self.line.is_empty()
            || !self.fetching.is_empty()
            || !self.messages.is_empty()
            || !self.again.is_empty()
    }

    /// Something is to be fetched: that waits for nobody.
    pub(super) fn has_fetches(&self) -> bool {
        let fetches = |slot: &u16| matches!(self.jobs.get(usize::from(*slot)), Some(Job::Fetch { .. }));
        !self.fetching.is_empty() || self.line.front().is_some_and(fetches)
    }

    /// Enters an operation. False: there is no room, or none that is this connection's share.
    pub fn start(&mut self, ops: &mut Ops, start: &Start<'_>) -> bool {
        let Some(at) = ops.insert(start, &mut self.usage) else { return false };
        self.give_time(ops, at);
        match ops.get_mut(self.last) {
            Some(last) if self.last != NIL => last.next = at,
            _ => self.first = at,
        }
        self.last = at;
        self.ops += 1;
        self.fences += u32::from(start.fence);
        if self.ops == 1 {
            // Its time begins now, not when the last one moved.
            self.moved = true;
        }
        true
    }

    /// An operation is to end when its send timeout is over, counted from when it and all before it have been moved at the
    /// least rate. Nothing that the peer says changes that.
    fn give_time(&mut self, ops: &mut Ops, at: u32) {
        let Some(op) = ops.get_mut(at) else { return };
        op.cost_bytes = op.len_bytes().saturating_add(RMA_OPERATION_BYTES);
        self.pending_bytes = self.pending_bytes.saturating_add(op.cost_bytes);
        op.from_ns = op.from_ns.saturating_add(allowance_ns(self.pending_bytes));
        self.from_ns = self.from_ns.min(op.from_ns);
    }

    /// How long what is under way may take at the least rate.
    pub fn allowance_ns(&self) -> u64 {
        allowance_ns(self.pending_bytes)
    }

    /// By when the first operation has to have ended, whatever the peer says: one that is on its way when its send timeout
    /// is over gets that once more. None: there are none.
    //= wire.md R-TCP-25
    pub fn deadline_ns(&mut self, ops: &Ops, now_ns: u64, timeout_ns: u64) -> Option<u64> {
        if self.ops == 0 {
            return None;
        }
        let deadline_ns = |from_ns: u64| from_ns.saturating_add(timeout_ns.saturating_mul(2));
        if now_ns >= deadline_ns(self.from_ns) {
            // That one may have ended meanwhile.
            let slots = self.slots.iter().filter_map(Slot::op);
            let mut first_ns = u64::MAX;
            for at in slots.chain(self.messages.iter().copied()) {
                first_ns = ops.get(at).map_or(first_ns, |op| first_ns.min(op.from_ns));
            }
            let mut at = self.first;
            while let Some(op) = ops.get(at) {
                first_ns = first_ns.min(op.from_ns);
                at = op.next;
            }
            self.from_ns = first_ns;
        }
        Some(deadline_ns(self.from_ns))
    }

    /// Whether the peer has been asked for a message that it holds, and has not said it for so long.
    pub fn is_owed_a_message(&mut self, now_ns: u64, limit_ns: u64) -> bool {
        if self.asked == 0 {
            let asked = self.holding.iter().filter(|slot| matches!(self.job(**slot), Job::Again));
            self.asked = asked.fold(0, |asked, slot| asked | 1 << slot);
            self.asked_ns = now_ns;
        }
        self.asked != 0 && now_ns.saturating_sub(self.asked_ns) >= limit_ns
    }

    /// The connection is over: what is under way ends so.
    pub fn end(&mut self, ops: &mut Ops, core: &mut Core, status: Status) {
        // Those in line come behind those that have begun; completions in order of issue look after themselves.
        let mut over: [u32; SLOTS] = [NIL; SLOTS];
        let mut count = 0;
        for slot in &self.slots {
            if let Some(op) = slot.op()
                && !over.contains(&op)
                && let Some(room) = over.get_mut(count)
            {
                *room = op;
                count += 1;
            }
        }
        for at in over.iter().copied().take(count).chain(std::mem::take(&mut self.messages)) {
            // Others stand in line still.
            if ops.get(at).is_some_and(|op| matches!(op.stage, Stage::Cut | Stage::Message)) {
                end_op(ops, &mut self.usage, core, at, status);
            }
        }
        while let Some(op) = ops.get(self.first) {
            let next = op.next;
            end_op(ops, &mut self.usage, core, self.first, status);
            self.first = next;
        }
        self.reset();
    }

    fn reset(&mut self) {
        debug_assert_eq!(self.usage, Usage::default(), "given back with each operation");
        self.slots = [Slot::Free; SLOTS];
        self.jobs = [Job::Free; SLOTS];
        (self.first, self.last, self.ops, self.begun) = (NIL, NIL, 0, 0);
        (self.free, self.to_end, self.busy, self.answers, self.held) = (u128::MAX, 0, 0, 0, 0);
        (self.fences, self.cutting) = (0, 0);
        (self.pending_bytes, self.from_ns) = (0, u64::MAX);
        (self.asked, self.asked_ns) = (0, 0);
        self.fetching.clear();
        self.messages.clear();
        self.line.clear();
        self.again.clear();
        self.holding.clear();
        (self.moved, self.closing, self.trial) = (false, false, None);
    }
}

/// Ends an operation with a status of its connection's.
fn end_op(ops: &mut Ops, usage: &mut Usage, core: &mut Core, at: u32, status: Status) {
    if let Some((name, _)) = ops.remove(at, usage) {
        core.complete_operation(name, status);
    }
}

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

    /// Gives a connection a flow. None: there is no room for one.
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

    /// How many there are, idle ones included.
    pub fn made(&self) -> u32 {
        self.table.len() + self.spare.len() as u32
    }

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
