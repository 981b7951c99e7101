//! Whom a datagram is from: whoever sealed it, whatever else there is at its address.

use super::*;

const HANDSHAKE_DELAY_NS: u64 = 500 * MS;

/// Whether it belongs to a handshake, and not to an association.
fn is_of_handshake(datagram: &Flying) -> bool {
    datagram.bytes[1] & 3 != 1
}

/// A peer answers the handshake by which it is asked for a new association, slowly, and never uses that association. When the
/// server gives it up, the one before still counts for a moment.
#[test]
fn who_never_uses_a_new_association_is_known_by_the_one_before() {
    let (one, two) = certificates(&["a"], &["b"]);
    let mut nodes = [Node::new(1, config(one)), Node::new(2, config(two))];
    let mut net = Vec::new();
    nodes[0].send(2, b"message0", 0, &mut net);
    settle(&mut nodes, 0, &mut net);
    nodes[1].all.retain(1);
    nodes[0].send(2, b"late...0", 0, &mut net);
    let late = net.pop().unwrap();
    let mut flying: Vec<(u64, Flying)> = Vec::new();
    let (mut now, mut asked_ns, mut is_over) = (0, None, false);
    while now < 20_000 * MS && !is_over {
        now += 10 * MS;
        let mut net = Vec::new();
        if asked_ns.is_none() {
            nodes[1].send(1, b"question", now, &mut net);
            asked_ns = nodes[1].all.addresses[&1].as_initiator.map(|_| now);
        }
        nodes.iter_mut().for_each(|node| node.tick(now, &mut net));
        let (due, later): (Vec<_>, Vec<_>) = flying.into_iter().partition(|(at_ns, _)| *at_ns <= now);
        flying = later;
        for (_, datagram) in due {
            nodes[datagram.to as usize - 1].receive(datagram, now, &mut net);
        }
        // What is sealed is lost, or never said.
        let kept = net.into_iter().filter(is_of_handshake);
        flying.extend(kept.map(|datagram| (now + HANDSHAKE_DELAY_NS, datagram)));
        is_over = asked_ns.is_some() && nodes[1].all.peer(1).is_none();
    }
    assert!(is_over, "the new association was made, and given up: {:?}", nodes[1].all.counters());
    nodes[1].receive(late, now, &mut Vec::new());
    assert_eq!(
        nodes[1].got.last().map(|(_, body)| &body[..]),
        Some(&b"late...0"[..]),
        "it counts for a moment"
    );
    assert_eq!(nodes[1].senders.last(), Some(&Some("a".to_owned())), "it is known who sealed it");
}

/// The table is full, and the association of an address makes room for that of somebody else there.
#[test]
fn what_the_last_owner_of_an_address_sealed_is_not_the_next_ones() {
    let few = Config { associations_max: 3, ..config(psk(&["s", "a", "b"])) };
    let mut server = Node::new(2, few);
    let connect = |key: &str, server: &mut Node| {
        let mut client = Node::new(1, config(psk(&[key])));
        let mut net = Vec::new();
        client.send(2, b"message0", 0, &mut net);
        for _ in 0..10 {
            for datagram in std::mem::take(&mut net) {
                let to = if datagram.to == 2 { &mut *server } else { &mut client };
                to.receive(datagram, 0, &mut net);
            }
        }
        assert_eq!(server.all.peer(1).unwrap().0.name(), key);
        client
    };
    let mut first = connect("a", &mut server);
    let _second = connect("a", &mut server);
    let _other = connect("b", &mut server);
    let mut net = Vec::new();
    first.send(2, b"late...0", 0, &mut net);
    server.receive(net.pop().unwrap(), 0, &mut net);
    let late = server.got.iter().position(|(_, body)| body == b"late...0");
    assert_eq!(late.map(|at| &server.senders[at]), None, "what a sealed is not b's");
}
