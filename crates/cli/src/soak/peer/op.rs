//! What a session has under way.

/// What was started and will complete.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A message of the stream.
    Message,
    /// One of the stream that was handed over where it lies: it completes when the peer returns it.
    Loan,
    /// One beside it.
    Frame,
    /// The last word.
    Done,
    /// A write to a slot.
    Write { slot: usize },
    /// A write of all slots at once.
    Pour,
    /// A read behind a write to a slot.
    Read { slot: usize, seed: u64, len: u64 },
    /// An addition to the word of the session.
    Add,
    /// A swap.
    Swap { to: u64 },
    /// An addition to the word of all.
    Ledger,
}
