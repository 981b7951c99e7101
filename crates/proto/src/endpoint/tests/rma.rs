//! Remote memory access on networks good and bad (CCI-053 to CCI-066, CCS-062).

use super::*;

pub(super) const KEY: u64 = 0x5ec7_e700_0000_0001;

/// A place in region 0, which each end of [`pair`] has.
pub(super) fn at(offset: usize) -> RemoteAddress {
    RemoteAddress { region: 0, key: KEY, offset: offset as u64 }
}

pub(super) fn segment(local: usize, remote: usize, len: usize) -> RmaSegment {
    RmaSegment { local: at(local), remote: at(remote), len_bytes: len as u64 }
}

/// Two connected ends, each with a region of this size full of random bytes.
pub(super) fn pair(seed: u64, attribute: Attribute, bytes: usize) -> (Net, ConnKey, ConnKey) {
    let mut net = Net::pair(seed);
    let (client, server) = net.join(attribute);
    for end in 0..2 {
        let mut region = Region { key: KEY, readable: true, writable: true, ..Region::default() };
        region.bytes = (0..bytes).map(|_| net.random(256) as u8).collect();
        net.apps[end].regions.push(region);
    }
    (net, client, server)
}

impl Net {
    /// Starts an operation, waiting for room as long as it takes.
    pub(super) fn operate(
        &mut self,
        conn: ConnKey,
        kind: RmaKind,
        segments: &[RmaSegment],
        message: Option<&[u8]>,
        fence: bool,
        operation: u64,
    ) {
        let until = self.now.plus(600 * SECOND);
        loop {
            match self.ends[0].rma(self.now, conn, kind, segments, message, fence, operation) {
                Ok(()) => return,
                Err(RmaError::WouldBlock) => assert!(self.step(until), "blocked for ever"),
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// Runs until that many operations of end 0 are over.
    pub(super) fn finish(&mut self, count: usize) {
        self.run_until(600 * SECOND, "operations over", |net| net.apps[0].operations().len() >= count);
        assert_eq!(self.apps[0].operations().len(), count, "each ends once");
    }

    pub(super) fn region(&self, end: usize) -> &[u8] {
        &self.apps[end].regions[0].bytes
    }

    /// Every operation ended well, and nothing is left of any.
    pub(super) fn assert_all_well(&mut self) {
        for (operation, status) in self.apps[0].operations() {
            assert_eq!(status, Status::Success, "operation {operation}");
        }
        self.run(SECOND);
        self.assert_clean();
        for end in &self.ends {
            assert_eq!(end.counters().faults(), 0);
            assert_eq!(
                end.connections.protocol.transfers.spare.len() as u64,
                end.connections.protocol.transfers.made,
                "asleep, all is given back"
            );
        }
    }
}

const RELIABLE: [Attribute; 2] = [Attribute::ReliableOrdered, Attribute::ReliableUnordered];
const BOTH: [RmaKind; 2] = [RmaKind::Write, RmaKind::Read];

#[test]
fn every_size_up_to_three_datagrams_at_odd_offsets() {
    for kind in BOTH {
        let (mut net, client, _) = pair(1, Attribute::ReliableOrdered, 20_000);
        for (count, len) in (1..4400).enumerate() {
            let (local, remote) = (len % 13, len % 7 + 3);
            let mut expected = [net.region(0).to_vec(), net.region(1).to_vec()];
            match kind {
                RmaKind::Write => {
                    expected[1][remote..remote + len].copy_from_slice(&net.region(0)[local..local + len]);
                }
                RmaKind::Read => {
                    expected[0][local..local + len].copy_from_slice(&net.region(1)[remote..remote + len]);
                }
            }
            net.operate(client, kind, &[segment(local, remote, len)], None, false, count as u64);
            net.finish(count + 1);
            assert!(net.region(0) == expected[0] && net.region(1) == expected[1], "{kind:?} of {len}");
            for region in 0..2 {
                let twist = (len * 31 % 251) as u8;
                net.apps[region].regions[0]
                    .bytes
                    .iter_mut()
                    .for_each(|byte| *byte = byte.wrapping_add(twist));
            }
        }
        net.assert_all_well();
    }
}

#[test]
fn loss_reordering_and_repeats_change_nothing() {
    const BYTES: usize = 1 << 20;
    for attribute in RELIABLE {
        for kind in BOTH {
            for (seed, loss_pct, jitter_ns) in [(1, 0, 0), (2, 2, 0), (3, 10, 300_000), (4, 30, 50_000)] {
                let (mut net, client, _) = pair(seed, attribute, BYTES);
                (net.loss_pct, net.repeat_pct, net.jitter_ns) = (loss_pct, 5, jitter_ns);
                let (from, to) = if kind == RmaKind::Write { (0, 1) } else { (1, 0) };
                let expected = net.region(from).to_vec();
                // Two operations that overlap in time, not in space (CCI-062), and messages in between.
                let half = BYTES / 2 + 77;
                net.operate(client, kind, &[segment(0, 0, half)], None, false, 1);
                net.send(0, client, b"in between", 9);
                net.operate(client, kind, &[segment(half, half, BYTES - half)], None, false, 2);
                net.finish(2);
                assert!(net.region(to) == expected, "{attribute:?} {kind:?} seed {seed}");
                let sent = net.ends[from].counters();
                let bundles = sent.bundles_sent as f64;
                let limit = (loss_pct as f64 / 100.0) * 2.5 + 0.05 + if jitter_ns > 0 { 0.3 } else { 0.0 };
                assert!(
                    (sent.retransmissions as f64) < bundles * limit,
                    "only what was lost is repeated: {} of {bundles}",
                    sent.retransmissions
                );
                net.assert_all_well();
                assert_eq!(net.apps[0].statuses(), [(9, Status::Success)]);
            }
        }
    }
}

#[test]
fn scattered_segments_arrive_where_they_belong() {
    for kind in BOTH {
        for attribute in RELIABLE {
            let (mut net, client, _) = pair(7, attribute, 1 << 20);
            (net.loss_pct, net.jitter_ns) = (5, 100_000);
            let mut segments = Vec::new();
            let (mut local, mut remote) = (3, 11);
            while segments.len() < limits::RMA_SEGMENTS_MAX {
                let len = 1 + net.random(if segments.len() % 9 == 0 { 3000 } else { 90 }) as usize;
                segments.push(segment(local, remote, len));
                local += len + net.random(5) as usize;
                remote += len + net.random(9) as usize;
            }
            let mut expected = [net.region(0).to_vec(), net.region(1).to_vec()];
            for segment in &segments {
                let len = segment.len_bytes as usize;
                let (local, remote) = (segment.local.offset as usize, segment.remote.offset as usize);
                match kind {
                    RmaKind::Write => {
                        expected[1][remote..remote + len].copy_from_slice(&net.region(0)[local..local + len])
                    }
                    RmaKind::Read => {
                        expected[0][local..local + len].copy_from_slice(&net.region(1)[remote..remote + len])
                    }
                }
            }
            net.operate(client, kind, &segments, None, false, 1);
            net.finish(1);
            assert!(net.region(0) == expected[0] && net.region(1) == expected[1], "{kind:?} {attribute:?}");
            net.assert_all_well();
        }
    }
}

#[test]
fn ten_thousand_small_writes_are_outstanding_and_packed() {
    let (mut net, client, _) = pair(3, Attribute::ReliableOrdered, 80_000);
    let before = net.datagrams;
    for operation in 0..10_000 {
        let address = segment(operation * 8, operation * 8, 8);
        net.ends[0].rma(net.now, client, RmaKind::Write, &[address], None, false, operation as u64).unwrap();
    }
    net.finish(10_000);
    assert!(net.region(1) == net.region(0));
    let datagrams = net.datagrams - before;
    assert!(
        datagrams < 1_500,
        "{datagrams} datagrams for 10,000 writes, acknowledgements and answers included"
    );
    net.assert_all_well();
}

#[test]
fn a_long_transfer_holds_no_more_than_a_short_one() {
    let mut most = [0; 2];
    for (address, bytes) in [1 << 20, 16 << 20].into_iter().enumerate() {
        for kind in BOTH {
            let (mut net, client, _) = pair(3, Attribute::ReliableUnordered, bytes);
            net.operate(client, kind, &[segment(0, 0, bytes)], None, false, 1);
            while net.apps[0].operations().is_empty() {
                net.run(MS / 10);
                let held = |end: &Endpoint| end.memory().rma_bytes + end.memory().pool_used_bytes;
                most[address] = most[address].max(net.ends.iter().map(held).sum::<u64>());
            }
            assert!(net.region(0) == net.region(1));
            net.assert_all_well();
        }
    }
    assert!(most[1] <= most[0] + 8 * 1472, "{most:?}");
}

#[test]
fn messages_and_bulk_do_not_starve_each_other() {
    const BYTES: usize = 8 << 20;
    let (mut net, client, _) = pair(4, Attribute::ReliableOrdered, BYTES);
    net.operate(client, RmaKind::Write, &[segment(0, 0, BYTES)], None, false, 1);
    net.run(MS / 10);
    // One message in the middle of the transfer takes no longer than what is in flight.
    let start = net.now;
    net.send(0, client, b"urgent", 1);
    net.run_until(SECOND, "the message", |net| !net.apps[1].messages.is_empty());
    assert!(net.apps[0].operations().is_empty() && net.now.since(start) < 2 * MS, "{}", net.now.since(start));
    // A flood of messages lets the transfer go on.
    let until = net.now.plus(20 * SECOND);
    let mut context = 2;
    while net.apps[0].operations().is_empty() {
        while net.ends[0].send(net.now, client, &[&[5; 1300]], context, false).is_ok() {
            context += 1;
        }
        assert!(net.step(until) && net.now < until, "starved, {context} messages");
    }
    assert!(net.region(0) == net.region(1));
    net.run(SECOND);
    assert_eq!(net.apps[1].messages.len() as u64, context - 1);
    net.assert_all_well();
}

#[test]
fn notifications_come_after_the_data() {
    for attribute in RELIABLE {
        for kind in BOTH {
            for seed in 0..20 {
                let (mut net, client, _) = pair(seed, attribute, 100_000);
                (net.loss_pct, net.jitter_ns, net.repeat_pct) = (seed % 4 * 7, 400_000, 5);
                let expected = net.region(usize::from(kind == RmaKind::Read)).to_vec();
                let mut reported = 0;
                for operation in 0..40u64 {
                    let (start, len) = (operation as usize * 2000, 1 + net.random(2000) as usize);
                    let note = [&operation.to_le_bytes()[..], &len.to_le_bytes()[..]].concat();
                    net.operate(client, kind, &[segment(start, start, len)], Some(&note), false, operation);
                    let until = net.now.plus(net.random(100_000));
                    while net.step(until) {
                        reported = check_reported(&net, &expected, reported, kind);
                    }
                }
                let until = net.now.plus(60 * SECOND);
                while net.apps[0].operations().len() < 40 {
                    assert!(net.step(until));
                    reported = check_reported(&net, &expected, reported, kind);
                }
                assert_eq!(net.apps[1].messages.len(), 40);
                net.assert_all_well();
            }
        }
    }
}

/// What the newest messages say has been done, has.
fn check_reported(net: &Net, expected: &[u8], reported: usize, kind: RmaKind) -> usize {
    let to = usize::from(kind == RmaKind::Write);
    for (_, note) in &net.apps[1].messages[reported..] {
        let word = |at: usize| u64::from_le_bytes(note[at..at + 8].try_into().unwrap()) as usize;
        let (start, len) = (word(0) * 2000, word(8));
        assert!(net.region(to)[start..start + len] == expected[start..start + len], "CCI-064");
    }
    net.apps[1].messages.len()
}

#[test]
fn a_notification_waits_for_a_buffer_as_messages_do() {
    for attribute in RELIABLE {
        let (mut net, client, _) = pair(5, attribute, 10_000);
        net.apps[1].buffers = Some(0);
        for operation in 0..20 {
            let note = [operation as u8; 20];
            net.operate(client, RmaKind::Write, &[segment(0, 0, 3000)], Some(&note), false, operation);
        }
        net.finish(20);
        assert!(net.apps[1].messages.is_empty(), "the library has them, the program does not");
        for count in [1, 2, 5, 12] {
            net.apps[1].buffers = Some(count);
            let now = net.now;
            net.ends[1].buffers_returned(now, &mut net.apps[1]);
            net.run(MS);
        }
        let got: Vec<u8> = net.apps[1].messages.iter().map(|(_, note)| note[0]).collect();
        assert_eq!(got, (0..20).collect::<Vec<u8>>(), "{attribute:?}");
        net.assert_all_well();
    }
}

#[test]
fn atomics_happen_exactly_once() {
    for attribute in RELIABLE {
        for seed in 0..10 {
            let (mut net, client, _) = pair(seed, attribute, 16_384);
            net.apps[1].regions[0].bytes.fill(0);
            (net.loss_pct, net.repeat_pct, net.jitter_ns) = (seed % 3 * 15, 20, 200_000);
            let add =
                Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
            let quiet = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Four, operand: 3, compare: 0 };
            for count in 0..1000 {
                let now = net.now;
                let result = Some(at(count * 8));
                net.ends[0].atomic(now, client, add, at(64), result, false, count as u64).unwrap();
                net.ends[0].atomic(now, client, quiet, at(132), None, false, 5000 + count as u64).unwrap();
                net.run(net.seed % 20_000);
            }
            net.finish(2000);
            let word = |region: &[u8], address: usize| {
                u64::from_le_bytes(region[address..address + 8].try_into().unwrap())
            };
            let mut seen: Vec<u64> = (0..1000).map(|count| word(net.region(0), count * 8)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..1000).collect::<Vec<_>>(), "each found another value");
            assert_eq!(word(net.region(1), 64), 1000);
            assert_eq!(word(net.region(1), 128) >> 32, 3000);
            net.assert_all_well();
        }
    }
}

#[test]
fn every_atomic_does_what_its_kind_means() {
    let (mut net, client, _) = pair(1, Attribute::ReliableOrdered, 64);
    let mut count = 0;
    for width in [AtomicWidth::Four, AtomicWidth::Eight] {
        for kind in AtomicKind::ALL {
            for (was, operand, compare) in [(7u64, 12u64, 7u64), (u64::MAX, 1, 3), (0xf0f0, 0xff, 0xf0f0)] {
                let mask = if width == AtomicWidth::Four { u64::from(u32::MAX) } else { u64::MAX };
                net.apps[1].regions[0].bytes[8..16].copy_from_slice(&was.to_le_bytes());
                net.apps[0].regions[0].bytes.fill(0xee);
                let atomic = Atomic { kind, width, operand, compare };
                net.ends[0].atomic(net.now, client, atomic, at(8), Some(at(3)), false, count).unwrap();
                count += 1;
                net.finish(count as usize);
                let expected = match kind {
                    AtomicKind::FetchAdd | AtomicKind::Add => was.wrapping_add(operand),
                    AtomicKind::Swap => operand,
                    AtomicKind::CompareSwap if was & mask == compare => operand,
                    AtomicKind::CompareSwap => was,
                    AtomicKind::And => was & operand,
                    AtomicKind::Or => was | operand,
                    AtomicKind::Xor => was ^ operand,
                };
                let is = u64::from_le_bytes(net.region(1)[8..16].try_into().unwrap());
                assert_eq!(is, expected & mask | was & !mask, "{atomic:?} on {was}");
                let mut local = vec![0xee; 64];
                local[3..11].copy_from_slice(&(was & mask).to_ne_bytes());
                assert_eq!(net.region(0), local, "the result, and nothing else");
            }
        }
    }
    net.assert_all_well();
}

#[test]
fn a_fence_keeps_order() {
    for attribute in RELIABLE {
        for seed in 0..20 {
            let (mut net, client, _) = pair(seed, attribute, 200_000);
            (net.loss_pct, net.jitter_ns) = (seed % 3 * 10, 500_000);
            // Bulk, then a flag behind a fence (CCI-063, CCI-066): whoever sees the flag sees the bulk.
            for round in 1..=5u64 {
                let bulk = segment(0, 0, 100_000);
                net.apps[0].regions[0].bytes[..100_000].fill(round as u8);
                net.apps[0].regions[0].bytes[100_000..100_008].copy_from_slice(&round.to_le_bytes());
                net.operate(client, RmaKind::Write, &[bulk], None, false, round * 10);
                net.send(0, client, b"before the fence", round);
                net.operate(
                    client,
                    RmaKind::Write,
                    &[segment(100_000, 100_000, 8)],
                    None,
                    true,
                    round * 10 + 1,
                );
                net.operate(
                    client,
                    RmaKind::Read,
                    &[segment(100_000, 150_000, 3)],
                    None,
                    false,
                    round * 10 + 2,
                );
                let done = 3 * round as usize;
                let until = net.now.plus(60 * SECOND);
                while net.apps[0].operations().len() < done {
                    assert!(net.step(until));
                    if net.region(1)[100_000..100_008] == round.to_le_bytes() {
                        assert!(net.region(1)[..100_000].iter().all(|&byte| byte == round as u8), "fenced");
                        assert_eq!(net.apps[1].messages.len() as u64, round, "messages too");
                    }
                }
                let order: Vec<u64> =
                    net.apps[0].operations().iter().map(|(operation, _)| *operation).collect();
                assert_eq!(order[done - 3], round * 10, "the fenced one ends later");
            }
            net.assert_all_well();
        }
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused_at_once() {
    let (mut net, client, _) = pair(1, Attribute::ReliableOrdered, 100);
    let mut ask = |segments: &[RmaSegment], message: Option<&[u8]>| {
        net.ends[0].rma(net.now, client, RmaKind::Write, segments, message, false, 1).unwrap_err()
    };
    assert_eq!(ask(&[], None), RmaError::Segments);
    assert_eq!(ask(&[segment(0, 0, 0)], None), RmaError::Segments);
    assert_eq!(ask(&[segment(usize::MAX, 0, 1)], None), RmaError::Segments);
    assert_eq!(ask(&[segment(0, 0, 1); 1025], None), RmaError::Segments);
    assert_eq!(ask(&[segment(0, 0, 1)], Some(&[0; 1417])), RmaError::TooLong { max: 1416 });
    net.ends[0].disconnect(net.now, client).unwrap();
    let again = net.ends[0].rma(net.now, client, RmaKind::Read, &[segment(0, 0, 1)], None, false, 1);
    assert_eq!(again, Err(RmaError::Disconnected));
    let (mut net, client, _) = pair(1, Attribute::Unreliable, 100);
    let refused = net.ends[0].rma(net.now, client, RmaKind::Read, &[segment(0, 0, 1)], None, false, 1);
    assert_eq!(refused, Err(RmaError::Unreliable), "CCI-054");
}

#[test]
fn many_connections_share_little_memory() {
    const CONNECTIONS: usize = 60;
    let config = Config { memory_bytes_max: 1 << 20, sends_max: 256, ..Config::default() };
    let mut net = Net::new(9, vec![config.clone(), config]);
    let mut keys = Vec::new();
    for _ in 0..CONNECTIONS {
        net.apps.iter_mut().for_each(|app| app.events.clear());
        keys.push(net.join(Attribute::ReliableOrdered).0);
    }
    for end in 0..2 {
        let bytes = (0..CONNECTIONS * 20_000).map(|_| net.random(256) as u8).collect();
        let region = Region { bytes, key: KEY, readable: true, writable: true, ..Region::default() };
        net.apps[end].regions.push(region);
    }
    (net.loss_pct, net.jitter_ns) = (3, 50_000);
    let mut expected = [net.region(0).to_vec(), net.region(1).to_vec()];
    for (address, &key) in keys.iter().enumerate() {
        let (start, half) = (address * 20_000, 10_000);
        expected[1][start..start + half].copy_from_slice(&net.region(0)[start..start + half]);
        let (from, to) = (start + half, start + 2 * half);
        expected[0][from..to].copy_from_slice(&net.region(1)[from..to]);
        net.operate(
            key,
            RmaKind::Write,
            &[segment(start, start, half)],
            Some(b"w"),
            false,
            2 * address as u64,
        );
        net.operate(
            key,
            RmaKind::Read,
            &[segment(from, from, half)],
            Some(b"r"),
            false,
            2 * address as u64 + 1,
        );
    }
    net.finish(2 * CONNECTIONS);
    assert!(net.region(0) == expected[0] && net.region(1) == expected[1]);
    let boxes = net.ends[0].connections.protocol.transfers.made as usize;
    assert!(boxes < CONNECTIONS, "{boxes}: some had to wait until others were idle");
    assert_eq!(net.apps[1].messages.len(), 2 * CONNECTIONS);
    net.assert_all_well();
}

#[test]
fn what_finds_the_carrier_full_is_looked_at_again() {
    // Found by the simulator (seed 69): with no room nothing was made of the operation, and nobody came back to it.
    let (mut net, client, _) = pair(4, Attribute::ReliableOrdered, 100);
    net.run(SECOND);
    net.operate(client, RmaKind::Write, &[segment(0, 0, 50)], None, false, 1);
    net.flush_into(0, 0);
    assert!(net.ends[0].wants_transmit());
    net.finish(1);
    net.assert_all_well();
}
