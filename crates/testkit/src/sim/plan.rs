//! What a run is made of: nodes, what they say to each other, what goes wrong.

use cci_proto::{Attribute, Config};

use super::net::Link;
use super::reader::Reading;
use super::rma::RmaWork;
use crate::rng::Rng;

/// One node: an endpoint and a program over it.
#[derive(Clone, Debug)]
pub struct NodePlan {
    /// Longest datagram this node sends or takes.
    pub datagram_bytes_max: u16,
    /// Cap of the endpoint's memory.
    pub memory_bytes_max: u64,
    /// See `Config`.
    pub connections_max: u32,
    /// See `Config`.
    pub requests_max: u32,
    /// See `Config`.
    pub sends_max: u32,
    /// See `Config`.
    pub operations_max: u32,
    /// See `Config`; 0: the library's own.
    pub send_timeout_ns: u64,
    /// See `Config`; 0: off.
    pub keepalive_ns: u64,
    /// What its program does with messages.
    pub reading: Reading,
    /// Time one poll of the endpoint takes before anything is handled.
    pub poll_ns: u64,
    /// Time each datagram in or out takes on top.
    pub datagram_ns: u64,
    /// Datagrams taken from the socket, and given to it, per poll.
    pub batch: usize,
    /// Bytes the socket holds; what finds it full is lost.
    pub socket_bytes: usize,
    /// It has a second interface ([`super::SECOND`]), and connections to others that have one are bonded.
    pub bonded: bool,
}

impl Default for NodePlan {
    fn default() -> NodePlan {
        NodePlan {
            datagram_bytes_max: 1_472,
            memory_bytes_max: 1 << 20,
            connections_max: 64,
            requests_max: 16,
            sends_max: 1_024,
            operations_max: 4_096,
            send_timeout_ns: 0,
            keepalive_ns: 0,
            reading: Reading::Instant,
            poll_ns: 200,
            datagram_ns: 50,
            batch: 32,
            socket_bytes: 212_992,
            bonded: false,
        }
    }
}

impl NodePlan {
    /// The endpoint's configuration. Sequence numbers start so close under their wrap that every run crosses it.
    pub(super) fn config(&self, rng: &mut Rng) -> Config {
        Config {
            secret: rng.secret(),
            datagram_bytes_max: self.datagram_bytes_max,
            memory_bytes_max: self.memory_bytes_max,
            receive_buffer_bytes: self.socket_bytes as u64,
            connections_max: self.connections_max,
            serves: true,
            requests_max: self.requests_max,
            sends_max: self.sends_max,
            operations_max: self.operations_max,
            send_timeout_ns: self.send_timeout_ns,
            keepalive_ns: self.keepalive_ns,
            first_seq: Some(u32::MAX - rng.below(8) as u32),
        }
    }
}

/// Lengths of messages.
#[derive(Copy, Clone, Debug)]
pub enum Sizes {
    /// All the same; longer than the connection takes means its longest.
    Fixed(usize),
    /// Anything between, both included, with the same clamp.
    Between(usize, usize),
}

/// What one side of a conversation sends.
#[derive(Clone, Debug)]
pub struct Workload {
    /// How many messages.
    pub messages: u32,
    /// How long.
    pub sizes: Sizes,
    /// Time from one burst to the next; 0: as fast as the endpoint takes them.
    pub gap_ns: u64,
    /// Messages in a burst.
    pub burst: u32,
    /// Silent ones, of 100.
    pub silent_pct: f64,
    /// Stops here even if messages are left.
    pub until_ns: u64,
    /// What it does to its peer's memory; reliable connections only.
    pub rma: RmaWork,
}

impl Workload {
    /// Says nothing.
    pub const QUIET: Workload = Workload {
        messages: 0,
        sizes: Sizes::Fixed(0),
        gap_ns: 0,
        burst: 1,
        silent_pct: 0.0,
        until_ns: u64::MAX,
        rma: RmaWork::NONE,
    };

    /// As fast as it goes.
    pub const fn bulk(messages: u32, bytes: usize) -> Workload {
        Workload { messages, sizes: Sizes::Fixed(bytes), ..Workload::QUIET }
    }

    /// Only remote memory access.
    pub const fn rma(rma: RmaWork) -> Workload {
        Workload { rma, ..Workload::QUIET }
    }

    /// No message is too short to say where it is from.
    pub(super) fn always_named(&self) -> bool {
        let least = match self.sizes {
            Sizes::Fixed(least) | Sizes::Between(least, _) => least,
        };
        self.messages == 0 || least >= crate::contents::NAMED_BYTES_MIN
    }
}

/// When a conversation ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum HangUp {
    /// The client hangs up when both sides have said and heard everything.
    WhenDone,
    /// The client hangs up as soon as it has queued its last message.
    Linger,
    /// Both hang up at the same moment, when done.
    Both,
}

/// One connection's life.
#[derive(Clone, Debug)]
pub struct Talk {
    /// Dials.
    pub client: usize,
    /// Is dialled.
    pub server: usize,
    /// The node whose endpoint accepts, if not `server` (CCI-037).
    pub broker_to: Option<usize>,
    /// Reliability and order.
    pub attribute: Attribute,
    /// Bytes of the request payload, at least 4 (they name the conversation).
    pub request_bytes: usize,
    /// When it starts.
    pub start_ns: u64,
    /// Limit of the connect.
    pub connect_timeout_ns: Option<u64>,
    /// The server's program rejects.
    pub reject: bool,
    /// Time until the server's program answers.
    pub answer_ns: u64,
    /// What the client sends.
    pub up: Workload,
    /// What the server sends.
    pub down: Workload,
    /// How it ends.
    pub hang_up: HangUp,
}

impl Talk {
    /// A conversation that starts at once and is accepted at once.
    pub fn new(client: usize, server: usize, attribute: Attribute, up: Workload, down: Workload) -> Talk {
        Talk {
            client,
            server,
            broker_to: None,
            attribute,
            request_bytes: 16,
            start_ns: 0,
            connect_timeout_ns: Some(60_000_000_000),
            reject: false,
            answer_ns: 0,
            up,
            down,
            hang_up: HangUp::WhenDone,
        }
    }
}

/// What goes wrong at a time.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The node's memory is gone; it is down until restarted.
    Crash(usize),
    /// The node comes back with the same address and a new endpoint.
    Restart(usize),
    /// Datagrams seen so far, this many of them chosen by chance, are sent again as they were.
    Replay(u32),
    /// So many of the datagrams seen so far, chosen by chance, are sent again from another node's address, or from the
    /// other interface.
    ReplayElsewhere(u32),
    /// Every datagram seen from the first to the second time goes again, in order.
    ReplayBetween(u64, u64),
    /// This many forgeries from the addresses of nodes: random bytes, and seen datagrams with changed identity.
    Forge(u32),
    /// Other links for a node from now on: `(node, egress, ingress)`.
    Links(usize, Link, Link),
}

/// A whole run.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The nodes, by index.
    pub nodes: Vec<NodePlan>,
    /// The conversations.
    pub talks: Vec<Talk>,
    /// What goes wrong and when, in nanoseconds.
    pub faults: Vec<(u64, Fault)>,
    /// When every program hangs up whatever is left.
    pub give_up_ns: u64,
    /// When nothing may be going on any more.
    pub end_ns: u64,
    /// Nothing but `Success` is acceptable.
    pub all_succeed: bool,
    /// Keep copies of datagrams for faults that send them again.
    pub record: bool,
}

impl Plan {
    /// A plan of so many equal nodes.
    pub fn new(nodes: usize, node: NodePlan) -> Plan {
        Plan {
            nodes: vec![node; nodes],
            give_up_ns: 200_000_000_000,
            end_ns: 400_000_000_000,
            all_succeed: true,
            ..Plan::default()
        }
    }

    /// Adds a conversation.
    pub fn talk(mut self, talk: Talk) -> Plan {
        self.talks.push(talk);
        self
    }
}
