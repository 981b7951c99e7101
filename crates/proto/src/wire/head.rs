//! The header of every datagram of an established connection.

use super::{Holds, Reader, Summary, first_byte, record, types};
use crate::limits::{HEADER_BYTES, PART_HEAD_BYTES, PARTS_MAX, SACK_WORDS_MAX};
use crate::rma::{self, BulkRecord};
use crate::{PeerFault, Seq};

/// Flags of an established connection's datagram.
pub(crate) mod flags {
    /// The sender of this datagram refuses data until it says otherwise (receiver not ready).
    pub const RNR: u8 = 1;
    /// The sender asks for an answer at once.
    pub const PROBE: u8 = 2;
    /// The sender of this datagram has closed. It still delivers what it has received, and takes no more.
    pub const CLOSING: u8 = 4;
    /// The body of this DATA is a part of a bundle.
    pub const PART: u8 = 8;
    pub const ALL: u8 = RNR | PROBE | CLOSING | PART;
}

/// The types that share this header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Data = types::DATA,
    Ack = types::ACK,
    Ping = types::PING,
    Close = types::CLOSE,
    CloseAck = types::CLOSE_ACK,
    Path = types::PATH,
}

impl Kind {
    pub(super) fn from_wire(number: u8) -> Option<Kind> {
        Some(match number {
            types::DATA => Kind::Data,
            types::ACK => Kind::Ack,
            types::PING => Kind::Ping,
            types::CLOSE => Kind::Close,
            types::CLOSE_ACK => Kind::CloseAck,
            types::PATH => Kind::Path,
            _ => return None,
        })
    }
}

/// The header of every datagram of an established connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: Kind,
    pub flags: u8,
    /// The receiver's table index and generation.
    pub index: u32,
    pub generation: u32,
    /// The sender's table index.
    pub source_index: u32,
    /// Proof that the connection was established; the receiver chose it.
    pub nonce: u64,
    /// In DATA the bundle's number; in all else the number that the next bundle will have.
    pub seq: Seq,
    /// Every bundle before this one has been stored.
    pub ack: Seq,
    pub timestamp: u32,
    /// The timestamp that was received last, plus the time that has passed since.
    pub echo: u32,
    /// What may be in flight to the sender of this datagram, in KiB.
    pub window_kib: u16,
    /// The receiver-not-ready epoch in which this data is sent.
    pub epoch: u16,
    /// The epoch in which the sender of this datagram takes data.
    pub epoch_ack: u16,
}

/// A selective acknowledgement: bit `i` says that bundle `ack + i` has been stored.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sack {
    pub words: [u64; SACK_WORDS_MAX],
    /// How many of the words are in the datagram.
    pub len: u8,
}

impl Sack {
    pub(crate) fn bytes(&self) -> usize {
        usize::from(self.len) * 8
    }
}

//= wire.md R-PATH-1
/// The body of a PATH: a question about the path that it takes, an answer to the peer's question, or both.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathBody {
    /// The question, which is to be sent back on the path that it came by; 0: nothing is asked.
    pub challenge: u64,
    /// The question that the peer asked about this path, sent back; 0: it asked nothing.
    pub answer: u64,
}

impl PathBody {
    pub const BYTES: usize = 16;

    pub(crate) fn parse(body: &[u8]) -> Result<PathBody, PeerFault> {
        let mut read = Reader(body);
        let body = PathBody { challenge: read.u64()?, answer: read.u64()? };
        if body.challenge == 0 && body.answer == 0 { Err(PeerFault::Field) } else { Ok(body) }
    }
}

//= wire.md R-MTU-3
/// What stands in a part of a bundle in front of its data.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartHead {
    /// Its number among the parts, from 0.
    pub number: u16,
    /// The length of every part but the last, in bytes.
    pub stride_bytes: u16,
    /// The length of the whole bundle, in bytes.
    pub whole_bytes: u16,
}

impl PartHead {
    /// How many parts the bundle has, which is at least one.
    pub fn count(self) -> u32 {
        u32::from(self.whole_bytes.div_ceil(self.stride_bytes.max(1)))
    }

    /// The range of the bundle that the part covers.
    fn range(self) -> std::ops::Range<usize> {
        let start = usize::from(self.number) * usize::from(self.stride_bytes);
        start..(start + usize::from(self.stride_bytes)).min(self.whole_bytes.into())
    }

    /// Parses a part and its data. What lies behind fills the datagram.
    pub(crate) fn parse(body: &[u8]) -> Result<(PartHead, &[u8]), PeerFault> {
        let mut read = Reader(body);
        let bytes = |units: u16| units.checked_mul(8).filter(|&bytes| bytes != 0).ok_or(PeerFault::Field);
        let (number, stride_bytes) = (read.u16()?, bytes(read.u16()?)?);
        let part = PartHead { number, stride_bytes, whole_bytes: bytes(read.u16()?)? };
        if read.u16()? != 0 || part.count() > PARTS_MAX as u32 || u32::from(number) >= part.count() {
            return Err(PeerFault::Field);
        }
        let data = body.get(PART_HEAD_BYTES..PART_HEAD_BYTES + part.range().len()).ok_or(PeerFault::Short)?;
        Ok((part, data))
    }

    /// Writes a part of `whole`, filled up with zeros; returns the length of the body.
    pub(crate) fn emit(self, whole: &[u8], out: &mut [u8]) -> usize {
        let Some(data) = whole.get(self.range()) else { return 0 };
        let Some((head, tail)) = out.split_first_chunk_mut::<PART_HEAD_BYTES>() else { return 0 };
        head[..2].copy_from_slice(&self.number.to_le_bytes());
        head[2..4].copy_from_slice(&(self.stride_bytes / 8).to_le_bytes());
        head[4..6].copy_from_slice(&(self.whole_bytes / 8).to_le_bytes());
        head[6..].fill(0);
        let Some((slot, fill)) = tail.split_at_mut_checked(data.len()) else { return 0 };
        slot.copy_from_slice(data);
        fill.fill(0);
        out.len()
    }
}

impl Head {
    /// Writes a PATH; returns its length.
    pub(crate) fn emit_path(&self, body: PathBody, out: &mut [u8]) -> usize {
        let at = self.emit(&Sack::default(), PathBody::BYTES, out);
        let Some(slot) = out.get_mut(at..at + PathBody::BYTES) else { return 0 };
        slot[..8].copy_from_slice(&body.challenge.to_le_bytes());
        slot[8..].copy_from_slice(&body.answer.to_le_bytes());
        at + PathBody::BYTES
    }

    #[inline]
    pub(super) fn parse(kind: Kind, datagram: &[u8]) -> Result<(Head, Sack, Holds, &[u8]), PeerFault> {
        let Some((fixed, mut tail)) = datagram.split_first_chunk::<HEADER_BYTES>() else {
            return Err(PeerFault::Short);
        };
        let mut read = Reader(fixed);
        let [_, flags, sack_len, zero] = read.bytes()?;
        if flags & !flags::ALL != 0 || zero != 0 || usize::from(sack_len) > SACK_WORDS_MAX {
            return Err(PeerFault::Field);
        }
        let (head, body_bytes) = Head::read(kind, flags, &mut read)?;
        let mut sack = Sack { words: [0; SACK_WORDS_MAX], len: sack_len };
        for word in sack.words.iter_mut().take(usize::from(sack_len)) {
            let (bytes, after) = tail.split_first_chunk::<8>().ok_or(PeerFault::Short)?;
            *word = u64::from_le_bytes(*bytes);
            tail = after;
        }
        //= wire.md R-GEN-3
        // Ethernet pads short frames, so bytes after the body are not an error.
        let body = tail.get(..body_bytes).ok_or(PeerFault::Short)?;
        let holds = if flags & flags::PART != 0 {
            // What it holds is checked once the bundle is whole.
            if kind == Kind::Data { Holds::Part } else { return Err(PeerFault::Field) }
        } else if kind == Kind::Data {
            record::check(body)?
        } else if body.is_empty() || (kind == Kind::Path && body.len() == PathBody::BYTES) {
            Holds::Messages(Summary::default())
        } else {
            return Err(PeerFault::Field);
        };
        Ok((head, sack, holds, body))
    }

    /// Reads what follows the first word; returns the length of the body in bytes, too.
    #[inline(always)]
    fn read(kind: Kind, flags: u8, read: &mut Reader<'_>) -> Result<(Head, usize), PeerFault> {
        let head = Head {
            kind,
            flags,
            index: read.u32()?,
            generation: read.u32()?,
            source_index: read.u32()?,
            nonce: read.u64()?,
            seq: Seq(read.u32()?),
            ack: Seq(read.u32()?),
            timestamp: read.u32()?,
            echo: read.u32()?,
            window_kib: read.u16()?,
            epoch: read.u16()?,
            epoch_ack: read.u16()?,
        };
        Ok((head, usize::from(read.u16()?) * 8))
    }

    /// Parses a DATA without flags and without a selective acknowledgement: its header and its body. `None`: it is something else, valid or
    /// not.
    #[inline(always)]
    fn parse_plain(datagram: &[u8]) -> Option<(Head, &[u8])> {
        let (fixed, body) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let mut read = Reader(fixed);
        if read.bytes() != Ok([first_byte(types::DATA), 0, 0, 0]) {
            return None;
        }
        let (head, body_bytes) = Head::read(Kind::Data, 0, &mut read).ok()?;
        (body.len() == body_bytes).then_some((head, body))
    }

    /// Parses a plain DATA that holds one message and nothing else: its header, its body and the message. `None`: it is something else, valid
    /// or not.
    #[inline(always)]
    pub(crate) fn parse_ordinary(datagram: &[u8]) -> Option<(Head, &[u8], &[u8])> {
        let (head, body) = Head::parse_plain(datagram)?;
        Some((head, body, record::only_message(body)?))
    }

    /// Whether the first record of a DATA has a kind that bulk data has.
    #[inline(always)]
    pub(crate) fn may_be_bulk(datagram: &[u8]) -> bool {
        datagram.get(HEADER_BYTES + 2).is_some_and(|&kind| rma::is_bulk_kind(kind))
    }

    /// Parses a plain DATA that holds data of a remote operation and nothing else: its header, its body and the record. `None`: it is something
    /// else, valid or not.
    #[inline(always)]
    pub(crate) fn parse_bulk(datagram: &[u8]) -> Option<(Head, &[u8], BulkRecord<'_>)> {
        let (head, body) = Head::parse_plain(datagram)?;
        Some((head, body, BulkRecord::parse(body)?))
    }

    /// Writes header and acknowledgement; the body, `body_bytes` long, follows at the returned offset.
    #[inline]
    pub(crate) fn emit(&self, sack: &Sack, body_bytes: usize, out: &mut [u8]) -> usize {
        debug_assert!(body_bytes.is_multiple_of(8), "bodies are whole records");
        let Some((fixed, tail)) = out.split_first_chunk_mut::<HEADER_BYTES>() else { return 0 };
        fixed[0] = first_byte(self.kind as u8);
        fixed[1] = self.flags;
        fixed[2] = sack.len;
        fixed[3] = 0;
        fixed[4..8].copy_from_slice(&self.index.to_le_bytes());
        fixed[8..12].copy_from_slice(&self.generation.to_le_bytes());
        fixed[12..16].copy_from_slice(&self.source_index.to_le_bytes());
        fixed[16..24].copy_from_slice(&self.nonce.to_le_bytes());
        fixed[24..28].copy_from_slice(&self.seq.0.to_le_bytes());
        fixed[28..32].copy_from_slice(&self.ack.0.to_le_bytes());
        fixed[32..36].copy_from_slice(&self.timestamp.to_le_bytes());
        fixed[36..40].copy_from_slice(&self.echo.to_le_bytes());
        fixed[40..42].copy_from_slice(&self.window_kib.to_le_bytes());
        fixed[42..44].copy_from_slice(&self.epoch.to_le_bytes());
        fixed[44..46].copy_from_slice(&self.epoch_ack.to_le_bytes());
        fixed[46..48].copy_from_slice(&((body_bytes / 8) as u16).to_le_bytes());
        for (word, slot) in sack.words.iter().zip(tail.chunks_exact_mut(8)).take(usize::from(sack.len)) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        HEADER_BYTES + sack.bytes()
    }
}
