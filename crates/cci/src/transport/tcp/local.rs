//! What an endpoint is to its peers: its address, and who may connect to it.

use super::established::Established;
use super::pipe::{Pipe, Security};
use crate::engine::core::Core;
use crate::engine::peer::Peer;
use std::net::SocketAddr;

/// What all streams of an endpoint begin with.
pub(super) struct Local {
    pub address: SocketAddr,
    /// None: streams are plain.
    pub security: Option<Security>,
    /// The longest message here.
    pub mss: u32,
}

impl Local {
    /// Who is at the other end and what it may do here; `None` where nobody is told apart.
    pub fn peer_on(&self, stream: &Pipe) -> Option<Peer> {
        let identity = stream.peer().and_then(|peer| peer.identity);
        let rights = match &self.security {
            Some(security) => security.sealing.rights(identity.as_ref()),
            // The stream came to another endpoint, which tells peers apart.
            None => stream.peer()?.rights,
        };
        Some(Peer { identity, rights })
    }

    pub fn requires_security(&self) -> bool {
        self.security.as_ref().is_some_and(|security| security.sealing.required)
    }

    /// Has the engine know who is at the other end, before that can ask for anything.
    pub fn identify(&self, core: &mut Core, conn: &Established) {
        if let Some(who) = self.peer_on(&conn.stream) {
            core.identify(conn.base.connection, &who);
        }
    }
}
