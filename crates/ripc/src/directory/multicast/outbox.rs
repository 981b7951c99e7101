//! The results of a turn of the state: datagrams, news, and the ends of claims.

use super::wire::{Body, Packet};
use crate::directory::News;
use std::net::SocketAddr;

/// Nanoseconds since the directory was opened.
pub(super) type Time = u64;

/// The source of a datagram, to which its answer goes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    /// The directory's interface.
    pub interface: usize,
    pub address: SocketAddr,
}

/// The destination of a datagram.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// The group, on each interface.
    Group,
    One(Source),
}

/// Why a claim was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another process has the name; this describes it.
    Taken(String),
    TooMany,
    /// Why the claim could not be made.
    Failed(String),
}

/// What is to be done after a turn.
pub(super) struct Outbox {
    sender: u64,
    random: u64,
    pub packets: Vec<(To, Packet)>,
    pub news: Vec<News>,
    /// Ends of claims, by their numbers.
    pub verdicts: Vec<(u64, Result<(), Refusal>)>,
    /// Why nothing could be sent on any interface, while that is so.
    pub fault: Option<String>,
}

impl Outbox {
    pub fn new(sender: u64, seed: u64) -> Outbox {
        let (packets, news, verdicts) = (Vec::new(), Vec::new(), Vec::new());
        Outbox { sender, random: seed, packets, news, verdicts, fault: None }
    }

    /// The number of this directory in its datagrams.
    pub fn sender(&self) -> u64 {
        self.sender
    }

    pub fn send(&mut self, to: To, nonce: u64, body: Body) {
        self.packets.push((to, Packet { sender: self.sender, nonce, body }));
    }

    /// 64 bits for a question; never 0.
    pub fn nonce(&mut self) -> u64 {
        self.next() | 1
    }

    /// A random time below `below_ns`, which is not 0.
    pub fn spread(&mut self, below_ns: u64) -> u64 {
        self.next() % below_ns
    }

    /// SplitMix64, over a secret seed.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
