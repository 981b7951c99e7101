//! Which capabilities this thread has, by name.

/// Capabilities that AF_XDP or packet sockets take, by bit.
const KNOWN: &[(u32, &str)] = &[
    (12, "CAP_NET_ADMIN"),
    (13, "CAP_NET_RAW"),
    (14, "CAP_IPC_LOCK"),
    (21, "CAP_SYS_ADMIN"),
    (39, "CAP_BPF"),
];

/// To receive and send raw frames.
pub(crate) const RAW: &str = "CAP_NET_RAW";
/// To attach a program to an interface.
pub(crate) const ADMIN: &str = "CAP_NET_ADMIN";
/// To load programs and make maps.
pub(crate) const BPF: &str = "CAP_BPF";
/// To lock memory beyond RLIMIT_MEMLOCK.
pub(crate) const LOCK: &str = "CAP_IPC_LOCK";
/// To find the program that another process has attached.
pub(crate) const SYS: &str = "CAP_SYS_ADMIN";

/// Those of `needs` that the thread does not have. For bpf(), CAP_SYS_ADMIN includes CAP_BPF and
/// CAP_NET_ADMIN.
pub(crate) fn missing(needs: &[&'static str]) -> Vec<&'static str> {
    let held = effective();
    let has = |name: &str| {
        let bit = KNOWN.iter().find(|(_, known)| *known == name).map_or(0, |(bit, _)| 1u64 << bit);
        held & bit != 0
    };
    needs.iter().copied().filter(|name| !(has(name) || matches!(*name, BPF | ADMIN) && has(SYS))).collect()
}

/// The thread's effective set; none where it cannot be read.
fn effective() -> u64 {
    let read = || {
        let text = std::fs::read_to_string("/proc/thread-self/status").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    read().unwrap_or(0)
}
