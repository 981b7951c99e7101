//! Who may do what with which bytes (CCI-054 to CCI-059): what is refused changes nothing, and nothing ends with it.

use super::{RELIABLE, RO};
use crate::conformance::{
    Area, Capability, Driver, Environment, Grant, Pair, Port, Refusal, Skipped, Whose, connect, contents,
    plain,
};
use crate::rng::Rng;
use cci::{Access, Atomic, AtomicKind, AtomicWidth, Attribute, RegionHandle, Rma, RmaKind, Segment, Status};

const ADD: Atomic = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };

/// Writes, reads and adds by a handle; what each came to.
fn try_all<D: Driver>(
    pair: &mut Pair<D>,
    local_area: &Area<D>,
    handle: RegionHandle,
    offset: u64,
    len: u64,
) -> [Status; 3] {
    let (local, remote) = (local_area.segment(8, len as usize), Segment::new(handle, offset, len));
    [
        pair.transfer(RmaKind::Write, local, remote),
        pair.transfer(RmaKind::Read, local, remote),
        pair.change(ADD, remote.address, Some(local_area.address(0))),
    ]
}

const NONE_OF_IT: [Status; 3] = [Status::RmaHandle; 3];

/// A connection that was refused something goes on.
fn goes_on<D: Driver>(pair: &mut Pair<D>) {
    let mut local_area = Area::<D>::new(&mut pair.client, Whose::Library, 5_000, Access::LOCAL);
    let remote_area = Area::<D>::new(&mut pair.server, Whose::Library, 5_000, Access::READ);
    local_area.expect(0, remote_area.model(0, 5_000));
    assert_eq!(
        pair.transfer(RmaKind::Read, local_area.segment(0, 5_000), remote_area.segment(0, 5_000)),
        Status::Success,
        "the connection goes on"
    );
    local_area.check("read afterwards");
    pair.server.inbox.clear();
    pair.send(b"still here", 1);
    pair.until("a message afterwards", |_, server| server.inbox.len() == 1);
    pair.server.inbox.clear();
    pair.ended(1);
    pair.client.port.deregister(&local_area.handle).expect("registered");
    pair.server.port.deregister(&remote_area.handle).expect("registered");
}

/// Each right allows what it says, and nothing else.
pub fn rights_are_kept<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let mut pair = Pair::<D>::plain(env, attribute);
        for whose in Whose::ALL {
            let mut local_area = Area::new(&mut pair.client, Whose::Library, 60_000, Access::LOCAL);
            for rights in 0..8 {
                let right = |bit: u32, access| if rights & 1 << bit == 0 { Access::LOCAL } else { access };
                let access = right(0, Access::WRITE) | right(1, Access::READ) | right(2, Access::ATOMIC);
                let mut remote_area = Area::new(&mut pair.server, whose, 60_000, access);
                let expected = [0, 1, 2]
                    .map(|bit| if rights & 1 << bit == 0 { Status::RmaHandle } else { Status::Success });
                for len in [1, 8, 900, 50_000] {
                    assert_eq!(
                        try_all(&mut pair, &local_area, remote_area.handle, 8, len),
                        expected,
                        "{access:?}, {len}"
                    );
                    let len = len as usize;
                    if access.contains(Access::WRITE) {
                        remote_area.expect(8, local_area.model(8, len));
                    }
                    if access.contains(Access::READ) {
                        local_area.expect(8, remote_area.model(8, len));
                    }
                    if access.contains(Access::ATOMIC) {
                        let before = u64::from_ne_bytes(*remote_area.model(8, 8).first_chunk().expect("8"));
                        local_area.expect(0, &before.to_ne_bytes());
                        remote_area.expect(8, &before.wrapping_add(1).to_ne_bytes());
                    }
                    remote_area.check("as allowed");
                    local_area.check("as allowed");
                }
                pair.server.port.deregister(&remote_area.handle).expect("registered");
            }
            pair.client.port.deregister(&local_area.handle).expect("registered");
        }
        goes_on(&mut pair);
        pair.part();
    }
}

/// Not a byte beyond the region, however the numbers wrap.
pub fn ranges_are_kept<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let mut pair = Pair::<D>::plain(env, attribute);
        for whose in Whose::ALL {
            let local_area = Area::new(&mut pair.client, Whose::Library, 200_000, Access::LOCAL);
            let remote_area = Area::new(&mut pair.server, whose, 100_000, Access::ALL);
            for (offset, len) in [
                (100_000, 1),
                (99_999, 2),
                (99_993, 8),
                (1, 100_000),
                (0, 100_001),
                (50_000, 150_000),
                (100_001, 8),
                (1 << 32, 8),
                ((1 << 32) + 8, 4_000),
                (u64::MAX, 1),
                (u64::MAX - 7, 8),
                (u64::MAX - 3, 8),
                (u64::MAX - 50_000, 50_001),
                (u64::MAX - 50_000, 150_000),
                (1 << 63, 8),
                ((1 << 63) + 1, 99_000),
            ] {
                let remote = Segment::new(remote_area.handle, offset, len);
                for kind in [RmaKind::Write, RmaKind::Read] {
                    let local = [local_area.segment(0, len as usize)];
                    match pair.client.port.rma(pair.to_server, &plain(kind, &local, &[remote], 7)) {
                        Ok(()) => assert_eq!(pair.ended(1), [(7, Status::RmaHandle)], "{offset}, {len}"),
                        // An offset beyond counting may be refused here.
                        Err(Refusal::BadArgument) => assert_eq!(offset.checked_add(len), None),
                        Err(other) => panic!("{other:?}"),
                    }
                }
                if len == 8 && offset.checked_add(8).is_some() {
                    assert_eq!(pair.change(ADD, remote.address, None), Status::RmaHandle, "{offset}");
                }
            }
            // The first segment is good, the second is not: it fails, and what is outside is left alone.
            let local = [local_area.segment(0, 20_000)];
            let remote = [remote_area.segment(0, 10_000), remote_area.segment(95_000, 10_000)];
            pair.start(&plain(RmaKind::Read, &[local_area.segment(0, 20_000)], &remote, 8));
            assert_eq!(pair.ended(1), [(8, Status::RmaHandle)]);
            pair.start(&plain(RmaKind::Write, &local, &[remote_area.segment(90_000, 20_000)], 9));
            assert_eq!(pair.ended(1), [(9, Status::RmaHandle)]);
            remote_area.check("beyond the end");
            pair.client.port.deregister(&local_area.handle).expect("registered");
            pair.server.port.deregister(&remote_area.handle).expect("registered");
        }
        goes_on(&mut pair);
        pair.part();
    }
}

/// Stale handles, handles of others, and what somebody makes up. Many more: `tests/hostile/rma_hostile.rs`.
pub fn handles_are_checked<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let mut pair = Pair::<D>::plain(env, attribute);
        for whose in Whose::ALL {
            let local_area = Area::new(&mut pair.client, Whose::Library, 1_000, Access::ALL);
            let remote_area = Area::new(&mut pair.server, whose, 1_000, Access::ALL);
            let other = Area::new(&mut pair.server, whose, 1_000, Access::ALL);
            let gone = Area::new(&mut pair.server, whose, 1_000, Access::ALL);
            pair.server.port.deregister(&gone.handle).expect("registered");
            assert_eq!(try_all(&mut pair, &local_area, gone.handle, 0, 100), NONE_OF_IT, "it was given up");
            // Its place in the table is likely to be taken now.
            let next = Area::new(&mut pair.server, whose, 1_000, Access::ALL);
            assert_eq!(
                try_all(&mut pair, &local_area, gone.handle, 0, 100),
                NONE_OF_IT,
                "its place is taken"
            );
            assert_eq!(
                try_all(&mut pair, &local_area, local_area.handle, 0, 100),
                NONE_OF_IT,
                "one of our own"
            );
            let good = remote_area.handle.to_bytes();
            for bit in (0..64).chain(128..192) {
                let mut bytes = good;
                bytes[bit / 8] ^= 1 << (bit % 8);
                let forged = RegionHandle::from_bytes(bytes);
                assert_eq!(try_all(&mut pair, &local_area, forged, 0, 100), NONE_OF_IT, "bit {bit} is wrong");
            }
            let mut mixed = good;
            mixed[..8].copy_from_slice(&other.handle.to_bytes()[..8]);
            let mixed = RegionHandle::from_bytes(mixed);
            assert_eq!(
                try_all(&mut pair, &local_area, mixed, 0, 100),
                NONE_OF_IT,
                "the key of another region"
            );
            // What it says of length and rights is believed by nobody.
            let mut longer = good;
            longer[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
            let longer = RegionHandle::from_bytes(longer);
            assert_eq!(try_all(&mut pair, &local_area, longer, 1_000, 100), NONE_OF_IT, "a longer one");
            let mut rng = Rng::new(12);
            for _ in 0..100 {
                let bytes = contents(rng.next_u64(), RegionHandle::BYTES);
                let forged = RegionHandle::from_message(&bytes).expect("32 bytes");
                assert_eq!(try_all(&mut pair, &local_area, forged, 0, 8), NONE_OF_IT, "chance");
            }
            for area in [&local_area, &remote_area, &other, &gone, &next] {
                area.check("refused");
            }
            assert_eq!(pair.server.port.deregister(&gone.handle), Err(Refusal::BadArgument), "once");
            assert_eq!(pair.server.port.deregister(&mixed), Err(Refusal::BadArgument));
        }
        goes_on(&mut pair);
        assert!(pair.server.port.counts().rma_refused >= 1_000, "they are counted");
        pair.part();
    }
}

/// A region for one connection is closed to every other (CCI-056).
pub fn registered_for_one_connection<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let mut pair = Pair::<D>::plain(env, attribute);
        let (second, _) = connect(&mut pair.client, &mut pair.server, attribute);
        let first = pair.to_server;
        for whose in Whose::ALL {
            let mut local_area = Area::new(&mut pair.client, Whose::Library, 40_000, Access::LOCAL);
            let mut remote_area = Area::only_for(&mut pair.server, whose, 40_000, pair.to_client);
            for len in [8, 30_000] {
                pair.to_server = second;
                assert_eq!(
                    try_all(&mut pair, &local_area, remote_area.handle, 8, len),
                    NONE_OF_IT,
                    "another connection"
                );
                remote_area.check("refused");
                local_area.check("refused");
                pair.to_server = first;
                let all = [Status::Success; 3];
                assert_eq!(
                    try_all(&mut pair, &local_area, remote_area.handle, 8, len),
                    all,
                    "the connection it is for"
                );
                remote_area.accept();
                local_area.accept();
                assert_eq!(remote_area.now(16, len as usize - 8), local_area.now(16, len as usize - 8));
            }
            pair.server.port.deregister(&remote_area.handle).expect("registered");
            pair.client.port.deregister(&local_area.handle).expect("registered");
        }
        goes_on(&mut pair);
        pair.part();
    }
}

/// What the program gets wrong itself is said at once, and nothing is started.
pub fn local_mistakes_start_nothing<D: Driver>(env: &Environment<D>) {
    for attribute in super::ATTRIBUTES {
        let mut pair = Pair::<D>::plain(env, attribute);
        let local_area = Area::new(&mut pair.client, Whose::Library, 1_000, Access::LOCAL);
        let remote_area = Area::new(&mut pair.server, Whose::Library, 1_000, Access::ALL);
        let gone = Area::new(&mut pair.client, Whose::Foreign, 1_000, Access::ALL);
        pair.client.port.deregister(&gone.handle).expect("registered");
        let good = remote_area.segment(0, 10);
        let (far, beyond) = (Segment::new(local_area.handle, u64::MAX, 10), local_area.segment(991, 10));
        let lists: [(&[Segment], &[Segment]); 9] = [
            (&[remote_area.segment(0, 10)], &[good]),
            (&[gone.segment(0, 10)], &[good]),
            (&[beyond], &[good]),
            (&[far], &[good]),
            (&[local_area.segment(0, 9)], &[good]),
            (&[local_area.segment(0, 5), local_area.segment(5, 6)], &[good]),
            (&[local_area.segment(0, 0)], &[remote_area.segment(0, 0)]),
            (&[], &[]),
            (&[local_area.segment(0, 10)], &[]),
        ];
        for (number, (local, remote)) in lists.into_iter().enumerate() {
            for kind in [RmaKind::Write, RmaKind::Read] {
                let refused = pair.client.port.rma(pair.to_server, &plain(kind, local, remote, 1));
                assert_eq!(refused, Err(Refusal::BadArgument), "list {number}");
            }
        }
        let flags = cci::RmaFlags::NONE;
        for env in [gone.address(0), remote_area.address(0), local_area.address(993)] {
            let client = &mut pair.client.port;
            let refused = client.atomic(pair.to_server, ADD, remote_area.address(0), Some(env), 1, flags);
            assert_eq!(refused, Err(Refusal::BadArgument), "the place for the result");
        }
        if !attribute.is_reliable() {
            let (local, remote) = ([local_area.segment(0, 10)], [good]);
            let write = plain(RmaKind::Write, &local, &remote, 1);
            let client = &mut pair.client.port;
            assert_eq!(client.rma(pair.to_server, &write), Err(Refusal::BadArgument), "CCI-054");
            let with_message = Rma { message: Some(b"m"), ..write };
            assert_eq!(client.rma(pair.to_server, &with_message), Err(Refusal::BadArgument));
            assert_eq!(client.rma_blocking(pair.to_server, &write), Err(Refusal::BadArgument));
            let refused = client.atomic(pair.to_server, ADD, remote_area.address(0), None, 1, flags);
            assert_eq!(refused, Err(Refusal::BadArgument));
        }
        let memory = pair.client.port.memory(Whose::Library, 100);
        for range in [0..0, 50..50, 0..101, 100..101] {
            // Where memory is only an address, nobody knows where it ends.
            if !D::MEMORY_IS_COUNTED && !range.is_empty() {
                continue;
            }
            let grant = Grant { range, access: Access::ALL, only: None };
            assert_eq!(pair.client.port.register(&memory, grant), Err(Refusal::BadArgument));
        }
        pair.client.settle();
        pair.server.settle();
        assert!(pair.client.sent.is_empty(), "nothing was started");
        local_area.check("never used");
        remote_area.check("never used");
        let counts = pair.client.port.counts();
        assert_eq!((counts.rma_writes, counts.rma_reads, counts.atomics), (0, 0, 0));
        if attribute.is_reliable() {
            goes_on(&mut pair);
        }
        pair.part();
    }
}

/// One memory registered several times, with different ends and rights (CCI-057).
pub fn overlapping_regions<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Crowd)?;
    let mut pair = Pair::<D>::plain(env, Attribute::ReliableUnordered);
    for whose in Whose::ALL {
        let mut local_area = Area::new(&mut pair.client, Whose::Library, 20_000, Access::LOCAL);
        let mut remote_area = Area::new(&mut pair.server, whose, 20_000, Access::READ);
        let start = remote_area.range.start;
        let part = Grant { range: start + 5_000..start + 12_000, access: Access::WRITE, only: None };
        let inner = pair.server.port.register(&remote_area.memory, part).expect("overlap is allowed");
        let part = Grant { range: start + 11_000..start + 20_000, access: Access::ALL, only: None };
        let tail = pair.server.port.register(&remote_area.memory, part).expect("overlap is allowed");
        let (local, len) = (local_area.segment(0, 7_000), 7_000);
        assert_eq!(pair.transfer(RmaKind::Write, local, remote_area.segment(5_000, len)), Status::RmaHandle);
        assert_eq!(pair.transfer(RmaKind::Read, local, Segment::new(inner, 0, 7_000)), Status::RmaHandle);
        assert_eq!(pair.transfer(RmaKind::Write, local, Segment::new(inner, 1, 7_000)), Status::RmaHandle);
        remote_area.check("refused");
        assert_eq!(pair.transfer(RmaKind::Write, local, Segment::new(inner, 0, 7_000)), Status::Success);
        remote_area.expect(5_000, local_area.model(0, len));
        remote_area.check("written through the inner one");
        assert_eq!(pair.transfer(RmaKind::Read, local, Segment::new(tail, 0, 7_000)), Status::Success);
        local_area.expect(0, remote_area.model(11_000, len));
        local_area.check("read through the last one");
        pair.server.port.deregister(&inner).expect("registered");
        assert_eq!(pair.transfer(RmaKind::Write, local, Segment::new(inner, 0, 7_000)), Status::RmaHandle);
        assert_eq!(pair.transfer(RmaKind::Write, local, Segment::new(tail, 500, 7_000)), Status::Success);
        remote_area.expect(11_500, local_area.model(0, len));
        assert_eq!(pair.transfer(RmaKind::Read, local, remote_area.segment(6_000, len)), Status::Success);
        local_area.expect(0, remote_area.model(6_000, len));
        remote_area.check("the others are as they were");
        local_area.check("the others are as they were");
        let mut other = Pair::<D>::plain(env, RO);
        let nothing = Area::new(&mut other.client, Whose::Library, 8, Access::LOCAL);
        let status = other.transfer(RmaKind::Read, nothing.segment(0, 8), remote_area.segment(0, 8));
        assert_eq!(status, Status::RmaHandle, "a handle is good at its own endpoint only");
        other.part();
    }
    pair.part();
    Ok(())
}
