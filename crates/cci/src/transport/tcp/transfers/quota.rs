//! How much memory connections hold that move data: a flow, and a buffer each way. All connections share so much of it, by host.

use super::super::second_stream::{Account, SecondStream};
use crate::transport::ordered_rma::FLOW_BYTES;
use crate::transport::quota::{Host, Quota};

/// What a connection with something under way holds at most: what it writes from, what it reads into, its flow.
pub(super) const CONNECTION_BYTES: u64 = 160 << 10;
/// All of them together hold no more than this part of the cap.
const CAP_SHARE: u64 = 4;
/// However small the cap is, so many connections may have something under way.
const CONNECTIONS_MIN: u64 = 4;
/// Of all, what peers ask for leaves this part to what this side's program begins, and that to peers.
const RESERVED_SHARE: u64 = 4;

const _: () = assert!(FLOW_BYTES as u64 + (128 << 10) <= CONNECTION_BYTES);

/// Memory of all connections that move data.
pub(super) struct TransferQuota {
    bytes_max: u64,
    /// What peers have asked for, by host.
    peers: Quota,
    peers_bytes: u64,
    /// What this side's program has begun.
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

    /// Which host has to make room for a connection of this one that waits; `None`: there is room.
    pub fn many(&mut self, host: Host) -> Option<Host> {
        if self.has_space_for(host, Account::Peer, CONNECTION_BYTES) { None } else { self.peers.most() }
    }

    /// Gives a connection all that it may need, on this account. False: there is no room.
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

    /// Gives a connection that was trimmed all that it may need. False: there is no room.
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

    /// A connection holds so much from now on, instead of what it is charged for.
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

    /// Bytes held for counting.
    pub fn bytes(&self) -> u64 {
        self.peers.bytes()
    }
}
