//! The clock by which transfers are judged: it stands still while this side's program does not poll.

/// How often transfers are looked after.
const LOOK_NS: u64 = 1_000_000;
/// A program that has not polled for so long was busy with something else.
const ABSENCE_NS: u64 = 100_000_000;

/// When transfers are looked after, and by which time they are judged.
pub(super) struct Clock {
    /// When the first of the transfers is to be looked after.
    due_ns: u64,
    looked_ns: u64,
    /// How long this side's program has not polled while something was under way: that is not the peers' fault.
    absent_ns: u64,
    /// The kernel was to wake this side since the last look.
    slept: bool,
}

impl Clock {
    pub const fn new() -> Clock {
        Clock { due_ns: u64::MAX, looked_ns: 0, absent_ns: 0, slept: false }
    }

    /// What this clock shows at a time of the endpoint's.
    #[inline]
    pub fn at_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.absent_ns)
    }

    /// When this clock shows that, by the endpoint's.
    #[inline]
    pub fn when_ns(&self, clock_ns: u64) -> u64 {
        clock_ns.saturating_add(self.absent_ns)
    }

    /// The first transfer begins after a time without any.
    pub fn wind(&mut self, now_ns: u64) {
        self.looked_ns = now_ns;
    }

    /// Transfers are to be looked after at this time of the endpoint's at the latest.
    #[inline]
    pub fn look_by(&mut self, at_ns: u64) {
        self.due_ns = self.due_ns.min(at_ns);
    }

    /// Transfers are to be looked after in the next poll.
    #[inline]
    pub fn look_soon(&mut self) {
        self.due_ns = 0;
    }

    /// When they are to be looked after; `u64::MAX`: whenever it is convenient.
    pub fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Whether it is time to look. If so, the next look is due when somebody says so.
    #[inline]
    pub fn looks(&mut self, now_ns: u64) -> bool {
        if now_ns < self.due_ns && now_ns < self.looked_ns.saturating_add(LOOK_NS) {
            return false;
        }
        let since_ns = now_ns.saturating_sub(self.looked_ns);
        if since_ns > ABSENCE_NS && !self.slept {
            // What the peers did meanwhile was not looked at, and is not judged. The clock goes on a little all the same: a
            // program that polls seldom must not stop it for ever.
            self.absent_ns += since_ns - ABSENCE_NS;
        }
        (self.looked_ns, self.due_ns, self.slept) = (now_ns, u64::MAX, false);
        true
    }

    /// The endpoint sleeps until the kernel wakes it.
    pub fn sleep(&mut self) {
        self.slept = true;
    }
}
