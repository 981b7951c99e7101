//! What is counted, said and held of remote memory, and how transfers share (CCI-001, CCI-077 to CCI-079).

use super::{RELIABLE, RO};
use crate::conformance::{
    Area, Capability, Conn, Driver, Environment, Flags, Pair, Port, Refusal, Side, Skipped, Whose,
    conformance_timeout, connect, part, plain,
};
use cci::{Access, Atomic, AtomicKind, AtomicWidth, RegionHandle, RmaKind, Segment, Status};
use std::time::Instant;

/// Operations at the side that makes them, refusals at the side that refuses.
pub fn operations_are_counted<D: Driver>(env: &Environment<D>) {
    let mut pair = Pair::<D>::plain(env, RO);
    let local_area = Area::new(&mut pair.client, Whose::Library, 10_000, Access::LOCAL);
    let remote_area = Area::new(&mut pair.server, Whose::Foreign, 10_000, Access::ALL);
    assert_eq!((pair.client.port.counts().regions, pair.server.port.counts().regions), (1, 1));
    for len in [1, 100, 10_000] {
        pair.transfer(RmaKind::Write, local_area.segment(0, len), remote_area.segment(0, len));
        pair.transfer(RmaKind::Read, local_area.segment(0, len), remote_area.segment(0, len));
    }
    pair.transfer(RmaKind::Write, local_area.segment(0, 50), remote_area.segment(0, 50));
    let add = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Four, operand: 1, compare: 0 };
    for _ in 0..5 {
        pair.change(add, remote_area.address(0), None);
    }
    let (client, server) = (pair.client.port.counts(), pair.server.port.counts());
    assert_eq!((client.rma_writes, client.rma_reads, client.atomics), (4, 3, 5));
    assert_eq!(client.rma_bytes, 2 * 10_101 + 50);
    assert_eq!((server.rma_writes, server.rma_reads, server.atomics, server.rma_bytes), (0, 0, 0, 0));
    assert_eq!((client.sends_failed, server.rma_refused, client.rma_refused), (0, 0, 0));
    let mut forged = remote_area.handle.to_bytes();
    forged[16] ^= 1;
    let forged = Segment::new(RegionHandle::from_bytes(forged), 0, 100);
    for _ in 0..3 {
        assert_eq!(pair.transfer(RmaKind::Write, local_area.segment(0, 100), forged), Status::RmaHandle);
    }
    // The handle itself says that this is beyond the end.
    assert_eq!(
        pair.transfer(RmaKind::Read, local_area.segment(0, 100), remote_area.segment(9_999, 100)),
        Status::RmaHandle
    );
    let (client, server) = (pair.client.port.counts(), pair.server.port.counts());
    assert_eq!(client.sends_failed, 4);
    assert!(matches!(server.rma_refused, 3 | 4), "{server:?}");
    pair.server.port.deregister(&remote_area.handle).expect("registered");
    assert_eq!(pair.server.port.counts().regions, 0);
}

/// As many operations as programs post at once are taken, whether the peer looks or not. Each ends once, in the order of issue.
pub fn as_many_operations_are_taken_as_programs_post<D: Driver>(env: &Environment<D>) {
    const OPERATIONS: u64 = 16_384;
    for whose in Whose::ALL {
        let mut pair = Pair::<D>::plain(env, RO);
        let local_area = Area::new(&mut pair.client, whose, 8192, Access::LOCAL);
        let remote_area = Area::new(&mut pair.server, whose, 8192, Access::ALL);
        for context in 0..OPERATIONS {
            let at = context as usize % 1024 * 8;
            let (local, remote) = ([local_area.segment(at, 8)], [remote_area.segment(at, 8)]);
            let taken =
                pair.client.port.rma(pair.to_server, &plain(RmaKind::Write, &local, &remote, context));
            assert_eq!(taken, Ok(()), "{}, {whose:?}: operation {context}", env.device);
        }
        let ended = pair.ended(OPERATIONS as usize);
        let expected = (0..OPERATIONS).map(|context| (context, Status::Success));
        assert!(ended.into_iter().eq(expected), "{whose:?}: each once, well and in order");
        let counts = pair.client.port.counts();
        assert!(counts.memory_bytes <= counts.memory_bytes_max, "{counts:?}");
    }
}

/// A connection says which way memory of either kind is reached.
pub fn explains_the_paths_to_memory<D: Driver>(env: &Environment<D>) {
    let mut pair = Pair::<D>::plain(env, RO);
    for whose in Whose::ALL {
        let local_area = Area::new(&mut pair.client, Whose::Library, 200_000, Access::LOCAL);
        let remote_area = Area::new(&mut pair.server, whose, 200_000, Access::ALL);
        for _ in 0..3 {
            pair.transfer(RmaKind::Write, local_area.segment(0, 200_000), remote_area.segment(0, 200_000));
        }
    }
    let text = pair.client.port.explain(pair.to_server).to_lowercase();
    if env.about.scheme == "shm://" {
        for direction in ["direct mapping", "read across processes", "ring"] {
            assert!(
                text.contains(&format!("remote memory: {direction}: ")),
                "{direction} is missing:\n{text}"
            );
        }
    }
    assert!(text.contains("held up by nothing"), "{text}");
}

/// However much is moved, no more memory is held than for a little of it.
pub fn a_long_transfer_holds_no_more_memory<D: Driver>(env: &Environment<D>) {
    const LEN: usize = 16 << 20;
    let times = env.rounds(16) as u64;
    let mut pair = Pair::<D>::plain(env, RO);
    let local_area = Area::new(&mut pair.client, Whose::Library, LEN, Access::LOCAL);
    let remote_area = Area::new(&mut pair.server, Whose::Foreign, LEN, Access::ALL);
    let most = |pair: &mut Pair<D>, kind, times: u64| {
        let mut most = [0, 0];
        for context in 0..times {
            let (local, remote) = ([local_area.segment(0, LEN)], [remote_area.segment(0, LEN)]);
            pair.start(&plain(kind, &local, &remote, context));
        }
        let (mut polls, patience) = (0_u64, Instant::now() + conformance_timeout() * 2);
        while pair.client.sent.len() < times as usize {
            assert!(Instant::now() < patience, "{} of {times} transfers ended", pair.client.sent.len());
            pair.client.poll();
            pair.server.poll();
            polls += 1;
            if polls.is_multiple_of(256) || pair.client.sent.len() == times as usize {
                let held = [&pair.client, &pair.server].map(|side| side.port.counts().memory_bytes);
                most = [most[0].max(held[0]), most[1].max(held[1])];
            }
        }
        assert!(pair.client.statuses().iter().all(|status| *status == Status::Success));
        pair.client.sent.clear();
        most
    };
    for kind in [RmaKind::Write, RmaKind::Read] {
        // Twice, so that what is taken once and kept is there.
        most(&mut pair, kind, 1);
        let little = most(&mut pair, kind, 1);
        let much = most(&mut pair, kind, times);
        assert!(local_area.now(0, LEN) == remote_area.now(0, LEN), "the data is there");
        for (little, much) in little.into_iter().zip(much) {
            let grown = much.saturating_sub(little);
            assert!(
                grown <= 256 << 10,
                "{kind:?}: {little} bytes held for 16 MB, {much} for {times} times that"
            );
        }
    }
}

/// One of two clients that move bulk at the same time.
struct Mover<D: Driver> {
    side: Side<D>,
    to_server: Conn<D>,
    local_area: Area<D>,
    remote_area: Area<D>,
    started: u64,
}

impl<D: Driver> Mover<D> {
    /// Starts an operation if fewer than a few are under way and fewer than `target` were started, and looks what came.
    fn step(&mut self, kind: RmaKind, target: u64) {
        let whole = |area: &Area<D>| [area.segment(0, area.len_bytes())];
        let (local, remote) = (whole(&self.local_area), whole(&self.remote_area));
        let under_way = self.started - self.side.sent.len() as u64;
        if self.started < target && under_way < 8 {
            match self.side.port.rma(self.to_server, &plain(kind, &local, &remote, self.started)) {
                Ok(()) => self.started += 1,
                Err(Refusal::WouldBlock) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        self.side.poll();
    }
}

/// Neither of two clients has to wait for the other.
pub fn two_connections_share<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Crowd)?;
    env.needs(Capability::OneWay)?;
    /// Of a round, which ends when one of the two has ended so many more.
    const WRITES: u64 = 100;
    const WRITE_BYTES: usize = 256 << 10;
    /// What one loses, it sends again some milliseconds later, in which the other may get a round done.
    const ROUNDS: u64 = 10;
    for attribute in RELIABLE {
        for kind in [RmaKind::Write, RmaKind::Read] {
            let mut server = Side::<D>::server(env);
            let mut movers = [(), ()].map(|()| {
                let mut side = Side::plain(env);
                let (to_server, _) = connect(&mut side, &mut server, attribute);
                let local_area = Area::new(&mut side, Whose::Library, WRITE_BYTES, Access::LOCAL);
                let remote_area = Area::new(&mut server, Whose::Foreign, WRITE_BYTES, Access::ALL);
                Mover { side, to_server, local_area, remote_area, started: 0 }
            });
            let patience = Instant::now() + conformance_timeout();
            let mut ended = [0; 2];
            let is_fair = (1..=ROUNDS).any(|round| {
                let target = round * WRITES;
                while ended.iter().all(|&count| count < target) {
                    assert!(Instant::now() < patience, "neither ends");
                    movers.iter_mut().for_each(|mover| mover.step(kind, target));
                    server.poll();
                    ended = movers.each_ref().map(|mover| mover.side.sent.len() as u64);
                }
                ended.iter().all(|&count| count >= target / 5)
            });
            assert!(is_fair, "{attribute:?} {kind:?}: they got {ended:?} of {}", ROUNDS * WRITES);
            part(movers.into_iter().map(|mover| mover.side).chain([server]));
        }
    }
    Ok(())
}

/// A message is not kept waiting by a bulk transfer: not on another connection, not on the same.
pub fn messages_pass_a_bulk_transfer<D: Driver>(env: &Environment<D>) {
    const LEN: usize = 16 << 20;
    for attribute in RELIABLE {
        for kind in [RmaKind::Write, RmaKind::Read] {
            let mut pair = Pair::<D>::plain(env, attribute);
            let (second, _) = connect(&mut pair.client, &mut pair.server, attribute);
            let local_area = Area::new(&mut pair.client, Whose::Library, LEN, Access::LOCAL);
            let remote_area = Area::new(&mut pair.server, Whose::Foreign, LEN, Access::ALL);
            for through in [second, pair.to_server] {
                let (local, remote) = ([local_area.segment(0, LEN)], [remote_area.segment(0, LEN)]);
                for context in 0..4 {
                    pair.start(&plain(kind, &local, &remote, context));
                }
                for _ in 0..20 {
                    pair.client.poll();
                    pair.server.poll();
                }
                let ended_before = pair.client.sent.len();
                let flags = Flags { silent: true, no_copy: false };
                pair.retry(|client| client.send(through, b"let me pass", 9, flags));
                let mut turns = 0;
                while pair.server.inbox.is_empty() {
                    turns += 1;
                    assert!(turns < 1_000_000, "no message");
                    pair.client.poll();
                    pair.server.poll();
                }
                let ended = pair.client.sent.len();
                assert!(
                    ended < 4 || ended_before > 0,
                    "{attribute:?} {kind:?}: the message came when all of the bulk was through, after {turns} turns"
                );
                pair.server.inbox.clear();
                pair.ended(4);
            }
            pair.part();
        }
    }
}
