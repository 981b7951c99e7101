//! Somebody beside the path: sees every datagram at once and can say anything in anybody's name, faster than the true ones
//! come, but can keep none back.

use super::super::wire::{self, Datagram, Fragment};
use super::*;

fn fragment(bytes: &[u8]) -> Option<Fragment<'_>> {
    match wire::parse(bytes)? {
        Datagram::Handshake(fragment) => Some(fragment),
        _ => None,
    }
}

fn emit(fragment: &Fragment<'_>, like: &Flying) -> Flying {
    let mut bytes = vec![0; 1500];
    let len = fragment.emit(&mut bytes).unwrap();
    bytes.truncate(len);
    Flying { bytes, ..like.clone() }
}

/// What may be said in place of a part of a handshake by who has no key.
fn forgeries(of: &Flying) -> Vec<Flying> {
    let Some(real) = fragment(&of.bytes) else { return Vec::new() };
    let end = real.offset + real.bytes.len() as u16;
    let garbage = [0x5a; 64];
    [
        Fragment { bytes: &garbage, offset: 0, cookie: real.cookie, ..real },
        Fragment { bytes: &garbage[..1], offset: 0, ..real },
        Fragment { bytes: &[], offset: 0, sender: real.sender ^ 1, ..real },
        Fragment { bytes: &[], offset: 0, ack: u16::MAX, ..real },
        Fragment { bytes: &garbage[..1], offset: end, ..real },
        Fragment { bytes: &garbage[..1], offset: 16_000, asks: true, ..real },
    ]
    .map(|forged| emit(&forged, of))
    .into()
}

/// With keys, each true part of a handshake comes behind forged ones, in both directions, and a second lot follows it.
#[test]
fn who_sees_a_handshake_by_keys_and_forges_its_parts_does_not_stop_it() {
    for which in 0..6 {
        let mut nodes = [Node::new(1, config(psk(&["a"]))), Node::new(2, config(psk(&["a"])))];
        let mut net = Vec::new();
        nodes[0].send(2, b"message0", 0, &mut net);
        for _ in 0..10 {
            for datagram in std::mem::take(&mut net) {
                let forged = forgeries(&datagram).into_iter().skip(which).take(1);
                for datagram in forged.clone().chain([datagram]).chain(forged) {
                    let to = usize::from(datagram.to == 2);
                    nodes[to].receive(datagram, 0, &mut net);
                }
            }
        }
        assert_eq!(nodes[1].got, [(1, b"message0".to_vec())], "{which}: {:?}", nodes[0].all.counters());
        nodes[1].send(1, b"answer.0", 0, &mut net);
        settle(&mut nodes, 0, &mut net);
        assert_eq!(nodes[0].got, [(2, b"answer.0".to_vec())], "{which}: both have the same keys");
    }
}

/// With certificates: somebody begins a handshake in the name of the address that this side wants to reach, shows the cookie that
/// he saw, and says no more; again and again.
#[test]
fn who_begins_a_handshake_in_anothers_name_keeps_nobody_from_reaching_it() {
    let (one, two) = certificates(&["a"], &["b"]);
    for (first_ms, restarts) in [(0, false), (10, false), (0, true)] {
        let mut nodes = [Node::new(1, config(one.clone())), Node::new(2, config(two.clone()))];
        let (mut now, mut id, mut flying) = (0, 1, Vec::<(u64, Flying)>::new());
        if restarts {
            // There was an association, of which the peer does not know any more.
            let mut net = Vec::new();
            nodes[0].send(2, b"message0", 0, &mut net);
            settle(&mut nodes, 0, &mut net);
            assert!(nodes[0].all.peer(2).is_some());
            nodes[1] = Node::new(2, config(two.clone()));
        }
        while nodes[1].got.is_empty() && now < 20_000 * MS {
            let mut net = Vec::new();
            if now >= first_ms * MS && now / MS % 20 == first_ms {
                nodes[0].send(2, b"message0", now, &mut net);
            }
            // The forger is as near as can be, and the true peer is 20 ms away.
            if (now / MS).is_multiple_of(10) {
                let begin = |id, cookie, bytes| {
                    let like = Flying { from: 2, to: 1, bytes: Vec::new() };
                    let (receiver, sender, offset, ack) = (0, 77, 0, 0);
                    let from_initiator = true;
                    emit(
                        &Fragment {
                            receiver,
                            id,
                            sender,
                            offset,
                            ack,
                            from_initiator,
                            asks: false,
                            cookie,
                            bytes,
                        },
                        &like,
                    )
                };
                let mut answers = Vec::new();
                nodes[0].receive(begin(id, None, &[7; 100]), now, &mut answers);
                for answer in answers {
                    match wire::parse(&answer.bytes) {
                        Some(Datagram::Cookie { cookie, id, .. }) => {
                            nodes[0].receive(begin(id, Some(cookie), &[7; 16]), now, &mut net);
                        }
                        _ => net.push(answer),
                    }
                }
                id += 1;
            }
            nodes.iter_mut().for_each(|node| node.tick(now, &mut net));
            let (due, later): (Vec<_>, Vec<_>) = flying.into_iter().partition(|(at_ns, _)| *at_ns <= now);
            flying = later;
            for (_, datagram) in due {
                nodes[datagram.to as usize - 1].receive(datagram, now, &mut net);
            }
            flying.extend(net.into_iter().map(|datagram| (now + 20 * MS, datagram)));
            now += MS;
        }
        assert!(
            !nodes[1].got.is_empty() && now <= 3000 * MS,
            "after {} ms: {:?}",
            now / MS,
            nodes[0].all.counters()
        );
    }
}
