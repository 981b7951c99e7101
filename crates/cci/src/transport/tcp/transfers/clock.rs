//! The clock for the deadlines of transfers. It stands still while this side's program does not poll.

/// Time between two checks of the transfers.
const LOOK_NS: u64 = 1_000_000;
/// A program that has not polled for this time counts as busy with something else.
const ABSENCE_NS: u64 = 100_000_000;

/// When transfers are checked next, and the clock of their deadlines.
pub(super) struct Clock {
    /// When the next check is due.
    due_ns: u64,
    looked_ns: u64,
    /// How long this side's program has not polled while something was under way. The peers are not to blame for that time.
    absent_ns: u64,
    /// Whether the endpoint has slept, until the kernel would wake it, since the last check.
    slept: bool,
}

impl Clock {
    pub const fn new() -> Clock {
        Clock { due_ns: u64::MAX, looked_ns: 0, absent_ns: 0, slept: false }
    }

    /// What this clock shows when the endpoint's shows `now_ns`.
    #[inline]
    pub fn at_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.absent_ns)
    }

    /// What the endpoint's clock shows when this one shows `clock_ns`.
    #[inline]
    pub fn when_ns(&self, clock_ns: u64) -> u64 {
        clock_ns.saturating_add(self.absent_ns)
    }

    /// Starts the clock when a transfer begins after a time without any.
    pub fn wind(&mut self, now_ns: u64) {
        self.looked_ns = now_ns;
    }

    /// Makes the next check due at this time of the endpoint's clock, unless it is due earlier.
    #[inline]
    pub fn look_by(&mut self, at_ns: u64) {
        self.due_ns = self.due_ns.min(at_ns);
    }

    /// Makes the next check due in the next poll.
    #[inline]
    pub fn look_soon(&mut self) {
        self.due_ns = 0;
    }

    /// When the next check is due; `u64::MAX` if no time is set.
    pub fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Whether it is time to check. If so, the caller says when the next check is due.
    #[inline]
    pub fn looks(&mut self, now_ns: u64) -> bool {
        if now_ns < self.due_ns && now_ns < self.looked_ns.saturating_add(LOOK_NS) {
            return false;
        }
        let since_ns = now_ns.saturating_sub(self.looked_ns);
        if since_ns > ABSENCE_NS && !self.slept {
            // Nobody has read what the peers sent meanwhile, so that time does not count. The clock still advances a little, so
            // that a program that polls seldom can't stop it for ever.
            self.absent_ns += since_ns - ABSENCE_NS;
        }
        (self.looked_ns, self.due_ns, self.slept) = (now_ns, u64::MAX, false);
        true
    }

    /// Notes that the endpoint sleeps until the kernel wakes it.
    pub fn sleep(&mut self) {
        self.slept = true;
    }
}
