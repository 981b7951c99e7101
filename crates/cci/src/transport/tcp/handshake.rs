//! Streams that belong to no connection yet: those of clients that have not sent their request or not proved who they are, and
//! second streams that are being made.

use super::counts::Fault;
use super::pipe::{self, HANDSHAKE_BYTES, Pipe, Refusal};
use super::preamble::{PREAMBLE_BYTES_MAX, Preamble};
use crate::options::Attribute;
use cci_memory::slab::{Key, Slab};
use cci_secure::{Challenge, NONCE_BYTES};
use std::io::ErrorKind;
use std::net::SocketAddr;

/// The most streams that belong to no connection yet.
const HANDSHAKES_MAX: u32 = 64 << 10;

/// A client's request.
#[derive(Copy, Clone, Debug)]
pub(super) struct Wanted {
    pub attribute: Attribute,
    pub mss: u32,
}

/// A stream that belongs to no connection yet.
pub(super) struct Handshake {
    pub stream: Pipe,
    /// The client's address; `None` if this side has dialled.
    pub peer: Option<SocketAddr>,
    /// When the handshake began, and when it ends, whatever the peer sends.
    pub since_ns: u64,
    pub until_ns: u64,
    /// The part of the peer's preamble that was read, or the part of this side's that is to be written.
    pub bytes: Vec<u8>,
    pub stage: Stage,
}

pub(super) enum Stage {
    /// The client has sent neither HELLO nor BULK.
    Silent,
    /// A client whose HELLO was heard, and whose request follows.
    Heard(Wanted),
    /// The request waits until the program has fewer requests of the client's host.
    Waiting { wanted: Wanted, payload: Vec<u8>, was_heard: bool },
    /// The client wants to be the second stream of this connection, and was asked for a proof.
    Challenged { conn: Key, challenge: Challenge },
    /// This side dials a second stream, which is being connected.
    Dialled { conn: Key, nonce: [u8; NONCE_BYTES] },
    /// The peer must first prove that this second stream leads to it.
    Named { conn: Key, nonce: [u8; NONCE_BYTES] },
}

impl Stage {
    /// Whether a client has begun the handshake. Otherwise this side has, for a second stream.
    pub fn is_client(&self) -> bool {
        match self {
            Stage::Silent | Stage::Heard(_) | Stage::Waiting { .. } | Stage::Challenged { .. } => true,
            Stage::Dialled { .. } | Stage::Named { .. } => false,
        }
    }

    /// Whether the request waits until the program has decided on others.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Stage::Waiting { .. })
    }
}

/// All handshakes of an endpoint.
pub(super) struct Table {
    table: Slab<Handshake>,
    /// Handshakes that clients have begun.
    pub clients: u32,
}

impl Table {
    pub fn new() -> Table {
        Table { table: Slab::new(HANDSHAKES_MAX), clients: 0 }
    }

    /// Enters a handshake. `None` if there are too many; the stream is closed then.
    pub fn insert(&mut self, handshake: Handshake) -> Option<Key> {
        let is_client = handshake.stage.is_client();
        let key = self.table.insert(handshake).ok()?;
        self.clients += u32::from(is_client);
        Some(key)
    }

    pub fn remove(&mut self, key: Key) -> Option<Handshake> {
        let handshake = self.table.remove(key)?;
        self.clients -= u32::from(handshake.stage.is_client());
        Some(handshake)
    }

    pub fn get(&self, key: Key) -> Option<&Handshake> {
        self.table.get(key)
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Handshake> {
        self.table.get_mut(key)
    }

    pub fn key_at(&self, index: u32) -> Option<Key> {
        self.table.key_at(index)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, &Handshake)> {
        self.table.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Clients whose sealed handshake is in progress.
    pub fn in_handshake(&self) -> impl Iterator<Item = (Key, &Handshake)> {
        self.table
            .iter()
            .filter(|(_, handshake)| handshake.stage.is_client() && handshake.stream.is_in_handshake())
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let input_bytes: usize = self.table.iter().map(|(_, handshake)| handshake.bytes.capacity()).sum();
        (self.table.bytes() + input_bytes) as u64 + self.in_handshake().count() as u64 * HANDSHAKE_BYTES
    }
}

/// Why nothing was read.
pub(super) enum Unread {
    /// The peer has closed, or died.
    Gone,
    /// One side did not prove an identity that the other accepts.
    Refused(Refusal),
    /// Bytes came that were not sealed by the peer.
    Forged,
    Fault,
}

impl Unread {
    /// The fault to count, if any.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Unread::Gone => None,
            Unread::Refused(refusal) => Some(refusal.fault),
            Unread::Forged => Some(Fault::Forged),
            Unread::Fault => Some(Fault::Handshake),
        }
    }
}

/// Reads one preamble record, and no byte behind it. Returns `None` if the record is incomplete.
pub(super) fn read_preamble(stream: &mut Pipe, bytes: &mut Vec<u8>) -> Result<Option<Preamble>, Unread> {
    loop {
        //= wire.md R-TCP-2
        let needed = match Preamble::parse(bytes) {
            Ok(record) => {
                bytes.clear();
                return Ok(Some(record));
            }
            Err(Some(needed)) => needed.min(PREAMBLE_BYTES_MAX),
            Err(None) => return Err(Unread::Fault),
        };
        let have = bytes.len();
        bytes.resize(needed, 0);
        let got = stream.recv(bytes.get_mut(have..).unwrap_or_default());
        bytes.truncate(have + got.as_ref().map_or(0, |len| *len));
        match got {
            Ok(0) => return Err(Unread::Gone),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if pipe::is_forgery(&error) => return Err(Unread::Forged),
            Err(error) => return Err(pipe::refusal(&error).map_or(Unread::Gone, Unread::Refused)),
        }
    }
}
