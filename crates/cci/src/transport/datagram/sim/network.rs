//! What a simulation gives an endpoint in place of a socket, a network and a clock.

use std::net::SocketAddr;

/// A network from the view of one endpoint. It may lose, repeat and reorder datagrams.
pub trait Network: Send {
    /// The clock of this endpoint, in nanoseconds. It never goes back.
    fn now_ns(&self) -> u64;

    /// Whether another datagram can be taken now.
    fn has_space(&self) -> bool;

    /// Takes a datagram that leaves by the interface with this number. It may travel in fragments if `fragment` is true.
    ///
    /// # Errors
    /// [`TooLong`]: the datagram is lost, because the path takes only smaller ones.
    fn send(&mut self, by: u8, to: SocketAddr, datagram: &[u8], fragment: bool) -> Result<(), TooLong>;

    /// Takes out the next datagram that has arrived, the number of the interface where it did, and the address that it came from.
    fn receive(&mut self) -> Option<(u8, SocketAddr, Box<[u8]>)>;
}

/// A datagram was too long for its path.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The longest datagram that the path takes, bytes.
    pub datagram_bytes_max: u16,
}

/// What a simulated endpoint needs beside its options.
#[derive(Clone, Debug)]
pub struct SimulatedNode {
    /// The endpoint's address.
    pub address: SocketAddr,
    /// The address of its second interface, if it has one. Connections to others that have two are bonded.
    pub second_address: Option<SocketAddr>,
    /// The largest datagram that it sends, bytes; a multiple of 8.
    pub datagram_bytes_max: u16,
    /// How many bytes its socket holds before they are read; 0 means that it is not known.
    pub receive_buffer_bytes: u64,
    /// How many datagrams leave in one batch.
    pub batch: usize,
    /// All random numbers of the endpoint follow from this.
    pub secret: [u8; 32],
    /// The number of each connection's first bundle, where it does not follow from the secret.
    pub first_seq: Option<u32>,
    /// How many connections it may have; `None`: as many as its memory allows.
    pub connections_max: Option<u32>,
    /// How many requests may wait for its program; `None`: as many as elsewhere.
    pub requests_max: Option<u32>,
}
