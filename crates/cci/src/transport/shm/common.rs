//! What is common to all links: connections, handshakes, and remote memory.

use super::connections::Connections;
use super::handshakes::Handshakes;
use super::transfers::Transfers;

/// Everything that the handling of one link may touch beside that link.
pub(super) struct Common {
    /// The endpoint's name among endpoints; random.
    pub endpoint: u64,
    pub connections: Connections,
    pub transfers: Transfers,
    pub handshakes: Handshakes,
}
