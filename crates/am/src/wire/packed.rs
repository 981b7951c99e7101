//! Records about transfers that travel packed: descriptions, and the data of puts and gets.

use super::{Header, Kind, word};
use crate::description::Description;
use crate::limits::{DESCRIPTIONS_MAX, HEADER_BYTES, PACKED_BYTES_MAX};

const WORD_BYTES: usize = 8;

/// Described data of the receiver, by a description that the sender has sent before.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    /// The number of the description.
    pub slot: u16,
    /// The address of the origin of the first element.
    pub origin: u64,
    /// The number of elements.
    pub count: u64,
    /// How many packed bytes come before the data.
    pub first_byte: u64,
}

impl Packed {
    pub(super) fn encode(&self, body: &mut Vec<u8>) {
        for word in [self.origin, self.count, self.first_byte] {
            body.extend(word.to_le_bytes());
        }
    }

    /// Also returns what comes behind it.
    pub(super) fn decode(slot: u16, body: &[u8]) -> Option<(Packed, &[u8])> {
        let (words, rest) = body.split_at_checked(3 * WORD_BYTES)?;
        let word = |index: usize| word(words.get(index * WORD_BYTES..)?);
        let packed = Packed { slot, origin: word(0)?, count: word(1)?, first_byte: word(2)? };
        (usize::from(slot) < DESCRIPTIONS_MAX && packed.count > 0).then_some((packed, rest))
    }
}

/// A description gets a number, which it keeps until another one gets it.
//= wire.md R-AM-17
pub(crate) fn encode_description(slot: u16, encoded: &[u8]) -> Vec<u8> {
    let header = Header { context: slot, value: encoded.len() as u32, ..Header::new(Kind::Description) };
    [&header.encode()[..], encoded].concat()
}

pub(super) fn decode_description(header: Header, body: &[u8]) -> Option<(u16, Description)> {
    let is_slot = usize::from(header.context) < DESCRIPTIONS_MAX;
    Some((header.context, Description::decode(body)?)).filter(|_| is_slot)
}

/// The data of a gather, by its number.
pub(super) fn encode_gathered(id: u64, data: &[u8]) -> Vec<u8> {
    let value = (WORD_BYTES + data.len()) as u32;
    let header = Header { value, ..Header::new(Kind::Gathered) };
    [&header.encode()[..], &id.to_le_bytes(), data].concat()
}

pub(super) fn decode_gathered(body: &[u8]) -> Option<(u64, Box<[u8]>)> {
    let data = body.get(WORD_BYTES..).filter(|data| (1..=PACKED_BYTES_MAX).contains(&data.len()))?;
    Some((word(body)?, data.into()))
}

const _: () = assert!(PACKED_BYTES_MAX + 4 * WORD_BYTES + HEADER_BYTES <= crate::limits::RECORD_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Update, Updating, Word};

    fn decode(bytes: &[u8]) -> Option<Word> {
        let header = Header::decode(bytes).filter(|header| header.record_bytes() == bytes.len())?;
        Word::decode(header, bytes)
    }

    #[test]
    fn transfers_are_kept_and_nonsense_is_refused() {
        let packed = Packed { slot: 5, origin: 0x1000, count: 3, first_byte: 40 };
        let scatter = |packed, len| Updating::Scatter { packed, data: vec![7; len].into() };
        let gather = |packed, len_bytes| Updating::Gather { packed, len_bytes };
        for what in [
            scatter(packed, 1),
            scatter(packed, PACKED_BYTES_MAX),
            gather(packed, 1),
            gather(packed, PACKED_BYTES_MAX),
        ] {
            let update = Update { id: 9, what };
            let bytes = update.encode();
            assert_eq!(decode(&bytes), Some(Word::Update(update)));
        }
        let slot = DESCRIPTIONS_MAX as u16;
        for what in [
            scatter(packed, 0),
            scatter(packed, PACKED_BYTES_MAX + 1),
            gather(packed, 0),
            gather(packed, PACKED_BYTES_MAX + 1),
            scatter(Packed { slot, ..packed }, 1),
            gather(Packed { count: 0, ..packed }, 1),
        ] {
            assert_eq!(decode(&Update { id: 9, what: what.clone() }.encode()), None, "{what:?}");
        }
        let data: Box<[u8]> = vec![3; 100].into();
        let bytes = Word::Gathered(7, data.clone()).encode();
        assert_eq!(decode(&bytes), Some(Word::Gathered(7, data)));
        assert_eq!(decode(&encode_gathered(7, &[])), None);
        let described = Description::strided(&[8, 10], &[16]).unwrap();
        let encoded = described.encode(1_000).unwrap();
        let Some(Word::Description(5, decoded)) = decode(&encode_description(5, &encoded)) else {
            panic!("a description that was sent")
        };
        assert_eq!(decoded.encode(1_000), Some(encoded.clone()));
        assert_eq!(decode(&encode_description(slot, &encoded)), None);
        assert_eq!(decode(&encode_description(5, &encoded[8..])), None);
    }
}
