//! Records about transfers that travel packed: descriptions, and the data of puts and gets.

use super::{Header, Kind, word};
use crate::description::Description;
use crate::limits::{DESCRIPTIONS_MAX, HEADER_BYTES, PACKED_BYTES_MAX};

const WORD_BYTES: usize = 8;
/// Bytes before the data of a scatter, or the length of a gather.
const PACKED_HEAD_BYTES: usize = HEADER_BYTES + 4 * WORD_BYTES;

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
    /// What comes before the data of the scatter of this number.
    //= wire.md R-AM-18
    pub fn scatter_head(&self, id: u64, data_bytes: usize) -> [u8; PACKED_HEAD_BYTES] {
        self.head(Kind::Scatter, id, data_bytes)
    }

    /// What comes before `rest_bytes` of a record of this kind and number.
    pub(super) fn head(&self, kind: Kind, id: u64, rest_bytes: usize) -> [u8; PACKED_HEAD_BYTES] {
        let value = (PACKED_HEAD_BYTES - HEADER_BYTES + rest_bytes) as u32;
        let mut head = [0; PACKED_HEAD_BYTES];
        let (header, words) = head.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&Header { context: self.slot, value, ..Header::new(kind) }.encode());
        let all = [id, self.origin, self.count, self.first_byte];
        for (bytes, word) in words.chunks_exact_mut(WORD_BYTES).zip(all) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        head
    }

    /// Also returns what comes behind it.
    pub(super) fn decode(slot: u16, body: &[u8]) -> Option<(Packed, &[u8])> {
        let (words, rest) = body.split_at_checked(3 * WORD_BYTES)?;
        let word = |index: usize| word(words.get(index * WORD_BYTES..)?);
        let packed = Packed { slot, origin: word(0)?, count: word(1)?, first_byte: word(2)? };
        (usize::from(slot) < DESCRIPTIONS_MAX && packed.count > 0).then_some((packed, rest))
    }
}

/// What comes before an encoded description, which gets a number, and keeps it until another one gets it.
//= wire.md R-AM-17
pub(crate) fn description_head(slot: u16, encoded_bytes: usize) -> [u8; HEADER_BYTES] {
    Header { context: slot, value: encoded_bytes as u32, ..Header::new(Kind::Description) }.encode()
}

pub(super) fn decode_description(header: Header, body: &[u8]) -> Option<(u16, Description)> {
    let is_slot = usize::from(header.context) < DESCRIPTIONS_MAX;
    Some((header.context, Description::decode(body)?)).filter(|_| is_slot)
}

/// Bytes before the data of a gather.
const GATHERED_HEAD_BYTES: usize = HEADER_BYTES + WORD_BYTES;

/// What comes before the data of the gather of this number.
pub(crate) fn gathered_head(id: u64, data_bytes: usize) -> [u8; GATHERED_HEAD_BYTES] {
    let value = (WORD_BYTES + data_bytes) as u32;
    let mut head = [0; GATHERED_HEAD_BYTES];
    head[..HEADER_BYTES].copy_from_slice(&Header { value, ..Header::new(Kind::Gathered) }.encode());
    head[HEADER_BYTES..].copy_from_slice(&id.to_le_bytes());
    head
}

pub(super) fn decode_gathered(body: &[u8]) -> Option<(u64, Box<[u8]>)> {
    let data = body.get(WORD_BYTES..).filter(|data| (1..=PACKED_BYTES_MAX).contains(&data.len()))?;
    Some((word(body)?, data.into()))
}

const _: () = assert!(PACKED_HEAD_BYTES + PACKED_BYTES_MAX <= crate::limits::RECORD_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tests::decode;
    use crate::wire::{Update, Updating, Word};

    fn encode_description(slot: u16, encoded: &[u8]) -> Vec<u8> {
        [&description_head(slot, encoded.len())[..], encoded].concat()
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
        assert_eq!(decode(&gathered_head(7, 0)), None);
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
