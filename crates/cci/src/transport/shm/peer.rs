//! Who is at the other end of a link, and which end of it we are.

/// Who is at the other end. The kernel vouches for `pid` and `uid`; `endpoint` is what the peer says.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    pub endpoint: u64,
    pub pid: Option<u32>,
    pub uid: u32,
}

/// Which end of a link we are. Matters where both are in one endpoint.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    /// Accepted the connection that the link was made for.
    Server,
    /// Asked for it.
    Client,
}

/// A process, as the kernel names it. All those that are not visible from here count as one.
pub(super) fn process_of(uid: u32, pid: Option<u32>) -> u64 {
    u64::from(uid) << 32 | u64::from(pid.unwrap_or(0))
}

impl Peer {
    /// The peer's process, for quotas.
    pub fn process(&self) -> u64 {
        process_of(self.uid, self.pid)
    }
}
