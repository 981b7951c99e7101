//! Whom an endpoint is connected with.

use super::Endpoint;
use crate::connection::Connection;
use cci_secure::Identity;

impl Endpoint {
    /// Who is at the other end of a connection, where that was proved ([`crate::Security`]): the same for as long as it
    /// lives. None: no such connection, not open yet, or made without security.
    pub fn peer_identity(&self, connection: Connection) -> Option<&Identity> {
        self.core.peers.get(connection)?.identity.as_ref()
    }
}
