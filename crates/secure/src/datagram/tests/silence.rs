//! Peers that say nothing, and networks that carry nothing for a while.

use super::*;

fn begins(datagram: &Flying) -> bool {
    datagram.bytes[1] & 3 == 2 && datagram.bytes[4..8] == [0; 4]
}

/// One side sends all the time, for ten minutes; the other listens, or is gone. Handshakes become seldom.
#[test]
fn a_silent_peer_is_asked_seldom() {
    for (one, two) in kinds() {
        for listens in [true, false] {
            let mut nodes = [Node::new(1, config(one.clone())), Node::new(2, config(two.clone()))];
            let (mut net, mut asked) = (Vec::new(), 0);
            nodes[0].send(2, b"message0", 0, &mut net);
            settle(&mut nodes, 0, &mut net);
            nodes[0].all.retain(2);
            let mut now = 0;
            while now < 600_000 * MS {
                now += 20 * MS;
                nodes[0].send(2, b"message1", now, &mut net);
                nodes.iter_mut().for_each(|node| node.tick(now, &mut net));
                asked += net.iter().filter(|datagram| begins(datagram)).count();
                if listens {
                    asked +=
                        settle(&mut nodes, now, &mut net).iter().filter(|datagram| begins(datagram)).count();
                } else {
                    net.clear();
                }
            }
            let counters = nodes[0].all.counters();
            println!("{listens}: {asked} first messages, {counters:?}");
            // At 0.5 s, 1.5 s, 3.5 s and so on until 63.5 s, then each 64 s: 17 times.
            let times = if listens { counters.handshakes - 1 } else { counters.timeouts };
            assert!((10..=18).contains(&times), "{times} times: {counters:?}");
            // Each attempt, of five seconds at most, repeats its first message ever more rarely.
            assert!(asked <= 18 * if listens { 4 } else { 12 }, "{asked}");
        }
    }
}

/// Nothing gets through for longer than two keys live, while one side goes on sending. What it sends then is understood at once.
#[test]
fn a_long_outage_costs_no_more_time_than_it_lasts() {
    for (one, two) in kinds() {
        for sends_every_ms in [100, 61_000] {
            let mut nodes = [Node::new(1, config(one.clone())), Node::new(2, config(two.clone()))];
            let (mut net, mut now) = (Vec::new(), 0);
            nodes[0].send(2, b"message0", 0, &mut net);
            settle(&mut nodes, 0, &mut net);
            nodes.iter_mut().for_each(|node| node.all.retain(3 - node.at));
            while now < 190_000 * MS {
                now += 100 * MS;
                if (now / MS).is_multiple_of(sends_every_ms) {
                    nodes[0].send(2, b"lost...0", now, &mut net);
                }
                nodes.iter_mut().for_each(|node| node.tick(now, &mut net));
                net.clear();
            }
            let (healed, before) = (now, nodes[1].got.len());
            while nodes[1].got.len() == before && now < healed + 100_000 * MS {
                now += 100 * MS;
                nodes[0].send(2, b"heard..0", now, &mut net);
                nodes.iter_mut().for_each(|node| node.tick(now, &mut net));
                settle(&mut nodes, now, &mut net);
            }
            let after_ms = (now - healed) / MS;
            assert!(after_ms <= 100, "{sends_every_ms}: after {after_ms} ms, {:?}", nodes[1].all.counters());
        }
    }
}

/// Many peers go silent at once, and this side asks all of them again. One more that it wants to reach does not wait for that.
#[test]
fn silent_peers_leave_places_for_handshakes_with_others() {
    let mut server = Node::new(2, config(psk(&["a"])));
    let (mut now, mut net) = (0, Vec::new());
    for at in 1000..1030 {
        let mut client = [Node::new(at, config(psk(&["a"])))];
        client[0].send(2, b"message0", now, &mut net);
        for _ in 0..10 {
            for datagram in std::mem::take(&mut net) {
                let to = if datagram.to == 2 { &mut server } else { &mut client[0] };
                to.receive(datagram, now, &mut net);
            }
        }
        assert!(server.all.peer(at).is_some());
        server.all.retain(at);
    }
    let mut honest = [Node::new(7, config(psk(&["a"])))];
    let mut dialled_ns = None;
    while honest[0].got.is_empty() && now < 30_000 * MS {
        now += 20 * MS;
        (1000..1030).for_each(|at| server.send(at, b"question", now, &mut net));
        if server.all.in_progress.len() >= 10 || dialled_ns.is_some() {
            dialled_ns.get_or_insert(now);
            server.send(7, b"message1", now, &mut net);
        }
        server.tick(now, &mut net);
        for _ in 0..10 {
            for datagram in std::mem::take(&mut net) {
                match datagram.to {
                    2 => server.receive(datagram, now, &mut net),
                    7 => honest[0].receive(datagram, now, &mut net),
                    _ => {}
                }
            }
        }
    }
    let waited_ms = (now - dialled_ns.unwrap()) / MS;
    assert!(!honest[0].got.is_empty() && waited_ms <= 100, "{waited_ms} ms: {:?}", server.all.counters());
}
