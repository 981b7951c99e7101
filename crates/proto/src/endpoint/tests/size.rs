//! Paths that take less than both ends do, and do not say so.

use super::rma::{pair, segment};
use super::*;

fn traffic(seed: u64, attribute: Attribute, from: u64, count: u64, net: &mut Net, conn: ConnKey) {
    let longest = net.ends[0].connection(conn).unwrap().message_bytes_max;
    for number in from..from + count {
        let len = 8 + (number.wrapping_mul(0x9e37_79b9) ^ seed) as usize % (longest - 7);
        let mut payload = vec![number as u8; len];
        payload[..8].copy_from_slice(&number.to_le_bytes());
        net.send(0, conn, &payload, number);
    }
    let done = (from + count) as usize;
    if attribute.is_reliable() {
        net.run_until(60 * SECOND, "all complete", |net| net.apps[0].statuses().len() == done);
    } else {
        net.run(SECOND);
    }
}

fn assert_once(net: &Net, count: u64) {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let mut got: Vec<u64> = net.apps[1].messages.iter().map(|(_, bytes)| number(bytes)).collect();
    got.sort_unstable();
    assert_eq!(got, (0..count).collect::<Vec<_>>());
    assert!(net.apps[1].messages.iter().all(|(_, bytes)| bytes[8..].iter().all(|byte| *byte == bytes[0])));
    assert!(net.apps[0].statuses().iter().all(|(_, status)| *status == Status::Success));
    net.assert_clean();
}

#[test]
fn a_black_hole_for_large_datagrams_is_found_out_and_left_again() {
    for (seed, attribute) in [(1, Attribute::ReliableOrdered), (2, Attribute::ReliableUnordered)] {
        for (largest, settles_at) in [(1300, 1232), (1448, 1448), (1200, 1152)] {
            let mut net = Net::pair(seed);
            let (client, _) = net.join(attribute);
            traffic(seed, attribute, 0, 300, &mut net, client);
            assert_eq!(net.ends[0].counters().paths_narrowed, 0);
            net.largest = largest;
            let start = net.now;
            traffic(seed, attribute, 300, 1, &mut net, client);
            traffic(seed, attribute, 301, 300, &mut net, client);
            // What was under way already is no trial of a size.
            (0..30).for_each(|lot| traffic(seed, attribute, 601 + lot * 10, 10, &mut net, client));
            let took_ns = net.now.since(start);
            assert!(took_ns < SECOND, "{took_ns} ns through a hole of {largest}");
            let info = net.ends[0].connection(client).unwrap();
            assert_eq!(info.datagram_bytes_max, settles_at, "{largest}: the largest usual size below");
            assert_eq!(info.message_bytes_max, 1416, "what was promised stays");
            assert!(net.ends[0].counters().paths_narrowed >= 1);
            assert_once(&net, 901);
            // Wider again: found out a minute later, while the connection is in use.
            net.largest = usize::MAX;
            for minute in 0..70 {
                net.run(SECOND - 1);
                net.ends[0].set_keepalive(net.now, client, 100 * MS).unwrap();
                traffic(seed, attribute, 901 + minute * 4, 4, &mut net, client);
            }
            assert_eq!(net.ends[0].connection(client).unwrap().datagram_bytes_max, 1472);
            net.ends[0].set_keepalive(net.now, client, 0).unwrap();
            net.run(SECOND);
            assert_once(&net, 901 + 70 * 4);
        }
    }
}

#[test]
fn a_path_that_becomes_narrower_twice_is_followed_by_messages_in_parts_too() {
    for seed in 0..8 {
        let mut net = Net::pair(seed);
        let (client, _) = net.join(Attribute::ReliableOrdered);
        net.largest = 1400;
        traffic(seed, Attribute::ReliableOrdered, 0, 200, &mut net, client);
        (0..30)
            .for_each(|lot| traffic(seed, Attribute::ReliableOrdered, 200 + lot * 10, 10, &mut net, client));
        assert_eq!(net.ends[0].connection(client).unwrap().datagram_bytes_max, 1352);
        net.largest = 1250;
        traffic(seed, Attribute::ReliableOrdered, 500, 1, &mut net, client);
        traffic(seed, Attribute::ReliableOrdered, 501, 300, &mut net, client);
        net.run(SECOND);
        assert_once(&net, 801);
    }
}

#[test]
fn a_black_hole_with_loss_and_repeats_loses_nothing() {
    for seed in 0..12 {
        let attribute = if seed % 2 == 0 { Attribute::ReliableOrdered } else { Attribute::ReliableUnordered };
        let config = Config { datagram_bytes_max: 8952, ..Config::default() };
        let mut net = Net::new(seed, vec![config.clone(), config]);
        (net.loss_pct, net.repeat_pct, net.jitter_ns) = (seed % 3 * 5, 5, 100_000);
        net.space = 3;
        let (client, _) = net.join(attribute);
        traffic(seed, attribute, 0, 100, &mut net, client);
        net.largest = 1500;
        traffic(seed, attribute, 100, 300, &mut net, client);
        net.run(SECOND);
        assert_once(&net, 400);
    }
}

#[test]
fn unreliable_messages_pass_in_parts_where_the_path_announces_its_limit() {
    let config = Config { datagram_bytes_max: 8952, ..Config::default() };
    let mut net = Net::new(7, vec![config.clone(), config]);
    let (client, _) = net.join(Attribute::Unreliable);
    net.largest = 1400;
    net.ends[0].path_mtu_changed(net.now, address(1), 1400);
    traffic(7, Attribute::Unreliable, 0, 40, &mut net, client);
    assert_once(&net, 40);
    assert!(net.ends[0].counters().parts_sent > 40);
}

#[test]
fn remote_memory_passes_a_black_hole() {
    for kind in [RmaKind::Write, RmaKind::Read] {
        let (mut net, client, _) = pair(3, Attribute::ReliableUnordered, 400_000);
        net.largest = 1300;
        let (from, to) = if kind == RmaKind::Write { (0, 1) } else { (1, 0) };
        let whole = net.region(from).to_vec();
        net.operate(client, kind, &[segment(0, 0, 400_000)], Some(&[5; 1_416]), false, 0);
        net.finish(1);
        assert_eq!(net.apps[0].operations(), [(0, Status::Success)]);
        assert!(net.region(to) == whole, "{kind:?}: every byte");
        net.run(SECOND);
        assert_eq!(
            net.apps[1].messages.len(),
            1,
            "{kind:?}: its message, too, which is longer than what passes"
        );
        net.assert_all_well();
    }
}

/// Nothing small is under way, whose acknowledgement would show that the large ones are lost, and the round trip is known
/// to vary, so that a probe comes late.
#[test]
fn a_black_hole_is_found_out_soon_where_all_that_is_under_way_is_large() {
    for seed in 0..8 {
        let attribute = if seed % 2 == 0 { Attribute::ReliableOrdered } else { Attribute::ReliableUnordered };
        let mut net = Net::pair(seed);
        net.jitter_ns = 40 * MS;
        let (client, _) = net.join(attribute);
        traffic(seed, attribute, 0, 100, &mut net, client);
        net.jitter_ns = 0;
        // First messages that are longer than the path takes, then parts of them that are.
        for (largest, from) in [(1400, 100), (1300, 340)] {
            net.largest = largest;
            let start = net.now;
            large(from, 40, &mut net, client);
            let took_ns = net.now.since(start);
            assert!(took_ns < 700 * MS, "{seed}: {took_ns} ns through a hole of {largest}");
            // What was under way already is no trial of a size.
            (0..20).for_each(|lot| large(from + 40 + lot * 10, 10, &mut net, client));
        }
        assert_eq!(net.ends[0].connection(client).unwrap().datagram_bytes_max, 1232);
        net.run(SECOND);
        assert_once(&net, 580);
    }
}

/// So many messages of almost the greatest length, until all are complete.
fn large(from: u64, count: u64, net: &mut Net, conn: ConnKey) {
    for number in from..from + count {
        let mut payload = vec![number as u8; 1400];
        payload[..8].copy_from_slice(&number.to_le_bytes());
        net.send(0, conn, &payload, number);
    }
    let done = (from + count) as usize;
    net.run_until(60 * SECOND, "all complete", |net| net.apps[0].statuses().len() == done);
}

#[test]
fn a_path_that_carries_nothing_is_not_taken_for_narrow() {
    let mut net = Net::pair(9);
    let (client, _) = net.join(Attribute::ReliableOrdered);
    traffic(9, Attribute::ReliableOrdered, 0, 100, &mut net, client);
    net.send(0, client, &[1; 1400], 100);
    net.cut = true;
    net.run(3 * SECOND);
    net.cut = false;
    net.run(3 * SECOND);
    assert_eq!(net.apps[0].statuses().len(), 101);
    assert_eq!(net.ends[0].counters().paths_narrowed, 0);
    assert_eq!(net.ends[0].connection(client).unwrap().datagram_bytes_max, 1472);
}
