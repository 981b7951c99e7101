//! What a connection borrows while remote memory access is going on.

use super::deadline::Progress;
use super::table::{NodeId, OpId, Ops};
use crate::limits::{RMA_READ_BYTES_MAX, RMA_SLOTS, WINDOW_BUNDLES_MAX};
use crate::rma::{RemoteAddress, RmaRefusal};
use crate::{Blocked, Seq, Time};

/// What an initiator's slot waits for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Free,
    /// A write whose end has not been sent.
    Write,
    /// A write or a notification that has been sent whole: for DONE.
    Ended,
    /// For data.
    Read,
    /// For DONE, with the value from before where it is wanted: 8 bytes, whatever the width of the word.
    Atomic {
        wants_value: bool,
    },
}

/// A request of this side, as the initiator, that the peer has not answered.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Slot {
    pub waits: Use,
    /// `NONE`: it is over for our program, but not for the peer.
    pub op: OpId,
    /// Where what comes goes.
    pub to: RemoteAddress,
    pub len: u32,
    /// What has not come.
    pub missing: u32,
    /// When the last record of it was made.
    pub issued_ticks: u32,
    /// What all reads lacked when it was asked for, its own bytes included: only for so much progress does it wait.
    pub ahead_bytes: u32,
}

const FREE: Slot = Slot {
    waits: Use::Free,
    op: OpId::NONE,
    to: RemoteAddress { region: 0, key: 0, offset: 0 },
    len: 0,
    missing: 0,
    issued_ticks: 0,
    ahead_bytes: 0,
};

/// A request of the peer's, of which this side is the target.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Job {
    pub at: RemoteAddress,
    pub len: u32,
    pub sent: u32,
    pub answer: Result<Option<u64>, RmaRefusal>,
}

/// What a bundle without a packet buffer is made of, each time it is sent.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Bulk {
    None,
    Write { slot: u8, last: bool, bytes: u16, op: OpId, node: NodeId, offset: u64 },
    Data { slot: u8, bytes: u16, offset: u32, at: RemoteAddress },
}

/// Slots in the order in which their turn comes; each at most once.
#[derive(Clone)]
pub(crate) struct Turns {
    entries: [u8; RMA_SLOTS],
    head: u8,
    len: u8,
}

impl Turns {
    const NEW: Turns = Turns { entries: [0; RMA_SLOTS], head: 0, len: 0 };

    pub fn first(&self) -> Option<u8> {
        (self.len != 0).then(|| self.entries[usize::from(self.head)])
    }

    pub fn push(&mut self, slot: u8) {
        debug_assert!(usize::from(self.len) < RMA_SLOTS, "each slot at most once");
        let at = (usize::from(self.head) + usize::from(self.len)) % RMA_SLOTS;
        self.entries[at] = slot;
        self.len += 1;
    }

    pub fn pop(&mut self) {
        if self.len != 0 {
            self.head = ((usize::from(self.head) + 1) % RMA_SLOTS) as u8;
            self.len -= 1;
        }
    }
}

/// A list of operations, linked through them.
#[derive(Copy, Clone)]
pub(crate) struct List {
    pub head: OpId,
    tail: OpId,
}

impl List {
    const NEW: List = List { head: OpId::NONE, tail: OpId::NONE };

    pub fn push(&mut self, ops: &mut Ops, id: OpId) {
        if let Some(op) = ops.get_mut(id) {
            op.next = OpId::NONE;
        }
        match ops.get_mut(self.tail) {
            Some(last) => last.next = id,
            None => self.head = id,
        }
        self.tail = id;
    }

    /// Takes an operation out, wherever it is; the head is found at once.
    pub fn remove(&mut self, ops: &mut Ops, id: OpId) {
        let (mut before, mut at) = (OpId::NONE, self.head);
        while at != id {
            let Some(op) = ops.get(at) else { return };
            (before, at) = (at, op.next);
        }
        let next = ops.get(id).map_or(OpId::NONE, |op| op.next);
        match ops.get_mut(before) {
            Some(op) => op.next = next,
            None => self.head = next,
        }
        if self.tail == id {
            self.tail = before;
        }
    }
}

/// The state of a connection's remote memory access.
pub(crate) struct Rma {
    /// Operations of ours that are not over.
    pub ops: u32,
    /// Operations of ours that are not forgotten, and their nodes: they count against this connection's share.
    pub held_ops: u32,
    pub held_nodes: usize,
    /// Operations of which records are still to be made.
    pub queue: List,
    /// Reads whose data is there and whose message is still to be sent.
    pub notify: List,
    pub slots: [Slot; RMA_SLOTS],
    /// A bit for each free slot.
    pub free: u128,
    /// Slots of writes that were given up before their end was sent: the peer must still learn of it.
    pub owed: u128,
    /// What the fenced operation at the head of the queue waits for.
    pub fence: Option<Seq>,
    /// The last operation in the queue was fenced, and has ended: the next one waits in its place.
    pub fence_owed: bool,
    /// How far the peer has kept up with what we ask of it.
    pub progress: Progress,
    /// What all reads in slots lack.
    pub reading_bytes: u32,
    /// There was no packet buffer: when to try again.
    pub retry_due: Time,
    pub retry_ns: u64,
    /// Whose turn it is to fill a bundle: the peer's reads, or our own operations.
    pub data_turn: bool,
    /// Bundles made for remote memory access that have not left.
    pub unsent: u32,

    /// Operations of the peer's of which something was refused.
    pub failed: u128,
    /// Operations among `failed` that had not ended at the last look, and the data that has come for any of them since.
    pub failed_before: u128,
    pub failed_bytes: u64,
    /// Requests of the peer's to which an answer is due.
    pub busy: u128,
    pub dones: Turns,
    pub reads: Turns,
    pub jobs: [Job; RMA_SLOTS],

    /// By sequence number, for bundles with such records: what is in them if no packet buffer is, and since when.
    bulk: [Bulk; WINDOW_BUNDLES_MAX as usize],
    /// How many of these there are.
    bulks: u32,
    since_ticks: [u32; WINDOW_BUNDLES_MAX as usize],
}

const JOB: Job =
    Job { at: RemoteAddress { region: 0, key: 0, offset: 0 }, len: 0, sent: 0, answer: Ok(None) };

impl Rma {
    pub const COST_BYTES: u64 = size_of::<Rma>() as u64;

    pub fn new() -> Rma {
        Rma {
            ops: 0,
            held_ops: 0,
            held_nodes: 0,
            queue: List::NEW,
            notify: List::NEW,
            slots: [FREE; RMA_SLOTS],
            free: u128::MAX,
            owed: 0,
            fence: None,
            fence_owed: false,
            progress: Progress::default(),
            reading_bytes: 0,
            retry_due: Time::FAR,
            retry_ns: 0,
            data_turn: false,
            unsent: 0,
            failed: 0,
            failed_before: 0,
            failed_bytes: 0,
            busy: 0,
            dones: Turns::NEW,
            reads: Turns::NEW,
            jobs: [JOB; RMA_SLOTS],
            bulk: [Bulk::None; WINDOW_BUNDLES_MAX as usize],
            bulks: 0,
            since_ticks: [0; WINDOW_BUNDLES_MAX as usize],
        }
    }

    /// True if nothing of it would be missed.
    pub fn is_idle(&self) -> bool {
        self.ops == 0 && self.free == u128::MAX && self.owed == 0 && self.failed == 0 && self.busy == 0
    }

    /// True if there is something of which a record could be made.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.busy != 0 || self.owed != 0 || self.queue.head != OpId::NONE || self.notify.head != OpId::NONE
    }

    /// What the next operation waits for before a record of it can be made.
    pub fn held_up_by(&self, ops: &Ops) -> Option<Blocked> {
        let next = ops.get(self.queue.head)?;
        if next.fence {
            Some(Blocked::Fence)
        } else {
            (self.free == 0 && next.slot.is_none()).then_some(Blocked::Answers)
        }
    }

    /// Takes a free slot.
    pub fn take_slot(&mut self, slot: Slot) -> Option<u8> {
        let index = self.free.trailing_zeros();
        let entry = self.slots.get_mut(index as usize)?;
        self.reading_bytes += slot.missing;
        *entry = Slot { ahead_bytes: self.reading_bytes, ..slot };
        self.free &= !(1 << index);
        Some(index as u8)
    }

    pub fn free_slot(&mut self, index: u8) {
        if let Some(slot) = self.slots.get_mut(usize::from(index)) {
            self.reading_bytes -= slot.missing;
            *slot = FREE;
            self.free |= 1 << index;
        }
    }

    /// Forgets what was noted of an operation of the peer's: it has ended.
    pub fn forget_failed(&mut self, bit: u128) {
        (self.failed, self.failed_before) = (self.failed & !bit, self.failed_before & !bit);
    }

    /// The peer takes no more answers.
    pub fn drop_answers(&mut self) {
        (self.busy, self.dones, self.reads) = (0, Turns::NEW, Turns::NEW);
    }

    #[inline]
    pub fn bulk(&self, seq: Seq) -> Bulk {
        self.bulk[(seq.0 % WINDOW_BUNDLES_MAX) as usize]
    }

    pub fn set_bulk(&mut self, seq: Seq, bulk: Bulk) {
        self.bulks += u32::from(!matches!(bulk, Bulk::None));
        let before = std::mem::replace(&mut self.bulk[(seq.0 % WINDOW_BUNDLES_MAX) as usize], bulk);
        self.bulks -= u32::from(!matches!(before, Bulk::None));
    }

    /// Bundles without a packet buffer that are not acknowledged.
    pub fn bulks(&self) -> u32 {
        self.bulks
    }

    #[inline]
    pub fn since_ticks(&self, seq: Seq) -> u32 {
        self.since_ticks[(seq.0 % WINDOW_BUNDLES_MAX) as usize]
    }

    #[inline]
    pub fn set_since(&mut self, seq: Seq, ticks: u32) {
        self.since_ticks[(seq.0 % WINDOW_BUNDLES_MAX) as usize] = ticks;
    }

    /// A bundle without a packet buffer is acknowledged, or will never be.
    pub fn release(&mut self, ops: &mut Ops, seq: Seq) {
        let bulk = self.bulk(seq);
        self.set_bulk(seq, Bulk::None);
        if let Bulk::Write { op: id, .. } = bulk {
            if let Some(op) = ops.get_mut(id) {
                op.bundles = op.bundles.saturating_sub(1);
            }
            self.forget_if_done(ops, id);
        }
    }

    /// Forgets an operation that is over, once no bundle needs it.
    pub fn forget_if_done(&mut self, ops: &mut Ops, id: OpId) {
        if let Some(nodes) = ops.forget_if_done(id) {
            self.held_ops -= 1;
            self.held_nodes -= nodes;
        }
    }
}

const _: () = {
    assert!(RMA_SLOTS == u128::BITS as usize, "a bit for each slot");
    assert!(size_of::<Rma>() <= 32 << 10);
    assert!(
        RMA_SLOTS as u64 * RMA_READ_BYTES_MAX as u64 <= u32::MAX as u64,
        "what all reads lack is counted in 32 bits"
    );
};
