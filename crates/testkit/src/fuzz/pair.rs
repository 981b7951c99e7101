//! Two endpoints driven by random operations, with a network that delivers, repeats, drops and damages as it likes.
//!
//! Damage may hit anything, proofs of identity and payloads alike, so contents are not judged here (`tests/sim.rs` does that);
//! judged are: no panic, every operation ends at most once while the trouble lasts and exactly once when it is over, memory
//! stays under its cap, and both endpoints come to rest.

use cci_proto::{
    Address, Atomic, AtomicKind, AtomicWidth, Attribute, Config, ConnKey, Endpoint, Event, RemoteAddress,
    Request, RmaError, RmaKind, RmaRefusal, RmaSegment, SendError, Sink, Time, Transmit,
};
use std::collections::{BTreeMap, BTreeSet};

const CAP_BYTES: u64 = 700_000;
const REGION: u64 = 1;
const KEY: u64 = 7;

/// The address of one of a few endpoints that tests carry datagrams between.
pub fn address_of(node: usize) -> Address {
    Address::from(std::net::SocketAddr::from(([10, 0, 0, node as u8], 4_791)))
}

/// Something that happens.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "numbers that say how, or which of those there are")]
pub enum Op {
    Connect { node: usize, attribute: u8, bytes: usize },
    Answer { node: usize, accept: bool },
    Send { node: usize, which: usize, len: usize, count: usize, silent: bool },
    Operate { node: usize, which: usize, kind: u8, bytes: u64, message: usize, fence: bool, count: usize },
    Deregister { node: usize },
    HangUp { node: usize, which: usize },
    Deliver { pick: usize, keep: bool },
    Drop { pick: usize },
    Damage { pick: usize, bit: usize },
    Noise { node: usize, bytes: Vec<u8> },
    Flush { node: usize, capacity: usize },
    Pass { ns: u64 },
    Refuse { node: usize, refuse: bool },
    Narrow { node: usize, bytes: u16 },
    SetTimeout { node: usize, which: usize, ns: u64 },
}

/// What one program knows of one connection.
#[derive(Debug)]
struct Known {
    key: ConnKey,
    up: bool,
    over: bool,
    closing: bool,
}

/// A program: counts ends, and refuses messages when it is asked to.
#[derive(Default)]
struct Program {
    refuse: bool,
    known: BTreeMap<u64, Known>,
    /// Sends by context; true when silent.
    open: BTreeMap<u64, bool>,
    /// Remote memory operations.
    operations: BTreeSet<u64>,
    /// All that peers may use, while it is registered.
    memory: Option<Vec<u8>>,
    requests: Vec<Request>,
    wrong: Option<String>,
}

impl Program {
    fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    fn end(&mut self, token: u64, event: &str, legal: impl FnOnce(&Known) -> bool) {
        match self.known.get_mut(&token) {
            Some(known) if !known.over && legal(known) => known.over = true,
            other => {
                let what = format!("{event} for {token}: {other:?}");
                self.wrong(what);
            }
        }
    }
}

impl Program {
    fn bytes(&mut self, at: RemoteAddress, len: u64) -> Option<&mut [u8]> {
        let range = usize::try_from(at.offset).ok()?..usize::try_from(at.offset.checked_add(len)?).ok()?;
        self.memory.as_mut().filter(|_| (at.region, at.key) == (REGION, KEY))?.get_mut(range)
    }
}

impl cci_proto::Memory for Program {
    fn peer_write(&mut self, _: ConnKey, _: u64, at: RemoteAddress, data: &[u8]) -> Result<(), RmaRefusal> {
        let bytes = self.bytes(at, data.len() as u64).ok_or(RmaRefusal::Handle)?;
        bytes.copy_from_slice(data);
        Ok(())
    }

    fn peer_read(&mut self, _: ConnKey, _: u64, at: RemoteAddress, out: &mut [u8]) -> Result<(), RmaRefusal> {
        out.copy_from_slice(self.bytes(at, out.len() as u64).ok_or(RmaRefusal::Handle)?);
        Ok(())
    }

    fn peer_may_read(&mut self, _: ConnKey, _: u64, at: RemoteAddress, len: u64) -> Result<(), RmaRefusal> {
        self.bytes(at, len).map(|_| ()).ok_or(RmaRefusal::Handle)
    }

    fn peer_atomic(&mut self, _: ConnKey, _: u64, at: RemoteAddress, _: Atomic) -> Result<u64, RmaRefusal> {
        self.bytes(at, 8).map(|_| 5).ok_or(RmaRefusal::Handle)
    }

    fn local_read(&mut self, at: RemoteAddress, out: &mut [u8]) -> bool {
        let bytes = self.bytes(at, out.len() as u64);
        bytes.map(|bytes| out.copy_from_slice(bytes)).is_some()
    }

    fn local_write(&mut self, at: RemoteAddress, data: &[u8]) -> bool {
        let bytes = self.bytes(at, data.len() as u64);
        bytes.map(|bytes| bytes.copy_from_slice(data)).is_some()
    }
}

impl Sink for Program {
    fn message(&mut self, _: ConnKey, token: u64, _: &[u8]) -> bool {
        if !self.known.get(&token).is_some_and(|known| known.up && !known.over) {
            self.wrong(format!("a message on {token}, which is not up"));
        }
        !self.refuse
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Request(request) => self.requests.push(request),
            Event::Connected { token, .. } | Event::Accepted { token, .. } => {
                match self.known.get_mut(&token) {
                    Some(known) if !known.up && !known.over => known.up = true,
                    other => {
                        let what = format!("up: {token}: {other:?}");
                        self.wrong(what);
                    }
                }
            }
            Event::ConnectFailed { token, .. } => self.end(token, "ConnectFailed", |known| !known.up),
            Event::AcceptFailed { token, .. } => self.end(token, "AcceptFailed", |known| !known.up),
            Event::Closed { token, .. } => self.end(token, "Closed", |known| known.closing),
            Event::Sent { token, context, .. } => {
                if self.open.remove(&context) != Some(false) {
                    self.wrong(format!(
                        "context {context} of {token} completed, but is not open or is silent"
                    ));
                }
            }
            Event::Rma { operation, .. } if !self.operations.remove(&operation) => {
                self.wrong(format!("operation {operation} ended, but is not open"));
            }
            Event::Rma { .. } => {}
            Event::Disconnected { token, .. } | Event::KeepaliveTimedOut { token, .. } => {
                if !self.known.get(&token).is_some_and(|known| known.up && !known.over) {
                    self.wrong(format!("{event:?} on a connection that is not up"));
                }
            }
        }
    }
}

/// Datagrams under way.
#[derive(Default)]
pub struct Wire {
    /// Target and bytes.
    pub under_way: Vec<(usize, Vec<u8>)>,
    capacity: usize,
    scratch: Vec<u8>,
    begun: Option<(usize, usize)>,
}

impl Transmit for Wire {
    fn has_space(&self) -> bool {
        self.capacity > 0
    }
    fn begin(&mut self, to: Address, len_max: usize, _: bool) -> Option<&mut [u8]> {
        if self.capacity == 0 {
            return None;
        }
        self.scratch.resize(len_max + 8, 0xee);
        let start = self.scratch.as_ptr().align_offset(8);
        self.begun = Some((start, usize::from(to == address_of(1))));
        self.scratch.get_mut(start..start + len_max)
    }
    fn commit(&mut self, len: usize) {
        let Some((start, target)) = self.begun.take() else { panic!("commit without begin") };
        self.capacity -= 1;
        self.under_way.push((target, self.scratch[start..start + len].to_vec()));
    }
}

/// The endpoints, their programs, and what lies between them.
pub struct Pair {
    now: Time,
    ends: [Endpoint; 2],
    programs: [Program; 2],
    /// The network.
    pub wire: Wire,
    next: u64,
}

impl Pair {
    fn new() -> Pair {
        let end = |node: u8| {
            let config = Config {
                secret: [node + 1; 32],
                memory_bytes_max: CAP_BYTES,
                connections_max: 8,
                requests_max: 3,
                sends_max: 200,
                send_timeout_ns: 2_000_000_000,
                keepalive_ns: if node == 0 { 100_000_000 } else { 0 },
                first_seq: Some(u32::MAX - 3),
                ..Config::default()
            };
            Endpoint::new(config).unwrap_or_else(|error| panic!("{error:?}"))
        };
        Pair {
            now: Time(5),
            ends: [end(0), end(1)],
            programs: std::array::from_fn(|_| Program {
                memory: Some(vec![0; 10_000]),
                ..Program::default()
            }),
            wire: Wire::default(),
            next: 1,
        }
    }

    /// Sends of a program that have not completed.
    #[must_use]
    pub fn open_sends(&self, node: usize) -> usize {
        self.programs[node].open.len()
    }

    fn which(&self, node: usize, which: usize) -> Option<(u64, ConnKey)> {
        let known = &self.programs[node].known;
        let (token, known) = known.iter().filter(|(_, known)| !known.over).nth(which)?;
        Some((*token, known.key))
    }

    fn open(&mut self, node: usize, token: u64, key: ConnKey) {
        self.programs[node].known.insert(token, Known { key, up: false, over: false, closing: false });
    }

    fn flush(&mut self, node: usize, capacity: usize) {
        self.wire.capacity = capacity;
        self.ends[node].poll_transmit(self.now, &mut self.wire, &mut self.programs[node]);
    }

    /// A datagram comes to one of them, from the other.
    pub fn deliver(&mut self, target: usize, bytes: &[u8]) {
        let from = address_of(1 - target);
        self.ends[target].handle_datagram(self.now, from, bytes, &mut self.programs[target]);
    }

    /// Something happens.
    pub fn apply(&mut self, op: &Op) {
        let now = self.now;
        let count = self.wire.under_way.len().max(1);
        match op {
            Op::Connect { node, attribute, bytes } => {
                let attribute =
                    [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable]
                        [usize::from(*attribute)];
                let payload = vec![7; *bytes];
                let timeout_ns = Some(1_500_000_000);
                self.next += 1;
                let (token, to) = (self.next, address_of(1 - node));
                if let Ok(key) = self.ends[*node].connect(now, to, &payload, attribute, token, timeout_ns) {
                    self.open(*node, token, key);
                }
            }
            Op::Answer { node, accept } => {
                let Some(request) = self.programs[*node].requests.pop() else { return };
                self.next += 1;
                let token = self.next;
                if !accept {
                    return self.ends[*node].reject(now, request);
                }
                match self.ends[*node].accept(now, request, token) {
                    Ok(key) => self.open(*node, token, key),
                    Err((_, request)) => self.ends[*node].reject(now, request),
                }
            }
            Op::Send { node, which, len, count, silent } => self.send(*node, *which, *len, *count, *silent),
            Op::Operate { node, which, kind, bytes, message, fence, count } => {
                for _ in 0..*count {
                    self.operate(*node, *which, *kind, *bytes, *message, *fence);
                }
            }
            Op::Deregister { node } => self.programs[*node].memory = None,
            Op::HangUp { node, which } => {
                let Some((token, key)) = self.which(*node, *which) else { return };
                let first = self.programs[*node]
                    .known
                    .get_mut(&token)
                    .is_some_and(|known| !std::mem::replace(&mut known.closing, true));
                let done = self.ends[*node].disconnect(now, key);
                assert!(!first || done.is_ok(), "disconnect of a live key: {done:?}");
            }
            Op::Deliver { pick, keep } => {
                let Some((target, bytes)) = self.wire.under_way.get(pick % count).cloned() else { return };
                if !keep {
                    self.wire.under_way.remove(pick % count);
                }
                self.deliver(target, &bytes);
            }
            Op::Drop { pick } if !self.wire.under_way.is_empty() => {
                drop(self.wire.under_way.remove(pick % count))
            }
            Op::Drop { .. } => {}
            Op::Damage { pick, bit } => {
                let Some((target, mut bytes)) = self.wire.under_way.get(pick % count).cloned() else {
                    return;
                };
                let bit = bit % (bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
                self.deliver(target, &bytes);
            }
            Op::Noise { node, bytes } => self.deliver(*node, bytes),
            Op::Flush { node, capacity } => self.flush(*node, *capacity),
            Op::Pass { ns } => self.pass(*ns),
            Op::Refuse { node, refuse } => {
                self.programs[*node].refuse = *refuse;
                if !refuse {
                    self.ends[*node].buffers_returned(now, &mut self.programs[*node]);
                }
            }
            Op::Narrow { node, bytes } => {
                self.ends[*node].path_mtu_changed(now, address_of(1 - node), *bytes)
            }
            Op::SetTimeout { node, which, ns } => {
                let Some((_, key)) = self.which(*node, *which) else { return };
                let _ = self.ends[*node].set_send_timeout(key, *ns);
            }
        }
    }

    fn send(&mut self, node: usize, which: usize, len: usize, count: usize, silent: bool) {
        let Some((token, key)) = self.which(node, which) else { return };
        let payload = vec![token as u8; len];
        for _ in 0..count {
            self.next += 1;
            let context = self.next;
            match self.ends[node].send(self.now, key, &[&payload], context, silent) {
                Ok(()) => {
                    if !silent {
                        self.programs[node].open.insert(context, silent);
                    }
                }
                Err(SendError::Unknown) => panic!("the key of a live connection is unknown"),
                Err(_) => return,
            }
        }
    }

    /// Messages of more than 1,000 bytes mean none.
    fn operate(&mut self, node: usize, which: usize, kind: u8, bytes: u64, message: usize, fence: bool) {
        let Some((_, key)) = self.which(node, which) else { return };
        self.next += 1;
        let (now, operation) = (self.now, self.next);
        let address = RemoteAddress { region: REGION, key: KEY, offset: operation * 8 % 1_000 };
        let payload = vec![3; message];
        let message = (message <= 1_000).then_some(&payload[..]);
        let (all, half) = (bytes, bytes / 2);
        let segment = |at: u64, len_bytes| {
            let address = address.plus(at);
            RmaSegment { local: address, remote: address, len_bytes }
        };
        let segments =
            if half == 0 { vec![segment(0, all)] } else { vec![segment(half, all - half), segment(0, half)] };
        let end = &mut self.ends[node];
        let started = match kind {
            0 => end.rma(now, key, RmaKind::Write, &segments, message, fence, operation),
            1 => end.rma(now, key, RmaKind::Read, &segments, message, fence, operation),
            _ => {
                let atomic =
                    Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
                end.atomic(now, key, atomic, address, (kind == 2).then_some(address), fence, operation)
            }
        };
        match started {
            Ok(()) => {
                self.programs[node].operations.insert(operation);
            }
            Err(RmaError::Unknown) => panic!("the key of a live connection is unknown"),
            Err(RmaError::Segments) => panic!("the segments are sound"),
            Err(_) => {}
        }
    }

    fn pass(&mut self, ns: u64) {
        self.now = self.now.plus(ns);
        for node in 0..2 {
            if self.ends[node].next_deadline().is_some_and(|deadline| deadline <= self.now) {
                self.ends[node].handle_timeout(self.now, &mut self.programs[node]);
            }
        }
    }

    /// What must hold at every moment.
    pub fn check(&self) {
        for node in 0..2 {
            let memory = self.ends[node].memory();
            assert!(
                memory.total_bytes() <= CAP_BYTES && memory.pool_used_bytes <= memory.pool_bytes,
                "{memory:?}"
            );
            assert_eq!(self.programs[node].wrong, None, "node {node}");
        }
    }

    /// The trouble is over: everybody hangs up, and the network delivers everything.
    pub fn settle(&mut self) {
        for node in 0..2 {
            self.programs[node].refuse = false;
            self.ends[node].buffers_returned(self.now, &mut self.programs[node]);
        }
        for _ in 0..20_000 {
            for node in 0..2 {
                for request in std::mem::take(&mut self.programs[node].requests) {
                    self.ends[node].reject(self.now, request);
                }
                for which in (0..8).rev() {
                    self.apply(&Op::HangUp { node, which });
                }
                self.flush(node, 1_000);
            }
            for (target, bytes) in std::mem::take(&mut self.wire.under_way) {
                self.deliver(target, &bytes);
            }
            self.flush(0, 1_000);
            self.flush(1, 1_000);
            self.check();
            if self.wire.under_way.is_empty() {
                let deadlines = [self.ends[0].next_deadline(), self.ends[1].next_deadline()];
                let Some(next) = deadlines.into_iter().flatten().min() else { return };
                let ns = next.since(self.now);
                self.pass(ns.max(1));
            }
        }
        panic!("no rest after 20,000 rounds: {:?} {:?}", self.programs[0].known, self.programs[1].known);
    }

    /// What must hold at the end.
    pub fn judge(&self) {
        for node in 0..2 {
            let program = &self.programs[node];
            let open = program.known.iter().find(|(_, known)| !known.over);
            assert!(open.is_none(), "node {node}: never ended: {open:?}");
            assert!(program.open.is_empty(), "node {node}: never completed: {:?}", program.open);
            assert!(program.operations.is_empty(), "node {node}: never ended: {:?}", program.operations);
            assert_eq!(self.ends[node].memory().pool_used_bytes, 0, "node {node}");
        }
    }
}

/// A pair with one connection, or most operations would find nothing to work on.
#[must_use]
pub fn connected(attribute: u8) -> Pair {
    let mut pair = Pair::new();
    pair.apply(&Op::Connect { node: 0, attribute, bytes: 10 });
    for _ in 0..3 {
        for node in 0..2 {
            pair.flush(node, 100);
            for (target, bytes) in std::mem::take(&mut pair.wire.under_way) {
                pair.deliver(target, &bytes);
            }
            pair.apply(&Op::Answer { node, accept: true });
        }
    }
    pair
}

/// All of it, from one connection to the end.
pub fn drive(ops: &[Op]) {
    let mut pair = connected(ops.len() as u8 % 3);
    for op in ops {
        pair.apply(op);
        pair.check();
    }
    pair.settle();
    pair.judge();
}
