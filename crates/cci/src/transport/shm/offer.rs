//! The offer of memory for loans, which goes over the socket of a link.

use crate::limits;
use cci_sys::shared_memory::SLOTS_MAX;

const MAGIC: u64 = u64::from_le_bytes(*b"CCIloans");
const WORDS: usize = 3;

const _: () = assert!(limits::LOANS_MAX <= SLOTS_MAX, "a set of slots is one word");

/// The offer of memory for loans, as a message over a link's socket. The memory's descriptor comes with it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub slots: u32,
    pub slot_bytes: u32,
}

impl Offer {
    pub fn to_bytes(self) -> [u8; WORDS * 8] {
        let mut bytes = [0; WORDS * 8];
        let words = [MAGIC, self.slots.into(), self.slot_bytes.into()];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Parses an offer. Returns `None` if it is something else, or offers what nobody needs.
    pub fn parse(bytes: &[u8]) -> Option<Offer> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let &[magic, slots, slot_bytes] = words else { return None };
        let offer = Offer {
            slots: u64::from_ne_bytes(slots).try_into().ok()?,
            slot_bytes: u64::from_ne_bytes(slot_bytes).try_into().ok()?,
        };
        let is_sound = u64::from_ne_bytes(magic) == MAGIC
            && (1..=SLOTS_MAX).contains(&offer.slots)
            && (1..=limits::MESSAGE_BYTES_MAX).contains(&offer.slot_bytes);
        is_sound.then_some(offer)
    }

    pub fn len_bytes(self) -> u64 {
        u64::from(self.slots) * u64::from(self.slot_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_understood_and_must_be_sound() {
        let good = Offer { slots: 32, slot_bytes: 8192 };
        assert_eq!(Offer::parse(&good.to_bytes()), Some(good));
        let bad = [
            Offer { slots: 0, ..good },
            Offer { slots: SLOTS_MAX + 1, ..good },
            Offer { slot_bytes: 0, ..good },
            Offer { slot_bytes: u32::MAX, ..good },
        ];
        assert!(bad.iter().all(|offer| Offer::parse(&offer.to_bytes()).is_none()));
        let bytes = good.to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(Offer::parse(&bytes[..len]), None);
        }
        let mut changed = bytes;
        changed[0] ^= 1;
        assert_eq!(Offer::parse(&changed), None);
        let mut huge = bytes;
        huge[15] = 1;
        assert_eq!(Offer::parse(&huge), None);
    }
}
