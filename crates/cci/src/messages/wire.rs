//! What travels: every message of the endpoint begins with a head of eight bytes, which keeps what follows aligned. ADR 35 has the
//! layout.

use super::answer::Answer;
use crate::limits::{CALLS_ALL_MAX, LONG_SEGMENTS_MAX};
use crate::rma::{RegionHandle, Segment};
use cci_memory::slab::Key;

/// What the data of a connection request begins with.
pub const HELLO: [u8; 8] = *b"CCImsg\x02\0";
/// The length of a head.
pub const HEAD_BYTES: usize = 8;
/// The head of an ordinary message.
pub const MESSAGE_HEAD: [u8; HEAD_BYTES] = [KIND_MESSAGE, 0, 0, 0, 0, 0, 0, 0];

const KIND_MESSAGE: u8 = 1;
const KIND_OFFER: u8 = 2;
const KIND_ANSWER: u8 = 3;
const KIND_CANCEL: u8 = 4;
const KIND_PROGRESS: u8 = 5;
const KIND_CALL: u8 = 6;

/// The details of [`KIND_CALL`]; the first three are also the purposes of offers.
const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const ERROR: u8 = 3;
const GIVE_UP: u8 = 4;
const NO_REPLY: u8 = 5;
/// In an offer, the purpose stands above the number of segments.
const PURPOSE_SHIFT: u32 = 4;
/// What stands before the bytes of an error: its code, and four zero bytes.
const CODE_BYTES: usize = 8;

/// A segment: its handle, offset and length.
const SEGMENT_BYTES: usize = RegionHandle::BYTES + 16;
/// The longest frame without a message in it.
pub const CONTROL_BYTES_MAX: usize = HEAD_BYTES + 8 + CODE_BYTES + LONG_SEGMENTS_MAX * SEGMENT_BYTES;

/// The number that a client gives a call. The server returns it, and knows nothing of what is in it.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallNumber {
    index: u32,
    tag: u16,
}

impl CallNumber {
    /// The number of a message that belongs to no call.
    pub const NONE: CallNumber = CallNumber { index: 0, tag: 0 };

    /// `None`: no honest client has as many calls.
    pub fn new(index: u32, tag: u16) -> Option<CallNumber> {
        (index < CALLS_ALL_MAX).then_some(CallNumber { index, tag })
    }

    /// The number of a call by its place in the client's table.
    pub fn of(key: Key) -> CallNumber {
        CallNumber { index: key.index, tag: key.generation as u16 }
    }

    /// Whether it is the number of the call with this key, whose index is this number's.
    pub fn is_of(self, key: Key) -> bool {
        self == CallNumber::of(key)
    }

    /// The place in the client's table.
    pub fn index(self) -> u32 {
        self.index
    }

    /// The number as a key, to be kept in contexts.
    pub fn to_key(self) -> Key {
        Key { index: self.index, generation: self.tag.into() }
    }

    /// The number of a key that [`CallNumber::to_key`] has made.
    pub fn from_key(key: Key) -> CallNumber {
        CallNumber::of(key)
    }
}

/// What a message is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be given to the program as it is.
    Message,
    /// To be answered.
    Request(CallNumber),
    /// The answer.
    Reply(CallNumber),
    /// The answer, which is an error of the server's program.
    Error { call: CallNumber, code: u32 },
}

impl Purpose {
    /// The call that it belongs to.
    pub fn call(self) -> Option<CallNumber> {
        match self {
            Purpose::Message => None,
            Purpose::Request(call) | Purpose::Reply(call) | Purpose::Error { call, .. } => Some(call),
        }
    }

    /// Where the bytes of the program begin, in one message of the endpoint.
    #[inline]
    pub fn head_bytes(self) -> usize {
        match self {
            Purpose::Error { .. } => HEAD_BYTES + CODE_BYTES,
            _ => HEAD_BYTES,
        }
    }

    /// What stands before the bytes of the program, in one message of the endpoint: so many bytes of the array.
    #[inline]
    pub fn head(self) -> ([u8; HEAD_BYTES + CODE_BYTES], usize) {
        let mut head = [0; HEAD_BYTES + CODE_BYTES];
        let [kind, detail, t0, t1, n0, n1, n2, n3, c0, c1, c2, c3, ..] = &mut head;
        *kind = KIND_MESSAGE;
        if self.call().is_some() {
            [*kind, *detail, *t0, *t1, *n0, *n1, *n2, *n3] = self.call_head();
        }
        if let Purpose::Error { code, .. } = self {
            [*c0, *c1, *c2, *c3] = code.to_le_bytes();
        }
        (head, self.head_bytes())
    }

    /// What stands before the bytes of a request, or of a reply, in one message of the endpoint.
    #[inline]
    pub fn call_head(self) -> [u8; HEAD_BYTES] {
        let CallNumber { index, tag } = self.call().unwrap_or(CallNumber::NONE);
        let ([t0, t1], [n0, n1, n2, n3]) = (tag.to_le_bytes(), index.to_le_bytes());
        [KIND_CALL, self.to_wire(), t0, t1, n0, n1, n2, n3]
    }

    fn to_wire(self) -> u8 {
        match self {
            Purpose::Message => 0,
            Purpose::Request(_) => REQUEST,
            Purpose::Reply(_) => REPLY,
            Purpose::Error { .. } => ERROR,
        }
    }

    /// Reads the purpose of a number, and what stands before the bytes of an error. Returns what is behind that.
    fn parse(number: u8, call: CallNumber, rest: &[u8]) -> Option<(Purpose, &[u8])> {
        match number {
            REQUEST => Some((Purpose::Request(call), rest)),
            REPLY => Some((Purpose::Reply(call), rest)),
            ERROR => {
                let ([c0, c1, c2, c3, 0, 0, 0, 0], rest) = rest.split_first_chunk::<CODE_BYTES>()? else {
                    return None;
                };
                Some((Purpose::Error { call, code: u32::from_le_bytes([*c0, *c1, *c2, *c3]) }, rest))
            }
            _ => None,
        }
    }
}

/// Why a request gets no answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NoReply {
    /// The server's program has dropped it.
    Dropped,
    /// The answer could not be delivered.
    Lost,
    /// The client has given it up.
    GivenUp,
}

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
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for a call only, and a box would be an allocation for each offer"
)]
pub enum Frame {
    /// A message: what follows the head.
    Message(Purpose),
    /// A long message can be fetched.
    Offer { number: u32, purpose: Purpose, source: Source },
    /// What became of a long message.
    Answer { number: u32, answer: Answer },
    /// The sender of a long message has taken it back.
    Cancel { number: u32 },
    /// How many bytes of a long message have been fetched.
    Progress { number: u32, moved_bytes: u64 },
    /// The client does not wait for the answer to a request any more.
    GiveUp { call: CallNumber },
    /// A request gets no answer.
    NoReply { call: CallNumber, why: NoReply },
}

impl Frame {
    /// Whether a message is an ordinary one, which most are.
    #[inline]
    pub fn is_message(bytes: &[u8]) -> bool {
        bytes.first_chunk() == Some(&MESSAGE_HEAD)
    }

    /// What a message is for that is a request, or a reply, in one message of the endpoint. `None`: [`Frame::parse`] knows.
    #[inline]
    pub fn call_purpose(bytes: &[u8]) -> Option<Purpose> {
        let [KIND_CALL, detail @ (REQUEST | REPLY), t0, t1, n0, n1, n2, n3] = *bytes.first_chunk()? else {
            return None;
        };
        let call = CallNumber::new(u32::from_le_bytes([n0, n1, n2, n3]), u16::from_le_bytes([t0, t1]))?;
        Some(if detail == REQUEST { Purpose::Request(call) } else { Purpose::Reply(call) })
    }

    /// Takes a message apart. `None` if no honest peer sends it.
    pub fn parse(bytes: &[u8]) -> Option<Frame> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [kind, detail, t0, t1, n0, n1, n2, n3] = *head;
        let (number, tag) = (u32::from_le_bytes([n0, n1, n2, n3]), u16::from_le_bytes([t0, t1]));
        if kind == KIND_CALL {
            return Frame::parse_call(detail, CallNumber::new(number, tag)?, rest);
        }
        match (kind, detail) {
            _ if tag != 0 => None,
            (KIND_MESSAGE, 0) if number == 0 => Some(Frame::Message(Purpose::Message)),
            (KIND_OFFER, detail) => {
                let (purpose, rest) = parse_purpose(detail >> PURPOSE_SHIFT, rest)?;
                let source = parse_source(detail & ((1 << PURPOSE_SHIFT) - 1), rest)?;
                Some(Frame::Offer { number, purpose, source })
            }
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

    fn parse_call(detail: u8, call: CallNumber, rest: &[u8]) -> Option<Frame> {
        match detail {
            GIVE_UP if rest.is_empty() => Some(Frame::GiveUp { call }),
            NO_REPLY => {
                let why = match u64::from_le_bytes(*exactly(rest)?) {
                    0 => NoReply::Dropped,
                    1 => NoReply::Lost,
                    2 => NoReply::GivenUp,
                    _ => return None,
                };
                Some(Frame::NoReply { call, why })
            }
            _ => Some(Frame::Message(Purpose::parse(detail, call, rest)?.0)),
        }
    }

    /// Writes the frame, and returns it; of a message, what stands before the program's bytes.
    pub fn emit<'a>(&self, out: &'a mut [u8; CONTROL_BYTES_MAX]) -> &'a [u8] {
        let (kind, detail, number, tag) = match *self {
            Frame::Message(purpose) => {
                let (head, len) = purpose.head();
                let mut writer = Writer { out, len: 0 };
                writer.put(head.get(..len).unwrap_or(&[]));
                let Writer { out, len } = writer;
                return out.get(..len).unwrap_or(&[]);
            }
            Frame::Offer { number, purpose, source } => {
                (KIND_OFFER, source.count as u8 | purpose.to_wire() << PURPOSE_SHIFT, number, 0)
            }
            Frame::Answer { number, answer } => (KIND_ANSWER, answer.to_wire().0, number, 0),
            Frame::Cancel { number } => (KIND_CANCEL, 0, number, 0),
            Frame::Progress { number, .. } => (KIND_PROGRESS, 0, number, 0),
            Frame::GiveUp { call } => (KIND_CALL, GIVE_UP, call.index, call.tag),
            Frame::NoReply { call, .. } => (KIND_CALL, NO_REPLY, call.index, call.tag),
        };
        let ([n0, n1, n2, n3], [t0, t1]) = (number.to_le_bytes(), tag.to_le_bytes());
        let mut writer = Writer { out, len: 0 };
        writer.put(&[kind, detail, t0, t1, n0, n1, n2, n3]);
        match self {
            Frame::Message(_) | Frame::Cancel { .. } | Frame::GiveUp { .. } => {}
            Frame::Offer { purpose, source, .. } => {
                if let Some(call) = purpose.call() {
                    writer.put(&(u64::from(call.index) | u64::from(call.tag) << 32).to_le_bytes());
                }
                writer.put_code(*purpose);
                for segment in source.segments() {
                    writer.put(&segment.address.handle.to_bytes());
                    writer.put(&segment.address.offset.to_le_bytes());
                    writer.put(&segment.len_bytes.to_le_bytes());
                }
            }
            Frame::Answer { answer, .. } => writer.put(&answer.to_wire().1.to_le_bytes()),
            Frame::Progress { moved_bytes, .. } => writer.put(&moved_bytes.to_le_bytes()),
            Frame::NoReply { why, .. } => {
                let why: u64 = match why {
                    NoReply::Dropped => 0,
                    NoReply::Lost => 1,
                    NoReply::GivenUp => 2,
                };
                writer.put(&why.to_le_bytes());
            }
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

    /// What stands before the bytes of an error.
    fn put_code(&mut self, purpose: Purpose) {
        if let Purpose::Error { code, .. } = purpose {
            self.put(&u64::from(code).to_le_bytes());
        }
    }
}

/// Reads the purpose of an offer. Returns what is behind it.
fn parse_purpose(number: u8, bytes: &[u8]) -> Option<(Purpose, &[u8])> {
    if number == 0 {
        return Some((Purpose::Message, bytes));
    }
    let ([i0, i1, i2, i3, t0, t1, 0, 0], rest) = bytes.split_first_chunk::<8>()? else { return None };
    let index = u32::from_le_bytes([*i0, *i1, *i2, *i3]);
    let call = CallNumber::new(index, u16::from_le_bytes([*t0, *t1]))?;
    Purpose::parse(number, call, rest)
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
