//! What groups have to know of their endpoint and its device.

use crate::device::MulticastKeys;
use std::net::SocketAddr;

/// What an endpoint's groups are to be like.
#[derive(Clone, Debug)]
pub(in super::super) struct Settings {
    /// Where datagrams leave from: the device's address, port 0.
    pub local: SocketAddr,
    /// The device's interface, which all of it goes by.
    pub interface_name: String,
    pub keys: MulticastKeys,
    /// The largest datagram to send, bytes; a multiple of 8.
    pub datagram_bytes_max: u16,
    /// The longest message, sent or received, bytes.
    pub message_bytes_max: u32,
    /// What groups may hold, bytes: 0 where the endpoint's cap leaves nothing.
    pub memory_bytes_max: u64,
    pub send_timeout_ns: u64,
    pub keepalive_ns: u64,
}
