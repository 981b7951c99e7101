//! The two ways out of the protocol: to the program and to the network.

use crate::{Address, ConnKey, Event};

/// Where the protocol puts what it has for the program. Implemented by the engine.
pub trait Sink {
    /// One message for the application. False: there is no receive buffer now; the protocol keeps the message
    /// and, if it can keep no more, says receiver-not-ready to that sender only.
    fn message(&mut self, conn: ConnKey, token: u64, payload: &[u8]) -> bool;

    /// Something happened; each event is given exactly once.
    fn event(&mut self, event: Event);
}

/// Where datagrams go. Implemented by the UDP batch and by the simulator. What is committed may be lost,
/// repeated or reordered.
pub trait Transmit {
    /// True if [`Transmit::begin`] would hand out a buffer.
    fn room(&self) -> bool;

    /// Hands out a buffer of `len_max` bytes, 8-byte aligned; `None` when the batch is full. `fragment`: IP may
    /// fragment this datagram.
    fn begin(&mut self, to: Address, len_max: usize, fragment: bool) -> Option<&mut [u8]>;

    /// The first `len` bytes of the buffer handed out last are a datagram.
    fn commit(&mut self, len: usize);
}
