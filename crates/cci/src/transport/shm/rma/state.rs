//! What a link and an endpoint keep for remote memory access.

use super::granted::Owner;
use super::mapped::MappedBytes;
use super::pull::Word;
use crate::connection::Connection;
use crate::device::Cma;
use crate::transport::ordered_rma::{FLOW_BYTES, Flows};
use crate::transport::shm::quota;
use cci_memory::ring::Span;
use cci_memory::slab::Key;
use std::collections::VecDeque;

/// A program that has not polled for so long was busy with something else.
const ABSENCE_NS: u64 = 100_000_000;

/// Of the endpoint's memory cap, flows may take one part in so many: about 17 KiB for each connection with something under way.
const FLOWS_SHARE: u64 = 4;

/// A message behind data, in the ring.
pub(in crate::transport::shm) struct Notify {
    pub span: Span,
    pub flow: Key,
    pub slot: u16,
}

/// What a link needs for remote memory access.
pub(in crate::transport::shm) struct LinkRma {
    /// Flows of connections on this link, and their connections.
    pub(super) flows: Vec<(Key, Key)>,
    /// Those with something to push or fetch, and their connections.
    pub(super) queue: VecDeque<(Key, Key)>,
    /// Something is to be done that waits for nobody.
    pub at_once: bool,
    /// Messages behind data that the peer has not taken, oldest first.
    pub(super) notifies: VecDeque<Notify>,
    pub(super) looked_ns: u64,
    /// Since the last look the endpoint has slept, and was awake in time.
    pub(super) slept: bool,
    /// For how long this side's program did not poll while something was under way, in all.
    absent_ns: u64,
    /// When the first operation is overdue, as of the last look.
    pub deadline_ns: u64,
}

impl LinkRma {
    pub fn new() -> LinkRma {
        LinkRma {
            flows: Vec::new(),
            queue: VecDeque::new(),
            at_once: false,
            notifies: VecDeque::new(),
            looked_ns: 0,
            slept: false,
            absent_ns: 0,
            deadline_ns: u64::MAX,
        }
    }

    /// The clock by which operations are judged: it stands still while this side's program does not poll.
    pub(super) fn clock_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.absent_ns)
    }

    /// When that clock will show so much, by the real one.
    pub(super) fn real_ns(&self, clock_ns: u64) -> u64 {
        clock_ns.saturating_add(self.absent_ns)
    }

    /// Something is to be under way from now on: what was before does not count as absence.
    pub(super) fn begins(&mut self, now_ns: u64) {
        if !self.is_in_use() {
            (self.looked_ns, self.slept) = (now_ns, false);
        }
    }

    /// Flows are looked after now. What the peer did while this side's program was busy elsewhere is not judged.
    pub(super) fn looks(&mut self, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.looked_ns);
        if since_ns > ABSENCE_NS && !self.slept {
            // The clock goes on a little all the same: a program that polls seldom must not stop it for ever.
            self.absent_ns = self.absent_ns.saturating_add(since_ns - ABSENCE_NS);
        }
        (self.looked_ns, self.deadline_ns, self.slept) = (now_ns, u64::MAX, false);
    }

    /// Some connection has something under way, or had until lately.
    pub fn is_in_use(&self) -> bool {
        !self.flows.is_empty()
    }

    /// Something is to be pushed or fetched.
    #[inline]
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Bytes held beside the flows.
    pub fn bytes(&self) -> u64 {
        let keys = self.flows.capacity() + self.queue.capacity();
        (keys * size_of::<(Key, Key)>() + self.notifies.capacity() * size_of::<Notify>()) as u64
    }
}

/// The state of the endpoint.
pub(in crate::transport::shm) struct Rma {
    pub flows: Flows,
    quota: quota::Flows,
    pub owner: Owner,
    /// Of all links.
    pub mapped: MappedBytes,
    pub(super) word: Option<Word>,
    pub counts: Counts,
    /// `direct` and `cma` of the device.
    pub direct: bool,
    pub cma: Cma,
}

/// Counted since the endpoint was opened, of links that are gone.
#[derive(Default)]
pub(in crate::transport::shm) struct Counts {
    /// Operations that did not end at once.
    pub ring: u64,
    pub direct: u64,
    pub pulled: u64,
    pub grants_refused: u64,
}

impl Rma {
    /// Of `bytes_max`, flows may take a part.
    pub fn new(operations_max: u32, bytes_max: u64, direct: bool, cma: Cma) -> Rma {
        let (flows, owner) = (Flows::new(operations_max), Owner::new());
        let quota = quota::Flows::new(bytes_max / FLOWS_SHARE, FLOW_BYTES as u64);
        let mapped = MappedBytes::default();
        Rma { flows, quota, owner, mapped, word: None, counts: Counts::default(), direct, cma }
    }

    pub fn bytes(&self) -> u64 {
        self.flows.bytes() + self.owner.bytes()
    }

    /// Bytes that flows may take beside those that they have.
    pub fn unused_bytes(&self) -> u64 {
        u64::from(self.quota.max().saturating_sub(self.flows.made())) * FLOW_BYTES as u64
    }

    /// Gives a connection with a process a flow. None: the process has its share of them, or there is no memory.
    pub(super) fn lend(&mut self, process: u64, connection: Connection, now_ns: u64) -> Option<Key> {
        if !self.quota.enter(process) {
            return None;
        }
        let lent = self.flows.lend(connection, now_ns);
        if lent.is_none() {
            self.quota.leave(process);
        }
        lent
    }

    /// Takes back a flow that is idle, or was ended.
    pub(super) fn give_back(&mut self, process: u64, key: Key) {
        if self.flows.get(key).is_some() {
            self.quota.leave(process);
        }
        self.flows.give_back(key);
    }

    /// The word of ours that peers look for.
    pub(super) fn word(&mut self) -> Option<&Word> {
        if self.word.is_none() {
            self.word = Word::new().ok();
        }
        self.word.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that takes its time steps between two polls still has operations that end.
    #[test]
    fn a_program_that_polls_seldom_does_not_stop_the_clock() {
        let mut rma = LinkRma::new();
        let mut now_ns = 1_000_000_000;
        rma.begins(now_ns);
        let from_ns = rma.clock_ns(now_ns);
        for _ in 0..10 {
            now_ns += ABSENCE_NS * 3 / 2;
            rma.looks(now_ns);
        }
        assert_eq!(rma.clock_ns(now_ns) - from_ns, 10 * ABSENCE_NS);
        assert_eq!(rma.real_ns(rma.clock_ns(now_ns)), now_ns);
        // One long absence is hardly any time.
        now_ns += 1_000 * ABSENCE_NS;
        rma.looks(now_ns);
        assert_eq!(rma.clock_ns(now_ns) - from_ns, 11 * ABSENCE_NS);
    }
}
