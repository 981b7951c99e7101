//! Records of large messages, whose data the receiver fetches.

use super::{Range, Region, word};
use cci::RegionHandle;

/// Bytes about the data of a large message: its number, the address and the length of the data, and their region.
pub(crate) const LARGE_BYTES: usize = 8 + 16 + 8 + RegionHandle::BYTES;

/// Data that a rank offers to be fetched.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The sender's number of the message, which the report of its end has as well.
    pub number: u64,
    /// The range of the data at the sender, and their region; `None` if there are no bytes.
    pub source: Option<(Range, Region)>,
}

/// The result of a large message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum LargeOutcome {
    Fetched = 0,
    /// The receiver did not want it.
    Aborted = 1,
    /// The receiver has provided space for more bytes, or for fewer.
    Differs = 2,
    /// The data could not be read.
    Unreadable = 3,
}

impl LargeOutcome {
    pub fn of_number(number: u32) -> Option<LargeOutcome> {
        let all =
            [LargeOutcome::Fetched, LargeOutcome::Aborted, LargeOutcome::Differs, LargeOutcome::Unreadable];
        all.get(number as usize).copied()
    }
}

impl Offer {
    pub fn len_bytes(&self) -> u64 {
        self.source.map_or(0, |(range, _)| range.len_bytes)
    }

    //= wire.md R-AM-14
    pub fn encode(&self) -> [u8; LARGE_BYTES] {
        let mut bytes = [0; LARGE_BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        if let Some((range, region)) = self.source {
            bytes[8..24].copy_from_slice(&range.encode());
            bytes[24..32].copy_from_slice(&region.start.to_le_bytes());
            bytes[32..].copy_from_slice(&region.handle.to_bytes());
        }
        bytes
    }

    /// Parses an offer; `None` for one that no process of this version sends.
    pub fn decode(bytes: &[u8]) -> Option<Offer> {
        let (number, rest) = (word(bytes)?, bytes.get(8..).filter(|rest| rest.len() == LARGE_BYTES - 8)?);
        if rest.iter().all(|&byte| byte == 0) {
            return Some(Offer { number, source: None });
        }
        let (range, start) = (Range::decode(rest)?, word(rest.get(16..)?)?);
        let region = Region { start, handle: RegionHandle::from_message(rest.get(24..)?)? };
        region.offset(range)?;
        Some(Offer { number, source: Some((range, region)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_kept_and_nonsense_is_refused() {
        let handle = RegionHandle::from_bytes([3; RegionHandle::BYTES]);
        let region = Region { start: 0x2000, handle };
        let offer =
            |start, len_bytes| Offer { number: 7, source: Some((Range { start, len_bytes }, region)) };
        let nothing = Offer { number: 8, source: None };
        for good in [nothing, offer(0x2000, 9), offer(0x2008, 1)] {
            assert_eq!(Offer::decode(&good.encode()), Some(good));
            assert_eq!(Offer::decode(&good.encode()[1..]), None);
        }
        for bad in [offer(0x1fff, 9), offer(0x2000, 0), offer(0x2000, u64::MAX - 0x2000), offer(u64::MAX, 2)]
        {
            assert_eq!(Offer::decode(&bad.encode()), None, "{bad:?}");
        }
        assert_eq!(
            [0, 1, 2, 3, 4].map(|at| LargeOutcome::of_number(at).map(|end| end as u32)),
            [Some(0), Some(1), Some(2), Some(3), None]
        );
    }
}
