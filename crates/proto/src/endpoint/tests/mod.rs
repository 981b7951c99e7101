//! Two endpoints wired back to back, in virtual time.

mod attacker;
mod basic;
mod bursts;
mod deadlines;
mod elsewhere;
mod hostile;
mod idle;
mod loss;
mod many;
mod ordinary;
mod paths;
mod refused;
mod rma;
mod rma_ends;
mod rma_hostile;
mod rma_truth;
mod size;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use crate::*;

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MS;

/// What the program sees of one endpoint.
#[derive(Default)]
pub(super) struct App {
    pub messages: Vec<(ConnKey, Vec<u8>)>,
    /// Whether it takes bundles as wholes, as far as there are buffers.
    pub takes_bundles: bool,
    /// The one that it takes when its datagram has been handled.
    taken: Option<(ConnKey, BundleSummary)>,
    pub bundles_taken: u64,
    pub events: Vec<Event>,
    /// Receive buffers left; `None`: any number.
    pub buffers: Option<usize>,
    /// Registered memory; a region's number is its place.
    pub regions: Vec<Region>,
    /// Accesses of the peer's that were carried out.
    pub accesses: u64,
    /// A region's number is also that of the only operation that uses it: when that is over, nothing here may be touched
    /// for it any more.
    pub one_each: bool,
    /// What was done that must not be.
    pub wrong: Vec<String>,
    /// Regions that were not complete when one was touched that must come after.
    pub unfenced: Vec<usize>,
}

/// Memory with everything a handle says of it.
#[derive(Clone, Default)]
pub(super) struct Region {
    pub bytes: Vec<u8>,
    pub key: u64,
    pub readable: bool,
    pub writable: bool,
    pub gone: bool,
    pub only: Option<ConnKey>,
    /// The operation of this end that used it is over.
    pub over: bool,
    /// What it holds when the only operation that writes it is complete.
    pub complete: Vec<u8>,
    /// Regions that must be complete before a peer touches this one: its operation is fenced.
    pub after: Vec<usize>,
}

impl App {
    /// Takes the messages of a bundle that was handed over.
    pub fn take(&mut self, bundle: BundleMessages<'_>) {
        let Some((conn, summary)) = self.taken.take() else { return assert!(bundle.is_empty()) };
        let messages: Vec<_> = bundle.map(|message| (conn, message.to_vec())).collect();
        let bytes: usize = messages.iter().map(|(_, message)| message.len()).sum();
        assert_eq!((messages.len(), bytes), (summary.messages as usize, summary.bytes as usize));
        assert!(messages.iter().all(|(_, message)| message.len() <= summary.len_bound as usize));
        self.bundles_taken += 1;
        self.messages.extend(messages);
    }

    /// The program may have freed the memory of an operation that is over.
    fn note_late(&mut self, at: RemoteAddress) {
        if self.regions.get(at.region as usize).is_some_and(|region| region.over) {
            self.wrong.push(format!("operation {} is over, and its memory touched", at.region));
        }
    }

    fn note_unfenced(&mut self, at: RemoteAddress) {
        let Some(region) = self.regions.get_mut(at.region as usize) else { return };
        for earlier in std::mem::take(&mut region.after) {
            let region = &self.regions[earlier];
            if region.bytes != region.complete {
                self.unfenced.push(earlier);
            }
        }
    }

    fn range(&mut self, at: RemoteAddress, len: u64) -> Option<&mut [u8]> {
        let region = self.regions.get_mut(usize::try_from(at.region).ok()?).filter(|region| !region.gone)?;
        let start = usize::try_from(at.offset).ok()?;
        region.bytes.get_mut(start..start.checked_add(usize::try_from(len).ok()?)?)
    }

    fn peer_range(
        &mut self,
        conn: ConnKey,
        at: RemoteAddress,
        len: u64,
        right: fn(&Region) -> bool,
    ) -> Result<&mut [u8], RmaRefusal> {
        let region = usize::try_from(at.region).ok().and_then(|region| self.regions.get(region));
        let allowed = region.is_some_and(|region| {
            region.key == at.key && right(region) && region.only.is_none_or(|only| only == conn)
        });
        self.accesses += u64::from(allowed);
        self.note_unfenced(at);
        self.range(at, len).filter(|_| allowed).ok_or(RmaRefusal::Handle)
    }
}

impl Memory for App {
    fn peer_write(
        &mut self,
        conn: ConnKey,
        _: u64,
        at: RemoteAddress,
        data: &[u8],
    ) -> Result<(), RmaRefusal> {
        let len = data.len() as u64;
        self.peer_range(conn, at, len, |region| region.writable)
            .map(|range_bytes| range_bytes.copy_from_slice(data))
    }

    fn peer_read(
        &mut self,
        conn: ConnKey,
        _: u64,
        at: RemoteAddress,
        out: &mut [u8],
    ) -> Result<(), RmaRefusal> {
        let len = out.len() as u64;
        self.peer_range(conn, at, len, |region| region.readable)
            .map(|range_bytes| out.copy_from_slice(range_bytes))
    }

    fn peer_may_read(
        &mut self,
        conn: ConnKey,
        _: u64,
        at: RemoteAddress,
        len: u64,
    ) -> Result<(), RmaRefusal> {
        self.peer_range(conn, at, len, |region| region.readable).map(|_| ())
    }

    fn peer_atomic(
        &mut self,
        conn: ConnKey,
        _: u64,
        at: RemoteAddress,
        atomic: Atomic,
    ) -> Result<u64, RmaRefusal> {
        let width = atomic.width.bytes();
        let range_bytes =
            self.peer_range(conn, at, width as u64, |region| region.readable && region.writable)?;
        if !at.offset.is_multiple_of(width as u64) {
            return Err(RmaRefusal::Operation);
        }
        let mut whole = [0; 8];
        whole[..width].copy_from_slice(range_bytes);
        let was = u64::from_le_bytes(whole);
        let Atomic { operand, compare, .. } = atomic;
        let is = match atomic.kind {
            AtomicKind::FetchAdd | AtomicKind::Add => was.wrapping_add(operand),
            AtomicKind::Swap => operand,
            AtomicKind::CompareSwap if was == compare => operand,
            AtomicKind::CompareSwap => was,
            AtomicKind::And => was & operand,
            AtomicKind::Or => was | operand,
            AtomicKind::Xor => was ^ operand,
        };
        range_bytes.copy_from_slice(&is.to_le_bytes()[..width]);
        Ok(was)
    }

    fn local_read(&mut self, at: RemoteAddress, out: &mut [u8]) -> bool {
        self.note_late(at);
        self.range(at, out.len() as u64).map(|range_bytes| out.copy_from_slice(range_bytes)).is_some()
    }

    fn local_write(&mut self, at: RemoteAddress, data: &[u8]) -> bool {
        self.note_late(at);
        self.range(at, data.len() as u64).map(|range_bytes| range_bytes.copy_from_slice(data)).is_some()
    }
}

impl Sink for App {
    fn takes_bundle(&mut self, conn: ConnKey, _token: u64, summary: BundleSummary) -> bool {
        if !self.takes_bundles || self.buffers.is_some_and(|buffers| buffers < summary.messages as usize) {
            return false;
        }
        self.buffers = self.buffers.map(|buffers| buffers - summary.messages as usize);
        assert!(self.taken.replace((conn, summary)).is_none(), "one for each datagram");
        true
    }

    fn message(&mut self, conn: ConnKey, _token: u64, payload: &[u8]) -> bool {
        assert!(self.taken.is_none(), "none between a bundle and its messages");
        match &mut self.buffers {
            Some(0) => return false,
            Some(remaining) => *remaining -= 1,
            None => {}
        }
        self.messages.push((conn, payload.to_vec()));
        true
    }

    fn event(&mut self, event: Event) {
        if let Event::Rma { operation, .. } = event
            && self.one_each
        {
            self.regions[operation as usize].over = true;
        }
        self.events.push(event);
    }
}

impl App {
    /// How messages ended, in the order of their events.
    pub fn statuses(&self) -> Vec<(u64, Status)> {
        let sent = |event: &Event| match event {
            Event::Sent { context, status, count, .. } => vec![(*context, *status); *count as usize],
            _ => vec![],
        };
        self.events.iter().flat_map(sent).collect()
    }

    /// How remote memory operations ended, in the order of their events.
    pub fn operations(&self) -> Vec<(u64, Status)> {
        let over = |event: &Event| match event {
            Event::Rma { operation, status, .. } => Some((*operation, *status)),
            _ => None,
        };
        self.events.iter().filter_map(over).collect()
    }

    pub fn has(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(wanted)
    }
}

/// Takes what an endpoint sends.
struct Out {
    sent: VecDeque<(Address, Vec<u8>)>,
    next: Option<(Address, Vec<u64>)>,
    bytes: Vec<u8>,
    space: usize,
}

impl Out {
    fn new(space: usize) -> Out {
        Out { sent: VecDeque::new(), next: None, bytes: Vec::new(), space }
    }
}

impl Transmit for Out {
    fn has_space(&self) -> bool {
        self.sent.len() < self.space
    }

    fn begin(&mut self, to: Address, len_max: usize, _fragment: bool) -> Option<&mut [u8]> {
        if !self.has_space() {
            return None;
        }
        self.next = Some((to, Vec::new()));
        self.bytes.clear();
        self.bytes.resize(len_max, 0xee);
        Some(&mut self.bytes)
    }

    fn commit(&mut self, len: usize) {
        let (to, _) = self.next.take().expect("begun");
        assert!(len.is_multiple_of(8) && len <= self.bytes.len());
        self.sent.push_back((to, self.bytes[..len].to_vec()));
    }
}

/// A small network: loss, repeats and jitter by seed.
pub(super) struct Net {
    pub now: Time,
    pub ends: Vec<Endpoint>,
    pub apps: Vec<App>,
    flying: BTreeMap<(Time, u64), (usize, Address, Vec<u8>)>,
    count: u64,
    seed: u64,
    pub loss_pct: u64,
    pub repeat_pct: u64,
    pub delay_ns: u64,
    pub jitter_ns: u64,
    /// Datagrams that an end may send at once.
    pub space: usize,
    pub cut: bool,
    /// Longer datagrams vanish.
    pub largest: usize,
    /// The carrier seals: addresses are secured ones.
    pub sealed: bool,
    pub datagrams: u64,
    /// Every datagram, and where it went, if they are to be kept.
    pub keep: Option<Vec<(usize, Vec<u8>)>>,
    steps: u64,
}

pub(super) fn address(end: usize) -> Address {
    SocketAddr::from(([10, 0, 0, 1], 1000 + end as u16)).into()
}

impl Net {
    pub fn new(seed: u64, configs: Vec<Config>) -> Net {
        let ends: Vec<Endpoint> = configs
            .into_iter()
            .enumerate()
            .map(|(end, config)| {
                let secret = [(seed as u8).wrapping_add(end as u8); 32];
                Endpoint::new(Config { secret, ..config }).expect("config")
            })
            .collect();
        Net {
            now: Time(1_000_000_000_000),
            apps: ends.iter().map(|_| App::default()).collect(),
            ends,
            flying: BTreeMap::new(),
            count: 0,
            seed: seed ^ 0x9e37_79b9_7f4a_7c15,
            loss_pct: 0,
            repeat_pct: 0,
            delay_ns: 10_000,
            jitter_ns: 0,
            space: 64,
            cut: false,
            largest: usize::MAX,
            sealed: false,
            datagrams: 0,
            keep: None,
            steps: 0,
        }
    }

    pub fn pair(seed: u64) -> Net {
        let config = Config { first_seq: Some(u32::MAX - 20), ..Config::default() };
        Net::new(seed, vec![config.clone(), config])
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below.max(1)
    }

    /// Lets every endpoint send what it has.
    pub fn flush(&mut self) {
        for end in 0..self.ends.len() {
            self.flush_into(end, 64);
        }
    }

    /// Lets one endpoint send what it has, as far as there is room for so many datagrams.
    pub fn flush_into(&mut self, end: usize, space: usize) {
        let mut out = Out::new(space);
        self.ends[end].poll_transmit(self.now, &mut out, &mut self.apps[end]);
        self.launch_all(end, out);
    }

    /// Sends a message by the short path; false: it can't take it.
    pub fn send_at_once(&mut self, end: usize, conn: ConnKey, payload: &[u8], context: u64) -> bool {
        let mut out = Out::new(64);
        let sent = self.ends[end].send_at_once(self.now, conn, payload, (context, false), &mut out);
        assert_eq!(out.sent.len(), usize::from(sent));
        self.launch_all(end, out);
        sent
    }

    fn launch_all(&mut self, end: usize, out: Out) {
        for (to, bytes) in out.sent {
            let target = usize::from(to.socket_addr().expect("ip").port() - 1000);
            self.datagrams += 1;
            if let Some(keep) = &mut self.keep {
                keep.push((target, bytes.clone()));
            }
            self.launch(end, target, bytes);
        }
    }

    fn launch(&mut self, from: usize, target: usize, bytes: Vec<u8>) {
        let copies = if self.random(100) < self.repeat_pct { 2 } else { 1 };
        for _ in 0..copies {
            if self.cut || bytes.len() > self.largest || self.random(100) < self.loss_pct {
                continue;
            }
            let jitter_ns = self.jitter_ns;
            let when = self.now.plus(self.delay_ns + self.random(jitter_ns));
            self.count += 1;
            self.flying
                .insert((when, self.count), (target, address(from).with_secured(self.sealed), bytes.clone()));
        }
    }

    /// One step of time; false: nothing will happen by `until`.
    fn step(&mut self, until: Time) -> bool {
        self.steps += 1;
        assert!(self.steps < 3_000_000, "time stands still");
        self.flush();
        let flying = self.flying.keys().next().map_or(Time::FAR, |&(when, _)| when);
        let due = self.ends.iter().filter_map(Endpoint::next_deadline).min().unwrap_or(Time::FAR);
        let ready =
            if self.ends.iter().any(Endpoint::wants_transmit) { self.now.plus(1000) } else { Time::FAR };
        let next = flying.min(due).min(ready).max(self.now);
        if next > until {
            self.now = until;
            return false;
        }
        self.now = next;
        while let Some((&(when, id), _)) = self.flying.first_key_value() {
            if when > self.now {
                break;
            }
            let (target, from, bytes) = self.flying.remove(&(when, id)).expect("first");
            let bundle = self.ends[target].handle_datagram(self.now, from, &bytes, &mut self.apps[target]);
            self.apps[target].take(bundle);
        }
        for end in 0..self.ends.len() {
            self.ends[end].handle_timeout(self.now, &mut self.apps[end]);
        }
        true
    }

    pub fn run(&mut self, ns: u64) {
        let until = self.now.plus(ns);
        while self.step(until) {}
    }

    /// Runs until `done`, or panics after `ns`.
    pub fn run_until(&mut self, ns: u64, what: &str, done: impl Fn(&Net) -> bool) {
        let until = self.now.plus(ns);
        while !done(self) {
            assert!(self.step(until), "not in time: {what}");
        }
    }

    /// Connects end 0 to end 1; the server accepts everything.
    pub fn join(&mut self, attribute: Attribute) -> (ConnKey, ConnKey) {
        let (now, to) = (self.now, address(1).with_secured(self.sealed));
        let client = self.ends[0].connect(now, to, b"hello", attribute, 7, None).expect("connect");
        let server = self.serve(9);
        self.run_until(60 * SECOND, "connected", |net| {
            net.apps[0].has(|event| matches!(event, Event::Connected { .. }))
                && net.apps[1].has(|event| matches!(event, Event::Accepted { .. }))
        });
        (client, server)
    }

    /// Waits for a request at end 1 and accepts it there.
    pub fn serve(&mut self, token: u64) -> ConnKey {
        let request = self.request();
        self.ends[1].accept(self.now, request, token).expect("accept")
    }

    pub fn request(&mut self) -> Request {
        let is_request = |event: &Event| matches!(event, Event::Request(_));
        self.run_until(60 * SECOND, "request", |net| net.apps[1].has(is_request));
        let position = self.apps[1].events.iter().position(is_request).expect("there");
        match self.apps[1].events.remove(position) {
            Event::Request(request) => request,
            _ => unreachable!(),
        }
    }

    /// Sends, waiting for room as long as it takes.
    pub fn send(&mut self, end: usize, conn: ConnKey, payload: &[u8], context: u64) {
        let until = self.now.plus(600 * SECOND);
        loop {
            match self.ends[end].send(self.now, conn, &[payload], context, false) {
                Ok(()) => return,
                Err(SendError::WouldBlock) => assert!(self.step(until), "blocked for ever"),
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// Nothing is held any more, but for idle connections.
    pub fn assert_clean(&self) {
        for end in &self.ends {
            assert_eq!(end.memory().pool_used_bytes, 0, "packet buffers leaked");
            assert_eq!(end.connections.protocol.transfers.operations.in_use(), 0, "operations leaked");
            assert!(end.memory().total_bytes() <= end.memory().cap_bytes);
        }
    }
}
