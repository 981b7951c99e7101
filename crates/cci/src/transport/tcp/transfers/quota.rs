//! The memory of connections that move data: each has a flow, and a buffer for each direction. Hosts share a certain amount.

use super::super::second_stream::{Account, SecondStream};
use crate::transport::ordered_rma::FLOW_BYTES;
use crate::transport::quota::{Host, Quota};

/// The most that a connection with something under way holds: what it writes from, what it reads into, and its flow.
pub(super) const CONNECTION_BYTES: u64 = 160 << 10;
/// The part of the memory cap that all connections together may hold.
const CAP_SHARE: u64 = 4;
/// Connections that may have something under way at a time, however small the cap is.
const CONNECTIONS_MIN: u64 = 4;
/// The part of all that peers leave to operations of this side's program, and those to peers.
const RESERVED_SHARE: u64 = 4;

const _: () = assert!(FLOW_BYTES as u64 + (128 << 10) <= CONNECTION_BYTES);

/// Memory of all connections that move data.
pub(super) struct TransferQuota {
    bytes_max: u64,
    /// Bytes for what peers have asked for, by host, and in all.
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

    /// Which host has to give up memory so that a connection of this one, which waits, gets some. `None`: there is enough.
    pub fn many(&mut self, host: Host) -> Option<Host> {
        if self.has_space_for(host, Account::Peer, CONNECTION_BYTES) { None } else { self.peers.most() }
    }

    /// Charges a connection for all that it may need, to this account. False: there is not enough.
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

    /// Charges a connection that was trimmed for all that it may need. False: there is not enough.
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

    /// Charges a connection for so many bytes, instead of what it is charged for.
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

    /// Bytes that counting takes.
    pub fn bytes(&self) -> u64 {
        self.peers.bytes()
    }
}
