//! How often polls read the clock and ask the kernel.
//!
//! Every poll asks the kernel while it has something to report. Then polls ask it less and less often, but at least every
//! [`KERNEL_POLL_NS`]. So a poll costs as much with ten thousand connections as with ten.

use cci_sys::clock;

/// The most polls between two questions to the kernel.
const POLLS_PER_ASK_MAX: u32 = 64;
/// The longest time between two questions to the kernel.
const KERNEL_POLL_NS: u64 = 50_000;
/// Polls share a reading of the clock while it is not older than this.
const CLOCK_AGE_NS: u64 = 5_000;
/// The most polls that share a reading of the clock.
const POLLS_PER_CLOCK_MAX: u64 = 8;
/// The most queued sends that share a reading of the clock.
const SENDS_PER_CLOCK: u32 = 16;

/// Counts of polls and sends since the clock was read and the kernel was asked.
pub(super) struct Pace {
    /// Number of polls. It wraps.
    pub polls: u32,
    polls_per_ask: u32,
    polls_to_ask: u32,
    asked_ns: u64,
    /// The last reading of the clock by a poll, how many polls have shared it, and how many may.
    clock_ns: u64,
    polls_since_clock: u64,
    polls_per_clock: u64,
    sends_since_clock: u32,
}

impl Pace {
    pub const fn new() -> Pace {
        Pace {
            polls: 0,
            polls_per_ask: 1,
            polls_to_ask: 0,
            asked_ns: 0,
            clock_ns: 0,
            polls_since_clock: 0,
            polls_per_clock: 1,
            sends_since_clock: 0,
        }
    }

    /// Begins a poll, and reads the clock if the last reading is too old.
    #[inline]
    pub fn begin_poll(&mut self, now_ns: &mut u64) {
        self.polls = self.polls.wrapping_add(1);
        self.polls_since_clock += 1;
        if self.polls_since_clock >= self.polls_per_clock {
            self.read_clock(now_ns);
        }
    }

    /// Without sharing, a program that polls as fast as it can would spend a tenth of its time on the clock.
    fn read_clock(&mut self, now_ns: &mut u64) {
        *now_ns = clock::now_ns();
        let poll_ns = now_ns.saturating_sub(self.clock_ns) / self.polls_since_clock.max(1);
        self.polls_per_clock = (CLOCK_AGE_NS / poll_ns.max(1)).clamp(1, POLLS_PER_CLOCK_MAX);
        self.polls_since_clock = 0;
        self.clock_ns = *now_ns;
    }

    /// Begins a send. Reads the clock if the message leaves at once, and from time to time otherwise.
    #[inline]
    pub fn begin_send(&mut self, leaves_at_once: bool, now_ns: &mut u64) {
        self.sends_since_clock += 1;
        if leaves_at_once || self.sends_since_clock >= SENDS_PER_CLOCK {
            *now_ns = clock::now_ns();
            self.sends_since_clock = 0;
        }
    }

    /// Whether this poll asks the kernel.
    #[inline]
    pub fn is_time_to_ask(&mut self, now_ns: u64) -> bool {
        self.polls_to_ask = self.polls_to_ask.saturating_sub(1);
        self.polls_to_ask == 0 || now_ns.saturating_sub(self.asked_ns) >= KERNEL_POLL_NS
    }

    /// Notes that the kernel was asked. `reported` says whether it reported a connection that polls do not read.
    pub fn asked(&mut self, now_ns: u64, reported: bool) {
        self.asked_ns = now_ns;
        self.polls_per_ask = if reported { 1 } else { (self.polls_per_ask * 2).min(POLLS_PER_ASK_MAX) };
        self.polls_to_ask = self.polls_per_ask;
    }

    /// Notes that the program sleeps. The next poll asks the kernel what has woken it, and reads the clock.
    pub fn sleep(&mut self) {
        (self.polls_to_ask, self.polls_per_clock) = (0, 0);
    }
}
