//! Messages that are written to library memory and handed over where they lie.

use super::dial;
use super::messages::{Messages, received, taken};
use cci::{Event, Loan, Loans, MappedMessage, SendError, SendFlags};
use cci_measure::channel::Channel;
use cci_measure::failure::{Failure, Outcome};

/// One end.
pub struct Lent {
    messages: Messages,
    /// For the next message: lent while the answer to the last one is under way.
    next: Option<Loan>,
}

impl From<Messages> for Lent {
    fn from(mut messages: Messages) -> Lent {
        // A connection that is gone shows when it is used.
        let _ = messages.endpoint.set_loans(messages.connection, Loans::Mapped);
        Lent { messages, next: None }
    }
}

impl Lent {
    /// None: all memory for loans is out.
    fn loan(&mut self, len: usize) -> Outcome<Option<Loan>> {
        match self.messages.endpoint.loan(self.messages.connection, len) {
            Ok(loan) => Ok(Some(loan)),
            Err(SendError::WouldBlock) => Ok(None),
            Err(error) => Err(dial::failed("loan")(&error)),
        }
    }
}

impl Channel for Lent {
    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
        let next = self.next.take().filter(|loan| loan.len() == message.len());
        let Some(mut loan) = (match next {
            Some(loan) => Some(loan),
            None => self.loan(message.len())?,
        }) else {
            return Ok(false);
        };
        loan.copy_from_slice(message);
        match self.messages.endpoint.send_loan(loan, 0, SendFlags::SILENT) {
            Ok(()) => {
                self.next = self.loan(message.len())?;
                Ok(true)
            }
            Err(refused) => {
                self.next = Some(refused.loan);
                taken(Err(refused.error))
            }
        }
    }

    #[inline]
    fn flush(&mut self) {
        self.messages.flush();
    }

    #[inline]
    fn try_receive(&mut self) -> Outcome<Option<u64>> {
        match self.messages.endpoint.next_event() {
            None => Ok(None),
            Some(Event::Mapped(message)) => stamp(&message).map(Some),
            Some(event) => received(&event),
        }
    }
}

/// The message's first bytes. It goes back right after.
fn stamp(message: &MappedMessage) -> Outcome<u64> {
    let mut first = [0; 8];
    let has_first = message.len() < first.len() || message.read(0, &mut first);
    if has_first {
        Ok(u64::from_ne_bytes(first))
    } else {
        Err(Failure::new("a mapped message can't be read"))
    }
}
