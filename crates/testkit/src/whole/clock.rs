//! Clocks of machines: each runs at its own rate, and may jump forward.

/// A machine's clock.
#[derive(Copy, Clone, Debug)]
pub(super) struct Clock {
    rate_ppm: i64,
    /// Where it stood when the simulation began, and all jumps since.
    ahead_ns: u64,
}

impl Clock {
    pub fn new(rate_ppm: i64, ahead_ns: u64) -> Clock {
        Clock { rate_ppm: rate_ppm.clamp(-900_000, 9_000_000), ahead_ns }
    }

    pub fn jump(&mut self, ns: u64) {
        self.ahead_ns += ns;
    }

    /// What it shows at a time of the simulation.
    pub fn shows_ns(&self, now_ns: u64) -> u64 {
        (u128::from(now_ns) * self.rate() / 1_000_000) as u64 + self.ahead_ns
    }

    /// The first time of the simulation at which it shows at least this; `u64::MAX` if that is too far away.
    pub fn when_ns(&self, shown_ns: u64) -> u64 {
        let ns = u128::from(shown_ns.saturating_sub(self.ahead_ns)) * 1_000_000;
        u64::try_from(ns.div_ceil(self.rate())).unwrap_or(u64::MAX)
    }

    fn rate(&self) -> u128 {
        (1_000_000 + self.rate_ppm) as u128
    }
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn a_wake_up_is_never_early_and_never_late() {
        for rate_ppm in [0, 1, -1, 500_000, -500_000, 333_333] {
            let mut clock = Clock::new(rate_ppm, 5_000_000_000);
            clock.jump(17);
            for shown_ns in (5_000_000_017..5_000_100_000).step_by(7) {
                let at_ns = clock.when_ns(shown_ns);
                assert!(clock.shows_ns(at_ns) >= shown_ns, "{rate_ppm}");
                assert!(at_ns == 0 || clock.shows_ns(at_ns - 1) < shown_ns, "{rate_ppm}");
            }
        }
    }
}
