//! The interfaces of the protocol: to the program, to its memory and to the network.

use crate::rma::{Atomic, RemoteAddress, RmaRefusal};
use crate::{Address, ConnKey, Event};

/// The memory that peers may use, and that operations of this side use. Implemented by the engine, which knows which
/// regions there are. Every access is checked anew: a region may go at any time between two calls.
///
/// The `peer_` methods carry out what a peer asks for. They check region, key, range, right, and whether the region is
/// for this connection, and touch nothing if they refuse. The `local_` ones carry out what this program asked for.
///
/// The default methods refuse everything, for programs that share no memory.
pub trait Memory {
    /// Puts the peer's `data` there, all or nothing.
    fn peer_write(
        &mut self,
        conn: ConnKey,
        token: u64,
        at: RemoteAddress,
        data: &[u8],
    ) -> Result<(), RmaRefusal> {
        let _ = (conn, token, at, data);
        Err(RmaRefusal::Handle)
    }

    /// Fills `out` with what is there.
    fn peer_read(
        &mut self,
        conn: ConnKey,
        token: u64,
        at: RemoteAddress,
        out: &mut [u8],
    ) -> Result<(), RmaRefusal> {
        let _ = (conn, token, at, out);
        Err(RmaRefusal::Handle)
    }

    /// Does what [`Memory::peer_read`] does. Of the peer's request, `remaining_bytes` are still to be read, these ones included: most probably
    /// one piece behind the other. So it may look further ahead, but never beyond the request.
    fn peer_read_ahead(
        &mut self,
        conn: ConnKey,
        token: u64,
        at: RemoteAddress,
        out: &mut [u8],
        remaining_bytes: u64,
    ) -> Result<(), RmaRefusal> {
        let _ = remaining_bytes;
        self.peer_read(conn, token, at, out)
    }

    /// Says whether the peer may read `len_bytes` there: asked once for a whole request before any of it is sent.
    fn peer_may_read(
        &mut self,
        conn: ConnKey,
        token: u64,
        at: RemoteAddress,
        len_bytes: u64,
    ) -> Result<(), RmaRefusal> {
        let _ = (conn, token, at, len_bytes);
        Err(RmaRefusal::Handle)
    }

    /// Carries out one atomic operation and returns what was there before.
    fn peer_atomic(
        &mut self,
        conn: ConnKey,
        token: u64,
        at: RemoteAddress,
        atomic: Atomic,
    ) -> Result<u64, RmaRefusal> {
        let _ = (conn, token, at, atomic);
        Err(RmaRefusal::Handle)
    }

    /// Fills `out` with what is there. False: it has been deregistered meanwhile, `out` is as it was.
    fn local_read(&mut self, at: RemoteAddress, out: &mut [u8]) -> bool {
        let _ = (at, out);
        false
    }

    /// Puts `data` there. False: it has been deregistered meanwhile, and nothing was written.
    fn local_write(&mut self, at: RemoteAddress, data: &[u8]) -> bool {
        let _ = (at, data);
        false
    }
}

/// Where the protocol puts what it has for the program. Implemented by the engine.
pub trait Sink: Memory {
    /// One message for the application. False: there is no receive buffer now; the protocol keeps the message
    /// and, if it can keep no more, says receiver-not-ready to that sender only.
    fn message(&mut self, conn: ConnKey, token: u64, payload: &[u8]) -> bool;

    /// Whether the program takes all messages of a bundle as soon as its datagram has been handled. If so, they are as good as delivered, and
    /// [`crate::Endpoint::handle_datagram`] returns them, and no other message comes before that. Otherwise each comes by [`Sink::message`], as all do with the default.
    fn takes_bundle(&mut self, conn: ConnKey, token: u64, summary: BundleSummary) -> bool {
        let _ = (conn, token, summary);
        false
    }

    /// Whether [`Sink::message`] would take one of this connection now. The default takes it for granted.
    fn has_buffer_for(&mut self, conn: ConnKey, token: u64) -> bool {
        let _ = (conn, token);
        true
    }

    /// Something happened; each event is given exactly once.
    fn event(&mut self, event: Event);
}

/// What is known of the messages of a bundle.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BundleSummary {
    /// How many there are: at least one.
    pub messages: u32,
    /// Bytes of all of them together.
    pub bytes: u32,
    /// None is longer, in bytes, though perhaps all are shorter.
    pub len_bound: u32,
}

/// Where datagrams go. Implemented by the UDP batch and by the simulator. What is committed may be lost,
/// repeated or reordered.
pub trait Transmit {
    /// True if [`Transmit::begin`] would hand out a buffer.
    fn has_space(&self) -> bool;

    /// Hands out a buffer of `len_max` bytes, 8-byte aligned; `None` when the batch is full. `fragment`: IP may
    /// fragment this datagram.
    fn begin(&mut self, to: Address, len_max: usize, fragment: bool) -> Option<&mut [u8]>;

    /// The first `len` bytes of the buffer handed out last are a datagram.
    fn commit(&mut self, len: usize);
}
