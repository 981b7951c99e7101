//! What somebody else may send, who has no key but may see everything.

use super::*;

fn exchange(credentials: &(Credentials, Credentials)) -> ([Node; 2], Vec<Flying>) {
    let (one, two) = credentials.clone();
    let mut nodes = [Node::new(1, config(one)), Node::new(2, config(two))];
    let (mut net, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        nodes[0].send(2, b"message0", 0, &mut net);
        seen.extend(settle(&mut nodes, 0, &mut net));
        nodes[1].send(1, b"answer.0", 0, &mut net);
        seen.extend(settle(&mut nodes, 0, &mut net));
    }
    assert_eq!((nodes[0].got.len(), nodes[1].got.len()), (3, 3));
    (nodes, seen)
}

#[test]
fn what_was_recorded_is_not_taken_again_nor_answered() {
    for credentials in kinds() {
        let (mut nodes, seen) = exchange(&credentials);
        let is_psk = credentials.0.method() == Method::Psk;
        let mut answered = 0;
        for now in [0, 100 * MS, 6000 * MS, 20_000 * MS] {
            for datagram in &seen {
                let mut net = Vec::new();
                let node = nodes.iter_mut().find(|node| node.at == datagram.to).unwrap();
                node.receive(datagram.clone(), now, &mut net);
                answered += net.iter().map(|answer| answer.bytes.len()).sum::<usize>();
                assert!(
                    net.iter().all(|answer| answer.bytes.len() <= datagram.bytes.len()),
                    "no amplification"
                );
            }
        }
        assert_eq!((nodes[0].got.len(), nodes[1].got.len()), (3, 3));
        // Certificates: a cookie, for whoever asks.
        assert!(answered == 0 || !is_psk, "{answered} bytes");
        assert!(nodes.iter().all(|node| node.all.len() == 1 && node.all.in_progress.is_empty()));
    }
}

#[test]
fn what_comes_back_is_not_answered_and_ends_nothing() {
    for (one, two) in kinds() {
        let mut nodes = [Node::new(1, config(one)), Node::new(2, config(two))];
        let mut net = Vec::new();
        nodes[0].send(2, b"message0", 0, &mut net);
        let mut came_back = 0;
        for _ in 0..20 {
            let flying = std::mem::take(&mut net);
            // Whoever is between them gives the first side all that it says, as if the second had said it.
            for datagram in flying {
                if datagram.to == 2 {
                    let mut answers = Vec::new();
                    let back = Flying { from: 2, to: 1, bytes: datagram.bytes.clone() };
                    nodes[0].receive(back, 0, &mut answers);
                    assert!(answers.is_empty(), "{answers:?}");
                    came_back += 1;
                }
                let to = nodes.iter_mut().find(|node| node.at == datagram.to).unwrap();
                to.receive(datagram, 0, &mut net);
            }
        }
        assert!(came_back > 2);
        assert_eq!(nodes[1].got, [(1, b"message0".to_vec())]);
        let counters = nodes[0].all.counters();
        assert_eq!((counters.handshakes, counters.cookies), (1, 0), "{counters:?}");
    }
}

#[test]
fn recorded_ones_get_no_state_elsewhere() {
    for credentials in kinds() {
        let (_, seen) = exchange(&credentials);
        // Another endpoint with the same credentials, which has seen none of it.
        let mut fresh = Node::new(2, config(credentials.1.clone()));
        let mut net = Vec::new();
        for datagram in seen.iter().filter(|datagram| datagram.to == 2) {
            let len = datagram.bytes.len();
            fresh.receive(datagram.clone(), 0, &mut net);
            fresh.receive(Flying { from: 9, ..datagram.clone() }, 0, &mut net);
            assert!(net.drain(..).all(|answer| answer.bytes.len() <= len));
        }
        assert_eq!(fresh.all.table.len() + fresh.all.addresses.len(), 0);
        assert!(fresh.all.counters().cookies <= 4, "{:?}", fresh.all.counters());
        assert!(fresh.got.is_empty());
    }
}

#[test]
fn every_flipped_bit_of_a_sealed_datagram_is_refused() {
    let (mut nodes, seen) = exchange(&kinds()[0]);
    let mut net = Vec::new();
    nodes[0].send(2, b"the real", 0, &mut net);
    let real = net.pop().unwrap();
    for bit in 0..real.bytes.len() * 8 {
        let mut wrong = real.clone();
        wrong.bytes[bit / 8] ^= 1 << (bit % 8);
        nodes[1].receive(wrong, 0, &mut net);
    }
    assert!(net.is_empty() && nodes[1].got.len() == 3);
    nodes[1].receive(real.clone(), 0, &mut net);
    assert_eq!(nodes[1].got.last().unwrap().1, b"the real");
    // Nor is it taken from another address, or by the one who sent it.
    nodes[1].receive(Flying { from: 3, ..real.clone() }, 0, &mut net);
    nodes[0].receive(Flying { from: 2, to: 1, ..real }, 0, &mut net);
    assert_eq!((nodes[0].got.len(), nodes[1].got.len(), seen.len() > 8), (3, 4, true));
}

/// Every bit of every datagram of a handshake, in its place: there is an association at the end all the same, and never one
/// that gives wrong data.
#[test]
fn every_flipped_bit_of_a_handshake_is_survived() {
    for (one, two) in kinds() {
        let is_psk = one.method() == Method::Psk;
        let step = if is_psk { 5 } else { 611 };
        for bit in (0..8 * 1200).step_by(step) {
            for which in 0..if is_psk { 4 } else { 6 } {
                let mut nodes = [Node::new(1, config(one.clone())), Node::new(2, config(two.clone()))];
                let (mut net, mut now, mut flown) = (Vec::new(), 0, 0);
                nodes[0].send(2, b"message0", 0, &mut net);
                let mut hit = false;
                for _ in 0..30 {
                    for mut datagram in std::mem::take(&mut net) {
                        if flown == which && bit / 8 < datagram.bytes.len() {
                            datagram.bytes[bit / 8] ^= 1 << (bit % 8);
                            hit = true;
                        }
                        flown += 1;
                        let at = usize::from(datagram.to == 2);
                        nodes[at].receive(datagram, now, &mut net);
                    }
                }
                if !hit {
                    continue;
                }
                // Both go on sending, as protocols do.
                for _ in 0..400 {
                    if nodes[1].got.len() > 1 && nodes[0].got.len() > 1 {
                        break;
                    }
                    now += 20 * MS;
                    for node in &mut nodes {
                        node.tick(now, &mut net);
                        node.send(3 - node.at, b"message0", now, &mut net);
                    }
                    settle(&mut nodes, now, &mut net);
                }
                for node in &nodes {
                    assert!(
                        node.got.len() > 1,
                        "bit {bit} of {which}: {:?} {:?}",
                        nodes[0].all.counters,
                        nodes[1].all.counters
                    );
                    assert!(node.got.iter().all(|(_, body)| body == b"message0"));
                }
            }
        }
    }
}

#[test]
fn strangers_get_nothing_from_keys_and_little_from_certificates() {
    for (one, two) in kinds() {
        let mut nodes = [Node::new(1, config(one)), Node::new(2, config(two))];
        let is_psk = nodes[1].all.config.credentials.method() == Method::Psk;
        let mut net = Vec::new();
        nodes[0].send(2, b"message0", 0, &mut net);
        let first = net.pop().unwrap();
        for bit in 0..first.bytes.len() * 8 {
            let mut wrong = first.clone();
            wrong.bytes[bit / 8] ^= 1 << (bit % 8);
            wrong.from = 1000 + bit as u32;
            nodes[1].receive(wrong, 0, &mut net);
        }
        let answers = net.len();
        assert!(net.iter().all(|answer| answer.bytes.len() <= super::super::wire::COOKIE_DATAGRAM_BYTES));
        // Keys: only what is not part of the first message can differ: the initiator's index, what it says it has got.
        assert!(!is_psk || answers <= 1, "{answers}");
        assert_eq!(nodes[1].all.table.len() + nodes[1].all.addresses.len(), 0, "no state");
        // What looks like a datagram, and isn't.
        for kind in 0..=255u8 {
            for len in 0..100usize {
                let mut bytes = vec![kind ^ len as u8; len];
                for (slot, byte) in bytes.iter_mut().zip([FIRST_BYTE, kind, len as u8, 0]) {
                    *slot = byte;
                }
                nodes[1].receive(Flying { from: 5, to: 2, bytes }, 0, &mut net);
            }
        }
        assert_eq!(nodes[1].all.table.len() + nodes[1].all.addresses.len(), 0);
        assert!(!is_psk || net.len() == answers);
    }
}

#[test]
fn a_flood_of_cookies_and_of_handshakes_is_bounded() {
    let (one, two) = certificates(&["a"], &["b"]);
    let mut server = Node::new(2, config(two));
    let mut now = 0;
    let mut answers = 0;
    for from in 1000..1100u32 {
        // Honest as far as the cookie; then they say no more.
        let mut client = Node::new(from, config(one.clone()));
        let mut net = Vec::new();
        client.send(2, b"message0", now, &mut net);
        for _ in 0..2 {
            for datagram in std::mem::take(&mut net) {
                server.receive(datagram, now, &mut net);
            }
            for datagram in std::mem::take(&mut net).into_iter().filter(|datagram| datagram.to == from) {
                answers += 1;
                client.receive(datagram, now, &mut net);
            }
        }
        now += MS;
        assert!(server.all.in_progress.len() <= 20);
    }
    assert!(answers >= 100 && server.all.counters().no_space >= 70, "{:?}", server.all.counters());
    now += 15_000 * MS;
    server.tick(now, &mut Vec::new());
    assert_eq!(server.all.table.len(), 0, "they are forgotten");
}
