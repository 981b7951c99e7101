//! Memory that a peer works on, and what its owner can compare.

use super::super::random::Random;
use super::frame::{Fin, Offer};
use super::work::{self, WORDS_BYTES};
use cci::{
    Access, AtomicWidth, Connection, Endpoint, Foreign, Memory, RegionHandle, RegisterError, Registration,
};

/// Shortest and longest slot, bytes.
const SLOT_BYTES: (u64, u64) = (64, 256 << 10);
const WORD: usize = 8;

/// The word that all peers add to, by one endpoint.
pub struct Ledger {
    memory: Memory,
    handle: RegionHandle,
    /// Additions that sessions reported at their end.
    confirmed: u64,
    /// Sessions that worked on it and could not tell.
    unknown: u64,
}

impl Ledger {
    /// Starts at 0.
    pub fn new(endpoint: &mut Endpoint) -> Result<Ledger, RegisterError> {
        let memory = endpoint.allocate(WORD)?;
        let handle = endpoint.register(&memory, Access::ATOMIC)?;
        Ok(Ledger { memory, handle, confirmed: 0, unknown: 0 })
    }

    /// The sum must be there; more only where somebody could not tell what it added, or is not yet done (`busy`).
    pub fn check(&self, busy: bool) -> Result<(), String> {
        let sum = self.memory.load(0, AtomicWidth::Eight).unwrap_or(0);
        if sum < self.confirmed || (sum > self.confirmed && self.unknown == 0 && !busy) {
            return Err(format!(
                "the sum of all additions is {sum}, and {} were confirmed, with {} sessions that could not tell",
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
    handle: Option<RegionHandle>,
    offer: Offer,
    /// Take it back after so many notes.
    withdraw_after: Option<u64>,
    notes: u64,
    /// It was compared at the end.
    settled: bool,
}

impl Lent {
    /// Memory of any size, of the library's own or from the heap, for the one connection or for all.
    pub fn new(
        endpoint: &mut Endpoint,
        ledger: &Ledger,
        connection: Connection,
        random: &mut Random,
    ) -> Result<Lent, RegisterError> {
        let magnitude = random.between(SLOT_BYTES.0.ilog2().into(), SLOT_BYTES.1.ilog2().into());
        let slot_bytes = random.between(SLOT_BYTES.0, 1 << magnitude) as usize / WORD * WORD;
        let len = WORDS_BYTES + work::SLOTS * slot_bytes;
        let memory = if random.one_in(2) {
            Memory::foreign(Foreign::owned(vec![0; len].into_boxed_slice()))
        } else {
            endpoint.allocate(len)?
        };
        let only = random.one_in(2).then_some(connection);
        let handle = endpoint.register(&memory, Registration { range: None, access: Access::ALL, only })?;
        let withdraw_after = random.one_in(8).then(|| random.below(6));
        let offer = Offer { region: handle, ledger: ledger.handle, withdrawn: withdraw_after.is_some() };
        Ok(Lent { memory, handle: Some(handle), offer, withdraw_after, notes: 0, settled: false })
    }

    /// The offer that the peer gets.
    pub fn offer(&self) -> Offer {
        self.offer
    }

    /// The peer has written to a slot: says what is wrong there.
    pub fn note(
        &mut self,
        endpoint: &mut Endpoint,
        slot: u64,
        seed: u64,
        len: u64,
        scratch: &mut Vec<u8>,
    ) -> Result<(), String> {
        let at = work::slot_at(self.memory.len(), slot as usize);
        work::compare(&self.memory, at, len as usize, seed, scratch)
            .map_err(|reason| format!("{reason}, when the message behind it came"))?;
        self.notes += 1;
        if self.withdraw_after.is_some_and(|after| self.notes > after) {
            self.take_back(endpoint)?;
        }
        Ok(())
    }

    /// The peer is done, and tells what it did.
    pub fn settle(&mut self, ledger: &mut Ledger, fin: &Fin) -> Result<(), String> {
        self.settled = true;
        ledger.confirmed += fin.ledger;
        let load = |word: usize| self.memory.load(word * WORD, AtomicWidth::Eight).unwrap_or(u64::MAX);
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
        match self.handle.take() {
            Some(handle) => {
                endpoint.deregister(&handle).map_err(|error| format!("memory is not deregistered: {error}"))
            }
            None => Ok(()),
        }
    }

    /// The session is over.
    pub fn end(mut self, endpoint: &mut Endpoint, ledger: &mut Ledger) -> Result<(), String> {
        ledger.unknown += u64::from(!self.settled);
        self.take_back(endpoint)
    }
}
