//! Endpoints that talk through a network in memory.

mod attacks;
mod attribution;
mod expected;
mod floods;
mod learned;
mod network;
mod observers;
mod peers;
mod recordings;
mod reflection;
mod silence;
mod versions;

use super::*;
use crate::credentials::Credentials;
use crate::identity::{Authorisation, Method};
use crate::limits::UpdateLimits;
use crate::testing::{certificates, psk};

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// Addresses from 1000 on are one host's, for each thousand; those below are hosts of their own.
fn host_of(address: &u32) -> u32 {
    if *address < 1000 { *address } else { address / 1000 * 1000 }
}

pub(super) fn config(credentials: Credentials) -> Config<u32> {
    Config {
        credentials,
        authorisation: Authorisation::default(),
        associations_max: 100,
        handshakes_max: 20,
        datagram_bytes_max: 1400,
        update: UpdateLimits::default(),
        host_of,
    }
}

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(super) struct Flying {
    pub from: u32,
    pub to: u32,
    pub bytes: Vec<u8>,
}

/// One endpoint, and what its upper layer got.
pub(super) struct Node {
    pub at: u32,
    pub all: Associations<u32>,
    pub got: Vec<(u32, Vec<u8>)>,
    /// Whom each of these is said to be from.
    pub senders: Vec<Option<String>>,
}

impl Node {
    pub fn new(at: u32, config: Config<u32>) -> Node {
        Node { at, all: Associations::new(config, 0).unwrap(), got: Vec::new(), senders: Vec::new() }
    }

    pub fn send(&mut self, to: u32, body: &[u8], now_ns: u64, net: &mut Vec<Flying>) {
        match self.all.route(to) {
            Route::Wait => self.all.hold(to, body, now_ns),
            Route::Ready(by) => {
                let mut bytes = vec![0; HEADER_BYTES];
                bytes.extend_from_slice(body);
                bytes.extend_from_slice(&[0; TAG_BYTES]);
                assert!(self.all.seal(by, &mut bytes, now_ns));
                net.push(Flying { from: self.at, to, bytes });
            }
        }
        self.flush(now_ns, net);
    }

    pub fn receive(&mut self, mut datagram: Flying, now_ns: u64, net: &mut Vec<Flying>) {
        if let Opened::Datagram { body, by } = self.all.open(datagram.from, &mut datagram.bytes, now_ns) {
            self.got.push((datagram.from, body.to_vec()));
            self.senders.push(self.all.peer_by(by).map(|(peer, _)| peer.name().to_owned()));
        }
        self.flush(now_ns, net);
    }

    pub fn tick(&mut self, now_ns: u64, net: &mut Vec<Flying>) {
        if self.all.next_deadline_ns().is_some_and(|due| due <= now_ns) {
            self.all.handle_timeout(now_ns);
        }
        self.flush(now_ns, net);
    }

    fn flush(&mut self, now_ns: u64, net: &mut Vec<Flying>) {
        let mut out = [0; 1500];
        while let Some((to, len)) = self.all.poll_transmit(now_ns, &mut out) {
            net.push(Flying { from: self.at, to, bytes: out[..len].to_vec() });
        }
    }
}

/// Delivers everything at once, without loss, until nothing flies; what flew.
pub(super) fn settle(nodes: &mut [Node], now_ns: u64, net: &mut Vec<Flying>) -> Vec<Flying> {
    let mut seen = Vec::new();
    for _ in 0..200 {
        let flying = std::mem::take(net);
        if flying.is_empty() {
            return seen;
        }
        for datagram in flying {
            seen.push(datagram.clone());
            if let Some(node) = nodes.iter_mut().find(|node| node.at == datagram.to) {
                node.receive(datagram, now_ns, net);
            }
        }
    }
    panic!("it never ends");
}

/// Lets time pass in steps of 10 ms.
pub(super) fn pass(nodes: &mut [Node], now_ns: &mut u64, ns: u64) -> Vec<Flying> {
    let (end, mut seen) = (*now_ns + ns, Vec::new());
    while *now_ns < end {
        *now_ns += 10 * MS;
        let mut net = Vec::new();
        for node in nodes.iter_mut() {
            node.tick(*now_ns, &mut net);
        }
        seen.extend(settle(nodes, *now_ns, &mut net));
    }
    seen
}

/// Both kinds of credentials, for a pair of nodes each.
pub(super) fn kinds() -> [(Credentials, Credentials); 2] {
    [(psk(&["a", "b"]), psk(&["b", "a"])), certificates(&["a"], &["b"])]
}

#[test]
fn two_endpoints_get_to_know_each_other() {
    for (one, two) in kinds() {
        let mut nodes = [Node::new(1, config(one)), Node::new(2, config(two))];
        let mut net = Vec::new();
        nodes[0].send(2, b"message0", 0, &mut net);
        nodes[0].send(2, b"dropped.", 0, &mut net);
        let seen = settle(&mut nodes, 0, &mut net);
        assert_eq!(nodes[1].got, [(1, b"message0".to_vec())]);
        assert_eq!(nodes[0].all.counters().waited, 1);
        nodes[1].send(1, b"answer..", 0, &mut net);
        nodes[0].send(2, b"message1", 0, &mut net);
        settle(&mut nodes, 0, &mut net);
        assert_eq!((nodes[0].got.len(), nodes[1].got.len()), (1, 2));
        assert!(seen.iter().all(|datagram| datagram.bytes.len() % 8 == 0));
        for node in &nodes {
            let counters = node.all.counters();
            assert_eq!((counters.handshakes, counters.forged, counters.refused), (1, 0, 0));
            assert_eq!(node.all.in_progress.len(), 0, "both are sure");
            assert!(node.all.memory_bytes() > 1000);
        }
        let name = if nodes[0].all.config.credentials.method() == Method::Psk { "a" } else { "b" };
        assert_eq!(nodes[0].all.peer(2).unwrap().0.name(), name);
        assert_eq!(nodes[1].all.peer(1).unwrap().0.name(), "a");
        println!("{} datagrams, {} bytes", seen.len(), seen.iter().map(|d| d.bytes.len()).sum::<usize>());
    }
}
