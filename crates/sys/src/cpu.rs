//! Which cores this process may use.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{Result, SysError, Tried};

/// How many threads can run at once here: affinity and cgroup quota counted; at least 1.
///
/// Spinning while waiting for a peer on the same machine pays only when this is 2 or more.
pub fn available() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The cores the calling thread may run on.
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None).tried("read the affinity (sched_getaffinity)")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
}

/// Binds the calling thread to `core`, for benchmarks and progress threads.
pub fn pin(core: usize) -> Result<()> {
    const WHAT: &str = "pin the thread to a core (sched_setaffinity)";
    if core >= CpuSet::MAX_CPU {
        return Err(SysError::new(WHAT, std::io::Error::from_raw_os_error(libc::EINVAL)).on(core));
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).tried(WHAT).map_err(|error| error.on(core))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_to_an_allowed_core_only() {
        assert!(available() >= 1);
        let cores = allowed().unwrap();
        let last = *cores.last().unwrap();
        // A thread of its own: the affinity of the test runner's thread stays as it was.
        std::thread::spawn(move || {
            pin(last).unwrap();
            assert_eq!(allowed().unwrap(), [last]);
        })
        .join()
        .unwrap();
        assert!(pin(usize::MAX).is_err());
    }
}
