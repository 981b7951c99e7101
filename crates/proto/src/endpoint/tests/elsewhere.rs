//! Acceptances that come from elsewhere than they were asked for.

use super::*;
use crate::wire::{Head, Kind, PathBody};

const PATH: u8 = 15;

/// End 0 asks end 1, which accepts: the acceptance is returned, and the network carries nothing any more. End 2 is
/// somebody who knows of nothing.
fn an_acceptance(timeout_ns: u64) -> (Net, ConnKey, Vec<u8>) {
    let mut net = Net::new(1, vec![Config::default(); 3]);
    let (now, kind) = (net.now, Attribute::ReliableOrdered);
    let client = net.ends[0].connect(now, address(1), b"", kind, 7, Some(timeout_ns)).expect("room");
    let request = net.request();
    (net.cut, net.keep) = (true, Some(Vec::new()));
    net.ends[1].accept(net.now, request, 9).expect("room");
    net.flush();
    let kept = net.keep.replace(Vec::new()).expect("kept");
    let (_, accept) = kept.into_iter().find(|(_, bytes)| bytes[0] & 15 == 4).expect("an acceptance");
    (net, client, accept)
}

fn is_connected(net: &Net) -> bool {
    net.apps[0].has(|event| matches!(event, Event::Connected { .. }))
}

/// What went to end 2, by type.
fn to_the_third(net: &Net) -> Vec<u8> {
    let kept = net.keep.as_deref().unwrap_or_default();
    kept.iter().filter(|(target, _)| *target == 2).map(|(_, bytes)| bytes[0] & 15).collect()
}

//= wire.md R-HS-6
#[test]
fn a_server_does_not_choose_where_its_client_sends() {
    let (mut net, client, accept) = an_acceptance(10 * SECOND);
    // The server says it all the time, from the address of a third host.
    for _ in 0..1_000 {
        let now = net.now;
        net.ends[0].handle_datagram(now, address(2), &accept, &mut net.apps[0]);
        let _ = net.ends[0].send(net.now, client, &[b"in clear to a third host"], 1, false);
        net.run(10 * MS);
    }
    assert!(!is_connected(&net), "the third host has not answered");
    let sent = to_the_third(&net);
    assert!(sent.iter().all(|kind| *kind == PATH), "only a question: {sent:?}");
    assert!((1..=20).contains(&sent.len()), "and seldom: {} times", sent.len());
    net.run(SECOND);
    assert!(
        net.apps[0].has(|event| matches!(event, Event::ConnectFailed { .. })),
        "as if nobody had answered"
    );
}

#[test]
fn who_has_not_seen_the_question_does_not_answer_for_a_third_host() {
    let (mut net, client, accept) = an_acceptance(10 * SECOND);
    let now = net.now;
    net.ends[0].handle_datagram(now, address(2), &accept, &mut net.apps[0]);
    net.flush();
    let question =
        net.keep.as_ref().expect("kept").iter().find(|(target, _)| *target == 2).expect("asked").1.clone();
    let challenge = u64::from_le_bytes(question[limits::HEADER_BYTES..][..8].try_into().expect("eight"));
    let index = |at: usize| u32::from_le_bytes(accept[at..at + 4].try_into().expect("four"));
    let head = Head {
        kind: Kind::Path,
        flags: 0,
        index: client.index,
        generation: client.generation,
        source_index: index(12),
        nonce: u64::from_le_bytes(accept[16..24].try_into().expect("eight")),
        seq: Seq(index(28)),
        ack: Seq(0),
        timestamp: 0,
        echo: 0,
        window_kib: 100,
        epoch: 0,
        epoch_ack: 0,
    };
    let send_record = |net: &mut Net, from: Address, kind: Kind, body: PathBody| {
        let mut datagram = [0; 64];
        Head { kind, ..head }.emit_path(body, &mut datagram);
        let now = net.now;
        net.ends[0].handle_datagram(now, from, &datagram, &mut net.apps[0]);
        is_connected(net)
    };
    let answer = |answer: u64| PathBody { challenge: 0, answer };
    assert!(!send_record(&mut net, address(2), Kind::Path, answer(challenge ^ 2)), "another number");
    assert!(!send_record(&mut net, address(1), Kind::Path, answer(challenge)), "from elsewhere");
    assert!(!send_record(&mut net, address(2), Kind::Ping, answer(challenge)), "not an answer");
    net.flush();
    assert!(to_the_third(&net).iter().all(|kind| *kind == PATH), "not a word more");
    assert!(send_record(&mut net, address(2), Kind::Path, answer(challenge)));
    assert_eq!(net.ends[0].connection(client).expect("open").peer, address(2));
}

/// A program may accept by another of its endpoints than the one that was asked: that proves itself by an answer.
#[test]
fn another_endpoint_of_the_server_proves_itself_on_any_network() {
    for seed in 0..60 {
        let mut net = Net::new(seed, vec![Config::default(); 3]);
        (net.loss_pct, net.repeat_pct, net.jitter_ns) = (seed % 4 * 12, seed % 3 * 20, seed % 5 * 100_000);
        let attribute = [Attribute::ReliableOrdered, Attribute::Unreliable][seed as usize % 2];
        let client = net.ends[0].connect(net.now, address(1), b"", attribute, 7, None).expect("room");
        let request = net.request();
        let ticket = request.ticket;
        let server = net.ends[2].accept(net.now, request, 9).expect("room");
        net.ends[1].request_taken(ticket);
        net.run_until(60 * SECOND, "connected", |net| {
            is_connected(net) && net.apps[2].has(|event| matches!(event, Event::Accepted { .. }))
        });
        assert_eq!(net.ends[0].connection(client).expect("open").peer, address(2));
        if attribute.is_reliable() {
            net.ends[2].send(net.now, server, &[b"at once"], 1, false).expect("room");
            net.send(0, client, b"and back", 1);
            net.run_until(60 * SECOND, "both arrive", |net| {
                !net.apps[0].messages.is_empty() && !net.apps[2].messages.is_empty()
            });
        }
        net.run(SECOND);
        assert!(!net.apps[0].has(|event| matches!(event, Event::Disconnected { .. })), "seed {seed}");
        assert_eq!(net.ends[1].connections(), 0);
    }
}

/// Of the two addresses of a server only the one that has answered may accept; the other is proved as the second path.
#[test]
fn the_other_address_of_a_bonded_server_does_not_accept() {
    let mut net = Net::new(3, vec![Config::default(); 3]);
    let (now, to) = (net.now, [address(1), address(2)]);
    let client = net.ends[0].connect_bonded(now, to, b"", Attribute::ReliableOrdered, 7, None).expect("room");
    let request = net.request();
    (net.cut, net.keep) = (true, Some(Vec::new()));
    net.ends[1].accept(net.now, request, 9).expect("room");
    net.flush();
    let kept = net.keep.replace(Vec::new()).expect("kept");
    let (_, accept) = kept.into_iter().find(|(_, bytes)| bytes[0] & 15 == 4).expect("an acceptance");
    let now = net.now;
    net.ends[0].handle_datagram(now, address(2), &accept, &mut net.apps[0]);
    net.flush();
    assert!(!is_connected(&net) && to_the_third(&net).is_empty());
    net.ends[0].handle_datagram(now, address(1), &accept, &mut net.apps[0]);
    assert!(is_connected(&net));
    assert_eq!(net.ends[0].connection(client).expect("open").peer, address(1));
}
