//! The remote operations that are under way on a link.

use super::initiator::Initiator;
use super::pull::Pull;
use cci_memory::ring::Span;
use cci_memory::slab::Key;
use std::collections::VecDeque;

/// A program that has not polled for this time counts as absent: it was busy with something else.
const ABSENCE_NS: u64 = 100_000_000;

/// A notification in the ring: the message that follows an operation's data.
pub(in crate::transport::shm) struct Notify {
    pub span: Span,
    pub flow: Key,
    pub slot: u16,
}

/// What a link needs for remote memory access.
pub(in crate::transport::shm) struct LinkTransfers {
    /// Flows of connections on this link, and their connections.
    pub flows: Vec<(Key, Key)>,
    /// Flows with something to push or fetch, and their connections.
    pub queue: VecDeque<(Key, Key)>,
    /// Whether a flow can continue at once, without waiting for the peer.
    pub at_once: bool,
    /// Notifications that the peer has not taken, oldest first.
    pub notifies: VecDeque<Notify>,
    /// When the flows were last maintained.
    pub looked_ns: u64,
    /// Whether the endpoint has slept since then, so that the time since is no absence.
    pub slept: bool,
    /// How long this side's program was absent in total while something was under way.
    absent_ns: u64,
    /// When the first operation will be overdue, as of the last maintenance.
    pub deadline_ns: u64,
    /// The mapped memory of the peer, created when it is first needed.
    pub initiator: Option<Box<Initiator>>,
    /// What is known about reading the peer's memory, created when it is first needed.
    pub pull: Option<Box<Pull>>,
}

impl LinkTransfers {
    pub fn new() -> LinkTransfers {
        LinkTransfers {
            flows: Vec::new(),
            queue: VecDeque::new(),
            at_once: false,
            notifies: VecDeque::new(),
            looked_ns: 0,
            slept: false,
            absent_ns: 0,
            deadline_ns: u64::MAX,
            initiator: None,
            pull: None,
        }
    }

    /// The clock for the deadlines of operations. It stands still while this side's program is absent.
    pub fn clock_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.absent_ns)
    }

    /// The real time at which that clock will show `clock_ns`.
    pub fn real_ns(&self, clock_ns: u64) -> u64 {
        clock_ns.saturating_add(self.absent_ns)
    }

    /// Notes that something is under way from now on. If nothing was before, the time before does not count as absence.
    pub fn begins(&mut self, now_ns: u64) {
        if !self.is_in_use() {
            (self.looked_ns, self.slept) = (now_ns, false);
        }
    }

    /// Notes that flows are maintained now. If this side's program was absent, that time does not count against the peer.
    pub fn looks(&mut self, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.looked_ns);
        if since_ns > ABSENCE_NS && !self.slept {
            // The clock still advances a little, so that a program that polls seldom can't stop it for ever.
            self.absent_ns = self.absent_ns.saturating_add(since_ns - ABSENCE_NS);
        }
        (self.looked_ns, self.deadline_ns, self.slept) = (now_ns, u64::MAX, false);
    }

    /// Whether some connection has something under way, or had until lately.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        !self.flows.is_empty()
    }

    /// When an operation is overdue, or memory is to be unmapped; `u64::MAX` if nothing is. If the last connection with
    /// operations has ended otherwise, its deadline no longer counts.
    pub fn deadline_ns(&self) -> u64 {
        let overdue_ns = if self.is_in_use() { self.deadline_ns } else { u64::MAX };
        overdue_ns.min(self.kept_until_ns())
    }

    /// When memory of the peer without a granted region is unmapped; `u64::MAX` if there is none.
    #[inline]
    pub fn kept_until_ns(&self) -> u64 {
        self.initiator.as_ref().map_or(u64::MAX, |initiator| initiator.kept_until_ns())
    }

    /// Whether memory of the peer is mapped although no region of it is granted.
    #[inline]
    pub fn keeps_mappings(&self) -> bool {
        self.kept_until_ns() != u64::MAX
    }

    /// Unmaps memory of the peer that was kept long enough.
    #[inline]
    pub fn release_due(&mut self, now_ns: u64) {
        if now_ns >= self.kept_until_ns()
            && let Some(initiator) = &mut self.initiator
        {
            initiator.release_due(now_ns);
        }
    }

    /// Whether something is to be pushed or fetched.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that waits long between two polls still has operations that end.
    #[test]
    fn a_program_that_polls_seldom_does_not_stop_the_clock() {
        let mut rma = LinkTransfers::new();
        let mut now_ns = 1_000_000_000;
        rma.begins(now_ns);
        let from_ns = rma.clock_ns(now_ns);
        for _ in 0..10 {
            now_ns += ABSENCE_NS * 3 / 2;
            rma.looks(now_ns);
        }
        assert_eq!(rma.clock_ns(now_ns) - from_ns, 10 * ABSENCE_NS);
        assert_eq!(rma.real_ns(rma.clock_ns(now_ns)), now_ns);
        // One long absence hardly counts.
        now_ns += 1_000 * ABSENCE_NS;
        rma.looks(now_ns);
        assert_eq!(rma.clock_ns(now_ns) - from_ns, 11 * ABSENCE_NS);
    }
}
