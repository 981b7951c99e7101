//! What an endpoint shows its peers: its address, and who may connect.

use super::established::Established;
use super::pipe::{Pipe, Security};
use crate::engine::core::Core;
use crate::engine::peer::Peer;
use std::net::SocketAddr;

/// What the endpoint says in the handshake of each stream.
pub(super) struct Local {
    pub address: SocketAddr,
    /// `None` if streams are plain.
    pub security: Option<Security>,
    /// The longest message that this side takes.
    pub mss: u32,
}

impl Local {
    /// The peer at the other end and its rights; `None` if the endpoint does not distinguish peers.
    pub fn peer_on(&self, stream: &Pipe) -> Option<Peer> {
        let identity = stream.peer().and_then(|peer| peer.identity);
        let rights = match &self.security {
            Some(security) => security.sealing.rights(identity.as_ref()),
            // The stream came to another endpoint, which distinguishes peers.
            None => stream.peer()?.rights,
        };
        Some(Peer { identity, rights })
    }

    pub fn requires_security(&self) -> bool {
        self.security.as_ref().is_some_and(|security| security.sealing.required)
    }

    /// Informs the engine who the peer is, before the peer can ask for anything.
    pub fn identify(&self, core: &mut Core, conn: &Established) {
        if let Some(who) = self.peer_on(&conn.stream) {
            core.identify(conn.base.connection, &who);
        }
    }
}
