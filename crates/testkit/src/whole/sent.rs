//! What a side has started.

use cci::Status;

/// A message or an operation.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Sent {
    pub len_bytes: u32,
    /// Nothing is said of it alone: it has no completion, or one with others of its burst.
    pub silent: bool,
    /// It was handed over where it lies, so it completes when it is returned, in no order.
    pub is_lent: bool,
    pub status: Option<Status>,
    pub delivered: u8,
    /// Its place among all that was started here.
    pub ticket: u32,
}
