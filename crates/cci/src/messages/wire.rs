//! What travels: every message of the endpoint begins with a head of eight bytes, which keeps what follows aligned. ADR 35 has the
//! layout.

use super::answer::Answer;
use crate::limits::LONG_SEGMENTS_MAX;
use crate::rma::{RegionHandle, Segment};

/// What the data of a connection request begins with.
pub const HELLO: [u8; 8] = *b"CCImsg\x01\0";
/// The length of a head.
pub const HEAD_BYTES: usize = 8;
/// The head of an ordinary message.
pub const MESSAGE_HEAD: [u8; HEAD_BYTES] = [KIND_MESSAGE, 0, 0, 0, 0, 0, 0, 0];

const KIND_MESSAGE: u8 = 1;
const KIND_OFFER: u8 = 2;
const KIND_ANSWER: u8 = 3;
const KIND_CANCEL: u8 = 4;
const KIND_PROGRESS: u8 = 5;

/// A segment: its handle, offset and length.
const SEGMENT_BYTES: usize = RegionHandle::BYTES + 16;
/// The longest frame without a message in it.
pub const CONTROL_BYTES_MAX: usize = HEAD_BYTES + LONG_SEGMENTS_MAX * SEGMENT_BYTES;

/// Where the bytes of a long message are: one to four segments of the sender's regions, in order, none of them empty.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Source {
    segments: [Segment; LONG_SEGMENTS_MAX],
    count: usize,
    len_bytes: u64,
}

impl Source {
    /// `None` if there are no segments or too many, if one is empty, or if together they are longer than can be counted.
    pub fn new(segments: &[Segment]) -> Option<Source> {
        let mut all =
            [Segment::new(RegionHandle::from_bytes([0; RegionHandle::BYTES]), 0, 0); LONG_SEGMENTS_MAX];
        all.get_mut(..segments.len())?.copy_from_slice(segments);
        let mut len_bytes = 0_u64;
        for segment in segments {
            if segment.len_bytes == 0 || segment.address.offset.checked_add(segment.len_bytes).is_none() {
                return None;
            }
            len_bytes = len_bytes.checked_add(segment.len_bytes)?;
        }
        (len_bytes > 0).then_some(Source { segments: all, count: segments.len(), len_bytes })
    }

    /// The length of the message.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// All segments.
    pub fn segments(&self) -> &[Segment] {
        self.segments.get(..self.count).unwrap_or(&[])
    }

    /// The segments of a part of the message, and how many they are.
    pub fn part(&self, mut offset: u64, mut len_bytes: u64) -> ([Segment; LONG_SEGMENTS_MAX], usize) {
        let (mut part, mut count) = (self.segments, 0);
        for segment in self.segments() {
            if offset >= segment.len_bytes {
                offset -= segment.len_bytes;
                continue;
            }
            let taken = len_bytes.min(segment.len_bytes - offset);
            let Some(place) = part.get_mut(count).filter(|_| taken > 0) else { break };
            *place = Segment::new(segment.address.handle, segment.address.offset + offset, taken);
            (count, len_bytes, offset) = (count + 1, len_bytes - taken, 0);
        }
        (part, count)
    }
}

/// One message of the endpoint, taken apart.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// An ordinary message: what follows the head.
    Message,
    /// A long message can be fetched.
    Offer { number: u32, source: Source },
    /// What became of a long message.
    Answer { number: u32, answer: Answer },
    /// The sender of a long message has taken it back.
    Cancel { number: u32 },
    /// How many bytes of a long message have been fetched.
    Progress { number: u32, moved_bytes: u64 },
}

impl Frame {
    /// Whether a message is an ordinary one, which most are.
    #[inline]
    pub fn is_message(bytes: &[u8]) -> bool {
        bytes.first_chunk() == Some(&MESSAGE_HEAD)
    }

    /// Takes a message apart. `None` if no honest peer sends it.
    pub fn parse(bytes: &[u8]) -> Option<Frame> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [kind, detail, 0, 0, n0, n1, n2, n3] = *head else { return None };
        let number = u32::from_le_bytes([n0, n1, n2, n3]);
        match (kind, detail) {
            (KIND_MESSAGE, 0) if number == 0 => Some(Frame::Message),
            (KIND_OFFER, count) => Some(Frame::Offer { number, source: parse_source(count, rest)? }),
            (KIND_ANSWER, code) => {
                let argument = u64::from_le_bytes(*exactly(rest)?);
                Some(Frame::Answer { number, answer: Answer::from_wire(code, argument)? })
            }
            (KIND_CANCEL, 0) if rest.is_empty() => Some(Frame::Cancel { number }),
            (KIND_PROGRESS, 0) => {
                Some(Frame::Progress { number, moved_bytes: u64::from_le_bytes(*exactly(rest)?) })
            }
            _ => None,
        }
    }

    /// Writes the frame, and returns it.
    pub fn emit<'a>(&self, out: &'a mut [u8; CONTROL_BYTES_MAX]) -> &'a [u8] {
        let (kind, detail, number) = match *self {
            Frame::Message => (KIND_MESSAGE, 0, 0),
            Frame::Offer { number, source } => (KIND_OFFER, source.count as u8, number),
            Frame::Answer { number, answer } => (KIND_ANSWER, answer.to_wire().0, number),
            Frame::Cancel { number } => (KIND_CANCEL, 0, number),
            Frame::Progress { number, .. } => (KIND_PROGRESS, 0, number),
        };
        let [n0, n1, n2, n3] = number.to_le_bytes();
        let mut writer = Writer { out, len: 0 };
        writer.put(&[kind, detail, 0, 0, n0, n1, n2, n3]);
        match self {
            Frame::Message | Frame::Cancel { .. } => {}
            Frame::Offer { source, .. } => {
                for segment in source.segments() {
                    writer.put(&segment.address.handle.to_bytes());
                    writer.put(&segment.address.offset.to_le_bytes());
                    writer.put(&segment.len_bytes.to_le_bytes());
                }
            }
            Frame::Answer { answer, .. } => writer.put(&answer.to_wire().1.to_le_bytes()),
            Frame::Progress { moved_bytes, .. } => writer.put(&moved_bytes.to_le_bytes()),
        }
        let Writer { out, len } = writer;
        out.get(..len).unwrap_or(&[])
    }
}

struct Writer<'a> {
    out: &'a mut [u8; CONTROL_BYTES_MAX],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        if let Some(place) = self.out.get_mut(self.len..self.len + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }
}

fn parse_source(count: u8, bytes: &[u8]) -> Option<Source> {
    let (chunks, []) = bytes.as_chunks::<SEGMENT_BYTES>() else { return None };
    if chunks.len() != usize::from(count) || chunks.len() > LONG_SEGMENTS_MAX {
        return None;
    }
    let mut segments =
        [Segment::new(RegionHandle::from_bytes([0; RegionHandle::BYTES]), 0, 0); LONG_SEGMENTS_MAX];
    for (segment, chunk) in segments.iter_mut().zip(chunks) {
        let (handle, rest) = chunk.split_first_chunk::<{ RegionHandle::BYTES }>()?;
        let (offset, len_bytes) = rest.split_first_chunk::<8>()?;
        let len_bytes = u64::from_le_bytes(*exactly(len_bytes)?);
        *segment = Segment::new(RegionHandle::from_bytes(*handle), u64::from_le_bytes(*offset), len_bytes);
    }
    Source::new(segments.get(..chunks.len())?)
}

/// Bytes that must be just as many.
fn exactly<const N: usize>(bytes: &[u8]) -> Option<&[u8; N]> {
    bytes.first_chunk().filter(|_| bytes.len() == N)
}
