//! Somebody without a key, on the path between two endpoints, who gives one of them its own words back from another address.

use super::*;

/// Where the second side seems to be, and where its words seem to come from when they come back.
const PEER: u32 = 2;
const ELSEWHERE: u32 = 9;

/// What `from` said to one of the two addresses comes back to it from the other one, until it says no more; for as long as a
/// handshake lasts.
fn reflect(node: &mut Node, mut change: impl FnMut(&mut Flying)) {
    let (mut net, mut now) = (Vec::new(), 0);
    for _ in 0..300 {
        node.send(PEER, b"a secret", now, &mut net);
        for _ in 0..20 {
            for datagram in std::mem::take(&mut net) {
                let from = if datagram.to == PEER { ELSEWHERE } else { PEER };
                let mut back = Flying { from, to: node.at, bytes: datagram.bytes };
                change(&mut back);
                node.receive(back, now, &mut net);
            }
        }
        now += 20 * MS;
        node.tick(now, &mut net);
    }
}

#[test]
fn whoever_gets_its_own_words_back_knows_them_whatever_the_address() {
    for (one, _) in kinds() {
        let mut node = Node::new(1, config(one));
        reflect(&mut node, |_| {});
        let counters = *node.all.counters();
        assert!(node.got.is_empty(), "it has sent itself its secret");
        assert_eq!((counters.handshakes, counters.cookies, node.all.len()), (0, 0, 0), "{counters:?}");
        assert!(counters.own > 3 && node.all.peer(PEER).is_none(), "{counters:?}");
    }
}

/// With certificates anybody can write another endpoint's name before TLS, which is not sealed.
#[test]
fn nor_does_another_endpoints_name_on_its_words_help() {
    let (_, (one, _)) = kinds().into();
    let mut node = Node::new(1, config(one));
    reflect(&mut node, |datagram| {
        let is_handshake = datagram.bytes[1] & 3 == 2;
        let offset = u16::from_le_bytes([datagram.bytes[20], datagram.bytes[21]]);
        if is_handshake && offset == 0 && datagram.bytes.len() > 64 {
            datagram.bytes[48..64].iter_mut().for_each(|byte| *byte ^= 0x55);
        }
    });
    let counters = *node.all.counters();
    assert!(node.got.is_empty() && counters.forged > 0, "{counters:?}");
    // It has asked, and TLS was content; but nothing that came could be opened.
    assert!(node.all.peer(ELSEWHERE).is_none(), "{counters:?}");
    // Of the handshakes that it answered, none counts.
    let answered = node.all.table.iter_mut().filter(|(_, entry)| !entry.initiator && entry.counts).count();
    assert_eq!(answered, 0);
}

/// Two endpoints of one key are two: they may speak to each other, as one name.
#[test]
fn another_endpoint_with_the_same_credentials_is_another_one() {
    for (one, _) in kinds() {
        let mut nodes = [Node::new(1, config(one.clone())), Node::new(2, config(one))];
        let mut net = Vec::new();
        nodes[0].send(2, b"message0", 0, &mut net);
        settle(&mut nodes, 0, &mut net);
        assert_eq!(nodes[1].got, [(1, b"message0".to_vec())]);
        assert_eq!(nodes[0].all.peer(2).unwrap().0.name(), "a");
    }
}
