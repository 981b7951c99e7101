//! A long message on its way out: what this side knows of it, from the offer to the receiver's answer.

use super::answer::{Answer, SendFailure};
use super::kept::Lent;
use super::staging::Staged;
use super::wire::Purpose;
use crate::connection::{Connection, Status};
use crate::limits::LONG_SEGMENTS_MAX;

/// One long message.
pub struct Outgoing {
    pub connection: Connection,
    /// What the peer calls it.
    pub number: u32,
    pub purpose: Purpose,
    pub report: Report,
    pub len_bytes: u64,
    /// How many bytes the receiver has, as far as it has said.
    moved_bytes: u64,
    stage: Stage,
    /// The parts of the program's memory that the receiver reads.
    pub lent: [Option<Lent>; LONG_SEGMENTS_MAX],
    /// The library's copy of the message, if it was sent from a slice.
    pub staged: Option<Staged>,
}

/// What the program learns of the end.
#[derive(Copy, Clone, Debug)]
pub struct Report {
    /// The program's.
    pub context: u64,
    pub silent: bool,
}

impl Report {
    /// Nothing: another event says it.
    pub const NONE: Report = Report { context: 0, silent: true };
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The peer may not have the offer yet.
    Offering,
    /// The peer has the offer.
    Offered,
    /// The program has cancelled it, and the peer may not have the offer yet, which a cancellation must not overtake.
    CancelledEarly,
    /// The peer is asked to stop; its answer ends the message.
    Cancelling,
}

impl Outgoing {
    pub fn new(
        connection: Connection,
        number: u32,
        purpose: Purpose,
        report: Report,
        len_bytes: u64,
    ) -> Outgoing {
        Outgoing {
            connection,
            number,
            purpose,
            report,
            len_bytes,
            moved_bytes: 0,
            stage: Stage::Offering,
            lent: [const { None }; LONG_SEGMENTS_MAX],
            staged: None,
        }
    }

    /// How many bytes the receiver has fetched, as far as it has said.
    pub fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// The receiver says how far it is. What it says may only grow, and not beyond the end.
    pub fn moves_to(&mut self, moved_bytes: u64) {
        self.moved_bytes = self.moved_bytes.max(moved_bytes.min(self.len_bytes));
    }

    /// The peer has the offer. Returns whether the cancellation is to be sent now.
    pub fn has_arrived(&mut self) -> bool {
        let is_cancelled = self.stage == Stage::CancelledEarly;
        self.stage = match self.stage {
            Stage::Offering | Stage::Offered => Stage::Offered,
            Stage::CancelledEarly | Stage::Cancelling => Stage::Cancelling,
        };
        is_cancelled
    }

    /// The program cancels the message. Returns whether the cancellation is to be sent now; `None` if it was cancelled before.
    pub fn cancel(&mut self) -> Option<bool> {
        let (stage, sends) = match self.stage {
            Stage::Offering => (Stage::CancelledEarly, false),
            Stage::Offered => (Stage::Cancelling, true),
            Stage::CancelledEarly | Stage::Cancelling => return None,
        };
        self.stage = stage;
        Some(sends)
    }

    /// How the message ends by the receiver's answer.
    pub fn ends_by(&self, answer: Answer) -> Result<(), SendFailure> {
        let is_cancelled = matches!(self.stage, Stage::CancelledEarly | Stage::Cancelling);
        match answer {
            Answer::Received => Ok(()),
            _ if is_cancelled => Err(SendFailure::Cancelled),
            Answer::Refused(code) => Err(SendFailure::Refused(code)),
            Answer::TooLong { max_bytes } => Err(SendFailure::TooLong { max_bytes }),
            Answer::Failed => Err(SendFailure::NotReadable),
        }
    }

    /// How the message ends if no answer can come any more.
    pub fn fails_by(&self, status: Status) -> SendFailure {
        match self.stage {
            Stage::CancelledEarly | Stage::Cancelling if status != Status::Disconnected => {
                SendFailure::Cancelled
            }
            _ => SendFailure::Failed(status),
        }
    }
}
