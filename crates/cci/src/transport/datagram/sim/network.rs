//! What a simulator gives an endpoint instead of a socket, a network and a clock.

use std::net::SocketAddr;

/// A network as one endpoint sees it. It may lose, repeat and reorder datagrams.
pub trait Network: Send {
    /// The clock of this endpoint, in nanoseconds. It never goes back.
    fn now_ns(&self) -> u64;

    /// Whether another datagram can be taken now.
    fn has_space(&self) -> bool;

    /// Takes a datagram, which may travel in fragments if `fragment` is true.
    ///
    /// # Errors
    /// [`TooLong`]: the datagram is lost, because the path takes only smaller ones.
    fn send(&mut self, to: SocketAddr, datagram: &[u8], fragment: bool) -> Result<(), TooLong>;

    /// Takes out the next datagram that has arrived, and the address that it came from.
    fn receive(&mut self) -> Option<(SocketAddr, Box<[u8]>)>;
}

/// A datagram was too long for its path.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The longest datagram that the path takes, bytes.
    pub datagram_bytes_max: u16,
}

/// What a simulated endpoint has beside its options.
#[derive(Clone, Debug)]
pub struct SimulatedNode {
    /// The endpoint's address.
    pub address: SocketAddr,
    /// The largest datagram that it sends, bytes; a multiple of 8.
    pub datagram_bytes_max: u16,
    /// How many bytes its socket holds before they are read; 0 means that it is not known.
    pub receive_buffer_bytes: u64,
    /// How many datagrams leave in one batch.
    pub batch: usize,
    /// All random numbers of the endpoint follow from this.
    pub secret: [u8; 32],
}
