//! Records of ranks of one host about barriers and collectives that are counted in memory which all of them map.

use super::{Header, Kind};
use crate::limits::HEADER_BYTES;
use cci::RegionHandle;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum CountedWord {
    /// Rank 0 has such memory. From these numbers on, barriers and collectives may be counted there.
    Offer { barrier: u32, collective: u32, handle: RegionHandle },
    /// The answer: whether the sender has mapped the memory, and has not reached one of these numbers yet.
    Answer { can: bool },
    /// All have answered rank 0. Barriers and collectives are counted, or are not.
    Decision { is_agreed: bool },
    /// Wakes the receiver, which may check again.
    Wake,
    /// Rank 0 has lost this rank.
    Lost { rank: u32 },
}

impl CountedWord {
    //= wire.md R-AM-15
    pub fn encode(&self) -> Vec<u8> {
        let header =
            |count, flag, value| Header { count, flag, value, ..Header::new(Kind::Counted) }.encode();
        match *self {
            CountedWord::Offer { barrier, collective, handle } => {
                [&header(0, false, barrier)[..], &handle.to_bytes(), &collective.to_le_bytes()].concat()
            }
            CountedWord::Answer { can } => header(1, can, 0).to_vec(),
            CountedWord::Decision { is_agreed } => header(2, is_agreed, 0).to_vec(),
            CountedWord::Wake => header(3, false, 0).to_vec(),
            CountedWord::Lost { rank } => header(4, false, rank).to_vec(),
        }
    }

    /// Parses a record; `None` for one that no process of this version sends.
    pub fn decode(header: Header, body: &[u8]) -> Option<CountedWord> {
        let Header { count, flag, value, .. } = header;
        if count == 0 {
            let (handle, collective) = body.split_at_checked(RegionHandle::BYTES)?;
            let (handle, collective) = (RegionHandle::from_message(handle)?, collective.try_into().ok()?);
            let collective = u32::from_le_bytes(collective);
            return Some(CountedWord::Offer { barrier: value, collective, handle });
        }
        if !body.is_empty() {
            return None;
        }
        match count {
            1 => Some(CountedWord::Answer { can: flag }),
            2 => Some(CountedWord::Decision { is_agreed: flag }),
            3 => Some(CountedWord::Wake),
            4 => Some(CountedWord::Lost { rank: value }),
            _ => None,
        }
    }
}

const _: () = assert!(HEADER_BYTES + RegionHandle::BYTES + 4 <= 64, "it is sent as a short record");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Word;

    #[test]
    fn words_are_kept() {
        let handle = RegionHandle::from_bytes([7; RegionHandle::BYTES]);
        for word in [
            CountedWord::Offer { barrier: 70_000, collective: 80_000, handle },
            CountedWord::Answer { can: true },
            CountedWord::Decision { is_agreed: false },
            CountedWord::Wake,
            CountedWord::Lost { rank: 9 },
        ] {
            let mut bytes = word.encode();
            let decode = |bytes: &[u8]| Header::decode(bytes).and_then(|header| Word::decode(header, bytes));
            assert_eq!(decode(&bytes), Some(Word::Counted(word)));
            bytes.push(0);
            assert_eq!(decode(&bytes), None);
        }
        let unknown = Header { count: 5, ..Header::new(Kind::Counted) };
        assert_eq!(CountedWord::decode(unknown, &[]), None);
    }
}
