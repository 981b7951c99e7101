//! Whom an endpoint wants to find at an address.

use super::*;
use crate::failure::Failure;

fn settled(nodes: &mut [Node], to: u32, body: &[u8], now_ns: u64) {
    let mut net = Vec::new();
    nodes[0].send(to, body, now_ns, &mut net);
    settle(nodes, now_ns, &mut net);
}

#[test]
fn nothing_goes_to_anybody_else_and_the_reason_is_told() {
    let (one, two) = certificates(&["a"], &["b", "b.x"]);
    for (name, is_connected) in [("b", true), ("B.x", true), ("c", false)] {
        let mut nodes = [Node::new(1, config(one.clone())), Node::new(2, config(two.clone()))];
        assert!(nodes[0].all.expect(2, name, 0));
        settled(&mut nodes, 2, b"a secret", 0);
        assert_eq!(nodes[1].got.len(), usize::from(is_connected), "{name}");
        let failure = nodes[0].all.poll_failure();
        if is_connected {
            assert_eq!((failure, nodes[0].all.peer(2).unwrap().0.name()), (None, "b"));
            continue;
        }
        assert_eq!(failure, Some((2, Failure::NotExpected("b (certificate)".into(), "c".into()))));
        assert!(nodes[0].all.peer(2).is_none() && nodes[0].all.is_empty());
        // Without the expectation, the same peer will do; what was for another one is not sent to it.
        nodes[0].all.unexpect(2, name);
        // The peer waits for the end of the last handshake for a while.
        let mut now = 0;
        pass(&mut nodes, &mut now, 1100 * MS);
        settled(&mut nodes, 2, b"for all.", now);
        assert_eq!(nodes[1].got, [(1, b"for all.".to_vec())]);
    }
}

#[test]
fn with_keys_the_name_is_the_one_to_ask_by() {
    // A hub, and two spokes with a key each.
    let hub = psk(&["a", "b"]);
    for (spoke, name) in [("a", "a"), ("b", "b"), ("b", "B")] {
        let mut nodes = [Node::new(1, config(hub.clone())), Node::new(2, config(psk(&[spoke])))];
        assert!(nodes[0].all.expect(2, name, 0));
        settled(&mut nodes, 2, b"message0", 0);
        assert_eq!(nodes[1].got.len(), 1);
        assert_eq!(nodes[0].all.peer(2).unwrap().0.name(), spoke);
    }
    // The other spoke is there, and keeps silent.
    let mut nodes = [Node::new(1, config(hub)), Node::new(2, config(psk(&["b"])))];
    assert!(nodes[0].all.expect(2, "a", 0));
    settled(&mut nodes, 2, b"a secret", 0);
    let mut now = 0;
    pass(&mut nodes, &mut now, 6000 * MS);
    assert!(nodes[1].got.is_empty() && nodes[0].all.is_empty());
    assert!(nodes[0].all.failure(2).unwrap().ends_with("a (psk)"), "{:?}", nodes[0].all.failure(2));
}

/// An association with somebody else gives way, unless there are connections with him.
#[test]
fn an_association_with_somebody_else_is_not_used() {
    for in_use in [false, true] {
        let hub = psk(&["a", "b"]);
        let mut nodes = [Node::new(1, config(hub)), Node::new(2, config(psk(&["a", "b"])))];
        settled(&mut nodes, 2, b"message0", 0);
        assert_eq!(nodes[0].all.peer(2).unwrap().0.name(), "a");
        if in_use {
            nodes[0].all.retain(2);
        }
        assert_eq!(nodes[0].all.expect(2, "b", MS), !in_use);
        assert!(nodes[0].all.expect(2, "a", MS) == in_use, "two keys are two peers");
        settled(&mut nodes, 2, b"message1", MS);
        let as_responder = nodes[0].all.peer(2).unwrap().0.name().to_owned();
        assert_eq!((&as_responder[..], nodes[1].got.len()), (if in_use { "a" } else { "b" }, 2));
    }
}

/// Nor does somebody else get an association who begins the handshake himself.
#[test]
fn nobody_else_may_come_from_there() {
    for (keys, names) in [(true, ["a", "b"]), (false, ["b", "c"])] {
        let (one, two) = certificates(&["a"], &["b"]);
        let (one, two) = if keys { (psk(&["a", "b"]), psk(&["b"])) } else { (one, two) };
        for (name, is_let_in) in [(names[0], !keys), (names[1], keys)] {
            let mut nodes = [Node::new(2, config(two.clone())), Node::new(1, config(one.clone()))];
            assert!(nodes[1].all.expect(2, name, 0));
            settled(&mut nodes, 1, b"message0", 0);
            assert_eq!(nodes[1].got.len(), usize::from(is_let_in), "{keys} {name}");
            nodes[1].all.unexpect(2, name);
        }
    }
}

#[test]
fn nothing_is_left_of_what_was_expected() {
    let mut node = Node::new(1, config(psk(&["a"])));
    for _ in 0..10 {
        assert!(node.all.expect(2, "a", 0));
    }
    for _ in 0..10 {
        node.all.unexpect(2, "a");
    }
    assert!(node.all.addresses.is_empty());
}
