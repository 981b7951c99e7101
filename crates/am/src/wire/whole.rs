//! Messages that have come whole, as almost all do.

use super::{Args, Kind};
use crate::limits::{ARGS_MAX, DATA_BYTES_MAX, HEADER_BYTES};

/// The header of a message that has come whole. It is checked and kept as its two words.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct WholeHead(u64, u64);

impl WholeHead {
    //= wire.md R-AM-2
    /// Checks the header of a record. `None` if the record is not a whole message, or a large one, or one that no process of this
    /// version sends.
    #[inline(always)]
    pub fn of(record: &[u8]) -> Option<WholeHead> {
        let head = WholeHead::of_checked(record.first_chunk::<HEADER_BYTES>()?);
        let (kind, flag, zero) = (head.0 as u8, (head.0 >> 8) as u8, (head.0 >> 24) as u8);
        let is_good = kind == Kind::Message as u8
            && flag <= 1
            && zero == 0
            && (head.1 >> 16) as u16 == 0
            && head.args() <= ARGS_MAX
            && head.data_bytes() <= DATA_BYTES_MAX
            && record.len() == head.data_at() + head.data_bytes();
        is_good.then_some(head)
    }

    /// Makes the header again, of the beginning of a record in which it was found.
    #[inline(always)]
    pub fn of_checked<const BYTES: usize>(beginning: &[u8; BYTES]) -> WholeHead {
        const { assert!(BYTES >= HEADER_BYTES, "there is a header") };
        let (words, _) = beginning.as_chunks();
        WholeHead(u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]))
    }

    #[inline(always)]
    fn args(self) -> usize {
        usize::from((self.0 >> 16) as u8)
    }

    #[inline(always)]
    fn data_bytes(self) -> usize {
        (self.1 >> 32) as usize
    }

    #[inline(always)]
    fn data_at(self) -> usize {
        HEADER_BYTES + (self.args() * 8).next_multiple_of(16)
    }

    /// Whether its credit belongs to the receiver.
    #[inline(always)]
    pub fn is_own(self) -> bool {
        (self.0 >> 8) as u8 != 0
    }

    #[inline(always)]
    pub fn handler(self) -> u16 {
        (self.0 >> 32) as u16
    }

    #[inline(always)]
    pub fn context(self) -> u16 {
        (self.0 >> 48) as u16
    }

    #[inline(always)]
    pub fn credits(self) -> u16 {
        self.1 as u16
    }

    /// The arguments and the data of the record that has this header.
    #[inline(always)]
    pub fn content(self, record: &[u8]) -> (Args<'_>, &[u8]) {
        match record.get(HEADER_BYTES..) {
            Some(rest) if self.args() == 0 => (Args(&[]), rest),
            _ => self.content_with_args(record),
        }
    }

    #[inline(never)]
    fn content_with_args(self, record: &[u8]) -> (Args<'_>, &[u8]) {
        let args = record.get(HEADER_BYTES..HEADER_BYTES + 8 * self.args()).unwrap_or_default();
        (Args(args.as_chunks().0), record.get(self.data_at()..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Head, Header};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whole_messages_are_what_their_header_says(
            bytes in proptest::collection::vec(any::<u8>(), 16..100),
            message: bool,
            good: bool,
        ) {
            let mut bytes = bytes;
            bytes[0] = if message { 1 } else { bytes[0] };
            if good {
                let value = (bytes.len() as u32).saturating_sub(16 + 8 * u32::from(bytes[2] % 4).next_multiple_of(2));
                bytes[1] &= 1;
                bytes[2] %= 4;
                bytes[3] = 0;
                bytes[10..12].fill(0);
                bytes[12..16].copy_from_slice(&value.to_le_bytes());
            }
            let header = Header::decode(&bytes)
                .filter(|header| header.kind == Kind::Message && header.is_whole(&bytes));
            let head = WholeHead::of(&bytes);
            prop_assert_eq!(head.is_some(), header.is_some());
            if let (Some(head), Some(header)) = (head, header) {
                let said = (head.is_own(), head.handler(), head.context(), head.credits());
                prop_assert_eq!(said, (header.flag, header.handler, header.context, header.credits));
                prop_assert_eq!(head.content(&bytes), (Args::of(&header, &bytes), &bytes[header.data_at()..]));
            }
        }
    }

    #[test]
    fn messages_that_are_too_long_are_none() {
        for (data_bytes, is_one) in [(DATA_BYTES_MAX, true), (DATA_BYTES_MAX + 1, false)] {
            let header = Header { value: data_bytes as u32, ..Header::new(Kind::Message) };
            let record = [Head::new(&header, &[]).bytes(), &vec![0; data_bytes]].concat();
            assert_eq!(WholeHead::of(&record).is_some(), is_one);
        }
        let header = Header { count: 16, ..Header::new(Kind::Message) };
        let mut record = [Head::new(&header, &[0; ARGS_MAX]).bytes(), &[0; 16]].concat();
        record[2] = 17;
        assert_eq!(WholeHead::of(&record), None, "17 arguments");
    }
}
