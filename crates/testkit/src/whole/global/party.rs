//! A rank with global memory, and the model of all memory.

use super::super::shared::Stage;
use super::channels::Channels;
use super::segments::Buffers;
use crate::rng::{Rng, mix};
use cci::{Atomic, AtomicKind, AtomicWidth, simulated};
use cci_acp::{GlobalAddress, GlobalMemory, Handle, Order};
use cci_job::Ranks;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Operations of each rank.
const OPERATIONS: u64 = 40;
const LENS: [u64; 5] = [8, 100, 1_500, 9_000, 20_000];

/// Starter memory of each rank: a word of 8 bytes and one of 4 that all add to; bytes that nobody changes; where atomics put what they find;
/// what a rank copies from; and an area for each rank, which only that rank has written.
const COUNTERS_AT: [u64; 2] = [0, 8];
const FIXED_AT: u64 = 64;
const FIXED_BYTES: u64 = 24_000;
const RESULTS_AT: u64 = FIXED_AT + FIXED_BYTES;
const SOURCE_AT: u64 = RESULTS_AT + 8 * (OPERATIONS + 1);
const AREA_BYTES: u64 = 64 << 10;
const AREAS_AT: u64 = SOURCE_AT + AREA_BYTES;

/// What the memory of every rank must be once all has ended.
pub(super) struct Model {
    memory: Vec<Vec<u8>>,
    /// Of each rank and width: how often it was added to, and what was found.
    found: Vec<[(u64, BTreeSet<u64>); 2]>,
}

impl Model {
    pub fn new(ranks: usize) -> Model {
        Model {
            memory: (0..ranks).map(|rank| initial(rank, ranks)).collect(),
            found: (0..ranks).map(|_| Default::default()).collect(),
        }
    }

    fn copied(&mut self, (dst, dst_at): (usize, u64), (src, src_at): (usize, u64), len: u64) {
        let bytes = self.memory[src][src_at as usize..(src_at + len) as usize].to_vec();
        self.memory[dst][dst_at as usize..(dst_at + len) as usize].copy_from_slice(&bytes);
    }

    fn added(&mut self, rank: usize, width: usize) {
        let count = &mut self.found[rank][width].0;
        *count += 1;
        let (at, len) = (COUNTERS_AT[width] as usize, [8, 4][width]);
        self.memory[rank][at..at + len].copy_from_slice(&count.to_ne_bytes()[..len]);
    }

    /// Every addition has found another value, from 0 on: each was done once.
    pub fn check_found(&self) -> Result<(), String> {
        for (rank, widths) in self.found.iter().enumerate() {
            for (count, found) in widths {
                if *count != found.len() as u64 || found.iter().copied().ne(0..*count) {
                    return Err(format!("{count} additions at rank {rank} have found {found:?}"));
                }
            }
        }
        Ok(())
    }
}

/// The memory of a rank at first.
fn initial(rank: usize, ranks: usize) -> Vec<u8> {
    let mut memory = vec![0; (AREAS_AT + AREA_BYTES * ranks as u64) as usize];
    let fixed = FIXED_AT as usize..(FIXED_AT + FIXED_BYTES) as usize;
    for (at, byte) in memory[fixed].iter_mut().enumerate() {
        *byte = mix((rank as u64) << 32 | at as u64) as u8;
    }
    memory
}

/// An operation under way, and of an addition the target, the width, and where the value from before comes to.
type UnderWay = (Handle, Option<(usize, usize, u64)>);

/// Bytes of an area of this rank's that have been written.
struct Written {
    to: usize,
    at: u64,
    len: u64,
    /// The operation that was there last.
    last: Handle,
}

pub(super) struct Party {
    rank: usize,
    ranks: usize,
    global: GlobalMemory,
    /// Where its stores are seen late that the system makes for it.
    stage: Option<Rc<Stage>>,
    rng: Rng,
    issued: u64,
    /// In the order in which they were issued.
    under_way: Vec<UnderWay>,
    counts: [u64; 2],
    source_used: u64,
    areas_used: Vec<u64>,
    written: Vec<Written>,
    channels: Channels,
    buffers: Buffers,
}

impl Party {
    pub fn new(ranks: Ranks, seed: u64, stage: Option<Rc<Stage>>) -> Result<Party, String> {
        let size = ranks.size() as usize;
        let bytes = (AREAS_AT + AREA_BYTES * size as u64) as usize;
        let mut global = GlobalMemory::over(ranks, bytes, 0).map_err(|error| error.to_string())?;
        let rank = global.rank() as usize;
        if !global.starter_memory().write(0, &initial(rank, size)) {
            return Err("the starter memory is too short".into());
        }
        let channels = Channels::new(&mut global, seed)?;
        let buffers = Buffers::new(&mut global, seed)?;
        Ok(Party {
            rank,
            ranks: size,
            global,
            stage,
            rng: Rng::new(mix(seed) ^ rank as u64),
            issued: 0,
            under_way: Vec::new(),
            counts: [0; 2],
            source_used: 0,
            areas_used: vec![0; size],
            written: Vec::new(),
            channels,
            buffers,
        })
    }

    pub fn is_done(&self) -> bool {
        self.issued >= OPERATIONS
            && self.under_way.is_empty()
            && self.channels.is_done()
            && self.buffers.is_done()
    }

    pub fn left(&self) -> String {
        let (messages, segments) = (self.channels.received(), self.buffers.taken());
        format!(
            "rank {}: {} issued, {} under way, {messages} messages and {segments} segments received",
            self.rank,
            self.issued,
            self.under_way.len()
        )
    }

    /// Copies and atomic operations that ended, and messages and segments that came.
    pub fn counts(&self) -> [u64; 4] {
        let [copies, atomics] = self.counts;
        [copies, atomics, self.channels.received(), self.buffers.taken()]
    }

    /// Its process is gone.
    pub fn abandon(self) {
        simulated::abandon(self.global.into_endpoint());
    }

    /// Makes progress, and does something. Returns whether anything happened.
    pub fn turn(&mut self, model: &mut Model) -> Result<bool, String> {
        self.global.progress();
        self.see_own_stores();
        let ended = self.channels.turn(&mut self.global)?
            | self.buffers.turn(&mut self.global)?
            | self.take_ended(model)?;
        self.see_own_stores();
        if self.issued >= OPERATIONS || self.rng.pct(40.0) {
            return Ok(ended);
        }
        self.issue(model)?;
        self.see_own_stores();
        Ok(true)
    }

    /// What streams bring is stored by calls of the simulated system. A processor sees its own stores.
    fn see_own_stores(&self) {
        if let Some(stage) = &self.stage {
            stage.show(self.rank);
        }
    }

    /// Operations end in the order in which they were issued.
    fn take_ended(&mut self, model: &mut Model) -> Result<bool, String> {
        let mut some_ended = false;
        while let Some(&(handle, addition)) = self.under_way.first()
            && self.global.has_ended(handle)
        {
            some_ended = true;
            self.under_way.remove(0);
            self.see_own_stores();
            self.global.complete(handle).map_err(|error| error.to_string())?;
            self.counts[usize::from(addition.is_some())] += 1;
            if let Some((to, width, at)) = addition {
                let mut found = [0; 8];
                let len = [8, 4][width];
                let is_inside = self.global.starter_memory().read(at as usize, &mut found[..len]);
                if !is_inside || !model.found[to][width].1.insert(u64::from_le_bytes(found)) {
                    return Err(format!("an addition at rank {to} has found {found:?}, as another one has"));
                }
            }
        }
        Ok(some_ended)
    }

    fn issue(&mut self, model: &mut Model) -> Result<(), String> {
        let to = self.rng.below(self.ranks as u64) as usize;
        let other = self.rng.below(self.ranks as u64) as usize;
        let max = self.rng.pick(&LENS);
        let len = self.rng.range(1, max);
        let order = self.order();
        let is_room = |used: u64| used + len <= AREA_BYTES;
        match self.rng.below(100) {
            0..25 if is_room(self.source_used) && is_room(self.areas_used[to]) => {
                let at = self.room(to, len);
                let last = self.write(model, (to, at, len), order)?;
                // Right behind it, perhaps another one to the same bytes that must not overtake it.
                let last = if is_room(self.source_used) && self.rng.pct(30.0) {
                    self.write(model, (to, at, len), Order::Continue)?
                } else {
                    last
                };
                self.written.push(Written { to, at, len, last });
            }
            25..50 if is_room(self.areas_used[to]) => {
                // From this rank, from another one to this one, or between others.
                let from_at = FIXED_AT + self.rng.below(FIXED_BYTES - len);
                let at = self.room(to, len);
                self.copy(model, (to, at), (other, from_at), len, order)?;
            }
            50..75 if !self.written.is_empty() => self.touch(model)?,
            _ => self.add(model, to, order)?,
        }
        Ok(())
    }

    /// Any order that may be.
    fn order(&mut self) -> Order {
        let last = self.global.last().map_or(0, Handle::number);
        match self.rng.below(4) {
            0 => Order::All,
            1 if last > 0 => {
                let number = self.rng.range(1, last);
                self.global.handle(number).map_or(Order::Now, Order::After)
            }
            _ => Order::Now,
        }
    }

    /// Bytes of this rank's area at another one that were not written yet.
    fn room(&mut self, to: usize, len: u64) -> u64 {
        let used = &mut self.areas_used[to];
        *used += len;
        AREAS_AT + AREA_BYTES * self.rank as u64 + *used - len
    }

    /// Overwrites or reads what was written before, behind whatever has to do with it.
    fn touch(&mut self, model: &mut Model) -> Result<(), String> {
        let index = self.rng.below(self.written.len() as u64) as usize;
        let Written { to, at, len, last } = self.written[index];
        let order = if self.rng.pct(70.0) { Order::After(last) } else { Order::All };
        let last = if self.rng.pct(50.0) && self.source_used + len <= AREA_BYTES {
            self.write(model, (to, at, len), order)?
        } else if self.areas_used[self.rank] + len <= AREA_BYTES {
            let here = self.room(self.rank, len);
            self.copy(model, (self.rank, here), (to, at), len, order)?
        } else {
            return Ok(());
        };
        self.written[index].last = last;
        Ok(())
    }

    /// Copies new bytes to another rank's memory.
    fn write(
        &mut self,
        model: &mut Model,
        (to, at, len): (usize, u64, u64),
        order: Order,
    ) -> Result<Handle, String> {
        let from = SOURCE_AT + self.source_used;
        self.source_used += len;
        let bytes: Vec<u8> = (0..len).map(|_| self.rng.next_u64() as u8).collect();
        let is_inside = self.global.starter_memory().write(from as usize, &bytes);
        is_inside.then_some(()).ok_or("the starter memory is too short")?;
        model.memory[self.rank][from as usize..(from + len) as usize].copy_from_slice(&bytes);
        self.copy(model, (to, at), (self.rank, from), len, order)
    }

    fn copy(
        &mut self,
        model: &mut Model,
        dst: (usize, u64),
        src: (usize, u64),
        len: u64,
        order: Order,
    ) -> Result<Handle, String> {
        let (to, from) = (self.address(dst)?, self.address(src)?);
        let handle = self.global.copy(to, from, len as usize, order).map_err(|error| error.to_string())?;
        model.copied(dst, src, len);
        self.issued += 1;
        self.under_way.push((handle, None));
        Ok(handle)
    }

    fn add(&mut self, model: &mut Model, to: usize, order: Order) -> Result<(), String> {
        let index = self.rng.below(2) as usize;
        let width = [AtomicWidth::Eight, AtomicWidth::Four][index];
        let add = Atomic { kind: AtomicKind::FetchAdd, width, operand: 1, compare: 0 };
        let result_at = RESULTS_AT + 8 * self.issued;
        let (result, word) = (self.address((self.rank, result_at))?, self.address((to, COUNTERS_AT[index]))?);
        let handle = self.global.atomic(result, word, add, order).map_err(|error| error.to_string())?;
        model.added(to, index);
        self.issued += 1;
        self.under_way.push((handle, Some((to, index, result_at))));
        Ok(())
    }

    fn address(&self, (rank, at): (usize, u64)) -> Result<GlobalAddress, String> {
        let start = self.global.starter(rank as u32).map_err(|error| error.to_string())?;
        start.checked_add(at).ok_or_else(|| "no such place".into())
    }

    /// Whether its memory is what the model says, beside what atomics have found.
    pub fn check(&self, model: &Model) -> Result<(), String> {
        self.buffers.check()?;
        let expected = &model.memory[self.rank];
        let mut bytes = vec![0; expected.len()];
        if !self.global.starter_memory().read(0, &mut bytes) {
            return Err("the starter memory is too short".into());
        }
        let results = RESULTS_AT as usize..SOURCE_AT as usize;
        let wrong = (0..bytes.len()).find(|at| !results.contains(at) && bytes[*at] != expected[*at]);
        match wrong {
            Some(at) => {
                let (is, must) = (bytes[at], expected[at]);
                Err(format!("byte {at} of rank {} is {is}, and must be {must}", self.rank))
            }
            None if self.global.faults() > 0 => {
                Err(format!("rank {} got an error that nobody reports", self.rank))
            }
            None => Ok(()),
        }
    }
}
