//! One host that begins more than there is room for, beside others.

use super::super::wire::{self, Datagram, Fragment};
use super::*;
use crate::limits::{HANDSHAKE_BYTES_MAX, HANDSHAKE_MEMORY_BYTES};

const SERVER: u32 = 2;
const HONEST: u32 = 3;

/// A client as far as the cookie; then it says no more.
fn begin(client: &mut Node, server: &mut Node, now_ns: u64) -> Vec<Flying> {
    let (mut net, at) = (Vec::new(), client.at);
    client.send(SERVER, b"message0", now_ns, &mut net);
    for _ in 0..2 {
        for datagram in std::mem::take(&mut net) {
            server.receive(datagram, now_ns, &mut net);
        }
        for datagram in std::mem::take(&mut net).into_iter().filter(|datagram| datagram.to == at) {
            client.receive(datagram, now_ns, &mut net);
        }
    }
    net
}

/// 1,200 handshakes a second begin at one host, and none is ended; an honest client of another host gets in all the same.
#[test]
fn one_host_that_begins_handshakes_keeps_nobody_else_out() {
    let (one, two) = certificates(&["a"], &["b"]);
    let mut server = Node::new(SERVER, Config { handshakes_max: 256, ..config(two) });
    let mut honest = Node::new(HONEST, config(one.clone()));
    let (mut now, mut started, mut in_ns) = (0, None, None);
    for number in 0..1800_u32 {
        // From as many ports as he likes.
        let mut client = Node::new(1000 + number % 1000, config(one.clone()));
        begin(&mut client, &mut server, now);
        now += 1_000_000_000 / 1200;
        // Once he has all that he can get.
        if number >= 600 && in_ns.is_none() {
            let since = *started.get_or_insert(now);
            let mut net = Vec::new();
            honest.tick(now, &mut net);
            honest.send(SERVER, b"message0", now, &mut net);
            for _ in 0..10 {
                for datagram in std::mem::take(&mut net) {
                    let to = if datagram.to == SERVER { &mut server } else { &mut honest };
                    to.receive(datagram, now, &mut net);
                }
                net.retain(|datagram| datagram.to == SERVER || datagram.to == HONEST);
            }
            in_ns = (!server.got.is_empty()).then_some(now - since);
        }
        server.tick(now, &mut Vec::new());
        let active = server.all.in_progress.len();
        assert!(active <= 256, "{active}");
    }
    let counters = server.all.counters();
    assert!(counters.no_space > 500, "{counters:?}");
    let in_ns = in_ns.unwrap_or_else(|| panic!("the honest client is kept out: {counters:?}"));
    assert!(in_ns <= MS, "it was let in after {} ms", in_ns / MS);
    println!("let in after {in_ns} ns beside {} handshakes under way", server.all.in_progress.len());
}

/// With as many hosts as there are places each has one, and a newcomer takes that of whoever has more.
#[test]
fn many_hosts_share_what_there_is() {
    let (one, two) = certificates(&["a"], &["b"]);
    let mut server = Node::new(SERVER, Config { handshakes_max: 20, ..config(two) });
    for round in 0..10_u32 {
        for host in 1..=6_u32 {
            let mut client = Node::new(1000 * host + round, config(one.clone()));
            begin(&mut client, &mut server, u64::from(round) * MS);
        }
    }
    let of = |server: &Node, host: u32| {
        let entries = server.all.in_progress.iter().filter_map(|index| server.all.table.get(*index));
        entries.filter(|entry| host_of(&entry.address) == host).count()
    };
    let counts: Vec<usize> = (1..=6).map(|host| of(&server, 1000 * host)).collect();
    assert!(counts.iter().all(|count| (2..=4).contains(count)), "{counts:?}");
    begin(&mut Node::new(7, config(one)), &mut server, 11 * MS);
    assert_eq!(of(&server, 7), 1, "{counts:?}");
}

/// What a stranger makes a responder keep of one handshake is bounded, however it is cut into fragments.
#[test]
fn strangers_pieces_take_little_memory() {
    let (one, two) = certificates(&["a"], &["b"]);
    let mut server = Node::new(SERVER, config(two));
    let before = server.all.memory_bytes();
    for number in 0..10_u32 {
        let mut client = Node::new(1000 + number, config(one.clone()));
        begin(&mut client, &mut server, 0);
        let entry = server.all.addresses.get(&client.at).and_then(|state| state.as_responder).unwrap();
        let id = server.all.table.get(entry).unwrap().id;
        for offset in 0..800_u16 {
            let bytes = vec![7; if offset % 2 == 0 { 1100 } else { 14_000 }];
            let fragment = Fragment {
                receiver: entry,
                id,
                sender: 1,
                offset: 1500 + offset,
                ack: 0,
                from_initiator: true,
                asks: false,
                cookie: None,
                bytes: &bytes,
            };
            let mut datagram = vec![0; 20_000];
            let len = fragment.emit(&mut datagram).unwrap();
            datagram.truncate(len);
            server.receive(Flying { from: client.at, to: SERVER, bytes: datagram }, 0, &mut Vec::new());
        }
    }
    let kept = server.all.memory_bytes() - before;
    let active = server.all.in_progress.len() as u64;
    assert!(active == 10 && kept <= active * HANDSHAKE_MEMORY_BYTES as u64, "{kept} bytes of {active}");
    println!("{kept} bytes of {active} handshakes, of {HANDSHAKE_BYTES_MAX} that each may say");
}

/// Handshakes that fail at once free no places for further ones: each costs a signature. One host begins half as many in a second as
/// there are places, and as many again for each second that they last.
#[test]
fn handshakes_that_fail_at_once_are_no_more_than_those_that_last() {
    let (one, two) = certificates(&["a"], &["b"]);
    let mut server = Node::new(SERVER, config(two));
    let (mut now, mut begun) = (0, 0);
    for number in 0..600_u32 {
        let mut client = Node::new(1000 + number, config(one.clone()));
        begin(&mut client, &mut server, now);
        let entry = server.all.addresses.get(&client.at).and_then(|state| state.as_responder);
        if let Some(entry) = entry {
            begun += 1;
            let id = server.all.table.get(entry).unwrap().id;
            let (sender, offset, bytes) = (1, u16::MAX - 8, &[7; 8][..]);
            let (from_initiator, asks, cookie, ack) = (true, false, None, 0);
            let wrong =
                Fragment { receiver: entry, id, sender, offset, ack, from_initiator, asks, cookie, bytes };
            let mut datagram = vec![0; 100];
            let len = wrong.emit(&mut datagram).unwrap();
            datagram.truncate(len);
            server.receive(Flying { from: client.at, to: SERVER, bytes: datagram }, now, &mut Vec::new());
        }
        now += 5 * MS;
        server.tick(now, &mut Vec::new());
    }
    // Three seconds, twenty places.
    assert!((20..=50).contains(&begun), "{begun}: {:?}", server.all.counters());
    assert!(server.all.counters().refused >= begun, "{:?}", server.all.counters());
}

/// Holders of good credentials at one host fill no more than half of the table with associations in use.
#[test]
fn one_host_with_many_addresses_does_not_fill_the_table() {
    let few = Config { associations_max: 20, ..config(psk(&["a"])) };
    let mut server = Node::new(SERVER, few);
    let (mut now, mut net) = (0, Vec::new());
    let connect = |at: u32, server: &mut Node, now: u64, net: &mut Vec<Flying>| {
        let mut nodes = [Node::new(at, config(psk(&["a"])))];
        nodes[0].send(SERVER, b"message0", now, net);
        for _ in 0..10 {
            for datagram in std::mem::take(net) {
                let to = if datagram.to == SERVER { &mut *server } else { &mut nodes[0] };
                to.receive(datagram, now, net);
            }
        }
        let is_in = server.all.peer(at).is_some();
        if is_in {
            server.all.retain(at);
        }
        is_in
    };
    let taken = (1000..1040).filter(|at| {
        now += 2000 * MS;
        connect(*at, &mut server, now, &mut net)
    });
    let taken: Vec<u32> = taken.collect();
    assert_eq!(taken.len(), 10, "{taken:?}");
    assert!(connect(3000, &mut server, now, &mut net) && connect(7, &mut server, now, &mut net));
    // One that begins again, at an address that is in use, takes its own place.
    assert!(connect(1003, &mut server, now, &mut net));
    assert_eq!(server.all.len(), 12);
    // Those that are not used make way, first those of their own host.
    taken.iter().for_each(|at| server.all.release(*at));
    server.all.release(1003);
    assert!(connect(1039, &mut server, now, &mut net) && server.all.peer(7).is_some());
    assert!(server.all.len() <= 12);
}

/// Cookies that wait to be sent are shared, too: one host that asks again and again leaves room for others.
#[test]
fn one_host_that_asks_leaves_cookies_for_others() {
    let (one, two) = certificates(&["a"], &["b"]);
    let mut server = Node::new(SERVER, config(two));
    let mut client = Node::new(1000, config(one));
    let mut net = Vec::new();
    client.send(SERVER, b"message0", 0, &mut net);
    let first = net.pop().unwrap();
    let mut open = |from: u32| server.all.open(from, &mut first.bytes.clone(), 0) == Opened::Taken;
    let given = (1000..1400).filter(|from| open(*from)).count();
    let others = (3..20).filter(|from| open(*from)).count();
    assert!(given == 32 && others == 17, "{given} {others}");
    let mut sent = Vec::new();
    server.tick(0, &mut sent);
    assert!(
        sent.iter().all(|datagram| matches!(wire::parse(&datagram.bytes), Some(Datagram::Cookie { .. })))
    );
}
