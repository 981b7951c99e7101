//! What an endpoint keeps of a connection between two steps of its handshake. The steps are in [`client`](super::client) and
//! [`server`](super::server).
//!
//! Nothing is mapped before the server's program has accepted. Each side makes the ring that it reads, chooses its size, and is
//! charged for its memory. Both sides check each other's credentials first.

use super::RING_BYTES_PEER_MAX;
use super::link::Ends;
use super::peer::Peer;
use super::rma::channel::RECORD_BYTES_MAX;
use super::wire::{Message, PeerConn, Request};
use crate::engine::charge::Charge;
use crate::transport::commitment::Commitment;
use cci_memory::ring::region_bytes;
use cci_memory::slab::Key;
use cci_sys::SysError;
use cci_sys::event::EventFd;
use cci_sys::heavy_fence;
use cci_sys::shared_memory::SharedMemory;
use cci_sys::unix::{Credentials, Name, ReceivedFds, Stream};
use std::os::fd::AsFd;

/// A connection that is being made.
pub(super) struct Handshake {
    /// The socket to the peer; `None` if nothing more is to be sent or read there.
    pub stream: Option<Stream>,
    pub deadline_ns: u64,
    pub stage: Stage,
}

/// The stage of a handshake.
pub(super) enum Stage {
    /// A client has connected and has not sent its request. `has_asked` says whether it asked who listens here, and was shown the
    /// secret.
    Silent { peer: Credentials, since_ns: u64, has_asked: bool },
    /// The client's side tries again later, since the server's queue is full.
    Hello { conn: Key, hello: Box<Hello> },
    /// The client's side waits for the server's library to prove that it is the wanted one.
    Proving { conn: Key, server: Credentials, hello: Box<Hello> },
    /// The client's side waits for the decision of the server's program.
    Asked { conn: Key, server: Credentials },
    /// The server's side has accepted and offered a new link.
    Offered { pending: PendingPeer, half: Box<Half> },
    /// The server's side has accepted and offered this link, which exists already. The client confirms through its ring.
    Joining { pending: PendingPeer, link: Key },
    /// The server's side has accepted, and waits for a link to the same client that another handshake is making.
    Waiting { pending: PendingPeer },
}

/// A client whose request was accepted.
#[derive(Copy, Clone)]
pub(super) struct PendingPeer {
    /// Our side of its connection.
    pub conn: Key,
    pub theirs: PeerConn,
    pub mss: u32,
    pub peer: Peer,
}

/// What a client keeps until it can send its request. The server's queue may be full, or the server must first prove who it is.
pub(super) struct Hello {
    pub name: Name,
    /// What the server must prove before it gets the request.
    pub proof: Option<Commitment>,
    pub request: Request,
    pub payload: Vec<u8>,
    /// When to try to reach the server again.
    pub again_ns: u64,
}

/// This side's half of a link that is being made.
pub(super) struct Half {
    pub ring: SharedMemory,
    pub bell: EventFd,
    pub ring_bytes: u32,
    pub link_id: u64,
    charge: Charge,
}

impl Handshake {
    /// Sends a message without descriptors. Returns false if the peer is gone.
    pub fn send(&self, message: &Message<'_>) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|stream| stream.send(message.bytes().as_slice(), &[]).is_ok())
    }

    /// Sends a message with this side's half of a link: the ring that it reads, and its doorbell. Returns false if the peer is
    /// gone.
    pub fn send_half(&self, message: &Message<'_>, half: &Half) -> bool {
        match (&self.stream, half.ring.fd()) {
            (Some(stream), Some(ring)) => {
                stream.send(message.bytes().as_slice(), &[ring, half.bell.as_fd()]).is_ok()
            }
            _ => false,
        }
    }
}

impl Stage {
    /// Our connection, unless the handshake is still in a stage without one.
    pub fn conn(&self) -> Option<Key> {
        match self {
            Stage::Silent { .. } => None,
            Stage::Hello { conn, .. } | Stage::Proving { conn, .. } | Stage::Asked { conn, .. } => {
                Some(*conn)
            }
            Stage::Offered { pending, .. } | Stage::Joining { pending, .. } | Stage::Waiting { pending } => {
                Some(pending.conn)
            }
        }
    }

    /// Whether this endpoint is the client.
    pub fn is_client(&self) -> bool {
        matches!(self, Stage::Hello { .. } | Stage::Proving { .. } | Stage::Asked { .. })
    }
}

impl Half {
    /// Makes a ring of `ring_bytes` of data and a doorbell. `charge` is for the ring's memory.
    pub fn create(ring_bytes: u32, charge: Charge) -> Result<Half, SysError> {
        let ring = SharedMemory::create("cci-ring", region_bytes(ring_bytes as usize))?;
        let (bell, link_id) = (EventFd::new()?, cci_sys::random::u64()?);
        Ok(Half { ring, bell, ring_bytes, link_id, charge })
    }

    /// Makes the ends of a link of this half and the peer's descriptors. Returns `None` if those are not as they should be.
    pub fn join(self, ring_bytes: u32, mut fds: ReceivedFds) -> Option<Ends> {
        if ring_bytes > RING_BYTES_PEER_MAX {
            return None;
        }
        let (ring, bell) = (fds.take(0)?, fds.take(1)?);
        let mut theirs = SharedMemory::open(ring, region_bytes(ring_bytes as usize)).ok()?;
        let peer_bell = EventFd::from_peer(bell).ok()?;
        let mut ours = self.ring;
        ours.drop_fd();
        theirs.drop_fd();
        let (consumer, has_heavy_fences) =
            (ours.into_consumer(RECORD_BYTES_MAX).ok()?, heavy_fence::register());
        if has_heavy_fences {
            consumer.offer_heavy_fences();
        }
        Some(Ends {
            consumer,
            has_heavy_fences,
            producer: theirs.into_producer(RECORD_BYTES_MAX).ok()?,
            bell: self.bell,
            peer_bell,
            ring_bytes: self.ring_bytes,
            charge: self.charge,
            peer_ring_bytes: ring_bytes,
        })
    }
}
