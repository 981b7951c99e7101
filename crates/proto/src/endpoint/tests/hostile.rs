//! Bytes and peers that mean harm: nothing panics, memory stays under its cap, every send completes once.

use super::*;
use proptest::prelude::*;

/// Keeps every datagram of a conversation, to change and replay it.
fn conversation(seed: u64, attribute: Attribute) -> (Net, ConnKey, ConnKey, Vec<(usize, Vec<u8>)>) {
    let mut net = Net::pair(seed);
    net.keep = Some(Vec::new());
    let (client, server) = net.join(attribute);
    for context in 0..20 {
        net.send(0, client, &[1; 500], context);
        net.send(1, server, &[2; 90], context);
        net.run(MS / 10);
    }
    let kept = net.keep.take().expect("kept");
    (net, client, server, kept)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Real datagrams with the right nonces, changed in a few places, at a connection with everything in flight.
    #[test]
    fn changed_datagrams_do_no_harm(
        seed in 0u64..1000,
        attribute in prop_oneof![
            Just(Attribute::ReliableOrdered), Just(Attribute::ReliableUnordered), Just(Attribute::Unreliable)
        ],
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0usize..80, any::<u8>()), 1..200),
        buffers in prop_oneof![Just(None), (0usize..20).prop_map(Some)],
    ) {
        let (mut net, client, _, kept) = conversation(seed, attribute);
        net.apps[0].buffers = buffers;
        net.apps[1].buffers = buffers;
        let mut context = 100;
        for (which, position, value) in changes {
            let (target, mut bytes) = which.get(&kept).clone();
            if let Some(byte) = bytes.get_mut(position) {
                *byte = value;
            }
            let now = net.now;
            net.ends[target].handle_datagram(now, address(1 - target), &bytes, &mut net.apps[target]);
            if net.ends[0].send(net.now, client, &[&[3; 700]], context, false).is_ok() {
                context += 1;
            }
            net.run(MS / 20);
        }
        for end in [0, 1] {
            net.apps[end].buffers = None;
            let now = net.now;
            net.ends[end].buffers_returned(now, &mut net.apps[end]);
        }
        net.run(100 * SECOND);
        let mut statuses: Vec<u64> =
            net.apps[0].statuses().iter().map(|(context, _)| *context).filter(|context| *context >= 100).collect();
        let count = statuses.len() as u64;
        statuses.sort_unstable();
        statuses.dedup();
        prop_assert_eq!(statuses.len() as u64, count, "no send completes twice");
        prop_assert_eq!(count, context - 100, "every send completes");
        net.assert_clean();
    }

    /// Bytes from anywhere.
    #[test]
    fn noise_does_no_harm(noise in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..100)) {
        let mut net = Net::pair(1);
        net.join(Attribute::ReliableOrdered);
        for mut bytes in noise {
            if let Some(first) = bytes.first_mut() {
                *first = 1 << 4 | *first & 15;
            }
            let now = net.now;
            net.ends[1].handle_datagram(now, address(0), &bytes, &mut net.apps[1]);
        }
        prop_assert!(net.ends[1].counters().faults() > 0);
    }

    /// Calls in any order, on a bad network, with a small pool: every operation ends once and nothing leaks.
    #[test]
    fn any_order_of_calls_ends_well(
        seed in 0u64..10_000,
        calls in prop::collection::vec((0u8..12, any::<prop::sample::Index>(), 0usize..1400), 1..250),
        loss_pct in 0u64..30,
    ) {
        run_calls(seed, &calls, loss_pct);
    }
}

fn run_calls(seed: u64, calls: &[(u8, prop::sample::Index, usize)], loss_pct: u64) {
    let config = Config {
        memory_bytes_max: 300 << 10,
        sends_max: 512,
        first_seq: Some(u32::MAX - 3),
        send_timeout_ns: 2 * SECOND,
        ..Config::default()
    };
    let mut net = Net::new(seed, vec![config.clone(), config]);
    (net.loss_pct, net.repeat_pct, net.jitter_ns) = (loss_pct, 10, 300_000);
    let mut started = [0u64; 2];
    let mut keys: Vec<(usize, ConnKey)> = Vec::new();
    let attributes = [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable];
    for (call, which, size) in calls {
        let end = size % 2;
        let now = net.now;
        match call {
            0 => {
                let attribute = attributes[size % 3];
                let timeout_ns = Some(SECOND);
                keys.extend(
                    net.ends[end]
                        .connect(now, address(1 - end), &[9; 300], attribute, 1, timeout_ns)
                        .map(|key| (end, key)),
                );
            }
            1 => {
                let is_request = |event: &Event| matches!(event, Event::Request(_));
                while let Some(position) = net.apps[end].events.iter().position(is_request) {
                    let Event::Request(request) = net.apps[end].events.remove(position) else {
                        unreachable!()
                    };
                    if size % 7 == 0 {
                        net.ends[end].reject(now, request);
                    } else {
                        keys.extend(net.ends[end].accept(now, request, 2).map(|key| (end, key)));
                    }
                }
            }
            2 if !keys.is_empty() && size % 3 == 0 => {
                let (end, key) = *which.get(&keys);
                let _ = net.ends[end].disconnect(now, key);
            }
            3 => net.apps[end].buffers = if size % 3 == 0 { None } else { Some(size % 5) },
            4 => net.ends[end].buffers_returned(now, &mut net.apps[end]),
            5 => net.cut = size % 4 == 0,
            6 => net.run(*size as u64 * MS),
            7 => net.run(*size as u64 * 1000),
            _ if !keys.is_empty() => {
                let (end, key) = *which.get(&keys);
                for _ in 0..size % 40 {
                    let context = started[end];
                    if net.ends[end].send(now, key, &[&vec![7; *size]], context, false).is_ok() {
                        started[end] += 1;
                    }
                }
            }
            _ => {}
        }
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
    for (end, key) in keys {
        let _ = net.ends[end].disconnect(net.now, key);
    }
    net.run(60 * SECOND);
    for end in [0, 1] {
        let mut contexts: Vec<u64> = net.apps[end].statuses().iter().map(|(context, _)| *context).collect();
        contexts.sort_unstable();
        assert_eq!(contexts, (0..started[end]).collect::<Vec<_>>(), "each send completes once");
        let count =
            |wanted: fn(&Event) -> bool| net.apps[end].events.iter().filter(|event| wanted(event)).count();
        let ended = count(|event| {
            matches!(event, Event::Closed { .. } | Event::ConnectFailed { .. } | Event::AcceptFailed { .. })
        });
        assert_eq!(net.ends[end].connections(), 0, "{ended} ended");
    }
    net.assert_clean();
}

/// A connection that was asked for under a seal is never answered, used or ended in the clear, by whoever knows every
/// byte of it; nor is a plain one by what comes sealed.
//= wire.md R-HS-10
#[test]
fn sealed_and_plain_are_apart() {
    for sealed in [true, false] {
        let mut net = Net::pair(5);
        net.sealed = sealed;
        net.keep = Some(Vec::new());
        let (client, server) = net.join(Attribute::ReliableOrdered);
        net.send(0, client, b"once", 1);
        net.run(MS);
        net.ends[0].disconnect(net.now, client).expect("open");
        net.ends[1].disconnect(net.now, server).expect("open");
        net.run(SECOND);
        let kept = net.keep.take().expect("kept");

        // The same again from the same secrets, with the answers of the other kind only, in every state of the client.
        let mut again = Net::pair(5);
        again.sealed = sealed;
        again.now = Time(1_000_000_000_000);
        let to = address(1).with_secured(sealed);
        let dialed = again.ends[0].connect(again.now, to, b"hello", Attribute::ReliableOrdered, 7, None);
        assert_eq!(dialed, Ok(client));
        let to_client: Vec<&Vec<u8>> =
            kept.iter().filter(|(target, _)| *target == 0).map(|(_, bytes)| bytes).collect();
        assert!(to_client.len() > 3, "RETRY, ACCEPT, ACK, CLOSE");
        for bytes in to_client {
            let (now, other) = (again.now, address(1).with_secured(!sealed));
            again.ends[0].handle_datagram(now, other, bytes, &mut again.apps[0]);
        }
        let state = |net: &Net| net.ends[0].connection(client).map(|info| (info.state, info.heard));
        assert_eq!(state(&again), Some((ConnState::Dialing, false)));
        assert!(again.apps[0].events.is_empty() && again.ends[0].counters().faults() > 0);

        again.serve(9);
        again.run_until(SECOND, "connected", |net| {
            net.apps[0].has(|event| matches!(event, Event::Connected { .. }))
        });
        for (target, bytes) in &kept {
            let (now, other) = (again.now, address(1 - target).with_secured(!sealed));
            again.ends[*target].handle_datagram(now, other, bytes, &mut again.apps[*target]);
        }
        assert_eq!(state(&again).map(|(state, _)| state), Some(ConnState::Up));
        assert!(again.apps.iter().all(|app| app.messages.is_empty()));
        assert!(!again.apps[0].has(|event| matches!(event, Event::Disconnected { .. })));
    }
}
