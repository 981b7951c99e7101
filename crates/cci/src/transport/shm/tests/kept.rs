//! Memory that stays mapped for a while when its last region has ended, and regions of it that are granted by a record alone.

use super::taking_back::{counter, join, part, write_direct};
use super::*;
use crate::rma::Access;
use crate::{Memory, RegionAddress, RegionHandle, Registration, RmaFlags};

fn for_one(owner: &mut Endpoint, memory: &Memory, only: Connection) -> RegionHandle {
    owner.register(memory, Registration { range: None, access: Access::ALL, only: Some(only) }).unwrap()
}

/// Two endpoints, and memory of the first of which the second has had a region.
struct Scene {
    owner: Endpoint,
    client: Endpoint,
    memory: Memory,
    into: Memory,
    into_handle: RegionHandle,
    ours: Connection,
    theirs: Connection,
}

fn scene(len: usize) -> Scene {
    let (mut owner, mut client) = (endpoint(), endpoint());
    let (memory, into) = (owner.allocate(len).unwrap(), client.allocate(len).unwrap());
    let (ours, theirs) = join(&mut client, &mut owner);
    let into_handle = client.register(&into, Access::LOCAL).unwrap();
    let handle = for_one(&mut owner, &memory, theirs);
    write_direct(&mut client, &mut owner, ours, into_handle, handle);
    owner.deregister(&handle).unwrap();
    let mut scene = Scene { owner, client, memory, into, into_handle, ours, theirs };
    scene.hear();
    assert_eq!(counter(&scene.client, "rma_mappings"), 1, "it is kept");
    scene
}

impl Scene {
    /// Has the client take all that the owner has said.
    fn hear(&mut self) {
        self.owner.send(self.theirs, b"heard?", 1, crate::SendFlags::NONE).unwrap();
        let mut heard = false;
        until(&mut self.owner, "a message", |_, event| {
            heard |= matches!(self.client.next_event(), Some(Event::Recv(_)));
            (heard && event.is_some()).then_some(())
        });
    }

    fn read(&mut self, from: RegionHandle, len: u64) -> Status {
        let (from, into) = (RegionAddress::new(from, 0), RegionAddress::new(self.into_handle, 0));
        self.client.rma_read(self.ours, into, from, len, 9, RmaFlags::NONE).unwrap();
        until(&mut self.client, "a read", |_, event| {
            self.owner.next_event();
            match event {
                Some(Event::Send { context: 9, status, .. }) => Some(status),
                _ => None,
            }
        })
    }
}

#[test]
fn a_region_of_memory_that_is_kept_is_read_without_a_question() {
    let mut scene = scene(4096);
    let (ring, direct) = (counter(&scene.client, "rma_ring"), counter(&scene.client, "rma_direct"));
    for number in 0..300_u64 {
        assert!(scene.memory.write(0, &number.to_ne_bytes()));
        let handle = for_one(&mut scene.owner, &scene.memory, scene.theirs);
        scene.hear();
        assert_eq!(scene.read(handle, 8), Status::Success);
        let mut seen = [0; 8];
        assert!(scene.into.read(0, &mut seen) && seen == number.to_ne_bytes());
        scene.owner.deregister(&handle).unwrap();
    }
    assert_eq!(
        (counter(&scene.client, "rma_ring"), counter(&scene.client, "rma_direct")),
        (ring, direct + 300)
    );
    assert_eq!(counter(&scene.owner, "rma_regions_granted"), 0);
}

#[test]
fn a_region_that_has_ended_is_not_read_though_its_memory_is_mapped() {
    let mut scene = scene(4096);
    let handle = for_one(&mut scene.owner, &scene.memory, scene.theirs);
    scene.hear();
    assert_eq!(scene.read(handle, 8), Status::Success);
    scene.owner.deregister(&handle).unwrap();
    assert!(scene.memory.write(0, b"a secret") && scene.into.write(0, &[0; 8]));
    let direct = counter(&scene.client, "rma_direct");
    // Once before the client has heard of the end, once afterwards, once beside another region of the same memory.
    for heard in [false, true, true] {
        if heard {
            scene.hear();
        }
        assert_eq!(counter(&scene.client, "rma_mappings"), 1);
        assert_eq!(scene.read(handle, 8), Status::RmaHandle);
        let _other = for_one(&mut scene.owner, &scene.memory, scene.theirs);
    }
    let mut seen = [1; 8];
    assert!(scene.into.read(0, &mut seen) && seen == [0; 8]);
    assert_eq!(counter(&scene.client, "rma_direct"), direct);
}

#[test]
fn memory_with_new_pages_is_not_read_from_the_old_ones_that_are_kept() {
    let mut scene = scene(8192);
    let first = part(&scene.memory, &mut scene.owner, 0..4096);
    // Another process is stopped in the middle of a copy, for which the memory gets new pages.
    let stopped = ask_as(&mut scene.owner, 1, Attribute::ReliableOrdered, u32::MAX / 2);
    let mut stopped = confirm(&mut scene.owner, stopped);
    let got = stopped.map(&mut scene.owner, first);
    stopped.producer.begin_direct(got.word());
    scene.owner.deregister(&first).unwrap();
    assert_eq!(counter(&scene.owner, "rma_detached"), 1);
    assert!(scene.memory.write(0, b"new page"));
    let handle = for_one(&mut scene.owner, &scene.memory, scene.theirs);
    scene.hear();
    for _ in 0..3 {
        assert_eq!(scene.read(handle, 8), Status::Success);
        let mut seen = [0; 8];
        assert!(scene.into.read(0, &mut seen));
        assert_eq!(&seen, b"new page");
    }
}

#[test]
fn who_maps_memory_is_told_when_its_owner_frees_it() {
    let mut owner = endpoint();
    let memory = owner.allocate(4096).unwrap();
    let handle = owner.register(&memory, Access::ALL).unwrap();
    let peer = ask(&mut owner, 1, Attribute::ReliableOrdered);
    let mut peer = confirm(&mut owner, peer);
    let id = peer.map(&mut owner, handle).words[6];
    owner.deregister(&handle).unwrap();
    drop(memory);
    assert_eq!(peer.answer(&mut owner), (kind::FREED, id));
}

#[test]
fn regions_that_overlap_in_time_are_read_directly_once_their_memory_is_mapped() {
    const LEN: usize = 256 << 10;
    const ITEMS: u64 = 200;
    let (mut owner, mut client) = (endpoint(), endpoint());
    let (memory, into) = (owner.allocate(LEN).unwrap(), client.allocate(LEN).unwrap());
    let (ours, theirs) = join(&mut client, &mut owner);
    let into = client.register(&into, Access::LOCAL).unwrap();
    let (mut lent, mut fetched) = (std::collections::VecDeque::new(), 0);
    until(&mut owner, "all items", |owner, event| {
        while lent.len() < 4 {
            let handle = for_one(owner, &memory, theirs);
            if owner.send(theirs, &handle.to_bytes(), 1, crate::SendFlags::SILENT).is_err() {
                owner.deregister(&handle).unwrap();
                break;
            }
            lent.push_back(handle);
        }
        match client.next_event() {
            Some(Event::Recv(message)) => {
                let from = RegionHandle::from_message(&message).unwrap();
                let (into, from) = (RegionAddress::new(into, 0), RegionAddress::new(from, 0));
                client.rma_read(ours, into, from, LEN as u64, 3, RmaFlags::NONE).unwrap();
            }
            Some(Event::Send { context: 3, status, .. }) => {
                assert_eq!(status, Status::Success);
                client.send(ours, b"fetched", 1, crate::SendFlags::SILENT).unwrap();
            }
            _ => {}
        }
        if let Some(Event::Recv(_)) = event {
            owner.deregister(&lent.pop_front().unwrap()).unwrap();
            fetched += 1;
        }
        (fetched >= ITEMS).then_some(())
    });
    // The first ones, until the memory is mapped, and those of which the grant found no space beside the data of these.
    let (ring, direct) = (counter(&client, "rma_ring"), counter(&client, "rma_direct"));
    assert!(ring < 50 && direct > ITEMS - 50, "{ring} through the ring, {direct} directly");
}

/// A record that grants a region of ours to the client.
fn grant_record(words: [u64; 8]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn grants_in_records_that_no_honest_peer_sends_are_passed_over() {
    let mut client = endpoint();
    let source = client.allocate(4096).unwrap();
    let from = client.register(&source, Access::LOCAL).unwrap();
    let mut lender = super::mapped::Lender::new(&mut client, 1);
    let memory = cci_sys::memory::RmaMemory::create(4096).unwrap();
    lender.lend(&mut client, from, 1, 4096, memory.shared().fd().unwrap());
    assert_eq!(counter(&client, "rma_mappings"), 1);
    // Region, key, access, memory, start, length, word, token. The live word of region 1 holds 5.
    let good = [8, 2, 7, 1, 0, 4096, 1, 5];
    let with = |at: usize, word| {
        let mut words = good;
        words[at] = word;
        grant_record(words)
    };
    let bad = [
        with(2, 256),
        with(4, 1),
        with(4, u64::MAX),
        with(5, 4097),
        with(5, u64::MAX),
        with(6, 0),
        with(6, 512),
        with(6, u64::MAX),
        with(7, 0),
        grant_record(good)[8..].to_vec(),
        Vec::new(),
    ];
    for (count, record) in bad.iter().enumerate() {
        assert!(lender.lie.send_record(kind::GRANT, record));
        until(&mut client, "the record", |client, _| {
            (dropped(client, "bad_record") == count as u64 + 1).then_some(())
        });
    }
    // Of memory that is not mapped, with a token that does not stand, and for a connection that is none: nothing is used of these.
    assert!(lender.lie.send_record(kind::GRANT, &with(3, 77)));
    assert!(lender.lie.send_record(kind::GRANT, &with(7, 6)));
    lender.lie.conn.index += 1;
    assert!(lender.lie.send_record(kind::GRANT, &grant_record(good)));
    lender.lie.conn.index -= 1;
    let direct = counter(&client, "rma_direct");
    until(&mut client, "the records", |client, _| (dropped(client, "unknown_connection") == 1).then_some(()));
    lender.write(&mut client, from, 8, 4096);
    assert_eq!(counter(&client, "rma_direct"), direct);
    assert!(client.is_open(lender.lie.connection));
    // One that stands is used.
    assert!(lender.lie.send_record(kind::GRANT, &grant_record(good)));
    until(&mut client, "a direct write", |client, _| {
        lender.write(client, from, 8, 4096);
        (counter(client, "rma_direct") > direct).then_some(())
    });
    // However many come, what is known of them is bounded.
    for region in 0..10_000 {
        while !lender.lie.send_record(kind::GRANT, &with(0, 100 + region)) {
            client.progress();
            lender.lie.hear();
        }
    }
    let kinds = client.counters().memory.kinds;
    let bytes = kinds.iter().map(|(_, bytes)| bytes).max().unwrap();
    assert!(*bytes < 64 << 20 && client.is_open(lender.lie.connection), "{kinds:?}");
}

#[test]
fn memory_that_is_freed_is_let_go_of_at_once() {
    let mut client = endpoint();
    let source = client.allocate(4096).unwrap();
    let from = client.register(&source, Access::LOCAL).unwrap();
    let mut lender = super::mapped::Lender::new(&mut client, 1);
    let memory = cci_sys::memory::RmaMemory::create(4096).unwrap();
    lender.lend(&mut client, from, 1, 4096, memory.shared().fd().unwrap());
    assert_eq!(counter(&client, "rma_mappings"), 1);
    // As its region has not ended, no time limit lets go of it.
    assert!(lender.lie.send_record(kind::FREED, &[1_u64, 0, 0].map(u64::to_ne_bytes).concat()));
    until(&mut client, "nothing mapped", |client, _| (counter(client, "rma_mappings") == 0).then_some(()));
    let direct = counter(&client, "rma_direct");
    lender.write(&mut client, from, 1, 4096);
    assert_eq!(counter(&client, "rma_direct"), direct);
}
