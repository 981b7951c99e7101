//! Transfers that travel packed, between processes of a job that one process is all of.

use super::onesided_tests::{Ends, bytes, heap, note};
use super::registered::address;
use super::tests::{LIMIT, runtimes, turn};
use super::*;
use crate::description::Description;
use crate::limits::{DESCRIPTIONS_MAX, PACKED_BYTES_MAX, UPDATES_MAX};
use crate::runtime::Runtime;
use crate::wire::{Packed, Update, Updating, Word};
use cci::{Context as Devices, Endpoint, Options};
use std::time::Instant;

/// Paths over which no memory is mapped.
const AFAR: [&str; 2] = ["udp-lo", "tcp-lo"];

fn one(description: &Description) -> Elements {
    Elements { count: 1, description: description.clone() }
}

/// Bytes none of which is 0, and hardly two neighbours the same.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 251 + 1) as u8).collect()
}

/// How many writes and reads of remote memory the core has made for a rank.
fn transfers(runtime: &mut Runtime) -> u64 {
    let counters = runtime.process().links.endpoint().counters();
    counters.rma_writes + counters.rma_reads
}

/// How many messages of the core a rank has sent.
fn sends(runtime: &mut Runtime) -> u64 {
    runtime.process().links.endpoint().counters().messages_sent
}

#[test]
fn short_pieces_go_and_come_in_records_and_long_ones_by_themselves() {
    for (device, block_bytes, is_packed) in [
        ("udp-lo", 8, true),
        ("tcp-lo", 100, true),
        ("udp-lo", 300, false),
        ("shm", 8, false),
        ("any", 8, false),
    ] {
        let mut all = runtimes(device, 2);
        let blocks = 100_000 / block_bytes;
        let spread = Description::strided(&[block_bytes, blocks], &[2 * block_bytes as isize]).unwrap();
        let len = 2 * block_bytes * blocks;
        let (theirs, mine, back) = (heap(len), heap(len), heap(len));
        all[1].register_memory(&theirs).unwrap();
        assert!(mine.write(0, &pattern(len)));
        let ends = Ends::default();
        let there = || (address(&theirs), one(&spread));
        all[0].put_described(1, there(), (&mine, 0, one(&spread)), note(&ends)).unwrap();
        turn(&mut all, |_| ends.borrow().len() == 1);
        all[0].get_described(1, there(), (&back, 0, one(&spread)), note(&ends)).unwrap();
        turn(&mut all, |_| ends.borrow().len() == 2);
        assert!(ends.borrow().iter().all(Result::is_ok), "{device}: {ends:?}");
        let mut expected = pattern(len);
        for gap in expected.chunks_mut(2 * block_bytes).map(|two| &mut two[block_bytes..]) {
            gap.fill(0);
        }
        assert!(bytes(&theirs, 0, len) == expected, "{device}: what was put");
        assert!(bytes(&back, 0, len) == expected, "{device}: what was got");
        assert_eq!(transfers(&mut all[0]) == 0, is_packed, "{device}, {block_bytes} bytes");
    }
}

/// A description is sent once, whether it is the same one or made again; numbers are used again for others.
#[test]
fn descriptions_are_sent_once_and_forgotten_where_there_are_too_many() {
    let mut all = runtimes("udp-lo", 2);
    let (theirs, mine) = (heap(20_000), heap(20_000));
    all[1].register_memory(&theirs).unwrap();
    assert!(mine.write(0, &pattern(20_000)));
    let spread = |blocks| Description::strided(&[4, blocks], &[8]).unwrap();
    let slots = |runtime: &mut Runtime| runtime.process().memory.descriptions().sent_to(1);
    for _ in 0..20 {
        let ends = Ends::default();
        all[0]
            .put_described(
                1,
                (address(&theirs), one(&spread(500))),
                (&mine, 0, one(&spread(500))),
                note(&ends),
            )
            .unwrap();
        turn(&mut all, |_| ends.borrow().len() == 1);
    }
    assert_eq!(slots(&mut all[0]), 1);
    // Many at once, each of several records, so that numbers change while transfers are in progress.
    const BLOCKS: usize = 2_300;
    let spreads: Vec<Description> = (5..5 + 2 * DESCRIPTIONS_MAX as isize + 10)
        .map(|stride| Description::strided(&[4, BLOCKS], &[stride]).unwrap())
        .collect();
    let areas: Vec<Memory> = spreads.iter().map(|spread| heap(spread.span(1).unwrap().len())).collect();
    let data = pattern(4 * BLOCKS);
    let here = Elements { count: BLOCKS, description: Description::bytes(4).unwrap() };
    assert!(mine.write(0, &data));
    let (ends, sent_before) = (Ends::default(), sends(&mut all[0]));
    for (spread, area) in spreads.iter().zip(&areas) {
        all[1].register_memory(area).unwrap();
        all[0].put_described(1, (address(area), one(spread)), (&mine, 0, here.clone()), note(&ends)).unwrap();
    }
    turn(&mut all, |_| ends.borrow().len() == spreads.len());
    assert!(ends.borrow().iter().all(Result::is_ok), "{ends:?}");
    assert_eq!(slots(&mut all[0]), DESCRIPTIONS_MAX);
    // Two records each, and a description, which may have to be sent again for the second one: none while a transfer waits.
    let sent = sends(&mut all[0]) - sent_before;
    assert!(sent <= 4 * spreads.len() as u64 + 10, "{sent} messages for {} transfers", spreads.len());
    for (spread, area) in spreads.iter().zip(&areas) {
        let mut model = vec![0; area.len()];
        spread.unpack((&mut model[..]).into(), 0, 1, 0, &data).unwrap();
        assert!(bytes(area, 0, area.len()) == model, "{spread:?}");
    }
}

#[test]
fn what_is_described_by_too_much_goes_by_its_pieces() {
    let mut all = runtimes("udp-lo", 2);
    let (theirs, mine) = (heap(50_000), heap(8_000));
    all[1].register_memory(&theirs).unwrap();
    assert!(mine.write(0, &pattern(8_000)));
    let places: Vec<isize> = (0..1_000).map(|at| at * 40 + at % 7).collect();
    let word = Description::bytes(8).unwrap();
    let spread = Description::hblock_indexed(1, &places, &word).unwrap();
    let ends = Ends::default();
    let here = Elements { count: 1_000, description: word };
    all[0].put_described(1, (address(&theirs), one(&spread)), (&mine, 0, here), note(&ends)).unwrap();
    turn(&mut all, |_| ends.borrow().len() == 1);
    assert!(ends.borrow()[0].is_ok(), "{ends:?}");
    let got: Vec<u8> = places.iter().flat_map(|at| bytes(&theirs, *at as usize, 8)).collect();
    assert!(got == pattern(8_000));
    assert!(transfers(&mut all[0]) > 0);
}

#[test]
fn what_is_refused_ends_once_and_leaves_room_for_more() {
    for device in AFAR {
        let mut all = runtimes(device, 2);
        let (theirs, mine) = (heap(400_000), heap(400_000));
        let spread = Description::strided(&[8, 20_000], &[16]).unwrap();
        // More than a rank may be asked for at once.
        for _ in 0..3 {
            let (puts, gets) = (Ends::default(), Ends::default());
            for _ in 0..5 {
                let there = || (address(&theirs), one(&spread));
                all[0].put_described(1, there(), (&mine, 0, one(&spread)), note(&puts)).unwrap();
                all[0].get_described(1, there(), (&mine, 0, one(&spread)), note(&gets)).unwrap();
            }
            turn(&mut all, |_| puts.borrow().len() + gets.borrow().len() == 10);
            for end in puts.borrow().iter().chain(&*gets.borrow()) {
                assert!(matches!(end, Err(AmError::NotRegistered { rank: 1, .. })), "{end:?}");
            }
        }
        all[1].register_memory(&theirs).unwrap();
        let ends = Ends::default();
        all[0]
            .put_described(1, (address(&theirs), one(&spread)), (&mine, 0, one(&spread)), note(&ends))
            .unwrap();
        turn(&mut all, |_| ends.borrow().len() == 1);
        assert!(ends.borrow()[0].is_ok(), "{device}: {ends:?}");
        assert_eq!(all[0].process().operations(None), 0);
    }
}

#[test]
fn packed_transfers_end_with_their_rank() {
    for device in AFAR {
        let mut all = runtimes(device, 2);
        let (theirs, mine) = (heap(400_000), heap(400_000));
        all[1].register_memory(&theirs).unwrap();
        let spread = Description::strided(&[8, 20_000], &[16]).unwrap();
        let first = Ends::default();
        let there = || (address(&theirs), one(&spread));
        all[0].put_described(1, there(), (&mine, 0, one(&spread)), note(&first)).unwrap();
        turn(&mut all, |_| first.borrow().len() == 1);
        let ends = Ends::default();
        for _ in 0..4 {
            all[0].put_described(1, there(), (&mine, 0, one(&spread)), note(&ends)).unwrap();
            all[0].get_described(1, there(), (&mine, 0, one(&spread)), note(&ends)).unwrap();
        }
        drop(all.pop());
        turn(&mut all, |_| ends.borrow().len() == 8);
        assert!(
            ends.borrow().iter().all(|end| matches!(end, Err(AmError::Gone { rank: 1, .. }))),
            "{ends:?}"
        );
        assert_eq!(all[0].process().operations(None), 0);
    }
}

#[test]
fn a_rank_that_asks_for_what_is_not_described_is_cut_off() {
    let described = Description::strided(&[8, 10], &[16]).unwrap();
    let packed = |slot, count, first_byte| Packed { slot, origin: 0x1000, count, first_byte };
    let scatter =
        |packed| Word::Update(Update { id: 1, what: Updating::Scatter { packed, data: vec![1; 8].into() } });
    let gather = |packed| Word::Update(Update { id: 1, what: Updating::Gather { packed, len_bytes: 8 } });
    for (word, is_nonsense) in [
        (scatter(packed(0, 1, 72)), false),
        (scatter(packed(1, 1, 0)), true),
        (scatter(packed(0, 1, 73)), true),
        (scatter(packed(0, u64::MAX, 0)), true),
        (gather(packed(0, 2, 152)), false),
        (gather(packed(0, 2, 153)), true),
        (gather(packed(0, 1, u64::MAX)), true),
        (gather(Packed { origin: u64::MAX - 8, ..packed(0, 1, 0) }), true),
        (Word::Gathered(1, vec![1].into()), true),
    ] {
        let mut all = runtimes("udp-lo", 2);
        // The rank that has cut the other one off.
        let by = std::rc::Rc::new(std::cell::Cell::new(None));
        for (rank, runtime) in all.iter_mut().enumerate() {
            let by = by.clone();
            runtime.on_gone(move |_, why| {
                if why.contains("no process of this version") {
                    by.set(Some(rank));
                }
            });
        }
        turn(&mut all, |all| matches!(all[0].process().links.connection(1), Ok(Some(_))));
        all[0].process().links.say(1, &Word::Description(0, described.clone()));
        all[0].process().links.say(1, &word);
        turn(&mut all, |_| by.get().is_some());
        // Otherwise rank 1 answers, and that is what rank 0 has not asked for.
        assert_eq!(by.get(), Some(usize::from(is_nonsense)), "{word:?}");
    }
}

#[test]
fn a_rank_that_asks_for_data_and_reads_none_is_cut_off() {
    let devices = Devices::new().unwrap();
    let endpoint = |_| Endpoint::create(devices.device("shm").unwrap(), Options::default()).unwrap();
    let mut ranks = Ranks::of_one_process((0..2).map(endpoint).collect()).unwrap();
    let mut stranger = ranks.pop().unwrap();
    let mut process = Process::new(ranks.pop().unwrap());
    let memory = heap(1 << 20);
    process.register_memory(&memory).unwrap();
    stranger.connect(cci_job::Peer::of(0), LIMIT).unwrap();
    let description = Description::bytes(1 << 20).unwrap();
    let packed = Packed { slot: 0, origin: address(&memory), count: 1, first_byte: 0 };
    let gather = Updating::Gather { packed, len_bytes: PACKED_BYTES_MAX };
    let words = [Word::Description(0, description), Word::Update(Update { id: 1, what: gather })];
    let (mut sent, start) = (0, Instant::now());
    while process.gone.is_empty() {
        match stranger.connection(cci_job::Peer::of(0)) {
            None => drop(stranger.next_event()),
            Some(connection) => {
                let record = words[sent.min(1)].encode();
                let done = stranger.endpoint().send(connection, &record, 0, cci::SendFlags::SILENT);
                sent += usize::from(done.is_ok());
            }
        }
        process.progress();
        assert!(start.elapsed() < LIMIT, "data for {sent} records are kept");
    }
    assert!(sent > UPDATES_MAX as usize, "nobody is cut off for what is allowed");
}
