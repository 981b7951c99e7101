//! A connection in the making, as the endpoint remembers it between two steps of its handshake, and how ends of links
//! are named. Only what they are: the table of connections holds them, and the steps, which work with that table and
//! with links, are in [`handshake`], [`dial`] and [`listen`].
//!
//! [`handshake`]: super::handshake
//! [`dial`]: super::dial
//! [`listen`]: super::listen

use super::wire::{PeerConn, Request};
use crate::transport::commitment::Commitment;
use cci_memory::slab::Key;
use cci_sys::event::EventFd;
use cci_sys::shared_memory::SharedMemory as Segment;
use cci_sys::unix::{Credentials, Name, Stream};

/// Who is at the other end. The pid is the kernel's word, the number the peer's own.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    pub endpoint: u64,
    pub pid: Option<u32>,
    pub uid: u32,
}

/// Which end of a link we are. Matters where both are in one endpoint.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Side {
    /// Accepted the connection that the link was made for.
    Server,
    /// Asked for it.
    Client,
}

/// A connection being made.
pub(super) struct Hand {
    /// None: nothing more to be said on it.
    pub stream: Option<Stream>,
    pub deadline_ns: u64,
    pub stage: Stage,
}

pub(super) enum Stage {
    /// A client has connected to us and not yet said what it wants.
    /// `has_asked`: who we are, which was shown.
    Silent { peer: Credentials, since_ns: u64, has_asked: bool },
    /// We are the client; the server's queue is full.
    Knocking { conn: Key, knock: Box<Knock> },
    /// We are the client and wait for the server's library to prove that it is the one we want.
    Proving { conn: Key, server: Credentials, knock: Box<Knock> },
    /// We are the client and wait for the server's program.
    Asked { conn: Key, server: Credentials },
    /// We have accepted and offered a new link.
    Offered { guest: Guest, half: Box<Half> },
    /// We have accepted and offered to join this link; the client confirms through its ring.
    Joining { guest: Guest, link: Key },
    /// We have accepted; a link to the same client is just being made and will be joined.
    Waiting { guest: Guest },
}

/// Whose request we accepted.
#[derive(Copy, Clone)]
pub(super) struct Guest {
    /// Our side of it.
    pub conn: Key,
    pub theirs: PeerConn,
    pub mss: u32,
    pub peer: Peer,
}

/// Our half of a link to be.
pub(super) struct Half {
    pub segment: Segment,
    pub bell: EventFd,
    pub ring_bytes: u32,
    pub link_id: u64,
}

impl Stage {
    pub fn conn(&self) -> Option<Key> {
        match self {
            Stage::Silent { .. } => None,
            Stage::Knocking { conn, .. } | Stage::Proving { conn, .. } | Stage::Asked { conn, .. } => {
                Some(*conn)
            }
            Stage::Offered { guest, .. } | Stage::Joining { guest, .. } | Stage::Waiting { guest } => {
                Some(guest.conn)
            }
        }
    }
}

/// Kept while the server's queue is full, or it has to prove itself.
pub(super) struct Knock {
    pub name: Name,
    /// What the server has to show before it hears more.
    pub proof: Option<Commitment>,
    pub request: Request,
    pub payload: Vec<u8>,
    pub again_ns: u64,
}
