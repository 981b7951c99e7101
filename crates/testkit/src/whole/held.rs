//! Messages that programs keep.

use crate::whole::contents;
use cci::{MappedMessage, Message};

/// A message that the program keeps.
pub(super) struct Held {
    pub until_ns: u64,
    pub side: usize,
    pub message: Kept,
}

/// Where a kept message is.
pub(super) enum Kept {
    /// In a receive buffer.
    Copied(Message),
    /// Where the sender wrote it.
    Mapped(MappedMessage),
}

impl Held {
    /// Whether somebody has written into the message.
    pub fn is_damaged(&self) -> bool {
        let is_damaged =
            |bytes: &[u8]| bytes.len() >= contents::NAMED_BYTES_MIN && contents::identify(bytes).is_none();
        match &self.message {
            Kept::Copied(message) => is_damaged(message),
            Kept::Mapped(message) => is_damaged(&message.to_vec()),
        }
    }
}
