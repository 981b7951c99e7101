//! The endpoint at the other end of a link, and which end of it is ours.

/// The endpoint at the other end of a link. The kernel reports `pid` and `uid`; the peer itself gives `endpoint`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    pub endpoint: u64,
    pub pid: Option<u32>,
    pub uid: u32,
}

/// Which end of a link this is. It matters if one endpoint has both.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    /// The end of the endpoint that accepted the connection for which the link was made.
    Server,
    /// The end of the endpoint that requested that connection.
    Client,
}

/// A number for a process, made of what the kernel reports. All processes of a user that are not visible from here have the same
/// number.
pub(super) fn process_of(uid: u32, pid: Option<u32>) -> u64 {
    u64::from(uid) << 32 | u64::from(pid.unwrap_or(0))
}

impl Peer {
    /// The peer's process, for quotas.
    pub fn process(&self) -> u64 {
        process_of(self.uid, self.pid)
    }
}
