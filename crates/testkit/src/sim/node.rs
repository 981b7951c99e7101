//! One machine of a run: an endpoint, its socket, and a program over it.

use std::collections::VecDeque;
use std::rc::Rc;

use cci_proto::{
    Address, Atomic, Attribute, ConnKey, ConnState, Endpoint, Event, Memory, RemoteAddress, RmaRefusal,
    SendError, Sink, Time, Transmit,
};

use super::ledger::{Ledger, SideState};
use super::net::{SECOND, node_of};
use super::operator::Operator;
use super::plan::{NodePlan, Sizes, Workload};
use super::reader::Reader;
use crate::contents;
use crate::rng::Rng;

/// A datagram on its way from one node's interface to another's.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub source: usize,
    pub target: usize,
    pub bytes: Rc<[u8]>,
}

/// The address of a node, or of a node's second interface.
pub fn address_of(interface: usize) -> Address {
    let [_, _, high, low] = (node_of(interface) as u32).to_be_bytes();
    let net = (interface / SECOND) as u8;
    Address::from(std::net::SocketAddr::from(([10, net, high, low], 4_791)))
}

/// The node or second interface at an address, if there can be one.
pub fn node_at(address: Address) -> Option<usize> {
    match address.socket_addr()? {
        std::net::SocketAddr::V4(v4) => {
            let [_, net, high, low] = v4.ip().octets();
            Some(usize::from(u16::from_be_bytes([high, low])) + SECOND * usize::from(net))
        }
        std::net::SocketAddr::V6(_) => None,
    }
}

/// The end of the program's pipe: checks every message at once, keeps events for the program.
pub(super) struct Program<'a> {
    pub node: usize,
    pub now_ns: u64,
    pub reader: &'a mut Reader,
    pub ledger: &'a mut Ledger,
    pub events: &'a mut VecDeque<Event>,
}

impl Memory for Program<'_> {
    fn peer_write(
        &mut self,
        conn: ConnKey,
        token: u64,
        at: RemoteAddress,
        data: &[u8],
    ) -> Result<(), RmaRefusal> {
        self.ledger.peer_write(self.now_ns, (self.node, conn, token), at, data)
    }

    fn peer_read(
        &mut self,
        conn: ConnKey,
        token: u64,
        at: RemoteAddress,
        out: &mut [u8],
    ) -> Result<(), RmaRefusal> {
        self.ledger.peer_read(self.now_ns, (self.node, conn, token), at, out)
    }

    fn peer_may_read(
        &mut self,
        conn: ConnKey,
        token: u64,
        at: RemoteAddress,
        len_bytes: u64,
    ) -> Result<(), RmaRefusal> {
        self.ledger.peer_may_read(self.now_ns, (self.node, conn, token), at, len_bytes)
    }

    fn peer_atomic(
        &mut self,
        conn: ConnKey,
        token: u64,
        at: RemoteAddress,
        atomic: Atomic,
    ) -> Result<u64, RmaRefusal> {
        self.ledger.peer_atomic(self.now_ns, (self.node, conn, token), at, atomic)
    }

    fn local_read(&mut self, at: RemoteAddress, out: &mut [u8]) -> bool {
        self.ledger.local_read(self.now_ns, self.node, at, out)
    }

    fn local_write(&mut self, at: RemoteAddress, data: &[u8]) -> bool {
        self.ledger.local_write(self.now_ns, self.node, at, data)
    }
}

impl Sink for Program<'_> {
    fn message(&mut self, conn: ConnKey, token: u64, payload: &[u8]) -> bool {
        if !self.reader.take(self.now_ns) {
            return false;
        }
        self.ledger.delivered(self.now_ns, self.node, conn, token, payload);
        true
    }

    fn event(&mut self, event: Event) {
        // What the ledger judges is judged in the order the protocol says it, not when the program gets to it.
        use SideState::*;
        let (ledger, now) = (&mut *self.ledger, self.now_ns);
        match &event {
            Event::Request(_) => {}
            Event::Connected { conn, token } => ledger.moved(now, *token, *conn, &[Pending], Up, "Connected"),
            Event::Accepted { conn, token } => ledger.moved(now, *token, *conn, &[Pending], Up, "Accepted"),
            Event::ConnectFailed { conn, token, .. } => {
                ledger.moved(now, *token, *conn, &[Pending], Failed, "ConnectFailed");
            }
            Event::AcceptFailed { conn, token, .. } => {
                ledger.moved(now, *token, *conn, &[Pending], Failed, "AcceptFailed")
            }
            Event::Disconnected { conn, token, .. } => {
                ledger.moved(now, *token, *conn, &[Up], Broken, "Disconnected")
            }
            Event::Closed { conn, token } => ledger.moved(now, *token, *conn, &[Closing], Closed, "Closed"),
            Event::Sent { token, context, status, .. } => ledger.completed(now, *token, *context, *status),
            Event::KeepaliveTimedOut { token, .. } => ledger.silent(now, *token),
            Event::Rma { token, operation, status, .. } => {
                ledger.rma_completed(now, *token, *operation, *status);
            }
        }
        self.events.push_back(event);
    }
}

/// Collects what an endpoint transmits in one poll.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub batch: Vec<(Address, bool, Rc<[u8]>)>,
    pub capacity: usize,
    scratch: Vec<u8>,
    begun: Option<(Address, bool, usize, usize)>,
    /// What the protocol did against the carrier's contract.
    pub broken: Option<String>,
}

impl Transmit for Outbox {
    fn has_space(&self) -> bool {
        self.batch.len() < self.capacity
    }

    fn begin(&mut self, to: Address, len_max: usize, fragment: bool) -> Option<&mut [u8]> {
        if self.batch.len() >= self.capacity {
            return None;
        }
        self.scratch.resize(self.scratch.len().max(len_max + 8), 0);
        let start = self.scratch.as_ptr().align_offset(8);
        self.begun = Some((to, fragment, start, len_max));
        self.scratch.get_mut(start..start + len_max)
    }

    fn commit(&mut self, len: usize) {
        let Some((to, fragment, start, len_max)) = self.begun.take() else {
            self.broken = Some("commit without begin".into());
            return;
        };
        match self.scratch.get(start..start + len) {
            Some(bytes) if len <= len_max && len > 0 => {
                if !len.is_multiple_of(8) {
                    self.broken = Some(format!("datagram of {len} bytes, not a multiple of 8"));
                }
                self.batch.push((to, fragment, Rc::from(bytes)));
            }
            _ => self.broken = Some(format!("commit({len}) of a buffer of {len_max}")),
        }
    }
}

/// One side's messages still to be sent.
#[derive(Debug)]
pub(super) struct Sender {
    pub token: usize,
    pub key: ConnKey,
    pub work: Workload,
    pub left: u32,
    pub next_ns: u64,
    in_burst: u32,
    pub linger: bool,
}

/// A machine.
pub(super) struct Node {
    pub plan: NodePlan,
    pub endpoint: Option<Endpoint>,
    pub socket: VecDeque<Packet>,
    pub socket_bytes: usize,
    pub reader: Reader,
    pub events: VecDeque<Event>,
    pub outbox: Outbox,
    pub senders: Vec<Sender>,
    pub operators: Vec<Operator>,
    pub wake_ns: Option<u64>,
    /// The poll going on takes until then.
    pub busy_until_ns: u64,
    pub rng: Rng,
    /// Polls in a row in which nothing happened, and since when.
    pub idle_polls: u32,
    pub idle_since_ns: u64,
    pub polls: u64,
    /// Datagrams lost at the full socket.
    pub socket_drops: u64,
    scratch: Vec<u8>,
}

impl Node {
    pub fn new(plan: &NodePlan, mut rng: Rng) -> Result<Node, String> {
        let endpoint =
            Endpoint::new(plan.config(&mut rng)).map_err(|error| format!("Endpoint::new: {error:?}"))?;
        Ok(Node {
            plan: plan.clone(),
            endpoint: Some(endpoint),
            socket: VecDeque::new(),
            socket_bytes: 0,
            reader: Reader::new(plan.reading.clone(), Rng::new(rng.next_u64())),
            events: VecDeque::new(),
            outbox: Outbox::default(),
            senders: Vec::new(),
            operators: Vec::new(),
            wake_ns: None,
            busy_until_ns: 0,
            rng,
            idle_polls: 0,
            idle_since_ns: 0,
            polls: 0,
            socket_drops: 0,
            scratch: Vec::new(),
        })
    }

    /// The machine loses everything but its plan.
    pub fn crash(&mut self) {
        self.endpoint = None;
        self.socket.clear();
        self.socket_bytes = 0;
        self.events.clear();
        self.senders.clear();
        self.operators.clear();
        self.wake_ns = None;
    }

    /// The program starts nothing more on this connection.
    pub fn forget(&mut self, token: usize) {
        self.senders.retain(|sender| sender.token != token);
        self.operators.retain(|operator| operator.token != token);
    }

    pub fn restart(&mut self) -> Result<(), String> {
        *self = Node::new(&self.plan.clone(), Rng::new(self.rng.next_u64()))?;
        Ok(())
    }

    /// Takes datagrams from the socket and what is due from reader and clock. Returns how many datagrams.
    pub fn take_in(&mut self, now_ns: u64, index: usize, ledger: &mut Ledger) -> usize {
        let Some(endpoint) = self.endpoint.as_mut() else { return 0 };
        let now = Time(now_ns);
        let back = self.reader.give_back(now_ns);
        let mut program =
            Program { node: index, now_ns, reader: &mut self.reader, ledger, events: &mut self.events };
        if back {
            endpoint.buffers_returned(now, &mut program);
        }
        let mut taken = 0;
        while taken < self.plan.batch
            && let Some(packet) = self.socket.pop_front()
        {
            self.socket_bytes -= packet.bytes.len();
            let from = address_of(packet.source).with_via((packet.target / SECOND) as u8);
            endpoint.handle_datagram(now, from, &packet.bytes, &mut program);
            taken += 1;
        }
        if endpoint.next_deadline().is_some_and(|deadline| deadline <= now) {
            endpoint.handle_timeout(now, &mut program);
        }
        taken
    }

    /// Starts whatever sends are due and taken. Returns how many.
    pub fn send_due(&mut self, now_ns: u64, ledger: &mut Ledger) -> usize {
        let Some(endpoint) = self.endpoint.as_mut() else { return 0 };
        let mut started = 0;
        for sender in &mut self.senders {
            while sender.left > 0 && now_ns >= sender.next_ns && now_ns < sender.work.until_ns {
                if !sender.send_one(now_ns, endpoint, &mut self.rng, &mut self.scratch, ledger) {
                    break;
                }
                started += 1;
            }
        }
        for operator in &mut self.operators {
            while operator.is_due(now_ns) && operator.start_one(now_ns, endpoint, ledger) {
                started += 1;
            }
        }
        started
    }

    /// Lets the endpoint transmit. Returns whether it stopped for want of room.
    pub fn put_out(&mut self, now_ns: u64, index: usize, ledger: &mut Ledger) -> bool {
        let Some(endpoint) = self.endpoint.as_mut() else { return false };
        let mut program =
            Program { node: index, now_ns, reader: &mut self.reader, ledger, events: &mut self.events };
        self.outbox.capacity = self.plan.batch;
        endpoint.poll_transmit(Time(now_ns), &mut self.outbox, &mut program);
        if let Some(what) = self.outbox.broken.take() {
            ledger.fail(now_ns, format!("node {index} transmits: {what}"));
        }
        !self.outbox.has_space()
    }

    /// When something is due here without a datagram coming.
    pub fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let endpoint = self.endpoint.as_ref()?;
        let timed = |sender: &Sender| {
            let due = sender.left > 0 && sender.next_ns > now_ns && sender.next_ns < sender.work.until_ns;
            due.then_some(sender.next_ns)
        };
        let sends = self.senders.iter().filter_map(timed).min();
        let deadline = endpoint.next_deadline().map(|deadline| deadline.0);
        let operations = self.operators.iter().filter_map(|operator| operator.next_ns(now_ns)).min();
        [deadline, sends, operations, self.reader.next_ns()].into_iter().flatten().min()
    }
}

impl Sender {
    pub fn new(token: usize, key: ConnKey, work: Workload, now_ns: u64, linger: bool) -> Sender {
        Sender { token, key, left: work.messages, work, next_ns: now_ns, in_burst: 0, linger }
    }

    /// True when the endpoint took the message.
    fn send_one(
        &mut self,
        now_ns: u64,
        endpoint: &mut Endpoint,
        rng: &mut Rng,
        scratch: &mut Vec<u8>,
        ledger: &mut Ledger,
    ) -> bool {
        let Some(info) = endpoint.connection(self.key) else {
            ledger.fail(now_ns, format!("side {} is up, yet its key is unknown", self.token));
            self.left = 0;
            return false;
        };
        let index = ledger.sides[self.token].flow.msgs.len() as u32;
        let mss = info.message_bytes_max;
        // Drawn from the index, not from the generator: a refused send is tried again with the same length.
        let mut draw = Rng::new((self.token as u64) << 32 | u64::from(index));
        let len = match self.work.sizes {
            Sizes::Fixed(len) => len.min(mss),
            Sizes::Between(low, high) => (draw.range(low as u64, high as u64) as usize).min(mss),
        };
        // Only order tells messages of less than eight bytes apart.
        let ordered = info.attribute == Attribute::ReliableOrdered;
        let len = if ordered || len == 0 { len } else { len.max(contents::NAMED_BYTES_MIN) };
        // A silent send may fail without a word; then only its name tells the next one from it.
        let silent =
            (len >= contents::NAMED_BYTES_MIN || ledger.all_succeed) && draw.pct(self.work.silent_pct);
        scratch.resize(len, 0);
        contents::fill(self.token as u32, index, scratch);
        let (a, rest) = scratch.split_at(draw.below(len as u64 + 1) as usize);
        let (b, c) = rest.split_at(draw.below(rest.len() as u64 + 1) as usize);
        let segments: &[&[u8]] = if rng.pct(70.0) { &[&*scratch] } else { &[a, b, c] };
        let context = (self.token as u64) << 32 | u64::from(index);
        match endpoint.send(Time(now_ns), self.key, segments, context, silent) {
            Ok(()) => {}
            Err(SendError::WouldBlock) => return false,
            // The news may wait behind messages that the program has not taken yet.
            Err(SendError::Disconnected) if info.state != ConnState::Up => {
                self.left = 0;
                return false;
            }
            Err(error) => {
                let state = ledger.sides[self.token].state;
                ledger.fail(now_ns, format!("send of {len} B on side {} ({state:?}): {error:?}", self.token));
                self.left = 0;
                return false;
            }
        }
        ledger.sent(self.token, len, silent);
        self.left -= 1;
        self.in_burst += 1;
        if self.work.gap_ns > 0 && self.in_burst >= self.work.burst {
            self.in_burst = 0;
            self.next_ns = now_ns + self.work.gap_ns;
        }
        true
    }
}
