//! What a connection has as long as the program has its handle.

use super::streams::Listed;
use crate::connection::Connection;
use crate::transport::quota::Host;
use crate::transport::token::NOWHERE;
use std::net::SocketAddr;

/// What a connection has as long as the program has its handle, whether it has a stream or not.
#[derive(Clone, Debug)]
pub(super) struct Base {
    /// The engine's handle.
    pub connection: Connection,
    /// Its name in the endpoint's table, and in which lists it is.
    pub listed: Listed,
    /// In the list of [`Deadlines`](super::deadlines::Deadlines).
    pub has_deadline: bool,
    pub is_reliable: bool,
    /// Where the peer is, or was dialled at.
    pub peer: SocketAddr,
    /// The longest message, both sides considered; 0 until the peer has said what it takes.
    pub mss: u32,
    pub send_timeout_ns: u64,
    /// 0: off.
    pub keepalive_ns: u64,
    pub messages_sent: u64,
    pub bytes_sent: u64,
    pub messages_received: u64,
    pub bytes_received: u64,
    /// Times the peer had no receive buffer.
    pub not_ready: u64,
}

impl Base {
    /// A connection without a name: the table gives it one.
    pub fn new(connection: Connection, peer: SocketAddr, is_reliable: bool) -> Base {
        Base {
            connection,
            listed: Listed::nowhere(NOWHERE),
            has_deadline: false,
            is_reliable,
            peer,
            mss: 0,
            send_timeout_ns: 0,
            keepalive_ns: 0,
            messages_sent: 0,
            bytes_sent: 0,
            messages_received: 0,
            bytes_received: 0,
            not_ready: 0,
        }
    }

    /// Where the peer is, as far as quotas tell.
    #[inline]
    pub fn host(&self) -> Host {
        Host::from(self.peer)
    }
}
