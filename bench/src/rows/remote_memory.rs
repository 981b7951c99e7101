//! Remote memory: bandwidth by size, beside plain copies and streams.

use super::{Goal, Row, baseline_at_least, pair, with_peers};
use crate::args::By;
use crate::contestant::Contestant;
use crate::peers::Peers;
use crate::work::{Placement, Work};

const MIB: u32 = 1 << 20;
const SAME_HOST: Placement = Placement::SameHost;

/// What has a goal, for transfers of 1 MiB.
struct Family<'a> {
    name: &'a str,
    of: &'a str,
    sizes: &'a [u32],
    contestants: &'a dyn Fn() -> Vec<Box<dyn Contestant>>,
    /// Those of the peers that write.
    peers: &'a dyn Fn() -> Vec<Box<dyn Contestant>>,
    goal: Goal,
}

/// The rows that measure remote memory.
pub fn rows(peers: &Peers) -> Vec<Row> {
    let families = [
        Family {
            name: "shm",
            of: "library memory over shared memory",
            sizes: &[8, 4096, 65_536, MIB, 16 * MIB],
            contestants: &|| pair("memcpy", By::Memcpy, "cci shm", By::Shm, SAME_HOST),
            peers: &|| peers.remote_memory(),
            goal: baseline_at_least(0.95),
        },
        Family {
            name: "shm-foreign",
            of: "the program's own memory over shared memory",
            sizes: &[4096, 65_536, MIB, 16 * MIB],
            contestants: &|| pair("process_vm_*v", By::ProcessVm, "cci shm", By::ShmForeign, SAME_HOST),
            peers: &Vec::new,
            goal: baseline_at_least(0.95),
        },
        Family {
            name: "udp",
            of: "memory over UDP on loopback",
            sizes: &[65_536, MIB],
            contestants: &|| pair("plain TCP stream", By::PlainTcp, "cci udp", By::Udp, SAME_HOST),
            peers: &Vec::new,
            goal: baseline_at_least(1.0),
        },
        Family {
            name: "tcp",
            of: "memory over TCP on loopback",
            sizes: &[65_536, MIB],
            contestants: &|| pair("plain TCP stream", By::PlainTcp, "cci tcp", By::Tcp, SAME_HOST),
            peers: &|| peers.remote_memory_sockets(),
            goal: baseline_at_least(0.95),
        },
    ];
    families.iter().flat_map(Family::rows).collect()
}

impl Family<'_> {
    fn rows(&self) -> Vec<Row> {
        let row = |verb: &str, work: Work, len: u32, contestants| Row {
            name: format!("{}/{verb}/{len}", self.name),
            title: format!("Remote {verb}s of {}, {len} B", self.of),
            work,
            goals: if len == MIB { vec![self.goal] } else { Vec::new() },
            contestants,
        };
        let writes = self.sizes.iter().map(|&len| {
            row("write", Work::Write { len }, len, with_peers((self.contestants)(), (self.peers)()))
        });
        let reads = self.sizes.iter().map(|&len| row("read", Work::Read { len }, len, (self.contestants)()));
        writes.chain(reads).collect()
    }
}
