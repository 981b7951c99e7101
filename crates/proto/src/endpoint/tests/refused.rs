//! Receivers that are not ready.

use super::*;

fn blocked_pair(seed: u64, attribute: Attribute) -> (Net, ConnKey, ConnKey) {
    let small = Config { memory_bytes_max: 400 << 10, sends_max: 1 << 12, ..Config::default() };
    let mut net = Net::new(seed, vec![Config::default(), small]);
    let (client, server) = net.join(attribute);
    net.apps[1].buffers = Some(0);
    (net, client, server)
}

fn give(net: &mut Net, count: usize) {
    net.apps[1].buffers = Some(count);
    let now = net.now;
    net.ends[1].buffers_returned(now, &mut net.apps[1]);
}

#[test]
fn a_slow_program_loses_nothing() {
    for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered] {
        for (seed, loss_pct) in [(1, 0), (2, 10), (3, 30)] {
            let (mut net, client, _) = blocked_pair(seed, attribute);
            net.loss_pct = loss_pct;
            let mut sent = 0u64;
            while net.apps[1].messages.len() < 2000 {
                while sent < 2000
                    && net.ends[0]
                        .send(net.now, client, &[&sent.to_le_bytes(), &[0; 400]], sent, false)
                        .is_ok()
                {
                    sent += 1;
                }
                net.run(5 * MS);
                give(&mut net, 17);
                assert!(net.now.0 < 2_000 * SECOND, "stuck at {}", net.apps[1].messages.len());
            }
            net.run_until(60 * SECOND, "all complete", |net| net.apps[0].statuses().len() == 2000);
            let mut got: Vec<u64> = net.apps[1]
                .messages
                .iter()
                .map(|(_, bytes)| u64::from_le_bytes(bytes[..8].try_into().unwrap()))
                .collect();
            if attribute == Attribute::ReliableUnordered {
                got.sort_unstable();
            }
            assert_eq!(got, (0..2000).collect::<Vec<_>>());
            assert!(net.apps[0].statuses().iter().all(|(_, status)| *status == Status::Success));
            assert!(net.ends[0].counters().rnr_received > 0, "the pool is small enough to run out");
            net.assert_clean();
        }
    }
}

#[test]
fn refused_for_too_long_is_reported_and_never_delivered() {
    for seed in 0..10 {
        let (mut net, client, _) = blocked_pair(seed, Attribute::ReliableOrdered);
        net.ends[0].set_send_timeout(client, SECOND).unwrap();
        (net.loss_pct, net.jitter_ns) = (seed % 3 * 10, 200_000);
        let mut sent = 0u64;
        while net.ends[0].send(net.now, client, &[&sent.to_le_bytes(), &[0; 700]], sent, false).is_ok() {
            sent += 1;
        }
        net.run(3 * SECOND);
        let refused: Vec<u64> = net.apps[0]
            .statuses()
            .iter()
            .filter(|(_, status)| *status == Status::ReceiverNotReady)
            .map(|(context, _)| *context)
            .collect();
        assert!(!refused.is_empty() && net.apps[0].statuses().len() as u64 == sent, "seed {seed}");
        assert!(!net.apps[0].has(|event| matches!(event, Event::Disconnected { .. })), "seed {seed}");
        // The connection lives: later messages arrive, those given up never do.
        net.apps[1].buffers = None;
        let now = net.now;
        net.ends[1].buffers_returned(now, &mut net.apps[1]);
        net.run(SECOND);
        net.send(0, client, &u64::MAX.to_le_bytes(), u64::MAX);
        net.run(SECOND);
        assert_eq!(net.apps[0].statuses().last(), Some(&(u64::MAX, Status::Success)), "seed {seed}");
        let got: Vec<u64> = net.apps[1]
            .messages
            .iter()
            .map(|(_, bytes)| u64::from_le_bytes(bytes[..8].try_into().unwrap()))
            .collect();
        assert!(got.is_sorted() && got.last() == Some(&u64::MAX));
        for (context, status) in net.apps[0].statuses() {
            assert_eq!(got.contains(&context), status == Status::Success, "seed {seed}, message {context}");
        }
        net.assert_clean();
    }
}

#[test]
fn only_the_sender_named_is_slowed() {
    // One connection fills its share and is refused; the other, whose program takes nothing either, still has room.
    let (mut net, client, _) = blocked_pair(5, Attribute::ReliableOrdered);
    let other = net.ends[0].connect(net.now, address(1), b"", Attribute::ReliableOrdered, 8, None).unwrap();
    net.serve(10);
    net.run(MS);
    let mut sent = 0;
    while net.ends[0].send(net.now, client, &[&[0; 1000]], sent, false).is_ok() && sent < 200 {
        sent += 1;
    }
    net.run(100 * MS);
    assert_eq!(net.ends[0].connection(client).unwrap().blocked, Some(Blocked::ReceiverNotReady));
    net.send(0, other, b"still room", 1000);
    net.run(100 * MS);
    assert!(net.apps[0].statuses().contains(&(1000, Status::Success)));
}

#[test]
fn unreliable_is_dropped_and_counted() {
    let (mut net, client, _) = blocked_pair(6, Attribute::Unreliable);
    for context in 0..10 {
        net.send(0, client, b"gone", context);
    }
    net.run(MS);
    assert_eq!(net.ends[1].counters().unreliable_drops, 10);
    assert!(net.apps[0].statuses().iter().all(|(_, status)| *status == Status::Success));
}

#[test]
fn outcomes_reported_before_a_close_stay_true() {
    for seed in 0..40 {
        let (mut net, client, _) = blocked_pair(seed, Attribute::ReliableOrdered);
        net.ends[0].set_send_timeout(client, SECOND).unwrap();
        (net.loss_pct, net.jitter_ns) = (20, 200_000);
        let mut sent = 0u64;
        while net.ends[0].send(net.now, client, &[&sent.to_le_bytes(), &[0; 700]], sent, false).is_ok() {
            sent += 1;
        }
        net.run(seed * 5 * MS);
        net.ends[0].disconnect(net.now, client).unwrap();
        net.run(8 * SECOND);
        assert_eq!(net.apps[0].statuses().len() as u64, sent, "seed {seed}");
        net.apps[1].buffers = None;
        let now = net.now;
        net.ends[1].buffers_returned(now, &mut net.apps[1]);
        net.run(SECOND);
        let got: Vec<u64> = net.apps[1]
            .messages
            .iter()
            .map(|(_, bytes)| u64::from_le_bytes(bytes[..8].try_into().unwrap()))
            .collect();
        assert!(got.is_sorted(), "seed {seed}");
        for (context, status) in net.apps[0].statuses() {
            match status {
                Status::Success => assert!(got.contains(&context), "seed {seed}, message {context}"),
                Status::ReceiverNotReady => {
                    assert!(!got.contains(&context), "seed {seed}, message {context}")
                }
                _ => {}
            }
        }
    }
}
