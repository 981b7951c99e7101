//! Round-trip times: RFC 6298's estimator on timestamps that travel, so a retransmission is never mistaken for
//! its original.

use crate::Time;

/// How long the least round-trip time is believed before it must be met again.
const MIN_NS_KEPT: u64 = 10_000_000_000;

/// The shortest variation that the probe time-out reckons with: schedulers, not networks, are the cause of delays
/// below it.
const VARIATION_NS_MIN: u64 = 500_000;

/// Guess before the first measurement.
const INITIAL_NS: u64 = 20_000_000;

/// The longest probe time-out, backed off or not.
pub(crate) const PROBE_NS_MAX: u64 = 1_000_000_000;

/// A measurement is believed up to this, or up to [`SURPRISE`] times what is known: beyond, a clock has jumped or a
/// program stood still. A path that did become so long is known after a few more.
const SURPRISE_NS: u64 = 250_000_000;
const SURPRISE: u64 = 8;

/// What is known about a path's round-trip time.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Rtt {
    /// 0: not measured yet.
    smoothed_ns: u64,
    variation_ns: u64,
    min_ns: u64,
    min_at: Time,
}

impl Rtt {
    /// Takes up where an idle connection left off.
    pub fn restored(smoothed_ns: u64, now: Time) -> Rtt {
        Rtt { smoothed_ns, variation_ns: smoothed_ns / 2, min_ns: smoothed_ns, min_at: now }
    }

    pub fn is_measured(&self) -> bool {
        self.smoothed_ns != 0
    }

    /// One measurement.
    pub fn sample(&mut self, now: Time, rtt_ns: u64) {
        let known_ns = if self.smoothed_ns == 0 { PROBE_NS_MAX } else { SURPRISE * self.smoothed_ns };
        let rtt_ns = rtt_ns.clamp(1, known_ns.max(SURPRISE_NS));
        if self.smoothed_ns == 0 {
            *self = Rtt { smoothed_ns: rtt_ns, variation_ns: rtt_ns / 2, min_ns: rtt_ns, min_at: now };
            return;
        }
        if rtt_ns <= self.min_ns || now.since(self.min_at) > MIN_NS_KEPT {
            (self.min_ns, self.min_at) = (rtt_ns, now);
        }
        let error_ns = self.smoothed_ns.abs_diff(rtt_ns);
        self.variation_ns = (3 * self.variation_ns + error_ns) / 4;
        self.smoothed_ns = (7 * self.smoothed_ns + rtt_ns) / 8;
    }

    /// Smoothed; a guess before the first measurement.
    pub fn smoothed_ns(&self) -> u64 {
        if self.smoothed_ns == 0 { INITIAL_NS } else { self.smoothed_ns }
    }

    /// Smoothed; 0 before the first measurement.
    pub fn smoothed_ns_or_zero(&self) -> u64 {
        self.smoothed_ns
    }

    pub fn variation_ns(&self) -> u64 {
        self.variation_ns
    }

    pub fn min_ns(&self) -> u64 {
        self.min_ns
    }

    /// How long to wait for an acknowledgement before probing, after `tries` probes without an answer.
    //= wire.md R-LOSS-3
    pub fn probe_ns(&self, tries: u32) -> u64 {
        let base_ns = self.smoothed_ns()
            + (4 * self.variation_ns).max(VARIATION_NS_MIN)
            + crate::limits::ACK_DELAY_NS_MAX;
        base_ns.saturating_mul(1 << tries.min(20)).min(PROBE_NS_MAX.max(base_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settles_on_a_steady_path() {
        let mut rtt = Rtt::default();
        for step in 0..100 {
            rtt.sample(Time(step * 1000), 40_000);
        }
        assert_eq!((rtt.smoothed_ns(), rtt.min_ns()), (40_000, 40_000));
        assert!(rtt.variation_ns() < 100);
        assert!(rtt.probe_ns(0) < 1_000_000 && rtt.probe_ns(20) == PROBE_NS_MAX);
    }

    #[test]
    fn forgets_an_old_minimum() {
        let mut rtt = Rtt::default();
        rtt.sample(Time(0), 10_000);
        rtt.sample(Time(1), 50_000);
        assert_eq!(rtt.min_ns(), 10_000);
        rtt.sample(Time(MIN_NS_KEPT + 1), 50_000);
        assert_eq!(rtt.min_ns(), 50_000);
    }

    /// Found by the simulation (seed 2333): after the clock of the peer had jumped by 1,000 s, one measurement of 99 s held up
    /// sending for many seconds.
    #[test]
    fn a_jump_of_a_clock_is_soon_forgotten() {
        let mut rtt = Rtt::default();
        rtt.sample(Time(0), 50_000);
        rtt.sample(Time(1_000), 99_000_000_000);
        assert!(rtt.smoothed_ns() < 50_000_000 && rtt.probe_ns(0) < PROBE_NS_MAX, "{rtt:?}");
    }

    #[test]
    fn a_path_that_became_long_is_believed() {
        let mut rtt = Rtt::default();
        rtt.sample(Time(0), 50_000);
        (1..20).for_each(|step| rtt.sample(Time(step * 1_000_000_000), 2_000_000_000));
        assert!(rtt.smoothed_ns() > 1_500_000_000, "{rtt:?}");
    }
}
