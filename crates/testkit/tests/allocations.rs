//! The data path allocates nothing and frees nothing, once everything has grown to its size: on every device, for messages,
//! remote memory, atomics and blocking waits. What the allocator is asked for is counted by thread.
#![forbid(unsafe_code)]

use allocation_counter::measure;
use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, Attribute, Connection, Endpoint, Event, Memory, Options,
    RegionAddress, RegionHandle, RmaFlags, SendError, SendFlags, Status,
};
use cci_testkit::conformance::{ANY, DeviceUnderTest, ETH, ETH_PACKET, SHM, SHM_PULL, SHM_RING, TCP4, UDP4};
use cci_testkit::pair::{PATIENCE, Pair};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Before it is counted: tables and queues grow to what the work needs.
const WARM_UP: usize = 30;
const ROUNDS: usize = 30;
/// How often it is counted, until one count finds nothing.
const ATTEMPTS: usize = 3;

thread_local! {
    /// What allocated: one run shows all.
    static FOUND: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Runs `round` until nothing grows any more, then counts. A busy machine may stop the program for so long that a connection
/// falls asleep and gives back what it had borrowed, and it borrows anew: then it is counted again.
fn steady(what: &str, mut round: impl FnMut()) {
    for _ in 0..WARM_UP {
        round();
    }
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let info = measure(|| {
            for _ in 0..ROUNDS {
                round();
            }
        });
        let frees = info.count_total as i64 - info.count_current;
        if info.count_total == 0 && frees == 0 {
            return;
        }
        let (count, bytes) = (info.count_total, info.bytes_total);
        last =
            Some(format!("{what}: {count} allocations of {bytes} bytes, {frees} frees in {ROUNDS} rounds"));
    }
    FOUND.with_borrow_mut(|found| found.extend(last));
}

/// Polls both ends until `received` messages came to the one and `completed` completions to the other.
fn settle(sender: &mut Endpoint, receiver: &mut Endpoint, received: usize, completed: usize) {
    let (mut got, mut done) = (0, 0);
    let started = Instant::now();
    while got < received || done < completed {
        assert!(
            started.elapsed() < PATIENCE,
            "{got} of {received} messages, {done} of {completed} completions"
        );
        match sender.next_event() {
            Some(Event::Send { status, .. }) => {
                assert_eq!(status, Status::Success);
                done += 1;
            }
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        match receiver.next_event() {
            Some(Event::Recv(_)) => got += 1,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
}

/// One message of each size, then a burst; reliable ones all arrive.
fn messages(pair: &mut Pair, connection: Connection, attribute: Attribute, name: &str) {
    let [client, server] = &mut pair.ends;
    let longest = client.max_send_size(connection).expect("open") as usize;
    let message = vec![7; longest];
    for (flags, completions) in [(SendFlags::NONE, 1), (SendFlags::SILENT, 0)] {
        let what = format!("{name} {} {flags:?}", attribute.short_name());
        steady(&what, || {
            for len in [0, 1, 8, 64, 512, longest / 2, longest] {
                let message = message.get(..len).expect("as long");
                client.send(connection, message, 1, flags).expect("there is room");
                settle(client, server, 1, completions);
            }
        });
        if !attribute.is_reliable() {
            continue;
        }
        steady(&format!("{what}, bursts"), || {
            let mut sent = 0;
            while sent < 100 {
                match client.send(connection, &[7; 100], 1, flags) {
                    Ok(()) => sent += 1,
                    Err(SendError::WouldBlock) => break,
                    Err(other) => panic!("{other}"),
                }
            }
            settle(client, server, sent, completions * sent);
        });
    }
}

/// Memory at both ends.
struct Areas {
    local_handle: RegionHandle,
    remote_handle: RegionHandle,
    _memory: [Memory; 2],
}

const AREA_BYTES: usize = 1 << 20;

fn areas(pair: &mut Pair) -> Areas {
    let [client, server] = &mut pair.ends;
    let local = client.allocate(AREA_BYTES).expect("memory");
    let remote = server.allocate(AREA_BYTES).expect("memory");
    let local_handle = client.register(&local, Access::LOCAL).expect("room");
    let remote_handle =
        server.register(&remote, Access::READ | Access::WRITE | Access::ATOMIC).expect("room");
    Areas { local_handle, remote_handle, _memory: [local, remote] }
}

fn remote_memory(pair: &mut Pair, connection: Connection, name: &str) {
    let areas = areas(pair);
    let [client, server] = &mut pair.ends;
    let (local, remote) =
        (RegionAddress::new(areas.local_handle, 0), RegionAddress::new(areas.remote_handle, 0));
    for len in [8, 4096, AREA_BYTES as u64] {
        steady(&format!("{name} write of {len}"), || {
            client.rma_write(connection, local, remote, len, 1, RmaFlags::NONE).expect("there is room");
            settle(client, server, 0, 1);
        });
        steady(&format!("{name} read of {len}"), || {
            client.rma_read(connection, local, remote, len, 1, RmaFlags::NONE).expect("there is room");
            settle(client, server, 0, 1);
        });
    }
    let add = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Eight, operand: 1, compare: 0 };
    steady(&format!("{name} atomics"), || {
        client.atomic(connection, add, remote, Some(local), 1, RmaFlags::NONE).expect("there is room");
        settle(client, server, 0, 1);
    });
}

/// A wait that sleeps, and wakes for nothing: time passes, and only then something has come.
fn waits(pair: &mut Pair, connection: Connection, name: &str) {
    let [client, server] = &mut pair.ends;
    steady(&format!("{name} waiting"), || {
        let nothing = server.wait(Some(Duration::from_micros(300))).expect("the system waits");
        assert!(nothing.is_none(), "{nothing:?}");
        client.send(connection, &[7; 8], 1, SendFlags::SILENT).expect("there is room");
        client.progress();
        let started = Instant::now();
        while !matches!(server.wait(Some(Duration::from_millis(1))), Ok(Some(Event::Recv(_)))) {
            assert!(started.elapsed() < PATIENCE, "nothing came");
            assert!(client.next_event().is_none());
        }
    });
}

/// 100 connections of one endpoint, each in its turn.
fn turns(pair: &mut Pair, name: &str) {
    let connections: Vec<Connection> =
        (0..100).map(|_| pair.connect(Attribute::ReliableOrdered)[0]).collect();
    let [client, server] = &mut pair.ends;
    steady(&format!("{name} 100 connections"), || {
        for connection in &connections {
            client.send(*connection, &[7; 64], 1, SendFlags::NONE).expect("there is room");
            settle(client, server, 1, 1);
        }
    });
}

fn nothing_is_allocated(device: &DeviceUnderTest) {
    let mut pair = match Pair::open(device, &Options::default()) {
        Ok(pair) => pair,
        Err(reason) => return println!("skipped: {reason}"),
    };
    for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable] {
        let [connection, _] = pair.connect(attribute);
        messages(&mut pair, connection, attribute, device.name);
    }
    let [connection, _] = pair.connect(Attribute::ReliableOrdered);
    remote_memory(&mut pair, connection, device.name);
    waits(&mut pair, connection, device.name);
    turns(&mut pair, device.name);
    let found = FOUND.take();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

macro_rules! on_each_device {
    ($($test:ident: $device:ident;)+) => {
        $(
            #[test]
            fn $test() {
                nothing_is_allocated(&$device);
            }
        )+
    };
}

on_each_device! {
    shm: SHM;
    shm_pull: SHM_PULL;
    shm_ring: SHM_RING;
    udp: UDP4;
    tcp: TCP4;
    eth: ETH;
    eth_packet: ETH_PACKET;
    any: ANY;
}

/// The counter counts.
#[test]
fn allocations_are_seen() {
    let info = measure(|| drop(std::hint::black_box(vec![0_u8; 8])));
    assert_eq!((info.count_total, info.count_current), (1, 0));
}
