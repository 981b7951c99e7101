//! What the endpoint has granted and takes back, with a scripted peer.

use super::*;
use crate::rma::Access;
use crate::{Memory, RegionAddress, RegionHandle, Registration, RmaFlags};
use cci_memory::bytes::Backing;
use cci_sys::memory::RmaMemory;
use cci_sys::shared_memory::SharedMemoryReader;
use cci_sys::unix::ReceivedFds;
use std::sync::atomic::{AtomicBool, Ordering};

/// A grant as it came: its words, and the descriptors.
pub(super) struct Got {
    pub words: Vec<u64>,
    fds: ReceivedFds,
}

impl Got {
    pub(super) fn word(&self) -> u64 {
        self.words[10]
    }

    fn token(&self) -> u64 {
        self.words[11]
    }

    fn control(&mut self) -> SharedMemoryReader {
        SharedMemory::open_read_only(self.fds.take(1).unwrap(), self.words[12] as usize).unwrap()
    }
}

impl Joined {
    fn push(&mut self, kind: u8, words: [u64; 3]) {
        let words = words.map(u64::to_ne_bytes);
        let (conn, flags) = (self.conn.index, self.conn.generation as u8);
        let header = RecordHeader { kind, flags, conn, ack: 0 };
        self.producer.push(header, &[words.as_flattened()]).unwrap();
    }

    /// The next thing that the owner says of mappings: its kind, and the region.
    pub(super) fn answer(&mut self, owner: &mut Endpoint) -> (u8, u64) {
        until(owner, "an answer", |_, _| {
            let (kind, word) = {
                let record = self.consumer.peek().unwrap()?;
                let mut word = [0; 8];
                record.copy_to(&mut word);
                (record.header().kind, u64::from_ne_bytes(word))
            };
            self.consumer.consume();
            self.consumer.publish_head();
            // What was granted has ended; that is said, too.
            (kind != kind::UNMAP).then_some((kind, word))
        })
    }

    /// Asks for a region, and gets it.
    pub(super) fn map(&mut self, owner: &mut Endpoint, handle: RegionHandle) -> Got {
        self.push(kind::MAP, [handle.region(), handle.key(), 1]);
        let mut buffer = [0; super::super::rma::grant::GRANT_BYTES];
        let got = until(owner, "a grant", |_, event| {
            assert!(event.is_none());
            self.stream.recv(&mut buffer, 2).ok()
        });
        let words = buffer.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        Got { words: words.collect(), fds: got.fds }
    }
}

/// A number that no process has.
const NO_PROCESS: u32 = u32::MAX / 2;

pub(super) fn counter(endpoint: &Endpoint, name: &str) -> u64 {
    endpoint.counters().device.iter().find(|(known, _)| *known == name).unwrap().1
}

/// An honest client's connection to `server`.
pub(super) fn join(client: &mut Endpoint, server: &mut Endpoint) -> (Connection, Connection) {
    let uri = server.uri().to_owned();
    client.connect(&uri, &[], Attribute::ReliableOrdered, 1, Some(PATIENCE)).unwrap();
    let (mut ours, mut theirs) = (None, None);
    until(client, "a connection", |_, event| {
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => server.accept(request, 2).unwrap(),
            Some(Event::Accept { result, .. }) => theirs = Some(result.unwrap()),
            _ => {}
        }
        if let Some(Event::Connect { result, .. }) = event {
            ours = Some(result.unwrap());
        }
        ours.zip(theirs)
    })
}

/// Writes 8 bytes until that is done directly.
pub(super) fn write_direct(
    client: &mut Endpoint,
    server: &mut Endpoint,
    on: Connection,
    from: RegionHandle,
    to: RegionHandle,
) {
    let before = counter(client, "rma_direct");
    let start = Instant::now();
    while counter(client, "rma_direct") == before {
        assert!(start.elapsed() < PATIENCE, "never mapped");
        let (from, to) = (RegionAddress::new(from, 0), RegionAddress::new(to, 0));
        client.rma_write(on, from, to, 8, 3, RmaFlags::NONE).unwrap();
        until(client, "a write", |_, event| {
            server.progress();
            event.map(|event| assert!(matches!(event, Event::Send { status: Status::Success, .. })))
        });
    }
}

pub(super) fn part(memory: &Memory, endpoint: &mut Endpoint, range: std::ops::Range<usize>) -> RegionHandle {
    let what = Registration { range: Some(range), access: Access::ALL, only: None };
    endpoint.register(memory, what).unwrap()
}

#[test]
fn who_has_old_pages_does_not_write_to_them_once_others_have_new_ones() {
    let (mut owner, mut client) = (endpoint(), endpoint());
    let memory = owner.allocate(8192).unwrap();
    let (first, second) = (part(&memory, &mut owner, 0..4096), part(&memory, &mut owner, 4096..8192));
    let (ours, _) = join(&mut client, &mut owner);
    let source = client.allocate(4096).unwrap();
    let from = client.register(&source, Access::LOCAL).unwrap();
    write_direct(&mut client, &mut owner, ours, from, second);
    // Another process is stopped in the middle of a copy to the first part, which is taken back: there are new pages now.
    let stopped = ask_as(&mut owner, 1, Attribute::ReliableOrdered, NO_PROCESS);
    let mut stopped = confirm(&mut owner, stopped);
    let attacker = ask(&mut owner, 2, Attribute::ReliableOrdered);
    let mut lie = confirm(&mut owner, attacker);
    let got = stopped.map(&mut owner, first);
    stopped.producer.begin_direct(got.word());
    owner.deregister(&first).unwrap();
    assert_eq!(counter(&owner, "rma_detached"), 1);
    // Somebody else is granted the second part, in the new pages.
    let again = lie.map(&mut owner, second);
    assert_ne!(again.words[6], got.words[6], "it is another memory now");
    // And the client, who has the old ones, writes to it.
    assert!(source.write(0, b"not lost"));
    client
        .rma_write(ours, RegionAddress::new(from, 0), RegionAddress::new(second, 0), 8, 3, RmaFlags::NONE)
        .unwrap();
    until(&mut client, "a write", |_, event| {
        owner.progress();
        event.map(|event| assert!(matches!(event, Event::Send { status: Status::Success, .. })))
    });
    let mut seen = [0; 8];
    assert!(memory.read(4096, &mut seen));
    assert_eq!(&seen, b"not lost");
}

#[test]
fn what_a_link_was_granted_ends_with_it() {
    let mut owner = endpoint();
    let memory = owner.allocate(4096).unwrap();
    let handle = owner.register(&memory, Access::ALL).unwrap();
    let attacker = ask(&mut owner, 1, Attribute::ReliableOrdered);
    let mut lie = confirm(&mut owner, attacker);
    let mut got = lie.map(&mut owner, handle);
    let control = got.control();
    let live = || control.load(got.word() as usize * 8).unwrap();
    assert_eq!(live(), got.token());
    // The owner gives the link up; the peer, which lives, may not know yet. Nobody looks any more whether it copies.
    lie.push(kind::RMA, [u64::MAX; 3]);
    until(&mut owner, "the end of the link", |owner, _| (!owner.is_open(lie.connection)).then_some(()));
    assert_ne!(live(), got.token(), "it could begin to write, and nobody would wait for it");
    // Others are granted it anew, and that is taken back as ever.
    let (mut client, source) =
        (endpoint(), Memory::foreign(cci_memory::bytes::Foreign::owned(Box::new([7; 8]))));
    let (ours, _) = join(&mut client, &mut owner);
    let from = client.register(&source, Access::LOCAL).unwrap();
    write_direct(&mut client, &mut owner, ours, from, handle);
    assert_ne!(live(), got.token());
    owner.deregister(&handle).unwrap();
    assert_eq!(live(), 0);
}

#[test]
fn memory_is_let_go_of_with_the_last_region_that_one_was_granted() {
    let mut owner = endpoint();
    let memory = owner.allocate(8192).unwrap();
    let (first, second) = (part(&memory, &mut owner, 0..4096), part(&memory, &mut owner, 4096..8192));
    let mut clients = [endpoint(), endpoint()];
    let mut ours = Vec::new();
    for (client, region) in clients.iter_mut().zip([first, second]) {
        let source = client.allocate(8).unwrap();
        let from = client.register(&source, Access::LOCAL).unwrap();
        let (on, _) = join(client, &mut owner);
        write_direct(client, &mut owner, on, from, region);
        ours.push(on);
    }
    for region in [first, second] {
        owner.deregister(&region).unwrap();
    }
    for client in &mut clients {
        until(client, "nothing mapped", |client, _| {
            owner.progress();
            (counter(client, "rma_mapped_bytes") == 0).then_some(())
        });
    }
}

#[test]
fn a_region_for_one_connection_is_mapped_however_many_there_were_before() {
    let (mut owner, mut client) = (endpoint(), endpoint());
    let memory = owner.allocate(4096).unwrap();
    let source = client.allocate(4096).unwrap();
    let from = client.register(&source, Access::LOCAL).unwrap();
    // So that there is one link all the time.
    let _kept = join(&mut client, &mut owner);
    for number in 0..270 {
        let (ours, theirs) = join(&mut client, &mut owner);
        if number >= 265 {
            let what = Registration { range: None, access: Access::ALL, only: Some(theirs) };
            let handle = owner.register(&memory, what).unwrap();
            write_direct(&mut client, &mut owner, ours, from, handle);
            owner.deregister(&handle).unwrap();
        }
        client.disconnect(ours);
        until(&mut owner, "the end", |owner, _| {
            client.next_event();
            (!owner.is_open(theirs)).then_some(())
        });
        owner.disconnect(theirs);
    }
}

#[test]
fn a_write_into_pages_that_are_replaced_meanwhile_is_done_again() {
    const LEN: usize = 1 << 20;
    let mut server = endpoint();
    let source = server.allocate(LEN).unwrap();
    let from = server.register(&source, Access::LOCAL).unwrap();
    let (mut caught, first_round) = (0, Instant::now());
    for round in 1..=20_000_u64 {
        // The liar owns the memory here.
        let attacker = ask(&mut server, round, Attribute::ReliableUnordered);
        let lie = confirm(&mut server, attacker);
        let memory = RmaMemory::create(LEN).unwrap();
        let control = SharedMemory::create_read_only_for_others(4096).unwrap();
        let live = |token: u64| assert!(control.bytes().write(8, &token.to_ne_bytes()));
        live(5);
        let to = RegionAddress::new(RegionHandle::new(1, LEN as u64, 2, Access::ALL), 0);
        server.rma_write(lie.connection, RegionAddress::new(from, 0), to, 8, 1, RmaFlags::NONE).unwrap();
        let magic = u64::from_ne_bytes(*b"CCIgrant");
        let grant = [magic, 1, 2, u64::MAX, 7, 0, 3, LEN as u64, 0, LEN as u64, 1, 5, 4096];
        let grant = grant.map(u64::to_ne_bytes);
        let fds = [memory.shared().fd().unwrap(), control.fd().unwrap()];
        lie.stream.send(grant.as_flattened(), &fds).unwrap();
        let (start, mut polls) = (Instant::now(), 0);
        while polls < 100 || start.elapsed() < Duration::from_millis(2) {
            assert!(server.next_event().is_none());
            polls += 1;
        }
        assert!(source.bytes().fill(0, LEN, round as u8 | 1));
        let (begun, bytes) = (AtomicBool::new(false), memory.bytes());
        std::thread::scope(|scope| {
            let in_the_middle = scope.spawn(|| {
                let byte = |at| {
                    let mut byte = [0];
                    assert!(bytes.read(at, &mut byte));
                    byte[0]
                };
                begun.store(true, Ordering::Release);
                // Not for ever: if the memory is not written to directly, the assertion below should say so.
                while byte(4096) == 0 && start.elapsed() < Duration::from_secs(20) {
                    std::hint::spin_loop();
                }
                live(0);
                std::sync::atomic::fence(Ordering::SeqCst);
                byte(LEN - 1) == 0
            });
            while !begun.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            // Threads that share one processor meet in the middle of the copy only if it is still under way when the time
            // slice of its thread ends, so the copy starts at another point of the slice in each round.
            let (phase, wait) = (Duration::from_micros(round * 263 % 4000), Instant::now());
            while round > 5 && wait.elapsed() < phase {
                std::hint::spin_loop();
            }
            server
                .rma_write(lie.connection, RegionAddress::new(from, 0), to, LEN as u64, 2, RmaFlags::NONE)
                .unwrap();
            if in_the_middle.join().unwrap() {
                caught += 1;
                let reported = server.next_event();
                assert!(
                    reported.is_none(),
                    "the end of it may be lost, and it is called a success: {reported:?}"
                );
            }
        });
        server.disconnect(lie.connection);
        drop(lie);
        while server.next_event().is_some() {}
        if caught == 2 || first_round.elapsed() > Duration::from_secs(60) {
            break;
        }
    }
    assert!(caught > 0, "it never happened");
}

#[test]
fn a_question_over_a_connection_that_ends_does_not_keep_others_from_asking() {
    let (mut owner, mut client) = (endpoint(), endpoint());
    let memory = owner.allocate(4096).unwrap();
    let handle = owner.register(&memory, Access::ALL).unwrap();
    let source = client.allocate(4096).unwrap();
    let from = client.register(&source, Access::LOCAL).unwrap();
    let (kept, _) = join(&mut client, &mut owner);
    let (ours, theirs) = join(&mut client, &mut owner);
    let (local, remote) = (RegionAddress::new(from, 0), RegionAddress::new(handle, 0));
    client.rma_write(ours, local, remote, 8, 3, RmaFlags::NONE).unwrap();
    owner.disconnect(theirs);
    until(&mut client, "the end of the operation", |_, event| {
        owner.next_event();
        matches!(event, Some(Event::Send { .. })).then_some(())
    });
    while client.next_event().is_some() {}
    write_direct(&mut client, &mut owner, kept, from, handle);
}

#[test]
fn who_sleeps_is_told_that_a_region_is_no_more() {
    let (mut owner, mut client) = (endpoint(), endpoint());
    let memory = owner.allocate(4096).unwrap();
    let handle = owner.register(&memory, Access::ALL).unwrap();
    let source = client.allocate(4096).unwrap();
    let from = client.register(&source, Access::LOCAL).unwrap();
    let (ours, _) = join(&mut client, &mut owner);
    write_direct(&mut client, &mut owner, ours, from, handle);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(20) {
        assert!(client.next_event().is_none() && owner.next_event().is_none());
    }
    while client.arm() {
        assert!(client.next_event().is_none() && start.elapsed() < PATIENCE);
    }
    let wakes = counter(&owner, "wakes_sent");
    owner.deregister(&handle).unwrap();
    assert_eq!(counter(&owner, "wakes_sent"), wakes + 1, "it keeps the memory until something else comes");
}

#[test]
fn nothing_is_written_for_a_peer_that_is_known_to_be_gone() {
    let options = Options { recv_buffers: 4, ..Options::default() };
    let mut client = Endpoint::create(&builtin::shm("shm"), options).unwrap();
    let source = client.allocate(4096).unwrap();
    let from = client.register(&source, Access::LOCAL).unwrap();
    let attacker = ask(&mut client, 1, Attribute::ReliableUnordered);
    let mut lie = confirm(&mut client, attacker);
    let memory = RmaMemory::create(4096).unwrap();
    let control = SharedMemory::create_read_only_for_others(4096).unwrap();
    assert!(control.bytes().write(8, &5_u64.to_ne_bytes()));
    let (local, remote) =
        (RegionAddress::new(from, 0), RegionAddress::new(RegionHandle::new(1, 4096, 2, Access::ALL), 0));
    client.rma_write(lie.connection, local, remote, 8, 3, RmaFlags::SILENT).unwrap();
    let grant = [u64::from_ne_bytes(*b"CCIgrant"), 1, 2, u64::MAX, 7, 0, 3, 4096, 0, 4096, 1, 5, 4096];
    let grant = grant.map(u64::to_ne_bytes);
    lie.stream.send(grant.as_flattened(), &[memory.shared().fd().unwrap(), control.fd().unwrap()]).unwrap();
    let start = Instant::now();
    let mut held = Vec::new();
    while counter(&client, "rma_direct") == 0 {
        assert!(start.elapsed() < PATIENCE, "never mapped");
        client.rma_write(lie.connection, local, remote, 8, 3, RmaFlags::SILENT).unwrap();
        held.extend(client.next_event());
        std::thread::sleep(Duration::from_micros(100));
    }
    // It is killed; its last words wait for a buffer.
    for _ in 0..6 {
        let (conn, flags) = (lie.conn.index, lie.conn.generation as u8);
        lie.producer
            .push(RecordHeader { kind: kind::MESSAGE, flags, conn, ack: 0 }, &[b"last words"])
            .unwrap();
    }
    drop(lie.stream);
    while held.len() < 4 || start.elapsed() < Duration::from_millis(50) {
        held.extend(client.next_event());
    }
    assert!(client.is_open(lie.connection), "what it said is still to be delivered");
    let before = counter(&client, "rma_direct");
    client.rma_write(lie.connection, local, remote, 8, 4, RmaFlags::NONE).unwrap();
    assert_eq!(counter(&client, "rma_direct"), before);
    held.clear();
    let status = until(&mut client, "the end of the write", |_, event| match event {
        Some(Event::Send { context: 4, status, .. }) => Some(status),
        _ => None,
    });
    assert_eq!(status, Status::Disconnected);
}

#[test]
fn regions_come_and_go_thousands_of_times_and_nothing_stays() {
    // Those of memory for remote access: other tests of this process have many of other kinds.
    let is_of_memory = |path: std::path::PathBuf| {
        let names = ["memfd:cci-rma", "memfd:cci-control"];
        std::fs::read_link(path)
            .is_ok_and(|link| names.iter().any(|name| link.to_string_lossy().contains(name)))
    };
    let fds = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        all.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_of_memory(path.clone())).count()
    };
    // An endpoint that is connected to itself, which lends, uses and takes back.
    let mut both = endpoint();
    let uri = both.uri().to_owned();
    both.connect(&uri, &[], Attribute::ReliableOrdered, 1, Some(PATIENCE)).unwrap();
    let (mut ours, mut theirs) = (None, None);
    let (ours, _) = until(&mut both, "both ends", |both, event| {
        match event {
            Some(Event::ConnectRequest(request)) => both.accept(request, 2).unwrap(),
            Some(Event::Accept { result, .. }) => theirs = Some(result.unwrap()),
            Some(Event::Connect { result, .. }) => ours = Some(result.unwrap()),
            _ => {}
        }
        ours.zip(theirs)
    });
    let source = both.allocate(4096).unwrap();
    let from = both.register(&source, Access::LOCAL).unwrap();
    let mut before = 0;
    for number in 0..4000_u64 {
        // Each on memory of its own, that is freed behind it.
        let memory = both.allocate(4096).unwrap();
        let handle = both.register(&memory, Access::ALL).unwrap();
        assert!(source.write(0, &number.to_ne_bytes()));
        let direct = counter(&both, "rma_direct");
        while counter(&both, "rma_direct") == direct {
            both.rma_write(
                ours,
                RegionAddress::new(from, 0),
                RegionAddress::new(handle, 8),
                8,
                3,
                RmaFlags::NONE,
            )
            .unwrap();
            until(&mut both, "a write", |_, event| event);
        }
        let mut seen = [0; 8];
        assert!(memory.read(8, &mut seen) && seen == number.to_ne_bytes());
        both.deregister(&handle).unwrap();
        if number == 100 {
            before = fds();
        }
    }
    // Other tests of this process lend memory too.
    assert!(fds() < before + 500, "{} now, {before} before", fds());
    until(&mut both, "nothing mapped", |both, _| (counter(both, "rma_mapped_bytes") == 0).then_some(()));
    assert_eq!((counter(&both, "rma_regions_granted"), counter(&both, "rma_detached")), (0, 0));
}

/// A peer that is in the middle of a copy whenever the owner looks.
#[test]
fn a_peer_that_never_ends_a_copy_is_waited_for_once() {
    const REGIONS: usize = 6;
    let mut owner = endpoint();
    let memories: Vec<Memory> = (0..REGIONS).map(|_| owner.allocate(4096).unwrap()).collect();
    let handles: Vec<RegionHandle> =
        memories.iter().map(|memory| owner.register(memory, Access::ALL).unwrap()).collect();
    // Two links of one process, and one of another, which copies nothing.
    let mut lies: Vec<Joined> = [(1, NO_PROCESS), (2, NO_PROCESS), (3, NO_PROCESS - 1)]
        .into_iter()
        .map(|(number, pid)| {
            let attacker = ask_as(&mut owner, number, Attribute::ReliableOrdered, pid);
            confirm(&mut owner, attacker)
        })
        .collect();
    let [busy, twin, idle] = &mut lies[..] else { panic!() };
    let words: Vec<u64> = handles.iter().map(|handle| busy.map(&mut owner, *handle).word()).collect();
    let _ = twin.map(&mut owner, handles[5]);
    let mut kept = idle.map(&mut owner, handles[5]);
    for (handle, word) in handles.iter().zip(&words).take(5) {
        busy.producer.begin_direct(*word);
        owner.deregister(handle).unwrap();
    }
    assert_eq!(counter(&owner, "rma_revocations_waited"), 1, "of 5 regions taken back");
    assert_eq!(counter(&owner, "rma_detached"), 1);
    // The process goes on by the ring: it is granted nothing more, over whichever of its links.
    assert!(owner.is_open(busy.connection) && owner.is_open(twin.connection));
    for lie in [busy, twin] {
        lie.push(kind::MAP, [handles[5].region(), handles[5].key(), 1]);
        assert_eq!(lie.answer(&mut owner), (kind::NO_MAP, handles[5].region()));
    }
    let late = ask_as(&mut owner, 4, Attribute::ReliableOrdered, NO_PROCESS);
    let mut late = confirm(&mut owner, late);
    late.push(kind::MAP, [handles[5].region(), handles[5].key(), 1]);
    assert_eq!(late.answer(&mut owner), (kind::NO_MAP, handles[5].region()));
    // Others are granted what they ask for, and what all had is over: they ask again.
    let control = kept.control();
    assert_ne!(control.load(kept.word() as usize * 8), Ok(kept.token()));
    let again = idle.map(&mut owner, handles[5]);
    assert_eq!(control.load(again.word() as usize * 8), Ok(again.token()));
}

#[test]
fn links_that_are_given_up_in_the_middle_of_a_copy_cost_no_words() {
    let mut owner = endpoint();
    // More often than there are words.
    for number in 0..2_100 {
        let memory = owner.allocate(4096).unwrap();
        let handle = owner.register(&memory, Access::ALL).unwrap();
        let attacker = ask_as(&mut owner, number, Attribute::ReliableOrdered, NO_PROCESS - number as u32);
        let mut lie = confirm(&mut owner, attacker);
        let got = lie.map(&mut owner, handle);
        lie.producer.begin_direct(got.word());
        lie.push(kind::RMA, [u64::MAX; 3]);
        until(&mut owner, "the end of the link", |owner, _| (!owner.is_open(lie.connection)).then_some(()));
        owner.disconnect(lie.connection);
        owner.deregister(&handle).unwrap();
    }
    assert_eq!((counter(&owner, "rma_detached"), counter(&owner, "rma_revocations_waited")), (2_100, 0));
}

#[test]
fn a_peer_that_asks_and_never_reads_is_given_up_before_it_costs_memory() {
    let mut owner = endpoint();
    let attacker = ask(&mut owner, 1, Attribute::ReliableOrdered);
    let mut lie = confirm(&mut owner, attacker);
    let memory = owner.allocate(4096).unwrap();
    let mut longest_bytes = 0;
    for _ in 0..20_000 {
        let handle = owner.register(&memory, Access::ALL).unwrap();
        // What is granted it takes, over the socket; what is said of the end of it fills the ring, and waits then.
        let _ = lie.map(&mut owner, handle);
        owner.deregister(&handle).unwrap();
        let kinds = owner.counters().memory.kinds;
        let links = kinds.iter().find(|(kind, _)| *kind == "links").unwrap().1;
        longest_bytes = longest_bytes.max(links);
        if !owner.is_open(lie.connection) {
            assert!(longest_bytes < 1 << 20, "{longest_bytes}");
            return;
        }
    }
    panic!("words for it wait for ever");
}
