//! Regions of files: peers read them like memory, and can do nothing else.

use super::{RELIABLE, RO};
use crate::conformance::{Area, Driver, Environment, Grant, Pair, Port, Refusal, Whose, contents, some_len};
use crate::rng::Rng;
use cci::{Access, Atomic, AtomicKind, AtomicWidth, RegionHandle, RmaKind, Segment, Status};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A file without a name.
fn file_of(bytes: &[u8]) -> File {
    let folder = tempfile::tempdir().expect("a folder for a moment");
    let path = folder.path().join("region");
    let file = File::options().read(true).write(true).create_new(true).open(path).expect("a new file");
    file.write_all_at(bytes, 0).expect("space for it");
    file
}

fn region<D: Driver>(pair: &mut Pair<D>, file: &File, len_bytes: usize) -> RegionHandle {
    let grant = Grant { range: 0..len_bytes, access: Access::READ, only: None };
    pair.server.port.register_file(file, grant).expect("it can be registered")
}

/// Every byte comes, from any place, for all connections or for one alone, and a part of a file gives no more than that part.
pub fn files_are_read_like_memory<D: Driver>(env: &Environment<D>) {
    const LEN: usize = 3 << 20;
    let all = contents(5, LEN);
    let file = file_of(&all);
    for attribute in RELIABLE {
        let mut pair = Pair::<D>::plain(env, attribute);
        let mut area = Area::<D>::new(&mut pair.client, Whose::Library, LEN, Access::LOCAL);
        let mut rng = Rng::new(6);
        for only in [None, Some(pair.to_client)] {
            let grant = Grant { range: 1_001..LEN, access: Access::READ, only };
            let handle = pair.server.port.register_file(&file, grant).expect("it can be registered");
            assert_eq!(handle.len_bytes(), LEN as u64 - 1_001);
            let mut reads = vec![(0, 1), (0, LEN - 1_001), (LEN - 1_002, 1)];
            for _ in 0..env.rounds(40) {
                let len = some_len(&mut rng, 20);
                reads.push((rng.below((LEN - 1_001 - len) as u64) as usize, len));
            }
            for (offset, len) in reads {
                let into = rng.below((LEN - len) as u64 + 1) as usize;
                area.expect(into, &all[1_001 + offset..][..len]);
                let from = Segment::new(handle, offset as u64, len as u64);
                assert_eq!(
                    pair.transfer(RmaKind::Read, area.segment(into, len), from),
                    Status::Success,
                    "{attribute:?}: {len} bytes from {offset}"
                );
            }
            area.check("read");
            for (offset, len) in [(LEN - 1_001, 1), (0, LEN - 1_000), (usize::MAX / 2, 1)] {
                let beyond = Segment::new(handle, offset as u64, len as u64);
                let local = area.segment(0, len.min(LEN));
                assert_eq!(pair.transfer(RmaKind::Read, local, beyond), Status::RmaHandle);
            }
            area.check("nothing was read beyond the part");
            pair.server.port.deregister(&handle).expect("registered");
            let ended = Segment::new(handle, 0, 100_000);
            assert_eq!(pair.transfer(RmaKind::Read, area.segment(0, 100_000), ended), Status::RmaHandle);
        }
        area.check("nothing was read afterwards");
        pair.part();
    }
}

/// Nobody writes to a file, changes it, or uses it as the local side of an operation; and what is no file is refused.
pub fn files_are_only_read<D: Driver>(env: &Environment<D>) {
    const ADD: Atomic =
        Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
    let mut pair = Pair::<D>::plain(env, RO);
    let bytes = contents(7, 100_000);
    let file = file_of(&bytes);
    for access in [Access::LOCAL, Access::WRITE, Access::READ | Access::ATOMIC, Access::ALL] {
        let grant = Grant { range: 0..bytes.len(), access, only: None };
        assert_eq!(pair.server.port.register_file(&file, grant), Err(Refusal::BadArgument), "{access:?}");
    }
    for range in [0..bytes.len() + 1, bytes.len()..bytes.len() + 1, 5..5] {
        let grant = Grant { range, access: Access::READ, only: None };
        assert_eq!(pair.server.port.register_file(&file, grant), Err(Refusal::BadArgument));
    }
    let pipe = File::from(std::os::fd::OwnedFd::from(std::io::pipe().expect("a pipe").0));
    for other in [pipe, file_of(b""), File::open("/").expect("a folder")] {
        let grant = Grant { range: 0..1, access: Access::READ, only: None };
        assert!(pair.server.port.register_file(&other, grant).is_err(), "{other:?}");
    }
    let handle = region(&mut pair, &file, bytes.len());
    let area = Area::<D>::new(&mut pair.client, Whose::Library, bytes.len(), Access::READ | Access::WRITE);
    for len in [1, 900, 50_000] {
        let (local, remote) = (area.segment(8, len), Segment::new(handle, 8, len as u64));
        assert_eq!(pair.transfer(RmaKind::Write, local, remote), Status::RmaHandle);
    }
    let result = Some(area.address(0));
    assert_eq!(pair.change(ADD, Segment::new(handle, 8, 8).address, result), Status::RmaHandle);
    // The owner's own operations can't use it either.
    let rma = crate::conformance::plain;
    let (own, theirs) = (Segment::new(handle, 0, 100), area.segment(0, 100));
    for kind in [RmaKind::Write, RmaKind::Read] {
        let refused = pair.server.port.rma(pair.to_client, &rma(kind, &[own], &[theirs], 1));
        assert_eq!(refused, Err(Refusal::BadArgument), "{kind:?}");
    }
    let mut now = vec![0; bytes.len()];
    file.read_exact_at(&mut now, 0).expect("it can be read");
    assert!(now == bytes, "nothing was written");
    area.check("nothing was read");
    pair.part();
}

/// Where a file has become shorter, reads of what is gone fail, others do not, and the connection goes on. What is written to it is read.
pub fn files_may_change<D: Driver>(env: &Environment<D>) {
    const LEN: usize = 400_000;
    let mut pair = Pair::<D>::plain(env, RO);
    let mut bytes = contents(8, LEN);
    let file = file_of(&bytes);
    let handle = region(&mut pair, &file, LEN);
    let mut area = Area::<D>::new(&mut pair.client, Whose::Library, LEN, Access::LOCAL);
    let all = Segment::new(handle, 0, LEN as u64);
    area.expect(0, &bytes);
    assert_eq!(pair.transfer(RmaKind::Read, area.segment(0, LEN), all), Status::Success);
    bytes[100_000..150_000].fill(9);
    file.write_all_at(&[9; 50_000], 100_000).expect("space for it");
    area.expect(0, &bytes);
    assert_eq!(pair.transfer(RmaKind::Read, area.segment(0, LEN), all), Status::Success);
    area.check("read anew");
    file.set_len(LEN as u64 / 2).expect("it becomes shorter");
    for round in 0..3 {
        assert_eq!(pair.transfer(RmaKind::Read, area.segment(0, LEN), all), Status::RmaHandle, "{round}");
        area.accept();
        area.expect(0, &bytes[..1_000]);
        let there = Segment::new(handle, 0, 1_000);
        assert_eq!(pair.transfer(RmaKind::Read, area.segment(0, 1_000), there), Status::Success);
        area.check("what is there");
    }
    pair.part();
}

/// Many files, more than a peer keeps open, are read in turns; each region names its own.
pub fn many_files_at_once<D: Driver>(env: &Environment<D>) {
    const FILES: usize = 100;
    const LEN: usize = 5_000;
    let mut pair = Pair::<D>::plain(env, RO);
    let mut area = Area::<D>::new(&mut pair.client, Whose::Library, LEN, Access::LOCAL);
    let all: Vec<Vec<u8>> = (0..FILES).map(|number| contents(number as u64, LEN)).collect();
    let files: Vec<File> = all.iter().map(|bytes| file_of(bytes)).collect();
    let handles: Vec<RegionHandle> = files.iter().map(|file| region(&mut pair, file, LEN)).collect();
    for _ in 0..2 {
        for (handle, bytes) in handles.iter().zip(&all) {
            area.expect(0, bytes);
            let from = Segment::new(*handle, 0, LEN as u64);
            assert_eq!(pair.transfer(RmaKind::Read, area.segment(0, LEN), from), Status::Success);
            area.check("read");
        }
    }
    for handle in &handles {
        pair.server.port.deregister(handle).expect("registered");
    }
    pair.part();
}
