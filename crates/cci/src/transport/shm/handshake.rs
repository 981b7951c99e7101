//! What an endpoint remembers of a connection between two steps of its handshake. The steps are in [`client`](super::client)
//! and [`server`](super::server).
//!
//! Nothing is mapped before the server's program has accepted. Each side makes the ring that it reads: it chooses the size, and
//! the memory is charged to it. Both sides look at each other's credentials first.

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
    /// The socket to the peer; None when nothing more is to be sent or read there.
    pub stream: Option<Stream>,
    pub deadline_ns: u64,
    pub stage: Stage,
}

/// How far a handshake has come.
pub(super) enum Stage {
    /// A client has connected to us and not yet sent its request. `has_asked`: it wanted to know who
    /// we are, and was shown our secret.
    Silent { peer: Credentials, since_ns: u64, has_asked: bool },
    /// We are the client and try again later, as the server's queue is full.
    Hello { conn: Key, hello: Box<Hello> },
    /// We are the client and wait for the server's library to prove that it is the one we want.
    Proving { conn: Key, server: Credentials, hello: Box<Hello> },
    /// We are the client and wait for the decision of the server's program.
    Asked { conn: Key, server: Credentials },
    /// We have accepted and offered a new link.
    Offered { pending: PendingPeer, half: Box<Half> },
    /// We have accepted and offered this link, which exists already. The client confirms through its ring.
    Joining { pending: PendingPeer, link: Key },
    /// We have accepted, and wait for a link to the same client that another handshake is making.
    Waiting { pending: PendingPeer },
}

/// A client whose request we accepted.
#[derive(Copy, Clone)]
pub(super) struct PendingPeer {
    /// Our side of its connection.
    pub conn: Key,
    pub theirs: PeerConn,
    pub mss: u32,
    pub peer: Peer,
}

/// What a client keeps until it can send its request: the server's queue may be full, or the server has to prove who it is.
pub(super) struct Hello {
    pub name: Name,
    /// What the server has to show before it gets the request.
    pub proof: Option<Commitment>,
    pub request: Request,
    pub payload: Vec<u8>,
    /// When to try again to reach the server.
    pub again_ns: u64,
}

/// Our half of a link that is being made.
pub(super) struct Half {
    pub ring: SharedMemory,
    pub bell: EventFd,
    pub ring_bytes: u32,
    pub link_id: u64,
    charge: Charge,
}

impl Handshake {
    /// Sends a message without descriptors. False: the peer is gone.
    pub fn send(&self, message: &Message<'_>) -> bool {
        let stream = self.stream.as_ref();
        stream.is_some_and(|stream| stream.send(message.bytes().as_slice(), &[]).is_ok())
    }

    /// Sends a message with our half of a link: the ring that we read, and our doorbell. False: the peer is gone.
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

    /// Makes the ends of a link from our half and the descriptors of the peer's. None: those are not what they should be.
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
