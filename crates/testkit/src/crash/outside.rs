//! What processes hold of the system, seen from another process.

use crate::net::{End, Veth};
use std::collections::BTreeMap;
use std::fs;

/// What a process holds, from `/proc/PID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Descriptors by kind: `socket`, `anon_inode:[eventfd]`, ...
    pub descriptors: BTreeMap<String, usize>,
    /// Mappings shared with others: rings, regions, frames of raw Ethernet.
    pub shared_mappings: usize,
    /// Threads.
    pub threads: usize,
    /// Memory of its own: what is resident, KiB. Not compared for equality of two moments: see [`Held::same`].
    pub resident_kib: u64,
}

impl Held {
    /// As of now; of a process that has ended, nothing.
    pub fn by(pid: u32) -> Held {
        let folder = format!("/proc/{pid}");
        let mut descriptors = BTreeMap::new();
        for entry in fs::read_dir(format!("{folder}/fd")).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            // "socket:[123]" and "/memfd:cci-ring (deleted)" alike.
            let target = target.to_string_lossy().into_owned();
            let kind = target.split(":[").next().unwrap_or_default().to_owned();
            *descriptors.entry(kind).or_insert(0) += 1;
        }
        let maps = fs::read_to_string(format!("{folder}/maps")).unwrap_or_default();
        let shared = |line: &&str| line.split_whitespace().nth(1).is_some_and(|rights| rights.ends_with('s'));
        let status = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        Held {
            descriptors,
            shared_mappings: maps.lines().filter(shared).count(),
            threads: number("Threads") as usize,
            // Memory shared with others comes and goes with what is touched.
            resident_kib: number("RssAnon"),
        }
    }

    /// Whether as much is held as at another time, memory aside.
    pub fn same(&self, other: &Held) -> bool {
        self.descriptors == other.descriptors
            && self.shared_mappings == other.shared_mappings
            && self.threads == other.threads
    }
}

/// What the system holds, whoever it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// Sockets of each protocol in the namespaces of the campaign, AF_XDP and AF_PACKET among them. Without namespaces of
    /// its own, nothing: others' sockets come and go.
    pub sockets: BTreeMap<String, u64>,
    /// Names of the abstract UNIX sockets there.
    pub names: usize,
    /// Programs attached to the interfaces there.
    pub programs: usize,
    /// Files in `/dev/shm` and `/run` with "cci" in their name, and sockets in `/tmp`.
    pub files: usize,
}

impl System {
    /// As of now, in the namespaces of a network and of the calling thread.
    pub fn now(network: Option<&Veth>) -> System {
        let mut system = System { sockets: BTreeMap::new(), names: 0, programs: 0, files: files() };
        let Some(veth) = network else { return system };
        for end in [End::A, End::B] {
            let _inside = veth.enter(end);
            system.count_here();
        }
        system
    }

    fn count_here(&mut self) {
        // The thread's, not the process's: namespaces are a thread's own.
        let read =
            |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
        for line in read("protocols").lines().skip(1) {
            let mut words = line.split_whitespace();
            let (Some(protocol), _, Some(count)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let count = count.parse().unwrap_or(0);
            // Whoever lists interfaces has one of these for a moment; tools of the harness do.
            if count > 0 && protocol != "NETLINK" {
                *self.sockets.entry(protocol.to_owned()).or_insert(0) += count;
            }
        }
        self.names += read("unix").lines().filter(|line| line.contains(" @")).count();
        let listed = std::process::Command::new("ip").args(["-o", "link"]).output();
        let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let attached = |line: &&str| line.contains(" xdp") || line.contains(" prog/xdp");
        self.programs += listed.unwrap_or_default().lines().filter(attached).count();
    }
}

fn files() -> usize {
    let named = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().contains("cci")).count()
    };
    named("/dev/shm") + named("/run")
}
