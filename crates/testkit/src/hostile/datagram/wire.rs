//! Datagrams, byte for byte, from `docs/wire.md`: written for peers that may say anything, and read as far as those need it.

use std::collections::BTreeSet;

/// The version that is spoken.
pub const VERSION: u8 = 1;

/// What comes: datagrams by type, and the records inside of DATA.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of docs/wire.md")]
pub enum Kind {
    Hello,
    Retry,
    Connect,
    Accept,
    Reject,
    Version,
    Reset,
    Data,
    Ack,
    Ping,
    Close,
    CloseAck,
    Path,
    /// A record of DATA: a message, or remote memory access.
    Message,
    Write,
    Read,
    RmaData,
    Atomic,
    Notify,
    Done,
    /// Of a type that wire.md does not have.
    Unknown,
}

use Kind as K;

const TYPES: [(u8, Kind); 13] = [
    (1, K::Hello),
    (2, K::Retry),
    (3, K::Connect),
    (4, K::Accept),
    (5, K::Reject),
    (6, K::Version),
    (7, K::Reset),
    (8, K::Data),
    (9, K::Ack),
    (10, K::Ping),
    (11, K::Close),
    (12, K::CloseAck),
    (15, K::Path),
];
const RECORDS: [Kind; 7] = [K::Message, K::Write, K::Read, K::RmaData, K::Atomic, K::Notify, K::Done];

/// Flags of a datagram of an open connection.
pub mod flag {
    /// Receiver not ready.
    pub const RNR: u8 = 1;
    /// Answer at once.
    pub const PROBE: u8 = 2;
    /// The sender has closed.
    pub const CLOSING: u8 = 4;
    /// The body is a part of a bundle.
    pub const PART: u8 = 8;
}

impl Kind {
    pub(super) fn of(first: u8) -> Kind {
        let known = TYPES.iter().find(|(number, _)| *number == first & 15);
        known.map_or(K::Unknown, |(_, kind)| *kind)
    }

    pub(super) fn number(self) -> u8 {
        TYPES.iter().find(|(_, kind)| *kind == self).map_or(0, |(number, _)| *number)
    }
}

/// The fields of one handshake that a side knows: HELLO to ACCEPT are made of them.
#[derive(Clone, Debug, Default)]
pub struct Shake {
    /// The version that is claimed.
    pub version: u8,
    /// The client's index.
    pub index: u32,
    /// The client's generation.
    pub generation: u32,
    /// The client's nonce.
    pub nonce: u64,
    /// The time slot of the cookie.
    pub slot: u32,
    /// The cookie.
    pub cookie: u64,
    /// The sequence number of the sender's first bundle.
    pub first_seq: u32,
    /// The longest datagram.
    pub datagram_bytes_max: u16,
    /// The window.
    pub window_kib: u16,
    /// CONNECT: 0 RO, 1 RU, 2 UU.
    pub service: u8,
    /// 1: a second path is wanted.
    pub flags: u8,
    /// CONNECT: the payload.
    pub payload: Vec<u8>,
    /// ACCEPT: the server's index.
    pub server_index: u32,
    /// ACCEPT: the server's generation.
    pub server_generation: u32,
    /// ACCEPT: the server's nonce.
    pub server_nonce: u64,
    /// The sender's clock.
    pub timestamp: u32,
}

/// Fields one after the other, little-endian.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn u16(mut self, value: u16) -> Fields {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u32(mut self, value: u32) -> Fields {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Fields {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Fields {
        self.0.extend_from_slice(bytes);
        self
    }

    fn padded_to(mut self, len: usize) -> Vec<u8> {
        self.0.resize(len.max(self.0.len()).next_multiple_of(8), 0);
        self.0
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |field| u16::from_le_bytes(*field))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |field| u32::from_le_bytes(*field))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |field| u64::from_le_bytes(*field))
}

impl Shake {
    /// As a datagram of this type: HELLO, RETRY, CONNECT, ACCEPT or REJECT.
    pub fn bytes(&self, kind: Kind) -> Vec<u8> {
        let head = Fields::default().bytes(&[self.version << 4 | kind.number(), 0, 0, 0]);
        let head = head.u32(self.index).u32(self.generation);
        match kind {
            Kind::Hello => head.u32(0).u64(self.nonce).u32(self.timestamp).padded_to(64),
            Kind::Retry => head.u32(self.slot).u64(self.nonce).u64(self.cookie).padded_to(32),
            Kind::Connect => {
                let head = head.u32(self.slot).u64(self.nonce).u64(self.cookie);
                let head = head.u32(self.timestamp).u32(self.first_seq);
                let head = head.u16(self.datagram_bytes_max).u16(self.window_kib);
                let head = head.bytes(&[self.service, self.flags]).u16(self.payload.len() as u16);
                head.bytes(&self.payload).padded_to(48)
            }
            Kind::Accept => {
                let head = head.u32(self.server_index).u64(self.nonce).u32(self.server_generation);
                let head = head.u32(self.first_seq).u64(self.server_nonce).u32(self.timestamp).u32(0);
                head.u16(self.datagram_bytes_max).u16(self.window_kib).bytes(&[self.flags]).padded_to(56)
            }
            _ => head.u32(0).u64(self.nonce).padded_to(24),
        }
    }

    /// Learns from a datagram that came.
    pub(super) fn learn(&mut self, kind: Kind, bytes: &[u8]) {
        match kind {
            Kind::Hello | Kind::Connect => {
                (self.index, self.generation, self.nonce) =
                    (u32_at(bytes, 4), u32_at(bytes, 8), u64_at(bytes, 16));
            }
            Kind::Retry => (self.slot, self.cookie) = (u32_at(bytes, 12), u64_at(bytes, 24)),
            Kind::Accept => {
                (self.server_index, self.server_generation) = (u32_at(bytes, 12), u32_at(bytes, 24));
                self.server_nonce = u64_at(bytes, 32);
            }
            _ => {}
        }
    }
}

/// The header of every datagram of an open connection. The names are those of the table in wire.md.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the names are those of docs/wire.md")]
pub struct Head {
    pub version: u8,
    pub kind: u8,
    pub flags: u8,
    pub zero: u8,
    pub index: u32,
    pub generation: u32,
    pub source_index: u32,
    pub nonce: u64,
    pub seq: u32,
    pub ack: u32,
    pub timestamp: u32,
    pub echo: u32,
    pub window_kib: u16,
    pub epoch: u16,
    pub epoch_ack: u16,
    /// Selective acknowledgement.
    pub words: Vec<u64>,
    pub body: Vec<u8>,
    /// What the body's length is said to be, in units of 8 bytes. None: what it is.
    pub body_units: Option<u16>,
}

impl Head {
    /// As it goes into a datagram.
    pub fn bytes(&self) -> Vec<u8> {
        let head = Fields::default();
        let head =
            head.bytes(&[self.version << 4 | self.kind, self.flags, self.words.len() as u8, self.zero]);
        let head = head.u32(self.index).u32(self.generation).u32(self.source_index).u64(self.nonce);
        let head = head.u32(self.seq).u32(self.ack).u32(self.timestamp).u32(self.echo);
        let units = self.body_units.unwrap_or(self.body.len().div_ceil(8) as u16);
        let head = head.u16(self.window_kib).u16(self.epoch).u16(self.epoch_ack).u16(units);
        let head = self.words.iter().fold(head, |head, word| head.u64(*word));
        head.bytes(&self.body).padded_to(48)
    }

    pub(super) fn read(bytes: &[u8]) -> Head {
        let words = usize::from(bytes.get(2).copied().unwrap_or(0));
        Head {
            version: bytes[0] >> 4,
            kind: bytes[0] & 15,
            flags: bytes.get(1).copied().unwrap_or(0),
            zero: 0,
            index: u32_at(bytes, 4),
            generation: u32_at(bytes, 8),
            source_index: u32_at(bytes, 12),
            nonce: u64_at(bytes, 16),
            seq: u32_at(bytes, 24),
            ack: u32_at(bytes, 28),
            timestamp: u32_at(bytes, 32),
            echo: u32_at(bytes, 36),
            window_kib: u16_at(bytes, 40),
            epoch: u16_at(bytes, 42),
            epoch_ack: u16_at(bytes, 44),
            words: (0..words).map(|word| u64_at(bytes, 48 + 8 * word)).collect(),
            body: bytes.get(48 + 8 * words..).unwrap_or_default().to_vec(),
            body_units: None,
        }
    }
}

/// A record of a bundle.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its number on the wire.
    pub kind: u8,
    /// The flags of its kind.
    pub flags: u8,
    /// Of the request.
    pub slot: u16,
    /// All behind the header.
    pub payload: Vec<u8>,
    /// What the payload's length is said to be. None: what it is.
    pub len: Option<u16>,
}

impl Record {
    /// Of a kind, with words and data behind the header.
    pub fn new(kind: Kind, slot: u16, words: &[u64], data: &[u8]) -> Record {
        let kind = RECORDS.iter().position(|known| *known == kind).map_or(0, |at| at as u8 + 1);
        let mut payload: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        payload.extend_from_slice(data);
        Record { kind, flags: 0, slot, payload, len: None }
    }

    /// With these flags.
    pub fn flags(self, flags: u8) -> Record {
        Record { flags, ..self }
    }

    /// As it stands in a bundle.
    pub fn bytes(&self) -> Vec<u8> {
        let len = self.len.unwrap_or(self.payload.len() as u16);
        let head = Fields::default().u16(len).bytes(&[self.kind, self.flags]).u16(self.slot).u16(0);
        head.bytes(&self.payload).padded_to(8)
    }

    /// The records of a bundle.
    pub(super) fn read(mut body: &[u8]) -> Vec<(Kind, Record)> {
        let mut records = Vec::new();
        while let Some(&[l0, l1, kind, flags, s0, s1, _, _]) = body.first_chunk() {
            let len = usize::from(u16::from_le_bytes([l0, l1]));
            let payload = body.get(8..8 + len).unwrap_or_default().to_vec();
            if let Some(known) = usize::from(kind).checked_sub(1).and_then(|at| RECORDS.get(at)) {
                let slot = u16::from_le_bytes([s0, s1]);
                records.push((*known, Record { kind, flags, slot, payload, len: None }));
            }
            body = body.get((8 + len).next_multiple_of(8)..).unwrap_or_default();
        }
        records
    }
}

/// Which bundles have come, as an honest receiver says it.
#[derive(Clone, Debug, Default)]
pub(super) struct Came {
    /// The first that has not.
    pub next: u32,
    beyond: BTreeSet<u32>,
}

impl Came {
    pub fn enter(&mut self, seq: u32) {
        if seq.wrapping_sub(self.next) < 1 << 31 {
            self.beyond.insert(seq);
        }
        while self.beyond.remove(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
    }

    pub fn words(&self) -> Vec<u64> {
        let mut words = vec![0; 4];
        for seq in &self.beyond {
            let bit = seq.wrapping_sub(self.next) as usize;
            if let Some(word) = words.get_mut(bit / 64) {
                *word |= 1 << (bit % 64);
            }
        }
        while words.last() == Some(&0) {
            words.pop();
        }
        words
    }
}
