//! Datagrams that nobody has sent, or not from there.

use super::network::Packet;
use super::scenario::Machine;
use crate::rng::Rng;
use crate::whole::dissect;
use std::sync::Arc;

/// Somebody off the paths, who knows what was sent only in so far as that is easy to guess. Whoever can change a payload and keep the
/// proofs of identity sits on the path; without sealing, the protocol does not claim to resist that.
pub(super) struct Forger<'a> {
    rng: Rng,
    machines: &'a [Machine],
}

impl<'a> Forger<'a> {
    pub fn new(seed: u64, machines: &'a [Machine]) -> Forger<'a> {
        Forger { rng: Rng::new(seed ^ 0x666f_7267), machines }
    }

    /// A number for whoever chooses datagrams for it.
    pub fn draw(&mut self) -> u64 {
        self.rng.next_u64()
    }

    fn machine(&mut self) -> usize {
        self.rng.below(self.machines.len() as u64) as usize
    }

    fn interface(&mut self, machine: usize) -> u8 {
        u8::from(self.machines[machine].is_bonded && self.rng.pct(50.0))
    }

    /// A datagram as it was, from and to any of the two machines' interfaces.
    pub fn move_elsewhere(&mut self, packet: Packet) -> Packet {
        let by = [self.interface(packet.from), self.interface(packet.to)];
        Packet { by, ..packet }
    }

    /// A datagram like this one or of random bytes, whose proof of identity is wrong.
    pub fn forge(&mut self, mut like: Packet) -> Packet {
        let mut bytes = like.bytes.to_vec();
        if self.rng.pct(30.0) {
            bytes = vec![0; self.rng.below(200) as usize];
            self.rng.fill(&mut bytes);
            if let Some(first) = bytes.first_mut().filter(|_| self.rng.pct(80.0)) {
                // More is looked at than chance would have it.
                *first = dissect::first_byte(&mut self.rng);
            }
            if self.rng.pct(80.0) {
                bytes.truncate(bytes.len() & !7);
            }
            (like.from, like.to) = (self.machine(), self.machine());
            like.by = [self.interface(like.from), self.interface(like.to)];
        }
        if bytes.len() >= 48 && self.rng.pct(50.0) {
            dissect::make_harmful(&mut bytes, &mut self.rng);
        }
        dissect::spoil_identity(&mut bytes, &mut self.rng);
        let from = if self.rng.pct(20.0) { self.machine() } else { like.from };
        let by = if from == like.from { like.by } else { [0, like.by[1]] };
        Packet { from, by, bytes: Arc::from(bytes), ..like }
    }
}
