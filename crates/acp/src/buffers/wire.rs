//! The records that the two ranks of a segmented buffer exchange: little-endian words, one record in each message
//! (`docs/wire.md`, R-ACP-7).

use cci::RegionHandle;
use std::ops::RangeInclusive;

const WORD_BYTES: usize = 8;
/// Words of a record that a segment is there.
const FILLED_WORDS: usize = 3;
/// Records of channels have other numbers.
const KINDS: RangeInclusive<u64> = 7..=11;

/// The place of the destination's segments.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteSegments {
    pub count: u64,
    /// Bytes of a segment.
    pub bytes: u64,
    pub handle: RegionHandle,
}

/// A record. Buffers are numbered for each pair of ranks and direction.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The source has made this buffer, and those before it.
    Wanted { buffer: u64 },
    /// The destination has made it as well.
    Open { buffer: u64, segments: RemoteSegments },
    /// The segment with this number, counted from 0, is in its place.
    Filled { buffer: u64, segment: u64 },
    /// This many segments are free again.
    Released { buffer: u64, segments: u64 },
    /// The source, or the destination, has disconnected the buffer.
    Closed { buffer: u64, is_by_source: bool },
}

/// Whether a message is a record of segmented buffers.
pub(crate) fn is_record(bytes: &[u8]) -> bool {
    bytes.first_chunk::<WORD_BYTES>().is_some_and(|kind| KINDS.contains(&u64::from_le_bytes(*kind)))
}

//= wire.md R-ACP-7
/// The record that says that a segment is there.
pub(super) fn filled(buffer: u64, segment: u64) -> [u8; FILLED_WORDS * WORD_BYTES] {
    let mut bytes = [0; FILLED_WORDS * WORD_BYTES];
    for (to, word) in bytes.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip([9, buffer, segment]) {
        *to = word.to_le_bytes();
    }
    bytes
}

impl Record {
    //= wire.md R-ACP-7
    pub fn encode(&self) -> Vec<u8> {
        let words =
            |words: &[u64]| words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect::<Vec<u8>>();
        match *self {
            Record::Wanted { buffer } => words(&[7, buffer]),
            Record::Open { buffer, segments } => {
                [&words(&[8, buffer, segments.count, segments.bytes])[..], &segments.handle.to_bytes()]
                    .concat()
            }
            Record::Filled { buffer, segment } => filled(buffer, segment).to_vec(),
            Record::Released { buffer, segments } => words(&[10, buffer, segments]),
            Record::Closed { buffer, is_by_source } => words(&[11, buffer, is_by_source.into()]),
        }
    }

    /// The buffer of the record.
    pub fn buffer(&self) -> u64 {
        match *self {
            Record::Wanted { buffer }
            | Record::Open { buffer, .. }
            | Record::Filled { buffer, .. }
            | Record::Released { buffer, .. }
            | Record::Closed { buffer, .. } => buffer,
        }
    }

    /// Parses a record; `None` for one that no process of this version sends.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
        let word = |at: usize| words.get(at).copied().map(u64::from_le_bytes);
        if !rest.is_empty() {
            return None;
        }
        let buffer = word(1)?;
        match (word(0)?, words.len()) {
            (7, 2) => Some(Record::Wanted { buffer }),
            (8, 8) => {
                let handle = RegionHandle::from_message(bytes.get(4 * WORD_BYTES..)?)?;
                Some(Record::Open {
                    buffer,
                    segments: RemoteSegments { count: word(2)?, bytes: word(3)?, handle },
                })
            }
            (9, FILLED_WORDS) => Some(Record::Filled { buffer, segment: word(2)? }),
            (10, 3) => Some(Record::Released { buffer, segments: word(2)? }),
            (11, 3) if word(2)? <= 1 => Some(Record::Closed { buffer, is_by_source: word(2)? == 1 }),
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
        fn records_are_decoded_as_they_were(words in any::<[u64; 3]>(), handle in any::<[u8; 32]>()) {
            let [buffer, count, bytes] = words;
            let segments = RemoteSegments { count, bytes, handle: RegionHandle::from_bytes(handle) };
            for record in [
                Record::Wanted { buffer },
                Record::Open { buffer, segments },
                Record::Filled { buffer, segment: count },
                Record::Released { buffer, segments: count },
                Record::Closed { buffer, is_by_source: true },
                Record::Closed { buffer, is_by_source: false },
            ] {
                let bytes = record.encode();
                prop_assert!(is_record(&bytes));
                prop_assert_eq!((Record::decode(&bytes), record.buffer()), (Some(record), buffer));
                prop_assert_eq!(Record::decode(&bytes[..bytes.len() - 1]), None);
            }
        }

        #[test]
        fn what_is_decoded_encodes_to_the_same(kind in 5_u64..13, bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let bytes = [&kind.to_le_bytes()[..], &bytes].concat();
            if let Some(record) = Record::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }
}
