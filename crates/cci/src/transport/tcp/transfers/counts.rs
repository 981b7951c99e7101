//! What is counted of remote memory.

/// Counted since the endpoint was opened.
#[derive(Default)]
pub(super) struct Counts {
    pub operations: u64,
    pub streams: u64,
    /// Times that a stream had to wait for its turn.
    pub waited: u64,
    /// Connections that had to make room for those.
    pub retired_for_space: u64,
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Of these, straight into their regions.
    pub bytes_placed: u64,
    /// Of these, through a buffer.
    pub bytes_copied: u64,
    pub held: u64,
}
