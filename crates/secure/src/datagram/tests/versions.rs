//! Peers of other versions, of which the first is known: its bytes are here as it sent them.

use super::super::wire::{self, Datagram, FIRST_BYTE};
use super::*;
use crate::failure::Failure;

/// The first datagram of a handshake of version 1: 48 bytes of header, and what its Noise or TLS said.
fn first_of_version_1(stream_bytes: usize) -> Vec<u8> {
    let len = 48 + stream_bytes;
    let mut bytes = vec![0xa5; len];
    let header: [u8; 32] = [
        FIRST_BYTE,
        2,
        len as u8,
        (len >> 8) as u8,
        0,
        0,
        0,
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8, // the id
        77,
        0,
        16,
        0,
        0,
        0,
        stream_bytes as u8,
        (stream_bytes >> 8) as u8,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        0, // from the initiator
    ];
    bytes[..32].copy_from_slice(&header);
    bytes[32..48].fill(0);
    bytes
}

/// The cookie of a responder of version 1: 40 bytes.
fn cookie_of_version_1(receiver: u32, id: u64) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    bytes[..4].copy_from_slice(&[FIRST_BYTE, 3, 40, 0]);
    bytes[4..8].copy_from_slice(&receiver.to_le_bytes());
    bytes[8..16].copy_from_slice(&id.to_le_bytes());
    bytes[16..20].copy_from_slice(&5_u32.to_le_bytes());
    bytes[24..].fill(0x77);
    bytes
}

#[test]
fn an_old_initiator_is_refused_and_counted_as_such() {
    for (_, two) in kinds() {
        let is_psk = two.method() == Method::Psk;
        let mut server = Node::new(2, config(two));
        let mut net = Vec::new();
        let bytes = first_of_version_1(if is_psk { 56 } else { 280 });
        server.receive(Flying { from: 1, to: 2, bytes }, 0, &mut net);
        let counters = *server.all.counters();
        assert_eq!((counters.versions, counters.malformed, counters.refused), (1, 0, 0), "{counters:?}");
        assert_eq!(server.all.table.len() + server.all.addresses.len(), 0);
        // With keys, not a word to who has shown none.
        assert_eq!(net.len(), usize::from(!is_psk));
        for answer in net {
            assert_eq!(
                (answer.bytes.len(), answer.bytes[1], answer.bytes[16]),
                (24, 0, 2),
                "which version this is"
            );
            assert_eq!(&answer.bytes[4..16], [77, 0, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        }
    }
}

/// What the initiator of the first datagram calls itself and its handshake.
fn names(first: &[u8]) -> (u32, u64) {
    match wire::parse(first) {
        Some(Datagram::Handshake(fragment)) => (fragment.sender, fragment.id),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_old_responder_is_a_reason_that_is_told() {
    for (one, _) in kinds() {
        for (version, is_cookie) in [(1, true), (9, false)] {
            let mut nodes = [Node::new(1, config(one.clone()))];
            let (mut net, mut now) = (Vec::new(), 0);
            nodes[0].send(2, b"message0", 0, &mut net);
            let (receiver, id) = names(&net.pop().unwrap().bytes);
            let bytes = if is_cookie {
                cookie_of_version_1(receiver, id)
            } else {
                let mut answer = wire::version_datagram(receiver, id).to_vec();
                answer[16] = version;
                answer
            };
            // Not of another handshake, nor from elsewhere.
            let mut wrong = bytes.clone();
            wrong[9] ^= 1;
            nodes[0].receive(Flying { from: 2, to: 1, bytes: wrong }, 0, &mut net);
            nodes[0].receive(Flying { from: 3, to: 1, bytes: bytes.clone() }, 0, &mut net);
            pass(&mut nodes, &mut now, 20 * MS);
            nodes[0].receive(Flying { from: 2, to: 1, bytes }, now, &mut net);
            assert_eq!(
                nodes[0].all.poll_failure(),
                None,
                "the peer may still answer: anybody can have said that"
            );
            pass(&mut nodes, &mut now, 2200 * MS);
            assert_eq!(nodes[0].all.poll_failure(), Some((2, Failure::Version(version))));
            let why = nodes[0].all.failure(2).unwrap();
            assert!(why.contains(&format!("version {version}")), "{why}");
        }
    }
}

#[test]
fn whoever_only_says_that_the_peer_is_old_does_not_stop_it() {
    for (one, two) in kinds() {
        let mut nodes = [Node::new(1, config(one)), Node::new(2, config(two))];
        let mut net = Vec::new();
        nodes[0].send(2, b"message0", 0, &mut net);
        let (receiver, id) = names(&net[0].bytes);
        let bytes = cookie_of_version_1(receiver, id);
        nodes[0].receive(Flying { from: 2, to: 1, bytes }, 0, &mut net);
        settle(&mut nodes, MS, &mut net);
        assert_eq!(nodes[1].got, [(1, b"message0".to_vec())]);
        assert_eq!(nodes[0].all.poll_failure(), None);
    }
}

/// The true answers take longer than this side waits for them once it has heard that the peer is old. The first one shows that it
/// is not, and then there is time.
#[test]
fn nor_does_it_where_answers_take_long() {
    for (one, two) in kinds() {
        let mut nodes = [Node::new(1, config(one)), Node::new(2, config(two))];
        let mut flying: Vec<(u64, Flying)> = Vec::new();
        for ms in 0..5000_u64 {
            let mut net = Vec::new();
            if ms == 0 {
                nodes[0].send(2, b"message0", 0, &mut net);
            }
            nodes.iter_mut().for_each(|node| node.tick(ms * MS, &mut net));
            let (due, later): (Vec<_>, Vec<_>) = flying.into_iter().partition(|(at, _)| *at <= ms);
            flying = later;
            for (_, datagram) in due {
                nodes[datagram.to as usize - 1].receive(datagram, ms * MS, &mut net);
            }
            for datagram in net {
                if let Some(Datagram::Handshake(fragment)) = wire::parse(&datagram.bytes)
                    && fragment.from_initiator
                {
                    // Whoever sees it is near.
                    let bytes = cookie_of_version_1(fragment.sender, fragment.id);
                    nodes[0].receive(Flying { from: 2, to: 1, bytes }, ms * MS, &mut Vec::new());
                }
                flying.push((ms + 200, datagram));
            }
        }
        assert_eq!(nodes[1].got, [(1, b"message0".to_vec())], "{:?}", nodes[0].all.counters());
    }
}
