//! Peers that mean harm with records that are well formed, and everything in any order: nothing panics, nobody's
//! memory is touched without a right, every operation ends once.

use super::rma::{KEY, at, pair, segment};
use super::*;
use crate::conn::Active;
use crate::limits::RECORD_BYTES;
use crate::rma::Record;
use crate::wire::{Head, Kind, Sack};
use proptest::prelude::*;

/// One datagram of end 0's to end 1, with the body the caller likes, `skip` bundles after the next that is expected. It
/// acknowledges all that was sent.
fn inject(net: &mut Net, server: ConnKey, body: &[u8], skip: u32) {
    inject_with(net, server, body, skip, |active| active.tx.unsent);
}

/// A copy of the datagram with another acknowledgement.
fn inject_with(net: &mut Net, server: ConnKey, body: &[u8], skip: u32, ack: impl FnOnce(&Active) -> Seq) {
    let Some(conn) = net.ends[1].connections.table.get(server) else { return };
    let Some(active) = conn.active.as_deref() else { return };
    let head = Head {
        kind: Kind::Data,
        flags: 0,
        index: server.index,
        generation: server.generation,
        source_index: conn.base.peer_index,
        nonce: conn.base.nonce,
        seq: active.rx.next.plus(skip),
        ack: ack(active),
        timestamp: 0,
        echo: 0,
        window_kib: u16::MAX,
        epoch: conn.base.rx_epoch,
        epoch_ack: conn.base.tx_epoch,
    };
    let mut bytes = vec![0; 48 + body.len()];
    let at = head.emit(&Sack::default(), body.len(), &mut bytes);
    bytes[at..].copy_from_slice(body);
    let now = net.now;
    net.ends[1].handle_datagram(now, address(0), &bytes, &mut net.apps[1]);
}

/// A record out of small numbers, right in most of what can be right.
fn record(numbers: &[u16; 5], data: &[u8], out: &mut Vec<u8>) {
    let [kind, slot, offset, len, flag] = *numbers;
    let slot = if slot % 50 == 0 { slot } else { slot % 131 };
    let key = if offset % 11 == 0 { KEY ^ 1 } else { KEY };
    let region = u64::from(offset % 17 == 0);
    let at = RemoteAddress { region, key, offset: u64::from(offset) };
    let data = &data[..usize::from(len) % (data.len() + 1)];
    let (last, len_bytes) = (flag % 3 == 0, u64::from(len) * u64::from(flag % 40));
    let atomic = Atomic {
        kind: AtomicKind::ALL[usize::from(flag) % 7],
        width: if len % 2 == 0 { AtomicWidth::Four } else { AtomicWidth::Eight },
        operand: u64::from(len),
        compare: 0,
    };
    let record = match kind % 7 {
        0 => Record::Write { slot, at, last, data },
        1 => Record::Read { slot, at, len_bytes },
        2 => Record::Data { slot, offset: u64::from(offset % 3) * 100, data },
        3 => Record::Gone { slot, offset: u64::from(offset % 3), len_bytes },
        4 => Record::Atomic { slot, at, atomic, wants_value: last },
        5 => Record::Notify { slot, message: (flag % 4 != 0).then_some(data) },
        _ => {
            let results = [Ok(None), Ok(Some(7)), Err(RmaRefusal::Handle), Err(RmaRefusal::Operation)];
            Record::Done { slot, result: results[usize::from(flag) % 4] }
        }
    };
    let start = out.len();
    out.resize(start + RECORD_BYTES + 48 + data.len() + 8, 0);
    let len = record.emit(&mut out[start..]).expect("room");
    out.truncate(start + len);
}

/// A peer that answers operations and never acknowledges what they came in keeps them in our tables: they count against it.
#[test]
fn operations_answered_and_not_acknowledged_count_against_their_connection() {
    let config = Config { operations_max: 16, ..Config::default() };
    let mut net = Net::new(1, vec![config.clone(), config]);
    let (_, hostile) = net.join(Attribute::ReliableOrdered);
    net.apps.iter_mut().for_each(|app| app.events.clear());
    let (_, honest) = net.join(Attribute::ReliableOrdered);
    net.apps[1].regions.push(Region { bytes: vec![3; 4_000], key: KEY, ..Region::default() });
    net.cut = true;
    let start = |net: &mut Net, key, operation| {
        let (now, segment) = (net.now, [segment(0, 0, 1_000)]);
        net.ends[1].rma(now, key, RmaKind::Write, &segment, None, false, operation)
    };
    let mut answered = 0;
    while start(&mut net, hostile, answered).is_ok() {
        net.run(MS / 10);
        let mut body = vec![0; RECORD_BYTES + 48];
        let len = Record::Done { slot: 0, result: Ok(None) }.emit(&mut body).expect("room");
        body.truncate(len);
        inject_with(&mut net, hostile, &body, 0, |active| active.tx.unacked);
        assert_eq!(net.apps[1].operations().last(), Some(&(answered, Status::Success)));
        answered += 1;
        assert!(answered <= 16, "without end");
    }
    assert_eq!(
        net.ends[1].connections.protocol.transfers.operations.in_use() as u64,
        answered,
        "all of them are still needed"
    );
    assert_eq!(start(&mut net, honest, 100), Ok(()), "{answered} operations of another's are in the table");
    assert_eq!(answered, 8);
    net.run(100 * SECOND);
    assert_eq!(net.ends[1].connections.protocol.transfers.operations.in_use(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_records_do_no_harm(
        ordered: bool,
        bundles in prop::collection::vec(
            (prop::collection::vec(any::<[u16; 5]>(), 1..12), 0u32..4, any::<bool>()), 1..60),
        buffers in prop_oneof![Just(None), (0usize..6).prop_map(Some)],
        data in prop::collection::vec(any::<u8>(), 0..90),
    ) {
        let attribute = if ordered { Attribute::ReliableOrdered } else { Attribute::ReliableUnordered };
        let (mut net, _, server) = pair(1, attribute, 70_000);
        net.apps[1].regions.push(Region { bytes: vec![3; 70_000], key: KEY, ..Region::default() });
        net.apps[1].buffers = buffers;
        net.cut = true;
        let mut started = 0u64;
        for (records, skip, own) in &bundles {
            if *own {
                let kind = if started.is_multiple_of(2) { RmaKind::Write } else { RmaKind::Read };
                let message = started.is_multiple_of(3).then_some(&b"hello"[..]);
                let now = net.now;
                let segments = [segment(0, 0, 10 + started as usize * 700)];
                prop_assert_eq!(net.ends[1].rma(now, server, kind, &segments, message, false, started), Ok(()));
                prop_assert_eq!(
                    net.ends[1].atomic(
                        now,
                        server,
                        Atomic { kind: AtomicKind::Swap, width: AtomicWidth::Four, operand: 1, compare: 0 },
                        at(8),
                        Some(at(0)),
                        started.is_multiple_of(5),
                        started + 1
                    ),
                    Ok(())
                );
                started += 2;
            }
            let mut body = Vec::new();
            records.iter().for_each(|numbers| record(numbers, &data, &mut body));
            inject(&mut net, server, &body, *skip);
            net.run(20_000);
            let memory = net.ends[1].memory();
            prop_assert!(memory.total_bytes() <= memory.cap_bytes);
        }
        prop_assert!(net.apps[1].regions[1].bytes.iter().all(|&byte| byte == 3), "no right, no access");
        net.ends[1].disconnect(net.now, server).unwrap();
        net.run(100 * SECOND);
        let mut ended: Vec<u64> = net.apps[1].operations().iter().map(|(operation, _)| *operation).collect();
        ended.sort_unstable();
        prop_assert_eq!(ended, (0..started).collect::<Vec<_>>(), "each operation ends once");
        prop_assert_eq!(net.ends[1].connections(), 0);
        prop_assert_eq!(net.ends[1].memory().pool_used_bytes, 0);
        prop_assert_eq!(net.ends[1].connections.protocol.transfers.operations.in_use(), 0);
    }

    /// Real datagrams with the right nonces, changed in a few places.
    #[test]
    fn changed_datagrams_do_no_harm(
        seed in 0u64..1000,
        ordered: bool,
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0usize..120, any::<u8>()), 1..150),
        buffers in prop_oneof![Just(None), (0usize..20).prop_map(Some)],
    ) {
        let attribute = if ordered { Attribute::ReliableOrdered } else { Attribute::ReliableUnordered };
        let (mut net, client, server) = pair(seed, attribute, 70_000);
        net.keep = Some(Vec::new());
        let start = |net: &mut Net, operation: u64| {
            let now = net.now;
            let kind = if operation.is_multiple_of(2) { RmaKind::Write } else { RmaKind::Read };
            let segments = [segment(0, 100, 1 + operation as usize * 37 % 5000)];
            let note = operation.is_multiple_of(3).then_some(&b"note"[..]);
            let atomic = Atomic { kind: AtomicKind::Or, width: AtomicWidth::Eight, operand: 1, compare: 0 };
            for (end, key) in [(0, client), (1, server)] {
                let _ = net.ends[end].rma(now, key, kind, &segments, note, operation.is_multiple_of(7), operation * 2);
                let _ = net.ends[end].atomic(now, key, atomic, at(8), Some(at(64)), false, operation * 2 + 1);
            }
        };
        for operation in 0..10 {
            start(&mut net, operation);
            net.run(MS / 10);
        }
        let kept = net.keep.take().expect("kept");
        (net.apps[0].buffers, net.apps[1].buffers) = (buffers, buffers);
        for (operation, (which, position, value)) in (10..).zip(changes) {
            let (target, mut bytes) = which.get(&kept).clone();
            if let Some(byte) = bytes.get_mut(position) {
                *byte = value;
            }
            let now = net.now;
            net.ends[target].handle_datagram(now, address(1 - target), &bytes, &mut net.apps[target]);
            start(&mut net, operation);
            net.run(MS / 20);
        }
        for end in [0, 1] {
            net.apps[end].buffers = None;
            let now = net.now;
            net.ends[end].buffers_returned(now, &mut net.apps[end]);
        }
        net.run(100 * SECOND);
        for end in 0..2 {
            let mut ended: Vec<u64> = net.apps[end].operations().iter().map(|(operation, _)| *operation).collect();
            let count = ended.len();
            ended.sort_unstable();
            ended.dedup();
            prop_assert_eq!(ended.len(), count, "no operation ends twice");
            let counters = net.ends[end].counters();
            let started = counters.rma_writes + counters.rma_reads + counters.atomics;
            prop_assert_eq!(count as u64, started, "every operation ends");
        }
        // A forged bundle may wait for ever for those before it: until the connection ends.
        for (end, key) in [(0, client), (1, server)] {
            let _ = net.ends[end].disconnect(net.now, key);
        }
        net.run(100 * SECOND);
        net.assert_clean();
    }

    /// Calls in any order, on a bad network, with little memory: every operation ends once and nothing leaks.
    #[test]
    fn any_order_of_calls_ends_well(
        seed in 0u64..10_000,
        calls in prop::collection::vec((0u8..14, any::<prop::sample::Index>(), 0usize..1400), 1..200),
        loss_pct in 0u64..30,
    ) {
        run_calls(seed, &calls, loss_pct);
    }
}

/// What the calls have started.
#[derive(Default)]
struct Started {
    keys: Vec<(usize, ConnKey)>,
    sends: [u64; 2],
    operations: [u64; 2],
}

impl Started {
    fn call(&mut self, net: &mut Net, call: u8, which: &prop::sample::Index, size: usize) {
        let (now, end) = (net.now, size % 2);
        match call {
            0 => {
                let attributes = [Attribute::ReliableOrdered, Attribute::ReliableUnordered];
                let (attribute, timeout_ns) = (attributes[size / 2 % 2], Some(SECOND));
                let key = net.ends[end].connect(now, address(1 - end), b"", attribute, 1, timeout_ns);
                self.keys.extend(key.map(|key| (end, key)));
            }
            1 => {
                let is_request = |event: &Event| matches!(event, Event::Request(_));
                while let Some(position) = net.apps[end].events.iter().position(is_request) {
                    let Event::Request(request) = net.apps[end].events.remove(position) else {
                        unreachable!()
                    };
                    self.keys.extend(net.ends[end].accept(now, request, 2).map(|key| (end, key)));
                }
            }
            3 => net.apps[end].buffers = if size.is_multiple_of(3) { None } else { Some(size % 5) },
            4 => net.ends[end].buffers_returned(now, &mut net.apps[end]),
            5 => net.cut = size.is_multiple_of(4),
            6 => net.run(size as u64 * MS),
            7 => net.run(size as u64 * 1000),
            8 if size.is_multiple_of(5) => net.apps[end].regions[0].gone ^= true,
            _ if self.keys.is_empty() => {}
            2 if size.is_multiple_of(3) => {
                let (end, key) = *which.get(&self.keys);
                let _ = net.ends[end].disconnect(now, key);
            }
            9 => {
                let (end, key) = *which.get(&self.keys);
                for _ in 0..size % 20 {
                    let context = self.sends[end];
                    let sent = net.ends[end].send(now, key, &[&vec![7; size]], context, false);
                    self.sends[end] += u64::from(sent.is_ok());
                }
            }
            _ => {
                let (end, key) = *which.get(&self.keys);
                for count in 0..size % 30 {
                    let operation = self.operations[end];
                    let kind = if size % 4 < 2 { RmaKind::Write } else { RmaKind::Read };
                    let len = if count.is_multiple_of(8) { size * 30 + 1 } else { size % 90 + 1 };
                    let note = vec![1; size];
                    let note = (count.is_multiple_of(4)).then_some(&note[..]);
                    let fence = size.is_multiple_of(11);
                    let segments = [segment(count, 0, len), segment(0, len, 9)];
                    let atomic =
                        Atomic { kind: AtomicKind::Add, width: AtomicWidth::Four, operand: 1, compare: 0 };
                    let done = if call == 13 {
                        net.ends[end].atomic(now, key, atomic, at(size), Some(at(0)), fence, operation)
                    } else {
                        net.ends[end].rma(now, key, kind, &segments, note, fence, operation)
                    };
                    self.operations[end] += u64::from(done.is_ok());
                }
            }
        }
    }
}

fn run_calls(seed: u64, calls: &[(u8, prop::sample::Index, usize)], loss_pct: u64) {
    let config = Config {
        memory_bytes_max: 400 << 10,
        sends_max: 512,
        operations_max: 200,
        first_seq: Some(u32::MAX - 3),
        send_timeout_ns: 2 * SECOND,
        ..Config::default()
    };
    let mut net = Net::new(seed, vec![config.clone(), config]);
    (net.loss_pct, net.repeat_pct, net.jitter_ns) = (loss_pct, 10, 300_000);
    for app in &mut net.apps {
        let region = Region { bytes: vec![1; 100_000], key: KEY, ..Region::default() };
        app.regions.push(Region { readable: true, writable: true, ..region });
    }
    let mut started = Started::default();
    for (call, which, size) in calls {
        started.call(&mut net, *call, which, *size);
        for end in &net.ends {
            assert!(end.memory().total_bytes() <= end.memory().cap_bytes);
        }
    }
    (net.cut, net.loss_pct) = (false, 0);
    for end in [0, 1] {
        net.apps[end].buffers = None;
        let now = net.now;
        net.ends[end].buffers_returned(now, &mut net.apps[end]);
    }
    net.run(20 * SECOND);
    for (end, key) in started.keys {
        let _ = net.ends[end].disconnect(net.now, key);
    }
    net.run(60 * SECOND);
    for end in [0, 1] {
        let mut contexts: Vec<u64> = net.apps[end].statuses().iter().map(|(context, _)| *context).collect();
        contexts.sort_unstable();
        assert_eq!(contexts, (0..started.sends[end]).collect::<Vec<_>>(), "each send completes once");
        let mut ended: Vec<u64> =
            net.apps[end].operations().iter().map(|(operation, _)| *operation).collect();
        ended.sort_unstable();
        assert_eq!(ended, (0..started.operations[end]).collect::<Vec<_>>(), "each operation ends once");
        assert_eq!(net.ends[end].connections(), 0);
    }
    net.assert_clean();
}
