//! The memory of connections that move data. Each has a flow, and a buffer for each direction. Hosts share a certain amount.

use super::super::second_stream::{Account, SecondStream};
use crate::transport::ordered_rma::FLOW_BYTES;
use crate::transport::quota::{Host, Quota};

/// The most that a connection with something under way holds: its output buffer, its input buffer, and its flow.
pub(super) const CONNECTION_BYTES: u64 = 160 << 10;
/// The part of the memory cap that all connections together may hold.
const CAP_SHARE: u64 = 4;
/// How many connections may have something under way at a time, however small the cap is.
const CONNECTIONS_MIN: u64 = 4;
/// The part that operations of peers leave to those of this side's program, and the reverse.
const RESERVED_SHARE: u64 = 4;

const _: () = assert!(FLOW_BYTES as u64 + (128 << 10) <= CONNECTION_BYTES);

/// Memory of all connections that move data.
pub(super) struct TransferQuota {
    bytes_max: u64,
    /// Bytes for the operations of peers, by host and in total.
    peers: Quota,
    peers_bytes: u64,
    /// Bytes for operations of this side's program.
    own_bytes: u64,
}

impl TransferQuota {
    pub fn new(memory_bytes_max: u64) -> TransferQuota {
        let bytes_max = (memory_bytes_max / CAP_SHARE).max(CONNECTIONS_MIN * CONNECTION_BYTES);
        let peers = Quota::new(bytes_max - bytes_max / RESERVED_SHARE);
        TransferQuota { bytes_max, peers, peers_bytes: 0, own_bytes: 0 }
    }

    fn has_space_for(&mut self, host: Host, account: Account, bytes: u64) -> bool {
        let fits_all = self.peers_bytes + self.own_bytes + bytes <= self.bytes_max;
        fits_all
            && match account {
                Account::Peer => self.peers.has_space_for(host, bytes),
                Account::Own => self.own_bytes + bytes <= self.bytes_max - self.bytes_max / RESERVED_SHARE,
            }
    }

    /// The host that must give up memory so that a waiting connection of `host` gets some. `None` if there is enough.
    pub fn many(&mut self, host: Host) -> Option<Host> {
        if self.has_space_for(host, Account::Peer, CONNECTION_BYTES) { None } else { self.peers.most() }
    }

    /// Charges this account for everything that a connection may need. Returns false if there is not enough.
    pub fn admit(&mut self, host: Host, second: &mut SecondStream, account: Account) -> bool {
        let missing = CONNECTION_BYTES.saturating_sub(second.charged_bytes);
        if !self.has_space_for(host, account, missing) {
            return false;
        }
        self.charge(host, second, 0);
        second.account = account;
        self.charge(host, second, CONNECTION_BYTES);
        true
    }

    /// Charges a connection that was trimmed for everything that it may need. Returns false if there is not enough.
    #[inline]
    pub fn fill(&mut self, host: Host, second: &mut SecondStream) -> bool {
        if !second.share().is_some_and(|share| share.is_trimmed) {
            return true;
        }
        let missing = CONNECTION_BYTES.saturating_sub(second.charged_bytes);
        if !self.has_space_for(host, second.account, missing) {
            return false;
        }
        self.charge(host, second, CONNECTION_BYTES);
        if let Some(share) = second.share_mut() {
            share.is_trimmed = false;
        }
        true
    }

    /// Charges a connection for this many bytes, in place of what it was charged for.
    pub fn charge(&mut self, host: Host, second: &mut SecondStream, bytes: u64) {
        let before = std::mem::replace(&mut second.charged_bytes, bytes);
        match second.account {
            Account::Peer => {
                self.peers.give_back(host, before);
                self.peers.take(host, bytes);
                self.peers_bytes = self.peers_bytes + bytes - before;
            }
            Account::Own => self.own_bytes = self.own_bytes + bytes - before,
        }
    }

    /// Bytes that the counts take.
    pub fn bytes(&self) -> u64 {
        self.peers.bytes()
    }
}
