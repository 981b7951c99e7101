//! Transfers between memories: their direction, and the places where they go.

/// The direction in which bytes go, seen from the side that measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the other side's memory.
    Write,
    /// From it.
    Read,
}

impl Direction {
    /// Both directions.
    pub const BOTH: [Direction; 2] = [Direction::Write, Direction::Read];

    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Write => "write",
            Direction::Read => "read",
        }
    }
}

/// Places of one length: one behind the other, and round again. They are the same for all contestants, since what the
/// caches hold decides how fast memory is.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    /// Bytes in each.
    pub len: u32,
    /// How many.
    pub count: u64,
}

impl Slots {
    /// One place for all transfers of so many bytes. Every benchmark of UCX and of the MPIs reuses one buffer, so whoever is
    /// compared with them has to.
    pub fn one(len: u32) -> Slots {
        Slots { len: len.max(1), count: 1 }
    }

    /// The bytes of all of them.
    pub fn bytes(&self) -> usize {
        (self.count * u64::from(self.len)) as usize
    }

    /// Where the transfer of this number goes.
    #[inline]
    pub fn offset(&self, nth: u64) -> u64 {
        nth % self.count * u64::from(self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lie_within_and_come_again() {
        for (len, count) in [(1, 7), (8, 1), (1 << 20, 16)] {
            let slots = Slots { len, count };
            assert_eq!(slots.offset(slots.count), 0);
            assert_eq!(slots.offset(slots.count - 1) as usize + len as usize, slots.bytes());
        }
        assert_eq!(Slots::one(0).bytes(), 1);
    }
}
