//! What peers may do, by name.

use super::stage::*;
use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, Attribute, ConnectError, ConnectFailure, Names, RegionAddress,
    RegionHandle, Rma, RmaFlags, RmaKind, Security, Segment, Status,
};

fn names(list: &str) -> Names {
    Names::parse(list).unwrap()
}

/// Starts an operation of context 1 on the newest connection, between the beginnings of two regions.
fn operate(side: &mut Side, kind: RmaKind, [ours, theirs]: [RegionHandle; 2]) {
    side.ended.clear();
    let (local, remote) = ([Segment::new(ours, 0, 1000)], [Segment::new(theirs, 0, 1000)]);
    let (context, flags) = (1, RmaFlags::NONE);
    let rma = Rma { kind, local: &local, remote: &remote, message: None, context, flags };
    side.endpoint.rma(side.last(), &rma).unwrap();
}

#[test]
fn both_ends_know_who_is_there() {
    let (mut client, mut server) = (Side::with(KEY1), Side::with(&format!("{KEY2}{KEY1}")));
    join(&mut client, &mut server, &mut None);
    assert_eq!(server.asked, [Some("node1".to_owned())]);
    for side in [&client, &server] {
        let connection = side.last();
        assert_eq!(side.endpoint.peer_identity(connection).unwrap().to_string(), "node1 (psk)");
        let shown = side.endpoint.explain(connection).unwrap().to_string();
        assert!(shown.contains("encryption: sealed by AES-256-GCM, peer node1 known by Noise"), "{shown}");
        assert_eq!(side.device_counter("security_handshakes"), 1);
    }
    talk(&mut client, &mut server, &mut None);
    // The other way round the server's own key counts, which the client has not.
    // What was made serves both directions. Without it, the server's own key counts, which clients have not.
    join(&mut server, &mut client, &mut None);
    let mut other = Side::with(KEY1);
    let to = address(&other.endpoint);
    assert_eq!(fails(&mut server, &mut other, to), ConnectFailure::TimedOut);
}

#[test]
fn who_may_not_connect_is_not_heard_of() {
    let only = |list: &str| keys(&format!("{KEY2}{KEY1}")).allow_connect(names(list));
    let mut server = Side::new(open(Some(only("node2")), None));
    let to = address(&server.endpoint);
    assert_eq!(fails(&mut Side::with(KEY1), &mut server, to), ConnectFailure::TimedOut);
    assert!(server.device_counter("handshake-refused") > 0);
    join(&mut Side::with(KEY2), &mut server, &mut None);
    // Nor is somebody asked who may not be connected.
    let mut everybody = Side::with(&format!("{KEY2}{KEY1}"));
    let to = address(&everybody.endpoint);
    let mut choosy = Side::new(open(Some(keys(KEY1).allow_connect(names("node2"))), None));
    assert_eq!(fails(&mut choosy, &mut everybody, to), ConnectFailure::NotPermitted);
}

#[test]
fn memory_is_for_those_who_may() {
    let security =
        keys(&format!("{KEY2}{KEY1}")).allow_rma_read(names("node1, node2")).allow_rma_write(names("node2"));
    let mut server = Side::new(open(Some(security), None));
    let memory = server.endpoint.allocate(4096).unwrap();
    let theirs = server.endpoint.register(&memory, Access::ALL).unwrap();
    for (keys, writes) in [(KEY1, false), (KEY2, true)] {
        let mut client = Side::with(keys);
        join(&mut client, &mut server, &mut None);
        let own = client.endpoint.allocate(4096).unwrap();
        let ours = client.endpoint.register(&own, Access::LOCAL).unwrap();
        let to = client.last();
        let refused = if writes { Status::Success } else { Status::RmaHandle };
        for (kind, status) in [(RmaKind::Read, Status::Success), (RmaKind::Write, refused)] {
            operate(&mut client, kind, [ours, theirs]);
            assert!(run(&mut [&mut client, &mut server], &mut None, PATIENCE, |sides| !sides[0]
                .ended
                .is_empty()));
            assert_eq!(client.ended, [(1, status)], "{keys} {kind:?}");
        }
        let atomic = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
        client.ended.clear();
        client.endpoint.atomic(to, atomic, RegionAddress::new(theirs, 0), None, 2, RmaFlags::NONE).unwrap();
        assert!(run(&mut [&mut client, &mut server], &mut None, PATIENCE, |sides| !sides[0]
            .ended
            .is_empty()));
        assert_eq!(client.ended, [(2, refused)], "{keys}");
    }
    let counters = server.endpoint.counters();
    assert_eq!((counters.rma_refused, counters.rma_refused_by_name), (2, 2));
}

#[test]
fn a_request_may_be_accepted_elsewhere_by_those_who_may() {
    let mut broker = Side::with(&format!("{KEY2}{KEY1}"));
    let mut client = Side::with(KEY1);
    // A worker with the same key of its own, to whom the client has never spoken.
    let mut worker = Side::with(KEY1);
    let request = ask(&mut client, &mut broker);
    worker.endpoint.accept(request, 5).unwrap();
    let both = |sides: &[&mut Side]| !sides[0].made.is_empty() && !sides[2].made.is_empty();
    assert!(run(&mut [&mut client, &mut broker, &mut worker], &mut None, PATIENCE, both));
    assert_eq!(worker.endpoint.peer_identity(worker.last()).unwrap().name(), "node1");
    talk(&mut client, &mut worker, &mut None);
    // One that does not allow this name, and one that seals nothing.
    let choosy = Security::psk(KEY1.as_bytes()).unwrap().allow_connect(names("node2"));
    for (security, word) in [(Some(choosy), "allow_connect"), (None, "another kind of device")] {
        let mut worker = Side::new(open(security, None));
        let request = ask(&mut client, &mut broker);
        let refused = worker.endpoint.accept(request, 5).unwrap_err().to_string();
        assert!(refused.contains(word) || refused.contains("kind of device"), "{refused}");
        let made = client.made.len();
        assert!(run(&mut [&mut client, &mut broker, &mut worker], &mut None, PATIENCE, |sides| sides[0]
            .made
            .len()
            > made));
        assert_eq!(client.made.last(), Some(&Err(ConnectFailure::Refused)));
    }
}

/// Who asks a plain endpoint has no name. Where another endpoint accepts, by which rights go by name, it has none of them.
#[test]
fn who_asked_a_plain_endpoint_has_the_rights_of_nobody() {
    let (mut client, mut broker) = (Side::new(open(None, None)), Side::new(open(None, None)));
    let offered = || keys(KEY1).required(false);
    let mut worker = Side::new(open(Some(offered().allow_rma_write(names("node1"))), None));
    let memory = worker.endpoint.allocate(4096).unwrap();
    let theirs = worker.endpoint.register(&memory, Access::ALL).unwrap();
    let request = ask(&mut client, &mut broker);
    worker.endpoint.accept(request, 5).unwrap();
    let made = |sides: &[&mut Side]| !sides[0].made.is_empty() && !sides[2].made.is_empty();
    assert!(run(&mut [&mut client, &mut broker, &mut worker], &mut None, PATIENCE, made));
    let own = client.endpoint.allocate(4096).unwrap();
    let ours = client.endpoint.register(&own, Access::LOCAL).unwrap();
    operate(&mut client, RmaKind::Write, [ours, theirs]);
    let ended = |sides: &[&mut Side]| !sides[0].ended.is_empty();
    assert!(run(&mut [&mut client, &mut broker, &mut worker], &mut None, PATIENCE, ended));
    assert_eq!(client.ended, [(1, Status::RmaHandle)], "only node1 may write");
    // Nor is it accepted where only some may be connected, which the program learns at once.
    let mut choosy = Side::new(open(Some(offered().allow_connect(names("node1"))), None));
    let request = ask(&mut client, &mut broker);
    assert!(choosy.endpoint.accept(request, 5).is_err());
}

/// Seed 693 of the simulation: such a connection was begun, shook hands with itself and timed out.
#[test]
fn a_request_that_comes_back_to_who_asked_is_refused_with_a_reason() {
    let (mut broker, mut client) = (Side::with(KEY1), Side::with(KEY1));
    let request = ask(&mut client, &mut broker);
    let refused = client.endpoint.accept(request, 5).unwrap_err();
    assert!(matches!(refused, cci::AcceptError::Itself), "{refused}");
    let has_made = |sides: &[&mut Side]| !sides[0].made.is_empty();
    assert!(run(&mut [&mut client, &mut broker], &mut None, PATIENCE, has_made));
    assert_eq!(client.made, [Err(ConnectFailure::Refused)]);
}

#[test]
fn groups_are_not_for_those_who_require_it() {
    let mut server = open(Some(keys(KEY1)), None);
    let refused = server.connect("udp://239.1.2.3:5000", b"", Attribute::MulticastSend, 0, None);
    assert!(matches!(refused, Err(ConnectError::Insecure)), "{refused:?}");
    let mut lenient = open(Some(keys(KEY1).required(false)), None);
    lenient.connect("udp://239.1.2.3:5000", b"", Attribute::MulticastSend, 0, None).unwrap();
    // Nor for those who expect somebody wherever they connect: a group is nobody.
    let mut choosy = open(Some(keys(KEY1).required(false).expect("node1")), None);
    for attribute in [Attribute::MulticastSend, Attribute::MulticastReceive] {
        let refused = choosy.connect("udp://239.1.2.3:5000", b"", attribute, 0, None);
        assert!(matches!(refused, Err(ConnectError::CannotExpect { .. })), "{refused:?}");
    }
}
