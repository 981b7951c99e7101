//! See [`crate::fuzzing`]: the parts that know transports.

pub use super::any::fuzzing::any_uri;
pub use super::datagram::fuzzing::eth_uri;
pub use super::ordered_rma::stream::fuzzing::rma_stream;
pub(crate) use super::ordered_rma::stream::fuzzing::with_handle;
pub use super::shm::fuzzing::{shm_grant, shm_handshake, shm_handshake_message, shm_peer, shm_uri};
pub use super::tcp::fuzzing::{tcp_peer, tcp_preamble};
