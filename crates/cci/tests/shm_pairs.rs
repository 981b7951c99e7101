//! Shared memory: small operations between regions that were used before, which are plain copies. Whatever changes a region, a
//! connection or a right in between must show in the very next operation.

mod shm_common;

use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, Attribute, Connection, Endpoint, Event, Memory, RegionAddress,
    RegionHandle, Registration, RmaError, RmaFlags, SendFlags, Status,
};
use shm_common::*;

const LEN: usize = 4096;

struct Scene {
    a: Endpoint,
    b: Endpoint,
    ours: Connection,
    theirs: Connection,
    local: Memory,
    remote: Memory,
    from: RegionHandle,
    to: RegionHandle,
}

/// Two endpoints with a region each, and a pair of them that is known.
fn scene(to: impl Into<Registration>) -> Scene {
    let (mut a, mut b) = (endpoint(), endpoint());
    let (ours, theirs) = connect(&mut a, &mut b, Attribute::ReliableOrdered);
    let (local, remote) = (a.allocate(LEN).unwrap(), b.allocate(LEN).unwrap());
    let from = a.register(&local, Access::LOCAL).unwrap();
    let to = b.register(&remote, to).unwrap();
    let mut scene = Scene { a, b, ours, theirs, local, remote, from, to };
    let (on, to) = (scene.ours, scene.to);
    scene.learn(on, to);
    scene
}

impl Scene {
    /// Writes until the pair is known.
    fn learn(&mut self, on: Connection, to: RegionHandle) {
        let paired = counter(&self.a, "rma_paired");
        for _ in 0..1_000 {
            assert_eq!(self.write(on, to, b"learning"), Ok(Status::Success));
            if counter(&self.a, "rma_paired") > paired {
                return;
            }
        }
        panic!("never known");
    }

    fn write(&mut self, on: Connection, to: RegionHandle, data: &[u8]) -> Result<Status, RmaError> {
        assert!(self.local.write(0, data));
        let (from, to) = (RegionAddress::new(self.from, 0), RegionAddress::new(to, 8));
        self.a.rma_write(on, from, to, data.len() as u64, 5, RmaFlags::NONE)?;
        Ok(self.completion(5))
    }

    fn read(&mut self, from: RegionHandle) -> Result<Status, RmaError> {
        let (into, from) = (RegionAddress::new(self.from, 64), RegionAddress::new(from, 8));
        self.a.rma_read(self.ours, into, from, 8, 6, RmaFlags::NONE)?;
        Ok(self.completion(6))
    }

    fn completion(&mut self, context: u64) -> Status {
        run(&mut self.a, &mut self.b, "a completion", |_, event, _| match event {
            Event::Send { context: got, status, .. } => {
                assert_eq!(got, context);
                Some(status)
            }
            Event::Disconnected { .. } => None,
            other => panic!("unexpected {other:?}"),
        })
    }

    fn written(&self) -> [u8; 8] {
        let mut out = [0; 8];
        assert!(self.remote.read(8, &mut out));
        out
    }
}

#[test]
fn a_region_deregistered_here_is_used_no_more() {
    let mut scene = scene(Access::ALL);
    scene.a.deregister(&scene.from).unwrap();
    let to = scene.to;
    assert_eq!(scene.write(scene.ours, to, b"too late"), Err(RmaError::LocalHandle));
    assert_eq!(&scene.written(), b"learning");
    // The same bytes once more, under another handle.
    let old = std::mem::replace(&mut scene.from, scene.a.register(&scene.local, Access::LOCAL).unwrap());
    assert_eq!(scene.write(scene.ours, to, b"new name"), Ok(Status::Success));
    assert_eq!(&scene.written(), b"new name");
    scene.from = old;
    assert_eq!(scene.write(scene.ours, to, b"too late"), Err(RmaError::LocalHandle));
    assert_eq!(&scene.written(), b"new name");
}

#[test]
fn a_region_that_its_owner_takes_back_is_used_no_more() {
    let mut scene = scene(Access::ALL);
    let old = scene.to;
    scene.b.deregister(&old).unwrap();
    // Before the initiator has heard of it.
    let (from, to) = (RegionAddress::new(scene.from, 0), RegionAddress::new(old, 8));
    scene.a.rma_write(scene.ours, from, to, 8, 5, RmaFlags::NONE).unwrap();
    assert_eq!(scene.completion(5), Status::RmaHandle);
    assert!(scene.remote.write(8, b"not ours"));
    assert_eq!(scene.write(scene.ours, old, b"too late"), Ok(Status::RmaHandle));
    scene.a.rma_write(scene.ours, from, to, 8, 5, RmaFlags::SILENT).unwrap();
    let add = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Eight, operand: 1, compare: 0 };
    scene.a.atomic(scene.ours, add, to, None, 7, RmaFlags::NONE).unwrap();
    let Scene { a, b, .. } = &mut scene;
    run(a, b, "the refusals", |_, event, _| {
        assert!(matches!(event, Event::Send { status: Status::RmaHandle, .. }), "{event:?}");
        matches!(event, Event::Send { context: 7, .. }).then_some(())
    });
    assert_eq!(&scene.written(), b"not ours");
    // The same bytes once more, with other rights.
    scene.to = scene.b.register(&scene.remote, Access::READ).unwrap();
    let to = scene.to;
    assert_eq!(scene.write(scene.ours, to, b"no right"), Ok(Status::RmaHandle));
    for _ in 0..100 {
        assert_eq!(scene.read(to), Ok(Status::Success));
        assert_eq!(scene.write(scene.ours, to, b"no right"), Ok(Status::RmaHandle));
    }
    assert_eq!(&scene.written(), b"not ours");
    assert_eq!(scene.write(scene.ours, old, b"too late"), Ok(Status::RmaHandle));
}

#[test]
fn a_connection_that_ended_is_used_no_more() {
    let mut scene = scene(Access::ALL);
    let (old, to) = (scene.ours, scene.to);
    scene.a.disconnect(old);
    assert!(matches!(
        scene.write(old, to, b"too late"),
        Err(RmaError::Disconnected | RmaError::UnknownConnection)
    ));
    // Another one, which may have its place in the tables.
    let (ours, theirs) = connect(&mut scene.a, &mut scene.b, Attribute::ReliableOrdered);
    scene.learn(ours, to);
    assert!(matches!(scene.write(old, to, b"too late"), Err(RmaError::UnknownConnection)));
    assert_eq!(&scene.written(), b"learning");
    (scene.ours, scene.theirs) = (ours, theirs);
    // A region for this connection alone.
    let what = Registration { range: None, access: Access::ALL, only: Some(theirs) };
    let only = scene.b.register(&scene.remote, what).unwrap();
    scene.learn(ours, only);
    let (other, _) = connect(&mut scene.a, &mut scene.b, Attribute::ReliableOrdered);
    assert_eq!(scene.write(other, only, b"no right"), Ok(Status::RmaHandle));
    assert_eq!(scene.write(ours, only, b"may do so"), Ok(Status::Success));
}

#[test]
fn a_peer_that_is_gone_is_written_to_no_more() {
    let Scene { mut a, b, ours, local, remote, from, to, .. } = scene(Access::ALL);
    drop(b);
    let mut ended = false;
    let (at, to) = (RegionAddress::new(from, 0), RegionAddress::new(to, 8));
    assert!(local.write(0, b"too late"));
    for context in 0..100 {
        match a.rma_write(ours, at, to, 8, context, RmaFlags::NONE) {
            Ok(()) => {
                while let Some(event) = a.next_event() {
                    assert!(!matches!(event, Event::Send { status: Status::Success, .. }), "{event:?}");
                    ended |= matches!(event, Event::Disconnected { .. });
                }
            }
            Err(error) => {
                assert!(matches!(error, RmaError::Disconnected | RmaError::UnknownConnection), "{error:?}");
                ended = true;
            }
        }
    }
    assert!(ended, "it is noticed");
    let mut seen = [0; 8];
    assert!(remote.read(8, &mut seen));
    assert_eq!(&seen, b"learning");
}

#[test]
fn completions_come_behind_those_of_sends_before() {
    let mut scene = scene(Access::ALL);
    let (from, to) = (RegionAddress::new(scene.from, 0), RegionAddress::new(scene.to, 8));
    for round in 0..50_u64 {
        let mut next = 0;
        for at in 0..8 {
            if (round + at) % 3 == 0 {
                scene.a.send(scene.ours, b"message", at, SendFlags::NONE).unwrap();
            } else {
                let flags = if (round + at) % 7 == 0 { RmaFlags::FENCE } else { RmaFlags::NONE };
                scene.a.rma_write(scene.ours, from, to, 8, at, flags).unwrap();
                scene.a.rma_write(scene.ours, from, to, 8, 99, RmaFlags::SILENT).unwrap();
            }
        }
        run(&mut scene.a, &mut scene.b, "all completions", |_, event, _| {
            if let Event::Send { context, status, .. } = event {
                assert_eq!((context, status), (next, Status::Success));
                next += 1;
            }
            (next == 8).then_some(())
        });
    }
    let _ = scene.theirs;
}

#[test]
fn ranges_and_widths_are_checked_each_time() {
    let mut scene = scene(Access::ALL);
    let (len, on) = (LEN as u64, scene.ours);
    let (from, to) = (scene.from, scene.to);
    let flags = RmaFlags::NONE;
    let beyond = RegionAddress::new(to, len - 4);
    scene.a.rma_write(on, RegionAddress::new(from, 0), beyond, 8, 5, flags).unwrap();
    assert_eq!(scene.completion(5), Status::RmaHandle);
    let whole = RegionAddress::new(to, 0);
    let local_end = RegionAddress::new(from, len - 4);
    assert_eq!(scene.a.rma_write(on, local_end, whole, 8, 5, flags), Err(RmaError::LocalHandle));
    assert_eq!(
        scene.a.rma_write(on, RegionAddress::new(from, 0), whole, 0, 5, flags),
        Err(RmaError::Lengths)
    );
    let wrapped = RegionAddress::new(from, u64::MAX - 3);
    assert_eq!(scene.a.rma_write(on, wrapped, whole, 8, 5, flags), Err(RmaError::LocalHandle));
    assert!(scene.remote.write(8, &7_u64.to_ne_bytes()));
    let add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 2, compare: 0 };
    for round in 0..10_u64 {
        let result = Some(RegionAddress::new(from, 128));
        scene.a.atomic(on, add, RegionAddress::new(to, 8), result, 7, flags).unwrap();
        assert_eq!(scene.completion(7), Status::Success);
        let mut before = [0; 8];
        assert!(scene.local.read(128, &mut before));
        assert_eq!(u64::from_ne_bytes(before), 7 + 2 * round);
    }
    scene.a.atomic(on, add, RegionAddress::new(to, 9), None, 7, flags).unwrap();
    assert_eq!(scene.completion(7), Status::RmaOperation);
    assert_eq!(scene.a.atomic(on, add, whole, Some(local_end), 7, flags), Err(RmaError::LocalHandle));
    assert_eq!(u64::from_ne_bytes(scene.written()), 27, "what was refused has changed nothing");
}

/// More pairs than are kept: each operation goes where it is to.
#[test]
fn many_pairs_do_not_mix() {
    let mut scene = scene(Access::ALL);
    let mut register = |at: usize| {
        let what = Registration { range: Some(at * 64..at * 64 + 64), access: Access::ALL, only: None };
        scene.b.register(&scene.remote, what).unwrap()
    };
    let regions: Vec<RegionHandle> = (0..LEN / 64).map(&mut register).collect();
    for round in 0..20_u64 {
        for (at, &to) in regions.iter().enumerate() {
            let data = (round << 32 | at as u64).to_ne_bytes();
            assert_eq!(scene.write(scene.ours, to, &data), Ok(Status::Success));
        }
        for at in 0..regions.len() {
            let mut seen = [0; 8];
            assert!(scene.remote.read(at * 64 + 8, &mut seen));
            assert_eq!(u64::from_ne_bytes(seen), round << 32 | at as u64);
        }
    }
}
