//! What is under way between machines, in simulations of what lies above endpoints: datagrams that may get lost, and what streams carry.

use super::machine::Host;
use super::network::{address_of, machine_at};
use super::streams::PARTS;
use crate::rng::Rng;
use cci::simulated::streams::{self, Carried, Direction};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

const LOSS_PCT: f64 = 1.0;
const TWICE_PCT: f64 = 5.0;

/// A datagram on its way: to which machine, from where, and what it says.
type Packet = (usize, SocketAddr, Arc<[u8]>);

#[derive(Default)]
pub(super) struct Mail {
    /// By their time.
    packets: BTreeMap<(u64, u64), Packet>,
    packet_count: u64,
    /// So many of a hundred datagrams arrive a second time.
    twice_pct: f64,
    directions: Vec<Direction>,
}

impl Mail {
    /// On a network that also brings some datagrams twice.
    pub fn with_duplicates() -> Mail {
        Mail { twice_pct: TWICE_PCT, ..Mail::default() }
    }

    /// What is due arrives at those machines that are up.
    pub fn arrive(
        &mut self,
        now_ns: u64,
        rng: &mut Rng,
        hosts: &[Host],
        is_up: impl Fn(usize) -> bool,
    ) -> bool {
        let mut any = false;
        while let Some(first) = self.packets.first_entry().filter(|first| first.key().0 <= now_ns) {
            let (to, from, bytes) = first.remove();
            if is_up(to) {
                let mut plug = hosts[to].wire.plug();
                plug.inbox_bytes += bytes.len();
                plug.inbox.push_back((0, from, bytes));
                any = true;
            }
        }
        for direction in streams::pending() {
            if !self.directions.contains(&direction) {
                self.directions.push(direction);
            }
        }
        for direction in std::mem::take(&mut self.directions) {
            let carried = if rng.pct(60.0) {
                any = true;
                streams::carry(direction, rng.pick(&PARTS))
            } else {
                Carried::Part
            };
            if carried != Carried::All {
                self.directions.push(direction);
            }
        }
        any
    }

    /// What a machine has sent is on its way, or lost.
    pub fn depart(&mut self, now_ns: u64, rng: &mut Rng, hosts: &[Host], machine: usize) -> bool {
        let out = std::mem::take(&mut hosts[machine].wire.plug().out);
        for (_, to, bytes) in &out {
            let Some((to, _)) = machine_at(*to).filter(|(to, _)| *to < hosts.len()) else { continue };
            if rng.pct(LOSS_PCT) {
                continue;
            }
            let bytes: Arc<[u8]> = Arc::from(&**bytes);
            let copies = if self.twice_pct > 0.0 && rng.pct(self.twice_pct) { 2 } else { 1 };
            for _ in 0..copies {
                let at_ns = now_ns + 1_000 + rng.below(20_000);
                self.packet_count += 1;
                self.packets.insert((at_ns, self.packet_count), (to, address_of(machine), bytes.clone()));
            }
        }
        !out.is_empty()
    }
}
