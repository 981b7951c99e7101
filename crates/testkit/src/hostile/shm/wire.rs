//! What two processes of one host exchange, byte for byte: the messages of the handshake, the records in the rings, grants.
//! There is no page about them but the comments in `cci::transport::shm` and `cci_memory::ring`.

/// The version that is spoken.
pub const VERSION: u8 = 8;
const MAGIC: [u8; 4] = *b"CCIm";
const GRANT_MAGIC: u64 = u64::from_le_bytes(*b"CCIgrant");
pub(super) const GRANT_BYTES: usize = 104;

/// What comes: messages of the handshake, records of the ring, and grants.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the messages and records")]
pub enum Kind {
    Request,
    Accept,
    ConfirmLink,
    Refuse,
    NoLink,
    Who,
    Shown,
    Message,
    Close,
    CloseAck,
    Ping,
    Pong,
    Confirm,
    Map,
    NoMap,
    Unmap,
    Try,
    Tried,
    /// A record of remote memory access, by its number: those of the second stream of TCP, and PULL, WHERE and HERE.
    Rma(u8),
    /// A grant, over the socket.
    Grant,
    /// Anything else.
    Unknown,
    /// The victim has closed the socket.
    End,
}

use Kind as K;

/// Numbers of records of remote memory access.
#[expect(missing_docs, reason = "the names are those of the records")]
pub mod rma {
    use super::Kind;
    pub const WRITE: Kind = Kind::Rma(1);
    pub const READ: Kind = Kind::Rma(2);
    pub const DATA: Kind = Kind::Rma(3);
    pub const GONE: Kind = Kind::Rma(4);
    pub const ATOMIC: Kind = Kind::Rma(5);
    pub const NOTIFY: Kind = Kind::Rma(6);
    pub const DONE: Kind = Kind::Rma(7);
    pub const PULL: Kind = Kind::Rma(8);
    pub const WHERE: Kind = Kind::Rma(9);
    pub const HERE: Kind = Kind::Rma(10);
    pub const HOLD: Kind = Kind::Rma(11);
    pub const AGAIN: Kind = Kind::Rma(12);
}

const MESSAGES: [Kind; 7] = [K::Request, K::Accept, K::ConfirmLink, K::Refuse, K::NoLink, K::Who, K::Shown];
const RECORDS: [Kind; 12] = [
    K::Message,
    K::Close,
    K::CloseAck,
    K::Ping,
    K::Pong,
    K::Confirm,
    K::Rma(0),
    K::Map,
    K::NoMap,
    K::Unmap,
    K::Try,
    K::Tried,
];

impl Kind {
    /// Of a message of the handshake, by its number.
    pub(super) fn of_message(number: u8) -> Kind {
        MESSAGES.get(usize::from(number).wrapping_sub(1)).copied().unwrap_or(K::Unknown)
    }

    /// Of a record in the ring.
    pub(super) fn of_record(number: u8, payload: &[u8]) -> Kind {
        match RECORDS.get(usize::from(number).wrapping_sub(1)) {
            Some(K::Rma(_)) => K::Rma(payload.first().copied().unwrap_or(0)),
            Some(known) => *known,
            None => K::Unknown,
        }
    }

    /// Its number among messages or records.
    pub(super) fn number(self) -> u8 {
        let kind = if let K::Rma(_) = self { K::Rma(0) } else { self };
        let number_in = |list: &[Kind]| list.iter().position(|known| *known == kind).map(|at| at as u8 + 1);
        number_in(&MESSAGES).or_else(|| number_in(&RECORDS)).unwrap_or(u8::MAX)
    }
}

/// The fields of the handshake that a side knows.
#[derive(Clone, Debug)]
pub struct Shake {
    /// The version that is claimed.
    pub version: u8,
    /// The sender's endpoint.
    pub endpoint: u64,
    /// The sender's connection: index and generation.
    pub conn: [u32; 2],
    /// The longest message.
    pub message_bytes_max: u32,
    /// 0 RO, 1 RU, 2 UU.
    pub attribute: u8,
    /// REQUEST: the payload.
    pub payload: Vec<u8>,
    /// CONFIRM: the size of the ring that the sender reads.
    pub ring_bytes: u32,
}

impl Shake {
    /// As a message of this kind.
    pub fn bytes(&self, kind: Kind) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([self.version, kind.number(), 0, 0]);
        match kind {
            K::Request => {
                bytes.extend(self.endpoint.to_ne_bytes());
                bytes.extend(self.conn.iter().flat_map(|word| word.to_ne_bytes()));
                bytes.extend(self.message_bytes_max.to_ne_bytes());
                bytes.extend([self.attribute, 0, 0, 0]);
                bytes.extend(&self.payload);
            }
            K::ConfirmLink => bytes.extend(self.ring_bytes.to_ne_bytes()),
            K::Refuse => bytes.push(0),
            _ => {}
        }
        bytes
    }
}

/// A grant: memory of the sender's that the receiver may map. The names are those of `cci::transport::shm::rma::grant`.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the names are those of the library's")]
pub struct Grant {
    pub region: u64,
    pub key: u64,
    pub only: u64,
    pub access: u64,
    /// 0: memory; 1: a file.
    pub content: u64,
    pub memory: u64,
    pub memory_bytes: u64,
    pub start: u64,
    pub len_bytes: u64,
    pub word: u64,
    pub token: u64,
    pub control_bytes: u64,
}

impl Grant {
    /// As it goes over the socket.
    pub fn bytes(&self) -> Vec<u8> {
        let words = [
            GRANT_MAGIC,
            self.region,
            self.key,
            self.only,
            self.access,
            self.content,
            self.memory,
            self.memory_bytes,
            self.start,
            self.len_bytes,
            self.word,
            self.token,
            self.control_bytes,
        ];
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Grant> {
        let mut words =
            bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(std::array::from_fn(|at| word[at])));
        let mut word = || words.next().unwrap_or(0);
        if bytes.len() != GRANT_BYTES || word() != GRANT_MAGIC {
            return None;
        }
        Some(Grant {
            region: word(),
            key: word(),
            only: word(),
            access: word(),
            content: word(),
            memory: word(),
            memory_bytes: word(),
            start: word(),
            len_bytes: word(),
            word: word(),
            token: word(),
            control_bytes: word(),
        })
    }
}

/// A record of the ring.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Its number on the wire.
    pub kind: u8,
    /// The low bits of the generation of the receiver's connection.
    pub flags: u8,
    /// The receiver's connection.
    pub conn: u32,
    /// How far the sender has read the opposite ring, in lines.
    pub ack: u32,
    /// What follows.
    pub payload: Vec<u8>,
    /// What the payload's length is said to be. None: what it is.
    pub len: Option<u32>,
    /// The check of the position. None: the right one.
    pub check: Option<u16>,
}
