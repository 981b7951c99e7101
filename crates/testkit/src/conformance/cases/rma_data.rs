//! Reads and writes of peers' memory: every byte arrives, and no other is touched (CCI-053, CCI-059 to CCI-061, CCS-045).

use super::{RELIABLE, RO};
use crate::conformance::{
    Area, Capability, Driver, Environment, Grant, Pair, Port, Shared, Side, Skipped, Whose, contents, plain,
    some_len,
};
use crate::sim::Rng;
use cci::limits::RMA_SEGMENTS_MAX;
use cci::{Access, RmaKind, Segment, Status};

/// Each kind of memory on each side, and each reliable attribute in turn.
fn for_each_combination<D: Driver>(env: &Environment<D>, mut case: impl FnMut(&mut Pair<D>, [Whose; 2])) {
    for attribute in RELIABLE {
        let mut pair = Pair::plain(env, attribute);
        for local in Whose::ALL {
            for remote in Whose::ALL {
                case(&mut pair, [local, remote]);
            }
        }
        pair.part();
    }
}

/// A region at each side, at odd addresses.
fn areas<D: Driver>(pair: &mut Pair<D>, [local, remote]: [Whose; 2], len_bytes: usize) -> (Area<D>, Area<D>) {
    let here = Area::odd(&mut pair.client, local, len_bytes, Access::LOCAL);
    let there = Area::odd(&mut pair.server, remote, len_bytes, Access::READ | Access::WRITE);
    (here, there)
}

/// Ends the regions, which must still be there.
fn end<D: Driver>(pair: &mut Pair<D>, here: &Area<D>, there: &Area<D>) {
    pair.client.port.deregister(&here.handle).expect("registered");
    pair.server.port.deregister(&there.handle).expect("registered");
}

/// 1 to 100 bytes, each from and to another alignment, written and read back.
pub fn every_length_at_odd_offsets<D: Driver>(env: &Environment<D>) {
    for_each_combination(env, |pair, whose| {
        let (mut here, mut there) = areas(pair, whose, 32 << 10);
        for len in 1..=100 {
            let (from, to) = (len * 160 + len * 7 % 60, len * 160 + len * 13 % 59);
            there.expect(to, here.model(from, len));
            pair.start(&plain(RmaKind::Write, &[here.piece(from, len)], &[there.piece(to, len)], len as u64));
        }
        let ended = pair.ended(100);
        assert!(ended.iter().all(|(_, status)| *status == Status::Success), "{ended:?}");
        there.check("written");
        here.check("only read");
        for len in 1..=100 {
            let (into, from) = (16_384 + len * 150 + len * 11 % 50, len * 160 + len * 17 % 59);
            here.expect(into, there.model(from, len));
            pair.start(&plain(
                RmaKind::Read,
                &[here.piece(into, len)],
                &[there.piece(from, len)],
                len as u64,
            ));
        }
        let ended = pair.ended(100);
        assert!(ended.iter().all(|(_, status)| *status == Status::Success), "{ended:?}");
        here.check("read");
        there.check("only read");
        end(pair, &here, &there);
    });
}

/// Lengths at which something may change: words, lines, pages, messages, datagrams, batches, rings, requests.
pub fn lengths_around_every_threshold<D: Driver>(env: &Environment<D>) {
    const EDGES: [usize; 16] = [
        128, 256, 512, 1_024, 1_408, 1_472, 2_048, 4_096, 8_192, 8_952, 16_384, 32_768, 65_507, 131_072,
        262_144, 1_048_576,
    ];
    for_each_combination(env, |pair, whose| {
        let message = pair.client.port.max_send_size(pair.to_server);
        let (mut here, mut there) = areas(pair, whose, (1 << 20) + 100);
        for (number, edge) in EDGES.into_iter().chain([message, message * 2]).enumerate() {
            for len in [edge - 1, edge, edge + 1] {
                let (at, to) = (number * 5 % 67, number * 7 % 61);
                let data = contents(len as u64, len);
                here.put(at, &data);
                there.expect(to, &data);
                let status = pair.transfer(RmaKind::Write, here.piece(at, len), there.piece(to, len));
                assert_eq!(status, Status::Success, "{len} bytes written");
                there.check("written");
                there.put(to, &contents(len as u64 + 1, len));
                here.expect(at, there.model(to, len));
                let status = pair.transfer(RmaKind::Read, here.piece(at, len), there.piece(to, len));
                assert_eq!(status, Status::Success, "{len} bytes read");
                here.check("read");
            }
        }
        there.check("only read since");
        end(pair, &here, &there);
    });
}

/// One long write and one long read.
pub fn sixty_four_megabytes<D: Driver>(env: &Environment<D>) {
    const LEN: usize = 64 << 20;
    for whose in [[Whose::Foreign, Whose::Library], [Whose::Library, Whose::Foreign]] {
        let mut pair = Pair::plain(env, RO);
        let (mut here, mut there) = areas(&mut pair, whose, LEN + 5);
        there.expect(5, &contents(3, LEN));
        here.put(1, &contents(3, LEN));
        let status = pair.transfer(RmaKind::Write, here.piece(1, LEN), there.piece(5, LEN));
        assert_eq!(status, Status::Success);
        there.check("written");
        there.put(0, &contents(4, LEN));
        here.expect(3, there.model(0, LEN));
        let status = pair.transfer(RmaKind::Read, here.piece(3, LEN), there.piece(0, LEN));
        assert_eq!(status, Status::Success);
        here.check("read");
        there.check("only read");
        end(&mut pair, &here, &there);
        pair.part();
    }
}

/// As many operations at once as an endpoint takes, and more that wait for room.
pub fn thousands_outstanding<D: Driver>(env: &Environment<D>) {
    const OPERATIONS: usize = 6_000;
    const ROOM: usize = 320;
    for_each_combination(env, |pair, whose| {
        let (mut here, mut there) = areas(pair, whose, OPERATIONS * ROOM);
        let mut rng = Rng::new(9);
        for number in 0..OPERATIONS {
            let len = rng.range(1, 256) as usize;
            let (at, to) = (number * ROOM + rng.below(64) as usize, number * ROOM + rng.below(64) as usize);
            let kind = if rng.below(3) == 0 { RmaKind::Read } else { RmaKind::Write };
            match kind {
                RmaKind::Write => there.expect(to, here.model(at, len)),
                RmaKind::Read => here.expect(at, there.model(to, len)),
            }
            pair.start(&plain(kind, &[here.piece(at, len)], &[there.piece(to, len)], number as u64));
        }
        let mut ended = pair.ended(OPERATIONS);
        ended.sort_unstable_by_key(|(context, _)| *context);
        let expected = (0..OPERATIONS as u64).map(|context| (context, Status::Success));
        assert!(ended.into_iter().eq(expected), "each once, and well");
        here.check("read");
        there.check("written");
        end(pair, &here, &there);
    });
}

/// Disjoint runs of bytes in chance order out of two areas, `total` bytes long together; some are empty.
fn cut<D: Driver>(rng: &mut Rng, areas: &[Area<D>; 2], mut total: usize) -> Vec<(usize, usize, usize)> {
    let mut next = [0; 2];
    let mut runs = Vec::new();
    while total > 0 {
        let area = rng.below(2) as usize;
        let len = (some_len(rng, 14) - 1).min(total);
        let at = next[area] + rng.below(40) as usize;
        next[area] = at + len;
        assert!(next[area] <= areas[area].len_bytes(), "the areas are large enough");
        runs.push((area, at, len));
        total -= len;
    }
    // From back to front, so that no order of addresses is assumed.
    runs.reverse();
    runs
}

/// Lists of pieces out of several regions, cut differently on both sides (CCS-045).
pub fn pieces_cut_differently<D: Driver>(env: &Environment<D>) {
    for_each_combination(env, |pair, [local, remote]| {
        let mut here = [(), ()].map(|()| Area::odd(&mut pair.client, local, 200_000, Access::LOCAL));
        let access = Access::READ | Access::WRITE;
        let mut there = [(), ()].map(|()| Area::odd(&mut pair.server, remote, 200_000, access));
        let mut rng = Rng::new(11);
        for round in 0..40 {
            let total = some_len(&mut rng, 17);
            let (mine, theirs) = (cut(&mut rng, &here, total), cut(&mut rng, &there, total));
            if mine.len() + theirs.len() > RMA_SEGMENTS_MAX {
                continue;
            }
            let pieces = |areas: &[Area<D>; 2], runs: &[(usize, usize, usize)]| -> Vec<Segment> {
                runs.iter().map(|&(area, at, len)| areas[area].piece(at, len)).collect()
            };
            let (mine_pieces, their_pieces) = (pieces(&here, &mine), pieces(&there, &theirs));
            let kind = if round % 2 == 0 { RmaKind::Write } else { RmaKind::Read };
            let (from, from_runs, to, to_runs) = match kind {
                RmaKind::Write => (&mut here, &mine, &mut there, &theirs),
                RmaKind::Read => (&mut there, &theirs, &mut here, &mine),
            };
            let mut data = contents(round, total);
            let mut rest = data.as_mut_slice();
            for &(area, at, len) in from_runs {
                let (piece, left) = rest.split_at_mut(len);
                from[area].put(at, piece);
                rest = left;
            }
            let mut rest = data.as_slice();
            for &(area, at, len) in to_runs {
                let (piece, left) = rest.split_at(len);
                to[area].expect(at, piece);
                rest = left;
            }
            pair.start(&plain(kind, &mine_pieces, &their_pieces, round));
            assert_eq!(pair.ended(1), [(round, Status::Success)], "{kind:?} of {total} bytes");
            for area in here.iter().chain(&there) {
                area.check("in pieces");
            }
        }
        end(pair, &here[0], &there[0]);
        end(pair, &here[1], &there[1]);
    });
}

/// The longest list works; a longer one is refused before anything happens.
pub fn as_many_pieces_as_can_be<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let mut pair = Pair::plain(env, attribute);
        let whose = [Whose::Library, Whose::Library];
        let (here, mut there) = areas(&mut pair, whose, RMA_SEGMENTS_MAX * 16 + 64);
        let list = |area: &Area<D>, count: usize, len: usize| -> Vec<Segment> {
            (0..count).map(|number| area.piece(number * 16 + number % 3, len)).collect()
        };
        let (mine, theirs) = (list(&here, RMA_SEGMENTS_MAX, 9), list(&there, RMA_SEGMENTS_MAX, 9));
        for number in 0..RMA_SEGMENTS_MAX {
            let at = number * 16 + number % 3;
            there.expect(at, here.model(at, 9));
        }
        pair.start(&plain(RmaKind::Write, &mine, &theirs, 1));
        assert_eq!(pair.ended(1), [(1, Status::Success)]);
        there.check("the longest list");
        let mine = list(&here, RMA_SEGMENTS_MAX + 1, 3);
        let theirs = list(&there, RMA_SEGMENTS_MAX + 1, 3);
        let refused = pair.client.port.rma(pair.to_server, &plain(RmaKind::Write, &mine, &theirs, 2));
        assert_eq!(refused, Err(crate::conformance::Refusal::BadArgument), "one more than can be");
        pair.client.settle();
        pair.server.settle();
        there.check("a list that was refused");
        assert!(pair.client.sent.is_empty());
        pair.part();
    }
}

/// Thousands of regions of one memory, used and given up in any order.
pub fn many_regions_at_once<D: Driver>(env: &Environment<D>) {
    const REGIONS: usize = 2_000;
    let mut pair = Pair::plain(env, RO);
    let here = Area::<D>::new(&mut pair.client, Whose::Library, REGIONS * 8, Access::LOCAL);
    for whose in Whose::ALL {
        let memory = pair.server.port.memory(whose, REGIONS * 8);
        let mut regions: Vec<_> = (0..REGIONS)
            .map(|number| {
                let range = number * 8..number * 8 + 8;
                let grant = Grant { range, access: Access::WRITE, only: None };
                (number, pair.server.port.register(&memory, grant).expect("room for thousands"))
            })
            .collect();
        let mut rng = Rng::new(4);
        while !regions.is_empty() {
            let (number, handle) = regions.swap_remove(rng.below(regions.len() as u64) as usize);
            if number % 4 == 0 {
                let remote = Segment::new(handle, 0, 8);
                let status = pair.transfer(RmaKind::Write, here.piece(number * 8, 8), remote);
                assert_eq!(status, Status::Success);
            }
            pair.server.port.deregister(&handle).expect("registered");
        }
        for number in 0..REGIONS {
            let mut word = [0; 8];
            memory.read(number * 8, &mut word);
            let expected = if number % 4 == 0 { here.model(number * 8, 8) } else { &[0; 8] };
            assert_eq!(word, expected, "region {number}");
        }
    }
}

/// The program may let go of memory that is registered: the region keeps it.
pub fn memory_lives_as_long_as_its_region<D: Driver>(env: &Environment<D>) -> Result<(), Skipped> {
    env.needs(Capability::Crowd)?;
    if !D::MEMORY_IS_COUNTED {
        return Err(Skipped("the program must keep what it registers".to_owned()));
    }
    let mut pair = Pair::plain(env, RO);
    let mut here = Area::<D>::new(&mut pair.client, Whose::Library, 10_000, Access::LOCAL);
    for whose in Whose::ALL {
        let Area { memory, handle, model, range } =
            Area::<D>::new(&mut pair.server, whose, 10_000, Access::READ);
        drop(memory);
        here.expect(0, &model[range]);
        let status = pair.transfer(RmaKind::Read, here.piece(0, 10_000), Segment::new(handle, 0, 10_000));
        assert_eq!(status, Status::Success);
        here.check("read from memory that its program has let go of");
        // The other side's goes, and memory of the endpoint that allocated it outlives that endpoint.
        let memory = {
            let mut short = Side::<D>::plain(env);
            short.port.memory(whose, 4_096)
        };
        memory.write(0, b"still");
        let mut still = [0; 5];
        memory.read(0, &mut still);
        assert_eq!(&still, b"still");
    }
    Ok(())
}
