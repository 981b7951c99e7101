//! Who is at the other end of a connection, where that was proved, and what it may therefore do here.

use crate::rma::Access;
use cci_secure::{Identity, Rights};

/// The other side, where an endpoint distinguishes its peers, and what it is allowed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// None: it has not said, and need not.
    pub identity: Option<Identity>,
    pub rights: Rights,
}

impl Peer {
    /// What it may do with regions that are offered to everybody.
    pub fn access(&self) -> Access {
        let Rights { rma_read, rma_write, .. } = self.rights;
        match (rma_read, rma_write) {
            // An atomic operation does both.
            (true, true) => Access::ALL,
            (true, false) => Access::READ,
            (false, true) => Access::WRITE,
            (false, false) => Access::LOCAL,
        }
    }
}
