//! The lending side of loans: the memory that was offered to a link's peer, and the messages that it has not returned.

use super::offer::Offer;
use super::pending::Ended;
use crate::connection::{Connection, Status};
use crate::engine::charge::{Charge, ChargedBytes};
use crate::engine::core::{Core, SendOp};
use crate::limits;
use cci_memory::ring::Corrupt;
use cci_sys::shared_memory::{self, LendingSlot};
use cci_sys::unix::Stream;

/// What a link lends to its peer.
#[derive(Default)]
pub(super) enum Lending {
    #[default]
    NeverOffered,
    /// Nothing: the peer has refused, or there was no memory for it.
    Not,
    Offered(Box<Memory>),
}

/// Why there is no slot.
pub(super) enum NotLent {
    /// The peer was never offered any memory.
    Never,
    /// The peer has not answered or has refused, or all slots are in use.
    Now,
}

/// Memory that the peer was offered.
pub(super) struct Memory {
    slots: shared_memory::Lending,
    /// The peer has it mapped.
    is_mapped: bool,
    /// The messages that were sent, by their slots.
    lent: [Option<Lent>; limits::LOANS_MAX as usize],
    _charge: Charge,
}

/// A message that was sent.
struct Lent {
    /// Held so that nobody else writes to the slot.
    _slot: LendingSlot,
    connection: Connection,
    /// The index of the connection in the transport's table.
    conn: u32,
    /// `None` if the connection has ended, so that the completion came before the slot was returned.
    op: Option<SendOp>,
    /// Whether the peer is known to have taken the record from the ring.
    is_taken: bool,
}

impl Lending {
    /// Makes memory and offers it, if there is space for it.
    pub fn offer(offer: Offer, lifeline: &Stream, sum: &ChargedBytes, space_bytes: u64) -> Lending {
        if offer.len_bytes() > space_bytes {
            return Lending::Not;
        }
        let Ok(slots) = shared_memory::Lending::create(offer.slots, offer.slot_bytes as usize) else {
            return Lending::Not;
        };
        let sent = slots.fd().is_some_and(|fd| lifeline.send(&offer.to_bytes(), &[fd]).is_ok());
        if !sent {
            return Lending::Not;
        }
        let _charge = sum.charge(offer.len_bytes());
        let lent = [const { None }; limits::LOANS_MAX as usize];
        Lending::Offered(Box::new(Memory { slots, is_mapped: false, lent, _charge }))
    }

    fn memory(&mut self) -> Option<&mut Memory> {
        match self {
            Lending::Offered(memory) => Some(memory),
            Lending::NeverOffered | Lending::Not => None,
        }
    }

    /// Handles the peer's report whether it has mapped the memory.
    ///
    /// # Errors
    /// No memory was offered.
    pub fn answered(&mut self, is_mapped: bool) -> Result<(), Corrupt> {
        let Lending::Offered(memory) = self else { return Err(Corrupt::Length) };
        if is_mapped {
            memory.is_mapped = true;
        } else if !memory.is_mapped {
            *self = Lending::Not;
        }
        Ok(())
    }

    /// Takes a slot.
    pub fn take(&mut self) -> Result<LendingSlot, NotLent> {
        match self {
            Lending::NeverOffered => Err(NotLent::Never),
            Lending::Offered(memory) if memory.is_mapped => memory.slots.take().ok_or(NotLent::Now),
            Lending::Not | Lending::Offered(_) => Err(NotLent::Now),
        }
    }

    /// Whether a slot belongs to this memory.
    pub fn owns(&self, slot: &LendingSlot) -> bool {
        matches!(self, Lending::Offered(memory) if memory.slots.owns(slot))
    }

    /// Notes that a message was sent: its record is in the ring.
    pub fn sent(&mut self, slot: LendingSlot, (connection, conn): (Connection, u32), op: SendOp) {
        let entry = self.memory().and_then(|memory| memory.lent.get_mut(slot.index() as usize));
        if let Some(entry) = entry {
            *entry = Some(Lent { _slot: slot, connection, conn, op: Some(op), is_taken: false });
        }
    }

    /// Notes the end of a record, if it is a loan's. The message completes now only if it did not reach the peer.
    #[inline(always)]
    pub fn ended(&mut self, core: &mut Core, ended: &Ended, status: Status) {
        if let Some(slot) = ended.loan {
            self.record_ended(core, slot.into(), status);
        }
    }

    #[cold]
    fn record_ended(&mut self, core: &mut Core, slot: u32, status: Status) {
        let Some(memory) = self.memory() else { return };
        let Some(entry) = memory.lent.get_mut(slot as usize) else { return };
        let Some(lent) = entry else { return };
        if status == Status::Success {
            lent.is_taken = true;
            return;
        }
        if let Some(op) = lent.op.take() {
            core.complete_apart(lent.connection, op, status);
        }
        // Only a message that was taken back is certain not to be read.
        if status == Status::ReceiverNotReady {
            *entry = None;
        }
    }

    /// Handles the return of slots.
    ///
    /// # Errors
    /// The peer does not have all of them.
    pub fn returned(&mut self, core: &mut Core, slots: u64) -> Result<(), Corrupt> {
        let memory = self.memory().ok_or(Corrupt::Length)?;
        let mut left = slots;
        while left != 0 {
            let slot = left.trailing_zeros() as usize;
            left &= left - 1;
            let entry = memory.lent.get_mut(slot).ok_or(Corrupt::Length)?;
            match entry.take_if(|lent| lent.is_taken || lent.op.is_none()) {
                Some(lent) => complete(core, &lent, lent.op),
                None => return Err(Corrupt::Length),
            }
        }
        Ok(())
    }

    /// Completes the messages of a connection that has ended and that its peer still has: they were delivered.
    pub fn connection_ended(&mut self, core: &mut Core, conn: u32) {
        let Some(memory) = self.memory() else { return };
        for lent in memory.lent.iter_mut().flatten() {
            if lent.conn == conn && lent.is_taken {
                let op = lent.op.take();
                complete(core, lent, op);
            }
        }
    }

    /// Ends all loans of a link that has ended. The memory is never lent again.
    pub fn end(&mut self, core: &mut Core) {
        if let Some(memory) = self.memory() {
            for lent in memory.lent.iter_mut().filter_map(Option::take) {
                complete(core, &lent, lent.op);
            }
        }
        *self = Lending::Not;
    }

    /// Whether loans are handed over, and what stands for or against it.
    pub fn describe(&self) -> (bool, String) {
        match self {
            Lending::NeverOffered => (false, "no loan was asked for yet".to_owned()),
            Lending::Not => {
                (false, "copied: the peer does not map their memory, or there is none".to_owned())
            }
            Lending::Offered(memory) if !memory.is_mapped => {
                (false, "copied: the peer has not mapped their memory yet".to_owned())
            }
            Lending::Offered(memory) => {
                let slots = memory.lent.len();
                (true, format!("the peer has mapped their memory; {} of {slots} are with it", self.lent()))
            }
        }
    }

    /// How many messages were sent and not returned.
    pub fn lent(&self) -> usize {
        match self {
            Lending::Offered(memory) => memory.lent.iter().flatten().count(),
            Lending::NeverOffered | Lending::Not => 0,
        }
    }
}

fn complete(core: &mut Core, lent: &Lent, op: Option<SendOp>) {
    if let Some(op) = op {
        core.complete_apart(lent.connection, op, Status::Success);
    }
}
