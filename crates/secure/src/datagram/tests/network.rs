//! Loss, repeats and reorder of everything.

use super::*;
use proptest::prelude::*;

/// What a network does, from a list of bytes: deterministic, so that it shrinks.
struct Script<'f> {
    bytes: std::iter::Cycle<std::slice::Iter<'f, u8>>,
}

impl Script<'_> {
    fn next(&mut self) -> u8 {
        *self.bytes.next().unwrap_or(&255)
    }
}

/// Both send to each other every 20 ms until each has got something, for at most 20 s. Answers when that was.
fn talk(nodes: &mut [Node; 2], script: &[u8], first: [u64; 2]) -> Option<u64> {
    let mut script = Script { bytes: script.iter().cycle() };
    let mut flying: Vec<(u64, Flying)> = Vec::new();
    for ms in 0..20_000u64 {
        let (now_ns, mut net) = (ms * MS, Vec::new());
        for (at, node) in nodes.iter_mut().enumerate() {
            node.tick(now_ns, &mut net);
            if ms >= first[at] && ms % 20 == first[at] % 20 {
                node.send(
                    2 - at as u32,
                    format!("{:07}{}", ms % 10_000_000, at).as_bytes(),
                    now_ns,
                    &mut net,
                );
            }
        }
        let (due, later): (Vec<_>, Vec<_>) = flying.into_iter().partition(|(at, _)| *at <= ms);
        flying = later;
        for (_, datagram) in due {
            let node = &mut nodes[datagram.to as usize - 1];
            node.receive(datagram, now_ns, &mut net);
        }
        for datagram in net {
            // A fifth is lost, a fifth comes twice; up to 12 ms on the way.
            let what = script.next();
            for _ in 0..[0, 2, 1, 1, 1][usize::from(what % 5)] {
                flying.push((ms + 1 + u64::from(script.next() % 12), datagram.clone()));
            }
        }
        if nodes.iter().all(|node| node.got.len() >= 3) {
            return Some(ms);
        }
    }
    None
}

fn check(nodes: &[Node; 2]) {
    for node in nodes {
        let mut bodies: Vec<_> = node.got.clone();
        bodies.sort();
        bodies.dedup();
        assert_eq!(bodies.len(), node.got.len(), "nothing comes twice");
        let other = usize::from(node.at == 1);
        assert!(node.got.iter().all(|(_, body)| body.ends_with(other.to_string().as_bytes())));
        assert_eq!(node.all.counters().malformed, 0);
    }
}

fn cases() -> u32 {
    std::env::var("CCI_SECURE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn they_find_each_other_all_the_same(script in prop::collection::vec(any::<u8>(), 20..60), second in 0u64..100) {
        // Something must get through.
        prop_assume!(script.iter().filter(|byte| *byte % 5 != 0).count() * 3 > script.len());
        for (one, two) in kinds() {
            let mut nodes = [Node::new(1, config(one)), Node::new(2, config(two))];
            let done = talk(&mut nodes, &script, [0, second]);
            prop_assert!(done.is_some(), "{:?} {:?}", nodes[0].all.counters, nodes[1].all.counters);
            check(&nodes);
        }
    }
}

/// By way of a satellite.
#[test]
fn a_slow_network_is_no_reason_to_begin_again_and_again() {
    for (one, two) in kinds() {
        let mut nodes = [Node::new(1, config(one)), Node::new(2, config(two))];
        let mut flying: Vec<(u64, Flying)> = Vec::new();
        for ms in 0..5000_u64 {
            let mut net = Vec::new();
            if ms == 0 {
                nodes[0].send(2, b"message0", 0, &mut net);
            }
            for node in &mut nodes {
                node.tick(ms * MS, &mut net);
            }
            let (due, later): (Vec<_>, Vec<_>) = flying.into_iter().partition(|(at, _)| *at <= ms);
            flying = later;
            for (_, datagram) in due {
                nodes[datagram.to as usize - 1].receive(datagram, ms * MS, &mut net);
            }
            flying.extend(net.into_iter().map(|datagram| (ms + 300, datagram)));
        }
        assert_eq!(nodes[1].got, [(1, b"message0".to_vec())], "{:?}", nodes[0].all.counters);
    }
}

#[test]
fn both_begin_at_once() {
    for (one, two) in kinds() {
        for _ in 0..20 {
            let mut nodes = [Node::new(1, config(one.clone())), Node::new(2, config(two.clone()))];
            let done = talk(&mut nodes, &[2, 0], [0, 0]).unwrap();
            assert!(done < 150, "{done} ms");
            check(&nodes);
            let both: u64 = nodes.iter().map(|node| node.all.counters().handshakes).sum();
            assert_eq!(both, 2, "one association, known to both");
        }
    }
}

#[test]
fn keys_change_while_datagrams_overtake_each_other() {
    let update = UpdateLimits { records: 5, age_ns: u64::MAX };
    let of = |name| Config { update, ..config(psk(&[name])) };
    let mut nodes = [Node::new(1, of("a")), Node::new(2, of("a"))];
    let mut net = Vec::new();
    nodes[0].send(2, b"first...", 0, &mut net);
    settle(&mut nodes, 0, &mut net);
    let (mut waits, mut sent) = (Vec::new(), 1);
    for round in 0..400u64 {
        nodes[0].send(2, &round.to_le_bytes(), MS, &mut net);
        sent += 1;
        waits.append(&mut net);
        // Every datagram but the fourth overtakes up to four.
        if waits.len() >= 4 {
            let datagram = waits.remove((round * 7 % 4) as usize);
            nodes[1].receive(datagram, MS, &mut net);
        }
    }
    for datagram in waits {
        nodes[1].receive(datagram, MS, &mut net);
    }
    assert_eq!(nodes[1].got.len(), sent);
    assert_eq!(nodes[1].all.counters().forged, 0);
}

#[test]
fn the_association_is_forgotten_when_nobody_uses_it() {
    for (one, two) in kinds() {
        let mut nodes = [Node::new(1, config(one)), Node::new(2, config(two))];
        let (mut net, mut now) = (Vec::new(), 0);
        nodes[0].send(2, b"message0", 0, &mut net);
        settle(&mut nodes, 0, &mut net);
        nodes[1].all.retain(1);
        pass(&mut nodes, &mut now, 70_000 * MS);
        assert_eq!((nodes[0].all.len(), nodes[1].all.len()), (0, 1));
        assert_eq!((nodes[0].all.addresses.len(), nodes[0].all.next_deadline_ns()), (0, None), "it rests");
        // The other side finds out and makes another one.
        for _ in 0..100 {
            nodes[1].send(1, b"message1", now, &mut net);
            settle(&mut nodes, now, &mut net);
            pass(&mut nodes, &mut now, 20 * MS);
        }
        assert!(nodes[0].got.len() > 50, "{}", nodes[0].got.len());
        nodes[1].all.release(1);
        pass(&mut nodes, &mut now, 70_000 * MS);
        assert_eq!((nodes[0].all.len(), nodes[1].all.len()), (0, 0));
    }
}
