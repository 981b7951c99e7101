//! Messages that programs keep.

use crate::whole::contents;
use cci::Message;

/// A message that the program keeps.
pub(super) struct Held {
    pub until_ns: u64,
    pub side: usize,
    pub message: Message,
}

impl Held {
    /// Whether somebody has written into the message.
    pub fn is_damaged(&self) -> bool {
        self.message.len() >= contents::NAMED_BYTES_MIN && contents::identify(&self.message).is_none()
    }
}
