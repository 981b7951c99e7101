//! What all connections of an endpoint share.

use super::counts::Counts;
use super::input::Keepers;
use super::lent::Lent;
use super::pace::Pace;
use super::sends::Sends;
use super::streams::Streams;
use crate::engine::chunks::Chunks;

/// What all connections of an endpoint share.
pub(super) struct Shared {
    pub sends: Sends,
    pub chunks: Chunks,
    /// The part of the memory cap that is lent to sends that wait for space.
    pub lent: Lent,
    pub counts: Counts,
    /// The last reading of the clock.
    pub now_ns: u64,
    /// No send is overdue before this time.
    pub sends_due_ns: u64,
    pub keepers: Keepers,
    pub streams: Streams,
    pub pace: Pace,
}
