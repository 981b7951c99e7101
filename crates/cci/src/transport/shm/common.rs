//! What all links of an endpoint share: connections, handshakes and remote memory access.

use super::connections::Connections;
use super::handshakes::Handshakes;
use super::transfers::Transfers;
use crate::engine::charge::ChargedBytes;

/// Everything beside a link that may be used while that link is handled.
pub(super) struct Common {
    /// A random number that identifies this endpoint to its peers.
    pub endpoint: u64,
    pub connections: Connections,
    pub transfers: Transfers,
    pub handshakes: Handshakes,
    /// Memory that is lent to peers.
    pub lent: ChargedBytes,
}
