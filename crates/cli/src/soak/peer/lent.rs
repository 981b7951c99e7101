//! Memory that a peer works on, and what its owner can compare.

use super::super::random::Random;
use super::contents::{self, GUARD_BYTES, Snapshot};
use super::frame::{Fin, Offer};
use super::work::{self, WORDS_BYTES};
use cci::{
    Access, AtomicWidth, Connection, Endpoint, Foreign, Memory, RegionHandle, RegisterError, Registration,
};
use cci_sys::clock;

/// Shortest and longest slot, bytes.
const SLOT_BYTES: (u64, u64) = (64, 256 << 10);
const WORD: usize = 8;
/// Words at the front of the region that the peer works on by atomics, bytes.
const WORDS_USED_BYTES: usize = 2 * WORD;
/// Memory that is withdrawn early is withdrawn within this.
const WITHDRAW_NS_MAX: u64 = 300_000_000;
/// Memory that was given up is looked at again after this.
const GIVEN_UP_NS: u64 = 200_000_000;

/// The word that all peers add to, by one endpoint.
pub struct Ledger {
    memory: Memory,
    handle: RegionHandle,
    /// Additions that sessions reported at their end.
    confirmed: u64,
    /// Sessions that worked on it and do not know whether all was done.
    unknown: u64,
}

impl Ledger {
    /// Starts at 0.
    pub fn new(endpoint: &mut Endpoint) -> Result<Ledger, RegisterError> {
        let memory = endpoint.allocate(WORD)?;
        let handle = endpoint.register(&memory, Access::ATOMIC)?;
        Ok(Ledger { memory, handle, confirmed: 0, unknown: 0 })
    }

    /// The sum must be there; more only where somebody does not know what it added, or is not yet done (`busy`).
    pub fn check(&self, busy: bool) -> Result<(), String> {
        let sum = self.memory.load(0, AtomicWidth::Eight).unwrap_or(0);
        if sum < self.confirmed || (sum > self.confirmed && self.unknown == 0 && !busy) {
            return Err(format!(
                "the sum of all additions is {sum}, and {} were confirmed, and {} sessions do not know what they added",
                self.confirmed, self.unknown
            ));
        }
        Ok(())
    }

    /// Nobody adds any more.
    pub fn end(&self, endpoint: &mut Endpoint) -> Result<(), String> {
        endpoint.deregister(&self.handle).map_err(|error| format!("the ledger is not deregistered: {error}"))
    }
}

/// One session's memory.
pub struct Lent {
    memory: Memory,
    /// Bytes of the region, which is between guards.
    len: usize,
    handle: Option<RegionHandle>,
    offer: Offer,
    /// Its slots are written as a whole, by alternating writes.
    flooded: bool,
    /// Take it back then, whatever the peer is doing.
    withdraw_at_ns: Option<u64>,
    /// The contents when it was given up, and when that was.
    given_up: Option<(Snapshot, u64)>,
    /// It was compared at the end.
    settled: bool,
}

/// Memory that was given up, in which nothing may change any more.
pub struct GivenUp {
    memory: Memory,
    then: Snapshot,
    flooded: bool,
    at_ns: u64,
}

impl GivenUp {
    /// The memory and the copy of what it contained, bytes.
    pub fn held_bytes(&self) -> usize {
        2 * self.memory.len()
    }

    /// Enough time has passed for a late write to show.
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns > self.at_ns + GIVEN_UP_NS
    }

    /// Checks that it is as it was, and that nothing else is there than was written. True: the last write ended half way.
    pub fn check(&self) -> Result<bool, String> {
        if Snapshot::of(&self.memory) != self.then {
            return Err("lent memory changed after it was given up".to_owned());
        }
        self.then.check(WORDS_USED_BYTES, WORDS_BYTES)?;
        if self.flooded { self.then.is_torn(WORDS_BYTES) } else { Ok(false) }
    }
}

impl Lent {
    /// Memory of any size, of the library's own or from the heap, for the one connection or for all; as large as can be
    /// where it is to be `flooded`.
    pub fn new(
        endpoint: &mut Endpoint,
        ledger: &Ledger,
        connection: Connection,
        random: &mut Random,
        flooded: bool,
    ) -> Result<Lent, RegisterError> {
        let magnitude = random.between(SLOT_BYTES.0.ilog2().into(), SLOT_BYTES.1.ilog2().into());
        let slot_bytes = random.between(SLOT_BYTES.0, 1 << magnitude) as usize / WORD * WORD;
        let slot_bytes = if flooded { SLOT_BYTES.1 as usize } else { slot_bytes };
        let len = WORDS_BYTES + work::SLOTS * slot_bytes;
        let total = len + 2 * GUARD_BYTES;
        let memory = if random.one_in(2) {
            Memory::foreign(Foreign::owned(vec![0; total].into_boxed_slice()))
        } else {
            endpoint.allocate(total)?
        };
        let range = Some(contents::guard(&memory));
        let only = random.one_in(2).then_some(connection);
        let handle = endpoint.register(&memory, Registration { range, access: Access::ALL, only })?;
        let withdrawn = random.one_in(if flooded { 2 } else { 8 });
        let withdraw_at_ns = withdrawn.then(|| clock::now_ns() + random.below(WITHDRAW_NS_MAX));
        let offer = Offer { region: handle, ledger: ledger.handle, withdrawn };
        Ok(Lent {
            memory,
            len,
            handle: Some(handle),
            offer,
            flooded,
            withdraw_at_ns,
            given_up: None,
            settled: false,
        })
    }

    /// The offer that the peer gets.
    pub fn offer(&self) -> Offer {
        self.offer
    }

    /// Takes the memory back early if it is time to.
    pub fn step(&mut self, endpoint: &mut Endpoint, now_ns: u64) -> Result<(), String> {
        if self.withdraw_at_ns.is_some_and(|at_ns| now_ns > at_ns) {
            self.take_back(endpoint)
        } else {
            Ok(())
        }
    }

    /// The peer has written to a slot: says what is wrong there.
    pub fn note(&mut self, slot: u64, seed: u64, len: u64) -> Result<(), String> {
        let offset = work::slot_at(self.len, slot as usize);
        contents::compare(&self.memory, GUARD_BYTES + offset, len as usize, offset, seed)
            .map_err(|reason| format!("{reason}, when the message behind it came"))
    }

    /// The peer is done, and reports what it did.
    pub fn settle(&mut self, ledger: &mut Ledger, fin: &Fin) -> Result<(), String> {
        self.settled = true;
        ledger.confirmed += fin.ledger;
        let load =
            |word: usize| self.memory.load(GUARD_BYTES + word * WORD, AtomicWidth::Eight).unwrap_or(u64::MAX);
        if fin.whole && (load(0), load(1)) != (fin.adds, fin.swapped) {
            return Err(format!(
                "the words are {} and {:#x}; {} additions and a swap to {:#x} had completed",
                load(0),
                load(1),
                fin.adds,
                fin.swapped
            ));
        }
        Ok(())
    }

    fn take_back(&mut self, endpoint: &mut Endpoint) -> Result<(), String> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        endpoint.deregister(&handle).map_err(|error| format!("memory is not deregistered: {error}"))?;
        self.given_up = Some((Snapshot::of(&self.memory), clock::now_ns()));
        Ok(())
    }

    /// The session is over.
    pub fn end(mut self, endpoint: &mut Endpoint, ledger: &mut Ledger) -> Result<Option<GivenUp>, String> {
        ledger.unknown += u64::from(!self.settled);
        self.take_back(endpoint)?;
        let Lent { memory, flooded, .. } = self;
        Ok(self.given_up.map(|(then, at_ns)| GivenUp { memory, then, flooded, at_ns }))
    }
}
