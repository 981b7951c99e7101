//! What is common to all links: connections, handshakes, and remote memory.

use super::connections::Connections;
use super::hand::Hand;
use super::transfers::Transfers;
use cci_memory::slab::Slab;

/// Everything that the handling of one link may touch beside that link.
pub(super) struct Common {
    /// The endpoint's name among endpoints; random.
    pub endpoint: u64,
    pub connections: Connections,
    pub transfers: Transfers,
    pub hands: Slab<Hand>,
}
