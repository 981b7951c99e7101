//! What a simulator gives an endpoint in place of a socket, a network and a clock.

use std::net::SocketAddr;

/// What an endpoint sees of the world. It may lose, repeat and reorder datagrams.
pub trait Network: Send {
    /// The clock of this endpoint, nanoseconds; it never goes back.
    fn now_ns(&self) -> u64;

    /// Whether another datagram can be taken now.
    fn has_space(&self) -> bool;

    /// Takes a datagram. `fragment`: it may travel in fragments. Err: it is lost, since the path takes no more than this.
    fn send(&mut self, to: SocketAddr, datagram: &[u8], fragment: bool) -> Result<(), TooLong>;

    /// The next datagram that has come, and from where.
    fn receive(&mut self) -> Option<(SocketAddr, Box<[u8]>)>;
}

/// A path takes no datagrams that long.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// What it takes, bytes.
    pub datagram_bytes_max: u16,
}

/// What an endpoint is in the simulation, beside its options.
#[derive(Clone, Debug)]
pub struct SimulatedNode {
    /// The endpoint's address.
    pub address: SocketAddr,
    /// The largest datagram it sends, bytes: a multiple of 8.
    pub datagram_bytes_max: u16,
    /// What its socket holds before it is read, bytes; 0: not known.
    pub receive_buffer_bytes: u64,
    /// Datagrams that leave in one batch.
    pub batch: usize,
    /// All its randomness follows from this.
    pub secret: [u8; 32],
}
