//! Loans: messages that are written where they are sent from, and handed over mapped where that is possible.

use super::Endpoint;
use crate::connection::Connection;
use crate::engine::core::{ConnState, SendOp};
use crate::error::{OptionError, SendError};
use crate::limits;
use crate::loan::{Loan, LoanMemory, Loans, RefusedLoan};
use crate::options::{Attribute, SendFlags};
use crate::transport::{Report, Setting};
use cci_memory::pool::SlotPool;

impl Endpoint {
    /// Lends memory for one message of `len_bytes` bytes on a connection. The program writes the message there and sends it by
    /// [`Endpoint::send_loan`]. That saves the program a buffer of its own and, over shared memory, from 2 KiB on, copies: the peer gets
    /// the message where it lies, or copies it once ([`Endpoint::set_loans`]). The first loans of a connection may have to be copied
    /// as other messages are, since the peer has to map the memory first.
    ///
    /// # Errors
    /// Those of [`Endpoint::send`]. `WouldBlock` means that all memory for loans is out: a completion of a loan says that some is back.
    pub fn loan(&mut self, connection: Connection, len_bytes: usize) -> Result<Loan, SendError> {
        let (link, attribute) = self.may_send_loan(connection, len_bytes)?;
        let mapped = if attribute.is_reliable() {
            self.transport.loan(&mut self.core, connection, link, len_bytes)
        } else {
            None
        };
        let memory = match mapped {
            Some(slot) => LoanMemory::Mapped(slot),
            None => LoanMemory::Own(self.own_loans()?.take().ok_or(SendError::WouldBlock)?),
        };
        Ok(Loan::new(memory, connection, len_bytes))
    }

    /// Sends the message that was written to a loan. It ends in exactly one [`Event::Send`](crate::Event::Send) with `context`, unless it
    /// is silent, when the memory is this side's again. If it was handed over mapped, that is when the receiver has dropped the message,
    /// or the connection has ended; so this completion may come out of order. The message itself arrives in order: after those sent
    /// before it, and before those sent after it.
    ///
    /// ```
    /// use cci::{Connection, Endpoint, SendError, SendFlags};
    ///
    /// fn send_squares(endpoint: &mut Endpoint, to: Connection) -> Result<(), SendError> {
    ///     let mut loan = endpoint.loan(to, 4096)?;
    ///     for (index, byte) in loan.iter_mut().enumerate() {
    ///         *byte = (index * index) as u8;
    ///     }
    ///     endpoint.send_loan(loan, 0, SendFlags::NONE).map_err(|refused| refused.error)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`RefusedLoan`] has the loan, and an error as of [`Endpoint::send`]. Nothing was sent.
    pub fn send_loan(&mut self, mut loan: Loan, context: u64, flags: SendFlags) -> Result<(), RefusedLoan> {
        let (connection, len_bytes) = (loan.connection, loan.len());
        let slot = match loan.memory {
            LoanMemory::Mapped(slot) => slot,
            LoanMemory::Own(_) => {
                return match self.send(connection, &loan, context, flags) {
                    Ok(()) => Ok(()),
                    Err(error) => Err(RefusedLoan { error, loan }),
                };
            }
        };
        let op = SendOp { context, silent: flags.contains(SendFlags::SILENT) };
        let sent = match self.may_send_loan(connection, len_bytes) {
            Err(error) => Err((error, slot)),
            Ok(_) if !self.core.waiting.is_empty() || !self.core.reserve_completion() => {
                Err((SendError::WouldBlock, slot))
            }
            Ok((link, _)) => {
                self.transport.send_loan(&mut self.core, connection, link, (slot, len_bytes), op)
            }
        };
        if let Err((error, slot)) = sent {
            loan.memory = LoanMemory::Mapped(slot);
            return Err(RefusedLoan { error, loan });
        }
        self.core.counters.messages_sent += 1;
        self.core.counters.bytes_sent += len_bytes as u64;
        self.touched();
        Ok(())
    }

    /// Says how messages that the peer of a connection lends reach the program from now on. At first they are copied
    /// ([`Loans::Copied`]). Where no memory is mapped, which is everywhere but over shared memory, it changes nothing.
    ///
    /// # Errors
    /// [`OptionError::UnknownConnection`] and [`OptionError::OtherProcess`].
    pub fn set_loans(&mut self, connection: Connection, loans: Loans) -> Result<(), OptionError> {
        let link = self.link(connection)?;
        self.transport.configure(&mut self.core, Setting::Loans { link, loans });
        Ok(())
    }

    fn may_send_loan(&self, connection: Connection, len_bytes: usize) -> Result<(u64, Attribute), SendError> {
        if !self.is_ours() {
            return Err(SendError::OtherProcess);
        }
        let conn = self.core.conn(connection).ok_or(SendError::UnknownConnection)?;
        match conn.state {
            ConnState::Open => {}
            ConnState::Connecting | ConnState::Accepting => return Err(SendError::UnknownConnection),
            _ => return Err(SendError::Disconnected),
        }
        if conn.attribute == Attribute::MulticastReceive {
            return Err(SendError::ReceiveOnly);
        }
        if len_bytes > conn.mss() as usize {
            return Err(SendError::TooLong { len_bytes, max_bytes: conn.mss() });
        }
        Ok((conn.link, conn.attribute))
    }

    /// The memory of loans that can't be handed over; made when it is first wanted.
    fn own_loans(&mut self) -> Result<&mut SlotPool, SendError> {
        if self.own_loans.is_none() {
            let pool = SlotPool::new(limits::LOANS_MAX, self.core.slot_bytes()).ok();
            let bytes = pool.as_ref().map_or(0, SlotPool::bytes) as u64;
            // What the transport does not use now it may use later, so it has to know that this is gone.
            let mut spare_bytes = 0;
            self.transport.report(&self.core, Report::SpareBytes(&mut spare_bytes));
            if bytes > spare_bytes {
                return Err(SendError::WouldBlock);
            }
            (self.own_loans, self.core.own_loans_bytes) = (pool, bytes);
            self.settle_loan();
        }
        self.own_loans.as_mut().ok_or(SendError::WouldBlock)
    }
}
