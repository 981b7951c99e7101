//! A long message on its way in: what this side knows of it, from the offer to the answer.

use super::answer::Answer;
use super::lent::{Buffer, Capacity};
use super::pieces::Pieces;
use super::wire::{Purpose, Source};
use crate::connection::Connection;
use crate::rma::{Memory, RegionHandle};
use std::sync::Arc;

/// One long message.
pub struct Incoming {
    pub connection: Connection,
    /// What the peer calls it.
    pub number: u32,
    pub purpose: Purpose,
    pub source: Source,
    pub stage: Stage,
    /// Whether the program was offered it, and so learns how it ends.
    pub was_offered: bool,
    /// The context that the program gave when it accepted.
    pub context: u64,
    /// It has ended, and the endpoint has taken the answer, so that the sender may know by now.
    pub is_answered: bool,
}

/// How far it is.
pub enum Stage {
    /// The program decides, or will be asked.
    Offered,
    /// It will be received into memory of the library, once there is some.
    Waiting,
    /// It is being fetched.
    Fetching(Fetch),
    /// It has ended here, and the sender must be given this answer.
    Ended(Answer),
}

/// What a message that is being fetched has.
pub struct Fetch {
    pub into: Memory,
    /// The part of that memory where the message goes.
    pub region: RegionHandle,
    pub pieces: Pieces,
    /// For the library's memory: what gives it back.
    pub lent: Option<Arc<Capacity>>,
}

impl Incoming {
    /// How many bytes are here.
    pub fn moved_bytes(&self) -> u64 {
        match &self.stage {
            Stage::Offered | Stage::Waiting => 0,
            Stage::Fetching(fetch) => fetch.pieces.moved_bytes(),
            Stage::Ended(Answer::Received) => self.source.len_bytes(),
            Stage::Ended(_) => 0,
        }
    }

    /// How many bytes are still to come of a message that is being fetched.
    pub fn unfetched_bytes(&self) -> u64 {
        match &self.stage {
            Stage::Fetching(fetch) => self.source.len_bytes() - fetch.pieces.moved_bytes(),
            _ => 0,
        }
    }

    /// How much memory of the library it holds.
    pub fn lent_bytes(&self) -> u64 {
        match &self.stage {
            Stage::Fetching(Fetch { into, lent: Some(_), .. }) => Buffer::len_in(into.len()) as u64,
            _ => 0,
        }
    }

    /// Whether nothing but the answer is left of it.
    pub fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended(_))
    }
}
