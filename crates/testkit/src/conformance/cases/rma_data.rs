//! Reads and writes of peers' memory: every byte arrives, and no other is touched (CCI-053, CCI-059 to CCI-061, CCS-045).

use super::{RELIABLE, RO};
use crate::conformance::{
    Area, Capability, Driver, Environment, Grant, Pair, Port, Shared, Side, Skipped, Whose, contents, plain,
    some_len,
};
use crate::rng::Rng;
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
    let local_area = Area::odd(&mut pair.client, local, len_bytes, Access::LOCAL);
    let remote_area = Area::odd(&mut pair.server, remote, len_bytes, Access::READ | Access::WRITE);
    (local_area, remote_area)
}

/// Ends the regions, which must still be there.
fn end<D: Driver>(pair: &mut Pair<D>, local_area: &Area<D>, remote_area: &Area<D>) {
    pair.client.port.deregister(&local_area.handle).expect("registered");
    pair.server.port.deregister(&remote_area.handle).expect("registered");
}

/// 1 to 100 bytes, each from and to another alignment, written and read back.
pub fn every_length_at_odd_offsets<D: Driver>(env: &Environment<D>) {
    for_each_combination(env, |pair, whose| {
        let (mut local_area, mut remote_area) = areas(pair, whose, 32 << 10);
        for len in 1..=100 {
            let (from, to) = (len * 160 + len * 7 % 60, len * 160 + len * 13 % 59);
            remote_area.expect(to, local_area.model(from, len));
            pair.start(&plain(
                RmaKind::Write,
                &[local_area.segment(from, len)],
                &[remote_area.segment(to, len)],
                len as u64,
            ));
        }
        let ended = pair.ended(100);
        assert!(ended.iter().all(|(_, status)| *status == Status::Success), "{ended:?}");
        remote_area.check("written");
        local_area.check("only read");
        for len in 1..=100 {
            let (into, from) = (16_384 + len * 150 + len * 11 % 50, len * 160 + len * 17 % 59);
            local_area.expect(into, remote_area.model(from, len));
            pair.start(&plain(
                RmaKind::Read,
                &[local_area.segment(into, len)],
                &[remote_area.segment(from, len)],
                len as u64,
            ));
        }
        let ended = pair.ended(100);
        assert!(ended.iter().all(|(_, status)| *status == Status::Success), "{ended:?}");
        local_area.check("read");
        remote_area.check("only read");
        end(pair, &local_area, &remote_area);
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
        let (mut local_area, mut remote_area) = areas(pair, whose, (1 << 20) + 100);
        for (number, edge) in EDGES.into_iter().chain([message, message * 2]).enumerate() {
            for len in [edge - 1, edge, edge + 1] {
                let (at, to) = (number * 5 % 67, number * 7 % 61);
                let data = contents(len as u64, len);
                local_area.put(at, &data);
                remote_area.expect(to, &data);
                let status =
                    pair.transfer(RmaKind::Write, local_area.segment(at, len), remote_area.segment(to, len));
                assert_eq!(status, Status::Success, "{len} bytes written");
                remote_area.check("written");
                remote_area.put(to, &contents(len as u64 + 1, len));
                local_area.expect(at, remote_area.model(to, len));
                let status =
                    pair.transfer(RmaKind::Read, local_area.segment(at, len), remote_area.segment(to, len));
                assert_eq!(status, Status::Success, "{len} bytes read");
                local_area.check("read");
            }
        }
        remote_area.check("only read since");
        end(pair, &local_area, &remote_area);
    });
}

/// One long write and one long read.
pub fn sixty_four_megabytes<D: Driver>(env: &Environment<D>) {
    const LEN: usize = 64 << 20;
    let whose = [[Whose::Foreign, Whose::Library], [Whose::Library, Whose::Foreign]];
    for whose in whose.into_iter().take(env.rounds(2)) {
        let mut pair = Pair::plain(env, RO);
        let (mut local_area, mut remote_area) = areas(&mut pair, whose, LEN + 5);
        remote_area.expect(5, &contents(3, LEN));
        local_area.put(1, &contents(3, LEN));
        let status = pair.transfer(RmaKind::Write, local_area.segment(1, LEN), remote_area.segment(5, LEN));
        assert_eq!(status, Status::Success);
        remote_area.check("written");
        remote_area.put(0, &contents(4, LEN));
        local_area.expect(3, remote_area.model(0, LEN));
        let status = pair.transfer(RmaKind::Read, local_area.segment(3, LEN), remote_area.segment(0, LEN));
        assert_eq!(status, Status::Success);
        local_area.check("read");
        remote_area.check("only read");
        end(&mut pair, &local_area, &remote_area);
        pair.part();
    }
}

/// As many operations at once as an endpoint takes, and more that wait for room.
pub fn thousands_outstanding<D: Driver>(env: &Environment<D>) {
    const OPERATIONS: usize = 6_000;
    const SLOT_BYTES: usize = 320;
    for_each_combination(env, |pair, whose| {
        let (mut local_area, mut remote_area) = areas(pair, whose, OPERATIONS * SLOT_BYTES);
        let mut rng = Rng::new(9);
        for number in 0..OPERATIONS {
            let len = rng.range(1, 256) as usize;
            let (at, to) =
                (number * SLOT_BYTES + rng.below(64) as usize, number * SLOT_BYTES + rng.below(64) as usize);
            let kind = if rng.below(3) == 0 { RmaKind::Read } else { RmaKind::Write };
            match kind {
                RmaKind::Write => remote_area.expect(to, local_area.model(at, len)),
                RmaKind::Read => local_area.expect(at, remote_area.model(to, len)),
            }
            pair.start(&plain(
                kind,
                &[local_area.segment(at, len)],
                &[remote_area.segment(to, len)],
                number as u64,
            ));
        }
        let mut ended = pair.ended(OPERATIONS);
        ended.sort_unstable_by_key(|(context, _)| *context);
        let expected = (0..OPERATIONS as u64).map(|context| (context, Status::Success));
        assert!(ended.into_iter().eq(expected), "each once, and well");
        local_area.check("read");
        remote_area.check("written");
        end(pair, &local_area, &remote_area);
    });
}

/// Disjoint runs of bytes in chance order out of two areas, `total` bytes long together; some are empty.
fn split<D: Driver>(rng: &mut Rng, areas: &[Area<D>; 2], mut total: usize) -> Vec<(usize, usize, usize)> {
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

/// Lists of segments out of several regions, cut differently on both sides (CCS-045).
pub fn lists_of_different_segments<D: Driver>(env: &Environment<D>) {
    for_each_combination(env, |pair, [local, remote]| {
        let mut local_area = [(), ()].map(|()| Area::odd(&mut pair.client, local, 200_000, Access::LOCAL));
        let access = Access::READ | Access::WRITE;
        let mut remote_area = [(), ()].map(|()| Area::odd(&mut pair.server, remote, 200_000, access));
        let mut rng = Rng::new(11);
        for round in 0..40 {
            let total = some_len(&mut rng, 17);
            let (mine, theirs) = (split(&mut rng, &local_area, total), split(&mut rng, &remote_area, total));
            if mine.len() + theirs.len() > RMA_SEGMENTS_MAX {
                continue;
            }
            let segments = |areas: &[Area<D>; 2], runs: &[(usize, usize, usize)]| -> Vec<Segment> {
                runs.iter().map(|&(area, at, len)| areas[area].segment(at, len)).collect()
            };
            let (local_segments, remote_segments) =
                (segments(&local_area, &mine), segments(&remote_area, &theirs));
            let kind = if round % 2 == 0 { RmaKind::Write } else { RmaKind::Read };
            let (from, from_runs, to, to_runs) = match kind {
                RmaKind::Write => (&mut local_area, &mine, &mut remote_area, &theirs),
                RmaKind::Read => (&mut remote_area, &theirs, &mut local_area, &mine),
            };
            let mut data = contents(round, total);
            let mut rest = data.as_mut_slice();
            for &(area, at, len) in from_runs {
                let (segment, left) = rest.split_at_mut(len);
                from[area].put(at, segment);
                rest = left;
            }
            let mut rest = data.as_slice();
            for &(area, at, len) in to_runs {
                let (segment, left) = rest.split_at(len);
                to[area].expect(at, segment);
                rest = left;
            }
            pair.start(&plain(kind, &local_segments, &remote_segments, round));
            assert_eq!(pair.ended(1), [(round, Status::Success)], "{kind:?} of {total} bytes");
            for area in local_area.iter().chain(&remote_area) {
                area.check("in segments");
            }
        }
        end(pair, &local_area[0], &remote_area[0]);
        end(pair, &local_area[1], &remote_area[1]);
    });
}

/// The longest list works; a longer one is refused before anything happens.
pub fn as_many_pieces_as_can_be<D: Driver>(env: &Environment<D>) {
    for attribute in RELIABLE {
        let mut pair = Pair::plain(env, attribute);
        let whose = [Whose::Library, Whose::Library];
        let (local_area, mut remote_area) = areas(&mut pair, whose, RMA_SEGMENTS_MAX * 16 + 64);
        let list = |area: &Area<D>, count: usize, len: usize| -> Vec<Segment> {
            (0..count).map(|number| area.segment(number * 16 + number % 3, len)).collect()
        };
        let (mine, theirs) =
            (list(&local_area, RMA_SEGMENTS_MAX, 9), list(&remote_area, RMA_SEGMENTS_MAX, 9));
        for number in 0..RMA_SEGMENTS_MAX {
            let at = number * 16 + number % 3;
            remote_area.expect(at, local_area.model(at, 9));
        }
        pair.start(&plain(RmaKind::Write, &mine, &theirs, 1));
        assert_eq!(pair.ended(1), [(1, Status::Success)]);
        remote_area.check("the longest list");
        let mine = list(&local_area, RMA_SEGMENTS_MAX + 1, 3);
        let theirs = list(&remote_area, RMA_SEGMENTS_MAX + 1, 3);
        let refused = pair.client.port.rma(pair.to_server, &plain(RmaKind::Write, &mine, &theirs, 2));
        assert_eq!(refused, Err(crate::conformance::Refusal::BadArgument), "one more than can be");
        pair.client.settle();
        pair.server.settle();
        remote_area.check("a list that was refused");
        assert!(pair.client.sent.is_empty());
        pair.part();
    }
}

/// Thousands of regions of one memory, used and given up in any order.
pub fn many_regions_at_once<D: Driver>(env: &Environment<D>) {
    const REGIONS: usize = 2_000;
    let mut pair = Pair::plain(env, RO);
    let local_area = Area::<D>::new(&mut pair.client, Whose::Library, REGIONS * 8, Access::LOCAL);
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
                let status = pair.transfer(RmaKind::Write, local_area.segment(number * 8, 8), remote);
                assert_eq!(status, Status::Success);
            }
            pair.server.port.deregister(&handle).expect("registered");
        }
        for number in 0..REGIONS {
            let mut word = [0; 8];
            memory.read(number * 8, &mut word);
            let expected = if number % 4 == 0 { local_area.model(number * 8, 8) } else { &[0; 8] };
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
    let mut local_area = Area::<D>::new(&mut pair.client, Whose::Library, 10_000, Access::LOCAL);
    for whose in Whose::ALL {
        let Area { memory, handle, model, range } =
            Area::<D>::new(&mut pair.server, whose, 10_000, Access::READ);
        drop(memory);
        local_area.expect(0, &model[range]);
        let status =
            pair.transfer(RmaKind::Read, local_area.segment(0, 10_000), Segment::new(handle, 0, 10_000));
        assert_eq!(status, Status::Success);
        local_area.check("read from memory that its program has let go of");
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
