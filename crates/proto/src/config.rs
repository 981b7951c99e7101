//! The configuration of an endpoint.

use crate::limits;

/// The configuration of an endpoint. Everything in it holds for the endpoint's whole life.
#[derive(Clone, Debug)]
pub struct Config {
    /// Randomness that nonces, cookies and first sequence numbers are derived from. The caller's to choose, and
    /// different for every endpoint and every start.
    pub secret: [u8; 32],
    /// The largest datagram to send, header included, without what the carrier adds. A multiple of 8.
    pub datagram_bytes_max: u16,
    /// Cap on everything the endpoint holds: packet buffers, active states, the connection table.
    pub memory_bytes_max: u64,
    /// What the carrier can hold for this endpoint before the program reads it (the socket's receive buffer);
    /// announced to the peers, who keep no more than that in flight. 0: not known.
    pub receive_buffer_bytes: u64,
    /// Connections that may exist at once.
    pub connections_max: u32,
    /// Whether peers may ask for connections. Otherwise what they send for that is counted as unexpected, and no answer leaves.
    pub serves: bool,
    /// Requests delivered to the program and neither accepted nor rejected yet.
    pub requests_max: u32,
    /// Sends started and not yet completed; bounds the completions that can come at once.
    pub sends_max: u32,
    /// Remote memory operations started and not yet completed. Room for them is taken as they come, under the memory
    /// cap, and kept.
    pub operations_max: u32,
    /// How long a send may take before it fails, unless the connection says otherwise. 0: the built-in default,
    /// [`limits::SEND_TIMEOUT_NS_DEFAULT`].
    pub send_timeout_ns: u64,
    /// Silence after which a connection's peer is asked whether it lives. 0: never.
    pub keepalive_ns: u64,
    /// The first sequence number; tests start just under the wrap. `None`: derived from the secret.
    pub first_seq: Option<u32>,
}

impl Default for Config {
    /// Sensible sizes for UDP over Ethernet. The secret is all zeros and must be replaced.
    fn default() -> Config {
        Config {
            secret: [0; 32],
            datagram_bytes_max: 1472,
            memory_bytes_max: 8 << 20,
            receive_buffer_bytes: 0,
            connections_max: 1 << 20,
            serves: true,
            requests_max: 256,
            sends_max: 1 << 14,
            operations_max: 1 << 14,
            send_timeout_ns: 0,
            keepalive_ns: 0,
            first_seq: None,
        }
    }
}

/// Why [`crate::Endpoint::new`] refused its configuration: the caller's fault.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// `datagram_bytes_max` is not a multiple of 8, or outside
    /// [`limits::DATAGRAM_BYTES_MIN`]..=[`limits::DATAGRAM_BYTES_MAX`].
    DatagramBytes,
    /// `memory_bytes_max` is too small for this datagram size and `sends_max`; at least `bytes_min` are needed.
    Memory {
        /// The least that would do, bytes.
        bytes_min: u64,
    },
    /// The system does not have the memory for the buffers.
    OutOfMemory {
        /// How much the buffers take, bytes.
        bytes: u64,
    },
    /// `connections_max`, `requests_max`, `sends_max` or `operations_max` is 0, or above [`limits::INDEX_MAX`]; or
    /// `sends_max` is above [`limits::SENDS_MAX`].
    Count,
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigError::DatagramBytes => write!(
                f,
                "the datagram size must be a multiple of 8 from {} to {}",
                limits::DATAGRAM_BYTES_MIN,
                limits::DATAGRAM_BYTES_MAX
            ),
            ConfigError::Memory { bytes_min } => {
                write!(f, "the memory cap must be at least {bytes_min} bytes")
            }
            ConfigError::OutOfMemory { bytes } => {
                write!(f, "the system does not have {bytes} bytes of memory")
            }
            ConfigError::Count => {
                write!(f, "a limit on connections, requests, sends or operations is 0 or too large")
            }
        }
    }
}

impl std::error::Error for ConfigError {}
