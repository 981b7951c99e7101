//! The monotonic clock.

mod counter;
mod estimate;

use estimate::{Estimate, Source};

/// Nanoseconds of the monotonic clock (`CLOCK_MONOTONIC`), cheap enough to be read with every poll: from the processor's
/// counter where the kernel keeps time by it too, else through the vDSO, never by a system call.
///
/// [`crate::event::TimerFd`]'s deadlines are times of this clock, to within a microsecond: it is set by the system's every few
/// milliseconds. It never goes back, also from thread to thread, but for this: the processor may read its counter some
/// tens of nanoseconds early, before loads that come before it in the program. Who subtracts readings of different threads
/// saturates.
#[inline]
pub fn now_ns() -> u64 {
    #[cfg(feature = "simulated")]
    if let Some(now_ns) = crate::simulated::now_ns() {
        return now_ns;
    }
    static CLOCK: Estimate<Machine> = Estimate::new(Machine);
    CLOCK.now_ns()
}

/// This machine's counter and clock.
struct Machine;

impl Source for Machine {
    #[inline]
    fn ticks(&self) -> u64 {
        counter::ticks()
    }

    fn is_steady(&self) -> bool {
        counter::is_steady()
    }

    #[inline]
    fn system_ns(&self) -> u64 {
        system_ns()
    }
}

/// The system's own reading: 20 to 25 ns, half of that for the order in which the kernel's code makes the processor read its
/// counter, and as much again in a program that waits for memory meanwhile.
///
/// The C library's call, not rustix's: that one looks for the vDSO by itself, in memory that valgrind hides, and a program
/// must be able to run under valgrind.
fn system_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec. It can't fail: every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    // The kernel counts from boot: neither part is ever negative.
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

#[cfg(test)]
mod tests;
