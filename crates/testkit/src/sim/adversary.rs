//! Datagrams nobody sent, or sent long ago; and what must hold of an endpoint at any time.

use std::rc::Rc;

use super::ledger::SideState;
use super::net::{SECOND, node_of};
use super::node::Packet;
use super::world::World;

impl World {
    /// Sends datagrams of the past again, chosen by chance, as they were.
    pub(super) fn replay(&mut self, count: u32) {
        for _ in 0..count {
            let seen = self.seen.len() as u64;
            let Some((_, packet)) = self.seen.get(self.rng.below(seen) as usize).cloned() else { return };
            self.launch(packet, true, self.now_ns);
        }
    }

    /// Sends datagrams of the past again, from where they did not come.
    pub(super) fn replay_elsewhere(&mut self, count: u32) {
        for _ in 0..count {
            let (seen, nodes) = (self.seen.len() as u64, self.nodes.len() as u64);
            let Some((_, packet)) = self.seen.get(self.rng.below(seen) as usize).cloned() else { return };
            let source = self.rng.below(nodes) as usize + SECOND * self.rng.below(2) as usize;
            let target = node_of(packet.target) + SECOND * self.rng.below(2) as usize;
            if node_of(source) != node_of(target) {
                self.launch(Packet { source, target, ..packet }, true, self.now_ns);
            }
        }
    }

    /// Sends all datagrams of a past time again, in order.
    pub(super) fn replay_between(&mut self, from_ns: u64, until_ns: u64) {
        let past: Vec<Packet> = self
            .seen
            .iter()
            .filter(|(at_ns, _)| (from_ns..until_ns).contains(at_ns))
            .map(|(_, packet)| packet.clone())
            .collect();
        for (i, packet) in past.into_iter().enumerate() {
            self.launch(packet, true, self.now_ns + 500 * i as u64);
        }
    }

    /// Sends what somebody off the path could make up: random bytes, and datagrams of the past whose proofs of identity
    /// are changed. (Whoever can change a payload and keep the proofs sits on the path; the protocol does not claim
    /// to resist that without encryption.)
    pub(super) fn forge(&mut self, count: u32) {
        let nodes = self.nodes.len() as u64;
        for _ in 0..count {
            let seen = self.seen.len() as u64;
            let (mut bytes, source, target) = match self.seen.get(self.rng.below(seen) as usize) {
                Some((_, packet)) if self.rng.pct(70.0) => {
                    (packet.bytes.to_vec(), packet.source, packet.target)
                }
                _ => {
                    let mut bytes = vec![0; self.rng.below(200) as usize];
                    self.rng.fill(&mut bytes);
                    if let Some(first) = bytes.first_mut().filter(|_| self.rng.pct(80.0)) {
                        // More is looked at than chance would have it.
                        *first = crate::dissect::first_byte(&mut self.rng);
                    }
                    if self.rng.pct(80.0) {
                        bytes.truncate(bytes.len() & !7);
                    }
                    (bytes, self.rng.below(nodes) as usize, self.rng.below(nodes) as usize)
                }
            };
            if self.rng.pct(50.0) && bytes.len() >= 48 {
                crate::dissect::make_harmful(&mut bytes, &mut self.rng);
            }
            crate::dissect::spoil_identity(&mut bytes, &mut self.rng);
            let source = if self.rng.pct(20.0) { self.rng.below(nodes) as usize } else { source };
            self.launch(Packet { source, target, bytes: Rc::from(bytes) }, true, self.now_ns);
        }
    }

    /// What holds of an endpoint at any time.
    pub(super) fn check_memory(&mut self, node: usize) {
        let Some(endpoint) = &self.nodes[node].endpoint else { return };
        let memory = endpoint.memory();
        let cap_bytes = self.nodes[node].plan.memory_bytes_max;
        if memory.total_bytes() > cap_bytes
            || memory.cap_bytes > cap_bytes
            || memory.pool_used_bytes > memory.pool_bytes
        {
            self.ledger.fail(self.now_ns, format!("node {node}: more memory than {cap_bytes}: {memory:?}"));
        }
    }

    /// The protocol knows as many sends as the programs.
    pub(super) fn check_in_progress(&mut self, node: usize) {
        let Some(endpoint) = &self.nodes[node].endpoint else { return };
        for (token, side) in self.ledger.sides.iter().enumerate() {
            let Some(key) = side.key.filter(|_| side.node == node && side.state == SideState::Up) else {
                continue;
            };
            let (counted, known) = (u64::from(endpoint.sends_in_progress_on(key)), side.flow.outstanding);
            if counted != known {
                let what = format!("side {token}: {known} sends in progress, the protocol says {counted}");
                return self.ledger.fail(self.now_ns, what);
            }
        }
    }

    /// Where nothing goes wrong, everything has been started long before patience is over.
    pub(super) fn check_started(&mut self) {
        if !self.plan.all_succeed {
            return;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let waits = |token: usize| self.ledger.sides[token].state == SideState::Up;
            let sender = node
                .senders
                .iter()
                .find(|sender| sender.left > 0 && self.now_ns < sender.work.until_ns && waits(sender.token));
            let operator = node.operators.iter().find(|operator| operator.left > 0 && waits(operator.token));
            let left = match (sender, operator) {
                (Some(sender), _) => format!("{} messages of side {}", sender.left, sender.token),
                (_, Some(operator)) => format!("{} operations of side {}", operator.left, operator.token),
                _ => continue,
            };
            let what = format!("node {index}: {left} could never be started\n{}", self.describe());
            return self.ledger.fail(self.now_ns, what);
        }
    }

    /// What holds of every endpoint when nothing more will happen.
    pub(super) fn check_quiet(&mut self) {
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(endpoint) = &node.endpoint else { continue };
            let memory = endpoint.memory();
            let deadline = endpoint.next_deadline();
            if memory.pool_used_bytes != 0 || deadline.is_some() {
                let what = format!("node {index} is not at rest: deadline {deadline:?}, {memory:?}");
                self.ledger.fail(self.now_ns, what);
                return;
            }
        }
    }
}
