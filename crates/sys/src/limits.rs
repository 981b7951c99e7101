//! What the system allows this process: read for `cci info`, which names the remedy when it is too little.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// Limits that matter to CCI. `None` where the system does not say (or sets none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Descriptors this process may hold (`RLIMIT_NOFILE`, soft). `None`: no limit.
    pub descriptors: Option<u64>,
    /// What it could raise that to (`RLIMIT_NOFILE`, hard). `None`: no limit.
    pub descriptors_hard: Option<u64>,
    /// Bytes that a file may have, which shared memory counts as (`RLIMIT_FSIZE`, soft). `None`: no limit.
    pub file_bytes: Option<u64>,
    /// Bytes this process may lock in memory (`RLIMIT_MEMLOCK`, soft). `None`: no limit.
    pub locked_bytes: Option<u64>,
    /// Largest receive buffer a socket is granted (`net.core.rmem_max`).
    pub socket_recv_bytes: Option<u64>,
    /// Largest send buffer a socket is granted (`net.core.wmem_max`).
    pub socket_send_bytes: Option<u64>,
}

/// Reads the limits as they are now.
pub fn read() -> Limits {
    let descriptors = getrlimit(Resource::Nofile);
    Limits {
        descriptors: descriptors.current,
        descriptors_hard: descriptors.maximum,
        file_bytes: getrlimit(Resource::Fsize).current,
        locked_bytes: getrlimit(Resource::Memlock).current,
        socket_recv_bytes: number_in("/proc/sys/net/core/rmem_max"),
        socket_send_bytes: number_in("/proc/sys/net/core/wmem_max"),
    }
}

/// Bytes of memory and swap that can still be had (`/proc/meminfo`), whatever a cgroup may say on top.
pub fn memory_available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some((kib("MemAvailable")? + kib("SwapFree").unwrap_or(0)).saturating_mul(1_024))
}

/// The number a file of `/proc` or `/sys` holds.
pub(crate) fn number_in(path: impl AsRef<std::path::Path>) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_limited_and_more_than_a_handful() {
        let limits = read();
        assert!(limits.descriptors.is_none_or(|count| count >= 16));
        assert!(memory_available_bytes().is_none_or(|bytes| bytes > 1 << 20));
        assert!(
            limits.descriptors_hard.is_none_or(|hard| limits.descriptors.is_some_and(|soft| soft <= hard))
        );
    }
}
