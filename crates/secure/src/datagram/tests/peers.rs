//! Who may be where.

use super::*;
use crate::identity::Names;

fn connected(one: Config<u32>, two: Config<u32>) -> [Node; 2] {
    let mut nodes = [Node::new(1, one), Node::new(2, two)];
    let mut net = Vec::new();
    nodes[0].send(2, b"message0", 0, &mut net);
    settle(&mut nodes, 0, &mut net);
    nodes
}

#[test]
fn the_wrong_key_gets_silence() {
    let mut nodes = [Node::new(1, config(psk(&["a"]))), Node::new(2, config(psk(&["b"])))];
    let (mut net, mut now) = (Vec::new(), 0);
    nodes[0].send(2, b"message0", 0, &mut net);
    let mut seen = settle(&mut nodes, 0, &mut net);
    seen.extend(pass(&mut nodes, &mut now, 6000 * MS));
    assert!(seen.len() >= 5 && seen.iter().all(|datagram| datagram.from == 1), "{}", seen.len());
    assert!(nodes[1].got.is_empty() && nodes[1].all.counters().refused >= 5);
    let why = nodes[0].all.failure(2).unwrap();
    assert!(why.starts_with("no answer") && why.ends_with("a (psk)"), "{why}");
    assert_eq!(nodes[1].all.table.len() + nodes[1].all.addresses.len(), 0, "nothing is remembered");
    pass(&mut nodes, &mut now, 60_000 * MS);
    assert_eq!((nodes[0].all.table.len(), nodes[0].all.addresses.len()), (0, 0));
}

#[test]
fn another_authority_is_told_why() {
    let (one, _) = certificates(&["a"], &["b"]);
    let (_, two) = certificates(&["a"], &["b"]);
    let mut nodes = connected(config(one), config(two));
    let why = nodes[0].all.failure(2).unwrap().to_owned();
    assert!(why.contains("invalid peer certificate"), "{why}");
    assert!(nodes[1].got.is_empty() && nodes[1].all.is_empty());
    assert_eq!(nodes[1].all.counters().refused, 1, "{:?}", nodes[1].all.counters());
    let mut now = 0;
    pass(&mut nodes, &mut now, 61_000 * MS);
    assert_eq!(nodes[1].all.table.len() + nodes[0].all.table.len(), 0);
}

#[test]
fn who_may_not_connect_gets_no_further() {
    let only =
        |names: &str| Authorisation { connect: Names::parse(names).unwrap(), ..Authorisation::default() };
    for (one, two) in kinds() {
        let closed =
            |credentials: &Credentials| Config { authorisation: only("c"), ..config(credentials.clone()) };
        for (of_one, of_two) in [(config(one.clone()), closed(&two)), (closed(&one), config(two.clone()))] {
            let mut nodes = connected(of_one, of_two);
            let mut now = 0;
            pass(&mut nodes, &mut now, 6000 * MS);
            assert!(nodes[1].got.is_empty() && nodes[0].all.peer(2).is_none());
            assert!(nodes[0].all.failure(2).is_some());
        }
    }
}

#[test]
fn rights_are_by_name() {
    let rights = Authorisation { rma_write: Names::parse("*.x").unwrap(), ..Authorisation::default() };
    for (one, two) in kinds() {
        let nodes = connected(config(one), Config { authorisation: rights.clone(), ..config(two) });
        let (peer, rights) = nodes[1].all.peer(1).unwrap();
        assert_eq!(peer.name(), "a");
        assert_eq!(rights, Rights { connect: true, rma_read: true, rma_write: false });
    }
}

#[test]
fn a_peer_that_restarts_is_found_again() {
    for (one, two) in kinds() {
        let mut nodes = connected(config(one.clone()), config(two.clone()));
        for node in &mut nodes {
            node.all.retain(3 - node.at);
        }
        let mut now = 100 * MS;
        // The responder restarts; the initiator goes on sending.
        nodes[1] = Node::new(2, config(two));
        let mut net = Vec::new();
        for _ in 0..50 {
            nodes[0].send(2, b"message1", now, &mut net);
            settle(&mut nodes, now, &mut net);
            pass(&mut nodes, &mut now, 20 * MS);
        }
        assert!(nodes[1].got.len() > 10, "{}", nodes[1].got.len());
        assert!(nodes[0].all.len() <= 2);
        // Then the initiator does, and begins by a handshake.
        nodes[0] = Node::new(1, config(one));
        nodes[0].send(2, b"message2", now, &mut net);
        settle(&mut nodes, now, &mut net);
        assert!(nodes[1].got.ends_with(&[(1, b"message2".to_vec())]));
        pass(&mut nodes, &mut now, 11_000 * MS);
        assert_eq!(nodes[1].all.len(), 1, "the one before is gone");
    }
}

#[test]
fn an_address_in_use_is_nobody_elses() {
    let three = psk(&["c"]);
    let mut nodes = connected(config(psk(&["a"])), config(psk(&["b", "a", "c"])));
    nodes[1].all.retain(1);
    let mut now = 100 * MS;
    nodes[0] = Node::new(1, config(three));
    let mut net = Vec::new();
    nodes[0].send(2, b"message1", now, &mut net);
    let mut seen = settle(&mut nodes, now, &mut net);
    seen.extend(pass(&mut nodes, &mut now, 5000 * MS));
    assert!(seen.iter().all(|datagram| datagram.from == 1), "not even an answer");
    assert_eq!(nodes[1].all.peer(1).unwrap().0.name(), "a");
    assert_eq!(nodes[1].got.len(), 1);
    nodes[1].all.release(1);
    nodes[0].send(2, b"message2", now, &mut net);
    settle(&mut nodes, now, &mut net);
    assert_eq!(nodes[1].all.peer(1).unwrap().0.name(), "c");
    assert_eq!(nodes[1].got.len(), 2);
    assert_eq!(nodes[1].all.len(), 1, "what the last owner sealed is no longer taken");
}

#[test]
fn with_two_keys_the_owner_asks_by_the_one_in_use() {
    let mut nodes = connected(config(psk(&["a", "b"])), config(psk(&["b", "a"])));
    for node in &mut nodes {
        node.all.retain(3 - node.at);
    }
    let (mut net, mut now) = (Vec::new(), 100 * MS);
    nodes[0] = Node::new(1, config(psk(&["a", "b"])));
    for _ in 0..50 {
        nodes[1].send(1, b"message1", now, &mut net);
        settle(&mut nodes, now, &mut net);
        pass(&mut nodes, &mut now, 20 * MS);
    }
    assert!(nodes[0].got.len() > 10);
    assert_eq!(nodes[0].all.peer(2).unwrap().0.name(), "a", "not its own one, b");
}

#[test]
fn there_is_a_limit() {
    let few = Config { associations_max: 3, handshakes_max: 2, ..config(psk(&["a"])) };
    let mut nodes: Vec<Node> = (1..=6).map(|at| Node::new(at, config(psk(&["a"])))).collect();
    nodes[0] = Node::new(1, few);
    nodes[0].all.retain(2);
    let mut now = 0;
    for at in 1..6 {
        let mut net = Vec::new();
        nodes[at].send(1, b"message0", now, &mut net);
        settle(&mut nodes, now, &mut net);
        pass(&mut nodes, &mut now, 100 * MS);
    }
    assert_eq!((nodes[0].all.len(), nodes[0].got.len()), (3, 5));
    assert!(nodes[0].all.peer(2).is_some(), "in use");
    assert!(nodes[0].all.peer(3).is_none() && nodes[0].all.peer(6).is_some(), "the oldest goes");
    for at in [3, 4, 5, 6] {
        nodes[0].all.retain(at);
    }
    let mut net = Vec::new();
    nodes[2] = Node::new(3, config(psk(&["a"])));
    nodes[2].send(1, b"message1", now, &mut net);
    settle(&mut nodes, now, &mut net);
    assert_eq!((nodes[0].all.len(), nodes[0].got.len()), (3, 5), "all are in use");
    assert!(nodes[0].all.counters().no_space > 0);
    // And only so many handshakes at once.
    for at in 100..110 {
        nodes[0].all.hold(at, b"message2", now);
    }
    assert_eq!(nodes[0].all.in_progress.len(), 2);
    pass(&mut nodes, &mut now, 70_000 * MS);
    assert_eq!(nodes[0].all.in_progress.len(), 0);
}
