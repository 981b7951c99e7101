//! What the two ranks of channels say to each other: little-endian words, one record a message (`docs/wire.md`, R-ACP-4 and following).

use crate::limits::SEGMENT_HERE_BYTES_MAX;
use cci::RegionHandle;

const WORD_BYTES: usize = 8;
/// Words before the data of a segment.
pub(super) const SEGMENT_WORDS: usize = 5;
/// Bytes before the data of a short message.
pub(super) const MESSAGE_HEAD_BYTES: usize = MESSAGE_WORDS * WORD_BYTES;
const MESSAGE_WORDS: usize = 5;
/// The kind of a short message. Those in between are of segmented buffers.
const MESSAGE: u64 = 12;
/// Words of the record that says how many segments were taken.
const TAKEN_WORDS: usize = 3;
/// Words of the record that shows a request's memory, of which the last four are a handle, and of the one that says that a message is there.
const REQUEST_WORDS: usize = 9;
const REQUEST_HEAD_WORDS: usize = 5;
const LANDED_WORDS: usize = 4;

/// Where a receiver's slots are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteSlots {
    pub count: u32,
    /// Bytes of a slot, with its header.
    pub bytes: u32,
    pub handle: RegionHandle,
}

/// One piece of a message, which fills a slot or a part of one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub channel: u64,
    /// How many segments of this channel came before.
    pub number: u64,
    /// Bytes of the whole message.
    pub message_bytes: u64,
    pub len_bytes: u32,
}

/// So many segments have left their slots.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub channel: u64,
    pub segments: u64,
}

/// A message that is one segment and travels with its record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Message<'a> {
    pub channel: u64,
    /// How many segments of this channel came before.
    pub number: u64,
    /// News of a channel in the other direction; of channel 0, which is none: there is nothing new.
    pub taken: Taken,
    pub data: &'a [u8],
}

/// Where the memory is of a request that waits for a message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestMemory {
    /// How many messages of the channel come before, modulo 2³².
    pub message: u32,
    pub handle: RegionHandle,
    pub offset: u64,
    pub len_bytes: u64,
}

/// One record. Channels are numbered for each pair of ranks and direction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// The sender has made this channel, and those before.
    Wanted { channel: u64 },
    /// The receiver has made it, too.
    Open { channel: u64, slots: RemoteSlots },
    /// A segment is there: in its slot, or here.
    Segment { segment: Segment, data: Option<&'a [u8]> },
    /// So many segments have left their slots.
    Taken { channel: u64, segments: u64 },
    /// The sender has freed the channel; so many segments were sent.
    End { channel: u64, segments: u64 },
    /// The sender asks to be shown the memory of the next requests.
    Asked { channel: u64 },
    /// A request waits, and its message may be written there.
    Request { channel: u64, memory: RequestMemory },
    /// A message is in the memory of its request, as the segment of this number.
    Landed { channel: u64, number: u64, message_bytes: u64 },
}

//= wire.md R-ACP-4
/// Words of a segment's record; its data follows, if it has any here.
pub(super) fn segment_words(segment: &Segment, is_here: bool) -> [u8; SEGMENT_WORDS * WORD_BYTES] {
    let kind = if is_here { 4 } else { 3 };
    let Segment { channel, number, message_bytes, len_bytes } = *segment;
    let mut bytes = [0; SEGMENT_WORDS * WORD_BYTES];
    let words = [kind, channel, number, message_bytes, len_bytes.into()];
    for (to, word) in bytes.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    bytes
}

//= wire.md R-ACP-4
/// The record that says that so many segments have left their slots.
pub(super) fn taken(channel: u64, segments: u64) -> [u8; TAKEN_WORDS * WORD_BYTES] {
    let mut bytes = [0; TAKEN_WORDS * WORD_BYTES];
    for (to, word) in bytes.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip([5, channel, segments]) {
        *to = word.to_le_bytes();
    }
    bytes
}

//= wire.md R-ACP-8
/// The record that shows a request's memory.
pub(super) fn request(channel: u64, memory: &RequestMemory) -> [u8; REQUEST_WORDS * WORD_BYTES] {
    let mut bytes = [0; REQUEST_WORDS * WORD_BYTES];
    let &RequestMemory { message, handle, offset, len_bytes } = memory;
    let words = [14, channel, message.into(), offset, len_bytes];
    let (head, rest) = bytes.split_at_mut(REQUEST_HEAD_WORDS * WORD_BYTES);
    for (to, word) in head.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    rest.copy_from_slice(&handle.to_bytes());
    bytes
}

//= wire.md R-ACP-8
/// The record that says that a message is in the memory of its request.
pub(super) fn landed(channel: u64, number: u64, message_bytes: u64) -> [u8; LANDED_WORDS * WORD_BYTES] {
    let mut bytes = [0; LANDED_WORDS * WORD_BYTES];
    let words = [15, channel, number, message_bytes];
    for (to, word) in bytes.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    bytes
}

//= wire.md R-ACP-4
/// The beginning of a short message's record; its data follows.
#[inline]
pub(super) fn message_head(channel: u64, number: u64, taken: Taken) -> [u8; MESSAGE_HEAD_BYTES] {
    let mut bytes = [0; MESSAGE_HEAD_BYTES];
    let words = [MESSAGE, channel, number, taken.channel, taken.segments];
    for (to, word) in bytes.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    bytes
}

impl<'a> Message<'a> {
    /// None: it is another record.
    #[inline]
    pub fn decode(bytes: &'a [u8]) -> Option<Message<'a>> {
        let (head, data) = bytes.split_first_chunk::<MESSAGE_HEAD_BYTES>()?;
        let [kind, channel, number, taken_channel, segments] = *head.as_chunks::<WORD_BYTES>().0 else {
            return None;
        };
        if u64::from_le_bytes(kind) != MESSAGE || data.len() > SEGMENT_HERE_BYTES_MAX {
            return None;
        }
        let taken =
            Taken { channel: u64::from_le_bytes(taken_channel), segments: u64::from_le_bytes(segments) };
        let (channel, number) = (u64::from_le_bytes(channel), u64::from_le_bytes(number));
        Some(Message { channel, number, taken, data })
    }

    #[inline]
    pub fn segment(&self) -> Segment {
        Segment {
            channel: self.channel,
            number: self.number,
            message_bytes: self.data.len() as u64,
            len_bytes: self.data.len() as u32,
        }
    }
}

impl<'a> Record<'a> {
    //= wire.md R-ACP-4
    pub fn encode(&self) -> Vec<u8> {
        let words =
            |words: &[u64]| words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect::<Vec<u8>>();
        match self {
            Record::Wanted { channel } => words(&[1, *channel]),
            Record::Open { channel, slots } => {
                let shape = u64::from(slots.count) << 32 | u64::from(slots.bytes);
                [&words(&[2, *channel, shape])[..], &slots.handle.to_bytes()].concat()
            }
            Record::Segment { segment, data } => {
                [&segment_words(segment, data.is_some())[..], data.unwrap_or_default()].concat()
            }
            Record::Taken { channel, segments } => taken(*channel, *segments).to_vec(),
            Record::End { channel, segments } => words(&[6, *channel, *segments]),
            Record::Asked { channel } => words(&[13, *channel]),
            Record::Request { channel, memory } => request(*channel, memory).to_vec(),
            Record::Landed { channel, number, message_bytes } => {
                landed(*channel, *number, *message_bytes).to_vec()
            }
        }
    }

    /// The channel that it is about.
    pub fn channel(&self) -> u64 {
        match self {
            Record::Segment { segment, .. } => segment.channel,
            Record::Wanted { channel }
            | Record::Open { channel, .. }
            | Record::Taken { channel, .. }
            | Record::End { channel, .. }
            | Record::Asked { channel }
            | Record::Request { channel, .. }
            | Record::Landed { channel, .. } => *channel,
        }
    }

    //= wire.md R-ACP-8
    /// What is said for each message that is placed directly. None: it is another record.
    #[inline]
    pub fn decode_placement(bytes: &'a [u8]) -> Option<Record<'a>> {
        let word = |at: usize| {
            let bytes = bytes.get(at * WORD_BYTES..)?.first_chunk::<WORD_BYTES>()?;
            Some(u64::from_le_bytes(*bytes))
        };
        match (word(0)?, bytes.len() / WORD_BYTES, bytes.len() % WORD_BYTES) {
            (14, REQUEST_WORDS, 0) => {
                let message = u32::try_from(word(2)?).ok()?;
                let handle = RegionHandle::from_message(bytes.get(REQUEST_HEAD_WORDS * WORD_BYTES..)?)?;
                let (offset, len_bytes) = (word(3)?, word(4)?);
                let memory = RequestMemory { message, handle, offset, len_bytes };
                Some(Record::Request { channel: word(1)?, memory })
            }
            (15, LANDED_WORDS, 0) => {
                Some(Record::Landed { channel: word(1)?, number: word(2)?, message_bytes: word(3)? })
            }
            _ => None,
        }
    }

    /// None for what no process of this version sends.
    pub fn decode(bytes: &'a [u8]) -> Option<Record<'a>> {
        let word = |at: usize| {
            let bytes = bytes.get(at * WORD_BYTES..)?.first_chunk::<WORD_BYTES>()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let is_long = |words: usize| bytes.len() == words * WORD_BYTES;
        let channel = word(1)?;
        match word(0)? {
            1 if is_long(2) => Some(Record::Wanted { channel }),
            2 if is_long(7) => {
                let shape = word(2)?;
                let handle = RegionHandle::from_message(bytes.get(3 * WORD_BYTES..)?)?;
                let slots = RemoteSlots { count: (shape >> 32) as u32, bytes: shape as u32, handle };
                Some(Record::Open { channel, slots })
            }
            kind @ 3..=4 => {
                let (number, message_bytes) = (word(2)?, word(3)?);
                let len_bytes = u32::try_from(word(4)?).ok()?;
                let rest = bytes.get(SEGMENT_WORDS * WORD_BYTES..)?;
                let here_bytes = if kind == 4 { len_bytes as usize } else { 0 };
                let segment = Segment { channel, number, message_bytes, len_bytes };
                (rest.len() == here_bytes)
                    .then_some(Record::Segment { segment, data: (kind == 4).then_some(rest) })
            }
            5 if is_long(3) => Some(Record::Taken { channel, segments: word(2)? }),
            6 if is_long(3) => Some(Record::End { channel, segments: word(2)? }),
            13 if is_long(2) => Some(Record::Asked { channel }),
            14..=15 => Record::decode_placement(bytes),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_are_decoded_as_they_were(
            words in any::<[u64; 3]>(),
            shape in any::<[u32; 2]>(),
            handle in any::<[u8; 32]>(),
            data in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let [channel, number, message_bytes] = words;
            let slots = RemoteSlots { count: shape[0], bytes: shape[1], handle: RegionHandle::from_bytes(handle) };
            let here = Segment { channel, number, message_bytes, len_bytes: data.len() as u32 };
            for record in [
                Record::Wanted { channel },
                Record::Open { channel, slots },
                Record::Segment { segment: here, data: Some(&data) },
                Record::Segment { segment: Segment { len_bytes: shape[0], ..here }, data: None },
                Record::Taken { channel, segments: number },
                Record::End { channel, segments: number },
                Record::Asked { channel },
                Record::Request { channel, memory: RequestMemory { message: shape[0], handle: slots.handle, offset: number, len_bytes: message_bytes } },
                Record::Landed { channel, number, message_bytes },
            ] {
                let bytes = record.encode();
                prop_assert_eq!(Record::decode(&bytes), Some(record));
                prop_assert_eq!(Record::decode(&bytes[..bytes.len() - 1]), None);
            }
        }

        #[test]
        fn short_messages_are_decoded_as_they_were(
            words in any::<[u64; 4]>(),
            data in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let [channel, number, taken_channel, segments] = words;
            let taken = Taken { channel: taken_channel, segments };
            let bytes = [&message_head(channel, number, taken)[..], &data].concat();
            prop_assert_eq!(Message::decode(&bytes), Some(Message { channel, number, taken, data: &data }));
            prop_assert_eq!(Record::decode(&bytes), None);
            prop_assert_eq!(Message::decode(&bytes[..MESSAGE_HEAD_BYTES - 1]), None);
            let long = [&bytes[..], &[0; SEGMENT_HERE_BYTES_MAX + 1]].concat();
            prop_assert_eq!(Message::decode(&long), None);
            let other = [&[4][..], &bytes[1..]].concat();
            prop_assert_eq!(Message::decode(&other), None);
        }

        #[test]
        fn what_is_decoded_encodes_to_the_same(kind in 0_u64..17, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let bytes = [&kind.to_le_bytes()[..], &bytes].concat();
            if let Some(record) = Record::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }
}
