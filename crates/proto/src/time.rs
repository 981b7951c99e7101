//! Time as an argument.

/// Nanoseconds on a clock that only goes forward; where it starts does not matter.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

impl Time {
    /// Later than every time that is met in practice.
    pub const FAR: Time = Time(u64::MAX);

    /// This time plus `ns` nanoseconds; stops at [`Time::FAR`] instead of wrapping.
    #[must_use]
    pub const fn plus(self, ns: u64) -> Time {
        Time(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to this time; 0 if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Nanoseconds of one tick, as a power of two: time-outs are this exact.
const TICK_SHIFT: u32 = 16;

/// The bits of a time in ticks; the bit above them is free for a mark.
const TICKS_MASK: u32 = u32::MAX >> 1;

/// A time in the compact form in which sends and operations keep it: wraps after about 39 hours.
pub(crate) const fn ticks(ns: u64) -> u32 {
    (ns >> TICK_SHIFT) as u32 & TICKS_MASK
}

/// Nanoseconds from a time in ticks until now, exact to a tick.
pub(crate) const fn ns_since(earlier_ticks: u32, now_ns: u64) -> u64 {
    ns_between(earlier_ticks, ticks(now_ns))
}

/// Nanoseconds from one time in ticks to a later one.
pub(crate) const fn ns_between(earlier_ticks: u32, later_ticks: u32) -> u64 {
    ((later_ticks.wrapping_sub(earlier_ticks) & TICKS_MASK) as u64) << TICK_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_survive_the_wrap() {
        let before = (1u64 << 47) - 65_536;
        assert_eq!(ns_since(ticks(before), before + 131_072), 131_072);
    }
}
