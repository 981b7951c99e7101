//! The records that ranks exchange, of little-endian words, one in each message (`docs/wire.md`, R-ACP).

use crate::address::GlobalAddress;
use cci::RegionHandle;

/// A region of another rank, as that rank has described it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    /// Its first place.
    pub start: u64,
    pub handle: RegionHandle,
}

/// A record. Its places belong to the colour of the connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// Asks for the region of this place.
    Ask { place: u64 },
    /// Answers with the region of the place, or none.
    Answer { place: u64, region: Option<Remote> },
    /// Asks to copy from the receiver's memory to another rank's, or within the receiver's.
    Copy { number: u64, dst: GlobalAddress, src: GlobalAddress, len_bytes: u64 },
    /// Reports that such a copy has ended, and whether it succeeded.
    Copied { number: u64, is_well: bool },
}

impl Record {
    //= wire.md R-ACP-1
    pub fn encode(&self) -> Vec<u8> {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        match *self {
            Record::Ask { place } => words(&[1, place]),
            Record::Answer { place, region: None } => words(&[2, place]),
            Record::Answer { place, region: Some(Remote { start, handle }) } => {
                [&words(&[2, place, start])[..], &handle.to_bytes()].concat()
            }
            Record::Copy { number, dst, src, len_bytes } => {
                words(&[3, number, dst.to_bits(), src.to_bits(), len_bytes])
            }
            Record::Copied { number, is_well } => words(&[4, number, u64::from(is_well)]),
        }
    }

    //= wire.md R-ACP-2
    /// None for what no process of this version sends.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        let (words, rest) = bytes.as_chunks::<8>();
        let word = |at: usize| words.get(at).copied().map(u64::from_le_bytes);
        let address = |at: usize| GlobalAddress::from_bits(word(at)?);
        if !rest.is_empty() {
            return None;
        }
        match (word(0)?, words.len()) {
            (1, 2) => Some(Record::Ask { place: word(1)? }),
            (2, 2) => Some(Record::Answer { place: word(1)?, region: None }),
            (2, 7) => {
                let handle = RegionHandle::from_message(bytes.get(24..)?)?;
                Some(Record::Answer { place: word(1)?, region: Some(Remote { start: word(2)?, handle }) })
            }
            (3, 5) => Some(Record::Copy {
                number: word(1)?,
                dst: address(2)?,
                src: address(3)?,
                len_bytes: word(4)?,
            }),
            (4, 3) => match word(2)? {
                is_well @ 0..=1 => Some(Record::Copied { number: word(1)?, is_well: is_well == 1 }),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn records() -> impl Strategy<Value = Record> {
        let address = || (1_u64 << 43..).prop_map(|bits| GlobalAddress::from_bits(bits).unwrap());
        let remote = (any::<u64>(), any::<[u8; 32]>())
            .prop_map(|(start, bytes)| Remote { start, handle: RegionHandle::from_bytes(bytes) });
        prop_oneof![
            any::<u64>().prop_map(|place| Record::Ask { place }),
            (any::<u64>(), proptest::option::of(remote))
                .prop_map(|(place, region)| Record::Answer { place, region }),
            (any::<u64>(), address(), address(), any::<u64>())
                .prop_map(|(number, dst, src, len_bytes)| Record::Copy { number, dst, src, len_bytes }),
            (any::<u64>(), any::<bool>()).prop_map(|(number, is_well)| Record::Copied { number, is_well }),
        ]
    }

    proptest! {
        #[test]
        fn records_are_decoded_as_they_were(record in records()) {
            let bytes = record.encode();
            prop_assert_eq!(Record::decode(&bytes), Some(record));
            prop_assert_eq!(Record::decode(&bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn what_is_decoded_encodes_to_the_same(kind in 0_u64..6, bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let bytes = [&kind.to_le_bytes()[..], &bytes].concat();
            if let Some(record) = Record::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }
}
