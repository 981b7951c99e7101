//! What groups must know of their endpoint and of its device.

use crate::device::MulticastKeys;
use std::net::SocketAddr;

/// The settings of an endpoint's groups.
#[derive(Clone, Debug)]
pub(in super::super) struct Settings {
    /// The address that datagrams leave from: the device's, with port 0.
    pub local: SocketAddr,
    /// The name of the device's interface, by which all datagrams leave and arrive.
    pub interface_name: String,
    pub keys: MulticastKeys,
    /// The largest datagram to send, bytes; a multiple of 8.
    pub datagram_bytes_max: u16,
    /// The longest message, sent or received, bytes.
    pub message_bytes_max: u32,
    /// How many bytes groups may hold; 0 if the endpoint's cap leaves nothing.
    pub memory_bytes_max: u64,
    pub send_timeout_ns: u64,
    pub keepalive_ns: u64,
}
