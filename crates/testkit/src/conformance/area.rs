//! Memory under test: a region, the bytes around it, and a model of what all of them should be.

use super::driver::{Driver, Grant, Port, Refusal, Shared, Whose};
use super::side::{Pair, Side};
use super::{Conn, conformance_timeout};
use crate::rng::Rng;
use cci::{Access, Atomic, RegionAddress, RegionHandle, Rma, RmaFlags, RmaKind, Segment, Status};
use std::ops::Range;
use std::time::Instant;

/// Memory of a side.
pub type Mem<D> = <<D as Driver>::Port as Port>::Memory;

/// Bytes before and behind the region that nobody may touch.
const GUARD_BYTES: usize = 4096;

/// Registered memory of a side, whose bytes the case knows.
pub struct Area<D: Driver> {
    /// All of it, guards included.
    pub memory: Mem<D>,
    /// What all of it should hold.
    pub model: Vec<u8>,
    /// The region's.
    pub handle: RegionHandle,
    /// Where the region is in the memory.
    pub range: Range<usize>,
}

impl<D: Driver> Area<D> {
    /// A region of `len_bytes` that begins at a multiple of 8, full of chance.
    pub fn new(side: &mut Side<D>, whose: Whose, len_bytes: usize, access: Access) -> Area<D> {
        Area::starting(side, whose, 0, len_bytes, Grant { range: 0..0, access, only: None })
    }

    /// A region of `len_bytes` that begins at an odd address.
    pub fn odd(side: &mut Side<D>, whose: Whose, len_bytes: usize, access: Access) -> Area<D> {
        Area::starting(side, whose, 3, len_bytes, Grant { range: 0..0, access, only: None })
    }

    /// A region of `len_bytes` that only one connection may use.
    pub fn only_for(side: &mut Side<D>, whose: Whose, len_bytes: usize, only: Conn<D>) -> Area<D> {
        let grant = Grant { range: 0..0, access: Access::ALL, only: Some(only) };
        Area::starting(side, whose, 0, len_bytes, grant)
    }

    fn starting(
        side: &mut Side<D>,
        whose: Whose,
        odd: usize,
        len_bytes: usize,
        grant: Grant<Conn<D>>,
    ) -> Area<D> {
        let start = GUARD_BYTES + odd;
        let range = start..start + len_bytes;
        let memory = side.port.memory(whose, range.end + GUARD_BYTES);
        let model = contents(len_bytes as u64, memory.len_bytes());
        memory.write(0, &model);
        let grant = Grant { range: range.clone(), ..grant };
        let handle = side.port.register(&memory, grant).expect("it can be registered");
        Area { memory, model, handle, range }
    }

    /// Bytes of the region.
    pub fn len_bytes(&self) -> usize {
        self.range.len()
    }

    /// An address in the region.
    pub fn address(&self, offset: usize) -> RegionAddress {
        RegionAddress::new(self.handle, offset as u64)
    }

    /// A run of bytes of the region.
    pub fn segment(&self, offset: usize, len_bytes: usize) -> Segment {
        Segment::new(self.handle, offset as u64, len_bytes as u64)
    }

    /// What part of the region should hold.
    pub fn model(&self, offset: usize, len_bytes: usize) -> &[u8] {
        &self.model[self.range.start + offset..][..len_bytes]
    }

    /// What part of the region holds.
    pub fn now(&self, offset: usize, len_bytes: usize) -> Vec<u8> {
        let mut now = vec![0; len_bytes];
        self.memory.read(self.range.start + offset, &mut now);
        now
    }

    /// The word at an offset of the region, as it is now.
    pub fn word(&self, offset: usize) -> u64 {
        let mut word = [0; 8];
        self.memory.read(self.range.start + offset, &mut word);
        u64::from_ne_bytes(word)
    }

    /// From now on, these bytes should be there.
    pub fn expect(&mut self, offset: usize, data: &[u8]) {
        self.model[self.range.start + offset..][..data.len()].copy_from_slice(data);
    }

    /// The owner puts bytes there.
    pub fn put(&mut self, offset: usize, data: &[u8]) {
        self.memory.write(self.range.start + offset, data);
        self.expect(offset, data);
    }

    /// The owner puts a word there.
    pub fn put_word(&mut self, offset: usize, word: u64) {
        self.put(offset, &word.to_ne_bytes());
    }

    /// Takes what is in the memory now for what should be there.
    pub fn accept(&mut self) {
        self.memory.read(0, &mut self.model);
    }

    /// Everything, guards included, is as it should be.
    pub fn check(&self, what: &str) {
        let mut now = vec![0; self.model.len()];
        self.memory.read(0, &mut now);
        if now == self.model {
            return;
        }
        let wrong = now.iter().zip(&self.model).filter(|(now, model)| now != model).count();
        let at = now.iter().zip(&self.model).position(|(now, model)| now != model).unwrap_or(0);
        let offset = at as i64 - self.range.start as i64;
        panic!(
            "{what}: {wrong} bytes are wrong, the first at offset {offset} of a region of {} bytes",
            self.range.len()
        );
    }
}

/// Bytes that follow from a seed, and look like nothing else.
pub fn contents(seed: u64, len_bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::with_capacity(len_bytes + 8);
    while bytes.len() < len_bytes {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(len_bytes);
    bytes
}

/// A length of 1 to about 2 to the power of `bits`, of each order of magnitude as often as of any other.
pub fn some_len(rng: &mut Rng, bits: u64) -> usize {
    let below = 1 << rng.range(1, bits);
    1 + rng.below(below) as usize
}

/// An operation with nothing special about it.
pub fn plain<'a>(kind: RmaKind, local: &'a [Segment], remote: &'a [Segment], context: u64) -> Rma<'a> {
    Rma { kind, local, remote, message: None, context, flags: RmaFlags::NONE }
}

impl<D: Driver> Pair<D> {
    /// Starts an operation of the client's as soon as there is room.
    pub fn start(&mut self, rma: &Rma<'_>) {
        let to = self.to_server;
        self.retry(|client| client.rma(to, rma));
    }

    /// Starts an atomic operation of the client's as soon as there is room.
    pub fn start_atomic(
        &mut self,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        context: u64,
    ) {
        let to = self.to_server;
        self.retry(|client| client.atomic(to, atomic, target, result, context, RmaFlags::NONE));
    }

    /// Makes a call of the client's until there is room for what it starts.
    pub fn retry(&mut self, mut call: impl FnMut(&mut D::Port) -> Result<(), Refusal>) {
        let patience = Instant::now() + conformance_timeout();
        loop {
            match call(&mut self.client.port) {
                Ok(()) => return,
                Err(Refusal::WouldBlock) => {
                    assert!(Instant::now() < patience, "no room for an operation in time");
                    self.client.poll();
                    self.server.poll();
                }
                Err(other) => panic!("operation refused: {other:?}"),
            }
        }
    }

    /// Waits until `count` operations and sends of the client's have ended, and takes their completions.
    pub fn ended(&mut self, count: usize) -> Vec<(u64, Status)> {
        self.until("ends of operations", |client, _| client.sent.len() >= count);
        assert_eq!(self.client.sent.len(), count, "each ends once");
        self.client.sent.drain(..).map(|(_, context, status)| (context, status)).collect()
    }

    /// Moves bytes and waits for the end.
    pub fn transfer(&mut self, kind: RmaKind, local: Segment, remote: Segment) -> Status {
        self.start(&plain(kind, &[local], &[remote], 77));
        let ended = self.ended(1);
        assert_eq!(ended[0].0, 77, "the context comes back");
        ended[0].1
    }

    /// Changes a word and waits for the end.
    pub fn change(&mut self, atomic: Atomic, target: RegionAddress, result: Option<RegionAddress>) -> Status {
        self.start_atomic(atomic, target, result, 78);
        let ended = self.ended(1);
        assert_eq!(ended[0].0, 78, "the context comes back");
        ended[0].1
    }
}
