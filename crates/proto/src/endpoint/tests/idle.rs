//! Peers of idle connections that live, and that do not.

use super::rma::{pair, segment};
use super::*;
use crate::limits::{IDLE_ASKS_MIN, IDLE_LOOK_NS, IDLE_LOOKS_PER_SECOND_MAX};

const ATTRIBUTES: [Attribute; 3] =
    [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable];

fn ends(app: &App) -> Vec<DisconnectReason> {
    let reason = |event: &Event| match event {
        Event::Disconnected { reason, .. } => Some(*reason),
        _ => None,
    };
    app.events.iter().filter_map(reason).collect()
}

fn asks(net: &Net) -> u64 {
    net.ends.iter().map(|end| end.counters().idle_asks).sum()
}

#[test]
fn a_peer_that_vanishes_from_an_idle_connection_is_missed() {
    for (seed, attribute) in (1..).zip(ATTRIBUTES) {
        let mut net = Net::pair(seed);
        let (client, server) = net.join(attribute);
        net.run(SECOND);
        let (before, started) = (asks(&net), net.now);
        net.cut = true;
        // Both sides: the one that dialled, and the one that accepted.
        net.run_until(300 * SECOND, "both are missed", |net| {
            net.apps.iter().all(|app| !ends(app).is_empty())
        });
        let took_ns = net.now.since(started);
        assert!(took_ns > 120 * SECOND, "{attribute:?}: a program may compute for {took_ns} ns");
        assert!(
            asks(&net) - before <= 2 * u64::from(IDLE_ASKS_MIN),
            "{attribute:?}: {}",
            asks(&net) - before
        );
        net.run(600 * SECOND);
        for (end, key) in [(0, client), (1, server)] {
            assert_eq!(ends(&net.apps[end]), [DisconnectReason::TimedOut], "{attribute:?}: once");
            assert!(
                !net.apps[end].has(|event| matches!(event, Event::KeepaliveTimedOut { .. })),
                "its own event"
            );
            net.ends[end].disconnect(net.now, key).unwrap();
        }
        net.run(SECOND);
        assert!(net.ends.iter().all(|end| end.connections() == 0 && end.next_deadline().is_none()));
        net.assert_clean();
    }
}

/// Seeds 24677 and 32358 of the simulation: the target gave its answer up, and with it the connection. Each operation of the
/// initiator's waited for its own timeout then, one after the other, on a connection that never ended.
#[test]
fn a_peer_that_gave_up_an_answer_is_missed() {
    for (seed, attribute) in (31..).zip([Attribute::ReliableOrdered, Attribute::ReliableUnordered]) {
        let (mut net, client, server) = pair(seed, attribute, 2_000);
        net.ends[0].set_send_timeout(client, 900 * SECOND).unwrap();
        net.ends[1].set_send_timeout(server, 100 * MS).unwrap();
        // Requests and acknowledgements pass, and data does not.
        net.largest = 200;
        net.operate(client, RmaKind::Read, &[segment(0, 0, 1_000)], None, false, 1);
        net.run(MS);
        // This acknowledges the request, which would be repeated otherwise, and be answered by RESET in the end.
        net.send(1, server, b"small", 7);
        net.run_until(SECOND, "the target gives up", |net| !ends(&net.apps[1]).is_empty());
        net.ends[1].disconnect(net.now, server).unwrap();
        // Nor does what it says of that.
        net.cut = true;
        net.run_until(100 * SECOND, "it says no more", |net| net.ends[1].connections() == 0);
        (net.cut, net.largest) = (false, usize::MAX);
        net.run_until(100 * SECOND, "the initiator gets the event", |net| !ends(&net.apps[0]).is_empty());
        assert_eq!(net.apps[0].operations(), [(1, Status::Disconnected)], "{attribute:?}");
    }
}

#[test]
fn who_lives_is_asked_seldom_and_left_alone() {
    let hour_ns = 3_600 * SECOND;
    for (seed, attribute) in (11..).zip(ATTRIBUTES) {
        let mut net = Net::pair(seed);
        net.loss_pct = 20;
        let (client, _) = net.join(attribute);
        let before = net.datagrams;
        net.run(hour_ns);
        assert!(net.apps.iter().all(|app| ends(app).is_empty()), "{attribute:?}");
        let (asks, datagrams) = (asks(&net), net.datagrams - before);
        // Whoever is asked is heard, and so is who asks: less than once in a look, and lost questions and answers.
        assert!(asks > 10 && asks < 2 * hour_ns / IDLE_LOOK_NS, "{attribute:?}: {asks} questions");
        assert!(datagrams <= 4 * asks, "{attribute:?}: {datagrams} for {asks} questions");
        net.loss_pct = 0;
        net.send(0, client, b"still there", 1);
        net.run(SECOND);
        assert_eq!(net.apps[1].messages.len(), 1);
    }
}

#[test]
fn a_path_that_fails_for_a_while_costs_nothing() {
    let mut net = Net::pair(21);
    let (client, _) = net.join(Attribute::ReliableOrdered);
    for _ in 0..5 {
        net.cut = true;
        net.run(100 * SECOND);
        net.cut = false;
        net.run(200 * SECOND);
    }
    assert!(net.apps.iter().all(|app| ends(app).is_empty()));
    net.send(0, client, b"still there", 1);
    net.run(SECOND);
    assert_eq!(net.apps[1].messages.len(), 1);
}

/// Nobody was asked meanwhile, so nobody has not answered.
#[test]
fn nobody_is_given_up_because_our_program_was_away() {
    let mut net = Net::pair(22);
    net.join(Attribute::ReliableOrdered);
    for _ in 0..20 {
        net.now = net.now.plus(3_600 * SECOND);
        net.run(10 * MS);
    }
    net.run(200 * SECOND);
    assert!(net.apps.iter().all(|app| ends(app).is_empty()));
}

#[test]
fn however_many_there_are_few_are_asked_at_a_time() {
    let count = 2_000;
    let config = Config { memory_bytes_max: 64 << 20, requests_max: 2_000, ..Config::default() };
    let mut net = Net::new(23, vec![config.clone(), config]);
    for token in 0..count {
        net.ends[0].connect(net.now, address(1), b"", Attribute::ReliableOrdered, token, None).unwrap();
        net.serve(token);
    }
    net.run(100 * SECOND);
    net.cut = true;
    let mut most = 0;
    for _ in 0..60 {
        let before = net.ends[0].counters().idle_asks;
        net.run(SECOND);
        most = most.max(net.ends[0].counters().idle_asks - before);
    }
    // With the questions repeated that had no answer before.
    assert!(most > 0 && most <= IDLE_LOOKS_PER_SECOND_MAX, "{most} in a second");
    net.run_until(400 * SECOND, "all are missed", |net| ends(&net.apps[0]).len() == count as usize);
}
