//! Records that ask a process to change its memory.

use super::{Header, Kind, Packed, Range, Region, word};
use crate::arithmetic::{Accumulation, Number};
use crate::limits::{HEADER_BYTES, PACKED_BYTES_MAX, UPDATE_BYTES_MAX, UPDATE_PIECES_MAX};
use cci::RegionHandle;

const PIECE_BYTES: usize = 16;

/// A change that a rank asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    /// The sender's number of the change, which the answer has as well.
    pub id: u64,
    pub what: Updating,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Updating {
    /// Each element of these pieces is combined with the next element of the data.
    Accumulate { number: Number, how: Accumulation, pieces: Vec<Range>, data: Box<[u8]> },
    /// Write the data to the place to which the pointer at this address points.
    Indexed { pointer: u64, data: Box<[u8]> },
    /// Write these bytes of the sender to the place to which the pointer at this address points.
    IndexedFar { pointer: u64, source: Range, region: Region },
    /// Write packed data to described memory.
    Scatter { packed: Packed, data: Box<[u8]> },
    /// Answer with so many bytes of described data, packed.
    Gather { packed: Packed, len_bytes: usize },
}

impl Update {
    //= wire.md R-AM-13
    pub fn encode(&self) -> Vec<u8> {
        let mut header = Header::new(Kind::Accumulate);
        let mut body = self.id.to_le_bytes().to_vec();
        match &self.what {
            Updating::Accumulate { number, how, pieces, data } => {
                header.count = how.number();
                header.handler = number.number();
                header.context = pieces.len() as u16;
                pieces.iter().for_each(|piece| body.extend(piece.encode()));
                body.extend(&data[..]);
            }
            Updating::Indexed { pointer, data } => {
                header.kind = Kind::IndexedPut;
                body.extend(pointer.to_le_bytes());
                body.extend(&data[..]);
            }
            Updating::IndexedFar { pointer, source, region } => {
                (header.kind, header.flag) = (Kind::IndexedPut, true);
                body.extend(pointer.to_le_bytes());
                body.extend(source.encode());
                body.extend(region.start.to_le_bytes());
                body.extend(region.handle.to_bytes());
            }
            Updating::Scatter { packed, data } => {
                return [&packed.scatter_head(self.id, data.len())[..], data].concat();
            }
            Updating::Gather { packed, len_bytes } => {
                let len_bytes = (*len_bytes as u64).to_le_bytes();
                return [&packed.head(Kind::Gather, self.id, len_bytes.len())[..], &len_bytes].concat();
            }
        }
        header.value = body.len() as u32;
        [&header.encode()[..], &body].concat()
    }

    /// Parses a change; `None` for one that no process of this version sends.
    pub fn decode(header: Header, body: &[u8]) -> Option<Update> {
        let (id, rest) = (word(body)?, body.get(8..)?);
        let what = match header.kind {
            Kind::Accumulate => {
                let number = Number::of_number(header.handler)?;
                let how = Accumulation::of_number(header.count).filter(|how| how.fits(number))?;
                let count = usize::from(header.context);
                let (pieces, data) = rest.split_at_checked(count * PIECE_BYTES)?;
                let pieces: Option<Vec<Range>> = pieces.chunks(PIECE_BYTES).map(Range::decode).collect();
                let pieces = pieces.filter(|_| count <= UPDATE_PIECES_MAX)?;
                let element = number.len_bytes() as u64;
                let is_whole =
                    |one: &Range| one.start.is_multiple_of(element) && one.len_bytes.is_multiple_of(element);
                let total = pieces.iter().try_fold(0_u64, |sum, one| sum.checked_add(one.len_bytes));
                if total != Some(data.len() as u64) || !pieces.iter().all(is_whole) {
                    return None;
                }
                Updating::Accumulate { number, how, pieces, data: data.into() }
            }
            Kind::IndexedPut if header.flag => {
                let (pointer, source) = (word(rest)?, Range::decode(rest.get(8..)?)?);
                let start = word(rest.get(24..)?)?;
                let handle = rest.get(32..).filter(|handle| handle.len() == RegionHandle::BYTES)?;
                let region = Region { start, handle: RegionHandle::from_message(handle)? };
                region.offset(source)?;
                Updating::IndexedFar { pointer, source, region }
            }
            Kind::IndexedPut => Updating::Indexed { pointer: word(rest)?, data: rest.get(8..)?.into() },
            Kind::Scatter | Kind::Gather => Update::decode_packed(header, rest)?,
            _ => return None,
        };
        Some(Update { id, what })
    }

    //= wire.md R-AM-18
    fn decode_packed(header: Header, body: &[u8]) -> Option<Updating> {
        let (packed, rest) = Packed::decode(header.context, body)?;
        let is_length = |len: usize| (1..=PACKED_BYTES_MAX).contains(&len);
        match header.kind {
            Kind::Scatter if is_length(rest.len()) => Some(Updating::Scatter { packed, data: rest.into() }),
            Kind::Gather if rest.len() == 8 => {
                let len_bytes = usize::try_from(word(rest)?).ok().filter(|&len| is_length(len))?;
                Some(Updating::Gather { packed, len_bytes })
            }
            _ => None,
        }
    }
}

const _: () = assert!(HEADER_BYTES + 8 + UPDATE_PIECES_MAX * PIECE_BYTES < UPDATE_BYTES_MAX / 2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arithmetic::Reduction;
    use crate::limits::RECORD_BYTES_MAX;
    use crate::wire::Word;
    use crate::wire::tests::decode;

    #[test]
    fn updates_are_kept_and_nonsense_is_refused() {
        let handle = RegionHandle::from_bytes([3; RegionHandle::BYTES]);
        let source = Range { start: 0x2000, len_bytes: 9 };
        let len_bytes = handle.len_bytes().min(9);
        let source = Range { len_bytes, ..source };
        let accumulate = |pieces: &[(u64, u64)], len| Updating::Accumulate {
            number: Number::F64,
            how: Accumulation::Reduce(Reduction::Add),
            pieces: pieces.iter().map(|&(start, len_bytes)| Range { start, len_bytes }).collect(),
            data: vec![7; len].into(),
        };
        let far = |start| Updating::IndexedFar { pointer: 64, source, region: Region { start, handle } };
        for what in [
            accumulate(&[(0x1000, 16), (0x1020, 8)], 24),
            Updating::Indexed { pointer: 64, data: vec![1, 2, 3].into() },
            Updating::Indexed { pointer: 64, data: Box::default() },
            far(0x2000),
        ] {
            let update = Update { id: 77, what };
            let bytes = update.encode();
            assert_eq!(decode(&bytes), Some(Word::Update(update)));
            assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        }
        for (what, why) in [
            (accumulate(&[(0x1001, 8)], 8), "an address between elements"),
            (accumulate(&[(0x1000, 12)], 12), "half an element"),
            (accumulate(&[(0x1000, 16)], 8), "less data than pieces"),
            (accumulate(&[(0x1000, 8), (u64::MAX - 7, 16)], 24), "a range behind the last address"),
            (accumulate(&[(0x1000, 8); UPDATE_PIECES_MAX + 1], 8 * (UPDATE_PIECES_MAX + 1)), "too many"),
            (far(0x3000), "a source outside of its region"),
        ] {
            assert_eq!(decode(&Update { id: 1, what }.encode()), None, "{why}");
        }
        let mut bits_of_floats = Update { id: 1, what: accumulate(&[(8, 8)], 8) }.encode();
        bits_of_floats[2] = Accumulation::Reduce(Reduction::Xor).number();
        assert_eq!(decode(&bits_of_floats), None);
        let longest = Updating::Indexed { pointer: 0, data: vec![0; UPDATE_BYTES_MAX].into() };
        assert!(Update { id: 1, what: longest }.encode().len() <= RECORD_BYTES_MAX);
    }
}
