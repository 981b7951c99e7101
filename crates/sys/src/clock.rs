//! The monotonic clock.

/// Nanoseconds of the monotonic clock (`CLOCK_MONOTONIC`), through the vDSO: about 20 ns and no system call.
///
/// The same clock as [`crate::event::TimerFd`]'s deadlines.
///
/// The C library's call, not rustix's: that one looks for the vDSO by itself, in memory that valgrind hides, and a program
/// must be able to run under valgrind.
#[inline]
pub fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec. It can't fail: every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    // The kernel counts from boot: neither part is ever negative.
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_runs_backward() {
        let mut last_ns = now_ns();
        for _ in 0..10_000 {
            let now = now_ns();
            assert!(now >= last_ns);
            last_ns = now;
        }
    }
}
