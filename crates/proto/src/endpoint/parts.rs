//! Bundles that come in parts, because the path to this side takes only smaller datagrams than both ends do.

use crate::limits::{PART_HEAD_BYTES, PARTIALS_MAX};
use crate::wire::{Head, PartHead};
use crate::{PeerFault, Seq};

/// Bundles of which some parts have come, of all connections together. Of the connection that has most of them, the one that was
/// heard of longest ago gives its memory to another. So whoever begins bundles and ends none pushes out its own.
pub(crate) struct Parts {
    /// Longest bundle.
    bytes_max: u16,
    /// So many at once. Memory for them is kept: others leave it alone, and they leave alone what is others'.
    limit: usize,
    partials: Vec<Partial>,
    /// Counts what comes, for who was heard of longest ago.
    clock: u64,
}

/// What a part belongs to. All of it must be the same.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Whole {
    index: u32,
    generation: u32,
    seq: Seq,
    /// What was void in one epoch may not be in another.
    epoch: u16,
    bytes: u16,
    stride_bytes: u16,
}

struct Partial {
    of: Whole,
    /// The parts that have come, as bits.
    come: u64,
    touched: u64,
    body: Box<[u8]>,
}

impl Parts {
    /// As many as fit into `memory_bytes`, and at least one.
    pub fn new(bytes_max: u16, memory_bytes: u64) -> Parts {
        let fitting = memory_bytes / Parts::cost_bytes(bytes_max);
        let limit = fitting.clamp(1, PARTIALS_MAX as u64) as usize;
        Parts { bytes_max, limit, partials: Vec::new(), clock: 0 }
    }

    /// What one partial bundle costs.
    const fn cost_bytes(bytes_max: u16) -> u64 {
        bytes_max as u64 + size_of::<Partial>() as u64
    }

    /// What those there are cost.
    pub fn bytes(&self) -> u64 {
        self.partials.len() as u64 * Parts::cost_bytes(self.bytes_max)
    }

    /// What all that there may be would cost.
    pub fn bytes_max(&self) -> u64 {
        self.limit as u64 * Parts::cost_bytes(self.bytes_max)
    }

    //= wire.md R-MTU-3
    /// Takes one part; the place and length of the bundle if that was its last one.
    pub fn add(&mut self, head: &Head, body: &[u8]) -> Result<Option<(usize, usize)>, PeerFault> {
        let (part, data) = PartHead::parse(body)?;
        let bytes = usize::from(part.whole_bytes);
        if bytes > usize::from(self.bytes_max) {
            return Err(PeerFault::Length);
        }
        let of = Whole {
            index: head.index,
            generation: head.generation,
            seq: head.seq,
            epoch: head.epoch,
            bytes: part.whole_bytes,
            stride_bytes: part.stride_bytes,
        };
        self.clock += 1;
        let Some(at) = self.entry(of) else { return Ok(None) };
        let Some(partial) = self.partials.get_mut(at) else { return Ok(None) };
        partial.touched = self.clock;
        let start = usize::from(part.number) * usize::from(part.stride_bytes);
        let Some(target) = partial.body.get_mut(start..start + data.len()) else {
            return Err(PeerFault::Field);
        };
        target.copy_from_slice(data);
        partial.come |= 1 << part.number;
        let all = u64::MAX >> (64 - part.count());
        Ok((partial.come == all).then_some((at, bytes)))
    }

    /// Where that bundle is put together. `None`: there is no memory.
    fn entry(&mut self, of: Whole) -> Option<usize> {
        if let Some(at) = self.partials.iter().position(|partial| partial.of == of) {
            return Some(at);
        }
        if self.partials.len() < self.limit {
            self.partials.try_reserve_exact(self.limit - self.partials.len()).ok()?;
            let mut body = Vec::new();
            let bytes = usize::from(self.bytes_max);
            body.try_reserve_exact(bytes).ok()?;
            body.resize(bytes, 0);
            let body = body.into_boxed_slice();
            self.partials.push(Partial { of, come: 0, touched: self.clock, body });
            return Some(self.partials.len() - 1);
        }
        let at = self.least_missed(of)?;
        let partial = self.partials.get_mut(at)?;
        (partial.of, partial.come) = (of, 0);
        Some(at)
    }

    /// The place that a new bundle gets where all are taken: one that is free, or the oldest of the connection that has most; of
    /// connections with as many, the new bundle's own.
    //= wire.md R-MTU-3
    fn least_missed(&self, of: Whole) -> Option<usize> {
        let rank = |partial: &Partial| {
            let owner = (partial.of.index, partial.of.generation);
            let is_alike =
                |other: &&Partial| other.touched != 0 && (other.of.index, other.of.generation) == owner;
            let count = self.partials.iter().filter(is_alike).count();
            let is_own = owner == (of.index, of.generation);
            (partial.touched == 0, count, is_own, std::cmp::Reverse(partial.touched))
        };
        let ranked = self.partials.iter().enumerate().max_by_key(|(_, partial)| rank(partial));
        ranked.map(|(at, _)| at)
    }

    /// The bundle at that place, which is complete, to be given back.
    pub fn take(&mut self, at: usize) -> Box<[u8]> {
        let Some(partial) = self.partials.get_mut(at) else { return Box::default() };
        (partial.come, partial.touched) = (0, 0);
        std::mem::take(&mut partial.body)
    }

    /// Gives it back.
    pub fn give_back(&mut self, at: usize, body: Box<[u8]>) {
        if let Some(partial) = self.partials.get_mut(at) {
            partial.body = body;
        }
    }
}

const _: () = assert!(PART_HEAD_BYTES == 8, "bodies are multiples of 8");
