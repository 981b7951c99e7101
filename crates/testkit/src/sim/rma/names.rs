//! How operations, and the messages behind their data, are named and known again.

use crate::contents;

/// Marks operations' numbers, among what the protocol gives back, and the messages behind their data.
pub(in crate::sim) const OPERATION_MARK: u64 = 1 << 63;
const MESSAGE_MARK: u32 = 1 << 23;

/// What `Endpoint::rma` is given to name an operation.
pub(in crate::sim) fn name_of(side: usize, index: u32) -> u64 {
    OPERATION_MARK | (side as u64) << 32 | u64::from(index)
}

/// Fills in the message that comes behind an operation's data.
pub(in crate::sim) fn fill_message(side: usize, index: u32, bytes: &mut [u8]) {
    contents::fill(side as u32 | MESSAGE_MARK, index, bytes);
}

/// Which side and operation a message is from, of a side as `contents::identify` gives it.
pub(in crate::sim) fn operation_side(side: u32) -> Option<usize> {
    (side & MESSAGE_MARK != 0).then_some((side & !MESSAGE_MARK) as usize)
}
