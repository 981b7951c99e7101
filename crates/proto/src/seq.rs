//! Sequence numbers that wrap.

/// The number of a bundle. Wraps; there is deliberately no `PartialOrd`: `<` is the wrap-around bug.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// True if this number comes before `other`, by the shorter way round.
    #[must_use]
    pub const fn precedes(self, other: Seq) -> bool {
        self.0 != other.0 && other.0.wrapping_sub(self.0) < 1 << 31
    }

    /// The number `count` further on.
    #[must_use]
    pub const fn plus(self, count: u32) -> Seq {
        Seq(self.0.wrapping_add(count))
    }

    /// How many numbers lie from `earlier` to this one (wrapping; huge if `earlier` is in fact later).
    #[must_use]
    pub const fn since(self, earlier: Seq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// The next number.
    #[must_use]
    pub const fn next(self) -> Seq {
        self.plus(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn order_survives_the_wrap(start: u32, step in 1u32..1 << 31) {
            let first = Seq(start);
            let later = first.plus(step);
            prop_assert!(first.precedes(later));
            prop_assert!(!later.precedes(first) || step == 1 << 31);
            prop_assert_eq!(later.since(first), step);
        }
    }

    #[test]
    fn nothing_precedes_itself() {
        assert!(!Seq(7).precedes(Seq(7)));
        assert!(Seq(u32::MAX).precedes(Seq(0)));
    }
}
