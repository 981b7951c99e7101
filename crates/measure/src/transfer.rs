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

/// All places together, unless one alone is longer.
const BYTES: u64 = 16 << 20;
const COUNT_MAX: u64 = 4096;

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
    /// For transfers of so many bytes.
    pub fn of(len: u32) -> Slots {
        Slots { len: len.max(1), count: (BYTES / u64::from(len.max(1))).clamp(1, COUNT_MAX) }
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
        for len in [1, 8, 1 << 20, 32 << 20] {
            let slots = Slots::of(len);
            assert_eq!(slots.offset(slots.count), 0);
            assert_eq!(slots.offset(slots.count - 1) as usize + len as usize, slots.bytes());
        }
        assert_eq!(Slots::of(1 << 20).count, 16);
    }
}
