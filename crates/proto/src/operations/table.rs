//! What is remembered of each remote memory operation: two tables of an endpoint that grow with use and are kept.
//!
//! They are no `cci_memory::slab::Slab`: their entries are linked into lists, no name outlives what it names, so generations
//! would cost 8 bytes an entry for nothing, and growing must not move what is there.

use crate::limits::{DATAGRAM_BYTES_MAX, RMA_LOT, RMA_SEGMENTS_MAX, message_bytes_max};
use crate::rma::{Atomic, AtomicKind, AtomicWidth, RemoteAddress, RmaSegment};

/// Names an operation that is not forgotten yet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpId(u32);

impl OpId {
    pub const NONE: OpId = OpId(u32::MAX);
}

/// Names a segment, or a part of a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(u32);

impl NodeId {
    pub const NONE: NodeId = NodeId(u32::MAX);
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    Write,
    Read,
    Atomic,
}

/// Which list of its connection an operation is in.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Records of it are still to be made.
    Queued,
    /// All are made.
    Issued,
    /// A read, all of whose data has come: its message is still to be sent.
    Notifying,
}

/// One operation.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Op {
    pub operation: u64,
    /// How much of `segment` records have been made for.
    pub offset: u64,
    /// The next of the same list, or free one.
    pub next: OpId,
    /// All nodes it has: segments, then an atomic's operands or the message.
    nodes: NodeId,
    /// The segment that is next.
    pub segment: NodeId,
    pub message: NodeId,
    pub message_bytes: u16,
    /// A message is still to be sent.
    pub has_message: bool,
    pub segments_remaining: u16,
    /// Requests that wait for data.
    pub requests: u16,
    /// Bundles in the window that read from it when they are sent again.
    pub bundles: u16,
    pub queued_ticks: u32,
    pub kind: OpKind,
    pub stage: Stage,
    pub fence: bool,
    /// Its event has been raised.
    pub over: bool,
    /// The slot of a write that has begun.
    pub slot: Option<u8>,
}

/// An operation as it is handed in.
pub(crate) struct NewOp<'a> {
    pub operation: u64,
    pub kind: OpKind,
    pub segments: &'a [RmaSegment],
    pub atomic: Option<(Atomic, bool)>,
    pub message: Option<&'a [u8]>,
    pub fence: bool,
    pub now_ticks: u32,
}

const NODE_WORDS: usize = 7;
const NODE_BYTES: usize = NODE_WORDS * 8;

/// Nodes of the longest message.
const MESSAGE_NODES_MAX: usize = message_bytes_max(DATAGRAM_BYTES_MAX).div_ceil(NODE_BYTES);

/// A segment, an atomic's operands, or a part of a message.
#[derive(Copy, Clone)]
struct Node {
    words: [u64; NODE_WORDS],
    next: NodeId,
}

const EMPTY_OP: Op = Op {
    operation: 0,
    offset: 0,
    next: OpId::NONE,
    nodes: NodeId::NONE,
    segment: NodeId::NONE,
    message: NodeId::NONE,
    message_bytes: 0,
    has_message: false,
    segments_remaining: 0,
    requests: 0,
    bundles: 0,
    queued_ticks: 0,
    kind: OpKind::Write,
    stage: Stage::Queued,
    fence: false,
    over: true,
    slot: None,
};

/// All operations of an endpoint.
pub(crate) struct Ops {
    #[expect(clippy::vec_box, reason = "growing must not move what is there")]
    ops: Vec<Box<[Op; RMA_LOT]>>,
    nodes: Vec<Box<[Node; RMA_LOT]>>,
    free: OpId,
    free_node: NodeId,
    free_nodes: usize,
    in_use: u32,
    ops_max: usize,
}

impl Ops {
    const OP_LOT_BYTES: u64 = (RMA_LOT * size_of::<Op>() + size_of::<usize>()) as u64;
    const NODE_LOT_BYTES: u64 = (RMA_LOT * size_of::<Node>() + size_of::<usize>()) as u64;

    pub fn new(ops_max: u32) -> Ops {
        Ops {
            ops: Vec::new(),
            nodes: Vec::new(),
            free: OpId::NONE,
            free_node: NodeId::NONE,
            free_nodes: 0,
            in_use: 0,
            ops_max: ops_max as usize,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.ops.len() as u64 * Ops::OP_LOT_BYTES + self.nodes.len() as u64 * Ops::NODE_LOT_BYTES
    }

    /// Operations not forgotten.
    #[cfg(test)]
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// Nodes that an operation of this shape takes.
    pub fn nodes_for(segments: usize, is_atomic: bool, message_bytes: usize) -> usize {
        segments + usize::from(is_atomic) + message_bytes.div_ceil(NODE_BYTES)
    }

    /// Whether a connection that holds so many operations and nodes may have one operation and `nodes` more: no more than stay for
    /// all others, so that none is ever locked out. The tables may take `space_bytes` more at most.
    pub fn is_fair(&self, held_ops: u32, held_nodes: usize, nodes: usize, space_bytes: u64) -> bool {
        let lots = (space_bytes / Ops::NODE_LOT_BYTES)
            .min(self.node_lots_max().saturating_sub(self.nodes.len()) as u64);
        let nodes_available = self.free_nodes + lots as usize * RMA_LOT;
        (held_ops as usize) < self.ops_max.saturating_sub(self.in_use as usize)
            && held_nodes + nodes <= nodes_available
    }

    /// Pieces and messages may be four times as many as operations; one operation of any size always fits.
    fn node_lots_max(&self) -> usize {
        (4 * self.ops_max + RMA_SEGMENTS_MAX + MESSAGE_NODES_MAX).div_ceil(RMA_LOT)
    }

    /// Makes sure that one more operation with `nodes` nodes can be remembered, taking `space_bytes` more at most.
    pub fn reserve(&mut self, nodes: usize, mut space_bytes: u64) -> bool {
        if self.in_use as usize >= self.ops_max {
            return false;
        }
        if self.free == OpId::NONE {
            if space_bytes < Ops::OP_LOT_BYTES || self.ops.try_reserve(1).is_err() {
                return false;
            }
            space_bytes -= Ops::OP_LOT_BYTES;
            let first = (self.ops.len() * RMA_LOT) as u32;
            self.ops.push(Box::new(std::array::from_fn(|index| {
                let next = if index + 1 == RMA_LOT { OpId::NONE } else { OpId(first + index as u32 + 1) };
                Op { next, ..EMPTY_OP }
            })));
            self.free = OpId(first);
        }
        while self.free_nodes < nodes {
            let more = space_bytes >= Ops::NODE_LOT_BYTES && self.nodes.len() < self.node_lots_max();
            if !more || self.nodes.try_reserve(1).is_err() {
                return false;
            }
            space_bytes -= Ops::NODE_LOT_BYTES;
            let first = (self.nodes.len() * RMA_LOT) as u32;
            let behind = self.free_node;
            self.nodes.push(Box::new(std::array::from_fn(|index| Node {
                words: [0; NODE_WORDS],
                next: if index + 1 == RMA_LOT { behind } else { NodeId(first + index as u32 + 1) },
            })));
            self.free_node = NodeId(first);
            self.free_nodes += RMA_LOT;
        }
        true
    }

    /// Remembers an operation for which [`Ops::reserve`] has made sure of memory.
    pub fn add(&mut self, new: &NewOp<'_>) -> Option<OpId> {
        let id = self.free;
        let next_free = self.get(id)?.next;
        let mut op = EMPTY_OP;
        let mut tail = NodeId::NONE;
        for segment in new.segments {
            tail = self.add_node(&mut op, tail, words_of(segment))?;
        }
        op.segment = op.nodes;
        if let Some((atomic, wants_value)) = new.atomic {
            let what = atomic.kind as u64 | (atomic.width as u64) << 8 | u64::from(wants_value) << 16;
            self.add_node(&mut op, tail, [what, atomic.operand, atomic.compare, 0, 0, 0, 0])?;
        }
        for part in new.message.unwrap_or_default().chunks(NODE_BYTES) {
            let mut words = [0; NODE_WORDS];
            for (word, bytes) in words.iter_mut().zip(part.chunks(8)) {
                let mut whole = [0; 8];
                whole[..bytes.len()].copy_from_slice(bytes);
                *word = u64::from_le_bytes(whole);
            }
            tail = self.add_node(&mut op, tail, words)?;
            if op.message == NodeId::NONE {
                op.message = tail;
            }
        }
        op.operation = new.operation;
        op.kind = new.kind;
        op.fence = new.fence;
        op.over = false;
        op.segments_remaining = new.segments.len() as u16;
        op.has_message = new.message.is_some();
        op.message_bytes = new.message.map_or(0, |message| message.len() as u16);
        op.queued_ticks = new.now_ticks;
        self.free = next_free;
        *self.get_mut(id)? = op;
        self.in_use += 1;
        Some(id)
    }

    fn add_node(&mut self, op: &mut Op, tail: NodeId, words: [u64; NODE_WORDS]) -> Option<NodeId> {
        let id = self.free_node;
        let node = self.node_mut(id)?;
        let next_free = node.next;
        *node = Node { words, next: NodeId::NONE };
        self.free_node = next_free;
        self.free_nodes -= 1;
        match self.node_mut(tail) {
            Some(before) => before.next = id,
            None => op.nodes = id,
        }
        Some(id)
    }

    #[inline]
    pub fn get(&self, id: OpId) -> Option<&Op> {
        self.ops.get(id.0 as usize / RMA_LOT).map(|lot| &lot[id.0 as usize % RMA_LOT])
    }

    #[inline]
    pub fn get_mut(&mut self, id: OpId) -> Option<&mut Op> {
        self.ops.get_mut(id.0 as usize / RMA_LOT).map(|lot| &mut lot[id.0 as usize % RMA_LOT])
    }

    #[inline]
    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize / RMA_LOT).map(|lot| &lot[id.0 as usize % RMA_LOT])
    }

    #[inline]
    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0 as usize / RMA_LOT).map(|lot| &mut lot[id.0 as usize % RMA_LOT])
    }

    #[inline]
    pub fn segment(&self, id: NodeId) -> Option<RmaSegment> {
        let [local_region, local_key, local_offset, region, key, offset, len_bytes] = self.node(id)?.words;
        Some(RmaSegment {
            local: RemoteAddress { region: local_region, key: local_key, offset: local_offset },
            remote: RemoteAddress { region, key, offset },
            len_bytes,
        })
    }

    /// What an atomic operation does, and whether its result is wanted.
    pub fn atomic(&self, op: &Op) -> Option<(Atomic, bool)> {
        let [what, operand, compare, ..] = self.node(self.node(op.segment)?.next)?.words;
        let kind = *AtomicKind::ALL.get((what & 0xff) as usize)?;
        let width = if what >> 8 & 0xff == 4 { AtomicWidth::Four } else { AtomicWidth::Eight };
        Some((Atomic { kind, width, operand, compare }, what >> 16 != 0))
    }

    /// The segment behind this one.
    pub fn segment_after(&self, id: NodeId) -> NodeId {
        self.node(id).map_or(NodeId::NONE, |node| node.next)
    }

    /// Moves on: `bytes` of the segment that is next have been dealt with.
    pub fn advance(&mut self, id: OpId, bytes: u64) {
        let Some(op) = self.get(id) else { return };
        let len_bytes = self.segment(op.segment).map_or(0, |segment| segment.len_bytes);
        let after = self.segment_after(op.segment);
        let Some(op) = self.get_mut(id) else { return };
        op.offset += bytes;
        if op.offset >= len_bytes {
            (op.segment, op.offset) = (after, 0);
            op.segments_remaining = op.segments_remaining.saturating_sub(1);
        }
    }

    /// Copies the operation's message to the start of `out`.
    pub fn copy_message(&self, op: &Op, out: &mut [u8]) {
        let len = usize::from(op.message_bytes).min(out.len());
        let mut id = op.message;
        for part in out[..len].chunks_mut(NODE_BYTES) {
            let Some(node) = self.node(id) else { return };
            for (word, index) in node.words.iter().zip(part.chunks_mut(8)) {
                index.copy_from_slice(&word.to_le_bytes()[..index.len()]);
            }
            id = node.next;
        }
    }

    /// Forgets an operation that is over, once no bundle needs it. How many nodes it had; None: it is still needed.
    pub fn forget_if_done(&mut self, id: OpId) -> Option<usize> {
        let free = self.free;
        let op = self.get_mut(id).filter(|op| op.over && op.bundles == 0)?;
        let mut node = std::mem::replace(&mut op.nodes, NodeId::NONE);
        op.next = free;
        self.free = id;
        self.in_use -= 1;
        let mut nodes = 0;
        while let Some(index) = self.node(node).copied() {
            let free_node = self.free_node;
            if let Some(freed) = self.node_mut(node) {
                freed.next = free_node;
            }
            self.free_node = node;
            self.free_nodes += 1;
            nodes += 1;
            node = index.next;
        }
        Some(nodes)
    }
}

fn words_of(segment: &RmaSegment) -> [u64; NODE_WORDS] {
    let (local, remote) = (segment.local, segment.remote);
    [local.region, local.key, local.offset, remote.region, remote.key, remote.offset, segment.len_bytes]
}

const _: () = {
    assert!(size_of::<Op>() <= 64, "thousands are outstanding");
    assert!(size_of::<Node>() == 64);
};
