//! Somebody with recordings of others' handshakes, and an address of his own.

use super::super::wire::{self, Cookie, Datagram, Fragment};
use super::*;

const REPLAYER: u32 = 5000;

/// What this node sends in a handshake with somebody at 2: its first message, and the same with a cookie.
fn record(client: &mut Node, server: &mut Node) -> Vec<Flying> {
    let (mut net, mut recorded) = (Vec::new(), Vec::new());
    client.send(2, b"message0", 0, &mut net);
    for _ in 0..6 {
        for datagram in std::mem::take(&mut net) {
            if datagram.to == 2 {
                recorded.push(datagram.clone());
                server.receive(datagram, 0, &mut net);
            } else {
                client.receive(datagram, 0, &mut net);
            }
        }
    }
    recorded
}

fn fragment(bytes: &[u8]) -> Option<Fragment<'_>> {
    match wire::parse(bytes)? {
        Datagram::Handshake(fragment) => Some(fragment),
        _ => None,
    }
}

/// The recorded fragment, with a cookie of the replayer's.
fn with_cookie(recorded: &[u8], cookie: Cookie) -> Flying {
    let mut bytes = vec![0; 1500];
    let len = Fragment { cookie: Some(cookie), ..fragment(recorded).unwrap() }.emit(&mut bytes).unwrap();
    bytes.truncate(len);
    Flying { from: REPLAYER, to: 2, bytes }
}

#[test]
fn forty_recordings_with_the_replayers_own_cookies_make_no_association() {
    let (one, two) = (psk(&["a"]), psk(&["a"]));
    let mut recorded_at = Node::new(2, config(two.clone()));
    let mut server = Node::new(2, config(two));
    let mut cookies = 0;
    for number in 0..40 {
        let mut client = Node::new(100 + number, config(one.clone()));
        let recorded = record(&mut client, &mut recorded_at);
        let fragments: Vec<&Flying> =
            recorded.iter().filter(|datagram| fragment(&datagram.bytes).is_some()).collect();
        assert_eq!((fragments.len(), client.all.len()), (2, 1), "one without a cookie, one with");
        // To another endpoint with the key, which has seen none of it; each as it was, then with the cookie that it got.
        for recorded in fragments {
            let mut answers = Vec::new();
            server.receive(Flying { from: REPLAYER, ..recorded.clone() }, MS, &mut answers);
            for answer in std::mem::take(&mut answers) {
                assert_eq!(answer.to, REPLAYER);
                let Some(Datagram::Cookie { cookie, .. }) = wire::parse(&answer.bytes) else {
                    panic!("a cookie")
                };
                cookies += 1;
                for other in recorded_cookies(&recorded.bytes, cookie) {
                    server.receive(other, MS, &mut answers);
                }
            }
            assert!(answers.is_empty(), "he has got an answer to it");
        }
    }
    assert_eq!(cookies, 40, "each first message gets one, once");
    let counters = *server.all.counters();
    assert_eq!((server.all.len(), counters.handshakes), (0, 0), "{counters:?}");
    assert_eq!(server.all.table.len() + server.all.addresses.len(), 0, "nor is anything kept of him");
}

fn recorded_cookies(recorded: &[u8], cookie: Cookie) -> [Flying; 2] {
    let own = fragment(recorded).unwrap().cookie.unwrap_or(cookie);
    [with_cookie(recorded, cookie), with_cookie(recorded, own)]
}

/// Who can send from the client's address repeats all of its handshake but what it sealed.
#[test]
fn nothing_counts_before_something_sealed_has_come() {
    for (one, two) in kinds() {
        let mut client = Node::new(100, config(one.clone()));
        let mut server = Node::new(2, config(two.clone()));
        let (mut net, mut sealed) = (Vec::new(), Vec::new());
        client.send(2, b"message0", 0, &mut net);
        for _ in 0..8 {
            for datagram in std::mem::take(&mut net) {
                match (datagram.to, datagram.bytes[1] & 3) {
                    (2, 1) => sealed.push(datagram),
                    (2, _) => server.receive(datagram, 0, &mut net),
                    _ => client.receive(datagram, 0, &mut net),
                }
            }
        }
        let counters = server.all.counters();
        assert!(client.all.len() == 1 && !sealed.is_empty());
        assert_eq!((server.all.len(), counters.handshakes, counters.timeouts), (0, 0, 0));
        assert!(server.all.peer(100).is_none() && server.all.table.len() == 1);
        for datagram in sealed {
            server.receive(datagram, MS, &mut net);
        }
        assert_eq!((server.all.len(), server.all.counters().handshakes), (1, 1));
        assert_eq!(server.got, [(100, b"message0".to_vec())]);
    }
}

#[test]
fn who_sees_a_handshake_and_forges_cookies_does_not_stop_it() {
    for (one, two) in kinds() {
        let mut client = Node::new(100, config(one));
        let mut server = Node::new(2, config(two));
        let mut net = Vec::new();
        client.send(2, b"message0", 0, &mut net);
        let first = net.pop().unwrap();
        let (receiver, id) = fragment(&first.bytes).map(|fragment| (fragment.sender, fragment.id)).unwrap();
        for number in 0..10 {
            let cookie = Cookie { slot: 0, mac: [number; 16] };
            let bytes = wire::cookie_datagram(receiver, id, cookie, [number; 16]).to_vec();
            client.receive(Flying { from: 2, to: 100, bytes }, 0, &mut net);
        }
        net.push(first);
        for _ in 0..10 {
            for datagram in std::mem::take(&mut net) {
                if datagram.to == 2 {
                    server.receive(datagram, 0, &mut net);
                } else {
                    client.receive(datagram, 0, &mut net);
                }
            }
        }
        assert_eq!(server.got, [(100, b"message0".to_vec())]);
    }
}
