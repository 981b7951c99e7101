//! The process to be killed.

use super::area::{Area, LEN};
use super::{DEVICE, ROLE, open};
use crate::crash_peers::Random;
use cci::{
    Atomic, AtomicKind, AtomicWidth, Attribute, Connection, Endpoint, Event, RegionAddress, RegionHandle,
    Rma, RmaFlags, RmaKind, Segment, SendFlags,
};
use std::io::Write;
use std::time::{Duration, Instant};

/// A victim that nobody kills ends by itself.
const LIFE: Duration = Duration::from_secs(30);

/// The body of a test named `victim`, which does nothing unless the harness has started this process for it.
pub fn victim() {
    let (Ok(role), Ok(device)) = (std::env::var(ROLE), std::env::var(DEVICE)) else { return };
    let mut endpoint = open(&device, Duration::from_secs(10));
    let end = Instant::now() + LIFE;
    if role == "target" {
        target(&mut endpoint, end);
    } else {
        initiator(&mut endpoint, &role, end);
    }
    std::process::exit(0);
}

/// Lets others at its memory: a region of each kind, and words for atomics.
fn target(endpoint: &mut Endpoint, end: Instant) {
    let areas = [true, false, true].map(|library| Area::new(endpoint, library));
    areas[0].fill();
    areas[1].fill();
    // Not by println!: the test runner would keep it to itself.
    let _ = writeln!(std::io::stderr(), "URI {}", endpoint.uri());
    while Instant::now() < end {
        match endpoint.next_event() {
            Some(Event::ConnectRequest(request)) => {
                let _ = endpoint.accept(request, 0);
            }
            Some(Event::Accept { result: Ok(connection), .. }) => {
                let _ = endpoint.send(connection, &message(&areas), 0, SendFlags::SILENT);
            }
            _ => {}
        }
    }
}

/// The handles of three regions.
pub fn message(areas: &[Area; 3]) -> Vec<u8> {
    areas.iter().flat_map(|area| area.handle.to_bytes()).collect()
}

/// And back.
pub fn handles(message: &[u8]) -> Option<[RegionHandle; 3]> {
    let (handles, _) = message.as_chunks::<{ RegionHandle::BYTES }>();
    <[[u8; RegionHandle::BYTES]; 3]>::try_from(handles)
        .ok()
        .map(|handles| handles.map(RegionHandle::from_bytes))
}

/// Connects, and does with the other's memory whatever can be done, as fast as it can.
fn initiator(endpoint: &mut Endpoint, uri: &str, end: Instant) {
    let mut random = Random(u64::from(std::process::id()));
    let attribute = [Attribute::ReliableOrdered, Attribute::ReliableUnordered][random.below(2) as usize];
    let own = [true, false].map(|library| Area::new(endpoint, library));
    own.iter().for_each(Area::fill);
    let scratch = Area::new(endpoint, true);
    let _ = endpoint.connect(uri, b"", attribute, 0, None);
    // Half of them never wait for the other side where its memory is mapped: they die and stop in the middle of a copy.
    let only_writes = random.below(2) == 0;
    let (mut to, mut theirs, mut under_way) = (None, None, 0);
    while Instant::now() < end {
        for _ in 0..8 {
            match endpoint.next_event() {
                Some(Event::Connect { result, .. }) => to = result.ok(),
                Some(Event::Recv(message)) => theirs = handles(&message),
                Some(Event::Send { .. }) => under_way -= 1,
                Some(_) => {}
                None => break,
            }
        }
        let has_room = under_way < if only_writes { 1 } else { 24 };
        let (Some(to), Some(theirs), true) = (to, theirs, has_room) else { continue };
        if only_writes {
            let (at, len) = (random.below(4_096), LEN as u64 - 4_096);
            let (from, into) = (RegionAddress::new(own[0].handle, at), RegionAddress::new(theirs[0], at));
            under_way += u32::from(endpoint.rma_write(to, from, into, len, 0, RmaFlags::NONE).is_ok());
            continue;
        }
        let mine = own[random.below(2) as usize].handle;
        under_way +=
            u32::from(operate(endpoint, to, &mut random, [mine, scratch.handle], theirs, LEN as u64, 0));
    }
}

/// Starts one operation by chance. What is written is right for its place, and bytes that were read are kept at theirs.
pub fn operate(
    endpoint: &mut Endpoint,
    to: Connection,
    random: &mut Random,
    [source, scratch]: [RegionHandle; 2],
    theirs: [RegionHandle; 3],
    longest: u64,
    context: u64,
) -> bool {
    let flags = if random.below(16) == 0 { RmaFlags::FENCE } else { RmaFlags::NONE };
    let longest = [64, 4_096, 60_000, LEN as u64][random.below(4) as usize].min(longest);
    let len = 1 + random.below(longest);
    let at = random.below(LEN as u64 - len + 1);
    let region = theirs[random.below(2) as usize];
    let remote = [Segment::new(region, at, len)];
    match random.below(8) {
        0 => {
            let kind = [AtomicKind::FetchAdd, AtomicKind::Xor][random.below(2) as usize];
            let atomic = Atomic { kind, width: AtomicWidth::Eight, operand: 1, compare: 0 };
            endpoint.atomic(to, atomic, RegionAddress::new(theirs[2], 64), None, context, flags).is_ok()
        }
        1 | 2 => {
            let local = [Segment::new(scratch, at, len)];
            let read =
                Rma { kind: RmaKind::Read, local: &local, remote: &remote, message: None, context, flags };
            endpoint.rma(to, &read).is_ok()
        }
        other => {
            let local = [Segment::new(source, at, len)];
            let message = (other == 3).then_some(&b"written"[..]);
            let write = Rma { kind: RmaKind::Write, local: &local, remote: &remote, message, context, flags };
            endpoint.rma(to, &write).is_ok()
        }
    }
}
