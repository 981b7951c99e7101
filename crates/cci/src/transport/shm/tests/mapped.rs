//! What a peer grants, and what the endpoint makes of it. The peer, which owns the memory, is scripted.

use super::*;
use crate::{Access, RegionAddress, RegionHandle, RmaFlags};
use cci_sys::memory::RmaMemory;

const MAGIC: u64 = u64::from_ne_bytes(*b"CCIgrant");
const CONTROL_BYTES: usize = 4096;
const TOKEN: u64 = 5;

/// A peer that lends memory of its own.
pub(super) struct Lender {
    pub lie: Joined,
    control: SharedMemory,
}

impl Lender {
    pub(super) fn new(client: &mut Endpoint, endpoint: u64) -> Lender {
        Lender::new_as(client, endpoint, std::process::id())
    }

    /// The client takes the lender for a process with this number.
    pub(super) fn new_as(client: &mut Endpoint, endpoint: u64, pid: u32) -> Lender {
        let attacker = ask_as(client, endpoint, Attribute::ReliableUnordered, pid);
        let lie = confirm(client, attacker);
        let control = SharedMemory::create_read_only_for_others(CONTROL_BYTES).unwrap();
        assert!(control.bytes().fill(0, CONTROL_BYTES, 0));
        Lender { lie, control }
    }

    /// Makes the client ask for a region of ours, by a write that goes through the ring, and grants it.
    pub(super) fn lend(
        &self,
        client: &mut Endpoint,
        from: RegionHandle,
        region: u64,
        len: u64,
        memory: BorrowedFd<'_>,
    ) {
        self.lend_content(client, from, region, len, 0, memory);
    }

    /// Lends memory (`content` is 0), a file (1), or what is neither.
    pub(super) fn lend_content(
        &self,
        client: &mut Endpoint,
        from: RegionHandle,
        region: u64,
        len: u64,
        content: u64,
        memory: BorrowedFd<'_>,
    ) {
        self.lend_as(client, from, (region, region), len, content, memory);
    }

    /// Lends a region of what is said to have a number.
    pub(super) fn lend_as(
        &self,
        client: &mut Endpoint,
        from: RegionHandle,
        (region, number): (u64, u64),
        len: u64,
        content: u64,
        memory: BorrowedFd<'_>,
    ) {
        self.write(client, from, region, len);
        let word = 1 + (region - 1) % (CONTROL_BYTES as u64 / 8 - 1);
        assert!(self.control.bytes().write(word as usize * 8, &TOKEN.to_ne_bytes()));
        let control_bytes = CONTROL_BYTES as u64;
        let words = [MAGIC, region, 2, u64::MAX, 7, content, number, len, 0, len, word, TOKEN, control_bytes];
        let words = words.map(u64::to_ne_bytes);
        let control = self.control.fd().unwrap();
        self.lie.stream.send(words.as_flattened(), &[memory, control]).unwrap();
        // Polls until the kernel was asked a few times.
        let asked = counter(client, "kernel_polls");
        let start = Instant::now();
        while counter(client, "kernel_polls") < asked + 3 {
            assert!(start.elapsed() < PATIENCE);
            client.progress();
        }
    }

    pub(super) fn write(&self, client: &mut Endpoint, from: RegionHandle, region: u64, len: u64) {
        let to = RegionAddress::new(RegionHandle::new(region, len, 2, Access::ALL), 0);
        client
            .rma_write(self.lie.connection, RegionAddress::new(from, 0), to, 8, 1, RmaFlags::SILENT)
            .unwrap();
    }
}

pub(super) fn counter(endpoint: &Endpoint, name: &str) -> u64 {
    endpoint.counters().device.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}")).1
}

#[test]
fn a_sparse_memory_is_neither_allocated_nor_mapped_for_who_grants_it() {
    let mut client = endpoint();
    let source = client.allocate(4096).unwrap();
    let from = client.register(&source, Access::LOCAL).unwrap();
    let lender = Lender::new(&mut client, 1);
    // The first does not fit under the cap; the second does.
    for (region, len, refused) in [(1, 4 << 30, 0), (2, 1 << 20, 1)] {
        let memory = sparse(len);
        lender.lend(&mut client, from, region, len, memory.as_fd());
        assert_eq!(
            rustix::fs::fstat(&memory).unwrap().st_blocks,
            0,
            "blocks that the grant made us allocate"
        );
        assert_eq!(
            (counter(&client, "rma_mapped_bytes"), counter(&client, "rma_grants_refused")),
            (0, refused)
        );
        // What is asked of that memory goes through the ring from now on, and no more is said about mappings.
        assert!(client.is_open(lender.lie.connection));
        let ring = counter(&client, "rma_ring");
        lender.write(&mut client, from, region, len);
        assert_eq!((counter(&client, "rma_ring"), counter(&client, "rma_direct")), (ring + 1, 0));
    }
}

#[test]
fn memory_of_peers_is_mapped_under_the_cap_and_one_process_leaves_some_to_others() {
    const LEN: u64 = 1 << 20;
    let options = Options { memory_bytes_max: 24 << 20, recv_buffers: 64, ..Options::default() };
    let mut client = Endpoint::create(&builtin::shm("shm"), options).unwrap();
    let source = client.allocate(4096).unwrap();
    let from = client.register(&source, Access::LOCAL).unwrap();
    // The second link of the first process has no quota of its own.
    let peers = [(1, 4711), (2, 4711), (3, 4712)];
    let lenders = peers.map(|(endpoint, pid)| Lender::new_as(&mut client, endpoint, pid));
    let mapped = |client: &Endpoint| {
        let memory = client.counters().memory;
        assert!(memory.total_bytes <= memory.cap_bytes, "{memory:?}");
        memory.kinds.iter().find(|(kind, _)| *kind == "memory of peers, mapped").unwrap().1
    };
    let memories: Vec<RmaMemory> = (0..16).map(|_| RmaMemory::create(LEN as usize).unwrap()).collect();
    let mut shares = [0; 3];
    for (lender, share) in lenders.iter().zip(&mut shares) {
        let before = mapped(&client);
        for (region, memory) in (1..).zip(&memories) {
            lender.lend(&mut client, from, region, LEN, memory.shared().fd().unwrap());
        }
        *share = mapped(&client) - before;
    }
    // Half of the cap is for mappings: the first has at most as much of it as it leaves, and so has the second of that.
    let page = CONTROL_BYTES as u64;
    assert_eq!(shares, [5 * LEN + page, page, 3 * LEN + page]);
    let explanation = client.explain(lenders[2].lie.connection).unwrap();
    let path = explanation.paths.iter().find(|path| path.path == "remote memory: direct mapping").unwrap();
    assert!(path.chosen && path.reason.contains("memory_bytes_max"), "{path:?}");
    // What is let go of is there for others, and for the same one.
    let uses_both = counter(&client, "rma_mapped_bytes");
    drop(lenders);
    until(&mut client, "nothing mapped", |client, _| (mapped(client) == 0).then_some(()));
    assert_eq!(uses_both, 8 * LEN);
}
