//! Files that peers grant, and what the endpoint makes of them. The peer, whose files they are, is scripted.

use super::mapped::{Lender, counter};
use super::taking_back::join;
use super::*;
use crate::{Access, Memory, RegionAddress, RegionHandle, Registration, RmaFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;

const LEN: usize = 1 << 20;

/// A client with memory to read into, and a lender.
fn scene(endpoint_number: u64) -> (Endpoint, Memory, RegionHandle, Lender) {
    let mut client = endpoint();
    let memory = client.allocate(LEN).unwrap();
    let into = client.register(&memory, Access::LOCAL).unwrap();
    let lender = Lender::new(&mut client, endpoint_number);
    (client, memory, into, lender)
}

/// A file without a name.
fn file_of(bytes: &[u8]) -> File {
    let file = File::from(rustix::fs::memfd_create("file", MemfdFlags::CLOEXEC).unwrap());
    file.write_all_at(bytes, 0).unwrap();
    file
}

/// How the client's read of a region of the lender's ends, if at once.
fn read(client: &mut Endpoint, lender: &Lender, into: RegionHandle, region: u64, len: u64) -> Option<Status> {
    let from = RegionAddress::new(RegionHandle::new(region, len, 2, Access::READ), 0);
    let into = RegionAddress::new(into, 0);
    client.rma_read(lender.lie.connection, into, from, len, 4, RmaFlags::NONE).unwrap();
    match client.next_event() {
        Some(Event::Send { context: 4, status, .. }) => Some(status),
        None => None,
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn files_are_read_by_their_descriptors_and_count_little() {
    let (mut client, memory, into, lender) = scene(1);
    let bytes: Vec<u8> = (0..LEN).map(|at| (at % 251) as u8).collect();
    lender.lend_content(&mut client, into, 1, LEN as u64, 1, file_of(&bytes).as_fd());
    assert_eq!(read(&mut client, &lender, into, 1, LEN as u64), Some(Status::Success));
    let mut now = vec![0; LEN];
    assert!(memory.read(0, &mut now) && now == bytes);
    assert_eq!((counter(&client, "rma_direct"), counter(&client, "rma_mapped_bytes")), (1, 0));
    let kinds = client.counters().memory.kinds;
    let charged = kinds.iter().find(|(kind, _)| *kind == "memory of peers, mapped").unwrap().1;
    assert_eq!(charged, (64 << 10) + 4096, "a file, and the control page");
    // Writes go to the target, who refuses them.
    let ring = counter(&client, "rma_ring");
    lender.write(&mut client, into, 1, LEN as u64);
    assert_eq!(counter(&client, "rma_ring"), ring + 1);
}

#[test]
fn a_file_that_is_shorter_than_its_grant_says_fails_the_read() {
    let (mut client, _, into, lender) = scene(1);
    lender.lend_content(&mut client, into, 1, LEN as u64, 1, file_of(&[7; 1000]).as_fd());
    assert_eq!(read(&mut client, &lender, into, 1, 1000), Some(Status::Success));
    assert_eq!(read(&mut client, &lender, into, 1, 1001), Some(Status::RmaHandle));
    assert!(client.is_open(lender.lie.connection));
}

#[test]
fn what_is_no_file_to_be_read_is_not_taken_for_one() {
    let (mut client, _, into, lender) = scene(1);
    let (reader, writer) = std::io::pipe().unwrap();
    let zero = File::open("/dev/zero").unwrap();
    let folder = File::open("/").unwrap();
    let write_only = File::options().write(true).open("/dev/null").unwrap();
    let others = [reader.as_fd(), writer.as_fd(), zero.as_fd(), folder.as_fd(), write_only.as_fd()];
    for (number, other) in (1..).zip(others) {
        lender.lend_content(&mut client, into, number, 4096, 1, other);
        assert_eq!(counter(&client, "rma_grants_refused"), number);
        assert_eq!(read(&mut client, &lender, into, number, 4096), None, "it goes through the ring");
    }
    assert!(client.is_open(lender.lie.connection));
}

#[test]
fn a_number_that_stands_for_memory_and_a_file_ends_the_link() {
    let (mut client, _, into, lender) = scene(1);
    let memory = cci_sys::memory::RmaMemory::create(4096).unwrap();
    lender.lend(&mut client, into, 1, 4096, memory.shared().fd().unwrap());
    assert!(client.is_open(lender.lie.connection));
    lender.lend_as(&mut client, into, (2, 1), 4096, 1, file_of(&[1; 4096]).as_fd());
    until(&mut client, "the end of the link", |client, _| {
        (!client.is_open(lender.lie.connection)).then_some(())
    });
}

#[test]
fn a_peer_can_not_make_a_process_hold_more_descriptors_than_its_memory_may_be() {
    let options = Options { memory_bytes_max: 24 << 20, recv_buffers: 64, ..Options::default() };
    let mut client = Endpoint::create(&builtin::shm("shm"), options).unwrap();
    let memory = client.allocate(4096).unwrap();
    let into = client.register(&memory, Access::LOCAL).unwrap();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let lender = Lender::new(&mut client, 1);
    let before = descriptors();
    for region in 1..300 {
        lender.lend_content(&mut client, into, region, 4096, 1, file_of(&[1; 4096]).as_fd());
        assert_eq!(read(&mut client, &lender, into, region, 4096), Some(Status::Success));
    }
    // Other tests of this program open files meanwhile.
    let held = counter(&client, "rma_mappings");
    assert!(held <= 64, "{held} files are held");
    assert!(descriptors() < before + 64 + 200, "from {before} to {}", descriptors());
    let memory = client.counters().memory;
    assert!(memory.total_bytes <= memory.cap_bytes, "{memory:?}");
}

#[test]
fn a_peer_of_the_own_user_gets_the_descriptor_once_and_gives_it_up() {
    let (mut owner, mut client) = (endpoint(), endpoint());
    let (ours, theirs) = join(&mut client, &mut owner);
    let into = client.allocate(LEN).unwrap();
    let into_handle = client.register(&into, Access::LOCAL).unwrap();
    let memory = Memory::file(file_of(&[7; LEN])).unwrap();
    let read = |owner: &mut Endpoint, client: &mut Endpoint, from: RegionHandle| {
        let (from, into) = (RegionAddress::new(from, 0), RegionAddress::new(into_handle, 0));
        client.rma_read(ours, into, from, from.handle.len_bytes(), 9, RmaFlags::NONE).unwrap();
        until(client, "a read", |_, event| {
            let _ = owner.next_event();
            matches!(event, Some(Event::Send { context: 9, status: Status::Success, .. })).then_some(())
        });
    };
    for round in 0..10 {
        let range = Some(round..LEN - 7 * round);
        let registration = Registration { range, access: Access::READ, only: Some(theirs) };
        let handle = owner.register(&memory, registration).unwrap();
        // The client takes the message, and what the owner has announced before it.
        owner.send(theirs, b"a region", 1, SendFlags::SILENT).unwrap();
        until(&mut client, "a message", |_, event| event.map(drop));
        let (ring, direct) = (counter(&client, "rma_ring"), counter(&client, "rma_direct"));
        read(&mut owner, &mut client, handle);
        if round == 0 {
            // The first read asks for the descriptor.
            until(&mut client, "the file", |client, _| {
                owner.next_event();
                (counter(client, "rma_mappings") == 1).then_some(())
            });
        } else {
            assert_eq!((counter(&client, "rma_ring"), counter(&client, "rma_direct")), (ring, direct + 1));
        }
        owner.deregister(&handle).unwrap();
    }
    assert_eq!((counter(&client, "rma_mappings"), counter(&owner, "rma_regions_granted")), (1, 0));
    drop(memory);
    until(&mut client, "that the file is given up", |client, _| {
        owner.next_event();
        (counter(client, "rma_mappings") == 0).then_some(())
    });
}
