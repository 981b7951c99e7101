//! What is common to all links: connections, handshakes, and remote memory.

use super::connections::Connections;
use super::hand::{Hand, Stage};
use super::keepalive::Keepalive;
use super::transfers::Transfers;
use super::wire::PeerConn;
use crate::ConnectFailure;
use crate::engine::core::Core;
use cci_memory::slab::{Key, Slab};

/// Everything that the handling of one link may touch beside that link.
pub(super) struct Common {
    /// The endpoint's name among endpoints; random.
    pub endpoint: u64,
    pub connections: Connections,
    pub keepalive: Keepalive,
    pub transfers: Transfers,
    pub hands: Slab<Hand>,
}

impl Common {
    /// A connection is made; it rides on `link`.
    pub fn open(&mut self, core: &mut Core, key: Key, link: Key, peer: PeerConn, mss: u32) {
        if self.connections.open(core, key, link, peer, mss) {
            self.keepalive.set(key, true);
        }
    }

    /// A link died that connections were about to join. Those whose client can still speak wait for its word.
    pub fn fail_joining(&mut self, core: &mut Core, link: Key) {
        let mut over = Vec::new();
        for (key, hand) in self.hands.iter() {
            if hand.stream.is_none()
                && matches!(hand.stage, Stage::Joining { link: joined, .. } if joined == link)
            {
                over.push(key);
            }
        }
        for key in over {
            if let Some(conn) = self.hands.remove(key).and_then(|hand| hand.stage.conn()) {
                self.connections.fail(core, conn, ConnectFailure::Disconnected);
            }
        }
    }
}
