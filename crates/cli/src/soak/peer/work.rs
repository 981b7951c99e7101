//! Work on a peer's memory: writes, reads, atomics, fences and messages behind the data, each with a known result.

use super::super::random::Random;
use super::contents;
use super::flow::Flight;
use super::frame::{Fin, Frame, Offer};
use super::op::Op;
use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, Connection, Endpoint, Foreign, Memory, RegionAddress,
    RegionHandle, RegisterError, Rma, RmaError, RmaFlags, RmaKind, Segment, Status,
};
use cci_sys::clock;

/// Slots of a region, worked on apart.
pub const SLOTS: usize = 4;
/// Room for the words in front of them.
pub const WORDS_BYTES: usize = 64;
const WORD: u64 = 8;
/// The longest time for which a flood lasts.
const FLOOD_NS_MAX: u64 = 600_000_000;
/// Where results of atomics go, behind the mirror of the region and what is read back.
const RESULTS: usize = 2;

/// Where a slot begins, in a region of this length.
pub fn slot_at(region_bytes: usize, slot: usize) -> usize {
    WORDS_BYTES + slot * slot_bytes(region_bytes)
}

const fn slot_bytes(region_bytes: usize) -> usize {
    region_bytes.saturating_sub(WORDS_BYTES) / SLOTS
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Slot {
    Idle,
    /// So many completions are to come, and whether the owner is to answer.
    Busy {
        completions: u8,
        answer: bool,
    },
    /// Nobody knows when a silent write from it is over.
    Retired,
}

/// What came of a completion.
#[derive(Default)]
pub struct Outcome {
    /// Bytes that were compared and right.
    pub compared: u64,
    /// Atomic operations whose result was right.
    pub atomics: u64,
}

/// Writes of all slots at once.
#[derive(Copy, Clone)]
struct Flood {
    /// The number of the next one.
    number: u64,
    /// One is under way.
    pouring: bool,
    /// None is begun after this.
    until_ns: u64,
}

/// The work of one session.
pub struct Work {
    offer: Offer,
    local: Memory,
    handle: RegionHandle,
    region_bytes: usize,
    slots: [Slot; SLOTS],
    /// Operations to begin.
    left: u32,
    adds: u64,
    adding: bool,
    word: u64,
    swapping: bool,
    ledger: u64,
    given_up: bool,
    corrupt: bool,
    /// Only writes of all slots at once, one after the other.
    flood: Option<Flood>,
}

impl Work {
    /// With local memory of either kind. `corrupt`: one byte is to be wrong. `floods`: it does nothing but write all slots
    /// at once, so that many a copy is under way whenever the process is killed or stopped.
    pub fn new(
        endpoint: &mut Endpoint,
        offer: Offer,
        random: &mut Random,
        corrupt: bool,
        floods: bool,
    ) -> Result<Work, RegisterError> {
        let region_bytes = offer.region.len_bytes() as usize;
        let len = 2 * region_bytes + RESULTS * WORD as usize;
        let local = if random.one_in(2) {
            Memory::foreign(Foreign::owned(vec![0; len].into_boxed_slice()))
        } else {
            endpoint.allocate(len)?
        };
        let handle = endpoint.register(&local, Access::LOCAL)?;
        if floods {
            let mut bytes = vec![0; region_bytes.saturating_sub(WORDS_BYTES)];
            for number in 0..2 {
                contents::fill_alternating(&mut bytes, WORDS_BYTES, number);
                // There is room by the length above.
                let _ = local.write(number as usize * region_bytes + WORDS_BYTES, &bytes);
            }
        }
        let left = random.between(1, 60) as u32;
        let until_ns = clock::now_ns() + random.below(FLOOD_NS_MAX);
        Ok(Work {
            offer,
            local,
            handle,
            region_bytes,
            slots: [Slot::Idle; SLOTS],
            left,
            adds: 0,
            adding: false,
            word: 0,
            swapping: false,
            ledger: 0,
            given_up: false,
            corrupt,
            flood: floods.then_some(Flood { number: 0, pouring: false, until_ns }),
        })
    }

    /// Nothing is to begin, and nothing under way.
    pub fn is_over(&self) -> bool {
        let busy = |slot: &Slot| matches!(slot, Slot::Busy { .. });
        let pouring = self.flood.is_some_and(|flood| flood.pouring);
        self.given_up || (self.left == 0 && !pouring && !self.slots.iter().any(busy))
    }

    /// What the session reports at its end.
    pub fn fin(&self) -> Fin {
        Fin { adds: self.adds, swapped: self.word, ledger: self.ledger, whole: !self.given_up }
    }

    /// Begins one operation, or one of each of two that belong together. False: none could be begun.
    pub fn begin(
        &mut self,
        endpoint: &mut Endpoint,
        connection: Connection,
        base: u64,
        flight: &mut Flight<Op>,
        random: &mut Random,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, RmaError> {
        if self.left == 0 || self.given_up {
            return Ok(false);
        }
        let mut start = Start { endpoint, connection, base, flight };
        let begun = match random.below(8) {
            _ if self.flood.is_some() => self.pour(&mut start),
            0 => self.add(&mut start),
            1 => self.swap(&mut start, random),
            2 => self.add_to_ledger(&mut start),
            _ => self.transfer(&mut start, random, scratch),
        };
        match begun {
            Ok(true) if self.flood.is_some() => {}
            Ok(true) => self.left -= 1,
            Ok(false) => {}
            Err(RmaError::WouldBlock) => return Ok(false),
            Err(error) => return Err(error),
        }
        begun
    }

    /// Writes all slots at once, as the write before did not.
    fn pour(&mut self, start: &mut Start<'_>) -> Result<bool, RmaError> {
        let Some(flood) = self.flood.filter(|flood| !flood.pouring) else { return Ok(false) };
        if clock::now_ns() > flood.until_ns {
            self.left = 0;
            return Ok(false);
        }
        let at = (flood.number % 2) * self.region_bytes as u64 + WORDS_BYTES as u64;
        let local = RegionAddress::new(self.handle, at);
        let remote = RegionAddress::new(self.offer.region, WORDS_BYTES as u64);
        let len = (self.region_bytes - WORDS_BYTES) as u64;
        start.write(local, remote, len, false, Op::Pour)?;
        self.flood = Some(Flood { number: flood.number + 1, pouring: true, ..flood });
        Ok(true)
    }

    fn add(&mut self, start: &mut Start<'_>) -> Result<bool, RmaError> {
        if self.adding {
            return Ok(false);
        }
        let atomic = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
        start.atomic(atomic, RegionAddress::new(self.offer.region, 0), Some(self.result(0)), Op::Add)?;
        self.adding = true;
        Ok(true)
    }

    fn swap(&mut self, start: &mut Start<'_>, random: &mut Random) -> Result<bool, RmaError> {
        if self.swapping {
            return Ok(false);
        }
        let to = random.next();
        let atomic = Atomic {
            kind: AtomicKind::CompareSwap,
            width: AtomicWidth::Eight,
            operand: to,
            compare: self.word,
        };
        start.atomic(
            atomic,
            RegionAddress::new(self.offer.region, WORD),
            Some(self.result(1)),
            Op::Swap { to },
        )?;
        self.swapping = true;
        Ok(true)
    }

    fn add_to_ledger(&mut self, start: &mut Start<'_>) -> Result<bool, RmaError> {
        let atomic = Atomic { kind: AtomicKind::FetchAdd, width: AtomicWidth::Eight, operand: 1, compare: 0 };
        start.atomic(atomic, RegionAddress::new(self.offer.ledger, 0), None, Op::Ledger)?;
        Ok(true)
    }

    fn result(&self, which: usize) -> RegionAddress {
        RegionAddress::new(self.handle, 2 * self.region_bytes as u64 + which as u64 * WORD)
    }

    /// Writes a slot; then the owner compares it, or it is read back behind a fence.
    fn transfer(
        &mut self,
        start: &mut Start<'_>,
        random: &mut Random,
        scratch: &mut Vec<u8>,
    ) -> Result<bool, RmaError> {
        let Some(slot) = self.slots.iter().position(|slot| *slot == Slot::Idle) else { return Ok(false) };
        let at = slot_at(self.region_bytes, slot);
        let len = random.between(1, slot_bytes(self.region_bytes) as u64) as usize;
        let seed = random.next();
        scratch.resize(len, 0);
        contents::fill(scratch, at, seed);
        if std::mem::take(&mut self.corrupt)
            && let Some(byte) = scratch.last_mut()
        {
            *byte ^= 1;
        }
        if !self.local.write(at, scratch) {
            return Err(RmaError::Lengths);
        }
        let (at, len) = (at as u64, len as u64);
        let local = RegionAddress::new(self.handle, at);
        let remote = RegionAddress::new(self.offer.region, at);
        let choice = random.below(4);
        if choice == 0 {
            let note = Frame::Note { slot: slot as u64, seed, len }.encode();
            let flags = if random.one_in(2) { RmaFlags::FENCE } else { RmaFlags::NONE };
            let (local, remote) =
                ([Segment::new(self.handle, at, len)], [Segment::new(remote.handle, at, len)]);
            let rma = Rma {
                kind: RmaKind::Write,
                local: &local,
                remote: &remote,
                message: Some(&note),
                context: 0,
                flags,
            };
            start.rma(rma, Op::Write { slot })?;
            self.set(slot, Slot::Busy { completions: 1, answer: true });
            return Ok(true);
        }
        let silent = choice == 1;
        if choice == 2 && len > 2 {
            // Cut differently on both sides.
            let (one, two) = (random.between(1, len - 1), random.between(1, len - 1));
            let segments = |handle, split| {
                [Segment::new(handle, at, split), Segment::new(handle, at + split, len - split)]
            };
            let (local, remote) = (segments(self.handle, one), segments(self.offer.region, two));
            let rma = Rma {
                kind: RmaKind::Write,
                local: &local,
                remote: &remote,
                message: None,
                context: 0,
                flags: RmaFlags::NONE,
            };
            start.rma(rma, Op::Write { slot })?;
        } else {
            start.write(local, remote, len, silent, Op::Write { slot })?;
        }
        let back = RegionAddress::new(self.handle, self.region_bytes as u64 + at);
        let read = start.read(back, remote, len, Op::Read { slot, seed, len });
        self.set(
            slot,
            match (&read, silent) {
                (Ok(()), true) => Slot::Busy { completions: 1, answer: false },
                (Ok(()), false) => Slot::Busy { completions: 2, answer: false },
                (Err(_), false) => Slot::Busy { completions: 1, answer: false },
                (Err(_), true) => Slot::Retired,
            },
        );
        match read {
            Ok(()) | Err(RmaError::WouldBlock) => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn set(&mut self, slot: usize, to: Slot) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = to;
        }
    }

    /// The owner has compared.
    pub fn noted(&mut self, slot: u64) {
        if let Some(slot) = self.slots.get_mut(slot as usize)
            && let Slot::Busy { completions, .. } = *slot
        {
            *slot = if completions == 0 { Slot::Idle } else { Slot::Busy { completions, answer: false } };
        }
    }

    /// An operation completed: says what is wrong. Statuses other than success are for the caller, but for the one that
    /// memory taken back leads to.
    pub fn completed(&mut self, op: Op, status: Status) -> Result<Outcome, String> {
        if status == Status::RmaHandle && self.offer.withdrawn && op != Op::Ledger {
            self.given_up = true;
        }
        if status != Status::Success {
            return Ok(Outcome::default());
        }
        let result = |which: usize| {
            let at = 2 * self.region_bytes + which * WORD as usize;
            self.local.load(at, AtomicWidth::Eight).unwrap_or(u64::MAX)
        };
        let mut outcome = Outcome::default();
        match op {
            Op::Message | Op::Loan | Op::Frame | Op::Done => {}
            Op::Add => {
                if result(0) != self.adds {
                    return Err(format!("an addition found {}, not {}", result(0), self.adds));
                }
                (self.adding, self.adds) = (false, self.adds + 1);
                outcome.atomics = 1;
            }
            Op::Swap { to } => {
                if result(1) != self.word {
                    return Err(format!("a swap found {:#x}, not {:#x}", result(1), self.word));
                }
                (self.swapping, self.word) = (false, to);
                outcome.atomics = 1;
            }
            Op::Ledger => {
                self.ledger += 1;
                outcome.atomics = 1;
            }
            Op::Write { slot } => self.one_less(slot),
            Op::Pour => self.flood = self.flood.map(|flood| Flood { pouring: false, ..flood }),
            Op::Read { slot, seed, len } => {
                let offset = slot_at(self.region_bytes, slot);
                contents::compare(&self.local, self.region_bytes + offset, len as usize, offset, seed)
                    .map_err(|reason| format!("read back behind a fence: {reason}"))?;
                outcome.compared = len;
                self.one_less(slot);
            }
        }
        Ok(outcome)
    }

    fn one_less(&mut self, slot: usize) {
        if let Some(slot) = self.slots.get_mut(slot)
            && let Slot::Busy { completions, answer } = *slot
        {
            let completions = completions.saturating_sub(1);
            *slot = if completions == 0 && !answer { Slot::Idle } else { Slot::Busy { completions, answer } };
        }
    }

    /// The session is over.
    pub fn end(self, endpoint: &mut Endpoint) -> Result<(), String> {
        endpoint
            .deregister(&self.handle)
            .map_err(|error| format!("local memory is not deregistered: {error}"))
    }

    /// For people.
    pub fn describe(&self) -> String {
        let busy = self.slots.iter().filter(|slot| matches!(slot, Slot::Busy { .. })).count();
        format!("{} operations to begin, {busy} slots busy, {} additions", self.left, self.adds)
    }
}

/// Starts operations and keeps the account of them.
struct Start<'a> {
    endpoint: &'a mut Endpoint,
    connection: Connection,
    base: u64,
    flight: &'a mut Flight<Op>,
}

impl Start<'_> {
    fn context(&self) -> u64 {
        self.base | u64::from(self.flight.next())
    }

    fn rma(&mut self, rma: Rma<'_>, op: Op) -> Result<(), RmaError> {
        let context = self.context();
        self.endpoint.rma(self.connection, &Rma { context, ..rma })?;
        self.flight.start(op);
        Ok(())
    }

    fn write(
        &mut self,
        from: RegionAddress,
        to: RegionAddress,
        len: u64,
        silent: bool,
        op: Op,
    ) -> Result<(), RmaError> {
        let flags = if silent { RmaFlags::SILENT } else { RmaFlags::NONE };
        self.endpoint.rma_write(self.connection, from, to, len, self.context(), flags)?;
        if !silent {
            self.flight.start(op);
        }
        Ok(())
    }

    fn read(&mut self, into: RegionAddress, from: RegionAddress, len: u64, op: Op) -> Result<(), RmaError> {
        self.endpoint.rma_read(self.connection, into, from, len, self.context(), RmaFlags::FENCE)?;
        self.flight.start(op);
        Ok(())
    }

    fn atomic(
        &mut self,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        op: Op,
    ) -> Result<(), RmaError> {
        self.endpoint.atomic(self.connection, atomic, target, result, self.context(), RmaFlags::NONE)?;
        self.flight.start(op);
        Ok(())
    }
}
