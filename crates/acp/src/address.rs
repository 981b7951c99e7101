//! Global addresses: 64 bits that name a byte of a rank's registered memory.

use crate::limits::{COLOR_BITS, PLACE_BITS, PLACES, RANKS_MAX};
use std::fmt;
use std::num::NonZeroU64;

/// The address of a byte of memory that some rank has registered. The format is the same on every transport: 21 bits for the rank
/// plus 1, 2 bits for the colour, and 41 bits for the place, of which each region of a rank has its own range (`acp_ga_t`). It is
/// never 0.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GlobalAddress(NonZeroU64);

impl GlobalAddress {
    /// Makes an address; `None` if a number is too large.
    pub(crate) fn new(rank: u32, color: u32, place: u64) -> Option<GlobalAddress> {
        if rank >= RANKS_MAX || color >> COLOR_BITS != 0 || place >= PLACES {
            return None;
        }
        let high = u64::from(rank + 1) << COLOR_BITS | u64::from(color);
        NonZeroU64::new(high << PLACE_BITS | place).map(GlobalAddress)
    }

    /// The address as a plain number, for memory and messages.
    pub const fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// Makes an address of a number; `None` for a number that names no rank, such as 0 (`ACP_GA_NULL`). Whether memory is
    /// registered at the address is found out when it is used.
    pub fn from_bits(bits: u64) -> Option<GlobalAddress> {
        NonZeroU64::new(bits).map(GlobalAddress).filter(|_| bits >> (COLOR_BITS + PLACE_BITS) != 0)
    }

    /// The rank that has the memory (`acp_query_rank`).
    pub const fn rank(self) -> u32 {
        (self.0.get() >> (COLOR_BITS + PLACE_BITS)).saturating_sub(1) as u32
    }

    /// The colour that the memory was registered with (`acp_query_color`).
    pub const fn color(self) -> u32 {
        (self.0.get() >> PLACE_BITS) as u32 & ((1 << COLOR_BITS) - 1)
    }

    /// The address `offset` bytes further on; `None` if that is beyond all places of the rank. Whether it is still in the region
    /// is found out when it is used.
    pub fn checked_add(self, offset: u64) -> Option<GlobalAddress> {
        GlobalAddress::new(self.rank(), self.color(), self.place().checked_add(offset)?)
    }

    /// The place among all places of the rank.
    pub(crate) const fn place(self) -> u64 {
        self.0.get() & (PLACES - 1)
    }
}

impl fmt::Debug for GlobalAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "GlobalAddress(rank {}, color {}, place {:#x})", self.rank(), self.color(), self.place())
    }
}

impl fmt::Display for GlobalAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::COLORS;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn addresses_keep_what_they_are_made_of(rank in 0..RANKS_MAX, color in 0..COLORS, place in 0..PLACES, offset in 0..PLACES) {
            let address = GlobalAddress::new(rank, color, place).unwrap();
            prop_assert_eq!((address.rank(), address.color(), address.place()), (rank, color, place));
            prop_assert_eq!(GlobalAddress::from_bits(address.to_bits()), Some(address));
            let further = address.checked_add(offset);
            prop_assert_eq!(further.is_some(), place + offset < PLACES);
            if let Some(further) = further {
                prop_assert_eq!(further.to_bits(), address.to_bits() + offset, "plain arithmetic does the same");
            }
        }
    }

    #[test]
    fn what_names_no_rank_is_no_address() {
        for bits in [0, 1, (1 << (COLOR_BITS + PLACE_BITS)) - 1] {
            assert_eq!(GlobalAddress::from_bits(bits), None);
        }
        assert_eq!(GlobalAddress::new(RANKS_MAX, 0, 0), None);
        assert_eq!(GlobalAddress::new(0, 1 << COLOR_BITS, 0), None);
        assert_eq!(GlobalAddress::new(0, 0, PLACES), None);
        let last = GlobalAddress::new(RANKS_MAX - 1, 3, PLACES - 1).unwrap();
        assert_eq!((last.to_bits(), last.checked_add(1)), (u64::MAX, None));
        assert_eq!(last.checked_add(u64::MAX), None);
    }
}
