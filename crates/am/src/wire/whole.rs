//! Messages that have come whole, as almost all do.

use super::{Args, Kind};
use crate::limits::{ARGS_MAX, DATA_BYTES_MAX, HEADER_BYTES};

/// The header of a message that has come whole, checked and left as it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct WholeHead([u8; HEADER_BYTES]);

impl WholeHead {
    /// None: the record is no message that is not a large one, or not all of it, or nothing that a process of this version sends.
    #[inline(always)]
    pub fn of(record: &[u8]) -> Option<WholeHead> {
        let head = WholeHead(*record.first_chunk()?);
        let [kind, flag, count, zero, ..] = head.0;
        let is_good = kind == Kind::Message as u8
            && flag <= 1
            && usize::from(count) <= ARGS_MAX
            && zero == 0
            && head.half(10) == 0
            && head.data_bytes() <= DATA_BYTES_MAX
            && record.len() == head.data_at() + head.data_bytes();
        is_good.then_some(head)
    }

    /// Again, of the beginning of a record that it was found in.
    #[inline(always)]
    pub fn of_checked<const BYTES: usize>(beginning: &[u8; BYTES]) -> WholeHead {
        const { assert!(BYTES >= HEADER_BYTES, "there is a header") };
        WholeHead(beginning.first_chunk().copied().unwrap_or_default())
    }

    #[inline(always)]
    fn half(self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    #[inline(always)]
    fn data_bytes(self) -> usize {
        let [.., a, b, c, d] = self.0;
        u32::from_le_bytes([a, b, c, d]) as usize
    }

    #[inline(always)]
    fn data_at(self) -> usize {
        HEADER_BYTES + (usize::from(self.0[2]) * 8).next_multiple_of(16)
    }

    /// Its credit is the receiver's.
    #[inline(always)]
    pub fn is_own(self) -> bool {
        self.0[1] != 0
    }

    #[inline(always)]
    pub fn handler(self) -> u16 {
        self.half(4)
    }

    #[inline(always)]
    pub fn context(self) -> u16 {
        self.half(6)
    }

    #[inline(always)]
    pub fn credits(self) -> u16 {
        self.half(8)
    }

    /// The arguments and the data of the record that this was the head of.
    #[inline(always)]
    pub fn content(self, record: &[u8]) -> (Args<'_>, &[u8]) {
        let data = record.get(self.data_at()..).unwrap_or_default();
        let count = usize::from(self.0[2]);
        if count == 0 {
            return (Args(&[]), data);
        }
        let args = record.get(HEADER_BYTES..HEADER_BYTES + 8 * count).unwrap_or_default();
        (Args(args.as_chunks().0), data)
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
