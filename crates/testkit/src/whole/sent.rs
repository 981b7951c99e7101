//! What a side has started.

use cci::Status;

/// A message or an operation.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Sent {
    pub len_bytes: u32,
    pub silent: bool,
    pub status: Option<Status>,
    pub delivered: u8,
    /// Its place among all that was started here.
    pub ticket: u32,
}
