//! How a bundle that is larger than what the path takes is split.

use crate::Seq;

/// How a bundle is split into datagrams.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// The size of each datagram, in bytes.
    pub size: u16,
    /// Whether this finds out if that size passes: then the last datagram is filled up to it.
    pub is_trial: bool,
}

/// A bundle of which the carrier could not take the last parts.
#[derive(Copy, Clone, Debug)]
pub(crate) struct UnsentParts {
    pub seq: Seq,
    pub split: Split,
    /// The first part that has not left.
    pub next: u16,
}
