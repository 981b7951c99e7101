//! What a process holds of the system, seen from any process.

use std::collections::BTreeMap;
use std::fs;

/// What a process holds, from `/proc/PID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Open descriptors by kind: `socket`, `anon_inode:[eventfd]`, ...
    pub descriptors: BTreeMap<String, usize>,
    /// Mappings that are shared with others: rings, regions, frames of raw Ethernet.
    pub shared_mappings: usize,
    /// Threads.
    pub threads: usize,
}

impl Held {
    /// What a process holds now; nothing if it has ended.
    pub fn by(pid: u32) -> Held {
        let folder = format!("/proc/{pid}");
        let mut descriptors = BTreeMap::new();
        for entry in fs::read_dir(format!("{folder}/fd")).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            // Both "socket:[123]" and "/memfd:cci-ring (deleted)" are cut to their kinds.
            let target = target.to_string_lossy().into_owned();
            let kind = target.split(":[").next().unwrap_or_default().to_owned();
            *descriptors.entry(kind).or_insert(0) += 1;
        }
        let maps = fs::read_to_string(format!("{folder}/maps")).unwrap_or_default();
        let is_shared =
            |line: &&str| line.split_whitespace().nth(1).is_some_and(|rights| rights.ends_with('s'));
        let threads = fs::read_dir(format!("{folder}/task")).map_or(0, Iterator::count);
        Held { descriptors, shared_mappings: maps.lines().filter(is_shared).count(), threads }
    }

    /// Open descriptors of every kind together.
    pub fn descriptor_count(&self) -> usize {
        self.descriptors.values().sum()
    }
}

/// The resident memory of a process, bytes; `None` once it has ended.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Files that endpoints could leave behind: those of `/dev/shm` and `/run` with "cci" in their names.
pub fn files() -> usize {
    let named = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().contains("cci")).count()
    };
    named("/dev/shm") + named("/run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_holds_something_and_none_holds_nothing() {
        let pid = std::process::id();
        let held = Held::by(pid);
        assert!(held.descriptor_count() >= 3 && held.threads > 0, "{held:?}");
        assert!(resident_bytes(pid).is_some_and(|bytes| bytes > 100_000));
        let none = Held::by(0);
        assert!(none.descriptors.is_empty() && none.shared_mappings == 0 && none.threads == 0, "{none:?}");
        assert_eq!(resident_bytes(0), None);
    }
}
