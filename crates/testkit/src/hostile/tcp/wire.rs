//! What goes over TCP's two streams, byte for byte, from `docs/wire.md`, for a peer that may say anything.

/// The version of the handshake that is spoken.
pub const VERSION: u8 = 2;
pub(super) const MAGIC: [u8; 4] = *b"CCIt";

/// What comes: parts of the handshake, records of the first stream, records of the second.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of docs/wire.md")]
pub enum Kind {
    Hello,
    Bulk,
    Accept,
    Reject,
    Version,
    Heard,
    Request,
    Challenge,
    Proof,
    Message,
    Ack,
    NotReady,
    Ready,
    Resume,
    Ping,
    Pong,
    Closing,
    Close,
    Confirm,
    AskBulk,
    Write,
    Read,
    Data,
    Gone,
    Atomic,
    Notify,
    Done,
    Hold,
    Again,
    /// A record, or a part of a handshake, of a kind that wire.md does not have.
    Unknown,
    /// The victim has closed the first stream.
    End,
    /// The victim has closed the second stream.
    BulkEnd,
    /// Somebody has connected to the listener.
    Came,
}

use Kind as K;

pub(super) const PARTS: [Kind; 9] =
    [K::Hello, K::Bulk, K::Accept, K::Reject, K::Version, K::Heard, K::Request, K::Challenge, K::Proof];
pub(super) const RECORDS: [Kind; 11] = [
    K::Message,
    K::Ack,
    K::NotReady,
    K::Ready,
    K::Resume,
    K::Ping,
    K::Pong,
    K::Closing,
    K::Close,
    K::Confirm,
    K::AskBulk,
];
pub(super) const BULK_RECORDS: [(u8, Kind); 9] = [
    (1, K::Write),
    (2, K::Read),
    (3, K::Data),
    (4, K::Gone),
    (5, K::Atomic),
    (6, K::Notify),
    (7, K::Done),
    (11, K::Hold),
    (12, K::Again),
];

/// The number of a kind on its stream.
pub(super) fn number(kind: Kind) -> u8 {
    let place = |list: &[Kind]| list.iter().position(|known| *known == kind).map(|at| at as u8 + 1);
    let bulk = || BULK_RECORDS.iter().find(|(_, known)| *known == kind).map(|(number, _)| *number);
    place(&PARTS).or_else(|| place(&RECORDS)).or_else(bulk).unwrap_or(u8::MAX)
}

/// A part of a handshake that proposes or accepts a connection.
#[derive(Clone, Debug)]
pub struct Part {
    /// In place of `CCIt`.
    pub magic: [u8; 4],
    /// The version that is claimed.
    pub version: u8,
    /// The longest message.
    pub message_bytes_max: u32,
    /// HELLO: the payload.
    pub payload: Vec<u8>,
    /// HELLO: 0 RO, 1 RU, 2 UU.
    pub service: u8,
    /// HELLO: 1 if the payload follows in REQUEST.
    pub flags: u8,
    /// ACCEPT: at which port the second stream is to be dialled.
    pub port: u16,
    /// ACCEPT, BULK: the key of the connection.
    pub key: u64,
    /// ACCEPT: the secret; CHALLENGE and PROOF show that their sender knows it.
    pub secret: [u8; 16],
    /// What the two sides of the second stream have drawn: first the one that dialled it.
    pub nonces: [[u8; 16]; 2],
    /// CHALLENGE, PROOF. None: the one that is right.
    pub proof: Option<[u8; 32]>,
}

/// A record of the first stream.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its number on the wire.
    pub kind: u8,
    /// Must be zero.
    pub zero: u8,
    /// How long the payload is said to be. None: as long as it is.
    pub len: Option<u16>,
    /// Messages taken so far.
    pub ack: u32,
    /// What follows.
    pub payload: Vec<u8>,
}

/// A record of the second stream.
#[derive(Clone, Debug)]
pub struct Rma {
    /// How long the record is said to be behind its length. None: as long as it is.
    pub len: Option<u32>,
    /// Its number on the wire.
    pub kind: u8,
    /// The flags of its kind.
    pub flags: u8,
    /// Of the request.
    pub slot: u16,
    /// The words behind the head.
    pub words: Vec<u64>,
    /// Data, or a message.
    pub data: Vec<u8>,
    /// How many bytes of the record are sent. None: all.
    pub truncated_at: Option<usize>,
}

impl Part {
    /// As it goes over a stream.
    pub fn bytes(&self, kind: Kind) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend([number(kind), self.version, 0, 0]);
        match kind {
            Kind::Hello => {
                bytes.extend(self.message_bytes_max.to_le_bytes());
                bytes.extend((self.payload.len() as u16).to_le_bytes());
                bytes.extend([self.service, self.flags]);
                bytes.extend(&self.payload);
            }
            Kind::Request => {
                bytes.extend((self.payload.len() as u16).to_le_bytes());
                bytes.extend([0; 6]);
                bytes.extend(&self.payload);
            }
            Kind::Bulk => {
                bytes.extend(self.key.to_le_bytes());
                bytes.extend(self.nonces[0]);
            }
            Kind::Challenge => {
                bytes.extend(self.nonces[1]);
                bytes.extend(self.proof.unwrap_or_else(|| self.prove(b"CCI TCP acceptor")));
            }
            Kind::Proof => bytes.extend(self.proof.unwrap_or_else(|| self.prove(b"CCI TCP dialler\0"))),
            Kind::Accept => {
                bytes.extend(self.message_bytes_max.to_le_bytes());
                bytes.extend(self.port.to_le_bytes());
                bytes.extend([0; 2]);
                bytes.extend(self.key.to_le_bytes());
                bytes.extend(self.secret);
            }
            Kind::Reject | Kind::Version => bytes.extend([1, 1, 0, 0, 0, 0, 0, 0]),
            _ => {}
        }
        bytes
    }

    /// HMAC-SHA256 by the secret, of who proves it, the key and both nonces.
    fn prove(&self, label: &[u8; 16]) -> [u8; 32] {
        let signed = [&label[..], &self.key.to_le_bytes(), &self.nonces[0], &self.nonces[1]].concat();
        let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &self.secret), &signed);
        std::array::from_fn(|at| tag.as_ref()[at])
    }
}

impl Record {
    /// As it goes over the first stream.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.len.unwrap_or(self.payload.len() as u16).to_le_bytes().to_vec();
        bytes.extend([self.kind, self.zero]);
        bytes.extend(self.ack.to_le_bytes());
        bytes.extend(&self.payload);
        bytes
    }
}

impl Rma {
    /// As it goes over the second stream.
    pub fn bytes(&self) -> Vec<u8> {
        let whole = 8 + 8 * self.words.len() + self.data.len();
        let mut bytes = self.len.unwrap_or(whole as u32).to_le_bytes().to_vec();
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.slot.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(&self.data);
        bytes.truncate(self.truncated_at.unwrap_or(usize::MAX));
        bytes
    }
}
