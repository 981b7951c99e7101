//! When a polling endpoint does what is less urgent than messages, and when it asks the kernel.

/// The most polls between two maintenances. A program that polls seldom has fewer.
const POLLS_PER_MAINTENANCE_MAX: u32 = 64;
/// If more time passes between two maintenances, the next one comes sooner.
const MAINTENANCE_NS_MAX: u64 = 10_000;
/// Time between two questions to the kernel. With a system call in each poll, latency would be little else.
const KERNEL_POLL_NS: u64 = 20_000;
/// Time between two questions to the kernel if the program may have slept on the descriptor: the kernel has woken it for something.
const KERNEL_DUE_NS: u64 = 2_000;

/// The number of polls since the last maintenance, and when the kernel was asked.
pub(super) struct Pace {
    polls: u32,
    polls_per_maintenance: u32,
    kernel_polled_ns: u64,
    /// Whether the program may have slept on the descriptor, so that the kernel has something to report.
    kernel_due: bool,
}

impl Pace {
    pub const fn new() -> Pace {
        Pace { polls: 0, polls_per_maintenance: 8, kernel_polled_ns: 0, kernel_due: true }
    }

    /// Counts a poll. Returns whether maintenance is due after it.
    #[inline]
    pub fn is_maintenance_due(&mut self) -> bool {
        self.polls += 1;
        self.polls >= self.polls_per_maintenance || self.kernel_due
    }

    /// Whether maintenance will be due after the next poll.
    #[inline]
    pub fn is_maintenance_near(&self) -> bool {
        self.polls + 1 >= self.polls_per_maintenance || self.kernel_due
    }

    /// Counts a poll after which no maintenance is due.
    #[inline]
    pub fn polled(&mut self) {
        self.polls += 1;
    }

    /// Notes that maintenance begins, `since_ns` after the one before.
    #[inline]
    pub fn maintained(&mut self, since_ns: u64) {
        self.polls = 0;
        self.polls_per_maintenance = match since_ns {
            MAINTENANCE_NS_MAX.. => (self.polls_per_maintenance / 2).max(1),
            _ => (self.polls_per_maintenance + 1).min(POLLS_PER_MAINTENANCE_MAX),
        };
    }

    /// Whether the kernel is to be asked now; it counts as asked then.
    #[inline]
    pub fn asks_kernel(&mut self, now_ns: u64) -> bool {
        let since_ns = now_ns.saturating_sub(self.kernel_polled_ns);
        let asks = since_ns >= KERNEL_POLL_NS || self.kernel_due && since_ns >= KERNEL_DUE_NS;
        if asks {
            (self.kernel_due, self.kernel_polled_ns) = (false, now_ns);
        }
        asks
    }

    /// Notes that the program may sleep on the descriptor from now on.
    pub fn may_sleep(&mut self) {
        self.kernel_due = true;
    }
}
