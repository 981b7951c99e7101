//! Who the peers of an endpoint are.

use super::Endpoint;
use crate::connection::Connection;
use cci_secure::Identity;

impl Endpoint {
    /// Who is at the other end of a connection, if that was proved ([`crate::Security`]). It stays the same for as long as the
    /// connection lives. `None` if there is no such connection, or it is not open yet, or it was made without security.
    pub fn peer_identity(&self, connection: Connection) -> Option<&Identity> {
        self.core.peers.get(connection)?.identity.as_ref()
    }
}
