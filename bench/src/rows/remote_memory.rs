//! Remote memory: bandwidth by size, beside plain copies and streams.

use super::{
    Contestants, Goal, Row, across_a_pair, baseline, baseline_at_least, best_peer_at_least, ours, with_peers,
};
use crate::args::By;
use crate::peers::Peers;
use crate::work::Work;

const MIB: u32 = 1 << 20;
const LONG: u32 = 16 << 20;

/// Rows that differ in direction and size.
struct Family<'a> {
    name: &'a str,
    of: &'a str,
    sizes: &'a [u32],
    contestants: &'a dyn Fn() -> Contestants,
    /// Those of the peers that write.
    peers: &'a dyn Fn() -> Contestants,
    /// For one transfer.
    goal: fn(Work) -> Option<Goal>,
}

/// The rows that measure remote memory.
pub fn rows(peers: &Peers) -> Vec<Row> {
    let families = [
        Family {
            name: "shm",
            of: "library memory over shared memory",
            sizes: &[8, 4096, 65_536, MIB, LONG],
            contestants: &|| vec![baseline("memcpy", By::Memcpy), ours("cci shm", By::Shm)],
            peers: &|| peers.remote_memory(),
            goal: |work| match work {
                Work::Write { len: 8 | 4096 | 65_536 | MIB } => Some(best_peer_at_least(1.0)),
                Work::Read { len: MIB } => Some(baseline_at_least(0.95)),
                _ => None,
            },
        },
        Family {
            name: "shm-foreign",
            of: "the program's own memory over shared memory",
            sizes: &[4096, 65_536, MIB, LONG],
            contestants: &|| vec![baseline("process_vm_*v", By::ProcessVm), ours("cci shm", By::ShmForeign)],
            peers: &Vec::new,
            goal: |work| match work {
                Work::Write { len: 65_536 | MIB | LONG } | Work::Read { len: 65_536 | MIB | LONG } => {
                    Some(baseline_at_least(1.0))
                }
                _ => None,
            },
        },
        Family {
            name: "udp",
            of: "memory over UDP on loopback",
            sizes: &[65_536, MIB, LONG],
            contestants: &|| vec![baseline("plain TCP stream", By::PlainTcp), ours("cci udp", By::Udp)],
            peers: &Vec::new,
            goal: |work| match work {
                Work::Write { len: MIB | LONG } | Work::Read { len: MIB } => Some(baseline_at_least(1.0)),
                _ => None,
            },
        },
        Family {
            name: "pair-udp",
            of: "memory over UDP across a pair of virtual Ethernet interfaces (MTU 1,500)",
            sizes: &[MIB, LONG],
            contestants: &|| across_a_pair(("plain TCP stream", By::PlainTcp), ("cci udp", By::Udp)),
            peers: &Vec::new,
            goal: |_| None,
        },
        Family {
            name: "tcp",
            of: "memory over TCP on loopback",
            sizes: &[65_536, MIB, LONG],
            contestants: &|| vec![baseline("plain TCP stream", By::PlainTcp), ours("cci tcp", By::Tcp)],
            peers: &|| peers.remote_memory_sockets(),
            goal: |work| match work {
                Work::Write { len: MIB } | Work::Read { len: MIB } => Some(baseline_at_least(0.95)),
                _ => None,
            },
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
            row.with_goals((self.goal)(work).as_slice())
        };
        let writes = self.sizes.iter().map(|&len| {
            row("write", Work::Write { len }, len, with_peers((self.contestants)(), (self.peers)()))
        });
        let reads = self.sizes.iter().map(|&len| row("read", Work::Read { len }, len, (self.contestants)()));
        writes.chain(reads).collect()
    }
}
