//! Remote memory: bandwidth by size, beside plain copies and streams.

use super::{Contestants, Goal, Row, baseline, baseline_at_least, ours, with_peers};
use crate::args::By;
use crate::peers::Peers;
use crate::work::Work;

const MIB: u32 = 1 << 20;

/// What has a goal, for transfers of 1 MiB.
struct Family<'a> {
    name: &'a str,
    of: &'a str,
    sizes: &'a [u32],
    contestants: &'a dyn Fn() -> Contestants,
    /// Those of the peers that write.
    peers: &'a dyn Fn() -> Contestants,
    goal: Goal,
}

/// The rows that measure remote memory.
pub fn rows(peers: &Peers) -> Vec<Row> {
    let families = [
        Family {
            name: "shm",
            of: "library memory over shared memory",
            sizes: &[8, 4096, 65_536, MIB, 16 * MIB],
            contestants: &|| vec![baseline("memcpy", By::Memcpy), ours("cci shm", By::Shm)],
            peers: &|| peers.remote_memory(),
            goal: baseline_at_least(0.95),
        },
        Family {
            name: "shm-foreign",
            of: "the program's own memory over shared memory",
            sizes: &[4096, 65_536, MIB, 16 * MIB],
            contestants: &|| vec![baseline("process_vm_*v", By::ProcessVm), ours("cci shm", By::ShmForeign)],
            peers: &Vec::new,
            goal: baseline_at_least(0.95),
        },
        Family {
            name: "udp",
            of: "memory over UDP on loopback",
            sizes: &[65_536, MIB, 16 * MIB],
            contestants: &|| vec![baseline("plain TCP stream", By::PlainTcp), ours("cci udp", By::Udp)],
            peers: &Vec::new,
            goal: baseline_at_least(1.0),
        },
        Family {
            name: "tcp",
            of: "memory over TCP on loopback",
            sizes: &[65_536, MIB, 16 * MIB],
            contestants: &|| vec![baseline("plain TCP stream", By::PlainTcp), ours("cci tcp", By::Tcp)],
            peers: &|| peers.remote_memory_sockets(),
            goal: baseline_at_least(0.95),
        },
    ];
    families.iter().flat_map(Family::rows).collect()
}

impl Family<'_> {
    fn rows(&self) -> Vec<Row> {
        let row = |verb: &str, work: Work, len: u32, contestants| {
            let (name, title) =
                (format!("{}/{verb}/{len}", self.name), format!("Remote {verb}s of {}, {len} B", self.of));
            let row = Row::new(name, title, work, contestants);
            row.with_goals(if len == MIB { std::slice::from_ref(&self.goal) } else { &[] })
        };
        let writes = self.sizes.iter().map(|&len| {
            row("write", Work::Write { len }, len, with_peers((self.contestants)(), (self.peers)()))
        });
        let reads = self.sizes.iter().map(|&len| row("read", Work::Read { len }, len, (self.contestants)()));
        writes.chain(reads).collect()
    }
}
