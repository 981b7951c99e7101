//! Remote memory of another process: its pages, not ours under another name.

use super::RELIABLE;
use super::peer::{Peer, poll_until};
use crate::conformance::{
    Area, Capability, Conn, Driver, Environment, Flags, Port, Refusal, Side, Skipped, Whose,
    conformance_timeout, contents, plain, some_len,
};
use crate::rng::Rng;
use cci::{Access, Atomic, AtomicKind, AtomicWidth, RegionHandle, Rma, RmaFlags, RmaKind, Segment, Status};
use std::time::Instant;

/// Asks the child for its regions: one of each kind.
const REGIONS: &[u8] = b"remote memory, please";
/// Begins the message that comes behind data: which region, then where and how long (8 bytes each).
const WRITTEN: &[u8] = b"written ";
/// Bytes of a region of the child's. The first 8 are a counter.
const LEN: usize = 3 << 20;

/// The child's part: true if the message was for it.
pub(super) fn serve<D: Driver>(
    server: &mut Side<D>,
    from: Conn<D>,
    message: &[u8],
    areas: &mut Vec<Area<D>>,
) -> bool {
    let answer = if message == REGIONS {
        if areas.is_empty() {
            for whose in Whose::ALL {
                let mut area = Area::new(server, whose, LEN, Access::ALL);
                area.put_word(0, 0);
                areas.push(area);
            }
        }
        areas.iter().flat_map(|area| area.handle.to_bytes()).collect()
    } else if let Some(words) = message.strip_prefix(WRITTEN) {
        let mut words = words.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8")));
        let [which, at, len] = [(); 3].map(|()| words.next().expect("three numbers") as usize);
        checksum(&areas[which].now(at, len)).to_le_bytes().to_vec()
    } else {
        return false;
    };
    while server.port.send(from, &answer, 0, Flags { silent: true, no_copy: false })
        == Err(Refusal::WouldBlock)
    {
        server.poll();
    }
    true
}

/// FNV-1a.
fn checksum(data: &[u8]) -> u64 {
    let fold = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    data.iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

/// The answer to what was asked.
fn answer<D: Driver>(client: &mut Side<D>) -> Vec<u8> {
    poll_until(client, "an answer", |client| !client.inbox.is_empty());
    client.inbox.pop_front().expect("just seen").1.as_ref().to_vec()
}

/// Memory of another process is written, read and changed; the other process finds what was written.
pub fn two_processes_share_memory<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Processes)?;
    let mut peer = Peer::start(env);
    let mut client: Side<D> = Side::plain(env);
    let (mut local_area, mut adds) = (Area::odd(&mut client, Whose::Library, LEN, Access::LOCAL), 0);
    for attribute in RELIABLE {
        client.connected.clear();
        client.dial(&peer.uri, attribute, 1);
        poll_until(&mut client, "the connection", |client| !client.connected.is_empty());
        let to_peer = client.connected[0].1.expect("connected to the other process");
        client.port.send(to_peer, REGIONS, 0, Flags { silent: true, no_copy: false }).expect("room");
        let handles = answer(&mut client);
        for (which, handle) in handles.chunks_exact(RegionHandle::BYTES).enumerate() {
            let handle = RegionHandle::from_message(handle).expect("32 bytes");
            exchange(&mut client, to_peer, &mut local_area, (which as u64, handle));
        }
        adds += 200;
        for handle in handles.chunks_exact(RegionHandle::BYTES) {
            let handle = RegionHandle::from_message(handle).expect("32 bytes");
            count(&mut client, to_peer, &local_area, handle, adds);
            local_area.accept();
        }
        client.port.disconnect(to_peer);
    }
    drop(peer.child.stdin.take());
    let ended = peer.child.wait().expect("the child ends");
    assert!(ended.success(), "the child ended with {ended}");
    Ok(())
}

/// Writes and reads back, with word of it to the owner.
fn exchange<D: Driver>(
    client: &mut Side<D>,
    to_peer: Conn<D>,
    local_area: &mut Area<D>,
    (which, handle): (u64, RegionHandle),
) {
    let mut rng = Rng::new(which);
    for round in 0..60 {
        let len = some_len(&mut rng, 21);
        let at = 8 + rng.below(1000) as usize;
        let data = contents(round, len);
        local_area.put(0, &data);
        let numbers = [which, at as u64, len as u64].map(u64::to_le_bytes).concat();
        let message = [WRITTEN, &numbers].concat();
        let (local, remote) = ([local_area.segment(0, len)], [Segment::new(handle, at as u64, len as u64)]);
        let write = plain(RmaKind::Write, &local, &remote, round);
        start(client, to_peer, &Rma { message: Some(&message), ..write });
        let sum = answer(client);
        assert_eq!(sum, checksum(&data).to_le_bytes(), "the owner finds {len} bytes that were written");
        poll_until(client, "the end of the write", |client| !client.sent.is_empty());
        assert_eq!(client.sent.pop().map(|(_, _, status)| status), Some(Status::Success));
        local_area.put(0, &vec![0; len]);
        local_area.expect(0, &data);
        start(client, to_peer, &plain(RmaKind::Read, &local, &remote, round));
        poll_until(client, "the end of the read", |client| !client.sent.is_empty());
        assert_eq!(client.sent.pop().map(|(_, _, status)| status), Some(Status::Success));
        local_area.check("read back");
    }
}

/// Adds to the counter 200 times, which makes it `sum`.
fn count<D: Driver>(
    client: &mut Side<D>,
    to_peer: Conn<D>,
    local_area: &Area<D>,
    handle: RegionHandle,
    sum: u64,
) {
    let add = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
    let patience = Instant::now() + conformance_timeout();
    for number in 0..200 {
        loop {
            let (target, result) = (cci::RegionAddress::new(handle, 0), Some(local_area.address(number * 8)));
            let started = client.port.atomic(to_peer, add, target, result, number as u64, RmaFlags::NONE);
            match started {
                Ok(()) => break,
                Err(Refusal::WouldBlock) => {
                    assert!(Instant::now() < patience, "no room for an atomic operation in time");
                    client.poll();
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }
    poll_until(client, "the ends of 200", |client| client.sent.len() == 200);
    client.sent.clear();
    let mut seen: Vec<u64> = (0..200).map(|number| local_area.word(number * 8)).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(sum - 200..sum), "each value once");
}

fn start<D: Driver>(client: &mut Side<D>, to_peer: Conn<D>, rma: &Rma<'_>) {
    let patience = Instant::now() + conformance_timeout();
    while let Err(refusal) = client.port.rma(to_peer, rma) {
        assert_eq!(refusal, Refusal::WouldBlock);
        assert!(Instant::now() < patience, "no room for an operation in time");
        client.poll();
    }
}
