//! Messages that are written where they are sent from.

use crate::connection::Connection;
use crate::error::SendError;
use cci_memory::bytes::Trust;
use cci_memory::pool::SlotMut;
use cci_sys::shared_memory::LendingSlot;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Memory of the library's that a message is written to before it is sent, by [`Endpoint::send_loan`](crate::Endpoint::send_loan). It
/// holds what earlier messages had, or zeros. Dropping it, on any thread, gives it back unsent.
pub struct Loan {
    pub(crate) memory: LoanMemory,
    pub(crate) connection: Connection,
    len_bytes: usize,
}

pub(crate) enum LoanMemory {
    /// The peer can map it.
    Mapped(LendingSlot),
    /// Only this process has it.
    Own(SlotMut),
}

impl Loan {
    /// The memory is long enough.
    pub(crate) fn new(memory: LoanMemory, connection: Connection, len_bytes: usize) -> Loan {
        Loan { memory, connection, len_bytes }
    }

    /// The connection that it is for.
    pub fn connection(&self) -> Connection {
        self.connection
    }

    /// Whether the message is handed over where it lies. Otherwise it is copied when it is sent.
    pub fn is_mapped(&self) -> bool {
        matches!(self.memory, LoanMemory::Mapped(_))
    }

    /// Makes the message shorter: its first `len_bytes` bytes. Longer than it is, nothing changes.
    pub fn truncate(&mut self, len_bytes: usize) {
        self.len_bytes = self.len_bytes.min(len_bytes);
    }
}

impl Deref for Loan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all = match &self.memory {
            LoanMemory::Mapped(slot) => slot.bytes(),
            LoanMemory::Own(slot) => slot.bytes(),
        };
        all.get(..self.len_bytes).unwrap_or_default()
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut [u8] {
        let all = match &mut self.memory {
            LoanMemory::Mapped(slot) => slot.bytes_mut(),
            LoanMemory::Own(slot) => slot.fill(),
        };
        all.get_mut(..self.len_bytes).unwrap_or_default()
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.is_mapped() { "mapped" } else { "copied" };
        write!(f, "Loan({} bytes for {:?}, {whose})", self.len_bytes, self.connection)
    }
}

/// A loan that was not sent, and why not.
#[derive(Debug)]
pub struct RefusedLoan {
    /// Why not.
    pub error: SendError,
    /// The memory, with the message in it.
    pub loan: Loan,
}

impl fmt::Display for RefusedLoan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for RefusedLoan {}

/// How messages that the peer lends reach the program, on one connection.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Loans {
    /// By [`Event::Recv`](crate::Event::Recv), as all others: they are copied once.
    #[default]
    Copied,
    /// By [`Event::Mapped`](crate::Event::Mapped) where they can be mapped: the program copies out what it needs.
    Mapped,
    /// By [`Event::Mapped`](crate::Event::Mapped) where they can be mapped, and readable in place: the program trusts the peer to leave them
    /// as they are.
    Trusted(Trust),
}
