//! What the two ranks of channels say to each other: little-endian words, one record a message (`docs/wire.md`, R-ACP-4 and following).

use cci::RegionHandle;

const WORD_BYTES: usize = 8;
/// Words before the data of a segment.
pub(super) const SEGMENT_WORDS: usize = 5;
/// Words of the record that says how many segments were taken.
const TAKEN_WORDS: usize = 3;

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
        }
    }

    /// The channel that it is about.
    pub fn channel(&self) -> u64 {
        match self {
            Record::Segment { segment, .. } => segment.channel,
            Record::Wanted { channel }
            | Record::Open { channel, .. }
            | Record::Taken { channel, .. }
            | Record::End { channel, .. } => *channel,
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
            ] {
                let bytes = record.encode();
                prop_assert_eq!(Record::decode(&bytes), Some(record));
                prop_assert_eq!(Record::decode(&bytes[..bytes.len() - 1]), None);
            }
        }

        #[test]
        fn what_is_decoded_encodes_to_the_same(kind in 0_u64..8, bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let bytes = [&kind.to_le_bytes()[..], &bytes].concat();
            if let Some(record) = Record::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }
}
