//! A peer that has connected properly and then says whatever harms most: records of remote memory access in any order and with
//! any contents, well-formed and not.
//!
//! Judged: no panic; memory changes only where the peer was given the right and asked for it, and where an operation of this
//! side waits for data; what comes back is bounded by what came; memory stays under its cap; every operation of this
//! side ends exactly once, and everything is at rest when the peer has fallen silent.

use super::try_steps;
use cci_proto::rma::Record;
use cci_proto::{
    Address, Atomic, AtomicKind, AtomicWidth, Attribute, Config, ConnKey, Endpoint, Event, Memory,
    RemoteAddress, RmaError, RmaKind, RmaRefusal, RmaSegment, Sink, Time, Transmit, limits,
};
use cci_testkit::fuzz::pair::address_of;
use proptest::prelude::*;
use std::collections::BTreeMap;

const CAP_BYTES: u64 = 700_000;
const DATAGRAM_BYTES: usize = 1_472;
const BODY_BYTES_MAX: usize = DATAGRAM_BYTES - limits::HEADER_BYTES;

/// Regions of the victim, by number from 1.
const REGION_BYTES: usize = 4_096;
/// Which of them: for the peer, of another connection or only for reading, and two of the victim's own.
const OPEN: u64 = 1;
const READABLE: u64 = 2;
const SECRET: u64 = 3;
const SOURCE: u64 = 4;
const SINK: u64 = 5;

const fn key_of(region: u64) -> u64 {
    region.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

const fn address(region: u64, offset: u64) -> RemoteAddress {
    RemoteAddress { region, key: key_of(region), offset }
}

/// One record the attacker sends.
#[derive(Clone, Debug)]
enum Evil {
    Write {
        slot: u16,
        at: RemoteAddress,
        last: bool,
        len: usize,
    },
    Read {
        slot: u16,
        at: RemoteAddress,
        len: u64,
    },
    Data {
        slot: u16,
        offset: u64,
        len: usize,
    },
    Gone {
        slot: u16,
        offset: u64,
        len: u64,
    },
    Atomic {
        slot: u16,
        at: RemoteAddress,
        kind: usize,
        wide: bool,
        value: bool,
    },
    Notify {
        slot: u16,
        len: usize,
        bare: bool,
    },
    Done {
        slot: u16,
        result: u8,
    },
    Message {
        len: usize,
    },
    /// Any header, any payload.
    Raw {
        header: [u8; 8],
        payload: Vec<u8>,
    },
}

/// What happens.
#[derive(Clone, Debug)]
enum Step {
    /// A bundle of these records, each so many times. `seq` beyond the next one, `ack` short of the last one sent.
    Bundle {
        records: Vec<(Evil, usize)>,
        skip: u32,
        ack: u32,
        flags: u8,
        epoch: u16,
        spoil: Option<(usize, u8)>,
    },
    /// The victim starts operations.
    Operate {
        kind: u8,
        bytes: u64,
        message: bool,
        fence: bool,
        count: usize,
    },
    /// The victim's memory goes.
    Deregister {
        region: u64,
    },
    Refuse(bool),
    Pass {
        ns: u64,
    },
}

fn slot() -> impl Strategy<Value = u16> {
    prop_oneof![8 => 0..4u16, 2 => 0..128u16, 1 => Just(127), 1 => Just(128), 1 => any::<u16>()]
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..REGION_BYTES as u64,
        2 => (0..64u64).prop_map(|n| n * 8),
        1 => REGION_BYTES as u64 - 8..REGION_BYTES as u64 + 8,
        1 => (0..3_000u64).prop_map(|below| u64::MAX - below),
        1 => any::<u64>(),
    ]
}

fn target() -> impl Strategy<Value = RemoteAddress> {
    (prop_oneof![6 => Just(OPEN), 1 => 0..7u64, 1 => any::<u64>()], offset(), prop::bool::weighted(0.1))
        .prop_map(|(region, offset, forged)| {
            // The key of what is not the peer's is not known to it.
            let known = matches!(region, OPEN | READABLE) && !forged;
            RemoteAddress { region, key: if known { key_of(region) } else { region }, offset }
        })
}

fn evil() -> impl Strategy<Value = Evil> {
    let long = prop_oneof![4 => 0..300u64, 2 => Just(1_000_000), 1 => Just(u64::MAX), 1 => any::<u64>()];
    prop_oneof![
        4 => (slot(), target(), any::<bool>(), 0..1_300usize)
            .prop_map(|(slot, at, last, len)| Evil::Write { slot, at, last, len }),
        3 => (slot(), target(), long.clone()).prop_map(|(slot, at, len)| Evil::Read { slot, at, len }),
        3 => (slot(), offset(), 0..1_300usize).prop_map(|(slot, offset, len)| Evil::Data { slot, offset, len }),
        1 => (slot(), offset(), long).prop_map(|(slot, offset, len)| Evil::Gone { slot, offset, len }),
        3 => (slot(), target(), 0..7usize, any::<bool>(), any::<bool>())
            .prop_map(|(slot, at, kind, wide, value)| Evil::Atomic { slot, at, kind, wide, value }),
        3 => (slot(), 0..200usize, any::<bool>()).prop_map(|(slot, len, bare)| Evil::Notify { slot, len, bare }),
        4 => (slot(), 0..4u8).prop_map(|(slot, result)| Evil::Done { slot, result }),
        1 => (0..200usize).prop_map(|len| Evil::Message { len }),
        1 => (any::<[u8; 8]>(), prop::collection::vec(any::<u8>(), 0..64))
            .prop_map(|(header, payload)| Evil::Raw { header, payload }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let many = prop_oneof![9 => Just(1usize), 1 => 2..200usize];
    let bundle = (
        prop::collection::vec((evil(), many), 1..6),
        prop_oneof![12 => Just(0u32), 2 => 1..40u32, 1 => any::<u32>()],
        prop_oneof![8 => Just(0u32), 2 => 0..20u32, 1 => any::<u32>()],
        prop_oneof![20 => Just(0u8), 1 => Just(1), 1 => Just(2), 1 => Just(4), 1 => any::<u8>()],
        prop_oneof![20 => Just(0u16), 1 => any::<u16>()],
        prop_oneof![9 => Just(None), 1 => (0..1_400usize, any::<u8>()).prop_map(Some)],
    );
    prop_oneof![
        20 => bundle.prop_map(|(records, skip, ack, flags, epoch, spoil)| Step::Bundle {
            records, skip, ack, flags, epoch, spoil
        }),
        6 => (0..4u8, 1..2_000u64, any::<bool>(), prop::bool::weighted(0.2), 1..200usize)
            .prop_map(|(kind, bytes, message, fence, count)| Step::Operate { kind, bytes, message, fence, count }),
        1 => (1..6u64).prop_map(|region| Step::Deregister { region }),
        1 => any::<bool>().prop_map(Step::Refuse),
        3 => prop::sample::select(vec![1_000u64, 300_000, 20_000_000, 3_000_000_000])
            .prop_map(|ns| Step::Pass { ns }),
    ]
}

/// The victim's program and memory.
struct Victim {
    regions: BTreeMap<u64, Vec<u8>>,
    gone: [bool; 8],
    /// Bytes that the peer has asked to be changed, rightly.
    granted: Vec<bool>,
    /// Bytes that own reads wait for.
    awaited: Vec<bool>,
    open: BTreeMap<u64, ()>,
    next: u64,
    refuse: bool,
    request: Option<cci_proto::Request>,
    is_up: bool,
    wrong: Option<String>,
}

impl Victim {
    fn new() -> Victim {
        let fill = |region: u64| (region, (0..REGION_BYTES).map(|i| (i as u64 * 7 + region) as u8).collect());
        Victim {
            regions: (OPEN..=SINK).map(fill).collect(),
            gone: [false; 8],
            granted: vec![false; REGION_BYTES],
            awaited: vec![false; REGION_BYTES],
            open: BTreeMap::new(),
            next: 0,
            refuse: false,
            request: None,
            is_up: false,
            wrong: None,
        }
    }

    fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    fn bytes(&mut self, at: RemoteAddress, len: u64, may: &[u64]) -> Option<&mut [u8]> {
        let end = at.offset.checked_add(len)?;
        let allowed =
            may.contains(&at.region) && at.key == key_of(at.region) && !self.gone[at.region as usize];
        let bytes = self.regions.get_mut(&at.region).filter(|_| allowed)?;
        bytes.get_mut(usize::try_from(at.offset).ok()?..usize::try_from(end).ok()?)
    }
}

impl Memory for Victim {
    fn peer_write(&mut self, _: ConnKey, _: u64, at: RemoteAddress, data: &[u8]) -> Result<(), RmaRefusal> {
        let bytes = self.bytes(at, data.len() as u64, &[OPEN]).ok_or(RmaRefusal::Handle)?;
        bytes.copy_from_slice(data);
        Ok(())
    }

    fn peer_read(&mut self, _: ConnKey, _: u64, at: RemoteAddress, out: &mut [u8]) -> Result<(), RmaRefusal> {
        let bytes = self.bytes(at, out.len() as u64, &[OPEN, READABLE]).ok_or(RmaRefusal::Handle)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn peer_may_read(&mut self, _: ConnKey, _: u64, at: RemoteAddress, len: u64) -> Result<(), RmaRefusal> {
        self.bytes(at, len, &[OPEN, READABLE]).map(|_| ()).ok_or(RmaRefusal::Handle)
    }

    fn peer_atomic(
        &mut self,
        _: ConnKey,
        _: u64,
        at: RemoteAddress,
        atomic: Atomic,
    ) -> Result<u64, RmaRefusal> {
        let width = atomic.width.bytes() as u64;
        let bytes = self.bytes(at, width, &[OPEN]).ok_or(RmaRefusal::Handle)?;
        if !at.offset.is_multiple_of(width) {
            return Err(RmaRefusal::Operation);
        }
        bytes.fill(0xaa);
        Ok(7)
    }

    fn local_read(&mut self, at: RemoteAddress, out: &mut [u8]) -> bool {
        if let Some(bytes) = self.bytes(at, out.len() as u64, &[SOURCE]) {
            out.copy_from_slice(bytes);
            return true;
        }
        if !self.gone[SOURCE as usize] {
            self.wrong(format!("reads its own {at:x?}"));
        }
        false
    }

    fn local_write(&mut self, at: RemoteAddress, data: &[u8]) -> bool {
        let Some(bytes) = self.bytes(at, data.len() as u64, &[SINK]) else {
            if !self.gone[SINK as usize] {
                self.wrong(format!("writes its own {at:x?}"));
            }
            return false;
        };
        bytes.copy_from_slice(data);
        if !self.awaited[at.offset as usize..][..data.len()].iter().all(|waits| *waits) {
            self.wrong(format!("{} B put at {at:x?}, where nothing waits for them", data.len()));
        }
        true
    }
}

impl Sink for Victim {
    fn message(&mut self, _: ConnKey, _: u64, _: &[u8]) -> bool {
        !self.refuse
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Request(request) => self.request = Some(request),
            Event::Accepted { .. } | Event::Connected { .. } => self.is_up = true,
            Event::Rma { operation, .. } if self.open.remove(&operation).is_none() => {
                self.wrong(format!("operation {operation} ends, and was not open"));
            }
            _ => {}
        }
    }
}

/// Takes datagrams.
#[derive(Default)]
struct Out {
    sent: Vec<Vec<u8>>,
    capacity: usize,
}

impl Transmit for Out {
    fn has_space(&self) -> bool {
        self.sent.len() < self.capacity
    }
    fn begin(&mut self, _: Address, len_max: usize, _: bool) -> Option<&mut [u8]> {
        if self.sent.len() >= self.capacity {
            return None;
        }
        self.sent.push(vec![0xee; len_max]);
        self.sent.last_mut().map(Vec::as_mut_slice)
    }
    fn commit(&mut self, len: usize) {
        if let Some(last) = self.sent.last_mut() {
            last.truncate(len);
        }
    }
}

struct Attack {
    now: Time,
    end: Endpoint,
    victim: Victim,
    key: ConnKey,
    /// Of a datagram from the attacker: everything in it that proves who it is.
    header: [u8; 48],
    /// Number of the attacker's next bundle.
    next_seq: u32,
    /// Behind the last bundle that the victim has sent.
    victim_seq: u32,
    /// Bytes that the victim was asked to read, and those that its own operations may send.
    asked_bytes: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

fn config(node: u8) -> Config {
    Config {
        secret: [node + 1; 32],
        datagram_bytes_max: DATAGRAM_BYTES as u16,
        memory_bytes_max: CAP_BYTES,
        connections_max: 4,
        requests_max: 3,
        sends_max: 64,
        operations_max: 300,
        send_timeout_ns: 2_000_000_000,
        first_seq: Some(u32::MAX - 3),
        ..Config::default()
    }
}

fn flush(end: &mut Endpoint, now: Time, victim: &mut Victim, capacity: usize) -> Vec<Vec<u8>> {
    let mut out = Out { capacity, ..Out::default() };
    end.poll_transmit(now, &mut out, victim);
    out.sent
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes)
}

impl Attack {
    /// The attacker connects as everybody does.
    fn new(attribute: Attribute) -> Attack {
        let make = |node| Endpoint::new(config(node)).unwrap_or_else(|error| panic!("{error:?}"));
        let (mut end, mut other) = (make(0), make(1));
        let (mut victim, mut attacker) = (Victim::new(), Victim::new());
        let now = Time(5);
        let dialled = other.connect(now, address_of(0), b"hello", attribute, 1, None);
        dialled.unwrap_or_else(|error| panic!("{error:?}"));
        let (mut header, mut key) = ([0; 48], None);
        for _ in 0..4 {
            for datagram in flush(&mut other, now, &mut attacker, 64) {
                if let Some(first) = datagram.first_chunk::<48>().filter(|first| first[0] & 15 >= 8) {
                    header = *first;
                }
                end.handle_datagram(now, address_of(1), &datagram, &mut victim);
            }
            if let Some(request) = victim.request.take() {
                key = end.accept(now, request, 1).ok();
            }
            for datagram in flush(&mut end, now, &mut victim, 64) {
                other.handle_datagram(now, address_of(0), &datagram, &mut attacker);
            }
        }
        let (Some(key), true) = (key, victim.is_up) else { panic!("never connected") };
        let (next_seq, victim_seq) = (number(&header, 24), number(&header, 28));
        Attack {
            now,
            end,
            victim,
            key,
            header,
            next_seq,
            victim_seq,
            asked_bytes: 0,
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Bundle { records, skip, ack, flags, epoch, spoil } => {
                let mut body = self.body(records);
                if let Some((at, mask)) = spoil
                    && let Some(byte) = body.get_mut(*at)
                {
                    *byte ^= mask;
                    // Whatever it says now, it can't say more than that the peer may change all that is open to it.
                    self.victim.granted.fill(true);
                    self.asked_bytes += 1 << 40;
                }
                self.bundle(&body, *skip, *ack, *flags, *epoch);
            }
            Step::Operate { kind, bytes, message, fence, count } => {
                for _ in 0..*count {
                    self.operate(*kind, *bytes, *message, *fence);
                }
            }
            Step::Deregister { region } => self.victim.gone[*region as usize] = true,
            Step::Refuse(refuse) => {
                self.victim.refuse = *refuse;
                if !refuse {
                    self.end.buffers_returned(self.now, &mut self.victim);
                }
            }
            Step::Pass { ns } => self.pass(*ns),
        }
        self.take(64);
        self.check();
    }

    fn pass(&mut self, ns: u64) {
        self.now = self.now.plus(ns);
        if self.end.next_deadline().is_some_and(|deadline| deadline <= self.now) {
            self.end.handle_timeout(self.now, &mut self.victim);
        }
    }

    /// What the victim has to say.
    fn take(&mut self, capacity: usize) -> usize {
        let sent = flush(&mut self.end, self.now, &mut self.victim, capacity);
        for datagram in &sent {
            self.sent_bytes += datagram.len() as u64;
            let seq = number(datagram, 24);
            if datagram.first().is_some_and(|first| first & 15 == 8)
                && seq.wrapping_sub(self.victim_seq) < 1 << 31
            {
                self.victim_seq = seq.wrapping_add(1);
            }
        }
        sent.len()
    }

    fn body(&mut self, records: &[(Evil, usize)]) -> Vec<u8> {
        let mut body = vec![0; BODY_BYTES_MAX];
        let mut at = 0;
        for (evil, times) in records {
            for _ in 0..*times {
                let Some(len) = emit(evil, &mut body[at..]) else { break };
                at += len;
                self.grant(evil);
            }
        }
        body.truncate(at);
        body
    }

    /// Notes what the peer may change or ask for by this record.
    fn grant(&mut self, evil: &Evil) {
        let (at, len) = match evil {
            Evil::Write { at, len, .. } => (*at, *len as u64),
            Evil::Atomic { at, wide, .. } => (*at, if *wide { 8 } else { 4 }),
            Evil::Read { at, len, .. } => {
                if self.victim.bytes(*at, *len, &[OPEN, READABLE]).is_some() {
                    self.asked_bytes += len;
                }
                return;
            }
            Evil::Raw { .. } => {
                self.victim.granted.fill(true);
                self.asked_bytes += 1 << 40;
                return;
            }
            _ => return,
        };
        if self.victim.bytes(at, len, &[OPEN]).is_some() {
            self.victim.granted[at.offset as usize..][..len as usize].fill(true);
        }
    }

    fn bundle(&mut self, body: &[u8], skip: u32, ack: u32, flags: u8, epoch: u16) {
        let mut datagram = self.header.to_vec();
        datagram[0] = datagram[0] & 0xf0 | 8;
        datagram[1] = flags;
        datagram[2..4].fill(0);
        datagram[24..28].copy_from_slice(&self.next_seq.wrapping_add(skip).to_le_bytes());
        datagram[28..32].copy_from_slice(&self.victim_seq.wrapping_sub(ack).to_le_bytes());
        datagram[42..44].copy_from_slice(&epoch.to_le_bytes());
        datagram[46..48].copy_from_slice(&((body.len() / 8) as u16).to_le_bytes());
        datagram.extend_from_slice(body);
        self.received_bytes += datagram.len() as u64;
        if skip == 0 {
            self.next_seq = self.next_seq.wrapping_add(1);
        }
        self.end.handle_datagram(self.now, address_of(1), &datagram, &mut self.victim);
        self.check();
    }

    fn operate(&mut self, kind: u8, bytes: u64, message: bool, fence: bool) {
        self.victim.next += 1;
        let operation = self.victim.next;
        let remote = RemoteAddress { region: 77, key: 78, offset: 79 };
        let offset = operation * 24 % (REGION_BYTES as u64 - 2_000);
        let message = message.then_some(&b"done"[..]);
        let segment = |region| [RmaSegment { local: address(region, offset), remote, len_bytes: bytes }];
        let started = match kind {
            0 => {
                self.end.rma(self.now, self.key, RmaKind::Write, &segment(SOURCE), message, fence, operation)
            }
            1 => self.end.rma(self.now, self.key, RmaKind::Read, &segment(SINK), message, fence, operation),
            _ => {
                let atomic =
                    Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
                let result = (kind == 2).then_some(address(SINK, offset));
                self.end.atomic(self.now, self.key, atomic, remote, result, fence, operation)
            }
        };
        match started {
            Ok(()) => {
                self.victim.open.insert(operation, ());
                self.sent_bytes = self.sent_bytes.saturating_sub(2 * bytes + 400);
                let awaited = match kind {
                    1 => bytes as usize,
                    2 => 8,
                    _ => 0,
                };
                self.victim.awaited[offset as usize..][..awaited].fill(true);
            }
            Err(RmaError::WouldBlock | RmaError::Disconnected) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    fn check(&self) {
        let memory = self.end.memory();
        assert!(
            memory.total_bytes() <= CAP_BYTES && memory.pool_used_bytes <= memory.pool_bytes,
            "{memory:?}"
        );
        assert_eq!(self.victim.wrong, None);
    }

    /// The peer is silent from now on.
    fn settle(&mut self) {
        self.victim.refuse = false;
        self.end.buffers_returned(self.now, &mut self.victim);
        let _ = self.end.disconnect(self.now, self.key);
        for _ in 0..20_000 {
            while self.take(1_000) > 0 {}
            self.check();
            let Some(next) = self.end.next_deadline() else { break };
            let ns = next.since(self.now).max(1);
            self.pass(ns);
        }
        assert_eq!(self.end.next_deadline(), None, "no rest");
        assert_eq!(self.end.memory().pool_used_bytes, 0);
        assert!(self.victim.open.is_empty(), "never ended: {:?}", self.victim.open);
        let fresh = Victim::new();
        for (region, bytes) in &self.victim.regions {
            let may = |at: usize| match *region {
                OPEN => self.victim.granted[at],
                SINK => self.victim.awaited[at],
                _ => false,
            };
            let differs = (0..REGION_BYTES).find(|at| !may(*at) && bytes[*at] != fresh.regions[region][*at]);
            assert_eq!(differs, None, "region {region} changed");
        }
    }
}

fn emit(evil: &Evil, out: &mut [u8]) -> Option<usize> {
    let data = [0x5a; 1_400];
    let record = match evil {
        Evil::Write { slot, at, last, len } => {
            Record::Write { slot: *slot, at: *at, last: *last, data: data.get(..*len)? }
        }
        Evil::Read { slot, at, len } => Record::Read { slot: *slot, at: *at, len_bytes: *len },
        Evil::Data { slot, offset, len } => {
            Record::Data { slot: *slot, offset: *offset, data: data.get(..*len)? }
        }
        Evil::Gone { slot, offset, len } => Record::Gone { slot: *slot, offset: *offset, len_bytes: *len },
        Evil::Atomic { slot, at, kind, wide, value } => Record::Atomic {
            slot: *slot,
            at: *at,
            atomic: Atomic {
                kind: AtomicKind::ALL[*kind],
                width: if *wide { AtomicWidth::Eight } else { AtomicWidth::Four },
                operand: 3,
                compare: 0,
            },
            wants_value: *value,
        },
        Evil::Notify { slot, len, bare } => {
            Record::Notify { slot: *slot, message: if *bare { None } else { data.get(..*len) } }
        }
        Evil::Done { slot, result } => {
            let result = match result {
                0 => Ok(None),
                1 => Ok(Some(u64::MAX)),
                2 => Err(RmaRefusal::Handle),
                _ => Err(RmaRefusal::Operation),
            };
            Record::Done { slot: *slot, result }
        }
        Evil::Message { len } => {
            let total = 8 + len.next_multiple_of(8);
            let out = out.get_mut(..total)?;
            out.fill(0);
            out[..2].copy_from_slice(&(*len as u16).to_le_bytes());
            out[2] = 1;
            return Some(total);
        }
        Evil::Raw { header, payload } => {
            let total = 8 + payload.len().next_multiple_of(8);
            let out = out.get_mut(..total)?;
            out.fill(0);
            out[..8].copy_from_slice(header);
            out[..2].copy_from_slice(&(payload.len() as u16).to_le_bytes());
            out[2] %= 10;
            out[8..8 + payload.len()].copy_from_slice(payload);
            return Some(total);
        }
    };
    record.emit(out)
}

fn attribute(number: usize) -> Attribute {
    [Attribute::ReliableOrdered, Attribute::ReliableUnordered][number % 2]
}

#[test]
fn a_connected_peer_that_says_anything_harms_nobody() {
    try_steps(4_000, step(), 80, |steps| {
        let mut attack = Attack::new(attribute(steps.len()));
        for step in steps {
            attack.step(step);
        }
        attack.settle();
    });
}

/// A flood of records that ask for an answer is answered within bounds, and not in more bytes than it has.
#[test]
fn floods_are_answered_within_bounds() {
    let floods = [
        Evil::Notify { slot: 0, len: 0, bare: true },
        Evil::Notify { slot: 1, len: 8, bare: false },
        Evil::Write { slot: 2, at: address(OPEN, 0), last: true, len: 0 },
        Evil::Write { slot: 2, at: address(SECRET, 0), last: true, len: 8 },
        Evil::Atomic { slot: 3, at: address(OPEN, 0), kind: 0, wide: true, value: true },
        Evil::Read { slot: 4, at: address(READABLE, 0), len: 1 },
        Evil::Read { slot: 4, at: address(READABLE, u64::MAX - 4), len: 1 },
        Evil::Done { slot: 5, result: 1 },
        Evil::Data { slot: 6, offset: 0, len: 8 },
        Evil::Gone { slot: 6, offset: 0, len: 8 },
    ];
    for flood in floods {
        for number in 0..2 {
            let mut attack = Attack::new(attribute(number));
            let mut answers = 0;
            for _ in 0..2_000 {
                let body = attack.body(&[(flood.clone(), 250)]);
                attack.bundle(&body, 0, 0, 0, 0);
                answers += attack.take(1_000);
                attack.now = attack.now.plus(1_000);
            }
            assert!(answers <= 2 * 2_000 + 10, "{flood:?}: {answers} datagrams for 2,000");
            let (sent, received) = (attack.sent_bytes, attack.received_bytes);
            assert!(sent <= received + 10_000, "{flood:?}: {sent} B for {received} B");
            attack.settle();
        }
    }
}

/// A slot that does not exist is a fault, for requests and for answers; nothing is done and nothing said but that it came.
#[test]
fn slots_out_of_range_are_faults() {
    let slots = [limits::RMA_SLOTS as u16, limits::RMA_SLOTS as u16 + 1, 0x100, u16::MAX];
    for slot in slots {
        for evil in [
            Evil::Write { slot, at: address(OPEN, 0), last: true, len: 100 },
            Evil::Read { slot, at: address(READABLE, 0), len: 100 },
            Evil::Data { slot, offset: 0, len: 8 },
            Evil::Gone { slot, offset: 0, len: 8 },
            Evil::Atomic { slot, at: address(OPEN, 0), kind: 0, wide: true, value: true },
            Evil::Notify { slot, len: 8, bare: false },
            Evil::Done { slot, result: 0 },
        ] {
            let mut attack = Attack::new(Attribute::ReliableOrdered);
            attack.operate(1, 100, false, false);
            attack.take(10);
            let faults = attack.end.counters().faults();
            let body = attack.body(&[(evil.clone(), 1)]);
            attack.bundle(&body, 0, 0, 0, 0);
            assert_eq!(attack.end.counters().faults(), faults + 1, "{evil:?}");
            attack.victim.granted.fill(false);
            let sent = attack.sent_bytes;
            attack.take(10);
            assert!(attack.sent_bytes <= sent + limits::HEADER_BYTES as u64, "{evil:?}: answered");
            attack.settle();
        }
    }
}
