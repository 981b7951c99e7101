//! A connection in the making, as the endpoint remembers it between two steps of its handshake. The steps are in [`client`](super::client) and [`server`](super::server).
//!
//! Nothing is mapped before the server's program has accepted. Each side makes the ring that it reads: its size is
//! that side's to choose, and its memory is charged there. Both look at the other's credentials first.

use super::RING_BYTES_PEER_MAX;
use super::charge::Charge;
use super::link::Ends;
use super::peer::Peer;
use super::rma::channel::RECORD_BYTES_MAX;
use super::wire::{Message, PeerConn, Request};
use crate::transport::commitment::Commitment;
use cci_memory::ring::region_bytes;
use cci_memory::slab::Key;
use cci_sys::SysError;
use cci_sys::event::EventFd;
use cci_sys::shared_memory::SharedMemory;
use cci_sys::unix::{Credentials, Name, ReceivedFds, Stream};
use std::os::fd::AsFd;

/// A connection being made.
pub(super) struct Handshake {
    /// None: nothing more is to be sent or read.
    pub stream: Option<Stream>,
    pub deadline_ns: u64,
    pub stage: Stage,
}

/// How far a handshake has come.
pub(super) enum Stage {
    /// A client has connected to us and not yet sent its request. `has_asked`: it wanted to know who we are, and was shown.
    Silent { peer: Credentials, since_ns: u64, has_asked: bool },
    /// We are the client; the server's queue is full.
    Hello { conn: Key, hello: Box<Hello> },
    /// We are the client and wait for the server's library to prove that it is the one we want.
    Proving { conn: Key, server: Credentials, hello: Box<Hello> },
    /// We are the client and wait for the server's program.
    Asked { conn: Key, server: Credentials },
    /// We have accepted and offered a new link.
    Offered { pending: PendingPeer, half: Box<Half> },
    /// We have accepted and offered to join this link; the client confirms through its ring.
    Joining { pending: PendingPeer, link: Key },
    /// We have accepted; a link to the same client is just being made and will be joined.
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

/// What a client keeps while the server's queue is full, or the server has to prove who it is.
pub(super) struct Hello {
    pub name: Name,
    /// What the server has to show before it gets the request.
    pub proof: Option<Commitment>,
    pub request: Request,
    pub payload: Vec<u8>,
    /// When to try again.
    pub again_ns: u64,
}

/// Our half of a link to be.
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
    /// Our connection, if there is one yet.
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
    /// Makes a ring of `ring_bytes` of data, whose memory is charged, and a doorbell.
    pub fn create(ring_bytes: u32, charge: Charge) -> Result<Half, SysError> {
        let ring = SharedMemory::create("cci-ring", region_bytes(ring_bytes as usize))?;
        let (bell, link_id) = (EventFd::new()?, cci_sys::random::u64()?);
        Ok(Half { ring, bell, ring_bytes, link_id, charge })
    }

    /// Our half and what the peer sent of its own make the ends of a link. None: the peer's descriptors are not what they
    /// should be.
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
        Some(Ends {
            consumer: ours.into_consumer(RECORD_BYTES_MAX).ok()?,
            producer: theirs.into_producer(RECORD_BYTES_MAX).ok()?,
            bell: self.bell,
            peer_bell,
            ring_bytes: self.ring_bytes,
            charge: self.charge,
            peer_ring_bytes: ring_bytes,
        })
    }
}
