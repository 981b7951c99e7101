//! Messages that are sent in bursts, and complete in runs.

use super::*;
use crate::limits::RECORDS_MAX;
use std::collections::BTreeMap;

/// Messages with these numbers in front, `len` bytes each.
fn numbered(numbers: std::ops::Range<u64>, len: impl Fn(u64) -> usize) -> Vec<Vec<u8>> {
    let message = |number: u64| {
        let mut bytes = vec![number as u8; len(number).max(8)];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    numbers.map(message).collect()
}

fn numbers(app: &App) -> Vec<u64> {
    app.messages.iter().map(|(_, bytes)| u64::from_le_bytes(bytes[..8].try_into().unwrap())).collect()
}

fn burst(net: &mut Net, conn: ConnKey, messages: &[Vec<u8>], context: u64) -> u32 {
    let slices: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let taken = net.ends[0].send_burst(net.now, conn, &slices, usize::MAX, context, false);
    let bytes: usize = messages[..taken.messages as usize].iter().map(Vec::len).sum();
    assert_eq!(taken.bytes, bytes as u64);
    taken.messages
}

/// How many messages of each burst ended how.
fn ends(app: &App) -> BTreeMap<u64, Vec<Status>> {
    let mut ends = BTreeMap::<u64, Vec<Status>>::new();
    for (context, status) in app.statuses() {
        ends.entry(context).or_default().push(status);
    }
    ends
}

#[test]
fn a_burst_leaves_in_as_few_datagrams_as_it_fits_and_completes_in_runs() {
    for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable] {
        let mut net = Net::pair(1);
        let (client, _) = net.join(attribute);
        net.run(SECOND / 2);
        let before = net.ends[0].counters().bundles_received + net.ends[1].counters().bundles_received;
        assert_eq!(burst(&mut net, client, &numbered(0..32, |_| 8), 5), 32);
        assert_eq!(net.ends[0].sends_held_by(client), 32);
        assert_eq!(net.ends[0].sends_in_progress_on(client), 32);
        net.run(SECOND / 2);
        let after = net.ends[0].counters().bundles_received + net.ends[1].counters().bundles_received;
        assert_eq!(after - before, 1, "{attribute:?}");
        assert_eq!(numbers(&net.apps[1]), (0..32).collect::<Vec<_>>());
        let is_run = |event: &Event| {
            matches!(event, Event::Sent { context: 5, status: Status::Success, count: 32, .. })
        };
        assert_eq!(net.apps[0].events.iter().filter(|event| is_run(event)).count(), 1, "{attribute:?}");
        assert_eq!(net.ends[0].sends_held_by(client), 0);
        net.assert_clean();
    }
}

#[test]
fn messages_of_every_size_go_in_bursts() {
    let mut net = Net::pair(2);
    let (client, _) = net.join(Attribute::ReliableOrdered);
    let max = net.ends[0].connection(client).unwrap().message_bytes_max;
    let all: Vec<Vec<u8>> = (0..=max).map(|len| (0..len).map(|at| (at * 3 + len) as u8).collect()).collect();
    let mut rest = all.as_slice();
    while !rest.is_empty() {
        let taken = burst(&mut net, client, rest, 1) as usize;
        rest = &rest[taken..];
        net.run(MS);
        assert!(net.now.0 < 2_000 * SECOND, "stuck with {} left", rest.len());
    }
    net.run(SECOND);
    let got: Vec<&[u8]> = net.apps[1].messages.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    assert_eq!(got, all);
    // A message that is too long ends what is taken, and `send` says why.
    let long = [vec![1; 8], vec![2; max + 1], vec![3; 8]];
    assert_eq!(burst(&mut net, client, &long, 2), 1);
    assert_eq!(burst(&mut net, client, &long[1..], 2), 0);
    assert_eq!(net.ends[0].send(net.now, client, &[&long[1]], 2, false), Err(SendError::TooLong { max }));
    let slices = [long[0].as_slice(), &long[0], &long[0]];
    assert_eq!(net.ends[0].send_burst(net.now, client, &slices, 7, 2, false), Taken::default());
    net.run(SECOND);
    net.assert_clean();
}

#[test]
fn bursts_pass_a_path_that_has_become_narrow() {
    let mut net = Net::pair(6);
    let (client, _) = net.join(Attribute::ReliableOrdered);
    let max = net.ends[0].connection(client).unwrap().message_bytes_max;
    net.ends[0].path_mtu_changed(net.now, address(1), 1152);
    let messages = numbered(0..60, |number| if number % 3 == 0 { max } else { 8 });
    let mut rest = messages.as_slice();
    while !rest.is_empty() {
        let taken = burst(&mut net, client, rest, 1) as usize;
        rest = &rest[taken..];
        net.run(MS);
        assert!(net.now.0 < 2_000 * SECOND, "stuck with {} left", rest.len());
    }
    net.run(SECOND);
    assert_eq!(numbers(&net.apps[1]), (0..60).collect::<Vec<_>>());
    assert!(net.ends[0].counters().parts_sent >= 40, "long ones leave in parts");
    assert_eq!(net.apps[0].statuses(), vec![(1, Status::Success); 60]);
    net.assert_clean();
}

/// Bursts of all lengths, and lone messages between them, on a bad network.
#[test]
fn runs_complete_once_whatever_is_lost() {
    let attributes = [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable];
    for (seed, attribute) in (0..48).zip(attributes.into_iter().cycle()) {
        let mut net = Net::pair(seed);
        net.apps[1].takes_bundles = seed % 2 == 1;
        (net.loss_pct, net.repeat_pct, net.jitter_ns) = (seed % 4 * 10, 5, 400_000);
        let (client, _) = net.join(attribute);
        let (mut sent, mut context) = (0u64, 0);
        let mut counts = BTreeMap::new();
        while sent < 4_000 {
            let (wanted, len) = (1 + net.random(300), net.random(40) as usize);
            let messages = numbered(sent..sent + wanted, |number| (number as usize * 7 % 5) * len);
            let taken = burst(&mut net, client, &messages, context);
            if taken > 0 {
                counts.insert(context, taken as usize);
            }
            (sent, context) = (sent + u64::from(taken), context + 1);
            if net.random(3) == 0 {
                net.send(0, client, &sent.to_le_bytes(), context);
                counts.insert(context, 1);
                (sent, context) = (sent + 1, context + 1);
            }
            let pause_ns = net.random(MS);
            net.run(pause_ns);
            assert!(net.now.0 < 3_000 * SECOND, "seed {seed}: stuck at {sent}");
        }
        net.run_until(600 * SECOND, "all complete", |net| net.apps[0].statuses().len() as u64 == sent);
        net.run(SECOND);
        let ended = ends(&net.apps[0]);
        let ended_counts: BTreeMap<u64, usize> =
            ended.iter().map(|(&context, statuses)| (context, statuses.len())).collect();
        assert_eq!(ended_counts, counts, "seed {seed}");
        assert!(ended.values().flatten().all(|status| *status == Status::Success), "seed {seed}");
        let mut got = numbers(&net.apps[1]);
        match attribute {
            Attribute::ReliableOrdered => {
                let contexts: Vec<u64> =
                    net.apps[0].statuses().into_iter().map(|(context, _)| context).collect();
                assert!(contexts.is_sorted(), "seed {seed}: completions in order");
                assert_eq!(got, (0..sent).collect::<Vec<_>>(), "seed {seed}");
            }
            Attribute::ReliableUnordered => {
                got.sort_unstable();
                assert_eq!(got, (0..sent).collect::<Vec<_>>(), "seed {seed}");
            }
            Attribute::Unreliable => {
                let count = got.len();
                got.sort_unstable();
                got.dedup();
                assert_eq!(got.len(), count, "seed {seed}: none twice");
            }
        }
        assert_eq!(net.apps[1].bundles_taken > 0, seed % 2 == 1, "seed {seed}");
        assert_eq!(net.ends[1].counters().messages_received, net.apps[1].messages.len() as u64);
        net.assert_clean();
    }
}

#[test]
fn what_is_refused_in_the_middle_of_a_run_is_delivered_or_not_as_its_status_says() {
    for seed in 0..12 {
        let attribute = if seed % 2 == 0 { Attribute::ReliableOrdered } else { Attribute::ReliableUnordered };
        let small = Config { memory_bytes_max: 400 << 10, sends_max: 1 << 12, ..Config::default() };
        let mut net = Net::new(seed, vec![Config::default(), small]);
        let (client, _) = net.join(attribute);
        net.apps[1].buffers = Some(45);
        net.apps[1].takes_bundles = seed % 3 == 1;
        net.ends[0].set_send_timeout(client, SECOND).unwrap();
        (net.loss_pct, net.jitter_ns) = (seed % 3 * 10, 200_000);
        let (mut sent, mut context) = (0u64, 0);
        let mut bursts = Vec::new();
        loop {
            let taken = burst(&mut net, client, &numbered(sent..sent + 100, |_| 200), context);
            bursts.push(sent..sent + u64::from(taken));
            (sent, context) = (sent + u64::from(taken), context + 1);
            if taken == 0 {
                break;
            }
        }
        net.run(4 * SECOND);
        assert_eq!(net.apps[0].statuses().len() as u64, sent, "seed {seed}");
        assert!(!net.apps[0].has(|event| matches!(event, Event::Disconnected { .. })), "seed {seed}");
        // What was given up never comes, and what is held comes.
        net.apps[1].buffers = None;
        let now = net.now;
        net.ends[1].buffers_returned(now, &mut net.apps[1]);
        net.run(SECOND);
        let got = numbers(&net.apps[1]);
        let mut refused = 0;
        for (context, statuses) in ends(&net.apps[0]) {
            let range = &bursts[context as usize];
            let delivered = got.iter().filter(|number| range.contains(number)).count();
            let succeeded = statuses.iter().filter(|status| **status == Status::Success).count();
            assert_eq!((delivered, statuses.len()), (succeeded, range.clone().count()), "seed {seed}");
            refused += statuses.iter().filter(|status| **status == Status::ReceiverNotReady).count();
        }
        assert!(refused > 0 && got.len() > 45, "seed {seed}: {refused} refused, {} came", got.len());
        assert_eq!(net.ends[0].counters().sends_failed, refused as u64);
        net.send(0, client, &u64::MAX.to_le_bytes(), u64::MAX);
        net.run(SECOND);
        assert_eq!(net.apps[0].statuses().last(), Some(&(u64::MAX, Status::Success)), "seed {seed}");
        net.assert_clean();
    }
}

#[test]
fn runs_end_with_their_connection() {
    for cut in [true, false] {
        let mut net = Net::pair(3);
        let (client, server) = net.join(Attribute::ReliableOrdered);
        net.cut = cut;
        let all = 3 * u64::from(RECORDS_MAX);
        assert_eq!(u64::from(burst(&mut net, client, &numbered(0..all, |_| 8), 4)), all);
        let slices: Vec<&[u8]> = vec![b"silent"; 10];
        assert_eq!(net.ends[0].send_burst(net.now, client, &slices, 100, 5, true).messages, 10);
        assert_eq!(net.ends[0].sends_in_progress_on(client), all as u32, "without the silent ones");
        assert_eq!(net.ends[0].sends_held_by(client), all as u32 + 10);
        if !cut {
            net.ends[1].disconnect(net.now, server).unwrap();
        }
        net.run(200 * SECOND);
        let statuses = net.apps[0].statuses();
        let status = if cut { Status::TimedOut } else { Status::Disconnected };
        assert_eq!(statuses, vec![(4, status); all as usize], "cut: {cut}");
        assert_eq!(net.ends[0].counters().sends_failed, all + 10, "silent ones are counted");
        assert_eq!(net.ends[0].sends_in_progress(), 0);
        assert_eq!(burst(&mut net, client, &numbered(0..3, |_| 8), 6), 0, "it is over");
        net.assert_clean();
    }
}

#[test]
fn each_message_of_a_burst_counts_where_sends_are_limited() {
    let few = Config { sends_max: 100, ..Config::default() };
    let mut net = Net::new(4, vec![few, Config::default()]);
    let (client, _) = net.join(Attribute::ReliableOrdered);
    let messages = numbered(0..200, |_| 8);
    assert_eq!(burst(&mut net, client, &messages, 1), 100, "one connection may have all");
    assert_eq!(net.ends[0].send(net.now, client, &[b"x"], 2, false), Err(SendError::WouldBlock));
    net.run(SECOND);
    let other = net.ends[0].connect(net.now, address(1), b"", Attribute::ReliableOrdered, 8, None).unwrap();
    net.serve(10);
    net.run(MS);
    // What one connection may begin in one go is what it may begin one by one.
    for taken_before in [0, 30] {
        let mut one_by_one = 0;
        for conn in [client, other] {
            assert_eq!(burst(&mut net, conn, &messages[..taken_before], 3), taken_before as u32);
        }
        while net.ends[0].send(net.now, client, &[b"12345678"], 3, false).is_ok() {
            one_by_one += 1;
        }
        net.run(SECOND);
        for conn in [client, other] {
            assert_eq!(burst(&mut net, conn, &messages[..taken_before], 3), taken_before as u32);
        }
        assert_eq!(burst(&mut net, client, &messages, 3), one_by_one);
        net.run(SECOND);
    }
    net.assert_clean();
}
