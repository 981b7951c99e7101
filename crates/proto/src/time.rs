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
