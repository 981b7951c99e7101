//! The header word of a record: how it is made, and how one that a stranger wrote is read.

use super::{LINE_BYTES, RECORD_HEADER_BYTES};

pub(super) const LEN_MASK: u32 = (1 << 30) - 1;
const PAD: u64 = 1 << 30;
/// Set in a published word by a producer that takes the record back.
pub(super) const VOID: u64 = 1 << 31;

/// Fibonacci hashing.
const HASH: u64 = 0x9E37_79B9_7F4A_7C15;

/// What a record carries beside its payload. All of it is the user's; the ring gives it no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordHeader {
    /// What the record is.
    pub kind: u8,
    /// Flags of that kind.
    pub flags: u8,
    /// Which connection it belongs to.
    pub conn: u32,
    /// An acknowledgement that rides along.
    pub ack: u32,
}

/// A header as it is passed to a function: its tag, and kind and flags. The compiler passes these in registers, but a [`RecordHeader`] in
/// memory: the function would read what was just written there by parts, and so wait for all stores before it, those to the ring too.
pub(super) type Words = (u64, u16);

impl RecordHeader {
    #[inline]
    pub(super) fn tag(self) -> u64 {
        u64::from(self.conn) | u64::from(self.ack) << 32
    }

    #[inline]
    pub(super) fn words(self) -> Words {
        (self.tag(), u16::from_le_bytes([self.kind, self.flags]))
    }

    #[inline]
    pub(super) fn from_words((tag, what): Words) -> RecordHeader {
        let [kind, flags] = what.to_le_bytes();
        RecordHeader { kind, flags, conn: tag as u32, ack: (tag >> 32) as u32 }
    }
}

/// The peer wrote something that it can't have written in good faith. The ring is of no use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corrupt {
    /// A header word does not belong to the position it was found at.
    Check,
    /// A record is longer than the agreed maximum, or does not end before the data does.
    Length,
    /// A PAD record where none can be.
    Pad,
    /// The consumer's position is not between the last one seen and the producer's.
    Head,
}

impl core::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Corrupt::Check => "the peer wrote a record header that does not match its position",
            Corrupt::Length => "the peer wrote a record length beyond the limit",
            Corrupt::Pad => "the peer wrote a padding record where none can be",
            Corrupt::Head => "the peer wrote an impossible read position",
        })
    }
}

impl core::error::Error for Corrupt {}

/// A header word, checked.
pub(super) enum Word {
    /// Nothing was published here yet.
    Empty,
    /// A PAD or VOID record: to be skipped, with the bytes it takes.
    Skip { record_bytes: u64 },
    /// A record, with the bytes that it takes.
    Record { len_bytes: u32, kind: u8, flags: u8, record_bytes: u64 },
}

/// Never 0, so that no published word is; different for neighbours and for laps (Fibonacci hashing).
#[inline]
fn check(position: u64) -> u64 {
    ((position / LINE_BYTES as u64).wrapping_mul(HASH) >> 48) | 1
}

/// The check of a position, where it is in a word.
#[inline]
pub(super) fn check_bits(position: u64) -> u64 {
    check(position) << 48
}

/// The checks of one line after the other, where they are in a word.
pub(super) struct Checks(u64);

impl Checks {
    /// What is the same in all checks. [`Checks::next`] leaves it out.
    pub(super) const CONSTANT: u64 = 1 << 48;

    #[inline(always)]
    pub(super) fn from(position: u64) -> Checks {
        Checks((position / LINE_BYTES as u64).wrapping_mul(HASH))
    }

    /// The check of the line, but for what is constant, and on to the next line.
    #[inline(always)]
    pub(super) fn next(&mut self) -> u64 {
        let bits = self.0 >> 49 << 49;
        self.0 = self.0.wrapping_add(HASH);
        bits
    }
}

/// Kind and flags, where they are in a word.
#[inline]
pub(super) fn kind_and_flags(header: RecordHeader) -> u64 {
    u64::from(header.kind) << 32 | u64::from(header.flags) << 40
}

/// Flags and length of a word found at `position`, if it is that of a record of this kind in one line. `None`: it is anything else.
#[inline(always)]
pub(super) fn of_one_line(word: u64, position: u64, kind: u8) -> Option<(u8, u32)> {
    const FLAGS: u64 = 0xff << 40;
    // Where check and kind are right, flags and length are left.
    let rest = word ^ check_bits(position) ^ u64::from(kind) << 32;
    let len_bytes = rest & !FLAGS;
    (len_bytes <= super::LINE_PAYLOAD_BYTES as u64).then_some(((rest >> 40) as u8, len_bytes as u32))
}

#[inline]
pub(super) fn encode(position: u64, len_bytes: u32, header: RecordHeader) -> u64 {
    debug_assert!(len_bytes <= LEN_MASK);
    u64::from(len_bytes) | kind_and_flags(header) | check_bits(position)
}

#[inline]
pub(super) fn encode_pad(position: u64) -> u64 {
    PAD | check_bits(position)
}

/// Reads a word found at `position`, in a ring of `data_bytes` with payloads of at most `payload_bytes_max`.
#[inline(always)]
pub(super) fn decode(
    word: u64,
    position: u64,
    data_bytes: u64,
    payload_bytes_max: u32,
) -> Result<Word, Corrupt> {
    if word == 0 {
        return Ok(Word::Empty);
    }
    if word >> 48 != check(position) {
        return Err(Corrupt::Check);
    }
    let offset = position & (data_bytes - 1);
    let to_end = data_bytes - offset;
    if word & PAD != 0 {
        // Every record fits at offset 0: a PAD there would be a way to make us go round for ever.
        return if offset == 0 { Err(Corrupt::Pad) } else { Ok(Word::Skip { record_bytes: to_end }) };
    }
    let len_bytes = word as u32 & LEN_MASK;
    let record_bytes = super::record_bytes(len_bytes as usize) as u64;
    if len_bytes > payload_bytes_max || record_bytes > to_end {
        return Err(Corrupt::Length);
    }
    if word & VOID != 0 {
        return Ok(Word::Skip { record_bytes });
    }
    Ok(Word::Record { len_bytes, kind: (word >> 32) as u8, flags: (word >> 40) as u8, record_bytes })
}

const _: () = assert!(RECORD_HEADER_BYTES == 2 * size_of::<u64>(), "a word and a tag");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_never_zero_and_read_back() {
        for line in (0..200_000u64).step_by(if cfg!(miri) { 1_999 } else { 1 }) {
            let position = line * 64;
            let header = RecordHeader { kind: 7, flags: 0x81, conn: 0, ack: 0 };
            let word = encode(position, 8, header);
            assert_ne!(word, 0);
            assert_ne!(encode_pad(position), 0);
            let Ok(Word::Record { len_bytes: 8, kind: 7, flags: 0x81, record_bytes: 64 }) =
                decode(word, position, 4096, 1000)
            else {
                panic!("line {line}");
            };
            assert!(matches!(decode(word | VOID, position, 4096, 1000), Ok(Word::Skip { record_bytes: 64 })));
        }
    }

    #[test]
    fn a_record_of_one_line_is_told_from_anything_else() {
        let header = RecordHeader { kind: 7, flags: 0x81, conn: 0, ack: 0 };
        for position in [0, 64, 64 * 77] {
            let word = |len_bytes| encode(position, len_bytes, header);
            for len_bytes in [0, 8, 48] {
                assert_eq!(of_one_line(word(len_bytes), position, 7), Some((0x81, len_bytes)));
            }
            let others =
                [0, 1, word(49), word(8) | PAD, word(8) | VOID, encode_pad(position), word(8) ^ 1 << 63];
            assert!(others.iter().all(|word| of_one_line(*word, position, 7).is_none()));
            assert_eq!(of_one_line(word(8), position, 6), None);
            assert_eq!(of_one_line(word(8), position + 64, 7), None);
        }
    }

    #[test]
    fn checks_in_a_row_are_those_of_each() {
        let mut checks = Checks::from(64 * 77);
        for line in 77..5_000 {
            assert_eq!(checks.next() | Checks::CONSTANT, check_bits(line * 64));
        }
    }

    #[test]
    fn lies_are_refused() {
        let header = RecordHeader::default();
        let at = |position, word| decode(word, position, 4096, 1000).err();
        assert_eq!(at(64, encode(128, 8, header)), Some(Corrupt::Check));
        assert_eq!(at(64, encode(64, 1001, header)), Some(Corrupt::Length));
        assert_eq!(at(4032, encode(4032, 49, header)), Some(Corrupt::Length));
        assert_eq!(at(64, encode(64, LEN_MASK, header)), Some(Corrupt::Length));
        assert_eq!(at(4096, encode_pad(4096)), Some(Corrupt::Pad));
        assert_eq!(at(64, 1), Some(Corrupt::Check));
    }
}
