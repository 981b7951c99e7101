//! Work in a peer's memory, and what must be there when.
//!
//! The region is cut into slots with a strip between them that nobody may touch. At most one operation, or one and a
//! fenced one behind it, is under way in a slot, so what it must hold is known whenever none is.
//! The first word is for additions, of which many are under way at once; those behind it are for [atomics of all kinds](Words).

use super::scenario::{Kinds, Operating};
use super::sent::Sent;
use super::shared::Withdrawal;
use super::words::{WORDS, Words};
use crate::rng::Rng;
use crate::rng::mix;
use crate::whole::contents::{fill_pattern, is_pattern};
use cci::{Access, Atomic, Connection, Endpoint, Memory, RegionHandle, Registration, Status};
use std::collections::BTreeSet;
use std::io::Write;
use std::rc::Rc;

const STRIP_BYTES: usize = 16;
const STRIP: u8 = 0xa5;

/// What an operation does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write {
        message: bool,
    },
    Read,
    /// Adds one to the word; `result`: where its value from before goes.
    Add {
        result: usize,
    },
    /// Changes one of the words for all kinds of atomics.
    Change {
        word: usize,
        atomic: Atomic,
        result: usize,
    },
    /// With a handle that is no good any more, or never was.
    Bad,
    /// An atomic at a slot that is not aligned.
    Odd,
    /// Told nobody, in a slot of its own.
    Silent,
}

/// An operation.
#[derive(Copy, Clone, Debug)]
pub(super) struct Op {
    pub kind: Kind,
    pub slot: usize,
    /// Fenced, behind another one in the same slot.
    pub fenced: bool,
    /// Which of the regions, one after the other, it is for.
    pub generation: u32,
    pub sent: Sent,
}

/// A slot in the region.
#[derive(Copy, Clone, Debug, Default)]
struct Slot {
    /// What it holds, once known; 0: zeros.
    base: Option<u64>,
    /// Operations under way there.
    busy: u8,
    /// The last write.
    last: u32,
    /// One of those under way has failed: nobody knows what it holds, or will hold.
    dead: bool,
}

/// What one side does in its peer's memory.
#[derive(Debug)]
pub(super) struct Work {
    pub spec: Operating,
    pub left: u32,
    pub ops: Vec<Op>,
    pub outstanding: u32,
    pub generation: u32,
    pub handle: RegionHandle,
    /// A handle that was good once.
    pub stale: Option<RegionHandle>,
    pub local_handle: RegionHandle,
    target: Memory,
    local: Memory,
    slots: Vec<Slot>,
    words: Words,
    adds_started: u64,
    adds_done: u64,
    /// Values that additions have found.
    found: BTreeSet<u64>,
    /// Where results of atomics go, in the local memory's head: whether they are in use.
    results: Vec<bool>,
    results_lost: usize,
    /// The region is about to be deregistered, or was just.
    withdrawn: Option<Withdrawal>,
    /// Regions that were deregistered, and what they held then.
    graves: Vec<(Memory, Vec<u8>)>,
}

/// Before the first slot: the words that atomics change, or the places of their results.
fn head_bytes(spec: &Operating) -> usize {
    8 * (spec.places as usize).max(1 + WORDS)
}

fn bytes_of(spec: &Operating) -> usize {
    head_bytes(spec) + spec.places as usize * 2 * (spec.bytes as usize + STRIP_BYTES)
}

/// Memory as it is at the beginning: zeros, and strips.
fn prepare(endpoint: &mut Endpoint, spec: &Operating) -> Result<Memory, String> {
    let memory = endpoint.allocate(bytes_of(spec)).map_err(|error| format!("allocate: {error}"))?;
    for slot in 0..2 * spec.places as usize {
        let strip = offset_of(spec, slot) as usize + spec.bytes as usize;
        if !memory.write(strip, &[STRIP; STRIP_BYTES]) {
            return Err("memory shorter than asked for".into());
        }
    }
    if !Words::prepare(&memory) {
        return Err("memory shorter than asked for".into());
    }
    Ok(memory)
}

/// What each place of the region holds at the beginning.
fn first_base(spec: &Operating, slot: usize) -> u64 {
    if spec.kinds == Kinds::File { mix(spec.draw ^ slot as u64) | 1 } else { 0 }
}

/// A file with what the places of a region hold at the beginning, zeros before them, and strips.
fn prepare_file(spec: &Operating) -> Result<Memory, String> {
    let mut bytes = vec![0; bytes_of(spec)];
    for slot in 0..2 * spec.places as usize {
        let (place, strip) = bytes[offset_of(spec, slot) as usize..].split_at_mut(spec.bytes as usize);
        fill_pattern(first_base(spec, slot), 0, place);
        strip[..STRIP_BYTES].fill(STRIP);
    }
    let written = tempfile::tempfile().and_then(|mut file| file.write_all(&bytes).map(|()| file));
    let file = written.map_err(|error| format!("a file: {error}"))?;
    Memory::file(file).map_err(|error| format!("a file as memory: {error}"))
}

fn offset_of(spec: &Operating, slot: usize) -> u64 {
    (head_bytes(spec) + slot * (spec.bytes as usize + STRIP_BYTES)) as u64
}

fn contents(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    let _ = memory.read(0, &mut bytes);
    bytes
}

impl Work {
    /// Registers memory at this end, for work in what the other end has [exposed](Self::expose).
    pub fn new(
        spec: &Operating,
        own: &mut Endpoint,
        (target, handle): (Memory, RegionHandle),
    ) -> Result<Work, String> {
        let local = prepare(own, spec)?;
        let local_handle =
            own.register(&local, Access::LOCAL).map_err(|error| format!("register: {error}"))?;
        Ok(Work {
            spec: spec.clone(),
            left: 0,
            ops: Vec::new(),
            outstanding: 0,
            generation: 0,
            handle,
            stale: None,
            local_handle,
            target,
            local,
            slots: (0..spec.places as usize)
                .map(|slot| Slot { base: Some(first_base(spec, slot)), ..Slot::default() })
                .collect(),
            words: Words::default(),
            adds_started: 0,
            adds_done: 0,
            found: BTreeSet::new(),
            results: vec![false; spec.places as usize],
            results_lost: 0,
            withdrawn: None,
            graves: Vec::new(),
        })
    }

    /// Registers memory at the other end.
    pub fn expose(
        spec: &Operating,
        owner: &mut Endpoint,
        only: Option<Connection>,
    ) -> Result<(Memory, RegionHandle), String> {
        let (target, access) = match spec.kinds {
            Kinds::File => (prepare_file(spec)?, Access::READ),
            _ => (prepare(owner, spec)?, Access::ALL),
        };
        let what = Registration { range: None, access, only };
        let handle = owner.register(&target, what).map_err(|error| format!("register: {error}"))?;
        Ok((target, handle))
    }

    pub fn has_more(&self) -> bool {
        // The first slot is for what nobody hears of.
        let slot = self.slots[1..].iter().any(|slot| !slot.dead);
        self.left > 0 && slot && self.results_lost < self.results.len()
    }

    /// The owner takes the region back soon.
    pub fn withdrawal(&mut self) -> Withdrawal {
        let (handle, memory) = (self.handle, self.target.clone());
        self.withdrawn.get_or_insert_with(|| Withdrawal { handle, memory, held: Rc::default() }).clone()
    }

    /// Whether this generation's region has been taken back already.
    pub fn is_withdrawn(&self) -> bool {
        self.withdrawn.as_ref().is_some_and(|withdrawal| withdrawal.held.borrow().is_some())
    }

    /// The owner takes the region back and offers another.
    pub fn renew(&mut self, owner: &mut Endpoint, only: Option<Connection>) -> Result<(), String> {
        let held = self.withdrawal().carry_out(owner)?;
        self.withdrawn = None;
        self.check_adds()?;
        let (target, handle) = Work::expose(&self.spec, owner, only)?;
        let old = std::mem::replace(&mut self.target, target);
        self.graves.push((old, held));
        self.stale = Some(std::mem::replace(&mut self.handle, handle));
        self.generation += 1;
        (self.adds_started, self.adds_done) = (0, 0);
        self.found.clear();
        self.words.renew();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            // What is under way may still put something into the local memory that belongs to this slot.
            slot.dead |= slot.busy > 0;
            slot.base = Some(first_base(&self.spec, number));
        }
        Ok(())
    }

    /// What operation `index` of side `side` puts there.
    fn base(side: usize, index: u32) -> u64 {
        mix((side as u64) << 32 | u64::from(index)) | 1
    }

    /// A slot where nothing is under way, and its content is known if it is to be read.
    pub fn free_slot(&self, rng: &mut Rng, known: bool) -> Option<usize> {
        let slots = self.slots.len();
        let first = rng.below(slots as u64 - 1) as usize;
        let good = |at: &usize| {
            let slot = &self.slots[*at];
            slot.busy == 0 && !slot.dead && (!known || slot.base.is_some())
        };
        (0..slots - 1).map(|at| 1 + (first + at) % (slots - 1)).find(good)
    }

    /// The words for all kinds of atomics, if they are used and anything is known of them.
    pub fn known_words(&self) -> Option<&Words> {
        Some(&self.words).filter(|words| (self.spec.kinds == Kinds::All) && words.are_known())
    }

    pub fn free_result(&mut self) -> Option<usize> {
        self.results.iter().position(|taken| !taken)
    }

    /// Offset of a slot in the peer's region.
    pub fn offset(&self, slot: usize) -> u64 {
        offset_of(&self.spec, slot)
    }

    /// Where in the local memory the data of operation `index` is, or goes; that of a fenced one lies elsewhere than that
    /// of the one before it.
    pub fn local_offset(&self, slot: usize, fenced: bool) -> u64 {
        offset_of(&self.spec, slot + if fenced { self.slots.len() } else { 0 })
    }

    /// Puts into local memory what is to be written.
    pub fn fill(&self, side: usize, index: u32, slot: usize, fenced: bool) -> Result<(), String> {
        let mut bytes = vec![0; self.spec.bytes as usize];
        fill_pattern(Work::base(side, index), 0, &mut bytes);
        let offset = self.local_offset(slot, fenced) as usize;
        self.local.write(offset, &bytes).then_some(()).ok_or_else(|| "local memory too short".into())
    }

    /// An operation was taken.
    pub fn started(&mut self, op: Op) {
        let index = self.ops.len() as u32;
        match op.kind {
            Kind::Add { result } => {
                self.adds_started += 1;
                self.results[result] = true;
            }
            Kind::Change { word, atomic, result } => {
                self.words.started(word, atomic);
                self.results[result] = true;
            }
            Kind::Write { .. } | Kind::Read => {
                let slot = &mut self.slots[op.slot];
                slot.busy += 1;
                if op.kind != Kind::Read {
                    slot.last = index;
                }
            }
            Kind::Bad | Kind::Odd | Kind::Silent => {}
        }
        self.outstanding += u32::from(op.kind != Kind::Silent);
        self.ops.push(op);
    }

    /// A write was refused. If the region was taken back in the middle of it, a part of the data may be there.
    pub fn refused(&mut self, slot: usize) {
        if self.is_withdrawn() {
            self.slots[slot].dead = true;
        }
    }

    /// A completion came: says what is wrong with it.
    pub fn completed(&mut self, side: usize, index: u32, status: Status, gentle: bool) -> Result<(), String> {
        let is_withdrawn = self.is_withdrawn();
        let op = self.ops.get_mut(index as usize).ok_or("of an operation never started")?;
        if let Some(first) = op.sent.status.replace(status) {
            return Err(format!("twice: {first:?}, then {status:?}"));
        }
        if op.kind == Kind::Silent {
            return Err("though it was silent".into());
        }
        let op = *op;
        self.outstanding = self.outstanding.saturating_sub(1);
        let current = op.generation == self.generation && !is_withdrawn;
        let good = match op.kind {
            Kind::Bad => matches!(status, Status::RmaHandle),
            Kind::Odd => matches!(status, Status::RmaOperation) || (status == Status::RmaHandle && !current),
            _ => status == Status::Success || (status == Status::RmaHandle && !current),
        };
        let trouble = matches!(status, Status::Disconnected | Status::TimedOut | Status::ReceiverNotReady);
        if !good && (gentle || !trouble) {
            return Err(format!("with {status:?}"));
        }
        if op.sent.delivered > 0 && matches!(status, Status::RmaHandle | Status::ReceiverNotReady) {
            return Err(format!("with {status:?} though its message was delivered"));
        }
        match op.kind {
            Kind::Add { result } => self.added(result, status, current),
            Kind::Change { word, result, .. } => self.changed(&op, (word, result), status),
            Kind::Write { .. } | Kind::Read => self.slot_done(side, &op, status, current),
            Kind::Bad | Kind::Odd | Kind::Silent => Ok(()),
        }
    }

    fn added(&mut self, result: usize, status: Status, current: bool) -> Result<(), String> {
        if !matches!(status, Status::Success | Status::RmaHandle) {
            // Where the value from before would go may still be written to: never used again.
            self.results_lost += 1;
            return Ok(());
        }
        self.results[result] = false;
        if status != Status::Success {
            return Ok(());
        }
        if !current {
            return Ok(());
        }
        self.adds_done += 1;
        let mut word = [0; 8];
        let _ = self.local.read(8 * result, &mut word);
        let value = u64::from_ne_bytes(word);
        if value >= self.adds_started || !self.found.insert(value) {
            return Err(format!("an addition found {value}, of {} started", self.adds_started));
        }
        Ok(())
    }

    fn changed(&mut self, op: &Op, (word, result): (usize, usize), status: Status) -> Result<(), String> {
        let is_known = matches!(status, Status::Success | Status::RmaHandle);
        self.results[result] = !is_known;
        self.results_lost += usize::from(!is_known);
        let is_old = op.generation != self.generation;
        if is_old || self.is_withdrawn() {
            self.words.dismissed(word, is_old);
            return Ok(());
        }
        let mut found = [0; 8];
        let _ = self.local.read(8 * result, &mut found);
        self.words.ended(word, is_known.then_some(&found), &self.target)
    }

    fn slot_done(&mut self, side: usize, op: &Op, status: Status, current: bool) -> Result<(), String> {
        let slot = &mut self.slots[op.slot];
        slot.busy = slot.busy.saturating_sub(1);
        if status != Status::Success {
            slot.dead = true;
            slot.base = None;
        }
        if slot.dead || !current {
            return Ok(());
        }
        if op.kind == Kind::Read {
            // What is fenced behind a write finds it, whether that has completed or not.
            let base = if op.fenced { Some(Work::base(side, slot.last)) } else { slot.base };
            let Some(base) = base else { return Ok(()) };
            self.check(&self.local, self.local_offset(op.slot, op.fenced), base, "read")?;
            if !op.fenced {
                return Ok(());
            }
        }
        let slot = &mut self.slots[op.slot];
        if slot.busy > 0 {
            return Ok(());
        }
        let base = Work::base(side, slot.last);
        slot.base = Some(base);
        self.check(&self.target, self.offset(op.slot), base, "written")
    }

    fn check(&self, memory: &Memory, offset: u64, base: u64, what: &str) -> Result<(), String> {
        let mut bytes = vec![0; self.spec.bytes as usize];
        if !memory.read(offset as usize, &mut bytes) {
            return Err("beyond the memory's end".into());
        }
        let wrong = match base {
            0 => bytes.iter().position(|byte| *byte != 0).map(|at| at as u64),
            base => is_pattern(base, 0, &bytes).err(),
        };
        wrong.map_or(Ok(()), |at| Err(format!("what was {what} is wrong from byte {at} on")))
    }

    /// The message behind the data of operation `index` came.
    pub fn delivered(&mut self, side: usize, index: u32, len: usize) -> Result<(), String> {
        let op = self.ops.get_mut(index as usize).ok_or("behind an operation never started")?;
        op.sent.delivered = op.sent.delivered.saturating_add(1);
        let op = *op;
        if op.kind != (Kind::Write { message: true }) || op.sent.len_bytes as usize != len {
            return Err(format!("behind an operation without such a message: {op:?}"));
        }
        if op.sent.delivered > 1 {
            return Err("for the second time".into());
        }
        if matches!(op.sent.status, Some(Status::RmaHandle | Status::ReceiverNotReady)) {
            return Err(format!("behind an operation that ended with {:?}", op.sent.status));
        }
        let slot = &self.slots[op.slot];
        if op.generation == self.generation && slot.last == index && !slot.dead {
            self.check(&self.target, self.offset(op.slot), Work::base(side, index), "announced")?;
        }
        Ok(())
    }

    fn check_adds(&self) -> Result<(), String> {
        if (self.spec.kinds == Kinds::All) && !self.is_withdrawn() {
            self.words.check_all(&self.target)?;
        }
        let mut word = [0; 8];
        let _ = self.target.read(0, &mut word);
        let value = u64::from_ne_bytes(word);
        if !(self.adds_done..=self.adds_started).contains(&value) {
            let (done, started) = (self.adds_done, self.adds_started);
            return Err(format!("{value} additions happened; {done} completed of {started}"));
        }
        Ok(())
    }

    /// At the end: nothing beside the slots was touched, nor what was deregistered.
    pub fn finish(&self, owed: bool, may_stay_mapped: bool) -> Result<(), String> {
        self.check_adds()?;
        for memory in [&self.target, &self.local] {
            for slot in 0..2 * self.slots.len() {
                let mut strip = [0; STRIP_BYTES];
                let _ =
                    memory.read(offset_of(&self.spec, slot) as usize + self.spec.bytes as usize, &mut strip);
                if strip != [STRIP; STRIP_BYTES] {
                    return Err(format!("what lies behind place {slot} was changed"));
                }
            }
        }
        // Where memory can't be replaced for want of other memory, a peer in the middle of a copy keeps what it had (`detach_failed`).
        if !may_stay_mapped && self.graves.iter().any(|(memory, held)| contents(memory) != *held) {
            return Err("a region changed after it was deregistered".into());
        }
        let never = |op: &&Op| op.kind != Kind::Silent && op.sent.status.is_none();
        if owed && let Some(op) = self.ops.iter().find(never) {
            return Err(format!("an operation never completed: {op:?}"));
        }
        Ok(())
    }

    /// An operation that succeeded and whose message never came.
    pub fn missing(&self) -> Option<String> {
        let missing = |op: &&Op| {
            op.kind == (Kind::Write { message: true })
                && op.sent.status == Some(Status::Success)
                && op.sent.delivered == 0
        };
        self.ops.iter().find(missing).map(|op| format!("no message behind {op:?}"))
    }
}
