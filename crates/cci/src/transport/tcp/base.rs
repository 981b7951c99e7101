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
    /// The connection's key in the endpoint's table, and the lists that have it.
    pub listed: Listed,
    /// Whether [`Deadlines`](super::deadlines::Deadlines) lists the connection.
    pub has_deadline: bool,
    pub is_reliable: bool,
    /// The peer's address, or the address that was dialled.
    pub peer: SocketAddr,
    /// The longest message that both sides take; 0 until the peer has said what it takes.
    pub mss: u32,
    pub send_timeout_ns: u64,
    /// 0 means that keepalive is off.
    pub keepalive_ns: u64,
    pub messages_sent: u64,
    pub bytes_sent: u64,
    pub messages_received: u64,
    pub bytes_received: u64,
    /// How often the peer had no receive buffer.
    pub not_ready: u64,
}

impl Base {
    /// Makes a connection without a key. The table assigns one.
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

    /// The peer's host, as the quotas count hosts.
    #[inline]
    pub fn host(&self) -> Host {
        Host::from(self.peer)
    }
}
