//! The short paths do what the long ones do, to the byte.

use super::rma::{KEY, segment};
use super::*;

/// Bytes of the region that each end has where there are operations.
const REGION_BYTES: usize = 96 << 10;

/// What can be seen of a net.
#[derive(Debug, PartialEq)]
struct Seen {
    datagrams: Vec<(usize, Vec<u8>)>,
    messages: Vec<Vec<(ConnKey, Vec<u8>)>>,
    statuses: Vec<Vec<(u64, Status)>>,
    counters: Vec<Counters>,
    connections: Vec<String>,
    deadlines: Vec<Option<Time>>,
    memory: Vec<Vec<u8>>,
    /// What each end knew of its connection after each exchange.
    inner: Vec<String>,
}

/// How one run of the same exchanges differs from another.
#[derive(Copy, Clone, Debug)]
struct Course {
    seed: u64,
    attribute: Attribute,
    loss_pct: u64,
    takes_bundles: bool,
    /// Receive buffers at a time.
    buffers: Option<usize>,
    /// Whether writes and reads of remote memory are among the messages.
    has_operations: bool,
}

/// What an end knows of a connection: numbers, times and operations.
fn inner(end: &Endpoint, key: ConnKey) -> String {
    let Some(active) = end.connections.table.get(key).and_then(|conn| conn.active.as_deref()) else {
        return String::new();
    };
    let path = &active.paths.first;
    let rma = active.rma.as_deref().map(|rma| {
        let slots = rma.slots.map(|slot| (slot.waits, slot.issued_ticks, slot.missing));
        let head = end.connections.protocol.transfers.operations.get(rma.queue.head);
        let head = head.map(|op| (op.offset, op.bundles, op.slot));
        let jobs = rma.jobs.map(|job| (job.len, job.sent));
        (rma.ops, rma.unsent, rma.bulks(), rma.retry_ns, rma.progress, head, slots, jobs)
    });
    let times = (active.send_due, active.ack_due, active.used_at, active.heard_at, active.epoch_sent_at);
    let path = (path.in_flight_bytes, path.probe_due, path.pace_due, path.window.bytes());
    format!("{:?}", (active.tx, active.blocked, active.wants, active.ack_pending, times, path, rma))
}

/// Runs messages there and back, with others in between; returns what was seen and how many messages the short path sent.
fn exchange(course: Course, only_long: bool) -> (Seen, u64) {
    let mut net = Net::pair(course.seed);
    let keys = net.join(course.attribute);
    let keys = [keys.0, keys.1];
    net.keep = Some(Vec::new());
    (net.loss_pct, net.jitter_ns) = (course.loss_pct, 20_000);
    for end in 0..2 {
        net.ends[end].only_long = only_long;
        net.ends[end].connections.protocol.transfers.only_long = only_long;
        net.apps[end].takes_bundles = course.takes_bundles;
        let mut region = Region { key: KEY, readable: true, writable: true, ..Region::default() };
        region.bytes = (0..REGION_BYTES).map(|_| net.random(256) as u8).collect();
        net.apps[end].regions.push(region);
    }
    let (mut at_once, mut deadlines, mut inners) = (0, Vec::new(), Vec::new());
    let mut choice = course.seed;
    for context in 0..300 {
        choice = choice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(context);
        let word = choice >> 32;
        let end = usize::from(word & 1 != 0);
        let len = if word & 14 == 0 { word as usize % 1400 } else { word as usize % 40 };
        for app in &mut net.apps {
            app.buffers = course.buffers;
        }
        for end in &mut net.ends {
            end.set_default_send_timeout(if context % 100 < 80 { 0 } else { 3 * MS });
        }
        if course.has_operations && word & 7 == 3 {
            let kind = if word & 16 == 0 { RmaKind::Write } else { RmaKind::Read };
            let len = 1 + word as usize % (REGION_BYTES / 2);
            let segments = [segment(word as usize % 4099, context as usize * 7, len)];
            let message = (word & 32 == 0).then_some(&b"done"[..]);
            // One that finds no space is left out in both runs.
            let _ = net.ends[end].rma(net.now, keys[end], kind, &segments, message, word & 64 == 0, context);
        }
        let payload = vec![context as u8; len];
        let is_lone = net.ends[end].is_quiet(keys[end]);
        let short = !only_long && is_lone && net.send_at_once(end, keys[end], &payload, context);
        at_once += u64::from(short);
        if !short {
            net.send(end, keys[end], &payload, context);
            if is_lone {
                net.flush_into(end, 64);
            }
        }
        deadlines.extend(net.ends.iter().map(Endpoint::next_deadline));
        inners.extend(net.ends.iter().zip(keys).map(|(end, key)| inner(end, key)));
        net.run([1_000, 12_000, 30_000, 200_000, 2 * MS, 30 * MS][word as usize / 16 % 6]);
        inners.extend(net.ends.iter().zip(keys).map(|(end, key)| inner(end, key)));
        for end in 0..2 {
            let Net { ends, apps, now, .. } = &mut net;
            ends[end].buffers_returned(*now, &mut apps[end]);
        }
    }
    net.loss_pct = 0;
    net.apps.iter_mut().for_each(|app| app.buffers = None);
    for _ in 0..20 {
        net.run(SECOND / 10);
        for end in 0..2 {
            let Net { ends, apps, now, .. } = &mut net;
            ends[end].buffers_returned(*now, &mut apps[end]);
        }
    }
    let ends = || net.ends.iter();
    let seen = Seen {
        messages: net.apps.iter().map(|app| app.messages.clone()).collect(),
        statuses: net.apps.iter().map(App::statuses).collect(),
        counters: ends().map(|end| end.counters().clone()).collect(),
        connections: ends().zip(keys).map(|(end, key)| format!("{:?}", end.connection(key))).collect(),
        datagrams: net.keep.take().unwrap(),
        deadlines,
        memory: net.apps.iter().map(|app| app.regions[0].bytes.clone()).collect(),
        inner: inners,
    };
    (seen, at_once)
}

#[test]
fn a_short_path_does_what_the_long_one_does() {
    let (mut at_once, mut sent) = (0, 0);
    for seed in 0..48 {
        let course = Course {
            seed,
            attribute: [Attribute::ReliableOrdered, Attribute::ReliableUnordered][usize::from(seed % 5 == 4)],
            loss_pct: if seed % 3 == 0 { 4 } else { 0 },
            takes_bundles: seed % 2 == 0,
            buffers: if seed % 4 == 1 { Some(1) } else { None },
            has_operations: seed % 7 > 3,
        };
        let (long, _) = exchange(course, true);
        let (short, by_it) = exchange(course, false);
        for (number, (long, short)) in long.datagrams.iter().zip(&short.datagrams).enumerate() {
            assert_eq!(long, short, "datagram {number} of {course:?}");
        }
        for (number, (long, short)) in long.inner.iter().zip(&short.inner).enumerate() {
            assert_eq!(long, short, "state {number} of {course:?}");
        }
        assert_eq!(long, short, "{course:?}");
        (at_once, sent) = (at_once + by_it, sent + 300);
    }
    assert!(at_once > sent / 3, "the short path was taken {at_once} times of {sent}");
}

#[test]
fn data_of_an_operation_take_the_short_path() {
    for kind in [RmaKind::Write, RmaKind::Read] {
        let (mut net, client, server) = super::rma::pair(1, Attribute::ReliableUnordered, REGION_BYTES);
        net.ends[0].rma(net.now, client, kind, &[segment(0, 0, REGION_BYTES)], None, false, 7).unwrap();
        let (mut bulk, mut others) = (0, 0);
        while net.apps[0].operations().is_empty() && bulk + others < 1000 {
            for end in 0..2 {
                let mut out = Out::new(64);
                net.ends[end].poll_transmit(net.now, &mut out, &mut net.apps[end]);
                for (_, bytes) in out.sent {
                    let Net { ends, apps, now, .. } = &mut net;
                    let (to, from) = (1 - end, address(end));
                    if ends[to].connections.on_bulk(*now, from, &bytes, &mut apps[to]) {
                        bulk += 1;
                    } else {
                        others += 1;
                        ends[to].handle_datagram(*now, from, &bytes, &mut apps[to]);
                    }
                }
            }
            net.now = net.now.plus(30_000);
        }
        assert_eq!(net.region(0), net.region(1), "{kind:?}");
        assert!(bulk > others, "{kind:?}: {bulk} by the short path, {others} not");
        let _ = server;
    }
}
