//! Ends: of regions, connections and endpoints, with operations under way (CCI-038, CCS-021).

use super::{RELIABLE, RO};
use crate::conformance::{
    Area, Conn, Driver, Environment, Flags, Grant, Pair, Port, Refusal, Setup, Side, Whose,
    conformance_timeout, connect, for_a_while, part, plain,
};
use crate::rng::Rng;
use cci::{Access, Atomic, AtomicKind, AtomicWidth, Attribute, RegionHandle, RmaFlags, RmaKind, Status};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ADD: Atomic = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Eight, operand: 1, compare: 0 };

/// Operations that the hammer keeps under way.
const UNDER_WAY: usize = 6;

/// Writes, adds and reads as fast as it can, by the newest handle it has got, until it is stopped.
fn hammer<D: Driver>(side: &mut Side<D>, to: Conn<D>, local_area: &Area<D>, stop: &AtomicBool) {
    let (mut handle, mut under_way, mut context, mut given_at) = (None, 0, 0, 0);
    let mut rng = Rng::new(2);
    let mut atomics = BTreeSet::new();
    while !stop.load(Ordering::Relaxed) || under_way > 0 {
        side.poll();
        if let Some((_, message)) = side.inbox.pop_front() {
            (handle, given_at) = (RegionHandle::from_message(message.as_ref()), context);
        }
        for (_, number, status) in side.sent.drain(..) {
            under_way -= 1;
            let was_atomic = atomics.remove(&number);
            match status {
                Status::Success => {}
                // Of an earlier one, if it was started before this one came.
                Status::RmaHandle if number <= given_at => {}
                Status::RmaHandle => handle = None,
                // One that was held up for long while its region was taken back: nobody knows whether it counted (ADR 6).
                Status::TimedOut if was_atomic => handle = handle.filter(|_| number <= given_at),
                other => panic!("the hammer got {other:?}"),
            }
        }
        let Some(good) = handle.filter(|_| under_way < UNDER_WAY && !stop.load(Ordering::Relaxed)) else {
            continue;
        };
        context += 1;
        let len = 8 + rng.below(local_area.len_bytes() as u64 - 8) as usize;
        let (local, remote) = ([local_area.segment(0, len)], [cci::Segment::new(good, 0, len as u64)]);
        let started = match rng.below(4) {
            0 => {
                atomics.insert(context);
                side.port.atomic(to, ADD, remote[0].address, None, context, RmaFlags::NONE)
            }
            1 => side.port.rma(to, &plain(RmaKind::Read, &local, &remote, context)),
            _ => side.port.rma(to, &plain(RmaKind::Write, &local, &remote, context)),
        };
        match started {
            Ok(()) => under_way += 1,
            Err(Refusal::WouldBlock) => {
                atomics.remove(&context);
            }
            Err(other) => panic!("the hammer was refused: {other:?}"),
        }
    }
}

/// Once `deregister` has returned, no byte changes any more, though peers go on, at any moment of what they do.
pub fn deregistering_stops_the_peers<D: Driver>(env: &Environment<D>) {
    const LEN: usize = 700_000;
    let rounds = env.rounds(60) as u64;
    for whose in Whose::ALL {
        let Pair { mut client, mut server, to_server, to_client } = Pair::<D>::plain(env, RO);
        let mut local_area = Area::new(&mut client, Whose::Library, LEN, Access::LOCAL);
        local_area.put(0, &vec![0; LEN]);
        let mut remote_area = Area::new(&mut server, whose, LEN, Access::ALL);
        server.port.deregister(&remote_area.handle).expect("registered");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            hammer(&mut client, to_server, &local_area, &stopped);
            client
        });
        let mut rng = Rng::new(5);
        let (mut changed, patience) = (0, Instant::now() + conformance_timeout() * 2);
        for round in 0..rounds {
            assert!(Instant::now() < patience, "{round} rounds in all this time");
            let grant = Grant { range: remote_area.range.clone(), access: Access::ALL, only: None };
            let handle =
                server.port.register(&remote_area.memory, grant).expect("it can be registered again");
            while server.port.send(to_client, &handle.to_bytes(), 0, Flags { silent: true, no_copy: false })
                == Err(Refusal::WouldBlock)
            {
                server.poll();
            }
            // What the hammer writes is not what is there, so that a change is seen.
            remote_area.put(0, &vec![round as u8 | 1; LEN]);
            let polls = if round % 4 == 0 {
                // The peer is certainly at it; a busy machine may hold it up.
                let untouched = u64::from_ne_bytes([round as u8 | 1; 8]);
                while remote_area.word(0) == untouched {
                    assert!(Instant::now() < patience, "the peer does not touch what it was given");
                    server.poll();
                }
                rng.below(4_000)
            } else {
                rng.below(2_000)
            };
            for _ in 0..polls {
                server.poll();
            }
            server.port.deregister(&handle).expect("registered");
            // The moment it returns.
            let before = remote_area.model.clone();
            remote_area.accept();
            changed += u32::from(remote_area.model != before);
            for _ in 0..rng.below(3_000) {
                server.poll();
            }
            remote_area.check("changed after it was deregistered");
            assert_eq!(server.port.deregister(&handle), Err(Refusal::BadArgument), "only once");
        }
        assert!(changed >= rounds as u32 / 4, "the peer was there in {changed} of {rounds} rounds");
        stop.store(true, Ordering::Relaxed);
        while !thread.is_finished() {
            assert!(Instant::now() < patience, "the peer's operations do not end");
            server.poll();
        }
        let client = thread.join().expect("the hammer");
        remote_area.check("at the end");
        part([client, server]);
    }
}

/// A local region that is given up with operations under way: they end, well or not, and what was given up stays.
pub fn deregistered_local_memory<D: Driver>(env: &Environment<D>) {
    const LEN: usize = 400_000;
    for attribute in RELIABLE {
        for whose in Whose::ALL {
            let mut pair = Pair::<D>::plain(env, attribute);
            let remote_area = Area::new(&mut pair.server, whose, LEN, Access::ALL);
            for round in 0..40 {
                let mut local_area = Area::new(&mut pair.client, Whose::ALL[round % 2], LEN, Access::LOCAL);
                for context in 0..6 {
                    let kind = if context % 2 == 0 { RmaKind::Read } else { RmaKind::Write };
                    let (local, remote) = ([local_area.segment(0, LEN)], [remote_area.segment(0, LEN)]);
                    pair.start(&plain(kind, &local, &remote, context));
                }
                for _ in 0..round * 3 {
                    pair.client.poll();
                    pair.server.poll();
                }
                pair.client.port.deregister(&local_area.handle).expect("registered");
                local_area.accept();
                let mut ended = pair.ended(6);
                ended.sort_unstable_by_key(|(context, _)| *context);
                for (number, (context, status)) in ended.into_iter().enumerate() {
                    assert_eq!(context, number as u64, "each once");
                    assert!(matches!(status, Status::Success | Status::RmaHandle), "{status:?}");
                }
                local_area.check("changed after it was deregistered");
            }
            // Guards of the target only: what is in the region is any mixture.
            let mut remote_area = remote_area;
            let region = remote_area.now(0, LEN);
            remote_area.expect(0, &region);
            remote_area.check("beside the region");
            pair.part();
        }
    }
}

/// Starts many operations and messages; returns how many.
fn flood<D: Driver>(pair: &mut Pair<D>, local_area: &Area<D>, remote_area: &Area<D>) -> u64 {
    let mut context = 0;
    while context < 300 {
        let len = [8, 3_000, 100_000][context as usize % 3];
        let at = context as usize * 10;
        let (local, remote) = ([local_area.segment(at, len)], [remote_area.segment(at, len)]);
        let to = pair.to_server;
        let started = match context % 5 {
            0 => pair.client.port.rma(to, &plain(RmaKind::Read, &local, &remote, context)),
            1 => pair.client.port.atomic(
                to,
                ADD,
                remote_area.address(8),
                None,
                context,
                if context % 2 == 0 { RmaFlags::FENCE } else { RmaFlags::NONE },
            ),
            2 => pair.client.port.send(to, b"among them", context, Flags::default()),
            _ => pair.client.port.rma(to, &plain(RmaKind::Write, &local, &remote, context)),
        };
        match started {
            Ok(()) => context += 1,
            Err(Refusal::WouldBlock | Refusal::Closed) => return context,
            Err(other) => panic!("{other:?}"),
        }
    }
    context
}

/// Each of the first `count` contexts ended once, and as it may.
fn each_once<D: Driver>(side: &Side<D>, count: u64, attribute: Attribute) {
    let mut contexts = side.contexts();
    if attribute != RO {
        contexts.sort_unstable();
    }
    assert_eq!(contexts, (0..count).collect::<Vec<_>>(), "each once, in order where that was promised");
    for status in side.statuses() {
        assert!(matches!(status, Status::Success | Status::Disconnected | Status::TimedOut), "{status:?}");
    }
}

fn setup() -> Setup {
    Setup { send_timeout: Duration::from_secs(2), ..Setup::default() }
}

/// A pair whose client has operations under way, some way along: the pair, its areas, and how many were taken.
fn under_way<D: Driver>(
    env: &Environment<D>,
    attribute: Attribute,
    whose: Whose,
    polls: usize,
) -> (Pair<D>, Area<D>, Area<D>, u64) {
    let mut pair = Pair::<D>::open(env, attribute, &setup());
    let local_area = Area::new(&mut pair.client, Whose::Library, 200_000, Access::LOCAL);
    let remote_area = Area::new(&mut pair.server, whose, 200_000, Access::ALL);
    let taken = flood(&mut pair, &local_area, &remote_area);
    for _ in 0..polls {
        pair.client.poll();
        pair.server.poll();
    }
    (pair, local_area, remote_area, taken)
}

/// `disconnect` with operations under way.
pub fn operations_end_once_after_a_disconnect<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        for (round, whose) in Whose::ALL.into_iter().cycle().take(env.rounds(8)).enumerate() {
            let (mut pair, local_area, mut remote_area, taken) = under_way(env, attribute, whose, round * 40);
            pair.client.port.disconnect(pair.to_server);
            pair.until("an end of each", |client, _| client.sent.len() >= taken as usize);
            for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(10));
            each_once(&pair.client, taken, attribute);
            check_guards(&mut remote_area);
            pair.client.sent.clear();
            (pair.to_server, pair.to_client) = connect(&mut pair.client, &mut pair.server, attribute);
            let status =
                pair.transfer(RmaKind::Write, local_area.segment(0, 90_000), remote_area.segment(5, 90_000));
            assert_eq!(status, Status::Success, "both go on");
            remote_area.expect(5, local_area.model(0, 90_000));
            remote_area.check("a new connection");
            pair.part();
        }
    }
}

/// Guards only: what is in the region is any mixture.
fn check_guards<D: Driver>(area: &mut Area<D>) {
    let region = area.now(0, area.len_bytes());
    area.expect(0, &region);
    area.check("beside the region");
}

/// The peer disconnects with operations under way: later ones are refused, these end once.
pub fn operations_end_once_when_the_peer_leaves<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        for (round, whose) in Whose::ALL.into_iter().cycle().take(env.rounds(8)).enumerate() {
            let (mut pair, local_area, mut remote_area, taken) = under_way(env, attribute, whose, round * 40);
            pair.server.port.disconnect(pair.to_client);
            pair.until("an end of each", |client, _| client.sent.len() >= taken as usize);
            for_a_while(&mut pair.client, &mut pair.server, Duration::from_millis(10));
            each_once(&pair.client, taken, attribute);
            check_guards(&mut remote_area);
            let (local, remote) = ([local_area.segment(0, 8)], [remote_area.segment(0, 8)]);
            let write = plain(RmaKind::Write, &local, &remote, 1);
            let patience = Instant::now() + conformance_timeout();
            while pair.client.port.rma(pair.to_server, &write) != Err(Refusal::Closed) {
                assert!(Instant::now() < patience, "the peer is gone and operations are still taken");
                pair.client.poll();
                pair.server.poll();
            }
            pair.client.port.disconnect(pair.to_server);
            pair.part();
        }
    }
}

/// An endpoint goes away, at either side, with operations under way.
pub fn operations_end_once_when_an_endpoint_goes<D: Driver>(env: &Environment<D>) {
    for (round, whose) in Whose::ALL.into_iter().cycle().take(env.rounds(6)).enumerate() {
        let mut pair = Pair::<D>::open(env, RO, &setup());
        let local_area = Area::new(&mut pair.client, Whose::Library, 200_000, Access::LOCAL);
        let remote_area = Area::new(&mut pair.server, whose, 200_000, Access::ALL);
        let taken = flood(&mut pair, &local_area, &remote_area);
        for _ in 0..round * 20 {
            pair.client.poll();
            pair.server.poll();
        }
        let Pair { mut client, server, .. } = pair;
        drop(server);
        let patience = Instant::now() + conformance_timeout();
        while client.sent.len() < taken as usize {
            assert!(Instant::now() < patience, "{} of {taken} ended", client.sent.len());
            client.poll();
        }
        client.settle();
        each_once(&client, taken, RO);
        drop(client);

        let mut pair = Pair::<D>::open(env, RO, &setup());
        let local_area = Area::new(&mut pair.client, whose, 200_000, Access::LOCAL);
        let mut remote_area = Area::new(&mut pair.server, whose, 200_000, Access::ALL);
        flood(&mut pair, &local_area, &remote_area);
        for _ in 0..round * 20 {
            pair.client.poll();
            pair.server.poll();
        }
        let Pair { client, mut server, .. } = pair;
        drop(client);
        server.settle();
        check_guards(&mut remote_area);
        server.port.deregister(&remote_area.handle).expect("registered");
        remote_area.accept();
        let mut pair = Pair::of(Side::plain(env), server, RO);
        pair.send(b"life after it", 1);
        pair.until("life after it", |client, server| client.sent.len() == 1 && !server.inbox.is_empty());
        remote_area.check("after the end of its registration");
        pair.part();
    }
}
