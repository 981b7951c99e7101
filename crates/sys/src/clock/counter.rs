//! The processor's counter of time.

/// Its reading. It counts on all processors alike wherever [`is_steady`] says so.
///
/// Not ordered against the loads before it: to wait for those takes as long as the reading itself, and much longer where one
/// of them misses the caches, as those for a message that has just come do.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn ticks() -> u64 {
    // SAFETY: every processor of this architecture has the instruction. Where a process is forbidden it (PR_SET_TSC), the
    // vDSO does not work either.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether the counter may be used: the processor counts at one rate in all states, and the kernel, which compares the
/// processors' counters with each other and with another clock, keeps time by it.
#[cfg(target_arch = "x86_64")]
pub(super) fn is_steady() -> bool {
    use core::arch::x86_64::__cpuid;
    /// Advanced power management, and its bit for a counter that neither stops nor changes its rate.
    const POWER: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    let invariant = __cpuid(0x8000_0000).eax >= POWER && __cpuid(POWER).edx & INVARIANT != 0;
    invariant && kernel_uses("tsc")
}

/// Elsewhere the vDSO will do: its code is as short as ours would be.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(super) fn ticks() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn is_steady() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
fn kernel_uses(name: &str) -> bool {
    use std::io::Read;
    const FILE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let mut text = [0; 32];
    let read = std::fs::File::open(FILE).and_then(|mut file| file.read(&mut text));
    read.ok().and_then(|len| text.get(..len)).is_some_and(|text| text.trim_ascii() == name.as_bytes())
}
