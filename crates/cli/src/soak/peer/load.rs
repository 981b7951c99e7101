//! The part of its time in which a peer works.

use cci_sys::clock;

/// Work that was not done may be made up for so long at once.
const CATCH_UP_NS: u64 = 300_000_000;
/// Something may be begun at least so often.
const BEGIN_NS: u64 = 250_000_000;

pub(super) struct Load {
    percent: u32,
    /// Time spent on anything but waiting.
    busy_ns: u64,
    since_ns: u64,
    /// When something could be begun last.
    begun_ns: u64,
}

impl Load {
    pub fn new(percent: u32, now_ns: u64) -> Load {
        Load { percent, busy_ns: 0, since_ns: now_ns, begun_ns: now_ns }
    }

    /// Notes that the peer has worked since then.
    pub fn worked_since(&mut self, start_ns: u64) {
        self.busy_ns += clock::now_ns() - start_ns;
    }

    /// Whether something may be begun within the load that this peer may be. On a machine that is too busy, time passes between two
    /// instructions, and a little is begun all the same.
    pub fn may_begin(&mut self, now_ns: u64) -> bool {
        let allowed_ns = (now_ns - self.since_ns) / 100 * u64::from(self.percent);
        if allowed_ns > self.busy_ns + CATCH_UP_NS || now_ns > self.begun_ns + BEGIN_NS {
            // What could not be done long ago is not made up for, nor paid for.
            (self.since_ns, self.busy_ns, self.begun_ns) = (now_ns, 0, now_ns);
            return true;
        }
        let may = self.busy_ns <= allowed_ns;
        if may {
            self.begun_ns = now_ns;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_has_worked_too_much_begins_a_little_all_the_same() {
        let mut load = Load::new(10, 1_000);
        let mut begun = 0;
        for turn in 0..100 {
            if load.may_begin(1_000 + turn * 10_000_000) {
                begun += 1;
                // On a busy machine, a turn takes seconds of the clock.
                load.busy_ns += 5_000_000_000;
            }
        }
        assert!((3..=5).contains(&begun), "{begun} times in a second");
    }

    #[test]
    fn a_peer_works_as_much_as_it_may() {
        let mut load = Load::new(25, 0);
        let mut now_ns = 0;
        for _ in 0..10_000 {
            // A turn takes 100 us, and so does a pause.
            now_ns += 100_000;
            if load.may_begin(now_ns) {
                load.busy_ns += 100_000;
                now_ns += 100_000;
            }
        }
        let percent = load.busy_ns * 100 / (now_ns - load.since_ns).max(1);
        assert!((20..=30).contains(&percent), "{percent} %");
    }
}
