//! How much an endpoint may still allocate for links and connections under its memory cap.

use super::connections::Connections;
use super::handshake::{Half, Stage};
use super::handshakes::Handshakes;
use super::links::{Links, ring_charge};
use super::peer::Peer;
use super::quota::RingMemory;
use super::{RING_BYTES_MAX, RING_BYTES_MIN};
use crate::ConnectFailure;
use crate::connection::Connection;
use cci_memory::slab::Key;
use cci_sys::SysError;

/// The part of the remaining memory that one ring may take at most.
const RING_SHARE: u64 = 16;

/// The endpoint's memory cap, and how much of it is used when a step of a handshake begins.
#[derive(Copy, Clone)]
pub(super) struct Budget {
    pub cap_bytes: u64,
    /// Everything except rings that the endpoint holds or has reserved for its other transports.
    pub held_bytes: u64,
}

/// Why there is no ring for a link.
pub(super) enum NoHalf {
    /// The reason that the peer gets.
    Why(ConnectFailure),
    /// The system refused. The peer gets the reason that there is no memory.
    System(SysError),
}

impl NoHalf {
    pub fn why(&self) -> ConnectFailure {
        match self {
            NoHalf::Why(why) => *why,
            NoHalf::System(_) => ConnectFailure::NoMemory,
        }
    }
}

impl From<ConnectFailure> for NoHalf {
    fn from(why: ConnectFailure) -> NoHalf {
        NoHalf::Why(why)
    }
}

impl From<SysError> for NoHalf {
    fn from(error: SysError) -> NoHalf {
        NoHalf::System(error)
    }
}

impl Budget {
    /// The size of the ring to read on a link to this process, or `None` if there is no memory for a ring.
    fn ring_bytes(&self, links: &Links, handshakes: &Handshakes, process: u64) -> Option<u32> {
        let remaining =
            self.cap_bytes.saturating_sub(self.held_bytes.saturating_add(links.ring_memory().total()));
        let of_links = links.table.iter().map(|(_, link)| (link.peer.process(), link.ring_bytes));
        let of_offers = handshakes.iter().filter_map(|(_, handshake)| match &handshake.stage {
            Stage::Offered { pending, half } => Some((pending.peer.process(), half.ring_bytes)),
            _ => None,
        });
        let own = of_links.chain(of_offers).filter(|(owner, _)| *owner == process);
        let memory =
            RingMemory { remaining, of_process: own.map(|(_, ring_bytes)| ring_charge(ring_bytes)).sum() };
        let is_affordable = |ring_bytes| {
            ring_charge(ring_bytes) <= remaining / RING_SHARE && memory.has_space_for(ring_charge(ring_bytes))
        };
        let mut ring_bytes = RING_BYTES_MAX;
        while ring_bytes > RING_BYTES_MIN && !is_affordable(ring_bytes) {
            ring_bytes /= 2;
        }
        memory.has_space_for(ring_charge(ring_bytes)).then_some(ring_bytes)
    }

    /// Makes and charges the ring to read from a peer.
    pub fn make_half(
        &self,
        links: &Links,
        handshakes: &Handshakes,
        connections: &mut Connections,
        peer: &Peer,
    ) -> Result<Half, NoHalf> {
        let ring_bytes =
            self.ring_bytes(links, handshakes, peer.process()).ok_or(ConnectFailure::NoMemory)?;
        let charge = links.ring_memory().charge(ring_charge(ring_bytes));
        let half = Half::create(ring_bytes, charge).inspect_err(|_| connections.counts.system_errors += 1)?;
        Ok(half)
    }

    /// Enters a new connection if it fits under the cap, and begins its handshake. Returns the keys of both.
    pub fn insert_conn(
        &self,
        links: &Links,
        connections: &mut Connections,
        connection: Connection,
        is_reliable: bool,
        begin: impl FnOnce(Key) -> Option<Key>,
    ) -> Option<(Key, Key)> {
        let growth_bytes = connections.growth_bytes();
        let held_bytes = self.held_bytes.saturating_add(links.ring_memory().total());
        if growth_bytes > 0 && held_bytes.saturating_add(growth_bytes) > self.cap_bytes {
            return None;
        }
        connections.insert(connection, is_reliable, begin)
    }
}
