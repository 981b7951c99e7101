//! Remote memory access in the simulator: what nodes have registered, as byte arrays with keys, rights and scopes
//! ([`Regions`]), and what each side has started ([`Operation`]).
//!
//! The ledger judges it, and the nodes' programs (`super::operator`) start the operations. An operation's bytes follow from its side and number, places are used for one operation at a time or by fenced ones one
//! after the other, and nothing else writes there: so each access has one operation that it can be for, and each byte at
//! the end one value that it can have.

pub(super) mod names;
pub(super) mod operation;
pub(super) mod regions;
pub(super) mod ring;
mod spans;
pub(super) mod words;

pub use operation::{Operation, What};
pub use regions::{Region, Regions};

use std::collections::BTreeMap;

/// Operations one side starts, and what else its program does about memory.
#[derive(Copy, Clone, Debug)]
pub struct RmaWork {
    /// How many operations.
    pub operations: u32,
    /// Least bytes of one.
    pub bytes_min: u64,
    /// Most bytes of one: at most a third of `region_bytes`.
    pub bytes_max: u64,
    /// Most segments of one operation.
    pub segments_max: u32,
    /// In progress at once.
    pub outstanding_max: u32,
    /// Bytes of each region.
    pub region_bytes: u64,
    /// Time from one burst to the next; 0: as fast as the endpoint takes them.
    pub gap_ns: u64,
    /// Operations in a burst.
    pub burst: u32,
    /// Reads, of 100 that are not atomics; the rest are writes.
    pub read_pct: f64,
    /// Atomics, of 100.
    pub atomic_pct: f64,
    /// Of 100 reads and writes, those with a message for the peer's program.
    pub message_pct: f64,
    /// Fenced ones, of 100.
    pub fence_pct: f64,
    /// Of 100 reads and writes, those of the range of the last write, fenced.
    pub again_pct: f64,
    /// With a handle, range or right that must be refused, of 100.
    pub bad_pct: f64,
    /// How often, of 100 operations, a region of this side goes away, and another takes its place.
    pub deregister_pct: f64,
    /// How often, of 100 operations, the owner changes what its readable region holds.
    pub change_pct: f64,
}

impl RmaWork {
    /// None at all.
    pub const NONE: RmaWork = RmaWork {
        operations: 0,
        bytes_min: 1,
        bytes_max: 1,
        segments_max: 1,
        outstanding_max: 1_000,
        region_bytes: 64 << 10,
        gap_ns: 0,
        burst: 1,
        read_pct: 0.0,
        atomic_pct: 0.0,
        message_pct: 0.0,
        fence_pct: 0.0,
        again_pct: 0.0,
        bad_pct: 0.0,
        deregister_pct: 0.0,
        change_pct: 0.0,
    };

    /// Bytes that the peer must expose.
    pub(super) fn region_bytes_of(&self) -> u64 {
        if self.operations == 0 { 0 } else { self.region_bytes }
    }

    /// So many writes of so many bytes, as fast as it goes.
    pub const fn writes(operations: u32, bytes: u64) -> RmaWork {
        let region_bytes = if bytes < 16 << 10 { 64 << 10 } else { bytes * 4 };
        RmaWork { operations, bytes_min: bytes, bytes_max: bytes, region_bytes, ..RmaWork::NONE }
    }

    /// So many reads.
    pub const fn reads(operations: u32, bytes: u64) -> RmaWork {
        RmaWork { read_pct: 100.0, ..RmaWork::writes(operations, bytes) }
    }
}

/// What was done, for tests that want to know whether they tested anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RmaCounts {
    /// Writes that ended well.
    pub writes: u64,
    /// Reads that ended well.
    pub reads: u64,
    /// Atomics that ended well.
    pub atomics: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Messages that came behind data.
    pub messages: u64,
    /// Operations refused, as they had to be.
    pub refused: u64,
    /// Operations that ended otherwise.
    pub failed: u64,
    /// Regions that went away in use.
    pub deregistered: u64,
}

impl std::ops::AddAssign for RmaCounts {
    fn add_assign(&mut self, more: RmaCounts) {
        let RmaCounts { writes, reads, atomics, bytes, messages, refused, failed, deregistered } = more;
        self.writes += writes;
        self.reads += reads;
        self.atomics += atomics;
        self.bytes += bytes;
        self.messages += messages;
        self.refused += refused;
        self.failed += failed;
        self.deregistered += deregistered;
    }
}

/// What a side lets its peer use.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// Region for the peer's writes.
    pub writable: u64,
    /// Region for the peer's reads.
    pub readable: u64,
}

/// One side's operations, and what it exposes to its peer.
#[derive(Debug, Default)]
pub struct RmaSide {
    /// In the order started.
    pub ops: Vec<Operation>,
    /// Started and not ended.
    pub outstanding: u32,
    /// Ended in anything but success.
    pub failed: u32,
    /// Bytes of operations that ended well.
    pub done_bytes: u64,
    /// Time of the latest completion.
    pub last_completion_ns: u64,
    /// What the peer's program would have been told.
    pub exposed: Option<Exposed>,
    /// All before this one are complete at the peer.
    pub(super) complete_below: u32,
    /// And all messages before this one.
    pub(super) messages_below: u32,
    /// Empty messages sent along, and arrived: they say nothing of where they are from.
    pub(super) empty_sent: u64,
    pub(super) empty_arrived: u64,
}

/// Everything about remote memory that the judge knows.
#[derive(Debug, Default)]
pub struct Rma {
    /// All that was ever registered.
    pub regions: Regions,
    /// By token.
    pub sides: Vec<RmaSide>,
    /// Each node's region of words for everybody's atomics.
    pub words: BTreeMap<usize, u64>,
    /// Sums.
    pub counts: RmaCounts,
}

impl Rma {
    pub(super) fn side(&mut self, token: usize) -> &mut RmaSide {
        if self.sides.len() <= token {
            self.sides.resize_with(token + 1, RmaSide::default);
        }
        &mut self.sides[token]
    }

    /// Operations of this side that have not ended.
    pub fn outstanding(&self, token: usize) -> u32 {
        self.sides.get(token).map_or(0, |side| side.outstanding)
    }

    /// Registers what the peer of `token` will use; takes back what was registered before.
    pub(super) fn expose(&mut self, now_ns: u64, token: usize, node: usize, region_bytes: u64, scoped: bool) {
        if region_bytes == 0 {
            return;
        }
        if let Some(old) = self.side(token).exposed {
            self.deregister(now_ns, old.writable);
            self.deregister(now_ns, old.readable);
        }
        let mut add = |rights| self.regions.add(node, Some(token), scoped, rights, region_bytes);
        let exposed = Exposed { writable: add(regions::READ | regions::WRITE), readable: add(regions::READ) };
        self.side(token).exposed = Some(exposed);
    }

    /// A node's words come into being.
    pub(super) fn boot(&mut self, node: usize) {
        let rights = regions::READ | regions::ATOMIC;
        let id = self.regions.add(node, None, false, rights, words::WORDS_BYTES);
        if let Some(region) = self.regions.get_mut(id) {
            words::prepare_words(&mut region.bytes);
        }
        self.words.insert(node, id);
    }

    /// A node's memory is gone.
    pub(super) fn crash(&mut self, now_ns: u64, node: usize) {
        self.regions.crash(now_ns, node);
        self.words.remove(&node);
    }

    pub(super) fn deregister(&mut self, now_ns: u64, id: u64) {
        self.counts.deregistered += u64::from(self.regions.deregister(now_ns, id));
    }
}
